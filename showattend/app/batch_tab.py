"""Alt texts for a folder's worth of photographs, as a CSV file."""

import csv
import html
import io
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from showattend.app.downloads import Handed, hand_out
from showattend.app.reading import JPEG_QUALITY
from showattend.app.shared import Shared, listen
from showattend.app.uploads import listed, open_upload, own_path, refusal, told_in_one_line
from showattend.data_urls import data_url, jpeg_url
from showattend.images import ImageError
from showattend.predict import CaptionModel
from showattend.search import Caption

MOST = 200  # photographs at once
_AT_ONCE = 4  # open; the largest that are taken fill 150 MB each
_THUMBNAIL = 120  # pixels
_LONGEST_NAME = 255
_SENTENCE_ENDS = (".", "!", "?")

#: Rows of image and alt text.
Rows = list[tuple[str, str]]


def add_batch_tab(shared: Shared) -> None:
    """The tab's content."""
    uploads = gr.File(
        label=f"Photographs (up to {MOST})", file_count="multiple", file_types=["image"], height=180
    )
    button = gr.Button("Write alt texts", variant="primary")
    listed = gr.HTML(apply_default_css=False)
    rows = gr.State([])
    with gr.Column(visible=False) as files:
        hand_out(gr.Button("Download alt texts (CSV)", size="md"), as_csv, [rows])
    listen(
        [button.click],
        partial(describe_all, shared),
        [uploads, shared.model],
        [listed, rows, files],
        concurrency_id="batch",  # so that a long one leaves room for those who wait for one caption
        concurrency_limit=1,
    )


def describe_all(shared: Shared, records: Any, name: str) -> Iterator[list[Any]]:
    """For the outputs listed, rows and the downloads' column, as far as each photograph is done.

    Args:
        records: Gradio's records of uploaded files, or None.
    """
    with told_in_one_line():
        given = listed(records, "photographs", 1, MOST)
        model = shared.models.get(name)
        known = [(record, own_path(record, shared.cache)) for record in given]
        files = [(path, _name(record, path)) for record, path in known if path is not None]
        rows: Rows = []
        shown: list[str] = []
        for start in range(0, len(files), _AT_ONCE):
            for row, markup in _describe(model, files[start : start + _AT_ONCE]):
                rows.append(row)
                shown.append(markup)
            yield [_table(shown, len(files)), [], gr.Column(visible=False)]
        yield [_table(shown, len(files)), rows, gr.Column(visible=bool(rows))]


def alt_text(caption: Caption) -> str:
    """The caption as a sentence: a capital at its beginning, a full stop at its end."""
    text = caption.text[:1].upper() + caption.text[1:]
    return text if text.endswith(_SENTENCE_ENDS) else f"{text}."


def as_csv(rows: Rows) -> Handed:
    """The rows as a file."""
    if not rows:
        return None
    text = io.StringIO()
    csv.writer(text).writerows([("image", "alt_text"), *rows])
    return {"name": "alt_texts.csv", "url": data_url(text.getvalue().encode(), "text/csv")}


def _name(record: Any, path: str) -> str:
    """As the visitor has it; Gradio keeps uploads under names without special letters."""
    name = record.get("orig_name")
    plain = isinstance(name, str) and name.isprintable() and len(name) <= _LONGEST_NAME
    return name if name and plain else Path(path).name


def _describe(
    model: CaptionModel, files: Sequence[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], str]]:
    """A row for the file, and one for the page, of each photograph (path, name).

    One without a caption has an empty alt text in the file.
    """
    opened = [_open(path) for path, _ in files]
    captions = iter(model.caption([photo for photo in opened if isinstance(photo, Image.Image)]))
    for (path, name), photo in zip(files, opened, strict=True):
        if isinstance(photo, Image.Image):
            text, picture = alt_text(next(captions)), f'<img src="{_thumbnail(photo)}" alt="">'
            said = html.escape(text)
        else:
            text, picture = "", ""
            said = f'<span class="sa-faint">no alt text: {html.escape(refusal(photo, path))}</span>'
        cells = f'<td>{picture}</td><td>{html.escape(name)}</td><td class="sa-words">{said}</td>'
        yield (name, text), f"<tr>{cells}</tr>"


def _open(path: str) -> Image.Image | ImageError:
    try:
        return open_upload(path)
    except ImageError as error:
        return error


def _thumbnail(photo: Image.Image) -> str:
    small = photo.copy()
    small.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.BICUBIC)
    return jpeg_url(small, JPEG_QUALITY)


def _table(rows: list[str], wanted: int) -> str:
    heading = '<tr><th></th><th>Image</th><th class="sa-words">Alt text</th></tr>'
    return (
        f'<p class="sa-faint" aria-live="polite">{len(rows)} of {wanted} photographs</p>'
        f'<div class="sa-scroll"><table class="sa-table"><thead>{heading}</thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
