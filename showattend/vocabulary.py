"""Caption text <-> word ids."""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence

from showattend.tokenizer import ptb_tokens

PAD, START, END, UNKNOWN = range(4)
SPECIALS = ("<pad>", "<start>", "<end>", "<unk>")

MIRRORED = {"left": "right", "right": "left"}


class Vocabulary:
    """The words a model can write. Ids 0..3 are pad, start, end and the unknown word.

    Args:
        words: the words after the four specials, in id order.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words: tuple[str, ...] = SPECIALS + tuple(words)
        # Without the specials: a caption that holds the text <end> must not end there.
        self._ids = {word: index for index, word in enumerate(self.words) if index > UNKNOWN}
        if not all(map(_is_word, words)):
            raise ValueError("vocabulary: a word is empty, or holds a space or an unprintable mark")
        if len(set(self.words)) != len(self.words):
            raise ValueError("vocabulary: a word is listed twice, or is one of the four specials")

    def __len__(self) -> int:
        return len(self.words)

    @classmethod
    def count(cls, captions: Iterable[str], min_count: int) -> "Vocabulary":
        """Build from *training* captions alone: words seen at least ``min_count`` times.

        Ordered by falling count, then by the alphabet, so that the same captions always give the
        same ids.
        """
        counts = Counter(word for caption in captions for word in ptb_tokens(caption))
        kept = [word for word, count in counts.items() if count >= min_count]
        kept = [word for word in kept if word not in SPECIALS and _is_word(word)]
        return cls(sorted(kept, key=lambda word: (-counts[word], word)))

    def grown(self, other: "Vocabulary") -> "Vocabulary":
        """These words in their places, then the other's that are new."""
        new = [word for word in other.words[len(SPECIALS) :] if word not in self._ids]
        return Vocabulary([*self.words[len(SPECIALS) :], *new])

    def encode(self, caption: str) -> list[int]:
        """Word ids of a caption, without start and end; unseen words become the unknown word."""
        return self.encode_words(ptb_tokens(caption))

    def encode_words(self, words: Iterable[str]) -> list[int]:
        """The same of words as they are, such as those of a caption that was written."""
        return [self._ids.get(word, UNKNOWN) for word in words]

    def near(self, word: str) -> list[str]:
        """Words that are spelled like this one, the likest first; at most three."""
        return difflib.get_close_matches(word, self._ids)

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Words of ids, up to the end mark; pad and start are left out."""
        words = []
        for index in ids:
            if index == END:
                break
            if index not in (PAD, START):
                words.append(self.words[index])
        return tuple(words)


def _is_word(text: str) -> bool:
    """Whether a text may be shown to people as one word: no line break, no terminal's escape."""
    return text.isprintable() and " " not in text and text != ""


def mirror_words(caption: str) -> str:
    """The caption of the mirrored picture: "left" and "right" change places."""
    return " ".join(MIRRORED.get(word, word) for word in ptb_tokens(caption))
