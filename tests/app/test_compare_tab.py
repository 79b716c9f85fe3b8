"""Several models on a photograph, and on a sentence."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from showattend.app.compare_tab import compare
from showattend.app.models import Models
from showattend.app.shared import Shared
from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.images import open_photograph
from showattend.metrics import score_captions


def test_each_model_reads_the_photograph(shared: Shared, photo: dict[str, Any]) -> None:
    captions, scores, said = compare(shared, photo, shared.models.names, 3, "  ")
    assert [view["title"] for view in captions["views"]] == ["tiny", "hard"]
    for view, name in zip(captions["views"], shared.models.names, strict=True):
        (alone,) = shared.models.get(name).candidates([photo["path"]], beam_size=3)
        assert [each["text"] for each in view["captions"]] == [each.text for each in alone]
    assert (scores, said) == ("", None)


def test_a_sentence_is_scored_and_looked_for(shared: Shared, photo: dict[str, Any]) -> None:
    sentence = "A dog on <b>."
    names = shared.models.names
    captions, scores, said = compare(shared, photo, names, 3, sentence)
    for name, view in zip(names, said["views"], strict=True):
        (caption,) = view["captions"]
        forced = shared.models.get(name).attend(open_photograph(photo["path"]), sentence)
        assert caption["words"] == forced.words
        assert caption["logProb"] == forced.log_prob
    rows = re.findall("<tr><th>(tiny|hard)<td>(.*)<td>(.*)<td>(.*)<td>(.*)", scores)
    assert [row[0] for row in rows] == ["tiny", "hard"]
    for (_, log_prob, a_word, bleu, rouge), read, spoken in zip(
        rows, captions["views"], said["views"], strict=True
    ):
        total, words = spoken["captions"][0]["logProb"], len(spoken["captions"][0]["words"])
        assert log_prob == f"{total:.2f}"
        assert a_word == f"{total / (words + 1):.2f}"
        scored = score_captions({1: read["captions"][0]["text"]}, {1: [sentence]})
        assert (bleu, rouge) == (f"{scored['BLEU-4']:.1f}", f"{scored['ROUGE-L']:.1f}")
    assert "tiny does not know “&lt;b&gt;”" in scores
    assert "<b>" not in scores


@pytest.mark.parametrize(
    ("names", "sentence", "line"),
    [
        ([], "", "models: choose 1 to 3"),
        (["a", "b", "c", "d"], "", "models: choose 1 to 3"),
        (None, "", "models: choose 1 to 3"),
        (["tiny"], 5, "your sentence: expected a text of at most 300 letters"),
        (["tiny"], "a" * 301, "your sentence: expected a text of at most 300 letters"),
        (["/etc"], "", "/etc: not among the models of this page"),
        (["tiny"], ". !", "has no words; give a sentence such as"),
        (["tiny"], "a " * 41, "the sentence has 41 words: write at most 40"),
    ],
)
def test_what_cannot_be_compared_gives_one_line(
    shared: Shared,
    photo: dict[str, Any],
    warned: list[str],
    names: Any,
    sentence: Any,
    line: str,
) -> None:
    if names == ["tiny"]:
        names = shared.models.names[:1]
    assert compare(shared, photo, names, 3, sentence) == [gr.skip()] * 3
    (said,) = warned
    assert line in said


def test_a_photograph_is_needed(shared: Shared, warned: list[str]) -> None:
    assert compare(shared, None, shared.models.names, 3, "") == [gr.skip()] * 3
    assert warned == ["Choose a photograph first."]


def test_models_of_one_name_are_told_apart(
    checkpoint: Checkpoint, shared: Shared, photo: dict[str, Any], tmp_path: Path
) -> None:
    names = [str(tmp_path / run / "best") for run in ("a", "b")]
    for name in names:
        save_checkpoint(Path(name), checkpoint)
    both = replace(shared, models=Models(names))
    captions, scores, _ = compare(both, photo, [*names, names[0]], 2, "a dog")
    assert [view["title"] for view in captions["views"]] == names
    assert all(f"<tr><th>{name}<td>" in scores for name in names)
