"""Channel attention within CNNs: where it sits, that nothing else changes, and what is trained."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from showattend.config import ChannelAttentionSettings
from showattend.encoder import Encoder, EncoderError

LITE0 = "tf_efficientnet_lite0"
RESNET = "torchvision:resnet18"
TINY = "test_efficientnet"
TINY_RESNET = "test_resnet"  # timm's own


def pixels(images: int = 2, size: int = 64) -> Tensor:
    return torch.randn(images, 3, size, size, generator=torch.Generator().manual_seed(0))


def settings(
    where: str = "block", stages: tuple[int, ...] = (-1,), kind: str = "se"
) -> ChannelAttentionSettings:
    tree = {"kind": kind, "where": where, "stages": stages, "reduction": 4}
    return ChannelAttentionSettings.model_validate(tree)


def encoder(name: str, gates: ChannelAttentionSettings | None, **options: Any) -> Encoder:
    """In eval mode, the same for the same name, but for ``gates``."""
    torch.manual_seed(0)
    return Encoder(name=name, channel_attention=gates, **{"pretrained": False} | options).eval()


def stirred(network: Encoder) -> Encoder:
    """With channel attention that does something."""
    torch.manual_seed(1)
    for parameter in network.channel_attention.parameters():
        nn.init.normal_(parameter)
    return network


@pytest.fixture(scope="module")
def plain() -> dict[str, Encoder]:
    return {name: encoder(name, None, pretrained=name == LITE0) for name in (LITE0, RESNET)}


@pytest.mark.parametrize("kind", ["se", "eca", "cbam"])
@pytest.mark.parametrize(
    ("name", "where", "stages"),
    [
        (LITE0, "block", (0, 1, 2, 3, 4)),
        (LITE0, "stage", (0, 1, 2, 3, 4)),
        (RESNET, "block", (-1, -2, -3, -4)),
        (RESNET, "stage", (0, 2, 4, -2)),
    ],
)
@torch.no_grad()
def test_a_pretrained_cnn_computes_what_it_did(
    plain: dict[str, Encoder], name: str, where: str, stages: tuple[int, ...], kind: str
) -> None:
    """Bit by bit, with tensors of the same names; and something was put into it."""
    gated = encoder(name, settings(where, stages, kind), pretrained=name == LITE0)
    before = plain[name].state_dict()
    own = {n: v for n, v in gated.state_dict().items() if not n.startswith("channel_attention.")}
    assert own.keys() == before.keys()
    gated.load_state_dict(before, strict=False)
    expected_BChw = plain[name](pixels())
    assert expected_BChw.abs().max() > 0
    assert torch.equal(gated(pixels()), expected_BChw)
    assert not torch.equal(stirred(gated)(pixels()), expected_BChw)


def test_the_papers_count_of_weights() -> None:
    """Hu et al., section 3: SE in every block of ResNet-50, reduction 16, adds 2,514,944."""
    every = ChannelAttentionSettings(kind="se", where="block", stages=(4, 5, 6, 7))
    with torch.device("meta"):
        network = Encoder(name="torchvision:resnet50", channel_attention=every, pretrained=False)
    assert len(network.channel_attention) == 3 + 4 + 6 + 3
    added = sum(p.numel() for p in network.channel_attention.parameters())
    assert added == 2_514_944


@pytest.mark.parametrize(
    ("name", "stage", "path", "layer", "activation"),
    [
        (RESNET, 7, "layer4.1", "bn2", nn.ReLU()),
        (TINY_RESNET, 4, "body.layer4.0", "bn2", nn.ReLU()),
        (TINY_RESNET, 3, "body.layer3.0", "bn3", nn.ReLU()),
        (LITE0, 0, "body.blocks.0.0", "bn2", nn.Identity()),
        (LITE0, 4, "body.blocks.5.1", "bn3", nn.Identity()),
        (TINY, 1, "body.blocks.1.0", "bn2", nn.Identity()),
    ],
)
@torch.no_grad()
def test_a_block_is_gated_before_its_sum(
    name: str, stage: int, path: str, layer: str, activation: nn.Module
) -> None:
    without = encoder(name, None, stage=stage)
    gated = stirred(encoder(name, settings(), stage=stage))
    nn.init.ones_(without.network.get_submodule(f"{path}.{layer}").weight)  # ResNets start at 0
    gated.load_state_dict(without.state_dict(), strict=False)
    block, gated_block = (net.network.get_submodule(path) for net in (without, gated))
    seen: list[Tensor] = []
    block.get_submodule(layer).register_forward_hook(lambda *found: seen.append(found[-1].clone()))
    inputs: list[Tensor] = []
    block.register_forward_pre_hook(lambda _, found: inputs.append(found[0].clone()))
    without(pixels())
    residual = seen[0]
    attention = gated.channel_attention[path.replace(".", "_")]
    sum_BChw = attention(residual)
    assert not torch.allclose(sum_BChw, residual, atol=1e-3)
    if getattr(block, "downsample", None) is not None:
        sum_BChw = sum_BChw + block.get_submodule("downsample")(inputs[0])
    elif inputs[0].shape == residual.shape:
        sum_BChw = sum_BChw + inputs[0]
    torch.testing.assert_close(gated_block(inputs[0]), activation(sum_BChw))


def test_blocks_belong_to_the_stage_that_they_lead_to() -> None:
    """lite0's stage 3 is what lies between the ends of stages 2 and 3: blocks.3 and blocks.4."""
    network = encoder(LITE0, settings(stages=(3,)))
    assert {name.split("_")[2] for name in network.channel_attention} == {"3", "4"}
    assert len(network.channel_attention) == 3 + 3
    last = encoder(LITE0, settings(stages=(-1, 2)), stage=2)  # -1 is that of the grid
    assert {name.split("_")[2] for name in last.channel_attention} == {"2"}


