"""Attention weights + photograph -> pictures: where the model looked for every word of a caption.

Two rules keep the pictures honest:

* a map is drawn over exactly the part of the photograph that the model saw (`images.seen_box`);
* all words of a caption share one colour scale, fixed by `scale_top`. No map is stretched to its
  own range, so a flat map looks flat and an unsure one looks unsure.

A hard look takes in one window of cells. It is drawn as what it is, a framed rectangle in which the
photograph stays; around it lie, as colours, the probabilities of a look (`alpha_Thw`).

Everything is composed with PIL and numpy and no state is shared, so a web server may draw from many
threads. Letters in names: H, W photograph pixels; h, w grid cells; T words.
"""

import io
import math
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps
from PIL.PngImagePlugin import PngInfo

from showattend.images import Resize, seen_box
from showattend.whole_files import write_whole

DISPLAY_SIDE = 640  # pixels; a photograph with a longer side is scaled down before it is coloured
STRENGTH = 0.6  # opacity of the colour at the top of the scale
UNIFORM_MULTIPLE = 8.0  # the scale never ends below this many times the weight of a flat map
DIMMING = 0.4  # how much of the photograph's brightness gives way to the colours at strength 1
COLORMAP = "inferno"

FIGURE_FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
ANIMATION_FORMATS = {".gif": "GIF", ".webp": "WEBP"}

PANEL_SIDE = 320  # longer side of one panel of a figure
SLOT_WIDTH = 120  # least width of a panel's slot, so that a word fits above a narrow photograph
FIGURE_WIDTH = 1640  # where the panels wrap: five landscape panels in a row
NARROWEST = 360  # least width of a figure or an animation, so that a sentence stays legible
MARGIN = 16
FRAME = 4  # pixels: a light line within a dark one
GAP = 10
BAR_SIZE = (260, 14)

MARK = b"drawn by showattend"  # in every PNG and GIF, so that a later run knows them as its own
MARK_WITHIN = 4096  # bytes; before the mark come at most a header and 256 colours

PAPER, INK, FAINT_INK = (255, 255, 255), (20, 20, 20), (105, 105, 105)
STRIP, STRIP_INK = (18, 18, 20), (205, 205, 205)
MARKER = (252, 254, 164)  # the brightest colour of the scale

# DejaVu Sans comes with matplotlib and writes Latin, Greek, Cyrillic, Arabic and more, but not
# Chinese, Japanese or Korean: for those the first of these that the system has is used.
CJK_FONTS = (
    "NotoSansCJK-Regular.ttc",
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "msyh.ttc",
    "PingFang.ttc",
)

Colour = tuple[int, int, int]
#: Of cells: left, upper, right, lower, as PIL's boxes.
Window = tuple[int, int, int, int]


# --- weights -> heat ------------------------------------------------------------------------------


def scale_top(maps_Thw: ArrayLike) -> float:
    """The weight at the top of the colour scale: one number for all words of a caption.

    It is the largest weight of the caption, but at least `UNIFORM_MULTIPLE` times the weight
    1/(h*w) of a flat map. Colours run from 0 to this number for every word. Scaling each map by its
    own range, as is often done, paints the largest cell of a flat map as brightly as a certain one;
    here a flat map reaches 1/8 of the scale at most, and two words of a caption can be compared.

    Raises ValueError where the maps are not (T, h, w) finite weights of at least 0.
    """
    maps_Thw = _checked_maps(maps_Thw)
    cells = maps_Thw.shape[1] * maps_Thw.shape[2]
    return float(np.max(maps_Thw, initial=UNIFORM_MULTIPLE / cells))


def heat_on_photograph(
    map_hw: ArrayLike, photo_size: tuple[int, int], resize: Resize
) -> NDArray[np.float64]:
    """Spread one word's weights (h, w) over the photograph: weights (H, W), not stretched.

    `photo_size` is (W, H) as in PIL; `resize` is how the model's square was cut, as in
    `images.seen_box`. At the centre of a cell's rectangle the heat is that cell's weight; between
    centres it runs smoothly and never beyond the cells around. Pixels the model did not see get 0.
    """
    width, height = photo_size
    left, upper, right, lower = seen_box(width, height, resize)
    map_hw = np.asarray(map_hw, dtype=np.float64)
    rows_Hh = _interpolation(map_hw.shape[0], upper, lower, height)
    columns_Ww = _interpolation(map_hw.shape[1], left, right, width)
    heat_HW: NDArray[np.float64] = rows_Hh @ map_hw @ columns_Ww.T
    return heat_HW


