"""Photographs with what people said of them, in the layouts that the data sets are published in."""

import contextlib
import csv
import hashlib
import io
import json
import reprlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import PIL.Image
from pycocotools.coco import COCO

from showattend.config import DataSettings
from showattend.corpus import ImageId as ImageId
from showattend.images import open_photograph, read_content
from showattend.shapes import Scene as ShapeScene
from showattend.shapes import make_scenes

Split = str
SPLITS: tuple[Split, ...] = ("train", "val", "test", "val_unseen")

#: What reading somebody's JSON may raise when it is not what it should be.
_MALFORMED = (
    OSError,
    KeyError,
    TypeError,
    AttributeError,
    ValueError,  # no JSON, no UTF-8, or a number of thousands of digits
    RecursionError,  # a thousand brackets within one another
)


class DataError(ValueError):
    """A data set is missing, incomplete or malformed: one clear line."""


@dataclass(frozen=True)
class Picture:
    """One photograph (or drawn scene) and its captions, raw as published."""

    image_id: ImageId
    source: Path | ShapeScene
    captions: tuple[str, ...]

    @property
    def name(self) -> str:
        """What error lines call it."""
        return str(self.source) if isinstance(self.source, Path) else self.source.key

    def open(self) -> PIL.Image.Image:
        """Upright RGB.

        Raises:
            ImageError: the file cannot be opened.
        """
        if isinstance(self.source, Path):
            return open_photograph(self.source)
        return self.source.draw()

    def digest(self) -> str:
        """32 hex digits that change whenever the picture's bytes do.

        Raises:
            ImageError: the file cannot be read.
        """
        if not isinstance(self.source, Path):
            return _hex(self.source.key.encode())
        return _hex(read_content(self.source))


def load_split(data: DataSettings, split: Split) -> list[Picture]:
    """All pictures of one split, in the data set's own order.

    Raises:
        DataError: unknown split, missing or malformed files; one line.
    """
    if split not in SPLITS:
        raise DataError(f"split {split}: choose one of {', '.join(SPLITS)}")
    readers: dict[str, Callable[[DataSettings, Split], list[Picture]]] = {
        "shapes": _shapes,
        "flickr8k": _flickr8k,
        "flickr30k": _flickr30k,
        "coco": _coco,
        "karpathy": _karpathy,
        "folder": _folder,
    }
    pictures = readers[data.kind](data, split)
    if not pictures:
        where = "data.root" if data.captions is None else "data.captions"
        raise DataError(f"{data.kind}: the {split} split is empty; look at {where}")
    return pictures


def _hex(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _shapes(data: DataSettings, split: Split) -> list[Picture]:
    if split == "test":
        raise DataError("shapes has no test split: choose train, val or val_unseen")
    count = data.train_images if split == "train" else data.val_images
    scenes = make_scenes(data.shapes_seed, split, count)
    return [Picture(scene.image_id, scene, scene.captions) for scene in scenes]


def _flickr8k(data: DataSettings, split: Split) -> list[Picture]:
    """Hodosh et al. 2013: one token file, one list of images a split."""
    lists = {"train": "train", "val": "dev", "test": "test"}
    listed = _split_list(data, split, {k: f"Flickr_8k.{v}Images.txt" for k, v in lists.items()})
    root = _root(data)
    return _token_pictures(root / "Flickr8k.token.txt", listed, _image_folder(root))


def _flickr30k(data: DataSettings, split: Split) -> list[Picture]:
    """Young et al. 2014 with the split lists of Flickr30k Entities (Plummer et al. 2015)."""
    listed = _split_list(data, split, {name: f"{name}.txt" for name in ("train", "val", "test")})
    names = [name if name.endswith(".jpg") else f"{name}.jpg" for name in listed]
    root = _root(data)
    return _token_pictures(root / "results_20130124.token", names, _image_folder(root))


def _coco(data: DataSettings, split: Split) -> list[Picture]:
    """Lin et al. 2014: annotations/captions_SPLITYEAR.json beside the photographs' SPLITYEAR/."""
    for year in ("2017", "2014"):
        path = _root(data) / "annotations" / f"captions_{split}{year}.json"
        if path.is_file():
            return _coco_pictures(path, _root(data) / f"{split}{year}")
    raise DataError(
        f"{path.parent}: has neither captions_{split}2017.json nor that of 2014; a training needs "
        "those of train and val (of one's own splits: data.kind=folder)"
    )


def _coco_pictures(path: Path, folder: Path) -> list[Picture]:
    try:
        coco = _coco_index(path)
        return [
            _picture(
                image_id,
                folder / coco.imgs[image_id]["file_name"],
                [annotation["caption"] for annotation in coco.imgToAnns[image_id]],
                path,
            )
            for image_id in sorted(coco.imgs)
        ]
    except DataError:  # a ValueError too, and a clear line already
        raise
    except _MALFORMED as error:
        raise DataError(f"{path}: is not a COCO captions file ({error!r})") from None


def _coco_index(path: Path) -> COCO:
    """pycocotools' index; it would keep the last of two images with one id, and say nothing."""
    coco = COCO()
    coco.dataset = json.loads(path.read_text(encoding="utf-8"))
    _need_own_ids([image["id"] for image in coco.dataset["images"]], path)
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        coco.createIndex()
    return coco


def _karpathy(data: DataSettings, split: Split) -> list[Picture]:
    """Karpathy and Fei-Fei 2015: one JSON of all images; ``restval`` counts as training."""
    path = _captions(data)
    wanted = {split, "restval"} if split == "train" and data.restval else {split}
    try:
        images = json.loads(path.read_text(encoding="utf-8"))["images"]
        images = [image for image in images if image["split"] in wanted]
        ids = [image.get("cocoid", image["filename"]) for image in images]
        _need_own_ids(ids, path)
        return [
            _picture(
                image_id,
                _root(data) / image.get("filepath", "") / image["filename"],
                [sentence["raw"] for sentence in image["sentences"]],
                path,
            )
            for image_id, image in zip(ids, images, strict=True)
        ]
    except DataError:  # a ValueError too, and a clear line already
        raise
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); data.captions names Karpathy's "
            "dataset_coco.json, which scripts/download_coco.py --year 2014 --karpathy gets"
        ) from None
    except _MALFORMED as error:
        raise DataError(f"{path}: is not one of Karpathy's dataset_*.json ({error!r})") from None


