"""Learning curves: what is read, and that the picture holds its own bytes."""

import base64
import re
from pathlib import Path

from showattend.curves import draw_curves, read_curve


def test_the_epochs_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1, "loss": 5.5}\n{"epoch": 2, "loss": 4}\n')
    assert [epoch["loss"] for epoch in read_curve(tmp_path)] == [5.5, 4]


def test_a_folder_without_any_has_none(tmp_path: Path) -> None:
    assert read_curve(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text("somebody's own\n")
    assert read_curve(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text('[1]\n{"epoch": "x"}\n{"epoch": 1, "loss": "abc"}\n')
    assert read_curve(tmp_path) == [{"epoch": 1}]


def test_every_side_is_in_the_picture_once() -> None:
    epochs = [{"epoch": n, "loss": 5.0 - n, "CIDEr-D": 10.0 * n} for n in (1, 2, 3)]
    drawn = draw_curves({"a<b": {"a1": epochs, "a2": epochs[:2]}, "other": {"o": [{"epoch": 1}]}})
    found = re.fullmatch(r'<img alt="[a-z ]+" src="data:image/svg\+xml;base64,([^"]+)">', drawn)
    assert found is not None
    svg = base64.b64decode(found[1]).decode()
    assert svg.count("a&lt;b") == 1  # as a comment beside the letters' outlines
    assert svg.count("<!-- other -->") == 1
