"""The page's door for programs: one photograph in, what `as_json` tells out.

docs/app.md shows how to ask it from Python and by curl.
"""

from functools import partial
from typing import Any

import gradio as gr

from showattend.app.reading import as_json, read_photograph
from showattend.app.shared import Shared, beams, listen
from showattend.app.uploads import NOT_OURS, own_path, told_in_one_line


def add_api(shared: Shared) -> None:
    """The endpoint /caption (photo, model, beam_size), which no button of the page uses."""
    answer = gr.JSON(visible=False)
    listen(
        [gr.Button(visible=False).click],
        partial(caption, shared),
        [shared.photo, shared.model, shared.beam_size],
        [answer],
        api_name="caption",
        api_visibility="public",
    )


def caption(shared: Shared, photo: Any, model: str, beam_size: float) -> dict[str, Any]:
    """Captions of an uploaded photograph, best first, with their attention.

    Raises:
        gr.Error: the photograph is no upload or cannot be opened, or there is no such model or
            beam; one line.
    """
    path = own_path(photo, shared.cache)
    if path is None:
        raise gr.Error(NOT_OURS, print_exception=False)
    with told_in_one_line(path, _raise):
        return as_json(read_photograph(shared.models.get(model), path, beams(beam_size)))
    raise AssertionError("either read or refused")


def _raise(line: str) -> None:
    raise gr.Error(line, print_exception=False)
