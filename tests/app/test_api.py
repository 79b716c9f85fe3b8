"""The page's door for programs."""

import json
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from showattend.app.api import caption
from showattend.app.reading import as_json, read_photograph
from showattend.app.shared import Shared


def test_it_tells_what_was_read(shared: Shared, photo: dict[str, Any]) -> None:
    name = shared.models.names[1]
    told = caption(shared, photo, name, 2)
    assert told == as_json(read_photograph(shared.models.get(name), photo["path"], 2))
    assert len(json.loads(json.dumps(told))["captions"]) == 2


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"photo": {"path": __file__}}, "is not, or no longer, among the uploads"),
        ({"photo": None}, "is not, or no longer, among the uploads"),
        ({"model": "/etc"}, "^'/etc: not among the models of this page'$"),
        ({"beam_size": 11}, "beam size: expected a whole number from 1 to 10"),
        ({"beam_size": 2.5}, "beam size: expected a whole number from 1 to 10"),
        ({"beam_size": "x"}, "beam size: expected a whole number from 1 to 10"),
        ({"beam_size": None}, "beam size: expected a whole number from 1 to 10"),
    ],
)
def test_it_refuses_in_one_line(
    shared: Shared, photo: dict[str, Any], change: dict[str, Any], line: str
) -> None:
    asked = {"photo": photo, "model": shared.models.names[0], "beam_size": 2} | change
    with pytest.raises(gr.Error, match=line):
        caption(shared, **asked)


def test_a_damaged_upload_is_refused_without_its_folder(shared: Shared, cache: Path) -> None:
    (cache / "bad.png").write_bytes(b"no photograph")
    with pytest.raises(gr.Error, match=r"^'bad\.png: is no image that can be read"):
        caption(shared, {"path": str(cache / "bad.png")}, shared.models.names[0], 2)
