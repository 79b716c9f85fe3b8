"""What may be compared, and what is refused in one line."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import MakePicture

from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.config import DataSettings
from showattend.corpus import ScoreError
from showattend.datasets import Picture, load_split
from showattend.results import write_results
from showattend.sides import CompareError, caption_sides, describe_device, find_sides, same_data
from showattend.vocabulary import Vocabulary

CPU = torch.device("cpu")
SHAPES = DataSettings(kind="shapes", train_images=6, val_images=5)


@pytest.fixture
def model(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "a", checkpoint)
    return tmp_path / "a"


@pytest.fixture
def pictures() -> list[Picture]:
    return load_split(SHAPES, "val")


def test_sides_are_models_runs_and_results(model: Path, tmp_path: Path) -> None:
    save = tmp_path / "b,c"  # a folder's name may hold a comma
    save.mkdir()
    sides = find_sides([f"{model},soft", "captions.json", str(save)])
    assert [[source.path.name for source in side] for side in sides.values()] == [
        ["a", "soft"],
        ["captions.json"],
        ["b,c"],
    ]
    assert [source.is_results for side in sides.values() for source in side] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["soft"], "only one side"),
        (["soft", "soft"], "soft: is soft again"),
        (["soft", "rewarded,soft"], "soft: is soft again"),
        (["soft", "sfot"], "sfot: neither a shipped model"),
    ],
)
def test_sides_that_are_none(words: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        find_sides(words)


def test_data_are_the_same_by_what_the_split_holds() -> None:
    more = SHAPES.model_copy(update={"train_images": 7, "min_count": 2})
    assert same_data({"a": SHAPES, "b": more}, "val") == SHAPES


def test_other_images_are_refused() -> None:
    fewer = SHAPES.model_copy(update={"val_images": 4})
    with pytest.raises(
        CompareError, match=r"a and b: the val splits .* other images, for .*--data"
    ):
        same_data({"a": SHAPES, "b": fewer}, "val")


def test_other_references_are_refused(make_picture: MakePicture, tmp_path: Path) -> None:
    make_picture("a.png")
    for name, caption in (("one", "a dog"), ("other", "a cat")):
        (tmp_path / f"{name}.csv").write_text(f"image,caption,split\na.png,{caption},val\n")
    one, other = (
        DataSettings(kind="folder", root=tmp_path, captions=tmp_path / f"{name}.csv")
        for name in ("one", "other")
    )
    with pytest.raises(CompareError, match=r"other references, for example of 'a\.png'"):
        same_data({"a": one, "b": other}, "val")


def test_data_that_are_gone_cannot_be_compared(tmp_path: Path) -> None:
    gone = DataSettings(kind="flickr8k", root=tmp_path / "gone")
    with pytest.raises(CompareError, match=r"cannot be compared \(.*gone.*--data CONFIG"):
        same_data({"a": SHAPES, "b": gone}, "val")


def test_models_and_results_are_captioned_alike(
    model: Path, pictures: list[Picture], tmp_path: Path
) -> None:
    """Results come in the split's order, whatever their own."""
    file = tmp_path / "other.json"
    write_results(file, {picture.image_id: "a dog" for picture in reversed(pictures)})
    runs, opened = caption_sides(find_sides([str(model), str(file)]), pictures, CPU, beam_size=1)
    ours, theirs = (side[0] for side in runs.values())
    assert list(ours.texts) == list(theirs.texts) == [picture.image_id for picture in opened]
    assert ours.texts == {image: caption.text for image, caption in ours.captions.items()}
    assert ours.milliseconds is not None and ours.milliseconds > 0
    assert (theirs.captions, theirs.checkpoint, theirs.milliseconds) == ({}, None, None)


@pytest.mark.parametrize("change", [1, -1])
def test_results_of_other_images_are_refused(
    change: int, pictures: list[Picture], tmp_path: Path
) -> None:
    images = [picture.image_id for picture in pictures]
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    write_results(files[0], dict.fromkeys(images, "a dog"))
    write_results(files[1], dict.fromkeys([*images, "more"] if change > 0 else images[:-1], "a"))
    with pytest.raises(ScoreError, match=r"b\.json: 1 image\(s\) .* give results of this split"):
        caption_sides(find_sides([str(file) for file in files]), pictures, CPU)


def test_words_of_another_tokenizer_are_refused(
    checkpoint: Checkpoint, model: Path, pictures: list[Picture], tmp_path: Path
) -> None:
    words = ["a", "Dog", "cat", "on", "grass"]
    save_checkpoint(tmp_path / "b", replace(checkpoint, vocabulary=Vocabulary(words)))
    sides = find_sides([str(model), str(tmp_path / "b")])
    with pytest.raises(CompareError, match=r"b: .* another tokenizer: 'Dog' is scored as 'dog'"):
        caption_sides(sides, pictures, CPU)


def test_runs_of_other_models_are_not_joined(
    checkpoint: Checkpoint, model: Path, pictures: list[Picture], tmp_path: Path
) -> None:
    words = ["a", "dog", "cat", "in", "grass"]
    save_checkpoint(tmp_path / "b", replace(checkpoint, vocabulary=Vocabulary(words)))
    sides = find_sides([f"{model},{tmp_path / 'b'}", "soft"])
    with pytest.raises(CompareError, match="b has another vocabulary than"):
        caption_sides(sides, pictures, CPU)
    file = tmp_path / "c.json"
    write_results(file, {picture.image_id: "a" for picture in pictures})
    with pytest.raises(CompareError, match="joins models and results"):
        caption_sides(find_sides([f"{model},{file}", "soft"]), pictures, CPU)


def test_the_hardware_is_named() -> None:
    assert describe_device(CPU).endswith(" thread(s)")
