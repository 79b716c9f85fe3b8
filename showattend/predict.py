"""The one-line API: photograph in, caption out.

>>> model = showattend.load()
>>> model.caption("photo.jpg").text
"""

import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin

from showattend.channels import look_with_gates
from showattend.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    replaced_folder,
    whole_folder,
    write_checkpoint,
)
from showattend.config import MOST_WORDS, Attention, SearchSettings, checked
from showattend.decoder import Scene
from showattend.grids import model_pixels
from showattend.hub import CARD, OF_A_REPOSITORY, hub_folder, hub_reached, model_card
from showattend.images import ImageError, Photograph, open_photograph, seen_box
from showattend.items import as_items
from showattend.regions import RegionFile, RegionsError, check_regions
from showattend.search import Boxes, Caption, Regions, attend, beam_search, pick_words, words_of
from showattend.steering import LookAt, Steer, Steering, cells_of, check_steer
from showattend.transformer import TransformerDecoder
from showattend.vocabulary import UNKNOWN

__all__ = ["Boxes", "Caption", "CaptionModel", "Regions", "load", "shipped_models"]

_SHIPPED = Path(__file__).parent / "checkpoints"
#: Photographs encoded at once; more gains nothing on a CPU and costs memory.
_BATCH = 16

Item = TypeVar("Item")
AnyPhotograph = TypeVar("AnyPhotograph", bound=Photograph)
#: A photograph as the encoder sees it, (3, S, S), and the cells (h, w) that may be looked at.
_Seen = tuple[np.ndarray, np.ndarray | None]


def shipped_models() -> list[str]:
    """Names of the checkpoints that come with the package, the one that `load` takes first."""
    names = (path.parent.name for path in _SHIPPED.glob("*/config.json"))
    return sorted(names, key=lambda name: (name != "soft", name))


def load(model: str | Path = "soft", device: str = "auto") -> "CaptionModel":
    """Load a shipped model by name, or any checkpoint or run folder by path.

    Args:
        device: ``auto``, ``cpu``, ``cuda``, ``mps`` or any torch device string.
    Raises:
        CheckpointError: unknown name, missing or damaged folder; one line.
        DeviceError: this machine has no such device; one line.
    """
    checkpoint = load_checkpoint(checkpoint_folder(model), choose_device(device))
    return CaptionModel(checkpoint, str(model))


def checkpoint_folder(model: str | Path) -> Path:
    """Where the checkpoint of a shipped model's name, a checkpoint or a run (its best) lies.

    Raises:
        CheckpointError: there is nothing of that name; one line.
    """
    if not isinstance(model, str | os.PathLike):
        raise CheckpointError(f"{model!r}: expected a shipped model's name or a folder's path")
    if str(model) in shipped_models():
        return _SHIPPED / str(model)
    folder = Path(model)
    if not folder.exists():
        names = ", ".join(shipped_models()) or "none"
        raise CheckpointError(f"{model}: neither a shipped model ({names}) nor a checkpoint folder")
    best = folder / "best"
    return best if whole_folder(best).is_dir() else folder


class DeviceError(ValueError):
    """The wanted device is not there: one clear line."""


def choose_device(name: str) -> torch.device:
    """``auto`` is cuda, then mps, then cpu, whichever is there first.

    Raises:
        DeviceError: there is no such device here.
    """
    found = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return torch.device(next((device for device, there in found.items() if there), "cpu"))
    kind = name.partition(":")[0]
    if kind != "cpu" and not found.get(kind, False):
        raise DeviceError(f"--device {name}: not on this machine; choose auto or cpu")
    try:
        return torch.device(name)
    except RuntimeError:  # "cpu:", "cpu:x"
        raise DeviceError(f"--device {name}: names no device; choose auto or cpu") from None


