#!/usr/bin/env python
"""Train all rows of a plan on one budget, and write the table of what each setting buys and costs.

    scripts/ablate.py configs/ablate_flickr8k.yaml data.root=DIR data.boxes=FILE --all

A plan names a base config, overrides for all rows, seeds, and rows with the overrides that are
their own (configs/ablate_flickr8k.yaml). Each row and seed becomes a run folder like any other,
runs/ablate/ROW-seedN; the same command goes on where it was stopped, and trains nothing twice. Two
processes share the rows with `--part 0/2` and `--part 1/2`; each then writes the table of what is
finished by then, and `--table-only` writes it at any time. `--times` takes the times of all
finished runs anew, one after the other, say on a machine that was busy before. A run's captions
(results.json) and measures (measures.json) lie in its folder; runs/ablate/table.md and table.json
hold the table.
"""

import argparse
import sys
from pathlib import Path

from showattend.ablate import check_runs, is_measured, retime, run_jobs
from showattend.ablation_plan import AblateError, plan_runs, take_part
from showattend.ablation_table import tabulate
from showattend.checkpoint import CheckpointError
from showattend.cli import cache_folder
from showattend.config import ConfigError
from showattend.corpus import ScoreError
from showattend.datasets import DataError
from showattend.encoder import EncoderError
from showattend.images import ImageError
from showattend.predict import DeviceError, choose_device
from showattend.report import plain

REFUSALS = (
    AblateError,
    CheckpointError,
    ConfigError,
    DataError,
    DeviceError,
    EncoderError,
    ImageError,
    OSError,
    ScoreError,
)


def main(argv: list[str] | None = None) -> int:
    """0: all is done; 1: the training of some runs failed, and the table is without them."""
    parser = build_parser()
    arguments = parser.parse_intermixed_args(argv)
    if arguments.all and (arguments.table_only or arguments.times):
        parser.error(
            "--all: METEOR is one of the measures, and --table-only and --times leave those"
        )
    ablation = plan_runs(arguments.plan, arguments.settings, arguments.runs)
    check_runs(ablation.jobs)
    failures = []
    device = choose_device(arguments.device)
    if arguments.times:
        for job in filter(is_measured, ablation.jobs):
            print(job.folder, flush=True)
            retime(job, cache=arguments.cache, device=device)
    elif not arguments.table_only:
        failures = run_jobs(
            take_part(ablation.jobs, *arguments.part),
            cache=arguments.cache,
            device=device,
            java=arguments.all,
        )
    table = tabulate(ablation)
    print("\n\n".join(map(plain, table.tables)))
    written = ", ".join(map(str, table.write(arguments.runs)))
    print("\n".join([*table.notes, f"written: {written}"]), file=sys.stderr)
    for line in failures:
        print(f"ablate: failed: {line}", file=sys.stderr)
    return 1 if failures else 0


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("plan", type=Path, help="YAML file, such as configs/ablate_flickr8k.yaml")
    add("settings", nargs="*", metavar="SECTION.KEY=VALUE", help="a setting of all rows")
    add("--runs", type=Path, default=Path("runs/ablate"), help="default: %(default)s")
    work = parser.add_mutually_exclusive_group()
    work.add_argument(
        "--part", type=read_part, default=(0, 1), metavar="K/N", help="every Nth row from row K on"
    )
    work.add_argument("--table-only", action="store_true", help="train and measure nothing")
    work.add_argument("--times", action="store_true", help="only take finished runs' times anew")
    add("--all", action="store_true", help="also measure METEOR (Java)")
    add("--cache", type=Path, default=cache_folder(), help="of grids (default: %(default)s)")
    add("--device", default="auto", help="auto (default), cpu, cuda or mps")
    return parser


def read_part(text: str) -> tuple[int, int]:
    """K/N, with K from 0 to N - 1."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected K/N with K from 0 to N - 1, such as 0/2 and 1/2"
        )
    return int(part), int(parts)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except REFUSALS as error:
        raise SystemExit(f"ablate: error: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit("ablate: interrupted; the same command goes on from here") from None
