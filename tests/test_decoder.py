"""What holds for every decoder: an LSTM, a GRU or a Transformer, whatever its attention."""

import dataclasses
from typing import Any

import pytest
import torch
from conftest import MakeDecoder, ragged, seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from showattend.decoder import DecoderError, Scene, inputs_of
from showattend.recurrent import LstmState
from showattend.vocabulary import PAD, START, UNKNOWN

some = settings(max_examples=10, deadline=None)  # a busy machine is no failure

#: The family: what a decoder may be made of.
KINDS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "word in query": {"word_in_query": True},
    "gru": {"kind": "gru"},
    "transformer": {"kind": "transformer"},
    "transformer, 2 layers of 2 heads": {
        "kind": "transformer",
        "layers": 2,
        "heads": 2,
        "attention": 4,
        "projection": 6,
    },
    "transformer, hard": {"kind": "transformer", "layers": 2, "look": "hard"},
    "heads": {"heads": 3, "projection": 6},
    "hard heads": {"heads": 3, "projection": 6, "look": "hard"},
    "dot": {"score": "dot"},
    "scaled dot": {"score": "scaled_dot", "look": "hard"},
    "cosine": {"score": "cosine"},
    "general": {"score": "general", "heads": 5, "attention": 5},
    "location": {"score": "location"},
    "grid attention": {"projection": 8, "grid_layers": 2, "heads": 2, "attention": 4},
    "tanh": {"deep_output": "tanh"},
    "maxout": {"kind": "gru", "deep_output": "maxout"},
    "coordinates": {"coordinates": True, "glimpse": 3},
}


def test_tied_embeddings_are_one_matrix(make_decoder: MakeDecoder) -> None:
    tied = make_decoder(tie_embeddings=True)
    assert tied.word_logits.weight is tied.embed.weight
    assert make_decoder().word_logits.weight is not make_decoder().embed.weight


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


@pytest.mark.parametrize("kind", KINDS)
@some
@given(lengths=lengths_of_batches, seed=st.integers(0, 99))
def test_teaching_is_stepping_through_every_caption(
    make_decoder: MakeDecoder, kind: str, lengths: list[list[int]], seed: int
) -> None:
    """Logits, targets and attention, whatever the lengths and their order; in float64.

    Of a Transformer this says that its cache changes nothing, and that no later word is seen.
    """
    decoder = make_decoder(seed, scale=2.0, **KINDS[kind]).double()
    words_BKT = ragged(lengths, seed)
    grid_BPC = seeded(len(lengths), 6, 5, seed=seed).double()
    taught = decoder.teach(decoder.look(grid_BPC), words_BKT)
    rows: dict[tuple[int, int, int], Tensor] = {}
    heads = decoder.layers * decoder.heads
    alpha_BKTHP = torch.zeros(*words_BKT.shape, heads, 6, dtype=torch.float64)
    for b, of_image in enumerate(lengths):
        scene = decoder.look(grid_BPC[b : b + 1])
        for k, length in enumerate(of_image):
            state, last = decoder.start(scene, 1), START
            for t in range(length):
                step = decoder.step(scene, state, torch.tensor([[last]]))
                state, last = step.state, int(words_BKT[b, k, t])
                rows[t, b, k] = step.logits_BKV[0, 0]
                alpha_BKTHP[b, k, t] = step.alpha_BKHP[0, 0]
    ordered = sorted(rows)
    logits_NV = torch.stack([rows[key] for key in ordered])
    torch.testing.assert_close(taught.logits_NV, logits_NV)
    assert taught.targets_N.tolist() == [int(words_BKT[b, k, t]) for t, b, k in ordered]
    torch.testing.assert_close(taught.alpha_BKTHP, alpha_BKTHP)
    assert torch.equal(taught.spoken_BKT, words_BKT != PAD)


@pytest.mark.parametrize("kind", KINDS)
def test_more_padding_changes_nothing(make_decoder: MakeDecoder, kind: str) -> None:
    decoder = make_decoder(scale=2.0, **KINDS[kind])
    scene = decoder.look(seeded(2, 6, 5))
    words_BKT = ragged([[3, 2], [4, 0]])
    padded = torch.full((2, 4, 9), PAD)
    padded[:, :2, :4] = words_BKT
    plain, more = decoder.teach(scene, words_BKT), decoder.teach(scene, padded)
    torch.testing.assert_close(more.logits_NV, plain.logits_NV)
    torch.testing.assert_close(more.alpha_BKTHP[:, :2, :4], plain.alpha_BKTHP)
    # 1 for each of the 3 + 2 + 4 words
    assert more.mean_alpha().sum().item() == pytest.approx(9.0, rel=1e-5)


def test_selecting_images_and_captions() -> None:
    there_BP = torch.tensor([[True] * 6, [True] * 5 + [False], [True] * 4 + [False] * 2])
    scene = Scene(seeded(3, 6, 5), (seeded(3, 6, 2),), (seeded(3, 1, 6, 5),), there_BP)
    some_images = scene.select(torch.tensor([True, False, True]))
    assert torch.equal(some_images.grid_BPC, scene.grid_BPC[[0, 2]])
    assert torch.equal(some_images.keys[0], scene.keys[0][[0, 2]])
    assert torch.equal(some_images.values[0], scene.values[0][[0, 2]])
    assert some_images.mask_BP is not None
    assert torch.equal(some_images.mask_BP, there_BP[[0, 2]])
    assert Scene(scene.grid_BPC, (), ()).select(slice(2)).mask_BP is None
    state = LstmState(seeded(3, 4, 6), seeded(3, 4, 6, seed=1))
    block = state.select(slice(2), slice(3))
    assert torch.equal(block.hidden_BKD, state.hidden_BKD[:2, :3])
    assert torch.equal(block.cell_BKD, state.cell_BKD[:2, :3])
    heirs = state.follow(torch.tensor([[1, 1], [0, 3], [2, 0]]))
    for b, parents in enumerate([[1, 1], [0, 3], [2, 0]]):
        assert torch.equal(heirs.hidden_BKD[b], state.hidden_BKD[b, parents])
        assert torch.equal(heirs.cell_BKD[b], state.cell_BKD[b, parents])
    with pytest.raises(dataclasses.FrozenInstanceError):
        state.hidden_BKD = state.cell_BKD  # type: ignore[misc]


