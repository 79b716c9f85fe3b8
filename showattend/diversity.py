"""How varied captions are, and how well people's captions score: what a corpus score stands beside.

A model that says little and says it often may score well; and a score means more beside the one
that people reach against each other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from showattend.corpus import Corpus, ScoreError, Tokens
from showattend.metrics import NAMES, score_corpus


@dataclass(frozen=True)
class Diversity:
    """What some captions are like, counted on their words: "A dog ." and "a dog" are one caption.

    Attributes:
        distinct: different captions.
        novel: share of the captions, 0..1, that are no training caption.
        vocabulary: different words used.
        length: words in a caption, on average.
    """

    distinct: int
    novel: float
    vocabulary: int
    length: float


def diversity(captions_tokens: Sequence[Tokens], training_tokens: Iterable[Tokens]) -> Diversity:
    """Count how varied captions are.

    Args:
        captions_tokens: the captions' tokens, one or more captions.
        training_tokens: tokens of all captions that the model learned from.
    """
    captions = [tuple(words) for words in captions_tokens]
    known = set(map(tuple, training_tokens))
    return Diversity(
        distinct=len(set(captions)),
        novel=sum(words not in known for words in captions) / len(captions),
        vocabulary=len({word for words in captions for word in words}),
        length=sum(map(len, captions)) / len(captions),
    )


def human_scores(references_tokens: Sequence[Sequence[Tokens]]) -> dict[str, float]:
    """Score people's captions against each other, leaving one out in turn.

    In turn k, the k-th caption of every image is the candidate and the image's others are the
    references; CIDEr-D's document frequencies are those of that turn's references, without the
    candidates. There are as many turns as the image with the fewest captions has, so every turn
    scores every image, and the turns' scores are averaged. An image's captions past that number
    are references alone.

    People are thus scored against one reference fewer than a model is. Fewer references lower BLEU
    and ROUGE-L, so a model may pass this line without writing as people do.

    Args:
        references_tokens: B images' captions' tokens, two or more an image.

    Returns:
        Scores by the names in `metrics.NAMES`, times 100.

    Raises:
        ScoreError: there is no image, or one has fewer than two captions.
    """
    fewest = min(map(len, references_tokens), default=0)
    if fewest < 2:
        raise ScoreError("people's captions can be compared only where every image has two or more")
    turns = [score_corpus(_leave_out(references_tokens, turn)).corpus for turn in range(fewest)]
    return {name: float(np.mean([scores[name] for scores in turns])) for name in NAMES}


def _leave_out(references_tokens: Sequence[Sequence[Tokens]], turn: int) -> Corpus:
    """The caption at a place of every image as its candidate, against the image's others."""
    return Corpus(
        images=tuple(range(len(references_tokens))),
        candidates=[captions[turn] for captions in references_tokens],
        references=[[*captions[:turn], *captions[turn + 1 :]] for captions in references_tokens],
    )
