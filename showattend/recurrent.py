"""The recurrent decoders (Xu et al. 2015, section 3.1.2): an LSTM or a GRU that looks at the grid,
takes in what it saw and the last word, and writes the next.

In training, the output layer runs once for all words, after the loop.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from showattend.attention import Choice, Look, attend, heads_of
from showattend.config import DecoderSettings
from showattend.decoder import Decoder, Scene, State, Step, Taught
from showattend.encoder import GridShape
from showattend.scores import SCORES
from showattend.vocabulary import PAD


@dataclass(frozen=True)
class LstmState(State):
    """What is said to the outside, and what is kept."""

    hidden_BKD: Tensor
    cell_BKD: Tensor


@dataclass(frozen=True)
class GruState(State):
    """What is said to the outside is all that is kept."""

    hidden_BKD: Tensor


@dataclass(frozen=True)
class Read:
    """What words say before anything is seen: embeddings (..., E), their part of the cell's gates
    (..., G).
    """

    embedded: Tensor
    gates: Tensor

    def at(self, places: Tensor) -> "Read":
        """What the words at some places of the first axis say, for any shape of places."""
        return Read(F.embedding(places, self.embedded), F.embedding(places, self.gates))


class RecurrentDecoder(Decoder):
    """What LSTM and GRU have in common.

    Args:
        grid, words: as of `Decoder`.
        settings: ``embedding``, ``hidden`` and ``attention`` are E, D and A of the shape legend.
        gates: how many gates of D the cell has, its candidate among them.
    """

    def __init__(
        self, grid: GridShape, words: int, settings: DecoderSettings, *, gates: int
    ) -> None:
        super().__init__(grid, words, settings)
        embedding, hidden = settings.embedding, settings.hidden
        self.start_hidden = nn.Linear(self.cells, hidden)
        self.word_in_query = settings.word_in_query
        self.score = SCORES[settings.score](
            cells=self.cells,
            query=hidden + (embedding if settings.word_in_query else 0),
            width=settings.attention,
            heads=settings.heads,
        )
        self.gate = nn.Linear(hidden, 1)
        # The cell's gates, input by input, so that a word's part can be computed beforehand.
        self.word_gates = nn.Linear(embedding, gates * hidden)
        self.context_gates = nn.Linear(self.cells, gates * hidden, bias=False)
        self.hidden_gates = nn.Linear(hidden, gates * hidden, bias=False)
        for layer in (self.word_gates, self.context_gates, self.hidden_gates):
            nn.init.uniform_(layer.weight, -(hidden**-0.5), hidden**-0.5)  # as nn.LSTM
        nn.init.zeros_(self.word_gates.bias)
        self.deep_output = settings.deep_output
        pieces = 2 if settings.deep_output == "maxout" else 1
        self.word_to_word = nn.Linear(embedding, 2 * embedding) if pieces == 2 else nn.Identity()
        self.hidden_to_word = nn.Linear(hidden, pieces * embedding)
        self.context_to_word = nn.Linear(self.cells, pieces * embedding, bias=False)

    def keys_and_values(self, cells_BPC: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Of its one layer of attention. The values are the cells: a projection of them is within
        ``project``, and one of the context within what reads it.
        """
        return (self.score.keys(cells_BPC),), (heads_of(cells_BPC, self.heads),)

    def start(self, scene: Scene, captions: int) -> State:
        """h_0 = f_h(mean_i a_i), and c_0 likewise, for K captions an image (section 3.1.2)."""
        return self.begin(_mean(scene)).repeated(captions)

    def begin(self, mean_B1C: Tensor) -> State:
        """The first state from the mean of the cells."""
        raise NotImplementedError

    def remember(self, state: State, entering_BKG: Tensor) -> State:
        """The state after what enters: the gates' parts of word and context, summed."""
        raise NotImplementedError

    def read(self, words: Tensor) -> Read:
        """The words' embeddings, and what they tell the cell, for any shape of word ids."""
        embedded = self.dropout(self.embed(words))
        return Read(embedded, self.word_gates(embedded))

    def write(
        self, scene: Scene, state: State, read: Read, choose: Choice | None = None
    ) -> tuple[State, Look]:
        """Look, then remember: attention from h_{t-1}, the gate beta, the cell (eqs. 1-5, 13)."""
        hidden_BKD = _hidden(state)
        query_BKQ = hidden_BKD
        if self.word_in_query:
            query_BKQ = torch.cat([query_BKQ, read.embedded], dim=-1)
        scores_BHKP = self.score(query_BKQ, scene.keys[0])
        look = attend(
            scores_BHKP, scene.values[0], scene.mask_BP, choose or self.own_choice, self.glimpse
        )
        # beta_t, a scalar: how much of what is seen goes into this word (section 4.2.1).
        context_BKC = torch.sigmoid(self.gate(hidden_BKD)) * look.context_BKC
        state = self.remember(state, read.gates + self.context_gates(context_BKC))
        return state, Look(context_BKC, look.alpha_BKHP, look.chosen_BKHP)

    def logits(self, embedded: Tensor, hidden: Tensor, context: Tensor) -> Tensor:
        """Deep output over the vocabulary: L_o (E y_{t-1} + L_h h_t + L_z z_t) (eq. 7).

        A tanh may lie around the sum, or the larger of each two numbers be taken (maxout; Bahdanau
        et al. 2015, app. A.2.2).
        """
        word = (
            self.word_to_word(embedded)
            + self.hidden_to_word(hidden)
            + self.context_to_word(context)
        )
        match self.deep_output:
            case "tanh":
                word = torch.tanh(word)
            case "maxout":
                word = word.unflatten(-1, (-1, 2)).amax(dim=-1)
        return self.word_logits(self.dropout(word))

    def suggested(self, scene: Scene) -> Tensor:
        """The output layer's, with nothing said yet and nothing remembered."""
        mean_BC = _mean(scene).squeeze(1)
        nothing_1E = mean_BC.new_zeros(1, self.embed.embedding_dim)
        nothing_1D = mean_BC.new_zeros(1, self.start_hidden.out_features)
        return self.logits(nothing_1E, nothing_1D, mean_BC)

    def step(
        self, scene: Scene, state: State, words_BK: Tensor, choose: Choice | None = None
    ) -> Step:
        """One step from word ids."""
        read = self.read(words_BK)
        state, look = self.write(scene, state, read, choose)
        logits_BKV = self.logits(read.embedded, _hidden(state), look.context_BKC)
        return Step(state, logits_BKV, look.alpha_BKHP, look.chosen_BKHP)

    def teach(
        self,
        scene: Scene,
        words_BKT: Tensor,
        sampling: float = 0.0,
        choose: Choice | None = None,
    ) -> Taught:
        """At every word only the leading block of images and captions that are still alive is
        computed; with images and captions ordered longest first, that leaves little padding.
        """
        spoken_BKT = words_BKT != PAD
        state = self.start(scene, words_BKT.shape[1])
        guesses_BK = None
        rows, alive = [], []
        read, inputs_BKT = self._read_inputs(words_BKT, every_word=sampling > 0)
        for t, (images, captions) in enumerate(_living_blocks(spoken_BKT)):
            block = (slice(images), slice(captions))
            if (images, captions) != _hidden(state).shape[:2]:
                scene, state = scene.select(block[0]), state.select(*block)
            words_BK = inputs_BKT[block][:, :, t]
            if guesses_BK is not None:
                guessed = torch.rand(words_BK.shape, device=words_BK.device) < sampling
                words_BK = torch.where(guessed, guesses_BK[block], words_BK)
            heard = read.at(words_BK)
            state, look = self.write(scene, state, heard, choose)
            hidden_BKD = _hidden(state)
            if sampling > 0:
                guesses_BK = self._guesses(heard.embedded, hidden_BKD, look.context_BKC)
            rows.append(
                (heard.embedded, hidden_BKD, look.context_BKC, look.alpha_BKHP, look.chosen_BKHP)
            )
            alive.append(spoken_BKT[block][:, :, t].flatten())
        kept_N = torch.cat(alive).nonzero().squeeze(1)
        embedded_NE, hidden_ND, context_NC, alpha_NHP, chosen_NHP = (
            torch.cat([part.flatten(0, 1) for part in parts]).index_select(0, kept_N)
            for parts in zip(*rows, strict=True)
        )
        logits_NV = self.logits(embedded_NE, hidden_ND, context_NC)
        return Taught.of(logits_NV, words_BKT, alpha_NHP, chosen_NHP)

    def _read_inputs(self, words_BKT: Tensor, *, every_word: bool) -> tuple[Read, Tensor]:
        """What the input words say, each different word read once, and where in it each input
        stands. In training all places of a word share one dropout mask (Gal and Ghahramani 2016,
        section 4.2).
        """
        inputs_BKT = self.inputs(words_BKT)
        if every_word:
            return self.read(
                torch.arange(len(self.embed.weight), device=words_BKT.device)
            ), inputs_BKT
        used_U, places_BKT = torch.unique(inputs_BKT, return_inverse=True)
        return self.read(used_U), places_BKT

    @torch.no_grad()
    def _guesses(self, embedded_BKE: Tensor, hidden_BKD: Tensor, context_BKC: Tensor) -> Tensor:
        return self.logits(embedded_BKE, hidden_BKD, context_BKC).argmax(dim=-1)


