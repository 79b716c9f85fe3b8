"""The report of a comparison."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import MakePicture

from showattend import compare as module
from showattend.checkpoint import Checkpoint
from showattend.compare import FILES, Comparison, compare_sides
from showattend.corpus import Corpus
from showattend.datasets import ImageId, Picture
from showattend.java_metrics import JavaError
from showattend.metrics import NAMES
from showattend.search import Caption, Regions
from showattend.sides import CompareError, Run

SAID = ("a dog on grass", "a cat on the mat", "two <men> in a boat", "a red bus in the street")


@pytest.fixture
def pictures(make_picture: MakePicture) -> list[Picture]:
    return [make_picture(f"{k}.png", k, (text, f"{text} & more")) for k, text in enumerate(SAID)]


def a_run(name: str, texts: list[str], checkpoint: Checkpoint | None, cell: int = 0) -> Run:
    """Of a model that looks at one cell, or at all; or of a file of results."""

    def look(text: str) -> Caption:
        words = tuple(text.split())
        alpha_TP = np.full((len(words), 4), 0.1)
        alpha_TP[:, cell] = 0.7
        return Caption(words, -1.0, alpha_TP, alpha_TP, None, Regions(2, 2))

    by_image: dict[ImageId, str] = {f"{k}.png": text for k, text in enumerate(texts)}
    if checkpoint is None:
        return Run(name, by_image, {})
    captions = {image: look(text) for image, text in by_image.items()}
    curve = [{"epoch": 1, "CIDEr-D": 3.0, "loss": 2.0}] if name != "plain" else []
    return Run(name, by_image, captions, checkpoint, 12.5, 11.0, curve)


@pytest.fixture
def report(checkpoint: Checkpoint, pictures: list[Picture]) -> Comparison:
    good = a_run("good", [*SAID[:3], "a blue bus on the street"], checkpoint)
    poor = a_run("poor", ["a dog on grass"] * 3 + [SAID[3]], checkpoint, cell=3)
    results = a_run("other.json", ["a dog on grass"] * 4, None)
    sides = {"good": [good], "poor": [poor], "other.json": [results]}
    return compare_sides(sides, pictures, facts={"split": "val"}, images=2)


def test_what_is_in_the_tables(report: Comparison) -> None:
    titles = [table.title for table in report.tables]
    assert titles == ["score", "good − poor", "good − other.json", "captions", "attention"]
    scores, difference, _, captions, attention = (table.rows for table in report.tables)
    assert list(scores) == list(difference) == list(NAMES)
    assert difference["CIDEr-D"]["difference"].value == pytest.approx(
        scores["CIDEr-D"]["good"].value - scores["CIDEr-D"]["poor"].value
    )
    assert captions["distinct captions"]["poor"].value == 2
    # The vocabulary is a, dog, cat, on, grass: poor says all but cat.
    assert captions["words of the vocabulary never used"]["poor"].value == 1
    assert captions["ms an image"].keys() == captions["ms of processor"].keys() == {"good", "poor"}
    assert attention["weight of the peak cell, %"]["good"].value == pytest.approx(70.0)
    assert attention["different cells in a caption"]["good"].value == 1.0
    assert attention["cells of the grid"]["good"].value == 4
    assert "other.json" not in attention["entropy, nats"]


def test_what_is_said_of_them(report: Comparison) -> None:
    notes = "\n".join(report.notes)
    assert "the choice of images, not of seeds: good, poor, other.json" in notes
    assert "held against the first, good" in notes
    assert "No learning curve: other.json" in notes
    assert "other.json is a file of captions, without attention" in notes
    assert "several runs" not in notes.splitlines()[-1]


def test_which_pictures_are_shown(report: Comparison) -> None:
    groups = report.contrasts[0].groups
    shown = {
        heading: [pair.picture.image_id for pair in pairs] for heading, pairs in groups.items()
    }
    assert list(shown) == ["good wins most", "poor wins most", "They look at different places"]
    assert set(shown["good wins most"]) == {"1.png", "2.png"}
    assert shown["poor wins most"] == ["3.png"]
    # Of captions with three words in common: 0.png, and 3.png (a, bus, the, street).
    assert shown["They look at different places"] == ["0.png", "3.png"]
    assert groups["They look at different places"][0].apart == pytest.approx(0.6)
    assert list(report.contrasts[1].groups) == ["good wins most", "other.json wins most"]


def test_the_page_is_whole_and_fetches_nothing(report: Comparison, tmp_path: Path) -> None:
    written = report.write(tmp_path / "deep")
    assert [path.name for path in written] == list(FILES)
    html, text, tree = (path.read_text(encoding="utf-8") for path in written)
    sources = re.findall(r'src="([^,]+),', html)
    assert sources.count("data:image/svg+xml;base64") == 1
    # Two wins, one win and two places, each with both overlays; against captions one alone.
    alone = sum(len(pairs) for pairs in report.contrasts[1].groups.values())
    assert sources.count("data:image/jpeg;base64") == 2 * 5 + alone
    assert len(sources) == 1 + 2 * 5 + alone
    assert not re.search(r"https?:|href|<script|@import|url\(", html)
    assert "two &lt;men&gt; in a boat" in html and "<men>" not in html
    assert "&amp; more" in html
    assert "| good − poor | difference | p |" in text
    assert "## good and poor: good wins most" in text
    found = json.loads(tree, parse_constant=pytest.fail)
    assert found["tables"]["good − poor"]["CIDEr-D"]["p"] <= 1
    assert len(found["runs"]["other.json"]["images"]) == 4
    assert "CIDEr-D" in report.text()


def test_an_older_report_is_replaced_and_nothing_else(report: Comparison, tmp_path: Path) -> None:
    report.write(tmp_path)
    report.write(tmp_path)
    (tmp_path / "report.md").write_text("# My own notes")
    with pytest.raises(CompareError, match=r"report\.md: is no comparison's; .* --out DIR"):
        report.write(tmp_path)


def test_several_runs_a_side(checkpoint: Checkpoint, pictures: list[Picture]) -> None:
    worse = ["a dog on grass"] * 4
    sides = {
        "x1,x2": [a_run("x1", list(SAID), checkpoint), a_run("x2", worse, checkpoint)],
        "plain,y2": [a_run("plain", worse, checkpoint), a_run("y2", list(SAID), checkpoint)],
    }
    report = compare_sides(sides, pictures, facts={"split": "val"}, images=1)
    scores, difference, runs, *_ = (table.rows for table in report.tables)
    one, other = (runs[name]["CIDEr-D"].value for name in ("x1", "x2"))
    assert scores["CIDEr-D"]["x1,x2"].value == pytest.approx((one + other) / 2)
    assert scores["CIDEr-D"]["x1,x2: SD of runs"].value == pytest.approx(abs(one - other) / 2**0.5)
    assert list(runs) == ["x1", "x2", "plain", "y2"]
    assert difference["CIDEr-D"]["p"].value > 0.4
    assert "of images and of runs" in report.notes[0]
    assert "Pictures show the first run" in "\n".join(report.notes)
    assert "No learning curve: plain has" in "\n".join(report.notes)


def test_meteor_joins_or_is_said_to_be_missing(
    pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = {name: [a_run(name, list(SAID), None)] for name in ("a", "b")}

    def half(corpus: Corpus) -> tuple[float, np.ndarray]:
        return 0.5, np.linspace(0, 0.8, len(corpus.images))

    monkeypatch.setattr(module, "meteor", half)
    report = compare_sides(sides, pictures, facts={"split": "val"}, java=True)
    assert report.tables[0].rows["METEOR"]["a"].value == 50.0
    assert report.tables[1].rows["METEOR, mean of images"]["p"].value == 1.0

    def absent(_: Corpus) -> tuple[float, np.ndarray]:
        raise JavaError("METEOR: needs Java")

    monkeypatch.setattr(module, "meteor", absent)
    report = compare_sides(sides, pictures, facts={"split": "val"}, java=True)
    assert [*report.tables[0].rows] == [*NAMES]
    assert report.notes.count("Not computed: METEOR: needs Java") == 1


def test_other_cuts_and_few_words_are_no_places(
    checkpoint: Checkpoint, pictures: list[Picture]
) -> None:
    pixels = checkpoint.pixels.model_copy(update={"resize": "crop"})
    cropped = dataclasses.replace(checkpoint, pixels=pixels)
    ours = a_run("ours", list(SAID), checkpoint)
    for theirs, why in (
        (a_run("theirs", list(SAID), cropped), "cut photographs differently"),
        (a_run("theirs", ["grass"] * 4, checkpoint), "share 3 words"),
    ):
        sides = {"ours": [ours], "theirs": [theirs]}
        report = compare_sides(sides, pictures, facts={"split": "val"}, images=0)
        assert why in "\n".join(report.notes)
        assert "They look at different places" not in report.contrasts[0].groups
