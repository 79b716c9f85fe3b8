"""Is one model better than another, or were the images kind to it? The paired bootstrap.

Both sides are scored on the same images drawn with replacement, a thousand times, so what makes an
image hard for both falls out of their difference (Koehn 2004, sec. 4; Efron and Tibshirani 1993).
A side is one run of a model, or several with other seeds: then runs are drawn too, and the
difference's interval covers the choice of both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from showattend.bootstrap import RESAMPLES, Interval, middle, resampled_sums
from showattend.metrics import NAMES, ORDERS, Overlap, Scores, bleu

_SEED = 1  # of the runs that are drawn; the images have their own


@dataclass(frozen=True)
class Difference:
    """How much higher a score is on one side than on the other.

    Attributes:
        value: the difference of the scores.
        interval: the middle 95 % of the differences on other images (and of other runs).
        p: how likely a difference at least as large, either way, is where there is none.
    """

    value: float
    interval: Interval
    p: float


@dataclass(frozen=True)
class Drawn:
    """A side's scores, in the order of its names: S of them.

    Attributes:
        score_S: the mean of its runs' scores.
        run_KS: those of each of its K runs.
        score_RS: the side's on each resample.
    """

    names: Sequence[str]
    score_S: np.ndarray
    run_KS: np.ndarray
    score_RS: np.ndarray

    def intervals(self) -> dict[str, Interval]:
        """The middle 95 % of every score; for one run `bootstrap.score_intervals`."""
        return dict(zip(self.names, middle(self.score_RS), strict=True))

    def deviations(self) -> dict[str, float]:
        """The standard deviation over runs (of a sample: K - 1); NaN where there is only one."""
        runs = len(self.run_KS)
        spread_S = self.run_KS.std(axis=0, ddof=1) if runs > 1 else np.full(len(self.names), np.nan)
        return dict(zip(self.names, spread_S.tolist(), strict=True))


def draw(
    runs: Sequence[Scores], means: Sequence[Mapping[str, np.ndarray]] = (), *, place: int = 0
) -> Drawn:
    """Score a side on images, and on as many of its runs, drawn with replacement.

    BLEU comes from the n-gram counts of the images drawn, summed. ROUGE-L and CIDEr-D are means;
    CIDEr-D keeps the document frequencies of all images. Sides of as many images are drawn the same
    ones.

    Of K > 1 runs K - 1 are drawn: K of them would vary by (K - 1)/K of what the mean of K runs does
    (McCarthy and Snowden 1985; Rao and Wu 1988), which of two runs is half.

    Args:
        runs: the scores of each run, of the same images in the same order.
        means: for every run, more scores of which the corpus' is the mean: name -> (B,).
        place: of the side among those compared, whose runs are drawn independently.
    """
    extra = means or [{} for _ in runs]
    values = [_values(run, more) for run, more in zip(runs, extra, strict=True)]
    images, columns = values[0].shape
    whole_KS = np.stack([_score(values_BM.sum(axis=0), images) for values_BM in values])
    sums_RKM = resampled_sums(np.hstack(values)).reshape(RESAMPLES, len(runs), columns)
    often_RK = _draw_runs(len(runs), place)
    score_RS = np.einsum("rk,rks->rs", often_RK, _score(sums_RKM, images))
    return Drawn((*NAMES, *extra[0]), whole_KS.mean(axis=0), whole_KS, score_RS)


def compare(ours: Drawn, theirs: Drawn) -> dict[str, Difference]:
    """How much higher every score of ours is than theirs.

    p is two-sided, from the bootstrap distribution moved to where there is no difference: the share
    of resamples whose difference lies at least as far from the one that was found as that lies from
    0 (Efron and Tibshirani 1993, sec. 16.4), one resample more counted on top and below, so that it
    is never 0 (Davison and Hinkley 1997, eq. 4.11).
    """
    value_S = ours.score_S - theirs.score_S
    drawn_RS = ours.score_RS - theirs.score_RS
    beyond_S = (np.abs(drawn_RS - value_S) >= np.abs(value_S)).sum(axis=0)
    p_S = (1 + beyond_S) / (1 + len(drawn_RS))
    found = zip(value_S.tolist(), middle(drawn_RS), p_S.tolist(), strict=True)
    return dict(zip(ours.names, (Difference(*each) for each in found), strict=True))


def _values(scores: Scores, means: Mapping[str, np.ndarray]) -> np.ndarray:
    """What every image adds to the sums that scores are made of, (B, M)."""
    overlap = scores.overlap
    averaged = [[image[name] for image in scores.images.values()] for name in NAMES[len(ORDERS) :]]
    counts = (overlap.testlen_B, overlap.reflen_B, overlap.guess_BO, overlap.correct_BO)
    return np.column_stack([*counts, *averaged, *means.values()]).astype(np.float64)


def _score(sums_XM: np.ndarray, images: int) -> np.ndarray:
    """The scores, times 100, of sums over some images: (..., M) -> (..., S)."""
    orders = len(ORDERS)
    overlap = Overlap(
        sums_XM[..., 0],
        sums_XM[..., 1],
        sums_XM[..., 2 : 2 + orders],
        sums_XM[..., 2 + orders : 2 + 2 * orders],
    )
    means_XS = sums_XM[..., 2 + 2 * orders :] / images
    return np.concatenate([100.0 * bleu(overlap), means_XS], axis=-1)


def _draw_runs(runs: int, place: int) -> np.ndarray:
    """How much each run counts in each resample, (R, K); a row sums to 1."""
    drawn = max(1, runs - 1)
    rng = np.random.default_rng([_SEED, place])
    return rng.multinomial(drawn, np.full(runs, 1 / runs), size=RESAMPLES) / drawn
