"""The runs below a folder, as far as they can be read: settings, epochs, captions and their scores.

Nothing is trained, captioned or written here, and no file outside of the folder is read but those
of the data set that a run's settings name. Whatever is broken in a run is a line about that run.
"""

import json
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from showattend.ablation_plan import flat_settings
from showattend.compare import difference_table
from showattend.config import ConfigError, DataSettings, Settings, read_settings
from showattend.corpus import ScoreError, make_corpus
from showattend.curves import METRICS, Curve, read_curve
from showattend.datasets import ImageId, Picture, load_split
from showattend.epochs import best_epoch, is_over
from showattend.metrics import NAMES, Scores, score_corpus
from showattend.paired import draw
from showattend.report import Cell, Table
from showattend.results import read_results

SETTINGS, RESULTS = "settings.yaml", "results.json"
MOST = 4  # runs that are shown at once
_SPLIT = "val"
#: More captions would keep a visitor waiting for longer than ten seconds.
_MOST_CAPTIONS = 10_000
_SILENT = 3  # epochs' time without a new one, after which a run is taken to have stopped


class RunsError(ValueError):
    """Runs that cannot be shown, or what is missing of one: one clear line."""


@dataclass(frozen=True)
class TrainingRun:
    """A run's folder.

    Attributes:
        name: its path below the folder of all runs, such as ablate/dot-seed1.
        settings: None where they cannot be read.
        curve: the epochs that are done.
        changed: when the last of them ended, in seconds since 1970.
        results: the file of its captions of the validation split, if it has one.
        troubles: a line for everything that is broken.
    """

    name: str
    folder: Path
    settings: Settings | None
    curve: Curve
    changed: float
    results: Path | None
    troubles: Sequence[str]

    @property
    def best(self) -> Mapping[str, float] | None:
        """The epoch that `best/` is of; None where that is not known."""
        if self.settings is None:
            return None
        return best_epoch(self.curve, self.settings.train.select_on)

    def state(self, now: float) -> str:
        """Whether it trains, as far as its files tell: none says that a process has died."""
        if self.settings is None:
            return "unknown"
        if not self.curve:
            return "no epoch yet"
        if is_over(self.settings.train, self.curve):
            return "ended"
        longest = max(
            epoch.get("seconds", 0) + epoch.get("validation seconds", 0) for epoch in self.curve
        )
        return "running" if now - self.changed < _SILENT * longest else "stopped"


# --- folders --------------------------------------------------------------------------------------


def find_runs(root: Path) -> dict[str, Path]:
    """The runs in a folder and in the folders within it, by name; who last ended an epoch first."""
    runs: list[Path] = []
    for folder in _folders(root, root):
        inner = [] if _last_sign(folder, root) else _folders(folder, root)
        runs += [each for each in (folder, *inner) if _last_sign(each, root)]
    runs.sort(key=lambda folder: -_last_sign(folder, root))
    return {folder.relative_to(root).as_posix(): folder for folder in runs}


def chosen_runs(root: Path, names: object) -> list[TrainingRun]:
    """The runs of these names, which may be whatever a request says.

    Raises:
        RunsError: they are no list of at most `MOST` names that `find_runs` gives; one line.
    """
    found = find_runs(root)
    if not isinstance(names, list) or len(names) > MOST:
        raise RunsError(f"choose at most {MOST} runs")
    for name in names:
        if not isinstance(name, str) or name not in found:
            raise RunsError(f"{str(name)[:80]}: not, or no longer, among the runs of this page")
    return [read_run(root, found[name]) for name in dict.fromkeys(names)]


def _folders(parent: Path, root: Path) -> list[Path]:
    """Folders within one; none where it cannot be read, nor such as no page can name."""
    try:
        children = sorted(each for each in parent.iterdir() if each.is_dir())
        return [each for each in children if each.name.isprintable() and _is_in(each, root)]
    except OSError:
        return []


def _is_in(path: Path, root: Path) -> bool:
    """Whether a path, its links followed, leads below the root."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _own_file(path: Path, root: Path) -> Path | None:
    """The path where it is a file, and no link that leads out of the root."""
    try:
        return path if path.is_file() and _is_in(path, root) else None
    except OSError:
        return None


def _last_sign(folder: Path, root: Path) -> float:
    """When the last epoch ended, or the run began, in seconds since 1970; 0 if it is no run."""
    for name in (METRICS, SETTINGS):
        if _own_file(folder / name, root):
            return _changed(folder / name)
    return 0.0


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # it has gone meanwhile
        return 0.0


# --- one run --------------------------------------------------------------------------------------


def read_run(root: Path, folder: Path) -> TrainingRun:
    """What can be read of a run's folder within the root."""
    metrics, results = (_own_file(folder / name, root) for name in (METRICS, RESULTS))
    changed = _last_sign(folder, root)
    troubles = []
    settings = None
    try:
        settings = _read_settings(_own_file(folder / SETTINGS, root))
    except ConfigError as error:
        troubles.append(str(error).removeprefix(f"{folder}/"))
    curve = read_curve(folder) if metrics else []
    known = [epoch for epoch in curve if _wanted(settings) <= epoch.keys()]
    if metrics is None:
        troubles.append(f"{METRICS}: not there")
    elif len(known) < len(curve) or (not curve and _has_text(metrics)):
        troubles.append(f"{METRICS}: damaged, or half written")
    if results and _changed(results) < changed:
        troubles.append(f"{RESULTS}: older than the last epoch, so perhaps of an earlier best one")
    name = folder.relative_to(root).as_posix()
    return TrainingRun(name, folder, settings, known, changed, results, troubles)


