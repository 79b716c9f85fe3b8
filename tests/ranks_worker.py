"""A training as one of several processes, by torchrun: ``ranks_worker.py CONFIG RUN CACHE DTYPE``.

Writes RUN/told.json: the loss of every step, and each process's baseline of hard attention.
"""

import json
import sys
from pathlib import Path

import torch

from showattend import train as module
from showattend.config import read_settings
from showattend.ranks import join_ranks
from showattend.train import Run, start_run, train


def watched(run: Run, dtype: torch.dtype) -> list[float]:
    """Train a run, its weights in a precision; the loss of every step."""
    run.captioner.to(dtype)
    if run.average is not None:
        run.average.to(dtype)
    losses: list[float] = []
    step = module._train_step

    def told(*args: object) -> tuple[dict[str, float], int]:
        parts, count = step(*args)  # type: ignore[arg-type]
        losses.append(sum(parts.values()))
        return parts, count

    module._train_step = told  # type: ignore[assignment]
    try:
        train(run)
    finally:
        module._train_step = step
    return losses


if __name__ == "__main__":
    config, folder, cache = map(Path, sys.argv[1:4])
    ranks = join_ranks(torch.device("cpu"))
    run = start_run(folder, read_settings(config), cache=cache, device=ranks.device, ranks=ranks)
    losses = watched(run, getattr(torch, sys.argv[4]))
    # Exact in float64, as JSON.
    told = ranks.gather({"losses": losses, "baseline": run.rewards.mean_T1.nan_to_num().tolist()})
    weights = {name: value.double().tolist() for name, value in run.captioner.named_parameters()}
    if ranks.main:
        text = json.dumps({"ranks": told, "weights": weights})
        (folder / "told.json").write_text(text, encoding="utf-8")
    ranks.leave()
