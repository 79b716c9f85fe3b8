"""Which files a visitor may name, and what is said of the others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from showattend.app.uploads import (
    EXAMPLES,
    VisitorError,
    open_upload,
    own_path,
    refusal,
    told_in_one_line,
)
from showattend.config import ConfigError
from showattend.images import ImageError


def test_only_uploads_and_examples_are_opened(
    photo: dict[str, Any], draw: Callable[[Path], Path], cache: Path, tmp_path: Path
) -> None:
    """A request may name any file; the answer does not tell whether there is one."""
    private = draw(tmp_path / "private.png")
    (cache / "link.png").symlink_to(private)
    beside = draw(tmp_path / "gradio-of-others" / "beach.png")
    paths: list[Any] = [
        private,
        tmp_path / "none.png",
        cache / "link.png",
        cache / ".." / private.name,
        cache / "swept.png",
        cache,
        beside,
        "",
        "a\0b",
        "x" * 5000,
        "https://example.org/a.jpg",
    ]
    records: list[Any] = [{"path": str(path)} for path in paths]
    for record in [*records, {"path": 5}, {"path": None}, {}, [photo["path"]], photo["path"], None]:
        assert own_path(record, cache) is None, record
    assert own_path(photo, cache) == photo["path"]
    example = str(EXAMPLES / "horses.jpg")
    assert own_path({"path": example}, cache) == example


def test_a_refusal_tells_no_folder() -> None:
    error = ImageError("/tmp/gradio/0f/beach.png: is empty")
    assert refusal(error, "/tmp/gradio/0f/beach.png") == "beach.png: is empty"
    assert refusal(ConfigError("search: no")) == "search: no"


def test_mistakes_are_said_and_bugs_are_raised(warned: list[str]) -> None:
    with told_in_one_line("/a/b.png"):
        raise ImageError("/a/b.png: <b> is empty")
    with told_in_one_line():
        raise VisitorError("4 models chosen: choose 1 to 3")
    assert warned == ["b.png: &lt;b&gt; is empty", "4 models chosen: choose 1 to 3"]
    with pytest.raises(ZeroDivisionError), told_in_one_line():
        raise ZeroDivisionError


def test_what_is_said_can_go_elsewhere() -> None:
    lines: list[str] = []
    with told_in_one_line("", lines.append):
        raise ImageError("a.png: <b>")
    assert lines == ["a.png: <b>"]


@pytest.mark.parametrize("size", [(10_000, 8), (8, 10_000), (161, 8)])
def test_a_strip_is_no_photograph(size: tuple[int, int], tmp_path: Path) -> None:
    Image.new("RGB", size).save(tmp_path / "strip.png")
    with pytest.raises(
        ImageError, match=rf"has {size[0]} x {size[1]} pixels; expected .* 20 times"
    ):
        open_upload(str(tmp_path / "strip.png"))


def test_a_panorama_is_one(tmp_path: Path) -> None:
    Image.new("RGB", (160, 8)).save(tmp_path / "wide.png")
    assert open_upload(str(tmp_path / "wide.png")).size == (160, 8)
