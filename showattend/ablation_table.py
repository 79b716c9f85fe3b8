"""What each setting buys and what it costs: the table of an ablation's finished runs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from showattend.ablate import (
    GROUPS,
    SPLIT,
    Measures,
    is_measured,
    pointing_of,
    read_corpus,
    read_measures,
)
from showattend.ablation_plan import AblateError, Ablation, Job
from showattend.bootstrap import RESAMPLES, ratio_interval
from showattend.datasets import load_split
from showattend.metrics import Scores, score_corpus
from showattend.paired import Drawn, compare, draw
from showattend.report import Cell, Table, markdown
from showattend.whole_files import write_whole

FILES = ("table.md", "table.json")
_SCORES = ("BLEU-4", "CIDEr-D")
_POINTING = dict(zip(GROUPS, ("pointing, %", "small, %"), strict=True))


@dataclass(frozen=True)
class Measured:
    """A finished run."""

    job: Job
    scores: Scores
    measures: Measures


@dataclass(frozen=True)
class AblationTable:
    """The report.

    Attributes:
        facts: what was compared, in the order of printing.
        tables: the rows and, where there are several seeds, every run by itself.
        changes: row -> the settings in which it is not the base.
        notes: what is missing.
    """

    facts: Mapping[str, str]
    tables: Sequence[Table]
    changes: Mapping[str, Sequence[str]]
    notes: Sequence[str]

    def markdown(self) -> str:
        """For people's notes."""
        facts = [f"- {name}: {value}" for name, value in self.facts.items()]
        changes = [
            f"- {row}: {', '.join(f'`{each}`' for each in own) or 'the base'}"
            for row, own in self.changes.items()
        ]
        notes = [f"- {note}" for note in self.notes]
        blocks = ["\n".join(lines) for lines in (changes, notes) if lines]
        return "\n\n".join(["\n".join(facts), *map(markdown, self.tables), *blocks]) + "\n"

    def tree(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "facts": dict(self.facts),
            "tables": {table.title: table.tree() for table in self.tables},
            "changes": {row: list(own) for row, own in self.changes.items()},
            "notes": list(self.notes),
        }

    def write(self, folder: Path) -> list[Path]:
        """table.md and table.json, each whole or not at all.

        Raises:
            OSError: a file cannot be written.
        """
        contents = (self.markdown(), json.dumps(self.tree(), indent=1))
        for name, content in zip(FILES, contents, strict=True):
            write_whole(folder / name, content)
        return [folder / name for name in FILES]


def tabulate(ablation: Ablation) -> AblationTable:
    """The table of all runs that are trained and measured; nothing is trained or captioned.

    Raises:
        AblateError: there is none, or they captioned different images; one line.
        DataError, ScoreError, ConfigError: a file cannot be read; one line.
    """
    finished = [job for job in ablation.jobs if is_measured(job)]
    if not finished:
        raise AblateError(f"{ablation.path}: none of its runs is finished, so there is no table")
    rows: dict[str, list[Measured]] = {}
    for measured in _read(finished, ablation):
        rows.setdefault(measured.job.row, []).append(measured)
    runs = [measured for row in rows.values() for measured in row]
    several = len(ablation.plan.seeds) > 1
    tables = [_row_table(rows, ablation), *([_run_table(runs)] if several else [])]
    missing = [str(job.folder) for job in ablation.jobs if job not in finished]
    return AblationTable(
        _facts(ablation, runs),
        tables,
        {row: ablation.plan.rows[row] for row in rows},
        [f"not finished: {', '.join(missing)}"] if missing else [],
    )


def _read(jobs: Sequence[Job], ablation: Ablation) -> list[Measured]:
    pictures = load_split(ablation.common.data, SPLIT)
    found: list[Measured] = []
    for job in jobs:
        measures = read_measures(job)
        assert measures is not None  # is_measured says so
        scores = score_corpus(read_corpus(job, pictures))
        if found and list(scores.images) != list(found[0].scores.images):
            raise AblateError(
                f"{job.folder}: captions other images than {found[0].job.folder}; "
                "remove the results.json of both to have them captioned anew"
            )
        found.append(Measured(job, scores, measures))
    return found


def _row_table(rows: Mapping[str, Sequence[Measured]], ablation: Ablation) -> Table:
    drawn = {
        row: draw([each.scores for each in runs], place=runs[0].job.place)
        for row, runs in rows.items()
    }
    first = next(iter(ablation.plan.rows))
    table = {
        row: _scores(drawn[row]) | _against(drawn[row], drawn.get(first)) | _costs(runs)
        for row, runs in rows.items()
    }
    if len(ablation.plan.seeds) > 1:
        table = {row: {"seeds": Cell(len(rows[row]))} | cells for row, cells in table.items()}
    return Table("row", table, _note(first, several=len(ablation.plan.seeds) > 1))


