"""Choosing the words: greedy, beam search and sampling over the decoder's one step.

All work on many images at once and carry the attention along; images that are done are dropped.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from showattend.attention import Choice, expectation, one_cell
from showattend.captioner import Captioner
from showattend.config import Attention, SearchSettings
from showattend.decoder import Decoder, Scene, State, take
from showattend.steering import Steering
from showattend.tokenizer import ptb_tokens
from showattend.vocabulary import END, PAD, START, UNKNOWN, Vocabulary

#: Never written. The end mark is forbidden as the first word besides: a caption has words.
_FORBIDDEN = [PAD, START, UNKNOWN]
#: Tokens that are written without a space before them. Others with an apostrophe are words: 'til.
_JOINED = ("'s", "'m", "'d", "'ll", "'re", "'ve", "n't")


class WeightsError(ValueError):
    """A model's weights foretell nothing: one clear line."""


@dataclass(frozen=True)
class Regions:
    """What the cells of the attention are: a grid of ``height`` x ``width``, row by row."""

    height: int
    width: int


@dataclass(frozen=True, eq=False)
class Boxes:
    """What attention chooses among where there is no grid: P regions of the photograph.

    ``boxes_P4`` is x0, y0, x1, y1 in fractions of the photograph, from its upper left corner.
    """

    boxes_P4: np.ndarray


