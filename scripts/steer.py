#!/usr/bin/env python
"""Does steering steer? Captions of looks that are bound to a thing's box, beside free ones.

    scripts/steer.py shapes --model runs/shapes_soft
    scripts/steer.py flickr8k --model soft --root ../shared/flickr8k --boxes FILE

shapes: validation pictures of two single objects (seed 0), each steered at both objects in turn.
Does the caption's first noun phrase have the object's colour and shape, and does it begin with "a"
or "an", as there is one of it? flickr8k: every annotated thing of validation photographs is steered
at. Is the head noun of a phrase that people named it by in the caption? Intervals and p are those
of the paired bootstrap over photographs; small things cover at most a quarter of theirs.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import numpy as np
import torch

from showattend.bootstrap import resampled_sums
from showattend.boxes import Box, load_boxes
from showattend.checkpoint import CheckpointError
from showattend.config import DataSettings
from showattend.datasets import DataError, Picture, load_split
from showattend.grids import model_pixels
from showattend.grounding import seen_part
from showattend.images import ImageError
from showattend.nouns import singular
from showattend.paired import Drawn, compare
from showattend.pointing import SMALL, area
from showattend.predict import CaptionModel, load
from showattend.search import Caption, beam_search
from showattend.shapes import CANVAS, SHAPES, Group, Scene, make_scene
from showattend.steering import Steering, cells_of

_BATCH = 32


@dataclass(frozen=True)
class Target:
    """What a caption is steered at: something in the picture at this position."""

    picture: int
    boxes: tuple[Box, ...]
    names: tuple[str, ...] = ()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", choices=("shapes", "flickr8k"))
    parser.add_argument("--model", default="soft", help="shipped name, checkpoint or run folder")
    parser.add_argument("--images", type=int, metavar="N", help="default: 200 shapes, 300 others")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="default: %(default)s")
    parser.add_argument("--root", type=Path, help="the Flickr8k folder")
    parser.add_argument("--boxes", type=Path, help="Flickr30k Entities, folder or JSON")
    arguments = parser.parse_args(argv)
    if arguments.data == "flickr8k" and not (arguments.root and arguments.boxes):
        parser.error("flickr8k needs --root and --boxes")
    if arguments.beam < 1 or (arguments.images is not None and arguments.images < 1):
        parser.error("--images and --beam: expected 1 or more")
    model, began = load(arguments.model), time.perf_counter()
    if arguments.data == "shapes":
        shapes(model, arguments.images or 200, arguments.beam)
    else:
        data = DataSettings(kind="flickr8k", root=arguments.root, boxes=arguments.boxes)
        photographs(model, data, arguments.images or 300, arguments.beam)
    print(f"{time.perf_counter() - began:.0f} s, {torch.get_num_threads()} threads")


def shapes(model: CaptionModel, images: int, beam: int) -> None:
    scenes = two_objects(images)
    pictures = [Picture(scene.image_id, scene, scene.captions) for scene in scenes]
    things = [(k, group) for k, scene in enumerate(scenes) for group in scene.groups]
    targets = [Target(k, tuple(on_square(group))) for k, group in things]
    grid_BPC = grids(model, pictures)
    print(
        f"{model.name}: {len(things)} objects of {images} pictures, beam {beam}; objects that the "
        "first noun phrase names, and captions that begin with one of something"
    )
    for title in ("free", "steered"):
        found = captions(model, pictures, grid_BPC, targets, beam, steered=title == "steered")
        named = sum(
            first_noun(caption.words) == (group.colour, group.shape)
            for caption, (_, group) in zip(found, things, strict=True)
        )
        alone = sum(caption.words[0] in ("a", "an") for caption in found)
        print(f"{title:7} {named:4} {named / len(things):7.1%}   as one {alone}")


def two_objects(images: int) -> list[Scene]:
    """The first validation scenes of two single objects."""
    scenes = (make_scene(0, "val", index) for index in count())
    pairs = (scene for scene in scenes if [group.count for group in scene.groups] == [1, 1])
    return list(islice(pairs, images))


def on_square(group: Group) -> list[Box]:
    return [(x0 / CANVAS, y0 / CANVAS, x1 / CANVAS, y1 / CANVAS) for x0, y0, x1, y1 in group.boxes]


def first_noun(words: Sequence[str]) -> tuple[str, str] | None:
    """Colour and shape of the first noun phrase; shapes in singular."""
    pairs = zip(words, map(singular, words[1:]), strict=False)
    return next((pair for pair in pairs if pair[1] in SHAPES), None)


def photographs(model: CaptionModel, data: DataSettings, images: int, beam: int) -> None:
    pictures = load_split(data, "val")[:images]
    targets = things_of(pictures, data)
    grid_BPC = grids(model, pictures)
    free, steered = (
        captions(model, pictures, grid_BPC, targets, beam, steered=each) for each in (False, True)
    )
    phrases = sum(len(target.names) for target in targets)
    print(
        f"{model.name}: {phrases} phrases for {len(targets)} things of {len(pictures)} "
        f"photographs, beam {beam}; phrases whose head noun is in the caption"
    )
    for title, largest in (("all", 1.0), ("small", SMALL)):
        chosen = [k for k, target in enumerate(targets) if area(target.boxes) <= largest]
        ours, theirs = (
            share([targets[k] for k in chosen], [found[k] for k in chosen], len(pictures))
            for found in (steered, free)
        )
        more = compare(ours, theirs)["named"]
        low, high = more.interval
        phrases = sum(len(targets[k].names) for k in chosen)
        print(
            f"{title:6} {phrases:5} phrases: free {theirs.score_S[0]:.1f} %, steered "
            f"{ours.score_S[0]:.1f} %: {more.value:+.1f} ({low:+.1f} to {high:+.1f}, "
            f"p {more.p:.3f})"
        )


def things_of(pictures: Sequence[Picture], data: DataSettings) -> list[Target]:
    """What people's sentences name: phrases with the same boxes are one thing."""
    annotated = load_boxes(data, pictures)
    targets = []
    for k, picture in enumerate(pictures):
        names: dict[tuple[Box, ...], list[str]] = {}
        for sentence in annotated[picture.image_id]:
            for phrase in sentence.phrases:
                names.setdefault(phrase.boxes, []).append(singular(sentence.words[phrase.head]))
        targets += [Target(k, boxes, tuple(said)) for boxes, said in names.items()]
    return targets


