"""The first tab: a photograph's captions, and where the model looked for every word."""

from functools import partial
from typing import Any

import gradio as gr

from showattend.app.downloads import add_downloads
from showattend.app.reading import Reading, read_photograph
from showattend.app.shared import Shared, beams, listen
from showattend.app.steer_tab import pickable
from showattend.app.uploads import chosen_path, told_in_one_line
from showattend.app.viewer import add_viewer, told

#: Three sentences and a picture, until there is a photograph.
WELCOME = """
<div class="sa-welcome">
  <div class="sa-sketches">
    <figure><div class="sa-sketch sa-soft"><i></i><i></i><i></i><i></i><i></i><i></i><i></i><i></i>
      <i></i></div><figcaption>soft</figcaption></figure>
    <figure><div class="sa-sketch sa-hard"><i></i><i></i><i></i><i></i><i></i><i></i><i></i><i></i>
      <i></i></div><figcaption>hard</figcaption></figure>
  </div>
  <p>The model sees the photograph as a grid of cells, and for every word of its caption it
  spreads a weight of 1 over them. <strong>Soft attention</strong> reads the average of all cells by
  these weights; <strong>hard attention</strong> reads the one framed place, and nothing else. Step
  through the words of a caption, and the brighter a place, the more of the weight lies there.</p>
  <p class="sa-faint">Choose a photograph, or click an example.</p>
</div>"""


def add_caption_tab(shared: Shared) -> None:
    """The tab's content; it fills `shared.reading`."""
    viewer = add_viewer("caption", WELCOME)
    with gr.Column(visible=False) as files:
        add_downloads("caption", shared.reading)
    listen(
        [shared.photo.change, shared.model.change, shared.beam_size.change],
        partial(caption, shared),
        [shared.photo, shared.model, shared.beam_size],
        [shared.reading, viewer, shared.picker, files],
        trigger_mode="always_last",
    )


def caption(shared: Shared, photo: Any, name: str, beam_size: float) -> list[Any]:
    """For the outputs reading, viewer, picker and the downloads' column.

    Args:
        photo: Gradio's record of an uploaded file, or None.
    """
    reading = _read(shared, photo, name, beam_size)
    if reading is None:
        return [None, None, None, gr.Column(visible=False)]
    return [reading, told([reading]), pickable(reading), gr.Column(visible=True)]


def _read(shared: Shared, photo: Any, name: str, beam_size: float) -> Reading | None:
    if photo is None:
        return None
    path = chosen_path(photo, shared.cache)
    if path is None:
        return None
    with told_in_one_line(path):
        return read_photograph(shared.models.get(name), path, beams(beam_size))
    return None
