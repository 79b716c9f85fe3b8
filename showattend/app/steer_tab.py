"""The visitor says where the model must look, and which words it must begin with."""

from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import numpy.typing as npt

from showattend.app.reading import Reading, reading_of
from showattend.app.shared import QUIET, Shared, beams, listen
from showattend.app.uploads import (
    VisitorError,
    chosen_path,
    listed,
    open_upload,
    text,
    told_in_one_line,
    warn,
    whole,
)
from showattend.app.viewer import add_viewer, photograph, told
from showattend.predict import CaptionModel
from showattend.steering import Steer

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
                elem_id="sa-begin",
                max_length=_MOST_LETTERS,
            )
            button = gr.Button("Caption again", variant="primary")
            clear = gr.Button("Clear", size="sm")
    viewer = add_viewer("steered", "")
    cells = gr.JSON(visible=False)
    steered = listen(
        [button.click, begin.submit],
        partial(steer, shared),
        [shared.photo, shared.model, shared.beam_size, cells, look_from, begin],
        [viewer],
        js=_WITH_CELLS,
    )
    # What was steered on another photograph, or by another model, goes, also if it is yet to come.
    gone = {"fn": None, "inputs": None, "cancels": [steered]} | QUIET
    gr.on([shared.photo.change], outputs=[viewer, begin], js="() => [null, '']", **gone)
    gr.on([shared.model.change], outputs=[viewer], js="() => null", **gone)
    shared.picker.select(clicked, None, [begin], **QUIET)
    clear.click(
        lambda: (1, "", None),
        None,
        [look_from, begin, viewer],
        js="() => { showattend.picker.clear(); return []; }",
        **QUIET,
    )


def clicked(event: gr.SelectData) -> str:
    """The words up to the one that was clicked, to be changed."""
    return str(event.value)


def steer(
    shared: Shared, photo: Any, name: Any, beam_size: Any, picked: Any, look_from: Any, begin: Any
) -> dict[str, Any]:
    """What the viewer shows: captions without steering and with it, side by side; what is refused
    leaves what was there.

    Args:
        picked: what `showattend.picker.cells()` tells: ``cells``, numbers of the cells of a grid of
            ``rows`` and ``columns``, row by row; none: the model looks where it likes.
    """
    path = chosen_path(photo, shared.cache)
    if path is None:
        return gr.skip()
    with told_in_one_line(path):
        model, size = shared.models.get(name), beams(beam_size)
        asked = _asked(model, picked, look_from, begin)
        opened, stem = open_upload(path), Path(path).stem
        try:  # first, for what cannot be steered so is found at once
            (steered,) = model.candidates([opened], beam_size=size, **asked)
        except ValueError as error:
            raise VisitorError(str(error)) from None
        (free,) = model.candidates([opened], beam_size=size)
        bound = "look_at" in asked
        if bound and all(len(each.words) < asked["look_from"] for each in steered):
            warn(f"The captions end before word {asked['look_from']}: no word was steered.")
        return told(
            [
                reading_of(model, stem, opened, free, "free"),
                reading_of(model, stem, opened, steered, "steered", bound=bound),
            ]
        )
    return gr.skip()


def _asked(model: CaptionModel, picked: Any, look_from: Any, begin: Any) -> Steer:
    """Raises: VisitorError: nothing is asked for, or there are no such cells; one line."""
    words = text(begin, "begin with", _MOST_LETTERS)
    asked: Steer = {"begin": words} if words else {}
    mask_hw = _mask(model, picked)
    if mask_hw.any():
        asked["look_at"] = mask_hw
        asked["look_from"] = whole(look_from, "from word", 1, _LATEST)
    if not asked:
        raise VisitorError("choose cells on the photograph, or words to begin with")
    return asked


def _mask(model: CaptionModel, picked: Any) -> npt.NDArray[np.bool_]:
    """The cells that are picked, (h, w)."""
    shape = model.checkpoint.captioner.shape
    size = (shape.height, shape.width)
    mask_hw = np.zeros(size, dtype=bool)
    if not isinstance(picked, dict) or not (cells := picked.get("cells")):
        return mask_hw
    if (picked.get("rows"), picked.get("columns")) != size:
        raise VisitorError("the grid is another model's: choose the cells again")
    for cell in listed(cells, "cells", 1, mask_hw.size):
        mask_hw.flat[whole(cell, "cell", 0, mask_hw.size - 1)] = True
    return mask_hw
