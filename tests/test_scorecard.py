"""Everything that is known of a model's captions, in one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MakePicture

from showattend import scorecard as module
from showattend.checkpoint import Checkpoint
from showattend.config import DataSettings
from showattend.corpus import Corpus, split_captions
from showattend.datasets import Picture, load_split
from showattend.evaluate import caption_split
from showattend.grids import live_grids
from showattend.java_metrics import JavaError
from showattend.metrics import NAMES
from showattend.scorecard import (
    Scorecard,
    read_annotated,
    score_model,
    score_texts,
    training_tokens,
)
from showattend.search import Caption

SHAPES = DataSettings(kind="shapes", train_images=6, val_images=5)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: Corpus) -> Any:
        raise JavaError("METEOR: needs Java")

    monkeypatch.setattr(module, "meteor", absent)
    monkeypatch.setattr(module, "spice", absent)


@pytest.fixture
def card(checkpoint: Checkpoint, no_java: None) -> Scorecard:
    """Of an untrained model, on drawn shapes."""
    grids = live_grids(
        checkpoint.captioner, checkpoint.pixels, load_split(SHAPES, "val"), SHAPES.corrupt
    )
    captions = caption_split(checkpoint.captioner, checkpoint.vocabulary, grids, checkpoint.search)
    # So that a noun is said, and the page has something to draw.
    first = grids.pictures[0].image_id
    weights_TP = np.full((2, 64), 1 / 64)
    regions = captions[first].regions
    captions[first] = Caption(("red", "circle"), -1.0, weights_TP, weights_TP, None, regions)
    return score_model(
        checkpoint,
        captions,
        grids,
        facts={"split": "val"},
        training=training_tokens(SHAPES, split_captions),
        annotated=read_annotated(SHAPES, grids.pictures),
    )


def test_everything_is_there(card: Scorecard) -> None:
    titles = [table.title for table in card.tables]
    assert titles == ["score", "captions", "pointing", "pointing, a step later", "own captions"]
    scores, captions, pointing, *_ = card.tables
    assert list(scores.rows) == [*NAMES]
    assert "novel, %" in captions.rows  # the training captions are known
    assert pointing.rows["all"]["phrases"].value > 10
    assert card.facts["peak in box"].endswith("%")
    assert card.missing == ["METEOR: needs Java", "METEOR: needs Java"]
    assert card.page is not None and card.page.count("<figure>") == 5
    assert card.images.keys() == card.texts.keys()


def test_it_is_printed_and_written_whole(card: Scorecard, tmp_path: Path) -> None:
    assert card.text().startswith("split")
    for title in ("score", "captions", "pointing", "own captions"):
        assert f"\n\n{title} " in card.text()
        assert f"| {title} |" in card.markdown()
    assert "not computed: METEOR: needs Java" in card.markdown()
    written = card.write(tmp_path / "deep")
    names = ["results.json", "scores.json", "scores.md", "page.html"]
    assert written == [tmp_path / "deep" / name for name in names]
    tree = json.loads((tmp_path / "deep" / "scores.json").read_text(), parse_constant=pytest.fail)
    assert len(tree["images"]) == 5
    assert tree["images"][0]["scores"].keys() == {*NAMES}
    results = json.loads((tmp_path / "deep" / "results.json").read_text())
    assert [entry["image_id"] for entry in results] == [*card.texts]


def test_what_java_scores_joins_table_and_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(corpus: Corpus) -> tuple[float, np.ndarray]:
        return 0.5, np.linspace(0, 1, len(corpus.images))

    monkeypatch.setattr(module, "meteor", half)
    monkeypatch.setattr(module, "spice", half)
    texts = {"a": "a dog", "b": "a cat"}
    card = score_texts(texts, {"a": ["a dog"], "b": ["two men"]}, facts={})
    assert card.tables[0].rows["METEOR"]["score"].value == 50.0
    assert card.images["b"]["SPICE"] == 100.0
    assert "people" not in card.tables[0].columns  # of one reference an image none can be left out


def test_the_short_form_asks_for_no_java(
    monkeypatch: pytest.MonkeyPatch, make_picture: MakePicture
) -> None:
    monkeypatch.setattr(module, "meteor", pytest.fail)
    card = score_texts({"a": "a dog"}, {"a": ["a dog"]}, facts={}, everything=False)
    assert [table.title for table in card.tables] == ["score"]
    assert card.page is None


def test_what_cannot_be_computed_is_said(no_java: None, tmp_path: Path) -> None:
    """And a page of an older run does not stay beside other scores."""
    (tmp_path / "page.html").write_text("of other captions")
    card = score_texts({"a": "a dog"}, {"a": ["a dog"]}, facts={"split": "val"})
    assert [line.partition(":")[0] for line in card.missing] == [
        "METEOR",
        "METEOR",
        "people",
        "novel",
    ]
    assert "Novel" not in card.text()
    card.write(tmp_path)
    assert not (tmp_path / "page.html").exists()


def test_a_data_set_without_boxes_has_nothing_annotated(tmp_path: Path) -> None:
    data = DataSettings(kind="flickr8k", root=tmp_path)
    assert read_annotated(data, [Picture("a.jpg", tmp_path / "a.jpg", ("a dog",))]) is None
    assert training_tokens(data, split_captions) is None
