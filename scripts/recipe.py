#!/usr/bin/env python
"""Train a model in stages, each by a config of its own, from the best checkpoint of the one before.

    scripts/recipe.py configs/A.yaml configs/B.yaml --run DIR [data.root=DIR ...]

Stage n is the run folder DIR/n-CONFIG. It can be stopped at any moment: the same command goes on
where it was, and does nothing twice. Settings after the configs are those of every stage.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from showattend.train import BEST, SETTINGS


def main(argv: Sequence[str] | None = None) -> int:
    """0: all stages are done; else what the stage that ended early returned."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("configs", nargs="+", metavar="CONFIG", help="one a stage")
    parser.add_argument("settings", nargs="*", metavar="SECTION.KEY=VALUE", help="of every stage")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="holds the stages")
    parser.add_argument("--init", metavar="CHECKPOINT", help="the first stage starts from it")
    parser.add_argument("--cache", metavar="DIR", help="where grids are kept")
    arguments = parser.parse_intermixed_args(argv)
    words = [*arguments.configs, *arguments.settings]
    configs = [Path(word) for word in words if "=" not in word]
    settings = [word for word in words if "=" in word]
    before = arguments.init
    for number, config in enumerate(configs, start=1):
        folder = arguments.run / f"{number}-{config.stem}"
        print(f"stage {number} of {len(configs)}: {folder}", flush=True)
        began = time.monotonic()
        code = subprocess.run(stage(folder, config, settings, before, arguments.cache)).returncode
        print(f"stage {number}: {(time.monotonic() - began) / 60:.1f} min", flush=True)
        if code:
            return code
        before = str(folder / BEST)
    return 0


def stage(
    folder: Path, config: Path, settings: Sequence[str], before: str | None, cache: str | None
) -> list[str]:
    """The command that begins or resumes a stage."""
    command = [sys.executable, "-m", "showattend", "train"]
    if cache is not None:
        command += ["--cache", cache]
    if (folder / SETTINGS).is_file():
        return [*command, "--resume", str(folder)]
    command += ["--config", str(config), "--run", str(folder), *settings]
    return command if before is None else [*command, "--init", before]


if __name__ == "__main__":
    sys.exit(main())
