"""Heat lands on the right pixels, one fixed scale for all words, files whole or not at all."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageChops

from showattend import overlay
from showattend.images import Resize, seen_box
from showattend.overlay import (
    blend,
    caption_figure,
    heat_on_photograph,
    is_drawn,
    save_animation,
    save_figure,
    save_word_pngs,
    scale_top,
    windows,
    word_overlays,
)

RESIZES = st.sampled_from(["squash", "crop", "pad"])
QUARTER_WAY = 0.84375  # 1 - 3 d^2 + 2 d^3 at d = 1/4; the neighbour gets the rest, 0.15625


def grey(width: int, height: int, level: int = 128) -> Image.Image:
    return Image.new("RGB", (width, height), (level, level, level))


def noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def one_hot(side: int, row: int, column: int) -> NDArray[np.float64]:
    map_hw = np.zeros((side, side))
    map_hw[row, column] = 1
    return map_hw


def flat(side: int) -> NDArray[np.float64]:
    return np.full((side, side), 1 / side**2)


# --- scale ----------------------------------------------------------------------------------------


def test_scale_ends_at_eight_times_a_flat_map_or_at_the_largest_weight_of_all_words() -> None:
    assert scale_top(flat(7)[None]) == 8 / 49
    assert scale_top(np.stack([flat(14), one_hot(14, 3, 4)])) == 1
    peaked = np.full((14, 14), 0.5 / 195)
    peaked[2, 2] = 0.5
    assert scale_top(np.stack([peaked, flat(14)])) == 0.5
    assert scale_top(np.zeros((0, 7, 7))) == 8 / 49  # a caption of no words


@pytest.mark.parametrize(
    ("maps", "complaint"),
    [
        (np.zeros((7, 7)), r"shape \(7, 7\): expected \(T, h, w\)"),
        (np.zeros((1, 0, 7)), r"shape \(1, 0, 7\)"),
        (np.full((1, 2, 2), -0.1), "negative"),
        (np.full((1, 2, 2), np.nan), "non-finite"),
    ],
)
def test_maps_that_are_no_weights_are_refused(maps: NDArray[np.float64], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        scale_top(maps)


# --- heat -----------------------------------------------------------------------------------------


def test_heat_by_hand_squash() -> None:
    # Cells 2 pixels wide have their centres at x = 1 and 3; pixels theirs at 0.5, 1.5, 2.5, 3.5.
    heat_HW = heat_on_photograph([[1.0, 0.0]], (4, 1), "squash")
    np.testing.assert_allclose(heat_HW, [[1, QUARTER_WAY, 1 - QUARTER_WAY, 0]])


def test_heat_by_hand_crop_is_zero_where_the_model_did_not_look() -> None:
    heat_HW = heat_on_photograph([[0.5]], (6, 2), "crop")
    np.testing.assert_allclose(heat_HW, [[0, 0, 0.5, 0.5, 0, 0]] * 2)


def test_heat_by_hand_pad_cuts_off_what_lies_beyond_the_photograph() -> None:
    # The square reaches from x = -1 to 3: of two cells with centres at 0 and 2 we see x = 0.5, 1.5.
    heat_HW = heat_on_photograph([[1.0, 0.0]], (2, 4), "pad")
    np.testing.assert_allclose(heat_HW, [[QUARTER_WAY, 1 - QUARTER_WAY]] * 4)


@settings(deadline=None)
@given(
    side=st.integers(1, 14),
    place=st.tuples(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True)),
    width=st.integers(20, 160),
    height=st.integers(20, 160),
    resize=RESIZES,
)
def test_heat_peaks_at_the_centre_of_its_cell(
    side: int, place: tuple[float, float], width: int, height: int, resize: Resize
) -> None:
    row, column = int(place[0] * side), int(place[1] * side)
    left, upper, right, lower = seen_box(width, height, resize)
    cell_width, cell_height = (right - left) / side, (lower - upper) / side
    x, y = left + (column + 0.5) * cell_width, upper + (row + 0.5) * cell_height
    assume(0.5 <= x <= width - 0.5 and 0.5 <= y <= height - 0.5)  # a padding cell has no pixel

    heat_HW = heat_on_photograph(one_hot(side, row, column), (width, height), resize)

    ys, xs = np.nonzero(heat_HW >= heat_HW.max() - 1e-9)
    assert np.maximum(np.abs(xs + 0.5 - x), np.abs(ys + 0.5 - y)).min() <= 1
    # An outer cell keeps its weight up to the border; any other has its peak at the centre only.
    assert np.abs(xs + 0.5 - x).max() <= (1 if 0 < column < side - 1 else cell_width / 2 + 1)
    assert np.abs(ys + 0.5 - y).max() <= (1 if 0 < row < side - 1 else cell_height / 2 + 1)


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    side=st.integers(1, 9),
    width=st.integers(1, 60),
    height=st.integers(1, 60),
    resize=RESIZES,
)
def test_heat_never_leaves_the_range_of_the_cells(
    seed: int, side: int, width: int, height: int, resize: Resize
) -> None:
    map_hw = np.random.default_rng(seed).dirichlet(np.full(side**2, 0.3)).reshape(side, side)
    heat_HW = heat_on_photograph(map_hw, (width, height), resize)
    left, upper, right, lower = seen_box(width, height, resize)
    xs, ys = np.arange(width) + 0.5, np.arange(height) + 0.5
    seen_HW = ((ys >= upper) & (ys < lower))[:, None] & ((xs >= left) & (xs < right))
    assert heat_HW.shape == (height, width)
    assert (heat_HW[~seen_HW] == 0).all()
    assert (heat_HW[seen_HW] <= map_hw.max() + 1e-12).all()
    assert (heat_HW[seen_HW] >= map_hw.min() - 1e-12).all()


# --- blend ----------------------------------------------------------------------------------------


def test_full_strength_shows_the_colours_of_the_scale_alone() -> None:
    heat_HW = np.array([[0.2, 0.5]])  # the top, and beyond it
    assert np.asarray(blend(noise(2, 1), heat_HW, 0.2, 1.0)).tolist() == [
        [list(overlay.MARKER)] * 2
    ]


def test_blend_by_hand() -> None:
    # Dimmed to 1 - 0.4 * 0.6 = 0.76; at the top 0.6 of the colour (252, 254, 164) and 0.4 of that.
    left, right = np.asarray(blend(grey(2, 1, 100), np.array([[0.0, 1.0]]), 1.0, 0.6))[0]
    assert left.tolist() == [76, 76, 76]
    np.testing.assert_allclose(right, [181.6, 182.8, 128.8], atol=1)


def test_a_quarter_of_the_weight_has_half_of_the_opacity() -> None:
    colour = np.asarray(blend(grey(1, 1, 0), [[64 / 255]], 1.0, strength=1.0))[0, 0]
    alone = matplotlib.colormaps["inferno"](64, bytes=True)[:3]
    np.testing.assert_allclose(colour, np.multiply(alone, 0.5), atol=1)


def test_strength_0_is_the_photograph() -> None:
    photo = noise(8, 6)
    blended = blend(photo, np.full((6, 8), 0.5), 1.0, strength=0)
    assert blended.tobytes() == photo.tobytes()


def test_more_weight_is_brighter_on_a_dark_photograph() -> None:
    blended = blend(grey(256, 1, 0), np.linspace(0, 1, 256)[None], 1.0)
    lightness = np.asarray(blended.convert("L"), dtype=int)[0]
    assert (np.diff(lightness) >= -1).all()  # -1: rounding to whole levels
    assert lightness[-1] - lightness[0] > 140


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_blend_takes_any_mode(mode: str) -> None:
    assert blend(grey(3, 2).convert(mode), np.zeros((2, 3)), 1.0).mode == "RGB"


def test_blend_refuses_what_makes_no_picture() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 2\): expected the photograph's \(2, 3\)"):
        blend(grey(3, 2), np.zeros((3, 2)), 1.0)
    with pytest.raises(ValueError, match="top is 0"):
        blend(grey(3, 2), np.zeros((2, 3)), 0.0)
    with pytest.raises(ValueError, match=r"strength is 1\.5"):
        blend(grey(3, 2), np.zeros((2, 3)), 1.0, strength=1.5)


# --- overlays of words ----------------------------------------------------------------------------


def change(overlaid: Image.Image, level: int = 128) -> NDArray[np.int64]:
    """How far every pixel of a grey photograph moved from where weight 0 would leave it."""
    untouched = blend(grey(1, 1, level), [[0.0]], 1.0).getpixel((0, 0))
    difference = np.abs(np.asarray(overlaid, dtype=int) - np.asarray(untouched))
    farthest: NDArray[np.int64] = difference.max(axis=2)
    return farthest


@pytest.mark.parametrize("side", [7, 14])
@pytest.mark.parametrize("resize", ["squash", "pad"])
def test_a_flat_map_looks_flat(side: int, resize: Resize) -> None:
    (overlaid,) = word_overlays(grey(90, 60), flat(side)[None], resize)
    assert len(np.unique(change(overlaid))) == 1  # the same change everywhere
    (certain,) = word_overlays(grey(90, 60), one_hot(side, side // 2, side // 2)[None], resize)
    assert change(overlaid).max() < change(certain).max() / 4  # and a small one


def test_all_words_share_one_scale() -> None:
    photo, unsure = noise(70, 70), flat(7)
    unsure[3, 3] += 0.05
    alone = word_overlays(photo, unsure[None], "squash")[0]
    beside_certain = word_overlays(photo, np.stack([unsure, one_hot(7, 0, 0)]), "squash")[0]
    expected = blend(photo, heat_on_photograph(unsure, photo.size, "squash"), 1.0)
    assert beside_certain.tobytes() == expected.tobytes()
    assert beside_certain.tobytes() != alone.tobytes()


def test_large_photographs_are_scaled_down_and_small_ones_left() -> None:
    assert word_overlays(grey(1280, 300), flat(7)[None], "crop")[0].size == (640, 150)
    assert word_overlays(grey(300, 1281), flat(7)[None], "crop")[0].size == (150, 640)
    assert word_overlays(grey(33, 20), flat(7)[None], "crop")[0].size == (33, 20)
    assert word_overlays(grey(4000, 1), flat(7)[None], "pad")[0].size == (640, 1)


# --- hard looks -----------------------------------------------------------------------------------


def test_a_hard_look_is_the_rectangle_of_its_cells() -> None:
    alpha_Thw = np.stack([flat(4), flat(4)])
    glimpse = np.zeros((4, 4))
    glimpse[2:4, 1:4] = 1 / 6  # three by three cells, cut at the grid's lower border
    maps_Thw = np.stack([one_hot(4, 0, 3), glimpse])
    assert windows(maps_Thw, alpha_Thw) == [(3, 0, 4, 1), (1, 2, 4, 4)]


def test_other_weights_are_no_hard_look() -> None:
    peaked = np.full((4, 4), 0.5 / 15)
    peaked[1, 1] = 0.5
    smooth = np.full((4, 4), 0.4 / 15)
    smooth[1, 1] = 0.6
    assert windows(one_hot(4, 0, 0)[None], None) is None
    assert windows(flat(4)[None], flat(4)[None]) is None  # soft attention, that looks anywhere
    assert windows(smooth[None], peaked[None]) is None
    assert windows(np.stack([one_hot(4, 0, 0), smooth]), np.stack([peaked, peaked])) is None
    assert windows(np.zeros((1, 4, 4)), peaked[None]) is None
    with pytest.raises(ValueError, match=r"alpha has shape \(1, 2, 2\): expected the maps' \(1, 4"):
        windows(peaked[None], flat(2)[None])


@pytest.mark.parametrize(
    ("resize", "box"),
    [("squash", (40, 50, 80, 75)), ("crop", (55, 50, 80, 75)), ("pad", (40, 50, 80, 90))],
)
def test_the_window_shows_the_photograph_and_has_sharp_edges(
    resize: Resize, box: tuple[int, int, int, int]
) -> None:
    """Cell (2, 1) of 4 x 4 on 160 x 100 pixels."""
    photo, look = noise(160, 100), one_hot(4, 2, 1)[None]
    (hard,) = word_overlays(photo, look, resize, alpha_Thw=flat(4)[None])
    (alpha,) = word_overlays(photo, flat(4)[None], resize)
    left, upper, right, lower = box
    assert hard.crop(box).tobytes() == photo.crop(box).tobytes()
    for x, y in ((left - 1, 60), (right, 60), (60, upper - 1), (60, lower)):
        assert hard.getpixel((x, y)) == overlay.INK
    for x, y in ((left - 2, 60), (right + 1, 60), (60, upper - 2), (60, lower + 1)):
        assert hard.getpixel((x, y)) == overlay.PAPER
    around = (left - 4, upper - 4, right + 4, lower + 4)
    for picture in (hard, alpha):
        picture.paste((0, 0, 0), around)
    assert hard.tobytes() == alpha.tobytes()


def test_a_window_at_the_edge_stays_on_the_photograph() -> None:
    (hard,) = word_overlays(grey(40, 40), one_hot(4, 0, 0)[None], "squash", alpha_Thw=flat(4)[None])
    assert hard.size == (40, 40)
    assert hard.getpixel((0, 0)) == overlay.INK
    assert hard.getpixel((6, 6)) == (128, 128, 128)


def test_a_window_in_the_bars_is_not_drawn() -> None:
    look, alpha_Thw = one_hot(4, 0, 0)[None], flat(4)[None]
    (hard,) = word_overlays(grey(80, 20), look, "pad", alpha_Thw=alpha_Thw)
    (bare,) = word_overlays(grey(80, 20), alpha_Thw, "pad")
    assert hard.tobytes() == bare.tobytes()


def test_soft_pictures_are_the_same_with_their_alpha(tmp_path: Path) -> None:
    maps_Thw = np.stack([flat(7), one_hot(7, 2, 3)])
    photo, words = noise(60, 40), ["a", "dog"]
    plain = caption_figure(photo, words, maps_Thw, "squash")
    assert caption_figure(photo, words, maps_Thw, "squash", None, maps_Thw) == plain
    save_animation(tmp_path / "a.gif", photo, words, maps_Thw, "squash")
    save_animation(tmp_path / "b.gif", photo, words, maps_Thw, "squash", alpha_Thw=maps_Thw)
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()


def test_figures_and_files_of_a_hard_look_have_its_overlays(tmp_path: Path) -> None:
    photo, look, alpha_Thw = noise(320, 160), one_hot(7, 3, 3)[None], flat(7)[None]
    (drawn,) = word_overlays(photo, look, "squash", alpha_Thw=alpha_Thw)
    (path,) = save_word_pngs(tmp_path, photo, ["dog"], look, "squash", alpha_Thw=alpha_Thw)
    with Image.open(path) as saved:
        assert saved.tobytes() == drawn.tobytes()
    figure = caption_figure(photo, ["dog"], look, "squash", alpha_Thw=alpha_Thw)
    left = overlay.MARGIN + 320 + overlay.GAP
    upper = next(
        y for y in range(figure.height) if figure.getpixel((left, y)) == drawn.getpixel((0, 0))
    )
    assert figure.crop((left, upper, left + 320, upper + 160)).tobytes() == drawn.tobytes()


# --- figure ---------------------------------------------------------------------------------------


def panel(figure: Image.Image, title_height: int = 0) -> Image.Image:
    """The first panel of a figure of landscape 320 x 160 panels."""
    upper = overlay.MARGIN + title_height + overlay._line_height(overlay._font("", 19))
    return figure.crop((overlay.MARGIN, upper, overlay.MARGIN + 320, upper + 160))


def test_the_photograph_comes_first() -> None:
    photo = noise(320, 160)
    figure = caption_figure(photo, ["dog"], flat(7)[None], "squash")
    assert panel(figure).tobytes() == photo.tobytes()


def test_a_frame_shows_what_a_cropping_model_saw() -> None:
    photo = grey(320, 160)
    framed = panel(caption_figure(photo, ["dog"], flat(7)[None], "crop"))
    assert ImageChops.difference(photo, framed).getbbox() == (80, 0, 240, 160)


def test_long_captions_wrap_and_keep_every_word() -> None:
    def size(count: int, title: str | None = None) -> tuple[int, int]:
        maps_Thw = np.stack([flat(7)] * count)
        return caption_figure(grey(320, 160), ["word"] * count, maps_Thw, "squash", title).size

    row = overlay._line_height(overlay._font("", 19)) + 160 + overlay.GAP
    assert size(9)[0] == size(4)[0] == 5 * 320 + 4 * overlay.GAP + 2 * overlay.MARGIN
    assert size(5)[0] < size(4)[0]  # six panels stand 3 + 3, not 5 + 1
    assert size(9)[1] - size(4)[1] == row  # the photograph is the tenth panel
    assert size(10)[1] - size(4)[1] == 2 * row
    assert size(4, "a title")[1] > size(4)[1]


def test_figure_scale_is_that_of_the_caption() -> None:
    words, photo = ["a"], grey(320, 160)
    unsure = caption_figure(photo, words, flat(7)[None], "squash")
    certain = caption_figure(photo, words, one_hot(7, 3, 3)[None], "squash")
    below = (0, panel(unsure).height + 60, unsure.width, unsure.height)
    assert unsure.crop(below).tobytes() != certain.crop(below).tobytes()  # 0.16 there, 1 here


@pytest.mark.parametrize("size", [(1, 300), (300, 1), (32, 32), (3000, 1000)])
def test_figures_of_odd_photographs_stay_legible(size: tuple[int, int]) -> None:
    words = ["été", "собака", "كلب", "狗", "", "two\nlines", "w" * 200, "<unk>"]
    maps_Thw = np.stack([flat(14)] * len(words))
    figure = caption_figure(grey(*size), words, maps_Thw, "pad", title="Ωμέγα 狗 " + "x" * 300)
    assert figure.width >= overlay.NARROWEST
    assert figure.height < 2500


def test_a_caption_of_no_words_is_the_photograph_alone() -> None:
    figure = caption_figure(noise(320, 160), [], np.zeros((0, 7, 7)), "squash")
    assert panel(figure).tobytes() == noise(320, 160).tobytes()


def test_chinese_is_written_in_a_font_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    serif = str(Path(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSerif.ttf"))
    monkeypatch.setattr(overlay, "CJK_FONTS", ("no such font.ttc", serif))
    assert overlay._font("a 狗", 12).getname()[0] == "DejaVu Serif"
    assert overlay._font("été", 12).getname()[0] == "DejaVu Sans"
    monkeypatch.setattr(overlay, "CJK_FONTS", ("no such font.ttc",))
    assert overlay._font("a 狗", 12).getname()[0] == "DejaVu Sans"


def test_lines_break_before_the_width_and_long_words_are_shortened() -> None:
    font = overlay._font("", 20)
    width = font.getlength("one") + overlay._word_gap(font) + font.getlength("two") + 1
    words = ["one", "two", "six", "w" * 50]
    *lines, (long_word,) = overlay._lines(words, font, width)
    assert lines == [["one", "two"], ["six"]]
    assert long_word.endswith("w…")
    assert font.getlength(long_word) <= width


def test_threads_draw_the_same_figure() -> None:
    def draw(_: int) -> bytes:
        maps_Thw = np.stack([flat(7), one_hot(7, 1, 2)])
        return caption_figure(noise(60, 40), ["a", "dog"], maps_Thw, "squash").tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(draw, range(8)))) == 1


# --- animation ------------------------------------------------------------------------------------


def test_each_frame_marks_its_own_word() -> None:
    words = ["a", "dog", "runs"]
    frames = overlay._animation_frames([noise(400, 50)] * 4, words)
    strips = [np.asarray(frame.crop((0, 50, 400, frame.height))) for frame in frames]
    marked = [np.nonzero((strip == overlay.MARKER).all(axis=2))[1] for strip in strips]
    assert marked[0].size == 0
    assert frames[0].crop((0, 0, 400, 50)).tobytes() == noise(400, 50).tobytes()
    for before, after in pairwise(marked[1:]):
        assert before.max() < after.min()  # to the right of the word before, and never over it


@pytest.mark.parametrize("name", ["caption.gif", "caption.webp", "CAPTION.GIF"])
def test_animation_has_the_photograph_and_a_frame_a_word(name: str, tmp_path: Path) -> None:
    maps_Thw = np.stack([one_hot(7, 0, 0), one_hot(7, 6, 6), flat(7)])
    save_animation(tmp_path / name, noise(64, 64), ["a", "a", "dog"], maps_Thw, "squash", 0.5)
    with Image.open(tmp_path / name) as animation:
        assert animation.n_frames == 4  # type: ignore[attr-defined]
        assert animation.info["loop"] == 0
        for index in range(4):
            animation.seek(index)
            animation.load()
            assert animation.info["duration"] == 500


def test_gif_keeps_the_colours_of_a_small_heat(tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 420, dtype=np.uint8)
    across, down = np.meshgrid(ramp, ramp)
    photo = Image.fromarray(np.stack([across, down, 255 - across], axis=2))  # colours of all kinds
    maps_Thw = one_hot(14, 7, 7)[None]  # with its peak at 7.5 * 420 / 14 = 225
    save_animation(tmp_path / "a.gif", photo, ["dog"], maps_Thw, "squash")
    around = (218, 218, 232, 232)
    drawn = word_overlays(photo, maps_Thw, "squash")[0].crop(around)
    with Image.open(tmp_path / "a.gif") as animation:
        animation.seek(1)
        shown = animation.convert("RGB").crop(around)
    # A palette without a colour for the peak speckles it with others, 20 levels off on average.
    assert np.abs(np.asarray(shown, dtype=int) - np.asarray(drawn)).max(axis=2).mean() < 10


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_animation_needs_time(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seconds_per_word is"):
        save_animation(tmp_path / "a.gif", grey(9, 9), ["a"], flat(7)[None], "squash", seconds)
    assert not any(tmp_path.iterdir())


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".jpeg", ".webp"])
def test_figures_are_saved_by_suffix_into_new_folders(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"figure{suffix}"
    save_figure(path, grey(40, 30), ["dog"], flat(7)[None], "squash", title="t")
    with Image.open(path) as saved:
        assert (
            saved.size == caption_figure(grey(40, 30), ["dog"], flat(7)[None], "squash", "t").size
        )
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_word_files_are_numbered_and_safe_on_any_system(tmp_path: Path) -> None:
    words = ["a", "T-shirt", "don't", "../x", "..", "<unk>", "été", "w" * 300]
    maps_Thw = np.stack([flat(7)] * len(words))
    paths = save_word_pngs(tmp_path, noise(40, 30), words, maps_Thw, "squash")
    assert [path.name for path in paths] == [
        "01_a.png",
        "02_T-shirt.png",
        "03_don-t.png",
        "04_x.png",
        "05_word.png",
        "06_unk.png",
        "07_été.png",
        f"08_{'w' * 40}.png",
    ]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    with Image.open(paths[0]) as saved:
        assert saved.tobytes() == word_overlays(noise(40, 30), maps_Thw, "squash")[0].tobytes()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
def test_pictures_know_where_they_come_from(tmp_path: Path) -> None:
    photo, maps_Thw = noise(40, 30), np.stack([flat(7)] * 3)
    words = ["a", "b", "c"]
    paths = save_word_pngs(tmp_path, photo, words, maps_Thw, "squash")
    save_figure(tmp_path / "figure.png", photo, words, maps_Thw, "squash")
    save_animation(tmp_path / "words.gif", photo, words, maps_Thw, "squash")
    assert all(map(is_drawn, [*paths, tmp_path / "figure.png", tmp_path / "words.gif"]))
    photo.save(tmp_path / "photo.png")
    os.mkfifo(tmp_path / "pipe")
    assert not any(map(is_drawn, [tmp_path / "photo.png", tmp_path / "pipe", tmp_path]))


Save = Callable[[Path, list[str]], object]
SAVES = {
    "figure.png": lambda path, words: save_figure(path, grey(9, 9), words, flat(7)[None], "pad"),
    "01_dog.png": lambda path, words: save_word_pngs(
        path.parent, grey(9, 9), words, flat(7)[None], "pad"
    ),
    "caption.gif": lambda path, words: save_animation(
        path, grey(9, 9), words, flat(7)[None], "pad"
    ),
}


@pytest.mark.parametrize(("name", "save"), SAVES.items())
@pytest.mark.parametrize("failing", ["encode", "write", "replace"])
def test_a_failing_writer_leaves_the_old_file_and_nothing_else(
    name: str, save: Save, failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).write_bytes(b"old")

    def disk_full(path: Path, *_: object, **__: object) -> None:
        if failing == "write":
            path.open("wb").close()  # a part of the file is there already
        raise OSError("disk full")

    owner, method = {
        "encode": (Image.Image, "save"),
        "write": (Path, "write_bytes"),
        "replace": (os, "replace"),
    }[failing]
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, disk_full)
        with pytest.raises(OSError, match="disk full"):
            save(tmp_path / name, ["dog"])
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"old"
    save(tmp_path / name, ["dog"])
    assert (tmp_path / name).read_bytes() != b"old"


@pytest.mark.parametrize(("name", "save"), SAVES.items())
def test_words_without_maps_are_refused(name: str, save: Save, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^2 words but 1 attention maps: expected as many$"):
        save(tmp_path / name, ["a", "dog"])
    assert not any(tmp_path.iterdir())


def test_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"a\.gif: unknown suffix '\.gif'; use one of \.png, \.jpg"
    ):
        save_figure(tmp_path / "a.gif", grey(9, 9), ["a"], flat(7)[None], "squash")
    with pytest.raises(ValueError, match=r"a: unknown suffix ''; use one of \.gif, \.webp"):
        save_animation(tmp_path / "a", grey(9, 9), ["a"], flat(7)[None], "squash")
    assert not any(tmp_path.iterdir())
