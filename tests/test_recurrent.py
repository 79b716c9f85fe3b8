"""LSTM and GRU with attention, against their equations written out word by word."""

import math

import pytest
import torch
from conftest import MakeDecoder, V, ragged, seeded
from hypothesis import settings
from torch import Tensor

from showattend.attention import Choice, Look
from showattend.decoder import Decoder, Scene, State
from showattend.encoder import GridShape
from showattend.recurrent import Read
from showattend.vocabulary import START

some = settings(max_examples=40, deadline=None)  # a busy machine is no failure


def by_hand(decoder: Decoder, grid_PC: Tensor, inputs: list[int]) -> tuple[Tensor, Tensor]:
    """Logits (T, V) and alpha (T, P) of one caption, from the paper's equations and no layer."""
    w = dict(decoder.named_parameters(remove_duplicate=False))

    def linear(name: str, x: Tensor) -> Tensor:
        bias = w.get(f"{name}.bias")
        y = w[f"{name}.weight"] @ x
        return y if bias is None else y + bias

    cells = list(grid_PC)
    mean = sum(cells[1:], cells[0]) / len(cells)
    h, c = torch.tanh(linear("start_hidden", mean)), torch.tanh(linear("start_cell", mean))
    logits, alphas = [], []
    for word in inputs:
        embedded = w["embed.weight"][word]
        query = torch.cat([h, embedded]) if decoder.word_in_query else h
        energy = [
            linear("score.v", torch.tanh(linear("score.key", a) + linear("score.query", query)))
            for a in cells
        ]
        exponentials = torch.cat(energy).exp()
        alpha = exponentials / exponentials.sum()
        beta = 1 / (1 + torch.exp(-linear("gate", h)))
        z = beta * sum(
            (p * a for p, a in zip(alpha[1:], cells[1:], strict=True)), alpha[0] * cells[0]
        )
        gates = linear("word_gates", embedded) + linear("context_gates", z)
        gates = gates + linear("hidden_gates", h)
        enter, forget, candidate, leave = gates.chunk(4)
        c = torch.sigmoid(forget) * c + torch.sigmoid(enter) * torch.tanh(candidate)
        h = torch.sigmoid(leave) * torch.tanh(c)
        deep = embedded + linear("hidden_to_word", h) + linear("context_to_word", z)
        logits.append(linear("word_logits", deep))
        alphas.append(alpha)
    return torch.stack(logits), torch.stack(alphas)


def test_what_the_mean_of_the_cells_suggests(make_decoder: MakeDecoder) -> None:
    """The deep output of z alone: L_o (L_z z + biases), with z the mean of the cells."""
    decoder = make_decoder()
    scene = decoder.look(seeded(2, 6, 5))
    w = dict(decoder.named_parameters(remove_duplicate=False))
    mean_BC = scene.grid_BPC.mean(dim=1)
    deep_BE = mean_BC @ w["context_to_word.weight"].T + w["hidden_to_word.bias"]
    expected_BV = deep_BE @ w["word_logits.weight"].T + w["word_logits.bias"]
    torch.testing.assert_close(decoder.suggested(scene), expected_BV)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("word_in_query", [False, True])
def test_every_step_follows_the_equations(
    make_decoder: MakeDecoder, tied: bool, word_in_query: bool
) -> None:
    decoder = make_decoder(scale=2.0, tie_embeddings=tied, word_in_query=word_in_query)
    grid_BPC = seeded(2, 6, 5)
    scene, inputs = decoder.look(grid_BPC), [START, 5, 8, 3]
    state = decoder.start(scene, 1)
    logits, alphas = [], []
    for word in inputs:
        step = decoder.step(scene, state, torch.full((2, 1), word))
        state = step.state
        logits.append(step.logits_BKV[:, 0])
        alphas.append(step.alpha_BKHP[:, 0, 0])
    for b in range(2):
        expected_TV, expected_TP = by_hand(decoder, grid_BPC[b], inputs)
        torch.testing.assert_close(torch.stack(logits, dim=1)[b], expected_TV)
        torch.testing.assert_close(torch.stack(alphas, dim=1)[b], expected_TP)


