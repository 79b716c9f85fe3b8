"""How models look, in figures: how sharply, at how many places, and how far apart from each other.

``alpha`` is what the model makes of the picture; ``weights`` are where its look went, which for a
hard model is one cell a word (see `search.Caption`).
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from showattend.search import Caption

#: Captions with fewer words in common share little more than "a" and "in".
LEAST_SHARED = 3


def peak_weight(captions: Iterable[Caption]) -> float:
    """Mean over words of the largest weight of alpha, 0..1."""
    return float(np.concatenate([caption.alpha.max(axis=1) for caption in captions]).mean())


def cells_visited(captions: Iterable[Caption]) -> float:
    """Mean over captions: at how many different cells the words' weights have their peak."""
    return float(np.mean([len(set(each.weights.argmax(axis=1).tolist())) for each in captions]))


def distance(ours: Caption, theirs: Caption) -> float:
    """How differently two captions of one picture look at the words that they share, 0..1.

    The total variation distance of the word's two maps, sum_i |a_i - b_i| / 2, which is the share
    of the weight that lies elsewhere; its mean over shared words. A word's first place in one
    caption is held against its first in the other, its second against the second. NaN where fewer
    than `LEAST_SHARED` words are shared.
    """
    ours_Thw, theirs_Thw = _on_one_grid(ours.maps(), theirs.maps())
    apart = [
        0.5 * float(np.abs(ours_Thw[here] - theirs_Thw[there]).sum())
        for here, there in _shared(ours.words, theirs.words)
    ]
    return float(np.mean(apart)) if len(apart) >= LEAST_SHARED else math.nan


def _shared(ours: tuple[str, ...], theirs: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """The places of each word that both captions hold, as often as both do."""
    for word in dict.fromkeys(ours):
        places = ([at for at, said in enumerate(words) if said == word] for words in (ours, theirs))
        yield from zip(*places, strict=False)


def _on_one_grid(ours_Thw: np.ndarray, theirs_Thw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both on the coarsest grid whose cells divide those of both; a cell's weight is spread."""
    rows, columns = (math.lcm(ours_Thw.shape[axis], theirs_Thw.shape[axis]) for axis in (1, 2))

    def spread(maps_Thw: np.ndarray) -> np.ndarray:
        down, right = rows // maps_Thw.shape[1], columns // maps_Thw.shape[2]
        return np.kron(maps_Thw, np.full((1, down, right), 1.0 / (down * right)))

    return spread(ours_Thw), spread(theirs_Thw)
