#!/usr/bin/env python
"""What caches of grids take: bytes of every backbone, and memory and time by data of many sizes.

    scripts/grids.py bytes
    scripts/grids.py scale --root ../shared/flickr8k --work DIR [--images 1000 7000 28000]

bytes: the size of one grid, and what COCO's 123,287 images need of the disk, plain and with flips.
scale: Flickr8k's photographs, each encoded anew at four JPEG qualities (so that no two have the
same bytes), as data of the kind `folder`: their grids and one epoch of configs/flickr8k_small.yaml
without flips, for each number of images in a process of its own and from an empty cache. Prints the
peak of anonymous memory (RssAnon) and the seconds of each. DIR takes 170 kB a grid, and is emptied
of them between two sizes.
"""

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import torch
from benchmark import CONFIG, peak_anonymous_memory
from tqdm import tqdm

from showattend.ahead import workers
from showattend.captioner import build_captioner
from showattend.config import DataSettings, read_settings
from showattend.datasets import DataError, Picture, load_split
from showattend.encoder import Encoder
from showattend.grid_store import LINE_BYTES
from showattend.grids import cache_grids
from showattend.report import Cell, Table, markdown
from showattend.train import resolve_pixels, start_run, train_epoch
from showattend.whole_files import write_whole

COCO = 123_287  # train2014 and val2014, which Karpathy's split divides anew
#: Name, stage, fused, side in pixels.
BACKBONES = (
    ("tf_efficientnet_lite0", -1, False, 224),
    ("tf_efficientnet_lite0", 3, True, 224),
    ("tf_efficientnet_lite0", 3, True, 448),
    ("torchvision:vgg19", 35, False, 224),  # the paper's grid (Xu et al. 2015, section 3.1.1)
    ("torchvision:resnet101", -1, False, 224),
    ("torchvision:resnet101", -1, False, 448),
    ("tf_efficientnet_b4", -1, False, 448),
    ("tf_efficientnet_b7", -1, False, 448),
)
QUALITIES = (95, 85, 75, 65)


def bytes_table() -> Table:
    """A row a backbone."""
    rows = {}
    for name, stage, fused, size in BACKBONES:
        shape = Encoder(name=name, stage=stage, fused=fused, pretrained=False).grid_shape(size)
        cells, numbers = shape.packed
        count = cells * numbers * 2
        place = f"stage {stage}" if stage != -1 else "last"
        rows[f"{name}, {place}{', fused' if fused else ''}, {size}"] = {
            "cells": Cell(shape.height * shape.width),
            "channels": Cell(shape.channels),
            "bytes an image": Cell(count),
            "COCO, GB": Cell(count * COCO / 1e9, decimals=1),
            "with flips, GB": Cell(2 * count * COCO / 1e9, decimals=1),
        }
    note = (
        "The side of the square in pixels last. A fused grid has the channels of the last map in "
        "every cell, and keeps them once for each of that map's own cells. GB are 10^9 bytes; COCO "
        f"has {COCO:,} images; each needs {LINE_BYTES} bytes of keys besides."
    )
    return Table("backbone", rows, note)


def scale(root: Path, work: Path, images: Sequence[int]) -> Table:
    """A row a number of images.

    Raises:
        DataError: there is no Flickr8k; one line.
    """
    flickr8k = DataSettings(kind="flickr8k", root=root)
    sources = [*load_split(flickr8k, "train"), *load_split(flickr8k, "val")]
    encode_anew(sources, work / "images", max(images))
    rows = {}
    for count in sorted(images):
        # The captions are those of the fewest images, over and over, and words count as often in
        # proportion: so all sizes have one vocabulary and one length of captions.
        write_captions(sources, min(images), count, work / "captions.csv")
        shutil.rmtree(work / "cache", ignore_errors=True)
        command = [sys.executable, __file__, "measure", "--work", str(work)]
        command += ["--min-count", str(max(1, 5 * count // min(images)))]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        measured = json.loads(done.stdout.splitlines()[-1])
        print(count, measured, flush=True)
        rows[f"{count:,}"] = {name: Cell(value, decimals=1) for name, value in measured.items()}
    shutil.rmtree(work / "cache")
    note = (
        "MiB: the program's anonymous memory at its peak. Photographs are opened by "
        f"{workers(max(images))} more processes; torch has {torch.get_num_threads()} threads."
    )
    return Table("images", rows, note)


def encode_anew(sources: Sequence[Picture], folder: Path, count: int) -> None:
    """So many photographs, no two with the same bytes; those that are there are kept."""
    for index in tqdm(range(count), desc="photographs", unit="img", disable=None):
        path = folder / f"{index:06d}.jpg"
        if not path.exists():
            content = BytesIO()
            quality = QUALITIES[index // len(sources)]
            sources[index % len(sources)].open().save(content, "JPEG", quality=quality)
            write_whole(path, content.getvalue())


def write_captions(sources: Sequence[Picture], different: int, count: int, path: Path) -> None:
    """A table of the kind `folder`: all but every hundredth photograph are for training."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "split"])
        for index in range(count):
            split = "val" if index % 100 == 0 else "train"
            for caption in sources[index % different].captions:
                table.writerow([f"{index:06d}.jpg", caption, split])


def measure(work: Path, min_count: int) -> dict[str, float]:
    """Seconds and peak MiB of the training images' grids, and of one epoch."""
    options = {
        "data.kind": "folder",
        "data.root": work / "images",
        "data.captions": work / "captions.csv",
        "data.min_count": min_count,
        "train.flips": "false",
        "train.epochs": 1,
    }
    settings = read_settings(CONFIG, [f"{name}={value}" for name, value in options.items()])
    settings = resolve_pixels(settings)
    captioner = build_captioner(
        settings.encoder, settings.decoder, size=settings.pixels.size, words=4
    )
    pictures, cache = load_split(settings.data, "train"), work / "cache"
    with peak_anonymous_memory() as grids_peak:
        began = time.perf_counter()
        cache_grids(captioner, settings.pixels, pictures, cache)
        grids_seconds = time.perf_counter() - began
    del captioner, pictures
    with tempfile.TemporaryDirectory() as folder, peak_anonymous_memory() as epoch_peak:
        run = start_run(Path(folder) / "run", settings, cache=cache, device=torch.device("cpu"))
        line = train_epoch(run, 1)
    return {
        "grids, MiB": grids_peak(),
        "grids, s": grids_seconds,
        "epoch, MiB": epoch_peak(),
        "epoch, s": line["seconds"],
        "words": len(run.vocabulary),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("bytes", help="of every backbone, and of COCO")
    sizes = parts.add_parser("scale", help="memory and time by the number of images")
    sizes.add_argument("--root", type=Path, required=True, help="the Flickr8k folder")
    sizes.add_argument("--work", type=Path, required=True, help="holds photographs and grids")
    sizes.add_argument("--images", type=int, nargs="+", default=[1000, 7000, 28000])
    one = parts.add_parser("measure", help="one row of scale, from what it left in DIR")
    one.add_argument("--work", type=Path, required=True)
    one.add_argument("--min-count", type=int, required=True)
    arguments = parser.parse_args(argv)
    if arguments.part == "bytes":
        print(markdown(bytes_table()))
    elif arguments.part == "scale":
        print(markdown(scale(arguments.root, arguments.work, arguments.images)))
    else:
        print(json.dumps(measure(arguments.work, arguments.min_count)))


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        raise SystemExit(f"grids: error: {error}") from None
