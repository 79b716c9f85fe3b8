"""From published zips to a folder that a data set can be read from."""

import argparse
import asyncio
import shutil
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from tqdm import tqdm

from showattend.archives import Archive
from showattend.download import DownloadError, Remote, ask, checksum, client, come, download
from showattend.unzip import UnzipError, unpack

T = TypeVar("T")


def obtain(
    archives: Sequence[Archive],
    folder: Path,
    *,
    source: str | None = None,
    keep_zips: bool = False,
) -> None:
    """Download, check and unpack what ``folder`` has not yet; ask nothing if it has all.

    Before anything is downloaded, all sizes are asked for and held against the free space. Then all
    zips come at once, and are unpacked one after the other. A zip that lies in the folder already
    is checked and used.

    Args:
        source: address of a mirror in place of the publishers; the zips lie under it by their
            ``path``.
        keep_zips: do not remove a zip when it is unpacked.

    Raises:
        DownloadError, UnzipError: one line; another call goes on from there.
        OSError: the folder cannot be made or read.
    """
    wanted = [archive for archive in archives if not archive.is_unpacked(folder)]
    if not wanted:
        print(f"{folder}: all is there already")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder):
        asyncio.run(_fetch(wanted, folder, source))
        for archive in wanted:
            path = folder / archive.name
            unpack(path, folder, archive.makes, archive.most(path.stat().st_size))
            print(f"{folder}: {', '.join(archive.makes)}")
            if not keep_zips:
                path.unlink()


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every script that obtains a data set has."""
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--source", metavar="URL", help="a mirror (docs/data.md)")
    parser.add_argument("--keep-zips", action="store_true", help="do not remove them at the end")


def run(program: Callable[[], None]) -> int:
    """Carry out a script; its exit code. What goes wrong is said in one line on stderr."""
    name = Path(sys.argv[0]).stem
    try:
        program()
    except KeyboardInterrupt:
        print(f"{name}: interrupted; run again, it goes on from there", file=sys.stderr)
        return 130
    except (DownloadError, UnzipError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{name}: error: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    return 0


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Two downloads into one folder would mix; a killed one's lock ends with it."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise DownloadError(f"{folder}: another download is using it; wait for its end") from None


async def _fetch(archives: Iterable[Archive], folder: Path, source: str | None) -> None:
    """All zips, whole and checked."""
    paths = {archive: folder / archive.name for archive in archives}
    here = [archive for archive, path in paths.items() if path.exists()]
    away = [archive for archive in paths if archive not in here]
    async with client() as web:
        await _together(_check(paths[archive], archive.digest) for archive in here)
        remotes = await _together(ask(web, archive.url(source)) for archive in away)
        sizes = {archive: paths[archive].stat().st_size for archive in here}
        sizes |= {a: _expected(a, remote) for a, remote in zip(away, remotes, strict=True)}
        total, have = sum(sizes[a] for a in away), sum(come(paths[a]) for a in away)
        _check_room(folder, total - have, sum(a.most(size) for a, size in sizes.items()))
        with tqdm(
            total=total, initial=have, unit="B", unit_scale=True, desc="zips", disable=None
        ) as bar:
            await _together(
                download(web, archive.url(source), paths[archive], archive.digest, bar)
                for archive in away
            )


def _expected(archive: Archive, remote: Remote) -> int:
    if archive.size not in (None, remote.size):
        raise DownloadError(
            f"{remote.url}: has {remote.size:,} bytes, the published file {archive.size:,}; choose "
            "another --source"
        )
    return remote.size


async def _check(path: Path, digest: str) -> None:
    found = await checksum(path, digest)
    if found != digest:
        raise DownloadError(
            f"{path}: is not the published file ({found}, not {digest}); remove it and run again"
        )


def _check_room(folder: Path, zips: int, unpacked: int) -> None:
    free = shutil.disk_usage(folder).free
    if zips + unpacked > free:
        raise DownloadError(
            f"{folder}: {zips + unpacked:,} bytes are needed ({zips:,} to download, {unpacked:,} "
            f"at most unpacked), {free:,} are free; free some, or choose another folder by --to"
        )


async def _together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them give; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
