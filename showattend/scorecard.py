"""Everything that is known of how good some captions are: computed here, printed and written."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from showattend.boxes import Grounded, has_categories, load_boxes, read_categories
from showattend.checkpoint import Checkpoint
from showattend.config import DataSettings
from showattend.corpus import Corpus, Tokenizer, Tokens, make_corpus, split_captions
from showattend.datasets import DataError, ImageId, Picture, load_split
from showattend.diversity import human_scores
from showattend.grids import Grids, LiveGrids
from showattend.grounding import point_at_shapes
from showattend.java_metrics import JavaError, meteor, spice
from showattend.mentions import category_things, head_nouns, phrase_things
from showattend.metrics import Scores, score_corpus
from showattend.nouns import coco_nouns, known_nouns
from showattend.page import Shown, extremes, page
from showattend.report import Table, markdown, plain
from showattend.results import write_results
from showattend.search import Caption
from showattend.tables import diversity_table, mention_table, pointing_tables, score_table
from showattend.whole_files import write_whole

_SHOWN = 12  # images at either end of the page


@dataclass(frozen=True)
class Scorecard:
    """What was scored, and how well it did.

    Attributes:
        facts: what was scored, in the order of printing.
        tables: the figures.
        texts: the captions.
        images: every image's scores, times 100.
        missing: a line for each score that could not be computed.
        page: HTML of the best and worst images, or None.
    """

    facts: Mapping[str, str]
    tables: Sequence[Table]
    texts: Mapping[ImageId, str]
    images: Mapping[ImageId, Mapping[str, float]]
    missing: Sequence[str]
    page: str | None = None

    def text(self) -> str:
        """For a terminal."""
        width = max(map(len, self.facts))
        facts = "\n".join(f"{name:{width}}  {value}" for name, value in self.facts.items())
        return "\n\n".join([facts, *map(plain, self.tables)])

    def markdown(self) -> str:
        """For people's notes."""
        facts = "\n".join(f"- {name}: {value}" for name, value in self.facts.items())
        missing = "\n".join(f"- not computed: {line}" for line in self.missing)
        blocks = [facts, *map(markdown, self.tables), *([missing] if missing else [])]
        return "\n\n".join(blocks) + "\n"

    def tree(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "facts": dict(self.facts),
            "tables": {table.title: table.tree() for table in self.tables},
            "missing": list(self.missing),
            "images": [
                {"image_id": image, "caption": text, "scores": dict(self.images[image])}
                for image, text in self.texts.items()
            ],
        }

    def write(self, folder: Path) -> list[Path]:
        """results.json (COCO), scores.json, scores.md and page.html, each whole or not at all.

        Raises:
            OSError, ScoreError: a file cannot be written.
        """
        write_results(folder / "results.json", self.texts)
        files = {
            "scores.json": json.dumps(self.tree(), indent=1),
            "scores.md": self.markdown(),
            "page.html": self.page,
        }
        written = {name: content for name, content in files.items() if content is not None}
        for name, content in written.items():
            write_whole(folder / name, content)
        return [folder / name for name in ("results.json", *written)]


def score_texts(
    texts: Mapping[ImageId, str],
    references: Mapping[ImageId, Sequence[str]],
    *,
    facts: Mapping[str, str],
    tokenizer: Tokenizer = split_captions,
    training: Iterable[Tokens] | None = None,
    everything: bool = True,
) -> Scorecard:
    """Score captions against what people said.

    Args:
        training: tokens of the captions that the model learned from, if they are known.
        everything: also how people score, how varied the captions are, and the scores that need
            Java, which take a minute or two.
    Raises:
        ScoreError: texts and references do not hold the same images; see `make_corpus`.
        JavaError: the tokenizer is Java's, and Java is not there.
    """
    corpus = make_corpus(texts, references, tokenizer)
    scores = score_corpus(corpus)
    if not everything:
        return Scorecard(facts, [score_table(scores)], texts, scores.images, [])
    extra, missing = _java_scores(corpus)
    several = all(len(captions) > 1 for captions in corpus.references)
    people = human_scores(corpus.references) if several else {}
    tables = [
        score_table(scores, people, extra),
        diversity_table(corpus, training),
    ]
    return Scorecard(facts, tables, texts, _image_scores(corpus, scores, extra), missing)


