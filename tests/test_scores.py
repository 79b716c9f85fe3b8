"""Every score function, against numbers worked out by hand."""

import math

import pytest
import torch
from torch import Tensor

from showattend.config import ScoreName
from showattend.scores import SCORES, AdditiveScore, CosineScore, DotScore, LocationScore, Score


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def set_to(parameter: Tensor, values: list[list[float]]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values))


def test_additive_score_by_hand() -> None:
    """e_i = v . tanh(W a_i + b + U h), C = 2, D = 1, A = 2."""
    score = AdditiveScore(cells=2, query=1, width=2)
    with torch.no_grad():
        score.key.weight.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))
        score.key.bias.copy_(torch.tensor([0.5, 0.0]))
        score.query.weight.copy_(torch.tensor([[3.0], [1.0]]))
        score.v.weight.copy_(torch.tensor([[2.0, -1.0]]))
    grid_BPC = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    query_BKD = torch.tensor([[[0.0], [-1.0]]])
    expected_BKP = [
        [  # W a = (1, 0), (2, -1); b = (.5, 0); U h = (0, 0), then (-3, -1)
            [2 * math.tanh(1.5) - math.tanh(0.0), 2 * math.tanh(2.5) - math.tanh(-1.0)],
            [2 * math.tanh(-1.5) - math.tanh(-1.0), 2 * math.tanh(-0.5) - math.tanh(-2.0)],
        ]
    ]
    keys_BPA = score.keys(grid_BPC)
    assert keys_BPA.tolist() == [[[1.5, 0.0], [2.5, -1.0]]]
    torch.testing.assert_close(score(query_BKD, keys_BPA)[:, 0], torch.tensor(expected_BKP))


def test_v_and_the_query_have_no_bias() -> None:
    names = {name for name, _ in AdditiveScore(cells=2, query=3, width=4).named_parameters()}
    assert names == {"key.weight", "key.bias", "query.weight", "v.weight"}


CELLS_BPC = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]])
QUERY_BKQ = torch.tensor([[[2.0, -1.0]]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [  # W_q = [[1, 0], [0, 2]] makes (2, -2) of the query, W_k = [[1, 1], [0, 1]] of the cells
        # (1, 0), (1, 1) and (7, 4)
        ("dot", [2.0, 0.0, 6.0]),
        ("scaled_dot", [2 / math.sqrt(2), 0.0, 6 / math.sqrt(2)]),
        ("cosine", [10 / math.sqrt(2), 0.0, 60 / (math.sqrt(8) * math.sqrt(65))]),
    ],
)
def test_products_by_hand(name: ScoreName, expected: list[float]) -> None:
    score = SCORES[name](cells=2, query=2, width=2)
    assert isinstance(score, DotScore)
    set_to(score.query.weight, [[1.0, 0.0], [0.0, 2.0]])
    set_to(score.key.weight, [[1.0, 1.0], [0.0, 1.0]])
    found = score(QUERY_BKQ, score.keys(CELLS_BPC))
    torch.testing.assert_close(found, torch.tensor([[[expected]]]))


def test_the_cosine_has_a_temperature() -> None:
    """With tau = e^-1, cos 45 degrees counts e times."""
    score = CosineScore(cells=2, query=2, width=2)
    set_to(score.query.weight, [[1.0, 0.0], [0.0, 1.0]])
    set_to(score.key.weight, [[1.0, 0.0], [0.0, 1.0]])
    with torch.no_grad():
        score.log_tau_H.fill_(-1.0)
    found = score(torch.tensor([[[5.0, 5.0]]]), score.keys(torch.tensor([[[7.0, 0.0]]])))
    assert found.item() == pytest.approx(math.e / math.sqrt(2))


def test_general_by_hand() -> None:
    """h^T W a of three numbers against two: W^T h = (2 - 3, 4 + 6) = (-1, 10)."""
    score = SCORES["general"](cells=2, query=3, width=64)
    (weight,) = score.parameters()
    set_to(weight, [[1.0, 0.0, -1.0], [2.0, 0.0, 2.0]])
    found = score(torch.tensor([[[2.0, 9.0, 3.0]]]), score.keys(CELLS_BPC))
    assert found.flatten().tolist() == [-1.0, 10.0, 37.0]


def test_location_by_hand() -> None:
    """u . W_k a, whatever is asked: u = (1, -2), W_k a = (1, 0), (1, 1), (7, 4)."""
    score = LocationScore(cells=2, query=5, width=2)
    set_to(score.key.weight, [[1.0, 1.0], [0.0, 1.0]])
    set_to(score.u.weight, [[1.0, -2.0]])
    found = score(seeded(1, 4, 5), score.keys(CELLS_BPC))
    assert found.tolist() == [[[[1.0, -1.0, -1.0]] * 4]]


@pytest.mark.parametrize("name", SCORES)
def test_heads_score_by_their_own_slices(name: ScoreName) -> None:
    """Two heads of width 2 give what two single heads give that were made of their slices."""
    both = SCORES[name](cells=6, query=5, width=4, heads=2)
    query_BKQ, cells_BPC = seeded(2, 3, 5), seeded(2, 7, 6, seed=1)
    scores_BHKP = both(query_BKQ, both.keys(cells_BPC))
    assert scores_BHKP.shape == (2, 2, 3, 7)
    for head in range(2):
        if name == "general":  # its slices are the cells'
            one = SCORES[name](cells=3, query=5, width=2)
            slices = {"query.weight": both.query.weight[3 * head : 3 * head + 3]}
            seen_BPC = cells_BPC[:, :, 3 * head : 3 * head + 3]
        else:
            one, seen_BPC = SCORES[name](cells=6, query=5, width=2), cells_BPC
            own = slice(2 * head, 2 * head + 2)
            rows = {"v.weight": [head], "u.weight": [head], "log_tau_H": [head]}
            slices = {key: value[rows.get(key, own)] for key, value in both.state_dict().items()}
        one.load_state_dict(slices)
        expected_B1KP = one(query_BKQ, one.keys(seen_BPC))
        torch.testing.assert_close(scores_BHKP[:, head : head + 1], expected_B1KP)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("name", SCORES)
def test_gradients_are_those_of_finite_differences(name: ScoreName, heads: int) -> None:
    score = SCORES[name](cells=4, query=3, width=2, heads=heads).double()

    def alpha(cells_BPC: Tensor, query_BKQ: Tensor, *_: Tensor) -> Tensor:
        return score(query_BKQ, score.keys(cells_BPC)).softmax(dim=-1)

    inputs = (
        seeded(2, 5, 4, dtype=torch.float64).requires_grad_(),
        seeded(2, 2, 3, seed=1, dtype=torch.float64).requires_grad_(),
        *score.parameters(),
    )
    assert torch.autograd.gradcheck(alpha, inputs)


@pytest.mark.parametrize("name", SCORES)
def test_every_image_is_scored_by_its_own_grid(name: ScoreName) -> None:
    """Images and queries at once give what one at a time gives."""
    score: Score = SCORES[name](cells=4, query=5, width=6, heads=2)
    grid_BPC, query_BKQ = seeded(3, 6, 4), seeded(3, 2, 5, seed=1)
    scores_BHKP = score(query_BKQ, score.keys(grid_BPC))
    for b in range(3):
        for k in range(2):
            one = score(query_BKQ[b : b + 1, k : k + 1], score.keys(grid_BPC[b : b + 1]))
            torch.testing.assert_close(one[0, :, 0], scores_BHKP[b, :, k])
