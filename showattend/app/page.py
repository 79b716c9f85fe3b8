"""The page: the photograph and the model on the left, what can be done with them on the right."""

from collections.abc import Callable, Sequence
from pathlib import Path

import gradio as gr

from showattend.app.api import add_api
from showattend.app.batch_tab import add_batch_tab
from showattend.app.caption_tab import add_caption_tab
from showattend.app.compare_tab import add_compare_tab
from showattend.app.models import Models
from showattend.app.runs_tab import add_runs_tab
from showattend.app.shared import MOST_BEAMS, Shared
from showattend.app.steer_tab import add_steer_tab, new_picker
from showattend.app.uploads import EXAMPLES
from showattend.config import SearchSettings

KEPT_SECONDS = 3600  # how long photographs and files outlive their last use
SWEEP_SECONDS = 600

_INTRODUCTION = """
# showattend: what it says, and where it looks
A photograph becomes a sentence, word by word, and every word shows where the model looked for it
([Xu et al. 2015](https://arxiv.org/abs/1502.03044)).
"""
_PRIVACY = (
    "Photographs stay on the machine that runs this page and are deleted about an hour later."
)


def build_page(models: Models, runs: Path | None = None) -> gr.Blocks:
    """The page for these models.

    Args:
        runs: a folder of training runs, to be shown in a tab of their own.
    """
    with gr.Blocks(
        title="showattend", analytics_enabled=False, delete_cache=(SWEEP_SECONDS, KEPT_SECONDS)
    ) as page:
        gr.Markdown(_INTRODUCTION)
        with gr.Row():
            with gr.Column(scale=2, min_width=320, elem_classes="sa-left"):
                shared = _add_photograph(models)
            with gr.Column(scale=3, min_width=320), gr.Tabs():
                for name, add in _tabs():
                    with gr.Tab(name):
                        add(shared)
                if runs is not None:
                    with gr.Tab("Runs"):
                        add_runs_tab(runs)
        add_api(shared)
        with gr.Accordion("Credits and privacy", open=False):
            gr.Markdown(_PRIVACY)
            gr.Markdown((EXAMPLES / "CREDITS.md").read_text(encoding="utf-8"))
    return page


def _tabs() -> Sequence[tuple[str, Callable[[Shared], None]]]:
    return [
        ("Caption", add_caption_tab),
        ("Steer", add_steer_tab),
        ("Compare", add_compare_tab),
        ("Batch", add_batch_tab),
    ]


def _add_photograph(models: Models) -> Shared:
    """What is chosen once for all tabs."""
    photo = gr.Image(
        label="Photograph: upload, drop, paste or take one",
        sources=["upload", "clipboard", "webcam"],
        type="filepath",
        height=260,
        buttons=[],
    )
    gr.Examples(
        [[str(path)] for path in sorted(EXAMPLES.glob("*.jpg"))],
        photo,
        label="Or click an example",
        cache_examples=False,
        api_visibility="private",
        elem_id="examples",
    )
    with gr.Group(elem_classes="sa-controls"):
        model = gr.Dropdown(
            models.names,
            label="Model",
            info="Soft attention reads all cells by their weights; hard attention the framed ones.",
            visible=len(models.names) > 1,
        )
        beam_size = gr.Slider(
            1,
            MOST_BEAMS,
            SearchSettings().beam_size,
            step=1,
            label="Beam size",
            info="How many captions are followed at once; 1 is greedy search.",
            buttons=[],
        )
    reading = gr.State(None, time_to_live=KEPT_SECONDS)
    cache = Path(photo.GRADIO_CACHE)
    return Shared(models, cache, photo, model, beam_size, reading, new_picker())
