"""The tab of training runs: choose some, and see how far they are while they train."""

import html
import time
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from showattend.runs import MOST, RunsError, chosen_runs, find_runs
from showattend.runs_page import details_html, progress_html

_SECONDS = 5  # between two looks at the files of chosen runs
_HINT = '<p class="sa-faint">Choose a run to see its learning curves, scores and captions.</p>'


def add_runs_tab(root: Path) -> None:
    """Fill a tab with the runs below a folder."""
    names = gr.Dropdown(
        list(find_runs(root)),
        value=[],
        multiselect=True,
        max_choices=MOST,
        label=f"Runs in {root.name}",
        info=f"Up to {MOST}; the one that last ended an epoch comes first.",
    )
    progress = gr.HTML(_HINT, apply_default_css=False)
    details = gr.HTML(apply_default_css=False)
    shown = gr.State(_HINT)
    timer = gr.Timer(_SECONDS, active=False)
    listen = partial(gr.on, preprocess=False, api_visibility="private")
    # What a request names is checked by `chosen_runs`, against the runs that there are by then.
    listen([names.focus], lambda: gr.Dropdown(list(find_runs(root))), None, [names],
           show_progress="hidden")  # fmt: skip
    listen(
        [names.change],
        partial(_progress, root),
        [names, shown],
        [progress, shown, timer],
        trigger_mode="always_last",
        show_progress="hidden",
    ).then(
        partial(_details, root),
        [names],
        [details],
        api_visibility="private",
        preprocess=False,
        show_progress="minimal",
    )
    listen(
        [timer.tick],
        partial(_progress, root),
        [names, shown],
        [progress, shown, timer],
        show_progress="hidden",
    )


def _progress(root: Path, names: Any, shown: str) -> list[Any]:
    """For the outputs progress, shown and timer; what is as it was is not sent anew."""
    try:
        content = progress_html(chosen_runs(root, names), time.time()) if names else _HINT
    except RunsError as error:
        content = f'<p class="sa-trouble">{html.escape(str(error))}</p>'
    new = gr.skip() if content == shown else content
    return [new, new, gr.Timer(active=bool(names))]


def _details(root: Path, names: Any) -> str:
    try:
        return details_html(chosen_runs(root, names)) if names else ""
    except RunsError:  # `_progress` says it
        return ""
