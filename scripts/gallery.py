#!/usr/bin/env python
"""Every nth photograph of the validation split with what models say of it and where they look.

    scripts/gallery.py --root ../shared/flickr8k --models soft hard --every 50 --out gallery.html

For reading, not for scoring: nobody chose the photographs, so that what is counted on them (a
wrong thing, number or colour) may be told. The page is complete in itself.
"""

import argparse
import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from showattend.checkpoint import CheckpointError
from showattend.config import DataSettings
from showattend.datasets import DataError, Picture, load_split
from showattend.evaluate import caption_split
from showattend.grids import LiveGrids
from showattend.images import ImageError
from showattend.page import STYLE, overlay
from showattend.predict import CaptionModel, load
from showattend.search import Caption
from showattend.whole_files import write_whole


def captions(model: CaptionModel, pictures: Sequence[Picture]) -> list[Caption]:
    """What the model says of each picture, by its own search."""
    kept = model.checkpoint
    grids = LiveGrids(list(pictures), kept.captioner, kept.pixels)
    found = caption_split(kept.captioner, kept.vocabulary, grids, kept.search)
    return [found[picture.image_id] for picture in pictures]


def figure(number: int, picture: Picture, said: Mapping[str, str]) -> str:
    """A picture's models above each other, then what people said; ``said`` is markup by name."""
    people = "".join(f"<li>{html.escape(caption)}" for caption in picture.captions)
    models = "".join(f"<h3>{html.escape(name)}</h3>{each}" for name, each in said.items())
    name = html.escape(str(picture.image_id))
    return f"<figure><h2>{number}. {name}</h2>{models}<ul>{people}</ul></figure>"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, required=True, help="the Flickr8k folder")
    parser.add_argument("--models", nargs="+", default=["soft", "hard"], metavar="MODEL")
    parser.add_argument("--every", type=int, default=50, help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("gallery.html"))
    arguments = parser.parse_args(argv)
    if arguments.every < 1:
        parser.error("--every: expected 1 or more")
    data = DataSettings(kind="flickr8k", root=arguments.root)
    pictures = load_split(data, "val")[:: arguments.every]
    told: list[dict[str, str]] = [{} for _ in pictures]
    for name in arguments.models:
        model = load(name)
        print(f"\n{name}")
        for number, (picture, caption) in enumerate(
            zip(pictures, captions(model, pictures), strict=True)
        ):
            print(f"{number + 1:3} {caption.text}")
            drawn = overlay(picture, caption, model.checkpoint.pixels.resize)
            told[number][name] = f"<p><b>{html.escape(caption.text)}</b></p>{drawn}"
    title = f"Every {arguments.every}th photograph of the validation split"
    figures = (figure(n, *each) for n, each in enumerate(zip(pictures, told, strict=True), start=1))
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<style>{STYLE}</style><h1>{title}</h1>{''.join(figures)}</html>\n"
    )
    write_whole(arguments.out, page)


if __name__ == "__main__":
    try:
        main()
    except (CheckpointError, DataError, ImageError) as error:
        raise SystemExit(f"gallery: error: {error}") from None
