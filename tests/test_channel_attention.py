"""Channel attention: values by hand, nothing changed at the start, and gradients all the same."""

import math

import pytest
import timm
import torch
from torch import Tensor, nn

from showattend.channel_attention import (
    CBAM,
    ChannelAttention,
    EfficientChannelAttention,
    SqueezeExcitation,
    channel_attention,
)

KINDS = ("se", "eca", "cbam")
LN3 = math.log(3)  # 2 sigmoid(ln 3) = 1.5, 2 sigmoid(-2 ln 3) = 0.2


def seeded(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def set_to(parameter: Tensor, values: list[list[float]]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values))


def last_layers(module: ChannelAttention) -> list[nn.Parameter]:
    """The layers in front of a sigmoid."""
    return [value for name, value in module.named_parameters() if name != "mlp.0.weight"]


def test_squeeze_excitation_by_hand() -> None:
    """Means 2 and 1 -> relu(2, -1) = (2, 0) -> logits ln 3 and 0 -> gates 1.5 and 1."""
    module = SqueezeExcitation(channels=2, reduction=1)
    set_to(module.mlp[0].weight, [[1.0, 0.0], [0.0, -1.0]])
    set_to(module.mlp[2].weight, [[LN3 / 2, 5.0], [0.0, 5.0]])
    features_BChw = torch.tensor([[[[1.0, 3.0]], [[0.0, 2.0]]]])
    torch.testing.assert_close(module.gates(features_BChw), torch.tensor([[1.5, 1.0]]))
    expected_BChw = torch.tensor([[[[1.5, 4.5]], [[0.0, 2.0]]]])
    torch.testing.assert_close(module(features_BChw), expected_BChw)


def test_eca_by_hand() -> None:
    """Channels 1 and 6 of 8 hear their left and right neighbours, of means 1 and 2."""
    module = EfficientChannelAttention(channels=8)
    with torch.no_grad():
        module.conv.weight.copy_(torch.tensor([[[LN3, 0.0, -LN3]]]))
    features_BChw = torch.zeros(1, 8, 1, 2)
    features_BChw[0, 0, 0] = torch.tensor([0.0, 2.0])
    features_BChw[0, 7, 0] = torch.tensor([4.0, 0.0])
    features_BChw[0, 1, 0] = torch.tensor([6.0, -6.0])  # of mean 0
    expected_BC = torch.tensor([[1.0, 1.5, 1, 1, 1, 1, 0.2, 1]])
    torch.testing.assert_close(module.gates(features_BChw), expected_BC)
    gated_BChw = module(features_BChw)
    torch.testing.assert_close(gated_BChw[0, 1, 0], torch.tensor([9.0, -9.0]))
    torch.testing.assert_close(gated_BChw[0, 7], features_BChw[0, 7])


@pytest.mark.parametrize(
    ("channels", "kernel"), [(2, 1), (16, 3), (64, 3), (128, 5), (1024, 5), (1280, 5), (2048, 7)]
)
def test_the_kernel_of_eca_grows_with_the_channels(channels: int, kernel: int) -> None:
    assert EfficientChannelAttention(channels).conv.kernel_size == (kernel,)
    if channels > 2:  # timm's takes 3 at the least
        assert timm.layers.EcaModule(channels).conv.kernel_size == (kernel,)


def test_cbam_by_hand() -> None:
    """Channels: W2 (2 + 3) = ln 3 from mean and maximum. Then each cell hears its neighbour."""
    module = CBAM(channels=2, reduction=2)
    set_to(module.mlp[0].weight, [[1.0, 0.0]])
    set_to(module.mlp[2].weight, [[LN3 / 5], [0.0]])
    features_BChw = torch.tensor([[[[1.0, 3.0]], [[0.0, 2.0]]]])
    torch.testing.assert_close(module.gates(features_BChw), torch.tensor([[1.5, 1.0]]))
    # Gated, the cells have means 0.75 and 3.25 and maxima 1.5 and 4.5.
    with torch.no_grad():
        module.conv.weight[0, 0, 3, 4] = -2 * LN3 / 3.25  # the mean to the right
        module.conv.weight[0, 1, 3, 2] = LN3 / 1.5  # the maximum to the left
    expected_BChw = torch.tensor([[[[1.5 * 0.2, 4.5 * 1.5]], [[0.0, 2.0 * 1.5]]]])
    torch.testing.assert_close(module(features_BChw), expected_BChw)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_it_starts_as_the_identity(kind: str, memory_format: torch.memory_format) -> None:
    """Bit by bit, and each image by itself."""
    features_BChw = seeded(3, 40, 5, 7).to(memory_format=memory_format)
    module = channel_attention(kind, channels=40, reduction=16)
    assert torch.equal(module(features_BChw), features_BChw)
    assert torch.equal(module.gates(features_BChw), torch.ones(3, 40))


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_from_the_first_step_on(kind: str) -> None:
    torch.manual_seed(0)
    module = channel_attention(kind, channels=40, reduction=16)
    features_BChw = seeded(3, 40, 5, 7).requires_grad_()
    torch.autograd.backward((module(features_BChw) ** 2).sum())
    assert features_BChw.grad is not None
    assert features_BChw.grad.abs().min() > 0
    for parameter in last_layers(module):
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0
        with torch.no_grad():
            parameter -= 1e-4 * parameter.grad
    torch.autograd.backward((module(features_BChw.detach()) ** 2).sum())
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_is_gated_by_itself_alone(kind: str) -> None:
    module = channel_attention(kind, channels=8, reduction=2)
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    features_BChw = seeded(3, 8, 4, 4)
    alone_BChw = torch.cat([module(features_1Chw) for features_1Chw in features_BChw.split(1)])
    torch.testing.assert_close(module(features_BChw), alone_BChw)
    assert module.gates(features_BChw).std(dim=0).min() > 0


@pytest.mark.parametrize(
    ("kind", "count"),
    [("se", 2 * 64 * 4), ("eca", 3), ("cbam", 2 * 64 * 4 + 2 * 7 * 7)],
)
def test_how_many_weights_there_are(kind: str, count: int) -> None:
    module = channel_attention(kind, channels=64, reduction=16)
    assert sum(parameter.numel() for parameter in module.parameters()) == count


def test_the_inner_layer_has_one_unit_at_the_least() -> None:
    module = SqueezeExcitation(channels=8, reduction=16)
    assert module(seeded(1, 8, 2, 2)).shape == (1, 8, 2, 2)
    assert module.mlp[0].out_features == 1
