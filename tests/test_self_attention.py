"""Self-attention against the worked example, PyTorch's own module, and a loop over pairs."""

import math

import pytest
import torch
from conftest import seeded
from torch import Tensor, nn

from showattend.self_attention import (
    GridSelfAttention,
    SelfAttention,
    grid_positions,
    positions,
)


def test_the_worked_example() -> None:
    """docs/self_attention.md: three inputs, and what each makes of all three, to four digits.

    The example does not scale its scores: its queries are multiplied by sqrt(3) here.
    """
    x_TE = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 2.0], [1.0, 1.0, 1.0, 1.0]])
    key = torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
    query = torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
    value = torch.tensor([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
    attention = SelfAttention(4, 1)
    # Its projections go from 4 to 3: a fourth column of nothing makes them 4 wide.
    with torch.no_grad():
        fourth = torch.zeros(4, 1)
        # d is 4 here, so the scores are over sqrt(4) = 2.
        wide = [torch.cat([each, fourth], dim=1) for each in (2.0 * query, key, value)]
        attention.query_key_value.weight.copy_(torch.cat(wide, dim=1).T)
        attention.query_key_value.bias.zero_()
        attention.out.weight.copy_(torch.eye(4))
        attention.out.bias.zero_()
    queries, keys, values = (part[0, 0, :, :3] for part in attention.project(x_TE.unsqueeze(0)))
    assert (queries / 2).tolist() == [[1, 0, 2], [2, 2, 2], [2, 1, 3]]
    assert keys.tolist() == [[0, 1, 1], [4, 4, 0], [2, 3, 1]]
    assert values.tolist() == [[1, 2, 3], [2, 8, 0], [2, 6, 3]]
    weights = attention.weights(x_TE.unsqueeze(0))[0, 0]
    expected = [
        [6.3379e-02, 4.6831e-01, 4.6831e-01],
        [6.0337e-06, 9.8201e-01, 1.7986e-02],
        [2.9539e-04, 8.8054e-01, 1.1917e-01],
    ]
    torch.testing.assert_close(weights, torch.tensor(expected), rtol=1e-4, atol=0.0)
    out = attention(x_TE.unsqueeze(0))[0, :, :3]
    expected = [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]]
    torch.testing.assert_close(out, torch.tensor(expected), rtol=0.0, atol=5e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_it_is_pytorchs(heads: int, causal: bool) -> None:
    """nn.MultiheadAttention with the same weights gives the same, its weights too."""
    own, theirs = SelfAttention(8, heads), nn.MultiheadAttention(8, heads, batch_first=True)
    with torch.no_grad():
        assert theirs.in_proj_bias is not None
        theirs.in_proj_weight.copy_(own.query_key_value.weight)
        theirs.in_proj_bias.copy_(own.query_key_value.bias)
        theirs.out_proj.weight.copy_(own.out.weight)
        theirs.out_proj.bias.copy_(own.out.bias)
    x_NTE = seeded(3, 5, 8)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    expected, weights = theirs(x_NTE, x_NTE, x_NTE, attn_mask=later, average_attn_weights=False)
    torch.testing.assert_close(own(x_NTE, causal=causal), expected)
    torch.testing.assert_close(own.weights(x_NTE, causal=causal), weights)


@pytest.mark.parametrize("causal", [False, True])
def test_the_explicit_path_is_the_fused_one(causal: bool) -> None:
    """softmax(q k / sqrt(d)) v by `weights` against scaled_dot_product_attention, within 1e-5."""
    attention, x_NTE = SelfAttention(12, 3), 3.0 * seeded(2, 7, 12)
    *_, value = attention.project(x_NTE)
    explicit = attention.join(attention.weights(x_NTE, causal=causal) @ value)
    assert (attention(x_NTE, causal=causal) - explicit).abs().max() < 1e-5


def test_positions_are_the_papers() -> None:
    """sin and cos of t / 10000^(2i / d), section 3.5; ours has all sines first."""
    table = positions(50, 8)
    for t in (0, 1, 7, 49):
        for i in range(4):
            angle = t / 10_000 ** (2 * i / 8)
            assert table[t, i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[t, 4 + i].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_grid_positions_tell_row_and_column() -> None:
    table_PC = grid_positions(3, 5, 8)
    assert table_PC.shape == (15, 8)
    for row in range(3):
        for column in range(5):
            here = table_PC[row * 5 + column]
            assert torch.equal(here[:4], positions(3, 4)[row])
            assert torch.equal(here[4:], positions(5, 4)[column])
    assert len({tuple(place.tolist()) for place in table_PC}) == 15


def test_cells_know_where_they_lie() -> None:
    """Without places self-attention would not notice that cells have changed places."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mix = GridSelfAttention(height=2, width=3, cells=8, heads=2, blocks=2, dropout=0.0)
    cells_BPC, order = seeded(1, 6, 8), torch.tensor([3, 1, 0, 5, 2, 4])
    assert not torch.allclose(mix(cells_BPC[:, order]), mix(cells_BPC)[:, order], atol=1e-3)
    mix.places_PC.zero_()
    torch.testing.assert_close(mix(cells_BPC[:, order]), mix(cells_BPC)[:, order])


def test_a_block_adds_and_normalises() -> None:
    """With nothing in its layers a block is two LayerNorms, of which the second finds no work."""
    mix = GridSelfAttention(height=1, width=4, cells=4, heads=1, blocks=1, dropout=0.0)
    with torch.no_grad():
        for name, parameter in mix.named_parameters():
            if "attended" not in name and "fed" not in name:
                parameter.zero_()
    cells_BPC: Tensor = seeded(2, 4, 4)
    summed = cells_BPC + grid_positions(1, 4, 4)
    centred = summed - summed.mean(-1, keepdim=True)
    expected = centred / centred.square().mean(-1, keepdim=True).sqrt()
    torch.testing.assert_close(mix(cells_BPC), expected, atol=1e-3, rtol=1e-3)
