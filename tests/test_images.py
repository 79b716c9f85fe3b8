"""Any photograph opens as upright RGB or fails with one line; the square is what the model sees."""

import csv
import logging
import os
import struct
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import ExifTags, Image

from showattend import images
from showattend.images import (
    PAD_GREY,
    ImageError,
    Photograph,
    Resize,
    fit_square,
    from_pixels,
    open_photograph,
    read_content,
    seen_box,
    to_pixels,
)

ODD_IMAGES = Path(__file__).resolve().parents[2] / "shared" / "odd_images"

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encoded(picture: Image.Image, format: str, **options: Any) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, format, **options)
    return buffer.getvalue()


def pixel(source: Any, x: int = 0, y: int = 0) -> tuple[int, ...]:
    picture = open_photograph(source)
    assert picture.mode == "RGB"
    colour = picture.getpixel((x, y))
    assert isinstance(colour, tuple)
    return colour


def greys(source: Any) -> list[int]:
    """The first row's values, for sources that have no colour."""
    row = np.asarray(open_photograph(source))[0]
    assert (row == row[:, :1]).all()
    return [int(value) for value in row[:, 0]]


def one_line_error(source: Any) -> str:
    with pytest.raises(ImageError) as caught:
        open_photograph(source)
    message = str(caught.value)
    assert message.isprintable()
    return message


def noise(width: int, height: int) -> Image.Image:
    values = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


# --- sources ---------------------------------------------------------------------------------


def test_path_bytes_image_and_array_give_the_same_picture(tmp_path: Path) -> None:
    picture = noise(5, 4)
    path = tmp_path / "photo.png"
    picture.save(path)
    sources: list[Photograph] = [path, str(path), path.read_bytes(), picture, np.asarray(picture)]
    for source in sources:
        assert open_photograph(source).tobytes() == picture.tobytes()


def test_the_callers_image_is_left_as_it_is() -> None:
    picture = Image.new("P", (2, 1), 0)
    picture.putpalette([*RED, *BLUE])
    picture.info["transparency"] = 0
    before, palette = picture.copy(), picture.getpalette("RGBA")
    opened = open_photograph(picture)
    opened.putpixel((1, 0), (9, 9, 9))
    assert picture == before
    assert picture.info == before.info
    assert picture.getpalette("RGBA") == palette
    rgb = noise(3, 3)
    open_photograph(rgb).putpixel((0, 0), (9, 9, 9))
    assert rgb == noise(3, 3)


@pytest.mark.parametrize("source", [None, 3, 2.5, [1, 2], BytesIO(b"x"), ...])
def test_other_sources_are_refused(source: Any) -> None:
    assert "expected a path" in one_line_error(source)


# --- modes -----------------------------------------------------------------------------------

# fmt: off
MODES = [
    "1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "F",
    "I;16", "I;16L", "I;16B", "I;16N", "LA", "La", "PA", "RGBA", "RGBa",
]
# fmt: on


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_becomes_rgb_of_the_same_size(mode: str) -> None:
    opened = open_photograph(Image.new(mode, (5, 4)))
    assert (opened.mode, opened.size) == ("RGB", (5, 4))


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("1", 1, WHITE),
        ("L", 100, (100, 100, 100)),
        ("RGB", (1, 2, 3), (1, 2, 3)),
        ("CMYK", (0, 255, 255, 0), RED),
        ("YCbCr", (76, 85, 255), (254, 0, 0)),  # JFIF: R = Y + 1.402 (Cr - 128), ...
        ("HSV", (0, 255, 255), RED),
        ("LAB", (255, 128, 128), (254, 255, 254)),  # 128 is neutral; lcms rounds
        # Over white: alpha 51 of 255 keeps a fifth of the colour, 0.2 * 100 + 0.8 * 255 = 224.
        ("LA", (100, 51), (224, 224, 224)),
        ("RGBA", (100, 0, 255, 51), (224, 204, 255)),
        # Premultiplied: 20 at alpha 51 is colour 100.
        ("La", (20, 51), (224, 224, 224)),
        ("RGBa", (20, 0, 51, 51), (224, 204, 255)),
        ("RGBA", (9, 9, 9, 0), WHITE),
    ],
)
def test_hand_computed_colours(mode: str, colour: Any, expected: tuple[int, ...]) -> None:
    assert pixel(Image.new(mode, (2, 2), colour)) == expected


