"""Score, softmax, weighted sum: against numbers worked out by hand."""

import math

import pytest
import torch
from conftest import MakeCaptioner
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from showattend.attention import (
    AdditiveScore,
    Choice,
    Glimpse,
    argmax,
    expectation,
    gumbel,
    partly_expected,
    sample,
    straight_through,
)
from showattend.config import SearchSettings
from showattend.decoder import teach
from showattend.search import beam_search
from showattend.vocabulary import Vocabulary


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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
    torch.testing.assert_close(score(query_BKD, keys_BPA), torch.tensor(expected_BKP))


def test_v_and_the_query_have_no_bias() -> None:
    names = {name for name, _ in AdditiveScore(cells=2, query=3, width=4).named_parameters()}
    assert names == {"key.weight", "key.bias", "query.weight", "v.weight"}


ALPHA_12P = torch.tensor([[[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]]])


def test_what_is_looked_at_by_hand() -> None:
    assert torch.equal(expectation(ALPHA_12P), ALPHA_12P)
    assert argmax(ALPHA_12P).tolist() == [[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]]


@pytest.mark.parametrize("choose", [sample, gumbel(1.0), gumbel(0.3)])
def test_samples_are_single_cells_as_often_as_alpha_says(choose: Choice) -> None:
    """Of 20,000 draws each cell's share lies within 5 standard errors of alpha."""
    draws = 20_000
    chosen_NKP = choose(ALPHA_12P.expand(draws, -1, -1))
    assert set(chosen_NKP.unique().tolist()) == {0.0, 1.0}
    assert (chosen_NKP.sum(dim=-1) == 1.0).all()
    error_KP = (ALPHA_12P[0] * (1 - ALPHA_12P[0]) / draws).sqrt()
    assert ((chosen_NKP.mean(dim=0) - ALPHA_12P[0]).abs() < 5 * error_KP).all()


def test_a_cell_without_weight_is_never_drawn() -> None:
    alpha_BKP = torch.tensor([[[0.0, 1.0, 0.0]]]).expand(1000, -1, -1)
    for choose in (sample, gumbel(0.5)):
        assert torch.equal(choose(alpha_BKP), alpha_BKP)


def test_gradients_pass_the_gumbel_softmax_and_no_sample() -> None:
    scores_BKP = seeded(2, 1, 3).requires_grad_()
    assert not sample(scores_BKP.softmax(-1)).requires_grad
    (gumbel(0.7)(scores_BKP.softmax(-1)) * seeded(2, 1, 3, seed=1)).sum().backward()
    assert scores_BKP.grad is not None
    assert (scores_BKP.grad != 0).all()


def test_gradients_pass_straight_through_the_likeliest() -> None:
    """What comes out is exactly argmax; what goes back is what soft attention would send."""
    alpha_BKP = seeded(4, 2, 9).softmax(dim=-1).requires_grad_()
    chosen_BKP, weights_BKP = straight_through(alpha_BKP), seeded(4, 2, 9, seed=1)
    assert torch.equal(chosen_BKP, argmax(alpha_BKP))
    (chosen_BKP * weights_BKP).sum().backward()
    assert alpha_BKP.grad is not None
    torch.testing.assert_close(alpha_BKP.grad, weights_BKP)


def test_the_expectation_is_taken_for_whole_images() -> None:
    expected_B = torch.tensor([True, False, True])
    alpha_BKP = ALPHA_12P.expand(3, -1, -1)
    chosen_BKP = partly_expected(argmax, expected_B)(alpha_BKP)
    assert torch.equal(chosen_BKP[[0, 2]], alpha_BKP[[0, 2]])
    assert torch.equal(chosen_BKP[1], argmax(ALPHA_12P)[0])
    # As captions end, teach() goes on with the leading images.
    assert torch.equal(partly_expected(argmax, expected_B)(alpha_BKP[:2]), chosen_BKP[:2])


def test_a_glimpse_is_the_mean_of_the_window() -> None:
    """On 2 x 3 cells: of the corner four cells, of the upper middle all six."""
    chosen_BKP = torch.eye(6).unsqueeze(0)[:, :2]
    assert torch.equal(Glimpse(2, 3, 1)(chosen_BKP), chosen_BKP)
    corner = [0.25, 0.25, 0.0, 0.25, 0.25, 0.0]
    torch.testing.assert_close(Glimpse(2, 3, 3)(chosen_BKP), torch.tensor([[corner, [1 / 6] * 6]]))


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 3, 5, 7]))
def test_a_glimpse_of_a_distribution_is_one(height: int, width: int, side: int) -> None:
    alpha_BKP = seeded(2, 2, height * width).softmax(dim=-1)
    weights_BKP = Glimpse(height, width, side)(alpha_BKP)
    torch.testing.assert_close(weights_BKP.sum(dim=-1), torch.ones(2, 2))
    assert (weights_BKP >= 0).all()


def test_gradients_are_those_of_finite_differences() -> None:
    score = AdditiveScore(cells=3, query=4, width=2).double()

    def look(grid_BPC: Tensor, query_BKD: Tensor, *_: Tensor) -> Tensor:
        return score(query_BKD, score.keys(grid_BPC)).softmax(dim=-1) @ grid_BPC

    inputs = (
        seeded(2, 5, 3, dtype=torch.float64).requires_grad_(),
        seeded(2, 2, 4, seed=1, dtype=torch.float64).requires_grad_(),
        *score.parameters(),
    )
    assert torch.autograd.gradcheck(look, inputs)


def test_every_image_is_scored_by_its_own_grid() -> None:
    """Images and queries at once give what one at a time gives."""
    score = AdditiveScore(cells=4, query=5, width=3)
    grid_BPC, query_BKD = seeded(3, 6, 4), seeded(3, 2, 5, seed=1)
    scores_BKP = score(query_BKD, score.keys(grid_BPC))
    for b in range(3):
        for k in range(2):
            one = score(query_BKD[b : b + 1, k : k + 1], score.keys(grid_BPC[b : b + 1]))
            torch.testing.assert_close(one[0, 0], scores_BKP[b, k])


def calls_of(module: nn.Module) -> list[torch.Size]:
    """The shapes that a layer is called with from now on."""
    calls: list[torch.Size] = []
    module.register_forward_hook(lambda _, inputs, __: calls.append(inputs[0].shape))
    return calls


def test_keys_are_projected_once_an_image(
    make_captioner: MakeCaptioner, vocabulary: Vocabulary
) -> None:
    """Neither again at every word, nor for every caption or beam of an image."""
    captioner = make_captioner(scale=3.0)
    calls = calls_of(captioner.decoder.score.key)
    queries = calls_of(captioner.decoder.score.query)
    scene = captioner.look(seeded(2, 6, 5))
    words_BKT = torch.tensor([[[4, 5, 6, 2], [4, 5, 2, 0]], [[4, 2, 0, 0], [2, 0, 0, 0]]])
    teach(captioner.decoder, scene, words_BKT)
    assert len(queries) == 4
    beam_search(captioner, vocabulary, scene, SearchSettings(beam_size=3, max_words=4))
    assert len(queries) > 5
    assert calls == [(2, 6, 5)]
