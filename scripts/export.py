#!/usr/bin/env python
"""Turn a run's best checkpoint into a small one to ship: half precision, chosen search settings.

scripts/export.py runs/flickr8k_soft showattend/checkpoints/soft [--length-penalty 0.7]
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from showattend.checkpoint import WEIGHTS, CheckpointError, load_checkpoint, save_checkpoint
from showattend.predict import checkpoint_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkpoint", help="checkpoint or run folder")
    parser.add_argument("folder", type=Path, help="where the small one goes")
    parser.add_argument("--length-penalty", type=float, help="chosen on the validation split")
    arguments = parser.parse_args()
    checkpoint = load_checkpoint(checkpoint_folder(arguments.checkpoint))
    if arguments.length_penalty is not None:
        search = checkpoint.search.model_copy(update={"length_penalty": arguments.length_penalty})
        checkpoint = replace(checkpoint, search=search)
    save_checkpoint(arguments.folder, checkpoint, dtype=torch.float16)
    megabytes = (arguments.folder / WEIGHTS).stat().st_size / 1e6
    print(f"{arguments.folder / WEIGHTS}: {megabytes:.1f} MB")


if __name__ == "__main__":
    try:
        main()
    except CheckpointError as error:
        raise SystemExit(f"export: error: {error}") from None
