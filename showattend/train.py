"""The training loop: a run directory in, a run directory out.

A run directory holds settings.yaml (all of them), environment.json (versions, seed, command,
hardware), metrics.jsonl (a line an epoch), tensorboard/, best/ (a checkpoint) and last/ (a
checkpoint with the optimizer's state, from which the run resumes exactly, also within an epoch).

Several processes train as one (`showattend.ranks`): each reads the same files and makes the same
updates; the main one alone writes.
"""

import json
import math
import platform
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch
import yaml
from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from showattend.batches import Batch, CaptionBatches
from showattend.boxes import Grounded, load_boxes
from showattend.captioner import Captioner, build_captioner
from showattend.checkpoint import (
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    replaced_folder,
    save_checkpoint,
    whole_folder,
    write_checkpoint,
)
from showattend.cider_reward import CiderReward
from showattend.config import (
    OF_ANY_WEIGHTS,
    REGIONS,
    Settings,
    TrainSettings,
    check_settings,
    read_settings,
)
from showattend.corpus import make_corpus
from showattend.datasets import ImageId, Picture, load_split
from showattend.encoder import normalisation
from showattend.epochs import best_epoch, is_over
from showattend.evaluate import caption_split, pointing_rate, score_split
from showattend.grids import AnyGrids, cache_grids, live_grids
from showattend.grounding import attend_phrases, seen_part
from showattend.java_metrics import meteor
from showattend.lesson import Lesson, Part, boxed_words, cut
from showattend.preemption import Preempted, Preemption
from showattend.ranks import Ranks
from showattend.regions import open_regions
from showattend.reinforce import MovingAverage
from showattend.search import Caption, WeightsError
from showattend.supervision import on_square
from showattend.vocabulary import SPECIALS, Vocabulary, mirror_words
from showattend.whole_files import write_whole

SETTINGS, METRICS, BEST, LAST = "settings.yaml", "metrics.jsonl", "best", "last"
_STATE, _AVERAGE, _HISTORY = "training.safetensors", "average.safetensors", "training.json"
_REWARDS, _PROGRESS = "rewards.safetensors", "progress.json"
_ENVIRONMENT, _BOARD, _LOCK = "environment.json", "tensorboard", ".lock"


#: What reading a file that is not what a run wrote may raise.
_DAMAGE = (OSError, ValueError, KeyError, TypeError, RecursionError, SafetensorError)


_DIVERGED = "the loss is not finite; lower train.learning_rate"


class TrainError(ValueError):
    """A run cannot be started or resumed: one clear line."""


@dataclass
class Progress:
    """How far an epoch is: its steps that are done, and sums over their words."""

    epoch: int
    step: int = 0
    words: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class Run:
    """A training under way."""

    folder: Path
    settings: Settings
    captioner: Captioner
    vocabulary: Vocabulary
    train: AnyGrids
    val: AnyGrids
    val_boxes: dict[ImageId, list[Grounded]]  # where "pointing" chooses the checkpoint
    batches: CaptionBatches
    optimizer: torch.optim.Optimizer
    average: AveragedModel | None
    judged: Captioner  # validated and kept: the average's, where there is one
    rewards: MovingAverage  # hard attention's baseline
    ranks: Ranks
    lesson: Lesson
    together: torch.nn.Module  # the lesson, with all processes' gradients once they have joined
    history: list[dict[str, Any]] = field(default_factory=list)
    progress: Progress = field(default_factory=lambda: Progress(1))
    preemption: Preemption = field(default_factory=Preemption)

    @property
    def select_on(self) -> str:
        return self.settings.train.select_on

    def best_epoch(self) -> int | None:
        """As `epochs.best_epoch`; None before the first."""
        best = best_epoch(self.history, self.select_on)
        return None if best is None else int(best["epoch"])