@dataclass(frozen=True, eq=False)
class Caption:
    """A caption and where the model looked for each of its T words.

    A caption equals itself alone: arrays have no single answer to ``==``, and no hash.

    Attributes:
        words: the words, without marks.
        log_prob: log p(words, end mark | photograph) in nats, not normalised by length.
        weights: (T, P), the weights the context was made with; every row sums to 1. Of a hard look
            they are even over one cell, or over the window around it, and 0 elsewhere. With several
            layers or heads, their mean.
        alpha: (T, P), the attention distribution; the same as ``weights`` for soft attention.
        heads: (T, L, H, P), each layer's and head's distribution where there are several of them,
            else None.
        regions: what the P cells are; `Boxes` where the model looks at regions of its own.
        gates: place -> the factor of each channel there, (C,), as `CaptionModel.channel_gates`
            gives them; empty of a model without channel attention, or of a cached grid.
    """

    words: tuple[str, ...]
    log_prob: float
    weights: np.ndarray
    alpha: np.ndarray
    heads: np.ndarray | None
    regions: Regions | Boxes
    gates: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The words as one line; "'s", "n't" and their kin are joined to the word before them."""
        text = ""
        for word in self.words:
            text += word if not text or word in _JOINED else f" {word}"
        return text

    def maps(self) -> np.ndarray:
        """The weights as T maps of the grid, (T, h, w).

        Raises:
            ValueError: the model looked at regions, which are no grid; one line.
        """
        return self._as_maps(self.weights)

    def alpha_maps(self) -> np.ndarray:
        """The attention's distribution as T maps of the grid, (T, h, w).

        Raises:
            ValueError: as :meth:`maps`.
        """
        return self._as_maps(self.alpha)

    def _as_maps(self, values_P: np.ndarray) -> np.ndarray:
        if isinstance(self.regions, Boxes):
            raise ValueError(
                "the model looked at regions and not at a grid: there are no maps; take "
                "caption.weights (T, P) with caption.regions.boxes_P4"
            )
        return values_P.reshape(*values_P.shape[:-1], self.regions.height, self.regions.width)

    def head_maps(self) -> np.ndarray:
        """The distribution of every layer and head as maps of the grid, (T, L, H, h, w).

        Where there is one layer of one head, its maps are `alpha_maps`.

        Raises:
            ValueError: as :meth:`maps`.
        """
        return self._as_maps(self.alpha[:, None, None] if self.heads is None else self.heads)


@torch.inference_mode()
def beam_search(
    captioner: Captioner,
    vocabulary: Vocabulary,
    scene: Scene,
    search: SearchSettings,
    steering: Steering | None = None,
) -> list[list[Caption]]:
    """The best captions of every image, best first (at most ``beam_size`` each).

    Every live beam may end at every word, so that there is a caption even if no beam would choose
    to. Captions are ranked by log p / (T + 1)^length_penalty (T words and the end mark). An image
    is done once no live beam, at its present length, ranks above its worst kept caption; with
    ``length_penalty`` 0 that rule loses nothing. A beam of one is greedy search.

    Args:
        steering: where to look, and what to begin with: fewer words than ``max_words``. The words
            that it gives count in log p as those that are found.
    """
    steering = steering or Steering()
    if search.beam_size == 1:
        captions = pick_words(
            captioner,
            vocabulary,
            scene,
            max_words=search.max_words,
            attention=search.attention,
            steering=steering,
        )
        return [[caption] for caption in captions]
    beam = _Beam.begin(captioner.decoder, scene, search, steering)
    done: dict[int, _Ended] = {}
    for t in range(search.max_words):
        beam.advance(t)
        finished = beam.finished(t)
        if t + 1 == search.max_words:
            finished = torch.ones_like(finished)
        for row in finished.nonzero().flatten().tolist():
            done[int(beam.images[row])] = beam.ended.of_image(row)
        if bool(finished.all()):
            break
        if bool(finished.any()):
            beam.keep(~finished)
    write = _Writer(captioner, vocabulary, scene, beam.choose)
    return [done[image].captions(write, image) for image in range(len(scene.grid_BPC))]


@dataclass
class _Ended:
    """The best K ended captions of each image so far."""

    rank_BK: Tensor
    log_prob_BK: Tensor
    words_BKT: Tensor
    alpha_BKTHP: Tensor
    cell_BKTH: Tensor

    def merge(self, other: "_Ended") -> "_Ended":
        """The best K of both."""
        both = {
            name: torch.cat([value, getattr(other, name)], dim=1)
            for name, value in vars(self).items()
        }
        order_BK = both["rank_BK"].topk(self.rank_BK.shape[1], dim=1).indices
        return _Ended(**{name: take(value, order_BK) for name, value in both.items()})

    def select(self, images: Tensor) -> "_Ended":
        return _Ended(**{name: value[images] for name, value in vars(self).items()})

    def of_image(self, image: int) -> "_Ended":
        return _Ended(**{name: value[image].clone() for name, value in vars(self).items()})

    def captions(self, write: "_Writer", image: int) -> list[Caption]:
        """Of one image's (K, ...) tensors."""
        rows = (self.rank_BK, self.log_prob_BK, self.words_BKT, self.alpha_BKTHP, self.cell_BKTH)
        return [
            write(image, words.tolist(), float(log_prob), alpha, cell)
            for rank, log_prob, words, alpha, cell in zip(*rows, strict=True)
            if rank > -torch.inf
        ]


