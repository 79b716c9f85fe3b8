"""Photographs opened and cut to squares ahead of need, by other processes.

Decoding a JPEG takes as long as a small CNN does on a GPU, or longer, so nobody should wait for it.
Squares travel as 8-bit numbers through pipes: the shared memory that torch would take for tensors
is only 64 MB in many containers, and a square has four times the bytes once it is normalised.
"""

import os
import threading
import time
from collections.abc import Generator, Sequence
from functools import partial

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from showattend.config import PixelSettings
from showattend.datasets import Picture
from showattend.images import ImageError, fit_square

#: Pictures fewer than this are opened where they are needed: processes take time to start.
_WORTH_A_PROCESS = 64
_MOST = 16

#: A square (S, S, 3) of 8-bit RGB, or why there is none.
Square = np.ndarray | ImageError


def batches_of_squares(
    pictures: Sequence[Picture], pixels: PixelSettings, batch: int, *, sharers: int = 1
) -> Generator[list[Square], None, None]:
    """The squares of all pictures in their order, so many at a time.

    Args:
        sharers: how many programs like this one share the machine's cores.
    """
    loader = DataLoader(
        _Squares(pictures, pixels),
        batch_size=batch,
        collate_fn=list,
        num_workers=workers(len(pictures), sharers),
        worker_init_fn=partial(_end_with, os.getpid()),
        generator=torch.Generator(),  # else it would draw from the training's own
    )
    yield from loader


def workers(pictures: int, sharers: int = 1) -> int:
    """How many processes open pictures: one core is left to whom they are opened for."""
    if pictures < _WORTH_A_PROCESS:
        return 0
    return min(_MOST, max(1, _cores() // sharers - 1))


def _end_with(parent: int, _: int) -> None:
    """Let this process end when its parent is killed.

    torch's own watch waits for the pipe to be emptied, which nobody does then: such a process would
    stay for ever, and with it the locks on the cache that it has from its parent.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Squares(Dataset[Square]):
    def __init__(self, pictures: Sequence[Picture], pixels: PixelSettings) -> None:
        self._pictures = pictures
        self._pixels = pixels

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> Square:
        try:
            photo = self._pictures[index].open()
        except ImageError as error:
            return error
        return np.asarray(fit_square(photo, self._pixels.size, self._pixels.resize))
