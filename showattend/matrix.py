"""The alignment matrix: a row for every word, a column for everything that it may look at.

The classic picture of attention (Bahdanau et al. 2015, arXiv 1409.0473, figure 3), here with the
cells of the photograph's grid as columns, or the words before. All rows share one scale, which the
legend states; no row is stretched to its own range.

Everything is laid out in whole pixels, so that every cell has the same size and its own colour.
Letters in names: h, w grid cells; P = h w; T words; X columns.
"""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageFont

from showattend.overlay import (
    MARGIN,
    Window,
    checked_caption,
    font_file,
    heat_and_windows,
    letters_of,
    scale_top,
    shortened,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORMAP = "Blues"  # one colour, from nearly white for 0 to dark for the top of the scale
FRAME_COLOUR = "#d9480f"  # of what a hard look took in; no shade of the scale is near it
LINE_COLOUR = "#8a8f98"
INK, FAINT_INK = "#141414", "#696969"
UNREAD = "#e9e9e9"  # grey, which no weight is: a word that is not written yet

ROW = 26  # pixels; the height of a row, and the widest that its letters allow
COLUMN = 40  # pixels; the widest column of a cell
CELLS_WIDTH = 1200  # pixels that the columns of a grid share, as far as each gets 2 of them
WORDS_SIDE = 1600  # the same for words, of which there are rarely so many
LABEL_WIDTH = 200  # longer words are shortened
NARROWEST = 640  # the legend's lines fit into it
TEXT, SMALL_TEXT, LINE_HEIGHT = 15, 13, 19
BAR_SIZE = (260, 14)
GAP = 8
DPI = 64  # a power of two, so that no size in pixels is rounded; a point is 1/72 inch


def words_by_cells(
    words: Sequence[str], maps_Thw: ArrayLike, alpha_Thw: ArrayLike | None = None
) -> Image.Image:
    """The weight of every cell (P columns, row by row of the grid) for every word (T rows).

    A line and a number tell where each row of the grid begins. The scale is that of the overlays
    (`overlay.scale_top`), with a mark at the weight of a flat map. With `alpha_Thw` the cells of a
    hard look (`overlay.windows`) are framed, over the shades of `alpha_Thw`.

    Raises:
        ValueError: there is no word, words and maps do not match, or these are no weights (T, h,
            w); one line.
    """
    words, maps_Thw = checked_caption(words, maps_Thw)
    heat_Thw, looked = heat_and_windows(maps_Thw, alpha_Thw)
    _, height, width = heat_Thw.shape
    flat = 1 / (height * width)
    notes = [
        f"weight of one cell, one scale for all words; the mark is that of a flat map, {flat:.2g}",
        f"columns: the {height} × {width} cells, row by row from the top; a number begins each row",
    ]
    if looked is not None:
        notes.append("framed: what the model looked at; shades: what it was chosen from")
    column = _side(height * width, COLUMN, CELLS_WIDTH)
    begins = {row * width: str(row + 1) for row in range(height)}
    sheet = _Sheet(words, begins, (column, _side(len(words), ROW, WORDS_SIDE)), height * width)
    figure, axes = sheet.draw(heat_Thw.reshape(len(words), -1), scale_top(heat_Thw), notes, flat)
    axes.vlines([start - 0.5 for start in begins if start], *axes.get_ylim(), **_LINE)
    _frame(axes, looked or [], width)
    return _picture(figure)


def words_by_words(words: Sequence[str], weights_TT: ArrayLike) -> Image.Image:
    """The weight of START and every word before (T columns) for every word written (T rows).

    Args:
        weights_TT: of one layer and head of `CaptionModel.word_attention`, or a mean of them.
            Weights of a word itself and of later ones are not drawn: they are not read yet.
    Raises:
        ValueError: there is no word, or these are not their weights, from 0 to 1; one line.
    """
    words, weights_TT = list(words), np.asarray(weights_TT, dtype=np.float64)
    if weights_TT.shape != (len(words), len(words)):
        raise ValueError(f"weights have shape {weights_TT.shape}: expected {(len(words),) * 2}")
    if not ((weights_TT >= 0) & (weights_TT <= 1.001)).all():
        raise ValueError("weights hold numbers that are no shares: expected 0 to 1")
    notes = [
        "weight of one word, one scale for all rows; those of a row sum to 1",
        "rows: the word that is written; columns: the words read before it, START first",
    ]
    side = _side(len(words), ROW, WORDS_SIDE)
    columns = dict(enumerate(["START", *words[:-1]]))
    sheet = _Sheet(words, columns, (side, side), len(words), upright=True)
    unread_TT = np.triu(np.ones_like(weights_TT, dtype=bool), 1)
    figure, _ = sheet.draw(np.ma.masked_where(unread_TT, weights_TT), 1.0, notes)
    return _picture(figure)


# --- the sheet ------------------------------------------------------------------------------------

_LINE: Any = {"colors": LINE_COLOUR, "linewidth": 72 / DPI, "alpha": 0.6}  # a pixel wide


class _Sheet:
    """A matrix with its labels and legend, measured in pixels.

    Args:
        rows: the words beside the rows.
        columns: column -> what stands above it.
        cell: width and height of one.
        count: of the columns.
        upright: the columns' labels are words, written upwards.
    """

    def __init__(
        self,
        rows: Sequence[str],
        columns: Mapping[int, str],
        cell: tuple[int, int],
        count: int,
        *,
        upright: bool = False,
    ) -> None:
        self.font = font_file("".join([*rows, *columns.values()]))
        self.size = min(TEXT, max(1, round(0.6 * cell[1])))
        self.rows = [self._label(word) for word in rows]
        self.columns = {column: self._label(word) for column, word in columns.items()}
        self.upright = upright
        above = max(map(self._length, self.columns.values())) if upright else LINE_HEIGHT
        self.left = MARGIN + max(map(self._length, self.rows)) + GAP
        self.top = MARGIN + above + GAP
        self.matrix = (cell[0] * count, cell[1] * len(rows))

    def draw(
        self, weights_TX: NDArray[np.float64], top: float, notes: list[str], mark: float = 0.0
    ) -> "tuple[Figure, Axes]":
        """The figure, and the axes of its matrix, whose cell (t, x) lies at the point (x, t).

        Args:
            mark: a weight to show on the legend's scale, if any.
        """
        from matplotlib.figure import Figure  # as in `overlay`: only for those who draw

        (width, height), legend = self.matrix, self.top + self.matrix[1] + 2 * GAP
        size = (
            max(NARROWEST, self.left + width + MARGIN),
            legend + BAR_SIZE[1] + GAP + LINE_HEIGHT * len(notes) + MARGIN,
        )
        figure = Figure(figsize=(size[0] / DPI, size[1] / DPI), dpi=DPI, facecolor="white")
        axes = _axes(figure, size, (self.left, self.top, width, height))
        axes.set_facecolor(UNREAD)
        for spine in axes.spines.values():
            spine.set(color=LINE_COLOUR, linewidth=72 / DPI)
        scale: Any = {"cmap": COLORMAP, "vmin": 0.0, "vmax": top, "interpolation": "nearest"}
        axes.imshow(weights_TX, aspect="auto", **scale)
        written = {"parse_math": False, **self._font(self.size)}
        axes.set_yticks(range(len(self.rows)), labels=self.rows, **written)
        turned: Any = {"rotation": 90} if self.upright else {}
        axes.set_xticks(list(self.columns), labels=list(self.columns.values()), **written, **turned)
        axes.tick_params(length=0, labeltop=True, labelbottom=False, pad=GAP / 2 * 72 / DPI)
        axes.hlines([row - 0.5 for row in range(1, len(self.rows))], *axes.get_xlim(), **_LINE)

        bar = _axes(figure, size, (self.left, legend, *BAR_SIZE))
        bar.imshow([np.linspace(0, top, 256)], aspect="auto", extent=(0, top, 0, 1), **scale)
        bar.set_axis_off()
        if mark:
            bar.axvline(mark, color=INK, linewidth=2 * 72 / DPI)
        middle = legend + BAR_SIZE[1] / 2
        self._write(figure, size, (self.left - GAP, middle), "0", INK, "right")
        self._write(figure, size, (self.left + BAR_SIZE[0] + GAP, middle), f"{top:.2g}", INK)
        for number, note in enumerate(notes):
            y = legend + BAR_SIZE[1] + GAP + LINE_HEIGHT * (number + 0.5)
            self._write(figure, size, (self.left, y), note, FAINT_INK)
        return figure, axes

    def _label(self, word: str) -> str:
        """The word as its font can write it: matplotlib warns of a letter that a font lacks."""
        letters = letters_of(self.font)
        known = "".join(x if ord(x) in letters else "?" for x in " ".join(word.split()))
        return shortened(known, ImageFont.truetype(self.font, self.size), LABEL_WIDTH)

    def _length(self, label: str) -> int:
        return round(ImageFont.truetype(self.font, self.size).getlength(label))

    def _font(self, size: int) -> dict[str, Any]:
        from matplotlib.font_manager import FontProperties

        return {"fontproperties": FontProperties(fname=self.font, size=size * 72 / DPI)}

    def _write(
        self,
        figure: "Figure",
        size: tuple[int, int],
        at: tuple[float, float],
        text: str,
        colour: str,
        side: str = "left",
    ) -> None:
        place: Any = {"ha": side, "va": "center_baseline", "color": colour}
        x, y = at[0] / size[0], 1 - at[1] / size[1]
        figure.text(x, y, text, **place, **self._font(SMALL_TEXT))


def _axes(figure: "Figure", size: tuple[int, int], box: tuple[int, int, int, int]) -> "Axes":
    """Axes over a box of pixels: left, upper, width, height."""
    left, upper, width, height = box
    return figure.add_axes(
        (left / size[0], 1 - (upper + height) / size[1], width / size[0], height / size[1])
    )


def _side(count: int, largest: int, together: int) -> int:
    """Pixels of one of so many rows or columns. Raises ValueError where there are none."""
    if not count:
        raise ValueError("the caption has no words: there is nothing to draw")
    return max(2, min(largest, together // count))


def _frame(axes: "Axes", looked: Sequence[Window], columns: int) -> None:
    """Frame each word's cells; those of one row of the grid lie side by side."""
    from matplotlib.patches import Rectangle

    for word, (left, upper, right, lower) in enumerate(looked):
        for row in range(upper, lower):
            corner = (row * columns + left - 0.5, word - 0.5)
            around: Any = {"edgecolor": FRAME_COLOUR, "linewidth": 2 * 72 / DPI, "clip_on": False}
            axes.add_patch(Rectangle(corner, right - left, 1, fill=False, zorder=3, **around))


def _picture(figure: "Figure") -> Image.Image:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return Image.open(file).convert("RGB")
