"""The LSTM that looks at the grid and writes a word at a time (Xu et al. 2015, section 3.1.2).

One :meth:`Decoder.step` serves training, beam search and sampling. What does not depend on the word
(grid projection, attention keys) is computed once per image by :meth:`Decoder.look`; in training,
the output layer runs once for all words, after the loop.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from showattend.attention import AdditiveScore, soft_attention
from showattend.vocabulary import PAD, START


@dataclass(frozen=True)
class Scene:
    """What the decoder sees of B photographs: computed once, used at every word."""

    grid_BPC: Tensor
    keys_BPA: Tensor

    def select(self, images: Tensor | slice) -> "Scene":
        """The same of some of the images."""
        return Scene(self.grid_BPC[images], self.keys_BPA[images])


@dataclass(frozen=True)
class State:
    """The LSTM's memory of K captions of B photographs."""

    hidden_BKD: Tensor
    cell_BKD: Tensor

    def select(self, images: Tensor | slice, captions: Tensor | slice = slice(None)) -> "State":
        """The same of some images, and of the first or chosen captions of each."""
        return State(self.hidden_BKD[images, captions], self.cell_BKD[images, captions])


@dataclass(frozen=True)
class Step:
    """One word's worth: the new state, the gated context it used, and where it looked."""

    state: State
    context_BKC: Tensor
    alpha_BKP: Tensor


class GridProjection(nn.Module):
    """a_i <- dropout(relu(W_g LayerNorm(a_i))): the CNN's features in the decoder's own terms."""

    def __init__(self, *, channels: int, width: int, dropout: float) -> None:
        super().__init__()
        # No scale and shift of its own: the linear layer behind it has them already.
        self.norm = nn.LayerNorm(channels, elementwise_affine=False)
        self.linear = nn.Linear(channels, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, grid_BPC: Tensor) -> Tensor:
        return self.dropout(torch.relu(self.linear(self.norm(grid_BPC))))


