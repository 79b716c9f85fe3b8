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


def test_without_a_reading_there_is_no_file(reading: Reading) -> None:
    assert _figure(None, CHOICE) is None
    assert _data(reading, None) is None


def test_a_caption_that_is_not_there_is_no_file(reading: Reading) -> None:
    with pytest.raises(IndexError):
        _figure(reading, CHOICE | {"captions": [2]})
