"""The whole model, and its builder from settings."""

from pathlib import Path

import pytest
import torch

from showattend.captioner import Captioner, build_captioner
from showattend.checkpoint import Checkpoint
from showattend.config import (
    ChannelAttentionSettings,
    DecoderSettings,
    EncoderSettings,
    read_settings,
)
from showattend.encoder import EncoderError, GridShape, as_grid

CONFIGS = Path(__file__).resolve().parents[1] / "configs"
CNN = EncoderSettings(name="test_efficientnet", stage=1, pretrained=False)
FUSED = EncoderSettings(name="test_efficientnet", stage=2, fused=True, pretrained=False)
LSTM = DecoderSettings(embedding=4, hidden=6, attention=3, projection=7)


@pytest.mark.parametrize(("size", "side"), [(32, 8), (64, 16)])
def test_the_grid_has_the_shape_that_the_model_states(size: int, side: int) -> None:
    captioner = build_captioner(CNN, LSTM, size=size, words=9)
    assert captioner.shape == GridShape(side, side, 24)
    grid_BPC = captioner.grid(torch.zeros(2, 3, size, size))
    assert grid_BPC.shape == (2, side * side, 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["coco_soft", "coco_hard", "coco_transformer"])
def test_coco_is_seen_as_the_classic_grid(name: str) -> None:
    """14 x 14 cells, as in the paper, of a ResNet's 2,048 channels."""
    settings = read_settings(CONFIGS / f"{name}.yaml")
    encoder = settings.encoder.model_copy(update={"pretrained": False})
    captioner = build_captioner(encoder, settings.decoder, size=settings.pixels.size, words=9)
    assert captioner.shape == GridShape(14, 14, 2048)


@pytest.mark.parametrize("count", [1, 5])
def test_encoding_is_the_grid_without_gradients(count: int) -> None:
    captioner = build_captioner(CNN, LSTM, size=32, words=9).eval()
    pixels_B3SS = torch.rand(count, 3, 32, 32)
    grid_BPC = captioner.encode(pixels_B3SS)
    torch.testing.assert_close(grid_BPC, captioner.grid(pixels_B3SS))
    assert not grid_BPC.requires_grad


def test_settings_shape_the_decoder() -> None:
    decoder = build_captioner(CNN, LSTM, size=32, words=9).decoder
    assert decoder.embed.weight.shape == (9, 4)
    assert decoder.hidden_gates.weight.shape == (4 * 6, 6)
    assert decoder.word_gates.weight.shape == (4 * 6, 4)
    assert decoder.context_gates.weight.shape == (4 * 6, 7)
    assert decoder.score.v.weight.shape == (1, 3)
    assert decoder.word_logits.weight is decoder.embed.weight
    paper = LSTM.model_copy(update={"projection": None, "tie_embeddings": False})
    decoder = build_captioner(CNN, paper, size=32, words=9).decoder
    assert decoder.context_gates.weight.shape == (4 * 6, 24)
    assert decoder.word_logits.weight is not decoder.embed.weight


def test_attention_has_a_weight_for_every_fine_cell_of_a_fused_grid() -> None:
    captioner = build_captioner(FUSED, LSTM, size=64, words=9).eval()
    shape = captioner.shape
    grid_BQC = captioner.encode(torch.rand(2, 3, 64, 64))
    assert grid_BQC.shape[1:] == shape.packed
    scene = captioner.look(grid_BQC)
    assert scene.grid_BPC.shape == (2, shape.height * shape.width, 7)
    assert shape.height * shape.width == 16 * shape.packed[0] == 64


def gated(cnn: EncoderSettings, kind: str, *stages: int) -> Captioner:
    """The same but for channel attention after stages; of none, without any."""
    tree = {"kind": kind, "where": "stage", "stages": stages, "reduction": 4}
    gates = ChannelAttentionSettings.model_validate(tree) if stages else None
    torch.manual_seed(0)
    changed = cnn.model_copy(update={"channel_attention": gates})
    return build_captioner(changed, LSTM, size=64, words=9).eval()