@torch.no_grad()
def test_a_stage_is_gated_after_its_end() -> None:
    gated = stirred(encoder(RESNET, settings("stage", (5,))))
    assert list(gated.channel_attention) == ["layer2"]
    features_BChw = pixels()
    for name, child in encoder(RESNET, None).network.named_children():
        features_BChw = child(features_BChw)
        if name == "layer2":
            features_BChw = gated.channel_attention["layer2"](features_BChw)
    torch.testing.assert_close(gated(pixels()), features_BChw)


@torch.no_grad()
def test_channels_last_networks_are_gated_along_their_channels() -> None:
    """MambaOut computes (B, h, w, C)."""
    gated = stirred(encoder("test_mambaout", settings("stage", (1,)), stage=2))
    attention: Any = gated.channel_attention["body_stages_1"]
    assert attention.mlp[0].in_features == 32
    maps_BChw = encoder("test_mambaout", None, stage=1)(pixels())
    body: Any = encoder("test_mambaout", None, stage=2).network.body
    expected_BhwC = body.stages[2](attention(maps_BChw).permute(0, 2, 3, 1))
    torch.testing.assert_close(gated(pixels()), expected_BhwC.permute(0, 3, 1, 2))


@torch.no_grad()
def test_an_early_map_of_a_fused_grid_is_gated_too() -> None:
    gated = stirred(encoder(RESNET, settings("stage", (6,)), stage=6, fused=True))
    alone = encoder(RESNET, None, stage=6)
    late_BChw, early_BChw = gated._maps(pixels())[::-1]
    expected_BChw = gated.channel_attention["layer3"](alone(pixels()))
    torch.testing.assert_close(early_BChw, expected_BChw)
    assert late_BChw.shape[1] == 512


def test_a_copy_is_gated_by_its_own_modules() -> None:
    """The moving average of the weights is kept in a copy of the model."""
    network = stirred(encoder(TINY, settings()))
    before_BChw = network(pixels())
    twin = copy.deepcopy(network)
    assert torch.equal(twin(pixels()), before_BChw)
    with torch.no_grad():
        for parameter in twin.channel_attention.parameters():
            parameter.zero_()
    assert torch.equal(twin(pixels()), encoder(TINY, None)(pixels()))
    assert torch.equal(network(pixels()), before_BChw)


