#!/usr/bin/env python
"""What channel attention costs: weights, FLOPs and time of a CNN with it and without.

    scripts/channel_costs.py [--encoder NAME=STAGES ...] [--size 224] [--repeats 30]

STAGES are those that count as all, such as 4,5,6,7 (the residual ones) of torchvision:resnet50. The
CNN is cut to its grid, as captioning uses it; its weights are random, which costs the same. Prints
a table an encoder, in Markdown.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from showattend.channel_attention import (
    CBAM,
    ChannelAttention,
    EfficientChannelAttention,
    SqueezeExcitation,
    channel_attention,
)
from showattend.config import ChannelAttentionSettings
from showattend.encoder import Encoder, EncoderError
from showattend.report import Cell, Table, markdown
from showattend.sides import describe_device

ENCODERS = ("tf_efficientnet_lite0=0,1,2,3,4", "torchvision:resnet50=4,5,6,7")
KINDS = ("se", "eca", "cbam")
#: For every number of a gated map: a sum and a product; of CBAM a sum, a maximum and a product, of
#: the channels and once more of the cells.
ELEMENTWISE = {SqueezeExcitation: 2, EfficientChannelAttention: 2, CBAM: 6}


@dataclass(frozen=True)
class Costs:
    """Of one photograph.

    ``flops`` are those of matrix products and convolutions, two a multiply-add; ``elementwise`` are
    the gates' operations besides, by `ELEMENTWISE`.
    """

    weights: int
    flops: int
    elementwise: int


@torch.inference_mode()
def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--encoder", nargs="+", type=read_encoder, default=[*map(read_encoder, ENCODERS)])
    add("--size", type=whole, default=224, help="of the square, in pixels (default: 224)")
    add("--repeats", type=whole, default=30, help="timed runs; 0 only counts (default: 30)")
    arguments = parser.parse_args(argv)
    for name, stages in arguments.encoder:
        print(markdown(table(name, stages, arguments.size, arguments.repeats)), end="\n\n")


def read_encoder(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME=STAGES, the stages parted by commas."""
    name, _, listed = text.partition("=")
    stages = listed.split(",")
    if not name or not all(stage.isdecimal() for stage in stages):
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=STAGES, such as {ENCODERS[1]}")
    return name, tuple(map(int, stages))


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number")
    return int(text)


def table(name: str, stages: tuple[int, ...], size: int, repeats: int) -> Table:
    """A row for every kind and place.

    Raises:
        EncoderError: there is no such CNN or stage, or nothing to gate there; one line.
    """
    pixels_13SS = torch.rand(1, 3, size, size)
    plain = build(name, None, size)
    without = costs_of(plain, pixels_13SS)
    rows = {}
    for kind in KINDS:
        for place, settings in places(kind, stages).items():
            gated = build(name, settings, size)
            added = row(without, costs_of(gated, pixels_13SS))
            taken = times(plain, gated, pixels_13SS, repeats) if repeats else {}
            rows[f"{kind}, {place}"] = added | taken
    note = (
        f"{name} up to its grid, {size}x{size} pixels: {without.weights:,} weights, "
        f"{without.flops / 1e6:,.1f} MFLOP without channel attention. FLOPs are those of matrix "
        "products and convolutions, two a multiply-add; elementwise operations (means, maxima and "
        "products of the gated maps) are counted by hand and apart."
    )
    if repeats:
        note += (
            f" Times: one photograph, medians of {repeats} runs with and without in turn; the last "
            "column is the median of the pairs' quotients, less 1. "
            f"{describe_device(pixels_13SS.device)}."
        )
    return Table(name, rows, note)


def places(kind: str, stages: tuple[int, ...]) -> dict[str, ChannelAttentionSettings]:
    """Where it is put, by what a row says of it."""
    wanted = {
        "in all blocks": ("block", stages),
        "after all stages": ("stage", stages),
        "after the last stage": ("stage", (-1,)),
    }
    return {
        place: ChannelAttentionSettings.model_validate(
            {"kind": kind, "where": where, "stages": which}
        )
        for place, (where, which) in wanted.items()
    }


def build(name: str, settings: ChannelAttentionSettings | None, size: int) -> nn.Module:
    """A CNN up to its grid, the grid's own gates behind it."""
    encoder = Encoder(name=name, pretrained=False, channel_attention=settings)
    network, shape = nn.Sequential(encoder), encoder.grid_shape(size)
    if encoder.grid_gate is not None:
        kind, reduction = encoder.grid_gate.kind, encoder.grid_gate.reduction
        network.append(channel_attention(kind, shape.channels, reduction))
    return network.eval()


def costs_of(network: nn.Module, pixels_13SS: Tensor) -> Costs:
    """Counted in one pass."""
    elementwise = 0

    def count(attention: nn.Module, inputs: tuple[Tensor]) -> None:
        nonlocal elementwise
        elementwise += ELEMENTWISE[type(attention)] * inputs[0].numel()

    gates = [module for module in network.modules() if isinstance(module, ChannelAttention)]
    hooks = [module.register_forward_pre_hook(count) for module in gates]
    with FlopCounterMode(display=False) as counter:
        network(pixels_13SS)
    for hook in hooks:
        hook.remove()
    weights = sum(parameter.numel() for parameter in network.parameters())
    return Costs(weights, counter.get_total_flops(), elementwise)


def row(without: Costs, with_: Costs) -> dict[str, Cell]:
    """What is added."""
    weights, flops = with_.weights - without.weights, with_.flops - without.flops
    return {
        "weights": Cell(weights),
        "% of weights": Cell(100 * weights / without.weights),
        "MFLOP": Cell(flops / 1e6, decimals=3),
        "% of FLOPs": Cell(100 * flops / without.flops),
        "elementwise, M": Cell(with_.elementwise / 1e6, decimals=3),
    }


def times(plain: nn.Module, gated: nn.Module, pixels_13SS: Tensor, repeats: int) -> dict[str, Cell]:
    """With and without in turn, so that a machine that slows down is not mistaken for a cost."""
    pairs = []
    for repeat in range(-1, repeats):  # the first only warms up
        without, with_ = (milliseconds(network, pixels_13SS) for network in (plain, gated))
        if repeat >= 0:
            pairs.append((without, with_))
    return {
        "ms without": Cell(median(without for without, _ in pairs), decimals=1),
        "ms with": Cell(median(with_ for _, with_ in pairs), decimals=1),
        "% of time": Cell(100 * (median(b / a for a, b in pairs) - 1), decimals=1),
    }


def milliseconds(network: nn.Module, pixels_13SS: Tensor) -> float:
    began = time.perf_counter()
    network(pixels_13SS)
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    try:
        main()
    except EncoderError as error:
        raise SystemExit(f"channel_costs: error: {error}") from None
