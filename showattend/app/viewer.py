"""What the browser is told of readings; viewer.js draws it.

Every weight goes to the browser once, so that no word, head, caption or strength asks the server.
Arrays travel as base64 of little-endian float32.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from showattend.app.reading import Reading
from showattend.channels import told_channels
from showattend.images import seen_box
from showattend.overlay import DIMMING, STRENGTH, palette, scale_top, windows
from showattend.search import Caption

_FOLDER = Path(__file__).parent


def add_viewer(name: str, hint: str) -> gr.HTML:
    """Readings side by side, stepping together; its value is what `told` returns, or None.

    Args:
        name: by which the page's script finds it.
        hint: HTML, shown while there is nothing else.
    """
    return gr.HTML(
        None,
        html_template='<div class="sa-viewer"></div>',
        js_on_load="showattend.viewer(element, props, watch)",
        apply_default_css=False,
        name=name,
        hint=hint,
    )


def script() -> str:
    """The page's own script, for its head; it begins with the scale that Python's pictures have."""
    scale = {
        "palette": base64.b64encode(palette()).decode(),
        "strength": STRENGTH,
        "dimming": DIMMING,
    }
    code = "\n".join(_read(name) for name in ("viewer.js", "picker.js"))
    return f"<script>\nconst SCALE = {json.dumps(scale)};\n{code}</script>"


def style() -> str:
    """The page's own style."""
    return "\n".join(_read(name) for name in ("page.css", "runs.css"))


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def told(readings: Sequence[Reading]) -> dict[str, Any]:
    """The value of a viewer that shows these readings."""
    return {"views": [_view(reading) for reading in readings]}


def _view(reading: Reading) -> dict[str, Any]:
    captions = list(reading.captions)
    heard = reading.heard or (None,) * len(captions)
    return {
        "title": reading.title,
        "penalty": reading.length_penalty,
        "channels": told_channels(captions[0].gates),
        **photograph(reading),
        "captions": [
            {
                "text": caption.text,
                "words": caption.words,
                "logProb": caption.log_prob,
                "rank": reading.rank(caption),
                "maps": list(_maps(caption)),
                "heard": [] if weights is None else list(_word_maps(weights)),
            }
            for caption, weights in zip(captions, heard, strict=True)
        ],
    }


def photograph(reading: Reading) -> dict[str, Any]:
    """The picture, and where the grid lies on it: left, upper, right, lower in its pixels."""
    width, height = reading.photo.size
    _, rows, columns = reading.captions[0].maps().shape
    return {
        "photo": reading.photo_url,
        "width": width,
        "height": height,
        "seen": seen_box(width, height, reading.resize),
        "rows": rows,
        "columns": columns,
    }


def _maps(caption: Caption) -> Iterator[dict[str, Any]]:
    """What can be laid over the photograph: the attention and, of several, each layer's and head's.

    Of a hard look this is the distribution that it was taken from, with the cells it took framed.
    """
    maps_Thw, alpha_Thw = caption.maps(), caption.alpha_maps()
    looked = windows(maps_Thw, alpha_Thw)
    shown_Thw = maps_Thw if looked is None else alpha_Thw
    several = caption.heads is not None
    yield _map("all heads together" if several else "attention", shown_Thw, looked)
    if several:
        heads_TLHhw = caption.head_maps()
        _, layers, heads, *_ = heads_TLHhw.shape
        for layer in range(layers):
            for head in range(heads):
                yield _map(_head(layer, head, layers), heads_TLHhw[:, layer, head], None)


def _map(name: str, maps_Thw: np.ndarray, looked: list[Any] | None) -> dict[str, Any]:
    return {
        "name": name,
        "weights": _floats(maps_Thw),
        "top": scale_top(maps_Thw),
        "windows": looked,
    }


def _word_maps(weights_TLHT: np.ndarray) -> Iterator[dict[str, Any]]:
    """At which words before it each word looked: the mean, and each layer and head."""
    _, layers, heads, _ = weights_TLHT.shape
    yield {"name": "all heads together", "weights": _floats(weights_TLHT.mean(axis=(1, 2)))}
    for layer in range(layers):
        for head in range(heads):
            name = _head(layer, head, layers)
            yield {"name": name, "weights": _floats(weights_TLHT[:, layer, head])}


def _head(layer: int, head: int, layers: int) -> str:
    return f"layer {layer + 1}, head {head + 1}" if layers > 1 else f"head {head + 1}"


def _floats(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
