"""The grid as cells, against numbers worked out by hand."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import MakeDecoder, seeded
from hypothesis import settings
from torch import Tensor

from showattend.cells import FusedProjection
from showattend.encoder import GridShape

some = settings(max_examples=40, deadline=None)  # a busy machine is no failure


def test_a_fused_grid_is_projected_map_by_map() -> None:
    """The late map enlarged first and then projected, as one would by hand, is the same."""
    shape = GridShape(4, 6, 5, early=3, factor=2)
    project = FusedProjection(shape=shape, width=7, dropout=0.0)
    grid_BQC = seeded(2, *shape.packed)
    late_BChw, early_BChw = shape.unpack(grid_BQC)

    def normal(features_BChw: Tensor) -> Tensor:
        centred = features_BChw - features_BChw.mean(dim=1, keepdim=True)
        return centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()

    enlarged_BChw = F.interpolate(normal(late_BChw), scale_factor=2, mode="bilinear")
    sums_BChw = torch.einsum("wc,bcij->bwij", project.late.weight, enlarged_BChw)
    sums_BChw += torch.einsum("wc,bcij->bwij", project.early.weight, normal(early_BChw))
    sums_BChw += project.early.bias.reshape(1, -1, 1, 1)
    expected_BPC = sums_BChw.relu().flatten(2).transpose(1, 2)
    torch.testing.assert_close(project(grid_BQC), expected_BPC)


def test_fine_cells_lie_where_they_were() -> None:
    """The early map's cell (row 1, column 4) is cell 1 * 6 + 4 of the decoder's grid."""
    shape = GridShape(4, 6, 5, early=3, factor=2)
    early_BChw = torch.zeros(1, 3, 4, 6)
    early_BChw[0, :, 1, 4] = torch.tensor([3.0, 0.0, -3.0])
    packed_BChw = torch.cat([torch.zeros(1, 5, 2, 3), F.pixel_unshuffle(early_BChw, 2)], dim=1)
    project = FusedProjection(shape=shape, width=7, dropout=0.0)
    projected_PC = project(packed_BChw.flatten(2).transpose(1, 2))[0]
    elsewhere_C = project.early.bias.relu()
    moved_P = (projected_PC - elsewhere_C).abs().sum(dim=-1) > 1e-6
    assert moved_P.nonzero().flatten().tolist() == [10]


def test_projection_by_hand(make_decoder: MakeDecoder) -> None:
    """relu(W LayerNorm(a) + b); without one, the grid itself."""
    decoder = make_decoder(projection=7)
    grid_BPC = seeded(1, 2, 5)
    centred = grid_BPC - grid_BPC.mean(dim=-1, keepdim=True)
    normed = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    linear: Any = decoder.get_submodule("project.linear")
    expected = (normed @ linear.weight.T + linear.bias).clamp(min=0)
    scene = decoder.look(grid_BPC)
    torch.testing.assert_close(scene.grid_BPC, expected)
    torch.testing.assert_close(scene.keys[0], decoder.score.key(expected))
    assert torch.equal(make_decoder().look(grid_BPC).grid_BPC, grid_BPC)


@pytest.mark.parametrize("projection", [None, 7])
def test_coordinates_stand_behind_the_features(
    make_decoder: MakeDecoder, projection: int | None
) -> None:
    """x and y of a 2 x 3 grid's cells from its middle, row by row."""
    plain = make_decoder(projection=projection)
    decoder = make_decoder(projection=projection, coordinates=True)
    grid_BPC = seeded(2, 6, 5)
    cells_BPC = decoder.look(grid_BPC).grid_BPC
    torch.testing.assert_close(cells_BPC[..., :-2], plain.look(grid_BPC).grid_BPC)
    places = torch.tensor([[x, y] for y in (-0.5, 0.5) for x in (-1.0, 0.0, 1.0)])
    torch.testing.assert_close(cells_BPC[0, :, -2:], places)
    torch.testing.assert_close(cells_BPC[1, :, -2:], places)