def score_model(
    checkpoint: Checkpoint,
    captions: Mapping[ImageId, Caption],
    grids: Grids | LiveGrids,
    data: DataSettings,
    *,
    facts: Mapping[str, str],
    tokenizer: Tokenizer = split_captions,
    everything: bool = True,
) -> Scorecard:
    """Score a model's captions, and whether it looked at what it named, where boxes are known.

    Args:
        everything: as `score_texts`; also what is known of attention, and the page.
    Raises:
        DataError: the boxes cannot be read; otherwise as `score_texts`.
    """
    pictures = {picture.image_id: picture for picture in grids.pictures}
    texts = {image: caption.text for image, caption in captions.items()}
    references = {image: pictures[image].captions for image in captions}
    card = score_texts(
        texts,
        references,
        facts={**facts, **_drawn_facts(captions, grids.pictures)},
        tokenizer=tokenizer,
        training=_training_tokens(data, tokenizer) if everything else None,
        everything=everything,
    )
    if not everything:
        return card
    tables = [*card.tables, *_grounding_tables(checkpoint, captions, grids, data)]
    best, worst = (
        [Shown(pictures[image], captions[image], card.images[image]) for image in images]
        for images in extremes(card.images, "CIDEr-D", _SHOWN)
    )
    title = f"The captions with the highest and the lowest CIDEr-D of {len(captions)}"
    drawn = page(title, best, worst, checkpoint.pixels.resize)
    return replace(card, tables=tables, page=drawn)


def _drawn_facts(
    captions: Mapping[ImageId, Caption], pictures: Sequence[Picture]
) -> dict[str, str]:
    """Of drawn shapes, where the truth is known: for how many nouns the peak was in the box."""
    pointing = point_at_shapes(captions, pictures)
    return {"peak in box": f"{100.0 * pointing.rate:.2f} %"} if pointing.nouns else {}


def _training_tokens(data: DataSettings, tokenizer: Tokenizer) -> list[list[str]] | None:
    """The words of the data set's training captions; None where it has none."""
    try:
        pictures = load_split(data, "train")
    except DataError:
        return None
    return tokenizer([caption for picture in pictures for caption in picture.captions])


def _grounding_tables(
    checkpoint: Checkpoint,
    captions: Mapping[ImageId, Caption],
    grids: Grids | LiveGrids,
    data: DataSettings,
) -> list[Table]:
    """The tables on attention: of phrases and of what captions mention, or of categories alone."""
    resize = checkpoint.pixels.resize
    if data.boxes is not None and has_categories(grids.pictures):
        ids = [picture.image_id for picture in grids.pictures]
        categories = read_categories(data.boxes, ids)
        things = {image: category_things(found) for image, found in categories.items()}
        return [mention_table(captions, grids.pictures, things, coco_nouns, resize)]
    boxes = load_boxes(data, grids.pictures)
    if not boxes:
        return []
    things = {image: phrase_things(said) for image, said in boxes.items()}
    return [
        *pointing_tables(checkpoint.captioner, checkpoint.vocabulary, grids, boxes, resize),
        mention_table(captions, grids.pictures, things, _nouns_of(boxes), resize),
    ]


def _nouns_of(
    boxes: Mapping[ImageId, Sequence[Grounded]],
) -> Callable[[Sequence[str]], list[tuple[int, str]]]:
    known = head_nouns(boxes)
    return lambda words: known_nouns(words, known)


def _java_scores(corpus: Corpus) -> tuple[dict[str, tuple[float, np.ndarray]], list[str]]:
    """The scores that need Java, and a line for each of which a part is missing."""
    found, missing = {}, []
    for name, score in (("METEOR", meteor), ("SPICE", spice)):
        try:
            found[name] = score(corpus)
        except JavaError as error:
            missing.append(str(error))
    return found, missing


def _image_scores(
    corpus: Corpus, scores: Scores, extra: Mapping[str, tuple[float, np.ndarray]]
) -> dict[ImageId, dict[str, float]]:
    return {
        image: scores.images[image]
        | {name: 100.0 * float(of_images[place]) for name, (_, of_images) in extra.items()}
        for place, image in enumerate(corpus.images)
    }
