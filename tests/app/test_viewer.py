"""What the browser is told; that it draws the same as Python is test_app_browser.py's."""

import base64
import io
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from showattend.app.reading import Reading
from showattend.app.viewer import photograph, script, told
from showattend.overlay import palette
from showattend.search import Regions


def floats(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


def test_every_caption_goes_with_its_weights(reading: Reading) -> None:
    (view,) = json.loads(json.dumps(told([reading])))["views"]
    assert view["title"] == "soft"
    assert view["penalty"] == 0.5
    first, second = view["captions"]
    assert first["words"] == ["a", "<b>", "dog"]
    assert (first["logProb"], first["rank"]) == (-6.0, -3.0)
    assert first["heard"] == []
    (shown,) = first["maps"]
    assert shown["name"] == "attention"
    assert shown["windows"] is None
    assert shown["top"] == 2.0  # eight times an even look's 1/4, for no weight is above it
    np.testing.assert_array_equal(floats(shown["weights"]), reading.captions[0].weights.ravel())
    (shown,) = second["maps"]
    np.testing.assert_array_equal(floats(shown["weights"]), reading.captions[1].weights.ravel())


def test_of_a_hard_look_the_window_and_what_it_was_taken_from(hard_reading: Reading) -> None:
    (view,) = told([hard_reading])["views"]
    (shown,) = view["captions"][0]["maps"]
    assert shown["windows"] == [(0, 0, 1, 1), (1, 1, 2, 2)]
    alpha = floats(shown["weights"])
    np.testing.assert_array_equal(alpha, hard_reading.captions[0].alpha.ravel())


def test_every_layer_and_head_by_name_after_their_mean(reading: Reading) -> None:
    heads = np.arange(16, dtype=np.float32).reshape(2, 2, 2, 2)  # words, layers, heads, cells
    mean = heads.mean(axis=(1, 2))
    caption = replace(
        reading.captions[0],
        words=("a", "dog"),
        weights=mean,
        alpha=mean,
        heads=heads,
        regions=Regions(1, 2),
    )
    (view,) = told([replace(reading, captions=(caption,))])["views"]
    maps = view["captions"][0]["maps"]
    assert [each["name"] for each in maps] == [
        "all heads together",
        *("layer 1, head 1", "layer 1, head 2", "layer 2, head 1", "layer 2, head 2"),
    ]
    np.testing.assert_array_equal(floats(maps[0]["weights"]), mean.ravel())
    np.testing.assert_array_equal(floats(maps[3]["weights"]), [4, 5, 12, 13])
    one_layer = replace(caption, heads=heads[:, :1])
    (view,) = told([replace(reading, captions=(one_layer,))])["views"]
    assert [each["name"] for each in view["captions"][0]["maps"]][1:] == ["head 1", "head 2"]


def test_which_channels_fired(reading: Reading) -> None:
    (view,) = told([reading])["views"]
    assert view["channels"] == []
    gates = {"grid": np.array([1.0, 0.5, 1.5], np.float32)}
    caption = replace(reading.captions[0], gates=gates)
    (view,) = told([replace(reading, captions=(caption,))])["views"]
    (place,) = view["channels"]
    assert place["where"] == "grid"
    assert place["strongest"][0] == [2, 1.5]
    assert place["weakest"][0] == [1, 0.5]


def test_at_which_words_a_transformer_looked(reading: Reading) -> None:
    heard = np.arange(8, dtype=np.float32).reshape(2, 1, 2, 2)  # words, layers, heads, words
    (view,) = told([replace(reading, captions=reading.captions[1:], heard=(heard,))])["views"]
    mean, first, second = view["captions"][0]["heard"]
    assert [mean["name"], first["name"], second["name"]] == [
        "all heads together",
        "head 1",
        "head 2",
    ]
    np.testing.assert_array_equal(floats(mean["weights"]), [1, 2, 5, 6])
    np.testing.assert_array_equal(floats(second["weights"]), [2, 3, 6, 7])


@pytest.mark.parametrize(
    ("resize", "seen"),
    [("squash", (0, 0, 120, 80)), ("crop", (20, 0, 100, 80)), ("pad", (0, -20, 120, 100))],
)
def test_the_photograph_goes_with_where_the_grid_lies(
    reading: Reading, resize: Any, seen: tuple[float, ...]
) -> None:
    view = photograph(replace(reading, resize=resize))
    assert view["seen"] == seen
    assert (view["width"], view["height"], view["rows"], view["columns"]) == (120, 80, 2, 2)
    kind, _, data = view["photo"].partition(",")
    assert kind == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert np.abs(np.asarray(picture, float) - np.asarray(reading.photo, float)).mean() < 4


def test_the_script_has_pythons_scale() -> None:
    head = script()
    scale = json.loads(head.partition("SCALE = ")[2].partition(";\n")[0])
    assert base64.b64decode(scale["palette"]) == palette()
    assert (scale["strength"], scale["dimming"]) == (0.6, 0.4)
    assert head.count("<script>") == head.count("</script>") == 1
    assert "http" not in head
