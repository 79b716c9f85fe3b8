"""Human boxes: where in the photograph the things lie that its captions name.

Read from Flickr30k Entities (Plummer et al. 2015), whose boxes belong to phrases of the captions,
and from COCO's instances (Lin et al. 2014), whose boxes belong to categories. All boxes are
fractions of the whole upright photograph, so that a resized or squashed copy has the same ones.
"""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from showattend.config import DataSettings
from showattend.datasets import DataError, ImageId, Picture
from showattend.shapes import CANVAS, noun_boxes
from showattend.shapes import Scene as ShapeScene
from showattend.tokenizer import ptb_spans, ptb_tokens

Box = tuple[float, float, float, float]  # x0, y0, x1, y1 as fractions of the photograph

#: What reading somebody's boxes may raise when they are not what they should be.
_MALFORMED = (
    OSError,
    ValueError,  # no JSON, no UTF-8, no number
    LookupError,
    TypeError,
    AttributeError,
    ZeroDivisionError,
    ET.ParseError,
)
#: Where a noun phrase's own words end and what they are joined to begins: "a group | of people".
_PREPOSITIONS = frozenset((
    "at", "behind", "by", "for", "from", "in", "inside", "near", "of", "on", "outside", "to",
    "with", "without",
))  # fmt: skip


@dataclass(frozen=True)
class Phrase:
    """A phrase of a caption, and where what it names lies.

    Attributes:
        text: its words as annotated.
        words: its PTB tokens, a half-open range of the caption's.
        head: the token (its position in the caption) that names the thing; see `head_of`.
        types: rough categories: people, clothing, bodyparts, animals, vehicles, instruments, scene,
            other; rarely more than one.
        boxes: one or more, fractions of the photograph.
    """

    text: str
    words: tuple[int, int]
    head: int
    types: tuple[str, ...]
    boxes: tuple[Box, ...]

    def mirrored(self) -> "Phrase":
        """The same in the mirrored photograph."""
        return replace(self, boxes=tuple((1 - x1, y0, 1 - x0, y1) for x0, y0, x1, y1 in self.boxes))


@dataclass(frozen=True)
class Grounded:
    """A caption of an image and those of its phrases that have boxes.

    Attributes:
        image_id: as in `datasets.Picture`.
        sentence: as annotated; its spelling may differ from the caption data set's.
        words: its PTB tokens.
        phrases: in the order of the sentence. What has no box (scenes, what cannot be seen) is not
            among them.
    """

    image_id: ImageId
    sentence: str
    words: tuple[str, ...]
    phrases: tuple[Phrase, ...]


@dataclass(frozen=True)
class _Mark:
    """A phrase as annotated: a chain of boxes, and a half-open range of the sentence's words."""

    chain: str
    types: tuple[str, ...]
    words: tuple[int, int]


def read_boxes(path: Path, image_ids: Iterable[ImageId]) -> dict[ImageId, list[Grounded]]:
    """The captions of some images with the boxes of their phrases, five or so an image.

    Args:
        path: Flickr30k Entities as published, a folder with ``Annotations/`` and ``Sentences/``; or
            a JSON file ``{image_id: {width, height, boxes, sentences}}`` with the same content.
        image_ids: file names of Flickr8k or Flickr30k. The folder calls both by their number.
    Raises:
        DataError: files are missing or malformed, or an image has no annotations; one line.
    """
    if path.is_dir():
        return {image_id: _read_published(path, image_id) for image_id in image_ids}
    return _read_json(path, image_ids)


def load_boxes(data: DataSettings, pictures: Sequence[Picture]) -> dict[ImageId, list[Grounded]]:
    """The captions of a data set's pictures with the boxes of their phrases; none where none are.

    Drawn shapes know theirs; others need ``data.boxes``. COCO's boxes belong to categories and not
    to phrases: see :func:`read_categories`.

    Raises:
        DataError: as :func:`read_boxes`.
    """
    if data.kind == "shapes":
        return {picture.image_id: _drawn(picture) for picture in pictures}
    if data.boxes is None or has_categories(pictures):
        return {}
    return read_boxes(data.boxes, [picture.image_id for picture in pictures])


