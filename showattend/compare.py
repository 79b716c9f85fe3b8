"""Models side by side: their scores, whether the differences are more than chance, how they look,
and the pictures on which they part.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from showattend.bootstrap import RESAMPLES
from showattend.compare_page import Contrast, Pair, Said, compare_page
from showattend.corpus import Corpus, make_corpus
from showattend.curves import Curve, draw_curves
from showattend.datasets import ImageId, Picture
from showattend.diversity import diversity
from showattend.evaluate import attention_entropy
from showattend.gaze import LEAST_SHARED, cells_visited, distance, peak_weight
from showattend.java_metrics import JavaError, meteor
from showattend.metrics import Scores, score_corpus
from showattend.paired import Drawn, compare, draw
from showattend.report import Cell, Table, markdown, plain
from showattend.sides import CompareError, Run
from showattend.vocabulary import SPECIALS
from showattend.whole_files import write_whole

#: In every file that is written, so that a later comparison knows them as its own.
MARK = "written by showattend compare"
FILES = ("report.html", "report.md", "report.json")
_MARK_WITHIN = 500  # characters
_CORPUS_METEOR, _MEAN_METEOR = "METEOR", "METEOR, mean of images"


@dataclass(frozen=True)
class Scored:
    """A run with its scores; ``extra`` holds more of every image's, times 100."""

    run: Run
    corpus: Corpus
    scores: Scores
    extra: Mapping[str, np.ndarray]
    corpus_extra: Mapping[str, float]

    def cider(self, image: ImageId) -> float:
        """An image's CIDEr-D, times 100."""
        return self.scores.images[image]["CIDEr-D"]


Sides = Mapping[str, Sequence[Scored]]


@dataclass(frozen=True)
class Comparison:
    """The report.

    Attributes:
        facts: what was compared, in the order of printing.
        tables: the figures.
        notes: what the figures say and what they do not, and what is left out.
        curves: the learning curves as an element of HTML; None where no side has one.
        contrasts: the pictures on which two sides part.
        sides: every run's captions and scores.
    """

    facts: Mapping[str, str]
    tables: Sequence[Table]
    notes: Sequence[str]
    curves: str | None
    contrasts: Sequence[Contrast]
    sides: Sides

    def text(self) -> str:
        """For a terminal."""
        width = max(map(len, self.facts))
        facts = "\n".join(f"{name:{width}}  {value}" for name, value in self.facts.items())
        return "\n\n".join([facts, *map(plain, self.tables), "\n".join(self.notes)])

    def markdown(self) -> str:
        """For people's notes."""
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        notes = "\n".join(f"- {note}" for note in self.notes)
        shown = [block for contrast in self.contrasts for block in _contrast_lines(contrast)]
        title = f"<!-- {MARK} -->\n\n# {self.title}"
        return "\n\n".join([title, facts, *map(markdown, self.tables), notes, *shown]) + "\n"

    @property
    def title(self) -> str:
        """The sides' names."""
        return " against ".join(self.sides)

    def tree(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "made by": MARK,
            "facts": dict(self.facts),
            "tables": {table.title: table.tree() for table in self.tables},
            "notes": list(self.notes),
            "shown": [
                {
                    "sides": list(contrast.sides),
                    **{
                        heading: [pair.picture.image_id for pair in pairs]
                        for heading, pairs in contrast.groups.items()
                    },
                }
                for contrast in self.contrasts
            ],
            "runs": {
                scored.run.name: {
                    "side": side,
                    "images": [
                        {"image_id": image, "caption": text, "scores": scored.scores.images[image]}
                        for image, text in scored.run.texts.items()
                    ],
                }
                for side, runs in self.sides.items()
                for scored in runs
            },
        }

    def write(self, folder: Path) -> list[Path]:
        """report.html, report.md and report.json, each whole or not at all.

        Raises:
            OSError: a file cannot be written.
            CompareError: others' files have these names; one line.
            ImageError: a picture cannot be opened any more; one line.
        """
        prepare_folder(folder)
        contents = (
            compare_page(self.title, MARK, self.facts, self.tables, self.notes, self.curves,
                         self.contrasts),
            self.markdown(),
            json.dumps(self.tree(), indent=1),
        )  # fmt: skip
        for name, content in zip(FILES, contents, strict=True):
            write_whole(folder / name, content)
        return [folder / name for name in FILES]


