"""Photographs opened by other processes are those that this one would open."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import MakePicture

from showattend import ahead
from showattend.ahead import batches_of_squares, workers
from showattend.config import PixelSettings
from showattend.datasets import Picture
from showattend.images import ImageError, fit_square
from showattend.shapes import make_scene

PIXELS = PixelSettings(size=48)


@pytest.fixture
def pictures(make_picture: MakePicture) -> list[Picture]:
    """Photographs and drawn scenes in turn; the third one is not there."""
    scenes = [make_scene(0, "train", index) for index in range(3)]
    drawn = [Picture(scene.image_id, scene, scene.captions) for scene in scenes]
    photographs = [make_picture(f"{seed}.png", seed) for seed in range(3)]
    mixed = [picture for pair in zip(photographs, drawn, strict=True) for picture in pair]
    assert isinstance(mixed[2].source, type(mixed[0].source))
    mixed[2].source.unlink()  # type: ignore[union-attr]
    return mixed


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_squares_come_in_order_with_errors_in_their_place(
    pictures: list[Picture], processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "workers", lambda *_: processes)
    random = torch.get_rng_state()
    batches = list(batches_of_squares(pictures, PIXELS, 4))
    assert torch.equal(torch.get_rng_state(), random)  # a training's numbers stay what they were
    assert [len(batch) for batch in batches] == [4, 2]
    found = [square for batch in batches for square in batch]
    for index, (picture, square) in enumerate(zip(pictures, found, strict=True)):
        if index == 2:
            assert isinstance(square, ImageError)
            assert str(square).startswith(f"{picture.source}: ")
        else:
            assert isinstance(square, np.ndarray)
            expected = np.asarray(fit_square(picture.open(), 48, PIXELS.resize))
            assert np.array_equal(square, expected)


def test_processes_end_with_whoever_stops_early(
    pictures: list[Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "workers", lambda *_: 2)
    batches = batches_of_squares(pictures * 5, PIXELS, 1)
    next(batches)
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    assert multiprocessing.active_children() == []


_KILLED = """
import multiprocessing, sys, time
from pathlib import Path
from showattend import ahead
from showattend.config import PixelSettings
from showattend.datasets import Picture
ahead.workers = lambda *_: 1
pictures = [Picture(0, Path(sys.argv[1]), ("a dog",))] * 200
batches = ahead.batches_of_squares(pictures, PixelSettings(size=224), 32)
next(batches)
print(multiprocessing.active_children()[0].pid, flush=True)
time.sleep(1000)
"""


def is_alive(process: Path) -> bool:
    try:
        return "(zombie)" not in (process / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_processes_end_with_a_killed_program(make_picture: MakePicture) -> None:
    """Though they are writing to it; else they would hold its locks for ever."""
    picture = make_picture("a.png")
    command = [sys.executable, "-c", _KILLED, str(picture.source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        worker = Path("/proc") / program.stdout.readline().strip()
        time.sleep(1)  # the pipe is full by now
        assert is_alive(worker)
        program.kill()
    while is_alive(worker):  # until pytest's own limit
        time.sleep(0.1)


def test_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_cores", lambda: 8)
    assert workers(63) == 0  # not worth their start
    assert workers(64) == 7
    assert workers(64, sharers=2) == 3
    assert workers(64, sharers=16) == 1
    monkeypatch.setattr(ahead, "_cores", lambda: 100)
    assert workers(64) == 16
