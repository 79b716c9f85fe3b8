"""BLEU and CIDEr-D of captions, as the COCO caption scorer counts them; and COCO result files.

Strings in, numbers out. Everything is corpus level, on raw strings and raw references: no word is
replaced by `<unk>`, no start or end mark takes part, no caption is cut to a reference's length.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from nltk.translate.bleu_score import brevity_penalty, closest_ref_length, modified_precision

from showattend.tokenizer import ptb_tokens
from showattend.whole_files import write_whole

ImageId = int | str
Tokens = Sequence[str]
Ngram = tuple[str, ...]

ORDERS = (1, 2, 3, 4)
SIGMA = 6.0  # words; the width of CIDEr-D's length penalty (Vedantam et al. 2015, eq. 4)


class ScoreError(ValueError):
    """Captions that cannot be scored, or a result file that cannot be read: one clear line."""


def score_captions(
    candidates: Mapping[ImageId, str], references: Mapping[ImageId, Sequence[str]]
) -> dict[str, float]:
    """Score one caption an image against that image's reference captions.

    Args:
        candidates: image id -> caption, as the model wrote it.
        references: the same ids -> one or more human captions, as their data set gives them.

    Returns:
        "BLEU-1" to "BLEU-4" and "CIDEr-D", all times 100, so a published CIDEr of .600 is 60.0.

    Raises:
        ScoreError: the two do not hold the same images, there are none, or one has no reference.
    """
    _check_images(candidates, references)
    candidates_tokens = [ptb_tokens(caption) for caption in candidates.values()]
    references_tokens = [list(map(ptb_tokens, references[image])) for image in candidates]
    scores = bleu(count_overlap(candidates_tokens, references_tokens))
    cider, _ = cider_d(candidates_tokens, references_tokens)
    named = {f"BLEU-{n}": score for n, score in zip(ORDERS, scores, strict=True)}
    return {name: 100.0 * score for name, score in (named | {"CIDEr-D": cider}).items()}


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


# --- BLEU -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlap:
    """What BLEU is made of, summed over a corpus, under the COCO scorer's names."""

    testlen: int  #: words in the candidates
    reflen: int  #: words in the references closest in length to each
    guess: tuple[int, ...]  #: n-grams in the candidates, n = 1 to 4
    correct: tuple[int, ...]  #: those that a reference holds too, at most as often as it does


