"""Grids on disk, in shards: rows of fp16 numbers, each with a key and a checksum.

A shard is two files: ``grids-0007.f16``, one grid after the other, and ``grids-0007.keys``, a line
of 51 bytes a grid: its key, the CRC-32 of the grid's bytes, and that of the line so far. A line is
written after its grid, so a killed writer leaves at most some bytes without a key, which the next
opening cuts off.

Writers share a folder without waiting for each other: each holds the lock of the one shard that it
appends to. Readers need no lock, and no disk that can be written; only who finds a shard that is
not whole takes its lock, to cut and void what is damaged.

A grid's checksum is compared whenever the grid is read: that finds what goes bad on the disk during
a training of days as well, while a check of everything at the start would read a large cache twice.
It costs less than reading does (docs/grids.md). So nothing is fsynced grid by grid: what a power
failure tears is found like any other damage.

Grids are read by plain reads, not by a memory map: a shard that somebody cuts short gives an error
to handle and not a signal that ends the program, and a grid comes from the disk in one request.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from itertools import count, groupby
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from tqdm import tqdm

SHARD_BYTES = 2**30  # small enough to copy or to lose, few enough files for a terabyte
KEY_BYTES = 32
LINE_BYTES = KEY_BYTES + 19
_LINE = re.compile(rb"([!-~]{32}) ([0-9a-f]{8}) ([0-9a-f]{8})\n")
_SHARD = re.compile(r"grids-([0-9]{4})\.(?:f16|keys)")
_VOID = b" " * (LINE_BYTES - 1) + b"\n"  # stands where a line was damaged
_ROWS = 2**32  # a row's number is that of its shard times this, and its place there


@dataclass
class _Shard:
    """One shard's files, and its whole lines when they were last read."""

    grids: Path
    row_bytes: int
    lines: bytearray = field(default_factory=bytearray)

    @property
    def keys(self) -> Path:
        return self.grids.with_suffix(".keys")

    @property
    def lock(self) -> FileLock:
        return FileLock(self.grids.with_suffix(".lock"), timeout=0)

    @property
    def capacity(self) -> int:
        return max(1, SHARD_BYTES // self.row_bytes)

    def sizes(self) -> tuple[int, int]:
        """Bytes of grids and of keys."""
        return _size(self.grids), _size(self.keys)

    def whole(self) -> int:
        """How many rows have all of their grid and of their line."""
        grids, keys = self.sizes()
        return min(grids // self.row_bytes, keys // LINE_BYTES)

    def line(self, row: int) -> bytes:
        return bytes(self.lines[row * LINE_BYTES : (row + 1) * LINE_BYTES])

    def load(self) -> None:
        whole = self.whole()
        self.lines = bytearray()
        with suppress(FileNotFoundError):
            self.lines = bytearray(self.keys.read_bytes()[: whole * LINE_BYTES])

    def torn(self) -> int:
        """How many rows lack a part of their grid or of their line."""
        grids, keys = self.sizes()
        return max(-(-grids // self.row_bytes), -(-keys // LINE_BYTES)) - self.whole()

    def damaged(self) -> list[int]:
        """The rows, of those last read, whose line is not what was written."""
        lines = (self.line(row) for row in range(len(self.lines) // LINE_BYTES))
        return [row for row, line in enumerate(lines) if line != _VOID and parse(line) is None]

    def settle(self) -> None:
        """Cut off what is not whole and void damaged lines, with a word on each; needs the lock."""
        whole, torn = self.whole(), self.torn()
        if torn:
            tqdm.write(
                f"{self.grids}: grids that are not whole: {torn} (a killed run, or a file cut "
                "short); those that are needed are computed anew"
            )
        for path, size in ((self.grids, whole * self.row_bytes), (self.keys, whole * LINE_BYTES)):
            path.touch()
            with path.open("r+b") as file:
                file.truncate(size)
        self.load()
        damaged = self.damaged()
        if damaged:
            tqdm.write(
                f"{self.keys}: damaged lines: {len(damaged)}; those of their grids that are needed "
                "are computed anew"
            )
        for row in damaged:
            overwrite(self.keys, row * LINE_BYTES, _VOID)


class GridStore:
    """Rows of one folder.

    Args:
        folder: is made if need be; all grids in it have one shape.
        cells: rows and columns of a grid, such as P and C.

    Raises:
        OSError: the folder cannot be made or read.
    """

    def __init__(self, folder: Path, cells: tuple[int, int]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._cells = cells
        self.row_bytes = cells[0] * cells[1] * 2
        self._shards: dict[int, _Shard] = {}
        #: The row of each key.
        self.rows: dict[str, int] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take in what others have written; damage to keys and lengths is named and cut away.

        Nothing is written where nothing is damaged. Damage that cannot be cut away, as on a disk
        that is read-only, stays, and its grids count as missing.

        Raises:
            OSError: the folder or the keys cannot be read.
        """
        self.rows.clear()
        for number in self._numbers():
            shard = self._shard(number)
            shard.load()
            if shard.torn() or shard.damaged():
                # A Timeout, an OSError too: it is being written, and grows as it should.
                with suppress(OSError), shard.lock:
                    shard.settle()
                shard.load()
            for row, (key, _) in _parsed(shard.lines):
                self.rows[key] = number * _ROWS + row

    def read(self, rows: np.ndarray) -> tuple[np.ndarray, list[int]]:
        """Grids (N, P, C) of some rows, and the positions (of N) of those that are damaged.

        The disk is read in its own order. A damaged grid's numbers are of no use.
        """
        grids_NPC = np.zeros((len(rows), *self._cells), np.float16)
        in_order = np.argsort(rows, kind="stable").tolist()
        damaged = []
        for number, group in groupby(in_order, key=lambda i: int(rows[i]) // _ROWS):
            shard = self._shard(number)
            with _opened(shard.grids) as file:
                for i in group:
                    if not _read_row(shard, file, int(rows[i]) % _ROWS, grids_NPC[i]):
                        damaged.append(i)
        return grids_NPC, damaged

    def key(self, row: int) -> str:
        """The key of a row."""
        number, place = divmod(row, _ROWS)
        return self._shard(number).line(place)[:KEY_BYTES].decode()

    def file(self, row: int) -> Path:
        """The file that holds a row."""
        return self._shard(row // _ROWS).grids

    def mend(self, row: int, grid_PC: np.ndarray) -> None:
        """Write a damaged grid anew, in its place; where the disk refuses, it stays damaged."""
        number, place = divmod(row, _ROWS)
        shard, offset = self._shard(number), place * LINE_BYTES
        if _line_on_disk(shard, place)[:KEY_BYTES] != shard.line(place)[:KEY_BYTES]:
            return  # the file was cut, and another run has put another grid there
        line = make_line(self.key(row), _bytes(grid_PC))
        with suppress(OSError):
            overwrite(shard.grids, place * self.row_bytes, _bytes(grid_PC))
            overwrite(shard.keys, offset, line)
            shard.lines[offset : offset + LINE_BYTES] = line

    @contextmanager
    def writer(self) -> Iterator["GridWriter"]:
        """Append grids, to shards that nobody else writes to meanwhile."""
        writer = GridWriter(self)
        try:
            yield writer
        finally:
            writer.release()

    def claim(self) -> tuple[int, FileLock]:
        """The number and the lock, held, of the first shard that is free and has room."""
        for number in count():
            shard, lock = self._shard(number), self._shard(number).lock
            with suppress(Timeout):
                if shard.whole() < shard.capacity:
                    lock.acquire()
                    shard.settle()
                    return number, lock
        raise AssertionError("there are numbers enough")

    def _numbers(self) -> list[int]:
        """Of the shards that are there; somebody's backups beside them are none of ours."""
        matches = (_SHARD.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted({int(match[1]) for match in matches if match})

    def _shard(self, number: int) -> _Shard:
        if number not in self._shards:
            path = self._folder / f"grids-{number:04d}.f16"
            self._shards[number] = _Shard(path, self.row_bytes)
        return self._shards[number]


class GridWriter:
    """Appends to one shard after the other; made by :meth:`GridStore.writer`."""

    def __init__(self, store: GridStore) -> None:
        self._store = store
        self._held: tuple[int, FileLock] | None = None

    def append(self, keys: Sequence[str], grids_NPC: np.ndarray) -> None:
        """Store grids under their keys.

        Raises:
            OSError: the disk takes no more.
        """
        start = 0
        while start < len(keys):
            number, room = self._claimed()
            part = slice(start, start + room)
            self._append(number, keys[part], grids_NPC[part])
            start += room

    def release(self) -> None:
        """Leave the shard to others."""
        if self._held is not None:
            self._held[1].release()
            self._held = None

    def _claimed(self) -> tuple[int, int]:
        """A shard that is held, and how many rows it still takes."""
        while True:
            if self._held is None:
                self._held = self._store.claim()
            shard = self._store._shard(self._held[0])
            room = shard.capacity - shard.whole()
            if room > 0:
                return self._held[0], room
            self.release()

    def _append(self, number: int, keys: Sequence[str], grids_NPC: np.ndarray) -> None:
        shard = self._store._shard(number)
        first = shard.whole()
        contents = [_bytes(grid_PC) for grid_PC in grids_NPC]
        lines = b"".join(map(make_line, keys, contents))
        overwrite(shard.grids, first * shard.row_bytes, b"".join(contents))
        overwrite(shard.keys, first * LINE_BYTES, lines)
        shard.lines += lines
        self._store.rows.update(
            {key: number * _ROWS + row for row, key in enumerate(keys, start=first)}
        )


def overwrite(path: Path, offset: int, content: bytes) -> None:
    """Write into a file, from an offset on."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def make_line(key: str, content: bytes) -> bytes:
    """The line of a grid's bytes."""
    body = f"{key} {zlib.crc32(content):08x} ".encode("ascii")
    return body + f"{zlib.crc32(body):08x}\n".encode("ascii")


def parse(line: bytes) -> tuple[str, int] | None:
    """A line's key and its grid's checksum; None where it is not what was written."""
    match = _LINE.fullmatch(line)
    if match is None or int(match[3], 16) != zlib.crc32(line[: KEY_BYTES + 10]):
        return None
    return match[1].decode("ascii"), int(match[2], 16)


def _parsed(lines: bytes | bytearray) -> Iterator[tuple[int, tuple[str, int]]]:
    """The rows whose line is sound."""
    for row in range(len(lines) // LINE_BYTES):
        parsed = parse(bytes(lines[row * LINE_BYTES : (row + 1) * LINE_BYTES]))
        if parsed is not None:
            yield row, parsed


@contextmanager
def _opened(path: Path) -> Iterator[FileIO | None]:
    """The file, unbuffered; None where it cannot be opened."""
    try:
        file = FileIO(path)
    except OSError:
        yield None
        return
    with file:
        yield file


def _read_row(shard: _Shard, file: FileIO | None, row: int, grid_PC: np.ndarray) -> bool:
    """Fill in one grid; False where it is not what was written."""
    try:
        if file is None:
            return False
        file.seek(row * shard.row_bytes)
        if file.readinto(grid_PC.data.cast("B")) != shard.row_bytes:
            return False
    except OSError:  # a bad sector
        return False
    known = parse(shard.line(row))
    if known is None:
        return False
    found = zlib.crc32(grid_PC.data.cast("B"))
    if found == known[1]:
        return True
    now = _line_on_disk(shard, row)  # another run may have mended it
    if parse(now) != (known[0], found):
        return False
    shard.lines[row * LINE_BYTES : (row + 1) * LINE_BYTES] = now
    return True


def _line_on_disk(shard: _Shard, row: int) -> bytes:
    try:
        with shard.keys.open("rb") as file:
            file.seek(row * LINE_BYTES)
            return file.read(LINE_BYTES)
    except OSError:
        return b""


def _bytes(grid_PC: np.ndarray) -> bytes:
    return np.ascontiguousarray(grid_PC, np.float16).tobytes()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
