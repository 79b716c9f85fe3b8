"""The pointing game, by hand."""

import numpy as np
import pytest

from showattend.datasets import Picture
from showattend.grounding import Pointing, inside, peak, point_at_shapes
from showattend.search import Caption, Regions
from showattend.shapes import CANVAS, make_scene, noun_boxes


def test_peak_is_the_centre_of_the_highest_cell() -> None:
    map_hw = np.zeros((2, 4))
    map_hw[1, 2] = 1.0
    assert peak(map_hw, width=40, height=20) == (25.0, 15.0)


def test_inside_any_box() -> None:
    boxes = [(0, 0, 10, 10), (20, 20, 30, 30)]
    assert inside((25, 20), boxes)
    assert not inside((15, 15), boxes)
    assert not inside((10, 5), boxes)  # the far edge is outside
    assert not inside((5, 5), [])


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