@dataclass
class _Beam:
    """K live beams of each image that is not done."""

    decoder: Decoder
    choose: Choice
    search: SearchSettings
    steering: Steering
    images: Tensor
    scene: Scene
    state: State
    log_prob_BK: Tensor
    words_BKT: Tensor
    alpha_BKTHP: Tensor
    cell_BKTH: Tensor
    ended: _Ended

    @classmethod
    def begin(
        cls, decoder: Decoder, scene: Scene, search: SearchSettings, steering: Steering
    ) -> "_Beam":
        images, cells, _ = scene.grid_BPC.shape
        heads = decoder.layers * decoder.heads
        shape = (images, search.beam_size)
        at = scene.grid_BPC
        log_prob_BK = at.new_full(shape, -torch.inf)
        nothing = log_prob_BK.clone()
        log_prob_BK[:, 0] = 0.0  # all beams are equal at first: let one of them count
        words_BKT = torch.full((*shape, search.max_words), END, device=at.device)
        alpha_BKTHP = at.new_zeros(*shape, search.max_words, heads, cells)
        cell_BKTH = torch.zeros(alpha_BKTHP.shape[:-1], dtype=torch.long, device=at.device)
        return cls(
            decoder,
            decoder.choice(search.attention),
            search,
            steering,
            torch.arange(images, device=at.device),
            scene,
            decoder.start(scene, search.beam_size),
            log_prob_BK,
            words_BKT,
            alpha_BKTHP,
            cell_BKTH,
            _Ended(nothing, nothing, words_BKT, alpha_BKTHP, cell_BKTH),
        )

    def advance(self, t: int) -> None:
        """End every beam that may end here, then extend the beams by their best words."""
        start = torch.full_like(self.words_BKT[:, :, 0], START)
        last_BK = self.words_BKT[:, :, t - 1] if t else start
        scene, begin = self.steering.scene(self.scene, t), self.steering.begin
        step = self.decoder.step(scene, self.state, last_BK, self.choose)
        total_BKV = self.log_prob_BK.unsqueeze(-1) + _log_probs(step.logits_BKV)
        if t >= max(1, len(begin)):
            self._end(total_BKV[:, :, END], t)
        total_BKV[:, :, [*_FORBIDDEN, END]] = -torch.inf
        if t < len(begin):  # one beam goes on, as at first; the others have no probability
            others_V = torch.arange(total_BKV.shape[-1], device=total_BKV.device) != begin[t]
            total_BKV[:, :, others_V] = -torch.inf
        vocabulary = total_BKV.shape[-1]
        best = total_BKV.flatten(1).topk(self.search.beam_size, dim=1)
        parent_BK = best.indices // vocabulary
        self.log_prob_BK = best.values
        self.state = step.state.follow(parent_BK)
        self.words_BKT = take(self.words_BKT, parent_BK)
        self.words_BKT[:, :, t] = best.indices % vocabulary
        self.alpha_BKTHP = take(self.alpha_BKTHP, parent_BK)
        self.alpha_BKTHP[:, :, t] = take(step.alpha_BKHP, parent_BK)
        self.cell_BKTH = take(self.cell_BKTH, parent_BK)
        self.cell_BKTH[:, :, t] = take(step.chosen_BKHP.argmax(dim=-1), parent_BK)
        if t + 1 == self.search.max_words:
            # No word may follow: the live beams end here as they are, with the mark's own share.
            scene = self.steering.scene(self.scene, t + 1)
            step = self.decoder.step(scene, self.state, best.indices % vocabulary, self.choose)
            self._end(self.log_prob_BK + _log_probs(step.logits_BKV)[:, :, END], t + 1)

    def _end(self, log_prob_BK: Tensor, words: int) -> None:
        rank_BK = log_prob_BK / (words + 1) ** self.search.length_penalty
        here = _Ended(rank_BK, log_prob_BK, self.words_BKT, self.alpha_BKTHP, self.cell_BKTH)
        self.ended = self.ended.merge(here)

    def finished(self, t: int) -> Tensor:
        """(B,) bool: no live beam ranks above the image's worst kept caption."""
        rank_B = self.log_prob_BK.amax(dim=1) / (t + 2) ** self.search.length_penalty
        return self.ended.rank_BK.amin(dim=1) >= rank_B

    def keep(self, images: Tensor) -> None:
        """Go on with some of the images (a mask) only."""
        self.images = self.images[images]
        self.scene = self.scene.select(images)
        self.steering = self.steering.select(images)
        self.state = self.state.select(images)
        self.log_prob_BK = self.log_prob_BK[images]
        self.words_BKT = self.words_BKT[images]
        self.alpha_BKTHP = self.alpha_BKTHP[images]
        self.cell_BKTH = self.cell_BKTH[images]
        self.ended = self.ended.select(images)


def _log_probs(logits_V: Tensor) -> Tensor:
    """Of the last axis, whatever is before it; with one that is no number, no word can be chosen.

    Raises:
        WeightsError: some are infinite or no numbers; one line.
    """
    log_probs_V = logits_V.log_softmax(dim=-1)
    if not bool(log_probs_V.isfinite().all()):
        raise WeightsError(
            "the model's scores are not finite numbers: its weights are damaged; use another model"
        )
    return log_probs_V


