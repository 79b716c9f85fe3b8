"""The best epoch, and the end of a training."""

from typing import Any

from showattend.config import TrainSettings
from showattend.epochs import best_epoch, is_over


def epochs(*scores: float) -> list[dict[str, Any]]:
    return [
        {"epoch": n, "loss": 5.0 - n, "CIDEr-D": score} for n, score in enumerate(scores, start=1)
    ]


def test_the_best_epoch_has_the_highest_score_and_of_equals_the_lowest_loss() -> None:
    assert best_epoch([], "CIDEr-D") is None
    best = best_epoch(epochs(1.0, 3.0, 3.0, 2.0), "CIDEr-D")
    assert best is not None
    assert best["epoch"] == 3


def test_a_training_is_over_after_its_last_epoch_or_its_patience() -> None:
    settings = TrainSettings(epochs=5, patience=2)
    assert not is_over(settings, [])
    assert not is_over(settings, epochs(1.0, 3.0, 2.0))
    assert is_over(settings, epochs(1.0, 3.0, 2.0, 2.0))
    assert is_over(settings, epochs(1.0, 2.0, 3.0, 4.0, 5.0))
