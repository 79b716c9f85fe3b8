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
from showattend.grids import AnyGrids
from showattend.grounding import point_at_shapes
from showattend.java_metrics import JavaError, meteor, spice
from showattend.mentions import Thing, category_things, head_nouns, phrase_things
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

        An older page, which would be of other captions, does not stay.

        Raises:
            OSError, ScoreError: a file cannot be written.
        """
        write_results(folder / "results.json", self.texts)
        files = {
            "scores.json": json.dumps(self.tree(), indent=1),
            "scores.md": self.markdown(),
            "page.html": self.page,
        }
        if self.page is None:
            (folder / "page.html").unlink(missing_ok=True)
        written = {name: content for name, content in files.items() if content is not None}
        for name, content in written.items():
            write_whole(folder / name, content)
        return [folder / name for name in ("results.json", *written)]


@dataclass(frozen=True)
class Annotated:
    """What people marked in some pictures.

    Attributes:
        phrases: captions with the boxes of their phrases; none of COCO, which has categories.
        things: what lies where.
        nouns: words -> (position, name) of each that names a kind of thing.
    """

    phrases: Mapping[ImageId, Sequence[Grounded]]
    things: Mapping[ImageId, Sequence[Thing]]
    nouns: Callable[[Sequence[str]], Sequence[tuple[int, str]]]


def read_annotated(data: DataSettings, pictures: Sequence[Picture]) -> Annotated | None:
    """The boxes that a data set has (drawn shapes), or that ``data.boxes`` names; None of none.

    Raises:
        DataError: they cannot be read; one line.
    """
    if data.boxes is not None and has_categories(pictures):
        categories = read_categories(data.boxes, [picture.image_id for picture in pictures])
        things = {image: category_things(found) for image, found in categories.items()}
        return Annotated({}, things, coco_nouns)
    phrases = load_boxes(data, pictures)
    if not phrases:
        return None
    known = head_nouns(phrases)
    things = {image: phrase_things(said) for image, said in phrases.items()}
    return Annotated(phrases, things, lambda words: known_nouns(words, known))


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
        training: tokens of the data set's training captions, if they are known.
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
    if not several:
        missing.append("people: some images have one reference, so that none can be left out")
    if training is None:
        missing.append("novel: there are no training captions to compare with")
    people = human_scores(corpus.references) if several else {}
    tables = [score_table(scores, people, extra), diversity_table(corpus, training)]
    return Scorecard(facts, tables, texts, _image_scores(corpus, scores, extra), missing)


def score_model(
    checkpoint: Checkpoint,
    captions: Mapping[ImageId, Caption],
    grids: AnyGrids,
    *,
    facts: Mapping[str, str],
    tokenizer: Tokenizer = split_captions,
    training: Iterable[Tokens] | None = None,
    annotated: Annotated | None = None,
    everything: bool = True,
) -> Scorecard:
    """Score a model's captions, and whether it looked at what it named, where boxes are known.

    Args:
        training, everything: as `score_texts`; everything is also the page.
        annotated: where things lie.
    Raises:
        As `score_texts`.
    """
    pictures = {picture.image_id: picture for picture in grids.pictures}
    texts = {image: caption.text for image, caption in captions.items()}
    references = {image: pictures[image].captions for image in captions}
    card = score_texts(
        texts,
        references,
        facts={**facts, **_drawn_facts(captions, grids.pictures)},
        tokenizer=tokenizer,
        training=training,
        everything=everything,
    )
    if not everything:
        return card
    resize = checkpoint.pixels.resize
    tables, missing = list(card.tables), list(card.missing)
    if checkpoint.captioner.encoder is None:
        missing.append("attention: the model looks at regions; the pointing game is one of grids")
    elif annotated is None:
        missing.append("attention: no boxes are known; name them by data.boxes=PATH")
    else:
        if annotated.phrases:
            model = (checkpoint.captioner, checkpoint.vocabulary)
            tables += pointing_tables(*model, grids, annotated.phrases, resize)
        said = (captions, grids.pictures, annotated.things, annotated.nouns)
        tables.append(mention_table(*said, resize))
    best, worst = (
        [Shown(pictures[image], captions[image], card.images[image]) for image in images]
        for images in extremes(card.images, "CIDEr-D", _SHOWN)
    )
    title = f"The captions with the highest and the lowest CIDEr-D of {len(captions)}"
    drawn = page(title, best, worst, resize)
    return replace(card, tables=tables, missing=missing, page=drawn)


def training_tokens(data: DataSettings, tokenizer: Tokenizer) -> list[list[str]] | None:
    """The words of the data set's training captions; None where they cannot be read."""
    try:
        pictures = load_split(data, "train")
    except DataError:
        return None
    return tokenizer([caption for picture in pictures for caption in picture.captions])


def _drawn_facts(
    captions: Mapping[ImageId, Caption], pictures: Sequence[Picture]
) -> dict[str, str]:
    """Of drawn shapes, where the truth is known: for how many nouns the peak was in the box."""
    pointing = point_at_shapes(captions, pictures)
    return {"peak in box": f"{100.0 * pointing.rate:.2f} %"} if pointing.nouns else {}


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
