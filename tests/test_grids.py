"""The cache of grids: never wrong, never computed twice, whatever happened to its files."""

import copy
import errno
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import MakePicture
from filelock import FileLock
from PIL import Image, ImageOps
from torch import Tensor, nn

from showattend import grid_store
from showattend import grids as module
from showattend.captioner import Captioner, build_captioner
from showattend.checkpoint import Checkpoint
from showattend.config import EncoderSettings, PixelSettings
from showattend.datasets import DataError, Picture
from showattend.grid_store import LINE_BYTES
from showattend.grids import Grids, cache_grids, fingerprint, live_grids
from showattend.images import fit_square, open_photograph, to_pixels
from showattend.shapes import make_scene

HALF = (0.5, 0.5, 0.5)
PIXELS = PixelSettings(size=32, mean=HALF, std=HALF)


@pytest.fixture
def captioner(checkpoint: Checkpoint) -> Captioner:
    return checkpoint.captioner


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH", 2)


def counted(captioner: Captioner) -> list[int]:
    """How many pictures each call of the CNN gets from now on."""
    calls: list[int] = []
    captioner.encoder.register_forward_hook(lambda _, pixels, __: calls.append(len(pixels[0])))
    return calls


@torch.inference_mode()
def direct(
    captioner: Captioner, picture: Picture, pixels: PixelSettings = PIXELS, mirrored: bool = False
) -> Tensor:
    """The fp16 grid (P, C) without any cache."""
    square = fit_square(picture.open(), pixels.size, pixels.resize)
    square = ImageOps.mirror(square) if mirrored else square
    assert pixels.mean is not None
    assert pixels.std is not None
    values_3SS = torch.from_numpy(to_pixels(square, pixels.mean, pixels.std))
    return captioner.eval().grid(values_3SS.unsqueeze(0))[0].half()


def assert_right(grids: Grids, captioner: Captioner, pictures: list[Picture]) -> None:
    assert grids.pictures == pictures
    found_BPC = grids.read(range(len(pictures)))
    assert found_BPC.dtype == torch.float16
    for picture, found_PC in zip(pictures, found_BPC, strict=True):
        # CNNs round a little otherwise in another batch
        torch.testing.assert_close(found_PC, direct(captioner, picture), rtol=2e-3, atol=2e-3)


def five(make_picture: MakePicture) -> list[Picture]:
    return [make_picture(f"{seed}.png", seed) for seed in range(5)]


# Right, and computed once


def test_cached_grids_are_what_the_cnn_gives(
    captioner: Captioner, make_picture: MakePicture, cache: Path, few_at_once: None
) -> None:
    pictures = five(make_picture)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    assert_right(grids, captioner, pictures)
    assert torch.equal(grids.read([3, 0, 3]), grids.read(range(5))[[3, 0, 3]])
    assert grids.mirrored_rows is None


def test_a_second_call_computes_nothing(
    captioner: Captioner, make_picture: MakePicture, cache: Path, few_at_once: None
) -> None:
    pictures = five(make_picture)
    calls = counted(captioner)
    first = cache_grids(captioner, PIXELS, pictures, cache).read(range(5))
    assert calls == [2, 2, 1]
    again = cache_grids(captioner, PIXELS, pictures[::-1], cache)
    assert calls == [2, 2, 1]
    assert torch.equal(again.read(range(5)), first.flip(0))  # another order, the same pictures
    some = cache_grids(captioner, PIXELS, pictures[2:3], cache)
    assert torch.equal(some.read([0]), first[2:3])
    assert calls == [2, 2, 1]


