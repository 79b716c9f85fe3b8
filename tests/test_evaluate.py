"""Captioning a split and scoring it."""

import math
from pathlib import Path

import numpy as np
import pytest
from conftest import MakePicture

from showattend import evaluate as module
from showattend.checkpoint import Checkpoint
from showattend.datasets import ImageId, Picture
from showattend.evaluate import attention_entropy, caption_split, score_split
from showattend.grids import Grids, cache_grids, live_grids
from showattend.metrics import NAMES, score_captions
from showattend.search import Caption, Regions, beam_search


def caption(words: str, alpha_TP: list[list[float]]) -> Caption:
    alpha = np.array(alpha_TP, dtype=np.float32)
    return Caption(tuple(words.split()), -1.0, alpha, alpha, None, Regions(1, alpha.shape[1]))


def test_entropy_is_that_of_the_mean_word() -> None:
    """A flat map over four cells has ln 4, one cell alone 0, two halves ln 2."""
    flat, sure, halves = [0.25] * 4, [0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.5, 0.0]
    assert attention_entropy([caption("a", [flat])]) == pytest.approx(math.log(4))
    assert attention_entropy([caption("a", [sure])]) == 0.0
    both = [caption("a dog runs", [flat, sure, halves]), caption("a", [sure])]
    assert attention_entropy(both) == pytest.approx((math.log(4) + math.log(2)) / 4)


@pytest.fixture
def grids(checkpoint: Checkpoint, make_picture: MakePicture, tmp_path: Path) -> Grids:
    pictures = [make_picture(f"{seed}.png", seed) for seed in range(5)]
    return cache_grids(checkpoint.captioner, checkpoint.pixels, pictures, tmp_path / "cache")


def test_every_picture_gets_its_best_caption(
    checkpoint: Checkpoint, grids: Grids, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BATCH", 2)  # batches of 2, 2 and 1
    captioner, words, search = checkpoint.captioner, checkpoint.vocabulary, checkpoint.search
    captions = caption_split(captioner, words, grids, search)
    assert list(captions) == [f"{seed}.png" for seed in range(5)]
    for position, picture in enumerate(grids.pictures):
        ((best, *_),) = beam_search(
            captioner, words, captioner.look(grids.read([position])), search
        )
        found = captions[picture.image_id]
        assert found.words == best.words
        assert found.log_prob == pytest.approx(best.log_prob, abs=1e-4)
        np.testing.assert_allclose(found.alpha, best.alpha, atol=1e-5)


def test_the_first_ones_alone_where_a_count_is_given(checkpoint: Checkpoint, grids: Grids) -> None:
    captions = caption_split(
        checkpoint.captioner, checkpoint.vocabulary, grids, checkpoint.search, count=2
    )
    assert list(captions) == ["0.png", "1.png"]
    scores = score_split(captions, grids.pictures)  # the others' references are not missed
    assert scores.keys() == {*NAMES, "attention entropy"}


def test_dropout_is_off(checkpoint: Checkpoint, grids: Grids) -> None:
    """Validation comes after an epoch in training mode."""

    def log_probs() -> list[float]:
        checkpoint.captioner.train()
        found = caption_split(checkpoint.captioner, checkpoint.vocabulary, grids, checkpoint.search)
        return [caption.log_prob for caption in found.values()]

    assert log_probs() == log_probs()


def test_grids_of_a_trained_cnn_give_the_same(checkpoint: Checkpoint, grids: Grids) -> None:
    live = live_grids(checkpoint.captioner, checkpoint.pixels, grids.pictures, "fatal")
    cached, computed = (
        caption_split(checkpoint.captioner, checkpoint.vocabulary, each, checkpoint.search)
        for each in (grids, live)
    )
    assert cached.keys() == computed.keys()
    for one, other in zip(cached.values(), computed.values(), strict=True):
        assert one.log_prob == pytest.approx(other.log_prob, abs=0.02)  # fp16 on disk


def test_scores_are_on_texts_and_raw_references() -> None:
    alpha = [[0.5, 0.5]]
    captions: dict[ImageId, Caption] = {
        1: caption("a man 's dog", alpha * 4),
        2: caption("a cat on grass", alpha * 4),
    }
    pictures = [
        Picture(2, Path("2.jpg"), ("A cat on GRASS!", "One cat.")),
        Picture(1, Path("1.jpg"), ("A man's dog.",)),
    ]
    scores = score_split(captions, pictures)
    assert scores["BLEU-4"] == pytest.approx(100.0)
    assert scores["attention entropy"] == pytest.approx(math.log(2))
    expected = score_captions(
        {1: "a man's dog", 2: "a cat on grass"},
        {1: ["A man's dog."], 2: ["A cat on GRASS!", "One cat."]},
    )
    assert {name: scores[name] for name in expected} == expected
