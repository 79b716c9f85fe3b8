"""BLEU and CIDEr-D by hand, against the COCO scorer and nltk, and on COCO's own parity set."""

import json
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import corpus_bleu
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider_scorer import CiderScorer

from showattend.metrics import (
    ImageId,
    Overlap,
    ScoreError,
    bleu,
    cider_d,
    count_overlap,
    read_results,
    score_captions,
    write_results,
)

PARITY = Path(__file__).parent / "data" / "coco_caption_parity"
CANDIDATES = PARITY / "captions_val2014_fakecap_results.json"

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


def test_bleu_clips_a_repeated_word() -> None:
    """Papineni et al. 2002, sec. 2.1, example 2: modified unigram precision 2/7."""
    corpus = _split(["the " * 7], [["the cat is on the mat", "there is a cat on the mat"]])
    overlap = count_overlap(*corpus)
    assert overlap == Overlap(testlen=7, reflen=7, guess=(7, 6, 5, 4), correct=(2, 0, 0, 0))
    assert bleu(overlap) == [pytest.approx(2 / 7), 0.0, 0.0, 0.0]


def test_bleu_sums_counts_over_the_corpus_before_dividing() -> None:
    corpus = _split(["a dog runs on grass", "a cat"], [["a dog runs on sand"], ["a cat sleeps"]])
    overlap = count_overlap(*corpus)
    assert overlap == Overlap(testlen=7, reflen=8, guess=(7, 5, 3, 2), correct=(6, 4, 2, 1))
    penalty = math.exp(1 - 8 / 7)
    products = [6 / 7, 6 / 7 * 4 / 5, 6 / 7 * 4 / 5 * 2 / 3, 6 / 7 * 4 / 5 * 2 / 3 * 1 / 2]
    expected = [penalty * product ** (1 / n) for n, product in enumerate(products, start=1)]
    assert bleu(overlap) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("reference_lengths", "closest"),
    [((12, 15, 17), 12), ((13, 11), 11), ((11, 13), 11), ((2, 13), 13)],
)
def test_brevity_takes_the_closest_reference_and_the_shorter_of_two(
    reference_lengths: tuple[int, ...], closest: int
) -> None:
    overlap = count_overlap([["a"] * 12], [[["a"] * length for length in reference_lengths]])
    assert overlap.reflen == closest


@pytest.mark.parametrize("candidate", ["zebra", "zebra stripes cross every road", ""])
def test_bleu_is_plain_zero_without_overlap(candidate: str) -> None:
    assert bleu(count_overlap(*_split([candidate], [["a dog runs on grass"]]))) == [0.0] * 4


@given(corpora())
def test_bleu_counts_are_the_coco_scorers(corpus: Corpus) -> None:
    scorer, scores = _coco_bleu(corpus)
    overlap = count_overlap(*corpus)
    assert overlap == Overlap(
        testlen=scorer._testlen,
        reflen=scorer._reflen,
        guess=tuple(sum(image["guess"][n] for image in scorer.ctest) for n in range(4)),
        correct=tuple(sum(image["correct"][n] for image in scorer.ctest) for n in range(4)),
    )
    # The COCO scorer adds 1e-9 and 1e-15 to its counts, where we are exact: hence the tolerance,
    # and no comparison where nothing matches.
    for ours, theirs, correct in zip(bleu(overlap), scores, overlap.correct, strict=True):
        assert not correct or ours == pytest.approx(theirs, rel=1e-7)


def _coco_bleu(corpus: Corpus) -> tuple[BleuScorer, list[float]]:
    scorer = BleuScorer(n=4)
    for words, captions in zip(*corpus, strict=True):
        scorer += (" ".join(words), [" ".join(caption) for caption in captions])
    scores, _ = scorer.compute_score(option="closest", verbose=0)
    return scorer, scores


WEIGHTS = [(1.0,), (1 / 2,) * 2, (1 / 3,) * 3, (1 / 4,) * 4]


@given(corpora(shortest=4))
def test_bleu_is_nltks_where_every_candidate_has_four_words(corpus: Corpus) -> None:
    candidates, references = corpus
    overlap = count_overlap(candidates, references)
    if all(overlap.correct):
        expected = corpus_bleu(references, candidates, weights=WEIGHTS)
        assert bleu(overlap) == pytest.approx(expected, rel=1e-12)


def test_a_short_candidate_adds_no_missed_ngram_as_it_does_in_nltk() -> None:
    candidates, references = _split(["a dog runs on", "cat"], [["a dog runs on"], ["cat"]])
    _, official = _coco_bleu((candidates, references))
    assert bleu(count_overlap(candidates, references)) == [1.0] * 4
    assert official == pytest.approx([1.0] * 4)
    assert corpus_bleu(references, candidates, weights=WEIGHTS)[3] < 0.8


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

PUBLISHED = {"BLEU-1": 57.94, "BLEU-2": 40.44, "BLEU-3": 27.85, "BLEU-4": 19.08, "CIDEr-D": 59.98}


