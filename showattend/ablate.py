"""Train every run of an ablation's plan, and measure it once it is trained.

Besides a run's own files, its folder then holds results.json (its captions of the validation split)
and measures.json (what else of it needs the model, or Java). Both are written once; delete
measures.json to have all but the captions measured anew.
"""

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict

from showattend.ablation_plan import AblateError, Job, differences
from showattend.boxes import load_boxes
from showattend.captioner import Captioner
from showattend.checkpoint import Checkpoint, load_checkpoint
from showattend.config import REGIONS, Settings, checked, read_settings
from showattend.corpus import Corpus, ScoreError, make_corpus
from showattend.curves import read_curve
from showattend.datasets import Picture, load_split
from showattend.epochs import is_over
from showattend.evaluate import caption_split
from showattend.grids import LiveGrids, live_grids
from showattend.grounding import attend_phrases, point_at_phrases
from showattend.java_metrics import JavaError, meteor
from showattend.pointing import shares
from showattend.predict import CaptionModel, checkpoint_folder
from showattend.results import read_results, write_results
from showattend.sides import describe_device
from showattend.train import (
    SETTINGS,
    TrainError,
    resolve_pixels,
    resume_run,
    start_run,
    time_epoch,
    train,
)
from showattend.whole_files import write_whole

SPLIT = "val"
RESULTS, MEASURES = "results.json", "measures.json"
#: The groups of phrases whose pointing is measured; see `pointing.shares`.
GROUPS = ("all", "small")
_TIMED, _WARM_UP = 36, 4  # photographs


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hits(_Section):
    """Of every image: how many phrases, and for how many the head word's map has its peak right."""

    hits: list[float]
    phrases: list[float]


class Grounding(_Section):
    """The teacher-forced pointing game, by group; none where phrases have no boxes.

    ``boxes`` is where the boxes came from; null if drawn shapes know their own.
    """

    boxes: Path | None
    groups: dict[str, Hits]


class Measures(_Section):
    """What is known of a trained run besides its captions.

    ``parameters``: the decoder's, and of all before it what is trained. ``milliseconds``: from
    an opened photograph to its caption, the median of ``timed`` photographs on ``hardware``.
    ``epoch_seconds``: of training, without validation (`train.time_epoch`), on the same.
    ``meteor``: times 100.
    """

    parameters: int
    milliseconds: float
    epoch_seconds: float
    timed: int
    hardware: str
    grounding: Grounding
    meteor: float | None = None


def check_runs(jobs: Sequence[Job]) -> None:
    """Refuse runs that are there with other settings than the plan's.

    Raises:
        AblateError: there is one, or one looks at regions; one line.
        ConfigError: a run's settings cannot be read; one line.
    """
    for job in jobs:
        if job.settings.encoder.name == REGIONS:
            raise AblateError(
                f"{job.folder}: encoder.name is regions: a plan times photographs; name CNNs"
            )
        path = job.folder / SETTINGS
        if not path.exists():
            continue
        ours = _of_training(resolve_pixels(job.settings))
        for key, planned, trained in differences(ours, _of_training(read_settings(path))):
            remedy = (
                f"add {key}={trained} to the command"
                if key.startswith("data.")
                else "take the plan back, or remove or rename the run's folder to train it anew"
            )
            raise AblateError(
                f"{path}: {key} is {trained!r}, and {planned!r} in the plan; {remedy}"
            )


def _of_training(settings: Settings) -> Settings:
    """Without the boxes, where nothing of the training depends on them."""
    if settings.loss.attention or settings.train.select_on == "pointing":
        return settings
    return settings.model_copy(update={"data": settings.data.model_copy(update={"boxes": None})})


def run_jobs(
    jobs: Sequence[Job], *, cache: Path, device: torch.device, java: bool = False
) -> list[str]:
    """Train what is not trained, and measure what is not measured, job by job.

    Args:
        cache: where a frozen encoder's grids are kept.
        java: also METEOR.
    Returns:
        a line for each run whose training failed; the others go on without it.
    Raises:
        DataError, EncoderError, CheckpointError, ScoreError, ImageError: a file is missing or
            damaged; one line.
    """
    failures = []
    for number, job in enumerate(jobs, start=1):
        print(f"{job.folder} ({number} of {len(jobs)})", flush=True)
        try:
            train_job(job, cache=cache, device=device)
        except TrainError as error:
            failures.append(f"{job.folder}: {str(error).removeprefix(f'{job.folder}: ')}")
            print(failures[-1], flush=True)
        else:
            measure(job, cache=cache, device=device, java=java)
    return failures


def train_job(job: Job, *, cache: Path, device: torch.device) -> None:
    """Train a run to its end, from where it stopped; a finished one stays as it is."""
    if is_trained(job):
        return
    if (job.folder / SETTINGS).exists():
        train(resume_run(job.folder, cache=cache, device=device))
    else:
        train(start_run(job.folder, job.settings, cache=cache, device=device))


def is_trained(job: Job) -> bool:
    """Whether the run's training has come to its end."""
    return is_over(job.settings.train, read_curve(job.folder))


def is_measured(job: Job) -> bool:
    """Whether the run has all that the table needs."""
    return is_trained(job) and all((job.folder / name).exists() for name in (RESULTS, MEASURES))


# --- measures -------------------------------------------------------------------------------------


