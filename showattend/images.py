"""Open any photograph safely, and cut from it the square that the model sees.

Every path into the program passes through `open_photograph`: whatever it is given, it returns an
upright RGB picture or raises an `ImageError` of one clear line. `fit_square` and `seen_box` are two
views of one geometry: the pixels the model gets, and the part of the photograph they came from, so
that attention maps are laid over exactly what the model saw.
"""

import logging
import os
import stat
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

Photograph: TypeAlias = str | os.PathLike[str] | bytes | Image.Image | NDArray[Any]
Resize: TypeAlias = Literal["squash", "crop", "pad"]

# A 50-megapixel sensor's picture. Decoding costs up to 12 bytes a pixel for JPEG and PNG, 20 for
# WebP and 24 for JPEG 2000 (measured), and torch with timm holds 0.7 GiB before: at this size the
# costliest format still leaves the whole program under 2 GiB. Larger JPEGs come at half their size.
MAX_PIXELS = 8192 * 6144

# Raster formats that Pillow decodes by itself; JPEG includes MPO. Left out on purpose: EPS (starts
# Ghostscript), WMF, IPTC (opens its content again, with every format allowed), the stubs without a
# decoder (BUFR, GRIB, HDF5, MPEG), and a few that no photograph comes in. The last three have no
# signature of their own, so they are tried last.
# fmt: off
FORMATS = (
    "JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "DIB", "TIFF", "JPEG2000", "PPM", "QOI", "PSD",
    "DDS", "ICO", "ICNS", "CUR", "PCX", "SGI", "SUN", "FITS", "FLI", "BLP", "XBM", "XPM",
    "TGA", "IM", "IMT",
)
# fmt: on

PAD_GREY = (128, 128, 128)  # the middle of the range: close to zero once normalised

CHUNK = 1 << 20  # numbers scaled at a time, so that float64 copies stay small

# EXIF orientation -> the transposition that undoes it.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# One photograph is decoded at a time: two large ones at once would break the memory limit, and
# Python's warning filters, which are changed meanwhile, belong to the whole process.
_decoding = threading.Lock()

# Without a handler, Python prints Pillow's log of errors to stderr.
logging.getLogger("PIL").addHandler(logging.NullHandler())


class ImageError(ValueError):
    """A photograph that cannot be used: one line that says which, what is wrong, what to do."""


def open_photograph(source: Photograph) -> Image.Image:
    """Open `source` as an upright RGB picture.

    Args:
        source: a file's path, a file's content, a Pillow image (left as it is), or an array of
            shape (H, W), (H, W, 1), (H, W, 3) or (H, W, 4) of whole numbers, floats or bool.

    The EXIF orientation is applied, the first frame of an animation is taken, transparency is laid
    over white. Numbers other than 8-bit ones are scaled to 0..255, never clipped (see
    `_bright_range`). A JPEG above `MAX_PIXELS` comes at half its size.

    Raises:
        ImageError: for everything else.
    """
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, Image.Image):
        return _from_image(source)
    if isinstance(source, bytes):
        return _from_file("<bytes>", BytesIO(source), len(source))
    if isinstance(source, str | os.PathLike):
        return _from_path(source)
    raise _error(
        f"<{type(source).__name__}>",
        "is no photograph; expected a path, a file's bytes, a Pillow image or a NumPy array",
    )


@cache
def photograph_suffixes() -> frozenset[str]:
    """What the files of the formats that `open_photograph` takes end in, such as ``.jpg``."""
    formats = Image.registered_extensions()
    return frozenset(suffix for suffix, format_ in formats.items() if format_ in FORMATS)


