"""The gradient of an expected reward, against the exact one over every caption.

A real and tiny model: two words and the end mark, captions of at most 3 words, so 2 + 4 + 8 = 14
of them. As in test_reinforce.py, an estimator's gradients of many batches are compared with the
exact one by z = (mean - exact) / standard error; Bonferroni's bound at 1e-4.
"""

import itertools
import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from showattend.captioner import build_decoder
from showattend.config import DecoderSettings
from showattend.decoder import Decoder, Scene
from showattend.encoder import GridShape
from showattend.self_critical import draw, leave_one_out, log_probs, policy_loss, without_marks
from showattend.vocabulary import END, PAD

A, B = 4, 5
LONGEST = 3
IMAGES, BATCHES = 50, 100
LEVEL = 1e-4
#: What captions are worth; the others are worth nothing.
WORTH = {(A,): 1.0, (A, B): 3.0, (B, B): -1.0, (A, B, A): 2.0, (B, A, B): 0.5}
KINDS = ("lstm", "gru", "transformer")


def tiny(kind: str, look: str = "soft") -> tuple[Decoder, Scene]:
    torch.manual_seed(3)
    decoder = build_decoder(
        GridShape(height=2, width=2, channels=4),
        6,
        DecoderSettings(
            kind=kind, embedding=4, hidden=4, attention=4, projection=4, dropout=0.5, look=look
        ),
    ).eval()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(0.6 * torch.randn_like(parameter))
    grid_1PC = 1.5 * torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(5))
    return decoder, decoder.look(grid_1PC)


def repeated(scene: Scene, images: int) -> Scene:
    return scene.select(torch.zeros(images, dtype=torch.long))


def every_caption() -> Tensor:
    """All 14 captions as the captions of one image, (1, 14, 3)."""
    bodies = [ids for n in (1, 2, 3) for ids in itertools.product((A, B), repeat=n)]
    rows = [[*ids, END, PAD, PAD][:LONGEST] for ids in bodies]
    return torch.tensor([rows])


def worth(words_BKT: Tensor) -> Tensor:
    captions = without_marks(words_BKT)
    return torch.tensor([[WORTH.get(tuple(ids), 0.0) for ids in each] for each in captions])