class LstmDecoder(RecurrentDecoder):
    """With an LSTM (Hochreiter and Schmidhuber 1997), as in the paper.

    Its gates, in this order: input, forget, candidate, output.
    """

    def __init__(self, grid: GridShape, words: int, settings: DecoderSettings) -> None:
        super().__init__(grid, words, settings, gates=4)
        hidden = settings.hidden
        self.start_cell = nn.Linear(self.cells, hidden)
        with torch.no_grad():  # the forget gate starts open (Jozefowicz et al. 2015)
            self.word_gates.bias[hidden : 2 * hidden].fill_(1.0)

    def begin(self, mean_B1C: Tensor) -> LstmState:
        """h_0 and c_0."""
        return LstmState(
            torch.tanh(self.start_hidden(mean_B1C)), torch.tanh(self.start_cell(mean_B1C))
        )

    def remember(self, state: State, entering_BKG: Tensor) -> LstmState:
        """Eqs. 1-3."""
        assert isinstance(state, LstmState)
        gates_BKG = entering_BKG + self.hidden_gates(state.hidden_BKD)
        enter, forget, candidate, leave = gates_BKG.chunk(4, dim=-1)
        cell_BKD = forget.sigmoid() * state.cell_BKD + enter.sigmoid() * candidate.tanh()
        return LstmState(leave.sigmoid() * cell_BKD.tanh(), cell_BKD)