def _interpolation(cells: int, start: float, stop: float, pixels: int) -> NDArray[np.float64]:
    """How much each cell counts at each pixel of one side (pixels, cells); cells fill start..stop.

    The cubic kernel of Keys (1981) with a = 0: 1 - 3 d^2 + 2 d^3 at a distance of d <= 1 cells.
    Unlike the usual a = -0.5 it has no negative lobes, so the heat is never below 0, never
    overshoots a cell, and a flat map stays flat.
    """
    pixel_centres = np.arange(pixels) + 0.5
    seen = (pixel_centres >= start) & (pixel_centres < stop)
    # In cells, with cell i's centre at i. The outer half of an outer cell keeps that cell's weight.
    positions = np.clip((pixel_centres - start) / (stop - start) * cells - 0.5, 0, cells - 1)
    distance = np.minimum(np.abs(positions[:, None] - np.arange(cells)), 1)
    weights: NDArray[np.float64] = (1 - distance**2 * (3 - 2 * distance)) * seen[:, None]
    return weights


# --- heat + photograph -> picture -----------------------------------------------------------------


def blend(
    photo: Image.Image, heat_HW: ArrayLike, top: float, strength: float = STRENGTH
) -> Image.Image:
    """Colour the photograph with the heat: colours from 0 to `top`, opacity from 0 to `strength`.

    The colours are matplotlib's inferno: its lightness rises evenly from black to pale yellow, so
    it reads the same with any kind of colour blindness and in a grey print. The colour is linear in
    the weight; its opacity grows with the square root, so that a faint weight can still be seen.
    Where the weight is 0 the photograph stays, only paler and darker in proportion to `strength`,
    so that what is colourful and bright is the attention. `strength` 0 gives the photograph itself.

    Raises ValueError for a heat of another size than the photograph, a `top` (see `scale_top`) that
    is not positive, or a strength outside 0..1.
    """
    heat_HW = np.asarray(heat_HW, dtype=np.float64)
    if heat_HW.shape != (photo.height, photo.width):
        expected = (photo.height, photo.width)
        raise ValueError(f"heat has shape {heat_HW.shape}: expected the photograph's {expected}")
    if not top > 0:
        raise ValueError(f"top is {top}: the scale must end above 0")
    if not 0 <= strength <= 1:
        raise ValueError(f"strength is {strength}: give a number from 0 to 1")
    # 256 steps of weight as a grey picture: tables turn it into the colours and their opacity.
    steps = Image.fromarray(np.rint(np.clip(heat_HW / top, 0, 1) * 255).astype(np.uint8))
    opacity = steps.point([round(strength * math.sqrt(255 * step)) for step in range(256)])
    steps.putpalette(palette())
    return Image.composite(steps.convert("RGB"), _faded(photo, strength), opacity)


def _faded(photo: Image.Image, strength: float) -> Image.Image:
    paler = ImageEnhance.Color(photo.convert("RGB")).enhance(1 - strength)
    return ImageEnhance.Brightness(paler).enhance(1 - DIMMING * strength)


def windows(maps_Thw: ArrayLike, alpha_Thw: ArrayLike | None) -> list[Window] | None:
    """The cells that every word's hard look took in; None for soft attention.

    `maps_Thw` are the weights that the context was made with, `alpha_Thw` is the distribution they
    come from. Soft attention takes the distribution itself, a hard look one rectangle of cells,
    all by the same weight.
    """
    maps_Thw = _checked_maps(maps_Thw)
    if alpha_Thw is None or np.array_equal(maps_Thw, _checked_alpha(alpha_Thw, maps_Thw)):
        return None
    found = [_window(map_hw) for map_hw in maps_Thw]
    known = [window for window in found if window is not None]
    return known if len(known) == len(found) else None


def _window(map_hw: NDArray[np.float64]) -> Window | None:
    rows, columns = (np.flatnonzero(map_hw.any(axis=axis)) for axis in (1, 0))
    if not rows.size:
        return None
    left, upper, right, lower = columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
    inside = map_hw[upper:lower, left:right]
    even = np.allclose(inside, inside[0, 0], rtol=1e-3, atol=0.0)
    return (int(left), int(upper), int(right), int(lower)) if even else None


