"""The encoder's grid as the decoder's cells: projected, fused, and told where they lie."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from showattend.encoder import GridShape


class GridProjection(nn.Module):
    """a_i <- dropout(relu(W_g LayerNorm(a_i))): the CNN's features in the decoder's own terms."""

    def __init__(self, *, channels: int, width: int, dropout: float) -> None:
        super().__init__()
        # No scale and shift of its own: the linear layer behind it has them already.
        self.norm = nn.LayerNorm(channels, elementwise_affine=False)
        self.linear = nn.Linear(channels, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, grid_BPC: Tensor) -> Tensor:
        return self.dropout(torch.relu(self.linear(self.norm(grid_BPC))))


class FusedProjection(nn.Module):
    """a_i <- dropout(relu(W_e LayerNorm(early_i) + W_l LayerNorm(late_i))) of a fused grid.

    The late map is projected before it is enlarged to the early one's cells (bilinear): the two
    commute, and it has a fraction of the cells. Lin et al. 2017 (arXiv 1612.03144) join maps so.
    """

    def __init__(self, *, shape: GridShape, width: int, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.early_norm = nn.LayerNorm(shape.early, elementwise_affine=False)
        self.late_norm = nn.LayerNorm(shape.channels, elementwise_affine=False)
        self.early = nn.Linear(shape.early, width)
        self.late = nn.Linear(shape.channels, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, grid_BQC: Tensor) -> Tensor:
        late_BChw, early_BChw = self.shape.unpack(grid_BQC)
        late_BhwC = self.late(self.late_norm(late_BChw.permute(0, 2, 3, 1)))
        early_BhwC = self.early(self.early_norm(early_BChw.permute(0, 2, 3, 1)))
        enlarged_BChw = F.interpolate(
            late_BhwC.permute(0, 3, 1, 2), size=early_BhwC.shape[1:3], mode="bilinear"
        )
        both_BhwC = early_BhwC + enlarged_BChw.permute(0, 2, 3, 1)
        return self.dropout(torch.relu(both_BhwC)).flatten(1, 2)


class Coordinates(nn.Module):
    """a_i <- [a_i; x_i; y_i]: each cell says where it lies, in cells from the middle of the grid.

    A CNN's features say what is in a cell, and hardly where (Liu et al. 2018, CoordConv). With
    them, z_t holds the place that attention looked at. Counted in cells, the two numbers are heard
    among the many: between -1 and 1, relations such as "above" were learned far later.
    """

    places_P2: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        y_h, x_w = (torch.arange(n) - (n - 1) / 2 for n in (height, width))
        places_P2 = torch.cartesian_prod(y_h, x_w).flip(-1)  # row by row, as cells lie in a grid
        self.register_buffer("places_P2", places_P2, persistent=False)

    def forward(self, grid_BPC: Tensor) -> Tensor:
        images = grid_BPC.shape[0]  # len() would fix their number in an exported graph
        return torch.cat([grid_BPC, self.places_P2.expand(images, -1, -1)], dim=-1)
