"""Runs of several processes that are killed, or asked to leave, and taken up again."""

import os
import signal
from pathlib import Path
from types import ModuleType

import pytest
import torch
from conftest import load_script
from safetensors.torch import load_file, save_file


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("kill_runs")


def write_run(folder: Path, weight: torch.Tensor, score: float) -> None:
    for part in ("last", "best"):
        (folder / part).mkdir(parents=True)
        save_file({"weight": weight}, folder / part / "model.safetensors")
    (folder / "metrics.jsonl").write_text(f'{{"epoch": 1, "BLEU-4": {score}, "seconds": 3}}\n')


def test_one_bit_is_a_difference(script: ModuleType, tmp_path: Path) -> None:
    """A number that was never seen (NaN) is none."""
    weight = torch.tensor([1.0, torch.nan])
    for name, first, score in (("a", 1.0, 2.5), ("b", 1.0, 2.5), ("c", 1.0 + 2**-23, 2.5)):
        write_run(tmp_path / name, torch.cat([torch.tensor([first]), weight]), score)
    write_run(tmp_path / "d", torch.cat([torch.tensor([1.0]), weight]), 2.6)
    a, b, c, d = (tmp_path / name for name in "abcd")
    assert script.differences(b, a) == []
    wanted = ["best/model.safetensors: weight", "last/model.safetensors: weight"]
    assert script.differences(c, a) == wanted
    assert script.differences(d, a) == ["metrics.jsonl"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_kills_of_two_processes(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--kills", "3", "--epochs", "20", "--seed", "5"]) == 0
    assert "bit by bit" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("whole", [True, False])
def test_sigterm_lets_all_processes_save_and_leave(
    script: ModuleType, tmp_path: Path, whole: bool
) -> None:
    """To torchrun, as a cluster sends it, or to the second process alone: both agree on it."""
    proof, run = script.Proof(tmp_path, 2, 2), tmp_path / "run"
    launcher = proof.start(run)
    while not script._saved(run):
        assert launcher.poll() is None, (tmp_path / "log.txt").read_text()
    ranks = script._children(launcher.pid)
    while (step := script.check_whole(run)) == "epoch 1, step 0":
        assert launcher.poll() is None, (tmp_path / "log.txt").read_text()
    os.kill(launcher.pid if whole else ranks[1], signal.SIGTERM)
    assert launcher.wait(timeout=120) != 0
    log = (tmp_path / "log.txt").read_text()
    assert "stopped by SIGTERM at epoch" in log
    assert "lost another one" not in log
    if not whole:
        assert "143" in log.partition("exitcode")[2].splitlines()[0]
    assert script.check_whole(run) >= step
    assert proof.start(run).wait() == 0
    assert "best: epoch" in (tmp_path / "log.txt").read_text()
    load_file(run / "last" / "model.safetensors")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_loss_of_a_process_is_one_line_of_the_other(script: ModuleType, tmp_path: Path) -> None:
    proof, run = script.Proof(tmp_path, 2, 50), tmp_path / "run"
    launcher = proof.start(run)
    while not script._saved(run) or script.check_whole(run) == "epoch 1, step 0":
        assert launcher.poll() is None, (tmp_path / "log.txt").read_text()
    os.kill(script._children(launcher.pid)[1], signal.SIGKILL)
    assert launcher.wait(timeout=120) != 0
    log = (tmp_path / "log.txt").read_text()
    assert "showattend: error: process 0 lost another one (" in log
    assert "showattend/train.py" not in log  # no traceback
