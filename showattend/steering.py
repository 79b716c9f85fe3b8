"""Steering a caption: where the model must look, and which words it must begin with.

A mask on the attention is enough for the first: scores outside of it count as -inf, so that softmax
gives such cells a weight of exactly 0 and shares all of it among the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
import numpy.typing as npt
from torch import Tensor

from showattend.decoder import Scene

_LONGEST = 60  # letters of what is repeated of a wrong look

#: x0, y0, x1, y1 in fractions of the photograph, or the cells themselves, (h, w) bool.
LookAt = Sequence[float] | npt.NDArray[np.bool_]


class Steer(TypedDict, total=False):
    """What a caption may be bound to, as people say it; docs/steering.md.

    Attributes:
        look_at: where the model must look: a box x0, y0, x1, y1 in fractions of the photograph,
            from its upper left corner, or a mask (h, w) of the grid's cells.
        look_from: the number of the first word, counted from 1, that is bound to it.
        begin: the words that the caption begins with: a text, or words as a caption has them.
    """

    look_at: LookAt | None
    look_from: int
    begin: str | Sequence[str]


@dataclass(frozen=True, eq=False)
class Steering:
    """The same as a search over B images takes it; by default, nothing is bound.

    Attributes:
        cells_BP: the cells of each image, or regions, that may be looked at; None: all.
        look_from: the number of the first word, counted from 1, that is bound to them.
        begin: ids of the words that every caption begins with.
    """

    cells_BP: Tensor | None = None
    look_from: int = 1
    begin: tuple[int, ...] = ()

    def scene(self, whole: Scene, t: int) -> Scene:
        """What may be looked at for word t, counted from 0."""
        if self.cells_BP is None or t + 1 < self.look_from:
            return whole
        there = whole.mask_BP
        return replace(whole, mask_BP=self.cells_BP if there is None else self.cells_BP & there)

    def select(self, images: Tensor) -> "Steering":
        """The same of some of the images."""
        return self if self.cells_BP is None else replace(self, cells_BP=self.cells_BP[images])


def check_steer(height: int, width: int, look_at: LookAt | None = None, look_from: int = 1) -> None:
    """Whether a grid of so many rows and columns can be looked at so.

    Raises:
        ValueError: ``look_at`` is neither a box nor some of the cells, or ``look_from`` is no
            number of a word, or says nothing without ``look_at``; one line.
    """
    if not isinstance(look_from, int) or look_from < 1:
        raise ValueError(f"look_from is {look_from!r}: expected the number of a word, 1 or more")
    if look_at is None:
        if look_from > 1:
            raise ValueError(f"look_from is {look_from}: say by look_at where to look from there")
        return
    try:
        given = np.asarray(look_at)
    except ValueError:  # rows of unequal lengths
        given = np.empty(0, dtype=object)
    if given.dtype == bool:
        if given.shape != (height, width) or not given.any():
            raise ValueError(
                f"look_at is a mask {given.shape} with {given.sum()} cells: expected ({height}, "
                f"{width}), as the model's grid, and a cell or more"
            )
        return
    numbers = given.shape == (4,) and given.dtype.kind in "fiu"
    if not (
        numbers and (given >= 0).all() and (given <= 1).all() and (given[:2] < given[2:]).all()
    ):
        raise ValueError(
            f"look_at is {_told(look_at)}: expected a box x0, y0, x1, y1 with x0 < x1 and y0 < y1 "
            "in fractions of the photograph, 0 to 1, or a mask (h, w) of bool"
        )


def _told(look_at: object) -> str:
    """In one line, and not a long one: people hand in whole masks of numbers."""
    line = " ".join(str(look_at).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def cells_of(
    look_at: LookAt, seen: Sequence[float], height: int, width: int
) -> npt.NDArray[np.bool_]:
    """The cells that are meant, (h, w); none where the model sees nothing of the box.

    A cell is in the box if its centre is. Where the box passes between the centres of two rows, or
    two columns, it has the one that its own centre lies in; so it always has a cell.

    Args:
        seen: the part of the photograph that the grid covers, x0, y0, x1, y1 in fractions of it.
    """
    given = np.asarray(look_at)
    if given.dtype == bool:
        return given
    left, top, right, bottom = seen
    x0, y0, x1, y1 = given
    columns_w = _passed((x0 - left) / (right - left), (x1 - left) / (right - left), width)
    rows_h = _passed((y0 - top) / (bottom - top), (y1 - top) / (bottom - top), height)
    return np.outer(rows_h, columns_w)


def _passed(low: float, high: float, cells: int) -> npt.NDArray[np.bool_]:
    """Which of the cells that part 0..1 evenly a stretch takes up."""
    low, high = max(low, 0.0), min(high, 1.0)
    if low >= high:
        return np.zeros(cells, dtype=bool)
    centres = (np.arange(cells) + 0.5) / cells
    inside = (low <= centres) & (centres <= high)
    inside[min(int((low + high) / 2 * cells), cells - 1)] = True
    return inside