def _window_on_photograph(
    window: Window, grid: tuple[int, int], photo_size: tuple[int, int], resize: Resize
) -> tuple[int, int, int, int]:
    """The window of a grid of (h, w) cells as a box of the photograph's pixels."""
    x0, y0, x1, y1 = seen_box(*photo_size, resize)
    (rows, columns), (width, height) = grid, photo_size
    across = [round(x0 + (x1 - x0) * column / columns) for column in window[0::2]]
    down = [round(y0 + (y1 - y0) * row / rows) for row in window[1::2]]
    left, right = (min(max(edge, 0), width) for edge in across)
    upper, lower = (min(max(edge, 0), height) for edge in down)
    return left, upper, right, lower


def _with_window(
    overlaid: Image.Image, photo: Image.Image, box: tuple[int, int, int, int]
) -> Image.Image:
    """The overlaid photograph, but bare and framed within the box."""
    left, upper, right, lower = box
    if left >= right or upper >= lower:  # in the grey bars of "pad", or thinner than a pixel
        return overlaid
    overlaid.paste(photo.crop(box), box)
    # The frame lies around the window, as far as there is photograph, so that one cell is not lost.
    width, height = overlaid.size
    around = max(0, left - FRAME), max(0, upper - FRAME), right + FRAME, lower + FRAME
    return framed(overlaid, (*around[:2], min(width, around[2]), min(height, around[3])))


@cache
def palette() -> bytes:
    """The 256 colours of the scale as PIL takes them: red, green and blue of each in turn."""
    from matplotlib import colormaps  # 0.4 s, so only for those who draw

    rgba = np.asarray(colormaps[COLORMAP](np.arange(256), bytes=True))
    return rgba[:, :3].tobytes()


def word_overlays(
    photo: Image.Image,
    maps_Thw: ArrayLike,
    resize: Resize,
    strength: float = STRENGTH,
    alpha_Thw: ArrayLike | None = None,
) -> list[Image.Image]:
    """One picture a word: the photograph, at most `DISPLAY_SIDE` a side, under the word's heat.

    With `alpha_Thw` a hard look (see `windows`) is drawn as its window, framed and free of colour,
    over the heat of `alpha_Thw`. All words share the scale of `scale_top`. A word of a 640 x 427
    picture takes 13 to 21 ms. Raises ValueError as `scale_top` and `blend` do.
    """
    heat_Thw, looked = heat_and_windows(maps_Thw, alpha_Thw)
    picture = for_display(photo)
    top = scale_top(heat_Thw)
    overlays = [
        blend(picture, heat_on_photograph(map_hw, picture.size, resize), top, strength)
        for map_hw in heat_Thw
    ]
    if looked is None:
        return overlays
    grid, size = heat_Thw.shape[1:], picture.size
    boxes = [_window_on_photograph(window, grid, size, resize) for window in looked]
    return [
        _with_window(overlay, picture, box) for overlay, box in zip(overlays, boxes, strict=True)
    ]


def heat_and_windows(
    maps_Thw: ArrayLike, alpha_Thw: ArrayLike | None
) -> tuple[NDArray[np.float64], list[Window] | None]:
    """What is drawn in colours (T, h, w), and what is framed (see `windows`)."""
    looked = windows(maps_Thw, alpha_Thw)
    if looked is None or alpha_Thw is None:
        return _checked_maps(maps_Thw), None
    return _checked_maps(alpha_Thw), looked


def for_display(photo: Image.Image) -> Image.Image:
    """The photograph as it is shown by itself: RGB, at most `DISPLAY_SIDE` a side."""
    return scaled(photo, min(DISPLAY_SIDE, max(photo.size)))


def scaled(photo: Image.Image, longer_side: int) -> Image.Image:
    """RGB, with a longer side of so many pixels."""
    factor = longer_side / max(photo.size)
    size = (max(1, round(photo.width * factor)), max(1, round(photo.height * factor)))
    return photo.convert("RGB").resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)


# --- figure of a whole caption --------------------------------------------------------------------


