"""Does the attention look at the thing it names? The pointing game (Zhang et al. 2016).

A word's map points at the centre of its highest cell, before any upsampling; it hits if that point
lies in one of the boxes of what the word names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from showattend.datasets import ImageId, Picture
from showattend.search import Caption
from showattend.shapes import CANVAS, noun_boxes
from showattend.shapes import Scene as ShapeScene

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Pointing:
    """How many nouns were said, and for how many the attention's peak lay in the named box."""

    nouns: int
    hits: int

    @property
    def rate(self) -> float:
        """Hits per noun, 0..1; NaN where no noun was said."""
        return self.hits / self.nouns if self.nouns else float("nan")


def peak(map_hw: np.ndarray, width: float, height: float) -> tuple[float, float]:
    """Centre (x, y) of the map's highest cell, in pixels of the part of the picture it covers."""
    rows, columns = map_hw.shape
    row, column = divmod(int(map_hw.argmax()), columns)
    return (column + 0.5) * width / columns, (row + 0.5) * height / rows


def inside(point: tuple[float, float], boxes: Sequence[Box]) -> bool:
    """Whether a point lies in any of the boxes (x0, y0, x1, y1); the far edges are outside."""
    x, y = point
    return any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in boxes)


def point_at_shapes(captions: Mapping[ImageId, Caption], pictures: Sequence[Picture]) -> Pointing:
    """The pointing game on generated captions of drawn shapes.

    Every noun that the model says counts. One that names nothing in the picture has no box and is
    a miss.
    """
    nouns = hits = 0
    for picture in pictures:
        caption = captions.get(picture.image_id)
        if caption is None or not isinstance(picture.source, ShapeScene):
            continue
        maps_Thw = caption.maps()
        for position, boxes in noun_boxes(picture.source, caption.words):
            nouns += 1
            hits += inside(peak(maps_Thw[position], CANVAS, CANVAS), boxes)
    return Pointing(nouns, hits)
