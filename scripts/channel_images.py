#!/usr/bin/env python
"""The photographs that fire a channel most and least: a page to see what a grid's channels mean.

    scripts/channel_images.py --model RUN --images DIR --out page.html [--channels 3,17]

Channel attention (docs/attention.md) turns each channel of the grid up or down by its gate. The
page shows, channel by channel, the photographs of the highest and the lowest gates and, in colours,
where the gated channel is active in them. Without --channels these are the ones whose gates vary
most.
"""

import argparse
import html
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from showattend.channel_attention import ChannelAttention
from showattend.checkpoint import Checkpoint, CheckpointError
from showattend.files import find_photographs
from showattend.grids import model_pixels
from showattend.images import ImageError, Resize, open_photograph
from showattend.overlay import blend, heat_on_photograph, scaled
from showattend.page import STYLE, embedded
from showattend.predict import load
from showattend.whole_files import write_whole

BATCH = 16  # photographs encoded at once
SIDE = 160  # pixels, the longer side of a photograph on the page
_STYLE = """
body { max-width: 86rem; } p { margin: .2rem 0; max-width: 62rem; } h2 { margin: 2.5rem 0 0; }
h3 { margin: .8rem 0 .2rem; font-size: 1rem; } div { display: flex; flex-wrap: wrap; gap: .5rem; }
figure { margin: 0; } figcaption { color: #555; }
"""
_EXPLAINED = (
    "A gate is the factor, between 0 and 2, by which channel attention turns a channel of the grid "
    "up or down in a whole photograph; 1 changes nothing. Under each photograph stands its gate. "
    "Colours say where the gated channel is active, on one scale for all photographs of a channel: "
    "from 0 to the most that any of their cells has. A gate hears all channels, so that it can be "
    "high where its own channel is silent."
)


class ChannelsError(ValueError):
    """The model's grid has no gates, or not that channel: one clear line."""


@dataclass(frozen=True)
class Seen:
    """A photograph, small, and the map that the model's gates stand before."""

    path: str
    photo: Image.Image
    map_1Chw: Tensor


@torch.inference_mode()
def main(argv: Sequence[str] | None = None) -> None:
    arguments = build_parser().parse_args(argv)
    model = load(arguments.model).checkpoint
    attention = grid_attention(model, arguments.model)
    refuse_absent(arguments.channels or [], model.captioner.shape.channels)
    paths = [path for name in arguments.images for path in find_photographs(name)]
    passing = tqdm(look(model, paths), total=len(paths), unit="img", disable=None)
    gates = {seen.path: attention.gates(seen.map_1Chw)[0].cpu().numpy() for seen in passing}
    if not gates:
        raise ImageError("--images: none of the photographs can be opened")
    channels = arguments.channels or most_varied(gates, arguments.varied)
    rows = list(draw(model, attention, gates, channels, arguments.images_each))
    write_whole(arguments.out, page(f"Channels of {arguments.model}", len(gates), rows))
    print(f"{arguments.out}: {len(rows)} channels, {len(gates)} photographs")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--model", required=True, help="checkpoint or run folder, with gates on its grid")
    add("--images", nargs="+", required=True, metavar="PATH", help="files, folders or globs")
    add("--out", type=Path, required=True, metavar="FILE", help="the page to write")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--channels", type=numbers, metavar="C,C,...", help="these channels")
    which.add_argument(
        "--varied",
        type=positive,
        default=12,
        metavar="N",
        help="those that vary most (default: 12)",
    )
    add("--images-each", type=positive, default=8, metavar="N", help="at either end (default: 8)")
    return parser


def numbers(text: str) -> list[int]:
    """Channels by their numbers, parted by commas."""
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}: expected channels such as 3,17")
    return [int(part) for part in parts]


