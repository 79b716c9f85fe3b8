"""The grids of a frozen encoder on disk: computed once, read ever after.

A cache is a folder named by a fingerprint of everything that shapes a grid: the encoder's weights,
the pixel settings and the grid's shape. A grid in it is found by the digest of the picture's own
bytes, and whether it was mirrored, so a changed picture, another checkpoint or another resize can
never be answered with a stale grid. How the folder keeps them: `showattend.grid_store`.

Several programs may fill one cache, each a part of the pictures. A part has a lock, and a program
takes its own part first and then the others': it waits for those that are being worked on, finds
them done, and does what a killed program left undone. Where nothing is missing no lock is taken and
nothing is written, so that a complete cache may lie on a disk that is read-only.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import PIL.Image
import torch
from filelock import FileLock
from tqdm import tqdm

from showattend.ahead import batches_of_squares
from showattend.captioner import Captioner
from showattend.config import PixelSettings
from showattend.crops import random_crop
from showattend.datasets import DataError, Picture
from showattend.grid_store import KEY_BYTES, LINE_BYTES, GridStore, GridWriter
from showattend.images import ImageError, fit_square, to_pixels
from showattend.regions import PictureRegions
from showattend.whole_files import write_whole

#: The file in a cache's folder that tells people whose grids they are.
ABOUT = "about.json"

_BATCH = 32  # pictures encoded at a time
_READERS = 8  # threads that read files at once: a disk, or a server, has a queue
_AT_ONCE = 1024  # pictures that are given to them at a time


class Rows(Protocol):
    """Grids by row: an array (N, P, C) of fp16, or what reads from a disk as one does."""

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray: ...


@dataclass(frozen=True)
class Grids:
    """Grids of pictures, by position; ``rows`` says which of ``values`` each has.

    ``pictures`` are those whose file could be opened; ``mirrored_rows`` is None without flips.
    """

    pictures: list[Picture]
    values: Rows
    rows: np.ndarray
    mirrored_rows: np.ndarray | None

    def read(
        self, positions: Sequence[int], mirrored: Sequence[bool] | None = None
    ) -> torch.Tensor:
        """fp16 grids (B, P, C) of some pictures, copied out of their files.

        Raises:
            DataError: a grid is damaged and cannot be computed anew; one line.
        """
        rows = self.rows[list(positions)]
        if mirrored is not None and self.mirrored_rows is not None:
            rows = np.where(mirrored, self.mirrored_rows[list(positions)], rows)
        return torch.from_numpy(self.values[rows])


@dataclass(frozen=True)
class StoredRows:
    """Rows of a store. A damaged one is named, computed anew and mended.

    ``pictures`` holds, for each key without its side, the picture that it is of.
    """

    store: GridStore
    captioner: Captioner
    pixels: PixelSettings
    pictures: dict[str, Picture]

    def __getitem__(self, rows: np.ndarray, /) -> np.ndarray:
        grids_NPC, damaged = self.store.read(rows)
        for i in damaged:
            grids_NPC[i] = self._anew(int(rows[i]))
        return grids_NPC

    def _anew(self, row: int) -> np.ndarray:
        key = self.store.key(row)
        picture = self.pictures[key[:-1]]
        damage = f"{self.store.file(row)}: the grid of {picture.name} is damaged"
        try:
            if _key(picture) != key[:-1]:
                raise ImageError("the photograph is another one by now; start the run once more")
            photo = picture.open()
        except ImageError as error:
            raise DataError(f"{damage} and cannot be computed anew ({error})") from None
        tqdm.write(f"{damage}; it is computed anew")
        pixels_3SS = model_pixels(photo, self.pixels, mirrored=_is_mirrored(key))
        (grid_PC,) = _compute(self.captioner, pixels_3SS[None])
        self.store.mend(row, grid_PC)
        return grid_PC


@dataclass(frozen=True)
class LiveGrids:
    """The same reader where grids are computed anew: with gradients where the encoder is trained.

    With a ``smallest_crop`` below 1, each time another part of a picture is taken, whose sides are
    at least this share of the whole's, drawn by torch's generator.
    """

    pictures: list[Picture]
    captioner: Captioner
    pixels: PixelSettings
    smallest_crop: float = 1.0

    def read(
        self, positions: Sequence[int], mirrored: Sequence[bool] | None = None
    ) -> torch.Tensor:
        """Grids (B, P, C) of some pictures."""
        sides = mirrored if mirrored is not None else [False] * len(positions)
        photos = [self.pictures[position].open() for position in positions]
        if self.smallest_crop < 1:
            photos = [random_crop(photo, self.smallest_crop) for photo in photos]
        squares = [
            model_pixels(photo, self.pixels, mirrored=side)
            for photo, side in zip(photos, sides, strict=True)
        ]
        pixels_B3SS = torch.from_numpy(np.stack(squares)).to(self.captioner.device)
        assert self.captioner.encoder is not None  # regions are read from their file
        if self.captioner.encoder.trainable:
            return self.captioner.grid(pixels_B3SS)
        return self.captioner.encode(pixels_B3SS).clone()  # of which a decoder may be taught


#: Pictures, and what the decoder looks at in each of them.
AnyGrids = Grids | LiveGrids | PictureRegions


def live_grids(
    captioner: Captioner,
    pixels: PixelSettings,
    pictures: Sequence[Picture],
    corrupt: str,
    smallest_crop: float = 1.0,
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
    return LiveGrids(good, captioner, pixels, smallest_crop)


def cache_grids(
    captioner: Captioner,
    pixels: PixelSettings,
    pictures: Sequence[Picture],
    folder: Path,
    *,
    flips: bool = False,
    corrupt: str = "fatal",
    part: int = 0,
    parts: int = 1,
) -> Grids:
    """Find or compute the grid of every picture.

    Args:
        folder: where caches live; each fingerprint has its own folder in it.
        flips: also those of the mirrored pictures.
        corrupt: "fatal", or "skip" to leave out (and name) pictures that cannot be opened.
        part, parts: of several programs that call this at once for the same pictures, such as the
            ranks of torchrun, which one this is (from 0) and how many there are. Each computes its
            own part and returns when all are done; the part of one that ended is taken over.
    Raises:
        DataError: a picture cannot be opened and ``corrupt`` is "fatal", the disk lacks room, or
            grids are missing and the folder cannot be written; one line.
    """
    keyed = _keys(pictures, corrupt)
    wanted = {key: picture for picture, key in keyed}
    sides = ("-", "m") if flips else ("-",)
    folder = folder / fingerprint(captioner, pixels)
    store = _opened(folder, captioner.shape.packed)
    missing = _missing(store, wanted, sides)
    _need_room(folder, store, missing, says_so=part == 0)
    bad: set[str] = set()
    # What a store tells of is whole, whoever is writing to it: only what is missing needs a lock.
    for share in (*range(part, parts), *range(part)) if missing else ():
        own = list(wanted)[share::parts]
        with _locked(folder / f"part-{share}-of-{parts}.lock"):
            _tell_about(folder, captioner, pixels)
            store.refresh()  # who held the lock may have computed them
            missing = _missing(store, own, sides)
            bad |= _fill(store, missing, wanted, captioner, pixels, corrupt, parts)
    good = [(picture, key) for picture, key in keyed if key not in bad]
    _need_some(good)
    rows = [np.array([store.rows[key + side] for _, key in good]) for side in sides]
    store.rows.clear()  # from here on, grids are found by position
    return Grids(
        [picture for picture, _ in good],
        StoredRows(store, captioner, pixels, wanted),
        rows[0],
        rows[1] if flips else None,
    )


def fingerprint(captioner: Captioner, pixels: PixelSettings) -> str:
    """32 hex digits of the encoder's weights and of how pixels are made."""
    assert captioner.encoder is not None  # regions need no cache
    digest = hashlib.blake2b(digest_size=16)
    shape = (captioner.shape.height, captioner.shape.width, captioner.shape.channels)
    # "v2" kept all grids in one file: its folders are left as they are, and never read.
    digest.update(json.dumps([pixels.model_dump(), shape, "v3"]).encode())
    digest.update(str(captioner.encoder.network).encode())  # layers without weights count too
    for name, value in captioner.encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _opened(folder: Path, cells: tuple[int, int]) -> GridStore:
    try:
        return GridStore(folder, cells)
    except OSError as error:
        raise _unusable(folder, error) from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock; what goes wrong while it is held is no matter of the lock."""
    lock = FileLock(path)
    try:
        lock.acquire()
    except OSError as error:
        raise _unusable(path.parent, error) from None
    try:
        yield
    finally:
        lock.release()


def _tell_about(folder: Path, captioner: Captioner, pixels: PixelSettings) -> None:
    """Say in a folder whose grids it holds, for people: its name is a hash, and no run reads this.

    Folders of before have no such file; they get it when they grow.
    """
    path = folder / ABOUT
    if path.exists():
        return
    assert captioner.encoder is not None  # regions need no cache
    about = {
        "encoder": captioner.encoder.name,
        "grid": asdict(captioner.shape),
        "pixels": pixels.model_dump(mode="json"),
    }
    try:
        write_whole(path, json.dumps(about, indent=2) + "\n")
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(folder: Path, error: OSError) -> DataError:
    return DataError(
        f"{error.filename or folder}: cannot be written ({error.strerror or error}); grids are to "
        "be kept there; name another folder by --cache"
    )


def _missing(store: GridStore, keys: Iterable[str], sides: Sequence[str]) -> dict[str, list[str]]:
    """By picture, the sides of it that have no grid yet."""
    found = {key: [side for side in sides if key + side not in store.rows] for key in keys}
    return {key: lacking for key, lacking in found.items() if lacking}


def _need_room(
    folder: Path, store: GridStore, missing: dict[str, list[str]], *, says_so: bool
) -> None:
    """Say what the missing grids take, and refuse what the disk cannot hold."""
    count = sum(map(len, missing.values()))
    need, free = count * (store.row_bytes + LINE_BYTES), shutil.disk_usage(folder).free
    line = (
        f"grids to compute: {count:,} of {store.row_bytes:,} bytes, {_readable(need)}; "
        f"{_readable(free)} are free"
    )
    if need > free:
        raise DataError(f"{folder}: {line}; make room, or name another disk by --cache")
    if count and says_so:
        tqdm.write(f"{folder}: {line}")


def _readable(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.2f} MB"


def _fill(
    store: GridStore,
    missing: dict[str, list[str]],
    pictures: dict[str, Picture],
    captioner: Captioner,
    pixels: PixelSettings,
    corrupt: str,
    sharers: int,
) -> set[str]:
    """Compute and store missing grids; returns the keys of the pictures that cannot be opened."""
    bad: set[str] = set()
    if not missing:
        return bad
    keys, sources = list(missing), [pictures[key] for key in missing]
    squares = batches_of_squares(sources, pixels, _BATCH, sharers=sharers)
    with (
        tqdm(total=len(keys), desc="grids", unit="img", disable=None) as bar,
        store.writer() as writer,
    ):
        for start, batch in zip(range(0, len(keys), _BATCH), squares, strict=True):
            opened: dict[str, np.ndarray] = {}
            for key, square in zip(keys[start : start + _BATCH], batch, strict=True):
                if isinstance(square, ImageError):
                    _refuse(square, corrupt)
                    bad.add(key)
                else:
                    opened |= {
                        key + side: _normal(square, pixels, _is_mirrored(side))
                        for side in missing[key]
                    }
            if opened:
                _append(writer, list(opened), _compute(captioner, np.stack([*opened.values()])))
            bar.update(len(batch))
    return bad


def _append(writer: GridWriter, keys: list[str], grids_NPC: np.ndarray) -> None:
    try:
        writer.append(keys, grids_NPC)
    except OSError as error:
        raise DataError(
            f"{error.filename or 'the cache of grids'}: cannot be written ({error.strerror}); make "
            "room, or name another disk by --cache; what is written is kept"
        ) from None


def _compute(captioner: Captioner, pixels_B3SS: np.ndarray) -> np.ndarray:
    """fp16 grids (B, P, C). A training that is under way finds its model as it was."""
    trained = captioner.training
    captioner.eval()
    with torch.autocast(captioner.device.type, enabled=False):
        grids_BPC = captioner.encode(torch.from_numpy(pixels_B3SS).to(captioner.device))
    captioner.train(trained)
    return grids_BPC.half().cpu().numpy()


def _keys(pictures: Sequence[Picture], corrupt: str) -> list[tuple[Picture, str]]:
    """The pictures whose file can be read, each with its key but for the side."""
    keyed = []
    with (
        ThreadPoolExecutor(_READERS) as pool,
        tqdm(total=len(pictures), desc="photographs", unit="img", disable=None) as bar,
    ):
        for start in range(0, len(pictures), _AT_ONCE):
            some = pictures[start : start + _AT_ONCE]
            for picture, key in zip(some, pool.map(_key_or_error, some), strict=True):
                if isinstance(key, ImageError):
                    _refuse(key, corrupt)
                else:
                    keyed.append((picture, key))
            bar.update(len(some))
    return keyed


def _key_or_error(picture: Picture) -> str | ImageError:
    try:
        return _key(picture)
    except ImageError as error:
        return error


def _key(picture: Picture) -> str:
    return picture.digest()[: KEY_BYTES - 1]


def model_pixels(
    photo: PIL.Image.Image, pixels: PixelSettings, *, mirrored: bool = False
) -> np.ndarray:
    """An upright RGB photograph as the encoder sees it: (3, S, S), normalised."""
    square_SS3 = np.asarray(fit_square(photo, pixels.size, pixels.resize))
    return _normal(square_SS3, pixels, mirrored)


def _normal(square_SS3: np.ndarray, pixels: PixelSettings, mirrored: bool) -> np.ndarray:
    assert pixels.mean is not None and pixels.std is not None  # filled in when a run starts
    seen_SS3 = square_SS3[:, ::-1] if mirrored else square_SS3
    return to_pixels(seen_SS3, pixels.mean, pixels.std)


def _is_mirrored(key: str) -> bool:
    return key.endswith("m")


def _refuse(error: ImageError, corrupt: str) -> None:
    if corrupt == "fatal":
        raise DataError(f"{error}; data.corrupt=skip leaves such pictures out") from None
    tqdm.write(f"left out: {error}")


def _need_some(good: Sequence[object]) -> None:
    if not good:
        raise DataError("none of the photographs can be opened; look at data.root")