def start_run(
    folder: Path,
    settings: Settings,
    *,
    cache: Path,
    device: torch.device,
    init: Path | None = None,
    ranks: Ranks | None = None,
) -> Run:
    """Prepare a new run in an empty or absent folder, or in one whose run ended before it had
    anything to go on from.

    Args:
        init: a checkpoint to go on from; its encoder, decoder and pixels take the place of the
            settings' own, and its vocabulary is kept and grown. Channel attention is added to
            one that has none.
        ranks: the processes that train together, each of which calls this; None is one alone.
    Raises:
        TrainError, DataError, EncoderError, CheckpointError: one line.
    """
    ranks = ranks or Ranks(device)
    _refuse_others_files(folder, ranks)
    ranks.wait()  # all have looked before the main process writes
    train_pictures = load_split(settings.data, "train")
    captions = (said for picture in train_pictures for said in picture.captions)
    vocabulary = Vocabulary.count(captions, settings.data.min_count)
    if len(vocabulary) == len(SPECIALS):
        raise TrainError(
            f"data.min_count: no word is in {settings.data.min_count} training captions; lower it"
        )
    torch.manual_seed(settings.train.seed)
    if init is not None:
        settings, captioner, vocabulary = _init_from(init, settings, vocabulary)
    else:
        settings = resolve_pixels(settings)
        captioner = build_captioner(
            settings.encoder, settings.decoder, size=settings.pixels.size, words=len(vocabulary)
        )
    run = _prepare(folder, settings, captioner.to(device), vocabulary, train_pictures, cache, ranks)
    if ranks.main:
        _write_start(run, cache)
    return run


def _refuse_others_files(folder: Path, ranks: Ranks) -> None:
    if (folder / SETTINGS).exists():
        if _has_trained(folder):
            raise TrainError(
                f"{folder}: holds a run already; --resume {folder}, or name another --run"
            )
        if ranks.main:
            with _only_trainer(folder):  # it may be in its first steps just now
                pass
    elif folder.exists() and not all(map(_is_of_a_start, folder.iterdir())):
        raise TrainError(f"{folder}: holds other files; name a new or an empty folder by --run")
    elif whole_folder(folder / LAST).exists() and _has_trained(folder):
        raise TrainError(
            f"{folder}: holds a trained {LAST}/, but no {SETTINGS} any more; put that back, or go "
            f"on from it with --init {folder / LAST} and another --run"
        )


def _is_of_a_start(path: Path) -> bool:
    """Whether a file is what a run leaves that was killed before it was whole."""
    if path.name == METRICS:
        return path.stat().st_size == 0
    known = (LAST, _ENVIRONMENT, _BOARD, _LOCK)
    return path.name in known or path.name.startswith(f".{LAST}.")


def _has_trained(folder: Path) -> bool:
    """Whether a run has anything that starting anew would lose; one that cannot be read may."""
    last = whole_folder(folder / LAST)
    try:
        history = json.loads((last / _HISTORY).read_text(encoding="utf-8"))
        progress = json.loads((last / _PROGRESS).read_text(encoding="utf-8"))
        step = progress["step"]
    except _DAMAGE:
        return True
    return bool(history or step or whole_folder(folder / BEST).exists())


def _write_start(run: Run, cache: Path) -> None:
    run.folder.mkdir(parents=True, exist_ok=True)
    (run.folder / SETTINGS).unlink(missing_ok=True)
    _save_last(run)
    environment = json.dumps(_environment(run, cache), indent=1)
    write_whole(run.folder / _ENVIRONMENT, environment)
    # Written last: where it is, there is a run, and it can be resumed.
    tree = run.settings.model_dump(mode="json")
    write_whole(run.folder / SETTINGS, yaml.safe_dump(tree, sort_keys=False))


def resume_run(
    folder: Path, *, cache: Path, device: torch.device, ranks: Ranks | None = None
) -> Run:
    """Take a run up where it was last saved; the result equals an uninterrupted run's, if as many
    processes train it.

    Args:
        ranks: as of :func:`start_run`.
    Raises:
        TrainError, DataError, CheckpointError: one line.
    """
    if not (folder / SETTINGS).is_file():
        raise TrainError(f"{folder}: no {SETTINGS}, so there is no run to resume")
    settings = read_settings(folder / SETTINGS)
    try:
        checkpoint = load_checkpoint(folder / LAST, device)
    except CheckpointError as error:
        raise _beyond_resuming(folder, error) from None
    for section in ("pixels", "encoder", "decoder"):
        if getattr(settings, section) != getattr(checkpoint, section):
            raise TrainError(
                f"{folder / SETTINGS}: {section} is not that of {folder / LAST}; take back what "
                "was edited"
            )
    pictures = load_split(settings.data, "train")
    model = (checkpoint.captioner, checkpoint.vocabulary)
    run = _prepare(folder, settings, *model, pictures, cache, ranks or Ranks(device))
    _restore(run)
    return run


