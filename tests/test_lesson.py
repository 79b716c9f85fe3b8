"""Parts of a batch: what each counts for, and that they sum to the whole."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import MakeCaptioner, ragged, seeded
from torch import Tensor

from showattend.batches import Batch
from showattend.boxes import Phrase
from showattend.cider_reward import CiderReward
from showattend.config import Settings, check_settings
from showattend.datasets import Picture
from showattend.lesson import Lesson, Part, boxed_words, cut
from showattend.reinforce import MovingAverage
from showattend.self_critical import draw, without_marks
from showattend.vocabulary import Vocabulary

#: Words of each image's captions: 5 + 3, 4 + 4, 2 + 0; the last two images have the same.
BATCH = Batch(
    [7, 8, 9],
    [False] * 3,
    ragged([[5, 3], [4, 4], [2, 0]]),
    [[(), ()], [(), ()], [()]],
)


class Fixed:
    """Grids by position, as a cache has them."""

    def __init__(self) -> None:
        self.pictures: list[Picture] = []
        self.grids = seeded(10, 6, 5)

    def read(self, positions: Any, mirrored: Any = None) -> Tensor:
        return self.grids[list(positions)]


def settings(**loss: object) -> Settings:
    return check_settings(
        {
            "data": {"kind": "shapes"},
            "loss": {"label_smoothing": 0.1, "doubly_stochastic": 0.5} | loss,
            "train": {"epochs": 1},
        },
        "test",
    )


def lesson(make_captioner: MakeCaptioner, **loss: object) -> Lesson:
    captioner = make_captioner().double()
    grids: Any = Fixed()
    return Lesson(captioner, grids, settings(**loss), MovingAverage(25))


def gradient(lesson: Lesson, parts: list[Part]) -> tuple[dict[str, float], Tensor]:
    """The parts' losses, summed, and the gradient of the sum."""
    lesson.zero_grad()
    sums: dict[str, float] = {}
    for part in parts:
        losses = lesson(part, 0.0, 0.0)
        losses["total"].backward()
        for name, value in losses.items():
            sums[name] = sums.get(name, 0.0) + value.item()
    return sums, torch.cat([p.grad.flatten() for p in lesson.parameters() if p.grad is not None])


def test_shares_by_hand() -> None:
    """18 words and 5 captions in two parts: images 7 and 9, then 8."""
    first, second = cut(BATCH, [0, 1], 2)
    assert first.batch.positions == [7, 9]
    assert (first.words, first.captions, first.images) == (10 / 18, 3 / 5, 2 / 3)
    assert second.batch.positions == [8]
    assert (second.words, second.captions, second.images) == (8 / 18, 2 / 5, 1 / 3)
    assert second.batch.words_BKT.shape == (1, 2, 4)  # no padding up to the 5 of the first


def test_a_part_without_pictures_stands_in_and_counts_for_nothing() -> None:
    *parts, last = cut(BATCH, range(5), 5)
    assert [part.batch.positions for part in parts] == [[7], [8], [9], [7]]
    assert [part.counts for part in [*parts, last]] == [True, True, True, False, False]
    assert (last.words, last.captions, last.images, last.boxed) == (0, 0, 0, 0)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_the_parts_sum_to_the_whole(make_captioner: MakeCaptioner, parts: int) -> None:
    """In its losses and in its gradient, however it is cut."""
    taught = lesson(make_captioner)
    whole, whole_gradient = gradient(taught, cut(BATCH, [0], 1))
    found, found_gradient = gradient(taught, cut(BATCH, range(parts), parts))
    assert found == pytest.approx(whole, abs=1e-12)
    assert whole.keys() == {"total", "loss", "penalty"}
    torch.testing.assert_close(found_gradient, whole_gradient, rtol=0, atol=1e-12)
    assert whole_gradient.abs().max() > 1e-3


@pytest.mark.parametrize("parts", [2, 5])
def test_the_parts_bags_of_words_sum_to_the_whole(
    make_captioner: MakeCaptioner, parts: int
) -> None:
    taught = lesson(make_captioner, bag_of_words=2.0)
    whole, whole_gradient = gradient(taught, cut(BATCH, [0], 1))
    found, found_gradient = gradient(taught, cut(BATCH, range(parts), parts))
    assert found == pytest.approx(whole, abs=1e-12)
    torch.testing.assert_close(found_gradient, whole_gradient, rtol=0, atol=1e-12)
    told = whole["loss"] + 0.5 * whole["penalty"] + 2.0 * whole["bag of words"]
    assert whole["total"] == pytest.approx(told)


def test_parts_that_count_alike_would_be_caught(make_captioner: MakeCaptioner) -> None:
    """A mean of means is not the mean: the parts have other numbers of words."""
    taught = lesson(make_captioner)
    whole, _ = gradient(taught, cut(BATCH, [0], 1))
    parts = [Part(part.batch, 0.5, 0.5, 0.5) for part in cut(BATCH, [0, 1], 2)]
    assert abs(gradient(taught, parts)[0]["loss"] - whole["loss"]) > 1e-4


