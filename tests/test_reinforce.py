"""Estimators of hard attention's gradient, against the exact one over every path.

The model is real and tiny: 4 cells, two words and the end mark, so 4^3 = 64 paths. The exact
gradient is autograd's, of sum_s p(s) R(s). An estimator's gradients of 400 batches are compared
with it by z = (mean - exact) / standard error, for every parameter; the largest |z| of a right one
stays below Bonferroni's bound at 1e-4.
"""

import itertools
import math
from dataclasses import dataclass
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from showattend.attention import one_cell
from showattend.config import HardSettings, checked
from showattend.decoder import Decoder, Scene, teach
from showattend.encoder import GridShape
from showattend.reinforce import MovingAverage, hard_attention_step

CELLS, STEPS = 4, 3
BATCHES, IMAGES = 400, 50  # 20,000 captions an estimator
LEVEL = 1e-4
ROUNDING = 1e-5  # of float32: where no path matters, the spread is that alone
WORDS_11T = torch.tensor([[[4, 5, 2]]])
ENTROPY = 0.3


def tiny_decoder() -> Decoder:
    """With weights large enough that looks differ, and matter."""
    torch.manual_seed(3)
    decoder = Decoder(
        grid=GridShape(height=2, width=2, channels=3),
        words=7,
        embedding=3,
        hidden=4,
        attention=3,
        projection=None,
        coordinates=False,
        word_in_query=False,
        look="hard",
        glimpse=1,
        dropout=0.0,
        tie_embeddings=True,
    )
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return decoder


def tiny_scene(decoder: Decoder, images: int) -> Scene:
    grid_1PC = 1.5 * torch.randn(1, CELLS, 3, generator=torch.Generator().manual_seed(5))
    return decoder.look(grid_1PC.expand(images, -1, -1))


def gradient(decoder: Decoder, value: Tensor) -> Tensor:
    """Of all parameters, one after the other; double, as means of thousands are compared."""
    parts = torch.autograd.grad(value, list(decoder.parameters()), allow_unused=True)
    flat = [
        torch.zeros_like(parameter).flatten() if part is None else part.flatten()
        for part, parameter in zip(parts, decoder.parameters(), strict=True)
    ]
    return torch.cat(flat).double()


def exact_gradient(decoder: Decoder, entropy: float) -> Tensor:
    """d/dtheta of sum_s p(s) sum_t (log p(y_t | s) + lambda_e H_t): every path told, summed."""
    path_NT = torch.tensor(list(itertools.product(range(CELLS), repeat=STEPS)))
    t = itertools.count()

    def along(alpha_N1P: Tensor) -> Tensor:
        return one_cell(path_NT[:, next(t)].unsqueeze(1), alpha_N1P)

    words_N1T = WORDS_11T.expand(len(path_NT), -1, -1)
    taught = teach(decoder, tiny_scene(decoder, len(path_NT)), words_N1T, choose=along)
    log_p_N = taught.logits_NV.log_softmax(-1).gather(1, taught.targets_N.unsqueeze(1)).squeeze(1)
    alpha_NTP = taught.alpha_BKTP[:, 0]
    entropy_NT = -(alpha_NTP * alpha_NTP.log()).sum(-1)
    reward_N = taught.place(log_p_N)[:, 0].sum(-1) + entropy * entropy_NT.sum(-1)
    probability_N = alpha_NTP.gather(-1, path_NT.unsqueeze(-1)).squeeze(-1).prod(dim=-1)
    assert math.isclose(probability_N.sum().item(), 1.0, rel_tol=1e-5)
    return gradient(decoder, (probability_N * reward_N).sum())


@dataclass(frozen=True)
class Estimate:
    """An estimator's gradients of one caption: its mean beside the exact one, and its variance."""

    z: float  # the largest, over all parameters
    bias: float  # |mean - exact| / |exact|
    variance: float  # of one caption's gradient, summed over the parameters


def estimate(settings: HardSettings) -> Estimate:
    decoder, average = tiny_decoder(), MovingAverage(STEPS)
    exact_M = exact_gradient(decoder, settings.entropy)
    torch.manual_seed(11)
    words_B1T = WORDS_11T.expand(IMAGES, -1, -1)
    rows = []
    for _ in range(BATCHES):
        scene = tiny_scene(decoder, IMAGES)
        loss, _ = hard_attention_step(decoder, scene, words_B1T, settings, average)
        rows.append(-STEPS * gradient(decoder, loss))  # the loss is a mean over words
    gradient_RM = torch.stack(rows)
    mean_M, spread_M = gradient_RM.mean(dim=0), gradient_RM.std(dim=0)
    error_M = (spread_M / BATCHES**0.5).clamp_min(ROUNDING)
    off_M = (mean_M - exact_M).abs()
    return Estimate(
        z=(off_M / error_M).max().item(),
        bias=(off_M.norm() / exact_M.norm()).item(),
        variance=IMAGES * spread_M.square().sum().item(),
    )


def bound() -> float:
    """Bonferroni's: no |z| of that many parameters above it, but in 1e-4 of all tests."""
    parameters = sum(parameter.numel() for parameter in tiny_decoder().parameters())
    return NormalDist().inv_cdf(1 - LEVEL / 2 / parameters)


def hard(**changes: object) -> HardSettings:
    tree = {"expectation": (0.0, 0.0), "entropy": ENTROPY} | changes
    return checked(HardSettings, tree, "hard")


UNBIASED = {
    "no baseline": hard(baseline="none"),
    "no baseline, to go": hard(baseline="none", reward_to_go=True),
    "moving average": hard(baseline="moving_average"),
    "moving average, to go": hard(baseline="moving_average", reward_to_go=True),
    "self-critical": hard(baseline="self_critical"),
    "self-critical, to go": hard(baseline="self_critical", reward_to_go=True),
    "leave one out of 2": hard(baseline="leave_one_out", samples=2),
    "leave one out of 5, to go": hard(baseline="leave_one_out", samples=5, reward_to_go=True),
}
BIASED = {
    "half expectation": hard(expectation=(0.5, 0.5)),
    "all expectation": hard(expectation=(1.0, 1.0)),
    "straight-through Gumbel, 1": hard(estimator="gumbel", temperature=(1.0, 1.0)),
    "straight-through Gumbel, 0.5": hard(estimator="gumbel", temperature=(0.5, 0.5)),
    "lambda_r 0.5": hard(reinforce=0.5),
}


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased(name: str) -> None:
    assert estimate(UNBIASED[name]).z < bound()


@pytest.mark.parametrize("name", BIASED)
def test_biased_ones_are_told_apart(name: str) -> None:
    assert estimate(BIASED[name]).z > bound()


if __name__ == "__main__":
    print(f"bound on z: {bound():.2f}")
    for name, settings in (UNBIASED | BIASED).items():
        print(f"{name:32}", estimate(settings))
