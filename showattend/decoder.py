"""What every decoder has: it looks at a grid and writes a word at a time.

One :meth:`Decoder.step` serves beam search, sampling and forced sentences; :meth:`Decoder.teach`
tells whole captions in training. What does not depend on the word (the cells, the attention's keys
and values) is computed once per image by :meth:`Decoder.look`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from showattend.attention import Choice, Glimpse, argmax, expectation, sample
from showattend.cells import Coordinates, FusedProjection, GridProjection
from showattend.config import Attention, DecoderSettings
from showattend.encoder import GridShape
from showattend.self_attention import GridSelfAttention
from showattend.vocabulary import PAD, START, UNKNOWN


class DecoderError(ValueError):
    """Settings of a decoder that do not fit together: one clear line."""


@dataclass(frozen=True)
class Scene:
    """What the decoder sees of B photographs: computed once, used at every word.

    ``keys`` and ``values`` have one tensor for each layer of attention; ``values`` are
    (B, H, P, c), ``keys`` what the layer's score function makes of the cells. ``mask_BP`` is False
    where an image has no cell; None where all are there. ``boxes_BP4`` is where regions lie: x0,
    y0, x1, y1 in fractions of the photograph; None of a grid's cells. ``gates`` (B, C) are channel
    attention's by place, where somebody listened to them: see `channels.look_with_gates`.
    """

    grid_BPC: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    mask_BP: Tensor | None = None
    boxes_BP4: Tensor | None = None
    gates: dict[str, Tensor] = field(default_factory=dict)

    def select(self, images: Tensor | slice) -> "Scene":
        """The same of some of the images."""
        return Scene(
            self.grid_BPC[images],
            tuple(keys[images] for keys in self.keys),
            tuple(values[images] for values in self.values),
            None if self.mask_BP is None else self.mask_BP[images],
            None if self.boxes_BP4 is None else self.boxes_BP4[images],
            {place: gates_BC[images] for place, gates_BC in self.gates.items()},
        )


class State:
    """The memory of K captions of B photographs: a dataclass of tensors (B, K, ...)."""

    def select(self, images: Tensor | slice, captions: Tensor | slice = slice(None)) -> Self:
        """The same of some images, and of the first captions of each."""
        return self._each(lambda value: value[images, captions])

    def follow(self, parent_BK: Tensor) -> Self:
        """Caption k of an image goes on from what caption parent[b, k] was."""
        return self._each(lambda value: take(value, parent_BK))

    def repeated(self, captions: int) -> Self:
        """Of (B, 1, ...): K captions an image that all stand here."""
        return self._each(lambda value: value.expand(-1, captions, *value.shape[2:]))

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        return type(self)(**{name: change(value) for name, value in vars(self).items()})


def take(values: Tensor, parent_BK: Tensor) -> Tensor:
    """values[b, parent[b, k]], for values (B, K', ...)."""
    images_B1 = torch.arange(len(values), device=values.device).unsqueeze(1)
    return values[images_B1, parent_BK]


@dataclass(frozen=True)
class Step:
    """One word's worth: the new state, the next words' logits, and where the decoder looked.

    ``alpha_BKHP`` is the attention's distribution in every head, layer by layer; ``chosen_BKHP`` is
    what was made of it: the same, or 1 at one cell.
    """

    state: State
    logits_BKV: Tensor
    alpha_BKHP: Tensor
    chosen_BKHP: Tensor


@dataclass(frozen=True)
class Taught:
    """What teacher forcing gives for a batch of captions.

    ``logits_NV`` and ``targets_N`` hold only the words that are there, ordered by position, then
    image, then caption; ``alpha_BKTHP`` is 0 where no word stands (``spoken_BKT`` is False).
    ``log_chosen_BKT`` is the log probability of the chosen cells, 0 where no word stands.
    """

    logits_NV: Tensor
    targets_N: Tensor
    alpha_BKTHP: Tensor
    log_chosen_BKT: Tensor
    spoken_BKT: Tensor

    @classmethod
    def of(
        cls, logits_NV: Tensor, words_BKT: Tensor, alpha_NHP: Tensor, chosen_NHP: Tensor
    ) -> "Taught":
        """From what was told of the words that are there, in the order of ``logits_NV``."""
        spoken_BKT = words_BKT != PAD
        probability_NH = (alpha_NHP * chosen_NHP.detach()).sum(dim=-1)
        log_chosen_N = probability_NH.clamp_min(1e-30).log().sum(dim=-1)
        return cls(
            logits_NV,
            words_BKT.permute(2, 0, 1)[spoken_BKT.permute(2, 0, 1)],
            _placed(alpha_NHP, spoken_BKT),
            _placed(log_chosen_N, spoken_BKT),
            spoken_BKT,
        )

    def mean_alpha(self) -> Tensor:
        """The attention's distribution, (B, K, T, P): the mean over layers and heads."""
        return self.alpha_BKTHP.mean(dim=3)

    def place(self, values_N: Tensor) -> Tensor:
        """One value a word, from the order of ``logits_NV`` to (B, K, T), 0 where none stands."""
        return _placed(values_N, self.spoken_BKT)


def _placed(values_N: Tensor, spoken_BKT: Tensor) -> Tensor:
    """Of each word a value, or a row of them, to its place among the words; 0 elsewhere."""
    spoken_TBK = spoken_BKT.permute(2, 0, 1)  # the order of the rows
    values_TBK = values_N.new_zeros(*spoken_TBK.shape, *values_N.shape[1:])
    values_TBK[spoken_TBK] = values_N
    return values_TBK.movedim(0, 2)


def inputs_of(words_BKT: Tensor) -> Tensor:
    """The words that are read where these are to be written: START, then all but the last."""
    return F.pad(words_BKT[:, :, :-1], (1, 0), value=START)


class Decoder(nn.Module):
    """Soft or hard attention captioner over any grid.

    Args:
        grid: shape of the encoder's grid.
        words: V, size of the vocabulary.
    Raises:
        DecoderError: the heads do not divide the cells; one line.

    ``layers`` and ``heads`` say what the axis H of a step's attention is made of.
    """

    layers = 1

    def __init__(self, grid: GridShape, words: int, settings: DecoderSettings) -> None:
        super().__init__()
        width, dropout = settings.projection, settings.dropout
        self.project: nn.Module = nn.Identity()
        if width and grid.early:
            self.project = FusedProjection(shape=grid, width=width, dropout=dropout)
        elif width:
            self.project = GridProjection(channels=grid.channels, width=width, dropout=dropout)
        self.locate = (
            Coordinates(grid.height, grid.width) if settings.coordinates else nn.Identity()
        )
        self.cells = (width or grid.channels) + (2 if settings.coordinates else 0)  # C
        self.heads = settings.heads
        channels = f"the {self.cells} channels of a cell"
        channels += " (its two coordinates among them)" if settings.coordinates else ""
        if self.cells % self.heads:
            raise DecoderError(
                f"decoder.heads is {self.heads}: does not divide {channels}; choose another, or "
                "another decoder.projection"
            )
        self.mix: nn.Module = nn.Identity()
        if settings.grid_layers:
            if self.cells % 4:
                raise DecoderError(
                    f"decoder.grid_layers: 4 does not divide {channels}, which are to tell rows "
                    "and columns; choose another decoder.projection"
                )
            self.mix = GridSelfAttention(
                height=grid.height,
                width=grid.width,
                cells=self.cells,
                heads=self.heads,
                blocks=settings.grid_layers,
                dropout=dropout,
            )
        self.own_choice: Choice = argmax if settings.look == "hard" else expectation
        self.glimpse = Glimpse(grid.height, grid.width, settings.glimpse)
        self.embed = nn.Embedding(words, settings.embedding, padding_idx=PAD)
        self.word_logits = nn.Linear(settings.embedding, words)
        self.dropout = nn.Dropout(dropout)
        self.word_dropout = settings.word_dropout
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        if settings.tie_embeddings:
            self.word_logits.weight = self.embed.weight
        nn.init.zeros_(self.word_logits.bias)

    def look(self, grid_BPC: Tensor, mask_BP: Tensor | None = None) -> Scene:
        """The encoder's grid as cells, and their keys and values, once per image."""
        cells_BPC = self.mix(self.locate(self.project(grid_BPC)))
        return Scene(cells_BPC, *self.keys_and_values(cells_BPC), mask_BP)

    def inputs(self, words_BKT: Tensor) -> Tensor:
        """As `inputs_of`; in training some words are the unknown one (``decoder.word_dropout``)."""
        inputs_BKT = inputs_of(words_BKT)
        if not self.training or self.word_dropout == 0:
            return inputs_BKT
        lost_BKT = torch.rand(inputs_BKT.shape, device=inputs_BKT.device) < self.word_dropout
        return inputs_BKT.masked_fill(lost_BKT & (inputs_BKT != START), UNKNOWN)

    def keys_and_values(self, cells_BPC: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Of each layer of attention."""
        raise NotImplementedError

    def start(self, scene: Scene, captions: int) -> State:
        """The memory before the first word of K captions an image."""
        raise NotImplementedError

    def suggested(self, scene: Scene) -> Tensor:
        """Logits (B, V) of the words that the cells' mean suggests, in no order."""
        raise NotImplementedError

    def step(
        self, scene: Scene, state: State, words_BK: Tensor, choose: Choice | None = None
    ) -> Step:
        """Look, and foretell the words that come after these.

        Args:
            choose: how to look; None is the model's own way.
        """
        raise NotImplementedError

    def teach(
        self,
        scene: Scene,
        words_BKT: Tensor,
        sampling: float = 0.0,
        choose: Choice | None = None,
    ) -> Taught:
        """Feed the true words and predict each next one, the end mark included.

        Args:
            words_BKT: the targets: words, END, then PAD; images and captions the longest first.
            sampling: chance that an input word is the model's own guess (Bengio et al. 2015).
            choose: how to look; None is the model's own way.
        """
        raise NotImplementedError

    def choice(self, name: Attention | None) -> Choice:
        """How to look by name; None is the model's own way."""
        match name:
            case "argmax":
                return argmax
            case "sample":
                return sample
            case "expectation":
                return expectation
            case None:
                return self.own_choice