def test_only_what_is_new_is_computed(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    pictures = five(make_picture)
    calls = counted(captioner)
    cache_grids(captioner, PIXELS, pictures[:3], cache)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    assert calls == [2, 1, 2]
    assert_right(grids, captioner, pictures)


def test_the_same_picture_under_two_names_is_computed_once(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    pictures = [
        make_picture("one.png", 1),
        make_picture("two.png", 1),
        make_picture("three.png", 3),
    ]
    calls = counted(captioner)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    assert calls == [2]
    assert_right(grids, captioner, pictures)
    assert grids.rows.tolist() == [0, 0, 1]


def test_drawn_scenes_are_cached_too(captioner: Captioner, cache: Path) -> None:
    scenes = [make_scene(0, "train", index) for index in range(3)]
    pictures = [Picture(scene.image_id, scene, scene.captions) for scene in scenes]
    calls = counted(captioner)
    first, second = (cache_grids(captioner, PIXELS, pictures, cache) for _ in range(2))
    assert calls == [2, 1]
    assert_right(first, captioner, pictures)
    assert_right(second, captioner, pictures)


def test_what_is_read_is_a_copy(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    grids = cache_grids(captioner, PIXELS, five(make_picture), cache)
    grids.read([0]).zero_()
    assert grids.read([0]).any()


def test_the_cnn_is_in_eval_mode_while_it_computes(
    checkpoint: Checkpoint, make_picture: MakePicture, cache: Path
) -> None:
    """Else BatchNorm would make a grid depend on the pictures beside it, and would drift."""
    encoder = checkpoint.encoder.model_copy(update={"trainable_stages": 2})
    captioner = build_captioner(encoder, checkpoint.decoder, size=32, words=9).train()
    before = {name: value.clone() for name, value in captioner.encoder.named_buffers()}
    pictures = five(make_picture)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    after = dict(captioner.encoder.named_buffers())
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert_right(grids, captioner, pictures)


# Mirrored


def test_mirrored_grids_are_those_of_the_mirrored_picture(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    pictures = five(make_picture)
    grids = cache_grids(captioner, PIXELS, pictures, cache, flips=True)
    assert_right(grids, captioner, pictures)
    plain, mirrored = grids.read([1, 2]), grids.read([1, 2], [True, False])
    expected = direct(captioner, pictures[1], mirrored=True)
    torch.testing.assert_close(mirrored[0], expected, rtol=2e-3, atol=2e-3)
    assert not torch.equal(mirrored[0], plain[0])
    assert torch.equal(mirrored[1], plain[1])


def test_flips_wanted_later_add_the_mirrored_ones_alone(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    pictures = five(make_picture)
    calls = counted(captioner)
    cache_grids(captioner, PIXELS, pictures, cache)
    cache_grids(captioner, PIXELS, pictures, cache, flips=True)
    assert calls == [2, 2, 1, 2, 2, 1]
    cache_grids(captioner, PIXELS, pictures, cache)
    assert calls == [2, 2, 1, 2, 2, 1]


# Nothing stale


def test_a_picture_whose_bytes_change_is_computed_anew(
    captioner: Captioner, make_picture: MakePicture, cache: Path, tmp_path: Path
) -> None:
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures, cache)
    path = tmp_path / "2.png"
    stat = path.stat()
    make_picture("2.png", 99)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the date tells nothing
    calls = counted(captioner)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    assert calls == [1]
    assert_right(grids, captioner, pictures)


@pytest.mark.parametrize(
    "changes", [{"resize": "crop"}, {"mean": (0.4, 0.5, 0.5)}, {"std": (0.4, 0.5, 0.5)}]
)
def test_other_pixels_are_other_grids(
    captioner: Captioner, tmp_path: Path, cache: Path, changes: dict[str, object]
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (32, 48, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "wide.png")
    picture = Picture(0, tmp_path / "wide.png", ("a dog",))
    cache_grids(captioner, PIXELS, [picture], cache)
    pixels = PIXELS.model_copy(update=changes)
    calls = counted(captioner)
    (grid_PC,) = cache_grids(captioner, pixels, [picture], cache).read([0])
    assert calls == [1]
    assert torch.equal(grid_PC, direct(captioner, picture, pixels))


def test_any_other_weight_or_statistic_is_another_cache(captioner: Captioner) -> None:
    plain = fingerprint(captioner, PIXELS)
    assert fingerprint(copy.deepcopy(captioner), PIXELS) == plain
    tensors = captioner.encoder.state_dict()
    for name, value in tensors.items():
        before = value.clone()
        value[(-1,) * value.ndim] += 1
        assert fingerprint(captioner, PIXELS) != plain, name
        value.copy_(before)
    assert fingerprint(captioner, PIXELS) == plain
    captioner.decoder.gate.bias.data.add_(1.0)  # it comes after the grid
    assert fingerprint(captioner, PIXELS) == plain


@pytest.mark.parametrize(("where", "cached"), [("stage", True), ("block", False)])
def test_gates_behind_the_encoder_share_its_cache_and_those_in_it_do_not(
    checkpoint: Checkpoint, where: str, cached: bool
) -> None:
    gates = {"kind": "se", "where": where}
    encoder = EncoderSettings(**checkpoint.encoder.model_dump() | {"channel_attention": gates})
    captioner = build_captioner(encoder, checkpoint.decoder, size=32, words=9)
    captioner.load_state_dict(checkpoint.captioner.state_dict(), strict=False)
    first = fingerprint(captioner, PIXELS)
    assert (first == fingerprint(checkpoint.captioner, PIXELS)) == cached
    for name, parameter in captioner.named_parameters():
        if "channel_attention" in name:
            nn.init.normal_(parameter)
    assert (fingerprint(captioner, PIXELS) == first) == cached


def test_other_weights_are_computed_anew(
    captioner: Captioner, checkpoint: Checkpoint, make_picture: MakePicture, cache: Path
) -> None:
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures, cache)
    other = build_captioner(checkpoint.encoder, checkpoint.decoder, size=32, words=9)
    calls = counted(other)
    grids = cache_grids(other, PIXELS, pictures, cache)
    assert calls == [2, 2, 1]
    assert_right(grids, other, pictures)


def test_a_folder_tells_whose_grids_it_holds(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures[:4], cache)
    path = cache / fingerprint(captioner, PIXELS) / "about.json"
    assert json.loads(path.read_text()) == {
        "encoder": "test_efficientnet",
        "grid": {"height": 8, "width": 8, "channels": 24, "early": 0, "factor": 1},
        "pixels": {"size": 32, "resize": "squash", "mean": [0.5] * 3, "std": [0.5] * 3},
    }
    assert not list(path.parent.glob(".*.part"))
    path.unlink()  # a folder of before
    calls = counted(captioner)
    assert_right(cache_grids(captioner, PIXELS, pictures[:4], cache), captioner, pictures[:4])
    assert len(calls) == 4  # of the comparison; none for the cache
    assert not path.exists()
    cache_grids(captioner, PIXELS, pictures, cache)
    assert path.exists()  # as it grows


def test_a_full_disk_that_cannot_tell_whose_grids_it_holds_is_one_line(
    captioner: Captioner, make_picture: MakePicture, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(module, "write_whole", full)
    with pytest.raises(DataError) as caught:
        cache_grids(captioner, PIXELS, five(make_picture), cache)
    path = cache / fingerprint(captioner, PIXELS) / "about.json"
    assert str(caught.value).startswith(f"{path}: cannot be written (No space left on device);")
    assert "\n" not in str(caught.value)


# Interrupted and damaged


def test_an_interrupted_run_is_taken_up_where_it_ended(
    captioner: Captioner, make_picture: MakePicture, cache: Path, few_at_once: None
) -> None:
    pictures = five(make_picture)
    calls: list[int] = []

    def interrupt(_: nn.Module, pixels: tuple[Tensor], __: Tensor) -> None:
        calls.append(len(pixels[0]))
        if len(calls) == 2:
            raise KeyboardInterrupt

    handle = captioner.encoder.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache_grids(captioner, PIXELS, pictures, cache)
    handle.remove()
    later = counted(captioner)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    assert later == [2, 1]  # two of five were done
    assert_right(grids, captioner, pictures)


def cut(name: str, size: int) -> Callable[[Path], None]:
    """Cut bytes off the end of a file, or (below 0) add so many of garbage."""

    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[:-size] if size > 0 else content + b"x" * -size)

    return damage


GRID_BYTES = 64 * 24 * 2


@pytest.mark.parametrize(
    ("damages", "lost"),
    [
        ([cut("grids-0000.keys", 1)], 1),  # a line without its end
        ([cut("grids-0000.keys", LINE_BYTES)], 1),
        ([cut("grids-0000.keys", LINE_BYTES + 1)], 2),
        ([cut("grids-0000.keys", 5 * LINE_BYTES)], 5),
        ([cut("grids-0000.f16", 1)], 1),
        ([cut("grids-0000.f16", GRID_BYTES)], 1),
        ([cut("grids-0000.f16", GRID_BYTES + 1)], 2),
        ([cut("grids-0000.f16", 5 * GRID_BYTES)], 5),
        ([cut("grids-0000.keys", LINE_BYTES + 9), cut("grids-0000.f16", 1)], 2),
        ([cut("grids-0000.f16", -GRID_BYTES - 7)], 0),  # grids whose keys were never written
        ([cut("grids-0000.keys", -7)], 0),  # half a line
        ([lambda folder: (folder / "grids-0000.keys").unlink()], 5),
        ([lambda folder: (folder / "grids-0000.f16").unlink()], 5),
    ],
)
def test_torn_files_lose_what_was_torn_and_nothing_else(
    captioner: Captioner,
    make_picture: MakePicture,
    cache: Path,
    damages: list[Callable[[Path], None]],
    lost: int,
) -> None:
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures, cache)
    for damage in damages:
        damage(cache / fingerprint(captioner, PIXELS))
    calls = counted(captioner)
    pictures.append(make_picture("new.png", 77))
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    assert sum(calls) == lost + 1
    assert_right(grids, captioner, pictures)
    calls.clear()
    assert_right(cache_grids(captioner, PIXELS, pictures, cache), captioner, pictures)
    assert len(calls) == len(pictures)  # of the comparison; none for the cache


def test_a_key_left_behind_never_names_another_grid(
    captioner: Captioner, make_picture: MakePicture, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two grids are torn off, their keys are not; then a kill comes between a grid and its key."""
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures, cache)
    cut("grids-0000.f16", 2 * GRID_BYTES)(cache / fingerprint(captioner, PIXELS))
    pictures += [make_picture("new.png", 77), make_picture("newer.png", 78)]
    cache_grids(captioner, PIXELS, pictures[5:6], cache)
    overwrite = grid_store.overwrite

    def killed(path: Path, offset: int, content: bytes) -> None:
        if path.name == "grids-0000.keys":
            raise KeyboardInterrupt
        overwrite(path, offset, content)

    with monkeypatch.context() as patched:
        patched.setattr(grid_store, "overwrite", killed)
        with pytest.raises(KeyboardInterrupt):
            cache_grids(captioner, PIXELS, pictures[6:], cache)
    assert_right(cache_grids(captioner, PIXELS, pictures, cache), captioner, pictures)


# Damage found in the middle of a training


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("mirrored", [False, True])
def test_a_damaged_grid_is_named_computed_anew_and_mended(
    captioner: Captioner,
    make_picture: MakePicture,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    mirrored: bool,
) -> None:
    pictures = five(make_picture)
    grids = cache_grids(captioner, PIXELS, pictures, cache, flips=True)
    sides = [mirrored] * 5
    before = grids.read(range(5), sides)
    path = cache / fingerprint(captioner, PIXELS) / "grids-0000.f16"
    flip(path, (2 * 2 + mirrored) * GRID_BYTES + 100)
    captioner.train()
    calls = counted(captioner)
    capsys.readouterr()
    after = grids.read(range(5), sides)
    assert calls == [1]
    assert captioner.training  # the training goes on as it was
    said = f"{path}: the grid of {pictures[2].source} is damaged; it is computed anew\n"
    assert capsys.readouterr().out == said
    torch.testing.assert_close(after, before, rtol=2e-3, atol=2e-3)
    for again in (grids, cache_grids(captioner, PIXELS, pictures, cache, flips=True)):
        assert torch.equal(again.read(range(5), sides), after)
    assert calls == [1]
    assert capsys.readouterr().out == ""


def test_a_grid_is_mended_in_full_precision_within_autocast(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    pictures = five(make_picture)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    flip(cache / fingerprint(captioner, PIXELS) / "grids-0000.f16", 0)
    with torch.autocast("cpu", torch.bfloat16):
        (found_PC,) = grids.read([0])
    assert torch.equal(found_PC, direct(captioner, pictures[0]))


def change(path: Path) -> None:
    Image.new("RGB", (32, 32), "red").save(path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(change, "the photograph is another one by now"), (Path.unlink, "cannot be read")],
)
def test_a_damaged_grid_whose_photograph_is_lost_ends_in_one_line(
    captioner: Captioner,
    make_picture: MakePicture,
    cache: Path,
    spoil: Callable[[Path], None],
    reason: str,
) -> None:
    pictures = five(make_picture)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    path = cache / fingerprint(captioner, PIXELS) / "grids-0000.f16"
    flip(path, 5 * GRID_BYTES - 1)
    assert isinstance(pictures[4].source, Path)
    spoil(pictures[4].source)
    with pytest.raises(DataError) as caught:
        grids.read([0, 4])
    assert str(caught.value).startswith(f"{path}: the grid of {pictures[4].source} is damaged")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


# Room on the disk


def test_what_is_missing_is_told_before_the_start(
    captioner: Captioner,
    make_picture: MakePicture,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures[:3], cache)
    capsys.readouterr()
    cache_grids(captioner, PIXELS, pictures, cache, flips=True)
    folder = cache / fingerprint(captioner, PIXELS)
    assert capsys.readouterr().out.startswith(
        f"{folder}: grids to compute: 7 of 3,072 bytes, 0.02 MB; "
    )
    cache_grids(captioner, PIXELS, pictures, cache, flips=True)
    assert capsys.readouterr().out == ""


def test_too_small_a_disk_is_refused_in_one_line(
    captioner: Captioner,
    make_picture: MakePicture,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pictures, calls = five(make_picture), counted(captioner)
    need = 5 * (GRID_BYTES + LINE_BYTES)
    for free, enough in ((need - 1, False), (need, True)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        if enough:
            cache_grids(captioner, PIXELS, pictures, cache)
            continue
        with pytest.raises(DataError) as caught:
            cache_grids(captioner, PIXELS, pictures, cache)
        assert "grids to compute: 5 of 3,072 bytes, 0.02 MB; 0.02 MB are free; make room" in str(
            caught.value
        )
        assert "\n" not in str(caught.value)
        assert calls == []
    assert calls == [2, 2, 1]


def test_a_disk_that_fills_up_ends_in_one_line_and_keeps_what_is_written(
    captioner: Captioner,
    make_picture: MakePicture,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    few_at_once: None,
) -> None:
    pictures = five(make_picture)
    overwrite = grid_store.overwrite

    def full(path: Path, offset: int, content: bytes) -> None:
        if offset >= 2 * GRID_BYTES:
            overwrite(path, offset, content[: GRID_BYTES + 9])  # it takes a part yet
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        overwrite(path, offset, content)

    with monkeypatch.context() as patched:
        patched.setattr(grid_store, "overwrite", full)
        with pytest.raises(DataError) as caught:
            cache_grids(captioner, PIXELS, pictures, cache)
    path = cache / fingerprint(captioner, PIXELS) / "grids-0000.f16"
    assert str(caught.value).startswith(f"{path}: cannot be written (No space left on device);")
    calls = counted(captioner)
    grids = cache_grids(captioner, PIXELS, pictures, cache)
    assert sum(calls) == 3
    assert_right(grids, captioner, pictures)


# A disk that is read-only


@pytest.fixture
def read_only(small_disk: Path) -> Callable[[], Path]:
    """Makes a small disk read-only, and tells its folder."""

    def remount() -> Path:
        command = ["mount", "-o", "remount,ro", str(small_disk)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("a disk cannot be made read-only here")
        return small_disk

    return remount


def test_a_complete_cache_may_be_read_only(
    captioner: Captioner,
    make_picture: MakePicture,
    small_disk: Path,
    read_only: Callable[[], Path],
) -> None:
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures, small_disk, flips=True)
    for path in small_disk.rglob("*.lock"):  # as in a copy of the cache
        path.unlink()
    read_only()
    calls = counted(captioner)
    for part in (0, 1):
        grids = cache_grids(captioner, PIXELS, pictures, small_disk, flips=True, part=part, parts=2)
        assert calls == []
        assert_right(grids, captioner, pictures)
        calls.clear()


@pytest.mark.parametrize("begun", [False, True])
def test_a_read_only_disk_that_lacks_grids_is_refused_in_one_line(
    captioner: Captioner,
    make_picture: MakePicture,
    small_disk: Path,
    read_only: Callable[[], Path],
    begun: bool,
) -> None:
    pictures = five(make_picture)
    if begun:
        cache_grids(captioner, PIXELS, pictures[:4], small_disk)
    read_only()
    with pytest.raises(DataError) as caught:
        cache_grids(captioner, PIXELS, pictures, small_disk)
    assert str(caught.value).startswith(str(small_disk / fingerprint(captioner, PIXELS)))
    assert str(caught.value).endswith(
        ": cannot be written (Read-only file system); grids are to be kept there; name another "
        "folder by --cache"
    )
    assert "\n" not in str(caught.value)


def test_a_complete_cache_waits_for_no_one(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    """Another run computes other pictures' grids just then, and has written half of one."""
    pictures = five(make_picture)
    cache_grids(captioner, PIXELS, pictures, cache)
    folder = cache / fingerprint(captioner, PIXELS)
    with (
        FileLock(folder / "part-0-of-1.lock"),
        FileLock(folder / "grids-0000.lock"),
        (folder / "grids-0000.f16").open("ab") as file,
    ):
        file.write(bytes(GRID_BYTES + 9))
        file.flush()
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(cache_grids, captioner, PIXELS, pictures, cache)
            assert_right(found.result(timeout=60), captioner, pictures)
        assert (folder / "grids-0000.f16").stat().st_size == 6 * GRID_BYTES + 9


# Photographs that cannot be opened


@pytest.fixture
def with_bad_ones(make_picture: MakePicture, tmp_path: Path) -> list[Picture]:
    """Pictures 1 (no image) and 3 (no file) of five."""
    pictures = five(make_picture)
    (tmp_path / "1.png").write_bytes(b"no image at all")
    (tmp_path / "3.png").unlink()
    return pictures


def test_a_corrupt_picture_is_fatal_in_one_line(
    captioner: Captioner, with_bad_ones: list[Picture], cache: Path, tmp_path: Path
) -> None:
    for bad in (1, 3):
        with pytest.raises(DataError) as caught:
            cache_grids(captioner, PIXELS, [with_bad_ones[0], with_bad_ones[bad]], cache)
        line = str(caught.value)
        assert "\n" not in line
        assert line.startswith(str(tmp_path / f"{bad}.png"))
        assert line.endswith("; data.corrupt=skip leaves such pictures out")


@pytest.mark.parametrize("flips", [False, True])
def test_corrupt_pictures_are_left_out_and_named(
    captioner: Captioner,
    with_bad_ones: list[Picture],
    cache: Path,
    tmp_path: Path,
    flips: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = [with_bad_ones[i] for i in (0, 2, 4)]
    for _ in range(2):  # the second time most come from the cache
        grids = cache_grids(captioner, PIXELS, with_bad_ones, cache, flips=flips, corrupt="skip")
        assert_right(grids, captioner, good)
        assert len(grids.rows) == 3
        assert flips == (grids.mirrored_rows is not None)
        said = capsys.readouterr().out
        for bad in (1, 3):
            assert f"left out: {tmp_path / f'{bad}.png'}" in said
        assert said.count("3.png") == 1


def test_a_data_set_without_a_good_picture_is_refused(
    captioner: Captioner, with_bad_ones: list[Picture], cache: Path
) -> None:
    bad = [with_bad_ones[1], with_bad_ones[3]]
    with pytest.raises(DataError, match=r"^none of the photographs can be opened"):
        cache_grids(captioner, PIXELS, bad, cache, corrupt="skip")
    with pytest.raises(DataError, match=r"^none of the photographs can be opened"):
        live_grids(captioner, PIXELS, bad, "skip")


# Two runs, one cache


def test_a_run_waits_for_the_one_that_computes(
    captioner: Captioner, make_picture: MakePicture, cache: Path
) -> None:
    pictures = five(make_picture)
    calls = counted(captioner)
    folder = cache / fingerprint(captioner, PIXELS)
    folder.mkdir(parents=True)
    thread = threading.Thread(target=cache_grids, args=(captioner, PIXELS, pictures, cache))
    with FileLock(folder / "part-0-of-1.lock"):
        thread.start()
        time.sleep(0.3)
        assert thread.is_alive()
        assert calls == []
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert calls == [2, 2, 1]


def test_two_runs_at_once_compute_every_grid_once(
    captioner: Captioner, make_picture: MakePicture, cache: Path, few_at_once: None
) -> None:
    pictures = five(make_picture)
    ours, theirs = captioner, copy.deepcopy(captioner)
    calls = [counted(ours), counted(theirs)]
    ours.encoder.register_forward_hook(lambda *_: time.sleep(0.05))
    theirs.encoder.register_forward_hook(lambda *_: time.sleep(0.05))
    found: dict[str, Grids] = {}

    def run(name: str, captioner: Captioner, wanted: list[Picture]) -> None:
        found[name] = cache_grids(captioner, PIXELS, wanted, cache)

    threads = [
        threading.Thread(target=run, args=("ours", ours, pictures)),
        threading.Thread(target=run, args=("theirs", theirs, pictures[::-1])),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sum(map(sum, calls)) == 5
    assert_right(found["ours"], ours, pictures)
    assert_right(found["theirs"], theirs, pictures[::-1])


@pytest.mark.parametrize("flips", [False, True])
def test_each_of_several_programs_computes_its_part(
    captioner: Captioner, make_picture: MakePicture, cache: Path, few_at_once: None, flips: bool
) -> None:
    pictures = five(make_picture)
    pictures.append(make_picture("six.png", 4))  # the same photograph as the fifth
    captioners = [captioner, copy.deepcopy(captioner), copy.deepcopy(captioner)]
    calls = [counted(one) for one in captioners]
    begin = threading.Barrier(3, timeout=60)
    waiting = set(captioners)

    def begin_together(encoder: nn.Module, *_: object) -> None:
        """Nobody goes on before all compute: none holds what another waits for."""
        for one in [one for one in waiting if one.encoder is encoder]:
            waiting.remove(one)
            begin.wait()

    for one in captioners:
        one.encoder.register_forward_hook(begin_together)
    with ThreadPoolExecutor(3) as pool:
        found = [
            pool.submit(cache_grids, one, PIXELS, pictures, cache, flips=flips, part=part, parts=3)
            for part, one in enumerate(captioners)
        ]
        results = [future.result(timeout=60) for future in found]
    sides = 1 + flips
    assert [sum(one) for one in calls] == [2 * sides, 2 * sides, 1 * sides]
    for one in captioners:
        one.encoder._forward_hooks.clear()
    for grids, one in zip(results, captioners, strict=True):
        assert_right(grids, one, pictures)
        mirrored = grids.read([4], [True])[0]
        expected = direct(one, pictures[4], mirrored=flips)
        torch.testing.assert_close(mirrored, expected, rtol=2e-3, atol=2e-3)


def test_the_part_of_a_program_that_ended_is_taken_over(
    captioner: Captioner, with_bad_ones: list[Picture], cache: Path
) -> None:
    calls = counted(captioner)
    grids = cache_grids(
        captioner, PIXELS, with_bad_ones, cache, corrupt="skip", part=1, parts=2
    )  # nobody has done part 0
    good = [with_bad_ones[i] for i in (0, 2, 4)]
    assert sum(calls) == 3
    assert_right(grids, captioner, good)


_RANK = """
import sys, torch
from pathlib import Path
from showattend.captioner import build_captioner
from showattend.config import DecoderSettings, EncoderSettings, PixelSettings
from showattend.datasets import Picture
from showattend.grids import cache_grids, fingerprint
torch.set_num_threads(1)
torch.manual_seed(0)
encoder = EncoderSettings(name="test_efficientnet", stage=1, pretrained=False)
decoder = DecoderSettings(embedding=4, hidden=6, attention=3)
captioner = build_captioner(encoder, decoder, size=32, words=9)
done = []
captioner.encoder.register_forward_hook(lambda _, pixels, __: done.append(len(pixels[0])))
pixels = PixelSettings(size=32, mean=(0.5,) * 3, std=(0.5,) * 3)
folder, part, parts = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
pictures = [Picture(path.name, path, ("a dog",)) for path in sorted(folder.glob("*.png"))]
print("ready", flush=True)
sys.stdin.readline()
grids = cache_grids(captioner, pixels, pictures, folder / "cache", part=part, parts=parts)
print(sum(done), grids.read(range(len(pictures))).double().sum().item(), flush=True)
"""


def _ranks(folder: Path, parts: int) -> list[subprocess.Popen[str]]:
    """Programs that wait for a line before they fill the cache, each its part."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", _RANK, str(folder), str(part), str(parts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in range(parts)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return started


@pytest.mark.slow
def test_programs_fill_one_cache_at_once_and_take_over_from_a_killed_one(
    checkpoint: Checkpoint, make_picture: MakePicture, tmp_path: Path
) -> None:
    pictures = [make_picture(f"{seed}.png", seed) for seed in range(400)]
    ranks = _ranks(tmp_path, 3)
    for process in ranks:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    while not any(path.stat().st_size for path in (tmp_path / "cache").glob("*/*.keys")):
        time.sleep(0.01)
    ranks[2].kill()
    told = [process.communicate(timeout=200)[0].split()[-2:] for process in ranks]
    assert sum(int(count) for count, _ in told[:2]) <= 400  # nothing was computed twice
    assert told[0][1] == told[1][1]
    torch.manual_seed(0)
    captioner = build_captioner(checkpoint.encoder, checkpoint.decoder, size=32, words=9)
    alone = cache_grids(captioner, PIXELS, pictures, tmp_path / "alone")
    total = alone.read(range(400)).double().sum().item()
    assert float(told[0][1]) == pytest.approx(total, rel=1e-3)


# Grids of a CNN that is trained


def test_live_grids_are_the_same_with_gradients(
    checkpoint: Checkpoint, make_picture: MakePicture
) -> None:
    encoder = checkpoint.encoder.model_copy(update={"trainable_stages": 1})
    captioner = build_captioner(encoder, checkpoint.decoder, size=32, words=9).eval()
    pictures = five(make_picture)
    grids = live_grids(captioner, PIXELS, pictures, "fatal")
    assert grids.pictures == pictures
    read_BPC = grids.read([3, 1], [False, True])
    for found, expected in zip(
        read_BPC,
        (direct(captioner, pictures[3]), direct(captioner, pictures[1], mirrored=True)),
        strict=True,
    ):
        torch.testing.assert_close(found, expected.float(), rtol=2e-3, atol=2e-3)
    torch.autograd.backward(read_BPC.sum())
    trained = [p for p in captioner.encoder.parameters() if p.requires_grad]
    assert trained
    assert all(p.grad is not None for p in trained)


def test_live_grids_find_corrupt_pictures_before_the_training(
    captioner: Captioner, with_bad_ones: list[Picture], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"1\.png"):
        live_grids(captioner, PIXELS, with_bad_ones, "fatal")
    grids = live_grids(captioner, PIXELS, with_bad_ones, "skip")
    assert grids.pictures == [with_bad_ones[i] for i in (0, 2, 4)]
    assert open_photograph(tmp_path / "0.png").size == (32, 32)
