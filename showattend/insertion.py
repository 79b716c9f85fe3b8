"""Where channel attention sits in a CNN: in its residual blocks, or after its stages.

It is not built into the network: hooks on the network's own modules pass their outputs through it.
The network's tensors so keep their names, with channel attention or without.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import timm.models._efficientnet_blocks
import timm.models.resnet
import torch
import torchvision.models.resnet
from torch import Tensor, nn

from showattend.channel_attention import ChannelAttention, channel_attention
from showattend.config import ChannelAttentionSettings

#: The residual blocks that are known, each with its last layer before the residual sum.
_LAST_BEFORE_THE_SUM = {
    timm.models.resnet.BasicBlock: "bn2",
    timm.models.resnet.Bottleneck: "bn3",
    timm.models._efficientnet_blocks.DepthwiseSeparableConv: "bn2",
    timm.models._efficientnet_blocks.EdgeResidual: "bn2",
    timm.models._efficientnet_blocks.InvertedResidual: "bn3",
    torchvision.models.resnet.BasicBlock: "bn2",
    torchvision.models.resnet.Bottleneck: "bn3",
}
#: Pixels a side of the square that tells how many channels a stage has.
_PROBE = 64


class InsertionError(ValueError):
    """The network has no such place: one clear line, but for the network's name."""


@dataclass(frozen=True)
class _Place:
    """A module whose output is to be gated."""

    name: str
    module: nn.Module
    channels: int
    channels_last: bool = False


def chosen_stages(stages: Iterable[int], count: int) -> set[int]:
    """Indices of stages, negative ones from the end, as 0 to ``count`` - 1.

    Raises:
        InsertionError: there is no such stage.
    """
    for stage in stages:
        if not -count <= stage < count:
            raise InsertionError(
                f"there is no stage {stage}; choose stages from 0 to {count - 1}, "
                f"or from -1 to -{count}"
            )
    return {stage % count for stage in stages}


def insert(
    network: nn.Module, stage_names: list[str], settings: ChannelAttentionSettings
) -> nn.ModuleDict:
    """Put new channel attention into a network's chosen stages.

    The end of the last stage is the grid, which whoever holds the grid gates: nothing is put there.

    Args:
        stage_names: names of the modules within ``network`` at which its stages end.
    Returns:
        The new modules, by their places; for the caller to hold, train and store.
    Raises:
        InsertionError: no such stage, or no place in it where channel attention can be put.
    """
    chosen = chosen_stages(settings.stages, len(stage_names))
    if settings.where == "block":
        places = _in_blocks(network, stage_names, chosen)
    else:
        places = _after_stages(network, stage_names, chosen - {len(stage_names) - 1})
    modules = nn.ModuleDict()
    for place in places:
        module = channel_attention(settings.kind, place.channels, settings.reduction)
        gated = _gated_channels_last if place.channels_last else _gated
        # A partial and not a lambda: a copy of the network must gate by the copy's own module.
        place.module.register_forward_hook(partial(gated, module))
        modules[place.name.replace(".", "_")] = module
    return modules


def _gated(attention: ChannelAttention, _: nn.Module, __: Any, features_BChw: Tensor) -> Tensor:
    return attention(features_BChw)


def _gated_channels_last(
    attention: ChannelAttention, _: nn.Module, __: Any, features_BhwC: Tensor
) -> Tensor:
    return attention(features_BhwC.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def _in_blocks(network: nn.Module, stage_names: list[str], chosen: set[int]) -> list[_Place]:
    """Before the residual sum of every block of the chosen stages, as in Hu et al., fig. 3."""
    modules = list(network.named_modules())  # in the order of the forward pass
    ends = [_last_within(modules, name) for name in stage_names]
    found: dict[int, list[_Place]] = {stage: [] for stage in chosen}
    for position, (name, module) in enumerate(modules):
        stage, layer = bisect_left(ends, position), _LAST_BEFORE_THE_SUM.get(type(module))
        if layer is not None and stage in chosen:
            norm = getattr(module, layer)
            found[stage].append(_Place(name, norm, channels=len(norm.weight)))
    for stage in sorted(found):
        if not found[stage]:
            raise InsertionError(
                f"where is block: no block of stage {stage} ({stage_names[stage]}) is known, but "
                "ResNet's (timm, torchvision) and EfficientNet's (timm) are; choose other stages, "
                "or where: stage"
            )
    return [place for stage in sorted(found) for place in found[stage]]


def _last_within(modules: list[tuple[str, nn.Module]], stage_name: str) -> int:
    """Position of the last module of a stage."""
    inside = [i for i, (name, _) in enumerate(modules) if f"{name}.".startswith(f"{stage_name}.")]
    if not inside:
        raise InsertionError(
            "where is block: where the stages of this network part is unknown; choose another CNN"
        )
    return inside[-1]


def _after_stages(network: nn.Module, stage_names: list[str], chosen: set[int]) -> list[_Place]:
    """At the ends of the chosen stages."""
    channels_last = getattr(getattr(network, "body", None), "output_fmt", "NCHW") == "NHWC"
    shapes = _output_shapes(network, [stage_names[stage] for stage in chosen])
    places = []
    for stage in sorted(chosen):
        name = stage_names[stage]
        shape = shapes.get(name, ())
        if len(shape) != 4:
            raise InsertionError(
                f"where is stage: stage {stage} ({name}) gives no feature map; choose other stages"
            )
        module, channels = network.get_submodule(name), shape[-1 if channels_last else 1]
        places.append(_Place(name, module, channels, channels_last))
    return places


@torch.no_grad()
def _output_shapes(network: nn.Module, names: list[str]) -> dict[str, tuple[int, ...]]:
    """Shapes of what some of the network's modules give; those that are not reached are absent."""
    shapes: dict[str, tuple[int, ...]] = {}

    def note(name: str, _: nn.Module, __: Any, output: Any) -> None:
        shapes[name] = tuple(getattr(output, "shape", ()))

    found = dict(network.named_modules())
    hooks = [
        found[name].register_forward_hook(partial(note, name)) for name in names if name in found
    ]
    was_training = network.training
    try:
        if hooks:
            network.eval()(torch.zeros(1, 3, _PROBE, _PROBE))
    except (RuntimeError, AssertionError):  # transformers of one size
        raise InsertionError(
            f"where is stage: {_PROBE}x{_PROBE} pixels do not pass through it; choose a CNN"
        ) from None
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    return shapes
