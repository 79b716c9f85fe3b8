"""COCO result files: written, read again, and refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend.corpus import ImageId, ScoreError
from showattend.results import read_results, write_results


@settings(max_examples=30)
@given(st.dictionaries(st.integers() | st.text(), st.text(), max_size=5))
def test_results_come_back(
    tmp_path_factory: pytest.TempPathFactory, captions: dict[ImageId, str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "new folder" / "results.json"
    write_results(path, captions)
    assert list(read_results(path).items()) == list(captions.items())


def test_results_have_cocos_form_and_leave_nothing_else(tmp_path: Path) -> None:
    write_results(tmp_path / "results.json", {42: "a dog"})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert json.loads(text) == [{"image_id": 42, "caption": "a dog"}]
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{", "not a JSON file"),
        ("[" * 100_000, "not a JSON file"),
        ('{"image_id": 1}', "expected a list of image_id and caption, got dict"),
        ('{"images": [], "annotations": []}', "holds annotations; expected results"),
        ("[3]", "entry 0 lacks image_id or caption"),
        ('[{"image_id": 1}]', "entry 0 lacks image_id or caption"),
        ('[{"image_id": 1, "caption": 2}]', "entry 0: caption of image 1 is int; expected str"),
        (
            '[{"image_id": 1.5, "caption": "a"}]',
            "entry 0: image_id 1.5 is float; expected an int or str",
        ),
        (
            '[{"image_id": true, "caption": "a"}]',
            "entry 0: image_id True is bool; expected an int or str",
        ),
        (
            '[{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "a"}]',
            "two captions for image 1; expected one an image",
        ),
    ],
)
def test_bad_result_files_are_named_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScoreError) as error:
        read_results(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


def test_folders_and_absent_and_binary_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScoreError, match="cannot be read: Is a directory"):
        read_results(tmp_path)
    with pytest.raises(ScoreError, match=r"absent\.json: cannot be read: No such file"):
        read_results(tmp_path / "absent.json")
    (tmp_path / "picture.json").write_bytes(b"\xff\xd8\xff")
    with pytest.raises(ScoreError, match=r"picture\.json: not a JSON file"):
        read_results(tmp_path / "picture.json")


def test_results_that_cannot_be_written_leave_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_results(path, {1: "a dog"})
    with pytest.raises(ScoreError, match="caption of image 2 is NoneType; expected str"):
        write_results(path, {1: "a cat", 2: None})  # type: ignore[dict-item]
    assert read_results(path) == {1: "a dog"}
    (tmp_path / "folder").mkdir()
    with pytest.raises(ScoreError, match="folder: cannot be written: Is a directory"):
        write_results(tmp_path / "folder", {1: "a dog"})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "results.json"]


def test_the_mark_that_windows_puts_in_front_is_no_part_of_it(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text('\ufeff[{"image_id": 1, "caption": "a dog"}]', encoding="utf-8")
    assert read_results(path) == {1: "a dog"}
