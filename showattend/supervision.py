"""What people's boxes say of where attention should lie: boxes to cells of the grid."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from showattend.boxes import Box, Grounded, Phrase
from showattend.pointing import cover, seen_boxes


def wanted_attention(
    phrases: Sequence[Sequence[Sequence[Phrase]]],
    *,
    captions: int,
    words: int,
    height: int,
    width: int,
) -> torch.Tensor:
    """The attention (B, K, T, P) that boxes ask for: all words of a phrase share its boxes.

    A word's weights lie evenly within the boxes and sum to 1 (Liu et al. 2017, arXiv 1605.09553,
    section 3.2); they are 0 for a word without a box, or whose boxes lie outside of the grid.

    Args:
        phrases: for each image and caption, phrases with boxes as fractions of the model's square.
        captions: K, the most captions an image has.
        words: T, the most words a caption has; what a phrase has beyond them is left out.
        height, width: rows and columns of the grid, P = height * width.
    """
    wanted_BKTP = np.zeros((len(phrases), captions, words, height * width), np.float32)
    for b, said in enumerate(phrases):
        for k, boxed in enumerate(said):
            for phrase in boxed:
                covered_P = cover(phrase.boxes, height, width).ravel()
                wanted_BKTP[b, k, slice(*phrase.words)] = covered_P / max(covered_P.sum(), 1e-9)
    return torch.from_numpy(wanted_BKTP)


def on_square(caption: Grounded, seen: Box) -> Grounded:
    """The same with boxes as fractions of the model's square.

    Args:
        seen: the part of the photograph that the square shows, in fractions of it.
    """
    phrases = (replace(each, boxes=seen_boxes(each.boxes, seen)) for each in caption.phrases)
    return replace(caption, phrases=tuple(phrases))