@pytest.mark.parametrize("mode", ["L", "P", "RGB"])
def test_transparency_in_the_files_info_is_laid_over_white(mode: str) -> None:
    picture = Image.new(mode, (2, 1), 0)
    if mode == "P":
        picture.putpalette([*BLUE, *GREEN])
    picture.putpixel((1, 0), GREEN if mode == "RGB" else 1)
    png = encoded(picture, "PNG", transparency=(0, 0, 0) if mode == "RGB" else 0)
    assert pixel(png, 0) == WHITE
    assert pixel(png, 1) == ((1, 1, 1) if mode == "L" else GREEN)


def test_palette_with_alpha_per_colour() -> None:
    picture = Image.new("P", (2, 1), 0)
    picture.putpalette([100, 0, 255, *GREEN])
    picture.putpixel((1, 0), 1)
    png = encoded(picture, "PNG", transparency=bytes([51, 255]))
    assert [pixel(png, 0), pixel(png, 1)] == [(224, 204, 255), GREEN]


def test_transparent_16_bit_value_is_white() -> None:
    picture = Image.fromarray(np.array([[0, 30000, 65535]], np.uint16))
    picture.info["transparency"] = 30000
    assert greys(picture) == [0, 255, 255]


# --- numbers wider than 8 bits ---------------------------------------------------------------


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_16_bit_files_keep_their_full_range(format: str) -> None:
    picture = Image.fromarray(np.array([[0, 257, 25700, 65535]], np.uint16))
    assert greys(encoded(picture, format)) == [0, 1, 100, 255]


def test_dim_16_bit_stays_dim_and_narrow_16_bit_is_stretched() -> None:
    assert greys(np.array([[0, 4096]], np.uint16)) == [0, 16]  # a sixteenth of the range
    assert greys(np.array([[0, 4095]], np.uint16)) == [0, 255]
    assert greys(np.array([[1000, 1500, 3000]], np.uint16)) == [0, 64, 255]
    assert greys(np.array([[65000, 65535]], np.uint16)) == [0, 255]


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (25700, 100), (65535, 255)], ids=["black", "grey", "white"]
)
def test_one_16_bit_value_alone_has_no_range_of_its_own(value: int, expected: int) -> None:
    assert greys(np.full((1, 2), value, np.uint16)) == [expected, expected]


def test_big_endian_16_bit() -> None:
    values = np.array([[0, 25700, 65535]], ">u2")
    assert greys(Image.frombytes("I;16B", (3, 1), values.tobytes())) == [0, 100, 255]
    assert greys(values) == [0, 100, 255]


def test_16_bit_file_that_pillow_loads_as_mode_i() -> None:
    pgm = b"P5 3 1 65535\n" + np.array([0, 25700, 65535], ">u2").tobytes()
    assert Image.open(BytesIO(pgm)).mode == "I"
    assert greys(pgm) == [0, 100, 255]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 100, 200], [0, 100, 200]),  # 8 bits' worth
        ([0, 25700, 65535], [0, 100, 255]),  # 16 bits' worth
        ([0, 2**30, 2**31 - 1], [0, 128, 255]),  # all of it
        ([-10, 0, 10], [0, 128, 255]),  # far less than a sixteenth of the range
        ([100_000, 150_000, 200_000], [0, 128, 255]),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, Image.fromarray], ids=["array", "mode I"])
def test_32_bit(form: Callable[[Any], Any], values: list[int], expected: list[int]) -> None:
    assert greys(form(np.array([values], np.int32))) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 0.2, 1], [0, 51, 255]),
        ([0.2, 0.4, 0.4], [51, 102, 102]),  # within 0..1: dim stays dim
        ([-1, 0, 1], [0, 128, 255]),
        ([0, 51, 255], [0, 51, 255]),
        ([1000, 1001, 1005], [0, 51, 255]),
        ([np.nan, 0.2, 1], [0, 51, 255]),
        ([np.nan, 1000, 1010], [0, 0, 255]),  # NaN takes no part in the minimum
        ([np.inf, -np.inf, 0.2], [0, 0, 51]),
        ([np.nan, np.nan, np.inf], [0, 0, 0]),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, Image.fromarray], ids=["array", "mode F"])
def test_floats(form: Callable[[Any], Any], values: list[float], expected: list[int]) -> None:
    assert greys(form(np.array([values], np.float32))) == expected


def test_float64_beyond_the_span_of_float64() -> None:
    assert greys(np.array([[-1.7e308, 0, 1.7e308]])) == [0, 128, 255]


