"""Estimators of hard attention's gradient, against the exact one over every path.

The model is real and tiny: 4 cells, two words and the end mark, so 4^3 = 64 paths. The exact
gradient is autograd's, of sum_s p(s) R(s). An estimator's gradients of 200 batches are compared
with it by z = (mean - exact) / standard error, for every parameter; the largest |z| of a right one
stays below Bonferroni's bound at 1e-4.
"""

import itertools
import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from showattend import reinforce
from showattend.attention import expectation, one_cell
from showattend.captioner import build_decoder
from showattend.config import ConfigError, DecoderSettings, HardSettings, checked
from showattend.decoder import Decoder, Scene
from showattend.encoder import GridShape
from showattend.losses import word_loss
from showattend.reinforce import MovingAverage, hard_attention_step, leave_one_out, returns

CELLS, STEPS = 4, 3
BATCHES, IMAGES = 200, 100  # 20,000 captions an estimator
LEVEL = 1e-4
ROUNDING = 1e-5  # of float32: where no path matters, the spread is that alone
WORDS_11T = torch.tensor([[[4, 5, 2]]])
ENTROPY = 0.3


def tiny_decoder() -> Decoder:
    """With weights large enough that looks differ, and matter."""
    torch.manual_seed(3)
    decoder = build_decoder(
        GridShape(height=2, width=2, channels=3),
        7,
        DecoderSettings(
            embedding=3, hidden=4, attention=3, projection=None, dropout=0.0, look="hard"
        ),
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

    def along(alpha_N11P: Tensor) -> Tensor:
        return one_cell(path_NT[:, next(t), None, None], alpha_N11P)

    words_N1T = WORDS_11T.expand(len(path_NT), -1, -1)
    taught = decoder.teach(tiny_scene(decoder, len(path_NT)), words_N1T, choose=along)
    log_p_N = taught.logits_NV.log_softmax(-1).gather(1, taught.targets_N.unsqueeze(1)).squeeze(1)
    alpha_NTP = taught.mean_alpha()[:, 0]
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


def estimate(settings: HardSettings, average: MovingAverage | None = None) -> Estimate:
    decoder, average = tiny_decoder(), average or MovingAverage(STEPS)
    exact_M = exact_gradient(decoder, settings.entropy)
    torch.manual_seed(11)
    words_B1T = WORDS_11T.expand(IMAGES, -1, -1)
    rows = []
    for _ in range(BATCHES):
        scene = tiny_scene(decoder, IMAGES)
        loss, _ = hard_attention_step(decoder, scene, words_B1T, settings, average)
        rows.append(-STEPS * gradient(decoder, loss))  # the loss is a mean over words
        average.take_in()
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
    "straight through the likeliest": hard(estimator="straight_through"),
    "lambda_r 0.5": hard(reinforce=0.5),
}


@cache
def measured(name: str) -> Estimate:
    return estimate((UNBIASED | BIASED)[name])


@pytest.mark.parametrize("name", UNBIASED)
def test_unbiased(name: str) -> None:
    assert measured(name).z < bound()


@pytest.mark.parametrize("name", BIASED)
def test_biased_ones_are_told_apart(name: str) -> None:
    assert measured(name).z > bound()


def test_a_baseline_that_sees_its_own_reward_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of all of an image's samples, the path's own among them."""

    def mean_of_all(return_BKT: Tensor, samples: int) -> Tensor:
        others_BKT = leave_one_out(return_BKT, samples)
        return (return_BKT + (samples - 1) * others_BKT) / samples

    monkeypatch.setattr(reinforce, "leave_one_out", mean_of_all)
    assert estimate(UNBIASED["leave one out of 2"]).z > bound()


def test_an_average_that_takes_in_the_batch_before_its_use_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one caption a batch, so that its share in the average is the whole step."""

    class Hasty(MovingAverage):
        def of(self, count_BKT: Tensor) -> Tensor:
            return 0.5 * super().of(count_BKT) + 0.5 * self.now(count_BKT)

        def now(self, count_BKT: Tensor) -> Tensor:
            return seen[-1].to(count_BKT.device)

    seen: list[Tensor] = []

    def watched(*args: Tensor, to_go: bool) -> tuple[Tensor, Tensor]:
        found = returns(*args, to_go=to_go)
        seen.append(found[0])
        return found

    monkeypatch.setattr(reinforce, "returns", watched)
    assert estimate(UNBIASED["moving average"], Hasty(STEPS)).z > bound()


def test_the_wrong_sign_of_the_entropy_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = reinforce.entropies
    monkeypatch.setattr(reinforce, "entropies", lambda alpha: -right(alpha))
    assert estimate(UNBIASED["leave one out of 2"]).z > bound()


def test_the_wrong_sign_of_the_reward_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reinforce,
        "leave_one_out",
        lambda values, samples: 2 * values - leave_one_out(values, samples),
    )
    assert estimate(UNBIASED["leave one out of 2"]).z > bound()


def test_a_baseline_lowers_the_variance() -> None:
    """By more than half here, as the reward without one is far from 0."""
    without = measured("no baseline").variance
    for name in ("moving average", "self-critical", "leave one out of 2"):
        assert measured(name).variance < without / 2


