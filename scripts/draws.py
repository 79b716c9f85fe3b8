#!/usr/bin/env python
"""What captions drawn from a model earn at several temperatures, before it is trained by rewards.

    scripts/draws.py --model soft --root ../shared/flickr8k

Of the first images of the training and of the validation split: the mean CIDEr-D of greedy captions
and of five drawn ones, how much an image's five differ (their standard deviation), and their best.
Drawn captions far below the greedy ones, or five that are alike, teach little.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from showattend.checkpoint import CheckpointError
from showattend.cider_reward import CiderReward
from showattend.config import DataSettings
from showattend.datasets import DataError, Picture, load_split
from showattend.decoder import Scene
from showattend.grids import LiveGrids
from showattend.images import ImageError
from showattend.predict import CaptionModel, load
from showattend.report import Cell, Table, markdown
from showattend.self_critical import draw, without_marks

_BATCH = 16
_DRAWN = 5


def earnings(
    model: CaptionModel, pictures: Sequence[Picture], images: int, temperatures: Sequence[float]
) -> dict[str, dict[str, Cell]]:
    """A row for greedy captions and for each temperature; rarity is that of all the pictures."""
    cider = CiderReward([picture.captions for picture in pictures], model.checkpoint.vocabulary)
    scene = look(model, pictures[:images])
    decoder, most = model.checkpoint.captioner.decoder, model.checkpoint.search.max_words

    def row(words_BKT: torch.Tensor) -> dict[str, Cell]:
        said = without_marks(words_BKT)
        scores_BK = 100 * cider.scores(range(len(said)), said)
        return {
            "mean": Cell(float(scores_BK.mean()), decimals=1),
            "spread": Cell(float(scores_BK.std(axis=1).mean()), decimals=1),
            "best": Cell(float(scores_BK.max(axis=1).mean()), decimals=1),
            "different": Cell(
                float(np.mean([len(set(map(tuple, each))) for each in said])), decimals=1
            ),
        }

    rows = {"greedy": row(draw(decoder, scene, 1, most, greedy=True))}
    for heat in temperatures:
        rows[f"{heat:g}"] = row(draw(decoder, scene, _DRAWN, most, temperature=heat))
    return rows


@torch.inference_mode()
def look(model: CaptionModel, pictures: Sequence[Picture]) -> Scene:
    """What the decoder sees of pictures."""
    grids = LiveGrids(list(pictures), model.checkpoint.captioner, model.checkpoint.pixels)
    starts = range(0, len(pictures), _BATCH)
    positions = [range(i, min(i + _BATCH, len(pictures))) for i in starts]
    return model.checkpoint.captioner.look(torch.cat([grids.read(some) for some in positions]))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="soft", help="shipped name, checkpoint or run folder")
    parser.add_argument("--root", type=Path, required=True, help="the Flickr8k folder")
    parser.add_argument(
        "--images", type=int, default=96, help="of each split; default: %(default)s"
    )
    parser.add_argument("--temperatures", type=float, nargs="+", default=[1.0, 0.7, 0.5, 0.35])
    arguments = parser.parse_args(argv)
    if arguments.images < 1 or min(arguments.temperatures) <= 0:
        parser.error("--images: expected 1 or more; --temperatures: more than 0")
    model = load(arguments.model)
    data = DataSettings(kind="flickr8k", root=arguments.root)
    torch.manual_seed(0)
    for split in ("train", "val"):
        rows = earnings(model, load_split(data, split), arguments.images, arguments.temperatures)
        note = f"{arguments.images} images of {split}; CIDEr-D times 100; seed 0."
        print(markdown(Table("temperature", rows, note)), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (CheckpointError, DataError, ImageError) as error:
        raise SystemExit(f"draws: error: {error}") from None
