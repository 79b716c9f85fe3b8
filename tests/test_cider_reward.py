"""The reward against the scorer of whole corpora, which equals the official one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from showattend.cider_reward import CiderReward
from showattend.metrics import cider_d
from showattend.tokenizer import ptb_tokens
from showattend.vocabulary import Vocabulary

WORDS = ["a", "dog", "red", "on", "grass", "two"]
VOCABULARY = Vocabulary(WORDS)
sentences = st.lists(st.sampled_from([*WORDS, "zebra", "yak"]), min_size=1, max_size=9).map(
    " ".join
)
spoken = st.lists(st.sampled_from(WORDS), max_size=9)


@given(
    st.lists(st.tuples(st.lists(sentences, min_size=1, max_size=4), spoken), min_size=1, max_size=5)
)
def test_it_is_the_scorers_number(images: list[tuple[list[str], list[str]]]) -> None:
    references = [said for said, _ in images]
    _, expected = cider_d(
        [words for _, words in images], [[ptb_tokens(each) for each in said] for said in references]
    )
    reward = CiderReward(references, VOCABULARY)
    found = [reward.score(i, VOCABULARY.encode_words(words)) for i, (_, words) in enumerate(images)]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_by_hand() -> None:
    """Two images; "dog" is in one of them: rarity ln 2; "a" is in both: 0."""
    reward = CiderReward([["a dog"], ["a grass"]], VOCABULARY)
    # "a dog": cosine 1 for words and pairs, no longer n-grams; (1 + 1 + 0 + 0) / 4 * 10.
    assert reward.score(0, VOCABULARY.encode("a dog")) == pytest.approx(5.0)
    # "dog": cosine 1 for words alone, one word shorter: exp(-1 / 72).
    expected = 2.5 * math.exp(-1 / 72)
    assert reward.score(0, VOCABULARY.encode("dog")) == pytest.approx(expected)
    assert reward.score(1, VOCABULARY.encode("a dog")) == 0.0


def test_with_the_end_mark_a_caption_that_breaks_off_scores_less() -> None:
    references = [["a red dog on grass"], ["two dogs"], ["a zebra"]]
    whole, broken = (VOCABULARY.encode(text) for text in ("a red dog", "a red dog on"))
    plain, marked = (CiderReward(references, VOCABULARY, end_mark=end) for end in (False, True))
    assert plain.score(0, broken) > plain.score(0, whole)
    full = VOCABULARY.encode("a red dog on grass")
    gap = [reward.score(0, full) - reward.score(0, broken) for reward in (plain, marked)]
    assert gap[1] > gap[0]


def test_scores_are_of_every_caption_of_every_image() -> None:
    reward = CiderReward([["a dog"], ["two red dogs on grass"]], VOCABULARY)
    captions = [[VOCABULARY.encode("red"), VOCABULARY.encode("a dog")]] * 2
    scores_BK = reward.scores([1, 0], captions)
    assert scores_BK.dtype == np.float32
    expected = [
        [reward.score(i, ids) for ids in each] for i, each in zip((1, 0), captions, strict=True)
    ]
    np.testing.assert_allclose(scores_BK, expected, rtol=1e-6)
