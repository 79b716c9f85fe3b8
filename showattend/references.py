"""What people said of the images, from the files that COCO and Flickr publish; and whether a file
of results fits it, since a score over some of the images would look like one over all of them.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from showattend.corpus import ImageId, ScoreError
from showattend.results import read_entry, read_results

_FORMS = "expected a COCO captions file, or lines of FILE#N<tab>caption"
_TOKEN_LINE = re.compile(r"(?P<file>[^\t]+)#\d+\t(?P<caption>.*)")


def read_references(
    path: str | Path, listed: str | Path | None = None
) -> dict[ImageId, tuple[str, ...]]:
    """Read human captions, raw as published: image id -> its captions, both in the file's order.

    Args:
        path: COCO's captions JSON (Lin et al. 2014; ids are numbers) or a token file of Flickr8k or
            Flickr30k (Hodosh et al. 2013; ids are file names). What is in it decides, not its name.
        listed: a file with an image a line, such as Flickr8k's split lists; others are left out.

    Raises:
        ScoreError: a file cannot be read, is none of these, holds an empty caption or none at all,
            or an image of the list has no caption.
    """
    text = _read(path)
    is_json = text.lstrip().startswith(("{", "["))
    captions: dict[ImageId, list[str]] = {}
    for image, caption in _coco(path, text) if is_json else _flickr(path, text):
        captions.setdefault(image, []).append(caption)
    if not captions:
        raise ScoreError(f"{path}: holds no captions")
    _refuse_empty(path, ((image, said) for image in captions for said in captions[image]))
    wanted = captions if listed is None else _named_in(listed, captions, path)
    return {image: tuple(captions[image]) for image in wanted}


def read_matching(
    results: str | Path, references: str | Path, listed: str | Path | None = None
) -> tuple[dict[ImageId, str], dict[ImageId, tuple[str, ...]]]:
    """Read a COCO result file and the human captions of exactly its images.

    Args:
        results: a caption an image, as `read_results` reads it.
        references: as `read_references` reads them, `listed` too.

    Raises:
        ScoreError: as those two; or an image has a caption in one of the files alone, or an empty
            one. The line names the file and an image.
    """
    said, heard = read_results(results), read_references(references, listed)
    if not said:
        raise ScoreError(f"{results}: holds no captions")
    _refuse_empty(results, said.items())
    unknown = [image for image in said if image not in heard]
    missing = [image for image in heard if image not in said]
    if len(unknown) == len(said) and type(unknown[0]) is not type(missing[0]):
        raise ScoreError(
            f"{results}: its images are called {_called(unknown[0])}, "
            f"and those of {references} {_called(missing[0])}; none match"
        )
    complaints = []
    if unknown:
        complaints.append(f"{_some(unknown, said)} are unknown to {listed or references}")
    if missing:
        complaints.append(f"{_some(missing, heard)} of {listed or references} have no caption")
    if complaints:
        raise ScoreError(f"{results}: {' and '.join(complaints)}")
    return said, heard


def _coco(path: str | Path, text: str) -> Iterator[tuple[ImageId, str]]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ScoreError(f"{path}: not a JSON file: {error}") from error
    if isinstance(content, list):
        raise ScoreError(f"{path}: is a list, as results are; {_FORMS}")
    if not isinstance(content.get("annotations"), list):
        raise ScoreError(f"{path}: has no list of annotations; {_FORMS}")
    for place, annotation in enumerate(content["annotations"]):
        yield read_entry(f"{path}: annotation {place}", annotation)


def _flickr(path: str | Path, text: str) -> Iterator[tuple[ImageId, str]]:
    # Not splitlines(): a caption may hold one of Unicode's rarer line breaks.
    for number, line in enumerate(text.split("\n"), start=1):
        found = _TOKEN_LINE.fullmatch(line.removesuffix("\r"))
        if found:
            yield found["file"], found["caption"]
        elif line.strip():
            raise ScoreError(f"{path}: line {number} is no FILE#N<tab>caption; {_FORMS}")


def _named_in(
    listed: str | Path, captions: Iterable[ImageId], references: str | Path
) -> list[ImageId]:
    """The images of a list, in its order; a list is text, though COCO's ids are numbers."""
    by_name = {str(image): image for image in captions}
    lines = (line.strip() for line in _read(listed).splitlines())
    names = list(dict.fromkeys(name for name in lines if name))
    absent = [name for name in names if name not in by_name]
    if absent:
        some = f"{len(absent)} of {len(names)} images, for example {absent[0]!r},"
        raise ScoreError(f"{listed}: {some} have no caption in {references}")
    if not names:
        raise ScoreError(f"{listed}: lists no images")
    return [by_name[name] for name in names]


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")  # Windows puts a mark in front
    except OSError as error:
        raise ScoreError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ScoreError(f"{path}: not a text file; {_FORMS}") from None


def _refuse_empty(path: str | Path, captions: Iterable[tuple[ImageId, str]]) -> None:
    empty = [image for image, caption in captions if not caption.strip()]
    if empty:
        raise ScoreError(f"{path}: {len(empty)} empty caption(s), for example of {empty[0]!r}")


def _called(image: ImageId) -> str:
    return f"by numbers such as {image}" if isinstance(image, int) else f"by text such as {image!r}"


def _some(wrong: list[ImageId], images: dict[ImageId, str] | dict[ImageId, tuple[str, ...]]) -> str:
    return f"{len(wrong)} of {len(images)} images, for example {wrong[0]!r},"
