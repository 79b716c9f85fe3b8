"""What is unpacked is what was packed, or nothing is there."""

import io
import os
import shutil
import stat
import struct
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend import unzip as module
from showattend.unzip import UnzipError, unpack

PHOTOS = {f"train/{number}.jpg": bytes([number]) * 1000 for number in range(3)}
FILES = PHOTOS | {"annotations/captions.json": b"{}", "annotations/other.json": b"[]", "top": b"t"}


def packed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as zipped:
        zipped.mkdir("train")  # as zips have it whose folders were packed
        for name, content in files.items():
            zipped.writestr(name, content)
    return buffer.getvalue()


def zip_in(folder: Path, content: bytes) -> Path:
    path = folder / "a.zip"
    path.write_bytes(content)
    return path


def found(folder: Path) -> dict[str, bytes]:
    """Every file in a folder but the zip."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "a.zip")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def complaint(path: Path, *wanted: str, most: int = 1_000_000) -> str:
    """The one line; the zip and nothing else is in its folder afterwards."""
    with pytest.raises(UnzipError) as caught:
        unpack(path, path.parent, wanted, most)
    assert list(path.parent.iterdir()) == [path]
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_only_what_is_wanted_is_unpacked(tmp_path: Path) -> None:
    path = zip_in(tmp_path, packed(FILES))
    unpack(path, tmp_path, ("train", "annotations/captions.json", "top"), 10_000)
    assert found(tmp_path) == PHOTOS | {"annotations/captions.json": b"{}", "top": b"t"}
    assert {p.name for p in tmp_path.iterdir()} == {"a.zip", "train", "annotations", "top"}


def test_what_is_there_already_stays(tmp_path: Path) -> None:
    """Two years of COCO share the folder of annotations."""
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations/of_2014.json").write_text("2014")
    (tmp_path / "top").write_text("older")
    path = zip_in(tmp_path, packed(FILES))
    unpack(path, tmp_path, ("top", "annotations/captions.json"), 2)
    assert found(tmp_path) == {
        "annotations/of_2014.json": b"2014",
        "annotations/captions.json": b"{}",
        "top": b"older",
    }


def test_what_a_killed_run_left_goes(tmp_path: Path) -> None:
    path = zip_in(tmp_path, packed(FILES))
    (tmp_path / ".a.zip.unpacking/train").mkdir(parents=True)
    (tmp_path / ".a.zip.unpacking/train/half.jpg").write_bytes(b"ha")
    unpack(path, tmp_path, ("train",), 10_000)
    assert found(tmp_path) == PHOTOS


def test_a_zip_without_what_is_wanted_is_refused(tmp_path: Path) -> None:
    line = complaint(zip_in(tmp_path, packed(FILES)), "train", "val")
    assert line == f"{tmp_path}/a.zip: has no val, so it is not the file it should be"


@pytest.mark.parametrize(
    "name", ["../out", "train/../../out", "/out", "C:\\out", "\\out", "train\\..\\..\\out"]
)
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    line = complaint(zip_in(folder, packed(PHOTOS | {name: b"evil"})), "train")
    assert "leads out of the folder; do not trust it" in line
    assert list(tmp_path.iterdir()) == [folder]


def test_a_link_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        link = zipfile.ZipInfo("train/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        zipped.writestr(link, "/etc")
    assert "leads out" in complaint(zip_in(tmp_path, buffer.getvalue()), "train")


def test_a_bomb_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    """10 MB of zeros in a zip of 10 kB."""
    path = zip_in(tmp_path, packed({"train/bomb": bytes(10_000_000)}))
    assert path.stat().st_size < 20_000
    line = complaint(path, "train", most=9_999_999)
    assert "unpacks to 10,000,000 bytes, of which 9,999,999 at most were expected" in line
    unpack(path, tmp_path, ("train",), 10_000_000)


def test_a_bomb_that_lies_about_its_size_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says 100 bytes: no more are written, and the CRC tells."""
    content = packed({"train/bomb": bytes(10_000_000)})
    path = zip_in(tmp_path, content.replace(struct.pack("<I", 10_000_000), struct.pack("<I", 100)))
    written: list[int] = []
    copy = shutil.copyfileobj

    def count(source: io.BufferedIOBase, file: io.BufferedIOBase, length: int) -> None:
        try:
            copy(source, file, length)
        finally:
            written.append(file.tell())

    monkeypatch.setattr(module.shutil, "copyfileobj", count)
    assert "is no whole zip (Bad CRC-32" in complaint(path, "train", most=1000)
    assert written[0] <= 100


@pytest.mark.parametrize("keep", [0, 10, 500, -1])
def test_half_a_zip_is_refused(tmp_path: Path, keep: int) -> None:
    assert "is no whole zip" in complaint(zip_in(tmp_path, packed(FILES)[:keep]), "train")


def test_a_zip_with_a_password_is_refused(tmp_path: Path) -> None:
    content = bytearray(packed({"top": b"secret"}))
    content[content.rindex(b"PK\1\2") + 8] |= 1  # the flag of the last file, in the directory
    content[content.rindex(b"PK\3\4") + 6] |= 1  # and before its bytes
    assert "encrypted" in complaint(zip_in(tmp_path, bytes(content)), "top")


def test_a_zip_with_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    content = packed({"ä": b"text"}).replace("ä".encode(), b"\xff\xff")
    assert "is no whole zip ('utf-8' codec" in complaint(zip_in(tmp_path, content), "ä")


def test_damage_to_what_lzma_packed_is_refused(tmp_path: Path) -> None:
    content = bytearray(packed({"top": bytes(1000)}, zipfile.ZIP_LZMA))
    content[content.index(b"top") + 3 + 4] = 255  # lzma's own settings, behind name and version
    assert "is no whole zip (" in complaint(zip_in(tmp_path, bytes(content)), "top")


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_damage_is_taken_for_the_original(data: st.DataObject) -> None:
    """Whatever bytes are changed: no file comes out other than it was; mostly it is one line."""
    method = data.draw(st.sampled_from([zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED]))
    content = bytearray(packed(PHOTOS, method))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=3)):
        content[place] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as name:
        path = zip_in(Path(name), bytes(content))
        try:
            unpack(path, path.parent, ("train",), 10_000)
        except UnzipError as error:
            assert "\n" not in str(error)
            assert list(path.parent.iterdir()) == [path]
        else:
            assert set(found(path.parent).values()) <= set(PHOTOS.values())


def test_too_little_room_is_seen_before_a_byte_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=2999)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    line = complaint(zip_in(tmp_path, packed(FILES)), "train")
    assert "3,000 bytes are needed to unpack a.zip, 2,999 are free; free some and run" in line


def test_a_disk_that_fills_up_is_one_line_and_leaves_nothing(small_disk: Path) -> None:
    """60 files of a byte need 60 blocks of 4,096, which their sizes do not tell."""
    path = zip_in(small_disk, packed({f"train/{n}": b"a" for n in range(60)}))
    free = shutil.disk_usage(small_disk).free
    line = complaint(path, "train")
    assert "cannot be unpacked" in line
    assert "No space left on device" in line
    assert shutil.disk_usage(small_disk).free == free


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_an_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zip_in(tmp_path, packed(FILES))
    real, calls = shutil.copyfileobj, []

    def interrupt(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module.shutil, "copyfileobj", interrupt)
    with pytest.raises(KeyboardInterrupt):
        unpack(path, tmp_path, ("train",), 10_000)
    assert list(tmp_path.iterdir()) == [path]
