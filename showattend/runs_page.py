"""The HTML of some runs: how far they are, how their settings and scores differ, and pictures."""

import html
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import yaml

from showattend.corpus import ScoreError
from showattend.curves import draw_curves, read_curve
from showattend.data_urls import jpeg_url
from showattend.datasets import DataError, ImageId, Picture
from showattend.images import ImageError
from showattend.page import extremes
from showattend.runs import (
    Captioned,
    RunsError,
    TrainingRun,
    progress_lines,
    read_captions,
    score_tables,
    setting_lines,
)

_SHOWN = 6  # images at either end
_SIDE = 224  # pixels
_BY = "CIDEr-D"


def progress_html(runs: Sequence[TrainingRun], now: float) -> str:
    """What changes while runs train: the table of their epochs, their troubles and curves."""
    troubles = [_trouble(f"{run.name}: {line}") for run in runs for line in run.troubles]
    parts = [_table(progress_lines(runs, now)), _note(_STATES), *troubles]
    known = tuple((run.name, run.folder, run.changed) for run in runs if run.curve)
    return "".join([*parts, _curves(known) if known else ""])


def details_html(runs: Sequence[TrainingRun]) -> str:
    """The rest: settings, scores of the runs' captions, and their best and worst ones."""
    captioned: dict[str, Captioned] = {}
    missing = []
    for run in runs:
        try:
            captioned[run.name] = read_captions(run)
        except (RunsError, ScoreError, DataError) as error:
            line = str(error).removeprefix(f"{run.folder}/")
            missing.append(_note(f"{run.name}: {line}."))
    pictures = [_pictures(name, each, len(captioned) == 1) for name, each in captioned.items()]
    scores = [_heading("Scores of the captions"), *_scores(captioned), *missing]
    return "".join([_settings(runs), *scores, *pictures])


# --- parts ----------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def _curves(runs: tuple[tuple[str, Path, float], ...]) -> str:
    """Drawn once for all who look, until an epoch ends in one of them."""
    drawn = draw_curves({name: {name: read_curve(folder)} for name, folder, _ in runs})
    return f'{_heading("Learning curves")}<div class="sa-curves">{drawn}</div>'


def _settings(runs: Sequence[TrainingRun]) -> str:
    """Of one run all of them; of several those that differ."""
    if len(runs) == 1 and runs[0].settings:
        text = yaml.safe_dump(runs[0].settings.model_dump(mode="json"), sort_keys=False)
        return _folded("Settings", f'<pre class="sa-scroll">{html.escape(text)}</pre>')
    lines = setting_lines(runs)
    if not lines:
        return ""
    heading = _heading("Settings that differ")
    return heading + (_table(lines) if lines[1:] else _note("None: they are the same in all."))


def _scores(captioned: Mapping[str, Captioned]) -> list[str]:
    if not captioned:
        return []
    try:
        tables = score_tables(captioned)
    except RunsError as error:
        return [_note(f"{error}.")]
    return [_table(table.lines()) + _note(table.note) for table in tables]


def _pictures(name: str, captioned: Captioned, unfolded: bool) -> str:
    scores = captioned.scores.images
    parts = []
    for what, images in zip(("highest", "lowest"), extremes(scores, _BY, _SHOWN), strict=True):
        figures = "".join(_figure(captioned, image) for image in images)
        parts.append(f'{_heading(f"The {what} {_BY}")}<div class="sa-thumbnails">{figures}</div>')
    return _folded(f"{name}: best and worst captions", "".join(parts), unfolded)


def _figure(captioned: Captioned, image: ImageId) -> str:
    picture, score = captioned.pictures[image], captioned.scores.images[image][_BY]
    said = "".join(f"<li>{html.escape(caption)}" for caption in picture.captions)
    return (
        f"<figure>{_thumbnail(picture)}<figcaption>{html.escape(captioned.texts[image])} "
        f'<span class="sa-faint">{score:.1f}</span><details><summary class="sa-faint">people'
        f"</summary><ul>{said}</ul></details></figcaption></figure>"
    )


@lru_cache(maxsize=256)
def _thumbnail(picture: Picture) -> str:
    try:
        photo = picture.open()
    except ImageError as error:
        return _trouble(str(error))
    photo.thumbnail((_SIDE, _SIDE))
    width, height = photo.size
    return f'<img alt="" width={width} height={height} src="{jpeg_url(photo, 80)}">'


# --- elements -------------------------------------------------------------------------------------


def _table(lines: Sequence[Sequence[str]]) -> str:
    """A heading and rows, each with its name in front; it scrolls where the page is narrow."""
    heading, *body = ([html.escape(text) for text in line] for line in lines)
    rows = [f"<tr><th scope=col>{'<th scope=col>'.join(heading)}"]
    rows += [f"<tr><th scope=row>{name}<td>{'<td>'.join(cells)}" for name, *cells in body]
    return f'<div class="sa-scroll"><table class="sa-figures">{"".join(rows)}</table></div>'


def _heading(text: str) -> str:
    return f'<div class="sa-heading">{html.escape(text)}</div>'


def _note(text: str) -> str:
    return f'<p class="sa-faint">{html.escape(text)}</p>'


def _trouble(line: str) -> str:
    return f'<p class="sa-trouble">{html.escape(line)}</p>'


def _folded(title: str, content: str, unfolded: bool = False) -> str:
    summary = f'<summary class="sa-heading">{html.escape(title)}</summary>'
    return f"<details{' open' if unfolded else ''}>{summary}{content}</details>"


_STATES = (
    "Scores are those of the best epoch, times 100. Running: an epoch has ended not long ago, "
    "compared with how long they take; no file tells more. Stopped: not running, and not at its "
    "end."
)
