"""What was read off a photograph: captions with their attention, and the files made of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from showattend.app.uploads import open_upload
from showattend.channels import told_channels
from showattend.data_urls import jpeg_url
from showattend.files import told_heads, told_weights
from showattend.images import Resize
from showattend.overlay import DISPLAY_SIDE, save_animation, save_figure
from showattend.predict import CaptionModel
from showattend.search import Caption

JPEG_QUALITY = 88  # of what the browser gets


@dataclass(frozen=True)
class Reading:
    """Captions of one photograph by one model.

    Attributes:
        title: what parts it from the readings beside it, such as the model's name.
        name: the photograph's file name, without its suffix.
        photo: upright RGB, at most `DISPLAY_SIDE` a side.
        resize: how the model's square was cut from it.
        captions: best first.
        length_penalty: of the ranking, see `rank`.
        model: the model's name.
        heard: for each caption (T, L, H, T), at which words a Transformer looked, see
            `CaptionModel.word_attention`; empty of other models.
    """

    title: str
    name: str
    photo: Image.Image
    resize: Resize
    captions: tuple[Caption, ...]
    length_penalty: float
    model: str
    heard: tuple[np.ndarray, ...] = ()

    @cached_property
    def photo_url(self) -> str:
        """The photograph as the browser gets it; made once, for what shows it more than once."""
        return jpeg_url(self.photo, JPEG_QUALITY)

    def rank(self, caption: Caption) -> float:
        """log p / (T + 1)^length_penalty, the number that the beam orders captions by."""
        return caption.log_prob / float((len(caption.words) + 1) ** self.length_penalty)


def read_photograph(model: CaptionModel, path: str, beam_size: int | None = None) -> Reading:
    """Caption the photograph at `path`.

    Args:
        beam_size: None is the model's own.
    Raises:
        ImageError, ConfigError, RegionsError: as `CaptionModel.candidates`; one line.
    """
    photo = open_upload(path)
    (captions,) = model.candidates([photo], beam_size=beam_size)
    return reading_of(model, Path(path).stem, photo, captions)


def reading_of(
    model: CaptionModel,
    name: str,
    photo: Image.Image,
    captions: Sequence[Caption],
    title: str | None = None,
    *,
    bound: bool = False,
) -> Reading:
    """Captions that the model has written of an opened photograph.

    Args:
        title: None is the model's name, or the last part of its folder's.
        bound: the look was bound to some cells; at which words a Transformer then looked is not
            told.
    """
    heard: tuple[np.ndarray, ...] = ()
    if not bound and model.checkpoint.decoder.kind == "transformer":
        heard = tuple(model.word_attention(photo, caption.words) for caption in captions)
    small = photo.copy()
    small.thumbnail((DISPLAY_SIDE, DISPLAY_SIDE))  # what is drawn on; a visit need not hold more
    checkpoint = model.checkpoint
    return Reading(
        title or Path(model.name).name,
        name,
        small,
        checkpoint.pixels.resize,
        tuple(captions),
        checkpoint.search.length_penalty,
        model.name,
        heard,
    )


def as_json(reading: Reading, chosen: int = 0) -> dict[str, Any]:
    """Everything that was read, for programs; `maps` are T maps of the grid, row by row.

    Beside the maps of a hard look, `alpha` holds those of the distribution that it comes from; with
    several heads `heads` holds each one's, and `channels` the gates of channel attention.
    """
    return {
        "photograph": reading.name,
        "model": reading.model,
        "length_penalty": reading.length_penalty,
        "chosen": chosen,
        **_told_channels(reading),
        "captions": [
            {
                "text": caption.text,
                "words": caption.words,
                "log_prob": caption.log_prob,
                "rank": reading.rank(caption),
                **_told_maps(caption),
            }
            for caption in reading.captions
        ],
    }


def _told_channels(reading: Reading) -> dict[str, Any]:
    """All gates of channel attention, where the model has any; they are the photograph's."""
    gates = reading.captions[0].gates
    return {"channels": told_channels(gates, every=True)} if gates else {}


def _told_maps(caption: Caption) -> dict[str, Any]:
    told = told_weights(caption) | told_heads(caption)
    return {"maps": told.pop("attention"), **told}


def draw_figure(path: Path, reading: Reading, caption: Caption) -> None:
    """All words of a caption at once, as .png."""
    save_figure(path, *_seen(reading, caption), caption.text, caption.alpha_maps())


def draw_animation(path: Path, reading: Reading, caption: Caption, strength: float) -> None:
    """A caption's words one after the other, as .gif."""
    alpha_Thw = caption.alpha_maps()
    save_animation(path, *_seen(reading, caption), strength=strength, alpha_Thw=alpha_Thw)


def _seen(
    reading: Reading, caption: Caption
) -> tuple[Image.Image, tuple[str, ...], np.ndarray, Resize]:
    return reading.photo, caption.words, caption.maps(), reading.resize