def has_categories(pictures: Sequence[Picture]) -> bool:
    """Whether pictures are COCO's, which alone go by numbers, and whose boxes have categories."""
    return all(isinstance(picture.image_id, int) for picture in pictures)


def _drawn(picture: Picture) -> list[Grounded]:
    """Of a drawn scene each caption with the boxes of its nouns."""
    scene = picture.source
    assert isinstance(scene, ShapeScene)
    captions = []
    for caption in picture.captions:
        words = tuple(ptb_tokens(caption))
        phrases = tuple(
            Phrase(
                words[place],
                (place, place + 1),
                place,
                ("shape",),
                tuple(
                    (x0 / CANVAS, y0 / CANVAS, x1 / CANVAS, y1 / CANVAS) for x0, y0, x1, y1 in found
                ),
            )
            for place, found in noun_boxes(scene, words)
        )
        captions.append(Grounded(picture.image_id, caption, words, phrases))
    return captions


def read_categories(
    path: Path, image_ids: Iterable[ImageId]
) -> dict[ImageId, dict[str, tuple[Box, ...]]]:
    """The boxes of every category that is annotated in some images of COCO.

    A crowd's one box around many instances counts as one of its category's.

    Args:
        path: ``instances_*.json``.
    Raises:
        DataError: the file is missing or malformed, or lacks an image; one line.
    """
    content = _load_json(path)
    try:
        names = {category["id"]: category["name"] for category in content["categories"]}
        sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
        boxes: dict[ImageId, dict[str, tuple[Box, ...]]] = {image_id: {} for image_id in image_ids}
        for image_id in boxes:
            if image_id not in sizes:
                raise DataError(f"{path}: has no boxes of image {image_id}")
        for annotation in content["annotations"]:
            of_image = boxes.get(annotation["image_id"])
            if of_image is None:
                continue
            name = names[annotation["category_id"]]
            box = _coco_fractions(annotation["bbox"], *sizes[annotation["image_id"]])
            of_image[name] = (*of_image.get(name, ()), box)
        return boxes
    except DataError:
        raise
    except _MALFORMED as error:
        raise DataError(f"{path}: is not a COCO instances file ({error!r})") from None


def head_of(words: Sequence[str]) -> int:
    """Position of the word of a noun phrase that names the thing.

    The last word before the first preposition: "a small dog" -> dog, "a group of people" -> group.
    A rule and no parse: "a fenced in field" misleads it, as does a clause without preposition.
    """
    for position, word in enumerate(words):
        if position and word in _PREPOSITIONS:
            return position - 1
    return len(words) - 1


def _read_json(path: Path, image_ids: Iterable[ImageId]) -> dict[ImageId, list[Grounded]]:
    images = _load_json(path)
    return {image_id: _json_image(path, images, image_id) for image_id in image_ids}


def _load_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: is no JSON file of boxes ({error})") from None


def _json_image(path: Path, images: Any, image_id: ImageId) -> list[Grounded]:
    try:
        if image_id not in images:
            raise DataError(f"{path}: has no boxes of image {image_id}")
        image = images[image_id]
        size = image["width"], image["height"]
        boxes = {
            chain: tuple(_fractions(box, *size) for box in corners)
            for chain, corners in image["boxes"].items()
        }
        return [_json_sentence(image_id, sentence, boxes) for sentence in image["sentences"]]
    except DataError:
        raise
    except _MALFORMED as error:
        raise DataError(
            f"{path}: the boxes of image {image_id} are malformed ({error!r})"
        ) from None


def _json_sentence(
    image_id: ImageId, sentence: Mapping[str, Any], boxes: Mapping[str, tuple[Box, ...]]
) -> Grounded:
    words = sentence["sentence"].split()
    marks = [_json_mark(words, phrase) for phrase in sentence["phrases"]]
    return _grounded(image_id, words, marks, boxes)


def _json_mark(words: Sequence[str], phrase: Mapping[str, Any]) -> _Mark:
    said, first = phrase["phrase"].split(), phrase["first_word"]
    end = first + len(said)
    types = phrase["types"]
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        raise ValueError(f"the types of {' '.join(said)!r} are {types!r}, and no list of texts")
    if words[first:end] != said:
        raise ValueError(f"{' '.join(said)!r} is not at word {first} of {' '.join(words)!r}")
    return _Mark(phrase["chain"], tuple(phrase["types"]), (first, end))


