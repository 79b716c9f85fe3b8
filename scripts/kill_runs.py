#!/usr/bin/env python
"""Kill a training of several processes at random moments, and take it up again each time.

A tiny model on drawn shapes is trained by torchrun: once undisturbed, and once with SIGKILLs to one
of its processes or to all of them, as in a power cut. After every kill last/ and best/ must load.
At the end all weights, the optimizer's state and the scores must equal the undisturbed run's, bit
by bit. Prints a line a kill; ends with code 1 where something differs.

    scripts/kill_runs.py --kills 20 --seed 1
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from showattend.checkpoint import load_checkpoint
from showattend.curves import read_curve

TINY = """
data: {kind: shapes, train_images: 61, val_images: 6, min_count: 1}
pixels: {size: 64}
encoder: {name: tf_efficientnet_lite0, stage: 2, pretrained: false}
decoder: {embedding: 16, hidden: 24, attention: 12, projection: 16, dropout: 0.3, look: hard}
loss: {doubly_stochastic: 0.1}
hard: {entropy: 0.01}
search: {beam_size: 2, max_words: 8}
train:
  batch_images: 6       # the last batch has one image: some processes have none
  accumulate: 2
  learning_rate: 0.005
  max_words: 12
  captions_per_image: 3
  average: 0.9
  save_minutes: 0.003
"""


class Proof:
    """Runs of the tiny model in one folder."""

    def __init__(self, folder: Path, processes: int, epochs: int) -> None:
        self.folder, self.processes = folder, processes
        self.config = folder / "tiny.yaml"
        self.config.write_text(TINY, encoding="utf-8")
        self.length = [f"train.epochs={epochs}", f"train.patience={epochs}"]

    def launch(self, *arguments: object) -> "subprocess.Popen[str]":
        """torchrun, which takes a port of its own."""
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        torchrun += ["--nproc-per-node", str(self.processes), "-m", "--", "showattend", "train"]
        torchrun += [*map(str, arguments), "--device", "cpu", "--cache", str(self.folder / "cache")]
        with (self.folder / "log.txt").open("a") as log:
            return subprocess.Popen(
                torchrun,
                stdout=log,
                stderr=log,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )

    def start(self, run: Path) -> "subprocess.Popen[str]":
        """A new run, or what there is of one."""
        if (run / "settings.yaml").exists():
            return self.launch("--resume", run)
        return self.launch(*self.length, "--config", self.config, "--run", run)


def kill_one(proof: Proof, run: Path, latest: float, choice: random.Random) -> str | None:
    """Start a run or take it up, and kill it; says who was killed, or None if it came to its end.

    Args:
        latest: seconds from the first save to the kill, at most.

    Raises:
        SystemExit: the run ended by itself, and was not done.
    """
    before = _saved(run)
    launcher = proof.start(run)
    while _saved(run) == before:
        if launcher.poll() is not None:
            _end(proof, launcher)
            return None
        time.sleep(0.01)
    time.sleep(choice.uniform(0, latest))
    ranks = _children(launcher.pid)
    victims = choice.choice([[rank] for rank in ranks] + [[launcher.pid, *ranks]]) if ranks else []
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    code = launcher.wait(timeout=120)
    if code == 0 or not victims:
        _end(proof, launcher)
        return None
    while any(Path("/proc", str(rank)).exists() for rank in ranks):
        time.sleep(0.01)
    return "all" if len(victims) > 1 else f"process {ranks.index(victims[0])}"


def _end(proof: Proof, launcher: "subprocess.Popen[str]") -> None:
    if launcher.wait() != 0:
        raise SystemExit((proof.folder / "log.txt").read_text()[-3000:])


def _saved(run: Path) -> int:
    """Changes with every save."""
    try:
        return (run / "last").stat().st_ino
    except FileNotFoundError:
        return 0


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except FileNotFoundError:
        return []


def check_whole(run: Path) -> str:
    """What is saved of a run, all of which must load; it may have no best/ yet."""
    load_checkpoint(run / "last")
    last = run / "last" if (run / "last").exists() else run / ".last.old"
    for path in last.glob("*.safetensors"):
        load_file(path)
    progress = json.loads((last / "progress.json").read_text())
    if (run / "best").exists() or (run / ".best.old").exists():
        load_checkpoint(run / "best")
    return f"epoch {progress['epoch']}, step {progress['step']}"


def differences(run: Path, whole: Path) -> list[str]:
    """What of a run is not the same, bit by bit, in another."""
    found = []
    for path in sorted([*whole.glob("last/*.safetensors"), *whole.glob("best/*.safetensors")]):
        name = path.relative_to(whole)
        own, other = load_file(run / name), load_file(path)
        if own.keys() != other.keys():
            found.append(str(name))
        found += [f"{name}: {key}" for key in other if not _same(own[key], other[key])]
    if _scores(run) != _scores(whole):
        found.append("metrics.jsonl")
    return found


def _same(own: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(own.nan_to_num(7.0), other.nan_to_num(7.0))


def _scores(run: Path) -> list[dict[str, Any]]:
    """The epochs, without their times."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{key: line[key] for key in line if "second" not in key} for line in lines]


def main(argv: list[str] | None = None) -> int:
    """Returns 0 where the killed run equals the undisturbed one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--kills", type=int, default=20)
    add("--processes", type=int, default=2)
    add("--epochs", type=int, default=80)
    add("--seed", type=int, default=1, help="of the moments and the victims")
    arguments = parser.parse_args(argv)
    choice = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        proof = Proof(Path(name), arguments.processes, arguments.epochs)
        whole, run = proof.folder / "whole", proof.folder / "run"
        _end(proof, proof.start(whole))
        # A fast machine trains for fewer seconds: all kills must come before the end.
        latest = sum(epoch["seconds"] for epoch in read_curve(whole)) / (arguments.kills + 1)
        for number in range(1, arguments.kills + 1):
            victim = kill_one(proof, run, latest, choice)
            if victim is None:
                print(f"came to its end before kill {number}; give it more --epochs")
                return 1
            print(f"kill {number}: {victim} at {check_whole(run)}; all files load", flush=True)
        _end(proof, proof.start(run))
        different = differences(run, whole)
    if different:
        print(f"differs from the undisturbed run in {len(different)}, such as {different[0]}")
        return 1
    print(
        f"{arguments.kills} kills of {arguments.processes} processes: weights, optimizer, average, "
        "baseline and scores equal the undisturbed run's, bit by bit"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
