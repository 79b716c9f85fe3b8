"""Which models the page offers, and that each is loaded once."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from showattend.app import models as module
from showattend.app.models import Models
from showattend.checkpoint import CheckpointError


def test_a_model_is_loaded_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def slow(name: str) -> object:
        loads.append(name)
        time.sleep(0.05)  # long enough for the others to ask meanwhile
        return object()

    monkeypatch.setattr(module, "load", slow)
    models = Models(["soft", "hard"])
    assert loads == []
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(models.get, ["soft"] * 8))) == 1
    assert loads == ["soft"]


def test_only_offered_models_are_loaded(folder: str) -> None:
    with pytest.raises(CheckpointError, match="not among the models of this page"):
        Models(["soft"]).get(folder)
    with pytest.raises(CheckpointError, match="no model to serve"):
        Models([])


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["soft"], ["soft"]),
        (["runs/a", "runs/b", "runs/c"], ["runs/a", "runs/b"]),
        (["hard", "soft", "rewarded"], ["soft", "hard"]),
        (["soft", "soft", "rewarded"], ["soft", "rewarded"]),
    ],
)
def test_the_pair_is_soft_and_hard_or_the_first_two(names: list[str], pair: list[str]) -> None:
    assert Models(names).pair == pair
