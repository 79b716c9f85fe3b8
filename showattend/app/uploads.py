"""Photographs that visitors hand in: which files may be opened, and what is said of the others."""

import html
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from showattend.checkpoint import CheckpointError
from showattend.config import ConfigError
from showattend.images import ImageError, open_photograph
from showattend.regions import RegionsError

EXAMPLES = Path(__file__).parents[1] / "examples"
NOT_OURS = "This photograph is not, or no longer, among the uploads: choose it again."
MOST_ASPECT = 20
_SECONDS_SHOWN = 20
_LONGEST = 300  # letters of a line: requests may name things of any length


def own_path(record: Any, cache: Path) -> str | None:
    """The path in Gradio's record of a file, where it is that of an upload or an example.

    A request may name any file of this machine, and Gradio looks only into records with a certain
    `meta`. Whoever names another file must not even learn whether there is one.

    Args:
        cache: the folder of uploads.
    """
    try:
        path = os.path.realpath(record["path"])
    except (TypeError, KeyError, ValueError):  # no record, or none of a path
        return None
    inside = any(Path(path).is_relative_to(os.path.realpath(own)) for own in (cache, EXAMPLES))
    return path if inside and os.path.isfile(path) else None  # noqa: PTH113 (is_file can raise)


def chosen_path(record: Any, cache: Path) -> str | None:
    """As `own_path`; where there is none, a line in the page's corner says why."""
    path = own_path(record, cache)
    if path is None:
        warn("Choose a photograph first." if record is None else NOT_OURS)
    return path


def open_upload(path: str) -> Image.Image:
    """The photograph at a path, upright and RGB.

    Raises:
        ImageError: it cannot be opened, or is a mere strip; one line.
    """
    photo = open_photograph(path)
    long, short = max(photo.size), min(photo.size)
    if long > MOST_ASPECT * short:
        raise ImageError(
            f"{path}: has {photo.width} x {photo.height} pixels; expected a photograph at most "
            f"{MOST_ASPECT} times as long as wide"
        )
    return photo


def refusal(error: Exception, path: str = "") -> str:
    """What a visitor is told of an error, without where on this machine the file lies."""
    line = " ".join(str(error).split())
    line = line.replace(path, Path(path).name) if path else line
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def warn(line: str) -> None:
    """One line in the page's corner."""
    gr.Warning(html.escape(line), duration=_SECONDS_SHOWN)


@contextmanager
def told_in_one_line(path: str = "", say: Callable[[str], None] = warn) -> Iterator[None]:
    """What a visitor did wrong ends the block, and is said in one line; a bug is raised."""
    try:
        yield
    except (ImageError, CheckpointError, ConfigError, RegionsError, VisitorError) as error:
        say(refusal(error, path))


class VisitorError(ValueError):
    """A visitor asks for what the page does not do: one clear line."""


# --- what a request may hold is anything: a browser's limits are not the server's ----------------


def whole(asked: Any, name: str, least: int, most: int) -> int:
    """A whole number within bounds, as JavaScript sends it: 5 or 5.0.

    Raises:
        VisitorError: it is something else; one line.
    """
    number = isinstance(asked, int | float) and not isinstance(asked, bool)
    if number and least <= asked <= most and asked == int(asked):
        return int(asked)
    raise VisitorError(f"{name}: expected a whole number from {least} to {most}")


def text(asked: Any, name: str, most: int) -> str:
    """A text of at most so many letters, without spaces around it.

    Raises:
        VisitorError: it is something else; one line.
    """
    if isinstance(asked, str) and len(asked) <= most:
        return asked.strip()
    raise VisitorError(f"{name}: expected a text of at most {most} letters")


def listed(asked: Any, name: str, least: int, most: int) -> list[Any]:
    """A list of so many things, each once.

    Raises:
        VisitorError: it is something else; one line.
    """
    if isinstance(asked, list):
        once = [each for place, each in enumerate(asked[: most + 1]) if each not in asked[:place]]
        if len(asked) <= most and least <= len(once):
            return once
    raise VisitorError(f"{name}: choose {least} to {most}")