def measure(job: Job, *, cache: Path, device: torch.device, java: bool = False) -> None:
    """Write a trained run's captions and measures; what is there already is not done again.

    Without Java a line says that METEOR is not computed.

    Raises:
        As `run_jobs`.
    """
    measures = read_measures(job)
    whole = measures is not None and (job.folder / RESULTS).exists()
    if measures is None or not whole or not _is_of_boxes(measures.grounding, job):
        measures = _measure_model(job, measures, cache, device)
        write_measures(job, measures)
    if java and measures.meteor is None:
        corpus = read_corpus(job, load_split(job.settings.data, SPLIT))
        try:
            score, _ = meteor(corpus)
        except JavaError as error:
            print(f"not computed: {error}", flush=True)
        else:
            write_measures(job, measures.model_copy(update={"meteor": 100.0 * score}))


def read_measures(job: Job) -> Measures | None:
    """A run's measures.json; None where there is none yet.

    Raises:
        AblateError, ConfigError: it is damaged; one line.
    """
    path = job.folder / MEASURES
    if not path.exists():
        return None
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise AblateError(f"{path}: is not JSON; remove it to have it measured anew") from None
    return checked(Measures, tree, str(path))


def write_measures(job: Job, measures: Measures) -> None:
    """A run's measures.json, whole or not at all."""
    write_whole(job.folder / MEASURES, measures.model_dump_json(indent=1) + "\n")


def pointing_of(measures: Measures, job: Job) -> Mapping[str, Hits]:
    """The pointing game by group; none if it was played with other boxes than the plan names."""
    return measures.grounding.groups if _is_of_boxes(measures.grounding, job) else {}


def read_corpus(job: Job, pictures: Sequence[Picture]) -> Corpus:
    """A run's captions beside what people said of the same images of the split's.

    Raises:
        ScoreError: results.json is damaged, or of other images; one line.
    """
    path = job.folder / RESULTS
    texts = read_results(path)
    said = {picture.image_id: picture.captions for picture in pictures}
    try:
        # With data.corrupt=skip a picture of the split may have no caption.
        return make_corpus(texts, {image: said[image] for image in texts if image in said})
    except ScoreError as error:
        raise ScoreError(f"{path}: {error}; remove it to have the split captioned anew") from None


def _is_of_boxes(grounding: Grounding, job: Job) -> bool:
    return grounding.boxes == job.settings.data.boxes


def _measure_model(job: Job, known: Measures | None, cache: Path, device: torch.device) -> Measures:
    """Caption the split if that is not done, and measure what is not known."""
    data = job.settings.data
    checkpoint = load_checkpoint(checkpoint_folder(job.folder), device)
    pictures = load_split(data, SPLIT)
    grids = live_grids(checkpoint.captioner, checkpoint.pixels, pictures, data.corrupt)
    if not (job.folder / RESULTS).exists():
        model = (checkpoint.captioner, checkpoint.vocabulary)
        captions = caption_split(*model, grids, checkpoint.search)
        write_results(
            job.folder / RESULTS, {image: caption.text for image, caption in captions.items()}
        )
    if known is not None and _is_of_boxes(known.grounding, job):
        return known
    grounding = _point(job, checkpoint, grids)
    if known is not None:
        return known.model_copy(update={"grounding": grounding})
    return Measures(
        parameters=count_parameters(checkpoint.captioner),
        grounding=grounding,
        **_times(job, checkpoint, cache, device),
    )


def retime(job: Job, *, cache: Path, device: torch.device) -> None:
    """Take a measured run's times anew, say on an idle machine."""
    measures = read_measures(job)
    assert measures is not None  # it is measured
    checkpoint = load_checkpoint(checkpoint_folder(job.folder), device)
    times = _times(job, checkpoint, cache, device)
    write_measures(job, measures.model_copy(update=times))


def _times(job: Job, checkpoint: Checkpoint, cache: Path, device: torch.device) -> dict[str, Any]:
    """The measures that depend on the hardware, by their names in `Measures`."""
    milliseconds = list(_time_each(checkpoint, load_split(job.settings.data, SPLIT)))
    with tempfile.TemporaryDirectory() as folder:
        run = start_run(Path(folder) / "run", job.settings, cache=cache, device=device)
        seconds = time_epoch(run)
    return {
        "milliseconds": median(milliseconds),
        "timed": len(milliseconds),
        "epoch_seconds": seconds,
        "hardware": describe_device(device),
    }


def count_parameters(captioner: Captioner) -> int:
    """How many numbers training sets: the decoder's, and whatever is trained before it.

    The output layer's tied matrix counts once.
    """
    return sum(each.numel() for each in captioner.parameters() if each.requires_grad)


def _time_each(checkpoint: Checkpoint, pictures: Sequence[Picture]) -> Iterator[float]:
    """Milliseconds from an opened photograph to its caption, one by one, the model warm."""
    model = CaptionModel(checkpoint, "timed")
    photographs = [picture.open() for picture in pictures[:_TIMED]]
    for photograph in photographs[:_WARM_UP]:
        model.caption(photograph)
    for photograph in photographs:
        began = time.perf_counter()
        model.caption(photograph)
        yield 1000.0 * (time.perf_counter() - began)


def _point(job: Job, checkpoint: Checkpoint, grids: LiveGrids) -> Grounding:
    data = job.settings.data
    boxes = load_boxes(data, grids.pictures)
    if not boxes:
        return Grounding(boxes=data.boxes, groups={})
    maps = attend_phrases(checkpoint.captioner, checkpoint.vocabulary, grids, boxes)
    pointed = point_at_phrases(maps, boxes, grids.pictures, checkpoint.pixels.resize)
    found = {group: share for (group, way), share in shares(pointed).items() if way == "head"}
    return Grounding(
        boxes=data.boxes,
        groups={
            group: Hits(
                hits=found[group].numerators_N.tolist(),
                phrases=found[group].denominators_N.tolist(),
            )
            for group in GROUPS
            if group in found
        },
    )
