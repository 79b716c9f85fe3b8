import math
import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from showattend import shapes
from showattend.shapes import (
    CANVAS,
    COLOURS,
    HELD_OUT_PAIRS,
    SHAPES,
    SIZES,
    SPLITS,
    Group,
    Scene,
    make_scene,
    make_scenes,
    noun_boxes,
)

# No deadline: a busy machine is no failure.
many = settings(max_examples=100, deadline=None)
few = settings(max_examples=25, deadline=None)  # where pictures are drawn

scenes = st.builds(
    make_scene,
    seed=st.integers(-10, 10**9),
    split=st.sampled_from(SPLITS),
    index=st.integers(0, 10**9),
)
train_scenes = st.builds(
    make_scene,
    seed=st.integers(0, 10**9),
    split=st.sampled_from(["train", "val"]),
    index=st.integers(0, 10**9),
)

# The grammar of captions, written out by hand so that the tests do not lean on the code's own.
PLURALS = {
    "circles": "circle",
    "squares": "square",
    "triangles": "triangle",
    "stars": "star",
    "crosses": "cross",
    "diamonds": "diamond",
}
PHRASE = re.compile(
    r"(?P<count>a|an|two|three) (?:(?P<size>small|large) )?"
    r"(?P<colour>red|orange|yellow|green|blue|purple|white|black) "
    r"(?P<noun>(?:circle|square|triangle|star|diamond)s?|cross(?:es)?)"
)
INVERSE = {
    "above": "below",
    "below": "above",
    "to the left of": "to the right of",
    "to the right of": "to the left of",
}
RELATION = re.compile(r" (above|below|to the left of|to the right of) ")


def named_group(phrase: str, scene: Scene) -> Group:
    """The one group that a noun phrase is true of; fails where the phrase is false."""
    match = PHRASE.fullmatch(phrase)
    assert match, f"not a noun phrase: {phrase!r}"
    count, size, colour, noun = match.group("count", "size", "colour", "noun")
    [group] = [
        group
        for group in scene.groups
        if (group.colour, group.shape) == (colour, PLURALS.get(noun, noun))
    ]
    assert group.count == {"a": 1, "an": 1, "two": 2, "three": 3}[count]
    assert (noun in PLURALS) == (group.count > 1)
    assert size in (None, group.size)
    if group.count == 1:
        assert count == ("an" if colour == "orange" and not size else "a")
    return group


def holds(one: Group, relation: str, other: Group) -> bool:
    """Whether every object of `one` stands so to every object of `other`, 12 pixels apart."""
    return all(
        {
            "above": a[3] + 12 <= b[1],
            "below": b[3] + 12 <= a[1],
            "to the left of": a[2] + 12 <= b[0],
            "to the right of": b[2] + 12 <= a[0],
        }[relation]
        for a in one.boxes
        for b in other.boxes
    )


@many
@given(scenes)
def test_same_arguments_give_the_same_scene(scene: Scene) -> None:
    assert make_scene(scene.seed, scene.split, scene.index) == scene


def test_words_and_boxes_of_version_1_stay_as_they_are() -> None:
    # Whoever must change these values must raise VERSION too: caches hold grids under the key.
    scene = make_scene(0, "train", 0)
    assert scene.key == "shapes-v1-seed0-train-0"
    assert scene.groups == (
        Group("green", "square", "small", ((107, 118, 147, 158),)),
        Group("green", "circle", "medium", ((16, 101, 76, 161),)),
    )
    assert scene.captions == (
        "a green square to the right of a green circle",
        "a small green square to the right of a green circle",
        "a green circle to the left of a green square",
        "a green circle to the left of a small green square",
    )


@few
@given(scenes)
def test_picture_is_deterministic_rgb_of_the_canvas(scene: Scene) -> None:
    picture = scene.draw()
    assert (picture.mode, picture.size) == ("RGB", (CANVAS, CANVAS))
    assert picture.tobytes() == scene.draw().tobytes()


def test_pictures_and_keys_and_ids_differ_between_seeds_splits_and_indices() -> None:
    some = [make_scene(seed, split, i) for seed in (0, 1) for split in SPLITS for i in range(4)]
    assert len({scene.draw().tobytes() for scene in some}) == len(some)
    assert len({scene.key for scene in some}) == len(some)
    of_one_seed = [scene for split in SPLITS for scene in make_scenes(5, split, 50)]
    assert len({scene.image_id for scene in of_one_seed}) == 150


def test_make_scenes_is_the_beginning_of_the_split() -> None:
    assert make_scenes(3, "val", 5) == [make_scene(3, "val", index) for index in range(5)]


def test_unknown_split_and_negative_index_are_one_clear_line() -> None:
    with pytest.raises(
        ValueError, match=r"^shapes has no split 'test': choose one of train, val, val_unseen$"
    ):
        make_scene(0, "test", 0)
    with pytest.raises(ValueError, match=r"^a scene's index counts from 0, got -1$"):
        make_scene(0, "train", -1)


