"""Score, softmax, weighted sum: against numbers worked out by hand."""

import math

import pytest
import torch
from conftest import MakeCaptioner
from torch import Tensor, nn

from showattend.attention import AdditiveScore, soft_attention
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


def test_soft_attention_by_hand() -> None:
    """Scores 0 and ln 3 give weights 1/4 and 3/4."""
    grid_BPC = torch.tensor([[[4.0, 0.0], [0.0, 8.0]]])
    scores_BKP = torch.tensor([[[0.0, math.log(3.0)], [1.0, 1.0]]])
    context_BKC, alpha_BKP = soft_attention(scores_BKP, grid_BPC)
    torch.testing.assert_close(alpha_BKP, torch.tensor([[[0.25, 0.75], [0.5, 0.5]]]))
    torch.testing.assert_close(context_BKC, torch.tensor([[[1.0, 6.0], [2.0, 4.0]]]))


@pytest.mark.parametrize("size", [0.01, 1.0, 1000.0])
def test_weights_are_a_distribution_even_of_huge_scores(size: float) -> None:
    _, alpha_BKP = soft_attention(size * seeded(2, 3, 7), seeded(2, 7, 4))
    assert (alpha_BKP >= 0).all()
    torch.testing.assert_close(alpha_BKP.sum(dim=-1), torch.ones(2, 3))


def test_every_image_looks_at_its_own_grid() -> None:
    """Images and queries at once give what one at a time gives."""
    score = AdditiveScore(cells=4, query=5, width=3)
    grid_BPC, query_BKD = seeded(3, 6, 4), seeded(3, 2, 5, seed=1)
    context_BKC, alpha_BKP = soft_attention(score(query_BKD, score.keys(grid_BPC)), grid_BPC)
    for b in range(3):
        for k in range(2):
            one = grid_BPC[b : b + 1]
            scores = score(query_BKD[b : b + 1, k : k + 1], score.keys(one))
            context, alpha = soft_attention(scores, one)
            torch.testing.assert_close(context[0, 0], context_BKC[b, k])
            torch.testing.assert_close(alpha[0, 0], alpha_BKP[b, k])


def test_gradients_are_those_of_finite_differences() -> None:
    score = AdditiveScore(cells=3, query=4, width=2).double()

    def look(grid_BPC: Tensor, query_BKD: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        return soft_attention(score(query_BKD, score.keys(grid_BPC)), grid_BPC)

    inputs = (
        seeded(2, 5, 3, dtype=torch.float64).requires_grad_(),
        seeded(2, 2, 4, seed=1, dtype=torch.float64).requires_grad_(),
        *score.parameters(),
    )
    assert torch.autograd.gradcheck(look, inputs)


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