class GruDecoder(RecurrentDecoder):
    """With a gated recurrent unit (Cho et al. 2014, arXiv 1406.1078).

    Its gates, in this order: reset, update, candidate.
    """

    def __init__(self, grid: GridShape, words: int, settings: DecoderSettings) -> None:
        super().__init__(grid, words, settings, gates=3)

    def begin(self, mean_B1C: Tensor) -> GruState:
        """h_0."""
        return GruState(torch.tanh(self.start_hidden(mean_B1C)))

    def remember(self, state: State, entering_BKG: Tensor) -> GruState:
        """h_t = (1 - u) n + u h_{t-1}, with n = tanh(x_n + r (U_n h_{t-1})), as nn.GRU."""
        hidden_BKD = _hidden(state)
        for_reset, for_update, for_candidate = entering_BKG.chunk(3, dim=-1)
        own_reset, own_update, own_candidate = self.hidden_gates(hidden_BKD).chunk(3, dim=-1)
        update_BKD = torch.sigmoid(for_update + own_update)
        reset_BKD = torch.sigmoid(for_reset + own_reset)
        candidate_BKD = torch.tanh(for_candidate + reset_BKD * own_candidate)
        return GruState((1 - update_BKD) * candidate_BKD + update_BKD * hidden_BKD)


def _hidden(state: State) -> Tensor:
    assert isinstance(state, LstmState | GruState)
    return state.hidden_BKD


def _mean(scene: Scene) -> Tensor:
    """The mean of the cells that are there, (B, 1, C)."""
    if scene.mask_BP is None:
        return scene.grid_BPC.mean(dim=1, keepdim=True)
    there_BP1 = scene.mask_BP.unsqueeze(-1).to(scene.grid_BPC.dtype)
    total_B1C = (scene.grid_BPC * there_BP1).sum(dim=1, keepdim=True)
    return total_B1C / there_BP1.sum(dim=1, keepdim=True)


def _living_blocks(spoken_BKT: Tensor) -> list[tuple[int, int]]:
    """For every word, how many leading images and captions hold all living ones."""

    def leading(alive_XT: Tensor) -> list[int]:
        place = torch.arange(1, len(alive_XT) + 1, device=alive_XT.device).unsqueeze(1)
        return (alive_XT * place).amax(dim=0).tolist()

    return list(zip(leading(spoken_BKT.any(dim=1)), leading(spoken_BKT.any(dim=0)), strict=True))
