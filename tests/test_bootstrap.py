"""Intervals by their coverage of a known truth, and by their width where theory gives it."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest

from showattend.bootstrap import mean_interval, ratio_interval, score_intervals
from showattend.corpus import make_corpus
from showattend.metrics import NAMES, Overlap, Scores, bleu, count_overlap, score_corpus
from showattend.references import read_references
from showattend.results import read_results

PARITY = Path(__file__).parent / "data" / "coco_caption_parity"
SAMPLES = 150
# Three standard deviations around a coverage of 94 %: percentile intervals are a little narrow.
FEWEST, MOST = (SAMPLES * (0.94 + side * 3 * math.sqrt(0.94 * 0.06 / SAMPLES)) for side in (-1, 1))


def test_the_means_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    intervals = [mean_interval(rng.gamma(2.0, size=60)) for _ in range(SAMPLES)]
    assert FEWEST <= sum(low <= 2.0 <= high for low, high in intervals) <= MOST


def test_a_ratios_interval_covers_the_truth() -> None:
    """Images that are hard or easy as a whole: their trials are not independent."""
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(SAMPLES):
        trials = rng.integers(0, 6, size=60)
        hits = rng.binomial(trials, rng.beta(1.2, 0.8, size=60))
        low, high = ratio_interval(hits, trials)
        covered += low <= 0.6 <= high
    assert FEWEST <= covered <= MOST


def test_bleus_interval_covers_the_truth() -> None:
    """The parity set's 1,000 images are the population, and BLEU of them all is the truth."""
    words = {
        kind: json.loads(
            (PARITY / f"en_captions_val2014_{kind}_after_tokenization.json").read_text("utf-8")
        )
        for kind in ("results", "references")
    }
    everything = count_overlap(
        [words["results"][image][0].split() for image in words["references"]],
        [[c.split() for c in captions] for captions in words["references"].values()],
    )
    truth = 100 * bleu(everything.total())[0]
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(SAMPLES):
        low, high = score_intervals(_scores(_part(everything, rng.integers(1000, size=60))))[
            "BLEU-1"
        ]
        covered += low <= truth <= high
    assert FEWEST <= covered <= MOST


def _part(overlap: Overlap, images: np.ndarray) -> Overlap:
    return Overlap(
        overlap.testlen_B[images],
        overlap.reflen_B[images],
        overlap.guess_BO[images],
        overlap.correct_BO[images],
    )


def _scores(overlap: Overlap) -> Scores:
    images = dict.fromkeys(range(len(overlap.testlen_B)), dict.fromkeys(NAMES, 0.0))
    return Scores(corpus={}, images=dict(images), overlap=overlap)


def test_a_means_interval_is_as_wide_as_the_normal_one() -> None:
    """Of 1,000 images: 1.96 standard errors to each side."""
    values = np.random.default_rng(4).normal(10.0, 3.0, size=1000)
    low, high = mean_interval(values)
    error = values.std() / math.sqrt(1000)
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)


def test_a_ratios_interval_is_as_wide_as_the_normal_one() -> None:
    """The delta method: the variance of hits - ratio x trials, over the mean of the trials."""
    rng = np.random.default_rng(5)
    trials = rng.integers(1, 20, size=1000)
    hits = rng.binomial(trials, 0.3)
    low, high = ratio_interval(hits, trials)
    ratio = hits.sum() / trials.sum()
    error = (hits - ratio * trials).std() / trials.mean() / math.sqrt(1000)
    assert low == pytest.approx(ratio - 1.96 * error, abs=0.2 * error)
    assert high == pytest.approx(ratio + 1.96 * error, abs=0.2 * error)


def test_a_set_too_large_to_draw_at_once_has_the_same_width() -> None:
    """It is drawn in parts, which must not repeat each other."""
    values = np.random.default_rng(6).normal(0.0, 1.0, size=10_000)
    low, high = mean_interval(values)
    assert high - low == pytest.approx(2 * 1.96 / 100, rel=0.1)


def test_equal_values_leave_no_doubt() -> None:
    assert mean_interval([2.5] * 7) == (2.5, 2.5)
    assert ratio_interval([1, 2], [2, 4]) == (0.5, 0.5)


def test_the_same_values_give_the_same_interval() -> None:
    assert mean_interval([0.0, 1.0, 5.0]) == mean_interval([0.0, 1.0, 5.0])


def test_draws_without_a_trial_are_passed_over() -> None:
    """A quarter of the draws hold the second image twice."""
    assert ratio_interval([1, 0], [2, 0]) == (0.5, 0.5)


@pytest.mark.parametrize("values", [[], [0, 0]])
def test_nothing_tried_has_no_interval(values: list[int]) -> None:
    assert all(map(math.isnan, ratio_interval(values, values)))
    assert all(map(math.isnan, mean_interval([])))


def test_the_parity_sets_scores_lie_inside_their_intervals() -> None:
    results = read_results(PARITY / "captions_val2014_fakecap_results.json")
    references = read_references(PARITY / "en_captions_val2014.json")
    scores = score_corpus(make_corpus(results, references))
    intervals = score_intervals(scores)
    assert list(intervals) == list(NAMES)
    for name, (low, high) in intervals.items():
        assert low < scores.corpus[name] < high
        assert high - low < 0.25 * scores.corpus[name]


@pytest.mark.slow
def test_a_thousand_images_take_under_a_second() -> None:
    hits, trials = np.arange(1000) % 3, np.full(1000, 2)
    began = time.process_time()
    ratio_interval(hits, trials)
    seconds = time.process_time() - began
    print(f"1,000 resamples of 1,000 images took {seconds:.3f} s")
    assert seconds < 1.0
