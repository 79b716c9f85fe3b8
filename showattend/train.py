"""The training loop: a run directory in, a run directory out.

A run directory holds settings.yaml (all of them), environment.json (versions, seed, command,
hardware), metrics.jsonl (a line an epoch), tensorboard/, best/ (a checkpoint) and last/ (a
checkpoint with the optimizer's state, from which the run resumes exactly).
"""

import json
import math
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, cast

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
    write_checkpoint,
)
from showattend.config import REGIONS, Settings, check_settings, read_settings
from showattend.corpus import make_corpus
from showattend.datasets import ImageId, Picture, load_split
from showattend.decoder import Scene, Taught
from showattend.encoder import normalisation
from showattend.epochs import best_epoch, is_over
from showattend.evaluate import caption_split, phrase_pointing, score_split
from showattend.grids import AnyGrids, cache_grids, live_grids
from showattend.grounding import seen_part
from showattend.java_metrics import meteor
from showattend.losses import attention_loss, doubly_stochastic_penalty, word_loss
from showattend.regions import open_regions
from showattend.reinforce import MovingAverage, hard_attention_step
from showattend.search import Caption
from showattend.supervision import on_square, wanted_attention
from showattend.vocabulary import SPECIALS, Vocabulary
from showattend.whole_files import write_whole

SETTINGS, METRICS, BEST, LAST = "settings.yaml", "metrics.jsonl", "best", "last"
_STATE, _AVERAGE, _HISTORY = "training.safetensors", "average.safetensors", "training.json"
_REWARDS = "rewards.safetensors"
_ENVIRONMENT = "environment.json"


class TrainError(ValueError):
    """A run cannot be started or resumed: one clear line."""


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
    history: list[dict[str, Any]]

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
) -> Run:
    """Prepare a new run in an empty or absent folder.

    Args:
        init: a checkpoint to go on from; its encoder, decoder and pixels take the place of the
            settings' own, and its vocabulary is kept and grown. Channel attention is added to
            one that has none.
    Raises:
        TrainError, DataError, EncoderError, CheckpointError: one line.
    """
    if (folder / SETTINGS).exists():
        raise TrainError(f"{folder}: holds a run already; --resume {folder}, or name another --run")
    if folder.exists() and any(not _of_a_start(path) for path in folder.iterdir()):
        raise TrainError(f"{folder}: holds other files; name a new or an empty folder by --run")
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
    run = _prepare(folder, settings, captioner.to(device), vocabulary, train_pictures, cache)
    folder.mkdir(parents=True, exist_ok=True)
    _save_last(run)
    write_whole(folder / _ENVIRONMENT, json.dumps(_environment(settings, device), indent=1))
    # Written last: where it is, there is a run, and it can be resumed.
    tree = settings.model_dump(mode="json")
    write_whole(folder / SETTINGS, yaml.safe_dump(tree, sort_keys=False))
    return run


def _of_a_start(path: Path) -> bool:
    """Whether a file is what a run leaves that was killed before it was whole."""
    return path.name in (LAST, _ENVIRONMENT) or path.name.startswith(f".{LAST}.")


def resume_run(folder: Path, *, cache: Path, device: torch.device) -> Run:
    """Take a run up where its last whole epoch ended; the result equals an uninterrupted run's.

    Raises:
        TrainError, DataError, CheckpointError: one line.
    """
    if not (folder / SETTINGS).is_file():
        raise TrainError(f"{folder}: no {SETTINGS}, so there is no run to resume")
    settings = read_settings(folder / SETTINGS)
    checkpoint = load_checkpoint(folder / LAST, device)
    if (settings.encoder, settings.decoder) != (checkpoint.encoder, checkpoint.decoder):
        raise TrainError(
            f"{folder / SETTINGS}: its encoder or decoder is not that of {folder / LAST}; "
            "take back what was edited"
        )
    pictures = load_split(settings.data, "train")
    run = _prepare(folder, settings, checkpoint.captioner, checkpoint.vocabulary, pictures, cache)
    _restore(run)
    return run


def train(run: Run) -> None:
    """Train until the last epoch, or until the score has not risen for ``patience`` epochs."""
    settings = run.settings.train
    if is_over(settings, run.history):
        print(f"{run.folder}: is finished; nothing to resume")
        return
    with _only_trainer(run.folder), SummaryWriter(str(run.folder / "tensorboard")) as board:
        for epoch in range(len(run.history) + 1, settings.epochs + 1):
            line = train_epoch(run, epoch)
            line |= _validate(run)
            run.history.append(line)
            _save(run)
            _log(board, line)
            print(_summary(line), flush=True)
            if is_over(settings, run.history):
                break
    if len(run.history) < settings.epochs:
        print(f"stopped: {settings.patience} epochs without a better score (train.patience)")
    best = run.history[(run.best_epoch() or 1) - 1]
    print(f"best: {_summary(best)} -> {run.folder / BEST}")


