"""The pointing game on models and splits."""

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import MakeCaptioner, MakePicture
from PIL import Image

from showattend.boxes import Grounded, Phrase
from showattend.datasets import ImageId, Picture
from showattend.grids import Grids
from showattend.grounding import (
    Pointing,
    attend_sentences,
    point_at_phrases,
    point_at_shapes,
    seen_part,
)
from showattend.search import Caption, Regions, attend
from showattend.shapes import CANVAS, make_scene, noun_boxes
from showattend.vocabulary import Vocabulary


def test_a_pointing_rate_without_nouns_is_no_number() -> None:
    assert np.isnan(Pointing(0, 0).rate)
    assert Pointing(4, 3).rate == 0.75


@pytest.mark.parametrize("index", range(5))
def test_looking_at_every_named_object_hits_and_looking_away_misses(index: int) -> None:
    scene = make_scene(0, "train", index)
    words = tuple(scene.captions[0].split())
    picture = Picture(scene.image_id, scene, scene.captions)
    cells = CANVAS // 4
    nouns = noun_boxes(scene, words)
    alpha = np.zeros((len(words), cells * cells), dtype=np.float32)
    alpha[:, 0] = 1.0  # the top left corner: no object reaches it
    regions = Regions(cells, cells)
    away = Caption(words, -1.0, alpha, alpha, None, regions)
    assert point_at_shapes({scene.image_id: away}, [picture]) == Pointing(len(nouns), 0)
    looking = alpha.copy()
    for position, boxes in nouns:
        x0, y0, x1, y1 = boxes[0]
        looking[position] = 0.0
        looking[position, (y0 + y1) // 8 * cells + (x0 + x1) // 8] = 1.0
    caption = Caption(words, -1.0, looking, looking, None, regions)
    assert point_at_shapes({scene.image_id: caption}, [picture]) == Pointing(len(nouns), len(nouns))


def test_a_noun_that_names_nothing_is_a_miss() -> None:
    scene = make_scene(0, "train", 0)
    picture = Picture(scene.image_id, scene, scene.captions)
    said = {(group.colour, group.shape) for group in scene.groups}
    colour = next(c for c in ("red", "green", "blue", "black") if (c, "star") not in said)
    alpha = np.full((3, 4), 0.25, dtype=np.float32)
    caption = Caption(("a", colour, "star"), -1.0, alpha, alpha, None, Regions(2, 2))
    assert point_at_shapes({scene.image_id: caption}, [picture]) == Pointing(1, 0)


# Teacher forced


def grids_of(pictures: list[Picture]) -> Grids:
    """A different grid of P = 6 cells and C = 5 channels for every picture."""
    values = np.random.default_rng(0).standard_normal((len(pictures), 6, 5)).astype(np.float16)
    return Grids(pictures, values, np.arange(len(pictures)), None)


def test_attention_equals_that_of_one_sentence_at_a_time(
    make_captioner: MakeCaptioner, vocabulary: Vocabulary
) -> None:
    captioner = make_captioner(scale=3.0)
    pictures = [Picture(n, Path(f"{n}.jpg"), ()) for n in range(70)]  # more than a batch
    grids = grids_of(pictures)
    said = ["a dog", "a dog on grass", "cat", "a cat on unknown things on grass"]
    sentences: dict[ImageId, list[str]] = {n: said[: n % 5] for n in reversed(range(70))}
    maps = attend_sentences(captioner, vocabulary, grids, sentences)
    assert maps.keys() == {n for n in range(70) if n % 5}  # none without a sentence
    for n in (1, 2, 69):
        assert len(maps[n]) == len(sentences[n])
        for maps_Thw, sentence in zip(maps[n], sentences[n], strict=True):
            with torch.inference_mode():
                scene = captioner.look(grids.read([n]))
            (alone,) = attend(captioner, vocabulary, scene, sentence)
            assert maps_Thw.shape == (len(alone.words) + 1, 2, 3)
            np.testing.assert_allclose(maps_Thw[:-1], alone.maps(), atol=1e-6)
            np.testing.assert_allclose(maps_Thw.sum(axis=(1, 2)), 1.0, atol=1e-6)


def test_phrases_are_looked_up_in_what_the_model_sees(make_picture: MakePicture) -> None:
    picture = make_picture("square.png")
    left = Phrase("dog", (0, 1), 0, ("animals",), ((0.0, 0.0, 0.5, 1.0),))
    boxes: dict[ImageId, list[Grounded]] = {
        "square.png": [Grounded("square.png", "dog runs", ("dog", "runs"), (left,))] * 2
    }
    maps_Thw = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[0.5, 0.5]]])
    maps: dict[ImageId, list[np.ndarray]] = {"square.png": [maps_Thw, maps_Thw[::-1]]}
    others = [Picture("other.png", Path("other.png"), ())]
    for shift, hits in ((0, [1.0, 1.0]), (1, [0.0, 0.0])):
        pointed = point_at_phrases(maps, boxes, [picture, *others], "crop", shift=shift)
        assert list(pointed) == ["square.png"]
        assert [each.measures["head"] for each in pointed["square.png"]] == hits


def test_the_seen_part_in_fractions(tmp_path: Path) -> None:
    path = tmp_path / "wide.png"
    Image.new("RGB", (40, 20)).save(path)
    picture = Picture("wide.png", path, ())
    assert seen_part(picture, "squash") == (0.0, 0.0, 1.0, 1.0)
    assert seen_part(picture, "crop") == (0.25, 0.0, 0.75, 1.0)
    assert seen_part(picture, "pad") == (0.0, -0.5, 1.0, 1.5)
