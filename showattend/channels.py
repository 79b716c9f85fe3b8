"""Which channels fired: the gates of a model's channel attention, heard as photographs pass.

Nothing in the model keeps them. Who wants them listens for one pass, and each gate is then computed
once more, so that training and its caches know nothing of it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch import Tensor

from showattend.captioner import Captioner
from showattend.channel_attention import ChannelAttention
from showattend.decoder import Scene

#: Where the gates behind the encoder sit; all others are named as their module in the network.
GRID = "grid"
#: Channels told of every place, at either end.
FEW = 5


@torch.inference_mode()
def look_with_gates(captioner: Captioner, pixels_B3SS: Tensor) -> Scene:
    """What the decoder sees of photographs, and the gates (B, C) of every place in their way."""
    heard: dict[str, list[Tensor]] = {}
    ours = get_ident()  # other threads of a server may caption with the same model meanwhile

    def hear(place: str, attention: ChannelAttention, inputs: tuple[Tensor]) -> None:
        if get_ident() == ours:
            heard.setdefault(place, []).append(attention.gates(*inputs))

    listening = [
        attention.register_forward_pre_hook(partial(hear, place))
        for place, attention in _places(captioner).items()
    ]
    try:
        scene = captioner.look(captioner.encode(pixels_B3SS))
    finally:
        for hook in listening:
            hook.remove()
    return replace(scene, gates={place: torch.cat(parts) for place, parts in heard.items()})


def _places(captioner: Captioner) -> dict[str, Any]:
    """All channel attention of a model, by where it sits."""
    places: dict[str, Any] = {}
    if captioner.encoder is not None:
        named = captioner.encoder.network.named_modules()
        names = {name.replace(".", "_"): name for name, _ in named}  # torch forbids dots in keys
        inserted = captioner.encoder.channel_attention.items()
        places = {names[key]: attention for key, attention in inserted}
    if captioner.channel_attention is not None:
        places[GRID] = captioner.channel_attention
    return places


def told_channels(
    gates: Mapping[str, np.ndarray], count: int = FEW, *, every: bool = False
) -> list[dict[str, Any]]:
    """A caption's gates for programs and pages, place by place in the order of the forward pass.

    ``strongest`` and ``weakest`` are pairs of a channel's number and its gate, the most extreme
    first.

    Args:
        count: how many of either.
        every: also all ``gates``, by the channel's number.
    """
    told = []
    for place, gates_C in gates.items():
        rounded = gates_C.astype(float).round(4).tolist()
        order = np.argsort(-gates_C, kind="stable").tolist()  # of equals the first are stronger
        ends = {"strongest": order[:count], "weakest": order[::-1][:count]}
        entry = {end: [[c, rounded[c]] for c in channels] for end, channels in ends.items()}
        told.append({"where": place} | entry | ({"gates": rounded} if every else {}))
    return told
