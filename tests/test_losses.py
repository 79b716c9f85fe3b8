"""What training minimises, against numbers worked out by hand."""

import math
from typing import Literal

import pytest
import torch

from showattend.losses import (
    attention_loss,
    bag_of_words_loss,
    doubly_stochastic_penalty,
    word_loss,
)

Target = Literal["one", "words_over_cells"]

# One image, two captions, three words, two cells; the second caption has one word.
ALPHA_BKTP = torch.tensor(
    [[[[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]], [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]]]]
)
SPOKEN_BKT = torch.tensor([[[True, True, True], [True, False, False]]])


@pytest.mark.parametrize(
    ("target", "first", "second"),
    [
        # totals over words: (1.75, 1.25) and (0.9, 0.1)
        ("one", 0.75**2 + 0.25**2, 0.1**2 + 0.9**2),
        # three words over two cells is 1.5 each; one word is 0.5 each
        ("words_over_cells", 0.25**2 + 0.25**2, 0.4**2 + 0.4**2),
    ],
)
def test_penalty_sums_over_cells_and_averages_over_captions(
    target: Target, first: float, second: float
) -> None:
    penalty = doubly_stochastic_penalty(ALPHA_BKTP, SPOKEN_BKT, target)
    assert penalty.item() == pytest.approx((first + second) / 2)


@pytest.mark.parametrize("target", ["one", "words_over_cells"])
def test_neither_padding_words_nor_padding_captions_count(target: Target) -> None:
    expected = doubly_stochastic_penalty(ALPHA_BKTP, SPOKEN_BKT, target)
    alpha_BKTP = torch.full((2, 3, 5, 2), 77.0)  # what stands in padding must not matter
    spoken_BKT = torch.zeros(2, 3, 5, dtype=torch.bool)
    alpha_BKTP[:1, :2, :3], spoken_BKT[:1, :2, :3] = ALPHA_BKTP, SPOKEN_BKT
    torch.testing.assert_close(doubly_stochastic_penalty(alpha_BKTP, spoken_BKT, target), expected)


def test_a_flat_map_is_the_minimum_of_words_over_cells_only() -> None:
    """T words over P cells: each cell's total is T/P; against 1 that leaves P (1 - T/P)^2."""
    words, cells = 3, 12
    alpha_BKTP = torch.full((1, 1, words, cells), 1 / cells)
    spoken_BKT = torch.ones(1, 1, words, dtype=torch.bool)
    flat = doubly_stochastic_penalty(alpha_BKTP, spoken_BKT, "words_over_cells")
    assert flat.item() == pytest.approx(0.0, abs=1e-9)
    one = doubly_stochastic_penalty(alpha_BKTP, spoken_BKT, "one")
    assert one.item() == pytest.approx(cells * (1 - words / cells) ** 2)


def test_the_penalty_has_a_gradient_at_spoken_words_only() -> None:
    alpha_BKTP = ALPHA_BKTP.clone().requires_grad_()
    penalty = doubly_stochastic_penalty(alpha_BKTP, SPOKEN_BKT, "one")
    (gradient_BKTP,) = torch.autograd.grad(penalty, alpha_BKTP)
    assert (gradient_BKTP != 0).all(dim=-1).tolist() == SPOKEN_BKT.tolist()


def test_word_loss_by_hand() -> None:
    """Probabilities 1/2 and 1/4 of the true words."""
    logits_NV = torch.tensor([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0]]).log()
    loss = word_loss(logits_NV, torch.tensor([0, 2]), 0.0)
    assert loss.item() == pytest.approx((math.log(2) + math.log(4)) / 2)


def test_label_smoothing_mixes_in_the_uniform_distribution() -> None:
    """(1 - s) CE(true) + s/V sum_v CE(v), Szegedy et al. 2016, section 7."""
    log_probs = [math.log(0.5), math.log(0.25), math.log(0.25)]
    smoothed = -0.9 * log_probs[0] - 0.1 / 3 * sum(log_probs)
    logits_NV = torch.tensor([log_probs]) + 7.0
    assert word_loss(logits_NV, torch.tensor([0]), 0.1).item() == pytest.approx(smoothed)


def test_attention_loss_is_the_cross_entropy_of_the_words_with_boxes() -> None:
    """Word 1 wants both cells alike, word 2 the second; the others are told nothing."""
    wanted_BKTP = torch.zeros_like(ALPHA_BKTP)
    wanted_BKTP[0, 0, 0] = torch.tensor([0.5, 0.5])
    wanted_BKTP[0, 0, 2] = torch.tensor([0.0, 1.0])
    loss = attention_loss(ALPHA_BKTP, wanted_BKTP)
    assert loss.item() == pytest.approx((math.log(2) - math.log(0.75)) / 2)


def test_attention_loss_of_no_boxes_is_nothing() -> None:
    alpha_BKTP = ALPHA_BKTP.clone().requires_grad_()
    assert attention_loss(alpha_BKTP, torch.zeros_like(ALPHA_BKTP)).item() == 0.0


def test_attention_loss_is_finite_where_a_weight_has_vanished() -> None:
    alpha_BKTP = torch.tensor([[[[0.0, 1.0]]]], requires_grad=True)
    loss = attention_loss(alpha_BKTP, torch.tensor([[[[1.0, 0.0]]]]))
    torch.autograd.backward(loss)
    assert alpha_BKTP.grad is not None
    assert math.isfinite(loss.item())
    assert alpha_BKTP.grad.isfinite().all()


def test_a_bag_of_words_by_hand() -> None:
    """Five words in all, and padding; the order is of no matter."""
    chances_BV = torch.tensor([[0.1, 0.1, 0.2, 0.2, 0.4], [0.2, 0.2, 0.2, 0.3, 0.1]])
    words_BKT = torch.tensor([[[4, 3], [4, 0]], [[2, 3], [0, 0]]])
    spoken_BKT = words_BKT != 0
    expected = -(2 * math.log(0.4) + math.log(0.2) + math.log(0.2) + math.log(0.3)) / 5

    def loss(logits_BV: torch.Tensor, *axes: int) -> float:
        return bag_of_words_loss(logits_BV, words_BKT.flip(axes), spoken_BKT.flip(axes)).item()

    assert loss(chances_BV.log()) == pytest.approx(expected)
    assert loss(chances_BV.log(), 1, 2) == pytest.approx(expected)
    # Logits are not yet chances: what is added to all of an image's changes nothing.
    shifted_BV = chances_BV.log() + torch.tensor([[5.0], [-7.0]])
    assert loss(shifted_BV) == pytest.approx(expected)
