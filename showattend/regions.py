"""Regions of photographs and their features, from a file: what a model looks at without a CNN.

One file serves a data set. For the photograph ``town/beach.jpg`` it holds ``beach/features``,
(n, C) numbers, and ``beach/boxes``, (n, 4): x0, y0, x1, y1 in fractions of the upright photograph,
from its upper left corner. The name is that of the photograph's file without its suffix (of a drawn
scene, its image id), and n is each photograph's own. The file is one of

* ``.npz``, with these keys: ``np.savez(path, **{"beach/features": ..., "beach/boxes": ...})``;
* ``.h5`` or ``.hdf5``, with a group a photograph (``pip install 'showattend[hdf5]'``).

Both are read as they are needed, a photograph at a time, and nothing is ever unpickled.
"""

import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from showattend.datasets import Picture
from showattend.items import Items, as_items

#: Boxes may stick out by so much: fractions of whole pixels, rounded to fp16, do.
_ROUNDING = 1e-3


class RegionsError(ValueError):
    """A file of regions is missing, malformed, or lacks a photograph: one clear line."""


class RegionFile:
    """Regions by photograph.

    Args:
        path: .npz, .h5 or .hdf5; see the head of this module.
        channels: C, that the model needs.
    Raises:
        RegionsError: there is no such file, it is of another kind, or h5py is not installed; one
            line.
    """

    def __init__(self, path: Path, channels: int) -> None:
        self.path = Path(path)
        self.channels = channels
        self._arrays = _open(self.path)

    def boxes(self, name: str) -> np.ndarray:
        """The boxes (n, 4) of a photograph, whose features are there and of the right shape.

        Args:
            name: of the photograph's file, without the suffix.
        Raises:
            RegionsError: they are missing or malformed; one line.
        """
        features, boxes = f"{name}/features", f"{name}/boxes"
        for key in (features, boxes):
            if key not in self._arrays:
                raise RegionsError(f"{self.path}: has no {key}; every photograph needs its regions")
        try:
            found = self._arrays.shape(features)
            boxes_P4 = self._arrays.read(boxes)
        except _UNREADABLE as error:
            raise self._unreadable(name, error) from None
        check_boxes(boxes_P4, f"{self.path}: {boxes}")
        _check_shape(found, (len(boxes_P4), self.channels), f"{self.path}: {features}")
        return boxes_P4

    def read(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """The features (n, C) and the boxes (n, 4) of a photograph.

        Raises:
            RegionsError: as `boxes`, and where a feature is no number; one line.
        """
        boxes_P4 = self.boxes(name)
        try:
            features_PC = self._arrays.read(f"{name}/features")
        except _UNREADABLE as error:
            raise self._unreadable(name, error) from None
        _check_finite(features_PC, f"{self.path}: {name}/features")
        return features_PC, boxes_P4

    def _unreadable(self, name: str, error: Exception) -> RegionsError:
        reason = " ".join(str(error).split())[:160]
        return RegionsError(f"{self.path}: the regions of {name} cannot be read ({reason})")


@dataclass(frozen=True)
class PictureRegions:
    """The regions of pictures, by position: read as `showattend.grids.Grids` are."""

    pictures: list[Picture]
    file: RegionFile

    def read(self, positions: Sequence[int], mirrored: Sequence[bool] | None = None) -> Items:
        """Features, boxes and mask of some pictures.

        Args:
            mirrored: all False: the features of a mirrored photograph are not known.
        """
        assert not any(mirrored or ())  # the settings refuse train.flips
        return as_items([self.file.read(region_name(self.pictures[k])) for k in positions])


def open_regions(path: Path, channels: int, pictures: Sequence[Picture]) -> PictureRegions:
    """The regions of a data set, all looked through before they are needed.

    Raises:
        RegionsError: those of a picture are missing or malformed, or two pictures have one name;
            one line.
    """
    file = RegionFile(path, channels)
    (name, count), *_ = Counter(map(region_name, pictures)).most_common(1)
    if count > 1:
        raise RegionsError(
            f"{path}: {count} photographs are called {name}; give their files different names"
        )
    for picture in tqdm(pictures, desc="regions", unit="img", disable=None):
        file.boxes(region_name(picture))
    return PictureRegions(list(pictures), file)


def region_name(picture: Picture) -> str:
    """What the file calls a picture."""
    return picture.source.stem if isinstance(picture.source, Path) else str(picture.image_id)


def check_regions(
    features_PC: np.ndarray, boxes_P4: np.ndarray, channels: int
) -> tuple[np.ndarray, np.ndarray]:
    """Regions that are given as arrays.

    Raises:
        RegionsError: shapes or values are not what they should be; one line.
    """
    features_PC, boxes_P4 = np.asarray(features_PC), np.asarray(boxes_P4)
    check_boxes(boxes_P4, "boxes")
    _check_shape(features_PC.shape, (len(boxes_P4), channels), "features")
    _check_finite(features_PC, "features")
    return features_PC, boxes_P4


def check_boxes(boxes_P4: np.ndarray, place: str) -> None:
    """Whether boxes are (n, 4) corners within the photograph, in their order.

    Raises:
        RegionsError: they are not; one line, which begins with ``place``.
    """
    if boxes_P4.ndim != 2 or boxes_P4.shape[1] != 4 or not len(boxes_P4):
        raise RegionsError(f"{place} is {_told(boxes_P4.shape)}: expected (n, 4), n at least 1")
    _check_finite(boxes_P4, place)
    clipped_P4 = boxes_P4.clip(0, 1)
    right_P = (np.abs(boxes_P4 - clipped_P4) <= _ROUNDING).all(axis=1)
    right_P &= (clipped_P4[:, :2] < clipped_P4[:, 2:]).all(axis=1)
    if not right_P.all():
        row = int(np.flatnonzero(~right_P)[0])
        corners = ", ".join(f"{corner:g}" for corner in boxes_P4[row])
        raise RegionsError(
            f"{place} has in row {row} the box {corners}: expected x0 < x1 and y0 < y1 in "
            "fractions of the photograph, 0 to 1"
        )


def _check_shape(found: tuple[int, ...], expected: tuple[int, int], place: str) -> None:
    if found != expected:
        raise RegionsError(
            f"{place} is {_told(found)}: expected {_told(expected)}, a row for each box and the "
            "model's encoder.channels"
        )


def _check_finite(values: np.ndarray, place: str) -> None:
    if values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        raise RegionsError(f"{place} holds what is no number (NaN, infinite, or no numbers at all)")


def _told(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


# --- the two kinds of files -----------------------------------------------------------------------


class _Arrays(Protocol):
    """Arrays by key, none of which is in memory."""

    def __contains__(self, key: str) -> bool: ...
    def shape(self, key: str) -> tuple[int, ...]: ...
    def read(self, key: str) -> np.ndarray: ...


#: What reading a damaged array may raise. numpy refuses pickled objects by a ValueError.
_UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)


def _open(path: Path) -> _Arrays:
    kinds: dict[str, type[_Npz] | type[_Hdf5]] = {".npz": _Npz, ".h5": _Hdf5, ".hdf5": _Hdf5}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise RegionsError(f"{path}: regions come as {', '.join(kinds)}; name such a file")
    if not path.is_file():
        raise RegionsError(
            f"{path}: no such file; name by data.regions or --regions what holds them"
        )
    try:
        return kind(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise RegionsError(f"{path}: cannot be read as {path.suffix} ({error})") from None


class _Npz:
    """A zip of .npy files. Not numpy's NpzFile, which tells no shape without reading all of it."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        self._names = frozenset(self._zip.namelist())

    def __contains__(self, key: str) -> bool:
        return f"{key}.npy" in self._names

    def shape(self, key: str) -> tuple[int, ...]:
        with self._zip.open(f"{key}.npy") as file:
            version = np.lib.format.read_magic(file)
            headers = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }
            shape, _, _ = headers[version](file)
            return tuple(shape)

    def read(self, key: str) -> np.ndarray:
        with self._zip.open(f"{key}.npy") as file:
            values: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
            return values


class _Hdf5:
    """Groups of data sets."""

    def __init__(self, path: Path) -> None:
        try:
            import h5py
        except ImportError:
            raise RegionsError(
                f"{path}: h5py is not installed; pip install 'showattend[hdf5]', or give an .npz"
            ) from None
        self._file: Any = h5py.File(path, "r")

    def __contains__(self, key: str) -> bool:
        return key in self._file

    def shape(self, key: str) -> tuple[int, ...]:
        return tuple(self._file[key].shape)

    def read(self, key: str) -> np.ndarray:
        return np.asarray(self._file[key])
