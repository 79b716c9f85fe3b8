"""What all tabs have in common: the models, the photograph, and how they listen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from showattend.app.models import Models
from showattend.app.uploads import whole

#: How many visitors are served at once; they share the cores.
AT_ONCE = 2
#: For events that need no model and show nothing of their own.
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
#: More would let one visitor take the time of many.
MOST_BEAMS = 10


@dataclass(frozen=True)
class Shared:
    """The parts of the page that every tab looks at.

    Attributes:
        models: those that the page offers.
        cache: where Gradio keeps uploads.
        photo: the visitor's photograph; its value is Gradio's record of a file.
        model, beam_size: what the visitor has chosen.
        reading: the state that holds the `Reading` of the photograph, or None.
        picker: the same photograph, to choose cells of; a tab renders it.
    """

    models: Models
    cache: Path
    photo: gr.Image
    model: gr.Dropdown
    beam_size: gr.Slider
    reading: gr.State
    picker: gr.HTML


def listen(
    triggers: Sequence[Callable[..., Any]], fn: Callable[..., Any], *components: Any, **options: Any
) -> Any:
    """An event that needs a model: few at once, and no door for programs (see api.py).

    Gradio would decode uploads itself (`preprocess`); they are `open_photograph`'s to open.
    """
    defaults = {
        "preprocess": False,
        "api_visibility": "private",
        "show_progress": "minimal",
        "concurrency_id": "model",
        "concurrency_limit": AT_ONCE,
    }
    return partial(gr.on, **(defaults | options))(list(triggers), fn, *components)


def beams(asked: Any) -> int:
    """The beam size that a request asks for. Raises: VisitorError: the page offers none such."""
    return whole(asked, "beam size", 1, MOST_BEAMS)