class CaptionModel(
    ModelHubMixin,
    library_name="showattend",
    paper_url="https://arxiv.org/abs/1502.03044",
):
    """A checkpoint ready to caption photographs: paths, bytes, PIL images or arrays.

    ``save_pretrained``, ``from_pretrained`` and ``push_to_hub`` are those of every model on the
    Hugging Face Hub (`huggingface_hub.ModelHubMixin`), in the checkpoint's own format.

    Attributes:
        name: what it was loaded as.
        checkpoint: the model, its vocabulary and its settings.
    """

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self.checkpoint = checkpoint
        self.name = name

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        repo_id: str | None = None,
        push_to_hub: bool = False,
        **options: Any,
    ) -> str | None:
        """The mixin's, but that the folder is written whole or not at all; others' files in it
        stay, and so does a README.md.

        Raises:
            CheckpointError: the folder holds something else; one line.
            OSError: it cannot be written.
        """
        folder, card = Path(save_directory), options.get("model_card_kwargs")
        with replaced_folder(folder, OF_A_REPOSITORY) as new:
            if (folder / CARD).exists():
                shutil.copy2(folder / CARD, new / CARD)
            super().save_pretrained(new, model_card_kwargs=card)
        return self.push_to_hub(repo_id or folder.name, **options) if push_to_hub else None

    def _save_pretrained(self, save_directory: Path) -> None:
        """The mixin's part that is our own."""
        write_checkpoint(save_directory, self.checkpoint)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, **options: Any
    ) -> "CaptionModel":
        """A local folder's model, or that of a repository on the Hub.

        Args:
            options: ``device``, as of :func:`load`, and those of the mixin.
        Raises:
            CheckpointError: there is none, or it is damaged; one line.
            DeviceError: as of :func:`load`.
        """
        name = str(pretrained_model_name_or_path)
        if Path(name).is_dir():  # the mixin would stumble over a damaged config.json
            return cls._from_pretrained(model_id=name, **options)
        with hub_reached(name):
            model: CaptionModel = super().from_pretrained(name, **options)
        return model

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
        token: str | bool | None = None,
        device: str = "auto",
        **others: object,
    ) -> "CaptionModel":
        """The mixin's part that is our own.

        Args:
            device: as of :func:`load`.
        Raises:
            CheckpointError, DeviceError: as of :func:`load`.
            TypeError: there is no such argument.
        """
        if others:
            raise TypeError(f"from_pretrained: has no argument {min(others)!r}")
        folder = Path(model_id)
        if not folder.is_dir():
            folder = hub_folder(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        return cls(load_checkpoint(folder, choose_device(device)), model_id)

    def push_to_hub(
        self, repo_id: str, *, model_card_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> str:
        """The mixin's; the card names the repository."""
        told = {"repository": repo_id} | (model_card_kwargs or {})
        url: str = super().push_to_hub(repo_id, model_card_kwargs=told, **options)
        return url

    def generate_model_card(self, *args: object, **kwargs: str) -> ModelCard:
        """The README.md that is written where a folder has none: what the checkpoint knows of
        itself. ``kwargs`` are those of `hub.model_card`, such as ``license``.
        """
        return model_card(self.checkpoint, **{"name": Path(self.name).name} | kwargs)

    @overload
    def caption(
        self,
        photographs: Photograph,
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
        **steer: Unpack[Steer],
    ) -> Caption: ...
    @overload
    def caption(
        self,
        photographs: list[Photograph] | tuple[Photograph, ...],
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
        **steer: Unpack[Steer],
    ) -> list[Caption]: ...
    def caption(
        self,
        photographs: Photograph | list[Photograph] | tuple[Photograph, ...],
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
        **steer: Unpack[Steer],
    ) -> Caption | list[Caption]:
        """The best caption of a photograph; of a list, a list, computed in batches.

        Args:
            beam_size: 1 is greedy search; None is the checkpoint's own setting.
            attention: look at the likeliest cell (``argmax``), at one drawn from the attention
                (``sample``) or at all by their weights (``expectation``); None as above.
            steer: ``look_at`` a part of the photograph, ``look_from`` a word on, and ``begin`` with
                given words; see `Steer`.
        Raises:
            ImageError: a photograph cannot be opened, or the model sees nothing of it within the
                box; one line.
            ConfigError: ``beam_size``, ``max_words`` or ``attention`` is out of its range; one
                line.
            ValueError: the model cannot be steered so; one line.
        """
        if isinstance(photographs, (list, tuple)):
            ranked = self.candidates(photographs, beam_size, max_words, attention, **steer)
            return [captions[0] for captions in ranked]
        return self.candidates([photographs], beam_size, max_words, attention, **steer)[0][0]

    def candidates(
        self,
        photographs: Sequence[Photograph],
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
        **steer: Unpack[Steer],
    ) -> list[list[Caption]]:
        """For every photograph the captions that the beam found, best first; see `caption`."""
        search = self._search(beam_size, max_words, attention)
        steering, look_at = self._steering(search, **steer), steer.get("look_at")
        return [
            captions
            for batch in _batches(photographs, _BATCH)
            for captions in self._ranked(
                [self._seen(photo, look_at) for photo in batch], search, steering
            )
        ]

    def stream(
        self,
        photographs: Iterable[AnyPhotograph],
        *,
        batch_size: int = _BATCH,
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
        **steer: Unpack[Steer],
    ) -> Iterator[tuple[AnyPhotograph, Caption | ImageError]]:
        """Every photograph with its caption, or with why it has none, in the order given.

        Only ``batch_size`` photographs are open at a time, so their number has no limit; one that
        cannot be opened takes nothing from the others.

        Raises:
            ConfigError: ``beam_size``, ``max_words`` or ``attention`` is out of its range; one
                line.
            ValueError: ``batch_size`` is below 1, or the model cannot be steered so; one line.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: expected 1 or more")
        search = self._search(beam_size, max_words, attention)
        steering, look_at = self._steering(search, **steer), steer.get("look_at")
        for batch in _batches(photographs, batch_size):
            opened = [self._seen_or_error(photo, look_at) for photo in batch]
            good = [seen for seen in opened if not isinstance(seen, ImageError)]
            ranked = iter(self._ranked(good, search, steering) if good else [])
            for photo, seen in zip(batch, opened, strict=True):
                yield photo, seen if isinstance(seen, ImageError) else next(ranked)[0]

    def sample(
        self,
        photograph: Photograph,
        temperature: float = 1.0,
        top_p: float = 1.0,
        generator: torch.Generator | None = None,
        attention: Attention | None = None,
        **steer: Unpack[Steer],
    ) -> Caption:
        """A caption drawn from the model's own distribution.

        Args:
            temperature: below 1 the probable words become more so, above 1 less.
            top_p: only the most probable words that together hold this much are drawn.
            attention, steer: as in :meth:`caption`.
        Raises:
            ImageError: as in :meth:`caption`.
            ConfigError: there is no such ``attention``; one line.
            ValueError: ``temperature`` or ``top_p`` is out of its range, or the model cannot be
                steered so; one line.
        """
        if not 0 < temperature < math.inf:
            raise ValueError(
                f"temperature is {temperature}: expected a number above 0; the most probable words "
                "are those of caption(photograph, beam_size=1)"
            )
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is {top_p}: expected a number above 0 and at most 1")
        search = self._search(attention=attention)
        steering = self._steering(search, **steer)
        scene, steering = self._look([self._seen(photograph, steer.get("look_at"))], steering)
        return pick_words(
            self.checkpoint.captioner,
            self.checkpoint.vocabulary,
            scene,
            max_words=search.max_words,
            temperature=temperature,
            top_p=top_p,
            generator=generator,
            attention=search.attention,
            steering=steering,
        )[0]

    def attend(
        self,
        photograph: Photograph,
        sentence: str,
        look_at: LookAt | None = None,
        look_from: int = 1,
    ) -> Caption:
        """Where the model looks when it is made to say ``sentence`` (teacher forcing).

        Words outside the vocabulary are fed as the unknown word and returned as given.

        Args:
            look_at, look_from: as in :meth:`caption`.
        Raises:
            ImageError: as in :meth:`caption`.
            ValueError: the sentence is no text or has no words, or the model cannot be steered so;
                one line.
        """
        steering = self._steering(self._search(), look_at=look_at, look_from=look_from)
        scene, steering = self._look([self._seen(photograph, look_at)], steering)
        captioner, vocabulary = self.checkpoint.captioner, self.checkpoint.vocabulary
        return attend(captioner, vocabulary, scene, sentence, steering)[0]

    @torch.inference_mode()
    def word_attention(
        self,
        photograph: Photograph,
        sentence: str | list[str] | tuple[str, ...],
        attention: Attention | None = None,
    ) -> np.ndarray:
        """At which words a Transformer looks, in every layer and head, as it writes ``sentence``.

        Args:
            sentence: a text, or words such as a caption's, which are then taken as they are.
            attention: how it looks at the photograph meanwhile, as in :meth:`caption`.
        Returns:
            (T, L, H, T): the row of a word sums to 1 over START (the first column) and the words
            before it; its own and later ones are not read yet, so their columns are 0.
        Raises:
            ImageError: the photograph cannot be opened; one line.
            ConfigError: there is no such ``attention``; one line.
            ValueError: the model is no Transformer, or there are no words or too many; one line.
        """
        decoder = self.checkpoint.captioner.decoder
        if not isinstance(decoder, TransformerDecoder):
            kind = self.checkpoint.decoder.kind
            raise ValueError(
                f"{self.name}: its decoder is of the kind {kind}, which has no attention among "
                "words; use a model whose decoder.kind is transformer"
            )
        given = isinstance(sentence, list | tuple) and sentence
        words = sentence if given else words_of(sentence)
        if len(words) > MOST_WORDS:
            raise ValueError(f"the sentence has {len(words)} words: expected at most {MOST_WORDS}")
        choose = decoder.choice(self._search(attention=attention).attention)
        scene, _ = self._look([self._seen(photograph)], Steering())
        ids = self.checkpoint.vocabulary.encode_words(words)
        words_11T = torch.tensor([[ids]], device=scene.grid_BPC.device)
        weights_LHTT = decoder.word_weights(scene, words_11T, choose)[0, 0]
        weights_TLHT: np.ndarray = weights_LHTT.movedim(2, 0).float().cpu().numpy()
        return weights_TLHT

    def channel_gates(self, photograph: Photograph) -> dict[str, np.ndarray]:
        """How channel attention weighs the channels for a photograph, without captioning it.

        Returns:
            place -> the factor of each channel there, (C,), between 0 and 2; 1 changes nothing. A
            place is a block or stage by its name in the network, or ``grid``: what the words'
            attention looks at (of a fused grid, its late map). In the order of the forward pass.
        Raises:
            ImageError: the photograph cannot be opened; one line.
            ValueError: the model has no channel attention; one line.
        """
        scene, _ = self._look([self._seen(photograph)], Steering())
        if not scene.gates:
            raise ValueError(
                f"{self.name}: has no channel attention; use a model trained with "
                "encoder.channel_attention"
            )
        return {place: gates_BC[0].float().cpu().numpy() for place, gates_BC in scene.gates.items()}

    def caption_regions(
        self,
        features_PC: np.ndarray,
        boxes_P4: np.ndarray,
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
        begin: str | Sequence[str] = "",
    ) -> Caption:
        """The best caption of a photograph whose regions are given; of a model without a CNN.

        Args:
            features_PC: of P regions, as many as there are; C is the model's ``encoder.channels``.
            boxes_P4: where they lie: x0, y0, x1, y1 in fractions of the photograph, from its upper
                left corner.
            beam_size, max_words, attention, begin: as in :meth:`caption`. What the model may look
                at is what it is given.
        Returns:
            a caption whose ``weights`` are (T, P), and whose ``regions`` hold the boxes.
        Raises:
            RegionsError: the model looks at photographs, or shapes or values are not as above; one
                line.
            ConfigError, ValueError: as :meth:`caption`.
        """
        regions = check_regions(features_PC, boxes_P4, self._region_channels())
        search = self._search(beam_size, max_words, attention)
        return self._of_regions([regions], search, self._steering(search, begin=begin))[0]

    def stream_regions(
        self,
        photographs: Iterable[str],
        file: Path,
        *,
        batch_size: int = _BATCH,
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
        begin: str | Sequence[str] = "",
    ) -> Iterator[tuple[str, Caption | RegionsError]]:
        """As :meth:`stream`, of a model without a CNN.

        Args:
            photographs: paths; the files themselves are not opened.
            file: the regions of all of them, as showattend/regions.py describes it.
        Raises:
            RegionsError: the model looks at photographs, or the file cannot be read; one line.
            ConfigError, ValueError: as :meth:`stream`.
        """
        known = RegionFile(file, self._region_channels())
        search = self._search(beam_size, max_words, attention)
        steering = self._steering(search, begin=begin)
        for batch in _batches(photographs, batch_size):
            read = [_read_or_error(known, Path(photo).stem) for photo in batch]
            good = [regions for regions in read if not isinstance(regions, RegionsError)]
            captions = iter(self._of_regions(good, search, steering) if good else [])
            for photo, regions in zip(batch, read, strict=True):
                yield photo, regions if isinstance(regions, RegionsError) else next(captions)

    def _search(
        self,
        beam_size: int | None = None,
        max_words: int | None = None,
        attention: Attention | None = None,
    ) -> SearchSettings:
        """The checkpoint's own settings, but for what is asked for."""
        changes = {"beam_size": beam_size, "max_words": max_words, "attention": attention}
        asked = {key: value for key, value in changes.items() if value is not None}
        return checked(SearchSettings, self.checkpoint.search.model_dump() | asked, "search")

    def _steering(
        self,
        search: SearchSettings,
        look_at: LookAt | None = None,
        look_from: int = 1,
        begin: str | Sequence[str] = "",
    ) -> Steering:
        """What is asked for, checked; the cells are each photograph's own."""
        shape = self.checkpoint.captioner.shape
        check_steer(shape.height, shape.width, look_at, look_from)
        return Steering(look_from=look_from, begin=self._begin(begin, search.max_words))

    def _begin(self, begin: str | Sequence[str], max_words: int) -> tuple[int, ...]:
        if not begin:
            return ()
        words = tuple(begin) if isinstance(begin, list | tuple) else words_of(begin)
        if len(words) >= max_words:
            raise ValueError(
                f"begin has {len(words)} words: expected fewer than max_words, {max_words}"
            )
        vocabulary = self.checkpoint.vocabulary
        ids = vocabulary.encode_words(words)
        if UNKNOWN in ids:
            unknown = words[ids.index(UNKNOWN)]
            raise ValueError(
                f"begin has {unknown!r}, which is none of the {len(vocabulary)} words that "
                f"{self.name} knows; choose another{_such_as(vocabulary.near(unknown))}"
            )
        return tuple(ids)

    def _region_channels(self) -> int:
        captioner = self.checkpoint.captioner
        if captioner.encoder is not None:
            raise RegionsError(f"{self.name}: looks at photographs; give it no regions")
        return captioner.shape.channels

    def _of_regions(
        self,
        batch: Sequence[tuple[np.ndarray, np.ndarray]],
        search: SearchSettings,
        steering: Steering,
    ) -> list[Caption]:
        """The best caption of each image of a batch."""
        captioner, vocabulary = self.checkpoint.captioner, self.checkpoint.vocabulary
        with torch.inference_mode():
            scene = captioner.look(as_items(batch).to(captioner.device))
        ranked = beam_search(captioner, vocabulary, scene, search, steering)
        return [captions[0] for captions in ranked]

    def _seen(self, photograph: Photograph, look_at: LookAt | None = None) -> _Seen:
        captioner, pixels = self.checkpoint.captioner, self.checkpoint.pixels
        if captioner.encoder is None:
            raise RegionsError(
                f"{self.name}: has no CNN to look at a photograph; give it the regions, each with "
                f"{captioner.shape.channels} features and a box, by --regions FILE or "
                "caption_regions(features, boxes)"
            )
        photo = open_photograph(photograph)
        if look_at is None:
            return model_pixels(photo, pixels), None
        width, height = photo.size
        x0, y0, x1, y1 = seen_box(width, height, pixels.resize)
        seen = (x0 / width, y0 / height, x1 / width, y1 / height)
        cells_hw = cells_of(look_at, seen, captioner.shape.height, captioner.shape.width)
        if not cells_hw.any():
            told = ", ".join(f"{corner:.3g}" for corner in seen)
            raise ImageError(
                f"{_name(photograph)}: of the box {look_at} the model sees nothing; of this "
                f"photograph it sees {told}"
            )
        return model_pixels(photo, pixels), cells_hw

    def _seen_or_error(self, photograph: Photograph, look_at: LookAt | None) -> _Seen | ImageError:
        try:
            return self._seen(photograph, look_at)
        except ImageError as error:
            return error

    def _ranked(
        self, batch: Sequence[_Seen], search: SearchSettings, steering: Steering
    ) -> list[list[Caption]]:
        """For each of one batch's squares the captions that the beam found, best first."""
        captioner, vocabulary = self.checkpoint.captioner, self.checkpoint.vocabulary
        scene, steering = self._look(batch, steering)
        return beam_search(captioner, vocabulary, scene, search, steering)

    def _look(self, batch: Sequence[_Seen], steering: Steering) -> tuple[Scene, Steering]:
        """What is seen, and the steering with each photograph's own cells."""
        captioner = self.checkpoint.captioner
        squares, cells = zip(*batch, strict=True)
        pixels_B3SS = torch.from_numpy(np.stack(squares)).to(captioner.device)
        scene = look_with_gates(captioner, pixels_B3SS)
        if cells[0] is None:
            return scene, steering
        cells_Bhw = torch.from_numpy(np.stack(cells)).to(captioner.device)
        return scene, replace(steering, cells_BP=cells_Bhw.flatten(1))


def _such_as(words: Sequence[str]) -> str:
    return f", such as {' or '.join(map(repr, words))}" if words else ""


def _name(photograph: Photograph) -> str:
    if isinstance(photograph, str | os.PathLike):
        return repr(os.fsdecode(photograph))  # it may hold what breaks a line
    return f"<{type(photograph).__name__}>"


def _read_or_error(file: RegionFile, name: str) -> tuple[np.ndarray, np.ndarray] | RegionsError:
    try:
        return file.read(name)
    except RegionsError as error:
        return error


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
