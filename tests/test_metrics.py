"""The scores by hand, against the COCO scorer and nltk, and on COCO's own parity set."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate.bleu_score import corpus_bleu
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer
from pycocoevalcap.rouge.rouge import Rouge

from showattend.corpus import ImageId, make_corpus
from showattend.metrics import (
    NAMES,
    Overlap,
    bleu,
    cider_d,
    count_overlap,
    image_bleu,
    longest_common_subsequence,
    rouge_l,
    score_captions,
    score_corpus,
)
from showattend.references import read_references
from showattend.results import read_results

PARITY = Path(__file__).parent / "data" / "coco_caption_parity"
CANDIDATES = PARITY / "captions_val2014_fakecap_results.json"
REFERENCES = PARITY / "en_captions_val2014.json"
FLICKR8K = Path(__file__).parents[2] / "shared" / "flickr8k"

Corpus = tuple[list[list[str]], list[list[list[str]]]]


def _split(candidates: list[str], references: list[list[str]]) -> Corpus:
    return [c.split() for c in candidates], [[r.split() for r in image] for image in references]


@st.composite
def corpora(draw: st.DrawFn, shortest: int = 0) -> Corpus:
    """1 to 6 images over five words, so that n-grams repeat, match, clip and are common to all."""
    caption = st.lists(st.sampled_from(["a", "dog", "runs", "on", "grass"]), max_size=9)
    candidate = caption.map(lambda words: words + ["a"] * (shortest - len(words)))
    images = st.tuples(candidate, st.lists(caption, min_size=1, max_size=4))
    drawn = draw(st.lists(images, min_size=1, max_size=6))
    return [words for words, _ in drawn], [captions for _, captions in drawn]


# --- BLEU -----------------------------------------------------------------------------------------


def _counts(overlap: Overlap) -> tuple[int, int, list[int], list[int]]:
    """testlen, reflen, guess and correct of the corpus, as coco-caption prints them."""
    total = overlap.total()
    return (
        int(total.testlen_B),
        int(total.reflen_B),
        total.guess_BO.tolist(),
        total.correct_BO.tolist(),
    )


def _corpus_bleu(corpus: Corpus) -> list[float]:
    scores: list[float] = bleu(count_overlap(*corpus).total()).tolist()
    return scores


def test_bleu_clips_a_repeated_word() -> None:
    """Papineni et al. 2002, sec. 2.1, example 2: modified unigram precision 2/7."""
    corpus = _split(["the " * 7], [["the cat is on the mat", "there is a cat on the mat"]])
    assert _counts(count_overlap(*corpus)) == (7, 7, [7, 6, 5, 4], [2, 0, 0, 0])
    assert _corpus_bleu(corpus) == [pytest.approx(2 / 7), 0.0, 0.0, 0.0]


def test_bleu_sums_counts_over_the_corpus_before_dividing() -> None:
    corpus = _split(["a dog runs on grass", "a cat"], [["a dog runs on sand"], ["a cat sleeps"]])
    overlap = count_overlap(*corpus)
    assert overlap.testlen_B.tolist() == [5, 2]
    assert overlap.reflen_B.tolist() == [5, 3]
    assert overlap.guess_BO.tolist() == [[5, 4, 3, 2], [2, 1, 0, 0]]
    assert overlap.correct_BO.tolist() == [[4, 3, 2, 1], [2, 1, 0, 0]]
    penalty = math.exp(1 - 8 / 7)
    products = [6 / 7, 6 / 7 * 4 / 5, 6 / 7 * 4 / 5 * 2 / 3, 6 / 7 * 4 / 5 * 2 / 3 * 1 / 2]
    expected = [penalty * product ** (1 / n) for n, product in enumerate(products, start=1)]
    assert bleu(overlap.total()).tolist() == pytest.approx(expected, rel=1e-12)


def test_bleu_takes_many_at_once() -> None:
    """Of the two images above, each by itself."""
    corpus = _split(["a dog runs on grass", "a cat"], [["a dog runs on sand"], ["a cat sleeps"]])
    first = [4 / 5, 4 / 5 * 3 / 4, 4 / 5 * 3 / 4 * 2 / 3, 4 / 5 * 3 / 4 * 2 / 3 * 1 / 2]
    second = [math.exp(1 - 3 / 2), math.exp(1 - 3 / 2), 0.0, 0.0]
    np.testing.assert_allclose(
        bleu(count_overlap(*corpus)),
        [[product ** (1 / n) for n, product in enumerate(first, start=1)], second],
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("reference_lengths", "closest"),
    [((12, 15, 17), 12), ((13, 11), 11), ((11, 13), 11), ((2, 13), 13)],
)
def test_brevity_takes_the_closest_reference_and_the_shorter_of_two(
    reference_lengths: tuple[int, ...], closest: int
) -> None:
    overlap = count_overlap([["a"] * 12], [[["a"] * length for length in reference_lengths]])
    assert overlap.reflen_B.tolist() == [closest]


@pytest.mark.parametrize("candidate", ["zebra", "zebra stripes cross every road", ""])
def test_bleu_is_plain_zero_without_overlap(candidate: str) -> None:
    assert _corpus_bleu(_split([candidate], [["a dog runs on grass"]])) == [0.0] * 4


def test_an_images_bleu_is_tiny_and_not_zero_without_a_match() -> None:
    """The COCO scorer's 1e-15 over 5, 4, 3 and 2 n-grams."""
    corpus = _split(["zebra stripes cross every road"], [["a dog runs on grass"]])
    tiny = [1e-15 / 5, 1e-30 / 20, 1e-45 / 60, 1e-60 / 120]
    expected = [[product ** (1 / n) for n, product in enumerate(tiny, start=1)]]
    np.testing.assert_allclose(image_bleu(count_overlap(*corpus)), expected, rtol=1e-8)


