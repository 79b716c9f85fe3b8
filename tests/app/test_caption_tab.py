"""What the first tab's handler shows and refuses."""

from pathlib import Path
from typing import Any

import pytest

from showattend.app.caption_tab import caption
from showattend.app.shared import Shared
from showattend.app.steer_tab import pickable
from showattend.app.uploads import NOT_OURS
from showattend.app.viewer import told


def test_an_upload_is_read_and_shown(shared: Shared, photo: dict[str, Any]) -> None:
    reading, shown, pick, files = caption(shared, photo, shared.models.names[0], 3)
    assert reading.name == "beach"
    assert len(reading.captions) == 3
    assert shown == told([reading])
    assert pick == pickable(reading)
    assert files.visible


def test_without_a_photograph_nothing_is_shown(shared: Shared, warned: list[str]) -> None:
    reading, shown, pick, files = caption(shared, None, shared.models.names[0], 3)
    assert reading is None and shown is None and pick is None
    assert not files.visible
    assert warned == []


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("notes.jpg", b"no photograph", "notes.jpg: is no image that can be read"),
        ("empty.png", b"", "empty.png: is empty"),
        ("<i>.png", b"\x89PNG\r\n\x1a\n", "&lt;i&gt;.png: is"),
    ],
)
def test_a_bad_upload_gives_one_line_and_an_empty_page(
    shared: Shared, cache: Path, warned: list[str], name: str, content: bytes, expected: str
) -> None:
    (cache / name).write_bytes(content)
    record = {"path": str(cache / name)}
    reading, shown, pick, files = caption(shared, record, shared.models.names[0], 3)
    assert reading is None and shown is None and pick is None
    assert not files.visible
    (line,) = warned
    assert line.startswith(expected)
    assert "\n" not in line
    assert str(cache) not in line


def test_another_file_is_not_opened(shared: Shared, warned: list[str]) -> None:
    assert caption(shared, {"path": __file__}, shared.models.names[0], 3)[0] is None
    assert warned == [NOT_OURS]


def test_a_beam_out_of_range_and_another_model_give_one_line(
    shared: Shared, photo: dict[str, Any], warned: list[str]
) -> None:
    assert caption(shared, photo, shared.models.names[0], 0)[0] is None
    assert caption(shared, photo, "/etc", 3)[0] is None
    assert warned == [
        "beam size: expected a whole number from 1 to 10",
        "/etc: not among the models of this page",
    ]
