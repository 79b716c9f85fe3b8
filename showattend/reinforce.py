"""Training hard attention: gradients through a choice that has none (Xu et al. 2015, section 4.1).

A path s is a cell for every word. What is raised is the bound on log p(y|a), with a bonus:

    J = E_s~alpha [ R(s) ],    R(s) = sum_t ( log p(y_t | s, a) + lambda_e H[alpha_t] )

Its gradient is the mean over paths of dR + R d log p(s|a) (Williams 1992). Any baseline b that does
not know the path may be taken from R: the mean stays, the variance falls.

    dR + lambda_r (R - b) d log p(s|a)

With lambda_r = 1, and no image set to its expectation, this is unbiased; tests/test_reinforce.py
compares it with the exact gradient over all paths. Where labels are smoothed, log p is the smoothed
loss, negated.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from showattend.attention import Choice, argmax, gumbel, partly_expected, sample, straight_through
from showattend.config import HardSettings
from showattend.decoder import Decoder, Scene, Taught
from showattend.losses import entropies, word_losses

#: b <- 0.9 b + 0.1 R (Xu et al. 2015, section 4.1).
_KEPT = 0.9


@dataclass(frozen=True)
class Episode:
    """Captions told along sampled paths.

    Attributes:
        taught: of all paths; path s of caption k is row k * S + s.
        objective_BKT: log p(y_t) + lambda_e H_t of every word, with gradients; 0 beyond the end.
        sampled_B: False for images that were set to their expectation.
    """

    taught: Taught
    objective_BKT: Tensor
    sampled_B: Tensor


class MovingAverage:
    """The average return of earlier batches, one for each number of words in the return.

    The paper has one average for all captions; a caption of twenty words has twice the loss of one
    of ten, whatever was looked at, and how many words a return sums is known before the path is.
    """

    def __init__(self, words: int) -> None:
        """Args: words: T, the most words a caption may have, end mark included."""
        self.mean_T1 = torch.full((words + 1,), torch.nan)
        self.forget()

    def of(self, count_BKT: Tensor) -> Tensor:
        """The baseline of returns that sum ``count`` words; 0 where there was none before."""
        return self.mean_T1.to(count_BKT.device)[count_BKT].nan_to_num(0.0)

    def add(self, returns_N: Tensor, count_N: Tensor) -> None:
        """Note a batch's returns; the baseline stays until :meth:`take_in`."""
        count_N, returns_N = count_N.cpu(), returns_N.detach().float().cpu()
        self._total_T1.index_add_(0, count_N, returns_N.double())
        self._seen_T1 += torch.bincount(count_N, minlength=len(self.mean_T1))

    def take_in(self, over_all: Callable[[Tensor], Tensor] = lambda own: own) -> None:
        """Move the average by what was noted since: once an update, after its returns were used.

        Args:
            over_all: sums numbers over the processes that train together, so that the average is
                the same in each of them.
        """
        total_T1, seen_T1 = over_all(torch.stack([self._total_T1, self._seen_T1]))
        batch_T1 = (total_T1 / seen_T1).float()  # NaN where none was seen
        moved_T1 = _KEPT * self.mean_T1 + (1 - _KEPT) * batch_T1
        first_T1 = torch.where(self.mean_T1.isnan(), batch_T1, moved_T1)
        self.mean_T1 = torch.where(seen_T1 > 0, first_T1, self.mean_T1)
        self.forget()

    def forget(self) -> None:
        """What was noted since the average was moved."""
        self._total_T1, self._seen_T1 = (
            torch.zeros(len(self.mean_T1), dtype=torch.float64) for _ in range(2)
        )