def gradient(decoder: Decoder, value: Tensor) -> Tensor:
    parts = torch.autograd.grad(
        value,
        list(decoder.parameters()),
        allow_unused=True,
        retain_graph=True,  # of the scene
    )
    pairs = zip(parts, decoder.parameters(), strict=True)
    return torch.cat(
        [(torch.zeros_like(own) if part is None else part).flatten() for part, own in pairs]
    ).double()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("look", ["soft", "hard"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_probabilities_of_all_captions_sum_to_one(
    kind: str, look: str, temperature: float
) -> None:
    decoder, scene = tiny(kind, look)
    log_prob_1KT = log_probs(decoder, scene, every_caption(), temperature=temperature).detach()
    assert float(log_prob_1KT.sum(dim=-1).exp().sum()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(("captions", "temperature"), [(200, 1.0), (200, 0.5), (1, 1.0)])
@pytest.mark.parametrize("kind", KINDS)
def test_captions_are_drawn_as_often_as_they_are_likely(
    kind: str, captions: int, temperature: float
) -> None:
    """Chi-squared of 20,000 captions over the 14, at 1e-4; with one an image, images end early."""
    decoder, scene = tiny(kind)
    torch.manual_seed(0)
    images = repeated(scene, 20_000 // captions)
    drawn_BKT = draw(decoder, images, captions, LONGEST, temperature=temperature)
    said = [tuple(ids) for each in without_marks(drawn_BKT) for ids in each]
    every = every_caption()
    log_prob_1KT = log_probs(decoder, scene, every, temperature=temperature)
    chances = log_prob_1KT.sum(dim=-1).exp()[0].tolist()
    expected = {
        tuple(ids): 20_000 * chance
        for ids, chance in zip(without_marks(every)[0], chances, strict=True)
    }
    assert set(said) <= set(expected)
    frequent = {ids: n for ids, n in expected.items() if n >= 5}
    rest = 20_000 - sum(frequent.values())
    counts = {ids: said.count(ids) for ids in frequent}
    chi2 = sum((counts[ids] - n) ** 2 / n for ids, n in frequent.items())
    if rest >= 5:
        chi2 += (20_000 - sum(counts.values()) - rest) ** 2 / rest
    # 13 degrees of freedom: P(chi2 > 42.0) < 1e-4 (tables); fewer of them only lower it.
    assert chi2 < 42.0


@pytest.mark.parametrize(
    ("baseline", "heat"), [("none", 1.0), ("greedy", 1.0), ("others", 1.0), ("others", 0.5)]
)
def test_the_estimate_is_the_exact_gradient_on_average(baseline: str, heat: float) -> None:
    decoder, scene = tiny("lstm")
    captions = every_caption()
    chance_1K = log_probs(decoder, scene, captions, temperature=heat).sum(dim=-1).exp()
    exact = -gradient(decoder, (chance_1K * worth(captions)).sum())
    images = repeated(scene, IMAGES)
    torch.manual_seed(1)
    found = []
    for _ in range(BATCHES):
        words_BKT = draw(decoder, images, 4, LONGEST, temperature=heat)
        reward_BK = worth(words_BKT)
        baseline_BK = {
            "none": torch.zeros_like(reward_BK),
            "greedy": worth(draw(decoder, images, 1, LONGEST, greedy=True)).expand_as(reward_BK),
            "others": leave_one_out(reward_BK),
        }[baseline]
        log_prob_BKT = log_probs(decoder, images, words_BKT, temperature=heat)
        found.append(gradient(decoder, policy_loss(log_prob_BKT, reward_BK, baseline_BK)))
    found_RG = torch.stack(found)
    error_G = found_RG.std(dim=0) / math.sqrt(BATCHES) + 1e-6
    z_G = (found_RG.mean(dim=0) - exact).abs() / error_G
    assert float(z_G.max()) < NormalDist().inv_cdf(1 - LEVEL / 2 / len(z_G))
    assert float((exact.abs() / error_G).max()) > 10  # else nothing was compared


def test_others_lower_the_variance() -> None:
    decoder, scene = tiny("lstm")
    images = repeated(scene, IMAGES)
    spread = {}
    for name in ("none", "others"):
        torch.manual_seed(2)
        found = []
        for _ in range(50):
            words_BKT = draw(decoder, images, 4, LONGEST)
            reward_BK = worth(words_BKT) + 5.0  # as CIDEr, always above 0
            baseline_BK = leave_one_out(reward_BK) if name == "others" else 0 * reward_BK
            log_prob_BKT = log_probs(decoder, images, words_BKT)
            found.append(gradient(decoder, policy_loss(log_prob_BKT, reward_BK, baseline_BK)))
        spread[name] = float(torch.stack(found).var(dim=0).sum())
    assert spread["others"] < 0.5 * spread["none"]


def test_leave_one_out_by_hand() -> None:
    found = leave_one_out(torch.tensor([[1.0, 2.0, 6.0]]))
    torch.testing.assert_close(found, torch.tensor([[4.0, 3.5, 1.5]]))


@pytest.mark.parametrize("kind", KINDS)
def test_each_captions_log_probability_is_its_own(kind: str) -> None:
    """Whatever is told beside it, and in whatever order."""
    decoder, scene = tiny(kind)
    captions = every_caption()
    alone = torch.stack(
        [log_probs(decoder, scene, captions[:, k : k + 1])[0, 0] for k in range(captions.shape[1])]
    )
    pairs = captions[0].view(7, 2, LONGEST)
    together = log_probs(decoder, repeated(scene, 7), pairs).flatten(0, 1)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_greedy_words_are_the_likeliest() -> None:
    decoder, scene = tiny("lstm")
    (ids,) = without_marks(draw(decoder, scene, 1, LONGEST, greedy=True))[0]
    expected: list[int] = []
    while len(expected) < LONGEST:
        tries = {
            word: log_probs(decoder, scene, torch.tensor([[[*expected, word]]]))[0, 0, -1].item()
            for word in ([A, B] if not expected else [A, B, END])
        }
        best = max(tries, key=lambda word: tries[word])
        if best == END:
            break
        expected.append(best)
    assert ids == expected
