"""What is compared: models, several runs of one, or another system's captions; all of one split.

Whatever would make the comparison unfair is refused here, before any captioning.
"""

import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from showattend.checkpoint import Checkpoint, load_checkpoint
from showattend.config import DataSettings, SearchSettings
from showattend.corpus import ScoreError, make_corpus
from showattend.curves import Curve, read_curve
from showattend.datasets import DataError, ImageId, Picture, Split, load_split
from showattend.evaluate import caption_split
from showattend.grids import LiveGrids, live_grids
from showattend.predict import checkpoint_folder
from showattend.results import read_results
from showattend.search import Caption
from showattend.tokenizer import ptb_tokens
from showattend.vocabulary import SPECIALS

_WARM_UP = 16  # images captioned before the clock starts


class CompareError(ValueError):
    """Things that cannot be compared: one clear line with the reason."""


@dataclass(frozen=True)
class Source:
    """One run: a checkpoint's folder, or a file of results."""

    name: str
    path: Path

    @property
    def is_results(self) -> bool:
        """Whether it is another system's captions alone."""
        return self.path.suffix == ".json"


@dataclass(frozen=True)
class Run:
    """A run's captions of the split, and what else is known of it.

    Attributes:
        texts: image -> caption, in the split's order.
        captions: the same with the attention; empty of a file of results.
        checkpoint: the model; None of a file of results.
        milliseconds: from an image's file to its caption; None of a file of results.
        processor: milliseconds of all processors in it, which other programs do not lengthen.
        curve: what the run scored after every epoch; empty where that is not known.
    """

    name: str
    texts: Mapping[ImageId, str]
    captions: Mapping[ImageId, Caption]
    checkpoint: Checkpoint | None = None
    milliseconds: float | None = None
    processor: float | None = None
    curve: Curve = ()


def find_sides(words: Sequence[str]) -> dict[str, list[Source]]:
    """The sides of an argument list by name: A B, where A may be A1,A2 (runs of one model).

    Raises:
        CompareError: there is one side alone, or a run is named twice; one line.
        CheckpointError: there is no model of that name; one line.
    """
    if len(words) < 2:
        raise CompareError("only one side is named; give two or more, such as soft hard")
    sides = {word: list(_sources(word)) for word in words}
    sources = [source for word in words for source in sides[word]]
    seen: dict[Path, str] = {}
    for source in sources:
        path = source.path.resolve()
        if path in seen:
            raise CompareError(f"{source.name}: is {seen[path]} again; name every run once")
        seen[path] = source.name
    return sides


def _sources(word: str) -> Iterator[Source]:
    for name in [word] if Path(word).exists() else word.split(","):
        is_file = name.endswith(".json")
        yield Source(name, Path(name) if is_file else checkpoint_folder(name))


def same_data(known: Mapping[str, DataSettings], split: Split) -> DataSettings:
    """The data that all runs were trained on, by the images and references of the split.

    Args:
        known: of every run whose data are known, one or more.
    Raises:
        CompareError: their splits differ, or one cannot be read; one line.
    """
    (first, data), *others = known.items()
    for name, other in others:
        if _without_counts(other) == _without_counts(data):
            continue
        try:
            ours, theirs = _references(data, split), _references(other, split)
        except DataError as error:
            raise CompareError(
                f"{first} and {name}: their data cannot be compared ({error}); "
                "name by --data CONFIG what all are to caption"
            ) from None
        what = _difference(ours, theirs)
        if what is not None:
            raise CompareError(
                f"{first} and {name}: the {split} splits of their data hold other {what}; name by "
                "--data CONFIG what all are to caption"
            )
    return data


def _without_counts(data: DataSettings) -> DataSettings:
    """The data but for what does not change which images and references a split holds."""
    return data.model_copy(update={"min_count": 1, "boxes": None})


def _references(data: DataSettings, split: Split) -> dict[ImageId, tuple[str, ...]]:
    return {picture.image_id: picture.captions for picture in load_split(data, split)}


def _difference(
    ours: Mapping[ImageId, tuple[str, ...]], theirs: Mapping[ImageId, tuple[str, ...]]
) -> str | None:
    alone = sorted(ours.keys() ^ theirs.keys(), key=str)
    if alone:
        return f"images, for example {alone[0]!r}"
    other = [image for image, captions in ours.items() if theirs[image] != captions]
    return f"references, for example of {other[0]!r}" if other else None