@torch.inference_mode()
def pick_words(
    captioner: Captioner,
    vocabulary: Vocabulary,
    scene: Scene,
    *,
    max_words: int,
    temperature: float = 0.0,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
    attention: Attention | None = None,
    steering: Steering | None = None,
) -> list[Caption]:
    """One caption an image, a word at a time.

    Args:
        temperature: 0 takes the most probable word (greedy search); above, words are sampled from
            softmax(logits / temperature).
        top_p: sample among the most probable words that together hold this much (Holtzman et al.
            2020).
        attention: how to look; None is the model's own way.
        steering: as of `beam_search`.
    """
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature is {temperature}: expected 0 (greedy) or more")
    decoder, choose = captioner.decoder, captioner.decoder.choice(attention)
    steering = steering or Steering()
    state = decoder.start(scene, 1)
    images = len(scene.grid_BPC)
    words_B1 = torch.full((images, 1), START, device=scene.grid_BPC.device)
    log_prob_B = scene.grid_BPC.new_zeros(images)
    ended_B = torch.zeros(images, dtype=torch.bool, device=words_B1.device)
    words, alphas, cells = [], [], []
    for t in range(max_words + 1):
        step = decoder.step(steering.scene(scene, t), state, words_B1, choose)
        state = step.state
        log_probs_BV = _log_probs(step.logits_BKV[:, 0])
        allowed_BV = log_probs_BV.clone()
        allowed_BV[:, _FORBIDDEN + ([END] if t == 0 else [])] = -torch.inf
        chosen_B = _choose(allowed_BV, temperature, top_p, generator)
        if t < len(steering.begin):
            chosen_B = torch.full_like(chosen_B, steering.begin[t])
        if t == max_words:
            chosen_B = torch.full_like(chosen_B, END)
        chosen_B = torch.where(ended_B, END, chosen_B)
        gained_B = log_probs_BV.gather(1, chosen_B.unsqueeze(1)).squeeze(1)
        log_prob_B = log_prob_B + torch.where(ended_B, 0.0, gained_B)
        ended_B = ended_B | (chosen_B == END)
        words.append(chosen_B)
        alphas.append(step.alpha_BKHP[:, 0])
        cells.append(step.chosen_BKHP[:, 0].argmax(dim=-1))
        if bool(ended_B.all()):
            break
        words_B1 = chosen_B.unsqueeze(1)
    words_BT, alpha_BTHP, cell_BTH = (torch.stack(each, dim=1) for each in (words, alphas, cells))
    write = _Writer(captioner, vocabulary, scene, choose)
    return [
        write(b, words_BT[b].tolist(), float(log_prob_B[b]), alpha_BTHP[b], cell_BTH[b])
        for b in range(images)
    ]


def _choose(
    log_probs_BV: Tensor, temperature: float, top_p: float, generator: torch.Generator | None
) -> Tensor:
    if temperature == 0.0:
        return log_probs_BV.argmax(dim=-1)
    probs_BV = (log_probs_BV / temperature).softmax(dim=-1)
    ordered_BV, order_BV = probs_BV.sort(dim=-1, descending=True)
    before_BV = ordered_BV.cumsum(dim=-1) - ordered_BV
    ordered_BV[:, 1:].masked_fill_(before_BV[:, 1:] >= top_p, 0.0)  # the first is always kept
    picked_B1 = torch.multinomial(ordered_BV, 1, generator=generator)
    return order_BV.gather(1, picked_B1).squeeze(1)


