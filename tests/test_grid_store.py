"""The store of grids: what is read is what was written, or is said to be damaged."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend import grid_store
from showattend.grid_store import LINE_BYTES, GridStore, make_line, parse

CELLS = (3, 5)
ROW_BYTES = 30


def key(number: int) -> str:
    return f"{number:032x}"


def grids(*numbers: int) -> np.ndarray:
    """A grid of its own for every number."""
    return np.stack([np.random.default_rng(n).standard_normal(CELLS) for n in numbers]).astype(
        np.float16
    )


def filled(folder: Path, count: int = 7) -> GridStore:
    store = GridStore(folder, CELLS)
    with store.writer() as writer:
        writer.append([key(n) for n in range(count)], grids(*range(count)))
    return store


def assert_holds(store: GridStore, numbers: list[int]) -> None:
    """Every one of these, whole, and no other key."""
    assert store.rows.keys() == {key(n) for n in numbers}
    if numbers:
        found, damaged = store.read(np.array([store.rows[key(n)] for n in numbers]))
        assert damaged == []
        assert np.array_equal(found, grids(*numbers))


def flip(path: Path, offset: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1 << bit
    path.write_bytes(content)


@pytest.fixture
def three_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_store, "SHARD_BYTES", 3 * ROW_BYTES + 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


# Written and read


def test_a_line_by_hand() -> None:
    """CRC-32 of "123456789" is cbf43926, the check value of its definition."""
    line = make_line("k" * 32, b"123456789")
    assert line.startswith(b"k" * 32 + b" cbf43926 ")
    assert len(line) == LINE_BYTES
    assert parse(line) == ("k" * 32, 0xCBF43926)


@given(st.lists(st.integers(1, 5), max_size=6), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_what_is_appended_is_found_in_shards_of_bounded_size(counts: list[int], rows: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(grid_store, "SHARD_BYTES", rows * ROW_BYTES)
        start = 0
        for count in counts:  # each time by another program
            store = GridStore(Path(name), CELLS)
            numbers = range(start, start + count)
            with store.writer() as writer:
                writer.append([key(n) for n in numbers], grids(*numbers))
            assert_holds(store, list(range(start + count)))
            start += count
        assert_holds(GridStore(Path(name), CELLS), list(range(start)))
        sizes = [path.stat().st_size for path in Path(name).glob("*.f16")]
        assert sum(sizes) == start * ROW_BYTES
        assert all(size <= rows * ROW_BYTES for size in sizes)
        assert len(sizes) == -(-start // rows)


def test_a_grid_larger_than_a_shard_has_one_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid_store, "SHARD_BYTES", ROW_BYTES - 1)
    filled(folder, 2)
    assert [path.stat().st_size for path in folder.glob("*.f16")] == [ROW_BYTES] * 2


def test_rows_are_asked_for_in_any_order_and_more_than_once(
    folder: Path, three_a_shard: None
) -> None:
    store = filled(folder)
    numbers = [6, 0, 3, 3, 1, 6]
    found, damaged = store.read(np.array([store.rows[key(n)] for n in numbers]))
    assert np.array_equal(found, grids(*numbers))
    assert damaged == []


def test_the_disk_is_read_in_its_own_order(
    folder: Path, three_a_shard: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(folder)
    asked = []
    read_row = grid_store._read_row

    def watched(shard: grid_store._Shard, *place: object) -> bool:
        asked.append((shard.grids.name, place[1]))
        return read_row(shard, *place)  # type: ignore[arg-type]

    monkeypatch.setattr(grid_store, "_read_row", watched)
    store.read(np.array([store.rows[key(n)] for n in (6, 0, 4, 3, 1, 5)]))
    assert asked == sorted(asked)
    assert len(asked) == 6


# Damage


@given(st.integers(0, 7 * ROW_BYTES - 1), st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_one_bit_of_a_grid_is_one_damaged_grid(offset: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        filled(Path(name))
        flip(Path(name) / "grids-0000.f16", offset, bit)
        store = GridStore(Path(name), CELLS)
        found, damaged = store.read(np.array([store.rows[key(n)] for n in range(7)]))
        assert damaged == [offset // ROW_BYTES]
        others = [n for n in range(7) if n not in damaged]
        assert np.array_equal(found[others], grids(*others))


@given(st.integers(0, 7 * LINE_BYTES - 1), st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_one_bit_of_the_keys_is_one_lost_grid(offset: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        filled(Path(name))
        flip(Path(name) / "grids-0000.keys", offset, bit)
        others = [n for n in range(7) if n != offset // LINE_BYTES]
        assert_holds(GridStore(Path(name), CELLS), others)


@given(st.integers(0, 7 * ROW_BYTES), st.integers(0, 7 * LINE_BYTES))
@settings(max_examples=40, deadline=None)
def test_files_cut_anywhere_keep_what_is_whole(grid_bytes: int, key_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        filled(Path(name))
        for path, size in (("grids-0000.f16", grid_bytes), ("grids-0000.keys", key_bytes)):
            with (Path(name) / path).open("r+b") as file:
                file.truncate(size)
        store = GridStore(Path(name), CELLS)
        whole = min(grid_bytes // ROW_BYTES, key_bytes // LINE_BYTES)
        assert_holds(store, list(range(whole)))
        with store.writer() as writer:  # and it goes on behind them
            writer.append([key(9)], grids(9))
        assert_holds(GridStore(Path(name), CELLS), [*range(whole), 9])


def test_damage_is_named_in_one_line_and_once(
    folder: Path, three_a_shard: None, capsys: pytest.CaptureFixture[str]
) -> None:
    filled(folder)
    assert capsys.readouterr().out == ""
    with (folder / "grids-0001.f16").open("r+b") as file:
        file.truncate(ROW_BYTES + 3)
    flip(folder / "grids-0000.keys", LINE_BYTES + 2)
    assert_holds(GridStore(folder, CELLS), [0, 2, 3, 6])
    first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{folder / 'grids-0000.keys'}: damaged lines: 1;")
    assert second.startswith(f"{folder / 'grids-0001.f16'}: grids that are not whole: 2 ")
    assert rest == []
    assert_holds(GridStore(folder, CELLS), [0, 2, 3, 6])
    assert capsys.readouterr().out == ""


def test_a_shard_that_goes_or_is_cut_while_it_is_read(folder: Path, three_a_shard: None) -> None:
    """A memory map would end the program here."""
    store = filled(folder)
    rows = np.array([store.rows[key(n)] for n in range(7)])
    with (folder / "grids-0000.f16").open("r+b") as file:
        file.truncate(2 * ROW_BYTES + 1)
    (folder / "grids-0001.f16").unlink()
    found, damaged = store.read(rows)
    assert damaged == [2, 3, 4, 5]
    assert np.array_equal(found[[0, 1, 6]], grids(0, 1, 6))
    for n in damaged:
        store.mend(int(rows[n]), grids(n)[0])
    assert store.read(rows)[1] == [3, 4, 5]  # there is no file to mend


def test_a_mended_grid_is_right_for_all_readers(folder: Path) -> None:
    filled(folder)
    flip(folder / "grids-0000.f16", 3 * ROW_BYTES)
    ours, theirs = GridStore(folder, CELLS), GridStore(folder, CELLS)
    rows = np.array([ours.rows[key(n)] for n in range(7)])
    assert ours.read(rows)[1] == [3]
    anew = grids(33)[0]  # another device rounds otherwise
    ours.mend(int(rows[3]), anew)
    for store in (ours, theirs, GridStore(folder, CELLS)):
        found, damaged = store.read(rows)
        assert damaged == []
        assert np.array_equal(found[3], anew)
        assert np.array_equal(found[[2, 4]], grids(2, 4))


def test_nothing_is_mended_where_another_grid_has_come_to_stand(folder: Path) -> None:
    """A file was cut while it was read, and another run went on writing there."""
    ours = filled(folder, 3)
    row = ours.rows[key(2)]
    with (folder / "grids-0000.f16").open("r+b") as file:
        file.truncate(2 * ROW_BYTES)
    theirs = GridStore(folder, CELLS)
    with theirs.writer() as writer:
        writer.append([key(8)], grids(8))
    assert theirs.rows[key(8)] == row
    assert ours.read(np.array([row]))[1] == [0]  # whole, but not what was asked for
    ours.mend(row, grids(2)[0])
    assert_holds(GridStore(folder, CELLS), [0, 1, 8])


def test_other_files_in_the_folder_are_left_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "grids.f16").write_bytes(b"of the layout before")
    (folder / "keys.txt").write_bytes(b"0" * 66)
    assert_holds(filled(folder), list(range(7)))
    assert (folder / "grids.f16").read_bytes() == b"of the layout before"


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is read-only: no lock's file can be made."""

    def refuse(path: Path, *_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(grid_store, "FileLock", refuse)


def test_what_is_whole_is_read_without_a_lock(
    folder: Path, three_a_shard: None, no_locks: None
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grid_store, "FileLock", FileLock)
        filled(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert_holds(GridStore(folder, CELLS), list(range(7)))
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_damage_that_cannot_be_cut_away_is_missing(
    folder: Path, three_a_shard: None, no_locks: None
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(grid_store, "FileLock", FileLock)
        filled(folder)
    (folder / "grids-0000.keys").unlink()
    with (folder / "grids-0001.f16").open("r+b") as file:
        file.truncate(ROW_BYTES + 3)
    flip(folder / "grids-0002.keys", 2)
    assert_holds(GridStore(folder, CELLS), [3])


@pytest.mark.parametrize(
    "name", ["grids-0000.keys.bak", "grids-0000.f16.gz", "grids-0001.keys~", "grids-0002.lock"]
)
def test_backups_beside_a_shard_are_no_shards(folder: Path, name: str) -> None:
    filled(folder)
    (folder / name).write_bytes(b"somebody's own")
    assert_holds(GridStore(folder, CELLS), list(range(7)))
    assert (folder / name).read_bytes() == b"somebody's own"
    assert [path.name for path in folder.glob("*.f16")] == ["grids-0000.f16"]


# Several writers, and killed ones


def test_writers_at_once_have_shards_of_their_own(folder: Path) -> None:
    stores = [GridStore(folder, CELLS) for _ in range(3)]
    with stores[0].writer() as one, stores[1].writer() as two:
        for n in range(0, 6, 2):
            one.append([key(n)], grids(n))
            two.append([key(n + 1)], grids(n + 1))
        stores[2].refresh()  # a reader meanwhile
        assert_holds(stores[2], list(range(6)))
    with stores[2].writer() as three:  # those are free by now
        three.append([key(6)], grids(6))
    assert len(list(folder.glob("*.f16"))) == 2
    assert_holds(GridStore(folder, CELLS), list(range(7)))


_WRITER = """
import sys
from pathlib import Path
import numpy as np
from showattend import grid_store
grid_store.SHARD_BYTES = 40 * {row_bytes}
store = grid_store.GridStore(Path({folder!r}), {cells})
with store.writer() as writer:
    n = {start}
    while True:
        numbers = range(n, n + 7)
        grids = [np.random.default_rng(i).standard_normal({cells}).astype("f2") for i in numbers]
        writer.append([format(i, "032x") for i in numbers], np.stack(grids))
        n += 7
        print(n, flush=True)
"""


@pytest.fixture
def writers(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Two programs that write for as long as they live."""
    options = {"folder": str(folder), "cells": CELLS, "row_bytes": ROW_BYTES}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER.format(start=start, **options)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for start in (0, 10**6)
    ]
    yield started
    for process in started:
        with process:
            process.kill()


@pytest.mark.parametrize("milliseconds", [0, 13, 50])
def test_killed_writers_lose_nothing_that_they_told_of(
    folder: Path, writers: list[subprocess.Popen[str]], milliseconds: int
) -> None:
    for process in writers:
        assert process.stdout is not None
        process.stdout.readline()  # it has begun
    time.sleep(milliseconds / 1000)
    told = []
    for process in writers:
        process.send_signal(signal.SIGKILL)
        told.append(int((process.communicate()[0].split() or ["7"])[-1]))
    store = GridStore(folder, CELLS)
    numbers = sorted(int(name, 16) for name in store.rows)
    for start, end in zip((0, 10**6), told, strict=True):
        assert set(range(start, max(end, start + 7))) <= set(numbers)
    assert_holds(store, numbers)
    with store.writer() as writer:
        writer.append([key(5 * 10**6)], grids(5 * 10**6))
    assert_holds(GridStore(folder, CELLS), [*numbers, 5 * 10**6])
