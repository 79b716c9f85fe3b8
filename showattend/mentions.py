"""What a model's own captions mention of a photograph, and whether it looks there as it does.

Annotated things come from Flickr30k Entities (named by the head words of their phrases) or COCO
(named by category). A noun that names one should be written with the attention's peak in a box of
it; how many nouns name something, and how much of what there is gets named, are precision and
recall.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from showattend.boxes import Box, Grounded
from showattend.datasets import ImageId
from showattend.nouns import singular
from showattend.pointing import Share, inside, peak, seen_boxes
from showattend.search import Caption


@dataclass(frozen=True)
class Thing:
    """Something annotated in an image: what it is called (in singular), and where it lies."""

    names: frozenset[str]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Mentioned:
    """What one caption mentions.

    Attributes:
        nouns: how many nouns it has.
        named: how many of them name a thing in the image that the model can see.
        hits: for how many of these the peak of the noun's map lies in a box of such a thing.
        things: how many things are annotated in the image that the model can see.
        mentioned: how many of these are named.
    """

    nouns: int
    named: int
    hits: int
    things: int
    mentioned: int


def mentions(
    caption: Caption, nouns: Sequence[tuple[int, str]], things: Sequence[Thing], seen: Box
) -> Mentioned:
    """Compare a caption with what is annotated in its image.

    Args:
        nouns: (position, name) of each noun of the caption: see `nouns`.
        things: of `phrase_things` or `category_things`.
        seen: the part of the photograph that the model sees, in fractions of it.
    """
    visible = [(thing, seen_boxes(thing.boxes, seen)) for thing in things]
    visible = [(thing, boxes) for thing, boxes in visible if boxes]
    maps_Thw = caption.maps()
    named = hits = 0
    for position, name in nouns:
        boxes = [box for thing, of_thing in visible if name in thing.names for box in of_thing]
        named += bool(boxes)
        hits += inside(peak(maps_Thw[position], 1, 1), boxes)
    said = {name for _, name in nouns}
    mentioned = sum(not said.isdisjoint(thing.names) for thing, _ in visible)
    return Mentioned(len(nouns), named, hits, len(visible), mentioned)


def phrase_things(sentences: Sequence[Grounded]) -> list[Thing]:
    """The things of one image that its sentences name: phrases with the same boxes are one."""
    names: dict[tuple[Box, ...], set[str]] = {}
    for sentence in sentences:
        for phrase in sentence.phrases:
            names.setdefault(phrase.boxes, set()).add(singular(sentence.words[phrase.head]))
    return [Thing(frozenset(called), boxes) for boxes, called in names.items()]


def category_things(categories: Mapping[str, tuple[Box, ...]]) -> list[Thing]:
    """The categories of one image of COCO; all instances of one are one thing."""
    return [Thing(frozenset({name}), boxes) for name, boxes in categories.items()]


def head_nouns(sentences: Mapping[ImageId, Sequence[Grounded]]) -> frozenset[str]:
    """The nouns of a data set, in singular: words that head phrases more often than not.

    "dog" does; "black" is the head of "a dog in black", but mostly comes before another.
    """
    heads: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    for sentence in (each for of_image in sentences.values() for each in of_image):
        for phrase in sentence.phrases:
            uses.update(map(singular, sentence.words[slice(*phrase.words)]))
            heads[singular(sentence.words[phrase.head])] += 1
    return frozenset(word for word, count in heads.items() if 2 * count > uses[word])


def mention_shares(mentioned: Mapping[ImageId, Mentioned]) -> dict[str, Share]:
    """Over captions: "peak in box" of named things, "precision" and "recall"."""

    def share(
        numerator: Callable[[Mentioned], int], denominator: Callable[[Mentioned], int]
    ) -> Share:
        each = mentioned.values()
        return Share(
            np.array([numerator(m) for m in each], dtype=float),
            np.array([denominator(m) for m in each], dtype=float),
        )

    return {
        "peak in box": share(lambda m: m.hits, lambda m: m.named),
        "precision": share(lambda m: m.named, lambda m: m.nouns),
        "recall": share(lambda m: m.mentioned, lambda m: m.things),
    }