def _folder(data: DataSettings, split: Split) -> list[Picture]:
    """One's own photographs: rows of ``image``, ``caption`` and, if wanted, ``split``.

    Of the images without a split, a tenth (chosen by a hash of the name, so that adding images
    moves none) is validation and the rest is training.
    """
    path = _captions(data)
    captions: dict[str, list[str]] = {}
    splits: dict[str, Split] = {}
    for number, row in enumerate(_rows(path), start=1):
        name, caption, own = _folder_row(row, f"{path}: row {number}")
        captions.setdefault(name, []).append(caption)
        if own and splits.setdefault(name, own) != own:
            raise DataError(
                f"{path}: row {number} has {name} in the split {own}, a row before it in "
                f"{splits[name]}; an image belongs to one"
            )
    if not captions:
        raise DataError(f"{path}: has no row; data.captions needs rows of `image` and `caption`")
    root = _root(data)
    pictures = [
        _picture(name, root / name, said, path)
        for name, said in captions.items()
        if splits.get(name, _own_split(name)) == split
    ]
    if not pictures:
        raise DataError(
            f"{path}: no image is in the {split} split; write {split} in the column `split` of some"
        )
    return pictures


def _folder_row(row: Any, place: str) -> tuple[str, str, Split | None]:
    """Image, caption and split, if it has one, of a row; ``place`` names it in the error line."""
    row = row if isinstance(row, dict) else {}
    name, caption, split = row.get("image"), row.get("caption"), row.get("split")
    if not isinstance(name, str) or not isinstance(caption, str):
        raise DataError(f"{place} needs the texts `image` and `caption`")
    if any(map(str.strip, row.get(None, []))):  # the cells that a CSV's header has no name for
        raise DataError(
            f"{place} has more cells than the header names; put a caption with commas in quotes"
        )
    if split and split not in SPLITS:
        raise DataError(f"{place} has split {split}; use {', '.join(SPLITS[:3])}")
    return name, caption, split or None


def _own_split(name: str) -> Split:
    hashed = _hex(name.encode(errors="surrogatepass"))  # JSON can write a half of a letter
    return "val" if int(hashed[:8], 16) % 10 == 0 else "train"


def _rows(path: Path) -> Iterator[Any]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # Excel puts a mark in front
            if path.suffix.lower() == ".csv":
                yield from csv.DictReader(file)
            else:
                yield from (json.loads(line) for line in file if line.strip())
    except (OSError, ValueError, RecursionError, csv.Error) as error:
        raise DataError(f"{path}: is not a CSV or JSONL of captions ({error})") from None


def _token_pictures(path: Path, names: Iterable[str], folder: Path) -> list[Picture]:
    """Flickr's token files: ``FILE#N<tab>caption`` a line."""
    captions: dict[str, list[str]] = {}
    for line in _lines(path):
        key, _, caption = line.partition("\t")
        captions.setdefault(key.partition("#")[0], []).append(caption)
    missing = [name for name in names if name not in captions]
    if missing:
        raise DataError(f"{path}: has no caption of {len(missing)} images, such as {missing[0]}")
    return [_picture(name, folder / name, captions[name], path) for name in names]


def _picture(image_id: ImageId, source: Path, captions: list[str], origin: Path) -> Picture:
    for caption in captions:
        if not isinstance(caption, str):
            raise DataError(f"{origin}: a caption of image {image_id} is {caption!r}, not a text")
    spoken = tuple(caption for caption in captions if any(map(str.isalnum, caption)))
    if not spoken:
        raise DataError(f"{origin}: image {image_id} has no caption")
    return Picture(image_id, source, spoken)


def _need_own_ids(ids: Iterable[object], origin: Path) -> None:
    """Captions are scored by id: each must be one that JSON can name, and of one image."""
    seen: set[object] = set()
    for image_id in ids:
        if not isinstance(image_id, int | str) or isinstance(image_id, bool):
            raise DataError(
                f"{origin}: the id of an image is {reprlib.repr(image_id)}, not a whole number or "
                "a text; correct it"
            )
        if image_id in seen:
            raise DataError(
                f"{origin}: two images of a split have the id {reprlib.repr(image_id)}; remove one "
                "or give it another id"
            )
        seen.add(image_id)


def _root(data: DataSettings) -> Path:
    assert data.root is not None  # the settings' own check
    if not data.root.is_dir():
        raise DataError(f"data.root {data.root}: no such folder; say where {data.kind} lies")
    return data.root


def _captions(data: DataSettings) -> Path:
    assert data.captions is not None  # the settings' own check
    return data.captions


def _split_list(data: DataSettings, split: Split, files: dict[Split, str]) -> list[str]:
    if split not in files:
        raise DataError(f"{data.kind} has no {split} split: choose one of {', '.join(files)}")
    return _lines(_root(data) / files[split])


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from None


def _image_folder(root: Path) -> Path:
    """The photographs' folder, which every copy of Flickr names another way."""
    names = ("images", "Images", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images")
    for name in names:
        if (root / name).is_dir():
            return root / name
    raise DataError(f"{root}: no folder of photographs; expected one of {', '.join(names)}")
