"""Buttons that hand the visitor a file, made when it is asked for and kept nowhere."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from showattend.app.reading import Reading, as_json, draw_animation, draw_figure
from showattend.app.shared import listen
from showattend.app.viewer import data_url

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
        draw_animation(path, shown, shown.captions[index], float(choice["strength"]))

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
    if reading is None or choice is None:
        return None
    index = range(len(reading.captions))[choice["captions"][0]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        draw(path, reading, index)
        return {"name": f"{reading.name}_{name}", "url": data_url(path.read_bytes(), kind)}