def _beyond_resuming(folder: Path, error: Exception) -> CheckpointError:
    """What is wrong with last/, and what to do about it."""
    try:
        load_checkpoint(folder / BEST)
    except CheckpointError:
        return CheckpointError(f"{error}; {folder} cannot be resumed; start another run")
    return CheckpointError(
        f"{error}; {folder} cannot be resumed, but its {BEST}/ is whole: start another run with "
        f"--init {folder / BEST}"
    )


def remembered_cache(folder: Path) -> Path | None:
    """The cache of grids with which a run was started; None where that is not known."""
    try:
        named = json.loads((folder / _ENVIRONMENT).read_text(encoding="utf-8")).get("cache")
    except (*_DAMAGE, AttributeError):
        return None
    return Path(named) if isinstance(named, str) else None


def train(run: Run) -> None:
    """Train until the last epoch, or until the score has not risen for ``patience`` epochs.

    Raises:
        TrainError: one line.
        Preempted: SIGTERM or Ctrl-C has asked for an end; all that was learnt is saved, and a line
            says so.
    """
    settings, main = run.settings.train, run.ranks.main
    if is_over(settings, run.history):
        _say(run, f"{run.folder}: is finished; nothing to resume")
        return
    with ExitStack() as stack:
        if main:
            stack.enter_context(_only_trainer(run.folder))
            board = stack.enter_context(SummaryWriter(str(run.folder / _BOARD)))
        stack.enter_context(run.preemption.heeded())
        _join(run)
        for epoch in range(len(run.history) + 1, settings.epochs + 1):
            line = train_epoch(run, epoch)
            line |= _validate(run)
            run.history.append(line)
            run.progress = Progress(epoch + 1)
            if main:
                _save(run)
                _log(board, line)
            _say(run, _summary(line))
            if is_over(settings, run.history):
                break
    if len(run.history) < settings.epochs:
        _say(run, f"stopped: {settings.patience} epochs without a better score (train.patience)")
    best = run.history[(run.best_epoch() or 1) - 1]
    _say(run, f"best: {_summary(best)} -> {run.folder / BEST}")


def _say(run: Run, text: str) -> None:
    if run.ranks.main:
        print(text, flush=True)


@contextmanager
def _only_trainer(folder: Path) -> Iterator[None]:
    """Two trainings of one run would write over each other; a killed one's lock ends with it."""
    try:
        with FileLock(folder / _LOCK, timeout=0):
            yield
    except Timeout:
        raise TrainError(f"{folder}: another training is using it; wait for its end") from None


def _join(run: Run) -> None:
    """Bring the processes' gradients together.

    DistributedDataParallel rearranges them after its first backward pass, and sums of three or more
    numbers have other bits in another arrangement. A first pass that counts for nothing makes the
    first step after a resume like that of an uninterrupted run.
    """
    if run.ranks.count == 1:
        return
    run.together = run.ranks.together(run.lesson)
    run.together.eval()  # the statistics of a batch normalisation stay
    _reseed(run, 0, 0)
    first = _own_parts(run, next(run.batches.epoch(1)))[0]
    torch.autograd.backward(run.together(first.uncounted(), 0.0, 0.0)["total"])
    run.optimizer.zero_grad(set_to_none=True)


def train_epoch(run: Run, epoch: int) -> dict[str, Any]:
    """An epoch, or what is left of it.

    Raises:
        Preempted: as :func:`train`.
    """
    settings, steps = run.settings.train, len(run.batches)
    if run.progress.epoch != epoch:
        run.progress = Progress(epoch)
    progress = run.progress
    _set_mode(run)
    began = time.monotonic() - progress.seconds
    saved = time.monotonic()
    with tqdm(
        total=steps,
        initial=progress.step,
        desc=f"epoch {epoch}/{settings.epochs}",
        unit="batch",
        disable=None,
    ) as bar:
        for batch in islice(run.batches.epoch(epoch), progress.step, None):
            done = ((epoch - 1) * steps + progress.step) / (settings.epochs * steps)
            _reseed(run, epoch, progress.step)
            _set_learning_rate(run, done)
            parts, count = _train_step(run, batch, epoch, done)
            progress.step += 1
            progress.words += count
            for name, part in parts.items():
                progress.sums[name] = progress.sums.get(name, 0.0) + part * count
            progress.seconds = time.monotonic() - began
            bar.set_postfix(loss=f"{progress.sums['loss'] / progress.words:.3f}", refresh=False)
            bar.update()
            if _agreed(run, run.preemption.asked):
                _leave(run)
            if _agreed(run, _is_due(settings, saved)):
                _save_progress(run)
                saved = time.monotonic()
    seconds = progress.seconds
    return {
        "epoch": epoch,
        **{name: total / progress.words for name, total in progress.sums.items()},
        "seconds": round(seconds, 1),
        "captions per second": round(run.batches.captions() / seconds, 1),
    }


