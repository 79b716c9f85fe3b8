"""A page of the images that a model captions best and worst, with where it looked."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from showattend.box_overlay import box_figure
from showattend.data_urls import jpeg_url
from showattend.datasets import ImageId, Picture
from showattend.images import Resize
from showattend.overlay import caption_figure
from showattend.search import Boxes, Caption

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; }
figure { margin: 0 0 3rem; } img { max-width: 100%; } ul { margin: .3rem 0; color: #555; }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem; text-align: right; }
"""


@dataclass(frozen=True)
class Shown:
    """One image of the page."""

    picture: Picture
    caption: Caption
    scores: Mapping[str, float]


def extremes(
    scores: Mapping[ImageId, Mapping[str, float]], by: str, count: int
) -> tuple[list[ImageId], list[ImageId]]:
    """The images with the highest and with the lowest score, the most extreme first."""
    ranked = sorted(scores, key=lambda image: -scores[image][by])
    best = ranked[: min(count, -(-len(ranked) // 2))]
    return best, [image for image in reversed(ranked) if image not in best][:count]


def page(title: str, best: Sequence[Shown], worst: Sequence[Shown], resize: Resize) -> str:
    """The HTML, complete in itself: pictures are in it, and nothing is fetched.

    Raises:
        ImageError: a picture cannot be opened.
    """
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>",
    ]
    for heading, images in (("Best", best), ("Worst", worst)):
        parts.append(f"<h2>{heading}</h2>")
        parts += [_figure(shown, resize) for shown in images]
    return "\n".join(parts) + "\n</html>\n"


def _figure(shown: Shown, resize: Resize) -> str:
    text = html.escape(shown.caption.text)
    scores = ", ".join(f"{name} {score:.1f}" for name, score in shown.scores.items())
    said = "".join(f"<li>{html.escape(caption)}" for caption in shown.picture.captions)
    return (
        f"<figure>{overlay(shown.picture, shown.caption, resize)}"
        f"<figcaption><b>{text}</b><br>{html.escape(str(shown.picture.image_id))}: {scores}"
        f"<ul>{said}</ul></figcaption></figure>"
    )


def overlay(picture: Picture, caption: Caption, resize: Resize) -> str:
    """The figure of a caption as an element of HTML that holds its own bytes.

    Raises:
        ImageError: the picture cannot be opened.
    """
    photo = picture.open()
    if isinstance(caption.regions, Boxes):
        drawn = box_figure(photo, caption, caption.regions)
    else:
        maps_Thw, alpha_Thw = caption.maps(), caption.alpha_maps()
        drawn = caption_figure(photo, caption.words, maps_Thw, resize, alpha_Thw=alpha_Thw)
    return embedded(drawn, caption.text)


def embedded(drawn: Image.Image, told: str) -> str:
    """A picture as an element of HTML that holds its own bytes.

    Args:
        told: in words, for who cannot see it.
    """
    return f'<img alt="{html.escape(told)}" src="{jpeg_url(drawn.convert("RGB"), 80)}">'
