"""Several models on the same photograph, and on a sentence that the visitor types."""

import html
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from showattend.app.reading import Reading, reading_of
from showattend.app.shared import QUIET, Shared, beams, listen
from showattend.app.uploads import (
    VisitorError,
    chosen_path,
    listed,
    open_upload,
    text,
    told_in_one_line,
)
from showattend.app.viewer import add_viewer, told
from showattend.metrics import score_captions
from showattend.predict import CaptionModel
from showattend.report import Cell, Table, markup
from showattend.search import Caption, words_of
from showattend.vocabulary import UNKNOWN

MOST_MODELS = 3
MOST_WORDS, MOST_LETTERS = 40, 300  # of a sentence
_TABLE = '<table class="sa-table">'
_HINT = '<p class="sa-hint">Choose a photograph and models, then press Compare.</p>'
_SENTENCE_NOTE = (
    "log p: the model's own logarithm of the probability of your sentence, and a word's share of "
    "it (its end mark included). BLEU-4 and ROUGE-L hold the model's caption against this one "
    "sentence alone: scores of one sentence jump, and say little of a model."
)


def add_compare_tab(shared: Shared) -> None:
    """The tab's content."""
    models = shared.models
    with gr.Row():
        names = gr.CheckboxGroup(
            models.names,
            value=models.pair,
            label="Models",
            info=f"Up to {MOST_MODELS}; pointing at a word shows the same word of the others.",
        )
        sentence = gr.Textbox(
            label="Your sentence (may be empty)",
            info="Where would each model look if it had to say this, and how likely is it?",
            placeholder="a dog runs through the grass",
            max_length=MOST_LETTERS,
        )
    button = gr.Button("Compare", variant="primary")
    captions = add_viewer("compared", _HINT)
    scores = gr.HTML(apply_default_css=False)
    said = add_viewer("said", "")
    compared = listen(
        [button.click, sentence.submit],
        partial(compare, shared),
        [shared.photo, names, shared.beam_size, sentence],
        [captions, scores, said],
    )
    gr.on(
        [shared.photo.change],
        None,
        None,
        [captions, scores, said],
        js="() => [null, '', null]",
        cancels=[compared],
        **QUIET,
    )


def compare(shared: Shared, photo: Any, names: Any, beam_size: Any, sentence: Any) -> list[Any]:
    """For the outputs captions, scores and said; what is refused leaves what was there."""
    path = chosen_path(photo, shared.cache)
    if path is None:
        return [gr.skip()] * 3
    with told_in_one_line(path):
        sentence = text(sentence, "your sentence", MOST_LETTERS)
        words = _words(sentence)
        names = listed(names, "models", 1, MOST_MODELS)
        models = [shared.models.get(name) for name in names]
        titles = [shared.models.title(name) for name in names]
        photograph, name = open_upload(path), Path(path).stem
        readings = []
        for model, title in zip(models, titles, strict=True):
            (captions,) = model.candidates([photograph], beam_size=beams(beam_size))
            readings.append(reading_of(model, name, photograph, captions, title))
        if not words:
            return [told(readings), "", None]
        forced = [model.attend(photograph, sentence) for model in models]
        said = [
            reading_of(model, name, photograph, [caption], title)
            for model, caption, title in zip(models, forced, titles, strict=True)
        ]
        return [told(readings), _scores(readings, models, forced, sentence), told(said)]
    return [gr.skip()] * 3


def _words(sentence: str) -> tuple[str, ...]:
    """Raises: VisitorError: there are too many, or signs alone."""
    if not sentence:
        return ()
    try:
        words = words_of(sentence)
    except ValueError as error:
        raise VisitorError(str(error)) from None
    if len(words) > MOST_WORDS:
        raise VisitorError(f"the sentence has {len(words)} words: write at most {MOST_WORDS}")
    return words


def _scores(
    readings: Sequence[Reading],
    models: Sequence[CaptionModel],
    forced: Sequence[Caption],
    sentence: str,
) -> str:
    """The table of your sentence, and which of its words a model does not know."""
    rows = {}
    for reading, said in zip(readings, forced, strict=True):
        scored = score_captions({0: reading.captions[0].text}, {0: [sentence]})
        rows[reading.title] = {
            "log p": Cell(said.log_prob),
            "log p a word": Cell(said.log_prob / (len(said.words) + 1)),
            "BLEU-4 of this one sentence": Cell(scored["BLEU-4"], decimals=1),
            "ROUGE-L of this one sentence": Cell(scored["ROUGE-L"], decimals=1),
        }
    unknown = [
        f"{reading.title} does not know {', '.join(f'“{word}”' for word in words)}, and was made "
        "to say an unknown word there."
        for reading, model in zip(readings, models, strict=True)
        if (words := _unknown(model, forced[0].words))
    ]
    notes = "".join(f"<p class='sa-faint'>{html.escape(line)}</p>" for line in unknown)
    table = markup(Table("model", rows, _SENTENCE_NOTE)).replace("<table>", _TABLE, 1)
    title = f"Your sentence: “{sentence}”"
    return (
        f'<div class="sa-heading">{html.escape(title)}</div>'
        f'<div class="sa-scroll">{table}</div>{notes}'
    )


def _unknown(model: CaptionModel, words: Sequence[str]) -> list[str]:
    ids = model.checkpoint.vocabulary.encode_words(words)
    return [word for word, index in zip(words, ids, strict=True) if index == UNKNOWN]
