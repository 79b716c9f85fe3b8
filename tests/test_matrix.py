"""The matrix shows every weight at its place, and all rows in one scale."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFont

from showattend import matrix
from showattend.matrix import words_by_cells, words_by_words
from showattend.overlay import MARGIN, font_file

FLAT = np.full((14, 14), 1 / 196)


def one_hot(height: int, width: int, row: int, column: int) -> NDArray[np.float64]:
    map_hw = np.zeros((height, width))
    map_hw[row, column] = 1
    return map_hw


def corner(
    picture: Image.Image, words: list[str], row: int = 26, notes: int = 2
) -> tuple[int, int]:
    """Where the matrix begins: its labels lie at the left, and its legend has a fixed height."""
    font = ImageFont.truetype(font_file("".join(words)), matrix.TEXT)
    left = MARGIN + round(max(map(font.getlength, words))) + matrix.GAP
    legend = 3 * matrix.GAP + matrix.BAR_SIZE[1] + notes * matrix.LINE_HEIGHT + MARGIN
    return left, picture.height - legend - row * len(words)


def cells(
    picture: Image.Image, words: list[str], columns: int, width: int, notes: int = 2
) -> NDArray[np.uint8]:
    """The colours at the middles of the cells, (rows, columns, 3); they are 26 pixels high."""
    left, upper = corner(picture, words, notes=notes)
    down = upper + 26 * np.arange(len(words)) + 13
    across = left + width * np.arange(columns) + width // 2
    return np.asarray(picture)[down][:, across]


def darkness(colours_TX3: NDArray[np.uint8]) -> NDArray[np.int64]:
    return 3 * 255 - colours_TX3.sum(axis=-1, dtype=int)


# --- words by cells -------------------------------------------------------------------------------


def test_every_weight_is_at_its_place() -> None:
    """By hand: 196 columns share 1200 pixels, so that each has 6; a row has 26."""
    places = [(0, 0), (13, 13), (2, 5)]
    maps_Thw = np.stack([one_hot(14, 14, *place) for place in places])
    words = ["a", "dog", "runs"]
    shown = darkness(cells(words_by_cells(words, maps_Thw), words, 196, 6))
    assert shown.argmax(axis=1).tolist() == [0, 195, 2 * 14 + 5]
    dark, light = shown.max(), shown.min()
    assert (shown == dark).sum() == 3 and (shown == light).sum() == 3 * 195  # nothing between


def test_the_matrix_is_as_wide_as_its_cells() -> None:
    picture = words_by_cells(["dog"], FLAT[None])
    left, _ = corner(picture, ["dog"])
    assert picture.width == left + 196 * 6 + MARGIN
    assert words_by_cells(["dog"] * 7, np.stack([FLAT] * 7)).height == picture.height + 6 * 26
    assert words_by_cells(["dog"], np.ones((1, 1, 1))).width == matrix.NARROWEST


def test_equal_weights_have_equal_colours_and_larger_ones_are_darker() -> None:
    first, second = np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([[0.4, 0.3], [0.2, 0.1]])
    words = ["a", "dog"]
    shown = cells(words_by_cells(words, np.stack([first, second])), words, 4, 40)
    assert (shown[0] == shown[1, ::-1]).all()
    assert (np.diff(darkness(shown)[0]) > 0).all()


def test_no_row_is_stretched_to_its_own_range() -> None:
    """A flat map is an eighth of the scale at most, and paler beside a certain one."""
    alone = cells(words_by_cells(["a"], FLAT[None]), ["a"], 196, 6)
    beside = words_by_cells(["a", "dog"], np.stack([FLAT, one_hot(14, 14, 3, 3)]))
    flat_row, certain_row = darkness(cells(beside, ["a", "dog"], 196, 6))
    assert len(np.unique(alone.reshape(-1, 3), axis=0)) == 1
    assert flat_row.max() < darkness(alone).max() < certain_row.max() / 4


def test_lines_stand_where_rows_of_the_grid_begin() -> None:
    picture = words_by_cells(["dog"], FLAT[None])
    left, upper = corner(picture, ["dog"])
    row = np.asarray(picture)[upper + 13, left : left + 196 * 6].astype(int)
    middle = row[3]  # of the first cell, as of all
    lines = np.flatnonzero((row != middle).any(axis=1))
    expected = 84 * np.arange(1, 14)
    inner = lines[(lines > 6) & (lines < 196 * 6 - 6)]
    assert len(inner) == len(expected)
    assert np.abs(inner - expected).max() <= 1


def test_a_hard_look_is_framed_over_its_distribution() -> None:
    alpha_Thw = np.array([[[0.1, 0.2], [0.3, 0.4]]])
    look = one_hot(2, 2, 1, 0)[None]
    hard = words_by_cells(["dog"], look, alpha_Thw)
    soft = words_by_cells(["dog"], alpha_Thw, alpha_Thw)
    shown = cells(hard, ["dog"], 4, 40, notes=3)
    assert (shown == cells(soft, ["dog"], 4, 40)).all()
    orange = (np.asarray(hard) == tuple(bytes.fromhex(matrix.FRAME_COLOUR[1:]))).all(axis=2)
    left, _ = corner(hard, ["dog"], notes=3)
    columns = np.flatnonzero(orange.any(axis=0)) - left
    assert abs(columns.min() - 2 * 40) <= 1 and abs(columns.max() - 3 * 40) <= 1


@pytest.mark.parametrize(("count", "side"), [(1, 1), (60, 1), (7, 2), (1, 32), (60, 32)])
def test_any_size_is_drawn(count: int, side: int) -> None:
    maps_Thw = np.stack([one_hot(side, side, t % side, side - 1) for t in range(count)])
    words = ["word"] * count
    picture = words_by_cells(words, maps_Thw)
    width = {1: 40, 4: 40, 1024: 2}[side**2]
    shown = darkness(cells(picture, words, side**2, width))
    assert shown.argmax(axis=1).tolist() == [t % side * side + side - 1 for t in range(count)]


ODD = [
    "<unk>",
    "狗",
    "$x$",
    r"$\frac{",
    "كلب",
    "🐶",
    "w" * 300,
    "\ud800\0",
    "été",
    "a\nb",
    "",
    "_^",
]


def test_any_word_is_drawn() -> None:
    """Warnings are errors here, and a dollar begins no formula."""
    picture = words_by_cells(ODD, np.stack([FLAT] * len(ODD)))
    assert picture.width < matrix.LABEL_WIDTH + 1200 + 100
    assert words_by_words(ODD, np.eye(len(ODD))).height < 2 * matrix.LABEL_WIDTH + 26 * len(ODD)


def test_threads_draw_the_same_matrix() -> None:
    def draw(_: int) -> bytes:
        return words_by_cells(["a", "dog"], np.stack([FLAT, one_hot(14, 14, 1, 2)])).tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(draw, range(6)))) == 1


def test_what_is_no_caption_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^2 words but 1 attention maps: expected as many$"):
        words_by_cells(["a", "dog"], FLAT[None])
    with pytest.raises(ValueError, match=r"^the caption has no words: there is nothing to draw$"):
        words_by_cells([], np.zeros((0, 2, 2)))
    with pytest.raises(ValueError, match="negative or non-finite"):
        words_by_cells(["a"], -FLAT[None])


# --- words by words -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 60])
def test_captions_of_any_length_are_drawn(count: int) -> None:
    words = ["word"] * count
    shown = darkness(cells(words_by_words(words, np.eye(count)), words, count, 26))
    assert (np.diag(shown) == shown.max()).all()
    assert (shown == shown.max()).sum() == count


def test_words_not_read_yet_are_grey() -> None:
    weights_TT = np.array([[1, 0, 0], [0.25, 0.75, 0], [0.25, 0, 0.75]])
    words = ["a", "dog", "runs"]
    shown = cells(words_by_words(words, weights_TT), words, 3, 26)
    grey = (shown == tuple(bytes.fromhex(matrix.UNREAD[1:]))).all(axis=-1)
    assert (grey == np.triu(np.ones((3, 3), bool), 1)).all()
    assert (shown[1, 0] == shown[2, 0]).all() and (shown[1, 1] == shown[2, 2]).all()
    dark = darkness(shown)
    assert dark[0, 0] > dark[1, 1] > dark[1, 0] > dark[2, 1]


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        (np.ones((2, 3)), r"^weights have shape \(2, 3\): expected \(2, 2\)$"),
        (np.full((2, 2), -0.5), "^weights hold numbers that are no shares: expected 0 to 1$"),
        (np.full((2, 2), np.nan), "no shares"),
        (np.full((2, 2), 1.5), "no shares"),
    ],
)
def test_what_is_no_share_is_refused(weights: NDArray[np.float64], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        words_by_words(["a", "dog"], weights)


def test_the_scale_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its top is the largest weight, in two digits."""
    written: list[str] = []
    write = matrix._Sheet._write

    def spy(
        sheet: matrix._Sheet, figure: object, size: object, at: object, text: str, *_: object
    ) -> None:
        written.append(text)
        write(sheet, figure, size, at, text, *_)  # type: ignore[arg-type]

    monkeypatch.setattr(matrix._Sheet, "_write", spy)
    peaked = np.full((14, 14), 0.5 / 195)
    peaked[2, 2] = 0.5
    words_by_cells(["dog"], peaked[None])
    assert written[:2] == ["0", "0.5"]
    assert written[2].endswith("a flat map, 0.0051")
    written.clear()
    words_by_words(["dog"], [[1.0]])
    assert written[:2] == ["0", "1"]