@contextmanager
def _only_trainer(folder: Path) -> Iterator[None]:
    """Two trainings of one run would write over each other; a killed one's lock ends with it."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout:
        raise TrainError(f"{folder}: another training is using it; wait for its end") from None


def train_epoch(run: Run, epoch: int) -> dict[str, Any]:
    settings = run.settings.train
    torch.manual_seed(settings.seed * 100_003 + epoch)  # dropout repeats when resumed
    run.captioner.train()
    began, words, sums = time.monotonic(), 0, Counter[str]()
    steps = len(run.batches)
    with tqdm(
        total=steps, desc=f"epoch {epoch}/{settings.epochs}", unit="batch", disable=None
    ) as bar:
        for step, batch in enumerate(run.batches.epoch(epoch)):
            done = (epoch - 1) * steps + step
            _set_learning_rate(run, done / (settings.epochs * steps))
            parts, count = _train_step(run, batch, epoch, done / (settings.epochs * steps))
            words += count
            sums.update({name: part * count for name, part in parts.items()})
            bar.set_postfix(loss=f"{sums['loss'] / words:.3f}", refresh=False)
            bar.update()
    seconds = time.monotonic() - began
    return {
        "epoch": epoch,
        **{name: total / words for name, total in sums.items()},
        "seconds": round(seconds, 1),
        "captions per second": round(run.batches.captions() / seconds, 1),
    }


def time_epoch(run: Run, sampled: int = 12) -> float:
    """Seconds that an epoch takes, told from a sample of its batches; trains the run by them.

    Without validation, as in the middle of the training, and with whatever else the machine does.
    """
    batches = list(run.batches.epoch(1))
    every = max(1, len(batches) // sampled)
    sample = batches[::every]
    run.captioner.train()
    _train_step(run, sample[0], 1, 0.5)  # the first one waits for memory
    began = time.monotonic()
    for batch in sample:
        _train_step(run, batch, 1, 0.5)
    return (time.monotonic() - began) * len(batches) / len(sample)


def _train_step(
    run: Run, batch: Batch, epoch: int, progress: float
) -> tuple[dict[str, float], int]:
    """One update; returns the parts of the loss, unweighted, and how many words it saw."""
    settings, weights, captioner = run.settings.train, run.settings.loss, run.captioner
    device = captioner.device
    with torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
        scene = captioner.look(run.train.read(batch.positions, batch.mirrored).to(device))
        sampling = settings.scheduled_sampling * (epoch - 1) / max(settings.epochs - 1, 1)
        total, loss, taught = _tell(run, scene, batch.words_BKT.to(device), sampling, progress)
    alpha_BKTP = taught.mean_alpha().float()
    penalty = doubly_stochastic_penalty(
        alpha_BKTP, taught.spoken_BKT, weights.doubly_stochastic_target, scene.mask_BP
    )
    parts = {"loss": loss, "penalty": penalty}
    total = total + weights.doubly_stochastic * penalty
    if weights.attention:
        wanted_BKTP = _wanted(run, batch).to(device)
        paths = alpha_BKTP.shape[1] // wanted_BKTP.shape[1]
        wanted_BKTP = wanted_BKTP.repeat_interleave(paths, dim=1)
        parts["attention loss"] = attention_loss(alpha_BKTP, wanted_BKTP)
        total = total + weights.attention * parts["attention loss"]
    run.optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(total)
    parameters = (p for group in run.optimizer.param_groups for p in group["params"])
    torch.nn.utils.clip_grad_norm_(parameters, settings.clip_norm)
    if not math.isfinite(total.item()):
        raise TrainError("the loss is not finite; lower train.learning_rate")
    run.optimizer.step()
    if run.average is not None:
        run.average.update_parameters(captioner)
    return {name: part.item() for name, part in parts.items()}, len(taught.targets_N)


def _tell(
    run: Run, scene: Scene, words_BKT: torch.Tensor, sampling: float, progress: float
) -> tuple[torch.Tensor, torch.Tensor, Taught]:
    """Teacher forcing: what is minimised, the words' loss (soft attention's is both), the rest."""
    settings, smoothing = run.settings, run.settings.loss.label_smoothing
    decoder = run.captioner.decoder
    if settings.decoder.look == "soft":
        taught = decoder.teach(scene, words_BKT, sampling)
        loss = word_loss(taught.logits_NV, taught.targets_N, smoothing)
        return loss, loss, taught
    total, taught = hard_attention_step(
        decoder,
        scene,
        words_BKT,
        settings.hard,
        run.rewards,
        label_smoothing=smoothing,
        sampling=sampling,
        progress=progress,
    )
    with torch.no_grad():
        loss = word_loss(taught.logits_NV, taught.targets_N, smoothing)
    return total, loss, taught


def _wanted(run: Run, batch: Batch) -> torch.Tensor:
    """Where people say that each word's attention should lie, (B, K, T, P)."""
    _, captions, words = batch.words_BKT.shape
    shape = run.captioner.shape
    return wanted_attention(
        batch.phrases, captions=captions, words=words, height=shape.height, width=shape.width
    )


