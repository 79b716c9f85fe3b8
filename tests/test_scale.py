"""Runs at scale: each photograph once, however many processes there are and wherever one stops."""

import errno
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from conftest import MakePicture
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st
from test_records import caption_of, read_records

import showattend.scale
from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.cli import main
from showattend.images import ImageError
from showattend.predict import CaptionModel
from showattend.records import Record, RecordForm, RecordsError
from showattend.scale import (
    SETTINGS,
    Inputs,
    Run,
    ScaleError,
    Share,
    captioned,
    device_of,
    find_inputs,
    share_of,
)
from showattend.search import Caption


def stream(
    photographs: Iterable[str | bytes],
) -> Iterator[tuple[str | bytes, Caption | ImageError]]:
    """Says of each photograph what it holds, two at a time, as a model's batches; bad ones fail."""
    batch: list[str | bytes] = []
    for photo in chain(photographs, [None]):
        if photo is not None:
            batch.append(photo)
        if photo is None or len(batch) == 2:
            for each in batch:
                text = each if isinstance(each, str) else each.decode()
                yield each, ImageError(f"{text}: bad") if "bad" in text else caption_of(text)
            batch.clear()


def write_tar(path: Path, *names: str) -> str:
    """Each member holds its own name."""
    with tarfile.open(path, "w") as archive:
        for name in names:
            content = path.with_name("content")
            content.write_text(name)
            archive.add(content, name)
            content.unlink()
    return str(path)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    folder = tmp_path / "in"
    folder.mkdir()
    counts = (7, 0, 2, 4)
    tars = [
        write_tar(folder / f"{t}.tar", *(f"{t}_{n}.jpg" for n in range(count)))
        for t, count in enumerate(counts)
    ]
    return Inputs(tuple(f"f{n}" if n != 3 else "bad" for n in range(5)), tuple(tars))


EVERYTHING = sorted(
    [f"{t}_{n}.jpg" for t, count in enumerate((7, 0, 2, 4)) for n in range(count)]
    + ["f0", "f1", "f2", "bad", "f4"]
)


def run_of(folder: Path, rank: int = 0, world: int = 1, form: RecordForm = "jsonl") -> Run:
    run = Run(folder, form, 3, Share(rank, world))
    run.begin({"model": "tiny"})
    return run