@given(corpora())
def test_bleu_is_the_coco_scorers(corpus: Corpus) -> None:
    scorer, scores, by_image = _coco_bleu(corpus)
    overlap = count_overlap(*corpus)
    counts = _counts(overlap)
    assert counts == (
        scorer._testlen,
        scorer._reflen,
        [sum(image["guess"][n] for image in scorer.ctest) for n in range(4)],
        [sum(image["correct"][n] for image in scorer.ctest) for n in range(4)],
    )
    # The COCO scorer adds 1e-9 and 1e-15 to its counts, where we are exact: hence the tolerance,
    # and no comparison where nothing matches.
    for ours, theirs, correct in zip(_corpus_bleu(corpus), scores, counts[-1], strict=True):
        assert not correct or ours == pytest.approx(theirs, rel=1e-7)
    np.testing.assert_allclose(image_bleu(overlap).T, by_image, rtol=1e-9)


def _coco_bleu(corpus: Corpus) -> tuple[BleuScorer, list[float], list[list[float]]]:
    scorer = BleuScorer(n=4)
    for words, captions in zip(*corpus, strict=True):
        scorer += (" ".join(words), [" ".join(caption) for caption in captions])
    scores, by_image = scorer.compute_score(option="closest", verbose=0)
    return scorer, scores, by_image


WEIGHTS = [(1.0,), (1 / 2,) * 2, (1 / 3,) * 3, (1 / 4,) * 4]


@given(corpora(shortest=4))
def test_bleu_is_nltks_where_every_candidate_has_four_words(corpus: Corpus) -> None:
    candidates, references = corpus
    if count_overlap(*corpus).correct_BO.sum(axis=0).all():
        expected = corpus_bleu(references, candidates, weights=WEIGHTS)
        assert _corpus_bleu(corpus) == pytest.approx(expected, rel=1e-12)


def test_a_short_candidate_adds_no_missed_ngram_as_it_does_in_nltk() -> None:
    candidates, references = _split(["a dog runs on", "cat"], [["a dog runs on"], ["cat"]])
    _, official, _ = _coco_bleu((candidates, references))
    assert _corpus_bleu((candidates, references)) == [1.0] * 4
    assert official == pytest.approx([1.0] * 4)
    assert corpus_bleu(references, candidates, weights=WEIGHTS)[3] < 0.8