def stir(captioner: Captioner) -> None:
    assert captioner.channel_attention is not None
    for parameter in captioner.channel_attention.parameters():
        # Features of an untrained CNN are faint; where there is one layer and not two, fainter.
        torch.nn.init.normal_(parameter, std=100.0 if parameter.ndim == 3 else 10.0)


@pytest.mark.parametrize("kind", ["se", "eca", "cbam"])
@pytest.mark.parametrize("cnn", [CNN, FUSED], ids=["plain", "fused"])
@torch.no_grad()
def test_channel_attention_of_a_cached_grid_is_that_of_the_feature_map(
    cnn: EncoderSettings, kind: str
) -> None:
    """Nothing at first; then the late map is gated as it would be within the encoder."""
    captioner, plain = gated(cnn, kind, -1), gated(cnn, kind)
    assert not captioner.encoder.trainable
    plain.load_state_dict(captioner.state_dict(), strict=False)
    assert plain.state_dict().keys() == {
        name for name in captioner.state_dict() if not name.startswith("channel_attention.")
    }
    pixels_B3SS = torch.rand(2, 3, 64, 64)
    cached_BQC = captioner.encode(pixels_B3SS).half()
    assert torch.equal(cached_BQC, plain.encode(pixels_B3SS).half())
    before = plain.look(cached_BQC).grid_BPC
    assert torch.equal(captioner.look(cached_BQC).grid_BPC, before)
    stir(captioner)
    assert torch.equal(captioner.encode(pixels_B3SS).half(), cached_BQC)
    plain.encoder.network.register_forward_hook(
        lambda _, __, maps: [*maps[:-1], captioner.channel_attention(maps[-1])]  # type: ignore[misc]
    )
    live = plain.look(plain.grid(pixels_B3SS)).grid_BPC
    assert not torch.allclose(live, before, atol=0.02)
    torch.testing.assert_close(captioner.look(cached_BQC).grid_BPC, live, rtol=0.01, atol=0.01)
    exact = captioner.look(captioner.grid(pixels_B3SS)).grid_BPC
    torch.testing.assert_close(exact, live, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_gates_of_an_earlier_stage_sit_in_the_encoder_and_those_of_the_grid_behind_it() -> None:
    captioner = gated(CNN, "se", 0, -1)
    assert captioner.encoder.trainable
    assert list(captioner.encoder.channel_attention) == ["body_blocks_0"]
    stir(captioner)
    assert captioner.channel_attention is not None
    features_BChw = captioner.encoder(torch.rand(2, 3, 64, 64))
    expected = captioner.decoder.look(as_grid(captioner.channel_attention(features_BChw)))
    torch.testing.assert_close(captioner.look(as_grid(features_BChw)).grid_BPC, expected.grid_BPC)


def test_looking_takes_cached_grids_of_half_precision(checkpoint: Checkpoint) -> None:
    captioner = checkpoint.captioner
    grid_BPC = torch.randn(2, 64, 24).half()
    scene = captioner.look(grid_BPC)
    assert scene.grid_BPC.dtype == torch.float32
    assert torch.equal(scene.grid_BPC, captioner.look(grid_BPC.float()).grid_BPC)
    assert scene.grid_BPC.shape == (2, 64, 7)
    assert scene.keys[0].shape == (2, 64, 3)


def test_pretrained_can_be_overruled(no_network: None) -> None:
    """A checkpoint brings its own weights: it must not ask for others."""
    wanting = CNN.model_copy(update={"pretrained": True})
    assert build_captioner(wanting, LSTM, size=32, words=9, pretrained=False).shape.channels == 24


def test_training_mode_spares_the_frozen_cnn(checkpoint: Checkpoint) -> None:
    captioner = checkpoint.captioner.train()
    assert captioner.decoder.dropout.training
    assert not any(module.training for module in captioner.encoder.network.modules())


def test_the_device_is_the_weights(checkpoint: Checkpoint) -> None:
    assert checkpoint.captioner.device == torch.device("cpu")
    assert checkpoint.captioner.to("meta").device == torch.device("meta")


def test_a_network_without_a_grid_is_refused() -> None:
    with pytest.raises(EncoderError, match="choose a CNN"):
        build_captioner(EncoderSettings(name="test_vit", pretrained=False), LSTM, size=32, words=9)
