"""The program ``showattend``: arguments in, the package's own functions called.

Whatever needs torch is imported by the command that uses it, so that ``--help`` answers at once.
"""

import argparse
import gc
import io
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import showattend

if TYPE_CHECKING:
    from showattend.config import Attention, DataSettings
    from showattend.corpus import Tokenizer
    from showattend.files import Hear
    from showattend.grids import AnyGrids
    from showattend.predict import CaptionModel
    from showattend.ranks import Ranks
    from showattend.records import RecordForm
    from showattend.regions import RegionsError
    from showattend.scorecard import Scorecard
    from showattend.search import Caption
    from showattend.sides import Source

_PACKAGE = Path(showattend.__file__).parent
#: The shipped configs lie in the package once it is installed, and beside it in a checkout.
_CONFIGS = (_PACKAGE / "configs", _PACKAGE.parent / "configs")
_PLANS = "ablate_"  # beside them, the plans of scripts/ablate.py, which are no configs
#: Names the data of the shipped models, which have no run folder around them.
_SHIPPED_CONFIG = "flickr8k_soft"

DONE, SOME_FAILED, REFUSED = 0, 1, 2
INTERRUPTED, BROKEN_PIPE = 130, 141  # as shells count them: 128 + the signal


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code.

    0: all is done; 1: some photographs have no caption; 2: the command cannot be carried out, and
    one line on stderr says why; 130: interrupted; 141: nobody reads the output any more; 143: a
    training was asked to leave (SIGTERM), and can be resumed.
    """
    if sys.stdout is None:
        return _refuse("standard output is closed; give the results somewhere to go")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file's name may hold letters that the output's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    args = _parse(sys.argv[1:] if argv is None else argv)
    try:
        _import_torch()
        code: int = args.command(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("showattend: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{where}{error.strerror or error}")
    except ValueError as error:
        if not _is_ours(error):
            raise
        return _refuse(str(error))
    except RuntimeError as error:
        if "allocate memory" not in str(error) and "out of memory" not in str(error):
            raise
        return _refuse(f"{_first_line(error)}; lower decoder.*, train.batch_images or --batch")


def _import_torch() -> None:
    """Import what every command needs, without looking for garbage.

    torch and timm make millions of objects that stay. Going through them while they are imported,
    and once more at the program's end, took 3 of 8 seconds of captioning one photograph.
    """
    gc.disable()
    try:
        import showattend.captioner  # noqa: F401
    finally:
        gc.freeze()
        gc.enable()


def _is_ours(error: ValueError) -> bool:
    """Whether a line of this package raised it, for people to read; in a library it is a bug."""
    innermost, _ = list(traceback.walk_tb(error.__traceback__))[-1]
    return str(innermost.f_globals["__name__"]).startswith("showattend.")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _refuse(reason: str) -> int:
    print(f"showattend: error: {' '.join(reason.splitlines())}", file=sys.stderr)
    return REFUSED


# --- arguments ------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, as the rest of the program does."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"showattend: error: {message}; see {self.prog} --help\n")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """argparse takes PATH... only in one piece; here options may stand between them."""
    parser = build_parser()
    args, left = parser.parse_known_args(argv)
    options = left[: left.index("--")] if "--" in left else left
    unknown = [word for word in options if word.startswith("-") or "words" not in args]
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if left:
        args.words += [word for word in left if word != "--"]
    return args


def build_parser() -> argparse.ArgumentParser:
    """All commands with their options; the result names the function to call as ``command``."""
    parser = _Parser(
        prog="showattend",
        description="Caption photographs and see where the model looked for every word.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {showattend.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    caption = commands.add_parser("caption", help="caption photographs")
    train = commands.add_parser("train", help="train a model, or take a training up again")
    evaluate = commands.add_parser("evaluate", help="caption a data set's split and score it")
    compare = commands.add_parser("compare", help="hold models against each other")
    app = commands.add_parser("app", help="serve the web page")
    _add_caption(caption)
    _add_train(train)
    _add_evaluate(evaluate)
    _add_compare(compare)
    _add_app(app)
    for command in (caption, evaluate):
        _add_attention(command)
    for command in (caption, train, evaluate, compare):
        _add_device(command)
    return parser


def _add_caption(parser: argparse.ArgumentParser) -> None:
    parser.description = "Caption photographs; every result is written as soon as it is known."
    parser.set_defaults(command=_caption)
    add = parser.add_argument
    add("words", nargs="+", metavar="PATH", help="file, folder (the images in it) or glob")
    add("--model", default="soft", help="shipped name, checkpoint or run folder (default: soft)")
    add("--beam", type=_number(1, 64), metavar="N", help="captions kept at every word; 1 is greedy")
    add("--batch", type=_number(1), default=16, metavar="N", help="images at once (default: 16)")
    add(
        "--regions",
        type=Path,
        metavar="FILE",
        help="the photographs' regions (.npz, .h5), for a model that looks at those",
    )
    add(
        "--overlay",
        type=Path,
        metavar="DIR",
        help="also draw where the model looked; replaces an earlier run's pictures, no other file",
    )
    add("--look-at", type=_box, metavar="X0,Y0,X1,Y1", help="look at this part of the photograph")
    add(
        "--look-from",
        type=_number(1),
        metavar="N",
        help="from the N-th word on; those before it look freely (default: 1)",
    )
    add("--begin", default="", metavar="WORDS", help='begin the caption so, such as "a red"')
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--csv",
        dest="form",
        action="store_const",
        const="csv",
        default="text",
        help="rows of image,caption,log_prob in place of PATH<tab>CAPTION",
    )
    form.add_argument(
        "--json", dest="form", action="store_const", const="json", help="one JSON object a line"
    )
    add(
        "--weights",
        action="store_true",
        help="with --json: the attention, (words, rows, columns) or, of regions, (words, regions); "
        "and each head's; with channel attention, the gates of all channels",
    )
    add(
        "--shards",
        type=Path,
        metavar="DIR",
        help="write files of records into DIR, also of the photographs in tar files; goes on where "
        "it was stopped; under torchrun each process takes its share",
    )
    add("--shard-size", type=_number(1), metavar="N", help="records of a file (default: 1000)")
    add("--format", choices=("jsonl", "parquet"), help="of --shards' files (default: jsonl)")


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.description = "Train a model into a new run folder, or go on with an interrupted run."
    parser.set_defaults(command=_train)
    add = parser.add_argument
    _add_overrides(parser)
    origin = parser.add_mutually_exclusive_group(required=True)
    origin.add_argument("--config", metavar="FILE", help="YAML file, or a shipped config's name")
    origin.add_argument("--resume", type=Path, metavar="RUN", help="run folder to go on with")
    add("--run", type=Path, metavar="DIR", help="new run folder (default: runs/CONFIG)")
    add("--init", metavar="CHECKPOINT", help="start from this model: shipped name or folder")
    add(
        "--cache",
        type=Path,
        metavar="DIR",
        help="where a frozen encoder's grids are kept (default: the resumed run's, or "
        f"{cache_folder()})",
    )


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Caption a data set's split, never shown a reference, and score it; or score a COCO result "
        "file."
    )
    parser.set_defaults(command=_evaluate)
    add = parser.add_argument
    _add_overrides(parser)
    scored = parser.add_mutually_exclusive_group(required=True)
    scored.add_argument("--checkpoint", help="shipped name, checkpoint or run folder")
    scored.add_argument("--results", metavar="FILE", help="captions as COCO results, to score")
    add(
        "--references", metavar="FILE", help="of --results: COCO captions JSON or Flickr token file"
    )
    add("--listed", metavar="FILE", help="of --references only these images, one a line")
    add(
        "--data",
        "--config",
        metavar="CONFIG",
        help="config that names the data (default: what the checkpoint was trained on)",
    )
    add("--split", help="train, val (default), test; shapes also: val_unseen")
    add("--beam", type=_number(1, 64), metavar="N", help="captions kept at every word; 1 is greedy")
    add(
        "--all",
        action="store_true",
        help="also METEOR (Java), people's scores, variety, attention (data.boxes=PATH), a page",
    )
    add(
        "--tokenizer",
        choices=("python", "java"),
        default="python",
        help="java: the official program itself (same words; needs Java)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="write COCO results, tables and, with --all, a page (default then: scores/)",
    )


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Hold models against each other on one split: scores, whether their difference is more "
        "than chance, attention, and the pictures on which they part."
    )
    parser.set_defaults(command=_compare)
    add = parser.add_argument
    add(
        "words",
        nargs="+",
        metavar="SIDE",
        help="two or more of: shipped name, checkpoint or run folder, COCO results (.json), or "
        "several runs of one model as RUN,RUN; also SECTION.KEY=VALUE of the data",
    )
    add(
        "--data",
        "--config",
        metavar="CONFIG",
        help="config that names the data (default: what the models were trained on)",
    )
    add("--split", default="val", help="train, val (default), test; shapes also: val_unseen")
    add("--beam", type=_number(1, 64), metavar="N", help="captions kept at every word; 1 is greedy")
    add(
        "--images",
        type=_number(0),
        default=6,
        metavar="N",
        help="pictures shown where each side wins, and where they look apart (default: 6)",
    )
    add("--all", action="store_true", help="also METEOR (Java)")
    add(
        "--out",
        type=Path,
        default=Path("comparison"),
        metavar="DIR",
        help="where report.html, .md and .json are written (default: comparison/)",
    )


def _add_app(parser: argparse.ArgumentParser) -> None:
    parser.description = "Serve the web page: a photograph in, where the model looked out."
    parser.set_defaults(command=_app)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    add("--port", type=_number(0, 65535), default=7860, help="default: %(default)s")
    add("--model", nargs="+", metavar="NAME", help="models to offer (default: the shipped ones)")
    add("--auth", type=Path, metavar="FILE", help="let in who gives FILE's one line, NAME:PASSWORD")
    add("--runs", type=Path, metavar="DIR", help="also show the training runs in this folder")


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="SECTION.KEY=VALUE", help="a setting to change in the config"
    )


def _add_attention(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attention",
        choices=("argmax", "sample", "expectation"),
        help="look at the likeliest cell, at one drawn, or at all by weight (default: the model's)",
    )


def _add_device(parser: argparse.ArgumentParser) -> None:
    choices = ("auto", "cpu", "cuda", "mps")
    parser.add_argument("--device", choices=choices, default="auto", help="default: %(default)s")


def _number(low: int, high: int = sys.maxsize) -> Callable[[str], int]:
    """The type of an option that takes a whole number from ``low`` to ``high``."""

    def read(text: str) -> int:
        number = int(text) if text.isdecimal() else low - 1
        if low <= number <= high:
            return number
        to = f" to {high}" if high < sys.maxsize else " on"
        raise argparse.ArgumentTypeError(f"{text} is no whole number from {low}{to}")

    return read


def _box(text: str) -> tuple[float, ...]:
    """The type of an option that takes a box; what it holds is checked where it is used."""
    try:
        return tuple(float(corner) for corner in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text} is no box; give X0,Y0,X1,Y1 in fractions of the photograph, such as 0.5,0,1,1"
        ) from None


# --- commands -------------------------------------------------------------------------------------


def _caption(args: argparse.Namespace) -> int:
    if args.look_from is not None and args.look_at is None:
        return _refuse("--look-from: say by --look-at where to look from there")
    if args.shards is not None:
        return _caption_shards(args)
    if args.shard_size is not None or args.format is not None:
        return _refuse("--shard-size, --format: belong to --shards DIR")
    return _caption_lines(args)


def _caption_shards(args: argparse.Namespace) -> int:
    """Into files of records: photographs by the million, in as many processes as there are."""
    import torch
    from tqdm import tqdm

    from showattend.checkpoint import CONFIG, WEIGHTS
    from showattend.predict import checkpoint_folder, load
    from showattend.records import import_parquet
    from showattend.scale import Run, device_of, find_inputs, share_of, weights_digest

    if args.form != "text" or args.weights or args.overlay is not None or args.regions is not None:
        return _refuse(
            "--shards: has a form of its own; leave out --csv, --json, --weights, --overlay and "
            "--regions"
        )
    form: RecordForm = args.format or "jsonl"
    if form == "parquet":
        import_parquet()
    inputs = find_inputs(args.words)
    share = share_of(os.environ)
    device = device_of(args.device, os.environ, torch.cuda.device_count())
    model = load(args.model, device)
    if model.checkpoint.captioner.encoder is None:
        return _refuse("--shards: is for models that look at photographs, not at regions")
    options = {
        "beam_size": args.beam,
        "attention": args.attention,
        "begin": args.begin,
        "look_at": args.look_at,
        "look_from": args.look_from or 1,
    }
    run = Run(args.shards, form, args.shard_size or 1000, share)
    run.begin(
        {
            "model": args.model,
            "digest of the model": weights_digest(checkpoint_folder(args.model), (CONFIG, WEIGHTS)),
            "digest of the photographs": inputs.digest(),
            **options,
        }
    )
    stream = partial(model.stream, batch_size=args.batch, **options)
    done = failures = 0
    with tqdm(unit="img", disable=None) as bar:  # None: only on a terminal
        for record in run.write(inputs, stream):
            done, failures = done + 1, failures + (record["error"] is not None)
            bar.update()
    told = f"{done} photographs, {failures} of them without a caption" if done else "all is there"
    process = f" (process {share.rank} of {share.world})" if share.world > 1 else ""
    print(f"{args.shards}: {told}{process}", file=sys.stderr)
    return DONE  # torchrun would end the other processes if one failed; the records tell errors


def _caption_lines(args: argparse.Namespace) -> int:
    """To standard output, a line a photograph."""
    from tqdm import tqdm

    from showattend.files import Overlays, Report, find_photographs
    from showattend.images import ImageError
    from showattend.predict import load

    if args.weights and args.form != "json":
        return _refuse("--weights: only JSON can hold them; add --json")
    if args.look_at is not None and args.regions is not None:
        return _refuse("--look-at: belongs to photographs; of FILE's regions, leave out the others")
    model = load(args.model, args.device)
    report = Report(args.form, model.name, args.weights)
    report.begin()
    paths = []
    for name in args.words:
        try:
            paths += find_photographs(name)
        except ImageError as error:
            report.add(name, error)
    if args.overlay is not None:
        resize = model.checkpoint.pixels.resize
        hear = None if args.look_at else _hearing(model, args.attention)
        report.overlays = Overlays(args.overlay, resize, hear)
        report.overlays.refuse_originals(paths)
    options = {
        "batch_size": args.batch,
        "beam_size": args.beam,
        "attention": args.attention,
        "begin": args.begin,
    }
    results: Iterator[tuple[str, Caption | ImageError | RegionsError]]
    if args.regions is not None:
        results = model.stream_regions(paths, args.regions, **options)
    else:
        look = {"look_at": args.look_at, "look_from": args.look_from or 1}
        results = model.stream(paths, **options, **look)
    with tqdm(total=len(paths), unit="img", disable=None) as bar:  # None: only on a terminal
        for path, result in results:
            report.add(path, result)
            bar.update()
    return SOME_FAILED if report.failures else DONE


def _hearing(model: "CaptionModel", attention: "Attention | None") -> "Hear | None":
    """How to ask a Transformer at which words it looked.

    What it reads depends on where it looks at the photograph, and a look that was drawn by chance
    cannot be had once more.
    """
    how = attention or model.checkpoint.search.attention
    if model.checkpoint.decoder.kind != "transformer" or how == "sample":
        return None
    return lambda photo, words: model.word_attention(photo, words, attention)


class _Plain(io.TextIOWrapper):
    """Standard error that progress bars do not take for a terminal."""

    def isatty(self) -> bool:
        return False


def _train(args: argparse.Namespace) -> int:
    """As one of several processes, if torchrun has started them; the main one alone has bars."""
    from showattend.predict import choose_device
    from showattend.ranks import join_ranks

    ranks = join_ranks(choose_device(args.device))
    if not ranks.main and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _Plain(sys.stderr.detach(), line_buffering=True)
    with ranks.company():
        code = _train_as(ranks, args)
    ranks.leave()
    return code


def _train_as(ranks: "Ranks", args: argparse.Namespace) -> int:
    from showattend.config import read_settings
    from showattend.predict import checkpoint_folder
    from showattend.train import remembered_cache, resume_run, start_run, train

    if args.resume is not None:
        if args.words or args.run is not None or args.init is not None:
            return _refuse("--resume: the run has its settings; give no --run, --init or overrides")
        cache = args.cache or remembered_cache(args.resume) or cache_folder()
        run = resume_run(args.resume, cache=cache, device=ranks.device, ranks=ranks)
    else:
        lost = [word for word in args.words if _is_the_checkpoints(word)] if args.init else []
        if lost:
            return _refuse(
                f"{lost[0]}: with --init this is the checkpoint's own; leave it out, or train anew "
                "without --init"
            )
        config = _config_file(args.config)
        run = start_run(
            args.run or Path("runs", config.stem),
            read_settings(config, args.words),
            cache=args.cache or cache_folder(),
            device=ranks.device,
            init=checkpoint_folder(args.init) if args.init is not None else None,
            ranks=ranks,
        )
    train(run)
    return DONE


def _is_the_checkpoints(setting: str) -> bool:
    """Whether a ``section.key=value`` would be lost on a model that is there already
    (`train.start_run`).
    """
    from showattend.config import OF_ANY_WEIGHTS

    key = setting.partition("=")[0].strip()
    own = key.startswith(("encoder.", "decoder.", "pixels."))
    weightless = (f"decoder.{name}" for name in OF_ANY_WEIGHTS)
    free = ("encoder.trainable_stages", "encoder.channel_attention", *weightless)
    return own and not key.startswith(free)


def _evaluate(args: argparse.Namespace) -> int:
    foreign = [word for word in args.words if not word.startswith("data.")]
    if foreign:
        return _refuse(f"{foreign[0]}: only the data can be changed, as in data.root=DIR")
    if args.out is None and args.all:
        args.out = Path("scores")
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)  # found out before the work, not after it
    if args.results is not None:
        return _score_results(args)
    if args.references is not None or args.listed is not None:
        return _refuse("--references and --listed belong to --results; a data set has its own")
    return _score_checkpoint(args)


def _score_results(args: argparse.Namespace) -> int:
    """Captions of any program, against what people said."""
    from showattend.references import read_matching
    from showattend.scorecard import score_texts

    if args.words or args.data or args.split or args.beam or args.attention:
        return _refuse(
            "--data, --split, --beam, --attention and data.KEY=VALUE belong to --checkpoint"
        )
    if args.references is None:
        return _refuse("--results: name by --references FILE what people said of the images")
    texts, references = read_matching(args.results, args.references, args.listed)
    card = score_texts(
        texts,
        references,
        facts={"results": args.results, "references": args.references, "images": f"{len(texts)}"},
        tokenizer=_tokenizer(args.tokenizer),
        everything=args.all,
    )
    return _show(card, args)


def _score_checkpoint(args: argparse.Namespace) -> int:
    """A model's captions of a data set's split."""
    from showattend.checkpoint import load_checkpoint
    from showattend.config import read_settings
    from showattend.datasets import load_split
    from showattend.evaluate import attention_entropy, caption_split
    from showattend.grids import live_grids
    from showattend.predict import checkpoint_folder, choose_device
    from showattend.regions import open_regions
    from showattend.scorecard import read_annotated, score_model, training_tokens

    folder = checkpoint_folder(args.checkpoint)
    data = read_settings(_data_config(folder, args.data), args.words).data
    split = args.split or "val"
    pictures = load_split(data, split)
    annotated = read_annotated(data, pictures) if args.all else None
    tokenizer = _tokenizer(args.tokenizer)
    known = training_tokens(data, tokenizer) if args.all and split != "train" else None
    checkpoint = load_checkpoint(folder, choose_device(args.device))
    captioner = checkpoint.captioner
    asked = {"beam_size": args.beam, "attention": args.attention}
    search = checkpoint.search.model_copy(
        update={key: value for key, value in asked.items() if value is not None}
    )
    grids: AnyGrids
    if captioner.encoder is None:
        grids = open_regions(_regions(data), captioner.shape.channels, pictures)
    else:  # computed anew, and not cached: the time is that from photograph to caption
        grids = live_grids(captioner, checkpoint.pixels, pictures, data.corrupt)
    skipped = len(pictures) - len(grids.pictures)
    began = time.perf_counter()
    captions = caption_split(captioner, checkpoint.vocabulary, grids, search)
    seconds = time.perf_counter() - began
    facts = {
        "checkpoint": args.checkpoint,
        "data set": _data_set(data),
        **({"regions": f"{data.regions}"} if captioner.encoder is None else {}),
        "split": split,
        "images": f"{len(captions)}",
        **({"left out": f"{skipped} that cannot be opened"} if skipped else {}),
        "beam": f"{search.beam_size}",
        **({"attention": args.attention} if args.attention else {}),
        "ms an image": f"{1000 * seconds / len(captions):.1f}",
        "attention entropy": f"{attention_entropy(captions.values()):.2f} nats",
    }
    card = score_model(
        checkpoint,
        captions,
        grids,
        facts=facts,
        tokenizer=tokenizer,
        training=known,
        annotated=annotated,
        everything=args.all,
    )
    return _show(card, args)


def _regions(data: "DataSettings") -> Path:
    """Raises: ConfigError: the data names none; one line."""
    from showattend.config import ConfigError

    if data.regions is None:
        raise ConfigError("data.regions is missing: the model looks at regions; name their file")
    return data.regions


def _tokenizer(name: str) -> "Tokenizer":
    from showattend.corpus import split_captions
    from showattend.java_metrics import java_tokens

    return java_tokens if name == "java" else split_captions


def _show(card: "Scorecard", args: argparse.Namespace) -> int:
    """Print a scorecard, and write it where that is asked for."""
    print(card.text())
    for line in card.missing:
        print(f"not computed: {line}", file=sys.stderr)
    if args.out is not None:
        print("written: " + ", ".join(map(str, card.write(args.out))), file=sys.stderr)
    return DONE


def _compare(args: argparse.Namespace) -> int:
    from showattend.compare import compare_sides, prepare_folder
    from showattend.datasets import load_split
    from showattend.predict import choose_device
    from showattend.sides import caption_sides, describe_device, find_sides

    settings = [word for word in args.words if _is_setting(word)]
    foreign = [word for word in settings if not word.startswith("data.")]
    if foreign:
        return _refuse(f"{foreign[0]}: only the data can be changed, as in data.root=DIR")
    sides = find_sides([word for word in args.words if word not in settings])
    data = _compared_data(sides, args.data, args.split, settings)
    split = load_split(data, args.split)
    prepare_folder(args.out)  # found out before the work, not after it
    device = choose_device(args.device)
    runs, pictures = caption_sides(sides, split, device, corrupt=data.corrupt, beam_size=args.beam)
    facts = {
        "sides": " against ".join(sides),
        "data set": _data_set(data),
        "split": args.split,
        "images": f"{len(pictures)}",
        "beam": f"{args.beam}" if args.beam is not None else "each model's own",
        "hardware": describe_device(device),
    }
    report = compare_sides(runs, pictures, facts=facts, images=args.images, java=args.all)
    print(report.text())
    print("written: " + ", ".join(map(str, report.write(args.out))), file=sys.stderr)
    return DONE


def _app(args: argparse.Namespace) -> int:
    from showattend.app.server import read_password, serve
    from showattend.predict import shipped_models

    auth = None if args.auth is None else read_password(args.auth)
    if args.runs is not None and not args.runs.is_dir():
        return _refuse(f"--runs {args.runs}: no such folder; name that of your runs")
    serve(args.model or shipped_models(), args.host, args.port, runs=args.runs, auth=auth)
    return DONE


# --- places ---------------------------------------------------------------------------------------


def _config_file(name: str) -> Path:
    """A config by its path, or a shipped one by its bare name.

    Raises:
        ConfigError: there is neither; one line.
    """
    from showattend.config import ConfigError

    if Path(name).is_file():
        return Path(name)
    files = (path for folder in _CONFIGS for path in folder.glob("*.yaml"))
    shipped = {path.stem: path for path in files if not path.stem.startswith(_PLANS)}
    if name not in shipped:
        names = ", ".join(sorted(shipped))
        raise ConfigError(f"{name}: neither a YAML file nor a shipped config ({names})")
    return shipped[name]


def _data_config(checkpoint: Path, wanted: str | None) -> Path:
    """The config of the data to score a checkpoint on.

    Raises:
        CheckpointError: none is given, and none belongs to the checkpoint; one line.
    """
    from showattend.checkpoint import CheckpointError

    if wanted is not None:
        return _config_file(wanted)
    run_settings = checkpoint.parent / "settings.yaml"
    if run_settings.is_file():
        return run_settings
    if _PACKAGE in checkpoint.parents:
        return _config_file(_SHIPPED_CONFIG)
    raise CheckpointError(f"{checkpoint}: belongs to no run; name its data by --data CONFIG")


def _data_set(data: "DataSettings") -> str:
    return data.kind if data.root is None else f"{data.kind} in {data.root}"


def _is_setting(word: str) -> bool:
    """Whether it is SECTION.KEY=VALUE; a folder may be called so too, and is then none."""
    key, equals, _ = word.partition("=")
    return bool(equals) and key.replace(".", "").isidentifier() and not Path(word).exists()


def _compared_data(
    sides: "Mapping[str, Sequence[Source]]", wanted: str | None, split: str, settings: list[str]
) -> "DataSettings":
    """The data on which all sides are compared.

    Raises:
        CheckpointError, CompareError: none is known, or the sides' differ; one line.
    """
    from showattend.checkpoint import CheckpointError
    from showattend.config import read_settings
    from showattend.sides import CompareError, same_data

    if wanted is not None:
        return read_settings(_config_file(wanted), settings).data
    known: dict[str, DataSettings] = {}
    reason = "a file of results names no data; name them by --data CONFIG"
    for source in (source for sources in sides.values() for source in sources):
        if source.is_results:
            continue
        try:
            config = _data_config(source.path, None)
        except CheckpointError as error:
            reason = str(error)
        else:
            known[source.name] = read_settings(config, settings).data
    if not known:
        raise CompareError(reason)
    return same_data(known, split)


def cache_folder() -> Path:
    """Where grids are kept if nobody says otherwise; SHOWATTEND_CACHE names another place."""
    named = os.environ.get("SHOWATTEND_CACHE")
    return Path(named) if named else Path("~/.cache/showattend/grids").expanduser()
