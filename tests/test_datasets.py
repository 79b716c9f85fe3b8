"""Every published layout in miniature, and the one line that says what is wrong with one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from showattend.config import DataSettings
from showattend.datasets import DataError, Picture, load_split
from showattend.images import ImageError
from showattend.shapes import Scene, make_scene

SHARED = Path(__file__).resolve().parents[2] / "shared"


def settings(kind: Any, root: Path, **more: Any) -> DataSettings:
    return DataSettings(kind=kind, root=root, **more)


def read(data: DataSettings, split: str) -> dict[object, tuple[Path, tuple[str, ...]]]:
    found: dict[object, tuple[Path, tuple[str, ...]]] = {}
    for picture in load_split(data, split):
        assert isinstance(picture.source, Path)
        found[picture.image_id] = (picture.source, picture.captions)
    return found


def complaint(data: DataSettings, split: str = "train") -> str:
    with pytest.raises(DataError) as caught:
        load_split(data, split)
    line = str(caught.value)
    assert "\n" not in line
    return line


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


# Pictures


def test_a_picture_opens_and_tells_its_bytes_apart(tmp_path: Path) -> None:
    path = tmp_path / "red.png"
    Image.new("RGB", (3, 2), "red").save(path)
    picture = Picture(1, path, ("red",))
    assert picture.name == str(path)
    assert picture.open().getpixel((0, 0)) == (255, 0, 0)
    first = picture.digest()
    assert len(first) == 32
    Image.new("RGB", (3, 2), "blue").save(path)
    assert picture.digest() != first
    Image.new("RGB", (3, 2), "red").save(path)
    assert picture.digest() == first
    path.unlink()
    for read_it in (picture.open, picture.digest):
        with pytest.raises(ImageError, match=r"red\.png"):
            read_it()


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    """A pipe would be waited for for ever; a name with a null byte breaks Python's own calls."""
    os.mkfifo(tmp_path / "pipe.jpg")
    for name, problem in (
        ("pipe.jpg", "is a pipe"),
        ("a\0b.jpg", "cannot be read"),
        ("", "folder"),
    ):
        with pytest.raises(ImageError, match=problem) as caught:
            Picture(1, tmp_path / name, ("a dog",)).digest()
        assert str(caught.value).isprintable()


def test_a_drawn_picture_is_named_by_its_key() -> None:
    pictures = [
        Picture(scene.image_id, scene, scene.captions)
        for scene in (make_scene(0, "train", 0), make_scene(0, "train", 1))
    ]
    assert pictures[0].digest() == pictures[0].digest() != pictures[1].digest()
    assert isinstance(pictures[0].source, Scene)
    assert pictures[0].name == pictures[0].source.key
    assert pictures[0].open().mode == "RGB"


# Shapes


def test_shapes_are_drawn_not_read() -> None:
    data = DataSettings(kind="shapes", train_images=5, val_images=3, shapes_seed=7)
    sizes = {split: len(load_split(data, split)) for split in ("train", "val", "val_unseen")}
    assert sizes == {"train": 5, "val": 3, "val_unseen": 3}
    (scene, *_), first = [p.source for p in load_split(data, "val")], make_scene(7, "val", 0)
    assert scene == first
    assert load_split(data, "val")[0].captions == first.captions
    other = data.model_copy(update={"shapes_seed": 8})
    assert load_split(other, "val")[0].source != first
    assert complaint(data, "test") == ("shapes has no test split: choose train, val or val_unseen")


def test_an_unknown_split_is_refused() -> None:
    assert complaint(DataSettings(kind="shapes"), "dev") == (
        "split dev: choose one of train, val, test, val_unseen"
    )


# Flickr


@pytest.fixture
def flickr8k(tmp_path: Path) -> DataSettings:
    write(
        tmp_path / "Flickr8k.token.txt",
        "a.jpg#0\tA dog .\na.jpg#1\tA dog on grass .\nb.jpg#0\tA cat\t!\nc.jpg#0\tGrass .\n"
        "d.jpg.1#0\tOf an image that is in no list .\n",
    )
    write(tmp_path / "Flickr_8k.trainImages.txt", "b.jpg\na.jpg\n\n")
    write(tmp_path / "Flickr_8k.devImages.txt", "c.jpg\n")
    (tmp_path / "images").mkdir()
    return settings("flickr8k", tmp_path)


def test_flickr8k(flickr8k: DataSettings, tmp_path: Path) -> None:
    found = read(flickr8k, "train")
    assert list(found) == ["b.jpg", "a.jpg"]  # in the list's order
    assert found["a.jpg"] == (tmp_path / "images" / "a.jpg", ("A dog .", "A dog on grass ."))
    assert found["b.jpg"][1] == ("A cat\t!",)  # only the first tab parts
    assert list(read(flickr8k, "val")) == ["c.jpg"]


