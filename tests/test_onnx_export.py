"""The graphs say what the model says, for any number of images, captions and words."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from showattend.captioner import build_captioner
from showattend.checkpoint import Checkpoint
from showattend.config import DecoderSettings, EncoderSettings
from showattend.onnx_export import ExportError, export_onnx
from showattend.predict import load

EXAMPLE = Path(__file__).resolve().parents[1] / "docs" / "onnx.md"
PHOTOGRAPHS = Path(__file__).resolve().parents[1] / "showattend" / "examples"


def rebuilt(checkpoint: Checkpoint, **changes: Any) -> Checkpoint:
    """The same with another decoder, of large weights, which make sure choices."""
    decoder = DecoderSettings(**checkpoint.decoder.model_dump() | changes)
    size, words = checkpoint.pixels.size, len(checkpoint.vocabulary)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        captioner = build_captioner(checkpoint.encoder, decoder, size=size, words=words)
    with torch.no_grad():
        for parameter in captioner.decoder.parameters():
            parameter.mul_(3)
    return replace(checkpoint, captioner=captioner.eval(), decoder=decoder)


def forced(folder: Path, pixels_B3SS: np.ndarray, words_BT: np.ndarray) -> list[np.ndarray]:
    """log p (B, T, V) and weights (B, T, P), as the graphs tell them."""
    told = json.loads((folder / "caption.json").read_text(encoding="utf-8"))
    encoder, step = (
        onnxruntime.InferenceSession(str(folder / f"{name}.onnx")) for name in ("encoder", "step")
    )
    made = encoder.run(told["seen"] + told["state"], {"pixels": pixels_B3SS})
    given = dict(zip(told["seen"] + told["state"], made, strict=True))
    rows = []
    for words_B in words_BT.T:
        (*row,) = step.run(None, given | {"words": words_B[:, None]})
        given |= dict(zip(told["state"], row[2:], strict=True))
        rows.append(row[:2])
    return [np.concatenate(parts, axis=1) for parts in zip(*rows, strict=True)]


@torch.no_grad()
def taught(
    checkpoint: Checkpoint, pixels_B3SS: np.ndarray, words_BT: np.ndarray
) -> list[np.ndarray]:
    """The same of the model itself."""
    captioner, decoder = checkpoint.captioner, checkpoint.captioner.decoder
    scene = captioner.look(captioner.grid(torch.from_numpy(pixels_B3SS)))
    state, rows = decoder.start(scene, 1), []
    for words_B in torch.from_numpy(words_BT).T:
        step = decoder.step(scene, state, words_B[:, None])
        state = step.state
        weights_B1P = decoder.glimpse(step.chosen_BKHP.mean(dim=2))
        rows.append((step.logits_BKV.log_softmax(dim=-1), weights_B1P))
    return [torch.cat(parts, dim=1).numpy() for parts in zip(*rows, strict=True)]


def noise(images: int, size: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((images, 3, size, size), np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"look": "hard", "glimpse": 3, "score": "general", "heads": 3, "projection": 6},
        {"kind": "gru", "score": "cosine", "deep_output": "maxout"},
        {
            "kind": "transformer",
            "layers": 2,
            "heads": 2,
            "embedding": 8,
            "projection": 8,
            "attention": 4,
        },
    ],
    ids=["hard", "gru", "transformer"],
)
def test_decoders(tmp_path: Path, checkpoint: Checkpoint, changes: dict[str, Any]) -> None:
    other = rebuilt(checkpoint, **changes)
    for path in export_onnx(other, tmp_path)[:2]:
        onnx.checker.check_model(str(path), full_check=True)
    for images in (1, 5):
        words_BT = np.random.default_rng(images).integers(4, 9, (images, 6))
        pixels_B3SS = noise(images, 32)
        pairs = zip(
            forced(tmp_path, pixels_B3SS, words_BT),
            taught(other, pixels_B3SS, words_BT),
            strict=True,
        )
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["soft", "hard"])
def test_shipped_models_on_photographs(tmp_path: Path, name: str) -> None:
    """By the example of docs/onnx.md, as it stands there, in a process that knows no torch."""
    model = load(name, "cpu")
    export_onnx(model.checkpoint, tmp_path)
    photographs = sorted(map(str, PHOTOGRAPHS.glob("*.jpg")))
    assert len(photographs) > 1
    program = tmp_path / "example.py"
    [code] = re.findall(r"```python\n(.*?)```", EXAMPLE.read_text(encoding="utf-8"), re.DOTALL)
    blocked = "import sys\nsys.modules['torch'] = sys.modules['showattend'] = None\n"
    program.write_text(blocked + code)
    command = [sys.executable, str(program), str(tmp_path), *photographs]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = [caption.text for caption in model.caption(photographs, beam_size=1)]
    assert said.splitlines() == [
        f"{path}\t{text}" for path, text in zip(photographs, expected, strict=True)
    ]
    pixels_B3SS = np.stack([model._seen(path)[0] for path in photographs])
    words_BT = np.random.default_rng(0).integers(4, len(model.checkpoint.vocabulary), (1, 5))
    words_BT = words_BT.repeat(len(photographs), axis=0)
    pairs = zip(
        forced(tmp_path, pixels_B3SS, words_BT),
        taught(model.checkpoint, pixels_B3SS, words_BT),
        strict=True,
    )
    for found, expected_numbers in pairs:
        np.testing.assert_allclose(found, expected_numbers, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_exported(tmp_path: Path, checkpoint: Checkpoint) -> None:
    drawn = checkpoint.search.model_copy(update={"attention": "sample"})
    with pytest.raises(ExportError, match=r"search\.attention is sample: a graph draws no cells"):
        export_onnx(replace(checkpoint, search=drawn), tmp_path)
    settings = EncoderSettings(name="regions", channels=6)
    captioner = build_captioner(settings, checkpoint.decoder, size=32, words=9)
    with pytest.raises(ExportError, match="the model looks at regions"):
        export_onnx(replace(checkpoint, captioner=captioner, encoder=settings), tmp_path)
    assert list(tmp_path.iterdir()) == []
