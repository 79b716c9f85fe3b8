"""Records' files: the same records in either form, whole or not at all."""

import errno
import json
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

import showattend.records
from showattend.images import ImageError
from showattend.records import (
    Record,
    RecordForm,
    RecordsError,
    check_whole,
    record_of,
    written_whole,
)
from showattend.search import Caption, Regions

FORMS: list[RecordForm] = ["jsonl", "parquet"]


def caption_of(*words: str) -> Caption:
    weights_TP = np.full((len(words), 4), 0.25, np.float32)
    return Caption(words, -1.23456, weights_TP, weights_TP, None, Regions(2, 2))


def read_records(path: Path) -> list[Record]:
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def test_records() -> None:
    assert record_of("a.jpg", None, caption_of("a", "dog")) == {
        "image": "a.jpg",
        "tar": None,
        "caption": "a dog",
        "words": ["a", "dog"],
        "log_prob": -1.2346,
        "error": None,
    }
    error = ImageError("<bytes>: is no image that can be read; save it as JPEG or PNG")
    assert record_of("x/b\udcff.jpg", "s.tar", error) == {
        "image": "x/b\\udcff.jpg",
        "tar": "s.tar",
        "caption": None,
        "words": None,
        "log_prob": None,
        "error": "x/b\\udcff.jpg: is no image that can be read; save it as JPEG or PNG",
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_what_is_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: RecordForm, count: int
) -> None:
    monkeypatch.setattr(showattend.records, "_ROWS", 3)
    good, bad = caption_of("ein", "Löwe", "🐶"), ImageError("<bytes>: bad")
    records = [record_of(f"{n}", "ü.tar", good if n % 2 else bad) for n in range(count)]
    path = tmp_path / f"a.{form}"
    with written_whole(path, form) as writer:
        for record in records:
            writer.add(record)
        assert not path.exists()
    assert read_records(path) == records
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("form", FORMS)
def test_a_failure_leaves_nothing(tmp_path: Path, form: RecordForm) -> None:
    with pytest.raises(KeyboardInterrupt), written_whole(tmp_path / "a", form) as writer:
        writer.add(record_of("a", None, caption_of("a")))
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    for name in (".a.jsonl.12ab.part", ".b.jsonl.12ab.part"):
        (tmp_path / name).touch()
    with written_whole(tmp_path / "a.jsonl", "jsonl"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.jsonl.12ab.part", "a.jsonl"]


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond: writing fails, and so does closing what could not be written."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [1, 3000])
def test_what_cannot_be_written_is_named(tmp_path: Path, form: RecordForm, count: int) -> None:
    path = tmp_path / f"a.{form}"
    with pytest.raises(RecordsError) as caught, room_for(16), written_whole(path, form) as writer:
        for n in range(count):
            writer.add(record_of(f"{n}.jpg", None, caption_of("a", "dog")))
    cure = "check the folder and its disk and run the same command again"
    assert str(caught.value) == f"{path}: File too large; {cure}"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "a.jsonl"
    with pytest.raises(RecordsError) as caught, written_whole(path, "jsonl"):
        pass
    cure = "make room and run the same command again"
    assert str(caught.value) == f"{path}: No space left on device; {cure}"


def test_another_file_keeps_its_name(tmp_path: Path) -> None:
    gone = tmp_path / "elsewhere" / "gone"
    with pytest.raises(FileNotFoundError, match="gone"), written_whole(tmp_path / "a", "jsonl"):
        gone.read_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_files_cut_short_are_told(tmp_path: Path, form: RecordForm) -> None:
    path = tmp_path / f"a.{form}"
    with written_whole(path, form) as writer:
        writer.add(record_of("a.jpg", None, caption_of("a", "dog")))
    check_whole(path, form, empty=False)
    os.truncate(path, 5)
    cure = "remove it and run the same command again, which makes it anew"
    with pytest.raises(RecordsError) as caught:
        check_whole(path, form, empty=True)
    assert str(caught.value) == f"{path}: is cut short; {cure}"
    os.truncate(path, 0)
    with pytest.raises(RecordsError, match="is cut short"):
        check_whole(path, form, empty=False)
    path.unlink()
    path.mkdir()
    with pytest.raises(RecordsError) as caught:
        check_whole(path, form, empty=True)
    assert str(caught.value) == f"{path}: is no file, but has the name of a file of records; {cure}"


@pytest.mark.parametrize("form", FORMS)
def test_a_file_without_records_may_be_whole(tmp_path: Path, form: RecordForm) -> None:
    with written_whole(tmp_path / "a", form):
        pass
    check_whole(tmp_path / "a", form, empty=True)