def _set_mode(run: Run) -> None:
    """Of a reward, captions are drawn without dropout, and told as they were drawn."""
    run.together.train(run.settings.reward is None)


def _reseed(run: Run, epoch: int, step: int) -> None:
    """Dropout and samples: others at each step and on each process, the same when resumed."""
    words = [run.settings.train.seed, epoch, step, run.ranks.rank]
    torch.manual_seed(int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]))


def _agreed(run: Run, asked: bool) -> bool:
    """Whether any of the processes asks."""
    return bool(run.ranks.total(torch.tensor([float(asked)])) > 0)


def _is_due(settings: TrainSettings, saved: float) -> bool:
    minutes = settings.save_minutes
    return minutes is not None and time.monotonic() - saved > 60 * minutes


def _save_progress(run: Run) -> None:
    if run.ranks.main:
        _save_last(run)


def _leave(run: Run) -> NoReturn:
    """Save, and end because somebody has asked for it."""
    _save_progress(run)
    run.ranks.wait()
    done = f"epoch {run.progress.epoch}, step {run.progress.step} of {len(run.batches)}"
    by = signal.Signals(run.preemption.by)
    _say(run, f"stopped by {by.name} at {done}; go on with --resume {run.folder}")
    raise Preempted(by)


def time_epoch(run: Run, sampled: int = 12) -> float:
    """Seconds that an epoch takes, told from a sample of its batches; trains the run by them.

    Without validation, as in the middle of the training, and with whatever else the machine does.
    """
    batches = list(run.batches.epoch(1))
    every = max(1, len(batches) // sampled)
    sample = batches[::every]
    _set_mode(run)
    _train_step(run, sample[0], 1, 0.5)  # the first one waits for memory
    began = time.monotonic()
    for batch in sample:
        _train_step(run, batch, 1, 0.5)
    return (time.monotonic() - began) * len(batches) / len(sample)


def _train_step(
    run: Run, batch: Batch, epoch: int, progress: float
) -> tuple[dict[str, float], int]:
    """One update; returns the parts of the loss, unweighted, and how many words it saw."""
    settings, ranks = run.settings.train, run.ranks
    sampling = settings.scheduled_sampling * (epoch - 1) / max(settings.epochs - 1, 1)
    run.optimizer.zero_grad(set_to_none=True)
    own = _own_parts(run, batch)
    found = []
    for number, part in enumerate(own, start=1):
        # Only the last backward pass brings the gradients together.
        with nullcontext() if number == len(own) else ranks.apart(run.together):
            losses = run.together(part, sampling, progress)
            # The processes' gradients are averaged, and their parts are to be summed.
            torch.autograd.backward(losses["total"] * ranks.count)
        found.append(torch.stack([value.detach() for value in losses.values()]))
    parameters = (p for group in run.optimizer.param_groups for p in group["params"])
    torch.nn.utils.clip_grad_norm_(parameters, settings.clip_norm)
    parts = dict(zip(losses, ranks.total(torch.stack(found).sum(dim=0)).tolist(), strict=True))
    if not math.isfinite(parts.pop("total")):
        raise TrainError(_DIVERGED)
    run.optimizer.step()
    _after_update(run)
    return parts, batch.words()


def _after_update(run: Run) -> None:
    """What moves along with the weights, alike in every process."""
    encoder = run.captioner.encoder
    if encoder is not None and encoder.trainable:  # its normalisations' statistics
        run.ranks.align(list(encoder.buffers()))
    if run.average is not None:
        run.average.update_parameters(run.captioner)
    if run.settings.decoder.look == "hard":
        run.rewards.take_in(run.ranks.total)


def _own_parts(run: Run, batch: Batch) -> list[Part]:
    """What this process tells of a batch."""
    count = run.ranks.count * run.settings.train.accumulate
    parts = cut(batch, range(run.ranks.rank, count, run.ranks.count), count)
    if not run.settings.loss.attention:
        return parts
    parts = [run.lesson.with_wanted(part) for part in parts]
    boxed = [boxed_words(part) for part in parts]
    of_all = max(run.ranks.total(torch.tensor([sum(boxed)])).item(), 1)
    return [replace(part, boxed=own / of_all) for part, own in zip(parts, boxed, strict=True)]


def _validate(run: Run) -> dict[str, float]:
    """The scores of the validation split, which the processes caption together."""
    began = time.monotonic()
    _reseed(run, run.progress.epoch, len(run.batches))  # a search may draw where to look
    found = [own for own in run.ranks.gather(_judge_own(run)) if own is not None]
    if len(found) < run.ranks.count:
        _leave(run)
    scores = run.ranks.tell(_scores(run, found) if run.ranks.main else {})
    rounded = {name: round(score, 4) for name, score in scores.items()}
    return rounded | {"validation seconds": round(time.monotonic() - began, 1)}


#: Captions, and, where "pointing" chooses the checkpoint, people's sentences with their maps.
_Judged = tuple[dict[ImageId, Caption], dict[ImageId, list[np.ndarray]]]


def _judge_own(run: Run) -> _Judged | None:
    """This process's part of the validation split; None where it was asked to leave."""
    model, ranks = (run.judged, run.vocabulary, run.val), run.ranks
    own = (picture.image_id for picture in run.val.pictures[ranks.rank :: ranks.count])
    boxes = {image_id: run.val_boxes[image_id] for image_id in own if image_id in run.val_boxes}
    count = run.settings.train.val_images
    try:
        with run.preemption.at_once():
            captions = caption_split(
                *model, run.settings.search, count=count, part=ranks.rank, parts=ranks.count
            )
            return captions, attend_phrases(*model, boxes) if boxes else {}
    except Preempted:
        return None
    except WeightsError:
        raise TrainError(_DIVERGED) from None


def _scores(run: Run, found: Sequence[_Judged]) -> dict[str, float]:
    """From what all processes have; of those that take long only what chooses the checkpoint."""
    pictures, select_on = run.val.pictures, run.select_on
    told = {image_id: caption for own, _ in found for image_id, caption in own.items()}
    ids = [picture.image_id for picture in pictures if picture.image_id in told]
    captions = {image_id: told[image_id] for image_id in ids}
    scores = score_split(captions, pictures)
    if select_on == "pointing":
        maps = {image_id: said for _, own in found for image_id, said in own.items()}
        resize = run.settings.pixels.resize
        scores["pointing"] = pointing_rate(maps, run.val_boxes, pictures, resize)
    if select_on == "METEOR":
        texts = {image_id: caption.text for image_id, caption in captions.items()}
        said = {picture.image_id: picture.captions for picture in pictures}
        corpus = make_corpus(texts, {image_id: said[image_id] for image_id in texts})
        scores["METEOR"] = 100.0 * meteor(corpus)[0]
    return scores


def _prepare(
    folder: Path,
    settings: Settings,
    captioner: Captioner,
    vocabulary: Vocabulary,
    train_pictures: list[Picture],
    cache: Path,
    ranks: Ranks,
) -> Run:
    parts = settings.train.accumulate * ranks.count
    if settings.train.batch_images < parts:
        raise TrainError(
            f"train.batch_images is {settings.train.batch_images}: cannot be cut into {parts} "
            f"parts, {settings.train.accumulate} (train.accumulate) for each of {ranks.count} "
            "processes; raise it"
        )
    val_pictures = load_split(settings.data, "val")
    views = (settings.train.flips, settings.train.smallest_crop)
    train_grids = _grids(settings, captioner, train_pictures, cache, ranks, *views)
    average = _average(captioner, settings.train.average)
    judged = captioner if average is None else cast(Captioner, average.module)
    val_grids = _grids(settings, judged, val_pictures, cache, ranks)
    batches = CaptionBatches(
        train_grids.pictures,
        vocabulary,
        batch_images=settings.train.batch_images,
        captions_per_image=settings.train.captions_per_image,
        max_words=settings.train.max_words,
        flips=settings.train.flips,
        seed=settings.train.seed,
        grounded=_grounded(settings, train_grids.pictures) if settings.loss.attention else None,
    )
    rewards = MovingAverage(settings.train.max_words + 1)
    cider = _cider(settings, train_grids.pictures, vocabulary)
    lesson = Lesson(captioner, train_grids, settings, rewards, cider)
    return Run(
        folder,
        settings,
        captioner,
        vocabulary,
        train_grids,
        val_grids,
        _val_boxes(settings, val_grids.pictures),
        batches,
        optimizer=_optimizer(captioner, settings),
        average=average,
        judged=judged,
        rewards=rewards,
        ranks=ranks,
        lesson=lesson,
        together=lesson,
    )


def _val_boxes(settings: Settings, pictures: list[Picture]) -> dict[ImageId, list[Grounded]]:
    if settings.train.select_on != "pointing":
        return {}
    return load_boxes(settings.data, pictures[: settings.train.val_images])


def _cider(
    settings: Settings, pictures: list[Picture], vocabulary: Vocabulary
) -> CiderReward | None:
    """The reward's CIDEr-D, of all pictures and of their mirror images."""
    if settings.reward is None:
        return None
    said = [picture.captions for picture in pictures]
    mirrored = [tuple(map(mirror_words, captions)) for captions in said]
    return CiderReward([*said, *mirrored], vocabulary, end_mark=settings.reward.end_mark)


def _grounded(settings: Settings, pictures: list[Picture]) -> dict[ImageId, list[Grounded]]:
    """Captions with the boxes of their phrases, as fractions of the model's square."""
    boxes = load_boxes(settings.data, pictures)
    grounded = {}
    for picture in pictures:
        seen = seen_part(picture, settings.pixels.resize)  # may open the photograph
        captions = boxes.get(picture.image_id, ())
        grounded[picture.image_id] = [on_square(caption, seen) for caption in captions]
    return grounded


def _grids(
    settings: Settings,
    captioner: Captioner,
    pictures: list[Picture],
    cache: Path,
    ranks: Ranks,
    flips: bool = False,
    smallest_crop: float = 1.0,
) -> AnyGrids:
    if captioner.encoder is None:
        assert settings.data.regions is not None  # the settings' own check
        return open_regions(settings.data.regions, captioner.shape.channels, pictures)
    if settings.data.regions is not None:
        raise TrainError(
            f"data.regions: encoder.name is {settings.encoder.name}, a CNN, which makes its own "
            "grid; set encoder.name=regions, or leave it out"
        )
    if captioner.encoder.trainable or smallest_crop < 1:  # never twice the same
        corrupt = settings.data.corrupt
        return live_grids(captioner, settings.pixels, pictures, corrupt, smallest_crop)
    return cache_grids(
        captioner,
        settings.pixels,
        pictures,
        cache,
        flips=flips,
        corrupt=settings.data.corrupt,
        part=ranks.rank,
        parts=ranks.count,
    )


def _optimizer(captioner: Captioner, settings: Settings) -> torch.optim.Optimizer:
    """AdamW; biases and norms are not decayed, the CNN's own stages have their own rate."""
    cnn = [] if captioner.encoder is None else list(captioner.encoder.network.parameters())
    own = set(map(id, cnn))
    new = [p for p in captioner.parameters() if id(p) not in own]  # channel attention and decoder
    groups = []
    for trained, rate in (
        (cnn, settings.train.encoder_learning_rate),
        (new, settings.train.learning_rate),
    ):
        for decays in (True, False):
            parameters = [p for p in trained if p.requires_grad and (p.ndim > 1) == decays]
            decay = settings.train.weight_decay if decays else 0.0
            if parameters:
                groups.append(
                    {"params": parameters, "weight_decay": decay, "lr": rate, "peak": rate}
                )
    return torch.optim.AdamW(groups, betas=(0.9, 0.98), fused=True)


def _average(captioner: Captioner, decay: float) -> AveragedModel | None:
    """A moving average of the weights over updates (Polyak and Juditsky 1992), or None."""
    if decay == 0:
        return None
    moving = get_ema_multi_avg_fn(decay)
    return AveragedModel(captioner, multi_avg_fn=moving)


def _set_learning_rate(run: Run, progress: float) -> None:
    """Linear warm-up, then a cosine to zero; ``progress`` runs from 0 to 1 over the run."""
    warmup = run.settings.train.warmup
    if progress < warmup:
        factor = (progress + 1e-3) / (warmup + 1e-3)
    else:
        factor = 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))
    for group in run.optimizer.param_groups:
        group["lr"] = group["peak"] * factor


