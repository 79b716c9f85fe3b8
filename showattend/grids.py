"""The grids of a frozen encoder on disk: computed once, memory-mapped ever after.

A cache is a folder named by a fingerprint of everything that shapes a grid: the encoder's weights,
the pixel settings and the grid's shape. In it, ``grids.f16`` holds one fp16 grid after the other,
and ``keys.txt`` one line a grid: the digest of the picture's own bytes, and whether it was
mirrored. A grid is found by that key alone, so a changed picture, another checkpoint or another
resize can never be answered with a stale grid. Grids are written before their keys, so a killed run
leaves at most some unnamed bytes, which the next run overwrites.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from filelock import FileLock
from tqdm import tqdm

from showattend.captioner import Captioner
from showattend.config import PixelSettings
from showattend.datasets import DataError, Picture
from showattend.images import ImageError, fit_square, to_pixels
from showattend.regions import PictureRegions

_BATCH = 32  # written to the disk at a time
_KEY_BYTES = 33  # 31 hex digits, "m" or "-" for mirrored or not, and the line's end


@dataclass(frozen=True)
class Grids:
    """Grids of pictures, by position; ``rows`` points into the memory-mapped file.

    ``pictures`` are those whose file could be opened; ``mirrored_rows`` is None without flips.
    """

    pictures: list[Picture]
    values: np.ndarray
    rows: np.ndarray
    mirrored_rows: np.ndarray | None

    def read(
        self, positions: Sequence[int], mirrored: Sequence[bool] | None = None
    ) -> torch.Tensor:
        """fp16 grids (B, P, C) of some pictures, copied out of the file."""
        rows = self.rows[list(positions)]
        if mirrored is not None and self.mirrored_rows is not None:
            rows = np.where(mirrored, self.mirrored_rows[list(positions)], rows)
        return torch.from_numpy(self.values[rows])


@dataclass(frozen=True)
class LiveGrids:
    """The same reader where the encoder is trained too: grids are computed anew, with gradients."""

    pictures: list[Picture]
    captioner: Captioner
    pixels: PixelSettings

    def read(
        self, positions: Sequence[int], mirrored: Sequence[bool] | None = None
    ) -> torch.Tensor:
        """Grids (B, P, C) of some pictures."""
        sides = mirrored if mirrored is not None else [False] * len(positions)
        squares = [
            model_pixels(self.pictures[position].open(), self.pixels, mirrored=side)
            for position, side in zip(positions, sides, strict=True)
        ]
        return self.captioner.grid(torch.from_numpy(np.stack(squares)).to(self.captioner.device))


#: Pictures, and what the decoder looks at in each of them.
AnyGrids = Grids | LiveGrids | PictureRegions


def live_grids(
    captioner: Captioner, pixels: PixelSettings, pictures: Sequence[Picture], corrupt: str
) -> LiveGrids:
    """Open every picture once, so that a corrupt one is found before the training and not in it."""
    good = []
    for picture in tqdm(pictures, desc="photographs", unit="img", disable=None):
        try:
            picture.open()
        except ImageError as error:
            _refuse(error, corrupt)
            continue
        good.append(picture)
    _need_some(good)
    return LiveGrids(good, captioner, pixels)


def cache_grids(
    captioner: Captioner,
    pixels: PixelSettings,
    pictures: Sequence[Picture],
    folder: Path,
    *,
    flips: bool = False,
    corrupt: str = "fatal",
) -> Grids:
    """Find or compute the grid of every picture.

    Args:
        folder: where caches live; each fingerprint has its own folder in it.
        flips: also those of the mirrored pictures.
        corrupt: "fatal", or "skip" to leave out (and name) pictures that cannot be opened.
    Raises:
        DataError: a picture cannot be opened and ``corrupt`` is "fatal".
    """
    folder = folder / fingerprint(captioner, pixels)
    folder.mkdir(parents=True, exist_ok=True)
    keyed = _keys(pictures, corrupt)
    sides = ("-", "m") if flips else ("-",)
    wanted = {key + side: picture for picture, key in keyed for side in sides}
    with FileLock(folder / "lock"):  # another run may want the same grids: it finds them then
        store = _Store(folder, captioner.shape.packed)
        missing = {key: picture for key, picture in wanted.items() if key not in store.rows}
        bad = _fill(store, missing, captioner, pixels, corrupt)
    good = [(picture, key) for picture, key in keyed if key + "-" not in bad]
    _need_some(good)
    return Grids(
        [picture for picture, _ in good],
        store.values(),
        np.array([store.rows[key + "-"] for _, key in good]),
        np.array([store.rows[key + "m"] for _, key in good]) if flips else None,
    )


def fingerprint(captioner: Captioner, pixels: PixelSettings) -> str:
    """32 hex digits of the encoder's weights and of how pixels are made."""
    assert captioner.encoder is not None  # regions need no cache
    digest = hashlib.blake2b(digest_size=16)
    shape = (captioner.shape.height, captioner.shape.width, captioner.shape.channels)
    digest.update(json.dumps([pixels.model_dump(), shape, "v2"]).encode())
    digest.update(str(captioner.encoder.network).encode())  # layers without weights count too
    for name, value in captioner.encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _fill(
    store: "_Store",
    missing: dict[str, Picture],
    captioner: Captioner,
    pixels: PixelSettings,
    corrupt: str,
) -> set[str]:
    """Compute and store grids; returns the keys of the pictures that cannot be opened."""
    bad: set[str] = set()
    with tqdm(
        total=len(missing), desc="grids", unit="img", disable=None if missing else True
    ) as bar:
        for batch in _batches(missing):
            opened = list(_open_batch(batch, pixels, corrupt, bad))
            if opened:
                stacked = torch.from_numpy(np.stack([values for _, values in opened]))
                store.append([key for key, _ in opened], _compute(captioner, stacked))
            bar.update(len(batch))
    return bad