# --- ROUGE-L --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("police killed the gunman", "police kill the gunman", 3),  # Lin 2004, sec. 3.1
        ("police killed the gunman", "the gunman kill police", 2),
        ("a b c b d a b", "b d c a b a", 4),  # Cormen et al., sec. 15.4
        ("a a a", "a a", 2),
        ("a", "b", 0),
        ("", "a", 0),
    ],
)
def test_longest_common_subsequence(one: str, other: str, common: int) -> None:
    assert longest_common_subsequence(one.split(), other.split()) == common
    assert longest_common_subsequence(other.split(), one.split()) == common


def test_rouge_by_hand() -> None:
    """Lin 2004, sec. 3.1: 3 of 4 words, so P = R = F = 3/4; and 2 of 3 words of 2."""
    corpus = _split(
        ["police kill the gunman", "a dog"], [["police killed the gunman"], ["a x dog"]]
    )
    score, by_image = rouge_l(*corpus)
    expected = [3 / 4, 2.44 * 1 * (2 / 3) / (2 / 3 + 1.44 * 1)]
    assert by_image.tolist() == pytest.approx(expected, rel=1e-12)
    assert score == pytest.approx(sum(expected) / 2, rel=1e-12)


def test_rouge_takes_precision_and_recall_from_different_references() -> None:
    """P = 1 from the long reference and R = 1 from the short one."""
    _, by_image = rouge_l(*_split(["a dog runs"], [["a dog runs on the grass", "a dog"]]))
    assert by_image.tolist() == [pytest.approx(1.0)]


@given(corpora())
def test_rouge_is_the_coco_scorers(corpus: Corpus) -> None:
    score, by_image = rouge_l(*corpus)
    expected = [
        Rouge().calc_score([" ".join(words)], [" ".join(caption) for caption in captions])
        for words, captions in zip(*corpus, strict=True)
    ]
    assert by_image.dtype == np.float64
    np.testing.assert_allclose(by_image, expected, rtol=0, atol=1e-12)
    assert score == pytest.approx(np.mean(expected), abs=1e-12)


# --- CIDEr-D --------------------------------------------------------------------------------------


def test_cider_by_hand() -> None:
    """Two images, so a word in one weighs log 2, "a" (in both) nothing; all four orders count."""
    references = [["a dog"], ["a cat"]]
    score, by_image = cider_d(*_split(["a dog", "a big cat"], references))
    # "a big cat" against "a cat": cosine 1/sqrt(2) over words, no bigram, one word too long.
    expected = [10 * (1 + 1) / 4, 10 * math.exp(-1 / 72) / math.sqrt(2) / 4]
    assert by_image.tolist() == pytest.approx(expected, rel=1e-12)
    assert score == pytest.approx(sum(expected) / 2, rel=1e-12)


def test_cider_clips_a_repeated_word() -> None:
    """Without the clipping of eq. 4, "dog dog" would have cosine 1 with "a dog"; with it, 1/2."""
    _, by_image = cider_d(*_split(["dog dog", "a cat"], [["a dog"], ["a cat"]]))
    assert by_image[0] == pytest.approx(10 * 0.5 / 4, rel=1e-12)


def test_cider_averages_over_references() -> None:
    _, by_image = cider_d(*_split(["a dog", "a cat"], [["a dog", "no match"], ["a cat"]]))
    assert by_image.tolist() == pytest.approx([2.5, 5.0], rel=1e-12)


def test_cider_of_one_image_alone_is_zero() -> None:
    assert cider_d(*_split(["a dog"], [["a dog"]])) == (0.0, np.zeros(1))


def test_cider_refuses_unequal_numbers() -> None:
    with pytest.raises(ValueError, match="1 captions for 2 images"):
        cider_d([["a"]], [[["a"]], [["a"]]])


@given(corpora())
def test_cider_is_the_coco_scorers(corpus: Corpus) -> None:
    scorer = CiderScorer(n=4, sigma=6.0)
    for words, captions in zip(*corpus, strict=True):
        scorer += (" ".join(words), [" ".join(caption) for caption in captions])
    scorer.document_frequency[()] = 0.0  # its own check takes the maximum: captions may be empty
    expected, expected_by_image = scorer.compute_score()
    score, by_image = cider_d(*corpus)
    assert by_image.dtype == np.float64
    np.testing.assert_allclose(by_image, expected_by_image, rtol=0, atol=1e-9)
    assert score == pytest.approx(expected, abs=1e-9)


