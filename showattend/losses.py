"""What training minimises."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def word_loss(logits_NV: Tensor, words_N: Tensor, label_smoothing: float) -> Tensor:
    """Mean cross-entropy per word (nats), with uniform label smoothing (Szegedy et al. 2016)."""
    return F.cross_entropy(logits_NV, words_N, label_smoothing=label_smoothing)


def bag_of_words_loss(logits_BV: Tensor, words_BKT: Tensor, spoken_BKT: Tensor) -> Tensor:
    """Mean cross-entropy per word (nats) of all words of an image, told at once and in no order
    (Joulin et al. 2016, arXiv 1511.02251, eq. 1).

    Args:
        logits_BV: of the words that an image may be described by.
        words_BKT: those that it was described by.
        spoken_BKT: True where a word stands.
    """
    told_BN = logits_BV.log_softmax(dim=-1).gather(1, words_BKT.flatten(1))
    return -told_BN[spoken_BKT.flatten(1)].mean()


def word_losses(logits_NV: Tensor, words_N: Tensor, label_smoothing: float) -> Tensor:
    """The same of each word, (N,)."""
    return F.cross_entropy(logits_NV, words_N, label_smoothing=label_smoothing, reduction="none")


def entropies(alpha_NP: Tensor) -> Tensor:
    """-sum_i alpha_i ln alpha_i (nats) of the last axis: ln P for a flat map, 0 for one cell."""
    return -torch.xlogy(alpha_NP, alpha_NP.clamp_min(1e-30)).sum(dim=-1)


def doubly_stochastic_penalty(
    alpha_BKTP: Tensor,
    spoken_BKT: Tensor,
    target: Literal["one", "words_over_cells"],
    mask_BP: Tensor | None = None,
) -> Tensor:
    """Ask every cell for the same total weight over a caption (Xu et al. 2015, eq. 14).

    sum_i (target - sum_t alpha_ti)^2, summed over cells and averaged over captions; steps after a
    caption's end do not count. The paper's target is 1, which a caption of T words over P cells can
    only meet when T = P; "words_over_cells" asks for the T/P that there is to give. Either way the
    minimum is a flat map where T < P: see docs/attention.md before raising lambda.

    Args:
        alpha_BKTP: attention weights.
        spoken_BKT: True where a word stands.
        mask_BP: False where an image has no cell: none is asked for there, and P counts the others.
    """
    if mask_BP is None:
        mask_BP = torch.ones_like(alpha_BKTP[:, 0, 0], dtype=torch.bool)
    there_B1P = mask_BP.unsqueeze(1).to(alpha_BKTP.dtype)
    spoken = spoken_BKT.to(alpha_BKTP.dtype)
    total_BKP = (alpha_BKTP * spoken.unsqueeze(-1)).sum(dim=2)
    length_BK = spoken.sum(dim=2)
    wanted_BK = length_BK / there_B1P.sum(dim=-1)
    if target == "one":
        wanted_BK = torch.ones_like(length_BK)
    penalty_BK = ((wanted_BK.unsqueeze(-1) - total_BKP) * there_B1P).square().sum(dim=-1)
    return penalty_BK[length_BK > 0].mean()


def attention_loss(alpha_BKTP: Tensor, wanted_BKTP: Tensor) -> Tensor:
    """Cross-entropy (nats) of the weights against where people say the word's thing lies.

    -sum_i wanted_ti ln alpha_ti, the strong supervision of Liu et al. 2017 (arXiv 1605.09553, eqs.
    6 and 7), averaged over the words that have boxes; 0 where none has.

    Args:
        alpha_BKTP: attention weights.
        wanted_BKTP: what they should be; a word's sum to 1, or are all 0 where it has no box.
    """
    told = wanted_BKTP.sum(dim=-1) > 0
    if not told.any():
        return alpha_BKTP.new_zeros(())
    alpha_NP, wanted_NP = alpha_BKTP[told], wanted_BKTP[told]
    return -(wanted_NP * alpha_NP.clamp_min(1e-12).log()).sum(dim=-1).mean()
