"""The pointing game (Zhang et al. 2016, arXiv 1608.00507): does a map's peak lie in the right box?

A map points at the centre of its highest cell, before any upsampling. It hits if that point lies in
one of the boxes of the phrase. Beside it stand what no attention is needed for (the image's centre,
a random cell) and what no attention can surpass (the grid's ceiling).

All here is numpy, and in fractions of the square that the model sees. Letters besides the
package's: h, w rows and columns of the attention's grid; Y, X points or stretches along the
square's sides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from showattend.boxes import Box, Grounded, Phrase
from showattend.datasets import ImageId

Array = npt.NDArray[np.floating]

#: A phrase is small if its boxes cover at most this much of the photograph.
SMALL = 0.25
#: How the maps of a phrase's words become the phrase's one: names of the measures, in order.
WAYS = ("head", "mean", "maximum")


@dataclass(frozen=True)
class Pointed:
    """How one phrase fared.

    Attributes:
        types: the phrase's categories.
        small: its boxes cover at most a quarter of the photograph.
        measures: 0 or 1 for a miss or a hit, or a share 0..1:
            "head", "mean", "maximum": whether the peak of the phrase's map hits: that of its head
            word, or the mean or the highest of its words' maps; "... mass": the share of that map's
            weight that lies in the boxes;
            "centre": whether the middle of the square hits; "chance": how often a random cell does;
            "ceiling": whether any cell can; "area": how much of the square the boxes cover, which
            is the mass of a flat map.
    """

    types: tuple[str, ...]
    small: bool
    measures: Mapping[str, float]


@dataclass(frozen=True)
class Share:
    """A mean over phrases, kept as sums of every image (N), for images are what is resampled."""

    numerators_N: Array
    denominators_N: Array

    @property
    def value(self) -> float:
        """0..1; NaN of nothing."""
        count = self.denominators_N.sum()
        return float(self.numerators_N.sum() / count) if count else float("nan")


def peak(map_hw: Array, width: float, height: float) -> tuple[float, float]:
    """Centre (x, y) of the map's highest cell (of equals, the first), where the map covers an area
    of ``width`` x ``height``.
    """
    rows, columns = map_hw.shape
    row, column = divmod(int(map_hw.argmax()), columns)
    return (column + 0.5) * width / columns, (row + 0.5) * height / rows


def inside(point: tuple[float, float], boxes: Sequence[Box]) -> bool:
    """Whether a point lies in any of the boxes (x0, y0, x1, y1); the far edges are outside."""
    x, y = point
    return any(x0 <= x < x1 and y0 <= y < y1 for x0, y0, x1, y1 in boxes)


def hit_cells(boxes: Sequence[Box], height: int, width: int) -> npt.NDArray[np.bool_]:
    """(h, w): the cells whose centre lies in any of the boxes."""
    x_w, y_h = ((np.arange(n) + 0.5) / n for n in (width, height))
    return _within(boxes, x_w, y_h)


def cover(boxes: Sequence[Box], height: int, width: int) -> Array:
    """(h, w): how much of every cell, 0..1, the boxes cover together; exact."""
    edges_X = _edges(width, [x for x0, _, x1, _ in boxes for x in (x0, x1)])
    edges_Y = _edges(height, [y for _, y0, _, y1 in boxes for y in (y0, y1)])
    # Between these edges a stretch lies in one cell, and is covered whole or not at all.
    middle_X, middle_Y = ((edges[1:] + edges[:-1]) / 2 for edges in (edges_X, edges_Y))
    covered_YX = _within(boxes, middle_X, middle_Y)
    across_Xw = _shares(edges_X, middle_X, width)
    down_Yh = _shares(edges_Y, middle_Y, height)
    return down_Yh.T @ covered_YX @ across_Xw


def area(boxes: Sequence[Box]) -> float:
    """How much of the whole the boxes cover together, 0..1."""
    return float(cover(boxes, 1, 1)[0, 0])


def seen_boxes(boxes: Sequence[Box], seen: Box) -> tuple[Box, ...]:
    """Boxes of the photograph as fractions of the part of it that the model sees.

    They are clipped to that part; what lies outside is gone.
    """
    left, top, right, bottom = seen
    moved = [
        (
            max(0.0, (x0 - left) / (right - left)),
            max(0.0, (y0 - top) / (bottom - top)),
            min(1.0, (x1 - left) / (right - left)),
            min(1.0, (y1 - top) / (bottom - top)),
        )
        for x0, y0, x1, y1 in boxes
    ]
    return tuple((x0, y0, x1, y1) for x0, y0, x1, y1 in moved if x0 < x1 and y0 < y1)


def point(maps_Thw: Array, grounded: Grounded, seen: Box, *, shift: int = 0) -> list[Pointed]:
    """The pointing game on one sentence, for each of its phrases that can be seen.

    Args:
        maps_Thw: where the model looked for every word of the sentence and for its end mark.
        seen: the part of the photograph that the model sees, in fractions of it.
        shift: 1 takes for each word the map of the step after it. Attention is computed before its
            word is chosen (Xu et al. 2015); the next step's knows the word.
    """
    if len(maps_Thw) != len(grounded.words) + 1:
        raise ValueError(
            f"{len(maps_Thw)} maps for {len(grounded.words)} words and the end: {grounded.sentence}"
        )
    pointed = []
    for phrase in grounded.phrases:
        boxes = seen_boxes(phrase.boxes, seen)
        if boxes:
            maps_3hw = phrase_maps(maps_Thw, phrase, shift)
            small = area(phrase.boxes) <= SMALL
            pointed.append(Pointed(phrase.types, small, _measures(maps_3hw, boxes)))
    return pointed


def phrase_maps(maps_Thw: Array, phrase: Phrase, shift: int = 0) -> Array:
    """(3, h, w): a phrase's map made of its words' in every one of ``WAYS``."""
    first, end = phrase.words
    words_Thw = maps_Thw[first + shift : end + shift]
    return np.stack([maps_Thw[phrase.head + shift], words_Thw.mean(axis=0), words_Thw.max(axis=0)])


def shares(pointed: Mapping[ImageId, Sequence[Pointed]]) -> dict[tuple[str, str], Share]:
    """The mean of every measure over the phrases of a group: {(group, measure): share}.

    Groups are "all", "small" and each type of phrase; a phrase of two types counts for both.
    """
    types = sorted({name for phrases in pointed.values() for p in phrases for name in p.types})
    table = {}
    for group in ("all", "small", *types):
        of_images = [
            [p.measures for p in phrases if _belongs(p, group)] for phrases in pointed.values()
        ]
        counts_N = np.array([len(phrases) for phrases in of_images], dtype=float)
        for measure in next((phrases[0] for phrases in of_images if phrases), {}):
            sums_N = np.array([sum(m[measure] for m in phrases) for phrases in of_images])
            table[group, measure] = Share(sums_N.astype(float), counts_N)
    return table


def _belongs(pointed: Pointed, group: str) -> bool:
    return group == "all" or (group == "small" and pointed.small) or group in pointed.types


def _measures(maps_3hw: Array, boxes: Sequence[Box]) -> dict[str, float]:
    height, width = maps_3hw.shape[1:]
    hit_hw, cover_hw = hit_cells(boxes, height, width), cover(boxes, height, width)
    measures = {}
    for way, map_hw in zip(WAYS, maps_3hw, strict=True):
        measures[way] = float(inside(peak(map_hw, 1, 1), boxes))
        # The maximum of maps that each sum to 1 does not.
        measures[f"{way} mass"] = float((map_hw * cover_hw).sum() / map_hw.sum())
    return measures | {
        # The point itself: where the number of rows or columns is even, it is no cell's centre.
        "centre": float(inside((0.5, 0.5), boxes)),
        "chance": float(hit_hw.mean()),
        "ceiling": float(hit_hw.any()),
        "area": float(cover_hw.mean()),
    }


def _within(boxes: Sequence[Box], x_X: Array, y_Y: Array) -> npt.NDArray[np.bool_]:
    """(Y, X): whether the points of a lattice lie in any of the boxes."""
    covered_YX = np.zeros((len(y_Y), len(x_X)), dtype=bool)
    for x0, y0, x1, y1 in boxes:
        covered_YX |= np.outer((y0 <= y_Y) & (y_Y < y1), (x0 <= x_X) & (x_X < x1))
    return covered_YX


def _edges(cells: int, of_boxes: Sequence[float]) -> Array:
    """The edges of the cells and of the boxes along one side of the square, in order."""
    return np.unique(np.concatenate([np.arange(cells + 1) / cells, np.clip(of_boxes, 0.0, 1.0)]))


def _shares(edges_X: Array, middle_X: Array, cells: int) -> Array:
    """(X, cells): how much of each cell every stretch between two edges takes."""
    cell_X = np.minimum((middle_X * cells).astype(int), cells - 1)
    return np.eye(cells)[cell_X] * (np.diff(edges_X) * cells)[:, None]