def contents(folder: Path) -> dict[str, bytes]:
    """Without the locks."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}


def images(folder: Path) -> list[str]:
    paths = [path for path in sorted(folder.iterdir()) if path.name[0] not in "._"]
    return sorted(record["image"] for path in paths for record in read_records(path))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_every_photograph_has_its_record(tmp_path: Path, inputs: Inputs, form: RecordForm) -> None:
    out = tmp_path / "out"
    told = list(run_of(out, form=form).write(inputs, stream))
    assert images(out) == EVERYTHING == sorted(record["image"] for record in told)
    assert [record["error"] for record in told if record["error"]] == ["bad: bad"]
    assert all(record["caption"] == record["image"] for record in told if not record["error"])
    assert {record["tar"] for record in told} == {None, *inputs.tars} - {inputs.tars[1]}
    assert sorted(contents(out)) == [
        SETTINGS,
        f"files-00000-of-00002.{form}",
        f"files-00001-of-00002.{form}",
        f"tar00000-00000-of-00003.{form}",
        f"tar00000-00001-of-00003.{form}",
        f"tar00000-00002-of-00003.{form}",
        f"tar00001-00000-of-00001.{form}",  # empty, so that the tar file is known to be done
        f"tar00002-00000-of-00001.{form}",
        f"tar00003-00000-of-00002.{form}",
        f"tar00003-00001-of-00002.{form}",
    ]


@pytest.mark.parametrize("world", [2, 3, 4, 5, 9])
def test_processes_share_the_work(tmp_path: Path, inputs: Inputs, world: int) -> None:
    """More or fewer than tar files: all at once write what one alone does, none a record twice."""
    list(run_of(tmp_path / "one").write(inputs, stream))
    told: list[Record] = []
    for rank in range(world):
        told += run_of(tmp_path / "many", rank, world).write(inputs, stream)
    assert sorted(record["image"] for record in told) == EVERYTHING
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


@pytest.mark.parametrize("stop", range(0, 18, 2))
def test_a_run_that_stops_is_taken_up_again(tmp_path: Path, inputs: Inputs, stop: int) -> None:
    """What lies in whole files is not captioned again, not even by another number of processes."""
    list(run_of(tmp_path / "one").write(inputs, stream))
    out = tmp_path / "two"
    stopped = run_of(out).write(inputs, stream)
    for _ in range(stop):
        next(stopped)
    stopped.close()
    kept = images(out)
    assert stop - 3 <= len(kept) <= stop
    again = [
        record["image"] for rank in (0, 1) for record in run_of(out, rank, 2).write(inputs, stream)
    ]
    assert sorted(kept + again) == EVERYTHING
    assert contents(out) == contents(tmp_path / "one")


def test_a_run_that_is_over_opens_no_tar_file(tmp_path: Path, inputs: Inputs) -> None:
    list(run_of(tmp_path / "out").write(inputs, stream))
    for path in inputs.tars:
        Path(path).unlink()
    assert list(run_of(tmp_path / "out").write(inputs, stream)) == []


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("files-00001-of-00002.jsonl", 0),
        ("files-00000-of-00002.jsonl", 5),
        ("tar00000-00002-of-00003.jsonl", 0),
        ("tar00002-00000-of-00001.jsonl", 5),
    ],
)
def test_a_file_cut_short_is_told_before_work_begins(
    tmp_path: Path, inputs: Inputs, name: str, length: int
) -> None:
    out = tmp_path / "out"
    list(run_of(out).write(inputs, stream))
    whole = contents(out)
    os.truncate(out / name, length)
    with pytest.raises(RecordsError) as caught:
        next(run_of(out).write(inputs, stream))
    assert str(caught.value).startswith(f"{out / name}: is cut short; remove it and run ")
    (out / name).unlink()
    assert list(run_of(out).write(inputs, stream))
    assert contents(out) == whole


def test_a_hostile_tar_file_keeps_none_from_the_next(tmp_path: Path, inputs: Inputs) -> None:
    pax = tarfile.TarInfo("x")
    pax.type, pax.size = tarfile.XHDTYPE, 9
    header = pax.tobuf(tarfile.GNU_FORMAT) + b"9 path=a\n".ljust(tarfile.BLOCKSIZE, b"\0")
    Path(inputs.tars[0]).write_bytes(header * 5000)
    told = list(run_of(tmp_path / "out").write(inputs, stream))
    bad = [record for record in told if record["tar"] == inputs.tars[0]]
    assert [record["image"] for record in bad] == [inputs.tars[0]]
    assert "is damaged or no tar file (too many headers of one member)" in bad[0]["error"]
    rest = [record["image"] for record in told if record not in bad]
    assert sorted(rest) == [name for name in EVERYTHING if not name.startswith("0_")]


def test_a_folder_of_a_file_s_name_is_told(tmp_path: Path, inputs: Inputs) -> None:
    out = tmp_path / "out"
    run_of(out)
    (out / "tar00000-00000-of-00003.jsonl").mkdir()
    with pytest.raises(RecordsError, match=r"of-00003\.jsonl: is no file, but has the name of"):
        next(run_of(out).write(inputs, stream))


def test_files_of_other_names_are_others(tmp_path: Path, inputs: Inputs) -> None:
    run_of(tmp_path / "one")
    strangers = [
        "tar00000-x-of-y.jsonl",
        "tar00000-0-of-1.jsonl",
        "tar00000-00000-of-00001.jsonl.bak",
        "tar00000-00000-of-00001.parquet",
        "tar00002-00000-of-00000.jsonl",
        "tar00002-00009-of-00001.jsonl",
        "tar00003-00000-of-99999999999999999999.jsonl",
        "mine.jsonl",
    ]
    for name in strangers:
        (tmp_path / "one" / name).write_text("\n")
    told = [record["image"] for record in run_of(tmp_path / "one").write(inputs, stream)]
    assert sorted(told) == EVERYTHING


# Several at once


def test_a_second_run_at_once_is_refused(
    tmp_path: Path, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its number of processes; and the first goes on unharmed."""
    monkeypatch.setattr(showattend.scale, "_PATIENCE", 0.1)
    list(run_of(tmp_path / "one").write(inputs, stream))
    out = tmp_path / "two"
    first = run_of(out).write(inputs, stream)
    told = [next(first)]
    for rank, world in ((0, 1), (0, 2), (2, 3)):
        with pytest.raises(ScaleError) as caught:
            next(run_of(out, rank, world).write(inputs, stream))
        reason = "another run is writing into this folder; wait for its end"
        assert str(caught.value) == f"{out}: {reason}"
    told += first
    assert sorted(record["image"] for record in told) == EVERYTHING
    assert contents(out) == contents(tmp_path / "one")
    assert list(run_of(out, 0, 2).write(inputs, stream)) == []


