"""Differences by theory, and their p by how often it cries wolf."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from showattend.bootstrap import RESAMPLES, resampled_sums, score_intervals
from showattend.corpus import make_corpus
from showattend.metrics import NAMES, ORDERS, Overlap, Scores, bleu, score_corpus
from showattend.paired import Drawn, compare, draw
from showattend.references import read_references
from showattend.results import read_results

PARITY = Path(__file__).parent / "data" / "coco_caption_parity"
IMAGES, TRIALS = 300, 1000


@pytest.fixture(scope="module")
def real() -> Scores:
    """A system's captions of 300 photographs."""
    return _scored(lambda words: words)


@pytest.fixture(scope="module")
def rival(real: Scores) -> Scores:
    """The same captions with words changed in half of them: as good on some, worse on others."""
    rng = np.random.default_rng(1)

    def change(words: list[str]) -> list[str]:
        return words if rng.random() < 0.5 else [*words[:-2], "in", "the", "street"]

    return _scored(change)


def _scored(change: Callable[[list[str]], list[str]]) -> Scores:
    results = read_results(PARITY / "captions_val2014_fakecap_results.json")
    references = read_references(PARITY / "en_captions_val2014.json")
    some = list(references)[:IMAGES]
    texts = {image: " ".join(change(results[image].split())) for image in some}
    return score_corpus(make_corpus(texts, {image: references[image] for image in some}))


def _of_means(values_B: np.ndarray) -> Scores:
    """Scores of which only CIDEr-D is not 0."""
    images = len(values_B)
    none_B, none_BO = np.ones(images), np.zeros((images, len(ORDERS)))
    return Scores(
        corpus={},
        images={
            k: dict.fromkeys(NAMES, 0.0) | {"CIDEr-D": float(value)}
            for k, value in enumerate(values_B)
        },
        overlap=Overlap(none_B, none_B, none_BO, none_BO),
    )


def test_a_means_difference_is_that_of_the_normal_test() -> None:
    """Images' scores that differ by d_B: a mean of 2.2 standard errors has p = 0.0278."""
    rng = np.random.default_rng(2)
    hard_B, d_B = rng.normal(50, 30, size=(2, 1000))
    d_B = (d_B - d_B.mean()) / d_B.std()
    error = 1 / math.sqrt(len(d_B))
    found = compare(draw([_of_means(hard_B + d_B + 2.2 * error)]), draw([_of_means(hard_B)]))
    cider = found["CIDEr-D"]
    assert cider.value == pytest.approx(2.2 * error)
    low, high = cider.interval
    assert low == pytest.approx((2.2 - 1.96) * error, abs=0.2 * error)
    assert high == pytest.approx((2.2 + 1.96) * error, abs=0.2 * error)
    assert cider.p == pytest.approx(0.0278, abs=0.015)
    assert found["ROUGE-L"].p == 1.0  # 0 on both sides


def test_the_same_captions_do_not_differ(real: Scores) -> None:
    for found in compare(draw([real]), draw([real])).values():
        assert (found.value, found.interval, found.p) == (0.0, (0.0, 0.0), 1.0)


def test_swapped_sides_differ_the_other_way(real: Scores, rival: Scores) -> None:
    one, other = draw([real]), draw([rival])
    for there, back in zip(compare(one, other).values(), compare(other, one).values(), strict=True):
        assert there.value == -back.value
        assert there.interval == pytest.approx([-end for end in reversed(back.interval)])
        assert there.p == back.p


