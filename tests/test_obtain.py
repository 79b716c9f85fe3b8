"""From a server of this machine to data that is read; only COCO and Flickr8k are fakes."""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import load_script
from file_server import FileServer
from filelock import FileLock
from PIL import Image

from showattend import archives as tables
from showattend import download
from showattend import obtain as module
from showattend.archives import Archive
from showattend.config import DataSettings
from showattend.datasets import load_split
from showattend.download import DownloadError, come
from showattend.obtain import obtain
from showattend.unzip import UnzipError


def jpeg(shade: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 6), (shade, 0, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


def packed(files: dict[str, bytes | object]) -> bytes:
    """A zip; what is no bytes is written as JSON."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in files.items():
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            zipped.writestr(name, raw)
    return buffer.getvalue()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def photograph(split: str, year: int, number: int) -> str:
    """COCO's own names: those of 2014 tell the split."""
    return f"COCO_{split}2014_{number:012}.jpg" if year == 2014 else f"{number:012}.jpg"


def coco_captions(split: str, year: int, numbers: range) -> dict[str, Any]:
    return {
        "images": [{"id": n, "file_name": photograph(split, year, n)} for n in numbers],
        "annotations": [
            {"id": 10 * n + k, "image_id": n, "caption": f"Caption {k} of {n}."}
            for n in numbers
            for k in range(2)
        ],
    }


def coco_zips(year: int) -> dict[str, bytes]:
    """The zips of a COCO with three photographs to train on and one to validate, by their paths."""
    numbers = {"train": range(1, 4), "val": range(4, 5)}
    annotations: dict[str, bytes | object] = {}
    zips = {}
    for split, those in numbers.items():
        annotations[f"annotations/captions_{split}{year}.json"] = coco_captions(split, year, those)
        annotations[f"annotations/instances_{split}{year}.json"] = {"annotations": []}
        annotations[f"annotations/person_keypoints_{split}{year}.json"] = {"annotations": []}
        zips[f"/zips/{split}{year}.zip"] = packed(
            {f"{split}{year}/{photograph(split, year, n)}": jpeg(n) for n in those}
        )
    return zips | {f"/annotations/annotations_trainval{year}.zip": packed(annotations)}


def karpathy_zip() -> bytes:
    splits = {1: "train", 2: "test", 3: "restval", 4: "val"}
    images = [
        {
            "cocoid": n,
            "filepath": "val2014" if n == 4 else "train2014",
            "filename": photograph("val" if n == 4 else "train", 2014, n),
            "split": split,
            "sentences": [{"raw": f"Sentence of {n}."}],
        }
        for n, split in splits.items()
    ]
    return packed({f"dataset_{n}.json": {"images": images} for n in ("coco", "flickr30k")})


def flickr8k_zips() -> dict[str, bytes]:
    lists = {"train": ["1.jpg", "2.jpg"], "dev": ["3.jpg"], "test": ["4.jpg"]}
    tokens = "".join(f"{n}.jpg#{k}\tCaption {k} .\n" for n in range(1, 5) for k in range(5))
    texts: dict[str, bytes | object] = {"Flickr8k.token.txt": tokens.encode(), "readme.txt": b"-"}
    for name, names in lists.items():
        texts[f"Flickr_8k.{name}Images.txt"] = "\n".join(names).encode()
    photographs: dict[str, bytes | object] = {
        f"Flicker8k_Dataset/{n}.jpg": jpeg(n) for n in range(1, 5)
    }
    photographs["__MACOSX/Flicker8k_Dataset/._1.jpg"] = b"-"
    return {"/Flickr8k_text.zip": packed(texts), "/Flickr8k_Dataset.zip": packed(photographs)}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """All published zips in miniature; their sizes and checksums stand where the real ones do."""
    zips = coco_zips(2014) | coco_zips(2017) | flickr8k_zips()
    zips["/caption_datasets.zip"] = karpathy_zip()
    known = {
        path.rpartition("/")[2].removesuffix(".zip"): (len(content), sha256(content))
        for path, content in zips.items()
    }
    photographs = {name: known[name] for name in tables._COCO_PHOTOGRAPHS}
    annotations = {year: known[f"annotations_trainval{year}"] for year in (2014, 2017)}
    monkeypatch.setattr(tables, "_COCO_PHOTOGRAPHS", photographs)
    monkeypatch.setattr(tables, "_COCO_ANNOTATIONS", annotations)
    monkeypatch.setattr(tables, "_CAPTION_DATASETS", known["caption_datasets"])
    flickr8k = tuple(
        replace(archive, digest=f"sha256:{known[archive.name.removesuffix('.zip')][1]}", growth=50)
        for archive in tables.FLICKR8K
    )
    monkeypatch.setattr(tables, "FLICKR8K", flickr8k)
    monkeypatch.setattr(tables, "PHOTOGRAPHS", 50)  # these JPEGs are of one colour
    monkeypatch.setattr(download, "PAUSES", (0.0,) * 3)
    with FileServer(zips).running() as server:
        yield server


def script(name: str, server: FileServer, folder: Path, *options: str) -> int:
    """Run scripts/NAME.py as its own process would."""
    program = load_script(name)
    argv = [f"scripts/{name}.py", "--to", str(folder), "--source", server.url, *options]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", argv)
        return module.run(program.main)


def captions(data: DataSettings, split: str) -> dict[object, tuple[str, ...]]:
    pictures = load_split(data, split)
    for picture in pictures:
        picture.open()
    return {picture.image_id: picture.captions for picture in pictures}


@pytest.mark.parametrize("year", [2014, 2017])
def test_coco_comes_and_is_read(mirror: FileServer, tmp_path: Path, year: int) -> None:
    folder = tmp_path / "data/coco"
    assert script("download_coco", mirror, folder, "--year", str(year)) == 0
    data = DataSettings(kind="coco", root=folder)
    assert captions(data, "train") == {
        n: (f"Caption 0 of {n}.", f"Caption 1 of {n}.") for n in (1, 2, 3)
    }
    assert captions(data, "val") == {4: ("Caption 0 of 4.", "Caption 1 of 4.")}
    assert {path.name for path in folder.iterdir()} == {
        ".lock",
        "annotations",
        f"train{year}",
        f"val{year}",
    }
    assert {path.name for path in (folder / "annotations").iterdir()} == {
        f"{kind}_{split}{year}.json"
        for kind in ("captions", "instances")
        for split in ("train", "val")
    }


def test_karpathys_splits_come_and_are_read(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script("download_coco", mirror, tmp_path, "--year", "2014", "--karpathy") == 0
    data = DataSettings(kind="karpathy", root=tmp_path, captions=tmp_path / "dataset_coco.json")
    read = {split: set(captions(data, split)) for split in ("train", "val", "test")}
    assert read == {"train": {1, 3}, "val": {4}, "test": {2}}
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"or: data.kind=karpathy data.root={tmp_path} data.captions={tmp_path}/dataset_coco.json"
    )


def test_flickr8k_comes_and_is_read(mirror: FileServer, tmp_path: Path) -> None:
    assert script("download_flickr8k", mirror, tmp_path) == 0
    data = DataSettings(kind="flickr8k", root=tmp_path)
    read = {split: list(captions(data, split)) for split in ("train", "val", "test")}
    assert read == {"train": ["1.jpg", "2.jpg"], "val": ["3.jpg"], "test": ["4.jpg"]}
    assert not (tmp_path / "__MACOSX").exists()


def test_flickr30ks_captions_come_alone(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script("download_flickr30k", mirror, tmp_path) == 0
    assert (tmp_path / "dataset_flickr30k.json").is_file()
    assert "ask for the photographs at https://forms.illinois.edu" in capsys.readouterr().out


def test_both_years_share_a_folder(mirror: FileServer, tmp_path: Path) -> None:
    for year in ("2014", "2017"):
        assert script("download_coco", mirror, tmp_path, "--year", year) == 0
    assert len(list((tmp_path / "annotations").iterdir())) == 8


def test_a_second_call_asks_nothing(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("download_coco", mirror, tmp_path)
    mirror.asked.clear()
    capsys.readouterr()
    assert script("download_coco", mirror, tmp_path) == 0
    assert mirror.asked == []
    assert capsys.readouterr().out.startswith(f"{tmp_path}: all is there already\n")


def test_another_split_asks_for_that_alone(mirror: FileServer, tmp_path: Path) -> None:
    script("download_coco", mirror, tmp_path, "--splits", "val")
    assert not (tmp_path / "train2017").exists()
    mirror.asked.clear()
    script("download_coco", mirror, tmp_path)
    assert {path for path, *_ in mirror.asked} == {"/zips/train2017.zip"}
    assert (tmp_path / "train2017").is_dir()


def test_kept_zips_are_checked_and_used(mirror: FileServer, tmp_path: Path) -> None:
    script("download_coco", mirror, tmp_path, "--keep-zips")
    assert len(list(tmp_path.glob("*.zip"))) == 3
    shutil.rmtree(tmp_path / "val2017")
    mirror.asked.clear()
    assert script("download_coco", mirror, tmp_path, "--keep-zips") == 0
    assert mirror.asked == []
    assert (tmp_path / "val2017").is_dir()


def test_a_zip_of_ones_own_that_is_another_is_refused_and_stays(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "val2017.zip").write_bytes(b"half")
    assert script("download_coco", mirror, tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"download_coco: error: {tmp_path}/val2017.zip: is not the published")
    assert error.count("\n") == 1
    assert (tmp_path / "val2017.zip").read_bytes() == b"half"
    assert mirror.asked == []


def test_all_zips_come_at_once(mirror: FileServer, tmp_path: Path) -> None:
    """No answer ends before all three are being sent."""
    mirror.together = threading.Barrier(3)
    assert script("download_coco", mirror, tmp_path) == 0
    assert len(mirror.asked) == 9  # each is asked for its size twice


def test_a_mirror_with_another_file_is_seen_before_any_comes(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.files["/zips/val2017.zip"] += b"longer"
    assert script("download_coco", mirror, tmp_path) == 2
    assert "the published file" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}
    assert len(mirror.asked) == 3


def test_a_mirror_with_other_bytes_is_seen(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = mirror.files["/zips/val2017.zip"]
    mirror.files["/zips/val2017.zip"] = bytes([content[0] ^ 1]) + content[1:]
    assert script("download_coco", mirror, tmp_path) == 2
    assert "another file came than the published one" in capsys.readouterr().err
    assert not (tmp_path / "val2017").exists()
    mirror.files["/zips/val2017.zip"] = content
    assert script("download_coco", mirror, tmp_path) == 0


def test_a_missing_file_is_seen_before_any_comes(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del mirror.files["/zips/val2017.zip"]
    assert script("download_coco", mirror, tmp_path) == 2
    error = capsys.readouterr().err
    assert error == (
        f"download_coco: error: {mirror.url}/zips/val2017.zip: is not there (404 Not Found); "
        "choose another --source\n"
    )
    assert {path.name for path in tmp_path.iterdir()} == {".lock"}


def test_no_network_is_one_line_at_once(
    mirror: FileServer, tmp_path: Path, no_network: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script("download_coco", mirror, tmp_path) == 2
    line = capsys.readouterr().err
    assert line.startswith("download_coco: error: ")
    assert "no connection to 127.0.0.1 (" in line
    assert line.endswith("; is the network there? Or choose another --source\n")
    assert line.count("\n") == 1


def test_too_little_room_is_seen_before_any_comes(
    mirror: FileServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is needed is what is to come and what it unpacks to at most."""
    zips = {path: len(mirror.files[path]) for path in mirror.files if "2017" in path}
    growth = {path: tables.TEXTS if "annotations" in path else 50 for path in zips}
    unpacked = sum(int(size * growth[path]) for path, size in zips.items())
    needed = sum(zips.values()) + unpacked
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=needed - 1))
    assert script("download_coco", mirror, tmp_path) == 2
    assert f"{tmp_path}: {needed:,} bytes are needed" in capsys.readouterr().err
    assert len(mirror.asked) == 3
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=needed))
    assert script("download_coco", mirror, tmp_path) == 0


def test_what_has_come_needs_no_more_room(
    mirror: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tables.coco(2017, ("val",))[1]
    content = mirror.files["/zips/val2017.zip"]
    mirror.cut = 100
    mirror.before = lambda number: mirror.files.pop("/zips/val2017.zip") if number == 3 else None
    with pytest.raises(DownloadError):
        obtain((archive,), tmp_path, source=mirror.url)
    have = come(tmp_path / "val2017.zip")
    assert have > 0
    mirror.files["/zips/val2017.zip"] = content
    mirror.cut, mirror.before = None, lambda number: None
    needed = len(content) - have + archive.most(len(content))
    usage = shutil.disk_usage(tmp_path)._replace(free=needed)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage)
    obtain((archive,), tmp_path, source=mirror.url)
    assert mirror.resumed() == [f"bytes={have}-"]


def test_a_small_disk_is_seen_before_any_comes(
    mirror: FileServer, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (small_disk / "other").write_bytes(bytes(190_000))
    assert script("download_coco", mirror, small_disk) == 2
    assert "bytes are needed" in capsys.readouterr().err


def test_two_at_once_in_one_folder_are_refused(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with FileLock(tmp_path / ".lock"):
        assert script("download_coco", mirror, tmp_path) == 2
    assert capsys.readouterr().err == (
        f"download_coco: error: {tmp_path}: another download is using it; wait for its end\n"
    )
    assert script("download_coco", mirror, tmp_path) == 0


def test_a_folder_that_cannot_be_made_is_one_line(
    mirror: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert script("download_coco", mirror, tmp_path / "file/coco") == 2
    assert capsys.readouterr().err == (
        f"download_coco: error: {tmp_path}/file/coco: Not a directory\n"
    )


def test_a_zip_of_something_else_is_refused(mirror: FileServer, tmp_path: Path) -> None:
    content = packed({"something/else": b""})
    mirror.files["/a.zip"] = content
    archive = Archive(mirror.url, "a.zip", f"sha256:{sha256(content)}", ("train2017",), 1.1)
    with pytest.raises(UnzipError, match="has no train2017"):
        obtain((archive,), tmp_path)


def test_karpathy_needs_2014(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        script("download_coco", FileServer({}), tmp_path, "--karpathy")
    assert "add --year 2014" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_leaves_a_part_that_the_next_call_goes_on_from(
    tmp_path: Path,
) -> None:
    """The server holds the second half back until the first has come and Ctrl-C is pressed."""
    content = packed({"train2017/a.jpg": os.urandom(400_000)})
    archive = f"Archive(URL, 'a.zip', 'sha256:{sha256(content)}', ('train2017',), 1.1)"
    program = f"""
        import sys
        from pathlib import Path
        from showattend.archives import Archive
        from showattend.obtain import obtain, run
        URL, sys.argv[0] = sys.argv[1], "download_coco.py"
        sys.exit(run(lambda: obtain(({archive},), Path("data"))))
    """
    target = tmp_path / "data/a.zip"
    with FileServer({"/a.zip": content}, stall=200_000).running() as server:
        command = [sys.executable, "-c", textwrap.dedent(program), server.url]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 60
        while not (target.parent.is_dir() and come(target) > 100_000):
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
        assert process.returncode == 130
        assert error == "download_coco: interrupted; run again, it goes on from there\n"
        have = come(target)
        assert have > 100_000
        assert not target.exists()
        server.stall = None
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert server.resumed() == [f"bytes={have}-"]
    assert (tmp_path / "data/train2017/a.jpg").stat().st_size == 400_000