def test_float_tiff() -> None:
    tiff = encoded(Image.fromarray(np.array([[0, 0.2, 1]], np.float32)), "TIFF")
    assert greys(tiff) == [0, 51, 255]


# --- arrays ----------------------------------------------------------------------------------


def test_array_channels() -> None:
    assert pixel(np.full((2, 2, 1), 7, np.uint8)) == (7, 7, 7)
    assert pixel(np.array([[[1, 2, 3]]], np.uint8)) == (1, 2, 3)
    assert pixel(np.array([[[100, 0, 255, 51]]], np.uint8)) == (224, 204, 255)
    assert greys(np.array([[False, True]])) == [0, 255]


@pytest.mark.parametrize("opaque", [np.uint16(65535), np.float32(1), np.float64(255)])
def test_alpha_of_other_types_is_not_stretched(opaque: np.generic) -> None:
    colours = np.zeros((1, 2, 4), opaque.dtype)
    colours[0, 1, :3] = opaque
    assert greys(colours) == [255, 255]  # all transparent
    colours[:, :, 3] = opaque
    assert greys(colours) == [0, 255]


@pytest.mark.parametrize("dtype", ["complex64", "longdouble", "U1", "object", "datetime64[s]"])
def test_array_types_that_are_no_brightness(dtype: str) -> None:
    assert "type" in one_line_error(np.zeros((2, 2), dtype))


@pytest.mark.parametrize(
    "shape", [(), (4,), (2, 3, 2), (3, 8, 8), (2, 2, 5), (1, 2, 2, 3), (0, 4), (4, 0, 3), (2, 2, 0)]
)
def test_array_shapes_that_are_no_photograph(shape: tuple[int, ...]) -> None:
    assert "expected" in one_line_error(np.zeros(shape, np.uint8))


SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=5).flatmap(
    lambda side: st.sampled_from([side, (*side, 1), (*side, 3), (*side, 4)])
)
DTYPES = (
    hnp.integer_dtypes(endianness="?")
    | hnp.unsigned_integer_dtypes(endianness="?")
    | hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64))
    | hnp.boolean_dtypes()
)


@settings(deadline=None)  # a shared machine may pause
@given(hnp.arrays(DTYPES, SHAPES))
def test_every_supported_array_opens_at_its_size(array: NDArray[Any]) -> None:
    opened = open_photograph(array)
    assert opened.mode == "RGB"
    assert opened.size == (array.shape[1], array.shape[0])


@settings(deadline=None)  # a shared machine may pause
@given(hnp.arrays(DTYPES, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5)))
def test_brighter_numbers_are_never_darker_pixels(array: NDArray[Any]) -> None:
    array = array[:, np.isfinite(array).all(axis=0)]
    if array.size:
        opened = np.asarray(open_photograph(array))[:, :, 0].ravel().astype(int)
        in_order = np.argsort(array.ravel(), kind="stable")
        assert (np.diff(opened[in_order]) >= 0).all()


# --- orientation and frames ------------------------------------------------------------------

UPRIGHT = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14

# How the standard (CIPA DC-008, tag 0x0112) stores an upright picture under each orientation:
# stored row 0 and column 0 are the visual top and left, top and right, bottom and right, ...
STORED = {
    1: UPRIGHT,
    2: UPRIGHT[:, ::-1],
    3: UPRIGHT[::-1, ::-1],
    4: UPRIGHT[::-1],
    5: UPRIGHT.transpose(1, 0, 2),
    6: UPRIGHT.transpose(1, 0, 2)[::-1],
    7: UPRIGHT.transpose(1, 0, 2)[::-1, ::-1],
    8: UPRIGHT.transpose(1, 0, 2)[:, ::-1],
}


@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", STORED)
def test_exif_orientation(orientation: int, format: str) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    stored = Image.fromarray(np.ascontiguousarray(STORED[orientation]))
    opened = open_photograph(
        encoded(stored, format, exif=exif, **({"lossless": True} if format == "WEBP" else {}))
    )
    np.testing.assert_array_equal(np.asarray(opened), UPRIGHT)
    # Applied once: a second opening, or another program, must not turn it again.
    np.testing.assert_array_equal(np.asarray(open_photograph(opened)), UPRIGHT)
    assert ExifTags.Base.Orientation not in opened.getexif()


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_orientation_without_meaning_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    png = encoded(Image.fromarray(UPRIGHT), "PNG", exif=exif)
    np.testing.assert_array_equal(np.asarray(open_photograph(png)), UPRIGHT)


