"""Words and ids: what is counted, in which order, and what comes back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend.tokenizer import ptb_tokens
from showattend.vocabulary import END, PAD, SPECIALS, START, UNKNOWN, Vocabulary, mirror_words

many = settings(max_examples=100, deadline=None)  # a busy machine is no failure

words = st.text("abcdefghij", min_size=1, max_size=6)
captions = st.lists(words, max_size=8).map(" ".join)


def test_the_four_specials_come_first() -> None:
    vocabulary = Vocabulary(["dog"])
    assert vocabulary.words == ("<pad>", "<start>", "<end>", "<unk>", "dog")
    assert (PAD, START, END, UNKNOWN) == (0, 1, 2, 3)
    assert len(vocabulary) == 5


def test_words_are_ordered_by_falling_count_then_by_the_alphabet() -> None:
    said = ["a cat and a dog", "The dog sees a cat.", "zebra", "Zebra"]
    # a 3, cat dog zebra 2, and sees the 1
    assert Vocabulary.count(said, 1).words[4:] == (
        "a",
        "cat",
        "dog",
        "zebra",
        "and",
        "sees",
        "the",
    )
    assert Vocabulary.count(said, 2).words[4:] == ("a", "cat", "dog", "zebra")
    assert Vocabulary.count(said, 3).words[4:] == ("a",)
    assert len(Vocabulary.count(said, 4)) == 4


def test_counting_is_by_the_scorers_words() -> None:
    assert Vocabulary.count(["A man's dog isn't HERE."], 1).words[4:] == (
        "'s",
        "a",
        "dog",
        "here",
        "is",
        "man",
        "n't",
    )


@many
@given(st.lists(captions, max_size=6), st.integers(1, 3))
def test_the_order_of_captions_does_not_matter(said: list[str], least: int) -> None:
    vocabulary = Vocabulary.count(said, least)
    assert Vocabulary.count(said[::-1], least).words == vocabulary.words
    spoken = " ".join(said).split()
    assert set(vocabulary.words[4:]) == {word for word in spoken if spoken.count(word) >= least}


def test_unseen_words_become_the_unknown_word(vocabulary: Vocabulary) -> None:
    assert vocabulary.encode("A dog on the grass!") == [4, 5, 7, UNKNOWN, 8]
    assert vocabulary.encode("") == []
    assert vocabulary.encode_words(["dog", "Dog", "a dog"]) == [5, UNKNOWN, UNKNOWN]


def test_words_spelled_alike_are_near() -> None:
    vocabulary = Vocabulary(["puppy", "dog", "pup", "grass"])
    assert vocabulary.near("pupy") == ["puppy", "pup"]
    assert vocabulary.near("zebra") == []
    assert vocabulary.near("<ukn>") == []


def test_a_caption_that_spells_a_special_is_no_mark(vocabulary: Vocabulary) -> None:
    said = "a <end> <pad> <start> <unk> dog"
    assert ptb_tokens(said) == said.split()  # else this test would ask nothing
    assert vocabulary.encode(said) == [4, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, 5]
    assert Vocabulary.count([said], 1).words == (*SPECIALS, "a", "dog")


@many
@given(st.lists(st.sampled_from(["a", "dog", "cat", "on", "grass"]), max_size=9))
def test_known_words_come_back(spoken: list[str]) -> None:
    vocabulary = Vocabulary(["a", "dog", "cat", "on", "grass"])
    ids = vocabulary.encode(" ".join(spoken))
    assert vocabulary.decode(ids) == tuple(spoken)
    assert vocabulary.decode([START, *ids, END, 5, 5]) == tuple(spoken)
    assert vocabulary.decode([*ids, PAD, PAD]) == tuple(spoken)


def test_the_unknown_word_is_shown(vocabulary: Vocabulary) -> None:
    assert vocabulary.decode([4, UNKNOWN, END]) == ("a", "<unk>")


@pytest.mark.parametrize("listed", [["dog", "dog"], ["<end>"]])
def test_a_word_has_one_id(listed: list[str]) -> None:
    with pytest.raises(ValueError, match="twice"):
        Vocabulary(listed)


@many
@given(st.lists(words, unique=True), st.lists(words, unique=True))
def test_grown_keeps_ids_and_adds_what_is_new(mine: list[str], theirs: list[str]) -> None:
    one, other = Vocabulary(mine), Vocabulary(theirs)
    grown = one.grown(other)
    assert grown.words[: len(one)] == one.words
    assert list(grown.words[len(one) :]) == [word for word in theirs if word not in mine]


def test_mirroring_swaps_left_and_right_and_nothing_else() -> None:
    assert mirror_words("A dog to the LEFT of a cat.") == "a dog to the right of a cat"
    assert mirror_words("right, then left") == "left then right"
    assert mirror_words("a bright dog has left-handed kin") == "a bright dog has left-handed kin"


@many
@given(st.lists(st.sampled_from(["left", "right", "dog", "n't", "'s"]), max_size=8))
def test_mirrored_twice_is_the_same_words(spoken: list[str]) -> None:
    said = " ".join(spoken)
    assert mirror_words(mirror_words(said)) == " ".join(ptb_tokens(said))
    assert len(ptb_tokens(mirror_words(said))) == len(ptb_tokens(said))


@pytest.mark.parametrize("word", ["", "a b", "a\nb", "\x1b[31m", "a\u2028b"])
def test_what_cannot_be_shown_as_one_word_is_no_word(word: str) -> None:
    with pytest.raises(ValueError, match="a word is empty"):
        Vocabulary([word])
    assert Vocabulary.count([f"dog {word} dog"], 2).words == (*SPECIALS, "dog")
