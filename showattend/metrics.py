"""BLEU, ROUGE-L and CIDEr-D of captions, as the COCO caption scorer counts them.

Words in, numbers out. A corpus' BLEU is not the mean of its images'; ROUGE-L and CIDEr-D are means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from nltk.translate.bleu_score import closest_ref_length, modified_precision

from showattend.corpus import Corpus, ImageId, Tokens, make_corpus

Ngram = tuple[str, ...]

ORDERS = (1, 2, 3, 4)
BETA = 1.2  # how much more recall weighs than precision in the COCO scorer's ROUGE-L
SIGMA = 6.0  # words; the width of CIDEr-D's length penalty (Vedantam et al. 2015, eq. 4)
#: The scores, in the order of every table.
NAMES = (*(f"BLEU-{n}" for n in ORDERS), "ROUGE-L", "CIDEr-D")


@dataclass(frozen=True)
class Overlap:
    """What BLEU is made of, under the COCO scorer's names: integers, for B images or for a sum."""

    testlen_B: np.ndarray  #: words in the candidates
    reflen_B: np.ndarray  #: words in the references closest in length to each
    guess_BO: np.ndarray  #: n-grams in the candidates, n = 1 to 4
    correct_BO: np.ndarray  #: those that a reference holds too, at most as often as it does

    def total(self) -> "Overlap":
        """The sums over images: lengths of shape (), n-grams of shape (4,)."""
        counts = (self.testlen_B, self.reflen_B, self.guess_BO, self.correct_BO)
        return Overlap(*(count.sum(axis=0) for count in counts))


@dataclass(frozen=True)
class Scores:
    """All scores by the names in `NAMES`, times 100, so a published CIDEr of .600 is 60.0."""

    corpus: dict[str, float]
    images: dict[ImageId, dict[str, float]]
    overlap: Overlap  #: every image's, of which an interval for the corpus' BLEU is made


def score_captions(
    candidates: Mapping[ImageId, str], references: Mapping[ImageId, Sequence[str]]
) -> dict[str, float]:
    """Score one caption an image against that image's reference captions.

    Args:
        candidates: image id -> caption, as the model wrote it.
        references: the same ids -> one or more human captions, as their data set gives them.

    Returns:
        The corpus' scores by the names in `NAMES`, times 100.

    Raises:
        ScoreError: the two do not hold the same images, there are none, or one has no reference.
    """
    return score_corpus(make_corpus(candidates, references)).corpus


def score_corpus(corpus: Corpus) -> Scores:
    """Score a corpus, and every image of it.

    An image's BLEU is the COCO scorer's (`image_bleu`); its CIDEr-D depends on the images beside it
    (`cider_d`).
    """
    overlap = count_overlap(corpus.candidates, corpus.references)
    rouge, rouge_B = rouge_l(corpus.candidates, corpus.references)
    cider, cider_B = cider_d(corpus.candidates, corpus.references)
    images_BM = np.column_stack([image_bleu(overlap), rouge_B, cider_B])
    return Scores(
        corpus=_named([*bleu(overlap.total()), rouge, cider]),
        images=dict(zip(corpus.images, map(_named, images_BM), strict=True)),
        overlap=overlap,
    )


def _named(scores: Sequence[float]) -> dict[str, float]:
    return {name: 100.0 * float(score) for name, score in zip(NAMES, scores, strict=True)}


# --- BLEU -----------------------------------------------------------------------------------------
# B images, or anything else that was counted; O = 4 orders of n-grams.


def count_overlap(
    candidates_tokens: Sequence[Tokens], references_tokens: Sequence[Sequence[Tokens]]
) -> Overlap:
    """Count matching n-grams and lengths of every image, for `bleu`.

    A candidate between two equally close reference lengths takes the shorter, in nltk as in COCO.
    nltk's own `corpus_bleu` is not called, for two differences from the COCO scorer: it counts a
    candidate too short to hold any n-gram as one wrong n-gram, where COCO counts none, and it warns
    and returns a tiny number where no n-gram matches.

    Args:
        candidates_tokens: B captions' tokens, B >= 1.
        references_tokens: B images' captions' tokens, one or more an image.
    """
    pairs = list(zip(candidates_tokens, references_tokens, strict=True))
    testlen_B = np.array([len(words) for words, _ in pairs])
    return Overlap(
        testlen_B=testlen_B,
        reflen_B=np.array([closest_ref_length(captions, len(words)) for words, captions in pairs]),
        guess_BO=np.maximum(0, testlen_B[:, np.newaxis] + 1 - np.array(ORDERS)),
        correct_BO=np.array(
            [
                [modified_precision(captions, words, n).numerator for n in ORDERS]
                for words, captions in pairs
            ]
        ),
    )