@many
@given(scenes)
def test_one_to_three_objects_of_their_size_inside_the_canvas_and_apart(scene: Scene) -> None:
    boxes = [box for group in scene.groups for box in group.boxes]
    assert 1 <= len(boxes) <= 3
    assert 1 <= len(scene.groups) <= 2
    assert len({(group.colour, group.shape) for group in scene.groups}) == len(scene.groups)
    for group in scene.groups:
        for x0, y0, x1, y1 in group.boxes:
            assert x1 - x0 == y1 - y0 == SIZES[group.size]
            assert x0 >= 0 and y0 >= 0 and x1 <= CANVAS and y1 <= CANVAS
    for a, b in combinations(boxes, 2):
        assert a[2] + 8 <= b[0] or b[2] + 8 <= a[0] or a[3] + 8 <= b[1] or b[3] + 8 <= a[1]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("colour", ["black", "red"])
def test_box_is_exactly_the_objects_pixels(shape: str, size: str, colour: str) -> None:
    side = SIZES[size]
    box = (31, 57, 31 + side, 57 + side)
    image = Image.new("RGB", (CANVAS, CANVAS), "white")
    shapes._paint(image, Group(colour, shape, size, (box,)))
    changed = (np.asarray(image) != 255).any(axis=-1)
    ys, xs = changed.nonzero()
    assert (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) == box


@pytest.mark.parametrize(
    ("shape", "area"),
    [
        ("circle", math.pi / 4),
        ("square", 1.0),
        ("triangle", 0.5),
        # Ten triangles of sides 1, 0.42 and 36 degrees between, over the star's own box.
        (
            "star",
            5
            * 0.42
            * math.sin(math.radians(36))
            / (2 * math.sin(math.radians(72)) * (1 + math.cos(math.radians(36)))),
        ),
        ("cross", 1 - 4 * 0.33**2),
        ("diamond", 0.5),
    ],
)
def test_a_shape_is_filled_with_the_area_of_its_outline(shape: str, area: float) -> None:
    coverage = np.asarray(shapes._stencil(shape, 80)) / 255
    assert coverage.mean() == pytest.approx(area, abs=0.02)


def test_every_shape_of_the_grammar_is_checked() -> None:
    assert set(SHAPES) == set(PLURALS.values())
    assert min(SIZES.values()) == SIZES["small"] == 40
    assert len(COLOURS) == 8


@few
@given(scenes)
def test_objects_are_drawn_over_the_background_and_distractors(scene: Scene) -> None:
    picture = np.asarray(scene.draw())
    bare = np.asarray(Scene(scene.seed, scene.split, scene.index, ()).draw())
    inside = np.zeros((CANVAS, CANVAS), bool)
    for group in scene.groups:
        stencil = np.asarray(shapes._stencil(group.shape, SIZES[group.size]))
        for x0, y0, x1, y1 in group.boxes:
            inside[y0:y1, x0:x1] = True
            body = picture[y0:y1, x0:x1][stencil == 255]
            assert (body == COLOURS[group.colour]).all()
    assert (picture == bare)[~inside].all()


def test_named_colours_are_far_from_each_other_and_from_backgrounds() -> None:
    colours = {name: np.array(rgb, float) for name, rgb in COLOURS.items()}
    for a, b in combinations(colours.values(), 2):
        assert np.linalg.norm(a - b) > 100
    backgrounds = [
        np.asarray(Scene(seed, "train", 0, ()).draw()).mean(axis=(0, 1)) for seed in range(60)
    ]
    for colour in colours.values():
        assert min(np.linalg.norm(colour - background) for background in backgrounds) > 60


@many
@given(scenes)
def test_every_caption_is_true_and_no_other_is_missing(scene: Scene) -> None:
    assert len(set(scene.captions)) == len(scene.captions)
    said: set[tuple[Group, str, Group | None]] = set()
    for caption in scene.captions:
        first, *rest = RELATION.split(caption)
        one = named_group(first, scene)
        if rest:
            relation, second = rest
            other = named_group(second, scene)
            assert one != other
            assert holds(one, relation, other)
            said.add((one, relation, other))
        else:
            said.add((one, "", None))
    if len(scene.groups) == 1:
        assert said == {(scene.groups[0], "", None)}
    else:
        a, b = scene.groups
        assert said == {
            (x, relation, y)
            for x, y in ((a, b), (b, a))
            for relation in INVERSE
            if holds(x, relation, y)
        }
        assert said
        assert all((y, INVERSE[relation], x) in said for x, relation, y in said)
    # Each statement comes with the size of each group named and not named, where it has a word.
    sizes_named = math.prod(1 if group.size == "medium" else 2 for group in scene.groups)
    assert len(scene.captions) == len(said) * sizes_named


