"""From annotations to captions that COCO's own reader takes, and what annotations may hold."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

import showattend
from showattend.cli import main

ROOT = Path(showattend.__file__).parents[1]
SAMPLE = ROOT.parent / "shared" / "coco_sample"
CONFIG = ROOT / "configs" / "coco_soft.yaml"
#: coco_soft.yaml with a network that trains in seconds.
TINY = [
    "data.kind=coco",
    "data.captions=null",
    "data.min_count=1",
    "data.corrupt=fatal",
    "encoder.name=test_resnet",
    "encoder.pretrained=false",
    "pixels.size=64",
    "decoder.embedding=8",
    "decoder.hidden=8",
    "decoder.attention=8",
    "decoder.projection=8",
    "train.bf16=false",
]


@pytest.mark.slow
@pytest.mark.skipif(not SAMPLE.is_dir(), reason="needs ../shared/coco_sample")
def test_cocos_own_files_go_the_whole_path(tmp_path: Path) -> None:
    """Annotations -> grids -> 20 steps of training -> captions -> COCO.loadRes."""
    whole = json.loads((SAMPLE / "annotations" / "captions_train2017.json").read_text())
    coco = tmp_path / "coco"
    (coco / "annotations").mkdir(parents=True)
    for split, images in (("train", whole["images"][:60]), ("val", whole["images"][60:])):
        (coco / f"{split}2017").symlink_to(SAMPLE / "train2017")
        ids = {image["id"] for image in images}
        said = [each for each in whole["annotations"] if each["image_id"] in ids]
        path = coco / "annotations" / f"captions_{split}2017.json"
        path.write_text(json.dumps(whole | {"images": images, "annotations": said}))

    run, scores = tmp_path / "run", tmp_path / "scores"
    settings = [
        "data.kind=coco",
        "data.captions=null",
        f"data.root={coco}",
        "encoder.name=tf_efficientnet_lite0",
        "pixels.size=224",
        "decoder.hidden=128",
        "train.epochs=1",
        "train.batch_images=3",
        "train.bf16=false",
    ]
    cache = ["--cache", str(tmp_path / "grids")]
    assert main(["train", "--config", str(CONFIG), "--run", str(run), *cache, *settings]) == 0
    (line,) = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    assert line["loss"] < np.log(2_000)  # less than a guess among so many words
    assert main(["evaluate", "--checkpoint", str(run), "--out", str(scores)]) == 0

    (results,) = scores.glob("*results*.json")
    with contextlib.redirect_stdout(io.StringIO()):
        references = COCO(str(coco / "annotations" / "captions_val2017.json"))
        taken = references.loadRes(str(results))
    assert sorted(taken.getImgIds()) == sorted(references.getImgIds())
    assert all(each["caption"] for each in taken.anns.values())


def write_coco(
    folder: Path, captions: dict[int, list[Any]], absent: set[int] | None = None
) -> Path:
    """A COCO of plain pictures, the same for training and validation; some files are not there."""
    (folder / "annotations").mkdir(parents=True)
    images = [{"id": image_id, "file_name": f"{image_id}.png"} for image_id in captions]
    pairs = [(image_id, said) for image_id, every in captions.items() for said in every]
    annotations = [
        {"id": number, "image_id": image_id, "caption": said}
        for number, (image_id, said) in enumerate(pairs)
    ]
    for split in ("train", "val"):
        (folder / f"{split}2017").mkdir()
        for image_id in captions.keys() - (absent or set()):
            picture = Image.new("RGB", (40, 30), (image_id * 40 % 256, 100, 50))
            picture.save(folder / f"{split}2017" / f"{image_id}.png")
        path = folder / "annotations" / f"captions_{split}2017.json"
        path.write_text(json.dumps({"images": images, "annotations": annotations}))
    return folder


def train(root: Path, tmp_path: Path, *more: str) -> int:
    run, cache = tmp_path / "run", tmp_path / "grids"
    words = ["train", "--config", CONFIG, "--run", run, "--cache", cache, f"data.root={root}"]
    return main([*map(str, words), *TINY, "train.epochs=2", "train.batch_images=2", *more])


def test_what_people_write_goes_the_whole_path(tmp_path: Path) -> None:
    """One caption or seven, one word or 200, signs alone, letters of every script."""
    root = write_coco(
        tmp_path / "coco",
        {
            1: ["a dog"],
            2: [
                f"the {name} dog"
                for name in ("first", "second", "third", "4th", "5th", "6th", "7th")
            ],
            3: ["dog", "", "...", "   "],
            4: ["a dog and " * 67, "a dog"],
            5: ["ein süßer Hund", "一只狗在草地上", "собака 🐶 на траве", "كلب"],
        },
    )
    assert train(root, tmp_path) == 0
    lines = list(map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()))
    assert [line["epoch"] for line in lines] == [1, 2]
    assert all(np.isfinite(line["loss"]) for line in lines)
    words = json.loads((tmp_path / "run" / "best" / "config.json").read_text())["vocabulary"]
    assert {"süßer", "собака", "dog"} <= set(words)
    assert "" not in words


@pytest.mark.parametrize(
    ("captions", "problem"),
    [
        ({1: ["a dog"], 2: [None]}, "captions_train2017.json: a caption of image 2 is None, not a"),
        ({1: ["a dog"], 2: [["a", "b"]]}, "a caption of image 2 is ['a', 'b'], not a text"),
        ({1: ["a dog"], 2: [7]}, "a caption of image 2 is 7, not a text"),
        ({1: ["a dog"], 2: ["", "!"]}, "captions_train2017.json: image 2 has no caption"),
        ({1: ["a dog"], 2: []}, "captions_train2017.json: image 2 has no caption"),
    ],
)
def test_captions_that_are_none_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], captions: dict[int, Any], problem: str
) -> None:
    assert train(write_coco(tmp_path / "coco", captions), tmp_path) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_missing_image_ends_in_one_line_or_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    captions = {number: ["a dog", "a red dog"] for number in range(1, 5)}
    root = write_coco(tmp_path / "coco", captions, absent={3})
    assert train(root, tmp_path) == 2
    error = capsys.readouterr().err
    assert "3.png" in error and "data.corrupt=skip" in error
    assert error.count("\n") == 1
    assert train(root, tmp_path, "data.corrupt=skip") == 0
    assert "left out: " in capsys.readouterr().out
