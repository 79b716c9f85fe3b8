"""The pointing game: by hand on small grids, and what must hold on every one."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend.boxes import Box, Grounded, Phrase, read_boxes
from showattend.pointing import (
    WAYS,
    Pointed,
    Share,
    area,
    cover,
    hit_cells,
    inside,
    peak,
    phrase_maps,
    point,
    seen_boxes,
    shares,
)

SHARED = Path(__file__).resolve().parents[2] / "shared"

many = settings(deadline=None)  # a busy machine is no failure

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
fractions = st.integers(0, 40).map(lambda n: n / 40)


@st.composite
def a_box(draw: st.DrawFn) -> Box:
    x0, x1 = sorted(draw(st.lists(fractions, min_size=2, max_size=2, unique=True)))
    y0, y1 = sorted(draw(st.lists(fractions, min_size=2, max_size=2, unique=True)))
    return x0, y0, x1, y1


boxes_of_a_thing = st.lists(a_box(), min_size=1, max_size=4).map(tuple)
sides = st.integers(1, 9)
odd_sides = st.integers(0, 4).map(lambda n: 2 * n + 1)


def said(*boxes: Box, types: tuple[str, ...] = ("other",)) -> Grounded:
    """ "a red dog" with one phrase of all three words."""
    phrase = Phrase("a red dog", (0, 3), 2, types, boxes)
    return Grounded("1.jpg", "a red dog", ("a", "red", "dog"), (phrase,))


def one_cell(row: int, column: int, height: int, width: int) -> np.ndarray:
    map_hw = np.zeros((height, width), dtype=np.float32)
    map_hw[row, column] = 1.0
    return map_hw


# Geometry


def test_peak_is_the_centre_of_the_highest_cell() -> None:
    assert peak(one_cell(1, 2, 2, 4), width=40, height=20) == (25.0, 15.0)


def test_inside_any_box() -> None:
    boxes: list[Box] = [(0, 0, 10, 10), (20, 20, 30, 30)]
    assert inside((25, 20), boxes)
    assert not inside((15, 15), boxes)
    assert not inside((10, 5), boxes)  # the far edge is outside
    assert not inside((5, 5), [])


def test_cells_hit_and_covered() -> None:
    boxes = ((0.0, 0.0, 0.5, 0.5), (0.25, 0.0, 0.75, 0.25))
    assert hit_cells(boxes, 2, 2).tolist() == [[True, False], [False, False]]
    # The second box adds a quarter of the right cell; what both cover counts once.
    np.testing.assert_allclose(cover(boxes, 2, 2), [[1.0, 0.25], [0.0, 0.0]])
    np.testing.assert_allclose(cover(boxes, 1, 3), [[1 / 2, 1 / 4 + 1 / 8, 1 / 16]])
    assert area(boxes) == pytest.approx(5 / 16)
    assert not cover((), 2, 2).any()


@many
@given(boxes_of_a_thing, sides, sides)
def test_cover_is_what_a_fine_raster_says(boxes: tuple[Box, ...], height: int, width: int) -> None:
    fine = hit_cells(boxes, 40 * height, 40 * width)  # box edges lie on its lines
    expected_hw = fine.reshape(height, 40, width, 40).mean(axis=(1, 3))
    np.testing.assert_allclose(cover(boxes, height, width), expected_hw, atol=1e-9)
    assert area(boxes) == pytest.approx(expected_hw.mean())


def test_boxes_are_seen_through_the_models_square() -> None:
    boxes = ((0.0, 0.0, 0.5, 1.0), (0.0, 0.0, 0.25, 1.0))
    assert seen_boxes(boxes, WHOLE) == boxes
    # The middle half is cropped: one box is clipped, the other is gone.
    assert seen_boxes(boxes, (0.25, 0.0, 0.75, 1.0)) == ((0.0, 0.0, 0.5, 1.0),)
    # Bars above and below, as high as the photograph.
    assert seen_boxes(boxes[:1], (0.0, -0.5, 1.0, 1.5)) == ((0.0, 0.25, 0.5, 0.75),)


# One sentence


def test_the_map_of_a_phrase_in_three_ways() -> None:
    maps_Thw = np.arange(8, dtype=np.float32).reshape(4, 1, 2) ** 2
    phrase = Phrase("a red", (0, 2), 1, (), (WHOLE,))
    assert WAYS == ("head", "mean", "maximum")
    assert phrase_maps(maps_Thw, phrase).tolist() == [[[4, 9]], [[2, 5]], [[4, 9]]]
    assert phrase_maps(maps_Thw, phrase, shift=1).tolist() == [[[16, 25]], [[10, 17]], [[16, 25]]]


def test_a_phrase_by_hand() -> None:
    """On 1x4: "a" and "red" look mostly into the third cell, "dog" into the first."""
    maps_Thw = np.array(
        [[[0.0, 0.0, 1.0, 0.0]], [[0.2, 0.0, 0.8, 0.0]], [[0.9, 0.1, 0.0, 0.0]], [[0, 0, 0, 1.0]]]
    )
    box = (0.0, 0.0, 0.375, 0.5)  # half of the first cell and a quarter of the second; no centre
    (pointed,) = point(maps_Thw, said(box), WHOLE)
    assert pointed.measures["head"] == 0
    (pointed,) = point(maps_Thw, said((0.0, 0.0, 0.375, 0.6), types=("animals",)), WHOLE)
    assert (pointed.types, pointed.small) == (("animals",), True)
    assert pointed.measures == pytest.approx(
        {
            "head": 1,  # the first cell's centre is (1/8, 1/2)
            "mean": 0,  # (1.1, 0.1, 1.8, 0) / 3
            "maximum": 0,  # (0.9, 0.1, 1, 0)
            "head mass": 0.9 * 0.6 + 0.1 * 0.3,
            "mean mass": (1.1 * 0.6 + 0.1 * 0.3) / 3,
            "maximum mass": (0.9 * 0.6 + 0.1 * 0.3) / 2,
            "centre": 0,
            "chance": 0.25,
            "ceiling": 1,
            "area": 0.375 * 0.6,
        }
    )
    (pointed,) = point(maps_Thw, said((0.75, 0.0, 1.0, 1.0)), WHOLE, shift=1)
    assert pointed.measures["head"] == 1  # at the end mark


def test_small_is_at_most_a_quarter_of_the_photograph() -> None:
    maps_Thw = np.ones((4, 3, 3))
    small = [(0.0, 0.0, 0.5, 0.5), (0.0, 0.0, 0.25, 1.0)]
    assert point(maps_Thw, said(small[0]), WHOLE)[0].small
    assert not point(maps_Thw, said((0.0, 0.0, 0.5, 0.51)), WHOLE)[0].small
    assert not point(maps_Thw, said(*small), WHOLE)[0].small  # together more
    assert point(maps_Thw, said(small[0], small[0]), WHOLE)[0].small  # together no more
    # A crop that shows little else does not make it large.
    assert point(maps_Thw, said(small[0]), (0.0, 0.0, 0.5, 0.5))[0].small


def test_a_phrase_outside_of_the_square_is_out_of_the_game() -> None:
    assert point(np.ones((4, 3, 3)), said((0.0, 0.0, 0.2, 1.0)), (0.25, 0.0, 0.75, 1.0)) == []


def test_maps_of_another_sentence_are_refused() -> None:
    with pytest.raises(ValueError, match="3 maps for 3 words and the end: a red dog"):
        point(np.ones((3, 2, 2)), said(WHOLE), WHOLE)


@many
@given(boxes_of_a_thing, sides, sides)
def test_perfect_attention_reaches_the_ceiling_and_no_more(
    boxes: tuple[Box, ...], height: int, width: int
) -> None:
    perfect_hw = hit_cells(boxes, height, width).astype(np.float32) + 0.01
    (pointed,) = point(np.stack([perfect_hw] * 4), said(*boxes), WHOLE)
    for way in WAYS:
        assert pointed.measures[way] == pointed.measures["ceiling"]


@many
@given(boxes_of_a_thing, odd_sides, odd_sides)
def test_attention_to_the_centre_is_the_centre_baseline(
    boxes: tuple[Box, ...], height: int, width: int
) -> None:
    centre_hw = one_cell(height // 2, width // 2, height, width)
    (pointed,) = point(np.stack([centre_hw] * 4), said(*boxes), WHOLE)
    for way in WAYS:
        assert pointed.measures[way] == pointed.measures["centre"]


@many
@given(boxes_of_a_thing, sides, sides)
def test_flat_attention_has_the_mass_of_the_area_and_chance_is_its_mean_hit(
    boxes: tuple[Box, ...], height: int, width: int
) -> None:
    (pointed,) = point(np.ones((4, height, width)), said(*boxes), WHOLE)
    for way in WAYS:
        assert pointed.measures[f"{way} mass"] == pytest.approx(pointed.measures["area"])
    hits = [
        point(np.stack([one_cell(y, x, height, width)] * 4), said(*boxes), WHOLE)[0].measures[
            "head"
        ]
        for y in range(height)
        for x in range(width)
    ]
    assert pointed.measures["chance"] == pytest.approx(np.mean(hits))


@many
@given(st.integers(0, 10**6), sides, sides)
def test_all_mass_lies_in_boxes_that_cover_everything(seed: int, height: int, width: int) -> None:
    maps_Thw = np.random.default_rng(seed).random((4, height, width)).astype(np.float32)
    halves = ((0.0, 0.0, 0.6, 1.0), (0.4, 0.0, 1.0, 1.0))
    (pointed,) = point(maps_Thw, said(*halves), WHOLE)
    for way in WAYS:
        assert pointed.measures[way] == 1
        assert pointed.measures[f"{way} mass"] == pytest.approx(1.0)


# Tables


def test_shares_are_means_over_phrases_kept_by_image() -> None:
    pointed = {
        "1.jpg": [
            Pointed(("people",), True, {"head": 1.0}),
            Pointed(("people", "animals"), False, {"head": 0.0}),
        ],
        "2.jpg": [],
        "3.jpg": [Pointed(("animals",), True, {"head": 0.5})],
    }
    table = shares(pointed)
    assert list(table) == [(group, "head") for group in ("all", "small", "animals", "people")]
    everything = table["all", "head"]
    assert everything.numerators_N.tolist() == [1.0, 0.0, 0.5]
    assert everything.denominators_N.tolist() == [2.0, 0.0, 1.0]
    assert everything.value == 0.5
    assert table["small", "head"].value == 0.75
    assert table["animals", "head"].value == 0.25
    assert table["people", "head"].value == 0.5


def test_a_share_of_nothing_is_no_number() -> None:
    assert np.isnan(Share(np.zeros(2), np.zeros(2)).value)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not on this machine")
@pytest.mark.parametrize(("side", "ceilings"), [(7, (0.941, 0.892)), (14, (0.989, 0.979))])
def test_the_baselines_of_flickr8k(side: int, ceilings: tuple[float, float]) -> None:
    """Those of ../shared/README.md, on the 13,123 boxed phrases of val."""
    path = SHARED / "flickr30k_entities" / "flickr8k_boxes.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    val = [name for name, image in content.items() if image["split"] == "dev"]
    flat_hw = np.ones((side, side))
    table = shares(
        {
            image_id: [
                pointed
                for sentence in sentences
                for pointed in point(
                    np.broadcast_to(flat_hw, (len(sentence.words) + 1, side, side)),
                    sentence,
                    WHOLE,
                )
            ]
            for image_id, sentences in read_boxes(path, val).items()
        }
    )
    assert table["all", "centre"].denominators_N.sum() == 13_123
    for group, centre, chance, ceiling in (
        ("all", 0.539, 0.30, ceilings[0]),
        ("small", 0.304, 0.10, ceilings[1]),
    ):
        assert table[group, "centre"].value == pytest.approx(centre, abs=0.005)
        assert table[group, "chance"].value == pytest.approx(chance, abs=0.005)
        assert table[group, "area"].value == pytest.approx(chance, abs=0.005)
        assert table[group, "ceiling"].value == pytest.approx(ceiling, abs=0.005)
