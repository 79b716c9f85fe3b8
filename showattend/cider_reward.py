"""CIDEr-D of word ids, fast enough to be a reward within the training loop.

The same numbers as `metrics.cider_d`, where the n-grams' rarity is counted once over the references
of a whole training set, and every image's references are weighed once.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from showattend.metrics import ORDERS, SIGMA
from showattend.tokenizer import ptb_tokens
from showattend.vocabulary import END, UNKNOWN, Vocabulary

Ids = tuple[int, ...]


@dataclass(frozen=True)
class _Weighed:
    """A caption's n-grams, tf-idf (Vedantam et al. 2015, eq. 1), order by order.

    ``norms`` are those of each order's weights, ``words`` is the caption's length.
    """

    weights: tuple[dict[Ids, float], ...]
    norms: tuple[float, ...]
    words: int


class CiderReward:
    """CIDEr-D against the references of images that are known beforehand.

    Args:
        references: for every image what people said of it, one caption or more.
        vocabulary: the ids that candidates are made of; a reference's words that it lacks are told
            apart all the same, as the official scorer does.
        end_mark: the end counts as a word of candidates and references, so that a caption which
            stops in the middle of a phrase loses by it. Without it the numbers are the official
            ones.
    """

    def __init__(
        self,
        references: Sequence[Sequence[str]],
        vocabulary: Vocabulary,
        *,
        end_mark: bool = False,
    ) -> None:
        self._end = (END,) if end_mark else ()
        numbers = _Numbers(vocabulary)
        said = [[numbers.of(caption) + self._end for caption in each] for each in references]
        images_with: Counter[Ids] = Counter()
        for captions in said:
            images_with.update({ngram for ids in captions for ngram in _ngrams(ids)})
        self._images = math.log(len(references))
        self._rarity = {ngram: self._images - math.log(n) for ngram, n in images_with.items()}
        self._references = [[self._weigh(ids) for ids in captions] for captions in said]

    def score(self, image: int, ids: Sequence[int]) -> float:
        """CIDEr-D in 0..10 of a caption of word ids, without its end mark, of one of the images."""
        candidate = self._weigh((*ids, *self._end))
        references = self._references[image]
        return 10.0 * sum(_alike(candidate, each) for each in references) / len(references)

    def scores(
        self, images: Sequence[int], captions: Sequence[Sequence[Sequence[int]]]
    ) -> np.ndarray:
        """Of K captions for each of B images, (B, K) float32."""
        rows = zip(images, captions, strict=True)
        return np.array(
            [[self.score(image, ids) for ids in each] for image, each in rows], dtype=np.float32
        )

    def _weigh(self, ids: Ids) -> _Weighed:
        counts: list[Counter[Ids]] = [Counter() for _ in ORDERS]
        for ngram in _ngrams(ids):
            counts[len(ngram) - 1][ngram] += 1
        # What no reference holds counts as if one image's did.
        weights = tuple(
            {ngram: n * self._rarity.get(ngram, self._images) for ngram, n in count.items()}
            for count in counts
        )
        norms = tuple(math.hypot(*each.values()) for each in weights)
        return _Weighed(weights, norms, len(ids))


def _alike(candidate: _Weighed, reference: _Weighed) -> float:
    """Eq. 4: cosines with the candidate's weights clipped, their mean, and the length's penalty."""
    total = 0.0
    for ours, theirs, our_norm, their_norm in zip(
        candidate.weights, reference.weights, candidate.norms, reference.norms, strict=True
    ):
        if our_norm and their_norm:
            dot = sum(
                min(weight, theirs[ngram]) * theirs[ngram]
                for ngram, weight in ours.items()
                if ngram in theirs
            )
            total += dot / (our_norm * their_norm)
    difference = candidate.words - reference.words
    return total / len(ORDERS) * math.exp(-(difference**2) / (2 * SIGMA**2))


def _ngrams(ids: Ids) -> list[Ids]:
    return [ids[i : i + n] for n in ORDERS for i in range(len(ids) - n + 1)]


class _Numbers:
    """Ids of words; those that the vocabulary lacks get ids beyond it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._more: dict[str, int] = {}

    def of(self, caption: str) -> Ids:
        words = ptb_tokens(caption)
        ids = self._vocabulary.encode_words(words)
        return tuple(
            self._beyond(word) if index == UNKNOWN else index
            for word, index in zip(words, ids, strict=True)
        )

    def _beyond(self, word: str) -> int:
        return self._more.setdefault(word, len(self._vocabulary) + len(self._more))
