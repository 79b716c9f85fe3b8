"""The Transformer decoder, against its equations written out head by head."""

import math
from typing import Any

import pytest
import torch
from conftest import MakeDecoder, ragged, seeded
from torch import Tensor

from showattend.self_attention import positions
from showattend.transformer import TransformerDecoder
from showattend.vocabulary import START

SMALL: dict[str, Any] = {"kind": "transformer", "layers": 2, "heads": 2, "attention": 4}
SMALL |= {"projection": 6, "score": "scaled_dot"}


def by_hand(decoder: TransformerDecoder, cells_PC: Tensor, inputs: list[int]) -> Tensor:
    """Logits (T, V) of one caption, one word and one head at a time."""
    w = dict(decoder.named_parameters(remove_duplicate=False))

    def linear(name: str, x: Tensor) -> Tensor:
        bias = w.get(f"{name}.bias")
        y = w[f"{name}.weight"] @ x
        return y if bias is None else y + bias

    def norm(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean()
        return (
            centred / (centred.square().mean() + 1e-5).sqrt() * w[f"{name}.weight"]
            + w[f"{name}.bias"]
        )

    def mix(queries: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        """Two heads of width 2, side by side."""
        out = []
        for part in (slice(0, 2), slice(2, 4)):
            energy = [float(queries[part] @ key[part]) / math.sqrt(2) for key in keys]
            total = sum(math.exp(each) for each in energy)
            out.append(
                torch.stack(
                    [math.exp(e) / total * v[part] for e, v in zip(energy, values, strict=True)]
                ).sum(dim=0)
            )
        return torch.cat(out)

    table = positions(len(inputs), 4)
    xs = [2.0 * w["embed.weight"][word] + table[t] for t, word in enumerate(inputs)]  # sqrt(4)
    for number in range(2):
        at = f"stack.{number}"
        projected = [linear(f"{at}.words.query_key_value", x).chunk(3) for x in xs]
        after = []
        for t, x in enumerate(xs):
            seen = projected[: t + 1]  # itself and the words before it
            heard = mix(projected[t][0], [p[1] for p in seen], [p[2] for p in seen])
            x = norm(f"{at}.after_words", x + linear(f"{at}.words.out", heard))
            keys = [linear(f"{at}.score.key", cell) for cell in cells_PC]
            values = [linear(f"{at}.value", cell) for cell in cells_PC]
            looked = mix(linear(f"{at}.score.query", x), keys, values)
            x = norm(f"{at}.after_grid", x + linear(f"{at}.join", looked))
            inner = linear(f"{at}.feed_forward.enter", x).clamp(min=0)
            after.append(norm(f"{at}.after_feed", x + linear(f"{at}.feed_forward.leave", inner)))
        xs = after
    return torch.stack([linear("word_logits", x) for x in xs])


@pytest.mark.parametrize("tied", [False, True])
def test_every_word_follows_the_equations(make_decoder: MakeDecoder, tied: bool) -> None:
    decoder = make_decoder(scale=2.0, tie_embeddings=tied, **SMALL)
    assert isinstance(decoder, TransformerDecoder)
    scene, words_BKT = decoder.look(seeded(1, 6, 5)), ragged([[5]])
    inputs = [START, *words_BKT[0, 0, :-1].tolist()]
    with torch.no_grad():
        expected_TV = by_hand(decoder, scene.grid_BPC[0], inputs)
        torch.testing.assert_close(decoder.teach(scene, words_BKT).logits_NV, expected_TV)


def test_the_axis_of_heads_goes_layer_by_layer(make_decoder: MakeDecoder) -> None:
    """A score of nothing looks everywhere alike: made so, the second layer does."""
    decoder = make_decoder(scale=3.0, **SMALL)
    with torch.no_grad():
        decoder.get_submodule("stack.1.score.query").weight.zero_()  # type: ignore[operator]
    taught = decoder.teach(decoder.look(seeded(1, 6, 5)), ragged([[4]]))
    even = torch.full((4, 2, 6), 1 / 6)
    torch.testing.assert_close(taught.alpha_BKTHP[0, 0, :, 2:], even)
    assert not torch.allclose(taught.alpha_BKTHP[0, 0, :, :2], even, atol=1e-3)


def test_words_look_at_words_before_them(make_decoder: MakeDecoder) -> None:
    decoder = make_decoder(scale=2.0, **SMALL)
    assert isinstance(decoder, TransformerDecoder)
    scene, words_BKT = decoder.look(seeded(2, 6, 5)), ragged([[5, 3], [4, 2]])
    weights = decoder.word_weights(scene, words_BKT)
    assert weights.shape == (2, 2, 2, 2, 5, 5)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 2, 2, 2, 5))
    assert (weights.triu(1) == 0.0).all()
    assert (weights[..., 0, 0] == 1.0).all()  # START has itself alone


def test_the_memory_grows_by_a_word(make_decoder: MakeDecoder) -> None:
    """And follows the beams: (B, K, T, L, 2, E)."""
    decoder = make_decoder(**SMALL)
    scene = decoder.look(seeded(2, 6, 5))
    state = decoder.start(scene, 3)
    for t in range(3):
        (past,) = vars(state).values()
        assert past.shape == (2, 3, t, 2, 2, 4)
        state = decoder.step(scene, state, torch.full((2, 3), START)).state