# --- parts, by hand ------------------------------------------------------------------------------

SPOKEN_11T = torch.tensor([[[True, True, True, False]]])
REWARD_11T = torch.tensor([[[-1.0, -2.0, -4.0, 0.0]]])


def test_returns_by_hand() -> None:
    whole, counts = returns(REWARD_11T, SPOKEN_11T, to_go=False)
    assert whole.tolist() == [[[-7.0] * 4]]
    assert counts.tolist() == [[[3] * 4]]
    to_go, counts = returns(REWARD_11T, SPOKEN_11T, to_go=True)
    assert to_go.tolist() == [[[-7.0, -6.0, -4.0, 0.0]]]
    assert counts.tolist() == [[[3, 2, 1, 0]]]


def test_leave_one_out_by_hand() -> None:
    """Two captions of three samples each: 1, 2, 6 and 0, 0, 3."""
    return_BKT = torch.tensor([[[1.0], [2.0], [6.0], [0.0], [0.0], [3.0]]])
    expected = [[[4.0], [3.5], [1.5], [1.5], [1.5], [0.0]]]
    assert leave_one_out(return_BKT, 3).tolist() == expected


def test_the_moving_average_by_hand() -> None:
    """Of returns of one word: 2 at first, then 0.9 * 2 + 0.1 * 7; of two words none yet."""
    average = MovingAverage(2)
    counts = torch.tensor([[[0, 1, 2]]])
    assert average.of(counts).tolist() == [[[0.0, 0.0, 0.0]]]
    average.add(torch.tensor([1.0, 3.0]), torch.tensor([1, 1]))
    assert average.of(counts).tolist() == [[[0.0, 0.0, 0.0]]]  # noted, and not yet taken in
    average.take_in()
    torch.testing.assert_close(average.of(counts), torch.tensor([[[0.0, 2.0, 0.0]]]))
    average.add(torch.tensor([7.0]), torch.tensor([1]))
    average.take_in()
    torch.testing.assert_close(average.of(counts), torch.tensor([[[0.0, 2.5, 0.0]]]))


def test_all_expectation_is_soft_attention() -> None:
    """The loss is soft attention's, and so is its gradient."""
    decoder, average = tiny_decoder(), MovingAverage(STEPS)
    settings = hard(expectation=(1.0, 1.0), entropy=0.0)
    loss, _ = hard_attention_step(
        decoder, tiny_scene(decoder, 2), WORDS_11T.expand(2, -1, -1), settings, average
    )
    soft = decoder.teach(tiny_scene(decoder, 2), WORDS_11T.expand(2, -1, -1), choose=expectation)
    expected = word_loss(soft.logits_NV, soft.targets_N, 0.0)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient(decoder, loss), gradient(decoder, expected))
    average.take_in()
    assert average.mean_T1.isnan().all()  # no sampled return was seen


@pytest.mark.parametrize("progress", [0.0, 0.25, 0.5, 1.0])
def test_the_expectation_becomes_rarer(progress: float) -> None:
    """From every image to none, even in between: 2,000 images, 5 standard errors."""
    decoder, images = tiny_decoder(), 2000
    settings = hard(expectation=(1.0, 0.0), entropy=0.0, baseline="none")
    _, taught = hard_attention_step(
        decoder,
        tiny_scene(decoder, images),
        WORDS_11T.expand(images, -1, -1),
        settings,
        MovingAverage(STEPS),
        progress=progress,
    )
    # A sampled look has the log of one weight; an expected one that of alpha's mean weight.
    log_alpha_BTP = taught.mean_alpha()[:, 0].log()
    gap_BTP = (taught.log_chosen_BKT[:, 0].unsqueeze(-1) - log_alpha_BTP).abs()
    sampled_B = (gap_BTP.amin(dim=-1) < 1e-5).all(dim=-1)
    error = (progress * (1 - progress) / images) ** 0.5
    assert abs(sampled_B.double().mean().item() - progress) <= 5 * error + 1e-9


def test_leaving_one_out_needs_two() -> None:
    with pytest.raises(ConfigError, match=r"hard\.samples is 1: leave_one_out compares 2"):
        hard(baseline="leave_one_out")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"estimator": "gumbel", "baseline": "none"}, "baseline"),
        ({"estimator": "straight_through", "reward_to_go": True}, "reward_to_go"),
        ({"estimator": "straight_through", "reinforce": 0.5}, "reinforce"),
        ({"estimator": "straight_through", "temperature": (1.0, 0.1)}, "temperature"),
        ({"temperature": (1.0, 0.1)}, "temperature"),
    ],
)
def test_what_would_change_nothing_is_refused(changes: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"hard\.{key}: changes nothing with hard\.estimator="):
        hard(**changes)


def table() -> str:
    """The estimators, measured, as Markdown: docs/hard_attention.md holds it."""
    lines = [
        "| estimator | largest abs(z) | bias | variance |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name in UNBIASED | BIASED:
        found = measured(name)
        lines.append(f"| {name} | {found.z:.2f} | {found.bias:.4f} | {found.variance:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(f"bound on abs(z), Bonferroni at {LEVEL}: {bound():.2f}\n\n{table()}")