def hard_attention_step(
    decoder: Decoder,
    scene: Scene,
    words_BKT: Tensor,
    settings: HardSettings,
    average: MovingAverage,
    *,
    label_smoothing: float = 0.0,
    sampling: float = 0.0,
    progress: float = 0.0,
) -> tuple[Tensor, Taught]:
    """What to minimise for one batch, as a mean per word, and what was told.

    Its value means little, its gradient is what counts: minus that of J, estimated.

    Args:
        average: the moving-average baseline; this batch's returns are noted in it.
        sampling: of words, as in :func:`showattend.decoder.teach`.
        progress: 0..1 over the training; moves the expectation's chance, cools the Gumbel-softmax.
    """
    words_BKT = words_BKT.repeat_interleave(settings.samples, dim=1)

    def told(choose: Choice, sampled_B: Tensor) -> Episode:
        taught = decoder.teach(scene, words_BKT, sampling, choose)
        losses_N = word_losses(taught.logits_NV, taught.targets_N, label_smoothing)
        objective_BKT = taught.place(-losses_N.float())
        if settings.entropy:
            entropy_BKTH = entropies(taught.alpha_BKTHP.float())
            objective_BKT = objective_BKT + settings.entropy * entropy_BKTH.sum(dim=-1)
        return Episode(taught, objective_BKT, sampled_B)

    chance_B = torch.rand(len(words_BKT), device=words_BKT.device)
    first, last = settings.expectation
    sampled_B = chance_B >= first + (last - first) * progress
    episode = told(partly_expected(_choice(settings, progress), ~sampled_B), sampled_B)
    surrogate_BKT = episode.objective_BKT
    if settings.estimator == "reinforce" and settings.reinforce:
        greedy = None
        if settings.baseline == "self_critical":
            with torch.no_grad():
                greedy = told(argmax, sampled_B)
        surrogate_BKT = surrogate_BKT + settings.reinforce * _score_term(
            episode, settings, average, greedy
        )
    return -surrogate_BKT.sum() / episode.taught.spoken_BKT.sum(), episode.taught


def _choice(settings: HardSettings, progress: float) -> Choice:
    match settings.estimator:
        case "reinforce":
            return sample
        case "gumbel":
            first, last = settings.temperature
            return gumbel(first * (last / first) ** progress)
        case "straight_through":
            return straight_through


def _score_term(
    episode: Episode, settings: HardSettings, average: MovingAverage, greedy: Episode | None
) -> Tensor:
    """(R - b) log p(s_t | a), (B, K, T): only its gradient matters."""
    spoken_BKT = episode.taught.spoken_BKT
    looked_BKT = spoken_BKT & episode.sampled_B[:, None, None]
    return_BKT, count_BKT = returns(episode.objective_BKT, spoken_BKT, to_go=settings.reward_to_go)
    match settings.baseline:
        case "none":
            baseline_BKT = torch.zeros_like(return_BKT)
        case "moving_average":
            baseline_BKT = average.of(count_BKT)
            average.add(return_BKT[looked_BKT], count_BKT[looked_BKT])
        case "self_critical":
            assert greedy is not None
            baseline_BKT, _ = returns(greedy.objective_BKT, spoken_BKT, to_go=settings.reward_to_go)
        case "leave_one_out":
            baseline_BKT = leave_one_out(return_BKT, settings.samples)
    return (return_BKT - baseline_BKT) * episode.taught.log_chosen_BKT * looked_BKT


def returns(objective_BKT: Tensor, spoken_BKT: Tensor, *, to_go: bool) -> tuple[Tensor, Tensor]:
    """What each look is rewarded with, and how many words' worth that is; both (B, K, T).

    Args:
        to_go: the words from the look's own on: those before it do not depend on it (Sutton et al.
            1999). Otherwise those of the whole caption, as in the paper.
    """
    reward_BKT, count_BKT = objective_BKT.detach(), spoken_BKT.long()
    if to_go:
        sums = (value.flip(-1).cumsum(dim=-1).flip(-1) for value in (reward_BKT, count_BKT))
    else:
        sums = (
            value.sum(dim=-1, keepdim=True).expand_as(value) for value in (reward_BKT, count_BKT)
        )
    return_BKT, count_BKT = sums
    return return_BKT, count_BKT


def leave_one_out(return_BKT: Tensor, samples: int) -> Tensor:
    """The mean return of the caption's other paths (Mnih and Rezende 2016; Kool et al. 2019)."""
    return_BKST = return_BKT.view(len(return_BKT), -1, samples, return_BKT.shape[-1])
    total_BK1T = return_BKST.sum(dim=2, keepdim=True)
    return ((total_BK1T - return_BKST) / (samples - 1)).flatten(1, 2)
