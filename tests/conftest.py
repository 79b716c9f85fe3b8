"""Models and pictures small enough for every test; letters as in the package's shape legend."""

import importlib.util
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from showattend.captioner import Captioner, build_captioner, build_decoder
from showattend.checkpoint import Checkpoint
from showattend.config import (
    ChannelAttentionSettings,
    DecoderSettings,
    EncoderSettings,
    PixelSettings,
    SearchSettings,
)
from showattend.datasets import Picture
from showattend.decoder import Decoder
from showattend.encoder import GridShape
from showattend.vocabulary import END, PAD, Vocabulary

MakeDecoder = Callable[..., Decoder]
MakeCaptioner = Callable[..., Captioner]
MakePicture = Callable[..., Picture]

V = 9  # words of the vocabulary below

torch.set_num_threads(1)  # on models this small, threads only wait for one another


def seeded(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, the same for the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def ragged(lengths: list[list[int]], seed: int = 0) -> Tensor:
    """Captions of so many words, the end mark included; 0 is no caption at all."""
    longest = max(max(of_image) for of_image in lengths)
    generator = torch.Generator().manual_seed(seed)
    words_BKT = torch.full((len(lengths), len(lengths[0]), longest), PAD)
    for b, of_image in enumerate(lengths):
        for k, length in enumerate(of_image):
            if length:
                words_BKT[b, k, :length] = torch.randint(3, V, (length,), generator=generator)
                words_BKT[b, k, length - 1] = END
    return words_BKT


def with_gates(checkpoint: Checkpoint) -> Checkpoint:
    """The same with SE, of weights drawn at random, after its first stage and on its grid."""
    gates = ChannelAttentionSettings(kind="se", where="stage", stages=(0, -1), reduction=4)
    encoder = checkpoint.encoder.model_copy(update={"channel_attention": gates})
    size, words = checkpoint.pixels.size, len(checkpoint.vocabulary)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        captioner = build_captioner(encoder, checkpoint.decoder, size=size, words=words)
        for name, parameter in captioner.named_parameters():
            if "channel_attention" in name:
                nn.init.normal_(parameter)
    return replace(checkpoint, captioner=captioner.eval(), encoder=encoder)


def load_script(name: str) -> Any:
    """scripts/NAME.py as a module."""
    path = Path(__file__).resolve().parents[1] / "scripts" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_script", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """V = 9: the four specials and five words."""
    return Vocabulary(["a", "dog", "cat", "on", "grass"])


@pytest.fixture(scope="session")
def make_decoder() -> MakeDecoder:
    """A decoder for C = 5 and V = 9 in eval mode, the same for the same seed.

    ``scale`` multiplies what it was initialised with: large weights make sure choices. Other
    changes are decoder settings.
    """

    def make(
        seed: int = 0,
        *,
        scale: float = 1.0,
        grid: GridShape = GridShape(2, 3, 5),  # noqa: B008 (frozen)
        words: int = 9,
        **changes: Any,
    ) -> Decoder:
        sizes = {"embedding": 4, "hidden": 6, "attention": 3, "projection": None, "dropout": 0.0}
        settings = DecoderSettings(**sizes | {"tie_embeddings": False} | changes)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            decoder = build_decoder(grid, words, settings)
        with torch.no_grad():
            for parameter in decoder.parameters():
                parameter.mul_(scale)
        return decoder.eval()

    return make


@pytest.fixture(scope="session")
def make_captioner(make_decoder: MakeDecoder) -> MakeCaptioner:
    """A captioner of 2x3 grids (P = 6) whose decoder is ``make_decoder``'s; it has no CNN."""

    def make(seed: int = 0, **changes: Any) -> Captioner:
        no_cnn: Any = nn.Identity()
        return Captioner(no_cnn, make_decoder(seed, **changes), GridShape(2, 3, 5)).eval()

    return make


@pytest.fixture
def checkpoint(vocabulary: Vocabulary) -> Checkpoint:
    """A whole model: a CNN of 15,000 weights over 32x32 pixels (P = 64, C = 24), untrained."""
    pixels = PixelSettings(size=32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    encoder = EncoderSettings(name="test_efficientnet", stage=1, pretrained=False)
    decoder = DecoderSettings(embedding=4, hidden=6, attention=3, projection=7, dropout=0.5)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        captioner = build_captioner(encoder, decoder, size=32, words=len(vocabulary))
    search = SearchSettings(beam_size=3, max_words=5)
    return Checkpoint(
        captioner.eval(), vocabulary, pixels, encoder, decoder, search, {"run": "tiny"}
    )


@pytest.fixture
def make_picture(tmp_path: Path) -> MakePicture:
    """A PNG of noise in ``tmp_path``, and its captions."""

    def make(name: str, seed: int = 0, captions: tuple[str, ...] = ("a dog on grass",)) -> Picture:
        noise_SS3 = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), np.uint8)
        Image.fromarray(noise_SS3).save(tmp_path / name)
        return Picture(name, tmp_path / name, captions)

    return make


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection and every look-up of a name fails at once."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200,704 bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=196k", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk, and not in every container")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
