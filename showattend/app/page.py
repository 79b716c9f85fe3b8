"""The web page: a photograph in, its caption, and where the model looked for every word.

All pictures of a caption are drawn when it is made, so that stepping through the words needs no
server. The page and the server ask no other host: no telemetry, no version check, no web fonts, and
Gradio's own way of fetching URLs is shut.
"""

import base64
import html
import io
import json
import os
import signal
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import gradio as gr
import numpy as np
from PIL import Image

from showattend.app.runs_tab import CSS as RUNS_CSS
from showattend.app.runs_tab import add_runs_tab
from showattend.checkpoint import CheckpointError
from showattend.config import ConfigError, SearchSettings
from showattend.files import told_weights
from showattend.images import ImageError, Resize, open_photograph
from showattend.matrix import words_by_cells
from showattend.overlay import (
    DISPLAY_SIDE,
    STRENGTH,
    save_animation,
    save_figure,
    scale_top,
    windows,
    word_overlays,
)
from showattend.predict import CaptionModel, load
from showattend.regions import RegionsError
from showattend.search import Caption

EXAMPLES = Path(__file__).parents[1] / "examples"
UPLOAD_LIMIT = "20mb"
QUEUE_LIMIT = 32  # visitors waiting; the next one is told that the queue is full
KEPT_SECONDS = 3600  # how long photographs and files outlive their last use
SWEEP_SECONDS = 600


