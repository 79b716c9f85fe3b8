"""Captions as batches of word ids, with little padding."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from showattend.boxes import Grounded, Phrase
from showattend.datasets import ImageId, Picture
from showattend.tokenizer import ptb_tokens
from showattend.vocabulary import END, PAD, Vocabulary, mirror_words

#: Batches are cut from pools of this many, sorted by caption length: enough to leave about 13 % of
#: padding on Flickr8k, and still a new mixture of images every epoch.
_POOL = 16


@dataclass(frozen=True)
class Said:
    """A caption as word ids, the end mark included, and those of its phrases that have boxes."""

    words: list[int]
    phrases: tuple[Phrase, ...]


class AllSaid:
    """The captions of all pictures in one row of numbers: of millions, each takes 4 bytes a word.

    Args:
        said: for each picture, its captions.
    """

    def __init__(self, said: Iterable[Iterable[Said]]) -> None:
        self._words = array("i")
        self._starts = array("q", [0])  # of captions within the words
        self._firsts = array("q", [0])  # of pictures within the captions
        self._phrases: dict[int, tuple[Phrase, ...]] = {}  # where there are any
        for captions in said:
            for caption in captions:
                if caption.phrases:
                    self._phrases[len(self._starts) - 1] = caption.phrases
                self._words.extend(caption.words)
                self._starts.append(len(self._words))
            self._firsts.append(len(self._starts) - 1)

    def lengths(self, picture: int) -> list[int]:
        """How many words each caption of a picture has."""
        first, end = self._firsts[picture], self._firsts[picture + 1]
        return [self._starts[i + 1] - self._starts[i] for i in range(first, end)]

    def caption(self, picture: int, number: int) -> Said:
        """One of a picture's captions."""
        i = self._firsts[picture] + number
        words = self._words[self._starts[i] : self._starts[i + 1]].tolist()
        return Said(words, self._phrases.get(i, ()))


@dataclass(frozen=True)
class Batch:
    """Some pictures, by position, and their captions: longest first, along both axes.

    ``phrases`` holds, for each picture and caption, the phrases whose boxes people drew.
    """

    positions: list[int]
    mirrored: list[bool]
    words_BKT: torch.Tensor
    phrases: list[list[tuple[Phrase, ...]]]

    def part(self, number: int, parts: int) -> "Batch":
        """Every ``parts``-th picture from ``number`` on, without padding that no caption needs.

        The pictures are ordered by length, so the parts are of like length. There may be none.
        """
        if parts == 1:
            return self
        words_BKT = self.words_BKT[number::parts]
        length_BK = (words_BKT != PAD).sum(dim=-1)
        most = int((length_BK > 0).sum(dim=-1).max()) if len(words_BKT) else 0
        longest = int(length_BK.max()) if len(words_BKT) else 0
        return Batch(
            self.positions[number::parts],
            self.mirrored[number::parts],
            words_BKT[:, :most, :longest],
            self.phrases[number::parts],
        )

    def words(self) -> int:
        """How many words are there, the end marks included."""
        return int((self.words_BKT != PAD).sum())

    def captions(self) -> int:
        """How many captions are there."""
        return int((self.words_BKT != PAD).any(dim=-1).sum())


