"""Parts of photographs, drawn at random: a picture that is never twice the same is learnt by heart
more slowly.
"""

import torch
from PIL import Image


def random_crop(photo: Image.Image, smallest: float) -> Image.Image:
    """A part of a photograph, of 1 pixel or more; each side is ``smallest`` to 1 of the whole's.

    Sides and place are uniform, and drawn by torch's generator.
    """
    shares, places = torch.rand(2, 2).tolist()
    x0, x1 = _span(photo.width, smallest + (1 - smallest) * shares[0], places[0])
    y0, y1 = _span(photo.height, smallest + (1 - smallest) * shares[1], places[1])
    return photo.crop((x0, y0, x1, y1))


def _span(side: int, share: float, place: float) -> tuple[int, int]:
    """From where to where, in pixels; ``place`` 0 is at the start, 1 at the end."""
    length = max(1, round(side * share))
    start = round((side - length) * place)
    return start, start + length
