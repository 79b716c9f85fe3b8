"""How far a score would swing with other images: 95 % bootstrap intervals.

Images are drawn with replacement, as many as there are, and the score is computed anew; the
interval holds the middle 95 % of a thousand such scores (Efron and Tibshirani 1993, sec. 13.3, the
percentile interval; Koehn 2004 for BLEU). It says nothing of other seeds, runs or data sets.
"""

import numpy as np
from numpy.typing import ArrayLike

from showattend.metrics import NAMES, ORDERS, Overlap, Scores, bleu

Interval = tuple[float, float]  # low end, high end

RESAMPLES = 1000
COVERAGE = 0.95
_AT_ONCE = 2_000_000  # images drawn; 16 MB
_SEED = 0  # the same scores give the same interval


def ratio_interval(numerators: ArrayLike, denominators: ArrayLike) -> Interval:
    """The interval of sum(numerators) / sum(denominators), one of each an image: hits and trials.

    A draw of images without any trial has no ratio, and is passed over; where no image has a trial,
    both ends are NaN.
    """
    values_B2 = np.column_stack([numerators, denominators])
    if not values_B2[:, 1].any():
        return float("nan"), float("nan")
    sums_R2 = resampled_sums(values_B2)
    sums_R2 = sums_R2[sums_R2[:, 1] > 0]
    return middle((sums_R2[:, 0] / sums_R2[:, 1])[:, np.newaxis])[0]


def mean_interval(values: ArrayLike) -> Interval:
    """The interval of the mean of one value an image; NaN where there is none."""
    return ratio_interval(values, np.ones(np.shape(values)))


def score_intervals(scores: Scores) -> dict[str, Interval]:
    """The intervals of a corpus' scores, by the names in `metrics.NAMES`, times 100.

    BLEU comes from the n-gram counts of the images drawn, summed. ROUGE-L and CIDEr-D are means;
    CIDEr-D keeps the document frequencies of all images.
    """
    means = [
        mean_interval([image[name] for image in scores.images.values()])
        for name in NAMES[len(ORDERS) :]
    ]
    return dict(zip(NAMES, [*_bleu_intervals(scores.overlap), *means], strict=True))


def _bleu_intervals(overlap: Overlap) -> list[Interval]:
    counts = (overlap.testlen_B, overlap.reflen_B, overlap.guess_BO, overlap.correct_BO)
    testlen_R1, reflen_R1, guess_RO, correct_RO = np.split(
        resampled_sums(np.column_stack(counts)), [1, 2, 2 + len(ORDERS)], axis=1
    )
    drawn = Overlap(testlen_R1[:, 0], reflen_R1[:, 0], guess_RO, correct_RO)
    return middle(100.0 * bleu(drawn))


def resampled_sums(values_BM: np.ndarray) -> np.ndarray:
    """Sums over images drawn with replacement, shape (RESAMPLES, M).

    Of as many images always the same ones are drawn, so that what is summed can be compared.
    """
    rng = np.random.default_rng(_SEED)
    images = len(values_BM)
    chance_B = np.full(images, 1 / images)
    # How often each image is drawn; some resamples at once, as all of a large set fill the memory.
    rows = max(1, _AT_ONCE // images)
    sums = [
        rng.multinomial(images, chance_B, size=min(rows, RESAMPLES - done)) @ values_BM
        for done in range(0, RESAMPLES, rows)
    ]
    return np.concatenate(sums)


def middle(values_RM: np.ndarray) -> list[Interval]:
    """The middle of every column."""
    tail = (1 - COVERAGE) / 2
    low_M, high_M = np.quantile(values_RM, [tail, 1 - tail], axis=0)
    return list(zip(low_M.tolist(), high_M.tolist(), strict=True))