@many
@given(scenes)
def test_a_relation_is_plain_or_plainly_absent(scene: Scene) -> None:
    if len(scene.groups) == 1:
        return
    a, b = scene.groups
    for axis in (0, 1):
        # The gap between the groups' extents along the axis; below 0 where they share rows.
        gap = max(
            min(box[axis] for box in y.boxes) - max(box[axis + 2] for box in x.boxes)
            for x, y in ((a, b), (b, a))
        )
        assert gap >= 12 or gap <= -20


@many
@given(train_scenes)
def test_training_and_val_never_show_a_held_out_pair(scene: Scene) -> None:
    assert not {(group.colour, group.shape) for group in scene.groups} & HELD_OUT_PAIRS


@many
@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_val_unseen_always_shows_a_held_out_pair(seed: int, index: int) -> None:
    scene = make_scene(seed, "val_unseen", index)
    assert {(group.colour, group.shape) for group in scene.groups} & HELD_OUT_PAIRS


def test_training_shows_all_else_and_val_unseen_every_held_out_pair() -> None:
    train = make_scenes(0, "train", 800)
    groups = [group for scene in train for group in scene.groups]
    every = {(colour, shape) for colour in COLOURS for shape in SHAPES}
    assert {(group.colour, group.shape) for group in groups} == every - HELD_OUT_PAIRS
    assert {group.size for group in groups} == set(SIZES)
    counts = Counter(tuple(group.count for group in scene.groups) for scene in train)
    assert set(counts) == {(1,), (2,), (3,), (1, 1), (1, 2), (2, 1)}
    assert min(counts.values()) > 80
    relations = Counter(r for scene in train for c in scene.captions for r in RELATION.findall(c))
    assert set(relations) == set(INVERSE)
    unseen = {(g.colour, g.shape) for s in make_scenes(0, "val_unseen", 200) for g in s.groups}
    assert unseen >= HELD_OUT_PAIRS


def test_every_held_out_word_is_seen_in_other_pairs() -> None:
    seen = {(colour, shape) for colour in COLOURS for shape in SHAPES} - HELD_OUT_PAIRS
    assert {colour for colour, _ in seen} == set(COLOURS)
    assert {shape for _, shape in seen} == set(SHAPES)
    assert min(Counter(word for pair in seen for word in pair).values()) >= 5


def test_captions_have_no_word_for_a_distractor() -> None:
    words = {
        word for scene in make_scenes(0, "train", 800) for c in scene.captions for word in c.split()
    }
    assert words == {
        *("a", "an", "two", "three", "small", "large"),
        *COLOURS,
        *PLURALS,
        *PLURALS.values(),
        *("above", "below", "to", "the", "left", "right", "of"),
    }


RED_CIRCLE = Group("red", "circle", "small", ((10, 10, 50, 50),))
BLUE_CROSSES = Group("blue", "cross", "small", ((10, 90, 50, 130), (90, 90, 130, 130)))
DIAGONAL = Scene(0, "train", 0, (RED_CIRCLE, BLUE_CROSSES))


def test_captions_of_a_scene_made_by_hand() -> None:
    assert DIAGONAL.captions == (
        "a red circle above two blue crosses",
        "a red circle above two small blue crosses",
        "a small red circle above two blue crosses",
        "a small red circle above two small blue crosses",
        "two blue crosses below a red circle",
        "two blue crosses below a small red circle",
        "two small blue crosses below a red circle",
        "two small blue crosses below a small red circle",
    )


def test_a_diagonal_scene_is_told_by_both_relations() -> None:
    star = Group("orange", "star", "medium", ((120, 120, 180, 180),))
    green = Group("green", "square", "medium", ((20, 20, 80, 80),))
    assert Scene(0, "train", 0, (star, green)).captions == (
        "an orange star below a green square",
        "an orange star to the right of a green square",
        "a green square above an orange star",
        "a green square to the left of an orange star",
    )


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        (
            "a red circle above two small blue crosses",
            [(2, RED_CIRCLE.boxes), (7, BLUE_CROSSES.boxes)],
        ),
        ("two blue circles below a red cross", [(2, ()), (6, ())]),
        ("circle red circle blue cross", [(0, ()), (2, RED_CIRCLE.boxes), (4, BLUE_CROSSES.boxes)]),
        ("circle red", [(0, ())]),  # the last word is not the word before the first
        ("a red thing", []),
        ("", []),
    ],
)
def test_noun_boxes(caption: str, expected: list[tuple[int, tuple[shapes.Box, ...]]]) -> None:
    assert noun_boxes(DIAGONAL, caption.split()) == expected


@many
@given(scenes)
def test_nouns_of_true_captions_name_their_groups(scene: Scene) -> None:
    for caption in scene.captions:
        boxes = [boxes for _, boxes in noun_boxes(scene, caption.split())]
        assert boxes == [
            named_group(phrase, scene).boxes for phrase in RELATION.split(caption)[::2]
        ]
