"""How models look, by hand."""

import math

import numpy as np
import pytest

from showattend.gaze import cells_visited, distance, peak_weight
from showattend.search import Caption, Regions


def caption(words: str, weights: list[list[float]], grid: tuple[int, int] = (2, 2)) -> Caption:
    weights_TP = np.array(weights)
    return Caption(tuple(words.split()), -1.0, weights_TP, weights_TP, None, Regions(*grid))


LEFT, RIGHT, FLAT = [0.5, 0.0, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5], [0.25] * 4
PEAK = [1.0, 0.0, 0.0, 0.0]


def test_peak_and_cells() -> None:
    said = [caption("a dog", [PEAK, [0.1, 0.2, 0.3, 0.4]]), caption("a", [PEAK])]
    assert peak_weight(said) == pytest.approx((1.0 + 0.4 + 1.0) / 3)
    assert cells_visited(said) == 1.5


def test_cells_are_of_the_weights_and_the_peak_of_alpha() -> None:
    alpha_TP = np.array([[0.4, 0.3, 0.2, 0.1]] * 2)
    weights_TP = np.array([PEAK, [0.0, 0.0, 0.0, 1.0]])
    hard = Caption(("a", "dog"), -1.0, weights_TP, alpha_TP, None, Regions(2, 2))
    assert (peak_weight([hard]), cells_visited([hard])) == (pytest.approx(0.4), 2.0)


def test_distance_is_the_weight_that_lies_elsewhere() -> None:
    ours = caption("a dog on grass", [LEFT, LEFT, FLAT, FLAT])
    theirs = caption("a cat on grass", [LEFT, LEFT, LEFT, RIGHT])
    assert distance(ours, theirs) == pytest.approx((0.0 + 0.5 + 0.5) / 3)  # a, on, grass
    assert distance(ours, ours) == 0.0


def test_the_second_of_a_word_is_held_against_the_second() -> None:
    ours = caption("a dog a cat", [LEFT, FLAT, RIGHT, FLAT])
    theirs = caption("a man a dog", [LEFT, FLAT, RIGHT, FLAT])
    assert distance(ours, theirs) == 0.0
    assert distance(ours, caption("the dog a a", [FLAT, FLAT, RIGHT, LEFT])) == pytest.approx(2 / 3)


def test_two_words_in_common_are_too_few() -> None:
    ours, theirs = caption("a dog", [LEFT, LEFT]), caption("a dog runs", [LEFT, LEFT, LEFT])
    assert math.isnan(distance(ours, theirs))


def test_grids_of_other_sizes_are_compared_by_area() -> None:
    fine = caption("a b c", [[0.25, 0.25, 0, 0] * 2] * 3, (2, 4))
    coarse = caption("a b c", [LEFT] * 3)
    assert distance(fine, coarse) == 0.0
    three = caption("a b c", [[1.0, 0.0, 0.0]] * 3, (1, 3))
    assert distance(coarse, three) == pytest.approx(1 / 3)  # a half against its first third