@torch.inference_mode()
def attend(
    captioner: Captioner,
    vocabulary: Vocabulary,
    scene: Scene,
    sentence: str,
    steering: Steering | None = None,
) -> list[Caption]:
    """Where the model looks when it is made to say a sentence (teacher forcing), per image.

    Of the ``steering`` the cells alone count: all words are given.
    """
    words = words_of(sentence)
    ids = vocabulary.encode_words(words)
    decoder, images = captioner.decoder, len(scene.grid_BPC)
    steering = steering or Steering()
    state = decoder.start(scene, 1)
    log_prob_B = scene.grid_BPC.new_zeros(images)
    alphas, cells = [], []
    for t, (last, word) in enumerate(zip([START, *ids], [*ids, END], strict=True)):
        words_B1 = torch.full((images, 1), last, device=scene.grid_BPC.device)
        step = decoder.step(steering.scene(scene, t), state, words_B1)
        state = step.state
        log_prob_B = log_prob_B + _log_probs(step.logits_BKV[:, 0])[:, word]
        alphas.append(step.alpha_BKHP[:, 0])
        cells.append(step.chosen_BKHP[:, 0].argmax(dim=-1))
    alpha_BTHP, cell_BTH = torch.stack(alphas[:-1], dim=1), torch.stack(cells[:-1], dim=1)
    write = _Writer(captioner, vocabulary, scene, decoder.own_choice)
    return [
        write.spoken(b, words, float(log_prob_B[b]), alpha_BTHP[b], cell_BTH[b])
        for b in range(images)
    ]


def words_of(sentence: object) -> tuple[str, ...]:
    """The words of a sentence that the model is made to say.

    Raises:
        ValueError: the sentence is no text or has no words; one line.
    """
    if not isinstance(sentence, str):
        raise ValueError(f"{sentence!r}: is no text; give a sentence such as 'a dog on grass'")
    words = tuple(ptb_tokens(sentence))
    if not words:
        raise ValueError(f"{sentence!r}: has no words; give a sentence such as 'a dog on grass'")
    return words


@dataclass(frozen=True)
class _Writer:
    """Ids and tensors of one caption of an image in, the caption out."""

    captioner: Captioner
    vocabulary: Vocabulary
    scene: Scene
    choose: Choice

    def __call__(
        self, image: int, ids: list[int], log_prob: float, alpha_THP: Tensor, cell_TH: Tensor
    ) -> Caption:
        return self.spoken(image, self.vocabulary.decode(ids), log_prob, alpha_THP, cell_TH)

    def spoken(
        self,
        image: int,
        words: tuple[str, ...],
        log_prob: float,
        alpha_THP: Tensor,
        cell_TH: Tensor,
    ) -> Caption:
        """Args: alpha_THP, cell_TH: of the words, and perhaps of more steps behind them."""
        alpha_THP, cell_TH = alpha_THP[: len(words)], cell_TH[: len(words)]
        looked_THP = alpha_THP if self.choose is expectation else one_cell(cell_TH, alpha_THP)
        decoder = self.captioner.decoder
        weights_TP = decoder.glimpse(looked_THP.mean(dim=1))
        heads_TLHP = alpha_THP.unflatten(1, (decoder.layers, decoder.heads))
        alpha, weights, heads = (
            self._there(image, values) for values in (alpha_THP.mean(dim=1), weights_TP, heads_TLHP)
        )
        several = decoder.layers * decoder.heads > 1
        regions = self._regions(image)
        gates = {place: _array(gates_BC[image]) for place, gates_BC in self.scene.gates.items()}
        return Caption(words, log_prob, weights, alpha, heads if several else None, regions, gates)

    def _regions(self, image: int) -> Regions | Boxes:
        if self.scene.boxes_BP4 is None:
            return Regions(self.captioner.shape.height, self.captioner.shape.width)
        return Boxes(self._there(image, self.scene.boxes_BP4[image].T).T)

    def _there(self, image: int, values_XP: Tensor) -> np.ndarray:
        """Without the places where the image has no cell, and other images of its batch do."""
        if self.scene.mask_BP is None:
            return _array(values_XP)
        return _array(values_XP[..., self.scene.mask_BP[image]])


def _array(values: Tensor) -> np.ndarray:
    array: np.ndarray = values.float().cpu().numpy()
    return array