# --- what was read off a photograph ---------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """The captions that the beam found for one photograph, and which of them is shown.

    Attributes:
        name: the photograph's file name, without its suffix.
        photo: upright RGB, at most `DISPLAY_SIDE` a side.
        resize: how the model's square was cut from it.
        captions: best first.
        length_penalty: of the ranking, see `rank`.
        model: the model's name.
        chosen: index of the caption shown.
    """

    name: str
    photo: Image.Image
    resize: Resize
    captions: tuple[Caption, ...]
    length_penalty: float
    model: str
    chosen: int = 0

    @property
    def caption(self) -> Caption:
        return self.captions[self.chosen]

    @property
    def model_name(self) -> str:
        """The model's name, or the last part of its folder's."""
        return Path(self.model).name

    def rank(self, caption: Caption) -> float:
        """log p / (T + 1)^length_penalty, the number that the beam orders captions by."""
        return caption.log_prob / float((len(caption.words) + 1) ** self.length_penalty)


def read_photograph(model: CaptionModel, path: str, beam_size: int) -> Reading:
    """Caption the photograph at `path`.

    Raises:
        ImageError: it cannot be opened; one line.
    """
    photo = open_photograph(path)
    (captions,) = model.candidates([photo], beam_size=beam_size)
    photo.thumbnail((DISPLAY_SIDE, DISPLAY_SIDE))  # what is drawn on; a visit need not hold more
    checkpoint = model.checkpoint
    return Reading(
        Path(path).stem,
        photo,
        checkpoint.pixels.resize,
        tuple(captions),
        checkpoint.search.length_penalty,
        model.name,
    )


def as_json(reading: Reading) -> dict[str, Any]:
    """Everything that was read, for programs; `maps` are T maps of the grid, row by row.

    Beside the maps of a hard look, `alpha` holds those of the distribution that it comes from.
    """
    return {
        "photograph": reading.name,
        "model": reading.model,
        "length_penalty": reading.length_penalty,
        "chosen": reading.chosen,
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


def _told_maps(caption: Caption) -> dict[str, Any]:
    told = told_weights(caption)
    return {"maps": told.pop("attention"), **told}


def write_files(
    reading: Reading, strength: float, folder: Path, *, named: bool = False
) -> tuple[Path, Path, Path]:
    """The shown caption as figure (PNG), animation (GIF) and JSON in `folder`.

    Args:
        named: the files' names tell the model's.
    """
    stem = f"{reading.name}_{reading.model_name}" if named else reading.name
    figure, animation, data = (
        folder / f"{stem}_{name}" for name in ("figure.png", "words.gif", "caption.json")
    )
    caption, alpha_Thw = reading.caption, reading.caption.alpha_maps()
    seen = (reading.photo, caption.words, caption.maps(), reading.resize)
    save_figure(figure, *seen, caption.text, alpha_Thw)
    save_animation(animation, *seen, strength=strength, alpha_Thw=alpha_Thw)
    data.write_text(json.dumps(as_json(reading), indent=1) + "\n", encoding="utf-8")
    return figure, animation, data


#: What the page shows: nothing yet, one reading, or two of the same photograph.
Readings = tuple[Reading, ...]


class Models:
    """The models that the page offers; each is loaded once, when it is first asked for."""

    def __init__(self, names: Sequence[str]) -> None:
        if not names:
            raise CheckpointError("no model to serve: name a checkpoint folder")
        self.names = list(dict.fromkeys(names))
        self._loaded: dict[str, CaptionModel] = {}
        self._loading = threading.Lock()

    @property
    def pair(self) -> tuple[str, ...]:
        """The two that are shown beside each other: soft and hard, else the first ones, if any."""
        known = ("soft", "hard")
        pair = known if set(known) <= set(self.names) else tuple(self.names[:2])
        return pair if len(pair) == 2 else ()

    @property
    def choices(self) -> list[str]:
        """What the page offers: every model, and the pair."""
        both = " and ".join(Path(name).name for name in self.pair)
        return [*self.names, both] if both else self.names

    def chosen(self, choice: str) -> list[CaptionModel]:
        """The model or the models of one of the choices. Raises as `get` does."""
        both = choice not in self.names and choice in self.choices
        return [self.get(name) for name in (self.pair if both else [choice])]

    def get(self, name: str) -> CaptionModel:
        """The model of that name.

        Raises:
            CheckpointError: the page does not offer it, or its folder is missing or damaged.
        """
        if name not in self.names:  # a request may name any folder of this machine
            raise CheckpointError(f"{name}: not among the models of this page")
        with self._loading:
            if name not in self._loaded:
                self._loaded[name] = load(name)
            return self._loaded[name]


# --- HTML -----------------------------------------------------------------------------------------

HINT = '<div class="sa-hint">Choose a photograph, or click an example.</div>'


def stage_html(readings: Sequence[Reading], strength: float) -> str:
    """The photograph with all its overlays stacked upon it, and the words that lay one open.

    Step 0 is the bare photograph, step t the caption's word t; the page begins at word 1. Two
    readings lie side by side and step together, word by word.
    """
    key = html.escape("/".join(f"{r.model}/{r.name}/{r.caption.text}" for r in readings))
    views = "".join(_view_html(reading, strength, len(readings) > 1) for reading in readings)
    return f"""
<div class="sa-stage" data-key="{key}">
  <div class="sa-views">{views}</div>
  <div class="sa-steps">
    <button type="button" data-move="-1" title="Left arrow key">‹ Previous</button>
    <button type="button" data-move="1" title="Right arrow key">Next ›</button>
  </div>
</div>"""


def _view_html(reading: Reading, strength: float, named: bool) -> str:
    """One reading of the stage."""
    caption, maps_Thw, alpha_Thw = (
        reading.caption,
        reading.caption.maps(),
        reading.caption.alpha_maps(),
    )
    overlays = word_overlays(reading.photo, maps_Thw, reading.resize, strength, alpha_Thw)
    hard = windows(maps_Thw, alpha_Thw) is not None
    words = ["photograph", *caption.words]
    looks = zip(caption.words, maps_Thw, alpha_Thw, strict=True)
    notes = ["The photograph itself.", *(_note(*look, hard=hard) for look in looks)]
    width, height = reading.photo.size  # told to the browser, so that nothing jumps
    pictures = "".join(
        f'<img src="{_picture_url(picture, "jpeg")}" width="{width}" height="{height}" alt=""'
        f"{_current(step == 1)}>"
        for step, picture in enumerate([reading.photo, *overlays])
    )
    chips = "".join(
        f'<button type="button" class="sa-chip" data-step="{step}" title="{html.escape(note)}"'
        f"{_current(step == 1)}>{html.escape(word)}</button>"
        for step, (word, note) in enumerate(zip(words, notes, strict=True))
    )
    _, rows, columns = maps_Thw.shape
    measured = f"weight of one of {rows} × {columns} cells, one scale for all words"
    if hard:
        measured += "; framed: what was looked at"
    return f"""