def _read_settings(path: Path | None) -> Settings:
    if path is None:
        raise ConfigError(f"{SETTINGS}: not there")
    return read_settings(path)


def _wanted(settings: Settings | None) -> set[str]:
    """What every epoch has to say."""
    return {"epoch", "loss"} | ({settings.train.select_on} if settings else set())


def _has_text(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


# --- tables ---------------------------------------------------------------------------------------


def progress_lines(runs: Sequence[TrainingRun], now: float) -> list[list[str]]:
    """How far each run is and the scores of its best epoch, below a heading; as texts."""
    heading = ["run", "state", "epoch", "last one ended", "best epoch", *NAMES, "loss"]
    return [heading, *(_progress(run, now) for run in runs)]


def _progress(run: TrainingRun, now: float) -> list[str]:
    settings, best = run.settings, run.best
    ended = time.strftime("%d %b %H:%M %Z", time.localtime(run.changed)) if run.curve else ""
    scores = [f"{best[name]:.2f}" if best and name in best else "" for name in (*NAMES, "loss")]
    return [
        run.name,
        run.state(now),
        str(len(run.curve)) + (f" of {settings.train.epochs}" if settings else ""),
        ended,
        f"{best['epoch']}, by {settings.train.select_on}" if settings and best else "",
        *scores,
    ]


def setting_lines(runs: Sequence[TrainingRun]) -> list[list[str]]:
    """The settings that are not the same in all runs whose settings are known, as `progress_lines`;
    none where there are no two such runs."""
    known = {run.name: flat_settings(run.settings) for run in runs if run.settings}
    if len(known) < 2:
        return []
    keys = dict.fromkeys(key for settings in known.values() for key in settings)
    rows = [[key, *(_text(settings.get(key)) for settings in known.values())] for key in keys]
    return [["setting", *known], *(row for row in rows if len(set(row[1:])) > 1)]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


# --- captions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Captioned:
    """A run's captions of validation pictures, and how good each is."""

    texts: Mapping[ImageId, str]
    pictures: Mapping[ImageId, Picture]
    scores: Scores


def read_captions(run: TrainingRun) -> Captioned:
    """A run's captions, scored when they are first asked for (1.5 ms each) and then kept.

    Raises:
        RunsError: it has none, or more than a visitor should wait for; one line.
        ScoreError, DataError: they or the data set cannot be read, or do not belong together; one
            line.
    """
    if run.settings is None:
        raise RunsError("its settings cannot be read, so its data set is not known")
    if run.results is None:
        where = shlex.quote(str(run.folder))
        raise RunsError(
            f"has no {RESULTS}; showattend evaluate --checkpoint {where} --out {where} makes it"
        )
    return _read_captions(run.results, _changed(run.results), run.settings.data)


@lru_cache(maxsize=2 * MOST)
def _read_captions(path: Path, _changed: float, data: DataSettings) -> Captioned:
    texts = read_results(path)
    if len(texts) > _MOST_CAPTIONS:
        raise RunsError(
            f"{RESULTS}: more than {_MOST_CAPTIONS:,} captions; showattend evaluate or compare "
            "scores them"
        )
    pictures = {each.image_id: each for each in load_split(data, _SPLIT) if each.image_id in texts}
    references = {image: picture.captions for image, picture in pictures.items()}
    try:
        scores = score_corpus(make_corpus(texts, references))
    except ScoreError as error:
        raise ScoreError(f"{RESULTS}: {error}; is it of the {_SPLIT} split?") from None
    return Captioned(texts, pictures, scores)


def score_tables(captioned: Mapping[str, Captioned]) -> list[Table]:
    """The runs' scores with their intervals, and how each differs from the first one's.

    Raises:
        RunsError: they are of other images or references; one line.
    """
    first, *others = captioned
    drawn = {}
    for place, (name, each) in enumerate(captioned.items()):
        if each.pictures != captioned[first].pictures:
            raise RunsError(f"{first} and {name}: their captions are of other images or references")
        drawn[name] = draw([each.scores], place=place)
    rows = {
        name: {
            score: Cell(value, each.intervals()[score])
            for score, value in zip(each.names, each.score_S.tolist(), strict=True)
        }
        for name, each in drawn.items()
    }
    return [Table("run", rows, _NOTE), *(difference_table(first, each, drawn) for each in others)]


_NOTE = (
    "Times 100, corpus level, on raw references, with 95 % bootstrap intervals. Intervals and p "
    "cover the choice of images, not of seeds."
)