def _raw_references() -> dict[ImageId, list[str]]:
    raw = json.loads((PARITY / "en_captions_val2014.json").read_text(encoding="utf-8"))
    references: dict[ImageId, list[str]] = {}
    for annotation in raw["annotations"]:
        references.setdefault(annotation["image_id"], []).append(annotation["caption"])
    return references


def _official_words() -> Corpus:
    def read(kind: str) -> dict[str, list[str]]:
        name = f"en_captions_val2014_{kind}_after_tokenization.json"
        captions: dict[str, list[str]] = json.loads((PARITY / name).read_text(encoding="utf-8"))
        return captions

    results, references = read("results"), read("references")
    return _split([results[image][0] for image in references], list(references.values()))


def test_parity_from_raw_strings() -> None:
    scores = score_captions(read_results(CANDIDATES), _raw_references())
    assert list(scores) == list(PUBLISHED)
    assert scores == pytest.approx(PUBLISHED, abs=0.01)


def test_parity_of_ngram_counts() -> None:
    """The numbers that coco-caption prints for its own example."""
    assert count_overlap(*_official_words()) == Overlap(
        testlen=9893,
        reflen=9855,
        guess=(9893, 8893, 7893, 6893),
        correct=(5732, 2510, 1043, 423),
    )


@pytest.mark.slow
def test_a_thousand_images_take_under_two_seconds_of_one_core() -> None:
    candidates, references = read_results(CANDIDATES), _raw_references()
    assert len(candidates) == 1000
    start = time.process_time()
    score_captions(candidates, references)
    assert time.process_time() - start < 2.0


# --- score_captions -------------------------------------------------------------------------------


def test_scores_are_times_100_and_pair_by_id() -> None:
    scores = score_captions(
        {2: "A cat sleeps on it.", 1: "A dog runs on grass!"},
        {1: ["a dog runs on grass"], 2: ["a cat sleeps on it"]},
    )
    assert scores == pytest.approx(
        {"BLEU-1": 100, "BLEU-2": 100, "BLEU-3": 100, "BLEU-4": 100, "CIDEr-D": 1000}
    )


@pytest.mark.parametrize(
    ("candidates", "references", "message"),
    [
        ({}, {}, "there are no captions to score"),
        (
            {1: "a"},
            {1: ["a"], 7: ["b"]},
            "1 image(s) of the references have no caption, for example 7",
        ),
        (
            {"1": "a", "b": "c", "a": "c"},
            {"1": ["a"]},
            "2 image(s) of the captions are unknown to the references, for example 'a'",
        ),
        (
            {1: "a", 2: "b"},
            {1: [], 2: ["b"]},
            "1 image(s) have no reference caption, for example 1",
        ),
        (
            {1: "a"},
            {1: "a"},
            "1 image(s) have one string as references: expected a list of captions, for example 1",
        ),
    ],
)
def test_captions_that_cannot_be_scored(
    candidates: dict[ImageId, str], references: dict[ImageId, list[str]], message: str
) -> None:
    with pytest.raises(ScoreError) as error:
        score_captions(candidates, references)
    assert str(error.value) == message


# --- Result files ---------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.dictionaries(st.integers() | st.text(), st.text(), max_size=5))
def test_results_come_back(
    tmp_path_factory: pytest.TempPathFactory, captions: dict[ImageId, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "new folder" / "results.json"
    write_results(path, captions)
    assert list(read_results(path).items()) == list(captions.items())


def test_results_have_cocos_form_and_leave_nothing_else(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", {42: "a dog"})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert json.loads(text) == [{"image_id": 42, "caption": "a dog"}]
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
        ("\ufeff[]", "not a JSON file"),
        ('{"image_id": 1}', "expected a list of image_id and caption, got dict"),
        ("[3]", "entry 0 lacks image_id or caption"),
        ('[{"image_id": 1}]', "entry 0 lacks image_id or caption"),
        ('[{"image_id": 1, "caption": 2}]', "caption of image 1 is int; expected str"),
        ('[{"image_id": 1.5, "caption": "a"}]', "image_id 1.5 is float; expected an int or str"),
        ('[{"image_id": true, "caption": "a"}]', "image_id True is bool; expected an int or str"),
        (
            '[{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "a"}]',
            "two captions for image 1; expected one an image",
        ),
    ],
)
def test_bad_result_files_are_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScoreError) as error:
        read_results(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_absent_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match=r"absent\.json: cannot be read: No such file"):
        read_results(tmp_path / "absent.json")
    (tmp_path / "picture.json").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(ScoreError, match=r"picture\.json: not a JSON file"):
        read_results(tmp_path / "picture.json")


def test_results_that_cannot_be_written_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_results(path, {1: "a dog"})
    with pytest.raises(ScoreError, match="caption of image 2 is NoneType; expected str"):
        write_results(path, {1: "a cat", 2: None})  # type: ignore[dict-item]
    assert read_results(path) == {1: "a dog"}
    (tmp_path / "folder").mkdir()
    with pytest.raises(ScoreError, match="folder: cannot be written: Is a directory"):
        write_results(tmp_path / "folder", {1: "a dog"})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "results.json"]