def positive(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1 on")
    return int(text)


def grid_attention(model: Checkpoint, name: str) -> ChannelAttention:
    """The channel attention of the grid. Raises: ChannelsError: there is none; one line."""
    attention = model.captioner.channel_attention
    if attention is None:
        raise ChannelsError(
            f"{name}: no gates on its grid; use a model trained with "
            "encoder.channel_attention={kind: se, where: stage, stages: [-1]}"
        )
    return attention


def refuse_absent(channels: Sequence[int], count: int) -> None:
    """Raises: ChannelsError: the grid has no such channel; one line."""
    for channel in channels:
        if channel >= count:
            raise ChannelsError(f"--channels {channel}: the grid has channels 0 to {count - 1}")


def look(model: Checkpoint, paths: Sequence[str]) -> Iterator[Seen]:
    """Encode photographs in batches; one that cannot be opened is named and left out."""
    captioner = model.captioner
    for start in range(0, len(paths), BATCH):
        photos: dict[str, Image.Image] = {}
        for path in paths[start : start + BATCH]:
            try:
                photos[path] = open_photograph(path)
            except ImageError as error:
                tqdm.write(f"left out: {error}", file=sys.stderr)
        if not photos:
            continue
        squares = np.stack([model_pixels(photo, model.pixels) for photo in photos.values()])
        grid_BPC = captioner.encode(torch.from_numpy(squares).to(captioner.device))
        maps = captioner.shape.late(grid_BPC).split(1)
        for (path, photo), map_1Chw in zip(photos.items(), maps, strict=True):
            yield Seen(path, scaled(photo, SIDE), map_1Chw)


def most_varied(gates: Mapping[str, np.ndarray], count: int) -> list[int]:
    """The channels with the largest standard deviation over the photographs, the largest first."""
    deviation_C = np.std(list(gates.values()), axis=0)
    channels: list[int] = np.argsort(-deviation_C, kind="stable")[:count].tolist()
    return channels


def ends_of(gate: Mapping[str, float], count: int) -> tuple[list[str], list[str]]:
    """The photographs with the highest and with the lowest gates, the most extreme first; none is
    both."""
    ranked = sorted(gate, key=lambda path: -gate[path])
    highest = ranked[: min(count, -(-len(ranked) // 2))]
    return highest, ranked[: len(highest) - 1 : -1][:count]


def draw(
    model: Checkpoint,
    attention: ChannelAttention,
    gates: Mapping[str, np.ndarray],
    channels: Sequence[int],
    count: int,
) -> Iterator[str]:
    """Of each channel what the page says; the photographs that it needs are opened once more."""
    gate = {c: {path: float(gates_C[c]) for path, gates_C in gates.items()} for c in channels}
    ends = {c: ends_of(gate[c], count) for c in channels}
    wanted = dict.fromkeys(path for pair in ends.values() for end in pair for path in end)
    shown = {seen.path: seen for seen in look(model, list(wanted))}
    for c, (highest, lowest) in ends.items():
        active = {
            path: attention(shown[path].map_1Chw)[0, c].cpu().numpy()
            for path in (*highest, *lowest)
        }
        drawn = overlays(shown, active, model.pixels.resize)
        yield row(c, gate[c], {"Highest": highest, "Lowest": lowest}, drawn)


def overlays(
    shown: Mapping[str, Seen], active: Mapping[str, np.ndarray], resize: Resize
) -> dict[str, Image.Image]:
    """The photographs under a channel's activation (h, w); below 0 it counts as none."""
    top = max(float(map_hw.max()) for map_hw in active.values())
    drawn = {}
    for path, map_hw in active.items():
        photo = shown[path].photo
        heat_HW = heat_on_photograph(map_hw.clip(0), photo.size, resize)
        drawn[path] = blend(photo, heat_HW, top if top > 0 else 1.0)
    return drawn


def row(
    channel: int,
    gate: Mapping[str, float],
    ends: Mapping[str, Sequence[str]],
    drawn: Mapping[str, Image.Image],
) -> str:
    """A channel of the page.

    Args:
        gate: of every photograph, shown or not.
        ends: heading -> the photographs under it.
    """
    values = np.array(list(gate.values()))
    parts = [
        f"<h2>Channel {channel}</h2><p>Gates {values.min():.2f} to {values.max():.2f}, mean "
        f"{values.mean():.2f}, standard deviation {values.std():.2f}."
    ]
    for heading, paths in ends.items():
        figures = [
            f"<figure>{embedded(drawn[path], Path(path).name)}<figcaption>{gate[path]:.2f}"
            "</figcaption></figure>"
            for path in paths
        ]
        parts.append(f"<h3>{heading}</h3><div>{''.join(figures)}</div>")
    return "\n".join(parts)


def page(title: str, photographs: int, rows: Sequence[str]) -> str:
    """The HTML, complete in itself: pictures are in it, and nothing is fetched."""
    name = html.escape(title)
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>{name}</title>"
    style = f"<style>{STYLE}{_STYLE}</style><h1>{name}</h1>"
    counted = f"<p>Ranges and means are over {photographs} photographs."
    return "\n".join([head, style, f"<p>{_EXPLAINED}", counted, *rows]) + "\n</html>\n"


if __name__ == "__main__":
    try:
        main()
    except (ChannelsError, CheckpointError, ImageError, OSError) as error:
        raise SystemExit(f"channel_images: error: {error}") from None
