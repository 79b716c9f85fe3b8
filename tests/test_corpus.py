"""Captions paired with references, as words; and those that cannot be paired."""

from collections.abc import Sequence

import pytest

from showattend.corpus import ImageId, ScoreError, make_corpus


def test_pairs_by_id_in_the_candidates_order() -> None:
    corpus = make_corpus(
        {2: "A cat.", "1.jpg": "A man's dog"}, {"1.jpg": ["a dog", "one dog!"], 2: ("Cats",)}
    )
    assert corpus.images == (2, "1.jpg")
    assert corpus.candidates == [["a", "cat"], ["a", "man", "'s", "dog"]]
    assert corpus.references == [[["cats"]], [["a", "dog"], ["one", "dog"]]]


def test_another_tokenizer_is_asked_once() -> None:
    asked = []

    def letters(captions: Sequence[str]) -> list[list[str]]:
        asked.append(list(captions))
        return [list(caption) for caption in captions]

    corpus = make_corpus({1: "ab", 2: ""}, {2: ["c", "de"], 1: ["f"]}, letters)
    assert asked == [["ab", "", "f", "c", "de"]]
    assert corpus.candidates == [["a", "b"], []]
    assert corpus.references == [[["f"]], [["c"], ["d", "e"]]]


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({}, {}, "there are no captions to score"),
        (
            {1: "a"},
            {1: ["a"], 7: ["b"]},
            "1 image(s) of the references have no caption, for example 7",
        ),
        (
            {"1": "a", "b": "c", "a": "c"},
            {"1": ["a"]},
            "2 image(s) of the captions are unknown to the references, for example 'a'",
        ),
        (
            {1: "a", 2: "b"},
            {1: [], 2: ["b"]},
            "1 image(s) have no reference caption, for example 1",
        ),
        (
            {1: "a"},
            {1: "a"},
            "1 image(s) have one string as references: expected a list of captions, for example 1",
        ),
    ],
)
def test_captions_that_cannot_be_scored(
    candidates: dict[ImageId, str], references: dict[ImageId, list[str]], message: str
) -> None:
    with pytest.raises(ScoreError) as error:
        make_corpus(candidates, references)
    assert str(error.value) == message