def _validate(run: Run) -> dict[str, float]:
    began = time.monotonic()
    captions = caption_split(
        run.judged,
        run.vocabulary,
        run.val,
        run.settings.search,
        count=run.settings.train.val_images,
    )
    scores = score_split(captions, run.val.pictures) | _chosen_by(run, captions)
    rounded = {name: round(score, 4) for name, score in scores.items()}
    return rounded | {"validation seconds": round(time.monotonic() - began, 1)}


def _chosen_by(run: Run, captions: Mapping[ImageId, Caption]) -> dict[str, float]:
    """A score that is computed only where it chooses the checkpoint, for it takes long."""
    if run.select_on == "pointing":
        model = (run.judged, run.vocabulary)
        resize = run.settings.pixels.resize
        return {"pointing": phrase_pointing(*model, run.val, run.val_boxes, resize)}
    if run.select_on == "METEOR":
        texts = {image_id: caption.text for image_id, caption in captions.items()}
        said = {picture.image_id: picture.captions for picture in run.val.pictures}
        corpus = make_corpus(texts, {image_id: said[image_id] for image_id in texts})
        return {"METEOR": 100.0 * meteor(corpus)[0]}
    return {}


def _prepare(
    folder: Path,
    settings: Settings,
    captioner: Captioner,
    vocabulary: Vocabulary,
    train_pictures: list[Picture],
    cache: Path,
) -> Run:
    val_pictures = load_split(settings.data, "val")
    train_grids = _grids(settings, captioner, train_pictures, cache, settings.train.flips)
    average = _average(captioner, settings.train.average)
    judged = captioner if average is None else cast(Captioner, average.module)
    val_grids = _grids(settings, judged, val_pictures, cache, False)
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
        rewards=MovingAverage(settings.train.max_words + 1),
        history=[],
    )


def _val_boxes(settings: Settings, pictures: list[Picture]) -> dict[ImageId, list[Grounded]]:
    if settings.train.select_on != "pointing":
        return {}
    return load_boxes(settings.data, pictures[: settings.train.val_images])


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
    settings: Settings, captioner: Captioner, pictures: list[Picture], cache: Path, flips: bool
) -> AnyGrids:
    if captioner.encoder is None:
        assert settings.data.regions is not None  # the settings' own check
        return open_regions(settings.data.regions, captioner.shape.channels, pictures)
    if settings.data.regions is not None:
        raise TrainError(
            f"data.regions: encoder.name is {settings.encoder.name}, a CNN, which makes its own "
            "grid; set encoder.name=regions, or leave it out"
        )
    if captioner.encoder.trainable:
        return live_grids(captioner, settings.pixels, pictures, settings.data.corrupt)
    return cache_grids(
        captioner, settings.pixels, pictures, cache, flips=flips, corrupt=settings.data.corrupt
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
            "channel_attention": checkpoint.encoder.channel_attention
            or settings.encoder.channel_attention,
        }
    )
    # Soft and hard attention have the same weights.
    decoder = checkpoint.decoder.model_copy(
        update={"look": settings.decoder.look, "glimpse": settings.decoder.glimpse}
    )
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
        save_checkpoint(run.folder / BEST, _checkpoint(run, run.judged))
    _save_last(run)


def _save_last(run: Run) -> None:
    with replaced_folder(run.folder / LAST) as folder:
        write_checkpoint(folder, _checkpoint(run, run.captioner))
        (folder / _STATE).write_bytes(save(_stored(_optimizer_tensors(run.optimizer))))
        if run.average is not None:
            (folder / _AVERAGE).write_bytes(save(_stored(_average_tensors(run.average))))
        (folder / _REWARDS).write_bytes(save({"mean": run.rewards.mean_T1}))
        (folder / _HISTORY).write_text(json.dumps(run.history), encoding="utf-8")
    _write_metrics(run)


def _restore(run: Run) -> None:
    folder = run.folder / LAST
    try:
        tensors = load_file(folder / _STATE)
        if run.average is not None:
            averaged = load_file(folder / _AVERAGE)
            for name, value in _average_tensors(run.average).items():
                value.copy_(averaged[name])
        run.rewards.mean_T1 = load_file(folder / _REWARDS)["mean"]
        run.history = json.loads((folder / _HISTORY).read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: cannot be resumed from ({error})") from None
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        index, key = name.split(".")
        state.setdefault(int(index), {})[key] = value
    whole = run.optimizer.state_dict()
    run.optimizer.load_state_dict({"state": state, "param_groups": whole["param_groups"]})
    _write_metrics(run)


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


def _environment(settings: Settings, device: torch.device) -> dict[str, Any]:
    packages = ("showattend", "torch", "torchvision", "timm", "numpy", "pillow", "nltk")
    return {
        "command": " ".join(sys.argv),
        "seed": settings.train.seed,
        "device": str(device),
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