def test_taught_tells_the_log_of_the_chosen_weight(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(look="hard")
    words_BKT = torch.tensor([[[4, 5, 2], [4, 2, 0]], [[4, 2, 0], [0, 0, 0]]])
    taught = decoder.teach(decoder.look(seeded(2, 6, 5)), words_BKT)
    likeliest_BKT = taught.mean_alpha().amax(dim=-1)
    expected_BKT = torch.where(taught.spoken_BKT, likeliest_BKT, 1.0).log()
    torch.testing.assert_close(taught.log_chosen_BKT, expected_BKT)


def test_values_are_placed_where_their_words_stand(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder()
    words_BKT = torch.tensor([[[4, 5, 2], [6, 2, 0]], [[7, 2, 0], [0, 0, 0]]])
    taught = decoder.teach(decoder.look(seeded(2, 6, 5)), words_BKT)
    assert torch.equal(taught.place(taught.targets_N), words_BKT)


@pytest.mark.parametrize("kind", KINDS)
def test_a_later_word_changes_nothing_before_it(make_decoder: MakeDecoder, kind: str) -> None:
    decoder = make_decoder(scale=2.0, **KINDS[kind])
    scene, words_BKT = decoder.look(seeded(1, 6, 5)), ragged([[6]])
    for t in range(5):
        changed_BKT = words_BKT.clone()
        changed_BKT[0, 0, t] = 3 if words_BKT[0, 0, t] != 3 else 4
        before, after = decoder.teach(scene, words_BKT), decoder.teach(scene, changed_BKT)
        # Logits of word t foretell it; it is read behind them.
        torch.testing.assert_close(after.logits_NV[: t + 1], before.logits_NV[: t + 1])
        assert not torch.allclose(after.logits_NV[t + 1 :], before.logits_NV[t + 1 :], atol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "coordinates"])
def test_missing_cells_are_as_if_they_were_not_there(make_decoder: MakeDecoder, kind: str) -> None:
    """Images with 6, 4 and 1 cells at once, padded with rubbish, against each one alone."""
    if "grid_layers" in KINDS[kind]:
        pytest.skip("cells that look at each other are a whole grid's")
    decoder = make_decoder(scale=2.0, **KINDS[kind])
    grid_BPC, counts = seeded(3, 6, 5), [6, 4, 1]
    mask_BP = torch.arange(6) < torch.tensor(counts).unsqueeze(1)
    padded_BPC = torch.where(mask_BP.unsqueeze(-1), grid_BPC, 1e4)
    words_BKT = ragged([[5, 4], [5, 2], [3, 3]])
    taught = decoder.teach(decoder.look(padded_BPC, mask_BP), words_BKT)
    logits_BKTV = torch.stack([taught.place(column) for column in taught.logits_NV.T], dim=-1)
    for b, count in enumerate(counts):
        scene = decoder.look(grid_BPC[b : b + 1, :count])
        alone = decoder.teach(scene, words_BKT[b : b + 1])
        found_NV = logits_BKTV[b].transpose(0, 1)[alone.spoken_BKT[0].T]
        torch.testing.assert_close(found_NV, alone.logits_NV)
        alpha_KTHP = taught.alpha_BKTHP[b]
        torch.testing.assert_close(alpha_KTHP[..., :count], alone.alpha_BKTHP[0])
        assert (alpha_KTHP[..., count:] == 0.0).all()


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_words_are_lost_in_training_only(make_decoder: MakeDecoder, kind: str) -> None:
    """The start mark never; of 6,000 others a quarter, within 4 standard errors."""
    decoder = make_decoder(kind=kind, word_dropout=0.25)
    words_BKT = torch.full((30, 10, 21), 5)
    plain_BKT = decoder.eval().inputs(words_BKT)
    assert torch.equal(plain_BKT, inputs_of(words_BKT))
    torch.manual_seed(0)
    inputs_BKT = decoder.train().inputs(words_BKT)
    assert (inputs_BKT[:, :, 0] == START).all()
    lost_BKT = inputs_BKT[:, :, 1:] == UNKNOWN
    assert (inputs_BKT[:, :, 1:][~lost_BKT] == 5).all()
    assert abs(lost_BKT.double().mean() - 0.25) < 4 * (0.25 * 0.75 / lost_BKT.numel()) ** 0.5


def test_heads_that_do_not_divide_are_refused(make_decoder: MakeDecoder) -> None:
    with pytest.raises(DecoderError, match=r"decoder\.heads is 3: does not divide the 5 channels"):
        make_decoder(heads=3)
    with pytest.raises(DecoderError, match=r"decoder\.grid_layers: 4 does not divide"):
        make_decoder(grid_layers=1)
    with pytest.raises(DecoderError, match=r"the 7 channels of a cell \(its two coordinates among"):
        make_decoder(heads=3, coordinates=True)