def share(targets: Sequence[Target], found: Sequence[Caption], pictures: int) -> Drawn:
    """The share of the names that are in the captions, %, also of pictures drawn again."""
    sums_B2 = np.zeros((pictures, 2))
    for target, caption in zip(targets, found, strict=True):
        said = {singular(word) for word in caption.words}
        sums_B2[target.picture] += sum(name in said for name in target.names), len(target.names)
    hits, names = sums_B2.sum(axis=0)
    drawn_R2 = resampled_sums(sums_B2)
    score_S = np.array([100 * hits / names])
    return Drawn(["named"], score_S, score_S[None], 100 * drawn_R2[:, :1] / drawn_R2[:, 1:])


@torch.inference_mode()
def grids(model: CaptionModel, pictures: Sequence[Picture]) -> torch.Tensor:
    """The encoder's grids, (B, P, C)."""
    captioner, pixels = model.checkpoint.captioner, model.checkpoint.pixels
    parts = []
    for start in range(0, len(pictures), _BATCH):
        opened = [picture.open() for picture in pictures[start : start + _BATCH]]
        squares_B3SS = np.stack([model_pixels(photo, pixels) for photo in opened])
        parts.append(captioner.encode(torch.from_numpy(squares_B3SS).to(captioner.device)))
    return torch.cat(parts)


@torch.inference_mode()
def captions(
    model: CaptionModel,
    pictures: Sequence[Picture],
    grid_BPC: torch.Tensor,
    targets: Sequence[Target],
    beam: int,
    *,
    steered: bool,
) -> list[Caption]:
    """Of each target's picture the best caption, its look bound to the target or free."""
    if not steered:  # one caption for all targets of a picture
        written = search(model, grid_BPC, beam)
        return [written[target.picture] for target in targets]
    found = []
    for start in range(0, len(targets), _BATCH):
        batch = targets[start : start + _BATCH]
        cells_BP = np.stack([cells(model, pictures[each.picture], each) for each in batch])
        steering = Steering(torch.from_numpy(cells_BP).to(grid_BPC.device))
        found += search(model, grid_BPC[[each.picture for each in batch]], beam, steering)
    return found


def cells(model: CaptionModel, picture: Picture, target: Target) -> np.ndarray:
    """(P,) bool: those of all the target's boxes."""
    shape = model.checkpoint.captioner.shape
    seen = seen_part(picture, model.checkpoint.pixels.resize)
    of_boxes = [cells_of(box, seen, shape.height, shape.width) for box in target.boxes]
    together: np.ndarray = np.any(of_boxes, axis=0)
    return together.ravel()


def search(
    model: CaptionModel, grid_BPC: torch.Tensor, beam: int, steering: Steering | None = None
) -> list[Caption]:
    checkpoint = model.checkpoint
    settings = checkpoint.search.model_copy(update={"beam_size": beam})
    scene = checkpoint.captioner.look(grid_BPC)
    ranked = beam_search(checkpoint.captioner, checkpoint.vocabulary, scene, settings, steering)
    return [of_image[0] for of_image in ranked]


if __name__ == "__main__":
    try:
        main()
    except (CheckpointError, DataError, ImageError, OSError) as error:
        raise SystemExit(f"steer: error: {error}") from None