def caption_figure(
    photo: Image.Image,
    words: Sequence[str],
    maps_Thw: ArrayLike,
    resize: Resize,
    title: str | None = None,
    alpha_Thw: ArrayLike | None = None,
) -> Image.Image:
    """The photograph, then a panel for each word under that word (Xu et al. 2015, figure 3).

    Long captions wrap in rows. Under the panels the colour bar states the scale: the weight of one
    cell, with a mark at the weight 1/(h*w) of a flat map. Where the model saw only a part, a frame
    on the photograph shows which. Chinese, Japanese and Korean words need one of `CJK_FONTS`.
    `alpha_Thw` is as for `word_overlays`.

    Raises ValueError where words and maps do not match.
    """
    words, maps_Thw = checked_caption(words, maps_Thw)
    picture = scaled(photo, PANEL_SIDE)
    overlays = word_overlays(picture, maps_Thw, resize, alpha_Thw=alpha_Thw)
    panels = [_with_seen_frame(picture, resize), *overlays]
    return figure_of(panels, words, title, partial(_legend, *heat_and_windows(maps_Thw, alpha_Thw)))


def figure_of(
    panels: list[Image.Image],
    words: Sequence[str],
    title: str | None,
    legend: Callable[[int], Image.Image],
) -> Image.Image:
    """The bare photograph and a panel for each word, all of one size, laid out as a figure.

    `legend` draws what stands below at a given width.
    """
    text = " ".join([title or "", *words])
    blocks = [_panel_rows(panels, ["", *words], _font(text, 19))]
    width = max(NARROWEST, blocks[0].width)
    if title:
        blocks.insert(0, _paragraph(title, _font(text, 24), width, INK))
    blocks.append(legend(width))
    return ImageOps.expand(_stacked(blocks), MARGIN, PAPER)


def _with_seen_frame(picture: Image.Image, resize: Resize) -> Image.Image:
    left, upper, right, lower = (round(edge) for edge in seen_box(*picture.size, resize))
    if (right - left) * (lower - upper) >= picture.width * picture.height:
        return picture  # the model saw all of it
    return framed(picture.copy(), (left, upper, right, lower))


def framed(picture: Image.Image, box: tuple[int, int, int, int]) -> Image.Image:
    """The picture itself, changed, with a frame just inside the box."""
    left, upper, right, lower = box
    draw = ImageDraw.Draw(picture)
    # A light line within a dark one is seen on any ground.
    draw.rectangle((left, upper, right - 1, lower - 1), outline=INK, width=FRAME)
    if right - left > 2 and lower - upper > 2:
        draw.rectangle((left + 1, upper + 1, right - 2, lower - 2), outline=PAPER, width=2)
    return picture


