"""A photograph read by a model, and the files that are made of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from showattend.app.reading import (
    Reading,
    as_json,
    draw_animation,
    draw_figure,
    read_photograph,
    reading_of,
)
from showattend.images import open_photograph
from showattend.predict import CaptionModel, load
from showattend.search import Regions


def test_a_photograph_becomes_captions_and_a_small_picture(
    folder: str, photo: dict[str, Any]
) -> None:
    model = load(folder)
    reading = read_photograph(model, photo["path"], beam_size=2)
    assert reading.name == "beach"
    assert reading.title == "tiny"
    assert reading.model == folder
    assert reading.photo.size == (640, 427)
    assert reading.heard == ()
    expected = model.candidates([photo["path"]], beam_size=2)[0]
    assert [caption.words for caption in reading.captions] == [c.words for c in expected]
    np.testing.assert_array_equal(reading.captions[0].weights, expected[0].weights)


def test_captions_are_ordered_by_rank(reading: Reading, folder: str, photo: dict[str, Any]) -> None:
    assert reading.rank(reading.captions[0]) == -3.0  # -6 / (3 + 1)^0.5
    read = read_photograph(load(folder), photo["path"], beam_size=3)
    ranks = [read.rank(caption) for caption in read.captions]
    assert len(ranks) == 3
    assert ranks == sorted(ranks, reverse=True)


def test_a_transformers_captions_tell_at_which_words_it_looked(
    transformer: CaptionModel, photo: dict[str, Any]
) -> None:
    opened = open_photograph(photo["path"])
    (captions,) = transformer.candidates([opened], beam_size=2)
    reading = reading_of(transformer, "beach", opened, captions, title="before")
    assert reading.title == "before"
    assert opened.size == (900, 600)  # the caller's own stays as it is
    for caption, weights in zip(captions, reading.heard, strict=True):
        words = len(caption.words)
        assert weights.shape == (words, 2, 2, words)
        np.testing.assert_array_equal(weights, transformer.word_attention(opened, caption.words))


def test_json_tells_all_that_was_read(reading: Reading) -> None:
    told = json.loads(json.dumps(as_json(reading, 1)))
    assert told["photograph"] == "dog"
    assert told["model"] == "models/soft"
    assert told["chosen"] == 1
    first, second = told["captions"]
    assert first["words"] == ["a", "<b>", "dog"]
    assert first["text"] == "a <b> dog"
    assert (first["log_prob"], first["rank"]) == (-6.0, -3.0)
    assert first["maps"] == [[[1, 0], [0, 0]], [[0.25, 0.25], [0.25, 0.25]], [[0, 0], [0.4, 0.6]]]
    assert len(second["maps"]) == 2
    assert "alpha" not in first and "heads" not in first


def test_json_tells_what_a_hard_look_was_drawn_from(hard_reading: Reading) -> None:
    (told,) = as_json(hard_reading)["captions"]
    assert told["maps"] == [[[1, 0], [0, 0]], [[0, 0], [0, 1]]]
    assert told["alpha"] == [[[0.4, 0.3], [0.2, 0.1]]] * 2


def test_json_tells_every_head(reading: Reading) -> None:
    heads = np.array([[[[1, 0], [0, 1]]]], np.float32)  # a word, a layer, two heads, two cells
    caption = replace(
        reading.captions[0],
        words=("a",),
        weights=heads.mean(axis=(1, 2)),
        alpha=heads.mean(axis=(1, 2)),
        heads=heads,
        regions=Regions(1, 2),
    )
    (told,) = as_json(replace(reading, captions=(caption,)))["captions"]
    assert told["heads"] == [[[[[1, 0]], [[0, 1]]]]]
    assert told["maps"] == [[[0.5, 0.5]]]


@pytest.mark.parametrize("which", [0, 1])
def test_files_are_of_the_caption_that_is_asked_for(
    reading: Reading, tmp_path: Path, which: int
) -> None:
    caption = reading.captions[which]
    draw_figure(tmp_path / "a.png", reading, caption)
    draw_animation(tmp_path / "a.gif", reading, caption, strength=0.6)
    with Image.open(tmp_path / "a.png") as picture:
        assert picture.format == "PNG"
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.format == "GIF"
        assert len(list(ImageSequence.Iterator(picture))) == 1 + len(caption.words)
