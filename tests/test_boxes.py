"""Human boxes in both published layouts in miniature, and what is said of broken ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from showattend.boxes import (
    Grounded,
    Phrase,
    head_of,
    load_boxes,
    read_boxes,
    read_categories,
)
from showattend.config import DataSettings
from showattend.datasets import DataError, Picture, load_split
from showattend.shapes import Scene as ShapeScene
from showattend.shapes import noun_boxes
from showattend.tokenizer import ptb_tokens

SHARED = Path(__file__).resolve().parents[2] / "shared"
ENTITIES = SHARED / "flickr30k_entities"

IMAGE = "12_ab.jpg"

XML = """<annotation>
  <filename>12.jpg</filename>
  <size><width>200</width><height>100</height><depth>3</depth></size>
  <object><name>7</name>
    <bndbox><xmin>1</xmin><ymin>1</ymin><xmax>100</xmax><ymax>50</ymax></bndbox></object>
  <object><name>7</name><name>9</name>
    <bndbox><xmin>101</xmin><ymin>51</ymin><xmax>200</xmax><ymax>100</ymax></bndbox></object>
  <object><name>8</name><scene>1</scene><nobndbox>0</nobndbox></object>
</annotation>"""
MARKED = (
    "[/EN#7/animals Two dogs] ' [/EN#0/notvisual ball] , near [/EN#8/scene the sea] "
    "[/EN#9/other/clothing a pair of red boots] .\n"
)
DOGS = ((0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.0, 1.0))
READ = Grounded(
    IMAGE,
    "Two dogs ' ball , near the sea a pair of red boots .",
    ("two", "dogs", "ball", "near", "the", "sea", "a", "pair", "of", "red", "boots"),
    (
        Phrase("Two dogs", (0, 2), 1, ("animals",), DOGS),
        Phrase("a pair of red boots", (6, 11), 7, ("other", "clothing"), DOGS[1:]),
    ),
)
CONTENT: dict[str, Any] = {
    "width": 200,
    "height": 100,
    "split": "train",
    "boxes": {"7": [[1, 1, 100, 50], [101, 51, 200, 100]], "9": [[101, 51, 200, 100]]},
    "scene": ["8"],
    "nobox": [],
    "sentences": [
        {
            "sentence": READ.sentence,
            "phrases": [
                {"chain": "7", "types": ["animals"], "phrase": "Two dogs", "first_word": 0},
                {"chain": "0", "types": ["notvisual"], "phrase": "ball", "first_word": 3},
                {"chain": "8", "types": ["scene"], "phrase": "the sea", "first_word": 6},
                {
                    "chain": "9",
                    "types": ["other", "clothing"],
                    "phrase": "a pair of red boots",
                    "first_word": 8,
                },
            ],
        }
    ],
}


def publish(folder: Path, xml: str = XML, marked: str = MARKED) -> Path:
    for name, text in (("Annotations/12.xml", xml), ("Sentences/12.txt", marked)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def dump(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def complaint(path: Path, image_id: str = IMAGE) -> str:
    with pytest.raises(DataError) as caught:
        read_boxes(path, [image_id])
    line = str(caught.value)
    assert "\n" not in line
    return line


# Flickr30k Entities


def test_entities_as_published(tmp_path: Path) -> None:
    assert read_boxes(publish(tmp_path), [IMAGE]) == {IMAGE: [READ]}


def test_flickr30k_calls_the_image_by_its_number(tmp_path: Path) -> None:
    (found,) = read_boxes(publish(tmp_path), ["12.jpg"])["12.jpg"]
    assert found.image_id == "12.jpg"
    assert found.phrases == READ.phrases


def test_the_json_reads_equal(tmp_path: Path) -> None:
    path = dump(tmp_path / "boxes.json", {IMAGE: CONTENT, "other.jpg": {}})
    assert read_boxes(path, [IMAGE]) == {IMAGE: [READ]}  # the other's is not looked at
    assert read_boxes(path, []) == {}


@pytest.mark.parametrize(
    ("sentence", "phrase", "first_word", "words", "head"),
    [
        ("A man 's dog cannot run", "dog cannot", 3, ["dog", "can", "not"], "not"),  # parted
        ("A man's dog runs", "A man's", 0, ["a", "man", "'s"], "'s"),
        ("He said : ( a T - shirt )", "a T - shirt", 4, ["a", "t", "shirt"], "shirt"),  # dropped
        ("hi <a b> there", "b> there", 2, ["<a", "b>", "there"], "there"),  # joined
        ("In front , a dog", "a dog", 3, ["a", "dog"], "dog"),
    ],
)
def test_phrases_are_ranges_of_ptb_tokens(
    tmp_path: Path, sentence: str, phrase: str, first_word: int, words: list[str], head: str
) -> None:
    mark = {"chain": "7", "types": ["other"], "phrase": phrase, "first_word": first_word}
    said = [{"sentence": sentence, "phrases": [mark]}]
    path = dump(tmp_path / "boxes.json", {IMAGE: CONTENT | {"sentences": said}})
    (grounded,) = read_boxes(path, [IMAGE])[IMAGE]
    assert list(grounded.words) == ptb_tokens(sentence)
    (found,) = grounded.phrases
    assert list(grounded.words[slice(*found.words)]) == words
    assert grounded.words[found.head] == head


@pytest.mark.parametrize(
    ("phrase", "head"),
    [
        ("a small dog", "dog"),
        ("a group of young people", "group"),
        ("a man in a red hat", "man"),
        ("people", "people"),
        ("near the sea", "sea"),  # begins with the preposition
    ],
)
def test_the_head_comes_before_a_preposition(phrase: str, head: str) -> None:
    assert phrase.split()[head_of(phrase.split())] == head


@pytest.mark.parametrize(
    ("xml", "marked", "what"),
    [
        ("<annotation>", MARKED, "12.xml: is not of Flickr30k Entities"),
        (XML.replace("<xmax>100</xmax>", ""), MARKED, "no xmax"),
        (XML.replace("<width>200</width>", ""), MARKED, "no size/width"),
        (XML.replace("<xmax>200<", "<xmax>201<"), MARKED, "not within 200.0 x 100.0 pixels"),
        (XML.replace("<xmin>101<", "<xmin>left<"), MARKED, "left"),
        (XML, "[/EN#7/animals Two dogs run .", "12.txt: is not of Flickr30k Entities"),
        (XML, "Two dogs] run .", "a bracket that marks no phrase: Two dogs] run ."),
        (XML, "[/EN#7/animals .] run", "has no word"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, xml: str, marked: str, what: str) -> None:
    assert what in complaint(publish(tmp_path, xml, marked))


def test_missing_files_are_named(tmp_path: Path) -> None:
    assert "nowhere.json: is no JSON file of boxes" in complaint(tmp_path / "nowhere.json")
    folder = publish(tmp_path / "entities")
    assert f"{folder / 'Annotations' / '13.xml'}: cannot be read" in complaint(folder, "13.jpg")
    (folder / "Sentences/12.txt").unlink()
    assert "12.txt: cannot be read" in complaint(folder)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"width": None}, "are malformed"),
        ({"width": 99}, "not within 99 x 100 pixels"),
        ({"boxes": {"7": [[1, 1, 2]]}}, "are malformed"),
        ({"sentences": [{"sentence": "a dog"}]}, "KeyError('phrases')"),
        (
            {"sentences": [CONTENT["sentences"][0] | {"sentence": "Some dogs"}]},
            "'Two dogs' is not at word 0 of 'Some dogs'",
        ),
    ],
)
def test_broken_json_is_named(tmp_path: Path, change: dict[str, object], what: str) -> None:
    line = complaint(dump(tmp_path / "boxes.json", {IMAGE: CONTENT | change}))
    assert f"the boxes of image {IMAGE}" in line
    assert what in line


def test_an_image_without_boxes_is_named(tmp_path: Path) -> None:
    path = dump(tmp_path / "boxes.json", {IMAGE: CONTENT})
    assert complaint(path, "13.jpg") == f"{path}: has no boxes of image 13.jpg"


# COCO

INSTANCES: dict[str, Any] = {
    "images": [{"id": 5, "width": 200, "height": 100}, {"id": 6, "width": 10, "height": 10}],
    "categories": [{"id": 1, "name": "person"}, {"id": 18, "name": "dog"}],
    "annotations": [
        {"image_id": 5, "category_id": 18, "bbox": [0, 0, 50, 50], "iscrowd": 0},
        {"image_id": 6, "category_id": 1, "bbox": [0, 0, 1, 1], "iscrowd": 0},
        {"image_id": 5, "category_id": 18, "bbox": [100, 25, 100, 75], "iscrowd": 1},
    ],
}


def test_coco_instances_by_category(tmp_path: Path) -> None:
    path = dump(tmp_path / "instances.json", INSTANCES)
    dogs = ((0.0, 0.0, 0.25, 0.5), (0.5, 0.25, 1.0, 1.0))
    assert read_categories(path, [5]) == {5: {"dog": dogs}}
    assert read_categories(path, [6]) == {6: {"person": ((0.0, 0.0, 0.1, 0.1),)}}


@pytest.mark.parametrize(
    ("content", "image_id", "what"),
    [
        (INSTANCES, 7, "has no boxes of image 7"),
        (INSTANCES | {"categories": []}, 5, "is not a COCO instances file (KeyError(18))"),
        ([], 5, "is not a COCO instances file"),
    ],
)
def test_broken_instances_are_named(
    tmp_path: Path, content: object, image_id: int, what: str
) -> None:
    path = dump(tmp_path / "instances.json", content)
    with pytest.raises(DataError) as caught:
        read_categories(path, [image_id])
    assert f"{path}: {what}" in str(caught.value)


# The real ones


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not on this machine")
def test_the_published_files_read_equal_to_the_json() -> None:
    names = json.loads((ENTITIES / "flickr8k_boxes.json").read_text(encoding="utf-8"))
    numbers = {path.stem for path in (ENTITIES / "original_format" / "Annotations").glob("*.xml")}
    image_ids = [name for name in names if name.partition("_")[0] in numbers]
    assert len(image_ids) == 40
    published = read_boxes(ENTITIES / "original_format", image_ids)
    assert published == read_boxes(ENTITIES / "flickr8k_boxes.json", image_ids)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not on this machine")
def test_every_phrase_of_flickr8k_finds_its_words() -> None:
    path = ENTITIES / "flickr8k_boxes.json"
    names = json.loads(path.read_text(encoding="utf-8"))
    sentences = [each for of_image in read_boxes(path, names).values() for each in of_image]
    assert len(sentences) == 35_000
    phrases = [(sentence, phrase) for sentence in sentences for phrase in sentence.phrases]
    assert len(phrases) == 91_034
    for sentence, phrase in phrases:
        assert list(sentence.words[slice(*phrase.words)]) == ptb_tokens(phrase.text)
        assert phrase.words[0] <= phrase.head < phrase.words[1]


def test_a_phrase_in_the_mirrored_photograph() -> None:
    phrase = Phrase("a dog", (0, 2), 1, ("animals",), ((0.0, 0.25, 0.25, 0.5),))
    assert phrase.mirrored().boxes == ((0.75, 0.25, 1.0, 0.5),)
    assert phrase.mirrored().mirrored() == phrase


def test_drawn_shapes_know_their_boxes() -> None:
    data = DataSettings(kind="shapes", val_images=8)
    pictures = load_split(data, "val")
    boxes = load_boxes(data, pictures)
    for picture in pictures:
        assert [each.sentence for each in boxes[picture.image_id]] == list(picture.captions)
        for caption in boxes[picture.image_id]:
            assert isinstance(picture.source, ShapeScene)
            found = noun_boxes(picture.source, caption.words)
            assert [phrase.head for phrase in caption.phrases] == [place for place, _ in found]
            for phrase, (_, corners) in zip(caption.phrases, found, strict=True):
                assert phrase.words == (phrase.head, phrase.head + 1)
                np.testing.assert_allclose(phrase.boxes, np.array(corners) / 224)


def test_a_data_set_without_boxes_has_none(tmp_path: Path) -> None:
    data = DataSettings(kind="flickr8k", root=tmp_path)
    assert load_boxes(data, [Picture("a.jpg", tmp_path / "a.jpg", ("a dog",))]) == {}