def test_the_start_is_a_function_of_the_mean_cell(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder()
    grid_BPC = seeded(2, 6, 5)
    state = decoder.start(decoder.look(grid_BPC), 3)
    assert state.hidden_BKD.shape == state.cell_BKD.shape == (2, 3, 6)
    mean_BC = grid_BPC.sum(dim=1) / 6
    for k in range(3):
        hidden = torch.tanh(mean_BC @ decoder.start_hidden.weight.T + decoder.start_hidden.bias)
        torch.testing.assert_close(state.hidden_BKD[:, k], hidden)
        cell = torch.tanh(mean_BC @ decoder.start_cell.weight.T + decoder.start_cell.bias)
        torch.testing.assert_close(state.cell_BKD[:, k], cell)
    shuffled = decoder.start(decoder.look(grid_BPC[:, torch.randperm(6)]), 1)
    torch.testing.assert_close(shuffled.hidden_BKD, state.hidden_BKD[:, :1])


def test_deep_output_by_hand(make_decoder: MakeDecoder) -> None:
    """L_o (E y + L_h h + L_z z) with one number each: 2 (0.5 + 3 h + 1 - 4 z) + b."""
    decoder = make_decoder(grid=GridShape(2, 3, 1), words=5, embedding=1, hidden=1)
    with torch.no_grad():
        decoder.hidden_to_word.weight.fill_(3.0)
        decoder.hidden_to_word.bias.fill_(1.0)
        decoder.context_to_word.weight.fill_(-4.0)
        decoder.word_logits.weight.copy_(torch.tensor([[2.0], [0.0], [-2.0], [1.0], [1.0]]))
        decoder.word_logits.bias.copy_(torch.tensor([0.0, 7.0, 0.0, 0.0, 0.25]))
    logits = decoder.logits(torch.tensor([0.5]), torch.tensor([0.5]), torch.tensor([0.25]))
    assert logits.tolist() == [4.0, 7.0, -4.0, 2.0, 2.25]  # the word's sum is 2


def test_the_gate_is_one_number_a_word(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder()
    with torch.no_grad():
        decoder.gate.weight.zero_()
        decoder.gate.bias.fill_(math.log(3))  # sigmoid(ln 3) = 3/4
    scene = decoder.look(seeded(1, 6, 5))
    read = decoder.read(torch.full((1, 1), START))
    _, look = decoder.write(scene, decoder.start(scene, 1), read)
    seen_BKC = look.alpha_BKHP[:, :, 0] @ scene.grid_BPC
    torch.testing.assert_close(look.context_BKC, 0.75 * seen_BKC)


def test_a_word_has_one_dropout_mask_in_a_batch(make_decoder: MakeDecoder) -> None:
    """Word types are dropped, not their places; a rate of one half doubles what stays."""
    decoder = make_decoder(dropout=0.5).train()
    read = decoder.read(torch.arange(V))
    kept = read.embedded != 0
    torch.testing.assert_close(read.embedded[kept], 2 * decoder.embed.weight[kept])
    words_BKT = torch.full((1, 2, 4), 5)
    seen: list[Tensor] = []
    decoder.word_gates.register_forward_hook(lambda _, x, __: seen.append(x[0]))
    decoder.teach(decoder.look(seeded(1, 6, 5)), words_BKT)
    assert seen[0].shape == (2, 4)  # START and 5, each once


def test_the_forget_gate_starts_open(make_decoder: MakeDecoder) -> None:
    bias = make_decoder().word_gates.bias
    assert (bias[6:12] == 1.0).all()  # input, forget, candidate, output: D = 6 each
    assert (bias[:6] == 0.0).all()


def test_finished_captions_are_not_computed(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder()
    lstm_rows: list[int] = []
    output_rows: list[int] = []
    decoder.hidden_gates.register_forward_hook(
        lambda _, x, __: lstm_rows.append(x[0].shape[:2].numel())
    )
    decoder.word_logits.register_forward_hook(lambda _, x, __: output_rows.append(len(x[0])))
    # longest first along both axes, as batches are
    decoder.teach(decoder.look(seeded(3, 6, 5)), ragged([[5, 4], [4, 2], [2, 0]]))
    assert lstm_rows == [3 * 2, 3 * 2, 2 * 2, 2 * 2, 1 * 1]  # images times captions still alive
    assert output_rows == [5 + 4 + 4 + 2 + 2]  # once, for the words that are there


def test_dropout_acts_in_training_only(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(projection=7, dropout=0.5)
    grid_BPC, words_BKT = seeded(1, 6, 5), ragged([[4]])

    def logits() -> Tensor:
        return decoder.teach(decoder.look(grid_BPC), words_BKT).logits_NV

    assert torch.equal(logits(), logits())
    torch.testing.assert_close(logits(), by_hand_inputs(decoder, grid_BPC, words_BKT))
    decoder.train()
    assert not torch.equal(logits(), logits())


def by_hand_inputs(decoder: Decoder, grid_BPC: Tensor, words_BKT: Tensor) -> Tensor:
    projected_PC = decoder.project(grid_BPC)[0]
    expected_TV, _ = by_hand(decoder, projected_PC, [START, *words_BKT[0, 0, :-1].tolist()])
    return expected_TV


def test_no_sampling_feeds_the_true_words(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(scale=3.0)
    scene, words_BKT = decoder.look(seeded(2, 6, 5)), ragged([[5, 3], [4, 4]])
    plain = decoder.teach(scene, words_BKT).logits_NV
    assert torch.equal(decoder.teach(scene, words_BKT, sampling=0.0).logits_NV, plain)
    assert not torch.equal(decoder.teach(scene, words_BKT, sampling=1.0).logits_NV, plain)


def test_full_sampling_feeds_the_models_own_guesses(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(scale=3.0)
    grid_BPC, words_BKT = seeded(1, 6, 5), ragged([[5]])
    inputs = [START]
    for _ in range(4):
        logits_TV, _ = by_hand(decoder, grid_BPC[0], inputs)
        inputs.append(int(logits_TV[-1].argmax()))
    assert inputs[1:] != words_BKT[0, 0, :-1].tolist()  # else this test would ask nothing
    taught = decoder.teach(decoder.look(grid_BPC), words_BKT, sampling=1.0)
    torch.testing.assert_close(taught.logits_NV, by_hand(decoder, grid_BPC[0], inputs)[0])
    assert taught.targets_N.tolist() == words_BKT.flatten().tolist()  # what is asked stays true


def test_sampling_replaces_the_wanted_share(
    make_decoder: MakeDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = make_decoder()
    with torch.no_grad():
        decoder.word_logits.bias[8] = 100.0  # it always guesses 8
    fed: list[Tensor] = []
    write = decoder.write

    def watched(
        scene: Scene, state: State, read: Read, choose: Choice | None
    ) -> tuple[State, Look]:
        fed.append(read.gates)
        return write(scene, state, read, choose)

    monkeypatch.setattr(decoder, "write", watched)
    words_BKT = torch.full((40, 50, 3), 4)
    decoder.teach(decoder.look(seeded(40, 6, 5)), words_BKT, sampling=0.3)

    def is_word(word: int, gates: Tensor) -> Tensor:
        return gates.isclose(decoder.read(torch.tensor(word)).gates).all(dim=-1)

    assert is_word(START, fed[0]).all()
    replaced = is_word(8, torch.stack(fed[1:]))
    assert (is_word(4, torch.stack(fed[1:])) | replaced).all()
    spread = math.sqrt(0.3 * 0.7 / replaced.numel())
    assert replaced.float().mean().item() == pytest.approx(0.3, abs=5 * spread)


def test_a_hard_look_takes_the_cell_alone(make_decoder: MakeDecoder) -> None:
    """The context is the likeliest cell's vector, gated, and alpha is as in soft attention."""
    decoder = make_decoder(scale=3.0, look="hard")
    scene = decoder.look(seeded(2, 6, 5))
    state = decoder.start(scene, 3)
    read = decoder.read(torch.full((2, 3), START))
    _, hard = decoder.write(scene, state, read)
    gate_BK1 = torch.sigmoid(decoder.gate(state.hidden_BKD))
    for b in range(2):
        for k in range(3):
            cell = int(hard.alpha_BKHP[b, k, 0].argmax())
            torch.testing.assert_close(
                hard.context_BKC[b, k], gate_BK1[b, k] * scene.grid_BPC[b, cell]
            )
    _, soft = decoder.write(scene, state, read, decoder.choice("expectation"))
    assert torch.equal(soft.alpha_BKHP, hard.alpha_BKHP)
    seen_BKC = soft.alpha_BKHP[:, :, 0] @ scene.grid_BPC
    torch.testing.assert_close(soft.context_BKC, gate_BK1 * seen_BKC)


def test_a_hard_look_with_a_window_takes_its_mean(make_decoder: MakeDecoder) -> None:
    """2 x 3 cells: a window of five holds them all, whatever was chosen."""
    decoder = make_decoder(look="hard", glimpse=5)
    scene = decoder.look(seeded(2, 6, 5))
    state = decoder.start(scene, 1)
    _, look = decoder.write(scene, state, decoder.read(torch.full((2, 1), START)))
    mean_BKC = torch.sigmoid(decoder.gate(state.hidden_BKD)) * scene.grid_BPC.mean(1, keepdim=True)
    torch.testing.assert_close(look.context_BKC, mean_BKC)


def test_the_gru_is_pytorchs(make_decoder: MakeDecoder) -> None:
    """nn.GRUCell on [E y; z], with our weights in its order (reset, update, candidate)."""
    decoder = make_decoder(scale=2.0, kind="gru")
    cell = torch.nn.GRUCell(4 + 5, 6)
    with torch.no_grad():
        entering = [decoder.word_gates.weight, decoder.context_gates.weight]
        cell.weight_ih.copy_(torch.cat(entering, dim=1))
        cell.bias_ih.copy_(decoder.word_gates.bias)
        cell.weight_hh.copy_(decoder.hidden_gates.weight)
        cell.bias_hh.zero_()
    scene = decoder.look(seeded(2, 6, 5))
    state, read = decoder.start(scene, 3), decoder.read(torch.full((2, 3), START))
    after, look = decoder.write(scene, state, read)
    entering_NX = torch.cat([read.embedded, look.context_BKC], dim=-1).flatten(0, 1)
    expected_ND = cell(entering_NX, state.hidden_BKD.flatten(0, 1))
    torch.testing.assert_close(after.hidden_BKD.flatten(0, 1), expected_ND)


@pytest.mark.parametrize(
    ("deep_output", "expected"), [("linear", 2.0), ("tanh", math.tanh(2.0)), ("maxout", 2.5)]
)
def test_what_lies_around_the_deep_output(
    make_decoder: MakeDecoder, deep_output: str, expected: float
) -> None:
    """The sum 0.5 + 3 * 0.5 + 1 - 4 * 0.25 = 2; of maxout it is the first of a pair, and the other
    is 0 * 0.5 + 4 * 0.5 + 0.5 - 0 * 0.25 = 2.5.
    """
    decoder = make_decoder(
        grid=GridShape(2, 3, 1), words=5, embedding=1, hidden=1, deep_output=deep_output
    )
    pairs = 2 if deep_output == "maxout" else 1
    with torch.no_grad():
        if pairs == 2:
            decoder.word_to_word.weight.copy_(torch.tensor([[1.0], [0.0]]))
            decoder.word_to_word.bias.zero_()
        decoder.hidden_to_word.weight.copy_(torch.tensor([[3.0], [4.0]])[:pairs])
        decoder.hidden_to_word.bias.copy_(torch.tensor([1.0, 0.5])[:pairs])
        decoder.context_to_word.weight.copy_(torch.tensor([[-4.0], [0.0]])[:pairs])
        decoder.word_logits.weight.fill_(1.0)
        decoder.word_logits.bias.zero_()
    logits_V = decoder.logits(torch.tensor([0.5]), torch.tensor([0.5]), torch.tensor([0.25]))
    torch.testing.assert_close(logits_V, torch.full((5,), expected))
