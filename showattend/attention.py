"""Attention in three steps: score every cell, softmax, weighted sum.

The scores need the grid's keys and the decoder's state; the keys do not depend on the word, so they
are projected once per image, outside the word loop.
"""

import torch
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


def soft_attention(scores_BKP: Tensor, grid_BPC: Tensor) -> tuple[Tensor, Tensor]:
    """alpha = softmax(e), z = sum_i alpha_i a_i (Xu et al. 2015, eqs. 5 and 13).

    Returns:
        The context (B, K, C) and the weights alpha (B, K, P), each row of which sums to 1.
    """
    alpha_BKP = scores_BKP.softmax(dim=-1)
    return torch.bmm(alpha_BKP, grid_BPC), alpha_BKP