def _compute(captioner: Captioner, pixels_B3SS: torch.Tensor) -> np.ndarray:
    captioner.eval()
    return captioner.encode(pixels_B3SS.to(captioner.device)).half().cpu().numpy()


def _keys(pictures: Sequence[Picture], corrupt: str) -> list[tuple[Picture, str]]:
    """The pictures whose file can be read, each with its key but for the side."""
    keyed = []
    for picture in pictures:
        try:
            keyed.append((picture, picture.digest()[:31]))
        except ImageError as error:
            _refuse(error, corrupt)
    return keyed


def _open_batch(
    batch: list[tuple[str, Picture]], pixels: PixelSettings, corrupt: str, bad: set[str]
) -> Iterator[tuple[str, np.ndarray]]:
    for key, picture in batch:
        try:
            yield key, model_pixels(picture.open(), pixels, mirrored=key.endswith("m"))
        except ImageError as error:
            _refuse(error, corrupt)
            bad.add(key)


def model_pixels(
    photo: PIL.Image.Image, pixels: PixelSettings, *, mirrored: bool = False
) -> np.ndarray:
    """An upright RGB photograph as the encoder sees it: (3, S, S), normalised."""
    assert pixels.mean is not None and pixels.std is not None  # filled in when a run starts
    square = fit_square(photo, pixels.size, pixels.resize)
    if mirrored:
        square = PIL.ImageOps.mirror(square)
    return to_pixels(square, pixels.mean, pixels.std)


def _refuse(error: ImageError, corrupt: str) -> None:
    if corrupt == "fatal":
        raise DataError(f"{error}; data.corrupt=skip leaves such pictures out") from None
    tqdm.write(f"left out: {error}")


def _need_some(good: Sequence[object]) -> None:
    if not good:
        raise DataError("none of the photographs can be opened; look at data.root")


def _batches(items: dict[str, Picture]) -> Iterator[list[tuple[str, Picture]]]:
    pairs = list(items.items())
    for start in range(0, len(pairs), _BATCH):
        yield pairs[start : start + _BATCH]


class _Store:
    """Rows of fp16 grids in one file, their keys in another."""

    def __init__(self, folder: Path, cells: tuple[int, int]) -> None:
        self._grids, self._keys = folder / "grids.f16", folder / "keys.txt"
        self._cells = cells
        self._row_bytes = cells[0] * cells[1] * 2
        self._grids.touch()
        self._keys.touch()
        self.rows = self._whole_rows()

    def _whole_rows(self) -> dict[str, int]:
        """Keys whose line and grid are both whole."""
        text = self._keys.read_bytes()
        count = min(len(text) // _KEY_BYTES, self._grids.stat().st_size // self._row_bytes)
        lines = text[: count * _KEY_BYTES].decode("ascii").split()
        return {key: row for row, key in enumerate(lines)}

    def append(self, keys: list[str], grids_BPC: np.ndarray) -> None:
        start = len(self.rows)
        _write_at(self._grids, start * self._row_bytes, grids_BPC.tobytes())
        _write_at(self._keys, start * _KEY_BYTES, "".join(f"{key}\n" for key in keys).encode())
        self.rows.update({key: start + i for i, key in enumerate(keys)})

    def values(self) -> np.ndarray:
        """All grids (N, P, C), memory-mapped, read only."""
        shape = (len(self.rows), *self._cells)
        return np.memmap(self._grids, dtype=np.float16, mode="r", shape=shape)


def _write_at(path: Path, offset: int, content: bytes) -> None:
    """Overwrite from an offset on, and wait until it is on the disk."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