def read_content(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a photograph's file, whatever they hold.

    Raises:
        ImageError: there is no such file, or it cannot be read to an end.
    """
    with regular_file(path) as (_, file, _):
        return file.read()


def seen_box(width: int, height: int, resize: Resize) -> tuple[float, float, float, float]:
    """The part of an upright photograph that the square covers: (x0, y0, x1, y1), in its pixels.

    For "pad" the box reaches beyond the photograph. There `fit_square` rounds the bars to whole
    pixels of the square, so the box is exact to half of one; for "squash" and "crop" it is exact.
    """
    if resize == "squash":
        return 0.0, 0.0, float(width), float(height)
    side = min(width, height) if resize == "crop" else max(width, height)
    x0, y0 = (width - side) / 2, (height - side) / 2
    return x0, y0, x0 + side, y0 + side


def fit_square(image: Image.Image, size: int, resize: Resize) -> Image.Image:
    """The `size` x `size` square that the model sees of an upright RGB image; bicubic, antialiased.

    "squash" takes the whole picture and gives up its aspect; "crop" takes the largest centred
    square; "pad" takes the whole picture between grey bars. A picture that has the size already
    keeps every bit.
    """
    if resize == "pad":
        return _padded(image, size)
    box = seen_box(image.width, image.height, resize)
    return image.resize((size, size), Image.Resampling.BICUBIC, box)


def to_pixels(
    square: Image.Image | NDArray[np.uint8], mean: Sequence[float], std: Sequence[float]
) -> NDArray[np.float32]:
    """The network's input for an RGB `square`: (x / 255 - mean) / std, shape (3, S, S)."""
    # Each channel knows 256 numbers: looking them up takes a third of the time of dividing.
    known_V3 = (np.arange(256)[:, None] / 255 - np.asarray(mean)) / np.asarray(std)
    square_SS3, tables_3V = np.asarray(square), known_V3.T.astype(np.float32)
    return np.stack([table_V.take(square_SS3[:, :, c]) for c, table_V in enumerate(tables_3V)])


def from_pixels(
    pixels_3SS: NDArray[np.float32], mean: Sequence[float], std: Sequence[float]
) -> Image.Image:
    """The inverse of `to_pixels`, for display."""
    pixels_SS3 = np.asarray(pixels_3SS).transpose(1, 2, 0)
    pixels_SS3 = (pixels_SS3 * np.asarray(std) + np.asarray(mean)) * 255
    return Image.fromarray(np.rint(pixels_SS3).clip(0, 255).astype(np.uint8))


def _padded(image: Image.Image, size: int) -> Image.Image:
    scale = size / max(image.size)
    # Two equal bars keep the centre exact; at least one pixel of the picture is left between them.
    left, top = (min(round((size - side * scale) / 2), (size - 1) // 2) for side in image.size)
    inner = image.resize((size - 2 * left, size - 2 * top), Image.Resampling.BICUBIC)
    canvas = Image.new("RGB", (size, size), PAD_GREY)
    canvas.paste(inner, (left, top))
    return canvas


def _from_path(path: str | os.PathLike[str]) -> Image.Image:
    with regular_file(path) as (name, file, length):
        return _from_file(name, file, length)


@contextmanager
def regular_file(path: str | os.PathLike[str]) -> Iterator[tuple[str, IO[bytes], int]]:
    """The file's name, the open file and its length.

    Raises:
        ImageError: there is no such file, it is a folder, pipe or device, or, also while it is
            read, cannot be read.
    """
    name = os.fsdecode(path)
    if not name:  # to pathlib this is the current folder
        raise _error("''", "is no path; expected an image file")
    try:
        file_path = Path(name)
        status = file_path.stat()
        # Only a regular file is safe to open: a pipe waits for a writer, a device may never end.
        if stat.S_ISDIR(status.st_mode):
            raise _error(name, "is a folder; expected an image file")
        if not stat.S_ISREG(status.st_mode):
            raise _error(name, "is a pipe, socket or device; expected an image file")
        with file_path.open("rb") as file:
            yield name, file, status.st_size
    except ImageError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise _error(name, f"cannot be read ({reason}); check the path") from error


def _from_file(name: str, file: IO[bytes], length: int) -> Image.Image:
    if length == 0:
        raise _error(name, "is empty; expected an image file")
    return _guarded(name, lambda: _decoded(name, file))


def _decoded(name: str, file: IO[bytes]) -> Image.Image:
    with Image.open(file, formats=FORMATS) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            half = picture.width // 2, picture.height // 2
            picture.draft(None, half)  # a JPEG is decoded at this size; other formats do nothing
        _check_size(name, *picture.size)  # only the header is read: the pixels take no memory yet
        picture.load()
        _check_size(name, *picture.size)  # an icon or a texture may hold a second, larger header
        return _upright_rgb(picture)


def _from_array(array: NDArray[Any]) -> Image.Image:
    shape, kind, bits = array.shape, array.dtype.kind, array.dtype.itemsize * 8
    if kind not in "biuf" or bits > 64:
        raise _error(
            "<array>",
            f"has type {array.dtype}; expected whole numbers, floats of 16 to 64 bits or bool",
        )
    if len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,), (4,)):
        raise _error(
            "<array>", f"has shape {shape}; expected (H, W), (H, W, 1), (H, W, 3) or (H, W, 4)"
        )
    _check_size("<array>", shape[1], shape[0])
    values = np.asarray(array[:, :, 0] if shape[2:] == (1,) else array)
    return _guarded("<array>", lambda: _upright_rgb(Image.fromarray(_to_bytes(values))))


def _from_image(image: Image.Image) -> Image.Image:
    _check_size("<image>", *image.size)
    # A copy, for Pillow writes into a palette image that it converts.
    return _guarded("<image>", lambda: _upright_rgb(image.copy()))


def _guarded(name: str, decode: Callable[[], Image.Image]) -> Image.Image:
    """Decode with Pillow: no warning leaves, and every exception leaves as an ImageError."""
    try:
        with _decoding, warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")
            return decode()
    except ImageError:
        raise
    except UnidentifiedImageError as error:
        raise _error(name, "is no image that can be read; save it as JPEG or PNG") from error
    except Image.DecompressionBombError as error:
        raise _error(name, f"has too many pixels; expected at most {MAX_PIXELS:,}") from error
    except Exception as error:  # damage can raise OSError, SyntaxError, struct.error, KeyError, ...
        reason = str(error) or type(error).__name__
        raise _error(
            name, f"is damaged or unsupported ({reason}); save it as JPEG or PNG"
        ) from error


def _upright_rgb(picture: Image.Image) -> Image.Image:
    transposition = _UPRIGHT.get(_orientation(picture))
    rgb = _rgb(picture)
    if transposition is not None:
        rgb = rgb.transpose(transposition)
    rgb.info.clear()  # the orientation is spent: nobody may apply it again
    return rgb


def _orientation(picture: Image.Image) -> int:
    try:
        return int(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # damaged metadata, in as many ways as damaged pixels, spoils no picture
        return 1


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        # Pillow's own conversion clips these to white.
        return _grey(picture).convert("RGB")
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    if picture.mode == "La":  # the one mode from which Pillow has no direct way
        picture = picture.convert("LA")
    rgba = picture.convert("RGBA")
    canvas = Image.new("RGB", picture.size, "white")
    canvas.paste(rgba, mask=rgba)
    return canvas


def _grey(picture: Image.Image) -> Image.Image:
    values = np.asarray(picture)
    grey = _to_bytes(values)
    if "transparency" in picture.info:
        grey[values == picture.info["transparency"]] = 255  # over white, as every transparency
    return Image.fromarray(grey)


def _to_bytes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Any numbers of shape (H, W), (H, W, 3) or (H, W, 4), as uint8 of the same shape."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values * np.uint8(255)
    if values.shape[2:] != (4,):
        return _scaled(values, *_bright_range(values))
    # Alpha is no brightness: it starts at zero, and is never stretched to its own range.
    colour, alpha = values[:, :, :3], values[:, :, 3]
    opaque = _full_range(alpha)[1]
    return np.dstack([_scaled(colour, *_bright_range(colour)), _scaled(alpha, 0, opaque)])


def _bright_range(values: NDArray[Any]) -> tuple[float, float]:
    """The numbers shown as black and as white.

    The full range, so that a dim photograph stays dim. But whole numbers that use less than a
    sixteenth of it would show nothing: those take their own minimum and maximum.
    """
    black, white = _full_range(values)
    if values.dtype.kind == "f":
        return black, white
    low, high = float(values.min()), float(values.max())
    narrow = 0 < high - low < (white - black) / 16
    return (low, high) if narrow else (black, white)


def _full_range(values: NDArray[Any]) -> tuple[float, float]:
    """The range that `values` were recorded in.

    Floats: 0..1 where they lie within, else their finite minimum and maximum. Whole numbers: the
    range of their type; types wider than 16 bits mostly carry narrower photographs (Pillow's mode
    I, NumPy's arithmetic), so there the smallest of 8 bits, 16 bits and the type that holds them.
    """
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        low = float(np.min(values, where=finite, initial=np.inf))
        high = float(np.max(values, where=finite, initial=-np.inf))
        return (low, high) if low < 0 or high > 1 else (0.0, 1.0)
    limits = np.iinfo(values.dtype)
    if values.min() < 0:
        return float(limits.min), float(limits.max)
    tops = (limits.max,) if limits.bits <= 16 else (255, 65535, limits.max)
    return 0.0, float(next(top for top in tops if values.max() <= top))


def _scaled(values: NDArray[Any], black: float, white: float) -> NDArray[np.uint8]:
    """black..white -> 0..255, rounded; NaN and infinities -> 0."""
    numbers = values.reshape(-1)
    scaled = np.empty(numbers.shape, np.uint8)
    half_span = white / 2 - black / 2 or 1.0  # halves: the span of two float64 may exceed float64
    for start in range(0, len(numbers), CHUNK):
        part = numbers[start : start + CHUNK].astype(np.float64)
        part[~np.isfinite(part)] = black
        part = (part / 2 - black / 2) / half_span * 255
        scaled[start : start + CHUNK] = np.rint(part).clip(0, 255)
    return scaled.reshape(values.shape)


def _check_size(name: str, width: int, height: int) -> None:
    if not 0 < width * height <= MAX_PIXELS:
        raise _error(name, f"has {width} x {height} pixels; expected 1 to {MAX_PIXELS:,}")


def _error(name: str, problem: str) -> ImageError:
    # File names and Pillow's messages may hold line breaks, terminal codes or undecodable bytes.
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in f"{name}: {problem}")
    return ImageError(line)
