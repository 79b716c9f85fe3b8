#!/usr/bin/env python
"""Write a checkpoint as ONNX graphs, for captioning without torch (docs/onnx.md).

scripts/export_onnx.py soft onnx/soft
"""

import argparse
from pathlib import Path

from showattend.checkpoint import CheckpointError
from showattend.onnx_export import ExportError, export_onnx
from showattend.predict import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", help="shipped name, checkpoint or run folder")
    parser.add_argument("folder", type=Path, help="where the files go")
    arguments = parser.parse_args()
    for path in export_onnx(load(arguments.model, "cpu").checkpoint, arguments.folder):
        print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    try:
        main()
    except (CheckpointError, ExportError, OSError) as error:
        raise SystemExit(f"export_onnx: error: {error}") from None