# --- The parity set -------------------------------------------------------------------------------

PUBLISHED = {
    "BLEU-1": 57.94,
    "BLEU-2": 40.44,
    "BLEU-3": 27.85,
    "BLEU-4": 19.08,
    "ROUGE-L": 39.63,
    "CIDEr-D": 59.98,
}


def _official_words() -> Corpus:
    def read(kind: str) -> dict[str, list[str]]:
        name = f"en_captions_val2014_{kind}_after_tokenization.json"
        captions: dict[str, list[str]] = json.loads((PARITY / name).read_text(encoding="utf-8"))
        return captions

    results, references = read("results"), read("references")
    return _split([results[image][0] for image in references], list(references.values()))


def test_parity_from_raw_strings() -> None:
    scores = score_captions(read_results(CANDIDATES), read_references(REFERENCES))
    assert list(scores) == list(PUBLISHED)
    assert scores == pytest.approx(PUBLISHED, abs=0.01)


def test_parity_of_ngram_counts() -> None:
    """The numbers that coco-caption prints for its own example."""
    published = (9893, 9855, [9893, 8893, 7893, 6893], [5732, 2510, 1043, 423])
    assert _counts(count_overlap(*_official_words())) == published
    raw = make_corpus(read_results(CANDIDATES), read_references(REFERENCES))
    assert _counts(score_corpus(raw).overlap) == published


@pytest.mark.slow
@pytest.mark.skipif(not FLICKR8K.exists(), reason=f"needs Flickr8k's captions at {FLICKR8K}")
def test_flickr8ks_validation_split_takes_under_five_seconds_of_one_core() -> None:
    listed = FLICKR8K / "Flickr_8k.devImages.txt"
    references = read_references(FLICKR8K / "Flickr8k.token.txt", listed)
    candidates = {image: captions[0] for image, captions in references.items()}
    assert len(candidates) == 1000
    assert sum(map(len, references.values())) == 5000
    start = time.process_time()
    score_corpus(make_corpus(candidates, references))
    seconds = time.process_time() - start
    print(f"1,000 images scored in {seconds:.2f} s")
    assert seconds < 5.0


# --- score_corpus ---------------------------------------------------------------------------------


def test_scores_are_times_100_and_pair_by_id() -> None:
    candidates: dict[ImageId, str] = {2: "A cat sleeps on it.", 1: "A dog runs on grass!"}
    references: dict[ImageId, list[str]] = {
        1: ["a dog runs on grass"],
        2: ["a cat sleeps on it"],
    }
    perfect = dict(zip(NAMES, [100, 100, 100, 100, 100, 1000], strict=True))
    scores = score_corpus(make_corpus(candidates, references))
    assert scores.corpus == pytest.approx(perfect)
    assert list(scores.images) == [2, 1]
    for image in scores.images.values():
        assert image == pytest.approx(perfect)
    assert score_captions(candidates, references) == scores.corpus


def test_every_image_has_the_coco_scorers_own_scores() -> None:
    candidates, references = _split(
        ["a dog runs", "a big cat sleeps on it", "zebra"],
        [["a dog runs on grass", "one dog"], ["a cat sleeps on it"], ["a horse"]],
    )
    scores = score_corpus(
        make_corpus(
            {place: " ".join(words) for place, words in enumerate(candidates)},
            {place: [" ".join(w) for w in captions] for place, captions in enumerate(references)},
        )
    )
    _, _, bleu_by_order = _coco_bleu((candidates, references))
    _, cider_by_image = cider_d(candidates, references)
    for place, found in scores.images.items():
        assert isinstance(place, int)
        rouge = Rouge().calc_score(
            [" ".join(candidates[place])], [" ".join(words) for words in references[place]]
        )
        expected = [*(of_order[place] for of_order in bleu_by_order), rouge, cider_by_image[place]]
        assert list(found) == list(NAMES)
        assert list(found.values()) == pytest.approx([100 * score for score in expected], rel=1e-7)
