"""The Transformer decoder (Vaswani et al. 2017, arXiv 1706.03762): words look at the words before
them, then at the grid.

Its attention over the grid is the same as the recurrent decoders': any score function, soft or
hard. In training all words of a caption are told at once; in captioning, what the words before have
become is kept, so that each step computes one word.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from showattend.attention import Choice, Look, attend, heads_of
from showattend.config import MOST_WORDS, DecoderSettings
from showattend.decoder import Decoder, Scene, State, Step, Taught, inputs_of
from showattend.encoder import GridShape
from showattend.scores import SCORES
from showattend.self_attention import FeedForward, SelfAttention, positions
from showattend.vocabulary import PAD


@dataclass(frozen=True)
class TransformerState(State):
    """Keys and values of the T words so far, of every layer: (B, K, T, L, 2, E)."""

    past_BKTL2E: Tensor


class Layer(nn.Module):
    """Masked self-attention, attention over the grid, feed-forward; each with dropout, Add & Norm
    (section 3.1 and figure 1).

    Args:
        cells: C, width of a cell.
        settings: ``embedding`` is the width E, ``hidden`` that within the feed-forward network.
    """

    def __init__(self, cells: int, settings: DecoderSettings) -> None:
        super().__init__()
        width, heads = settings.embedding, settings.heads
        self.heads = heads
        self.words = SelfAttention(width, heads)
        self.score = SCORES[settings.score](
            cells=cells, query=width, width=settings.attention, heads=heads
        )
        self.value = nn.Linear(cells, width)
        self.join = nn.Linear(width, width)
        self.feed_forward = FeedForward(width, settings.hidden, settings.dropout)
        self.after_words, self.after_grid, self.after_feed = (nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(settings.dropout)

    def keys(self, cells_BPC: Tensor) -> Tensor:
        """Of the grid, for the score function."""
        keys: Tensor = self.score.keys(cells_BPC)
        return keys

    def values(self, cells_BPC: Tensor) -> Tensor:
        """W_v a_i of the grid, (B, H, P, E / H)."""
        return heads_of(self.value(cells_BPC), self.heads)

    def add_words(self, x: Tensor, heard: Tensor) -> Tensor:
        """Add & Norm after the self-attention."""
        added: Tensor = self.after_words(x + self.dropout(heard))
        return added

    def add_grid(self, x_BXE: Tensor, look: Look) -> Tensor:
        """Add & Norm after the look at the grid, then feed-forward, Add & Norm."""
        x_BXE = self.after_grid(x_BXE + self.dropout(self.join(look.context_BKC)))
        added: Tensor = self.after_feed(x_BXE + self.dropout(self.feed_forward(x_BXE)))
        return added


class TransformerDecoder(Decoder):
    """Args: as of `Decoder`; ``settings.layers`` is L."""

    positions_TE: Tensor

    def __init__(self, grid: GridShape, words: int, settings: DecoderSettings) -> None:
        super().__init__(grid, words, settings)
        self.layers = settings.layers
        self.stack = nn.ModuleList(Layer(self.cells, settings) for _ in range(self.layers))
        # START and the most words that a search may write, each of which is read.
        table_TE = positions(MOST_WORDS + 1, settings.embedding)
        self.register_buffer("positions_TE", table_TE, persistent=False)

    def keys_and_values(self, cells_BPC: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Of every layer."""
        layers = self._layers()
        return (
            tuple(layer.keys(cells_BPC) for layer in layers),
            tuple(layer.values(cells_BPC) for layer in layers),
        )

    def start(self, scene: Scene, captions: int) -> State:
        """Nothing has been said."""
        width = self.embed.embedding_dim
        images = scene.grid_BPC.shape[0]  # len() would fix their number in an exported graph
        shape = (images, captions, 0, self.layers, 2, width)
        return TransformerState(scene.grid_BPC.new_zeros(shape))

    def step(
        self, scene: Scene, state: State, words_BK: Tensor, choose: Choice | None = None
    ) -> Step:
        """One word more; of those before it the keys and values are kept."""
        assert isinstance(state, TransformerState)
        past_BKTL2E = state.past_BKTL2E
        images, captions, before = past_BKTL2E.shape[:3]
        x_N1E = self._embedded(words_BK.reshape(-1, 1), before)
        looks, added = [], []
        for number, layer in enumerate(self._layers()):
            query, key, value = layer.words.project(x_N1E)
            past_NT2E = past_BKTL2E[:, :, :, number].flatten(0, 1)
            key = torch.cat([heads_of(past_NT2E[:, :, 0], self.heads), key], dim=2)
            value = torch.cat([heads_of(past_NT2E[:, :, 1], self.heads), value], dim=2)
            mixed_NH1d = F.scaled_dot_product_attention(query, key, value)
            x_N1E = layer.add_words(x_N1E, layer.words.join(mixed_NH1d))
            added.append(torch.stack([_last(key), _last(value)], dim=1))
            x_BKE = x_N1E.view(images, captions, -1)
            look = self._look_at(scene, number, x_BKE, choose)
            looks.append(look)
            x_N1E = layer.add_grid(x_BKE, look).view(images * captions, 1, -1)
        new_BK1L2E = torch.stack(added, dim=1).view(images, captions, 1, *past_BKTL2E.shape[3:])
        logits_BKV = self.word_logits(self.dropout(x_N1E)).view(images, captions, -1)
        return Step(
            TransformerState(torch.cat([past_BKTL2E, new_BK1L2E], dim=2)),
            logits_BKV,
            torch.cat([look.alpha_BKHP for look in looks], dim=2),
            torch.cat([look.chosen_BKHP for look in looks], dim=2),
        )

    def teach(
        self,
        scene: Scene,
        words_BKT: Tensor,
        sampling: float = 0.0,
        choose: Choice | None = None,
    ) -> Taught:
        """All words at once, each knowing those before it alone.

        ``sampling`` is 0, as the settings' check demands: a guess would need a pass of its own.
        """
        assert sampling == 0.0
        x_BKTE, looks, _ = self._read(scene, self.inputs(words_BKT), choose)
        spoken_TBK = (words_BKT != PAD).permute(2, 0, 1)

        def told(values_BKT: Tensor) -> Tensor:
            """The words that are there, by position, image and caption."""
            return values_BKT.movedim(2, 0)[spoken_TBK]

        def of_all(part: str) -> Tensor:
            layers_BXHP = torch.cat([getattr(look, part) for look in looks], dim=2)
            return told(layers_BXHP.unflatten(1, words_BKT.shape[1:]))

        logits_NV = self.word_logits(self.dropout(told(x_BKTE)))
        return Taught.of(logits_NV, words_BKT, of_all("alpha_BKHP"), of_all("chosen_BKHP"))

    def word_weights(self, scene: Scene, words_BKT: Tensor, choose: Choice | None = None) -> Tensor:
        """(B, K, L, H, T, T): at which words before it (columns) each word that is read looks.

        Row and column t stand for the t-th word read, START being the first. ``choose`` is as of
        `step`: what a layer reads depends on where the one below it looked.
        """
        _, _, entered = self._read(scene, inputs_of(words_BKT), choose)
        weights = [
            layer.words.weights(x_NTE, causal=True)
            for layer, x_NTE in zip(self._layers(), entered, strict=True)
        ]
        return torch.stack(weights, dim=1).unflatten(0, words_BKT.shape[:2])

    def _read(
        self, scene: Scene, inputs_BKT: Tensor, choose: Choice | None
    ) -> tuple[Tensor, list[Look], list[Tensor]]:
        """All words at once: what they have become (B, K, T, E), the layers' looks of B images by
        K T words, and what entered each layer (B K, T, E).
        """
        images, captions, words = inputs_BKT.shape
        x_NTE = self._embedded(inputs_BKT.flatten(0, 1), 0)
        looks, entered = [], []
        for number, layer in enumerate(self._layers()):
            entered.append(x_NTE)
            x_NTE = layer.add_words(x_NTE, layer.words(x_NTE, causal=True))
            x_BXE = x_NTE.reshape(images, captions * words, -1)
            looks.append(self._look_at(scene, number, x_BXE, choose))
            x_NTE = layer.add_grid(x_BXE, looks[-1]).view(images * captions, words, -1)
        return x_NTE.unflatten(0, (images, captions)), looks, entered

    def _layers(self) -> list[Layer]:
        return [layer for layer in self.stack if isinstance(layer, Layer)]

    def _embedded(self, words_NT: Tensor, before: int) -> Tensor:
        """dropout(sqrt(E) E y + position) (sections 3.4 and 3.5) of words, the first of which has
        so many before it.
        """
        place_TE = self.positions_TE[before : before + words_NT.shape[1]]
        scale = self.embed.embedding_dim**0.5
        embedded_NTE: Tensor = self.dropout(scale * self.embed(words_NT) + place_TE)
        return embedded_NTE

    def _look_at(self, scene: Scene, number: int, query_BXE: Tensor, choose: Choice | None) -> Look:
        layer = self._layers()[number]
        return attend(
            layer.score(query_BXE, scene.keys[number]),
            scene.values[number],
            scene.mask_BP,
            choose or self.own_choice,
            self.glimpse,
        )


def _last(heads_NHTd: Tensor) -> Tensor:
    """The last word's heads side by side, (N, E)."""
    return heads_NHTd[:, :, -1].flatten(1)