def resolve_pixels(settings: Settings) -> Settings:
    """Fill in the encoder's own normalisation, so that settings.yaml and checkpoints state it."""
    if settings.encoder.name == REGIONS:
        return settings
    mean, std = normalisation(settings.encoder.name)
    pixels = settings.pixels.model_copy(
        update={"mean": settings.pixels.mean or mean, "std": settings.pixels.std or std}
    )
    return settings.model_copy(update={"pixels": pixels})


def _init_from(
    folder: Path, settings: Settings, vocabulary: Vocabulary
) -> tuple[Settings, Captioner, Vocabulary]:
    """A checkpoint's model with rows for the new words; what is trained of it stays a setting."""
    checkpoint = load_checkpoint(folder)
    # Channel attention starts as the identity, so it may be put into a model that has none.
    encoder = checkpoint.encoder.model_copy(
        update={
            "trainable_stages": settings.encoder.trainable_stages,
            "batch_statistics": settings.encoder.batch_statistics,
            "channel_attention": checkpoint.encoder.channel_attention
            or settings.encoder.channel_attention,
        }
    )
    # Soft and hard attention have the same weights, and dropout has none.
    changed = {key: getattr(settings.decoder, key) for key in OF_ANY_WEIGHTS}
    decoder = checkpoint.decoder.model_copy(update=changed)
    known = checkpoint.vocabulary
    grown = known.grown(vocabulary)
    captioner = build_captioner(
        encoder,
        decoder,
        size=checkpoint.pixels.size,
        words=len(grown),
        pretrained=False,
    )
    target = captioner.state_dict()
    with torch.no_grad():
        for name, value in checkpoint.captioner.state_dict().items():
            # Tensors that have a row for each word grow at their end; all others fit exactly.
            target[name][: len(value)].copy_(value) if value.ndim else target[name].copy_(value)
    settings = settings.model_copy(
        update={"encoder": encoder, "decoder": decoder, "pixels": checkpoint.pixels}
    )
    # What fits the settings' own model may not fit the checkpoint's.
    settings = check_settings(settings.model_dump(), f"--init {folder}")
    return settings, captioner, grown


