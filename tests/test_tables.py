"""The tables of an evaluation, on corpora small enough to count by hand."""

from pathlib import Path

import numpy as np
import pytest
from conftest import MakePicture

from showattend.boxes import Grounded, Phrase
from showattend.checkpoint import Checkpoint
from showattend.corpus import make_corpus
from showattend.datasets import Picture
from showattend.grids import Grids
from showattend.mentions import Thing
from showattend.metrics import NAMES, score_corpus
from showattend.search import Caption, Regions
from showattend.tables import diversity_table, mention_table, pointing_tables, score_table

CORPUS = make_corpus(
    {1: "a dog runs on grass", 2: "a dog runs on grass"},
    {1: ["a dog runs on grass", "a cat"], 2: ["two men talk", "a man speaks to a man"]},
)


def test_every_score_has_its_interval_and_people_stand_beside() -> None:
    scores = score_corpus(CORPUS)
    table = score_table(scores, {"BLEU-1": 7.0}, {"METEOR": (0.25, np.array([0.5, 0.0]))})
    assert list(table.rows) == [*NAMES, "METEOR"]
    assert table.rows["BLEU-1"]["people"].value == 7.0
    assert table.rows["METEOR"]["score"].value == 25.0
    for name in NAMES:
        cell = table.rows[name]["score"]
        assert cell.value == scores.corpus[name]
        assert cell.interval is not None
        assert cell.interval[0] <= cell.value <= cell.interval[1]
    assert "People" in table.note and "People" not in score_table(scores).note


def test_how_varied_captions_are() -> None:
    table = diversity_table(CORPUS, [["a", "cat"]])
    model = {name: row["model"].value for name, row in table.rows.items()}
    people = {name: row["people"].value for name, row in table.rows.items()}
    assert model == {
        "captions": 2,
        "distinct": 1,
        "different words": 5,
        "words in a caption": 5.0,
        "novel, %": 100.0,
    }
    assert (people["captions"], people["distinct"], people["novel, %"]) == (4, 4, 75.0)
    assert "novel, %" not in diversity_table(CORPUS, None).rows


def test_pointing_tables_of_a_model(checkpoint: Checkpoint, make_picture: MakePicture) -> None:
    """A box that is the whole picture is always hit, one of no cell's centre never."""
    picture = make_picture("a.png", captions=("a dog",))
    shape = checkpoint.captioner.shape
    values = np.zeros((1, *shape.packed), np.float16)
    grids = Grids([picture], values, np.array([0]), None)
    whole = Phrase("a dog", (0, 2), 1, ("animals",), ((0.0, 0.0, 1.0, 1.0),))
    sliver = Phrase("dog", (1, 2), 1, ("animals",), ((0.0, 0.0, 0.01, 0.01),))
    boxes = {"a.png": [Grounded("a.png", "a dog", ("a", "dog"), (whole, sliver))]}
    now, later = pointing_tables(
        checkpoint.captioner, checkpoint.vocabulary, grids, boxes, "squash"
    )
    assert list(now.rows) == ["all", "small", "animals"]
    for table in (now, later):
        row = {name: cell.value for name, cell in table.rows["all"].items()}
        assert row["phrases"] == 2
        assert row["head"] == row["mean"] == row["maximum"] == row["centre"] == 50.0
        assert row["ceiling"] == 50.0
        assert row["area"] == pytest.approx(50.0, abs=0.01)
        assert table.rows["small"]["head"].value == 0.0


def test_what_own_captions_mention() -> None:
    """Two nouns, one of which names one of two things, and looks at its left half."""
    weights_TP = np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]])
    caption = Caption(("a", "dog", "ball"), -1.0, weights_TP, weights_TP, None, Regions(1, 2))
    picture = Picture(7, Path("7.jpg"), ("a dog",))
    left = Thing(frozenset({"dog"}), ((0.0, 0.0, 0.5, 1.0),))
    right = Thing(frozenset({"cat"}), ((0.5, 0.0, 1.0, 1.0),))
    table = mention_table(
        {7: caption},
        [picture],
        {7: [left, right]},
        lambda words: [(words.index("dog"), "dog"), (words.index("ball"), "ball")],
        "squash",
    )
    found = {name: (row["%"].value, row["of"].value) for name, row in table.rows.items()}
    assert found == {"peak in box": (100.0, 1), "precision": (50.0, 2), "recall": (50.0, 2)}
