"""Score functions: how well each cell fits what the decoder asks for.

Each has two parts. ``keys`` depends on the cells alone and is computed once per image, outside the
word loop; ``forward`` compares the keys with the queries. With H heads the width A is cut into H
slices, and every head scores by its own slice (Vaswani et al. 2017, arXiv 1706.03762, section
3.2.2); one head is the plain function.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from showattend.attention import heads_of
from showattend.config import ScoreName


class Score(nn.Module):
    """A score function of H heads.

    Args:
        cells: C, width of a cell.
        query: Q, width of the query.
        width: A, width of that in which the two are compared; H divides it.
        heads: H.
    """

    def __init__(self, *, cells: int, query: int, width: int, heads: int = 1) -> None:
        super().__init__()
        self.heads = heads

    def keys(self, cells_BPC: Tensor) -> Tensor:
        """What the queries are compared with, once per image; its first axis is B."""
        raise NotImplementedError

    def forward(self, query_BKQ: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, K, P) of every cell for each of an image's K queries."""
        raise NotImplementedError


class AdditiveScore(Score):
    """e_ti = v . tanh(W a_i + U h), Bahdanau et al. 2015 (arXiv 1409.0473), app. A.1.2, used by
    Xu et al. 2015 as f_att (eq. 4). ``v`` has no bias: softmax would cancel it, its gradient is 0.
    """

    def __init__(self, *, cells: int, query: int, width: int, heads: int = 1) -> None:
        super().__init__(cells=cells, query=query, width=width, heads=heads)
        self.key = nn.Linear(cells, width)
        self.query = nn.Linear(query, width, bias=False)
        self.v = nn.Linear(width // heads, heads, bias=False)  # a row for each head

    def keys(self, cells_BPC: Tensor) -> Tensor:
        """W a_i, (B, P, A)."""
        keys_BPA: Tensor = self.key(cells_BPC)
        return keys_BPA

    def forward(self, query_BKQ: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, K, P)."""
        hidden_BKPA = torch.tanh(keys.unsqueeze(1) + self.query(query_BKQ).unsqueeze(2))
        if self.heads == 1:
            scores_BKP1: Tensor = self.v(hidden_BKPA)
            return scores_BKP1.squeeze(-1).unsqueeze(1)
        hidden_BKPHd = hidden_BKPA.unflatten(-1, (self.heads, -1))
        return (hidden_BKPHd * self.v.weight).sum(dim=-1).permute(0, 3, 1, 2)


class DotScore(Score):
    """e_ti = (W_q h) . (W_k a_i): the dot product, of projections so that any widths fit."""

    def __init__(self, *, cells: int, query: int, width: int, heads: int = 1) -> None:
        super().__init__(cells=cells, query=query, width=width, heads=heads)
        # A bias of the key would add the same to all cells' scores: softmax would cancel it.
        self.key = nn.Linear(cells, width, bias=False)
        self.query = nn.Linear(query, width, bias=False)

    def keys(self, cells_BPC: Tensor) -> Tensor:
        """W_k a_i, (B, H, P, A / H)."""
        return heads_of(self.key(cells_BPC), self.heads).contiguous()

    def forward(self, query_BKQ: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, K, P)."""
        return heads_of(self.query(query_BKQ), self.heads) @ keys.transpose(2, 3)


class ScaledDotScore(DotScore):
    """The same over the root of a head's width, e_ti = q . k_i / sqrt(d), which keeps the softmax
    from the ends where it has no gradient (Vaswani et al. 2017, eq. 1).
    """

    def forward(self, query_BKQ: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, K, P)."""
        return super().forward(query_BKQ, keys) * keys.shape[-1] ** -0.5


class CosineScore(DotScore):
    """e_ti = cos(q, k_i) / tau, with a learned temperature tau for each head.

    tau starts at 0.1: with 1 the scores would lie between -1 and 1, and no cell could stand out.
    """

    def __init__(self, *, cells: int, query: int, width: int, heads: int = 1) -> None:
        super().__init__(cells=cells, query=query, width=width, heads=heads)
        self.log_tau_H = nn.Parameter(torch.full((heads,), math.log(0.1)))

    def keys(self, cells_BPC: Tensor) -> Tensor:
        """k_i / |k_i|, (B, H, P, A / H)."""
        return F.normalize(super().keys(cells_BPC), dim=-1)

    def forward(self, query_BKQ: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, K, P)."""
        query_BHKd = F.normalize(heads_of(self.query(query_BKQ), self.heads), dim=-1)
        return query_BHKd @ keys.transpose(2, 3) / self.log_tau_H.exp()[:, None, None]


class GeneralScore(Score):
    """e_ti = h^T W a_i, bilinear: of any two widths (Luong et al. 2015, arXiv 1508.04025, eq. 8).

    It compares in the cells' own width: A is not used, and H divides C.
    """

    def __init__(self, *, cells: int, query: int, width: int, heads: int = 1) -> None:
        super().__init__(cells=cells, query=query, width=width, heads=heads)
        self.query = nn.Linear(query, cells, bias=False)

    def keys(self, cells_BPC: Tensor) -> Tensor:
        """The cells themselves, (B, H, P, C / H)."""
        return heads_of(cells_BPC, self.heads)

    def forward(self, query_BKQ: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, K, P)."""
        return heads_of(self.query(query_BKQ), self.heads) @ keys.transpose(2, 3)


class LocationScore(Score):
    """e_i = u . W_k a_i: a learned vector in place of the query, so every word looks alike."""

    def __init__(self, *, cells: int, query: int, width: int, heads: int = 1) -> None:
        super().__init__(cells=cells, query=query, width=width, heads=heads)
        self.key = nn.Linear(cells, width, bias=False)
        self.u = nn.Linear(width // heads, heads, bias=False)  # a row for each head

    def keys(self, cells_BPC: Tensor) -> Tensor:
        """The scores (B, H, P): no word changes them."""
        keys_BHPd = heads_of(self.key(cells_BPC), self.heads)
        return (keys_BHPd * self.u.weight.unsqueeze(1)).sum(dim=-1)

    def forward(self, query_BKQ: Tensor, keys: Tensor) -> Tensor:
        """Scores (B, H, K, P)."""
        return keys.unsqueeze(2).expand(-1, -1, query_BKQ.shape[1], -1)


SCORES: dict[ScoreName, type[Score]] = {
    "additive": AdditiveScore,
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "cosine": CosineScore,
    "general": GeneralScore,
    "location": LocationScore,
}
