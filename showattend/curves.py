"""Learning curves: what the runs scored after every epoch, in one picture."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from showattend.data_urls import data_url

Curve = Sequence[Mapping[str, float]]  # an epoch each, as metrics.jsonl has them

METRICS = "metrics.jsonl"
_ABSURD = 1e15
_PANELS = ("CIDEr-D", "BLEU-4", "loss")


def read_curve(run: Path) -> Curve:
    """The epochs of a run folder; none where it has no readable metrics.jsonl."""
    try:
        lines = (run / METRICS).read_text(encoding="utf-8").splitlines()
        epochs = [json.loads(line) for line in lines]
    except (OSError, ValueError, RecursionError):
        return []
    return [
        {name: value for name, value in epoch.items() if _is_plain(value)}
        for epoch in epochs
        if isinstance(epoch, dict) and isinstance(epoch.get("epoch"), int)
    ]


def _is_plain(value: object) -> bool:
    """A number that can be drawn; others are of a damaged file."""
    return isinstance(value, int | float) and abs(value) < _ABSURD


def draw_curves(sides: Mapping[str, Mapping[str, Curve]]) -> str:
    """An element of HTML that holds its own bytes: a colour for every side, a line for every run.

    Args:
        sides: side -> run -> its curve, with an epoch or more.
    """
    from matplotlib.figure import Figure  # as in `overlay`: only for those who draw

    figure = Figure(figsize=(11, 3.2), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for place, (side, runs) in enumerate(sides.items()):
            for number, curve in enumerate(runs.values()):
                _line(axes, curve, name, f"C{place}", side if number == 0 else None)
        axes.set_title(name)
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.axes[0].legend(frameon=False)
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    source = data_url(file.getvalue(), "image/svg+xml")
    return f'<img alt="learning curves" src="{source}">'


def _line(axes: Any, curve: Curve, name: str, colour: str, label: str | None) -> None:
    known = [(epoch["epoch"], epoch[name]) for epoch in curve if name in epoch]
    points = zip(*known, strict=True) if known else ([], [])
    axes.plot(*points, ".-", color=colour, label=label and label.replace("$", r"\$"))
