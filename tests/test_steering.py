"""Steering: the cells of a box, and what a search makes of them."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import MakeCaptioner
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from showattend.captioner import Captioner
from showattend.config import SearchSettings
from showattend.decoder import Scene
from showattend.pointing import cover
from showattend.search import Caption, attend, beam_search, pick_words
from showattend.steering import Steering, cells_of, check_steer
from showattend.vocabulary import END, Vocabulary

some = settings(max_examples=25, deadline=None)  # a busy machine is no failure

WORDS = Vocabulary(["dog", "cat", "runs"])
WHOLE = (0.0, 0.0, 1.0, 1.0)
#: The family, by settings of the decoder.
KINDS: dict[str, dict[str, Any]] = {
    "soft": {},
    "hard": {"look": "hard"},
    "heads": {"heads": 2, "projection": 6, "attention": 4},
    "gru": {"kind": "gru"},
    "cells that mix": {"grid_layers": 1, "projection": 8},
    "transformer": {
        "kind": "transformer",
        "layers": 2,
        "heads": 2,
        "projection": 6,
        "attention": 4,
    },
}
kinds = pytest.mark.parametrize("kind", KINDS)
beams = pytest.mark.parametrize("beam_size", [1, 3])


# Boxes to cells


def test_the_cells_of_a_box_by_hand() -> None:
    """2 rows and 4 columns; their centres lie at 1/4, 3/4 and at 1/8, 3/8, 5/8, 7/8."""

    def told(*box: float, seen: tuple[float, ...] = WHOLE) -> list[list[int]]:
        return cells_of(box, seen, 2, 4).astype(int).tolist()

    assert told(0, 0, 1, 1) == [[1, 1, 1, 1], [1, 1, 1, 1]]
    assert told(0.5, 0, 1, 1) == [[0, 0, 1, 1], [0, 0, 1, 1]]
    assert told(0.375, 0.5, 0.7, 1) == [[0, 0, 0, 0], [0, 1, 1, 0]]  # an edge counts as inside
    assert told(0.4, 0, 0.6, 1) == [[0, 0, 1, 0], [0, 0, 1, 0]]  # thin: the centre's column
    assert told(0.9, 0.9, 1, 1) == [[0, 0, 0, 0], [0, 0, 0, 1]]  # small: the centre's cell
    # Of a photograph twice as wide as high, "crop" sees the middle half of its width, ...
    crop = (0.25, 0, 0.75, 1)
    assert told(0, 0, 0.5, 1, seen=crop) == [[1, 1, 0, 0], [1, 1, 0, 0]]
    assert told(0.7, 0, 1, 0.5, seen=crop) == [[0, 0, 0, 1], [0, 0, 0, 0]]
    assert told(0, 0, 0.25, 1, seen=crop) == [[0, 0, 0, 0], [0, 0, 0, 0]]
    # ... and "pad" shows it in the middle half of the height.
    pad = (0, -0.5, 1, 1.5)
    found = cells_of((0, 0, 0.5, 0.5), pad, 4, 4).astype(int).tolist()
    assert found == [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


corners = st.floats(0, 1)
sides = st.integers(1, 15)


@some
@given(xs=st.tuples(corners, corners), ys=st.tuples(corners, corners), height=sides, width=sides)
def test_the_cells_of_a_box_are_half_covered_rows_and_columns(
    xs: tuple[float, float], ys: tuple[float, float], height: int, width: int
) -> None:
    """Or hold its centre; how much is covered is counted by the pointing game's own function."""
    (x0, x1), (y0, y1) = sorted(xs), sorted(ys)
    assume(x1 - x0 > 1e-6 and y1 - y0 > 1e-6)
    found_hw = cells_of((x0, y0, x1, y1), WHOLE, height, width)
    centre = (int((y0 + y1) / 2 * height), int((x0 + x1) / 2 * width))
    assert found_hw[centre]
    wide_w = cover([(x0, 0, x1, 1)], 1, width)[0]
    high_h = cover([(0, y0, 1, y1)], height, 1)[:, 0]
    assume(np.abs(wide_w - 0.5).min() > 1e-9 and np.abs(high_h - 0.5).min() > 1e-9)
    columns_w, rows_h = wide_w > 0.5, high_h > 0.5
    rows_h[centre[0]] = columns_w[centre[1]] = True
    np.testing.assert_array_equal(found_hw, np.outer(rows_h, columns_w))


