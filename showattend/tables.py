"""The tables of an evaluation: what is scored, beside what it has to be measured against."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from showattend.bootstrap import ratio_interval, score_intervals
from showattend.boxes import Grounded
from showattend.captioner import Captioner
from showattend.corpus import Corpus, Tokens
from showattend.datasets import ImageId, Picture
from showattend.diversity import diversity
from showattend.grids import AnyGrids
from showattend.grounding import attend_phrases, point_at_phrases, seen_part
from showattend.images import Resize
from showattend.mentions import Thing, mention_shares, mentions
from showattend.metrics import Scores
from showattend.pointing import WAYS, Share, shares
from showattend.report import Cell, Table
from showattend.search import Caption
from showattend.vocabulary import Vocabulary


def score_table(
    scores: Scores,
    people: Mapping[str, float] | None = None,
    extra: Mapping[str, tuple[float, np.ndarray]] | None = None,
) -> Table:
    """The caption scores with their intervals.

    Args:
        people: how people score against each other, by the same names.
        extra: more scores, 0..1, by name: the corpus' and the images' (METEOR, SPICE).
    """
    rows = {
        name: {"score": Cell(scores.corpus[name], interval)}
        for name, interval in score_intervals(scores).items()
    }
    rows |= {name: {"score": Cell(100.0 * score)} for name, (score, _) in (extra or {}).items()}
    for name, score in (people or {}).items():
        rows[name]["people"] = Cell(score)
    return Table("score", rows, _SCORE_NOTE + (_PEOPLE_NOTE if people else ""))


def diversity_table(corpus: Corpus, training: Iterable[Tokens] | None) -> Table:
    """How varied the captions are, beside people's of the same images.

    Args:
        training: tokens of the data set's training captions; None where they are unknown.
    """
    people = [words for captions in corpus.references for words in captions]
    known = list(training or ())
    rows: dict[str, dict[str, Cell]] = {}
    for column, captions in (("model", corpus.candidates), ("people", people)):
        found = diversity(captions, known)
        cells = {
            "captions": Cell(len(captions)),
            "distinct": Cell(found.distinct),
            "different words": Cell(found.vocabulary),
            "words in a caption": Cell(found.length),
        }
        if training is not None:
            cells["novel, %"] = Cell(100.0 * found.novel)
        for name, cell in cells.items():
            rows.setdefault(name, {})[column] = cell
    note = (
        "" if training is None else "Novel: not among this data set's training captions, by words."
    )
    return Table("captions", rows, note)


def pointing_tables(
    captioner: Captioner,
    vocabulary: Vocabulary,
    grids: AnyGrids,
    boxes: Mapping[ImageId, Sequence[Grounded]],
    resize: Resize,
) -> list[Table]:
    """The teacher-forced pointing game on the phrases that people drew boxes for."""
    maps = attend_phrases(captioner, vocabulary, grids, boxes)
    tables = []
    for shift, title in enumerate(("pointing", "pointing, a step later")):
        found = shares(point_at_phrases(maps, boxes, grids.pictures, resize, shift=shift))
        rows: dict[str, dict[str, Cell]] = {}
        for (group, measure), share in found.items():
            row = rows.setdefault(group, {"phrases": Cell(int(share.denominators_N.sum()))})
            row[measure] = _percent(share, measure in WAYS and group in ("all", "small"))
        tables.append(Table(title, rows, _POINTING_NOTES[shift]))
    return tables


def mention_table(
    captions: Mapping[ImageId, Caption],
    pictures: Sequence[Picture],
    things: Mapping[ImageId, Sequence[Thing]],
    nouns: Callable[[Sequence[str]], Sequence[tuple[int, str]]],
    resize: Resize,
) -> Table:
    """What the model's own captions mention, and whether it looks there as it does.

    Args:
        nouns: words -> (position, name) of each that names a thing.
    """
    mentioned = {
        picture.image_id: mentions(
            captions[picture.image_id],
            nouns(captions[picture.image_id].words),
            things[picture.image_id],
            seen_part(picture, resize),
        )
        for picture in pictures
        if picture.image_id in captions and picture.image_id in things
    }
    rows = {
        name: {"%": _percent(share, True), "of": Cell(int(share.denominators_N.sum()))}
        for name, share in mention_shares(mentioned).items()
    }
    return Table("own captions", rows, _MENTION_NOTE)


def _percent(share: Share, interval: bool) -> Cell:
    if not interval:
        return Cell(100.0 * share.value)
    low, high = ratio_interval(share.numerators_N, share.denominators_N)
    return Cell(100.0 * share.value, (100.0 * low, 100.0 * high))


_SCORE_NOTE = "Times 100, corpus level, on raw references; 95 % intervals over images."
_PEOPLE_NOTE = (
    " People: each reference in turn against the image's others, one fewer than the model is "
    "scored against."
)
_POINTING_NOTES = (
    "People's sentences fed in. Per cent of phrases whose map has its peak (centre of the highest "
    "cell) in a box; a phrase's map is its head word's, or the mean or maximum of its words'; mass "
    "is the map's weight in the boxes. Beside it: the image's centre, a random cell, the best that "
    "cells can do, and the boxes' area. small: boxes cover at most a quarter of the photograph.",
    "The same with each word's map taken from the step after it, which knows the word.",
)
_MENTION_NOTE = (
    "The model's own captions: for nouns that name something annotated, was the peak in its box; "
    "how many nouns do (precision), and how many annotated things are named (recall)."
)