class CaptionBatches:
    """The batches of an epoch: a pure function of seed and epoch, so that a resumed run repeats it.

    Args:
        captions_per_image: at most so many captions of an image in an epoch.
        max_words: longer captions are cut.
        flips: mirror half of the pictures, "left" and "right" swapped in their captions.
        grounded: the boxes of captions' phrases, as fractions of the model's square. A caption that
            is not among an image's, word for word, has none.
    """

    def __init__(
        self,
        pictures: Sequence[Picture],
        vocabulary: Vocabulary,
        *,
        batch_images: int,
        captions_per_image: int,
        max_words: int,
        flips: bool,
        seed: int,
        grounded: Mapping[ImageId, Sequence[Grounded]] | None = None,
    ) -> None:
        self._batch_images = batch_images
        self._captions = captions_per_image
        self._seed = seed

        def said(caption: str, phrases: tuple[Phrase, ...]) -> Said:
            return Said([*vocabulary.encode(caption)[:max_words], END], phrases)

        phrases = [_phrases(picture, grounded or {}) for picture in pictures]
        pairs = list(zip(pictures, phrases, strict=True))
        self._pictures = len(pairs)
        self._plain = AllSaid(map(said, picture.captions, boxed) for picture, boxed in pairs)
        self._mirrored = None
        if flips:
            self._mirrored = AllSaid(
                [
                    said(mirror_words(caption), tuple(phrase.mirrored() for phrase in own))
                    for caption, own in zip(picture.captions, boxed, strict=True)
                ]
                for picture, boxed in pairs
            )

    def __len__(self) -> int:
        return -(-self._pictures // self._batch_images)

    def captions(self) -> int:
        """How many captions an epoch has."""
        counts = (len(self._plain.lengths(i)) for i in range(self._pictures))
        return sum(min(count, self._captions) for count in counts)

    def epoch(self, number: int) -> Iterator[Batch]:
        """All batches of one epoch."""
        random = np.random.default_rng([self._seed, number])
        pictures = range(self._pictures)
        mirrored = [self._mirrored is not None and bool(random.random() < 0.5) for _ in pictures]
        lengths = [self._side(mirrored[i]).lengths(i) for i in pictures]
        chosen = [self._choose(lengths[i], random) for i in pictures]
        median = [lengths[i][numbers[len(numbers) // 2]] for i, numbers in enumerate(chosen)]
        batches = list(self._cut(median, random))
        for index in random.permutation(len(batches)):
            positions = sorted(batches[index], key=lambda i: -lengths[i][chosen[i][0]])
            said = [
                [self._side(mirrored[i]).caption(i, number) for number in chosen[i]]
                for i in positions
            ]
            yield Batch(
                positions,
                [mirrored[i] for i in positions],
                padded([[caption.words for caption in of_one] for of_one in said]),
                [[caption.phrases for caption in of_one] for of_one in said],
            )

    def _side(self, mirrored: bool) -> AllSaid:
        if mirrored:
            assert self._mirrored is not None
            return self._mirrored
        return self._plain

    def _choose(self, lengths: list[int], random: np.random.Generator) -> list[int]:
        """The numbers of some captions of an image, the longest first."""
        numbers = list(range(len(lengths)))
        if len(numbers) > self._captions:
            numbers = random.choice(len(numbers), self._captions, replace=False).tolist()
        return sorted(numbers, key=lambda number: lengths[number], reverse=True)

    def _cut(self, median: list[int], random: np.random.Generator) -> Iterator[list[int]]:
        """Pools of images in random order, each sorted by the median caption length, cut up."""
        order = random.permutation(len(median)).tolist()
        size = self._batch_images
        for start in range(0, len(order), size * _POOL):
            pool = sorted(order[start : start + size * _POOL], key=lambda i: median[i])
            yield from (pool[i : i + size] for i in range(0, len(pool), size))


def _phrases(
    picture: Picture, grounded: Mapping[ImageId, Sequence[Grounded]]
) -> list[tuple[Phrase, ...]]:
    """Of each of a picture's captions the phrases that have boxes."""
    known = {caption.words: caption.phrases for caption in grounded.get(picture.image_id, ())}
    if not known:  # most data sets have none: no time is spent on splitting words
        return [()] * len(picture.captions)
    return [known.get(tuple(ptb_tokens(caption)), ()) for caption in picture.captions]


def padded(captions: list[list[list[int]]]) -> torch.Tensor:
    """Word ids (B, K, T), PAD where there is no word or no caption."""
    most = max(len(said) for said in captions)
    longest = max(len(words) for said in captions for words in said)
    words_BKT = torch.full((len(captions), most, longest), PAD)
    for b, said in enumerate(captions):
        for k, words in enumerate(said):
            words_BKT[b, k, : len(words)] = torch.tensor(words)
    return words_BKT
