"""The files that a visitor is handed."""

import base64
import io
import json
from typing import Any

import pytest
from PIL import Image

from showattend.app.downloads import _animation, _data, _figure
from showattend.app.reading import Reading

CHOICE = {"captions": [1], "strength": 0.3}


def content(handed: Any) -> bytes:
    return base64.b64decode(handed["url"].partition(",")[2])


def test_figure_animation_and_data_are_of_the_chosen_caption(reading: Reading) -> None:
    figure, animation, data = (make(reading, CHOICE) for make in (_figure, _animation, _data))
    assert figure and animation and data
    names = [each["name"] for each in (figure, animation, data)]
    assert names == ["dog_figure.png", "dog_words.gif", "dog_caption.json"]
    with Image.open(io.BytesIO(content(figure))) as picture:
        assert picture.format == "PNG"
    with Image.open(io.BytesIO(content(animation))) as picture:
        assert (picture.format, picture.n_frames) == ("GIF", 1 + 2)
    assert json.loads(content(data))["chosen"] == 1


def test_the_animation_has_the_strength_that_is_set(reading: Reading) -> None:
    pale, strong = (
        content(_animation(reading, CHOICE | {"strength": strength})) for strength in (0.1, 0.9)
    )
    assert pale != strong


@pytest.mark.parametrize(
    "choice", [None, 5, {}, [], *({"captions": c} for c in ([], [2], ["0"], 1))]
)
def test_what_is_not_laid_open_is_no_file(reading: Reading, choice: Any, warned: list[str]) -> None:
    assert _figure(reading, choice) is None
    (line,) = warned
    assert line.endswith(("choose the photograph again", "expected a whole number from 0 to 1"))


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan"), "x", None])
def test_a_strength_out_of_range_is_no_file(
    reading: Reading, strength: Any, warned: list[str]
) -> None:
    assert _animation(reading, CHOICE | {"strength": strength}) is None
    assert len(warned) == 1


def test_a_photograph_that_is_forgotten_is_said_so(warned: list[str]) -> None:
    assert _data(None, CHOICE) is None
    assert warned == ["this page has forgotten the photograph: choose it again"]
