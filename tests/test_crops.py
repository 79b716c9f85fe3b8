"""Parts of photographs: how large, where, and that torch's generator draws them."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from showattend.crops import random_crop

sides = st.integers(1, 60)


def numbered(width: int, height: int) -> Image.Image:
    """Red is the column, green the row."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([x, y, 0 * x], axis=-1).astype(np.uint8))


@given(sides, sides, st.floats(0.1, 1.0), st.integers(0, 1000))
def test_a_part_lies_within_and_is_large_enough(
    width: int, height: int, smallest: float, seed: int
) -> None:
    torch.manual_seed(seed)
    part = np.asarray(random_crop(numbered(width, height), smallest)).astype(int)
    for whole, length, axis, channel in (
        (width, part.shape[1], 1, 0),
        (height, part.shape[0], 0, 1),
    ):
        assert max(1, smallest * whole - 0.5) <= length <= whole
        places = part[:, :, channel].take(0, axis=1 - axis)
        np.testing.assert_array_equal(np.diff(places), 1)  # one piece, nothing from beyond


def test_sides_and_places_are_uniform() -> None:
    """Means of 2,000 draws within 4 standard errors of a uniform's."""
    torch.manual_seed(0)
    parts = [np.asarray(random_crop(numbered(200, 100), 0.5)).astype(int) for _ in range(2000)]
    width = np.array([part.shape[1] / 200 for part in parts])
    place = np.array([part[0, 0, 0] / (200 - part.shape[1] + 1e-9) for part in parts])
    height = np.array([part.shape[0] / 100 for part in parts])
    error = 4 / np.sqrt(12 * 2000)
    assert abs(width.mean() - 0.75) < 0.5 * error + 0.0025
    assert abs(height.mean() - 0.75) < 0.5 * error + 0.005
    assert abs(place[width < 0.9].mean() - 0.5) < 1.2 * error + 0.0025
    assert abs(np.corrcoef(width, height)[0, 1]) < 4 / np.sqrt(2000)


def test_a_seed_repeats_it() -> None:
    def draw() -> bytes:
        torch.manual_seed(7)
        return random_crop(numbered(50, 40), 0.3).tobytes()

    assert draw() == draw()
