"""Channel attention: each channel of a feature map is turned up or down by what the map holds.

Squeeze-and-excitation (Hu et al. 2018, arXiv 1709.01507), ECA (Wang et al. 2020, arXiv 1910.03151)
and CBAM (Woo et al. 2018, arXiv 1807.06521), with one change: a gate is 2 sigmoid(x) in place of
sigmoid(x), and the last layer before it starts at zero. Every gate is then exactly 1, so that a
pretrained CNN computes what it did before, bit by bit, while that layer has a gradient at once.
"""

import math

import torch
from torch import Tensor, nn


class ChannelAttention(nn.Module):
    """Feature map (B, C, h, w) -> the same, each channel times its gate. It remembers nothing."""

    def gates(self, features_BChw: Tensor) -> Tensor:
        """The factor of each channel, (B, C), between 0 and 2."""
        raise NotImplementedError

    def forward(self, features_BChw: Tensor) -> Tensor:
        return features_BChw * self.gates(features_BChw)[:, :, None, None]


class SqueezeExcitation(ChannelAttention):
    """SE: s = mean over cells (eq. 2), gates from W2 relu(W1 s), without biases (eq. 3)."""

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        self.mlp = _bottleneck(channels, reduction)

    def gates(self, features_BChw: Tensor) -> Tensor:
        return _gate(self.mlp(features_BChw.mean(dim=(2, 3))))


class EfficientChannelAttention(ChannelAttention):
    """ECA: a convolution of k weights runs over the channels' means (eq. 9).

    k grows with the number of channels: the odd number nearest to log2(C)/2 + 1/2 (eq. 12).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        kernel = 2 * int((math.log2(channels) + 1) / 4) + 1
        self.conv = nn.Conv1d(1, 1, kernel, padding=kernel // 2, bias=False)
        nn.init.zeros_(self.conv.weight)

    def gates(self, features_BChw: Tensor) -> Tensor:
        squeezed_B1C = features_BChw.mean(dim=(2, 3)).unsqueeze(1)
        return _gate(self.conv(squeezed_B1C).squeeze(1))


class CBAM(ChannelAttention):
    """CBAM: channels are gated by their means and maxima (eq. 2), then cells by theirs (eq. 3)."""

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        self.mlp = _bottleneck(channels, reduction)
        self.conv = nn.Conv2d(2, 1, kernel_size=7, padding=3, bias=False)
        nn.init.zeros_(self.conv.weight)

    def gates(self, features_BChw: Tensor) -> Tensor:
        mean_BC, most_BC = features_BChw.mean(dim=(2, 3)), features_BChw.amax(dim=(2, 3))
        return _gate(self.mlp(mean_BC) + self.mlp(most_BC))

    def cell_gates(self, features_BChw: Tensor) -> Tensor:
        """The factor of each cell, (B, 1, h, w), of a map whose channels are gated already."""
        mean_B1hw = features_BChw.mean(dim=1, keepdim=True)
        most_B1hw = features_BChw.amax(dim=1, keepdim=True)
        return _gate(self.conv(torch.cat([mean_B1hw, most_B1hw], dim=1)))

    def forward(self, features_BChw: Tensor) -> Tensor:
        gated_BChw = super().forward(features_BChw)
        return gated_BChw * self.cell_gates(gated_BChw)


def channel_attention(kind: str, channels: int, reduction: int) -> ChannelAttention:
    """A new module of one kind for feature maps of C ``channels``; it starts as the identity.

    Args:
        kind: "se", "eca" or "cbam".
        reduction: the MLP of "se" and "cbam" is C / reduction wide, and at least 1; "eca" has none.
    """
    if kind == "eca":
        return EfficientChannelAttention(channels)
    return {"se": SqueezeExcitation, "cbam": CBAM}[kind](channels, reduction)


def _bottleneck(channels: int, reduction: int) -> nn.Sequential:
    """W2 relu(W1 x), (B, C) -> (B, C); W2 starts at zero."""
    width = max(1, channels // reduction)
    last = nn.Linear(width, channels, bias=False)
    nn.init.zeros_(last.weight)
    return nn.Sequential(nn.Linear(channels, width, bias=False), nn.ReLU(), last)


def _gate(logits: Tensor) -> Tensor:
    return 2 * logits.sigmoid()