def _checkpoint(run: Run, captioner: Captioner) -> Checkpoint:
    settings = run.settings
    origin = {"run": run.folder.name, "data": settings.data.kind, "seed": settings.train.seed}
    return Checkpoint(
        captioner,
        run.vocabulary,
        settings.pixels,
        settings.encoder,
        settings.decoder,
        settings.search,
        origin | (run.history[-1] if run.history else {}),
    )


def _save(run: Run) -> None:
    """best/ first, then last/: a kill in between makes the resumed run write best/ once more."""
    if run.best_epoch() == run.history[-1]["epoch"]:
        with _needing_room(run.folder / BEST):
            save_checkpoint(run.folder / BEST, _checkpoint(run, run.judged))
    _save_last(run)


@contextmanager
def _needing_room(folder: Path) -> Iterator[None]:
    """A disk that is full in hour 20 should cost nobody the 19 before."""
    try:
        yield
    except OSError as error:
        raise TrainError(
            f"{folder}: cannot be written ({error.strerror or error}); what was there before is "
            f"kept; make room, then go on with --resume {folder.parent}"
        ) from None


def _save_last(run: Run) -> None:
    with _needing_room(run.folder / LAST), replaced_folder(run.folder / LAST) as folder:
        write_checkpoint(folder, _checkpoint(run, run.captioner))
        (folder / _STATE).write_bytes(save(_stored(_optimizer_tensors(run.optimizer))))
        if run.average is not None:
            (folder / _AVERAGE).write_bytes(save(_stored(_average_tensors(run.average))))
        (folder / _REWARDS).write_bytes(save({"mean": run.rewards.mean_T1}))
        (folder / _HISTORY).write_text(json.dumps(run.history), encoding="utf-8")
        (folder / _PROGRESS).write_text(json.dumps(asdict(run.progress)), encoding="utf-8")
    _write_metrics(run)


