"""Boxes to the cells of the grid."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend.boxes import Box, Grounded, Phrase
from showattend.pointing import cover
from showattend.supervision import on_square, wanted_attention

some = settings(max_examples=60, deadline=None)  # a busy machine is no failure

sides = st.tuples(st.floats(-0.2, 1.2), st.floats(-0.2, 1.2)).map(sorted)
boxes = st.builds(lambda x, y: (x[0], y[0], x[1], y[1]), sides, sides)


def phrase(first: int, end: int, *where: Box) -> Phrase:
    return Phrase("a dog", (first, end), first, ("animals",), where)


def test_every_word_of_a_phrase_wants_its_boxes() -> None:
    right = phrase(1, 3, (0.5, 0.0, 1.0, 1.0))
    wanted_BKTP = wanted_attention([[(right,), ()], [()]], captions=2, words=4, height=1, width=2)
    assert wanted_BKTP.shape == (2, 2, 4, 2)
    assert wanted_BKTP[0, 0].tolist() == [[0, 0], [0, 1], [0, 1], [0, 0]]
    assert wanted_BKTP.sum() == 2


def test_a_phrase_beyond_the_last_word_is_cut() -> None:
    late = phrase(3, 6, (0.0, 0.0, 0.5, 1.0))
    wanted_BKTP = wanted_attention([[(late,)]], captions=1, words=4, height=1, width=2)
    assert wanted_BKTP[0, 0].tolist() == [[0, 0], [0, 0], [0, 0], [1, 0]]


def test_a_box_outside_of_the_grid_asks_for_nothing() -> None:
    outside = phrase(0, 1, (1.0, 0.0, 1.2, 1.0))
    assert not wanted_attention([[(outside,)]], captions=1, words=1, height=2, width=2).any()


@some
@given(where=st.lists(boxes, min_size=1, max_size=3))
def test_a_words_weights_sum_to_one_or_to_nothing(where: list[Box]) -> None:
    wanted_BKTP = wanted_attention(
        [[(phrase(0, 1, *where),)]], captions=1, words=1, height=5, width=4
    )
    total = wanted_BKTP.sum().item()
    assert total == pytest.approx(1.0, abs=1e-5) or cover(where, 5, 4).sum() < 1e-8


def test_boxes_are_those_of_the_part_that_is_seen() -> None:
    """Of a photograph twice as wide as high, a crop sees the middle half."""
    caption = Grounded(1, "a dog", ("a", "dog"), (phrase(0, 2, (0.5, 0.0, 1.0, 0.5)),))
    (seen,) = on_square(caption, (0.25, 0.0, 0.75, 1.0)).phrases
    assert seen.boxes == ((0.5, 0.0, 1.0, 0.5),)
    assert seen.words == (0, 2)