def test_a_crippled_side_is_found_out(real: Scores) -> None:
    crippled = _scored(lambda words: words[: len(words) // 2])
    for found in compare(draw([real]), draw([crippled])).values():
        assert found.p == pytest.approx(1 / (RESAMPLES + 1))
        assert found.interval[0] > 0


def test_one_runs_scores_and_intervals_are_the_corpus_own(real: Scores) -> None:
    drawn = draw([real])
    assert dict(zip(drawn.names, drawn.score_S, strict=True)) == pytest.approx(real.corpus)
    for name, interval in score_intervals(real).items():
        assert drawn.intervals()[name] == pytest.approx(interval)


def test_p_cries_wolf_as_often_as_it_says(real: Scores, rival: Scores) -> None:
    """Where each image's two captions change sides at random there is no difference, and p < 0.05
    should come up in 5 % of the trials, of every score."""
    a_BM, b_BM = _sums(real), _sums(rival)
    rng = np.random.default_rng(3)
    swapped_TB = rng.random((TRIALS, IMAGES)) < 0.5
    alarms = np.zeros(len(NAMES))
    for swapped_B in np.split(swapped_TB, 20):
        sides_TBM = [
            np.where(swapped_B[..., None], one_BM, other_BM)
            for one_BM, other_BM in ((a_BM, b_BM), (b_BM, a_BM))
        ]
        ours, theirs = (_drawn(side_TBM) for side_TBM in sides_TBM)
        for (one, drawn_RS), (other, others_RS) in zip(ours, theirs, strict=True):
            sides = (
                Drawn(NAMES, one, one[None], drawn_RS),
                Drawn(NAMES, other, other[None], others_RS),
            )
            alarms += [found.p < 0.05 for found in compare(*sides).values()]
    rate = dict(zip(NAMES, (alarms / TRIALS).tolist(), strict=True))
    print(f"p < 0.05 where there is no difference: {rate}")
    assert all(0.03 <= share <= 0.07 for share in rate.values()), rate


def _sums(scores: Scores) -> np.ndarray:
    overlap = scores.overlap
    means = [[image[name] for image in scores.images.values()] for name in NAMES[len(ORDERS) :]]
    counts = (overlap.testlen_B, overlap.reflen_B, overlap.guess_BO, overlap.correct_BO)
    return np.column_stack([*counts, *means])


def _drawn(values_TBM: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """`draw` of many sides at once, by a formula of its own: observed (S,) and drawn (R, S)."""
    trials, images, columns = values_TBM.shape
    sums_RTM = resampled_sums(values_TBM.transpose(1, 0, 2).reshape(images, -1)).reshape(
        RESAMPLES, trials, columns
    )
    return [
        (_score(values_BM.sum(axis=0)), _score(sums_RTM[:, trial]))
        for trial, values_BM in enumerate(values_TBM)
    ]


def _score(sums_XM: np.ndarray) -> np.ndarray:
    test, ref = sums_XM[..., 0], sums_XM[..., 1]
    guess, correct, means = np.split(sums_XM[..., 2:], [4, 8], axis=-1)
    return np.concatenate([100 * bleu(Overlap(test, ref, guess, correct)), means / IMAGES], axis=-1)


# --- several runs ---------------------------------------------------------------------------------


def test_runs_spread_the_interval() -> None:
    """Of equal images only the runs are drawn: K = 4 runs' mean has an error of their deviation
    over 2, which drawing K - 1 of them keeps."""
    runs = [_of_means(np.full(50, value)) for value in (10.0, 12.0, 14.0, 16.0)]
    drawn = draw(runs)
    place = NAMES.index("CIDEr-D")
    deviation = math.sqrt(20 / 3)
    assert drawn.score_S[place] == 13.0
    assert drawn.run_KS[:, place].tolist() == [10.0, 12.0, 14.0, 16.0]
    assert drawn.deviations()["CIDEr-D"] == pytest.approx(deviation)
    assert drawn.score_RS[:, place].std() == pytest.approx(deviation / 2, rel=0.1)
    assert math.isnan(draw(runs[:1]).deviations()["CIDEr-D"])


def test_two_runs_spread_as_their_mean_does() -> None:
    drawn = draw([_of_means(np.full(50, value)) for value in (10.0, 12.0)])
    found = drawn.score_RS[:, NAMES.index("CIDEr-D")]
    assert set(found.round(6)) == {10.0, 12.0}
    assert found.std() == pytest.approx(1.0, rel=0.05)  # sqrt(2) over sqrt(2)


def test_a_difference_within_the_seeds_is_none() -> None:
    """A gap that is certain on these images, and no larger than that between a model's runs."""
    one, other = (
        [_of_means(np.full(50, value)) for value in values]
        for values in ((10.0, 14.0, 18.0), (11.0, 15.0, 19.0))
    )
    assert compare(draw(one[:1], place=0), draw(other[:1], place=1))["CIDEr-D"].p < 0.01
    assert compare(draw(one, place=0), draw(other, place=1))["CIDEr-D"].p > 0.3


def test_sides_draw_their_runs_independently() -> None:
    runs = [_of_means(np.full(50, value)) for value in (10.0, 12.0, 17.0)]
    found = compare(draw(runs, place=0), draw(runs, place=1))["CIDEr-D"]
    assert found.value == 0.0 and found.interval[0] < -1 < 1 < found.interval[1]


def test_more_means_join_the_scores(real: Scores) -> None:
    extra = {"METEOR": np.arange(IMAGES, dtype=float)}
    drawn = draw([real], [extra])
    assert drawn.names[-1] == "METEOR"
    assert drawn.score_S[-1] == pytest.approx((IMAGES - 1) / 2)
