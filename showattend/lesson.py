"""One training step's forward pass as a module: a part of a batch in, its part of the loss out.

The batch of an update is cut into parts: one for each process, times ``train.accumulate``. What is
minimised is a mean over all its words (of the penalty, over its captions; of supervised attention,
over its words with boxes; of a reward, over its images), so each part counts by its own share of
them, and the sum of the parts is the whole, however it was cut.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from showattend.batches import Batch
from showattend.captioner import Captioner
from showattend.cider_reward import CiderReward
from showattend.config import RewardSettings, Settings
from showattend.decoder import Scene, Taught
from showattend.grids import AnyGrids
from showattend.losses import (
    attention_loss,
    bag_of_words_loss,
    doubly_stochastic_penalty,
    word_loss,
)
from showattend.reinforce import MovingAverage, hard_attention_step
from showattend.self_critical import draw, leave_one_out, log_probs, policy_loss, without_marks
from showattend.supervision import wanted_attention


@dataclass(frozen=True)
class Part:
    """A part of a batch, and its shares, 0 to 1, of what the whole batch has of each.

    ``wanted_BKTP`` is where people say that each word's attention should lie, if that is taught.
    """

    batch: Batch
    words: float
    captions: float
    images: float
    wanted_BKTP: Tensor | None = None
    boxed: float = 0.0

    @property
    def counts(self) -> bool:
        """False where it only keeps the other processes from waiting."""
        return self.words > 0

    def uncounted(self) -> "Part":
        """The same, worth nothing: its gradient is 0."""
        return replace(self, words=0.0, captions=0.0, images=0.0, boxed=0.0)


def cut(batch: Batch, numbers: Sequence[int], parts: int) -> list[Part]:
    """Some of the parts of a batch; one without pictures is the first one's, uncounted.

    Args:
        numbers: which of the parts.
    """
    words, captions = batch.words(), batch.captions()

    def part(number: int) -> Part:
        own = batch.part(number, parts)
        if not own.positions:
            return part(0).uncounted()
        images = len(own.positions) / len(batch.positions)
        return Part(own, own.words() / words, own.captions() / captions, images)

    return [part(number) for number in numbers]


def boxed_words(part: Part) -> int:
    """How many of its words have boxes."""
    if part.wanted_BKTP is None or not part.counts:
        return 0
    return int((part.wanted_BKTP.sum(dim=-1) > 0).sum())


class Lesson(nn.Module):
    """The model with what it is to minimise.

    Args:
        grids: what is read by a batch's positions.
        rewards: hard attention's baseline; the returns of parts that count are noted in it.
        cider: of the settings' reward, against the captions of the grids' pictures and then of the
            mirrored ones; None without one.
    """

    def __init__(
        self,
        captioner: Captioner,
        grids: AnyGrids,
        settings: Settings,
        rewards: MovingAverage,
        cider: CiderReward | None = None,
    ) -> None:
        super().__init__()
        self.captioner = captioner
        self.grids = grids
        self.settings = settings
        self.rewards = rewards
        self.cider = cider

    def forward(self, part: Part, sampling: float, progress: float) -> dict[str, Tensor]:
        """A part's part of the loss: ``total`` is to be minimised, the others tell of it.

        Args:
            sampling: of words, as in `showattend.decoder.Decoder.teach`.
            progress: 0..1 over the training.
        """
        settings, weights, batch = self.settings, self.settings.loss, part.batch
        device = self.captioner.device
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.train.bf16):
            scene = self.captioner.look(self.grids.read(batch.positions, batch.mirrored).to(device))
            if self.cider is not None and settings.reward is not None:
                return self._earn(part, scene, self.cider, settings.reward)
            words_BKT = batch.words_BKT.to(device)
            total, loss, taught = self._tell(part, scene, words_BKT, sampling, progress)
            suggested_BV = self.captioner.decoder.suggested(scene) if weights.bag_of_words else None
        alpha_BKTP = taught.mean_alpha()
        alpha_BKTP = alpha_BKTP.to(torch.promote_types(alpha_BKTP.dtype, torch.float32))
        penalty = part.captions * doubly_stochastic_penalty(
            alpha_BKTP, taught.spoken_BKT, weights.doubly_stochastic_target, scene.mask_BP
        )
        parts = {"loss": part.words * loss, "penalty": penalty}
        total = part.words * total + weights.doubly_stochastic * penalty
        if suggested_BV is not None:
            parts["bag of words"] = part.words * bag_of_words_loss(
                suggested_BV, words_BKT, taught.spoken_BKT
            )
            total = total + weights.bag_of_words * parts["bag of words"]
        if part.wanted_BKTP is not None:
            paths = alpha_BKTP.shape[1] // part.wanted_BKTP.shape[1]
            wanted_BKTP = part.wanted_BKTP.to(device).repeat_interleave(paths, dim=1)
            parts["attention loss"] = part.boxed * attention_loss(alpha_BKTP, wanted_BKTP)
            total = total + weights.attention * parts["attention loss"]
        return {"total": total} | {name: value.detach() for name, value in parts.items()}

    def _earn(
        self, part: Part, scene: Scene, cider: CiderReward, settings: RewardSettings
    ) -> dict[str, Tensor]:
        """Captions are drawn and rewarded; ``reward`` is their CIDEr-D, times 100."""
        decoder, most = self.captioner.decoder, self.settings.search.max_words
        pictures = len(self.grids.pictures)
        images = [
            position + pictures * mirrored
            for position, mirrored in zip(part.batch.positions, part.batch.mirrored, strict=True)
        ]

        def rewards(words_BKT: Tensor) -> Tensor:
            scores_BK = cider.scores(images, without_marks(words_BKT))
            return torch.from_numpy(scores_BK).to(words_BKT.device)

        heat = settings.temperature
        words_BKT = draw(decoder, scene, settings.samples, most, temperature=heat)
        reward_BK = rewards(words_BKT)
        if settings.baseline == "others":
            baseline_BK = leave_one_out(reward_BK)
        else:
            baseline_BK = rewards(draw(decoder, scene, 1, most, greedy=True))
        log_prob_BKT = log_probs(decoder, scene, words_BKT, temperature=heat)
        total = part.images * policy_loss(log_prob_BKT, reward_BK, baseline_BK)
        reward = part.images * 100 * reward_BK.mean()
        return {"total": total, "loss": total.detach(), "reward": reward}

    def with_wanted(self, part: Part) -> Part:
        """The same, knowing where the attention of its words should lie."""
        _, captions, words = part.batch.words_BKT.shape
        shape = self.captioner.shape
        wanted_BKTP = wanted_attention(
            part.batch.phrases,
            captions=captions,
            words=words,
            height=shape.height,
            width=shape.width,
        )
        return replace(part, wanted_BKTP=wanted_BKTP)

    def _tell(
        self, part: Part, scene: Scene, words_BKT: Tensor, sampling: float, progress: float
    ) -> tuple[Tensor, Tensor, Taught]:
        """Teacher forcing: what is minimised, the words' loss (soft attention's is both), the rest,
        as means of this part alone.
        """
        settings, smoothing = self.settings, self.settings.loss.label_smoothing
        decoder = self.captioner.decoder
        if settings.decoder.look == "soft":
            taught = decoder.teach(scene, words_BKT, sampling)
            loss = word_loss(taught.logits_NV, taught.targets_N, smoothing)
            return loss, loss, taught
        total, taught = hard_attention_step(
            decoder,
            scene,
            words_BKT,
            settings.hard,
            self.rewards if part.counts else MovingAverage(settings.train.max_words + 1),
            label_smoothing=smoothing,
            sampling=sampling,
            progress=progress,
        )
        with torch.no_grad():
            loss = word_loss(taught.logits_NV, taught.targets_N, smoothing)
        return total, loss, taught