<div class="sa-view">
  {_heading(reading.model_name) if named else ""}
  <div class="sa-pictures">{pictures}</div>
  <div class="sa-scale">
    <span>0</span><span class="sa-ramp"></span><span
    >{scale_top(alpha_Thw if hard else maps_Thw):.2g}</span>
    <span class="sa-faint">{measured}</span>
  </div>
  <div class="sa-chips" role="group" aria-label="Words of the caption">{chips}</div>
  <div class="sa-note" aria-live="polite">{html.escape(notes[1])}</div>
</div>"""


def _heading(text: str) -> str:
    return f'<div class="sa-heading">{html.escape(text)}</div>'


def captions_html(readings: Sequence[Reading]) -> str:
    """The captions of the beam as a table; each is a button."""
    return "".join(
        _table_html(
            number, reading, f"{reading.model_name}: captions" if readings[1:] else "Captions"
        )
        for number, reading in enumerate(readings)
    )


def _table_html(number: int, reading: Reading, what: str) -> str:
    rows = "".join(
        f"<tr{_current(index == reading.chosen)}><td>{index + 1}</td>"
        f'<td><button type="button" data-reading="{number}" data-index="{index}">'
        f"{html.escape(caption.text)}</button></td>"
        f"<td>{caption.log_prob:.2f}</td><td>{reading.rank(caption):.3f}</td></tr>"
        for index, caption in enumerate(reading.captions)
    )
    penalty = f"{reading.length_penalty:g}"
    return f"""
<div class="sa-heading">{html.escape(what)} that the beam found
  <span class="sa-faint">Click one to see its words.</span></div>
<table class="sa-captions">
  <thead><tr><th>#</th><th>Caption</th><th>log p</th><th>normalised</th></tr></thead>
  <tbody>{rows}</tbody>
