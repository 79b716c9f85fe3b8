"""What the tab that steers asks of the model, and refuses."""

from dataclasses import replace
from typing import Any

import gradio as gr
import numpy as np
import pytest

from showattend.app.models import Models
from showattend.app.reading import Reading
from showattend.app.shared import Shared
from showattend.app.steer_tab import clicked, pickable, steer
from showattend.app.viewer import photograph
from showattend.predict import CaptionModel

NOWHERE = {"rows": 8, "columns": 8, "cells": []}
CORNER = NOWHERE | {"cells": [0, 1, 8, 9]}


def test_what_is_picked_on_is_the_photograph_with_the_best_captions_words(
    reading: Reading,
) -> None:
    view = pickable(reading)
    assert view.pop("words") == ("a", "<b>", "dog")
    assert view == photograph(reading)


@pytest.mark.usefixtures("warned")  # the tiny model writes short captions
def test_the_look_is_bound_to_the_cells(shared: Shared, photo: dict[str, Any]) -> None:
    name = shared.models.names[0]
    told = steer(shared, photo, name, 3, CORNER, 2, "")
    assert told is not None
    assert [view["title"] for view in told["views"]] == ["free", "steered"]
    mask_hw = np.zeros((8, 8), dtype=bool)
    mask_hw[:2, :2] = True
    model = shared.models.get(name)
    for view, asked in zip(told["views"], ({}, {"look_at": mask_hw, "look_from": 2}), strict=True):
        (expected,) = model.candidates([photo["path"]], beam_size=3, **asked)
        assert [each["words"] for each in view["captions"]] == [each.words for each in expected]
        assert [each["logProb"] for each in view["captions"]] == [
            each.log_prob for each in expected
        ]


def test_captions_that_end_before_the_look_are_told_of(
    shared: Shared, photo: dict[str, Any], warned: list[str]
) -> None:
    name = shared.models.names[0]
    (captions,) = shared.models.get(name).candidates([photo["path"]], beam_size=3)
    length = max(len(caption.words) for caption in captions)
    assert steer(shared, photo, name, 3, CORNER, length + 1, "") is not None
    assert warned == [f"The captions end before word {length + 1}: no word was steered."]


def test_the_caption_begins_as_it_is_told(shared: Shared, photo: dict[str, Any]) -> None:
    told = steer(shared, photo, shared.models.names[0], 3, NOWHERE, 1, " on grass ")
    assert told is not None
    assert all(each["words"][:2] == ("on", "grass") for each in told["views"][1]["captions"])


def test_of_a_bound_look_no_other_looks_words_are_told(
    shared: Shared, photo: dict[str, Any], transformer: CaptionModel
) -> None:
    models = Models(["runs/tiny"])
    models._loaded["runs/tiny"] = transformer
    of_transformer = replace(shared, models=models)
    bound = steer(of_transformer, photo, "runs/tiny", 2, CORNER, 1, "")
    begun = steer(of_transformer, photo, "runs/tiny", 2, NOWHERE, 1, "a dog")
    assert bound and begun
    assert all(each["heard"] == [] for each in bound["views"][1]["captions"])
    assert all(each["heard"] for each in bound["views"][0]["captions"])
    assert all(each["heard"] for each in begun["views"][1]["captions"])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "choose cells on the photograph, or words to begin with"),
        ({"picked": None}, "choose cells on the photograph"),
        ({"picked": [0, 1]}, "choose cells on the photograph"),
        ({"picked": CORNER | {"rows": 7}}, "the grid is another model's: choose the cells again"),
        ({"picked": CORNER | {"cells": [64]}}, "cell: expected a whole number from 0 to 63"),
        ({"picked": CORNER | {"cells": [True]}}, "cell: expected a whole number from 0 to 63"),
        ({"picked": CORNER | {"cells": ["0"]}}, "cell: expected a whole number from 0 to 63"),
        ({"picked": CORNER | {"cells": 5}}, "cells: choose 1 to 64"),
        ({"picked": CORNER | {"cells": [0.5] * 100}}, "cells: choose 1 to 64"),
        ({"picked": CORNER, "look_from": "x"}, "from word: expected a whole number from 1 to 20"),
        ({"picked": CORNER, "look_from": float("nan")}, "from word: expected a whole number"),
        ({"begin": 5}, "begin with: expected a text of at most 200 letters"),
        ({"begin": "a" * 201}, "begin with: expected a text of at most 200 letters"),
        ({"begin": "zebra"}, "'zebra', which is none of the"),
        ({"begin": "a " * 9}, "begin has 9 words: expected fewer than max_words"),
        ({"begin": "a", "beam_size": None}, "beam size: expected a whole number from 1 to 10"),
        ({"begin": "a", "name": "/etc"}, "/etc: not among the models of this page"),
        ({"begin": "a", "photo": None}, "Choose a photograph first."),
        ({"begin": "a", "photo": {"path": __file__}}, "not, or no longer, among the uploads"),
    ],
)
def test_what_cannot_be_steered_is_said_in_one_line(
    shared: Shared, photo: dict[str, Any], warned: list[str], change: dict[str, Any], line: str
) -> None:
    asked = {
        "photo": photo,
        "name": shared.models.names[0],
        "beam_size": 2,
        "picked": NOWHERE,
        "look_from": 1,
        "begin": "",
    }
    assert steer(shared, **asked | change) == gr.skip()
    (said,) = warned
    assert line.replace("'", "&#x27;") in said
    assert "\n" not in said


def test_clicked_words_are_handed_on() -> None:
    event = gr.SelectData(None, {"index": 0, "value": "two people"})
    assert clicked(event) == "two people"
