"""Several processes train what one would: by torchrun and gloo, on the CPU."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from ranks_worker import watched

from showattend import ranks as module
from showattend import train as train_module
from showattend.config import Settings, check_settings
from showattend.ranks import Ranks, RanksError, join_ranks
from showattend.train import Run, start_run

CPU = torch.device("cpu")
WORKER = Path(__file__).with_name("ranks_worker.py")


def test_a_process_alone_answers_for_all() -> None:
    ranks = join_ranks(CPU)
    assert type(ranks) is Ranks
    assert (ranks.main, ranks.rank, ranks.count) == (True, 0, 1)
    assert ranks.total(torch.tensor([1.5, 2.0])).tolist() == [1.5, 2.0]
    assert ranks.gather("own") == ["own"]
    assert ranks.tell("value") == "value"
    lesson = torch.nn.Linear(1, 1)
    assert ranks.together(lesson) is lesson


def test_several_processes_need_cpu_or_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RanksError, match="--device mps: several processes need cpu or cuda"):
        join_ranks(torch.device("mps"))


def test_more_processes_than_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RanksError, match=r"^4 processes on this machine, which has 2 GPUs; lower"):
        join_ranks(torch.device("cuda"))


def test_losing_another_process_is_told_from_other_errors() -> None:
    closed = "[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3"
    assert module._is_loss(RuntimeError(closed))
    assert module._is_loss(torch.distributed.DistBackendError("NCCL"))
    assert not module._is_loss(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


# --- by torchrun ---------------------------------------------------------------------------------

#: 7 steps an epoch, the last of one image: one of the processes has none of it.
TREE: dict[str, Any] = {
    "data": {"kind": "shapes", "train_images": 37, "val_images": 6, "min_count": 1},
    "pixels": {"size": 64},
    "encoder": {"name": "tf_efficientnet_lite0", "stage": 2, "pretrained": False},
    "decoder": {"embedding": 8, "hidden": 12, "attention": 6, "projection": 10, "dropout": 0.0},
    "loss": {"label_smoothing": 0.1, "doubly_stochastic": 0.1, "attention": 0.3},
    "search": {"beam_size": 2, "max_words": 8},
    "train": {
        "epochs": 8,
        "patience": 8,
        "batch_images": 6,
        "learning_rate": 0.01,
        "max_words": 8,
        "average": 0.8,
    },
}


def settings_with(**sections: dict[str, object]) -> Settings:
    return check_settings(
        TREE | {name: TREE.get(name, {}) | changes for name, changes in sections.items()}, "test"
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def by_torchrun(arguments: list[object], processes: int = 2) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]  # a free port
    command += ["--nproc-per-node", str(processes), *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def train_together(
    settings: Settings, folder: Path, cache: Path, dtype: str, processes: int = 2
) -> dict[str, Any]:
    """What the processes tell of a run."""
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    launched = by_torchrun([WORKER, config, folder / "run", cache, dtype], processes)
    output, _ = launched.communicate()
    assert launched.returncode == 0, output[-3000:]
    return json.loads((folder / "run" / "told.json").read_text())


def train_alone(
    settings: Settings, folder: Path, cache: Path, dtype: torch.dtype
) -> tuple[Run, list[float]]:
    run = start_run(folder / "alone", settings, cache=cache, device=CPU)
    return run, watched(run, dtype)


def scores(run: Path) -> list[dict[str, float]]:
    """The epochs' lines, without their times."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: line[key] for key in line if "second" not in key} for line in lines]


KINDS = {
    "lstm": {"decoder": {"kind": "lstm"}},
    "lstm in parts": {"decoder": {"kind": "lstm"}, "train": {"accumulate": 2}},
    "transformer": {"decoder": {"kind": "transformer", "layers": 2, "heads": 2}},
    # Hard attention without a sample: its loss is deterministic.
    "hard, expected": {"decoder": {"look": "hard"}, "hard": {"expectation": (1.0, 1.0)}},
}


@pytest.mark.parametrize("accumulate", [2, 6])
def test_a_batch_told_in_parts_is_the_batch(tmp_path: Path, cache: Path, accumulate: int) -> None:
    """In float64, over 7 steps, the last of which has fewer images than parts."""
    found = []
    for parts in (1, accumulate):
        (folder := tmp_path / f"{parts}").mkdir()
        settings = settings_with(train={"accumulate": parts, "epochs": 1})
        run, losses = train_alone(settings, folder, cache, torch.float64)
        found.append((losses, [p.detach() for p in run.captioner.parameters()]))
    (losses, weights), (other_losses, other_weights) = found
    assert losses == pytest.approx(other_losses, abs=1e-11)
    for one, other in zip(weights, other_weights, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_equal_one(kind: str, tmp_path: Path, cache: Path) -> None:
    """Weights after 56 steps in float64, and every score on the way."""
    settings = settings_with(**KINDS[kind])
    told = train_together(settings, tmp_path, cache, "float64")
    alone, losses = train_alone(settings, tmp_path, cache, torch.float64)
    assert len(losses) == 56
    for own in told["ranks"]:
        assert own["losses"] == pytest.approx(losses, abs=1e-9)
    for name, parameter in alone.captioner.named_parameters():
        together = torch.tensor(told["weights"][name], dtype=torch.float64)
        torch.testing.assert_close(together, parameter.detach(), rtol=0, atol=1e-9)
    for line, other in zip(scores(tmp_path / "run"), scores(alone.folder), strict=True):
        assert line == pytest.approx(other, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_two_processes_have_the_loss_curve_of_one(kind: str, tmp_path: Path, cache: Path) -> None:
    settings = settings_with(**KINDS[kind])
    told = train_together(settings, tmp_path, cache, "float32")
    _, losses = train_alone(settings, tmp_path, cache, torch.float32)
    assert told["ranks"][0]["losses"] == pytest.approx(losses, abs=1e-4)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.slow
def test_hard_attention_of_two_processes_is_that_of_one(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last epoch's loss lies among those of single processes that drew other samples; the
    baseline is one, and of the size of theirs.
    """
    settings = settings_with(decoder={"look": "hard"}, loss={"attention": 0.0})
    told = train_together(settings, tmp_path, cache, "float32")
    first, second = told["ranks"]
    assert first == second
    reseed, ends, baselines = train_module._reseed, [], []
    for draw in range(8):
        monkeypatch.setattr(
            train_module,
            "_reseed",
            lambda run, epoch, step, draw=draw: reseed(run, epoch, step + 1000 * draw),
        )
        (folder := tmp_path / f"{draw}").mkdir()
        run, losses = train_alone(settings, folder, cache, torch.float32)
        ends.append(statistics.fmean(losses[-7:]))
        baselines.append(run.rewards.mean_T1.nan_to_num().sum().item())
    for own, others in (
        (statistics.fmean(first["losses"][-7:]), ends),
        (sum(first["baseline"]), baselines),
    ):
        assert abs(own - statistics.fmean(others)) < 5 * statistics.stdev(others)
