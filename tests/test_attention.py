"""Softmax, choice, weighted sum: against numbers worked out by hand."""

import math

import pytest
import torch
from conftest import MakeCaptioner
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from showattend.attention import (
    Choice,
    Glimpse,
    argmax,
    attend,
    expectation,
    gumbel,
    heads_of,
    partly_expected,
    sample,
    straight_through,
)
from showattend.config import SearchSettings
from showattend.search import beam_search
from showattend.vocabulary import Vocabulary


def seeded(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


ALPHA_121P = torch.tensor([[[[0.1, 0.6, 0.3]], [[0.5, 0.2, 0.3]]]])


def test_what_is_looked_at_by_hand() -> None:
    assert torch.equal(expectation(ALPHA_121P), ALPHA_121P)
    assert argmax(ALPHA_121P).tolist() == [[[[0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]]]]


@pytest.mark.parametrize("choose", [sample, gumbel(1.0), gumbel(0.3)])
def test_samples_are_single_cells_as_often_as_alpha_says(choose: Choice) -> None:
    """Of 20,000 draws each cell's share lies within 5 standard errors of alpha."""
    draws = 20_000
    chosen_NKHP = choose(ALPHA_121P.expand(draws, -1, -1, -1))
    assert set(chosen_NKHP.unique().tolist()) == {0.0, 1.0}
    assert (chosen_NKHP.sum(dim=-1) == 1.0).all()
    error_KHP = (ALPHA_121P[0] * (1 - ALPHA_121P[0]) / draws).sqrt()
    assert ((chosen_NKHP.mean(dim=0) - ALPHA_121P[0]).abs() < 5 * error_KHP).all()


def test_a_cell_without_weight_is_never_drawn() -> None:
    alpha_BKHP = torch.tensor([[[[0.0, 1.0, 0.0]]]]).expand(1000, -1, -1, -1)
    for choose in (sample, gumbel(0.5)):
        assert torch.equal(choose(alpha_BKHP), alpha_BKHP)


def test_gradients_pass_the_gumbel_softmax_and_no_sample() -> None:
    scores_BKHP = seeded(2, 1, 1, 3).requires_grad_()
    assert not sample(scores_BKHP.softmax(-1)).requires_grad
    (gumbel(0.7)(scores_BKHP.softmax(-1)) * seeded(2, 1, 1, 3, seed=1)).sum().backward()
    assert scores_BKHP.grad is not None
    assert (scores_BKHP.grad != 0).all()


def test_gradients_pass_straight_through_the_likeliest() -> None:
    """What comes out is exactly argmax; what goes back is what soft attention would send."""
    alpha_BKHP = seeded(4, 2, 3, 9).softmax(dim=-1).requires_grad_()
    chosen_BKHP, weights_BKHP = straight_through(alpha_BKHP), seeded(4, 2, 3, 9, seed=1)
    assert torch.equal(chosen_BKHP, argmax(alpha_BKHP))
    (chosen_BKHP * weights_BKHP).sum().backward()
    assert alpha_BKHP.grad is not None
    torch.testing.assert_close(alpha_BKHP.grad, weights_BKHP)


def test_the_expectation_is_taken_for_whole_images() -> None:
    expected_B = torch.tensor([True, False, True])
    alpha_BKHP = ALPHA_121P.expand(3, -1, -1, -1)
    chosen_BKHP = partly_expected(argmax, expected_B)(alpha_BKHP)
    assert torch.equal(chosen_BKHP[[0, 2]], alpha_BKHP[[0, 2]])
    assert torch.equal(chosen_BKHP[1], argmax(ALPHA_121P)[0])
    # As captions end, teach() goes on with the leading images.
    assert torch.equal(partly_expected(argmax, expected_B)(alpha_BKHP[:2]), chosen_BKHP[:2])


def test_a_glimpse_is_the_mean_of_the_window() -> None:
    """On 2 x 3 cells: of the corner four cells, of the upper middle all six."""
    chosen_BKHP = torch.eye(6).unsqueeze(0)[:, :2]
    assert torch.equal(Glimpse(2, 3, 1)(chosen_BKHP), chosen_BKHP)
    corner = [0.25, 0.25, 0.0, 0.25, 0.25, 0.0]
    torch.testing.assert_close(Glimpse(2, 3, 3)(chosen_BKHP), torch.tensor([[corner, [1 / 6] * 6]]))


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 3, 5, 7]))
def test_a_glimpse_of_a_distribution_is_one(height: int, width: int, side: int) -> None:
    alpha_BKHP = seeded(2, 2, height * width).softmax(dim=-1)
    weights_BKP = Glimpse(height, width, side)(alpha_BKHP)
    torch.testing.assert_close(weights_BKP.sum(dim=-1), torch.ones(2, 2))
    assert (weights_BKP >= 0).all()


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
    captioner.decoder.teach(scene, words_BKT)
    assert len(queries) == 4
    beam_search(captioner, vocabulary, scene, SearchSettings(beam_size=3, max_words=4))
    assert len(queries) > 5
    assert calls == [(2, 6, 5)]


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_softmax_and_weighted_sum_by_hand(heads: int) -> None:
    """Every head sums its own slice of the channels by its own weights; K = 2, c = 2."""
    scores_BHKP, values_BPC = seeded(2, heads, 2, 5), seeded(2, 5, 2 * heads, seed=1)
    look = attend(scores_BHKP, heads_of(values_BPC, heads), None, expectation, lambda each: each)
    for b in range(2):
        for k in range(2):
            for h in range(heads):
                exponentials = [math.exp(float(score)) for score in scores_BHKP[b, h, k]]
                alpha_P = [each / sum(exponentials) for each in exponentials]
                torch.testing.assert_close(look.alpha_BKHP[b, k, h], torch.tensor(alpha_P))
                for c in range(2 * h, 2 * h + 2):
                    total = sum(
                        w * float(v) for w, v in zip(alpha_P, values_BPC[b, :, c], strict=True)
                    )
                    assert look.context_BKC[b, k, c].item() == pytest.approx(total, abs=1e-5)
    assert torch.equal(look.alpha_BKHP, look.chosen_BKHP)


@pytest.mark.parametrize("choose", [expectation, argmax, sample, gumbel(0.5)])
def test_what_is_masked_weighs_nothing_at_all(choose: Choice) -> None:
    """Exactly 0, however high its score, and nothing of it comes through."""
    scores_BHKP = seeded(2, 2, 3, 4)
    scores_BHKP[..., 2:] += 100.0
    mask_BP = torch.tensor([[True, True, False, False], [True, True, True, False]])
    values_BPC = seeded(2, 4, 6, seed=1)
    look = attend(scores_BHKP, heads_of(values_BPC, 2), mask_BP, choose, lambda each: each)
    for weights_BKHP in (look.alpha_BKHP, look.chosen_BKHP):
        assert (weights_BKHP[0, ..., 2:] == 0.0).all()
        assert (weights_BKHP[1, ..., 3] == 0.0).all()
        torch.testing.assert_close(weights_BKHP.sum(dim=-1), torch.ones(2, 3, 2))
    if choose in (expectation, argmax):
        values_BPC[0, 2:] = 1e30
        values_BPC[1, 3] = -1e30
        again = attend(scores_BHKP, heads_of(values_BPC, 2), mask_BP, choose, lambda each: each)
        assert torch.equal(again.context_BKC, look.context_BKC)
        alone = attend(
            scores_BHKP[:1, ..., :2],
            heads_of(values_BPC[:1, :2], 2),
            None,
            choose,
            lambda each: each,
        )
        torch.testing.assert_close(look.context_BKC[0], alone.context_BKC[0])
