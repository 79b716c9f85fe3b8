#!/usr/bin/env python
"""Pool a model's grid over boxes: a file of regions to train on with `encoder.name: regions`.

scripts/region_features.py boxes.json regions.npz --images DIR [--model soft]

boxes.json is {"beach.jpg": [[x0, y0, x1, y1], ...], ...}, in fractions of the photograph. The
features of a region are the mean of the grid's cells under its box, each as far as it is covered;
of a fused grid, the early map's mean behind the late one's. A detector's own features (Anderson et
al. 2018) say more; this needs no detector but for the boxes.
"""

import argparse
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from showattend.captioner import Captioner
from showattend.checkpoint import CheckpointError
from showattend.grids import model_pixels
from showattend.images import ImageError, open_photograph
from showattend.pointing import cover
from showattend.predict import load
from showattend.regions import RegionsError, check_boxes


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("boxes", type=Path, help="JSON of boxes by photograph")
    parser.add_argument("out", type=Path, help="the .npz to write")
    parser.add_argument("--images", type=Path, required=True, help="folder of the photographs")
    parser.add_argument("--model", default="soft", help="shipped name, checkpoint or run folder")
    arguments = parser.parse_args(argv)
    if arguments.out.suffix != ".npz":
        raise RegionsError(f"{arguments.out}: this script writes .npz; name such a file")
    model = load(arguments.model).checkpoint
    if model.captioner.encoder is None or model.pixels.resize != "squash":
        raise RegionsError(
            f"{arguments.model}: needs a CNN that sees the whole photograph, squashed"
        )
    boxes = read_boxes(arguments.boxes)
    partial = arguments.out.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as file:
        for name, boxes_P4 in tqdm(boxes.items(), unit="img", disable=None):
            pixels_3SS = model_pixels(open_photograph(arguments.images / name), model.pixels)
            features_PC = pooled(model.captioner, pixels_3SS, boxes_P4)
            for key, values in (("features", features_PC), ("boxes", boxes_P4)):
                with file.open(f"{Path(name).stem}/{key}.npy", "w") as entry:
                    np.lib.format.write_array(entry, values, allow_pickle=False)
    os.replace(partial, arguments.out)
    width = features_PC.shape[1]
    print(f"{arguments.out}: {len(boxes)} photographs; train with encoder.channels={width}")


def read_boxes(path: Path) -> dict[str, np.ndarray]:
    """Boxes (P, 4) by the photograph's name. Raises: RegionsError: it holds none; one line."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        boxes = {name: np.array(corners, np.float32) for name, corners in tree.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise RegionsError(f"{path}: is no JSON of boxes by photograph ({error})") from None
    if not boxes:
        raise RegionsError(f"{path}: holds no photograph")
    for name, boxes_P4 in boxes.items():
        check_boxes(boxes_P4, f"{path}: {name}")
    return boxes


@torch.inference_mode()
def pooled(captioner: Captioner, pixels_3SS: np.ndarray, boxes_P4: np.ndarray) -> np.ndarray:
    """Features (P, C), fp16, of a photograph's boxes."""
    shape = captioner.shape
    grid_BPC = captioner.encode(torch.from_numpy(pixels_3SS).unsqueeze(0).to(captioner.device))
    if shape.early:
        maps = list(shape.unpack(grid_BPC))
    else:
        maps = [grid_BPC.transpose(1, 2).unflatten(2, (shape.height, shape.width))]
    parts = [under(map_BChw[0].float().cpu().numpy(), boxes_P4) for map_BChw in maps]
    return np.hstack(parts).astype(np.float16)


def under(map_Chw: np.ndarray, boxes_P4: np.ndarray) -> np.ndarray:
    """The mean (P, C) of a map's cells under each box, by how much of each is covered."""
    _, height, width = map_Chw.shape
    covered_Phw = np.stack(
        [cover([tuple(box)], height, width) for box in np.clip(boxes_P4, 0, 1).tolist()]
    )
    share_Phw = covered_Phw / covered_Phw.sum(axis=(1, 2), keepdims=True)
    return np.einsum("phw,chw->pc", share_Phw, map_Chw)


if __name__ == "__main__":
    try:
        main()
    except (CheckpointError, ImageError, RegionsError) as error:
        raise SystemExit(f"region_features: error: {error}") from None
