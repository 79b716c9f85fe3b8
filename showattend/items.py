"""A batch of images each of which has its own number of items to look at: padded, with a mask.

An item is any vector with a box in the photograph, such as a detector's region (bottom-up
attention, Anderson et al. 2018, arXiv 1707.07998). What stands in the padding is never looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Items:
    """P is the most items that an image of the batch has.

    ``features_BPC`` and ``boxes_BP4`` (x0, y0, x1, y1 in fractions of the photograph) are 0, and
    ``mask_BP`` is False, where an image has fewer.
    """

    features_BPC: Tensor
    boxes_BP4: Tensor
    mask_BP: Tensor

    def to(self, device: torch.device) -> "Items":
        """The same on a device."""
        return Items(*(value.to(device) for value in vars(self).values()))


def as_items(images: Sequence[tuple[np.ndarray, np.ndarray]]) -> Items:
    """Pad a batch.

    Args:
        images: of each its features (n, C), and its boxes (n, 4); n is 1 or more.
    """
    features, boxes = zip(*images, strict=True)
    counts_B1 = torch.tensor([len(features_PC) for features_PC in features]).unsqueeze(1)
    mask_BP = torch.arange(int(counts_B1.max())) < counts_B1
    return Items(_padded(features), _padded(boxes), mask_BP)


def _padded(images: Sequence[np.ndarray]) -> Tensor:
    """(n, X) of each image -> (B, P, X), 0 behind its n."""
    return torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(values.astype(np.float32)) for values in images], batch_first=True
    )