def _restore(run: Run) -> None:
    folder = whole_folder(run.folder / LAST)
    state: dict[int, dict[str, torch.Tensor]] = {}
    with _named(run, folder / _STATE) as path:
        for name, value in load_file(path).items():
            index, key = name.split(".")
            state.setdefault(int(index), {})[key] = value
    if run.average is not None:
        with _named(run, folder / _AVERAGE) as path:
            averaged = load_file(path)
            for name, value in _average_tensors(run.average).items():
                value.copy_(averaged[name])
    with _named(run, folder / _REWARDS) as path:
        mean_T1 = load_file(path)["mean"]
    with _named(run, folder / _HISTORY) as path:
        run.history = _checked_history(json.loads(path.read_text(encoding="utf-8")))
    with _named(run, folder / _PROGRESS) as path:
        run.progress = _read_progress(path, len(run.history) + 1, len(run.batches))
    if run.settings.decoder.look == "hard" and mean_T1.shape != run.rewards.mean_T1.shape:
        raise _edited(run, "train.max_words")
    if any(run.select_on not in line for line in run.history):
        raise _edited(run, "train.select_on")
    run.rewards.mean_T1 = mean_T1
    whole = run.optimizer.state_dict()
    run.optimizer.load_state_dict({"state": state, "param_groups": whole["param_groups"]})
    if run.ranks.main:
        _write_metrics(run)


