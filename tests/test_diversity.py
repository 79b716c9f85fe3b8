"""Variety counted by hand; people against people by hand and by the scores themselves."""

import math

import pytest

from showattend.corpus import ScoreError
from showattend.diversity import Diversity, diversity, human_scores
from showattend.metrics import NAMES


def _words(*captions: str) -> list[list[str]]:
    return [caption.split() for caption in captions]


def test_variety_by_hand() -> None:
    captions = _words("a dog runs", "a dog runs", "a cat", "a dog")
    training = _words("a dog runs", "a horse")
    assert diversity(captions, training) == Diversity(
        distinct=3, novel=2 / 4, vocabulary=4, length=10 / 4
    )


def test_without_training_captions_all_are_novel() -> None:
    assert diversity(_words("a"), []) == Diversity(distinct=1, novel=1.0, vocabulary=1, length=1.0)


def test_people_against_people_by_hand() -> None:
    """Turn 1: "a dog runs" against "a dog"; turn 2: the other way round. "a cat" is always right.

    In both turns "a" is in all references and "dog" in those of one image, so the first image's
    CIDEr-D has two orders of cosine 1/sqrt(2), one word too long or short.
    """
    scores = human_scores([_words("a dog runs", "a dog"), _words("a cat", "a cat")])
    shorter = math.exp(1 - 5 / 4)
    longer_rouge = 2.44 * 2 / 3 * 1 / (1 + 1.44 * 2 / 3)
    shorter_rouge = 2.44 * 1 * 2 / 3 / (2 / 3 + 1.44 * 1)
    cider = 10 * (2 / math.sqrt(2) / 4 * math.exp(-1 / 72) + 2 / 4) / 2
    assert list(scores) == list(NAMES)
    assert scores["BLEU-1"] == pytest.approx(100 * (4 / 5 + shorter) / 2)
    assert scores["BLEU-2"] == pytest.approx(100 * (math.sqrt(4 / 5 * 2 / 3) + shorter) / 2)
    assert scores["BLEU-3"] == scores["BLEU-4"] == 0.0
    assert scores["ROUGE-L"] == pytest.approx(100 * (longer_rouge + 1 + shorter_rouge + 1) / 4)
    assert scores["CIDEr-D"] == pytest.approx(100 * cider)


def test_a_caption_past_the_fewest_is_a_reference_alone() -> None:
    """The third caption of the first image is never scored, but always there to match."""
    scores = human_scores([_words("a dog", "one dog", "a dog one dog"), _words("a cat", "a cat")])
    assert scores["BLEU-1"] == scores["BLEU-2"] == pytest.approx(100.0)


@pytest.mark.parametrize("references", [[], [_words("a", "b"), _words("a")]])
def test_one_caption_has_nothing_to_be_compared_with(references: list[list[list[str]]]) -> None:
    with pytest.raises(ScoreError, match="only where every image has two or more"):
        human_scores(references)