@pytest.mark.parametrize("name", ["Images", "Flicker8k_Dataset"])
def test_flickrs_folder_of_photographs_has_many_names(
    flickr8k: DataSettings, tmp_path: Path, name: str
) -> None:
    (tmp_path / "images").rename(tmp_path / name)
    assert read(flickr8k, "val")["c.jpg"][0] == tmp_path / name / "c.jpg"


def test_windows_line_ends_are_no_part_of_a_name(flickr8k: DataSettings, tmp_path: Path) -> None:
    for name in ("Flickr8k.token.txt", "Flickr_8k.trainImages.txt"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(flickr8k, "train")["a.jpg"][1] == ("A dog .", "A dog on grass .")


def test_flickr8k_incomplete_is_one_line(flickr8k: DataSettings, tmp_path: Path) -> None:
    assert complaint(flickr8k, "test").startswith(
        f"{tmp_path / 'Flickr_8k.testImages.txt'}: cannot be read ("
    )
    assert complaint(flickr8k, "val_unseen") == (
        "flickr8k has no val_unseen split: choose one of train, val, test"
    )
    write(tmp_path / "Flickr_8k.testImages.txt", "z.jpg\na.jpg\ny.jpg\n")
    assert complaint(flickr8k, "test") == (
        f"{tmp_path / 'Flickr8k.token.txt'}: has no caption of 2 images, such as z.jpg"
    )
    write(tmp_path / "Flickr_8k.testImages.txt", "\n")
    assert complaint(flickr8k, "test") == ("flickr8k: the test split is empty; look at data.root")
    (tmp_path / "images").rmdir()
    assert complaint(flickr8k).startswith(f"{tmp_path}: no folder of photographs; expected one of")
    nowhere = settings("flickr8k", tmp_path / "no")
    assert complaint(nowhere) == (
        f"data.root {tmp_path / 'no'}: no such folder; say where flickr8k lies"
    )
    (tmp_path / "Flickr8k.token.txt").write_bytes(b"\xff\xfe")
    (tmp_path / "images").mkdir()
    assert complaint(flickr8k).startswith(f"{tmp_path / 'Flickr8k.token.txt'}: cannot be read (")


def test_flickr30k(tmp_path: Path) -> None:
    write(tmp_path / "results_20130124.token", "1.jpg#0\tA dog .\n2.jpg#0\tA cat .\n")
    write(tmp_path / "train.txt", "1\n")  # Flickr30k Entities lists numbers
    write(tmp_path / "test.txt", "2.jpg\n")
    folder = tmp_path / "flickr30k-images"
    folder.mkdir()
    data = settings("flickr30k", tmp_path)
    assert read(data, "train") == {"1.jpg": (folder / "1.jpg", ("A dog .",))}
    assert read(data, "test") == {"2.jpg": (folder / "2.jpg", ("A cat .",))}
    assert complaint(data, "val").startswith(f"{tmp_path / 'val.txt'}: cannot be read (")


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not on this machine")
def test_flickr8k_as_published() -> None:
    data = settings("flickr8k", SHARED / "flickr8k")
    train, val = load_split(data, "train"), load_split(data, "val")
    assert (len(train), len(val)) == (6000, 1000)
    assert {len(picture.captions) for picture in train} == {5}
    assert not {picture.image_id for picture in train} & {picture.image_id for picture in val}
    assert train[0].open().size == (224, 224)


# COCO


def coco_tree() -> dict[str, Any]:
    return {
        "images": [
            {"id": 9, "file_name": "000009.jpg"},
            {"id": 3, "file_name": "000003.jpg"},
        ],
        "annotations": [
            {"id": 1, "image_id": 3, "caption": "A dog."},
            {"id": 2, "image_id": 9, "caption": "A cat."},
            {"id": 5, "image_id": 3, "caption": "Grass."},
        ],
    }


@pytest.mark.parametrize("year", ["2017", "2014"])
def test_coco(tmp_path: Path, year: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "annotations" / f"captions_val{year}.json"
    write(path, json.dumps(coco_tree()))
    folder = tmp_path / f"val{year}"
    assert read(settings("coco", tmp_path), "val") == {
        3: (folder / "000003.jpg", ("A dog.", "Grass.")),
        9: (folder / "000009.jpg", ("A cat.",)),
    }
    assert capsys.readouterr().out == ""  # the reader's own chatter


#: What JSON may hold where an id should be, and how it is shown.
WRONG_IDS = [
    ([1], "[1]"),
    ({}, "{}"),
    (None, "None"),
    (3.0, "3.0"),
    (True, "True"),
    ([0] * 9999, "[0, 0, 0, 0, 0, 0, ...]"),
]


def wrong_id(path: Path, shown: str) -> str:
    return f"{path}: the id of an image is {shown}, not a whole number or a text; correct it"


def doubled(path: Path, shown: str) -> str:
    return f"{path}: two images of a split have the id {shown}; remove one or give it another id"


@pytest.mark.parametrize(("image_id", "shown"), WRONG_IDS)
def test_an_id_of_coco_that_is_none_is_named(tmp_path: Path, image_id: object, shown: str) -> None:
    tree = coco_tree()
    tree["images"][1]["id"] = image_id
    path = write(tmp_path / "annotations" / "captions_val2017.json", json.dumps(tree))
    assert complaint(settings("coco", tmp_path), "val") == wrong_id(path, shown)


def test_cocos_doubles_are_named(tmp_path: Path) -> None:
    tree = coco_tree()
    tree["images"].append({"id": 9, "file_name": "other.jpg"})
    path = write(tmp_path / "annotations" / "captions_val2017.json", json.dumps(tree))
    assert complaint(settings("coco", tmp_path), "val") == doubled(path, "9")


def without(tree: dict[str, Any], part: str, key: str) -> dict[str, Any]:
    del tree[part][0][key]
    return tree


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[1]",
        '{"images": 3, "annotations": []}',
        '{"images": [], "annotations": [3]}',
        '{"images": [3], "annotations": []}',
        '{"annotations": []}',
        '{"images": [{"id": ' + "9" * 5000 + '}], "annotations": []}',
        json.dumps(without(coco_tree(), "images", "file_name")),
        json.dumps(without(coco_tree(), "images", "id")),
        json.dumps(without(coco_tree(), "annotations", "caption")),
        b"\xff\xfe{}",
        "[" * 100_000,
    ],
)
def test_malformed_coco_is_one_line(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "annotations" / "captions_train2017.json"
    path.parent.mkdir()
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert complaint(settings("coco", tmp_path)).startswith(
        f"{path}: is not a COCO captions file ("
    )


def test_coco_incomplete_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "annotations" / "captions_train2017.json"
    data = settings("coco", tmp_path)
    assert complaint(data) == (
        f"{path.parent}: has neither captions_train2017.json nor that of 2014; a training needs "
        "those of train and val (of one's own splits: data.kind=folder)"
    )
    tree = coco_tree()
    tree["annotations"] = tree["annotations"][:1]
    write(path, json.dumps(tree))
    assert complaint(data) == f"{path}: image 9 has no caption"
    tree["annotations"].append({"id": 2, "image_id": 9, "caption": 7})
    write(path, json.dumps(tree))
    assert complaint(data) == f"{path}: a caption of image 9 is 7, not a text"


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not on this machine")
def test_coco_as_published() -> None:
    pictures = load_split(settings("coco", SHARED / "coco_sample"), "train")
    assert len(pictures) == 80
    assert all(len(picture.captions) >= 5 for picture in pictures)
    assert all(picture.open().mode == "RGB" for picture in pictures[:3])


# Karpathy's splits


def karpathy_tree() -> dict[str, Any]:
    def image(number: int, split: str, **more: Any) -> dict[str, Any]:
        sentences = [{"raw": f"Caption {number}.", "tokens": ["not", "used"]}]
        return {"filename": f"{number}.jpg", "split": split, "sentences": sentences, **more}

    return {
        "images": [
            image(1, "train", cocoid=11, filepath="train2014"),
            image(2, "restval", cocoid=12, filepath="val2014"),
            image(3, "val", cocoid=13, filepath="val2014"),
            image(4, "test"),  # as in dataset_flickr8k.json
        ]
    }


def karpathy(tmp_path: Path, tree: object, **more: Any) -> DataSettings:
    path = write(tmp_path / "dataset.json", json.dumps(tree))
    return settings("karpathy", tmp_path, captions=path, **more)


def test_karpathy(tmp_path: Path) -> None:
    data = karpathy(tmp_path, karpathy_tree())
    train = read(data, "train")
    assert list(train) == [11, 12]  # restval is training
    assert train[12] == (tmp_path / "val2014" / "2.jpg", ("Caption 2.",))
    assert list(read(data, "val")) == [13]
    assert read(data, "test") == {"4.jpg": (tmp_path / "4.jpg", ("Caption 4.",))}


def test_restval_can_be_left_out(tmp_path: Path) -> None:
    data = karpathy(tmp_path, karpathy_tree(), restval=False)
    assert list(read(data, "train")) == [11]


@pytest.mark.parametrize(
    "tree",
    [
        [1],
        {"pictures": []},
        {"images": [3]},
        {"images": [{"split": "train"}]},
        {"images": [{"filename": "1.jpg", "sentences": []}]},
        {"images": [{"filename": "1.jpg", "split": "train", "sentences": ["A dog."]}]},
    ],
)
def test_malformed_karpathy_is_one_line(tmp_path: Path, tree: object) -> None:
    data = karpathy(tmp_path, tree)
    assert complaint(data).startswith(
        f"{tmp_path / 'dataset.json'}: is not one of Karpathy's dataset_*.json ("
    )


def test_karpathy_that_is_no_json_or_not_there_is_one_line(tmp_path: Path) -> None:
    data = karpathy(tmp_path, {})
    for content in (b"{", b"\xff\xfe{}", b"[" * 100_000):
        (tmp_path / "dataset.json").write_bytes(content)
        assert "is not one of Karpathy's dataset_*.json (" in complaint(data)
    (tmp_path / "dataset.json").unlink()
    assert complaint(data) == (
        f"{tmp_path / 'dataset.json'}: cannot be read (No such file or directory); data.captions "
        "names Karpathy's dataset_coco.json, which scripts/download_coco.py --year 2014 "
        "--karpathy gets"
    )


@pytest.mark.parametrize(("image_id", "shown"), WRONG_IDS)
def test_an_id_of_karpathys_that_is_none_is_named(
    tmp_path: Path, image_id: object, shown: str
) -> None:
    """Seen when the split is read: captions by such an id fail only after a whole epoch."""
    tree = karpathy_tree()
    tree["images"][2]["cocoid"] = image_id
    data = karpathy(tmp_path, tree)
    assert complaint(data, "val") == wrong_id(tmp_path / "dataset.json", shown)
    assert list(read(data, "train")) == [11, 12]  # the others are right


def test_karpathys_doubles_are_named(tmp_path: Path) -> None:
    """Of a split: its captions would overwrite each other."""
    tree = karpathy_tree()
    tree["images"][1]["cocoid"] = 11  # restval, which counts as training
    data = karpathy(tmp_path, tree)
    assert complaint(data) == doubled(tmp_path / "dataset.json", "11")
    assert list(read(data.model_copy(update={"restval": False}), "train")) == [11]
    tree["images"].append(tree["images"][3])
    assert complaint(karpathy(tmp_path, tree), "test") == doubled(
        tmp_path / "dataset.json", "'4.jpg'"
    )


def test_an_id_of_karpathys_too_long_for_a_number_is_one_line(tmp_path: Path) -> None:
    data = karpathy(tmp_path, {})
    text = json.dumps(karpathy_tree()).replace('"cocoid": 11', '"cocoid": ' + "9" * 5000)
    write(tmp_path / "dataset.json", text)
    line = complaint(data)
    assert line.startswith(f"{tmp_path / 'dataset.json'}: is not one of Karpathy's dataset_*.json")
    assert len(line) < 500


# One's own folder


def folder(tmp_path: Path, text: str, name: str = "captions.csv") -> DataSettings:
    return settings("folder", tmp_path, captions=write(tmp_path / name, text))


# h.jpg is one that would be validation if nothing were said of it.
CSV = 'image,caption,split\nh.jpg,"A dog, on grass.",train\nh.jpg,A dog.,\nb/c.png,A cat.,val\n'
JSONL = "\n".join(
    json.dumps({"image": image, "caption": caption, "split": split})
    for image, caption, split in [
        ("h.jpg", "A dog, on grass.", "train"),
        ("h.jpg", "A dog.", None),
        ("b/c.png", "A cat.", "val"),
    ]
)


@pytest.mark.parametrize(
    ("name", "text"), [("c.csv", CSV), ("C.CSV", CSV), ("c.jsonl", JSONL + "\n\n")]
)
def test_a_folder_with_csv_or_jsonl(tmp_path: Path, name: str, text: str) -> None:
    """A row without a split belongs where the other rows of its image do."""
    data = folder(tmp_path, text, name)
    assert read(data, "train") == {"h.jpg": (tmp_path / "h.jpg", ("A dog, on grass.", "A dog."))}
    assert read(data, "val") == {"b/c.png": (tmp_path / "b" / "c.png", ("A cat.",))}
    assert complaint(data, "test") == (
        f"{data.captions}: no image is in the test split; write test in the column `split` of some"
    )


def test_a_csv_as_excel_writes_it(tmp_path: Path) -> None:
    """A mark in front, and Windows' line ends."""
    data = folder(tmp_path, "\ufeff" + CSV.replace("\n", "\r\n"))
    assert list(read(data, "train")) == ["h.jpg"]


def test_without_splits_a_tenth_is_validation(tmp_path: Path) -> None:
    names = [f"{number}.jpg" for number in range(1000)]
    rows = "".join(f"{name},A dog.\n" for name in names)
    data = folder(tmp_path, "image,caption\n" + rows)
    val, train = read(data, "val"), read(data, "train")
    assert val.keys() | train.keys() == set(names)
    assert not val.keys() & train.keys()
    assert 50 < len(val) < 150  # 100, give or take five standard deviations
    more = folder(tmp_path, f"image,caption\n{rows}new.jpg,A cat.\n")
    assert read(more, "val").keys() - {"new.jpg"} == val.keys()  # the others stay where they were


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image,text\na.jpg,A dog.\n", "row 1 needs the texts `image` and `caption`"),
        ("image,caption\na.jpg,A dog.\nb.jpg\n", "row 2 needs the texts `image` and `caption`"),
        ("image,caption\na.jpg,\n", "image a.jpg has no caption"),
        (
            "image,caption,split\na.jpg,A dog.,dev\n",
            "row 1 has split dev; use train, val, test",
        ),
        (
            "image,caption\na.jpg,A dog.\nb.jpg,A dog, running\n",
            "row 2 has more cells than the header names; put a caption with commas in quotes",
        ),
        (
            "image,caption,split\na.jpg,A dog,train\nb.jpg,A cat,\na.jpg,Grass,val\n",
            "row 3 has a.jpg in the split val, a row before it in train; an image belongs to one",
        ),
    ],
)
def test_a_wrong_row_of_a_csv_is_named(tmp_path: Path, text: str, expected: str) -> None:
    data = folder(tmp_path, text)
    lines = {
        complaint(data, split).removeprefix(f"{data.captions}: ") for split in ("train", "val")
    }
    assert expected in lines


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('["a.jpg", "A dog."]', "row 1 needs the texts `image` and `caption`"),
        ("7", "row 1 needs the texts `image` and `caption`"),
        ('{"image": 7, "caption": "A dog."}', "row 1 needs the texts `image` and `caption`"),
        ('{"image": "a.jpg", "caption": ["A dog."]}', "row 1 needs the texts"),
        ('{"image": "a.jpg", "caption": "A dog.", "split": 7}', "row 1 has split 7; use train"),
        ("{", "is not a CSV or JSONL of captions ("),
        ("[" * 100_000, "is not a CSV or JSONL of captions ("),
        (f'{{"image": {"9" * 5000}}}', "is not a CSV or JSONL of captions ("),
    ],
)
def test_a_wrong_row_of_a_jsonl_is_named(tmp_path: Path, line: str, expected: str) -> None:
    data = folder(tmp_path, line + "\n", "captions.jsonl")
    assert complaint(data).startswith(f"{tmp_path / 'captions.jsonl'}: {expected}")


