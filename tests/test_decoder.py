"""The LSTM with attention, against its equations written out word by word."""

import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import MakeDecoder
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from showattend.attention import Choice
from showattend.decoder import Decoder, FusedProjection, Read, Scene, State, Step, teach
from showattend.encoder import GridShape
from showattend.vocabulary import END, PAD, START

some = settings(max_examples=40, deadline=None)  # a busy machine is no failure

V = 9


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


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
        step, logits_BKV = decoder.next_words(scene, state, torch.full((2, 1), word))
        state = step.state
        logits.append(logits_BKV[:, 0])
        alphas.append(step.alpha_BKP[:, 0])
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
    step, _ = decoder.next_words(scene, decoder.start(scene, 1), torch.full((1, 1), START))
    torch.testing.assert_close(step.context_BKC, 0.75 * step.alpha_BKP @ scene.grid_BPC)


def test_a_fused_grid_is_projected_map_by_map() -> None:
    """The late map enlarged first and then projected, as one would by hand, is the same."""
    shape = GridShape(4, 6, 5, early=3, factor=2)
    project = FusedProjection(shape=shape, width=7, dropout=0.0)
    grid_BQC = seeded(2, *shape.packed)
    late_BChw, early_BChw = shape.unpack(grid_BQC)

    def normal(features_BChw: Tensor) -> Tensor:
        centred = features_BChw - features_BChw.mean(dim=1, keepdim=True)
        return centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()

    enlarged_BChw = F.interpolate(normal(late_BChw), scale_factor=2, mode="bilinear")
    sums_BChw = torch.einsum("wc,bcij->bwij", project.late.weight, enlarged_BChw)
    sums_BChw += torch.einsum("wc,bcij->bwij", project.early.weight, normal(early_BChw))
    sums_BChw += project.early.bias.reshape(1, -1, 1, 1)
    expected_BPC = sums_BChw.relu().flatten(2).transpose(1, 2)
    torch.testing.assert_close(project(grid_BQC), expected_BPC)


def test_fine_cells_lie_where_they_were() -> None:
    """The early map's cell (row 1, column 4) is cell 1 * 6 + 4 of the decoder's grid."""
    shape = GridShape(4, 6, 5, early=3, factor=2)
    early_BChw = torch.zeros(1, 3, 4, 6)
    early_BChw[0, :, 1, 4] = torch.tensor([3.0, 0.0, -3.0])
    packed_BChw = torch.cat([torch.zeros(1, 5, 2, 3), F.pixel_unshuffle(early_BChw, 2)], dim=1)
    project = FusedProjection(shape=shape, width=7, dropout=0.0)
    projected_PC = project(packed_BChw.flatten(2).transpose(1, 2))[0]
    elsewhere_C = project.early.bias.relu()
    moved_P = (projected_PC - elsewhere_C).abs().sum(dim=-1) > 1e-6
    assert moved_P.nonzero().flatten().tolist() == [10]


