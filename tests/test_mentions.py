"""What captions mention, counted by hand on one drawn-up image."""

import numpy as np
import pytest

from showattend.boxes import Box, Grounded, Phrase
from showattend.mentions import (
    Mentioned,
    Thing,
    category_things,
    head_nouns,
    mention_shares,
    mentions,
    phrase_things,
)
from showattend.search import Caption, Regions

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
LEFT: Box = (0.0, 0.0, 0.5, 1.0)
RIGHT: Box = (0.5, 0.0, 1.0, 1.0)
CORNER: Box = (0.9, 0.9, 1.0, 1.0)


def caption_of(text: str, *columns: int) -> Caption:
    """Looks, for each word, at one of the two columns of a 1x2 grid."""
    alpha = np.eye(2, dtype=np.float32)[list(columns)]
    return Caption(tuple(text.split()), -1.0, alpha, alpha, None, Regions(1, 2))


def sentence(text: str, *phrases: tuple[tuple[int, int], int, Box]) -> Grounded:
    words = tuple(text.split())
    return Grounded(
        "1.jpg",
        text,
        words,
        tuple(
            Phrase(" ".join(words[slice(*where)]), where, head, ("other",), (box,))
            for where, head, box in phrases
        ),
    )


SENTENCES = [
    sentence("a black dog with two balls", ((0, 3), 2, LEFT), ((4, 6), 5, RIGHT)),
    sentence("a puppy in black", ((0, 2), 1, LEFT), ((3, 4), 3, CORNER)),
    sentence("the black cap", ((0, 3), 2, CORNER)),
]


def test_things_are_what_phrases_with_the_same_boxes_name() -> None:
    assert phrase_things(SENTENCES) == [
        Thing(frozenset({"dog", "puppy"}), (LEFT,)),
        Thing(frozenset({"ball"}), (RIGHT,)),
        Thing(frozenset({"black", "cap"}), (CORNER,)),
    ]


def test_things_of_coco_are_categories() -> None:
    assert category_things({"dog": (LEFT, RIGHT)}) == [Thing(frozenset({"dog"}), (LEFT, RIGHT))]


def test_nouns_head_phrases_more_often_than_not() -> None:
    # "black" heads one phrase of three.
    assert head_nouns({"1.jpg": SENTENCES}) == {"dog", "ball", "puppy", "cap"}


def test_mentions_by_hand() -> None:
    caption = caption_of("a dog and a dog see balls and a cat", 0, 0, 0, 0, 1, 0, 0, 0, 0, 1)
    nouns = [(1, "dog"), (4, "dog"), (6, "ball"), (9, "cat")]
    # The first dog is looked at, the second and the ball are not; there is no cat.
    expected = Mentioned(nouns=4, named=3, hits=1, things=3, mentioned=2)
    assert mentions(caption, nouns, phrase_things(SENTENCES), WHOLE) == expected


def test_what_cannot_be_seen_does_not_count() -> None:
    caption = caption_of("a ball", 0, 0)
    things = phrase_things(SENTENCES)
    # Of the left half, the ball and the cap are gone.
    assert mentions(caption, [(1, "ball")], things, LEFT) == Mentioned(1, 0, 0, 1, 0)


def test_shares_over_captions() -> None:
    table = mention_shares({1: Mentioned(4, 3, 1, 3, 2), 2: Mentioned(1, 1, 1, 5, 1)})
    assert list(table) == ["peak in box", "precision", "recall"]
    assert table["peak in box"].value == pytest.approx(2 / 4)
    assert table["precision"].value == pytest.approx(4 / 5)
    assert table["recall"].value == pytest.approx(3 / 8)
    assert table["recall"].denominators_N.tolist() == [3, 5]
