"""Which words name a thing."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showattend.nouns import COCO_NOUNS, coco_nouns, known_nouns, singular


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("dogs", "dog"),
        ("puppies", "puppy"),
        ("ties", "tie"),
        ("benches", "bench"),
        ("dishes", "dish"),
        ("boxes", "box"),
        ("dresses", "dress"),
        ("horses", "horse"),
        ("vases", "vase"),
        ("buses", "bus"),
        ("men", "man"),
        ("women", "woman"),
        ("firemen", "fireman"),
        ("children", "child"),
        ("people", "person"),
        ("knives", "knife"),
        ("collies", "collie"),
    ],
)
def test_plurals_fold(plural: str, expected: str) -> None:
    assert singular(plural) == expected
    assert singular(expected) == expected


@pytest.mark.parametrize("word", ["grass", "bus", "tennis", "'s", "sheep", "a", "omen"])
def test_what_is_no_plural_stays(word: str) -> None:
    assert singular(word) == word


def test_there_are_cocos_80_categories() -> None:
    assert len(COCO_NOUNS) == 80
    names = [name for category, others in COCO_NOUNS.items() for name in (category, *others)]
    folded = [(*name.split()[:-1], singular(name.split()[-1])) for name in names]
    assert len(set(folded)) == len(folded)  # no name means two categories


@pytest.mark.parametrize("category", COCO_NOUNS)
def test_every_category_is_named_by_all_its_names(category: str) -> None:
    for name in (category, *COCO_NOUNS[category]):
        if name != "orange":
            words = ["a", *name.split(), "outside"]
            assert coco_nouns(words) == [(len(words) - 2, category)]


def test_coco_nouns_by_hand() -> None:
    said = "two men and a puppy eat hot dogs near a bike in orange shirts with oranges"
    assert coco_nouns(said.split()) == [
        (1, "person"),
        (4, "dog"),
        (7, "hot dog"),  # and no dog
        (10, "bicycle"),
        (15, "orange"),  # the other is a colour
    ]
    assert coco_nouns([]) == []
    assert coco_nouns(["traffic"]) == []


@given(st.lists(st.sampled_from(["hot", "dog", "dogs", "traffic", "light", "orange", "a"])))
def test_names_come_in_order_and_never_overlap(words: list[str]) -> None:
    positions = [position for position, _ in coco_nouns(words)]
    assert positions == sorted(set(positions))
    assert sum(name == "hot dog" for _, name in coco_nouns(words)) == sum(
        pair in (("hot", "dog"), ("hot", "dogs")) for pair in pairwise(words)
    )


def test_known_nouns_are_found_in_any_number() -> None:
    words = ["two", "dogs", "and", "a", "dog", "chase", "balls"]
    assert known_nouns(words, {"dog", "ball", "cat"}) == [(1, "dog"), (4, "dog"), (6, "ball")]
