"""Human captions from the published forms of file, and results that do not fit them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from showattend.corpus import ScoreError
from showattend.references import read_matching, read_references

FLICKR8K = Path(__file__).parents[2] / "shared" / "flickr8k"
FORMS = "expected a COCO captions file, or lines of FILE#N<tab>caption"

COCO = {
    "images": [{"id": 9, "file_name": "9.jpg"}, {"id": 4, "file_name": "4.jpg"}],
    "annotations": [
        {"id": 1, "image_id": 9, "caption": "A dog ."},
        {"id": 2, "image_id": 4, "caption": " A cat\n"},
        {"id": 3, "image_id": 9, "caption": "One dog"},
    ],
}
FLICKR = "b.jpg#0\tA dog .\nb.jpg#1\tOne\tdog\na#b.jpg.1#0\tCafé\u2028cats\n\n"

Save = Callable[[str, object], Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Writes a file: a text as it is, anything else as JSON."""

    def write(name: str, content: object) -> Path:
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_bytes(text.encode())
        return tmp_path / name

    return write


@pytest.mark.parametrize("name", ["captions.json", "captions.token"])
def test_what_is_in_a_file_decides_and_not_its_name(save: Save, name: str) -> None:
    assert read_references(save(name, COCO)) == {9: ("A dog .", "One dog"), 4: (" A cat\n",)}
    expected = {"b.jpg": ("A dog .", "One\tdog"), "a#b.jpg.1": ("Café\u2028cats",)}
    assert read_references(save(name, FLICKR)) == expected
    windows = "\ufeff" + FLICKR.replace("\n", "\r\n")
    assert read_references(save(name, windows)) == expected


def test_a_list_chooses_images_and_their_order(save: Save) -> None:
    coco, flickr = save("coco.json", COCO), save("token.txt", FLICKR)
    assert list(read_references(coco, save("ids.txt", "4\n9\n4\n"))) == [4, 9]
    assert list(read_references(flickr, save("names.txt", "\na#b.jpg.1 \r\n"))) == ["a#b.jpg.1"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "holds no captions"),
        ({"annotations": []}, "holds no captions"),
        ("{", "not a JSON file: "),
        ("[" * 100_000, "not a JSON file: "),
        ([{"image_id": 9, "caption": "a dog"}], f"is a list, as results are; {FORMS}"),
        ({"images": []}, f"has no list of annotations; {FORMS}"),
        ({"annotations": {}}, f"has no list of annotations; {FORMS}"),
        ({"annotations": [{"bbox": []}]}, "annotation 0 lacks image_id or caption"),
        ({"annotations": [3]}, "annotation 0 lacks image_id or caption"),
        (
            {"annotations": [{"image_id": 9, "caption": None}]},
            "annotation 0: caption of image 9 is NoneType; expected str",
        ),
        (
            {"annotations": [{"image_id": 9, "caption": " "}]},
            "1 empty caption(s), for example of 9",
        ),
        ("image,caption\n", f"line 1 is no FILE#N<tab>caption; {FORMS}"),
        ("b.jpg#0\ta\nb.jpg\ta\n", f"line 2 is no FILE#N<tab>caption; {FORMS}"),
        ("b.jpg#0\ta\nb.jpg#1\t\n", "1 empty caption(s), for example of 'b.jpg'"),
    ],
)
def test_bad_references_are_named_in_one_line(save: Save, content: object, complaint: str) -> None:
    path = save("references", content)
    with pytest.raises(ScoreError) as error:
        read_references(path)
    assert str(error.value).startswith(f"{path}: {complaint}")
    assert "\n" not in str(error.value)


def test_folders_and_absent_and_binary_files_are_named(save: Save, tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match="cannot be read: Is a directory"):
        read_references(tmp_path)
    with pytest.raises(ScoreError, match=r"absent\.json: cannot be read: No such file"):
        read_references(tmp_path / "absent.json")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(ScoreError, match=r"photo\.jpg: not a text file"):
        read_references(tmp_path / "photo.jpg")


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ("\n", "lists no images"),
        (
            "b.jpg\nc.jpg\nd.jpg\n",
            "2 of 3 images, for example 'c.jpg', have no caption in {references}",
        ),
    ],
)
def test_bad_lists_are_named_in_one_line(save: Save, names: str, complaint: str) -> None:
    references, listed = save("token.txt", FLICKR), save("names.txt", names)
    with pytest.raises(ScoreError) as error:
        read_references(references, listed)
    assert str(error.value) == f"{listed}: {complaint.format(references=references)}"


# --- Results that fit, and those that do not ------------------------------------------------------


def _results(*entries: tuple[object, object]) -> list[dict[str, object]]:
    return [{"image_id": image, "caption": caption} for image, caption in entries]


def test_matching_files_are_read(save: Save) -> None:
    results = save("results.json", _results((4, "a cat"), (9, "a dog")))
    said, heard = read_matching(results, save("coco.json", COCO))
    assert said == {4: "a cat", 9: "a dog"}
    assert heard == {9: ("A dog .", "One dog"), 4: (" A cat\n",)}


def test_a_list_makes_results_of_one_split_match(save: Save) -> None:
    results = save("results.json", _results((4, "a cat")))
    _, heard = read_matching(results, save("coco.json", COCO), save("ids.txt", "4"))
    assert heard == {4: (" A cat\n",)}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([], "holds no captions"),
        (COCO, "holds annotations; expected results, which are a list"),
        (FLICKR, "not a JSON file: "),
        ({"9": "a dog"}, "expected a list of image_id and caption, got dict"),
        (_results((9, "a dog")), "1 of 2 images, for example 4, of {references} have no caption"),
        (
            _results((9, "a dog"), (4, "a cat"), (7, "a"), (8, "b")),
            "2 of 4 images, for example 7, are unknown to {references}",
        ),
        (
            _results((9, "a dog"), (7, "a")),
            "1 of 2 images, for example 7, are unknown to {references} and "
            "1 of 2 images, for example 4, of {references} have no caption",
        ),
        (
            _results(("9", "a dog"), ("4", "a cat")),
            "its images are called by text such as '9', and those of {references} "
            "by numbers such as 9; none match",
        ),
        (_results((9, "a dog"), (4, " \n")), "1 empty caption(s), for example of 4"),
        (_results((9, "a"), (9, "a")), "two captions for image 9; expected one an image"),
        (_results((9, 3)), "entry 0: caption of image 9 is int; expected str"),
    ],
)
def test_results_that_do_not_fit_are_named_in_one_line(
    save: Save, content: object, complaint: str
) -> None:
    results, references = save("results.json", content), save("coco.json", COCO)
    with pytest.raises(ScoreError) as error:
        read_matching(results, references)
    assert str(error.value).startswith(f"{results}: {complaint.format(references=references)}")
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.skipif(not FLICKR8K.exists(), reason=f"needs Flickr8k's captions at {FLICKR8K}")
def test_flickr8k_is_read_whole_and_by_split() -> None:
    token = FLICKR8K / "Flickr8k.token.txt"
    everything = read_references(token)
    assert len(everything) == 7000
    assert {len(captions) for captions in everything.values()} == {5}
    listed = FLICKR8K / "Flickr_8k.devImages.txt"
    val = read_references(token, listed)
    assert list(val) == listed.read_text(encoding="utf-8").split()
    assert val.items() <= everything.items()
