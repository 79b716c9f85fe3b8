"""Alt texts for many photographs."""

import base64
import csv
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from showattend.app.batch_tab import MOST, alt_text, as_csv, describe_all
from showattend.app.reading import Reading
from showattend.app.shared import Shared

Draw = Callable[[Path], Path]


def content(handed: Any) -> list[list[str]]:
    kind, _, data = handed["url"].partition(",")
    assert kind == "data:text/csv;base64"
    return list(csv.reader(io.StringIO(base64.b64decode(data).decode())))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("a", "dog", "runs"), "A dog runs."),
        (("a", "dog", "'s", "ball", "!"), "A dog's ball !"),
        (("<b>",), "<b>."),
    ],
)
def test_an_alt_text_is_a_sentence(reading: Reading, words: tuple[str, ...], text: str) -> None:
    assert alt_text(replace(reading.captions[0], words=words)) == text


def test_every_photograph_gets_a_row_in_order(shared: Shared, draw: Draw, cache: Path) -> None:
    paths = [draw(cache / "1" / f"{number}, <i>.png") for number in range(9)]
    paths[3].write_bytes(b"no photograph")
    records = [{"path": str(path)} for path in paths]
    name = shared.models.names[0]
    first, *_, (listed, rows, files) = describe_all(shared, records, name)
    assert "4 of 9 photographs" in first[0]
    assert first[1] == [] and not first[2].visible
    assert "9 of 9 photographs" in listed
    assert files.visible
    assert listed.count("<img") == 8
    assert "3, &lt;i&gt;.png: is no image that can be read" in listed
    assert "<i>" not in listed and str(cache) not in listed
    expected = shared.models.get(name).caption(str(paths[0]))
    head, *told = content(as_csv(rows))
    assert head == ["image", "alt_text"]
    assert told[0] == ["0, <i>.png", alt_text(expected)]
    assert told[3] == ["3, <i>.png", ""]
    assert [name for name, _ in told] == [path.name for path in paths]


def test_no_rows_are_no_file() -> None:
    assert as_csv([]) is None


@pytest.mark.parametrize("count", [0, MOST + 1])
def test_too_few_or_too_many_give_one_line(
    shared: Shared, photo: dict[str, Any], warned: list[str], count: int
) -> None:
    records = [photo | {"size": number} for number in range(count)]
    assert list(describe_all(shared, records, shared.models.names[0])) == []
    assert warned == [f"photographs: choose 1 to {MOST}"]


def test_a_photograph_is_called_as_the_visitor_calls_it(
    shared: Shared, photo: dict[str, Any]
) -> None:
    for name, expected in (
        ("wow!, $1.jpg", "wow!, $1.jpg"),
        ("a\nb", "beach.png"),
        (5, "beach.png"),
    ):
        records = [photo | {"orig_name": name}]
        *_, (_, rows, _) = describe_all(shared, records, shared.models.names[0])
        assert rows[0][0] == expected


def test_other_files_are_left_out(
    shared: Shared, photo: dict[str, Any], draw: Draw, tmp_path: Path
) -> None:
    private = {"path": str(draw(tmp_path / "private.png"))}
    *_, (listed, rows, _) = describe_all(shared, [photo, private], shared.models.names[0])
    assert [name for name, _ in rows] == ["beach.png"]
    assert "private" not in listed