def prepare_folder(folder: Path) -> None:
    """Make a report's folder; an older report in it will be replaced, nothing else.

    Raises:
        OSError: it cannot be made.
        CompareError: others' files have the report's names; one line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in (folder / name for name in FILES):
        if path.exists() and MARK.encode() not in path.read_bytes()[:_MARK_WITHIN]:
            raise CompareError(f"{path}: is no comparison's; name another folder by --out DIR")


def compare_sides(
    sides: Mapping[str, Sequence[Run]],
    pictures: Sequence[Picture],
    *,
    facts: Mapping[str, str],
    images: int = 6,
    java: bool = False,
) -> Comparison:
    """Score all sides and hold each against the first.

    Args:
        sides: two or more, by name; all runs caption exactly the pictures.
        images: shown for each reason, of each pair.
        java: also METEOR, which needs Java and a minute or two a run.
    """
    notes: list[str] = []
    references = {picture.image_id: picture.captions for picture in pictures}
    scored = {
        name: [_score(run, references, notes, java) for run in runs] for name, runs in sides.items()
    }
    if java and any(not each.extra for runs in scored.values() for each in runs):
        scored = {name: [_bare(each) for each in runs] for name, runs in scored.items()}
    drawn = {
        name: draw([each.scores for each in runs], [each.extra for each in runs], place=place)
        for place, (name, runs) in enumerate(scored.items())
    }
    first, *others = scored
    tables = [
        _score_table(scored, drawn),
        *(difference_table(first, other, drawn) for other in others),
        *([_run_table(scored)] if any(len(runs) > 1 for runs in scored.values()) else []),
        *_behaviour_tables(scored),
    ]
    notes = [_what_is_covered(scored), *notes]
    if len(others) > 1:
        notes.append(f"Every other side is held against the first, {first}, and no two others.")
    contrasts = [
        _contrast({name: scored[name][0] for name in (first, other)}, pictures, images, notes)
        for other in others
    ]
    if any(len(runs) > 1 for runs in scored.values()):
        notes.append("Pictures show the first run of each side.")
    return Comparison(facts, tables, notes, _curves(scored, notes), contrasts, scored)


# --- scores ---------------------------------------------------------------------------------------


def _score(
    run: Run, references: Mapping[ImageId, Sequence[str]], notes: list[str], java: bool
) -> Scored:
    corpus = make_corpus(run.texts, references)
    extra: dict[str, np.ndarray] = {}
    corpus_extra: dict[str, float] = {}
    if java:
        try:
            whole, of_images_B = meteor(corpus)
            extra, corpus_extra = {_MEAN_METEOR: 100.0 * of_images_B}, {_CORPUS_METEOR: 100 * whole}
        except JavaError as error:
            line = f"Not computed: {error}"
            notes += [line] if line not in notes else []
    return Scored(run, corpus, score_corpus(corpus), extra, corpus_extra)


def _bare(scored: Scored) -> Scored:
    """Without what Java gave, where it failed on another run."""
    return Scored(scored.run, scored.corpus, scored.scores, {}, {})


def _score_table(sides: Sides, drawn: Mapping[str, Drawn]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for side, found in drawn.items():
        deviations = found.deviations()
        intervals = found.intervals()
        for name, score in zip(found.names, found.score_S.tolist(), strict=True):
            row = rows.setdefault(name, {})
            row[side] = Cell(score, intervals[name])
            if len(sides[side]) > 1:
                row[f"{side}: SD of runs"] = Cell(deviations[name])
        for name in sides[side][0].corpus_extra:
            mean = float(np.mean([each.corpus_extra[name] for each in sides[side]]))
            rows.setdefault(name, {})[side] = Cell(mean)
    return Table("score", rows, _SCORE_NOTE)


def difference_table(ours: str, theirs: str, drawn: Mapping[str, Drawn]) -> Table:
    """How much higher every score of one side is, and how likely that much is by chance."""
    rows = {
        name: {
            "difference": Cell(found.value, found.interval),
            "p": Cell(found.p, decimals=3),
        }
        for name, found in compare(drawn[ours], drawn[theirs]).items()
    }
    return Table(f"{ours} − {theirs}", rows, _DIFFERENCE_NOTE)


def _run_table(sides: Sides) -> Table:
    rows = {
        each.run.name: {name: Cell(score) for name, score in each.scores.corpus.items()}
        for runs in sides.values()
        for each in runs
    }
    return Table("run", rows, "Every run by itself.")


def _what_is_covered(sides: Sides) -> str:
    """What the intervals and p are about, in a sentence."""
    single = [name for name, runs in sides.items() if len(runs) == 1]
    if not single:
        return (
            "Intervals and p cover the choice of images and of runs (seeds), which are drawn "
            "together; of two or three runs a side, what they say of seeds is rough."
        )
    return (
        "Intervals and p cover the choice of images, not of seeds: "
        f"{', '.join(single)} trained again from another seed would score otherwise. Name several "
        "runs a side, joined by commas, to cover both."
    )


# --- captions and attention -----------------------------------------------------------------------


def _behaviour_tables(sides: Sides) -> list[Table]:
    """What the captions are like, and how the models look; means over a side's runs."""
    captions: dict[str, Callable[[Scored], float | None]] = {
        "words in a caption": lambda each: diversity(each.corpus.candidates, ()).length,
        "distinct captions": lambda each: diversity(each.corpus.candidates, ()).distinct,
        "different words": lambda each: diversity(each.corpus.candidates, ()).vocabulary,
        "words of the vocabulary never used": _unused,
        "ms an image": lambda each: each.run.milliseconds,
        "ms of processor": lambda each: each.run.processor,
    }
    attention: dict[str, Callable[[Scored], float | None]] = {
        "entropy, nats": _looks(attention_entropy),
        "weight of the peak cell, %": _looks(lambda said: 100.0 * peak_weight(said)),
        "different cells in a caption": _looks(cells_visited),
        "cells of the grid": _looks(lambda said: next(iter(said)).weights.shape[1]),
    }
    found = [
        Table("captions", _means(sides, captions), _CAPTIONS_NOTE),
        Table("attention", _means(sides, attention), _ATTENTION_NOTE),
    ]
    return [table for table in found if table.rows]


