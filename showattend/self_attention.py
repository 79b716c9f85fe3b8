"""Self-attention: every place of a sequence, or of a grid, looks at the others; and the sinusoids
that say where each place lies (Vaswani et al. 2017, arXiv 1706.03762, sections 3.2 and 3.5).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from showattend.attention import heads_of


class SelfAttention(nn.Module):
    """Multi-head scaled dot-product self-attention.

    Args:
        width: E, of what comes in and goes out; H divides it.
        heads: H.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x_NTE: Tensor, *, causal: bool = False) -> Tensor:
        """All places at once; ``causal`` lets each look at itself and those before it only."""
        query, key, value = self.project(x_NTE)
        mixed_NHTd = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.join(mixed_NHTd)

    def project(self, x_NTE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (N, H, T, d)."""
        parts = self.query_key_value(x_NTE).chunk(3, dim=-1)
        query, key, value = (heads_of(part, self.heads) for part in parts)
        return query, key, value

    def join(self, mixed_NHTd: Tensor) -> Tensor:
        """The heads side by side, through W_o."""
        joined_NTE: Tensor = self.out(mixed_NHTd.transpose(1, 2).flatten(2))
        return joined_NTE

    def weights(self, x_NTE: Tensor, *, causal: bool = False) -> Tensor:
        """(N, H, T, T): what every place (row) looks at (column); rows sum to 1 (eq. 1)."""
        query, key, _ = self.project(x_NTE)
        scores_NHTT = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
        if causal:
            later_TT = torch.ones_like(scores_NHTT[0, 0], dtype=torch.bool).triu(1)
            scores_NHTT = scores_NHTT.masked_fill(later_TT, -torch.inf)
        return scores_NHTT.softmax(dim=-1)


class FeedForward(nn.Module):
    """W_2 dropout(relu(W_1 x)), at each place (section 3.3).

    Args:
        width: E, of what comes in and goes out.
        hidden: width within.
    """

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.enter = nn.Linear(width, hidden)
        self.leave = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.dropout(torch.relu(self.enter(x))))


class GridBlock(nn.Module):
    """Cells look at each other before the decoder looks at them: self-attention and feed-forward,
    each with dropout, Add & Norm (Vaswani et al. 2017, section 3.1).
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.feed_forward = FeedForward(width, 2 * width, dropout)
        self.attended = nn.LayerNorm(width)
        self.fed = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, cells_BPC: Tensor) -> Tensor:
        cells_BPC = self.attended(cells_BPC + self.dropout(self.attention(cells_BPC)))
        return self.fed(cells_BPC + self.dropout(self.feed_forward(cells_BPC)))


class GridSelfAttention(nn.Module):
    """Some `GridBlock`s, after each cell was told where it lies.

    Args:
        height, width: rows and columns of the grid.
        cells: C; 4 divides it.
        blocks: how many.
    """

    places_PC: Tensor

    def __init__(
        self, *, height: int, width: int, cells: int, heads: int, blocks: int, dropout: float
    ) -> None:
        super().__init__()
        self.register_buffer("places_PC", grid_positions(height, width, cells), persistent=False)
        self.blocks = nn.Sequential(*(GridBlock(cells, heads, dropout) for _ in range(blocks)))

    def forward(self, cells_BPC: Tensor) -> Tensor:
        mixed_BPC: Tensor = self.blocks(cells_BPC + self.places_PC)
        return mixed_BPC


def positions(count: int, width: int) -> Tensor:
    """(count, width): sines, then cosines, of wavelengths from 2 pi to 10,000 times that.

    The paper's formula but for the order of the channels (section 3.5).
    """
    rate_w = 10_000 ** -(torch.arange(width // 2) / (width // 2))
    angle_tw = torch.arange(count).unsqueeze(1) * rate_w
    return torch.cat([angle_tw.sin(), angle_tw.cos()], dim=-1)


def grid_positions(height: int, width: int, channels: int) -> Tensor:
    """(P, C): half of the channels tell the row, half the column, row by row."""
    y_hC = positions(height, channels // 2).unsqueeze(1).expand(-1, width, -1)
    x_wC = positions(width, channels // 2).unsqueeze(0).expand(height, -1, -1)
    return torch.cat([y_hC, x_wC], dim=-1).flatten(0, 1)