def _panel_rows(
    panels: list[Image.Image], labels: list[str], font: ImageFont.FreeTypeFont
) -> Image.Image:
    panel_width, panel_height = panels[0].size
    slot_width = max(panel_width, SLOT_WIDTH)
    label_height = _line_height(font)
    fitting = max(1, (FIGURE_WIDTH + GAP) // (slot_width + GAP))
    rows = math.ceil(len(panels) / fitting)
    columns = math.ceil(len(panels) / rows)  # as even as the number of rows allows
    row_height = label_height + panel_height + GAP
    block = Image.new("RGB", (columns * (slot_width + GAP) - GAP, rows * row_height - GAP), PAPER)
    draw = ImageDraw.Draw(block)
    for index, (panel, label) in enumerate(zip(panels, labels, strict=True)):
        row, column = divmod(index, columns)
        middle = column * (slot_width + GAP) + slot_width // 2
        shown = shortened(label, font, slot_width)
        draw.text(
            (middle, row * row_height + label_height // 2), shown, font=font, fill=INK, anchor="mm"
        )
        block.paste(panel, (middle - panel_width // 2, row * row_height + label_height))
    return block


def _legend(heat_Thw: NDArray[np.float64], looked: list[Window] | None, width: int) -> Image.Image:
    _, rows, columns = heat_Thw.shape
    flat = 1 / (rows * columns)
    explanation = "" if looked is None else "framed: what the model looked at; colours: "
    explanation += (
        f"attention weight of one cell ({rows} × {columns} cells), one scale for all words; "
        f"the mark is the weight of a flat map, {flat:.2g}"
    )
    return scale_legend(scale_top(heat_Thw), flat, explanation, width)


def scale_legend(top: float, flat: float, explanation: str, width: int) -> Image.Image:
    """The colour bar as it looks over a mid-grey photograph, its two ends, and what it measures.

    A mark stands at the weight `flat`.
    """
    bar_width, bar_height = BAR_SIZE
    ramp_HW = np.tile(np.linspace(0, top, bar_width), (bar_height, 1))
    bar = blend(Image.new("RGB", BAR_SIZE, (128, 128, 128)), ramp_HW, top)
    font = _font("", 15)
    line = Image.new("RGB", (width, bar_height + 10), PAPER)
    draw = ImageDraw.Draw(line)
    start, middle = math.ceil(font.getlength("0")) + 8, line.height // 2
    line.paste(bar, (start, 5))
    draw.text((0, middle), "0", font=font, fill=INK, anchor="lm")
    draw.text((start + bar_width + 8, middle), f"{top:.2g}", font=font, fill=INK, anchor="lm")
    mark = start + round(flat / top * (bar_width - 1))
    draw.line((mark, 1, mark, line.height - 2), fill=INK, width=2)
    return _stacked([line, _paragraph(explanation, font, width, FAINT_INK)])


def _stacked(blocks: list[Image.Image]) -> Image.Image:
    width = max(block.width for block in blocks)
    height = sum(block.height for block in blocks) + GAP * (len(blocks) - 1)
    sheet = Image.new("RGB", (width, height), PAPER)
    upper = 0
    for block in blocks:
        sheet.paste(block, (0, upper))
        upper += block.height + GAP
    return sheet


# --- text -----------------------------------------------------------------------------------------


def _font(text: str, size: int) -> ImageFont.FreeTypeFont:
    """A font that can write `text`; a new one each time, because threads must not share a font."""
    return ImageFont.truetype(font_file(text), size)


def font_file(text: str) -> str:
    """The file of a font that can write `text`, as far as there is one here."""
    dejavu = _dejavu()
    if not all(ord(letter) in letters_of(dejavu) for letter in text):
        for name in CJK_FONTS:
            try:
                return str(ImageFont.truetype(name).path)
            except OSError:
                continue  # not installed here
    return dejavu


@cache
def letters_of(font_path: str) -> frozenset[int]:
    """The code points that a font can write."""
    from matplotlib.ft2font import FT2Font

    return frozenset(FT2Font(font_path).get_charmap())


@cache
def _dejavu() -> str:
    from matplotlib import get_data_path

    return str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))


def _line_height(font: ImageFont.FreeTypeFont) -> int:
    return round(1.35 * sum(font.getmetrics()))


def shortened(word: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """The word, or as much of its beginning as `width` pixels hold, and an ellipsis."""
    if font.getlength(word) <= width:
        return word
    kept = len(word)
    while kept and font.getlength(word[:kept] + "…") > width:
        kept -= 1
    return word[:kept] + "…"


def _lines(words: Sequence[str], font: ImageFont.FreeTypeFont, width: float) -> list[list[str]]:
    """Break a sentence into lines of at most `width` pixels; a longer word is shortened."""
    lines: list[list[str]] = [[]]
    room = width
    for word in (shortened(word, font, width) for word in words):
        length = font.getlength(word)
        if lines[-1] and length > room:
            lines.append([])
            room = width
        lines[-1].append(word)
        room -= length + _word_gap(font)
    return lines


def _word_gap(font: ImageFont.FreeTypeFont) -> float:
    return 1.5 * font.getlength(" ")  # wide enough for the ground of a marked word


def _paragraph(text: str, font: ImageFont.FreeTypeFont, width: int, ink: Colour) -> Image.Image:
    lines = _lines(text.split(), font, width)
    height = _line_height(font)
    block = Image.new("RGB", (width, height * len(lines)), PAPER)
    draw = ImageDraw.Draw(block)
    for number, line in enumerate(lines):
        draw.text((0, height * number), " ".join(line), font=font, fill=ink)
    return block


# --- animation ------------------------------------------------------------------------------------


def _animation_frames(pictures: list[Image.Image], words: Sequence[str]) -> list[Image.Image]:
    """The photograph over the sentence, then a frame for each word with the word marked: T + 1."""
    width = max(NARROWEST, pictures[0].width)
    frames = []
    for current, picture in enumerate(pictures, start=-1):
        strip = _sentence_strip(words, current, width)
        frame = Image.new("RGB", (width, picture.height + strip.height), STRIP)
        frame.paste(picture, ((width - picture.width) // 2, 0))
        frame.paste(strip, (0, picture.height))
        frames.append(frame)
    return frames


def _sentence_strip(words: Sequence[str], current: int, width: int) -> Image.Image:
    """The sentence in centred lines, word number `current` (none if -1) dark on a bright ground."""
    font = _font(" ".join(words), 22)
    gap, height = _word_gap(font), _line_height(font)
    lines = _lines(words, font, width - 2 * MARGIN)
    strip = Image.new("RGB", (width, height * len(lines) + MARGIN), STRIP)
    draw = ImageDraw.Draw(strip)
    number = 0
    for row, line in enumerate(lines):
        x = (width - sum(map(font.getlength, line)) - gap * (len(line) - 1)) / 2
        middle = MARGIN / 2 + height * (row + 0.5)
        for word in line:
            length = font.getlength(word)
            if number == current:
                ground = (x - 5, middle - 0.46 * height, x + length + 5, middle + 0.46 * height)
                draw.rounded_rectangle(ground, radius=5, fill=MARKER)
            ink = INK if number == current else STRIP_INK
            draw.text((x, middle), word, font=font, fill=ink, anchor="lm")
            x += length + gap
            number += 1
    return strip


# --- files ----------------------------------------------------------------------------------------


def save_figure(
    path: str | Path,
    photo: Image.Image,
    words: Sequence[str],
    maps_Thw: ArrayLike,
    resize: Resize,
    title: str | None = None,
    alpha_Thw: ArrayLike | None = None,
) -> None:
    """Write `caption_figure` as .png, .jpg or .webp. Raises ValueError for another suffix."""
    _format_of(path, FIGURE_FORMATS)  # before the work
    write_figure(path, caption_figure(photo, words, maps_Thw, resize, title, alpha_Thw))


def write_figure(path: str | Path, figure: Image.Image) -> None:
    """A drawn figure as .png, .jpg or .webp. Raises ValueError for another suffix."""
    picture_format = _format_of(path, FIGURE_FORMATS)
    write_whole(path, _encoded([figure], format=picture_format, quality=92))


def is_drawn(path: Path) -> bool:
    """Whether the file is a PNG or GIF that this program drew.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():  # a pipe waits for a writer
        return False
    with path.open("rb") as file:
        return MARK in file.read(MARK_WITHIN)


def save_word_pngs(
    folder: str | Path,
    photo: Image.Image,
    words: Sequence[str],
    maps_Thw: ArrayLike,
    resize: Resize,
    strength: float = STRENGTH,
    alpha_Thw: ArrayLike | None = None,
) -> list[Path]:
    """Write `word_overlays` as 01_a.png, 02_dog.png, ... into the folder and return the paths."""
    words, maps_Thw = checked_caption(words, maps_Thw)
    return write_word_pngs(
        folder, words, word_overlays(photo, maps_Thw, resize, strength, alpha_Thw)
    )


def write_word_pngs(
    folder: str | Path, words: Sequence[str], overlays: Sequence[Image.Image]
) -> list[Path]:
    """A drawn picture a word, as `save_word_pngs` names them; returns the paths."""
    digits = max(2, len(str(len(words))))
    paths = []
    for number, (word, overlay) in enumerate(zip(words, overlays, strict=True), start=1):
        paths.append(Path(folder, f"{number:0{digits}}_{_file_stem(word)}.png"))
        save_png(paths[-1], overlay)
    return paths


def save_png(path: str | Path, picture: Image.Image) -> None:
    """Write one picture as a PNG that a later run knows as its own (`is_drawn`)."""
    # Level 3 takes a third of the time of PIL's 6 for files 5 % larger.
    write_whole(path, _encoded([picture], format="PNG", compress_level=3))


def save_animation(
    path: str | Path,
    photo: Image.Image,
    words: Sequence[str],
    maps_Thw: ArrayLike,
    resize: Resize,
    seconds_per_word: float = 0.8,
    strength: float = STRENGTH,
    alpha_Thw: ArrayLike | None = None,
) -> None:
    """Write an endless .gif or .webp: the photograph, then word after word over the sentence.

    WebP is several times smaller and shows all colours; GIF shows anywhere.
    Raises ValueError for another suffix, a time that is not positive, or words and maps that do not
    match.
    """
    _format_of(path, ANIMATION_FORMATS)  # before the work
    words, maps_Thw = checked_caption(words, maps_Thw)
    overlays = word_overlays(photo, maps_Thw, resize, strength, alpha_Thw)
    write_animation(path, words, [for_display(photo), *overlays], seconds_per_word)


def write_animation(
    path: str | Path,
    words: Sequence[str],
    pictures: list[Image.Image],
    seconds_per_word: float = 0.8,
) -> None:
    """The bare photograph and a drawn picture a word, as `save_animation` shows them.

    Raises ValueError for another suffix or a time that is not positive.
    """
    animation_format = _format_of(path, ANIMATION_FORMATS)
    if not 0 < seconds_per_word < math.inf:
        raise ValueError(f"seconds_per_word is {seconds_per_word}: give a number above 0")
    frames = _animation_frames(pictures, words)
    if animation_format == "GIF":
        frames = [_with_palette(frame) for frame in frames]
    duration = round(1000 * seconds_per_word)  # of each frame, in milliseconds
    content = _encoded(frames, format=animation_format, duration=duration, loop=0, quality=85)
    write_whole(path, content)


def _with_palette(frame: Image.Image) -> Image.Image:
    """256 colours chosen for this frame, dithered: skies and heat would show bands without it.

    The octree takes 4 ms a frame and keeps a colour for the few bright pixels of a small heat; the
    median cut takes 240 ms and does not.
    """
    palette = frame.quantize(256, method=Image.Quantize.FASTOCTREE)
    return frame.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG)


def _encoded(frames: list[Image.Image], **settings: Any) -> bytes:
    buffer = io.BytesIO()
    first, *others = frames
    if settings["format"] == "PNG":
        settings["pnginfo"] = PngInfo()
        settings["pnginfo"].add_text("Software", MARK.decode())
    if settings["format"] == "GIF":
        settings["comment"] = MARK
    if others:
        first.save(buffer, save_all=True, append_images=others, **settings)
    else:
        first.save(buffer, **settings)
    return buffer.getvalue()


def _file_stem(word: str) -> str:
    """The word with a hyphen for all but letters, marks and digits: any file system accepts it."""
    kept = "".join(letter if unicodedata.category(letter)[0] in "LMN" else "-" for letter in word)
    return kept[:40].strip("-") or "word"


def _format_of(path: str | Path, formats: dict[str, str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in formats:
        raise ValueError(f"{path}: unknown suffix {suffix!r}; use one of {', '.join(formats)}")
    return formats[suffix]


# --- checks ---------------------------------------------------------------------------------------


def checked_caption(
    words: Sequence[str], maps_Thw: ArrayLike
) -> tuple[list[str], NDArray[np.float64]]:
    """The words, each on one line, and their maps. Raises ValueError where they do not match."""
    maps_Thw = _checked_maps(maps_Thw)
    if len(words) != len(maps_Thw):
        raise ValueError(f"{len(words)} words but {len(maps_Thw)} attention maps: expected as many")
    return [" ".join(word.split()) for word in words], maps_Thw


def _checked_maps(maps_Thw: ArrayLike) -> NDArray[np.float64]:
    maps_Thw = np.asarray(maps_Thw, dtype=np.float64)
    if maps_Thw.ndim != 3 or 0 in maps_Thw.shape[1:]:
        raise ValueError(f"attention maps have shape {maps_Thw.shape}: expected (T, h, w)")
    if not np.isfinite(maps_Thw).all() or (maps_Thw < 0).any():
        raise ValueError("attention maps hold negative or non-finite weights: expected 0 or more")
    return maps_Thw


def _checked_alpha(alpha_Thw: ArrayLike, maps_Thw: NDArray[np.float64]) -> NDArray[np.float64]:
    alpha_Thw = _checked_maps(alpha_Thw)
    if alpha_Thw.shape != maps_Thw.shape:
        raise ValueError(f"alpha has shape {alpha_Thw.shape}: expected the maps' {maps_Thw.shape}")
    return alpha_Thw
