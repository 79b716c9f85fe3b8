"""`shapes`: a synthetic captioning set, drawn on the fly from a seed, whose truth is known exactly.

A scene is one or two groups of equal objects on a textured background, such as "two small blue
squares" or "a red circle above a white star". Every true phrasing of the whole scene is a reference
caption, and every noun has boxes, so both the words and the place of attention can be scored. Some
colour-and-shape pairs are held out of training: a model that describes them has combined what it
learned of colours with what it learned of shapes.

Pictures, captions and boxes follow from (VERSION, seed, split, index) alone; nothing is stored.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations, product

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

Point = tuple[float, float]
Box = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels; x1, y1 just past the last, as in Pillow
Array = npt.NDArray[np.floating]

CANVAS = 224  # pixels, both sides
VERSION = 1  # part of every key: raise it whenever the same arguments give another picture or words

SPLITS = ("train", "val", "val_unseen")
SIZES = {"small": 40, "medium": 60, "large": 80}  # side of an object's box, pixels
COLOURS = {
    "red": (215, 20, 30),
    "orange": (255, 130, 0),
    "yellow": (255, 230, 40),
    "green": (20, 150, 50),
    "blue": (30, 80, 225),
    "purple": (130, 40, 170),
    "white": (250, 250, 250),
    "black": (12, 12, 12),
}
# Every colour is held out once and every shape once or twice; all are seen in training in other
# pairs, so an unseen pair holds no unseen word.
HELD_OUT_PAIRS = frozenset(
    {
        ("red", "star"),
        ("orange", "cross"),
        ("yellow", "circle"),
        ("green", "diamond"),
        ("blue", "triangle"),
        ("purple", "square"),
        ("white", "cross"),
        ("black", "star"),
    }
)

_COUNT_WORDS = {2: "two", 3: "three"}
_GROUP_COUNTS = ((1,), (2,), (3,), (1, 1), (1, 2), (2, 1))
_EDGE = 4  # pixels kept free between an object and the picture's edge
_SPACING = 8  # pixels kept free between any two objects
_MARGIN = 12  # a group is beside another where at least so many pixels lie between them ...
_OVERLAP = 20  # ... and clearly not where they share at least so many; nothing lies in between


def _ring(*radii: float) -> tuple[Point, ...]:
    """Corners at equal angles about a centre, the first on top, stretched to the unit square."""
    angles = [2 * math.pi * corner / len(radii) for corner in range(len(radii))]
    xs = [radius * math.sin(angle) for radius, angle in zip(radii, angles, strict=True)]
    ys = [-radius * math.cos(angle) for radius, angle in zip(radii, angles, strict=True)]
    return tuple(zip(_stretch(xs), _stretch(ys), strict=True))


def _stretch(values: Sequence[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values]


# Outlines in the unit square, each touching all four sides: an object's box is its size exactly.
SHAPES: dict[str, tuple[Point, ...]] = {
    "circle": _ring(*[1.0] * 96),
    "square": ((0, 0), (1, 0), (1, 1), (0, 1)),
    "triangle": _ring(1, 1, 1),
    "star": _ring(*[1, 0.42] * 5),
    "cross": (
        *((0.33, 0), (0.67, 0), (0.67, 0.33), (1, 0.33), (1, 0.67), (0.67, 0.67)),
        *((0.67, 1), (0.33, 1), (0.33, 0.67), (0, 0.67), (0, 0.33), (0.33, 0.33)),
    ),
    "diamond": _ring(1, 1, 1, 1),
}


@dataclass(frozen=True)
class Group:
    """Equal objects that a caption names by one noun phrase."""

    colour: str
    shape: str
    size: str
    boxes: tuple[Box, ...]

    @property
    def count(self) -> int:
        return len(self.boxes)


@dataclass(frozen=True)
class Scene:
    """One picture with its truth: `groups` (one or two) say all that its captions may say."""

    seed: int
    split: str
    index: int
    groups: tuple[Group, ...]

    @property
    def image_id(self) -> int:
        """A number that no other scene of the same seed has, in whichever split."""
        return self.index * len(SPLITS) + SPLITS.index(self.split)

    @property
    def key(self) -> str:
        """The fingerprint that caches file this scene under: equal keys mean equal pictures."""
        return _key(self.seed, self.split, self.index)

    @property
    def captions(self) -> tuple[str, ...]:
        """Every true phrasing of the whole scene, 1 to 16 of them, always in the same order."""
        if len(self.groups) == 1:
            return _phrases(self.groups[0])
        return tuple(
            f"{first} {relation} {second}"
            for one, other in permutations(self.groups)
            for relation in _relations(one.boxes, other.boxes)
            for first, second in product(_phrases(one), _phrases(other))
        )

    def draw(self) -> Image.Image:
        """The picture, RGB, CANVAS x CANVAS; the same at every call."""
        rng = np.random.default_rng(int.from_bytes(self.key.encode(), "big"))
        image = _background(rng)
        _add_distractors(image, rng)
        for group in self.groups:  # last, so that nothing covers an object
            _paint(image, group)
        return image


def make_scene(seed: int, split: str, index: int) -> Scene:
    """The scene at `index` of an endless split: "train", "val" or "val_unseen".

    Scenes of "train" and "val" hold no held-out pair; each of "val_unseen" holds at least one.

    Raises:
        ValueError: the split is unknown, or the index is below 0.
    """
    if split not in SPLITS:
        raise ValueError(f"shapes has no split {split!r}: choose one of {', '.join(SPLITS)}")
    if index < 0:
        raise ValueError(f"a scene's index counts from 0, got {index}")
    # A text seeds Random by its SHA-512: neighbouring indices and splits share no stream.
    rng = random.Random(_key(seed, split, index))
    counts = rng.choice(_GROUP_COUNTS)
    pairs = _draw_pairs(rng, split, len(counts))
    sizes = [rng.choice(list(SIZES)) for _ in counts]
    boxes = _lay_out(rng, counts, [SIZES[size] for size in sizes])
    groups = (Group(*pair, size, b) for pair, size, b in zip(pairs, sizes, boxes, strict=True))
    return Scene(seed, split, index, tuple(groups))


def make_scenes(seed: int, split: str, count: int) -> list[Scene]:
    """The first `count` scenes of a split; see `make_scene`."""
    return [make_scene(seed, split, index) for index in range(count)]


def noun_boxes(scene: Scene, words: Sequence[str]) -> list[tuple[int, tuple[Box, ...]]]:
    """Where each noun of a caption should be looked for: (position in `words`, boxes) per noun.

    A noun is a shape's name, singular or plural. It names the group that has its shape and the
    colour of the word just before it; one that names no group of the scene gets no boxes.
    """
    singular = {form: shape for shape in SHAPES for form in (shape, _plural(shape))}
    boxes = {(group.colour, group.shape): group.boxes for group in scene.groups}
    return [
        (position, boxes.get((before, singular[word]), ()))
        for position, (before, word) in enumerate(zip(("", *words), words, strict=False))
        if word in singular
    ]


# What is in a scene, and where


def _key(seed: int, split: str, index: int) -> str:
    return f"shapes-v{VERSION}-seed{seed}-{split}-{index}"


def _draw_pairs(rng: random.Random, split: str, count: int) -> list[tuple[str, str]]:
    """`count` different (colour, shape) pairs that the split allows."""
    every = list(product(COLOURS, SHAPES))
    if split != "val_unseen":
        return rng.sample([pair for pair in every if pair not in HELD_OUT_PAIRS], count)
    unseen = rng.choice(sorted(HELD_OUT_PAIRS))
    pairs = [unseen, *rng.sample([pair for pair in every if pair != unseen], count - 1)]
    rng.shuffle(pairs)
    return pairs


def _lay_out(
    rng: random.Random, counts: Sequence[int], sides: Sequence[int]
) -> list[tuple[Box, ...]]:
    """Boxes for every group: drawn until they are well apart and the relation is plain."""
    while True:
        groups = [
            tuple(_random_box(rng, side) for _ in range(count))
            for count, side in zip(counts, sides, strict=True)
        ]
        boxes = [box for group in groups for box in group]
        if all(_apart(a, b) for a, b in combinations(boxes, 2)) and _plainly_related(groups):
            return groups


def _random_box(rng: random.Random, side: int) -> Box:
    x, y = (rng.randint(_EDGE, CANVAS - _EDGE - side) for _ in range(2))
    return x, y, x + side, y + side


def _apart(a: Box, b: Box) -> bool:
    return any(max(_gap((a,), (b,), axis), _gap((b,), (a,), axis)) >= _SPACING for axis in (0, 1))


def _gap(first: Sequence[Box], second: Sequence[Box], axis: int) -> int:
    """Pixels between the end of `first` and the start of `second`; below 0 where they overlap."""
    return min(box[axis] for box in second) - max(box[axis + 2] for box in first)


def _plainly_related(groups: Sequence[Sequence[Box]]) -> bool:
    """Whether two groups have a relation and no other relation is a matter of a few pixels."""
    if len(groups) == 1:
        return True
    one, other = groups
    gaps = [max(_gap(one, other, axis), _gap(other, one, axis)) for axis in (0, 1)]
    return max(gaps) >= _MARGIN and all(gap >= _MARGIN or gap <= -_OVERLAP for gap in gaps)


def _relations(one: Sequence[Box], other: Sequence[Box]) -> tuple[str, ...]:
    """What is true of every box of `one` towards every box of `other`; two if they lie diagonal."""
    gaps = {
        "above": _gap(one, other, axis=1),
        "below": _gap(other, one, axis=1),
        "to the left of": _gap(one, other, axis=0),
        "to the right of": _gap(other, one, axis=0),
    }
    return tuple(relation for relation, gap in gaps.items() if gap >= _MARGIN)


# Words


def _phrases(group: Group) -> tuple[str, ...]:
    """The noun phrases that name a group: without its size and, where the size has a word, with."""
    noun = group.shape if group.count == 1 else _plural(group.shape)
    plain = f"{group.colour} {noun}"
    forms = (plain,) if group.size == "medium" else (plain, f"{group.size} {plain}")
    return tuple(f"{_determiner(group.count, form)} {form}" for form in forms)


def _plural(noun: str) -> str:
    return noun + ("es" if noun.endswith("s") else "s")


def _determiner(count: int, following: str) -> str:
    if count > 1:
        return _COUNT_WORDS[count]
    return "an" if following[0] in "aeiou" else "a"


# Pixels


def _paint(image: Image.Image, group: Group) -> None:
    stencil = _stencil(group.shape, SIZES[group.size])
    for box in group.boxes:
        image.paste(COLOURS[group.colour], box, stencil)


@cache
def _stencil(shape: str, side: int) -> Image.Image:
    """A filled shape as coverage 0..255, side x side: drawn four times as large for soft edges."""
    large = Image.new("L", (4 * side, 4 * side))
    outline = [(x * (4 * side - 1), y * (4 * side - 1)) for x, y in SHAPES[shape]]
    ImageDraw.Draw(large).polygon(outline, fill=255)
    return large.reduce(4)


def _background(rng: np.random.Generator) -> Image.Image:
    """Two muted colours mixed by a texture: far from every colour that a caption may name."""
    weights_SS1 = _TEXTURES[rng.integers(len(_TEXTURES))](rng)[..., None]
    # A middle grey with a slight tint; the second is never far from the first.
    first_3 = rng.uniform(105, 165) + rng.uniform(-12, 12, 3)
    change_3 = rng.uniform(-22, 22) + rng.uniform(-10, 10, 3)
    mixed_SS3 = first_3.astype(np.float32) + weights_SS1 * change_3.astype(np.float32)
    return Image.fromarray(mixed_SS3.astype(np.uint8))


def _noise(rng: np.random.Generator) -> Array:
    grains = rng.random((CANVAS // 2, CANVAS // 2), dtype=np.float32)
    return grains.repeat(2, axis=0).repeat(2, axis=1)


def _stripes(rng: np.random.Generator) -> Array:
    wave_SS: Array = np.sin(_slope(rng) * np.float32(2 * np.pi / rng.uniform(10, 40)))
    return (wave_SS + 1) / 2


def _gradient(rng: np.random.Generator) -> Array:
    slope_SS = _slope(rng)
    return np.interp(slope_SS, (slope_SS.min(), slope_SS.max()), (0, 1))


def _blotches(rng: np.random.Generator) -> Array:
    coarse = Image.fromarray(rng.random((8, 8), dtype=np.float32))
    return np.asarray(coarse.resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)).clip(0, 1)


_TEXTURES: tuple[Callable[[np.random.Generator], Array], ...] = (
    _noise,
    _stripes,
    _gradient,
    _blotches,
)


def _slope(rng: np.random.Generator) -> Array:
    """Distance of every pixel along a random direction, pixels."""
    angle = rng.uniform(0, 2 * np.pi)
    line_S = np.arange(CANVAS, dtype=np.float32)
    return line_S[:, None] * np.float32(np.sin(angle)) + line_S * np.float32(np.cos(angle))


def _add_distractors(image: Image.Image, rng: np.random.Generator) -> None:
    """Thin grey lines, dots and scribbles: no caption names them, so a model must pass them by."""
    pen = ImageDraw.Draw(image)
    for _ in range(rng.integers(3, 8)):
        distractor = _DISTRACTORS[rng.integers(len(_DISTRACTORS))]
        level = int(rng.choice([80, 190]))  # unlike the background, yet neither black nor white
        distractor(pen, rng, (level, level, level))


def _line(pen: ImageDraw.ImageDraw, rng: np.random.Generator, grey: tuple[int, int, int]) -> None:
    pen.line(_points(rng.integers(CANVAS, size=(2, 2))), grey)


def _dot(pen: ImageDraw.ImageDraw, rng: np.random.Generator, grey: tuple[int, int, int]) -> None:
    pen.circle(_points(rng.integers(CANVAS, size=(1, 2)))[0], int(rng.integers(1, 4)), grey)


def _scribble(
    pen: ImageDraw.ImageDraw, rng: np.random.Generator, grey: tuple[int, int, int]
) -> None:
    pen.line(_points(rng.integers(CANVAS, size=2) + rng.integers(24, size=(6, 2))), grey)


_DISTRACTORS = (_line, _dot, _scribble)


def _points(xy: npt.NDArray[np.int64]) -> list[Point]:
    return [(float(x), float(y)) for x, y in xy]
