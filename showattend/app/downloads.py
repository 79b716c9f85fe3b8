"""Buttons that hand the visitor a file, made when it is asked for and kept nowhere."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from showattend.app.reading import Reading, as_json, draw_animation, draw_figure
from showattend.app.shared import listen
from showattend.app.uploads import VisitorError, told_in_one_line, whole
from showattend.data_urls import data_url

#: {"name", "url"}, which viewer.js saves; None is no file.
Handed = dict[str, str] | None

_SAVE = "(file) => { showattend.save(file); }"


def hand_out(
    button: gr.Button, make: Callable[..., Handed], inputs: list[Any], js: str | None = None
) -> None:
    """Let the button make a file and hand it to the browser.

    Args:
        js: what the browser sends in place of the inputs.
    """
    file = gr.JSON(visible=False)
    made = listen([button.click], make, inputs, [file], js=js)
    made.then(None, [file], None, js=_SAVE, api_visibility="private")


def add_downloads(viewer: str, reading: gr.State) -> None:
    """Figure, animation and data of the caption that is laid open in the viewer of that name."""
    js = f"(reading, choice) => [reading, showattend.choice('{viewer}')]"
    with gr.Row():
        choice = gr.JSON(visible=False)
        for label, make in (
            ("Download figure (PNG)", _figure),
            ("Download animation (GIF)", _animation),
            ("Download data (JSON)", _data),
        ):
            hand_out(gr.Button(label, size="md"), make, [reading, choice], js)


def _figure(reading: Reading | None, choice: Any) -> Handed:
    def draw(path: Path, shown: Reading, index: int) -> None:
        draw_figure(path, shown, shown.captions[index])

    return _drawn("figure.png", "image/png", draw, reading, choice)


def _animation(reading: Reading | None, choice: Any) -> Handed:
    def draw(path: Path, shown: Reading, index: int) -> None:
        percent = whole(100 * choice["strength"], "overlay strength", 0, 100)
        draw_animation(path, shown, shown.captions[index], percent / 100)

    return _drawn("words.gif", "image/gif", draw, reading, choice)


def _data(reading: Reading | None, choice: Any) -> Handed:
    def write(path: Path, shown: Reading, index: int) -> None:
        path.write_text(json.dumps(as_json(shown, index), indent=1) + "\n", encoding="utf-8")

    return _drawn("caption.json", "application/json", write, reading, choice)


def _drawn(
    name: str,
    kind: str,
    draw: Callable[[Path, Reading, int], None],
    reading: Reading | None,
    choice: Any,
) -> Handed:
    with told_in_one_line():
        if reading is None:
            raise VisitorError("this page has forgotten the photograph: choose it again")
        try:
            index = whole(choice["captions"][0], "caption", 0, len(reading.captions) - 1)
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, name)
                draw(path, reading, index)
                url = data_url(path.read_bytes(), kind)
        except (LookupError, TypeError):
            raise VisitorError("no caption is laid open: choose the photograph again") from None
        return {"name": f"{reading.name}_{name}", "url": url}
    return None
