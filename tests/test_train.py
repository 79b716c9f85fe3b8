"""Training on a tiny data set of drawn pictures: artefacts, exact resume, going on from a model."""

import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from filelock import FileLock
from safetensors.torch import load_file

from showattend import train as module
from showattend.checkpoint import CheckpointError, load_checkpoint
from showattend.config import Settings, check_settings
from showattend.grids import LiveGrids
from showattend.predict import load
from showattend.preemption import Preempted
from showattend.shapes import CANVAS, make_scenes, noun_boxes
from showattend.train import TrainError, remembered_cache, resume_run, start_run, train

CPU = torch.device("cpu")
TINY = {
    "pixels": {"size": 64},
    "encoder": {"name": "tf_efficientnet_lite0", "stage": 2, "pretrained": False},
    "decoder": {"embedding": 8, "hidden": 12, "attention": 6, "projection": 10, "dropout": 0.3},
    "loss": {"label_smoothing": 0.1, "doubly_stochastic": 0.1},
    "search": {"beam_size": 2, "max_words": 8},
}
TRAIN = {
    "epochs": 3,
    "batch_images": 4,
    "learning_rate": 0.01,
    "flips": True,
    "max_words": 8,
    "average": 0.8,
}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """20 drawn pictures with a captions file: 16 to train on, 4 to validate."""
    folder = tmp_path_factory.mktemp("photographs")
    lines = []
    for number, scene in enumerate(make_scenes(0, "train", 20)):
        scene.draw().save(folder / f"{number}.png")
        split = "val" if number % 5 == 0 else "train"
        for caption in scene.captions[:3]:
            lines.append({"image": f"{number}.png", "caption": caption, "split": split})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "captions.jsonl").write_text(text, encoding="utf-8")
    return folder


def tiny_settings(photographs: Path, **train_settings: object) -> Settings:
    data = {
        "kind": "folder",
        "root": str(photographs),
        "captions": str(photographs / "captions.jsonl"),
        "min_count": 1,
    }
    return check_settings({**TINY, "data": data, "train": {**TRAIN, **train_settings}}, "test")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    different = [name for name in a if not torch.allclose(a[name], b[name], 0, 0, equal_nan=True)]
    assert different == []