def _looks(measure: Callable[[Any], float]) -> Callable[[Scored], float | None]:
    return lambda each: measure(each.run.captions.values()) if each.run.captions else None


def _unused(scored: Scored) -> float | None:
    if scored.run.checkpoint is None:
        return None
    words = scored.run.checkpoint.vocabulary.words[len(SPECIALS) :]
    used = {word for caption in scored.corpus.candidates for word in caption}
    return len(set(words) - used)


def _means(
    sides: Sides, measures: Mapping[str, Callable[[Scored], float | None]]
) -> dict[str, dict[str, Cell]]:
    """A row a measure, without those that no side has."""
    rows: dict[str, dict[str, Cell]] = {}
    for name, measure in measures.items():
        for side, runs in sides.items():
            values = [value for each in runs if (value := measure(each)) is not None]
            if values:
                mean = values[0] if len(values) == 1 else float(np.mean(values))
                rows.setdefault(name, {})[side] = Cell(mean)
    return rows


def _curves(sides: Sides, notes: list[str]) -> str | None:
    known: dict[str, dict[str, Curve]] = {}
    for side, runs in sides.items():
        for each in runs:
            if each.run.curve:
                known.setdefault(side, {})[each.run.name] = each.run.curve
            else:
                notes.append(
                    f"No learning curve: {each.run.name} has no readable metrics.jsonl beside it."
                )
    return draw_curves(known) if known else None


# --- pictures -------------------------------------------------------------------------------------


