"""Readings made by hand, and uploads."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
from PIL import Image, ImageDraw

from showattend.app.models import Models
from showattend.app.reading import Reading
from showattend.app.shared import Shared
from showattend.captioner import build_captioner
from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.config import DecoderSettings
from showattend.predict import CaptionModel
from showattend.search import Caption, Regions

WEIGHTS = np.array([[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0, 0.4, 0.6]], np.float32)
FIRST = Caption(("a", "<b>", "dog"), -6.0, WEIGHTS, WEIGHTS, None, Regions(2, 2))
SECOND = Caption(("two", "cats"), -9.0, WEIGHTS[1:], WEIGHTS[1:], None, Regions(2, 2))

Draw = Callable[[Path], Path]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Gradio keeps files: not in the folder that all programs of this machine share."""
    folder = tmp_path / "gradio"
    folder.mkdir()
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(folder))
    return folder


@pytest.fixture
def reading() -> Reading:
    photo = Image.new("RGB", (120, 80), "steelblue")
    ImageDraw.Draw(photo).ellipse((10, 10, 50, 50), fill="gold")
    return Reading("soft", "dog", photo, "squash", (FIRST, SECOND), 0.5, "models/soft")


@pytest.fixture
def hard_reading(reading: Reading) -> Reading:
    """Two words, each read from one cell: the first, then the last."""
    weights = np.array([[1, 0, 0, 0], [0, 0, 0, 1]], np.float32)
    alpha = np.array([[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1]], np.float32)
    looked = replace(SECOND, weights=weights, alpha=alpha)
    return replace(reading, title="hard", captions=(looked,), model="models/hard")


@pytest.fixture
def folder(checkpoint: Checkpoint, tmp_path: Path) -> str:
    save_checkpoint(tmp_path / "tiny", checkpoint)
    return str(tmp_path / "tiny")


@pytest.fixture
def hard_folder(checkpoint: Checkpoint, tmp_path: Path) -> str:
    decoder = checkpoint.decoder.model_copy(update={"look": "hard"})
    save_checkpoint(tmp_path / "hard", replace(checkpoint, decoder=decoder))
    return str(tmp_path / "hard")


@pytest.fixture
def transformer(checkpoint: Checkpoint) -> CaptionModel:
    """Two layers of two heads."""
    small = {"kind": "transformer", "layers": 2, "heads": 2, "attention": 4, "projection": 6}
    decoder = DecoderSettings(
        embedding=4, hidden=8, word_in_query=False, coordinates=False, **small
    )
    words = len(checkpoint.vocabulary)
    captioner = build_captioner(checkpoint.encoder, decoder, size=32, words=words).eval()
    return CaptionModel(replace(checkpoint, captioner=captioner, decoder=decoder), "runs/tiny")


@pytest.fixture
def shared(folder: str, hard_folder: str, cache: Path) -> Shared:
    """The page's parts around two models; no component of it is on a page."""
    nothing: Any = None
    return Shared(Models([folder, hard_folder]), cache, *[nothing] * 5)


@pytest.fixture
def draw() -> Draw:
    """Write a photograph of noise at a path, and return the path."""

    def write(path: Path) -> Path:
        noise = np.random.default_rng(0).integers(0, 256, (600, 900, 3), dtype=np.uint8)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise).save(path)
        return path

    return write


@pytest.fixture
def photo(draw: Draw, cache: Path) -> dict[str, Any]:
    """An upload, as Gradio records it."""
    return {"path": str(draw(cache / "0f" / "beach.png")), "orig_name": "beach.png"}


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that the page shows in its corner."""
    lines: list[str] = []
    monkeypatch.setattr(gr, "Warning", lambda line, **_: lines.append(line))
    return lines