def test_damaged_exif_spoils_no_picture() -> None:
    png = encoded(Image.fromarray(UPRIGHT), "PNG", exif=b"Exif\0\0XX\0*\0\0\0\x08")
    with pytest.raises(SyntaxError):
        Image.open(BytesIO(png)).getexif()
    np.testing.assert_array_equal(np.asarray(open_photograph(png)), UPRIGHT)


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP", "TIFF"])
def test_first_frame_of_an_animation(format: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLUE)]
    options = {"lossless": True} if format == "WEBP" else {}
    data = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert pixel(data) == RED


# --- what is no photograph -------------------------------------------------------------------


def png_header(width: int, height: int) -> bytes:
    """A PNG that announces a size and holds hardly any data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


def test_files_that_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "text.jpg").write_text("A dog runs on grass.\n" * 50)
    (tmp_path / "empty.jpg").touch()
    assert "no image" in one_line_error(tmp_path / "text.jpg")
    assert "empty" in one_line_error(tmp_path / "empty.jpg")
    assert "folder" in one_line_error(tmp_path)
    assert "No such file" in one_line_error(tmp_path / "missing.jpg")
    assert "missing.jpg" in one_line_error(str(tmp_path / "missing.jpg"))


@pytest.mark.parametrize("path", ["", "a\0b.jpg", "line\nbreak.jpg", "x" * 5000, "\udcff.jpg"])
def test_paths_that_break_programs(path: str) -> None:
    one_line_error(path)
    with pytest.raises(ImageError):
        read_content(path)


def test_empty_path_is_not_the_current_folder() -> None:
    assert one_line_error("") == "'': is no path; expected an image file"


def test_content_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.jpg").write_bytes(b"no image\0")
    assert read_content(tmp_path / "notes.jpg") == b"no image\0"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
def test_pipes_and_devices_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    for path in (tmp_path / "pipe.jpg", "/dev/zero"):
        assert "pipe, socket or device" in one_line_error(path)
        with pytest.raises(ImageError, match="pipe, socket or device"):
            read_content(path)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.png"
    noise(4, 4).save(path)
    path.chmod(0)
    if os.geteuid() == 0:  # root reads everything: let open() refuse instead

        def refuse(*_: object) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", refuse)
    assert "Permission denied" in one_line_error(path)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xd8\xff", b"GIF89a", b"BM", b"II*\0", b"P5 9"])
def test_bytes_that_are_no_image(data: bytes) -> None:
    assert one_line_error(data).startswith("<bytes>: ")


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
def test_truncated_files(format: str) -> None:
    data = encoded(noise(64, 64), format)
    open_photograph(data)
    assert "damaged" in one_line_error(data[: len(data) // 2])


def test_any_failure_of_a_decoder_is_an_image_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for failure in (
        MemoryError(),
        KeyError("x"),
        struct.error("two\nlines"),
        RecursionError("deep"),
    ):

        def fail(*_: object, failure: Exception = failure, **__: object) -> None:
            raise failure

        monkeypatch.setattr(Image, "open", fail)
        assert "damaged or unsupported" in one_line_error(b"data")


def test_drawings_start_no_program() -> None:
    eps = encoded(noise(4, 4), "EPS")
    assert Image.open(BytesIO(eps)).format == "EPS"
    assert "no image" in one_line_error(eps)


@settings(deadline=None)  # a shared machine may pause
@given(st.binary(max_size=200), st.sampled_from(["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"]))
def test_damaged_bytes_never_raise_anything_else(damage: bytes, format: str) -> None:
    data = encoded(noise(8, 8), format)
    middle = len(data) // 3
    try:
        opened = open_photograph(data[:middle] + damage + data[middle + len(damage) :])
    except ImageError as error:
        assert str(error).isprintable()
    else:
        assert opened.mode == "RGB"


# --- size ------------------------------------------------------------------------------------


def test_decompression_bombs_are_refused_from_the_header() -> None:
    assert "10000 x 10000" in one_line_error(png_header(10_000, 10_000))
    assert "too many pixels" in one_line_error(png_header(60_000, 60_000))
    assert "damaged" in one_line_error(png_header(8192, 6144))  # allowed: fails for want of data


def test_large_jpegs_come_at_half_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 1000)
    jpeg = encoded(noise(60, 41), "JPEG")
    assert open_photograph(jpeg).size == (30, 21)
    assert "60 x 41 pixels" in one_line_error(encoded(noise(60, 41), "PNG"))
    assert "60 x 41 pixels" in one_line_error(noise(60, 41))
    assert "60 x 41 pixels" in one_line_error(np.zeros((41, 60)))
    assert "pixels" in one_line_error(encoded(noise(200, 200), "JPEG"))  # half is still too large


# --- quiet, in threads too -------------------------------------------------------------------


def warning_jpeg() -> bytes:
    """A JPEG whose second APP segment is a damaged index of several pictures."""
    jpeg = encoded(noise(8, 8), "JPEG")
    index = b"MPF\0MM\0*\0\0\0\x08\0\0"
    data = jpeg[:2] + b"\xff\xe2" + struct.pack(">H", len(index) + 2) + index + jpeg[2:]
    with pytest.warns(UserWarning, match="malformed MPO"):
        warnings.filterwarnings("ignore", "Corrupt EXIF")
        Image.open(BytesIO(data))
    return data


def test_pillows_warnings_do_not_leak() -> None:
    data = warning_jpeg()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_photograph(data)
    assert not caught
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert open_photograph(data).size == (8, 8)


def test_pillows_log_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("PIL.TiffImagePlugin")
    root_handlers, logging.root.handlers = logging.root.handlers, []
    try:
        logger.error("More samples per pixel than can be decoded")
    finally:
        logging.root.handlers = root_handlers
    assert capsys.readouterr().err == ""


def test_threads_leave_the_warning_filters_as_they_were() -> None:
    data = warning_jpeg()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        barrier = threading.Barrier(8)

        def work(_: int) -> list[tuple[int, int]]:
            barrier.wait()
            return [open_photograph(data).size for _ in range(20)]

        with ThreadPoolExecutor(8) as pool:
            for sizes in pool.map(work, range(8)):
                assert sizes == [(8, 8)] * 20
        assert list(warnings.filters) == before


# --- the square ------------------------------------------------------------------------------


def test_seen_box_by_hand() -> None:
    assert seen_box(400, 300, "squash") == (0, 0, 400, 300)
    assert seen_box(400, 300, "crop") == (50, 0, 350, 300)
    assert seen_box(300, 400, "crop") == (0, 50, 300, 350)
    assert seen_box(401, 300, "crop") == (50.5, 0, 350.5, 300)
    assert seen_box(400, 300, "pad") == (0, -50, 400, 350)
    assert seen_box(300, 400, "pad") == (-50, 0, 350, 400)


def striped() -> Image.Image:
    """60 x 20: a red, a green and a blue square side by side."""
    picture = Image.new("RGB", (60, 20), RED)
    picture.paste(GREEN, (20, 0, 40, 20))
    picture.paste(BLUE, (40, 0, 60, 20))
    return picture


def test_fit_square_by_hand() -> None:
    squashed = fit_square(striped(), 30, "squash")
    assert [squashed.getpixel((x, 15)) for x in (5, 15, 25)] == [RED, GREEN, BLUE]
    assert fit_square(striped(), 20, "crop") == Image.new("RGB", (20, 20), GREEN)
    padded = fit_square(striped(), 60, "pad")
    assert padded.crop((0, 20, 60, 40)) == striped()
    assert padded.crop((0, 0, 60, 20)) == Image.new("RGB", (60, 20), PAD_GREY)
    assert padded.crop((0, 40, 60, 60)) == Image.new("RGB", (60, 20), PAD_GREY)


def test_shrinking_is_antialiased() -> None:
    lines = Image.fromarray(np.tile(np.array([[0, 255]], np.uint8), (64, 32))).convert("RGB")
    shrunk = np.asarray(fit_square(lines, 8, "squash")).astype(int)
    assert abs(shrunk - 127).max() <= 12  # picking every eighth column would give 0 or 255


@pytest.mark.parametrize("resize", get_args(Resize))
def test_a_picture_of_that_size_keeps_every_bit(resize: Resize) -> None:
    assert fit_square(noise(32, 32), 32, resize) == noise(32, 32)


@settings(deadline=None)  # a shared machine may pause
@given(
    st.tuples(st.integers(1, 70), st.integers(1, 70)),
    st.integers(1, 40),
    st.sampled_from(get_args(Resize)),
)
def test_every_picture_fits(sides: tuple[int, int], size: int, resize: Resize) -> None:
    square = fit_square(Image.new("RGB", sides, WHITE), size, resize)
    assert (square.mode, square.size) == ("RGB", (size, size))
    assert square.getpixel((size // 2, size // 2)) == WHITE


@pytest.mark.parametrize("resize", get_args(Resize))
@pytest.mark.parametrize("sides", [(1, 5000), (5000, 1), (1, 1)])
def test_one_pixel_wide(sides: tuple[int, int], resize: Resize) -> None:
    assert fit_square(Image.new("RGB", sides), 224, resize).size == (224, 224)


@settings(deadline=None)  # a shared machine may pause
@given(
    st.integers(64, 300),
    st.integers(64, 300),
    st.integers(32, 100),
    st.floats(0.3, 0.7),
    st.floats(0.3, 0.7),
    st.sampled_from(get_args(Resize)),
)
def test_seen_box_says_where_the_squares_pixels_are(
    width: int, height: int, size: int, u: float, v: float, resize: Resize
) -> None:
    # A white patch round a point of the photograph. Its centre in the square, taken back through
    # the box, must be the same point: to half a pixel of the square for rounded bars, and a bit
    # for the weights of the antialiasing.
    x0, y0, x1, y1 = seen_box(width, height, resize)
    x, y = (
        round(width / 2 + (u - 0.5) * min(width, height)),
        round(height / 2 + (v - 0.5) * min(width, height)),
    )
    reach = 8
    photograph = Image.new("RGB", (width, height), PAD_GREY)
    photograph.paste(WHITE, (x - reach, y - reach, x + reach, y + reach))
    bright = np.asarray(fit_square(photograph, size, resize)).astype(float)[:, :, 0] - PAD_GREY[0]
    centres = np.arange(size) + 0.5
    seen_x = x0 + (bright.sum(0) @ centres / bright.sum()) * (x1 - x0) / size
    seen_y = y0 + (bright.sum(1) @ centres / bright.sum()) * (y1 - y0) / size
    tolerance = 0.6 if resize == "pad" else 0.1
    assert abs(seen_x - x) <= tolerance * (x1 - x0) / size
    assert abs(seen_y - y) <= tolerance * (y1 - y0) / size


# --- pixels ----------------------------------------------------------------------------------

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_to_pixels_by_hand() -> None:
    square = Image.new("RGB", (2, 2), (255, 51, 0))
    square.putpixel((1, 0), (0, 0, 255))
    pixels_322 = to_pixels(square, (0.5, 0.2, 0.0), (0.5, 0.1, 2.0))
    assert pixels_322.shape == (3, 2, 2)
    assert pixels_322.dtype == np.float32
    assert pixels_322.flags.c_contiguous
    np.testing.assert_allclose(pixels_322[:, 0, 0], [1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(pixels_322[:, 0, 1], [-1, -2, 0.5], atol=1e-6)  # row 0, column 1


def test_from_pixels_inverts_to_pixels() -> None:
    every_value = np.arange(256, dtype=np.uint8).reshape(16, 16)
    square = Image.fromarray(np.dstack([every_value, every_value.T, every_value[::-1]]))
    assert from_pixels(to_pixels(square, MEAN, STD), MEAN, STD) == square


def test_from_pixels_clips_what_no_picture_holds() -> None:
    pixels_322 = np.full((3, 2, 2), 100, np.float32)
    pixels_322[1] = -100
    assert from_pixels(pixels_322, MEAN, STD) == Image.new("RGB", (2, 2), (255, 0, 255))


# --- 521 files that break image programs -----------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not ODD_IMAGES.is_dir(), reason="needs ../shared/odd_images")
def test_odd_images() -> None:
    with (ODD_IMAGES / "INDEX.tsv").open(encoding="utf-8") as index:
        pillow_decodes = {
            row["file"]: row["result"] == "ok" for row in csv.DictReader(index, delimiter="\t")
        }
    assert len(pillow_decodes) == 521
    opened, slow = set(), []
    for name in pillow_decodes:
        start = time.perf_counter()
        try:
            assert open_photograph(ODD_IMAGES / name).mode == "RGB"
            opened.add(name)
        except ImageError as error:
            message = str(error)
            assert message.isprintable()
            assert name in message
        if time.perf_counter() - start > 10:
            slow.append(name)
    assert not slow
    # No format denied on purpose is among those that Pillow decodes without an outside program.
    assert opened == {name for name, decodes in pillow_decodes.items() if decodes}