def _read_published(folder: Path, image_id: ImageId) -> list[Grounded]:
    # Flickr8k's 1000268201_693b08cb0e.jpg is Flickr30k's 1000268201.jpg.
    number = Path(str(image_id)).stem.partition("_")[0]
    path = folder / "Annotations" / f"{number}.xml"
    try:
        boxes = _xml_boxes(ET.parse(path).getroot())
        path = folder / "Sentences" / f"{number}.txt"
        lines = path.read_text(encoding="utf-8").splitlines()
        return [
            _grounded(image_id, *_marked_sentence(line), boxes) for line in lines if line.strip()
        ]
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except _MALFORMED as error:
        raise DataError(f"{path}: is not of Flickr30k Entities ({error!r})") from None


def _xml_boxes(root: ET.Element) -> dict[str, tuple[Box, ...]]:
    """Boxes of every chain; an object may belong to several, and a chain to several objects."""
    size = _number(root, "size/width"), _number(root, "size/height")
    boxes: dict[str, tuple[Box, ...]] = {}
    for thing in root.iter("object"):
        corners = thing.find("bndbox")
        if corners is None:  # a scene, or what has no box
            continue
        box = _fractions(
            [_number(corners, name) for name in ("xmin", "ymin", "xmax", "ymax")], *size
        )
        for name in thing.iter("name"):
            chain = (name.text or "").strip()
            boxes[chain] = (*boxes.get(chain, ()), box)
    return boxes


def _number(element: ET.Element, name: str) -> float:
    text = element.findtext(name)
    if text is None:
        raise ValueError(f"no {name}")
    return float(text)


def _marked_sentence(line: str) -> tuple[list[str], list[_Mark]]:
    """The words and phrases of ``[/EN#chain/type/type words] words ...``."""
    words: list[str] = []
    marks = []
    for opening, said, plain in re.findall(r"\[/EN#(\S+) ([^\]]*)\]|([^\[\]]+|.)", line):
        if plain in ("[", "]"):
            raise ValueError(f"a bracket that marks no phrase: {line.strip()[:80]}")
        first = len(words)
        words += (said or plain).split()
        if opening:
            chain, *types = opening.split("/")
            marks.append(_Mark(chain, tuple(types), (first, len(words))))
    return words, marks


def _fractions(corners: Sequence[float], width: float, height: float) -> Box:
    """Entities' corners are the box's first and last pixels, counted from 1."""
    x0, y0, x1, y1 = corners
    if not (0 < x0 <= x1 <= width and 0 < y0 <= y1 <= height):
        raise ValueError(f"the box {list(corners)} is not within {width} x {height} pixels")
    return (x0 - 1) / width, (y0 - 1) / height, x1 / width, y1 / height


def _coco_fractions(bbox: Sequence[float], width: float, height: float) -> Box:
    """COCO's boxes are a corner and a size in pixels counted from 0."""
    x0, y0, across, down = bbox
    return x0 / width, y0 / height, (x0 + across) / width, (y0 + down) / height


def _grounded(
    image_id: ImageId,
    words: Sequence[str],
    marks: Sequence[_Mark],
    boxes: Mapping[str, tuple[Box, ...]],
) -> Grounded:
    """Phrases of words between spaces become phrases of PTB tokens."""
    sentence = " ".join(words)
    spans = ptb_spans(sentence)
    tokens = [word for word, _, _ in spans]
    # Where each token stands among the words. One may come of several words, and several of one.
    places = [
        (sentence.count(" ", 0, start), sentence.count(" ", 0, end)) for _, start, end in spans
    ]
    phrases = []
    for mark in marks:
        if not boxes.get(mark.chain):
            continue
        first, end = mark.words
        text = " ".join(words[first:end])
        inside = [k for k, (low, high) in enumerate(places) if low < end and high >= first]
        if not inside:
            raise ValueError(f"the phrase {text!r} of {sentence!r} has no word")
        head = inside[0] + head_of([tokens[k] for k in inside])
        phrases.append(
            Phrase(text, (inside[0], inside[-1] + 1), head, mark.types, boxes[mark.chain])
        )
    return Grounded(image_id, sentence, tuple(tokens), tuple(phrases))