def _run_table(runs: Sequence[Measured]) -> Table:
    rows = {
        f"{each.job.row}, seed {each.job.seed}": _scores(draw([each.scores])) | _costs([each])
        for each in runs
    }
    return Table("run", rows, "Every run by itself; these intervals are over images alone.")


def _scores(drawn: Drawn) -> dict[str, Cell]:
    values = dict(zip(drawn.names, drawn.score_S.tolist(), strict=True))
    intervals = drawn.intervals()
    return {name: Cell(values[name], intervals[name]) for name in _SCORES}


def _against(drawn: Drawn, first: Drawn | None) -> dict[str, Cell]:
    """p of the difference to the first row; that row itself has none."""
    if first is None:
        return {}
    p = math.nan if drawn is first else compare(drawn, first)["CIDEr-D"].p
    return {"p": Cell(p, decimals=3)}


def _costs(runs: Sequence[Measured]) -> dict[str, Cell]:
    """What is measured besides BLEU and CIDEr-D: means over a row's runs, where all have it."""
    cells: dict[str, Cell] = {}
    meteors = [each.measures.meteor for each in runs]
    known = [score for score in meteors if score is not None]
    if len(known) == len(runs):
        cells["METEOR"] = Cell(fmean(known))
    for group, column in _POINTING.items():
        pointed = [pointing_of(each.measures, each.job).get(group) for each in runs]
        hits = [found.hits for found in pointed if found is not None]
        if pointed[0] is not None and len(hits) == len(runs):
            cells[column] = _percent(np.mean(hits, axis=0), np.array(pointed[0].phrases))
    return cells | {
        "parameters": Cell(runs[0].measures.parameters),
        "s an epoch": Cell(fmean(each.measures.epoch_seconds for each in runs), decimals=0),
        "ms an image": Cell(fmean(each.measures.milliseconds for each in runs), decimals=1),
    }


def _percent(hits_N: np.ndarray, phrases_N: np.ndarray) -> Cell:
    """Runs of one row differ in what they hit, not in which phrases there are."""
    low, high = ratio_interval(hits_N, phrases_N)
    return Cell(100.0 * float(hits_N.sum() / phrases_N.sum()), (100.0 * low, 100.0 * high))


def _facts(ablation: Ablation, runs: Sequence[Measured]) -> dict[str, str]:
    settings, images = ablation.common, len(runs[0].scores.images)
    data, train = settings.data, settings.train
    judged = "these same images" if train.val_images is None else f"the first {train.val_images}"
    return {
        "plan": f"{ablation.path}: {ablation.plan.base} with {' '.join(ablation.overrides) or '-'}",
        "data": data.kind if data.root is None else f"{data.kind} in {data.root}",
        "split": f"{SPLIT}, {images} images; each run's epoch is the best on {judged}, by "
        f"{train.select_on}, which flatters all scores a little",
        "budget": f"{train.epochs} epochs, at most {train.captions_per_image} captions an image in "
        "each",
        "beam": f"{settings.search.beam_size}",
        "seeds": ", ".join(map(str, ablation.plan.seeds)),
        "hardware": "; ".join(dict.fromkeys(each.measures.hardware for each in runs)),
    }


def _note(first: str, *, several: bool) -> str:
    seeds = (
        "Figures are means over seeds; intervals of BLEU-4 and CIDEr-D and p cover the choice of "
        "images and of seeds, which are drawn together, those of pointing images alone."
        if several
        else "Intervals and p cover the choice of images, not of seeds: trained from another seed, "
        "every row would score otherwise."
    )
    return (
        "Captions are written free-running by beam search; scores are times 100, corpus level, on "
        f"raw references, with 95 % bootstrap intervals. {seeds} p: paired bootstrap "
        f"({RESAMPLES:,} resamples) of the difference in CIDEr-D to {first}, two-sided; of twenty "
        "rows without a difference one has p < 0.05. Pointing: per cent of the phrases of people's "
        "own sentences whose head word's map has its peak in the phrase's box; small: boxes cover "
        "at most a quarter of the photograph. Parameters: the decoder's, and of all before it what "
        "is trained. s an epoch: of training, without validation, told from a sample of batches. "
        "ms an image: from an opened photograph to its caption (encoding and beam), one by one, "
        "warm, the median. Both times are the wall clock's, and other programs lengthen them."
    )