@pytest.fixture(scope="module")
def whole_run(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    cache = folder.parent / "cache"
    train(start_run(folder, tiny_settings(photographs), cache=cache, device=CPU))
    return folder


def test_a_run_directory_tells_everything(whole_run: Path) -> None:
    settings = yaml.safe_load((whole_run / "settings.yaml").read_text())
    assert settings["train"]["epochs"] == 3
    assert settings["pixels"]["mean"] == [0.5, 0.5, 0.5]  # resolved, not left to the reader
    environment = json.loads((whole_run / "environment.json").read_text())
    assert {"command", "seed", "versions", "threads"} <= environment.keys()
    lines = [json.loads(line) for line in (whole_run / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    assert {"loss", "BLEU-4", "CIDEr-D", "attention entropy"} <= lines[0].keys()
    assert lines[2]["loss"] < lines[0]["loss"]
    assert list((whole_run / "tensorboard").glob("events*"))
    best = max(lines, key=lambda line: (line["CIDEr-D"], -line["loss"]))
    assert load_checkpoint(whole_run / "best").origin["epoch"] == best["epoch"]


def test_the_kept_weights_are_the_moving_average(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """m <- d m + (1 - d) w after every update, from the first update's weights on, by hand."""
    settings = tiny_settings(photographs, epochs=1, average=0.8)
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    average: list[torch.Tensor] = []
    step = run.optimizer.step

    def watched() -> None:
        step()
        weight = run.captioner.decoder.gate.weight.detach().clone()
        average[:] = [0.8 * average[0] + 0.2 * weight] if average else [weight]

    monkeypatch.setattr(run.optimizer, "step", watched)
    train(run)
    assert len(run.batches) > 2
    last = weights(tmp_path / "run" / "last")["decoder.gate.weight"]
    best = weights(tmp_path / "run" / "best")["decoder.gate.weight"]
    torch.testing.assert_close(best, average[0])
    assert torch.equal(last, run.captioner.decoder.gate.weight)
    assert not torch.equal(last, best)


def test_the_average_is_judged_with_its_own_encoder(photographs: Path, tmp_path: Path) -> None:
    settings = tiny_settings(photographs, epochs=1)
    encoder = settings.encoder.model_copy(update={"trainable_stages": 1})
    settings = settings.model_copy(update={"encoder": encoder})
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    assert isinstance(run.train, LiveGrids)
    assert isinstance(run.val, LiveGrids)
    assert run.average is not None
    assert run.val.captioner is run.judged is run.average.module
    assert run.train.captioner is run.captioner is not run.judged
    train(run)
    best = load_checkpoint(tmp_path / "run" / "best").captioner.encoder.state_dict()
    assert_same(best, dict(run.judged.encoder.state_dict()))


def write_boxes(path: Path) -> None:
    """Whose fixture pictures' shapes lie where, in the layout of Flickr30k Entities as JSON."""
    images = {}
    for number, scene in enumerate(make_scenes(0, "train", 20)):
        sentences, chains = [], {}
        for caption in scene.captions[:3]:
            words = caption.split()
            phrases = []
            for position, boxes in noun_boxes(scene, words):
                chain = f"{len(chains)}"
                chains[chain] = [[x0 + 1, y0 + 1, x1 + 1, y1 + 1] for x0, y0, x1, y1 in boxes]
                phrase = {"chain": chain, "types": ["other"], "first_word": position}
                phrases.append(phrase | {"phrase": words[position]})
            sentences.append({"sentence": caption, "phrases": phrases})
        size = {"width": CANVAS, "height": CANVAS}
        images[f"{number}.png"] = {**size, "boxes": chains, "sentences": sentences}
    path.write_text(json.dumps(images), encoding="utf-8")


def test_supervised_attention_is_learned(photographs: Path, tmp_path: Path) -> None:
    """From what a flat map gives, ln 64, its loss falls; unasked, it is not computed."""
    write_boxes(tmp_path / "boxes.json")
    found = {}
    for weight in (0.0, 3.0):
        tree = tiny_settings(photographs, epochs=12, patience=12).model_dump(mode="json")
        tree["loss"]["attention"] = weight
        tree["data"]["boxes"] = str(tmp_path / "boxes.json")
        run = start_run(
            tmp_path / f"run{weight}",
            check_settings(tree, "test"),
            cache=tmp_path / "cache",
            device=CPU,
        )
        train(run)
        found[weight] = [line.get("attention loss") for line in run.history]
    assert found[0.0] == [None] * 12
    flat = math.log(8 * 8)
    assert found[3.0][0] == pytest.approx(flat, abs=0.4)
    assert found[3.0][-1] < flat - 0.2


def test_attention_may_choose_the_checkpoint(photographs: Path, tmp_path: Path) -> None:
    write_boxes(tmp_path / "boxes.json")
    tree = tiny_settings(photographs, epochs=2).model_dump(mode="json")
    tree["train"]["select_on"] = "pointing"
    tree["data"]["boxes"] = str(tmp_path / "boxes.json")
    run = start_run(
        tmp_path / "run", check_settings(tree, "test"), cache=tmp_path / "cache", device=CPU
    )
    train(run)
    assert all(0 <= line["pointing"] <= 100 for line in run.history)
    best = max(run.history, key=lambda line: (line["pointing"], -line["loss"]))
    assert run.best_epoch() == best["epoch"]


def test_meteor_may_choose_the_checkpoint(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "meteor", lambda corpus: (len(corpus.images) / 100, None))
    settings = tiny_settings(photographs, epochs=1, select_on="METEOR")
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    train(run)
    assert run.history[0]["METEOR"] == 4.0


class Killed(Exception):
    """What ends a training here."""


@contextmanager
def at_update(number: int, happens: Callable[[], None]) -> Iterator[None]:
    """Let something happen in the midst of an update, counted from 1."""
    seen, original = 0, torch.nn.utils.clip_grad_norm_

    def counting_clip(*args: Any, **kwargs: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            happens()
        original(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.utils, "clip_grad_norm_", counting_clip)
        yield


def killed() -> None:
    raise Killed


def asked_to_leave(by: signal.Signals = signal.SIGTERM) -> None:
    os.kill(os.getpid(), by)


def interrupted_and_resumed(
    settings: Settings, tmp_path: Path, meanwhile: Callable[[Path], object] = lambda _: None
) -> Path:
    """A run killed in the middle of its second epoch, and taken up again to its end.

    Args:
        meanwhile: what becomes of its folder.
    """
    folder, cache = tmp_path / "run", tmp_path / "cache"
    run = start_run(folder, settings, cache=cache, device=CPU)
    with at_update(6, killed), pytest.raises(Killed):
        train(run)
    meanwhile(folder)
    train(resume_run(folder, cache=cache, device=CPU))
    return folder


def assert_same_run(run: Path, other: Path) -> None:
    assert_same(weights(run / "last"), weights(other / "last"))
    assert_same(weights(run / "best"), weights(other / "best"))
    for state in ("training.safetensors", "rewards.safetensors"):
        assert_same(load_file(run / "last" / state), load_file(other / "last" / state))
    assert scores(run) == scores(other)


def scores(run: Path) -> list[dict[str, float]]:
    """The epochs' lines, without their times."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: line[key] for key in line if "second" not in key} for line in lines]


def test_resumed_equals_uninterrupted(photographs: Path, whole_run: Path, tmp_path: Path) -> None:
    resumed = interrupted_and_resumed(tiny_settings(photographs), tmp_path)
    assert_same_run(resumed, whole_run)


def hard_settings(photographs: Path, **hard: object) -> Settings:
    tree = tiny_settings(photographs).model_dump(mode="json")
    tree["decoder"]["look"] = "hard"
    tree["hard"] = {"entropy": 0.01} | hard
    return check_settings(tree, "test")


def test_hard_attention_resumed_equals_uninterrupted(photographs: Path, tmp_path: Path) -> None:
    """Its samples, and the average of earlier batches' rewards, go on as they were."""
    settings = hard_settings(photographs)
    whole = tmp_path / "whole"
    train(start_run(whole, settings, cache=tmp_path / "cache", device=CPU))
    assert not load_file(whole / "last" / "rewards.safetensors")["mean"].isnan().all()
    assert_same_run(interrupted_and_resumed(settings, tmp_path), whole)


@pytest.mark.parametrize(
    "hard",
    [
        {"baseline": "self_critical", "reward_to_go": True},
        {"baseline": "leave_one_out", "samples": 3, "expectation": [0.0, 0.0]},
        {"estimator": "gumbel", "expectation": [1.0, 0.0]},
    ],
)
def test_a_hard_model_is_learned_from_a_soft_one(
    photographs: Path, whole_run: Path, tmp_path: Path, hard: dict[str, object]
) -> None:
    """Same weights, another look; and what is written looks at one cell for every word."""
    settings = hard_settings(photographs, **hard)
    init = whole_run / "best"
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU, init=init)
    assert run.settings.decoder.look == "hard"
    assert torch.equal(
        run.captioner.decoder.score.v.weight, load_checkpoint(init).captioner.decoder.score.v.weight
    )
    train(run)
    losses = [line["loss"] for line in run.history]
    assert losses[-1] < losses[0]
    model = load(tmp_path / "run")
    caption = model.caption(photographs / "0.png")
    assert (caption.weights.max(axis=1) == 1.0).all()
    assert (caption.weights.argmax(axis=1) == caption.alpha.argmax(axis=1)).all()


def test_dropout_is_a_setting_of_a_model_that_is_trained_further(
    photographs: Path, whole_run: Path, tmp_path: Path
) -> None:
    """It has no weights; the model's widths stay its own, whatever the settings say."""
    tree = tiny_settings(photographs).model_dump(mode="json")
    tree["decoder"] |= {"dropout": 0.1, "word_dropout": 0.2, "hidden": 99}
    run = start_run(
        tmp_path / "run",
        check_settings(tree, "test"),
        cache=tmp_path / "cache",
        device=CPU,
        init=whole_run / "best",
    )
    decoder = run.captioner.decoder
    assert (decoder.dropout.p, decoder.word_dropout) == (0.1, 0.2)
    found = run.settings.decoder
    assert (found.dropout, found.word_dropout, found.hidden) == (
        0.1,
        0.2,
        TINY["decoder"]["hidden"],
    )


# --- saves within an epoch, and faults ------------------------------------------------------------

EVERY_STEP = 1e-9  # minutes


def step_of(run: Path) -> tuple[int, int]:
    """Epoch and step of what is saved."""
    progress = json.loads((run / "last" / "progress.json").read_text())
    return progress["epoch"], progress["step"]


@pytest.mark.parametrize("look", ["soft", "hard"])
def test_resumed_within_an_epoch_equals_uninterrupted(
    photographs: Path, tmp_path: Path, look: str
) -> None:
    """Saved after every step, killed in the second step of the second epoch."""
    whole = hard_settings(photographs) if look == "hard" else tiny_settings(photographs)
    settings = whole.model_copy(
        update={"train": whole.train.model_copy(update={"save_minutes": EVERY_STEP})}
    )
    train(start_run(tmp_path / "whole", whole, cache=tmp_path / "cache", device=CPU))
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    with at_update(6, killed), pytest.raises(Killed):
        train(run)
    assert step_of(tmp_path / "run") == (2, 1)
    resumed = resume_run(tmp_path / "run", cache=tmp_path / "cache", device=CPU)
    with at_update(8, killed):
        train(resumed)  # 7 of the 12 updates are left
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    assert step_of(tmp_path / "run") == (4, 0)


def test_a_save_every_so_often_and_not_more(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that gains 40 s a step, more than two minutes are four steps."""
    clock = itertools.count(0, 20)  # it is read twice a step: for the epoch's seconds too
    settings = tiny_settings(photographs, epochs=1, batch_images=2, save_minutes=2.0)
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    saved: list[int] = []
    monkeypatch.setattr(module, "_save_last", lambda run: saved.append(run.progress.step))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    train(run)
    assert len(run.batches) == 8
    assert saved == [4, 8, 0]  # the last one at the epoch's end


@pytest.mark.parametrize(("by", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_being_asked_ends_a_run_that_goes_on_as_if_nothing_had_happened(
    photographs: Path,
    whole_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    by: signal.Signals,
    code: int,
) -> None:
    """The step is finished and saved."""
    run = start_run(
        tmp_path / "run", tiny_settings(photographs), cache=tmp_path / "cache", device=CPU
    )
    with at_update(6, lambda: asked_to_leave(by)), pytest.raises(Preempted) as caught:
        train(run)
    assert caught.value.code == code
    line = f"stopped by {by.name} at epoch 2, step 2 of 4; go on with --resume {tmp_path / 'run'}"
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert step_of(tmp_path / "run") == (2, 2)
    train(resume_run(tmp_path / "run", cache=tmp_path / "cache", device=CPU))
    assert_same_run(tmp_path / "run", whole_run)


def test_sigterm_in_the_validation_is_heeded_at_once(
    photographs: Path, whole_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch's training is kept; the validation is done anew."""
    run = start_run(
        tmp_path / "run", tiny_settings(photographs), cache=tmp_path / "cache", device=CPU
    )

    def interrupted(*args: object, **kwargs: object) -> None:
        asked_to_leave()
        pytest.fail("goes on")

    monkeypatch.setattr(module, "caption_split", interrupted)
    with pytest.raises(Preempted):
        train(run)
    monkeypatch.undo()
    assert step_of(tmp_path / "run") == (1, 4)
    train(resume_run(tmp_path / "run", cache=tmp_path / "cache", device=CPU))
    assert_same_run(tmp_path / "run", whole_run)


@contextmanager
def files_of_at_most(size: int) -> Iterator[Callable[[], None]]:
    """What is called to let the disk be full: no file may grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_the_last_good_checkpoint(
    photographs: Path, whole_run: Path, tmp_path: Path
) -> None:
    folder, settings = tmp_path / "run", tiny_settings(photographs, save_minutes=EVERY_STEP)
    run = start_run(folder, settings, cache=tmp_path / "cache", device=CPU)
    with files_of_at_most(10_000) as fill, at_update(6, fill):
        line = rf"^{folder / 'last'}: cannot be written \(File too large\); what was there before "
        with pytest.raises(TrainError, match=line + "is kept; make room, then go on with --resume"):
            train(run)
    assert step_of(folder) == (2, 1)
    assert not list(folder.glob(".last.*"))
    train(resume_run(folder, cache=tmp_path / "cache", device=CPU))
    assert_same_run(folder, whole_run)


@pytest.mark.parametrize("file", ["model", "training", "average", "rewards"])
def test_a_truncated_checkpoint_is_named_and_the_best_one_offered(
    whole_run: Path, tmp_path: Path, file: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole_run, folder)
    torn = folder / "last" / f"{file}.safetensors"
    torn.write_bytes(torn.read_bytes()[:-50])
    line = rf"^{folder / 'last'}.*start another run with --init {folder / 'best'}$"
    with pytest.raises(CheckpointError, match=line):
        resume_run(folder, cache=whole_run.parent / "cache", device=CPU)
    load_checkpoint(folder / "best")
    shutil.rmtree(folder / "best")
    with pytest.raises(CheckpointError, match=r"cannot be resumed; start another run$"):
        resume_run(folder, cache=whole_run.parent / "cache", device=CPU)


@pytest.fixture
def resumable(whole_run: Path, tmp_path: Path) -> Path:
    """A copy of a run of three epochs that may be edited, and has one more to go."""
    folder = tmp_path / "run"
    shutil.copytree(whole_run, folder)
    edit_settings(folder, "train", epochs=4)
    return folder


def edit_settings(folder: Path, section: str, **changes: object) -> None:
    path = folder / "settings.yaml"
    tree = yaml.safe_load(path.read_text())
    tree[section] |= changes
    path.write_text(yaml.safe_dump(tree))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("progress.json", "[1]"),
        ("progress.json", '{"epoch": 4, "step": 99}'),
        ("progress.json", '{"epoch": 2, "step": 0}'),
        ("training.json", "{}"),
        ("training.json", '[{"epoch": 2}]'),
        ("training.json", "[1]"),
        ("training.json", "[" * 100_000),
        ("training.safetensors", "no tensors"),
        ("average.safetensors", "no tensors"),
        ("rewards.safetensors", "no tensors"),
    ],
)
def test_a_damaged_file_of_last_is_named(
    resumable: Path, tmp_path: Path, name: str, text: str
) -> None:
    (resumable / "last" / name).write_text(text)
    with pytest.raises(CheckpointError) as caught:
        resume_run(resumable, cache=tmp_path / "cache", device=CPU)
    line = str(caught.value)
    assert line.startswith(f"{resumable / 'last' / name}: is damaged or missing (")
    assert f"--init {resumable / 'best'}" in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("section", "changes", "expected"),
    [
        ("pixels", {"resize": "pad"}, "pixels is not that of"),
        ("pixels", {"size": 96}, "pixels is not that of"),
        ("train", {"select_on": "METEOR"}, "train.select_on is not what the run began with"),
    ],
)
def test_edits_that_do_not_fit_what_was_trained_are_refused(
    resumable: Path, tmp_path: Path, section: str, changes: dict[str, object], expected: str
) -> None:
    edit_settings(resumable, section, **changes)
    with pytest.raises(TrainError, match=expected):
        resume_run(resumable, cache=tmp_path / "cache", device=CPU)


def test_a_hard_runs_longest_caption_stays(photographs: Path, tmp_path: Path) -> None:
    """Its baseline has a number for each word."""
    folder, cache = tmp_path / "run", tmp_path / "cache"
    train(start_run(folder, hard_settings(photographs), cache=cache, device=CPU))
    edit_settings(folder, "train", epochs=4, max_words=6)
    with pytest.raises(TrainError, match=r"train.max_words is not what the run began with"):
        resume_run(folder, cache=cache, device=CPU)


def test_what_was_trained_is_not_lost_with_the_settings(
    photographs: Path, resumable: Path, tmp_path: Path
) -> None:
    shutil.rmtree(resumable / "best")
    for name in ("settings.yaml", "metrics.jsonl"):
        (resumable / name).unlink()
    before = weights(resumable / "last")
    with pytest.raises(TrainError, match=r"holds a trained last/, but no settings.yaml any more"):
        start_run(resumable, tiny_settings(photographs), cache=tmp_path / "cache", device=CPU)
    assert_same(weights(resumable / "last"), before)


def test_a_cache_that_is_no_path_is_not_known(resumable: Path) -> None:
    (resumable / "environment.json").write_text('{"cache": 5}')
    assert remembered_cache(resumable) is None


def test_weights_that_ran_away_in_the_last_step_are_told(photographs: Path, tmp_path: Path) -> None:
    settings = tiny_settings(photographs, learning_rate=1e30, warmup=0.0, batch_images=16)
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    with pytest.raises(TrainError, match=r"not finite; lower train.learning_rate"):
        train(run)


def test_a_run_that_failed_in_its_first_steps_need_not_be_removed(
    photographs: Path, whole_run: Path, tmp_path: Path
) -> None:
    folder, cache, settings = tmp_path / "run", tmp_path / "cache", tiny_settings(photographs)
    run = start_run(folder, tiny_settings(photographs, learning_rate=0.5), cache=cache, device=CPU)
    with at_update(2, killed), pytest.raises(Killed):
        train(run)
    with FileLock(folder / ".lock"), pytest.raises(TrainError, match="another training is using"):
        start_run(folder, settings, cache=cache, device=CPU)  # it may not have failed at all
    train(start_run(folder, settings, cache=cache, device=CPU))
    assert_same_run(folder, whole_run)
    with pytest.raises(TrainError, match="holds a run already"):
        start_run(folder, settings, cache=cache, device=CPU)


def test_a_kill_between_the_two_renames_of_a_save(
    photographs: Path, whole_run: Path, tmp_path: Path
) -> None:
    """The older last/ is there under another name."""
    folder = interrupted_and_resumed(
        tiny_settings(photographs), tmp_path, lambda run: (run / "last").rename(run / ".last.old")
    )
    assert_same_run(folder, whole_run)


def test_a_run_remembers_its_cache(whole_run: Path, tmp_path: Path) -> None:
    assert remembered_cache(whole_run) == whole_run.parent / "cache"
    assert remembered_cache(tmp_path) is None
    (tmp_path / "environment.json").write_text("[1]")
    assert remembered_cache(tmp_path) is None


def test_a_batch_must_have_an_image_for_every_part(photographs: Path, tmp_path: Path) -> None:
    settings = tiny_settings(photographs, accumulate=5)
    with pytest.raises(TrainError, match=r"batch_images is 4: cannot be cut into 5 parts"):
        start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)


def test_a_run_of_an_older_version_is_resumed(
    photographs: Path, whole_run: Path, tmp_path: Path
) -> None:
    """It has no progress within an epoch."""
    folder = interrupted_and_resumed(
        tiny_settings(photographs), tmp_path, lambda run: (run / "last" / "progress.json").unlink()
    )
    assert_same_run(folder, whole_run)


def test_a_finished_run_stays_as_it_is(whole_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = weights(whole_run / "last")
    train(resume_run(whole_run, cache=whole_run.parent / "cache", device=CPU))
    assert "nothing to resume" in capsys.readouterr().out
    assert_same(weights(whole_run / "last"), before)


def test_a_run_is_never_overwritten(photographs: Path, whole_run: Path) -> None:
    with pytest.raises(TrainError, match="holds a run already"):
        start_run(whole_run, tiny_settings(photographs), cache=whole_run / "c", device=CPU)


def test_files_of_others_are_never_overwritten(photographs: Path, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text("precious")
    with pytest.raises(TrainError, match="holds other files"):
        start_run(tmp_path, tiny_settings(photographs), cache=tmp_path / "cache", device=CPU)
    assert (tmp_path / "metrics.jsonl").read_text() == "precious"


def test_only_one_training_uses_a_run(photographs: Path, tmp_path: Path) -> None:
    run = start_run(
        tmp_path / "run", tiny_settings(photographs), cache=tmp_path / "cache", device=CPU
    )
    with (
        FileLock(tmp_path / "run" / ".lock"),
        pytest.raises(TrainError, match="another training is using it"),
    ):
        train(run)
    train(run)
    assert len(run.history) == 3


def test_a_run_whose_model_was_edited_is_not_resumed(photographs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    start_run(folder, tiny_settings(photographs), cache=tmp_path / "cache", device=CPU)
    text = (folder / "settings.yaml").read_text()
    assert "trainable_stages: 0" in text
    (folder / "settings.yaml").write_text(text.replace("stages: 0", "stages: 1"))
    with pytest.raises(TrainError, match="take back what was edited"):
        resume_run(folder, cache=tmp_path / "cache", device=CPU)


def test_a_vocabulary_without_words_is_refused(photographs: Path, tmp_path: Path) -> None:
    tree = tiny_settings(photographs).model_dump(mode="json")
    tree["data"]["min_count"] = 100_000
    with pytest.raises(TrainError, match="no word is in 100000 training captions; lower it"):
        start_run(
            tmp_path / "run", check_settings(tree, "test"), cache=tmp_path / "cache", device=CPU
        )


def test_resuming_nothing(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="no run to resume"):
        resume_run(tmp_path, cache=tmp_path, device=CPU)


def test_early_stopping(
    photographs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tiny_settings(photographs, epochs=9, patience=1, learning_rate=1e-12)
    train(start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 2  # nothing is learnt, so the second epoch is no better than the first
    assert "stopped: 1 epochs without a better score" in capsys.readouterr().out


def test_of_equal_scores_the_lowest_loss_is_best(photographs: Path, tmp_path: Path) -> None:
    """With few validation pictures every epoch may score 0."""
    run = start_run(
        tmp_path / "run", tiny_settings(photographs), cache=tmp_path / "cache", device=CPU
    )
    for epoch, loss in enumerate((3.0, 1.0, 2.0), start=1):
        run.history.append({"epoch": epoch, "CIDEr-D": 0.0, "loss": loss})
    assert run.best_epoch() == 2
    run.history.append({"epoch": 4, "CIDEr-D": 0.1, "loss": 9.0})
    assert run.best_epoch() == 4


def test_going_on_from_a_checkpoint_grows_its_vocabulary(
    photographs: Path, whole_run: Path, tmp_path: Path
) -> None:
    captions = (photographs / "captions.jsonl").read_text()
    renamed = tmp_path / "captions.jsonl"
    renamed.write_text(captions.replace("circle", "disc").replace("square", "tile"))
    tree = tiny_settings(photographs).model_dump(mode="json")
    tree["data"]["captions"] = str(renamed)
    tree["decoder"]["hidden"] = 99  # the checkpoint's own decoder is what goes on
    tree["train"]["epochs"] = 1
    settings = check_settings(tree, "test")
    init = whole_run / "best"
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU, init=init)
    old = load_checkpoint(init)
    count = len(old.vocabulary)
    assert run.vocabulary.words[:count] == old.vocabulary.words
    assert {"disc", "tile"} <= set(run.vocabulary.words[count:])
    assert run.settings.decoder == old.decoder
    old_rows, rows = old.captioner.decoder.embed.weight, run.captioner.decoder.embed.weight
    assert torch.equal(rows[:count], old_rows)
    assert rows[count:].abs().min() > 0  # the new words start at random, not at zero
    train(run)
    assert load_checkpoint(tmp_path / "run" / "best").vocabulary.words == run.vocabulary.words


def test_a_trained_encoder_stage_moves_and_the_frozen_ones_do_not(
    photographs: Path, tmp_path: Path
) -> None:
    tree = tiny_settings(photographs, epochs=1).model_dump(mode="json")
    tree["encoder"]["trainable_stages"] = 1
    run = start_run(
        tmp_path / "run", check_settings(tree, "test"), cache=tmp_path / "cache", device=CPU
    )
    before = {name: value.clone() for name, value in run.captioner.encoder.state_dict().items()}
    trained = {name for name, p in run.captioner.encoder.named_parameters() if p.requires_grad}
    train(run)
    after = run.captioner.encoder.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert trained <= moved
    blocks = {name.split("blocks.")[1][0] for name in moved if "blocks." in name}
    assert blocks == {"2"}
    assert not list((tmp_path / "cache").glob("*"))  # grids that move are never cached


def test_crops_are_of_the_training_alone(photographs: Path, tmp_path: Path) -> None:
    """Each time another part of the photograph; what is validated is the whole."""
    tree = tiny_settings(photographs, smallest_crop=0.5, flips=False).model_dump(mode="json")
    tree["encoder"]["trainable_stages"] = 1
    settings = check_settings(tree, "test")
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    run.captioner.eval()
    run.judged.eval()
    with torch.no_grad():
        parts = [run.train.read([0]) for _ in range(4)]
        assert all(not torch.equal(a, b) for a, b in itertools.combinations(parts, 2))
        assert torch.equal(run.val.read([0]), run.val.read([0]))


def test_a_frozen_encoder_sees_crops_too(photographs: Path, tmp_path: Path) -> None:
    """Its grids are computed at each step; those of the validation split are still cached."""
    settings = tiny_settings(photographs, epochs=1, smallest_crop=0.5)
    run = start_run(tmp_path / "run", settings, cache=tmp_path / "cache", device=CPU)
    assert isinstance(run.train, LiveGrids)
    assert not isinstance(run.val, LiveGrids)
    encoder = {name: value.clone() for name, value in run.captioner.encoder.state_dict().items()}
    decoder = {name: value.clone() for name, value in run.captioner.decoder.state_dict().items()}
    train(run)
    assert_same(run.captioner.encoder.state_dict(), encoder)
    assert not torch.equal(run.captioner.decoder.word_logits.weight, decoder["word_logits.weight"])


def reward_settings(photographs: Path, **train_settings: object) -> Settings:
    tree = tiny_settings(photographs, **train_settings).model_dump(mode="json")
    del tree["loss"]
    return check_settings(tree | {"reward": {"samples": 3}}, "test")


def test_a_reward_is_earned_and_a_killed_run_goes_on_as_it_was(
    photographs: Path, whole_run: Path, tmp_path: Path
) -> None:
    settings = reward_settings(photographs, epochs=6, learning_rate=0.003, average=0.0)
    whole, cache = tmp_path / "whole", tmp_path / "cache"
    init = whole_run / "best"
    run = start_run(whole, settings, cache=cache, device=CPU, init=init)
    train(run)
    rewards = [line["reward"] for line in run.history]
    assert sum(rewards[-2:]) > sum(rewards[:2]) > 0
    assert not run.captioner.training
    killed_run = start_run(tmp_path / "run", settings, cache=cache, device=CPU, init=init)
    with at_update(6, killed), pytest.raises(Killed):
        train(killed_run)
    train(resume_run(tmp_path / "run", cache=cache, device=CPU))
    assert_same_run(tmp_path / "run", whole)


def gated_settings(photographs: Path, where: str, **train_settings: object) -> Settings:
    tree = tiny_settings(photographs, **train_settings).model_dump(mode="json")
    tree["encoder"]["channel_attention"] = {"kind": "se", "where": where}
    return check_settings(tree, "test")


@pytest.mark.parametrize("where", ["stage", "block"])
def test_channel_attention_is_trained_and_the_frozen_cnn_is_not(
    photographs: Path, tmp_path: Path, where: str
) -> None:
    """On cached grids where it gates the grid alone; with an exact resume, here as there."""
    settings = gated_settings(photographs, where, epochs=2)
    run = start_run(tmp_path / "whole", settings, cache=tmp_path / "cache", device=CPU)
    assert isinstance(run.train, LiveGrids) == (where == "block")
    before = {name: value.clone() for name, value in run.captioner.state_dict().items()}
    gates = {name for name in before if "channel_attention." in name}
    assert gates
    new_rate = {
        id(parameter): group["peak"] == settings.train.learning_rate
        for group in run.optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in run.captioner.named_parameters():
        assert new_rate.get(id(parameter)) == (None if ".network." in name else True), name
    train(run)
    after = run.captioner.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any(".network." in name for name in moved)
    assert gates <= moved
    averaged = run.judged.state_dict()
    assert all(not torch.equal(averaged[name], after[name]) for name in gates)
    best = load_checkpoint(tmp_path / "whole" / "best")
    assert best.encoder == settings.encoder
    resumed = interrupted_and_resumed(settings, tmp_path)
    assert_same_run(resumed, tmp_path / "whole")


@pytest.mark.parametrize("where", ["stage", "block"])
def test_channel_attention_may_be_put_into_a_trained_model(
    photographs: Path, whole_run: Path, tmp_path: Path, where: str
) -> None:
    """As the identity; a model that has its own keeps it, whatever the settings say."""
    init, cache = whole_run / "best", tmp_path / "cache"
    settings = gated_settings(photographs, where, epochs=1)
    run = start_run(tmp_path / "run", settings, cache=cache, device=CPU, init=init)
    assert run.settings.encoder.channel_attention == settings.encoder.channel_attention
    old = load_checkpoint(init).captioner
    pixels_B3SS = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        ours, theirs = (m.eval().look(m.encode(pixels_B3SS)) for m in (run.captioner, old))
    assert torch.equal(ours.grid_BPC, theirs.grid_BPC)
    train(run)
    trained = load_checkpoint(tmp_path / "run" / "best")
    again = start_run(
        tmp_path / "again",
        tiny_settings(photographs),
        cache=cache,
        device=CPU,
        init=tmp_path / "run" / "best",
    )
    assert again.settings.encoder == trained.encoder
    assert_same(again.captioner.state_dict(), trained.captioner.state_dict())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sigkill_at_random_moments(photographs: Path, whole_run: Path, tmp_path: Path) -> None:
    """Five kills at random moments of five runs; each resumed run ends bit-identical."""
    config = tmp_path / "tiny.yaml"
    tree = tiny_settings(photographs, epochs=40).model_dump(mode="json")
    config.write_text(yaml.safe_dump(tree))
    command = [sys.executable, "-m", "showattend", "train", "--cache", str(tmp_path / "cache")]
    start = [*command, "--config", str(config), "--run"]

    def launch(arguments: list[str]) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ
        )

    whole = tmp_path / "whole"
    assert launch([*start, str(whole)]).wait() == 0
    for number in range(5):
        run = tmp_path / f"run{number}"
        process = launch([*start, str(run)])
        while not (run / "settings.yaml").exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(random.uniform(0, 3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert launch([*command, "--resume", str(run)]).wait() == 0
        assert_same(weights(run / "last"), weights(whole / "last"))
        assert_same(weights(run / "best"), weights(whole / "best"))
