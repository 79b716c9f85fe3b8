"""The batches of an epoch: everything once, in an order that repeats, with little padding."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend.batches import Batch, CaptionBatches
from showattend.boxes import Grounded, Phrase
from showattend.datasets import Picture
from showattend.vocabulary import END, PAD, Vocabulary

some = settings(max_examples=50, deadline=None)  # a busy machine is no failure

WORDS = Vocabulary(["a", "dog", "left", "right"])
A, DOG, LEFT, RIGHT = range(4, 8)

captions = st.lists(st.sampled_from(["a", "dog", "left", "zebra"]), min_size=1, max_size=7)
pictures_of_captions = st.lists(
    st.lists(captions.map(" ".join), min_size=1, max_size=4), min_size=1, max_size=9
)


def pictures(said: list[list[str]]) -> list[Picture]:
    return [Picture(i, Path(f"{i}.jpg"), tuple(captions)) for i, captions in enumerate(said)]


def batches(said: list[list[str]], **changes: Any) -> CaptionBatches:
    options: dict[str, Any] = {
        "batch_images": 4,
        "captions_per_image": 5,
        "max_words": 24,
        "flips": False,
        "seed": 1,
    }
    return CaptionBatches(pictures(said), WORDS, **options | changes)


def captions_of(batch: Batch) -> dict[int, list[tuple[int, ...]]]:
    """Position -> its captions without padding, in the batch's order."""
    return {
        position: [tuple(word for word in words if word != PAD) for words in rows if any(words)]
        for position, rows in zip(batch.positions, batch.words_BKT.tolist(), strict=True)
    }


def epoch_of(one: CaptionBatches, number: int = 1) -> dict[int, list[tuple[int, ...]]]:
    found: dict[int, list[tuple[int, ...]]] = {}
    for batch in one.epoch(number):
        assert not found.keys() & set(batch.positions)  # no picture twice
        found |= captions_of(batch)
    return found


def ids(caption: str) -> tuple[int, ...]:
    return (*WORDS.encode(caption), END)


@some
@given(said=pictures_of_captions, batch_images=st.integers(1, 5), epoch=st.integers(1, 3))
def test_every_caption_of_every_picture_comes_once(
    said: list[list[str]], batch_images: int, epoch: int
) -> None:
    one = batches(said, batch_images=batch_images)
    assert {i: Counter(rows) for i, rows in epoch_of(one, epoch).items()} == {
        i: Counter(map(ids, captions)) for i, captions in enumerate(said)
    }
    assert len(list(one.epoch(epoch))) == len(one) == math.ceil(len(said) / batch_images)
    assert one.captions() == sum(map(len, said))


@some
@given(said=pictures_of_captions, limit=st.integers(1, 3))
def test_no_more_captions_than_wanted_and_none_twice(said: list[list[str]], limit: int) -> None:
    one = batches(said, captions_per_image=limit)
    for i, rows in epoch_of(one).items():
        assert len(rows) == min(len(said[i]), limit)
        assert Counter(rows) <= Counter(map(ids, said[i]))
    assert one.captions() == sum(min(len(captions), limit) for captions in said)


def test_all_captions_get_their_turn() -> None:
    said = [[" ".join(["a"] * n) for n in range(1, 6)]]
    one = batches(said, captions_per_image=2)
    seen = Counter(row for number in range(100) for row in epoch_of(one, number)[0])
    assert set(seen) == set(map(ids, said[0]))
    # 100 draws of 2 in 5: each caption 40 times, give or take five standard deviations
    assert all(abs(count - 40) < 5 * math.sqrt(100 * 0.4 * 0.6) for count in seen.values())


@some
@given(said=pictures_of_captions, flips=st.booleans(), seed=st.integers(0, 9))
def test_seed_and_epoch_say_it_all(said: list[list[str]], flips: bool, seed: int) -> None:
    options = {"flips": flips, "seed": seed, "captions_per_image": 2}
    one, other = batches(said, **options), batches(said, **options)
    list(other.epoch(2))  # having drawn another epoch before makes no difference
    for ours, theirs in zip(one.epoch(3), other.epoch(3), strict=True):
        assert ours.positions == theirs.positions
        assert ours.mirrored == theirs.mirrored
        assert torch.equal(ours.words_BKT, theirs.words_BKT)