def test_cells_are_taken_as_they_are() -> None:
    mask_hw = np.array([[True, False], [False, True]])
    np.testing.assert_array_equal(cells_of(mask_hw, (0.25, 0, 0.75, 1), 2, 2), mask_hw)


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"look_at": (0, 0, 1)}, r"look_at is \(0, 0, 1\): expected a box x0, y0, x1, y1 with x0"),
        ({"look_at": (0.5, 0, 0.5, 1)}, "expected a box"),
        ({"look_at": (0, 1, 1, 0)}, "expected a box"),
        ({"look_at": (0, 0, 1.5, 1)}, "in fractions of the photograph, 0 to 1, or a mask"),
        ({"look_at": (-0.1, 0, 1, 1)}, "expected a box"),
        ({"look_at": (0, 0, float("nan"), 1)}, "expected a box"),
        ({"look_at": ("a", "b", "c", "d")}, "expected a box"),
        ({"look_at": "left"}, "look_at is left: expected a box"),
        ({"look_at": [[1, 0], [1]]}, r"look_at is \[\[1, 0\], \[1\]\]: expected a box"),
        ({"look_at": np.ones((9, 99))}, r"look_at is \[\[1. 1. [1. ]{52}…: expected a box"),
        ({"look_at": np.ones((3, 2), bool)}, r"look_at is a mask \(3, 2\) with 6 cells: expected "),
        ({"look_at": np.zeros((2, 3), bool)}, r"\(2, 3\) with 0 cells: expected \(2, 3\), as the "),
        ({"look_from": 0}, "look_from is 0: expected the number of a word, 1 or more"),
        ({"look_from": 1.5}, "look_from is 1.5: expected the number of a word"),
        ({"look_from": 3}, "look_from is 3: say by look_at where to look from there"),
    ],
)
def test_what_cannot_be_meant_is_one_line(how: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        check_steer(2, 3, **how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("look_at", [(0, 0, 1, 1), [0.1, 0.2, 0.3, 0.4], np.eye(2, 3) > 0])
def test_boxes_and_masks_pass(look_at: Any) -> None:
    check_steer(2, 3, look_at, 4)


# Attention


def captioner_of(make_captioner: MakeCaptioner, kind: str, seed: int = 0) -> Captioner:
    captioner = make_captioner(seed, words=len(WORDS), scale=3.0, **KINDS[kind])
    with torch.no_grad():
        captioner.decoder.word_logits.bias[END] -= 3.0  # several words
    return captioner


def scene_of(captioner: Captioner, images: int = 1, seed: int = 0) -> Scene:
    generator = torch.Generator().manual_seed(seed)
    with torch.inference_mode():
        return captioner.look(torch.randn(images, 6, 5, generator=generator))


def search_of(beam_size: int, max_words: int = 5) -> SearchSettings:
    return SearchSettings(beam_size=beam_size, max_words=max_words)


def cells(*rows: str) -> torch.Tensor:
    return torch.tensor([[letter == "x" for letter in row] for row in rows])


def values_of(caption: Caption) -> list[np.ndarray]:
    """Whatever tells where the caption looked, the words first and the cells last."""
    return [caption.weights, caption.alpha, *([] if caption.heads is None else [caption.heads])]


@kinds
@beams
def test_the_look_stays_in_its_cells(
    make_captioner: MakeCaptioner, kind: str, beam_size: int
) -> None:
    """Every image has cells of its own; every layer's and head's weights are 0 elsewhere."""
    captioner = captioner_of(make_captioner, kind)
    scene = scene_of(captioner, 3)
    cells_BP = cells("xx....", ".x..xx", "..x...")
    found = beam_search(captioner, WORDS, scene, search_of(beam_size), Steering(cells_BP))
    for allowed_P, captions in zip(cells_BP.numpy(), found, strict=True):
        for caption in captions:
            for values in values_of(caption):
                assert values.shape[0] == len(caption.words) and values.shape[-1] == 6
                assert (values[..., ~allowed_P] == 0).all()
                np.testing.assert_allclose(values.sum(axis=-1), 1, rtol=1e-5)
    for caption in found[2]:
        assert (caption.weights[:, 2] == 1).all()  # one cell takes all


@kinds
@beams
def test_what_a_steered_caption_says_is_what_teacher_forcing_says(
    make_captioner: MakeCaptioner, kind: str, beam_size: int
) -> None:
    captioner = captioner_of(make_captioner, kind)
    scene = scene_of(captioner, 2)
    cells_BP = cells("xx.x..", "....xx")
    steering = Steering(cells_BP, look_from=2)
    found = beam_search(captioner, WORDS, scene, search_of(beam_size), steering)
    for b, captions in enumerate(found):
        image = slice(b, b + 1)
        alone = Steering(cells_BP[image], look_from=2)
        for caption in captions:
            (told,) = attend(captioner, WORDS, scene.select(image), caption.text, alone)
            assert told.words == caption.words
            assert told.log_prob == pytest.approx(caption.log_prob, abs=1e-4)
            for these, those in zip(values_of(told), values_of(caption), strict=True):
                np.testing.assert_allclose(these, those, atol=1e-5)


@kinds
@beams
def test_all_cells_are_no_steering(
    make_captioner: MakeCaptioner, kind: str, beam_size: int
) -> None:
    captioner = captioner_of(make_captioner, kind)
    scene = scene_of(captioner, 2)
    free = beam_search(captioner, WORDS, scene, search_of(beam_size))
    everywhere = Steering(cells("xxxxxx", "xxxxxx"))
    bound = beam_search(captioner, WORDS, scene, search_of(beam_size), everywhere)
    for captions, expected in zip(bound, free, strict=True):
        for one, other in zip(captions, expected, strict=True):
            assert (one.words, one.log_prob) == (other.words, other.log_prob)
            for these, those in zip(values_of(one), values_of(other), strict=True):
                np.testing.assert_array_equal(these, those)


@kinds
def test_words_before_the_first_bound_one_look_freely(
    make_captioner: MakeCaptioner, kind: str
) -> None:
    """Greedy search, which has no reason to say anything else before."""
    captioner = captioner_of(make_captioner, kind)
    scene = scene_of(captioner, 4)
    (free, bound) = (
        pick_words(captioner, WORDS, scene, max_words=5, steering=steering)
        for steering in (None, Steering(cells(*["x....."] * 4), look_from=3))
    )
    assert any(len(caption.words) > 2 for caption in bound)
    for one, other in zip(free, bound, strict=True):
        assert one.words[:2] == other.words[:2]
        for these, those in zip(values_of(one), values_of(other), strict=True):
            np.testing.assert_array_equal(these[:2], those[:2])
            assert (those[2:, ..., 1:] == 0).all()
            assert (these[:2, ..., 1:] != 0).any()


@beams
def test_a_glimpse_is_taken_around_a_cell_that_may_be_looked_at(
    make_captioner: MakeCaptioner, beam_size: int
) -> None:
    """The window reaches over the border, as it did in training: the choice is what is bound."""
    captioner = make_captioner(words=len(WORDS), scale=3.0, look="hard", glimpse=3)
    scene = scene_of(captioner)
    ((caption, *_),) = beam_search(
        captioner, WORDS, scene, search_of(beam_size), Steering(cells(".x...."))
    )
    assert (caption.alpha[:, 1] == 1).all()
    np.testing.assert_allclose(caption.weights, np.full_like(caption.weights, 1 / 6))


@beams
def test_padding_stays_out_of_sight(make_captioner: MakeCaptioner, beam_size: int) -> None:
    """Cells that an image has not are not looked at, whatever is asked for."""
    captioner = captioner_of(make_captioner, "soft")
    grid_BPC = torch.randn(1, 6, 5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        scene = captioner.decoder.look(grid_BPC, cells("xxxx.."))
        alone = captioner.decoder.look(grid_BPC[:, :4])
    bound = beam_search(captioner, WORDS, scene, search_of(beam_size), Steering(cells("..xxxx")))
    expected = beam_search(captioner, WORDS, alone, search_of(beam_size), Steering(cells("..xx")))
    for one, other in zip(bound[0], expected[0], strict=True):
        assert one.words == other.words
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)


# Both at once


@some
@given(seed=st.integers(0, 10**6), beam_size=st.integers(1, 4), first=st.integers(1, 4))
def test_images_together_are_images_one_at_a_time(
    make_captioner: MakeCaptioner, seed: int, beam_size: int, first: int
) -> None:
    """Steered, with given words, and with cells of their own that go with them when others end."""
    captioner = make_captioner(seed, words=len(WORDS), scale=3.0)
    scene = scene_of(captioner, 6, seed)
    cells_BP = torch.rand(6, 6, generator=torch.Generator().manual_seed(seed)) < 0.5
    cells_BP[:, seed % 6] = True
    begin = tuple(WORDS.encode("cat dog"))
    steering = Steering(cells_BP, first, begin)
    together = beam_search(captioner, WORDS, scene, search_of(beam_size), steering)
    for b, captions in enumerate(together):
        one = slice(b, b + 1)
        own = Steering(cells_BP[one], first, begin)
        (alone,) = beam_search(captioner, WORDS, scene.select(one), search_of(beam_size), own)
        assert [caption.words for caption in captions] == [caption.words for caption in alone]
        for caption, expected in zip(captions, alone, strict=True):
            assert caption.words[:2] == ("cat", "dog")
            assert caption.log_prob == pytest.approx(expected.log_prob, abs=1e-4)
            np.testing.assert_allclose(caption.weights, expected.weights, atol=1e-5)
