#!/usr/bin/env python
"""Which encoder sees the words? Minutes of ridge regression in place of an hour's training.

    scripts/word_probe.py --root ../shared/flickr8k --encoders tf_efficientnet_lite0@224 ...

From the mean and the maximum of the last map's cells it is told which share of an image's captions
say each of the commonest words (function words left out). Learnt from every second training image;
on validation: R2, the share of the words' variance that is told, and mAP, the mean over words of
the average precision of "two captions of five or more say it".
"""

import argparse
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from showattend.config import DataSettings, PixelSettings
from showattend.datasets import DataError, Picture, load_split
from showattend.encoder import Encoder, EncoderError, normalisation
from showattend.grids import model_pixels
from showattend.images import ImageError
from showattend.report import Cell, Table, markdown
from showattend.tokenizer import ptb_tokens

#: Said of anything.
FUNCTION_WORDS = frozenset(
    (
        *("a", "an", "the", "and", "is", "are", "be", "has", "that", "it", "while", "as"),
        *("his", "her", "its", "their", "another", "other", "in", "on", "of", "with", "to", "at"),
        *("by", "from", "up", "for", "through", "near", "over", "into", "out"),
    )
)
_PENALTIES = (3e2, 1e3, 3e3, 1e4, 3e4, 1e5)
_FEWEST = 5  # images with a word; of fewer an average precision says little
_SHARE = 0.4  # of an image's captions
_BATCH = 4


def words_of(picture: Picture) -> list[set[str]]:
    """The different words of each caption."""
    return [set(ptb_tokens(caption)) for caption in picture.captions]


def common_words(pictures: Sequence[Picture], count: int) -> list[str]:
    """Those that most captions say, without function words."""
    said = Counter(word for picture in pictures for words in words_of(picture) for word in words)
    content = (word for word, _ in said.most_common() if word not in FUNCTION_WORDS)
    return list(islice(content, count))


def shares(pictures: Sequence[Picture], words: Sequence[str]) -> np.ndarray:
    """Which share of an image's captions say each word, (N, W)."""
    rows = []
    for picture in pictures:
        captions = words_of(picture)
        rows.append([sum(word in said for said in captions) / len(captions) for word in words])
    return np.array(rows, dtype=np.float64)


@torch.inference_mode()
def features(name: str, size: int, pictures: Sequence[Picture]) -> np.ndarray:
    """Mean and maximum over the cells of an encoder's last map, (N, 2C)."""
    encoder = Encoder(name=name).eval()
    mean, std = normalisation(name)
    pixels = PixelSettings.model_validate({"size": size, "mean": mean, "std": std})
    found = []
    for start in tqdm(range(0, len(pictures), _BATCH), desc=f"{name}@{size}", disable=None):
        some = pictures[start : start + _BATCH]
        squares = np.stack([model_pixels(picture.open(), pixels) for picture in some])
        map_BChw = encoder(torch.from_numpy(squares))
        found.append(torch.cat([map_BChw.mean(dim=(2, 3)), map_BChw.amax(dim=(2, 3))], dim=1))
    return torch.cat(found).numpy().astype(np.float64)


def probe(
    seen: np.ndarray, said: np.ndarray, seen_val: np.ndarray, said_val: np.ndarray
) -> tuple[float, float]:
    """R2 and mAP on validation, of the ridge penalty that has the highest R2 there."""
    middle, spread = seen.mean(axis=0), seen.std(axis=0) + 1e-6
    seen, seen_val = (seen - middle) / spread, (seen_val - middle) / spread
    usual = said.mean(axis=0)
    kernel = seen @ seen.T
    told = []
    for penalty in _PENALTIES:
        weights = seen.T @ np.linalg.solve(kernel + penalty * np.eye(len(kernel)), said - usual)
        told.append(seen_val @ weights + usual)
    best = max(told, key=lambda guess: r2(guess, said_val))
    return r2(best, said_val), mean_average_precision(best, said_val >= _SHARE)


def r2(guess: np.ndarray, truth: np.ndarray) -> float:
    """Of all words together: 1 - squared error / variance."""
    errors, variance = np.square(guess - truth).sum(), np.square(truth - truth.mean(axis=0)).sum()
    return float(1 - errors / variance)


def mean_average_precision(guess: np.ndarray, truth: np.ndarray) -> float:
    """Over the words that enough images have; the guess ranks the images."""
    found = []
    for word in np.flatnonzero(truth.sum(axis=0) >= _FEWEST):
        hits = truth[np.argsort(-guess[:, word], kind="stable"), word]
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        found.append(precision[hits].mean())
    return float(np.mean(found))


def _sized(text: str) -> tuple[str, int]:
    name, at, size = text.rpartition("@")
    if not at or not size.isdecimal():
        raise argparse.ArgumentTypeError(f"{text}: expected NAME@SIZE, such as resnet50@224")
    return name, int(size)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, required=True, help="the Flickr8k folder")
    parser.add_argument("--encoders", type=_sized, nargs="+", required=True, metavar="NAME@SIZE")
    parser.add_argument("--words", type=int, default=500, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    data = DataSettings(kind="flickr8k", root=arguments.root)
    train, val = load_split(data, "train")[::2], load_split(data, "val")
    words = common_words(train, arguments.words)
    said, said_val = shares(train, words), shares(val, words)
    rows = {}
    for name, size in arguments.encoders:
        seen, seen_val = (features(name, size, pictures) for pictures in (train, val))
        told, precision = probe(seen, said, seen_val, said_val)
        rows[f"{name}@{size}"] = {
            "R2, %": Cell(100 * told, decimals=1),
            "mAP, %": Cell(100 * precision, decimals=1),
        }
        note = f"{len(words)} words; {len(train):,} training, {len(val):,} validation images."
        print(markdown(Table("encoder", rows, note)), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (DataError, EncoderError, ImageError) as error:
        raise SystemExit(f"word_probe: error: {error}") from None