def test_an_uncounted_part_has_no_gradient(make_captioner: MakeCaptioner) -> None:
    losses, own = gradient(lesson(make_captioner), [cut(BATCH, [0], 1)[0].uncounted()])
    assert losses == {"total": 0.0, "loss": 0.0, "penalty": 0.0}
    assert own.abs().max() == 0


def test_words_with_boxes_count_the_attention_loss(make_captioner: MakeCaptioner) -> None:
    """Of three boxed words two are in the first part: its mean counts for 2/3."""
    left = Phrase("thing", (0, 2), 0, ("other",), ((0.0, 0.0, 0.34, 1.0),))
    low = Phrase("thing", (1, 2), 1, ("other",), ((0.0, 0.5, 1.0, 1.0),))
    boxed = Batch(
        BATCH.positions, BATCH.mirrored, BATCH.words_BKT, [[(left,), ()], [(low,), ()], [()]]
    )
    taught = lesson(make_captioner, attention=0.7)

    def parts(count: int) -> list[Part]:
        own = [taught.with_wanted(part) for part in cut(boxed, range(count), count)]
        shares = [boxed_words(part) / 3 for part in own]
        assert shares == ([1.0] if count == 1 else [2 / 3, 1 / 3])
        return [replace(part, boxed=share) for part, share in zip(own, shares, strict=True)]

    whole, whole_gradient = gradient(taught, parts(1))
    found, found_gradient = gradient(taught, parts(2))
    assert found == pytest.approx(whole, abs=1e-12)
    torch.testing.assert_close(found_gradient, whole_gradient, rtol=0, atol=1e-12)


# --- a reward in place of people's words ----------------------------------------------------------


def earning(make_captioner: MakeCaptioner, vocabulary: Vocabulary, **reward: object) -> Lesson:
    """Ten pictures, each with captions of its own, and their mirror images with others."""
    captioner = make_captioner()
    fixed: Any = Fixed()
    fixed.grids, fixed.pictures = fixed.grids.float(), list(range(10))
    words = vocabulary.words[4:]
    said = [[f"{words[i % len(words)]} {words[(i + i // 5) % len(words)]}"] for i in range(20)]
    tree = {
        "data": {"kind": "shapes"},
        "reward": {"samples": 4, "end_mark": False} | reward,
        "train": {"epochs": 1},
        "search": {"max_words": 6},
    }
    return Lesson(
        captioner,
        fixed,
        check_settings(tree, "test"),
        MovingAverage(25),
        CiderReward(said, vocabulary),
    )


def test_the_reward_is_that_of_what_was_drawn(
    make_captioner: MakeCaptioner, vocabulary: Vocabulary
) -> None:
    """A mirrored picture's captions are compared with its own, mirrored, references."""
    taught = earning(make_captioner, vocabulary)
    assert taught.cider is not None
    batch = replace(BATCH, mirrored=[False, True, False])
    torch.manual_seed(0)
    found = taught(cut(batch, [0], 1)[0], 0.0, 0.0)
    assert found.keys() == {"total", "loss", "reward"}
    torch.manual_seed(0)
    scene = taught.captioner.look(taught.grids.read([7, 8, 9]))
    drawn = without_marks(draw(taught.captioner.decoder, scene, 4, 6))
    scores_BK = taught.cider.scores([7, 18, 9], drawn)
    assert scores_BK.max() > 0
    assert float(found["reward"]) == pytest.approx(100 * scores_BK.mean(), rel=1e-5)
    assert scores_BK.mean() != pytest.approx(taught.cider.scores([7, 8, 9], drawn).mean())


@pytest.mark.parametrize("baseline", ["others", "greedy"])
def test_what_earns_more_becomes_likelier(
    make_captioner: MakeCaptioner, vocabulary: Vocabulary, baseline: str
) -> None:
    taught = earning(make_captioner, vocabulary, baseline=baseline)
    optimizer = torch.optim.Adam(taught.parameters(), lr=0.02)
    torch.manual_seed(0)
    earned = []
    for _ in range(60):
        optimizer.zero_grad()
        losses = taught(cut(BATCH, [0], 1)[0], 0.0, 0.0)
        losses["total"].backward()
        optimizer.step()
        earned.append(float(losses["reward"]))
    assert sum(earned[-10:]) > 1.5 * sum(earned[:10])


def test_of_a_reward_an_uncounted_part_has_no_gradient(
    make_captioner: MakeCaptioner, vocabulary: Vocabulary
) -> None:
    losses, own = gradient(earning(make_captioner, vocabulary), [cut(BATCH, [0], 1)[0].uncounted()])
    assert losses == {"total": 0.0, "loss": 0.0, "reward": 0.0}
    assert own.abs().max() == 0