def test_captions_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    for empty in ("", "image,caption,split\n", "\n\n"):
        data = folder(tmp_path, empty)
        assert complaint(data) == (
            f"{data.captions}: has no row; data.captions needs rows of `image` and `caption`"
        )
    path = tmp_path / "captions.csv"
    path.write_bytes(b"image,caption\na.jpg,\xff\xfe\n")
    assert complaint(data).startswith(f"{path}: is not a CSV or JSONL of captions (")
    path.unlink()
    assert complaint(data).startswith(f"{path}: is not a CSV or JSONL of captions (")
    os.mkdir(path)  # noqa: PTH102
    assert complaint(data).startswith(f"{path}: is not a CSV or JSONL of captions (")


def test_cells_that_excel_leaves_empty_are_no_part_of_a_caption(tmp_path: Path) -> None:
    data = folder(tmp_path, "image,caption,split\na.jpg,A dog.,train,, \n")
    assert read(data, "train")["a.jpg"][1] == ("A dog.",)


def test_half_a_letter_in_a_name_breaks_nothing(tmp_path: Path) -> None:
    row = '{"image": "\\ud800.jpg", "caption": "A dog.", "split": "train"}\n'
    (picture,) = load_split(folder(tmp_path, row, "captions.jsonl"), "train")
    with pytest.raises(ImageError, match="cannot be read"):
        picture.digest()


def test_blank_captions_are_left_out(tmp_path: Path) -> None:
    data = folder(tmp_path, 'image,caption,split\na.jpg,"  ",train\na.jpg,A dog.,train\n')
    assert read(data, "train")["a.jpg"][1] == ("A dog.",)