def test_projection_by_hand(make_decoder: MakeDecoder) -> None:
    """relu(W LayerNorm(a) + b); without one, the grid itself."""
    decoder = make_decoder(projection=7)
    grid_BPC = seeded(1, 2, 5)
    centred = grid_BPC - grid_BPC.mean(dim=-1, keepdim=True)
    normed = centred / (centred.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    linear: Any = decoder.get_submodule("project.linear")
    expected = (normed @ linear.weight.T + linear.bias).clamp(min=0)
    scene = decoder.look(grid_BPC)
    torch.testing.assert_close(scene.grid_BPC, expected)
    torch.testing.assert_close(scene.keys_BPA, decoder.score.key(expected))
    assert torch.equal(make_decoder().look(grid_BPC).grid_BPC, grid_BPC)


@pytest.mark.parametrize("projection", [None, 7])
def test_coordinates_stand_behind_the_features(
    make_decoder: MakeDecoder, projection: int | None
) -> None:
    """x and y of a 2 x 3 grid's cells from its middle, row by row."""
    plain = make_decoder(projection=projection)
    decoder = make_decoder(projection=projection, coordinates=True)
    grid_BPC = seeded(2, 6, 5)
    cells_BPC = decoder.look(grid_BPC).grid_BPC
    torch.testing.assert_close(cells_BPC[..., :-2], plain.look(grid_BPC).grid_BPC)
    places = torch.tensor([[x, y] for y in (-0.5, 0.5) for x in (-1.0, 0.0, 1.0)])
    torch.testing.assert_close(cells_BPC[0, :, -2:], places)
    torch.testing.assert_close(cells_BPC[1, :, -2:], places)


def test_a_word_has_one_dropout_mask_in_a_batch(make_decoder: MakeDecoder) -> None:
    """Word types are dropped, not their places; a rate of one half doubles what stays."""
    decoder = make_decoder(dropout=0.5).train()
    read = decoder.read(torch.arange(V))
    kept = read.embedded != 0
    torch.testing.assert_close(read.embedded[kept], 2 * decoder.embed.weight[kept])
    words_BKT = torch.full((1, 2, 4), 5)
    seen: list[Tensor] = []
    decoder.word_gates.register_forward_hook(lambda _, x, __: seen.append(x[0]))
    teach(decoder, decoder.look(seeded(1, 6, 5)), words_BKT)
    assert seen[0].shape == (2, 4)  # START and 5, each once


def test_tied_embeddings_are_one_matrix(make_decoder: MakeDecoder) -> None:
    tied = make_decoder(tie_embeddings=True)
    assert tied.word_logits.weight is tied.embed.weight
    assert make_decoder().word_logits.weight is not make_decoder().embed.weight


def test_the_forget_gate_starts_open(make_decoder: MakeDecoder) -> None:
    bias = make_decoder().word_gates.bias
    assert (bias[6:12] == 1.0).all()  # input, forget, candidate, output: D = 6 each
    assert (bias[:6] == 0.0).all()


def ragged(lengths: list[list[int]], seed: int = 0) -> Tensor:
    """Captions of so many words, the end mark included; 0 is no caption at all."""
    longest = max(max(of_image) for of_image in lengths)
    generator = torch.Generator().manual_seed(seed)
    words_BKT = torch.full((len(lengths), len(lengths[0]), longest), PAD)
    for b, of_image in enumerate(lengths):
        for k, length in enumerate(of_image):
            if length:
                words_BKT[b, k, :length] = torch.randint(3, V, (length,), generator=generator)
                words_BKT[b, k, length - 1] = END
    return words_BKT


lengths_of_batches = (
    st.integers(1, 3)
    .flatmap(
        lambda captions: st.lists(
            st.lists(st.integers(0, 5), min_size=captions, max_size=captions),
            min_size=1,
            max_size=3,
        )
    )
    .filter(lambda lengths: any(map(any, lengths)))
)


@some
@given(lengths=lengths_of_batches, seed=st.integers(0, 99))
def test_teaching_is_stepping_through_every_caption(
    make_decoder: MakeDecoder, lengths: list[list[int]], seed: int
) -> None:
    """Logits, targets and attention, whatever the lengths and their order."""
    decoder = make_decoder(seed, scale=2.0, projection=7)
    words_BKT = ragged(lengths, seed)
    grid_BPC = seeded(len(lengths), 6, 5, seed=seed)
    taught = teach(decoder, decoder.look(grid_BPC), words_BKT)
    rows: dict[tuple[int, int, int], Tensor] = {}
    alpha_BKTP = torch.zeros(*words_BKT.shape, 6)
    for b, of_image in enumerate(lengths):
        scene = decoder.look(grid_BPC[b : b + 1])
        for k, length in enumerate(of_image):
            state, last = decoder.start(scene, 1), START
            for t in range(length):
                step, logits = decoder.next_words(scene, state, torch.tensor([[last]]))
                state, last = step.state, int(words_BKT[b, k, t])
                rows[t, b, k] = logits[0, 0]
                alpha_BKTP[b, k, t] = step.alpha_BKP[0, 0]
    ordered = sorted(rows)
    torch.testing.assert_close(taught.logits_NV, torch.stack([rows[key] for key in ordered]))
    assert taught.targets_N.tolist() == [int(words_BKT[b, k, t]) for t, b, k in ordered]
    torch.testing.assert_close(taught.alpha_BKTP, alpha_BKTP)
    assert torch.equal(taught.spoken_BKT, words_BKT != PAD)


def test_more_padding_changes_nothing(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(scale=2.0)
    scene = decoder.look(seeded(2, 6, 5))
    words_BKT = ragged([[3, 2], [4, 0]])
    padded = torch.full((2, 4, 9), PAD)
    padded[:, :2, :4] = words_BKT
    plain, more = teach(decoder, scene, words_BKT), teach(decoder, scene, padded)
    torch.testing.assert_close(more.logits_NV, plain.logits_NV)
    torch.testing.assert_close(more.alpha_BKTP[:, :2, :4], plain.alpha_BKTP)
    assert more.alpha_BKTP.sum().item() == pytest.approx(9.0)  # 1 for each of the 3 + 2 + 4 words


def test_finished_captions_are_not_computed(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder()
    lstm_rows: list[int] = []
    output_rows: list[int] = []
    decoder.hidden_gates.register_forward_hook(
        lambda _, x, __: lstm_rows.append(x[0].shape[:2].numel())
    )
    decoder.word_logits.register_forward_hook(lambda _, x, __: output_rows.append(len(x[0])))
    # longest first along both axes, as batches are
    teach(decoder, decoder.look(seeded(3, 6, 5)), ragged([[5, 4], [4, 2], [2, 0]]))
    assert lstm_rows == [3 * 2, 3 * 2, 2 * 2, 2 * 2, 1 * 1]  # images times captions still alive
    assert output_rows == [5 + 4 + 4 + 2 + 2]  # once, for the words that are there


def test_dropout_acts_in_training_only(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(projection=7, dropout=0.5)
    grid_BPC, words_BKT = seeded(1, 6, 5), ragged([[4]])

    def logits() -> Tensor:
        return teach(decoder, decoder.look(grid_BPC), words_BKT).logits_NV

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
    plain = teach(decoder, scene, words_BKT).logits_NV
    assert torch.equal(teach(decoder, scene, words_BKT, sampling=0.0).logits_NV, plain)
    assert not torch.equal(teach(decoder, scene, words_BKT, sampling=1.0).logits_NV, plain)


def test_full_sampling_feeds_the_models_own_guesses(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(scale=3.0)
    grid_BPC, words_BKT = seeded(1, 6, 5), ragged([[5]])
    inputs = [START]
    for _ in range(4):
        logits_TV, _ = by_hand(decoder, grid_BPC[0], inputs)
        inputs.append(int(logits_TV[-1].argmax()))
    assert inputs[1:] != words_BKT[0, 0, :-1].tolist()  # else this test would ask nothing
    taught = teach(decoder, decoder.look(grid_BPC), words_BKT, sampling=1.0)
    torch.testing.assert_close(taught.logits_NV, by_hand(decoder, grid_BPC[0], inputs)[0])
    assert taught.targets_N.tolist() == words_BKT.flatten().tolist()  # what is asked stays true


def test_sampling_replaces_the_wanted_share(
    make_decoder: MakeDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = make_decoder()
    with torch.no_grad():
        decoder.word_logits.bias[8] = 100.0  # it always guesses 8
    fed: list[Tensor] = []
    step = decoder.step

    def watched(scene: Scene, state: State, read: Read, choose: Choice | None) -> Step:
        fed.append(read.gates)
        return step(scene, state, read, choose)

    monkeypatch.setattr(decoder, "step", watched)
    words_BKT = torch.full((40, 50, 3), 4)
    teach(decoder, decoder.look(seeded(40, 6, 5)), words_BKT, sampling=0.3)

    def is_word(word: int, gates: Tensor) -> Tensor:
        return gates.isclose(decoder.read(torch.tensor(word)).gates).all(dim=-1)

    assert is_word(START, fed[0]).all()
    replaced = is_word(8, torch.stack(fed[1:]))
    assert (is_word(4, torch.stack(fed[1:])) | replaced).all()
    spread = math.sqrt(0.3 * 0.7 / replaced.numel())
    assert replaced.float().mean().item() == pytest.approx(0.3, abs=5 * spread)


def test_selecting_images_and_captions() -> None:
    scene = Scene(seeded(3, 6, 5), seeded(3, 6, 2))
    some_images = scene.select(torch.tensor([True, False, True]))
    assert torch.equal(some_images.grid_BPC, scene.grid_BPC[[0, 2]])
    assert torch.equal(some_images.keys_BPA, scene.keys_BPA[[0, 2]])
    state = State(seeded(3, 4, 6), seeded(3, 4, 6, seed=1))
    block = state.select(slice(2), slice(3))
    assert torch.equal(block.hidden_BKD, state.hidden_BKD[:2, :3])
    assert torch.equal(block.cell_BKD, state.cell_BKD[:2, :3])
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.hidden_BKD = state.cell_BKD  # type: ignore[misc]


def test_a_hard_look_takes_the_cell_alone(make_decoder: MakeDecoder) -> None:
    """The context is the likeliest cell's vector, gated, and alpha is as in soft attention."""
    decoder = make_decoder(scale=3.0, look="hard")
    scene = decoder.look(seeded(2, 6, 5))
    state = decoder.start(scene, 3)
    read = decoder.read(torch.full((2, 3), START))
    step = decoder.step(scene, state, read)
    gate_BK1 = torch.sigmoid(decoder.gate(state.hidden_BKD))
    for b in range(2):
        for k in range(3):
            cell = int(step.alpha_BKP[b, k].argmax())
            torch.testing.assert_close(
                step.context_BKC[b, k], gate_BK1[b, k] * scene.grid_BPC[b, cell]
            )
    soft = decoder.step(scene, state, read, decoder.choice("expectation"))
    assert torch.equal(soft.alpha_BKP, step.alpha_BKP)
    torch.testing.assert_close(soft.context_BKC, gate_BK1 * (soft.alpha_BKP @ scene.grid_BPC))


def test_a_hard_look_with_a_window_takes_its_mean(make_decoder: MakeDecoder) -> None:
    """2 x 3 cells: a window of five holds them all, whatever was chosen."""
    decoder = make_decoder(look="hard", glimpse=5)
    scene = decoder.look(seeded(2, 6, 5))
    state = decoder.start(scene, 1)
    step = decoder.step(scene, state, decoder.read(torch.full((2, 1), START)))
    mean_BKC = torch.sigmoid(decoder.gate(state.hidden_BKD)) * scene.grid_BPC.mean(1, keepdim=True)
    torch.testing.assert_close(step.context_BKC, mean_BKC)


def test_taught_tells_the_log_of_the_chosen_weight(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(look="hard")
    words_BKT = torch.tensor([[[4, 5, 2], [4, 2, 0]], [[4, 2, 0], [0, 0, 0]]])
    taught = teach(decoder, decoder.look(seeded(2, 6, 5)), words_BKT)
    likeliest_BKT = taught.alpha_BKTP.amax(dim=-1)
    expected_BKT = torch.where(taught.spoken_BKT, likeliest_BKT, 1.0).log()
    torch.testing.assert_close(taught.log_chosen_BKT, expected_BKT)


def test_values_are_placed_where_their_words_stand(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder()
    words_BKT = torch.tensor([[[4, 5, 2], [6, 2, 0]], [[7, 2, 0], [0, 0, 0]]])
    taught = teach(decoder, decoder.look(seeded(2, 6, 5)), words_BKT)
    assert torch.equal(taught.place(taught.targets_N), words_BKT)
