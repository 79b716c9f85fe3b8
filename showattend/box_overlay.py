"""Attention weights of regions + photograph -> pictures: which boxes a word looked at.

A box is filled with the colour of its weight, on the scale of `overlay.scale_top`: all words of a
caption share it, and its top is at least eight times the weight 1/P of a flat look over P regions.
Where boxes overlap the largest weight shows: they are not added up, so that no place looks surer
than any of its boxes is. Outlines fade with the weight too; a box without any is not seen. Of a
hard look the colours are the distribution it comes from, and the box that was used is framed.
"""

import math
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from showattend.overlay import (
    PANEL_SIDE,
    PAPER,
    STRENGTH,
    blend,
    figure_of,
    for_display,
    framed,
    scale_legend,
    scale_top,
    scaled,
    write_animation,
    write_figure,
    write_word_pngs,
)
from showattend.search import Boxes, Caption

OUTLINE = 2  # pixels


def box_overlays(
    photo: Image.Image, caption: Caption, boxes: Boxes, strength: float = STRENGTH
) -> list[Image.Image]:
    """One picture a word: the photograph, at most `overlay.DISPLAY_SIDE` a side, under its boxes.

    Raises:
        ValueError: there are other boxes than weights; one line.
    """
    alpha_TP, regions = caption.alpha, len(boxes.boxes_P4)
    if alpha_TP.shape[1:] != (regions,):
        raise ValueError(f"alpha has shape {alpha_TP.shape}: expected (T, {regions}), as the boxes")
    picture = for_display(photo)
    pixels_P4 = _on_pixels(boxes.boxes_P4, picture.size)
    top = _top(caption)
    drawn = [_with_boxes(picture, alpha_P, pixels_P4, top, strength) for alpha_P in alpha_TP]
    if _is_hard(caption):
        used_T = caption.weights.argmax(axis=1)
        drawn = [framed(each, pixels_P4[used]) for each, used in zip(drawn, used_T, strict=True)]
    return drawn


def box_figure(
    photo: Image.Image, caption: Caption, boxes: Boxes, title: str | None = None
) -> Image.Image:
    """The photograph, then a panel for each word, and the scale: as `overlay.caption_figure`."""
    picture = scaled(photo, PANEL_SIDE)
    panels = [picture, *box_overlays(picture, caption, boxes)]
    regions = len(boxes.boxes_P4)
    explanation = "framed: what the model looked at; colours: " if _is_hard(caption) else ""
    explanation += (
        f"attention weight of one region ({regions} regions; where they overlap, the largest), one "
        f"scale for all words; the mark is the weight of a flat look, {1 / regions:.2g}"
    )
    legend = partial(scale_legend, _top(caption), 1 / regions, explanation)
    return figure_of(panels, caption.words, title, legend)


def save_box_overlays(
    folder: Path, name: str, photo: Image.Image, caption: Caption, boxes: Boxes
) -> None:
    """FOLDER/NAME.png (the figure), NAME.gif and a picture a word in NAME/."""
    write_figure(folder / f"{name}.png", box_figure(photo, caption, boxes, caption.text))
    overlays = box_overlays(photo, caption, boxes)
    write_animation(folder / f"{name}.gif", caption.words, [for_display(photo), *overlays])
    write_word_pngs(folder / name, caption.words, overlays)


def _top(caption: Caption) -> float:
    return scale_top(caption.alpha[:, None, :])  # P regions count as one row of cells


def _is_hard(caption: Caption) -> bool:
    return not np.array_equal(caption.weights, caption.alpha)


Box = tuple[int, int, int, int]


def _on_pixels(boxes_P4: NDArray[np.floating], size: tuple[int, int]) -> list[Box]:
    """As PIL's boxes, each at least a pixel wide and high."""
    (width, height), found = size, []
    for x0, y0, x1, y1 in np.clip(boxes_P4, 0, 1).tolist():
        left = min(round(x0 * width), width - 1)
        upper = min(round(y0 * height), height - 1)
        right, lower = max(round(x1 * width), left + 1), max(round(y1 * height), upper + 1)
        found.append((left, upper, right, lower))
    return found


def _with_boxes(
    picture: Image.Image,
    weights_P: NDArray[np.floating],
    boxes: list[Box],
    top: float,
    strength: float,
) -> Image.Image:
    heat_HW = np.zeros((picture.height, picture.width))
    outlines = Image.new("L", picture.size)
    draw = ImageDraw.Draw(outlines)
    for number in np.argsort(weights_P):  # the largest weight last: it shows
        left, upper, right, lower = boxes[number]
        heat_HW[upper:lower, left:right] = weights_P[number]
        opacity = round(255 * math.sqrt(min(float(weights_P[number]) / top, 1.0)))
        draw.rectangle((left, upper, right - 1, lower - 1), outline=opacity, width=OUTLINE)
    filled = blend(picture, heat_HW, top, strength)
    return Image.composite(Image.new("RGB", picture.size, PAPER), filled, outlines)