def caption_sides(
    sides: Mapping[str, Sequence[Source]],
    split: Sequence[Picture],
    device: torch.device,
    *,
    corrupt: str = "fatal",
    beam_size: int | None = None,
) -> tuple[dict[str, list[Run]], list[Picture]]:
    """Every side's captions of a split, and its pictures that can be opened.

    Raises:
        CompareError: a side's runs are of different models, or one writes words that the scores'
            tokenizer would split or change; one line.
        ScoreError: a file of results holds other images than the split; one line.
        CheckpointError, DataError: a model or a picture cannot be opened; one line.
    """
    models = {name: _load_side(name, sources, device) for name, sources in sides.items()}
    read = {name: _read_side(sources, split) for name, sources in sides.items()}
    pictures = list(split)
    loaded = [model for side in models.values() for model in side]
    if loaded:  # whichever opens them: what is scored is the same for all
        pictures = live_grids(loaded[0].captioner, loaded[0].pixels, split, corrupt).pictures
    asked = {} if beam_size is None else {"beam_size": beam_size}
    runs: dict[str, list[Run]] = {}
    for name, sources in sides.items():
        runs[name] = [
            _caption(source, model, pictures, model.search.model_copy(update=asked))
            for source, model in zip(sources, models[name], strict=False)
        ] or [_only(run, pictures) for run in read[name]]
    return runs, pictures


def describe_device(device: torch.device) -> str:
    """What the times were measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # of Linux alone
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = named[0] if named else platform.processor() or platform.machine()
    return f"{processor}, {torch.get_num_threads()} thread(s)" + (
        "" if device.type == "cpu" else f", {device.type}"
    )


def _load_side(name: str, sources: Sequence[Source], device: torch.device) -> list[Checkpoint]:
    """The models of a side, none of a file of results.

    Raises:
        CompareError: its runs are of different models, or write words that the scores' tokenizer
            would split or change; one line.
        CheckpointError: a checkpoint is damaged; one line.
    """
    models = [source for source in sources if not source.is_results]
    if models and len(models) < len(sources):
        raise CompareError(f"{name}: joins models and results; runs of one model belong together")
    loaded = [load_checkpoint(source.path, device) for source in models]
    for source, checkpoint in zip(models, loaded, strict=True):
        if checkpoint.captioner.encoder is None:
            raise CompareError(
                f"{source.name}: looks at regions, which have no maps to hold side by side; "
                "compare its captions: the results.json of showattend evaluate --out DIR"
            )
        _check_words(source.name, checkpoint)
        for part in ("pixels", "encoder", "decoder", "vocabulary"):
            if _part(checkpoint, part) != _part(loaded[0], part):
                raise CompareError(
                    f"{name}: {source.name} has another {part} than {models[0].name}; only runs of "
                    "one model are joined by commas"
                )
    return loaded


def _part(checkpoint: Checkpoint, name: str) -> object:
    return checkpoint.vocabulary.words if name == "vocabulary" else getattr(checkpoint, name)


def _check_words(name: str, checkpoint: Checkpoint) -> None:
    """Scores count the tokenizer's words: a model of other words would be scored on others than it
    was taught."""
    for word in checkpoint.vocabulary.words[len(SPECIALS) :]:
        if ptb_tokens(word) != [word]:
            raise CompareError(
                f"{name}: its vocabulary is of another tokenizer: {word!r} is scored as "
                f"{' '.join(ptb_tokens(word))!r}; train it with this package's"
            )


def _read_side(sources: Sequence[Source], split: Sequence[Picture]) -> list[Run]:
    """Files of results, each a caption for exactly the images of the split.

    Raises:
        ScoreError: a file cannot be read, or holds other images; one line.
    """
    references = {picture.image_id: picture.captions for picture in split}
    runs = []
    for source in sources:
        if not source.is_results:
            continue
        texts = read_results(source.path)
        try:
            make_corpus(texts, references)
        except ScoreError as error:
            raise ScoreError(f"{source.name}: {error}; give results of this split") from None
        runs.append(Run(source.name, texts, {}))
    return runs


def _only(run: Run, pictures: Sequence[Picture]) -> Run:
    """The captions of some pictures, in their order."""
    return replace(run, texts={each.image_id: run.texts[each.image_id] for each in pictures})


def _caption(
    source: Source, checkpoint: Checkpoint, pictures: Sequence[Picture], search: SearchSettings
) -> Run:
    """A model's captions, timed once it is warm; grids are computed anew and not cached."""
    grids = LiveGrids(list(pictures), checkpoint.captioner, checkpoint.pixels)
    model = (checkpoint.captioner, checkpoint.vocabulary)
    caption_split(*model, replace(grids, pictures=grids.pictures[:_WARM_UP]), search)
    began, worked = time.perf_counter(), time.process_time()
    captions = caption_split(*model, grids, search)
    seconds, busy = time.perf_counter() - began, time.process_time() - worked
    return Run(
        source.name,
        {image: caption.text for image, caption in captions.items()},
        captions,
        checkpoint,
        1000.0 * seconds / len(captions),
        1000.0 * busy / len(captions),
        read_curve(source.path.parent) or read_curve(source.path),
    )
