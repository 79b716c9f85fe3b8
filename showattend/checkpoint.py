"""A whole model in one folder: ``model.safetensors`` and ``config.json``.

The folder is self-contained (encoder, decoder, vocabulary, pixel settings), is written whole or not
at all, loads without a network, and nothing in it is ever unpickled.
"""

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

import showattend
from showattend.captioner import Captioner, build_captioner
from showattend.config import (
    REGIONS,
    ConfigError,
    DecoderSettings,
    EncoderSettings,
    PixelSettings,
    SearchSettings,
    checked,
)
from showattend.vocabulary import SPECIALS, Vocabulary

WEIGHTS, CONFIG = "model.safetensors", "config.json"
FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint is missing, torn or of another format: one clear line."""


class _Config(BaseModel):
    """What config.json holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int
    showattend: str
    pixels: PixelSettings
    encoder: EncoderSettings
    decoder: DecoderSettings
    search: SearchSettings
    #: Where the model comes from and what it scored: free text for people, never read by code.
    origin: dict[str, Any]
    vocabulary: list[str]


@dataclass(frozen=True)
class Checkpoint:
    """A model with everything that captioning a photograph needs."""

    captioner: Captioner
    vocabulary: Vocabulary
    pixels: PixelSettings
    encoder: EncoderSettings
    decoder: DecoderSettings
    search: SearchSettings
    origin: dict[str, Any]


def save_checkpoint(
    folder: Path, checkpoint: Checkpoint, *, dtype: torch.dtype = torch.float32
) -> None:
    """Write a checkpoint; an older one of that name is replaced only once the new one is whole.

    Args:
        dtype: of the stored floating-point weights; fp16 halves the file.
    """
    with replaced_folder(folder) as new:
        write_checkpoint(new, checkpoint, dtype=dtype)


def write_checkpoint(
    folder: Path, checkpoint: Checkpoint, *, dtype: torch.dtype = torch.float32
) -> None:
    """The two files, into a folder that exists."""
    config = _Config(
        format=FORMAT,
        showattend=showattend.__version__,
        pixels=checkpoint.pixels,
        encoder=checkpoint.encoder,
        decoder=checkpoint.decoder,
        search=checkpoint.search,
        origin=checkpoint.origin,
        vocabulary=list(checkpoint.vocabulary.words[len(SPECIALS) :]),
    )
    # Not safetensors' save_file: its files are readable by their owner alone.
    (folder / WEIGHTS).write_bytes(save(_stored(checkpoint.captioner, dtype)))
    (folder / CONFIG).write_text(config.model_dump_json(indent=1) + "\n", encoding="utf-8")


def load_checkpoint(folder: Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Load a checkpoint as float32, in eval mode.

    Raises:
        CheckpointError: one line that names the file and what is wrong with it.
    """
    folder = whole_folder(Path(folder))
    config = _read_config(folder / CONFIG)
    needs_pixels = config.encoder.name != REGIONS
    if needs_pixels and (config.pixels.mean is None or config.pixels.std is None):
        raise CheckpointError(f"{folder / CONFIG}: pixels.mean or pixels.std is missing")
    try:
        weights = load_file(folder / WEIGHTS, device="cpu")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / WEIGHTS}: cannot be read ({error})") from None
    try:
        vocabulary = Vocabulary(config.vocabulary)
        captioner = build_captioner(
            config.encoder,
            config.decoder,
            size=config.pixels.size,
            words=len(vocabulary),
            pretrained=False,
        )
    except ValueError as error:  # an unknown network, or a word twice
        raise CheckpointError(f"{folder / CONFIG}: {error}") from None
    _fill(captioner, weights, folder / WEIGHTS)
    return Checkpoint(
        captioner.to(device).eval(),
        vocabulary,
        config.pixels,
        config.encoder,
        config.decoder,
        config.search,
        config.origin,
    )


@contextmanager
def replaced_folder(folder: Path, also: Collection[str] = ()) -> Iterator[Path]:
    """Build a folder under a temporary name; on success it takes the place of ``folder``.

    Files of the older folder that the new one does not have, such as somebody's notes, stay. Every
    file is fsynced before the renames. A kill between the two renames leaves the older folder under
    the name that :func:`recover_folder` restores.

    Args:
        also: names of files that a folder without a checkpoint may hold.
    """
    recover_folder(folder)
    others = [path for path in folder.iterdir() if path.name not in also] if folder.exists() else []
    if others and not _is_checkpoint(folder):
        raise CheckpointError(f"{folder}: holds other files; name a new or a checkpoint's folder")
    new, old = _beside(folder, "new"), _beside(folder, "old")
    for leftover in (new, old):  # of a kill before or after the renames
        shutil.rmtree(leftover, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    _keep_others(folder, new)
    for path in [*new.iterdir(), new]:
        _fsync(path)
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    _fsync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _is_checkpoint(folder: Path) -> bool:
    """Whether a folder's config.json is one of ours; many programs name their settings so."""
    try:
        tree = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and {"format", "showattend", "vocabulary"} <= tree.keys()


def _keep_others(older: Path, newer: Path) -> None:
    """Copy what only the older folder holds into the newer one."""
    for path in older.iterdir() if older.exists() else ():
        place = newer / path.name
        if place.exists():
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.copytree(path, place, symlinks=True)
        else:
            shutil.copy2(path, place, follow_symlinks=False)


def recover_folder(folder: Path) -> None:
    """Undo what a kill in the middle of :func:`replaced_folder` left; for writers only."""
    if whole_folder(folder) != folder:
        os.rename(whole_folder(folder), folder)


def whole_folder(folder: Path) -> Path:
    """The folder, or its older version between the two renames of a writer (or of a kill)."""
    old = _beside(folder, "old")
    return old if old.exists() and not folder.exists() else folder


def _beside(folder: Path, suffix: str) -> Path:
    return folder.parent / f".{folder.name}.{suffix}"


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _stored(captioner: Captioner, dtype: torch.dtype) -> dict[str, Tensor]:
    """Each tensor once: tied embeddings are stored under their first name."""
    stored: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in captioner.state_dict().items():
        if value.data_ptr() in seen and value.numel():
            continue
        seen.add(value.data_ptr())
        value = value.detach().to("cpu", dtype if value.is_floating_point() else None)
        stored[name] = value.contiguous().clone()
    return stored


def _fill(captioner: Captioner, weights: Mapping[str, Tensor], path: Path) -> None:
    expected = _stored(captioner, torch.float32)
    wrong = [
        name
        for name in expected.keys() | weights.keys()
        if name not in weights
        or name not in expected
        or weights[name].shape != expected[name].shape
    ]
    if wrong:
        raise CheckpointError(
            f"{path}: {len(wrong)} tensors do not fit its config.json, such as {min(wrong)}"
        )
    broken = [name for name, value in weights.items() if not value.isfinite().all()]
    if broken:
        raise CheckpointError(f"{path}: {min(broken)} holds what is no number; it is damaged")
    captioner.load_state_dict(dict(weights), strict=False)  # strict but for tied names: see above


def _read_config(path: Path) -> _Config:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise CheckpointError(
            f"{path}: not found; a checkpoint is a folder with {WEIGHTS} and {CONFIG}"
        ) from None
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path}: is not JSON; the checkpoint is damaged") from None
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        raise CheckpointError(f"{path}: is not a showattend checkpoint of format {FORMAT}")
    try:
        return checked(_Config, tree, str(path))
    except ConfigError as error:
        raise CheckpointError(str(error)) from None