def bleu(overlap: Overlap) -> np.ndarray:
    """BLEU-1 to BLEU-4 in 0..1 (Papineni et al. 2002); 0.0 where no n-gram of some order matches.

    BLEU-N = BP exp(sum_n 1/N log p_n), sec. 2.3, which is BP times the geometric mean of the
    clipped precisions p_n of sec. 2.1.1; BP = exp(1 - r/c) where the c words of the candidates are
    fewer than the references' r, else 1.

    Returns:
        Shape (4,) for an `Overlap.total`, or (B, 4), float64.
    """
    return _bleu(overlap, small=0.0, tiny=0.0)


def image_bleu(overlap: Overlap) -> np.ndarray:
    """BLEU-1 to BLEU-4 of every image, in 0..1, as the COCO scorer lists them; shape (B, 4).

    It adds 1e-15 to what matches and 1e-9 to what could. A caption without any 4-gram in common
    with its references thus gets about 1e-4 and not 0: read these beside each other only, and never
    as a mean.
    """
    return _bleu(overlap, small=1e-9, tiny=1e-15)


def _bleu(overlap: Overlap, small: float, tiny: float) -> np.ndarray:
    """Both of the above: `tiny` is added above every fraction line, `small` below."""
    precision_BO = _divide(overlap.correct_BO + tiny, overlap.guess_BO + small, without=0.0)
    shortness_B = _divide(overlap.reflen_B + small, overlap.testlen_B + tiny, without=np.inf)
    penalty_B = np.exp(np.minimum(0.0, 1.0 - shortness_B))
    mean_BO: np.ndarray = np.cumprod(precision_BO, axis=-1) ** (1.0 / np.array(ORDERS))
    return penalty_B[..., np.newaxis] * mean_BO


def _divide(above: np.ndarray, below: np.ndarray, without: float) -> np.ndarray:
    """The ratio, or `without` where there is nothing to divide by."""
    return np.divide(above, below, out=np.full(np.shape(above), without), where=below > 0)


# --- ROUGE-L --------------------------------------------------------------------------------------


def rouge_l(
    candidates_tokens: Sequence[Tokens], references_tokens: Sequence[Sequence[Tokens]]
) -> tuple[float, np.ndarray]:
    """ROUGE-L of a corpus and of every image, in 0..1 (Lin 2004, sec. 3.1).

    F = (1 + b^2) R P / (R + b^2 P), eq. 4, where P and R are the longest common subsequence over
    the words of the candidate (eq. 3) and of a reference (eq. 2). The COCO scorer (Chen et al.
    2015) takes the greatest P and the greatest R over the references, each by itself, and b = 1.2.

    Args:
        candidates_tokens: B captions' tokens, B >= 1.
        references_tokens: B images' captions' tokens, one or more an image.

    Returns:
        The mean over images, and the scores themselves, shape (B,), float64.
    """
    pairs = zip(candidates_tokens, references_tokens, strict=True)
    scores_B = np.array([_image_rouge(words, captions) for words, captions in pairs])
    return float(scores_B.mean()), scores_B


def _image_rouge(candidate: Tokens, references: Sequence[Tokens]) -> float:
    candidate = candidate or ("",)  # to the COCO scorer, an empty caption has one empty word
    references = [words or ("",) for words in references]
    common = [longest_common_subsequence(candidate, words) for words in references]
    precision = max(common) / len(candidate)
    recall = max(n / len(words) for n, words in zip(common, references, strict=True))
    if not max(common):
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def longest_common_subsequence(one: Tokens, other: Tokens) -> int:
    """The most words that both captions hold in the same order, others between them or not.

    Hyyrö 2004 ("Bit-parallel LCS-length computation revisited", fig. 3): a whole row of the usual
    table is one integer, whose 0 bits are the places in `one` where the subsequence grows.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    row = whole = (1 << len(one)) - 1
    for word in other:
        matched = row & places.get(word, 0)
        row = (row + matched | row - matched) & whole
    return len(one) - row.bit_count()


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