def _contrast(
    pair: Mapping[str, Scored], pictures: Sequence[Picture], count: int, notes: list[str]
) -> Contrast:
    """The pictures on which one of two sides wins most, and where they look apart most."""
    (ours, a), (theirs, b) = pair.items()
    by_image = {picture.image_id: picture for picture in pictures}
    lead = {image: a.cider(image) - b.cider(image) for image in a.run.texts}
    far = _distances(a.run, b.run)

    def shown(ranked: Sequence[ImageId]) -> list[Pair]:
        return [
            Pair(by_image[image], lead[image], far.get(image),
                 {side: _said(scored, image) for side, scored in pair.items()})
            for image in ranked[:count]
        ]  # fmt: skip

    rising = sorted(lead, key=lead.__getitem__)
    groups = {
        f"{ours} wins most": shown([image for image in reversed(rising) if lead[image] > 0]),
        f"{theirs} wins most": shown([image for image in rising if lead[image] < 0]),
    }
    if far:
        groups["They look at different places"] = shown(sorted(far, key=lambda image: -far[image]))
    else:
        notes.append(f"No places are compared: {_why_no_places(ours, theirs, a.run, b.run)}.")
    return Contrast((ours, theirs), groups)


def _said(scored: Scored, image: ImageId) -> Said:
    run = scored.run
    resize = run.checkpoint.pixels.resize if run.checkpoint is not None else None
    return Said(run.texts[image], run.captions.get(image), resize, scored.scores.images[image])


def _distances(ours: Run, theirs: Run) -> dict[ImageId, float]:
    """How far apart two models look, of the images where that is known."""
    if not _see_the_same(ours, theirs):
        return {}
    pairs = ((image, ours.captions[image], theirs.captions[image]) for image in ours.captions)
    found = {image: distance(one, other) for image, one, other in pairs}
    return {image: apart for image, apart in found.items() if not math.isnan(apart)}


def _see_the_same(ours: Run, theirs: Run) -> bool:
    """Whether a place on one's grid is a place on the other's: both cut photographs alike."""
    if ours.checkpoint is None or theirs.checkpoint is None:
        return False
    return ours.checkpoint.pixels.resize == theirs.checkpoint.pixels.resize


def _why_no_places(ours: str, theirs: str, one: Run, other: Run) -> str:
    if one.checkpoint is None or other.checkpoint is None:
        side = ours if one.checkpoint is None else theirs
        return f"{side} is a file of captions, without attention"
    if not _see_the_same(one, other):
        return f"{ours} and {theirs} cut photographs differently (pixels.resize)"
    return f"no two captions of {ours} and {theirs} share {LEAST_SHARED} words"


def _contrast_lines(contrast: Contrast) -> list[str]:
    """For Markdown: what the pictures say, without the pictures."""
    blocks = []
    for heading, pairs in contrast.groups.items():
        lines = [
            f"- {pair.picture.image_id}\n"
            + "\n".join(
                f"  - {side}: {said.text} (CIDEr-D {said.scores['CIDEr-D']:.1f})"
                for side, said in pair.said.items()
            )
            for pair in pairs
        ]
        blocks += [f"## {' and '.join(contrast.sides)}: {heading}", "\n".join(lines) or "None."]
    return blocks


_SCORE_NOTE = (
    "Times 100, corpus level, on raw references; a side of several runs has their mean. 95 % "
    "bootstrap intervals."
)
_DIFFERENCE_NOTE = (
    f"Paired bootstrap: both sides on the same images drawn with replacement, {RESAMPLES:,} times; "
    "the middle 95 % of the differences. p is two-sided, from that distribution moved to 0."
)
_CAPTIONS_NOTE = (
    "Never used: words that the model could write and wrote in no caption. Times are from an "
    "image's file to its caption, once the model is warm; other programs lengthen the first, not "
    "that of the processors."
)
_ATTENTION_NOTE = (
    "Entropy and peak are those of alpha, a mean over words; the different cells are the peaks of "
    "what the words' contexts were made of."
)
