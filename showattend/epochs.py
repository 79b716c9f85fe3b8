"""What a run's epochs say of it: which is the best, and whether more are to come."""

from collections.abc import Mapping, Sequence
from typing import Any

from showattend.config import TrainSettings

#: A run's epochs, as metrics.jsonl has them.
History = Sequence[Mapping[str, Any]]


def best_epoch(history: History, select_on: str) -> Mapping[str, Any] | None:
    """The epoch with the best validation score; of equals, that with the lowest loss.

    With few validation images all scores may be 0.
    """
    return max(history, key=lambda line: (line[select_on], -line["loss"]), default=None)


def is_over(settings: TrainSettings, history: History) -> bool:
    """All epochs are done, or the score has not risen for ``patience`` of them."""
    scores = [line[settings.select_on] for line in history]
    if len(scores) >= settings.epochs or not scores:
        return bool(scores)
    return len(scores) - (scores.index(max(scores)) + 1) >= settings.patience