def test_processes_of_one_run_write_at_once(tmp_path: Path, inputs: Inputs) -> None:
    list(run_of(tmp_path / "one").write(inputs, stream))
    out = tmp_path / "many"
    at_once = [run_of(out, rank, 3).write(inputs, stream) for rank in range(3)]
    told = [record for turn in zip_longest(*at_once) for record in turn if record]
    assert sorted(record["image"] for record in told) == EVERYTHING
    assert contents(out) == contents(tmp_path / "one")


def test_a_look_at_a_lock_refuses_nobody(tmp_path: Path, inputs: Inputs) -> None:
    """Those that begin at the same time look at the locks of an older run all at once."""
    list(run_of(tmp_path / "out").write(inputs, stream))
    lock = FileLock(tmp_path / "out" / ".process-0-of-1.lock", thread_local=False)
    lock.acquire()
    timer = threading.Timer(0.2, lock.release)
    timer.start()
    assert list(run_of(tmp_path / "out", 0, 2).write(inputs, stream)) == []
    timer.join()


@given(st.lists(st.booleans(), max_size=12))
def test_failures_keep_their_places(readable: list[bool]) -> None:
    content: list[tuple[str, str | ImageError]] = [
        (f"{n}", f"{n}" if good else ImageError("bad")) for n, good in enumerate(readable)
    ]
    told = list(captioned(content, stream))
    assert [name for name, _ in told] == [name for name, _ in content]
    for (name, result), good in zip(told, readable, strict=True):
        assert result.text == name if isinstance(result, Caption) else not good


def test_photographs_are_read_as_they_are_captioned() -> None:
    """Of a million, a batch or two are in memory."""
    read = 0

    def content() -> Iterator[tuple[str, str]]:
        nonlocal read
        for n in range(100):
            read += 1
            yield f"{n}", f"{n}"

    for told, _ in enumerate(captioned(content(), stream), 1):
        assert read - told < 2


# Settings


def test_another_run_is_refused(tmp_path: Path) -> None:
    run_of(tmp_path / "out")
    with pytest.raises(
        ScaleError, match=r"out: was begun with model tiny, which is now soft; go on"
    ):
        Run(tmp_path / "out", "jsonl", 3, Share()).begin({"model": "soft"})
    with pytest.raises(ScaleError, match="was begun with size 3, which is now 4"):
        Run(tmp_path / "out", "jsonl", 4, Share()).begin({"model": "tiny"})
    (tmp_path / "out" / SETTINGS).write_text("[")
    with pytest.raises(ScaleError, match=r"_settings\.json: is damaged; name a new folder"):
        run_of(tmp_path / "out")


def test_a_folder_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").touch()
    with pytest.raises(ScaleError, match="holds other files; name a new folder"):
        run_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]


def test_inputs_are_told_apart(tmp_path: Path) -> None:
    tar = write_tar(tmp_path / "a.tar", "a.jpg")
    several = [Inputs(("a", "b"), ()), Inputs(("a",), ()), Inputs(("a",), (tar,))]
    digests = {one.digest() for one in several}
    write_tar(tmp_path / "a.tar", *(f"{n}.jpg" for n in range(99)))
    assert len(digests | {several[-1].digest()}) == 4