@pytest.mark.parametrize(("where", "stages"), [("block", (-1,)), ("stage", (1,))])
def test_it_is_trained_within_a_frozen_cnn(where: str, stages: tuple[int, ...]) -> None:
    network = encoder(TINY, settings(where, stages)).train()
    assert network.trainable
    assert network.channel_attention.training
    assert not any(module.training for module in network.network.modules())
    before = {name: value.clone() for name, value in network.network.state_dict().items()}
    torch.autograd.backward(network(pixels()).square().sum())
    assert all(parameter.grad is None for parameter in network.network.parameters())
    assert all(parameter.grad is not None for parameter in network.channel_attention.parameters())
    after = network.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_it_is_trained_beside_trainable_stages() -> None:
    network = encoder(TINY, settings(stages=(2,)), trainable_stages=1)
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    alone = encoder(TINY, None, trainable_stages=1)
    expected = {name for name, p in alone.named_parameters() if p.requires_grad}
    assert {name for name in trained if name.startswith("network.")} == expected
    assert {name for name in trained if not name.startswith("network.")} == {
        f"channel_attention.{name}" for name, _ in network.channel_attention.named_parameters()
    }


def test_the_last_stages_gate_is_left_to_the_grid() -> None:
    for stages in ((-1,), (4,), (4, -1)):
        network = encoder(TINY, settings("stage", stages))
        assert not network.trainable
        assert len(network.channel_attention) == 0
        assert network.grid_gate is not None
    both = encoder(TINY, settings("stage", (1, -1)))
    assert list(both.channel_attention) == ["body_blocks_1"]
    assert both.trainable
    assert both.grid_gate is not None
    for gates in (None, settings("stage", (1,)), settings("block", (-1,))):
        assert encoder(TINY, gates).grid_gate is None


def test_putting_it_in_leaves_mode_and_statistics() -> None:
    gated = Encoder(
        name=TINY,
        pretrained=False,
        trainable_stages=5,
        batch_statistics=True,
        channel_attention=settings("stage", (1,)),
    )
    assert gated.training
    assert all(module.training for module in gated.modules())
    counts = [v for name, v in gated.named_buffers() if name.endswith("num_batches_tracked")]
    assert all(count == 0 for count in counts)


@pytest.mark.parametrize(
    ("name", "gates", "expected"),
    [
        (
            TINY,
            settings(stages=(5,)),
            "there is no stage 5; choose stages from 0 to 4, or from -1 to -5",
        ),
        (
            TINY,
            settings("stage", (-1, -6)),
            "there is no stage -6; choose stages from 0 to 4, or from -1 to -5",
        ),
        (
            TINY_RESNET,
            settings(stages=(0, -1)),
            "where is block: no block of stage 0 (body.act1) is known, but ResNet's (timm, "
            "torchvision) and EfficientNet's (timm) are; choose other stages, or where: stage",
        ),
        (
            "torchvision:squeezenet1_1",
            settings(),
            "where is block: no block of stage 12 (features_12) is known, but ResNet's (timm, "
            "torchvision) and EfficientNet's (timm) are; choose other stages, or where: stage",
        ),
        (
            "tresnet_m",
            settings(),
            "where is block: where the stages of this network part is unknown; choose another CNN",
        ),
        (
            "test_vit",
            settings("stage", (0,)),
            "where is stage: stage 0 (body.blocks.0) gives no feature map; choose other stages",
        ),
        (
            "test_vit3",
            settings("stage", (0,)),
            "where is stage: 64x64 pixels do not pass through it; choose a CNN",
        ),
    ],
)
def test_a_place_that_is_not_there_is_one_line(
    name: str, gates: ChannelAttentionSettings, expected: str
) -> None:
    with pytest.raises(EncoderError) as caught:
        Encoder(name=name, channel_attention=gates, pretrained=False)
    assert str(caught.value) == f"encoder.channel_attention in {name}: {expected}"
