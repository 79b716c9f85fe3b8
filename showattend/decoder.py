"""The LSTM that looks at the grid and writes a word at a time (Xu et al. 2015, section 3.1.2).

One :meth:`Decoder.step` serves training, beam search and sampling. What does not depend on the word
(grid projection, attention keys) is computed once per image by :meth:`Decoder.look`; in training,
the output layer runs once for all words, after the loop.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from showattend.attention import AdditiveScore, Choice, Glimpse, argmax, expectation, sample
from showattend.config import Attention
from showattend.encoder import GridShape
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
class Read:
    """What words say before anything is seen: embeddings (..., E), their part of the LSTM's gates
    (..., G), G = 4 D: input, forget, candidate and output.
    """

    embedded: Tensor
    gates: Tensor

    def at(self, places: Tensor) -> "Read":
        """What the words at some places of the first axis say, for any shape of places."""
        return Read(F.embedding(places, self.embedded), F.embedding(places, self.gates))


@dataclass(frozen=True)
class Step:
    """One word's worth: the new state, the gated context it used, and where it looked.

    ``alpha_BKP`` is the attention's distribution; ``chosen_BKP`` is what was made of it: the same,
    or 1 at one cell.
    """

    state: State
    context_BKC: Tensor
    alpha_BKP: Tensor
    chosen_BKP: Tensor


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


class FusedProjection(nn.Module):
    """a_i <- dropout(relu(W_e LayerNorm(early_i) + W_l LayerNorm(late_i))) of a fused grid.

    The late map is projected before it is enlarged to the early one's cells (bilinear): the two
    commute, and it has a fraction of the cells. Lin et al. 2017 (arXiv 1612.03144) join maps so.
    """

    def __init__(self, *, shape: GridShape, width: int, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.early_norm = nn.LayerNorm(shape.early, elementwise_affine=False)
        self.late_norm = nn.LayerNorm(shape.channels, elementwise_affine=False)
        self.early = nn.Linear(shape.early, width)
        self.late = nn.Linear(shape.channels, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, grid_BQC: Tensor) -> Tensor:
        late_BChw, early_BChw = self.shape.unpack(grid_BQC)
        late_BhwC = self.late(self.late_norm(late_BChw.permute(0, 2, 3, 1)))
        early_BhwC = self.early(self.early_norm(early_BChw.permute(0, 2, 3, 1)))
        enlarged_BChw = F.interpolate(
            late_BhwC.permute(0, 3, 1, 2), size=early_BhwC.shape[1:3], mode="bilinear"
        )
        both_BhwC = early_BhwC + enlarged_BChw.permute(0, 2, 3, 1)
        return self.dropout(torch.relu(both_BhwC)).flatten(1, 2)


class Coordinates(nn.Module):
    """a_i <- [a_i; x_i; y_i]: each cell says where it lies, in cells from the middle of the grid.

    A CNN's features say what is in a cell, and hardly where (Liu et al. 2018, CoordConv). With
    them, z_t holds the place that attention looked at. Counted in cells, the two numbers are heard
    among the many: between -1 and 1, relations such as "above" were learned far later.
    """

    places_P2: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        y_h, x_w = (torch.arange(n) - (n - 1) / 2 for n in (height, width))
        places_P2 = torch.cartesian_prod(y_h, x_w).flip(-1)  # row by row, as cells lie in a grid
        self.register_buffer("places_P2", places_P2, persistent=False)

    def forward(self, grid_BPC: Tensor) -> Tensor:
        return torch.cat([grid_BPC, self.places_P2.expand(len(grid_BPC), -1, -1)], dim=-1)


class Decoder(nn.Module):
    """Soft or hard attention captioner over any grid.

    Args:
        grid: shape of the encoder's grid.
        words: V, size of the vocabulary.
        embedding, hidden, attention: E, D, A of the shape legend.
        projection: width of the grid projection; None uses the grid as it is (the paper).
        coordinates: each cell also says where in the grid it lies.
        word_in_query: attention also hears the word just written, y_{t-1}. In the paper it knows
            h_{t-1} alone, so it looks before it knows which of two things has been begun.
        look: "soft", or "hard", which takes one cell for a word: the likeliest, unless told.
        glimpse: side of the window of cells that a look takes in; 1 is the cell alone.
        dropout: on the projected grid, the word embeddings and the output layer.
        tie_embeddings: the output layer L_o is the embedding matrix E.
    """

    def __init__(
        self,
        *,
        grid: GridShape,
        words: int,
        embedding: int,
        hidden: int,
        attention: int,
        projection: int | None,
        coordinates: bool,
        word_in_query: bool,
        look: Literal["soft", "hard"],
        glimpse: int,
        dropout: float,
        tie_embeddings: bool,
    ) -> None:
        super().__init__()
        self.project: nn.Module = nn.Identity()
        if projection and grid.early:
            self.project = FusedProjection(shape=grid, width=projection, dropout=dropout)
        elif projection:
            self.project = GridProjection(channels=grid.channels, width=projection, dropout=dropout)
        self.locate = Coordinates(grid.height, grid.width) if coordinates else nn.Identity()
        cells = (projection or grid.channels) + (2 if coordinates else 0)
        self.start_hidden = nn.Linear(cells, hidden)
        self.start_cell = nn.Linear(cells, hidden)
        self.word_in_query = word_in_query
        query = hidden + (embedding if word_in_query else 0)
        self.score = AdditiveScore(cells=cells, query=query, width=attention)
        self.own_choice: Choice = argmax if look == "hard" else expectation
        self.glimpse = Glimpse(grid.height, grid.width, glimpse)
        self.gate = nn.Linear(hidden, 1)
        self.embed = nn.Embedding(words, embedding, padding_idx=PAD)
        # The LSTM's four gates, input by input, so that a word's part can be computed beforehand.
        self.word_gates = nn.Linear(embedding, 4 * hidden)
        self.context_gates = nn.Linear(cells, 4 * hidden, bias=False)
        self.hidden_gates = nn.Linear(hidden, 4 * hidden, bias=False)
        self.hidden_to_word = nn.Linear(hidden, embedding)
        self.context_to_word = nn.Linear(cells, embedding, bias=False)
        self.word_logits = nn.Linear(embedding, words)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)
        if tie_embeddings:
            self.word_logits.weight = self.embed.weight
        nn.init.zeros_(self.word_logits.bias)
        for gates in (self.word_gates, self.context_gates, self.hidden_gates):
            nn.init.uniform_(gates.weight, -(hidden**-0.5), hidden**-0.5)  # as nn.LSTM
        with torch.no_grad():  # the forget gate starts open (Jozefowicz et al. 2015)
            self.word_gates.bias.zero_()[hidden : 2 * hidden].fill_(1.0)

    def look(self, grid_BPC: Tensor) -> Scene:
        """Project the encoder's grid, and its keys, once per image."""
        cells_BPC = self.locate(self.project(grid_BPC))
        return Scene(cells_BPC, self.score.keys(cells_BPC))

    def start(self, scene: Scene, captions: int) -> State:
        """h_0 = f_h(mean_i a_i), c_0 = f_c(mean_i a_i) for K captions an image (section 3.1.2)."""
        mean_B1C = scene.grid_BPC.mean(dim=1, keepdim=True)
        hidden_B1D = torch.tanh(self.start_hidden(mean_B1C))
        cell_B1D = torch.tanh(self.start_cell(mean_B1C))
        return State(hidden_B1D.expand(-1, captions, -1), cell_B1D.expand(-1, captions, -1))

    def read(self, words: Tensor) -> Read:
        """The words' embeddings, and what they tell the LSTM, for any shape of word ids."""
        embedded = self.dropout(self.embed(words))
        return Read(embedded, self.word_gates(embedded))

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

    def step(self, scene: Scene, state: State, read: Read, choose: Choice | None = None) -> Step:
        """Look, then write: attention from h_{t-1}, the gate, the LSTM (eqs. 1-5 and 13).

        Args:
            choose: how to look; None is the model's own way.
        """
        query_BKQ = state.hidden_BKD
        if self.word_in_query:
            query_BKQ = torch.cat([query_BKQ, read.embedded], dim=-1)
        alpha_BKP = self.score(query_BKQ, scene.keys_BPA).softmax(dim=-1)  # eq. 5
        chosen_BKP = (choose or self.own_choice)(alpha_BKP)
        context_BKC = torch.bmm(self.glimpse(chosen_BKP), scene.grid_BPC)
        # beta_t, a scalar: how much of what is seen goes into this word (section 4.2.1).
        context_BKC = torch.sigmoid(self.gate(state.hidden_BKD)) * context_BKC
        gates_BKG = (
            read.gates + self.context_gates(context_BKC) + self.hidden_gates(state.hidden_BKD)
        )
        enter, forget, candidate, leave = gates_BKG.chunk(4, dim=-1)
        cell_BKD = forget.sigmoid() * state.cell_BKD + enter.sigmoid() * candidate.tanh()
        hidden_BKD = leave.sigmoid() * cell_BKD.tanh()
        return Step(State(hidden_BKD, cell_BKD), context_BKC, alpha_BKP, chosen_BKP)

    def logits(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Deep output L_o (E y_{t-1} + L_h h_t + L_z z_t) over the vocabulary (eq. 7)."""
        word = embedded + self.hidden_to_word(hidden) + self.context_to_word(context)
        return self.word_logits(self.dropout(word))

    def next_words(
        self, scene: Scene, state: State, words_BK: Tensor, choose: Choice | None = None
    ) -> tuple[Step, Tensor]:
        """One step from word ids: the step and the next words' logits (B, K, V)."""
        read = self.read(words_BK)
        step = self.step(scene, state, read, choose)
        return step, self.logits(read.embedded, step.state.hidden_BKD, step.context_BKC)


@dataclass(frozen=True)
class Taught:
    """What teacher forcing gives for a batch of captions.

    ``logits_NV`` and ``targets_N`` hold only the words that are there, ordered by position, then
    image, then caption; ``alpha_BKTP`` is 0 where no word stands (``spoken_BKT`` is False).
    ``log_chosen_BKT`` is log alpha of the chosen cell, 0 where no word stands.
    """

    logits_NV: Tensor
    targets_N: Tensor
    alpha_BKTP: Tensor
    log_chosen_BKT: Tensor
    spoken_BKT: Tensor

    def place(self, values_N: Tensor) -> Tensor:
        """One value a word, from the order of ``logits_NV`` to (B, K, T), 0 where none stands."""
        return _placed(values_N, self.spoken_BKT)


def teach(
    decoder: Decoder,
    scene: Scene,
    words_BKT: Tensor,
    sampling: float = 0.0,
    choose: Choice | None = None,
) -> Taught:
    """Feed the true words and predict each next one, the end mark included.

    At every word only the leading block of images and captions that are still alive is computed;
    with images and captions ordered longest first, that leaves little padding.

    Args:
        words_BKT: the targets: words, END, then PAD.
        sampling: chance that an input word is the model's own guess (Bengio et al. 2015).
        choose: how to look; None is the model's own way.
    """
    spoken_BKT = words_BKT != PAD
    state = decoder.start(scene, words_BKT.shape[1])
    guesses_BK = None
    rows, alive = [], []
    read, inputs_BKT = _read_inputs(decoder, words_BKT, every_word=sampling > 0)
    for t, (images, captions) in enumerate(_living_blocks(spoken_BKT)):
        block = (slice(images), slice(captions))
        if (images, captions) != state.hidden_BKD.shape[:2]:
            scene, state = scene.select(block[0]), state.select(*block)
        words_BK = inputs_BKT[block][:, :, t]
        if guesses_BK is not None:
            guessed = torch.rand(words_BK.shape, device=words_BK.device) < sampling
            words_BK = torch.where(guessed, guesses_BK[block], words_BK)
        heard = read.at(words_BK)
        step = decoder.step(scene, state, heard, choose)
        state = step.state
        if sampling > 0:
            guesses_BK = _guesses(decoder, step, heard)
        rows.append(
            (heard.embedded, state.hidden_BKD, step.context_BKC, step.alpha_BKP, step.chosen_BKP)
        )
        alive.append(spoken_BKT[block][:, :, t].flatten())
    kept_N = torch.cat(alive).nonzero().squeeze(1)
    embedded_NE, hidden_ND, context_NC, alpha_NP, chosen_NP = (
        torch.cat([part.flatten(0, 1) for part in parts]).index_select(0, kept_N)
        for parts in zip(*rows, strict=True)
    )
    return Taught(
        decoder.logits(embedded_NE, hidden_ND, context_NC),
        words_BKT.permute(2, 0, 1)[spoken_BKT.permute(2, 0, 1)],
        _placed(alpha_NP, spoken_BKT),
        _placed((alpha_NP * chosen_NP.detach()).sum(dim=-1).clamp_min(1e-30).log(), spoken_BKT),
        spoken_BKT,
    )


def _placed(values_N: Tensor, spoken_BKT: Tensor) -> Tensor:
    """Of each word a value, or a row of them, to its place among the words; 0 elsewhere."""
    spoken_TBK = spoken_BKT.permute(2, 0, 1)  # the order of the rows
    values_TBK = values_N.new_zeros(*spoken_TBK.shape, *values_N.shape[1:])
    values_TBK[spoken_TBK] = values_N
    return values_TBK.movedim(0, 2)


def _read_inputs(decoder: Decoder, words_BKT: Tensor, *, every_word: bool) -> tuple[Read, Tensor]:
    """What the input words say, each different word read once, and where in it each input stands.

    In training all places of a word share one dropout mask (Gal and Ghahramani 2016, section 4.2).
    """
    inputs_BKT = F.pad(words_BKT[:, :, :-1], (1, 0), value=START)
    if every_word:
        return decoder.read(
            torch.arange(len(decoder.embed.weight), device=words_BKT.device)
        ), inputs_BKT
    used_U, places_BKT = torch.unique(inputs_BKT, return_inverse=True)
    return decoder.read(used_U), places_BKT


def _living_blocks(spoken_BKT: Tensor) -> list[tuple[int, int]]:
    """For every word, how many leading images and captions hold all living ones."""

    def leading(alive_XT: Tensor) -> list[int]:
        place = torch.arange(1, len(alive_XT) + 1, device=alive_XT.device).unsqueeze(1)
        return (alive_XT * place).amax(dim=0).tolist()

    return list(zip(leading(spoken_BKT.any(dim=1)), leading(spoken_BKT.any(dim=0)), strict=True))


@torch.no_grad()
def _guesses(decoder: Decoder, step: Step, read: Read) -> Tensor:
    return decoder.logits(read.embedded, step.state.hidden_BKD, step.context_BKC).argmax(dim=-1)
