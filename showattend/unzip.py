"""What is wanted of a zip, unpacked whole or not at all."""

import lzma
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath

from tqdm import tqdm

#: What zipfile raises of a zip that is damaged, or packed in a way that it does not know.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    UnicodeDecodeError,  # of a name
    EOFError,
    NotImplementedError,
    RuntimeError,
)


class UnzipError(ValueError):
    """A zip is damaged, hostile or not the one expected, or the disk is full: one clear line."""


def unpack(path: Path, folder: Path, wanted: Sequence[str], most: int) -> None:
    """Unpack files and folders of a zip into ``folder``, those that are there already excepted.

    All is unpacked under another name, in ``folder``, and checked by the zip's CRCs; then every one
    of ``wanted`` is moved to its place in one step, so that what stands there is whole. Names that
    would lead out of ``folder`` are refused before anything is written.

    Args:
        wanted: of the zip, with / between the parts: files, or folders with all that they hold.
        most: bytes that these may unpack to.

    Raises:
        UnzipError: one line that names the zip; nothing of it is left.
    """
    staging = folder / f".{path.name}.unpacking"
    missing = [name for name in wanted if not (folder / name).exists()]
    try:
        shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
        with zipfile.ZipFile(path) as zipped:
            members = _members(zipped, missing, path)
            _check_room(members, most, folder, path)
            _extract(zipped, members, staging, path)
        for name in missing:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            os.rename(staging / name, folder / name)
    except OSError as error:
        raise UnzipError(
            f"{path}: cannot be unpacked into {folder} ({error.strerror or error}); what was "
            "unpacked is removed, the zip stays; run again when this is mended"
        ) from None
    except _DAMAGED as error:
        raise UnzipError(
            f"{path}: is no whole zip ({error or 'it ends early'}); remove it and run again"
        ) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _members(zipped: zipfile.ZipFile, wanted: Iterable[str], path: Path) -> list[zipfile.ZipInfo]:
    """The files of the zip that are wanted, in its order."""
    files = [info for info in zipped.infolist() if not info.is_dir()]
    for info in files:
        if _leads_out(info):
            raise UnzipError(
                f"{path}: holds {info.filename!r}, which leads out of the folder; do not trust it"
            )
    found: list[zipfile.ZipInfo] = []
    for name in wanted:
        of_name = [f for f in files if f.filename == name or f.filename.startswith(f"{name}/")]
        if not of_name:
            raise UnzipError(f"{path}: has no {name}, so it is not the file it should be")
        found += of_name
    return found


def _leads_out(info: zipfile.ZipInfo) -> bool:
    """Whether a member's name, or a link that it is, points out of the folder."""
    name = info.filename
    parts = PurePosixPath(name.replace("\\", "/")).parts
    absolute = PurePosixPath(name).is_absolute() or bool(PureWindowsPath(name).anchor)
    return absolute or ".." in parts or stat.S_ISLNK(info.external_attr >> 16)


def _check_room(members: list[zipfile.ZipInfo], most: int, folder: Path, path: Path) -> None:
    size = sum(info.file_size for info in members)
    if size > most:
        raise UnzipError(
            f"{path}: says that it unpacks to {size:,} bytes, of which {most:,} at most were "
            "expected; do not trust it"
        )
    free = shutil.disk_usage(folder).free
    if size > free:
        raise UnzipError(
            f"{folder}: {size:,} bytes are needed to unpack {path.name}, {free:,} are free; free "
            "some and run again"
        )


def _extract(
    zipped: zipfile.ZipFile, members: list[zipfile.ZipInfo], staging: Path, path: Path
) -> None:
    """Write the members, each no longer than the zip says: zipfile reads no further, and compares
    the CRC at the end."""
    for info in tqdm(members, desc=path.name, unit="file", disable=None):
        target = staging / info.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipped.open(info) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
