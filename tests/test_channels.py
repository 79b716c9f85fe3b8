"""The gates of channel attention as they are heard and told: values by hand."""

import copy
import math
from collections import OrderedDict
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from conftest import MakeDecoder
from torch import Tensor, nn

from showattend.captioner import Captioner
from showattend.channel_attention import SqueezeExcitation
from showattend.channels import GRID, look_with_gates, told_channels
from showattend.config import ChannelAttentionSettings
from showattend.encoder import Encoder, GridShape
from showattend.insertion import insert

LN3 = math.log(3)  # 2 sigmoid(ln 3) = 1.5, 2 sigmoid(-2 ln 3) = 0.2


class Seer(nn.Module):
    """An encoder that changes nothing but by its gates."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(OrderedDict(low=nn.Identity(), high=nn.Identity()))
        after_low = ChannelAttentionSettings(kind="se", where="stage", stages=(0,), reduction=3)
        self.channel_attention = insert(self.network, ["low", "high"], after_low)

    def forward(self, pixels_B3SS: Tensor) -> Tensor:
        return self.network(pixels_B3SS)


@torch.no_grad()
def set_to(attention: SqueezeExcitation, hidden: list[float], last: list[float]) -> None:
    attention.mlp[0].weight.copy_(torch.tensor([hidden]))
    attention.mlp[2].weight.copy_(torch.tensor(last).unsqueeze(1))


@pytest.fixture
def captioner(make_decoder: MakeDecoder) -> Captioner:
    """With the first channel's mean m, the gates are 2 sigmoid of m ln 3 (1/2, -1, 0) after the
    first stage, and of 1.5 m (0, 0, ln 3 / 3) on the grid, where m is 2."""
    shape, encoder, grid = GridShape(1, 2, 3), Seer(), SqueezeExcitation(3, reduction=3)
    within: Any = encoder.channel_attention["low"]
    set_to(within, [1.0, 0.0, 0.0], [LN3 / 2, -LN3, 0.0])
    set_to(grid, [1.0, 0.0, 0.0], [0.0, 0.0, LN3 / 3])
    stand_in: Any = encoder
    return Captioner(stand_in, make_decoder(grid=shape), shape, grid).eval()


def pixels(*means: float) -> Tensor:
    """Photographs of one row of two pixels, whose first channel has such means."""
    return torch.tensor([[[[mean - 1, mean + 1]], [[1.0, 1]], [[0.0, 2]]] for mean in means])


def test_every_gate_is_heard(captioner: Captioner) -> None:
    """Of three photographs, which a CPU encodes two by two."""
    gates = look_with_gates(captioner, pixels(2, 0, 2)).gates
    assert list(gates) == ["low", GRID]
    torch.testing.assert_close(
        gates["low"], torch.tensor([[1.5, 0.2, 1], [1, 1, 1], [1.5, 0.2, 1]])
    )
    # 1.5 times a mean of 2 is 3.
    torch.testing.assert_close(gates[GRID], torch.tensor([[1, 1, 1.5], [1, 1, 1], [1, 1, 1.5]]))


def test_listening_changes_nothing_and_ends(captioner: Captioner) -> None:
    with torch.inference_mode():
        expected = captioner.look(captioner.encode(pixels(2, 0)))
    scene = look_with_gates(captioner, pixels(2, 0))
    assert torch.equal(scene.grid_BPC, expected.grid_BPC)
    assert torch.equal(scene.keys[0], expected.keys[0])
    with pytest.raises(RuntimeError):
        look_with_gates(captioner, torch.zeros(1, 4, 1, 2))  # a channel too many
    assert not any(module._forward_pre_hooks for module in captioner.modules())


def test_what_another_thread_looks_at_is_not_heard(captioner: Captioner) -> None:
    """A whole pass of another photograph, between the encoder and the grid's gate of ours."""
    others = [Thread(target=look_with_gates, args=(captioner, pixels(0)))]

    def interrupt(*_: object) -> None:
        if others:
            other = others.pop()
            other.start()
            other.join()

    assert captioner.encoder is not None
    captioner.encoder.register_forward_hook(interrupt)
    gates = look_with_gates(captioner, pixels(2)).gates
    assert not others
    torch.testing.assert_close(gates["low"], torch.tensor([[1.5, 0.2, 1]]))
    torch.testing.assert_close(gates[GRID], torch.tensor([[1, 1, 1.5]]))


def test_without_channel_attention_nothing_is_heard(captioner: Captioner) -> None:
    bare = copy.deepcopy(captioner)
    bare.channel_attention = None
    assert list(look_with_gates(bare, pixels(2)).gates) == ["low"]
    assert bare.encoder is not None
    bare.encoder.network = nn.Identity()
    bare.encoder.channel_attention = nn.ModuleDict()
    assert look_with_gates(bare, pixels(2)).gates == {}


@pytest.mark.parametrize(
    ("name", "where", "stages", "places"),
    [
        ("test_efficientnet", "block", (1,), ["body.blocks.1.0"]),
        ("test_efficientnet", "stage", (0, 1, -1), ["body.blocks.0", "body.blocks.1", GRID]),
        ("torchvision:resnet18", "block", (-1,), ["layer4.0", "layer4.1"]),
        ("torchvision:squeezenet1_1", "stage", (3,), ["features_3"]),
    ],
)
def test_places_have_the_networks_own_names(
    make_decoder: MakeDecoder, name: str, where: Any, stages: tuple[int, ...], places: list[str]
) -> None:
    """In the order in which the photograph passes them."""
    settings = ChannelAttentionSettings(kind="eca", where=where, stages=stages)
    encoder = Encoder(name=name, pretrained=False, channel_attention=settings)
    shape, grid = encoder.grid_shape(64), None
    if encoder.grid_gate is not None:
        grid = SqueezeExcitation(shape.channels, reduction=16)
    captioner = Captioner(encoder, make_decoder(grid=shape), shape, grid).eval()
    gates = look_with_gates(captioner, torch.rand(1, 3, 64, 64)).gates
    assert list(gates) == places
    for gates_BC in gates.values():  # as they start
        assert torch.equal(gates_BC, torch.ones_like(gates_BC))


def test_the_strongest_and_the_weakest_are_told() -> None:
    gates = {
        "layer4.0": np.array([1.0, 0.25, 1.75, 1.0, 1.5], np.float32),
        GRID: np.array([0.123456, 1.0], np.float32),
    }
    within = {
        "where": "layer4.0",
        "strongest": [[2, 1.75], [4, 1.5]],
        "weakest": [[1, 0.25], [3, 1.0]],
    }
    behind = {
        "where": "grid",
        "strongest": [[1, 1.0], [0, 0.1235]],
        "weakest": [[0, 0.1235], [1, 1.0]],
    }
    assert told_channels(gates, count=2) == [within, behind]
    every = told_channels(gates, count=2, every=True)
    assert every[0] == within | {"gates": [1.0, 0.25, 1.75, 1.0, 1.5]}
    assert every[1] == behind | {"gates": [0.1235, 1.0]}
    assert len(told_channels(gates)[0]["strongest"]) == 5
    assert told_channels({}) == []
