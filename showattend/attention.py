"""Attention in three steps: score every cell, softmax, weighted sum.

Between the last two stands a choice: soft attention takes all cells by their weights, hard
attention one of them.

The scores need the grid's keys and the decoder's state; the keys do not depend on the word, so they
are projected once per image, outside the word loop.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AdditiveScore(nn.Module):
    """e_ti = v . tanh(W a_i + U h), Bahdanau et al. 2015 (arXiv 1409.0473), app. A.1.2, used by
    Xu et al. 2015 as f_att (eq. 4). ``v`` has no bias: softmax would cancel it, its gradient is 0.

    Args:
        cells: C, width of a grid cell.
        query: Q, width of the query.
        width: A, width of the hidden layer.
    """

    def __init__(self, *, cells: int, query: int, width: int) -> None:
        super().__init__()
        self.key = nn.Linear(cells, width)
        self.query = nn.Linear(query, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)

    def keys(self, grid_BPC: Tensor) -> Tensor:
        """W a_i, (B, P, A): once per image."""
        keys_BPA: Tensor = self.key(grid_BPC)
        return keys_BPA

    def forward(self, query_BKQ: Tensor, keys_BPA: Tensor) -> Tensor:
        """Scores (B, K, P) of every cell for each of an image's K queries."""
        query_BK1A = self.query(query_BKQ).unsqueeze(2)
        scores_BKP1: Tensor = self.v(torch.tanh(keys_BPA.unsqueeze(1) + query_BK1A))
        return scores_BKP1.squeeze(-1)


#: What is looked at, given alpha (B, K, P): rows that sum to 1, of the same shape.
Choice = Callable[[Tensor], Tensor]


def expectation(alpha_BKP: Tensor) -> Tensor:
    """Soft attention: all cells, each by its weight (Xu et al. 2015, eq. 13)."""
    return alpha_BKP


def argmax(alpha_BKP: Tensor) -> Tensor:
    """Hard attention at inference: the one likeliest cell."""
    return one_cell(alpha_BKP.argmax(dim=-1), alpha_BKP)


def sample(alpha_BKP: Tensor) -> Tensor:
    """Hard attention: one cell, s_t ~ Categorical(alpha_t) (Xu et al. 2015, eq. 8)."""
    cell_N1 = torch.multinomial(alpha_BKP.detach().flatten(0, 1), 1)
    return one_cell(cell_N1.view(alpha_BKP.shape[:2]), alpha_BKP)


def straight_through(alpha_BKP: Tensor) -> Tensor:
    """The likeliest cell, through which gradients pass as if it were soft attention (Bengio et al.
    2013, arXiv 1308.3432, section 4). Biased, without variance; training reads what a test reads.
    """
    return argmax(alpha_BKP) + (alpha_BKP - alpha_BKP.detach())  # the difference is exactly 0


def gumbel(temperature: float) -> Choice:
    """A sampled cell through which gradients pass as if it were soft: straight-through
    Gumbel-softmax (Jang et al. 2017, arXiv 1611.01144, section 2.2). Biased, of low variance.
    """

    def choose(alpha_BKP: Tensor) -> Tensor:
        log_alpha_BKP = alpha_BKP.clamp_min(torch.finfo(alpha_BKP.dtype).tiny).log()
        return F.gumbel_softmax(log_alpha_BKP, tau=temperature, hard=True)

    return choose


def partly_expected(choose: Choice, expected_B: Tensor) -> Choice:
    """The expectation for some images, a choice for the others (Xu et al. 2015, section 4.1)."""

    def mixed(alpha_BKP: Tensor) -> Tensor:
        # teach() goes on with the leading images only, those whose captions are not over.
        expected_B11 = expected_B[: len(alpha_BKP), None, None]
        return torch.where(expected_B11, alpha_BKP, choose(alpha_BKP))

    return mixed


def one_cell(cell_BK: Tensor, like_BKP: Tensor) -> Tensor:
    """1 at the cell and 0 elsewhere, (B, K, P)."""
    return torch.zeros_like(like_BKP).scatter_(-1, cell_BK.unsqueeze(-1), 1.0)


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

    def forward(self, chosen_BKP: Tensor) -> Tensor:
        """The weight of every cell in the context, (B, K, P)."""
        return chosen_BKP if self.side == 1 else chosen_BKP @ self.windows_PP