def _edited(run: Run, key: str) -> TrainError:
    return TrainError(
        f"{run.folder / SETTINGS}: {key} is not what the run began with; take back what was edited"
    )


@contextmanager
def _named(run: Run, path: Path) -> Iterator[Path]:
    """A file of last/; what is wrong with it is said with its name."""
    try:
        yield path
    except _DAMAGE as error:
        damage = CheckpointError(f"{path}: is damaged or missing ({error})")
        raise _beyond_resuming(run.folder, damage) from None


def _checked_history(lines: Any) -> list[dict[str, Any]]:
    """The epochs' lines. Raises: ValueError, TypeError, KeyError: they are something else."""
    if not isinstance(lines, list) or [line["epoch"] for line in lines] != [
        *range(1, len(lines) + 1)
    ]:
        raise ValueError("is no list of epochs")
    return lines


def _read_progress(path: Path, epoch: int, steps: int) -> Progress:
    """Of an epoch of so many steps; runs of version 0.1.0 have none within it.

    Raises:
        ValueError, TypeError: it is something else.
    """
    if not path.exists():
        return Progress(epoch)
    progress = Progress(**json.loads(path.read_text(encoding="utf-8")))
    if progress.epoch != epoch or not 0 <= progress.step <= steps:
        raise ValueError(f"step {progress.step} of epoch {progress.epoch} is none of the run's")
    return progress


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {
        f"{index}.{key}": value for index, values in state.items() for key, value in values.items()
    }


def _stored(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value.cpu().contiguous() for name, value in tensors.items()}


def _average_tensors(average: AveragedModel) -> dict[str, torch.Tensor]:
    """What the average has of its own, each tensor once, and the count of updates in it."""
    trained = (p for p in average.module.parameters() if p.requires_grad)
    values = {str(i): p.detach() for i, p in enumerate(trained)}
    return values | {"updates": average.n_averaged}


def _write_metrics(run: Run) -> None:
    lines = "".join(json.dumps(line) + "\n" for line in run.history)
    write_whole(run.folder / METRICS, lines)


def _summary(line: dict[str, Any]) -> str:
    return (
        f"epoch {line['epoch']}: loss {line['loss']:.3f}, val BLEU-4 {line['BLEU-4']:.2f}, "
        f"CIDEr-D {line['CIDEr-D']:.2f}, {line['seconds']:.0f} s"
    )


def _environment(run: Run, cache: Path) -> dict[str, Any]:
    packages = ("showattend", "torch", "torchvision", "timm", "numpy", "pillow", "nltk")
    return {
        "command": " ".join(sys.argv),
        "seed": run.settings.train.seed,
        "cache": str(cache.resolve()),
        "device": str(run.ranks.device),
        "processes": run.ranks.count,
        "threads": torch.get_num_threads(),
        "machine": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in packages},
    }


def _log(board: SummaryWriter, line: dict[str, Any]) -> None:
    for name, value in line.items():
        board.add_scalar(name.replace(" ", "_"), value, line["epoch"])
    board.flush()