# What there is to do


def test_inputs_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("d").mkdir()
    for name in ("d/b.png", "d/a.JPG", "d/note.txt", "c.jpg"):
        Path(name).touch()
    for name in ("d/x.tar", "y.tar"):
        write_tar(Path(name))
    assert find_inputs(["d"]) == Inputs(("d/a.JPG", "d/b.png"), ("d/x.tar",))
    assert find_inputs(["c.jpg", "y.tar", "**/*.tar"]) == Inputs(
        ("c.jpg",), ("y.tar", "d/x.tar", "y.tar")
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty", "empty: no photograph found; name files, folders or globs"),
        ("gone.tar", "gone.tar: no such tar file; check the path"),
        ("a.tar.gz", "'a.tar.gz': is a compressed tar file"),
    ],
)
def test_nothing_to_do_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("a.tar.gz").touch()
    with pytest.raises(ImageError) as caught:
        find_inputs([name])
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    ("rank", "world", "share"),
    [(None, None, Share(0, 1)), ("0", "1", Share(0, 1)), ("2", "3", Share(2, 3))],
)
def test_shares(rank: str | None, world: str | None, share: Share) -> None:
    given = {"RANK": rank, "WORLD_SIZE": world}
    assert share_of({name: text for name, text in given.items() if text is not None}) == share


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "1"},
        {"WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "-1", "WORLD_SIZE": "2"},
        {"RANK": "one", "WORLD_SIZE": "2"},
        {"RANK": "0", "WORLD_SIZE": "0"},
    ],
)
def test_shares_that_there_are_not(environment: dict[str, str]) -> None:
    with pytest.raises(ScaleError, match=r"^RANK is .*; set both, as torchrun does, or neither$"):
        share_of(environment)


def test_devices() -> None:
    assert device_of("auto", {"LOCAL_RANK": "3"}, 2) == "cuda:1"
    assert device_of("cuda", {"LOCAL_RANK": "0"}, 8) == "cuda:0"
    assert device_of("auto", {"LOCAL_RANK": "3"}, 0) == "auto"
    assert device_of("cpu", {"LOCAL_RANK": "3"}, 2) == "cpu"
    assert device_of("cuda", {}, 2) == "cuda"


# With a model


def test_a_model_captions_files_and_tar_members_alike(
    tmp_path: Path, checkpoint: Checkpoint, make_picture: MakePicture
) -> None:
    for name in ("a.png", "b.png"):
        make_picture(name, seed=ord(name[0]))
    (tmp_path / "c.png").write_text("no photograph")
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        for name in ("a.png", "c.png", "b.png"):
            archive.add(tmp_path / name, f"../{name}")
    run = Run(tmp_path / "out", "jsonl", 10, Share())
    run.begin({})
    records = list(run.write(find_inputs([str(tmp_path)]), CaptionModel(checkpoint, "tiny").stream))
    told = {record["image"]: record for record in records}
    assert len(told) == 6
    for name in ("a.png", "b.png"):
        assert told[f"../{name}"]["caption"] == told[str(tmp_path / name)]["caption"]
    reason = ": is no image that can be read; save it as JPEG or PNG"
    assert told["../c.png"]["error"] == f"../c.png{reason}"
    assert told[str(tmp_path / "c.png")]["error"] == f"{tmp_path / 'c.png'}{reason}"