def test_other_epochs_and_seeds_have_another_order() -> None:
    said = [["a"]] * 40

    def order(one: CaptionBatches, number: int) -> list[list[int]]:
        return [batch.positions for batch in one.epoch(number)]

    one = batches(said)
    orders = [order(one, 1), order(one, 2), order(batches(said, seed=2), 1)]
    assert len({str(each) for each in orders}) == 3
    assert len({str(sorted(map(sorted, each))) for each in orders}) == 3  # and other mixtures


@some
@given(said=pictures_of_captions, batch_images=st.integers(1, 5))
def test_the_longest_come_first_along_both_axes(said: list[list[str]], batch_images: int) -> None:
    for batch in batches(said, batch_images=batch_images).epoch(1):
        length_BK = (batch.words_BKT != PAD).sum(dim=-1)
        assert (length_BK[:, :-1] >= length_BK[:, 1:]).all()
        assert (length_BK[:-1, 0] >= length_BK[1:, 0]).all()
        assert length_BK[0, 0] == batch.words_BKT.shape[2]  # no wider than the longest
        assert (length_BK > 0).any(dim=0).all()  # and no more captions than some image has


def test_long_captions_are_cut_and_end() -> None:
    (rows,) = epoch_of(batches([["a dog a dog a", "a dog"]], max_words=3)).values()
    assert rows == [(A, DOG, A, END), (A, DOG, END)]


def test_mirrored_pictures_have_left_and_right_swapped() -> None:
    said = [["a dog left", "right"]] * 400
    mirrored = 0
    for batch in batches(said, flips=True).epoch(1):
        for position, flipped in zip(batch.positions, batch.mirrored, strict=True):
            first, second = (LEFT, RIGHT) if not flipped else (RIGHT, LEFT)
            assert captions_of(batch)[position] == [(A, DOG, first, END), (second, END)]
            mirrored += flipped
    assert abs(mirrored - 200) < 5 * 10  # half, give or take five standard deviations


def test_without_flips_nothing_is_mirrored() -> None:
    for batch in batches([["left"]] * 40).epoch(1):
        assert batch.mirrored == [False] * len(batch.positions)
        assert (batch.words_BKT == torch.tensor([LEFT, END])).all()


def test_little_of_what_is_computed_is_padding() -> None:
    """On lengths like Flickr8k's (mean 10.8, deviation 3.8). The decoder computes, at each word,
    the leading images times the leading captions that are still alive."""
    lengths = np.random.default_rng(0).normal(10.8, 3.8, (1000, 5)).round().clip(2, 35)
    said = [[" ".join(["a"] * int(length)) for length in image] for image in lengths]
    computed = words = 0
    for batch in batches(said, batch_images=64).epoch(1):
        spoken_BKT = batch.words_BKT != PAD
        for spoken_BK in spoken_BKT.unbind(dim=2):
            alive_b, alive_k = spoken_BK.nonzero().amax(dim=0).tolist()
            computed += (alive_b + 1) * (alive_k + 1)
        words += int(spoken_BKT.sum())
    assert words / computed > 0.8


def test_phrases_go_with_their_caption() -> None:
    """Whatever the order of the batch; a caption of other words has none."""
    dog = Phrase("a dog", (0, 2), 1, ("animals",), ((0.0, 0.0, 0.25, 1.0),))
    grounded = {0: [Grounded(0, "a dog left", ("a", "dog", "left"), (dog,))]}
    said = [["a dog", "a dog left", "A dog, left."], ["a dog left"]]
    (batch,) = batches(said, grounded=grounded).epoch(1)
    first = batch.positions.index(0)
    assert captions_of(batch)[0] == [ids("a dog left"), ids("A dog, left."), ids("a dog")]
    assert batch.phrases[first] == [(dog,), (dog,), ()]
    assert batch.phrases[1 - first] == [()]  # another image


def test_boxes_are_mirrored_with_their_picture() -> None:
    dog = Phrase("a dog", (0, 2), 1, ("animals",), ((0.0, 0.0, 0.25, 1.0),))
    grounded = {0: [Grounded(0, "a dog left", ("a", "dog", "left"), (dog,))]}
    one = batches([["a dog left"]], flips=True, grounded=grounded)
    seen = set()
    for number in range(20):
        (batch,) = one.epoch(number)
        (((phrase,),),) = batch.phrases
        seen.add((batch.mirrored[0], phrase.boxes))
    assert seen == {(False, ((0.0, 0.0, 0.25, 1.0),)), (True, ((0.75, 0.0, 1.0, 1.0),))}
