"""Records' files: the same records in either form, whole or not at all."""

import json
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

import showattend.records
from showattend.images import ImageError
from showattend.records import Record, RecordForm, record_of, written_whole
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
