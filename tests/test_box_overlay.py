"""Boxes are drawn where they lie, as strongly as they were looked at, on one scale."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageChops

from showattend.box_overlay import OUTLINE, box_figure, box_overlays, save_box_overlays
from showattend.datasets import Picture
from showattend.overlay import FRAME, blend, is_drawn
from showattend.page import overlay
from showattend.search import Boxes, Caption

#: Left half, right half, lower half, and all of it.
BOXES = Boxes(np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1], [0, 0.5, 1, 1], [0, 0, 1, 1]]))
LEFT_ABOVE, RIGHT_ABOVE, LEFT_BELOW = (50, 25), (150, 25), (50, 75)


def caption(alpha_TP: list[list[float]], weights_TP: list[list[float]] | None = None) -> Caption:
    alpha = np.array(alpha_TP, np.float32)
    weights = alpha if weights_TP is None else np.array(weights_TP, np.float32)
    return Caption(("a", "dog")[: len(alpha)], -1.0, weights, alpha, None, BOXES)


def grey() -> Image.Image:
    return Image.new("RGB", (200, 100), (128, 128, 128))


def colour(weight: float, top: float) -> tuple[int, ...]:
    """What `overlay.blend` paints a weight in."""
    painted = blend(Image.new("RGB", (1, 1), (128, 128, 128)), np.full((1, 1), weight), top)
    pixel = painted.getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return pixel


def test_a_box_has_the_colour_of_its_weight_and_the_largest_shows() -> None:
    # Of 4 regions the scale ends at 8/4, whatever the weights: they are at most 1.
    first, second = box_overlays(grey(), caption([[0.6, 0.1, 0.3, 0], [0.25] * 4]), BOXES)
    assert first.getpixel(LEFT_ABOVE) == colour(0.6, 2.0)
    assert first.getpixel(LEFT_BELOW) == colour(0.6, 2.0)  # 0.3 lies there too
    assert first.getpixel(RIGHT_ABOVE) == colour(0.1, 2.0)
    assert first.getpixel((150, 75)) == colour(0.3, 2.0)
    flat = {second.getpixel(place) for place in (LEFT_ABOVE, RIGHT_ABOVE, LEFT_BELOW)}
    assert flat == {colour(0.25, 2.0)}  # an eighth of the scale


def test_many_regions_share_the_scale_of_the_surest_word() -> None:
    boxes = Boxes(np.repeat(BOXES.boxes_P4, 5, axis=0))
    sure, flat = np.eye(20)[0], np.full(20, 0.05)
    said = Caption(("a", "dog"), -1.0, np.stack([sure, flat]), np.stack([sure, flat]), None, boxes)
    first, second = box_overlays(grey(), said, boxes)
    assert first.getpixel(LEFT_ABOVE) == colour(1.0, 1.0)
    assert second.getpixel(LEFT_ABOVE) == colour(0.05, 1.0)


def test_outlines_fade_with_the_weight() -> None:
    (drawn,) = box_overlays(grey(), caption([[1.0, 0, 0, 0]]), BOXES)
    (bare,) = box_overlays(grey(), caption([[0, 0, 0, 1.0]]), BOXES)
    edge = (50, OUTLINE - 1)  # above the left half
    assert drawn.getpixel(edge) != drawn.getpixel((50, OUTLINE))
    assert drawn.getpixel((150, 0)) == drawn.getpixel(RIGHT_ABOVE)  # a weight of 0 has none
    middle = (99, 50)  # where only the left half's outline runs
    assert bare.getpixel(middle) == bare.getpixel(LEFT_ABOVE)
    assert drawn.getpixel(middle) != drawn.getpixel(LEFT_ABOVE)


def test_a_hard_look_frames_the_box_that_was_used() -> None:
    soft = box_overlays(grey(), caption([[0.4, 0.6, 0, 0]]), BOXES)[0]
    hard = box_overlays(grey(), caption([[0.4, 0.6, 0, 0]], [[0, 1, 0, 0]]), BOXES)[0]
    changed = ImageChops.difference(soft, hard).getbbox()
    assert changed == (100, 0, 200, 100)
    inside = (100 + FRAME, FRAME, 200 - FRAME, 100 - FRAME)
    assert ImageChops.difference(soft.crop(inside), hard.crop(inside)).getbbox() is None


def test_boxes_thinner_than_a_pixel_and_over_the_edge_are_drawn() -> None:
    thin = Boxes(np.array([[0.9999, 0.9999, 1.0005, 1.0005], [-0.0005, 0, 0.0001, 0.0001]]))
    alpha = np.array([[0.5, 0.5]])
    (drawn,) = box_overlays(grey(), Caption(("a",), -1.0, alpha, alpha, None, thin), thin)
    corner = drawn.getpixel((100, 50))
    assert drawn.getpixel((199, 99)) != corner
    assert drawn.getpixel((0, 0)) != corner


def test_weights_and_boxes_must_match() -> None:
    alpha = np.full((1, 3), 1 / 3)
    with pytest.raises(ValueError, match=r"shape \(1, 3\): expected \(T, 4\), as the boxes"):
        box_overlays(grey(), Caption(("a",), -1.0, alpha, alpha, None, BOXES), BOXES)


def test_files_and_pages(tmp_path: Path) -> None:
    said = caption([[0.6, 0.1, 0.3, 0], [0.25] * 4])
    save_box_overlays(tmp_path, "photo", grey(), said, BOXES)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"photo.png", "photo.gif", "photo/01_a.png", "photo/02_dog.png"}
    assert all(is_drawn(tmp_path / name) for name in files)
    with Image.open(tmp_path / "photo.gif") as animation:
        assert animation.n_frames == 3
    figure = box_figure(grey(), said, BOXES, "a dog")
    assert figure.width > 3 * 320
    grey().save(tmp_path / "source.png")
    element = overlay(Picture(1, tmp_path / "source.png", ("a dog",)), said, "squash")
    assert element.startswith('<img alt="a dog" src="data:image/jpeg;base64,')