def count_overlap(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Overlap:
    """Count matching n-grams and lengths over a corpus, for `bleu`.

    A candidate between two equally close reference lengths takes the shorter, in nltk as in COCO.
    nltk's own `corpus_bleu` is not called, for two differences from the COCO scorer: it counts a
    candidate too short to hold any n-gram as one wrong n-gram, where COCO counts none, and it warns
    and returns a tiny number where no n-gram matches.

    Args:
        candidates: B captions' tokens.
        references: B images' captions' tokens, one or more an image.
    """
    pairs = list(zip(candidates, references, strict=True))
    return Overlap(
        testlen=sum(len(words) for words in candidates),
        reflen=sum(closest_ref_length(captions, len(words)) for words, captions in pairs),
        guess=tuple(sum(max(0, len(words) - n + 1) for words in candidates) for n in ORDERS),
        correct=tuple(
            sum(modified_precision(captions, words, n).numerator for words, captions in pairs)
            for n in ORDERS
        ),
    )


def bleu(overlap: Overlap) -> list[float]:
    """BLEU-1 to BLEU-4 in 0..1 (Papineni et al. 2002); 0.0 where no n-gram of some order matches.

    BLEU-N = BP exp(sum_n 1/N log p_n), sec. 2.3, which is BP times the geometric mean of the
    clipped precisions p_n of sec. 2.1.1; BP = exp(1 - r/c) where the c words of the candidates are
    fewer than the references' r, else 1.
    """
    penalty = brevity_penalty(overlap.reflen, overlap.testlen)
    precision = [
        correct / guess if guess else 0.0
        for correct, guess in zip(overlap.correct, overlap.guess, strict=True)
    ]
    return [penalty * math.prod(precision[:n]) ** (1.0 / n) for n in ORDERS]


# --- CIDEr-D --------------------------------------------------------------------------------------
# B images, N reference captions of all of them in a row, G distinct n-grams, O = 4 orders of them;
# X entries, one for every distinct n-gram of every caption.


@dataclass(frozen=True)
class _Entries:
    """How often every caption holds each of its n-grams, ordered by caption, then n-gram."""

    caption_X: np.ndarray
    ngram_X: np.ndarray
    count_X: np.ndarray
    words: np.ndarray  #: every caption's length

    def sum_orders(self, value_X: np.ndarray, order_G: np.ndarray) -> np.ndarray:
        """Sums over each caption's n-grams of each order, shape (captions, O)."""
        place_X = self.caption_X * len(ORDERS) + order_G[self.ngram_X]
        sums = np.bincount(place_X, value_X, minlength=len(self.words) * len(ORDERS))
        return sums.reshape(-1, len(ORDERS)).astype(np.float64)  # bincount of nothing gives ints


def cider_d(
    candidates_tokens: Sequence[Tokens], references_tokens: Sequence[Sequence[Tokens]]
) -> tuple[float, np.ndarray]:
    """CIDEr-D of a corpus and of every image, in 0..10 (Vedantam et al. 2015, arXiv 1411.5726).

    Document frequencies are those of the references given, so the score of an image depends on
    the images beside it, and one image alone scores 0.

    Args:
        candidates_tokens: B captions' tokens, B >= 1.
        references_tokens: B images' captions' tokens, one or more an image.

    Returns:
        The mean over images, and the scores themselves, shape (B,), float64.
    """
    if len(candidates_tokens) != len(references_tokens):
        raise ValueError(f"{len(candidates_tokens)} captions for {len(references_tokens)} images")
    captions_B = np.array([len(captions) for captions in references_tokens])
    image_N = np.repeat(np.arange(len(captions_B)), captions_B)
    ids: dict[Ngram, int] = {}
    ours = _count_ngrams(candidates_tokens, ids)
    theirs = _count_ngrams([words for captions in references_tokens for words in captions], ids)
    order_G = np.array([len(ngram) - 1 for ngram in ids], dtype=np.int64)

    # Eq. 1: tf-idf. The term frequency stays a count, as in the COCO scorer.
    rarity_G = _rarity(image_N[theirs.caption_X], theirs.ngram_X, len(captions_B), len(ids))
    weight_X = ours.count_X * rarity_G[ours.ngram_X]
    their_weight_X = theirs.count_X * rarity_G[theirs.ngram_X]

    # Eq. 4: for every reference, a cosine with its candidate's weights clipped to its own.
    clipped_X = np.minimum(_look_up(ours, weight_X, image_N, theirs), their_weight_X)
    dot_NO = theirs.sum_orders(clipped_X * their_weight_X, order_G)
    norm_BO = np.sqrt(ours.sum_orders(weight_X**2, order_G))
    norms_NO = norm_BO[image_N] * np.sqrt(theirs.sum_orders(their_weight_X**2, order_G))
    # A norm is 0 where a caption has no n-gram of an order, or only such as every image has.
    cosine_NO = np.divide(dot_NO, norms_NO, out=np.zeros_like(dot_NO), where=norms_NO > 0)

    # Eq. 4: the penalty on a difference in length.
    difference_N = ours.words[image_N] - theirs.words
    penalty_N = np.exp(-(difference_N**2) / (2 * SIGMA**2))
    scores_N = 10.0 * penalty_N * cosine_NO.mean(axis=1)
    scores_B = np.bincount(image_N, scores_N) / captions_B
    return float(scores_B.mean()), scores_B


def _count_ngrams(captions: Sequence[Tokens], ids: dict[Ngram, int]) -> _Entries:
    """Count n-grams of all orders; `ids` numbers those met so far, and grows."""
    found = [
        [
            ids.setdefault(tuple(words[i : i + n]), len(ids))
            for n in ORDERS
            for i in range(len(words) - n + 1)
        ]
        for words in captions
    ]
    caption = np.repeat(np.arange(len(captions)), [len(ngrams) for ngrams in found])
    ngram = np.array([ngram for ngrams in found for ngram in ngrams], dtype=np.int64)
    pairs, count_X = np.unique(_pair(caption, ngram), return_counts=True)
    lengths = np.array([len(words) for words in captions])
    return _Entries(pairs >> 32, pairs & 0xFFFFFFFF, count_X, lengths)


def _pair(owner: np.ndarray, ngram: np.ndarray) -> np.ndarray:
    """One sortable number for an n-gram of a caption or image: numpy sorts those fastest."""
    pair: np.ndarray = (owner << 32) | ngram
    return pair


def _rarity(image_X: np.ndarray, ngram_X: np.ndarray, images: int, ngrams: int) -> np.ndarray:
    """The idf of eq. 1, shape (G,): log of all images over those whose references hold the n-gram.

    An n-gram that only candidates hold counts as if one image's references did.
    """
    once = np.unique(_pair(image_X, ngram_X)) & 0xFFFFFFFF
    return np.log(images / np.maximum(1, np.bincount(once, minlength=ngrams)))


def _look_up(
    ours: _Entries, weight_X: np.ndarray, image_N: np.ndarray, theirs: _Entries
) -> np.ndarray:
    """For every entry of the references, its n-gram's weight in its image's candidate, or 0."""
    owned = _pair(ours.caption_X, ours.ngram_X)
    wanted = _pair(image_N[theirs.caption_X], theirs.ngram_X)
    place = np.searchsorted(owned, wanted)
    found = np.append(owned, -1)[place] == wanted
    return np.where(found, np.append(weight_X, 0.0)[place], 0.0)


# --- COCO result files ----------------------------------------------------------------------------


def read_results(path: str | Path) -> dict[ImageId, str]:
    """Read a COCO result file, `[{"image_id": 42, "caption": "a dog"}, ...]`: image id -> caption.

    Raises:
        ScoreError: unreadable, not of that form, or two captions for one image.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ScoreError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ScoreError(f"{path}: not a JSON file: {error}") from error
    if not isinstance(entries, list):
        raise ScoreError(f"{path}: expected a list of image_id and caption, got {_kind(entries)}")
    captions: dict[ImageId, str] = {}
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict) or not {"image_id", "caption"} <= entry.keys():
            raise ScoreError(f"{path}: entry {place} lacks image_id or caption")
        image, caption = entry["image_id"], entry["caption"]
        _check_entry(path, image, caption)
        if image in captions:
            raise ScoreError(f"{path}: two captions for image {image!r}; expected one an image")
        captions[image] = caption
    return captions


def write_results(path: str | Path, captions: Mapping[ImageId, str]) -> None:
    """Write a COCO result file, whole or not at all, in the mapping's order; its folder is made.

    Raises:
        ScoreError: an id is not a number or string, a caption is not a string, or no file can be
            written there.
    """
    for image, caption in captions.items():
        _check_entry(path, image, caption)
    entries = [{"image_id": image, "caption": caption} for image, caption in captions.items()]
    try:
        write_whole(path, json.dumps(entries))
    except OSError as error:
        raise ScoreError(f"{path}: cannot be written: {error.strerror}") from error


def _check_entry(path: str | Path, image: object, caption: object) -> None:
    if not isinstance(image, int | str) or isinstance(image, bool):
        raise ScoreError(f"{path}: image_id {image!r} is {_kind(image)}; expected an int or str")
    if not isinstance(caption, str):
        raise ScoreError(f"{path}: caption of image {image!r} is {_kind(caption)}; expected str")


def _kind(value: object) -> str:
    return type(value).__name__
