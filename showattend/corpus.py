"""What is scored: one caption an image beside what people said of it, as words.

Captions are scored on raw strings and raw references: no word is replaced by `<unk>`, no start or
end mark takes part, no caption is cut to a reference's length.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from showattend.tokenizer import ptb_tokens

ImageId = int | str
Tokens = Sequence[str]
#: Captions in, their words out; all at once, as starting Java costs more than its work.
Tokenizer = Callable[[Sequence[str]], list[list[str]]]


class ScoreError(ValueError):
    """Captions that cannot be scored, or a file of them that cannot be read: one clear line."""


@dataclass(frozen=True)
class Corpus:
    """B images' captions as words, in one order.

    Attributes:
        images: their ids.
        candidates: the words of the caption that is scored, for each image.
        references: the words of each of the human captions, one or more an image.
    """

    images: tuple[ImageId, ...]
    candidates: Sequence[Tokens]
    references: Sequence[Sequence[Tokens]]


def split_captions(captions: Sequence[str]) -> list[list[str]]:
    """The words of every caption, as `ptb_tokens` splits it."""
    return [ptb_tokens(caption) for caption in captions]


def make_corpus(
    candidates: Mapping[ImageId, str],
    references: Mapping[ImageId, Sequence[str]],
    tokenizer: Tokenizer = split_captions,
) -> Corpus:
    """Pair one caption an image with that image's reference captions, in the candidates' order.

    Args:
        candidates: image id -> caption, as the model wrote it.
        references: the same ids -> one or more human captions, as their data set gives them.
        tokenizer: `java_metrics.java_tokens` asks the official program in place of `ptb_tokens`.

    Raises:
        ScoreError: the two do not hold the same images, there are none, or one has no reference.
    """
    _check_images(candidates, references)
    human = [caption for image in candidates for caption in references[image]]
    words = iter(tokenizer([*candidates.values(), *human]))
    return Corpus(
        images=tuple(candidates),
        candidates=[next(words) for _ in candidates],
        references=[[next(words) for _ in references[image]] for image in candidates],
    )


def _check_images(
    candidates: Mapping[ImageId, str], references: Mapping[ImageId, Sequence[str]]
) -> None:
    if not candidates and not references:
        raise ScoreError("there are no captions to score")
    _refuse(references.keys() - candidates.keys(), "of the references have no caption")
    _refuse(candidates.keys() - references.keys(), "of the captions are unknown to the references")
    _refuse((i for i, captions in references.items() if not captions), "have no reference caption")
    _refuse(
        (i for i, captions in references.items() if isinstance(captions, str)),
        "have one string as references: expected a list of captions",
    )


def _refuse(images: Iterable[ImageId], complaint: str) -> None:
    wrong = sorted(images, key=str)
    if wrong:
        raise ScoreError(f"{len(wrong)} image(s) {complaint}, for example {wrong[0]!r}")