class Decoder(nn.Module):
    """Soft attention captioner over any grid.

    Args:
        channels: C of the encoder's grid.
        words: V, size of the vocabulary.
        embedding, hidden, attention: E, D, A of the shape legend.
        projection: width of the grid projection; None uses the grid as it is (the paper).
        dropout: on the projected grid, the word embeddings and the output layer.
        tie_embeddings: the output layer L_o is the embedding matrix E.
    """

    def __init__(
        self,
        *,
        channels: int,
        words: int,
        embedding: int,
        hidden: int,
        attention: int,
        projection: int | None,
        dropout: float,
        tie_embeddings: bool,
    ) -> None:
        super().__init__()
        cells = projection or channels
        self.project: nn.Module = (
            GridProjection(channels=channels, width=projection, dropout=dropout)
            if projection
            else nn.Identity()
        )
        self.start_hidden = nn.Linear(cells, hidden)
        self.start_cell = nn.Linear(cells, hidden)
        self.score = AdditiveScore(cells=cells, query=hidden, width=attention)
        self.gate = nn.Linear(hidden, 1)
        self.embed = nn.Embedding(words, embedding, padding_idx=PAD)
        self.lstm = nn.LSTMCell(embedding + cells, hidden)
        self.hidden_to_word = nn.Linear(hidden, embedding)
        self.context_to_word = nn.Linear(cells, embedding, bias=False)
        self.word_logits = nn.Linear(embedding, words)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        if tie_embeddings:
            self.word_logits.weight = self.embed.weight
        nn.init.zeros_(self.word_logits.bias)
        with torch.no_grad():  # the forget gate starts open (Jozefowicz et al. 2015)
            self.lstm.bias_ih[hidden : 2 * hidden].fill_(1.0)

    def look(self, grid_BPC: Tensor) -> Scene:
        """Project the encoder's grid, and its keys, once per image."""
        projected_BPC = self.project(grid_BPC)
        return Scene(projected_BPC, self.score.keys(projected_BPC))

    def start(self, scene: Scene, captions: int) -> State:
        """h_0 = f_h(mean_i a_i), c_0 = f_c(mean_i a_i) for K captions an image (section 3.1.2)."""
        mean_B1C = scene.grid_BPC.mean(dim=1, keepdim=True)
        hidden_B1D = torch.tanh(self.start_hidden(mean_B1C))
        cell_B1D = torch.tanh(self.start_cell(mean_B1C))
        return State(hidden_B1D.expand(-1, captions, -1), cell_B1D.expand(-1, captions, -1))

    def embed_words(self, words: Tensor) -> Tensor:
        """E y, (..., E)."""
        return self.dropout(self.embed(words))

    def step(self, scene: Scene, state: State, embedded_BKE: Tensor) -> Step:
        """Look, then write: attention from h_{t-1}, the gate, the LSTM (eqs. 1-5 and 13)."""
        scores_BKP = self.score(state.hidden_BKD, scene.keys_BPA)
        context_BKC, alpha_BKP = soft_attention(scores_BKP, scene.grid_BPC)
        # beta_t, a scalar: how much of what is seen goes into this word (section 4.2.1).
        context_BKC = torch.sigmoid(self.gate(state.hidden_BKD)) * context_BKC
        entering = torch.cat([embedded_BKE, context_BKC], dim=-1).flatten(0, 1)
        memory = (state.hidden_BKD.flatten(0, 1), state.cell_BKD.flatten(0, 1))
        hidden_ND, cell_ND = self.lstm(entering, memory)
        shape_BK = embedded_BKE.shape[:2]
        state = State(hidden_ND.unflatten(0, shape_BK), cell_ND.unflatten(0, shape_BK))
        return Step(state, context_BKC, alpha_BKP)

    def logits(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Deep output L_o (E y_{t-1} + L_h h_t + L_z z_t) over the vocabulary (eq. 7)."""
        word = embedded + self.hidden_to_word(hidden) + self.context_to_word(context)
        return self.word_logits(self.dropout(word))

    def next_words(self, scene: Scene, state: State, words_BK: Tensor) -> tuple[Step, Tensor]:
        """One step from word ids: the step and the next words' logits (B, K, V)."""
        embedded_BKE = self.embed_words(words_BK)
        step = self.step(scene, state, embedded_BKE)
        return step, self.logits(embedded_BKE, step.state.hidden_BKD, step.context_BKC)


@dataclass(frozen=True)
class Taught:
    """What teacher forcing gives for a batch of captions.

    ``logits_NV`` and ``targets_N`` hold only the words that are there, ordered by position, then
    image, then caption; ``alpha_BKTP`` is 0 where no word stands (``spoken_BKT`` is False).
    """

    logits_NV: Tensor
    targets_N: Tensor
    alpha_BKTP: Tensor
    spoken_BKT: Tensor


def teach(decoder: Decoder, scene: Scene, words_BKT: Tensor, sampling: float = 0.0) -> Taught:
    """Feed the true words and predict each next one, the end mark included.

    At every word only the leading block of images and captions that are still alive is computed;
    with images and captions ordered longest first, that leaves little padding.

    Args:
        words_BKT: the targets: words, END, then PAD.
        sampling: chance that an input word is the model's own guess (Bengio et al. 2015).
    """
    spoken_BKT = words_BKT != PAD
    state = decoder.start(scene, words_BKT.shape[1])
    rows, alphas, targets = [], [], []
    words_BK = torch.full_like(words_BKT[:, :, 0], START)
    for t, (images, captions) in enumerate(_living_blocks(spoken_BKT)):
        block = (slice(images), slice(captions))
        if (images, captions) != words_BK.shape:
            words_BK, scene, state = words_BK[block], scene.select(block[0]), state.select(*block)
        embedded_BKE = decoder.embed_words(words_BK)
        step = decoder.step(scene, state, embedded_BKE)
        state = step.state
        alive = spoken_BKT[block][:, :, t]
        rows.append((embedded_BKE[alive], state.hidden_BKD[alive], step.context_BKC[alive]))
        targets.append(words_BKT[block][:, :, t][alive])
        alphas.append(_pad_block(step.alpha_BKP * alive.unsqueeze(-1), spoken_BKT.shape))
        words_BK = words_BKT[block][:, :, t]
        if sampling > 0:
            words_BK = _mix_guesses(decoder, embedded_BKE, step, words_BK, sampling)
    embedded_NE, hidden_ND, context_NC = (torch.cat(parts) for parts in zip(*rows, strict=True))
    logits_NV = decoder.logits(embedded_NE, hidden_ND, context_NC)
    return Taught(logits_NV, torch.cat(targets), torch.stack(alphas, dim=2), spoken_BKT)


def _living_blocks(spoken_BKT: Tensor) -> list[tuple[int, int]]:
    """For every word, how many leading images and captions hold all living ones."""

    def leading(alive_XT: Tensor) -> list[int]:
        place = torch.arange(1, len(alive_XT) + 1, device=alive_XT.device).unsqueeze(1)
        return (alive_XT * place).amax(dim=0).tolist()

    return list(zip(leading(spoken_BKT.any(dim=1)), leading(spoken_BKT.any(dim=0)), strict=True))


def _pad_block(alpha_bkP: Tensor, shape_BKT: torch.Size) -> Tensor:
    images, captions, _ = alpha_bkP.shape
    missing = (0, 0, 0, shape_BKT[1] - captions, 0, shape_BKT[0] - images)
    return nn.functional.pad(alpha_bkP, missing)


@torch.no_grad()
def _mix_guesses(
    decoder: Decoder, embedded_BKE: Tensor, step: Step, words_BK: Tensor, chance: float
) -> Tensor:
    logits_BKV = decoder.logits(embedded_BKE, step.state.hidden_BKD, step.context_BKC)
    guessed = torch.rand(words_BK.shape, device=words_BK.device) < chance
    return torch.where(guessed, logits_BKV.argmax(dim=-1), words_BK)
