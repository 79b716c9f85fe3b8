"""Attention in three steps: score every cell, softmax, weighted sum.

Between the last two stands a choice: soft attention takes all cells by their weights, hard
attention one of them.

The scores need the cells' keys and the decoder's state (`scores`); keys and values do not depend on
the word, so they are computed once per image, outside the word loop.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: What is looked at, given alpha (B, K, H, P): rows that sum to 1, of the same shape.
Choice = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Look:
    """What one look of K queries takes in: the context, and where it came from.

    ``alpha_BKHP`` is the distribution of every head; ``chosen_BKHP`` is what was made of it: the
    same, or 1 at one cell.
    """

    context_BKC: Tensor
    alpha_BKHP: Tensor
    chosen_BKHP: Tensor


def attend(
    scores_BHKP: Tensor,
    values_BHPc: Tensor,
    mask_BP: Tensor | None,
    choose: Choice,
    glimpse: Callable[[Tensor], Tensor],
) -> Look:
    """Softmax, choice, weighted sum (Xu et al. 2015, eqs. 5 and 13); the heads' contexts are laid
    side by side.

    Args:
        values_BHPc: what is summed up: every head has its own c = C / H of the cells' channels.
        mask_BP: False where there is no cell; such places get a weight of exactly 0. None: all are.
    """
    if mask_BP is not None:
        scores_BHKP = scores_BHKP.masked_fill(~mask_BP[:, None, None, :], -torch.inf)
    alpha_BKHP = scores_BHKP.softmax(dim=-1).transpose(1, 2)
    chosen_BKHP = choose(alpha_BKHP)
    context_BHKc = glimpse(chosen_BKHP).transpose(1, 2) @ values_BHPc
    return Look(context_BHKc.transpose(1, 2).flatten(2), alpha_BKHP, chosen_BKHP)


def heads_of(values_BPC: Tensor, heads: int) -> Tensor:
    """(B, P, C) -> (B, H, P, C / H): every head has its own slice of the channels."""
    return values_BPC.unflatten(-1, (heads, -1)).transpose(1, 2)


def expectation(alpha_BKHP: Tensor) -> Tensor:
    """Soft attention: all cells, each by its weight (Xu et al. 2015, eq. 13)."""
    return alpha_BKHP


def argmax(alpha_BKHP: Tensor) -> Tensor:
    """Hard attention at inference: the one likeliest cell."""
    return one_cell(alpha_BKHP.argmax(dim=-1), alpha_BKHP)


def sample(alpha_BKHP: Tensor) -> Tensor:
    """Hard attention: one cell, s_t ~ Categorical(alpha_t) (Xu et al. 2015, eq. 8)."""
    cell_N1 = torch.multinomial(alpha_BKHP.detach().flatten(0, -2), 1)
    return one_cell(cell_N1.view(alpha_BKHP.shape[:-1]), alpha_BKHP)


def straight_through(alpha_BKHP: Tensor) -> Tensor:
    """The likeliest cell, through which gradients pass as if it were soft attention (Bengio et al.
    2013, arXiv 1308.3432, section 4). Biased, without variance; training reads what a test reads.
    """
    return argmax(alpha_BKHP) + (alpha_BKHP - alpha_BKHP.detach())  # the difference is exactly 0


def gumbel(temperature: float) -> Choice:
    """A sampled cell through which gradients pass as if it were soft: straight-through
    Gumbel-softmax (Jang et al. 2017, arXiv 1611.01144, section 2.2). Biased, of low variance.
    """

    def choose(alpha_BKHP: Tensor) -> Tensor:
        log_alpha_BKHP = alpha_BKHP.clamp_min(torch.finfo(alpha_BKHP.dtype).tiny).log()
        return F.gumbel_softmax(log_alpha_BKHP, tau=temperature, hard=True)

    return choose


def partly_expected(choose: Choice, expected_B: Tensor) -> Choice:
    """The expectation for some images, a choice for the others (Xu et al. 2015, section 4.1)."""

    def mixed(alpha_BKHP: Tensor) -> Tensor:
        # teach() goes on with the leading images only, those whose captions are not over.
        expected_B111 = expected_B[: len(alpha_BKHP), None, None, None]
        return torch.where(expected_B111, alpha_BKHP, choose(alpha_BKHP))

    return mixed


def one_cell(cell_X: Tensor, like_XP: Tensor) -> Tensor:
    """1 at the cell and 0 elsewhere, (..., P)."""
    return torch.zeros_like(like_XP).scatter_(-1, cell_X.unsqueeze(-1), 1.0)


class Glimpse(nn.Module):
    """What a look at a cell takes in: the mean of the n x n cells around it.

    At the grid's border the window is cut, and the mean is that of the cells within.

    Args:
        height, width: rows and columns of the grid, P = height * width.
        side: n, odd; 1 is the cell alone.
    """

    windows_PP: Tensor

    def __init__(self, height: int, width: int, side: int) -> None:
        super().__init__()
        near_hh, near_ww = (
            (torch.arange(n) - torch.arange(n).unsqueeze(1)).abs() <= side // 2
            for n in (height, width)
        )
        windows_PP = torch.kron(near_hh.float(), near_ww.float())
        windows_PP = windows_PP / windows_PP.sum(dim=1, keepdim=True)
        self.side = side
        self.register_buffer("windows_PP", windows_PP, persistent=False)

    def forward(self, chosen_XP: Tensor) -> Tensor:
        """The weight of every cell in the context, (..., P)."""
        return chosen_XP if self.side == 1 else chosen_XP @ self.windows_PP
