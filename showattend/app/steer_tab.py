"""The visitor says where the model must look, and which words it must begin with."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import numpy.typing as npt

from showattend.app.reading import Reading, reading_of
from showattend.app.shared import Shared, listen
from showattend.app.uploads import (
    NOT_OURS,
    VisitorError,
    open_upload,
    own_path,
    told_in_one_line,
    warn,
)
from showattend.app.viewer import add_viewer, photograph, told
from showattend.predict import CaptionModel

_HINT = '<p class="sa-hint">Choose a photograph first.</p>'
_MOST_LETTERS = 200
_LATEST = 20  # the last word that a look can begin with
#: The browser sends the cells that are chosen on the photograph.
_WITH_CELLS = (
    "(photo, model, beam, cells, from, begin) => "
    "[photo, model, beam, showattend.picker.cells(), from, begin]"
)


def new_picker() -> gr.HTML:
    """The photograph on which cells are chosen; its value is what `pickable` returns, or None."""
    return gr.HTML(
        None,
        html_template='<div class="sa-picker"></div>',
        js_on_load="showattend.picker(element, props, watch, trigger)",
        apply_default_css=False,
        hint=_HINT,
        render=False,
    )


def pickable(reading: Reading) -> dict[str, Any]:
    """The photograph, its grid, and the words of the best caption."""
    return photograph(reading) | {"words": reading.captions[0].words}


def add_steer_tab(shared: Shared) -> None:
    """The tab's content."""
    with gr.Row():
        with gr.Column(scale=3, min_width=280):
            shared.picker.render()
        with gr.Column(scale=2, min_width=240):
            look_from = gr.Slider(
                1,
                _LATEST,
                1,
                step=1,
                label="From word",
                info="The words before this one look where they like.",
                buttons=[],
            )
            begin = gr.Textbox(
                label="Begin with",
                info="Click a word of the caption and change it: the rest is written anew.",
                placeholder="a brown dog",
                max_length=_MOST_LETTERS,
            )
            button = gr.Button("Caption again", variant="primary")
            clear = gr.Button("Clear", size="sm")
    viewer = add_viewer("steered", "")
    cells = gr.JSON(visible=False)
    listen(
        [button.click, begin.submit],
        partial(steer, shared),
        [shared.photo, shared.model, shared.beam_size, cells, look_from, begin],
        [viewer],
        js=_WITH_CELLS,
    )
    private: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
    shared.picker.select(clicked, None, [begin], **private)
    clear.click(
        lambda: (1, "", None),
        None,
        [look_from, begin, viewer],
        js="() => { showattend.picker.clear(); return []; }",
        **private,
    )


def clicked(event: gr.SelectData) -> str:
    """The words up to the one that was clicked, to be changed."""
    return str(event.value)


def steer(
    shared: Shared,
    photo: Any,
    name: str,
    beam_size: float,
    cells: Sequence[int],
    look_from: float,
    begin: str,
) -> dict[str, Any] | None:
    """What the viewer shows: captions without steering and with it, side by side.

    Args:
        cells: numbers of the grid's cells, row by row; none: the model looks where it likes.
    """
    path = own_path(photo, shared.cache)
    if path is None:
        warn("Choose a photograph first." if photo is None else NOT_OURS)
        return None
    with told_in_one_line(path):
        model = shared.models.get(name)
        opened, stem = open_upload(path), Path(path).stem
        asked = _asked(model, cells, int(look_from), begin)
        readings = []
        for title, steering in (("free", {}), ("steered", asked)):
            try:
                (captions,) = model.candidates([opened], beam_size=int(beam_size), **steering)
            except ValueError as error:  # what cannot be steered so
                raise VisitorError(str(error)) from None
            readings.append(reading_of(model, stem, opened, captions, title))
        return told(readings)
    return None


def _asked(model: CaptionModel, cells: Sequence[int], look_from: int, begin: str) -> dict[str, Any]:
    """Raises: VisitorError: nothing is asked for, or there are no such cells; one line."""
    asked: dict[str, Any] = {"begin": begin.strip()} if begin.strip() else {}
    if cells:
        asked |= {"look_at": _mask(model, cells), "look_from": look_from}
    if not asked:
        raise VisitorError("choose cells on the photograph, or words to begin with")
    return asked


def _mask(model: CaptionModel, cells: Sequence[int]) -> npt.NDArray[np.bool_]:
    shape = model.checkpoint.captioner.shape
    mask_P = np.zeros(shape.height * shape.width, dtype=bool)
    if not all(isinstance(cell, int) and 0 <= cell < len(mask_P) for cell in cells):
        raise VisitorError(f"cells: expected numbers from 0 to {len(mask_P) - 1}")
    mask_P[list(cells)] = True
    return mask_P.reshape(shape.height, shape.width)