</table>
<p class="sa-faint">log p is the natural logarithm of the caption's probability; normalised is
log p / (words + 1)<sup>{penalty}</sup>, so that a caption does not lose by its length alone. The
highest comes first.</p>"""


def figure_html(reading: Reading, figure: Path, *, named: bool = False) -> str:
    """The figure of all words; on a phone it is wider than the page and scrolls."""
    heading = f"{reading.model_name}: all words at once" if named else "All words at once"
    alt = html.escape(f"The photograph under each word of “{reading.caption.text}”")
    url = _data_url(figure.read_bytes(), "png")
    return f'''
{_heading(heading)}
<div class="sa-figure"><img src="{url}" alt="{alt}"></div>'''


def matrix_html(reading: Reading, *, named: bool = False) -> str:
    """The matrix of all words by all cells, folded up until it is asked for."""
    caption = reading.caption
    matrix = words_by_cells(caption.words, caption.maps(), caption.alpha_maps())
    heading = f"{reading.model_name}: words by cells" if named else "Words by cells"
    alt = html.escape(f"The weight of every cell for each word of “{caption.text}”")
    return f'''
<details><summary class="sa-heading">{html.escape(heading)}</summary>
<div class="sa-matrix"><img src="{_picture_url(matrix, "png")}" alt="{alt}"></div>
</details>'''


def _note(word: str, map_hw: np.ndarray, alpha_hw: np.ndarray, *, hard: bool) -> str:
    part, even = "framed part" if hard else "strongest cell", 1 / map_hw.size
    held = alpha_hw[map_hw > 0].sum() if hard else map_hw.max()
    return f"“{word}”: the {part} holds {held:.1%}; an even look gives each cell {even:.1%}."


def _current(yes: bool) -> str:
    return f' aria-current="{str(yes).lower()}"'


def _picture_url(picture: Image.Image, kind: Literal["jpeg", "png"]) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, kind, quality=88)  # of a JPEG; a PNG loses nothing
    return _data_url(buffer.getvalue(), kind)


def _data_url(image: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(image).decode()}"


# Gradio calls these once, when the component is shown; its content changes later, so the listeners
# are on the component. `watch` runs after each change: a new caption starts at its first word, a
# new strength stays at the word.
_STAGE_JS = """
let step = 1, key = null;
const show = (wanted) => {
  const views = [...element.querySelectorAll('.sa-view')];
  if (!views.length) return;
  const chipsOf = (view) => view.querySelectorAll('.sa-chip');
  const steps = Math.max(...views.map((view) => chipsOf(view).length));
  step = (wanted + steps) % steps;
  for (const view of views) {
    for (const list of [chipsOf(view), view.querySelectorAll('.sa-pictures img')]) {
      list.forEach((item, i) => item.setAttribute('aria-current', i === step));
    }
    view.querySelector('.sa-note').textContent =
      chipsOf(view)[step]?.title ?? 'This caption has ended before.';
  }
};
element.addEventListener('click', (event) => {
  const button = event.target.closest('button');
  if (button?.dataset.step) show(Number(button.dataset.step));
  if (button?.dataset.move) show(step + Number(button.dataset.move));
});
document.addEventListener('keydown', (event) => {
  const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  const busy = event.target.closest?.('input, textarea, select, [role="dialog"], .gallery');
  if (move && !busy && !event.ctrlKey && !event.altKey && !event.metaKey) show(step + move);
});
watch('value', () => {
  const stage = element.querySelector('.sa-stage');
  const fresh = stage?.dataset.key !== key;
  key = stage?.dataset.key ?? null;
  show(fresh ? 1 : step);
  if (stage && fresh) stage.scrollIntoView({behavior: 'smooth', block: 'nearest'});
});
"""

_CAPTIONS_JS = """
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-index]');
  if (button) trigger('select', {
    index: [Number(button.dataset.reading), Number(button.dataset.index)],
    value: button.textContent,
  });
});
"""

_CSS = """
.gradio-container { max-width: 1180px !important; margin: 0 auto; }
:root { --sa-accent: #c2410c; --sa-on-accent: #fff; }
.dark { --sa-accent: #fb923c; --sa-on-accent: #1c1917; }
.sa-faint { color: var(--body-text-color-subdued); font-size: 13px; font-weight: normal; }
.sa-heading { font-weight: 600; margin: 12px 0 8px; }
summary.sa-heading { cursor: pointer; }
.sa-hint { display: grid; place-items: center; min-height: 430px; border-radius: 10px;
  border: 2px dashed var(--border-color-primary); color: var(--body-text-color-subdued); }
.sa-stage { display: grid; gap: 12px; scroll-margin: 12px; }
.sa-views { display: grid; gap: 12px 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(280px, 100%), 1fr)); }
.sa-view { display: grid; gap: 12px; grid-row: span 5; grid-template-rows: subgrid; }
.sa-view .sa-heading { margin: 0; }
.sa-pictures { display: grid; align-self: start; border-radius: 10px; overflow: hidden;
  background: #1c1917; }
.sa-pictures img { grid-area: 1 / 1; width: 100%; height: auto; max-height: 62vh;
  object-fit: contain; opacity: 0; transition: opacity 0.18s; }
.sa-pictures img:first-child, .sa-pictures img[aria-current="true"] { opacity: 1; }
.sa-scale { display: flex; flex-wrap: wrap; gap: 2px 8px; align-items: center;
  align-content: start; font-size: 13px; }
.sa-ramp { width: 110px; height: 10px; border-radius: 5px; background: linear-gradient(90deg,
  #000004, #280b53, #65156e, #9f2a63, #d44842, #f57d15, #fac127, #fcffa4); }
.sa-chips { display: flex; flex-wrap: wrap; gap: 6px; align-content: start; }
.sa-chip, .sa-steps button { border: 1px solid var(--border-color-primary);
  background: var(--block-background-fill); }
.sa-chip { font-size: 18px; line-height: 1.3; padding: 5px 13px; border-radius: 999px; }
.sa-chip:first-child { border-style: dashed; color: var(--body-text-color-subdued); }
.sa-chip:hover, .sa-steps button:hover { border-color: var(--sa-accent); }
.sa-chip[aria-current="true"] { background: var(--sa-accent); border: 1px solid var(--sa-accent);
  color: var(--sa-on-accent); }
.sa-steps { display: flex; gap: 12px; align-items: center; justify-content: space-between; }
.sa-steps button { flex: none; padding: 6px 14px; border-radius: 8px; }
.sa-note { text-align: center; font-size: 14px; min-height: 3em; display: grid;
  place-items: center; color: var(--body-text-color-subdued); }
.sa-captions { width: 100%; border-collapse: collapse; margin-bottom: 6px; }
.sa-captions th, .sa-captions td { padding: 6px 8px; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--border-color-primary); font-variant-numeric: tabular-nums; }
.sa-captions th { font-weight: normal; font-size: 13px; color: var(--body-text-color-subdued); }
.sa-captions :is(th, td):nth-child(2) { text-align: left; width: 100%; white-space: normal; }
.sa-captions button { text-align: left; }
.sa-captions button:hover { color: var(--sa-accent); text-decoration: underline; }
.sa-captions tr[aria-current="true"] button { font-weight: 600; color: var(--sa-accent); }
.sa-figure, .sa-matrix { width: 0; min-width: 100%; overflow-x: auto; border-radius: 10px;
  background: #fff; }
:is(.sa-figure, .sa-matrix) img { max-width: 100%; margin: 0 auto; }
#examples > .gallery { display: grid; grid-template-columns: repeat(3, 1fr); gap: 8px; }
#examples :is(.container, img) { width: 100%; max-width: none; height: auto;
  aspect-ratio: 3 / 2; object-fit: cover; }
.html-container { padding: 0 !important; }
@media (max-width: 768px) {
  /* One column in the order of use: photograph, examples, caption, controls. */
  .sa-left { display: contents !important; }
  .sa-left > * { width: 100%; }
  .sa-controls { order: 1; }
  #examples > .gallery { grid-template-columns: repeat(6, 1fr); gap: 4px; }
  :is(.sa-figure, .sa-matrix) img { max-width: none; width: 900px; }
}
"""


# --- page -----------------------------------------------------------------------------------------

_INTRODUCTION = """
# showattend: what it says, and where it looks
The photograph becomes a grid of cells, and before it writes a word the model spreads a weight of 1
over the cells. **Soft attention** reads their weighted average, **hard attention** the cells in one
framed place. Step through the words: the brighter a place, the more of the weight lies there
([Xu et al. 2015](https://arxiv.org/abs/1502.03044)).
"""
_DOWNLOADS = ("Download figure (PNG)", "Download animation (GIF)", "Download data (JSON)")
_MODEL_INFO = (
    "Soft attention reads all cells by their weights; hard attention only the framed ones."
)
_NOT_OURS = "This photograph is not, or no longer, among the uploads: choose it again."
_PRIVACY = (
    "Photographs stay on the machine that runs this page and are deleted about an hour later."
)


def build_app(models: Sequence[str]) -> gr.Blocks:
    """The page for these models: shipped names or checkpoint folders, the first one preselected.

    Raises:
        CheckpointError: there is none.
    """
    return _build(Models(models))


def _build(models: Models, runs: Path | None = None) -> gr.Blocks:
    _stay_home()
    with gr.Blocks(
        title="showattend", analytics_enabled=False, delete_cache=(SWEEP_SECONDS, KEPT_SECONDS)
    ) as page:
        readings = gr.State((), time_to_live=KEPT_SECONDS)
        gr.Markdown(_INTRODUCTION)
        with gr.Row():
            with gr.Column(scale=2, min_width=320, elem_classes="sa-left"):
                photo = gr.Image(
                    label="Photograph: upload, drop, paste or take one",
                    sources=["upload", "clipboard", "webcam"],
                    type="filepath",
                    height=260,
                    buttons=[],
                )
                gr.Examples(
                    [[str(path)] for path in sorted(EXAMPLES.glob("*.jpg"))],
                    photo,
                    label="Or click an example",
                    cache_examples=False,
                    api_visibility="private",
                    elem_id="examples",
                )
                with gr.Group(elem_classes="sa-controls"):
                    name = gr.Dropdown(
                        models.choices,
                        label="Model",
                        info=_MODEL_INFO,
                        visible=len(models.choices) > 1,
                    )
                    strength = gr.Slider(
                        0,
                        1,
                        STRENGTH,
                        step=0.05,
                        label="Overlay strength",
                        info="How much of the photograph gives way to the colours.",
                        buttons=[],
                    )
                    beam_size = gr.Slider(
                        1,
                        10,
                        SearchSettings().beam_size,
                        step=1,
                        label="Beam size",
                        info="How many captions are followed at once; 1 is greedy search.",
                        buttons=[],
                    )
            with gr.Column(scale=3, min_width=320):
                stage = gr.HTML(HINT, js_on_load=_STAGE_JS, apply_default_css=False)
        with gr.Column(visible=False) as results:
            captions = gr.HTML(js_on_load=_CAPTIONS_JS, apply_default_css=False)
            figure = gr.HTML(apply_default_css=False)
            downloads = []
            for first in (True, False):  # a row for each of two readings
                with gr.Row():
                    downloads += [
                        gr.DownloadButton(label, size="md", interactive=False, visible=first)
                        for label in _DOWNLOADS
                    ]
        with gr.Accordion("Credits and privacy", open=False):
            gr.Markdown(_PRIVACY)
            gr.Markdown((EXAMPLES / "CREDITS.md").read_text(encoding="utf-8"))

        shown = [readings, stage, captions, results]
        files = [figure, *downloads]
        cache = Path(figure.GRADIO_CACHE)
        # Gradio would decode the upload itself (`preprocess`); it is `open_photograph`'s to open.
        listen = partial(gr.on, preprocess=False, api_visibility="private", show_progress="minimal")
        for event in (
            listen(
                [photo.change, beam_size.change, name.change],
                partial(_caption, models, cache),
                [photo, name, beam_size, strength],
                shown,
                trigger_mode="always_last",
            ),
            listen([captions.select], _choose, [readings, strength], shown),
            listen(
                [strength.change],
                _redraw,
                [readings, strength],
                [stage],
                trigger_mode="always_last",
            ),
        ):
            event.then(
                partial(_files, cache),
                [readings, strength],
                files,
                api_visibility="private",
                show_progress="hidden",
            )
        if runs is not None:
            with gr.Tabs(), gr.Tab("Runs"):
                add_runs_tab(runs)
    return page


def _caption(
    models: Models,
    cache: Path,
    photo: dict[str, Any] | None,
    name: str,
    beam_size: int,
    strength: float,
) -> list[Any]:
    """`photo` is Gradio's record of an uploaded file, or None; `cache` is where uploads lie."""
    if photo is None:
        return _nothing()
    path = _own_path(photo, cache)
    if path is None:
        gr.Warning(_NOT_OURS, duration=20)
        return _nothing()
    try:
        readings = tuple(
            read_photograph(model, path, int(beam_size)) for model in models.chosen(name)
        )
    except (ImageError, CheckpointError, ConfigError, RegionsError) as error:
        line = str(error).replace(path, Path(path).name)
        gr.Warning(html.escape(line), duration=20)
        return _nothing()
    return _shown(readings, strength)


def _own_path(photo: Any, cache: Path) -> str | None:
    """The path in Gradio's record where it is that of an upload or an example.

    A request may name any file of this machine, and Gradio looks only into records with a certain
    `meta`. Whoever names another file must not even learn whether there is one.
    """
    try:
        path = os.path.realpath(photo["path"])
    except (TypeError, KeyError, ValueError):  # no record, or none of a path
        return None
    inside = any(Path(path).is_relative_to(os.path.realpath(own)) for own in (cache, EXAMPLES))
    return path if inside and os.path.isfile(path) else None  # noqa: PTH113 (is_file can raise)


def _choose(readings: Readings, strength: float, event: gr.SelectData) -> list[Any]:
    number, index = event.index
    reading = readings[number]
    chosen = replace(reading, chosen=range(len(reading.captions))[index])
    return _shown((*readings[:number], chosen, *readings[number + 1 :]), strength)


def _redraw(readings: Readings, strength: float) -> str:
    return stage_html(readings, strength) if readings else HINT


def _shown(readings: Readings, strength: float) -> list[Any]:
    """For the outputs readings, stage, captions, results."""
    stage = stage_html(readings, strength)
    return [readings, stage, captions_html(readings), gr.Column(visible=True)]


def _nothing() -> list[Any]:
    return [(), HINT, "", gr.Column(visible=False)]


def _files(cache: Path, readings: Readings, strength: float) -> list[Any]:
    """For the outputs figure and two rows of download buttons; files in the cache are swept."""
    cache.mkdir(parents=True, exist_ok=True)
    figures, buttons, named = [], [], len(readings) > 1
    for reading in readings:
        paths = write_files(reading, strength, Path(tempfile.mkdtemp(dir=cache)), named=named)
        figures += [figure_html(reading, paths[0], named=named), matrix_html(reading, named=named)]
        buttons += [
            gr.DownloadButton(
                f"{label}: {reading.model_name}" if named else label,
                value=str(path),
                interactive=True,
                visible=True,
            )
            for label, path in zip(_DOWNLOADS, paths, strict=True)
        ]
    unused = 2 * len(_DOWNLOADS) - len(buttons)
    off = [gr.DownloadButton(value=None, interactive=False, visible=False)] * unused
    return ["".join(figures), *buttons, *off]


# --- server ---------------------------------------------------------------------------------------


def serve(models: Sequence[str], host: str, port: int, runs: Path | None = None) -> None:
    """Serve the page until interrupted.

    Raises:
        CheckpointError: no model, or the first one is missing or damaged; one line.
        OSError: the port is taken; one line.
    """
    offered = Models(models)
    offered.get(offered.names[0])  # a mistyped folder fails here, not at the first visitor
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the folder below goes too
    # Gradio serves whatever lies in its cache. By default all Gradio programs share one.
    with tempfile.TemporaryDirectory(prefix="showattend-") as cache:
        os.environ["GRADIO_TEMP_DIR"] = cache
        page = _build(offered, runs).queue(max_size=QUEUE_LIMIT)
        try:
            _, url, _ = page.launch(
                server_name=host,
                server_port=port,
                prevent_thread_lock=True,
                quiet=True,
                share=False,
                max_file_size=UPLOAD_LIMIT,
                enable_monitoring=False,
                run_history=False,
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                footer_links=[],
                theme=_theme(),
                css=_CSS,
                css_paths=[RUNS_CSS],
            )
        except OSError as error:
            raise OSError(f"{host}:{port}: cannot listen there; choose another --port") from error
        print(f"showattend: {url} (Ctrl-C stops it)", flush=True)
        page.block_thread()


def _theme() -> gr.themes.Base:
    return gr.themes.Default(
        primary_hue="orange",
        secondary_hue="orange",
        neutral_hue="stone",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )


def _stay_home() -> None:
    """Shut every way by which Gradio asks other hosts."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

    async def refuse(*_: object, **__: object) -> NoReturn:
        raise ValueError("showattend fetches no URL: upload the photograph itself")

    # A request may name a URL in place of a file. Both of Gradio's ways to it pass through
    # safehttpx, which would even ask a public resolver for the name.
    safehttpx = gr.processing_utils.sh
    safehttpx.get = safehttpx.async_validate_url = refuse