@pytest.mark.slow
def test_kill_9_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path, checkpoint: Checkpoint, make_picture: MakePicture
) -> None:
    """Two processes, one of them killed while it writes a file, then a single one."""
    save_checkpoint(tmp_path / "model", checkpoint)
    folder = tmp_path / "in"
    folder.mkdir()
    picture = make_picture("noise.png").source
    assert isinstance(picture, Path)
    with tarfile.open(folder / "t.tar", "w") as archive:
        for n in range(150):
            archive.add(picture, f"{n}.png")
    for n in range(200):
        (folder / f"{n}.png").hardlink_to(picture)
    (folder / "7.png").unlink()
    (folder / "7.png").write_text("no photograph")

    def start(out: str, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "showattend", "caption", str(folder)]
        command += ["--model", str(tmp_path / "model"), "--shards", str(tmp_path / out)]
        command += ["--shard-size", "100", "--batch", "2", "--device", "cpu"]
        told = os.environ | {"OMP_NUM_THREADS": "1"} | environment
        return subprocess.Popen(command, env=told, stderr=subprocess.PIPE, text=True)

    whole = start("one")
    _, said = whole.communicate()
    assert whole.returncode == 0, said
    assert said == f"{tmp_path / 'one'}: 350 photographs, 1 of them without a caption\n"
    two = [start("two", RANK=f"{rank}", WORLD_SIZE="2") for rank in (0, 1)]
    while not list((tmp_path / "two").glob(".files-00000-*.part")) and two[0].poll() is None:
        time.sleep(0.01)
    two[0].send_signal(signal.SIGKILL)
    for process in two:
        process.communicate()
    assert [process.returncode for process in two] == [-signal.SIGKILL, 0]
    assert list((tmp_path / "two").glob(".files-00000-*.part"))  # it was killed in the middle
    before = images_of_whole_files(tmp_path / "two")
    assert 0 < len(before) < 350
    again = start("two")
    _, said = again.communicate()
    assert again.returncode == 0, said
    assert f": {350 - len(before)} photographs" in said
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    once_more = start("two")
    assert once_more.communicate()[1] == f"{tmp_path / 'two'}: all is there\n"


def images_of_whole_files(folder: Path) -> list[str]:
    return [
        json.loads(line)["image"]
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


# The command


def test_the_command(
    tmp_path: Path,
    checkpoint: Checkpoint,
    make_picture: MakePicture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    save_checkpoint(tmp_path / "model", checkpoint)
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("a.png", "b.png", "c.png"):
        make_picture(f"in/{name}")
    (folder / "d.png").write_text("no photograph")
    (folder / "e.png").write_text("no photograph")
    asked = ["caption", str(folder), "--model", str(tmp_path / "model"), "--shards", str(out)]
    asked += ["--shard-size", "2", "--format", "parquet", "--begin", "a dog", "--device", "cpu"]
    assert main(asked) == 0
    told = f"{out}: 3 photographs, 1 of them without a caption (process 0 of 2)\n"
    assert capsys.readouterr() == ("", told)
    assert images(out) == [str(folder / name) for name in ("a.png", "b.png", "e.png")]
    records = read_records(out / "files-00000-of-00003.parquet")
    assert all(record["caption"].startswith("a dog") for record in records)
    assert main([*asked, "--beam", "1"]) == 2
    assert "was begun with beam_size None, which is now 1; go on with" in capsys.readouterr().err


def test_the_command_names_the_file_that_finds_no_room(
    tmp_path: Path,
    checkpoint: Checkpoint,
    make_picture: MakePicture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    save_checkpoint(tmp_path / "model", checkpoint)
    picture, out = make_picture("a.png").source, tmp_path / "out"
    monkeypatch.setattr(os, "fsync", full)
    asked = ["caption", str(picture), "--model", str(tmp_path / "model"), "--device", "cpu"]
    assert main([*asked, "--shards", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"showattend: error: {out / 'files-00000-of-00001.jsonl'}: No space left on device; "
        "make room and run the same command again\n"
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--shards", "out", "--csv"], "--shards: has a form of its own; leave out --csv, --json"),
        (["--shards", "out", "--overlay", "o"], "--shards: has a form of its own; leave out"),
        (["--format", "parquet"], "--shard-size, --format: belong to --shards DIR"),
        (["--shards", "out"], "in: no photograph found; name files, folders or globs"),
    ],
)
def test_the_command_refuses_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    assert main(["caption", "in", *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"showattend: error: {reason}")
    assert said.count("\n") == 1
    assert not Path("out").exists()
