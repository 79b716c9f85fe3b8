"""What drawn captions earn: of a model whose captions are known."""

from typing import Any

import pytest
import torch
from conftest import MakePicture, load_script

from showattend.checkpoint import Checkpoint
from showattend.predict import CaptionModel

script: Any = load_script("draws")


def test_a_model_that_says_one_thing_alone(
    checkpoint: Checkpoint, make_picture: MakePicture
) -> None:
    """Cold draws are greedy ones, all alike; hot ones differ, and the best earns most."""
    pictures = [make_picture(f"{i}.png", i, ("a dog", "a man on grass")) for i in range(4)]
    model = CaptionModel(checkpoint, "tiny")
    torch.manual_seed(0)
    rows = script.earnings(model, pictures, 3, [0.001, 100.0])
    assert list(rows) == ["greedy", "0.001", "100"]
    cold, hot = rows["0.001"], rows["100"]
    assert cold["mean"].value == pytest.approx(rows["greedy"]["mean"].value)
    assert (cold["different"].value, cold["spread"].value) == (1.0, pytest.approx(0.0))
    assert hot["different"].value > 3
    assert hot["best"].value >= hot["mean"].value
