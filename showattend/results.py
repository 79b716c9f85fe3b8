"""COCO result files: `[{"image_id": 42, "caption": "a dog"}, ...]`."""

import json
from collections.abc import Mapping
from pathlib import Path

from showattend.corpus import ImageId, ScoreError
from showattend.whole_files import write_whole


def read_results(path: str | Path) -> dict[ImageId, str]:
    """Read a COCO result file: image id -> caption.

    Raises:
        ScoreError: unreadable, not of that form, or two captions for one image.
    """
    try:
        entries = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ScoreError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ScoreError(f"{path}: not a JSON file: {error}") from error
    if isinstance(entries, dict) and "annotations" in entries:
        raise ScoreError(f"{path}: holds annotations; expected results, which are a list")
    if not isinstance(entries, list):
        raise ScoreError(f"{path}: expected a list of image_id and caption, got {_kind(entries)}")
    captions: dict[ImageId, str] = {}
    for place, entry in enumerate(entries):
        image, caption = read_entry(f"{path}: entry {place}", entry)
        if image in captions:
            raise ScoreError(f"{path}: two captions for image {image!r}; expected one an image")
        captions[image] = caption
    return captions


def write_results(path: str | Path, captions: Mapping[ImageId, str]) -> None:
    """Write a COCO result file, whole or not at all, in the mapping's order; its folder is made.

    Raises:
        ScoreError: an id is not a number or string, a caption is not a string, or no file can be
            written there.
    """
    entries = [{"image_id": image, "caption": caption} for image, caption in captions.items()]
    for place, entry in enumerate(entries):
        read_entry(f"{path}: entry {place}", entry)
    try:
        write_whole(path, json.dumps(entries))
    except OSError as error:
        raise ScoreError(f"{path}: cannot be written: {error.strerror}") from error


def read_entry(place: str, entry: object) -> tuple[ImageId, str]:
    """The image and the caption of one entry, which results and COCO's annotations spell alike.

    Args:
        place: what the error line calls it: file and number.

    Raises:
        ScoreError: it lacks one of them, or they are no number or string, and no string.
    """
    if not isinstance(entry, dict) or not {"image_id", "caption"} <= entry.keys():
        raise ScoreError(f"{place} lacks image_id or caption")
    image, caption = entry["image_id"], entry["caption"]
    if not isinstance(image, int | str) or isinstance(image, bool):
        raise ScoreError(f"{place}: image_id {image!r} is {_kind(image)}; expected an int or str")
    if not isinstance(caption, str):
        raise ScoreError(f"{place}: caption of image {image!r} is {_kind(caption)}; expected str")
    return image, caption


def _kind(value: object) -> str:
    return type(value).__name__
