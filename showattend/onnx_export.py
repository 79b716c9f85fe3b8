"""A checkpoint as two ONNX graphs and a JSON file, so that someone without torch can caption.

``encoder.onnx`` runs once for each photograph, ``step.onnx`` once for each word; what goes from one
to the next is named alike in both. ``caption.json`` tells these names, how pixels are made, and the
vocabulary; docs/onnx.md.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import showattend
from showattend.captioner import Captioner
from showattend.checkpoint import Checkpoint
from showattend.config import MOST_WORDS
from showattend.decoder import Decoder, Scene, State
from showattend.transformer import TransformerDecoder
from showattend.vocabulary import END, PAD, START, UNKNOWN
from showattend.whole_files import write_whole

ENCODER, STEP, SETTINGS = "encoder.onnx", "step.onnx", "caption.json"
FORMAT = 1
#: What the graphs are traced with; any other numbers work as well.
_IMAGES, _CAPTIONS, _WORDS = 3, 2, 4


class ExportError(ValueError):
    """A model cannot be exported: one clear line."""


class _See(nn.Module):
    """Pixels (B, 3, S, S) -> keys and values of every layer, and the state before any word."""

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        self.captioner = captioner

    def forward(self, pixels_B3SS: Tensor) -> tuple[Tensor, ...]:
        scene = self.captioner.look(self.captioner.grid(pixels_B3SS))
        state = self.captioner.decoder.start(scene, 1)
        return (*scene.keys, *scene.values, *vars(state).values())


class _Say(nn.Module):
    """Words (B, K), what was seen, and a state -> log p (B, K, V) of the next words, the cells'
    weights (B, K, P), and the new state.
    """

    def __init__(self, decoder: Decoder, kind: type[State], checkpoint: Checkpoint) -> None:
        super().__init__()
        self.decoder = decoder
        self.kind = kind
        self.choose = decoder.choice(checkpoint.search.attention)

    def forward(
        self, words_BK: Tensor, seen: list[Tensor], state: list[Tensor]
    ) -> tuple[Tensor, ...]:
        keys, values = seen[: self.decoder.layers], seen[self.decoder.layers :]
        # The cells themselves made the first state, and no step reads them.
        scene = Scene(values[0], tuple(keys), tuple(values))
        step = self.decoder.step(scene, self.kind(*state), words_BK, self.choose)
        weights_BKP = self.decoder.glimpse(step.chosen_BKHP.mean(dim=2))
        return step.logits_BKV.log_softmax(dim=-1), weights_BKP, *vars(step.state).values()


@torch.no_grad()
def export_onnx(checkpoint: Checkpoint, folder: Path) -> list[Path]:
    """Write the three files; each is there whole or not at all.

    Returns:
        their paths.
    Raises:
        ExportError: the model looks at regions, or at a cell drawn by chance, or torch makes no
            graph of it for any number of images; one line.
        OSError: they cannot be written.
    """
    captioner, decoder = checkpoint.captioner, checkpoint.captioner.decoder
    if captioner.encoder is None:
        raise ExportError("the model looks at regions (encoder.name: regions) and has no CNN")
    if checkpoint.search.attention == "sample":
        raise ExportError("search.attention is sample: a graph draws no cells; choose argmax")
    size = checkpoint.pixels.size
    pixels_B3SS = torch.zeros(_IMAGES, 3, size, size)
    see = _See(captioner).eval()
    made = see(pixels_B3SS)
    seen, first = list(made[: 2 * decoder.layers]), made[2 * decoder.layers :]
    kind = type(decoder.start(captioner.look(captioner.grid(pixels_B3SS)), 1))
    state = [_grown(tensor, decoder) for tensor in first]
    names = _names(decoder.layers, kind)
    images = torch.export.Dim("images")
    captions = torch.export.Dim("captions")
    encoder = _graph(
        see,
        (pixels_B3SS,),
        ["pixels"],
        names["seen"] + names["state"],
        ({0: images},),
    )
    of_state: dict[int, Any] = {0: images, 1: captions}
    if isinstance(decoder, TransformerDecoder):
        of_state[2] = torch.export.Dim("words", min=0, max=MOST_WORDS)
    step = _graph(
        _Say(decoder, kind, checkpoint).eval(),
        (torch.full((_IMAGES, _CAPTIONS), START), seen, state),
        ["words", *names["seen"], *names["state"]],
        ["log_probs", "weights", *(f"next_{name}" for name in names["state"])],
        (
            {0: images, 1: captions},
            [{0: images}] * len(seen),
            [of_state] * len(state),
        ),
    )
    paths = [folder / ENCODER, folder / STEP, folder / SETTINGS]
    write_whole(paths[0], encoder)
    write_whole(paths[1], step)
    write_whole(paths[2], json.dumps(_settings(checkpoint, names), indent=1) + "\n")
    return paths


def _graph(
    module: nn.Module, traced: tuple[Any, ...], given: list[str], made: list[str], dynamic: Any
) -> bytes:
    """The module as an ONNX file's content, weights within.

    Args:
        given, made: names of the inputs and outputs, in their order.
        dynamic: which axes of the inputs may have any length.
    """
    with warnings.catch_warnings():
        # Several inputs share one axis of images; its name is taken from the first.
        warnings.filterwarnings("ignore", message="# The axis name")
        program = torch.onnx.export(
            module,
            traced,
            input_names=given,
            output_names=made,
            dynamic_shapes=dynamic,
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # it is None where a file is named
    # torch may settle for a graph of the traced number of images, and say nothing.
    inputs = program.model.graph.inputs
    fixed = [each.name for each in inputs if each.shape is None or isinstance(each.shape[0], int)]
    if fixed:
        raise ExportError(f"the graph would take {_IMAGES} images alone, at its input {fixed[0]}")
    content: bytes = program.model_proto.SerializeToString()
    return content


def _grown(state: Tensor, decoder: Decoder) -> Tensor:
    """Of (B, 1, ...): that of several captions; of a Transformer's also several words."""
    state = state.expand(-1, _CAPTIONS, *state.shape[2:])
    if isinstance(decoder, TransformerDecoder):
        return state.new_zeros(*state.shape[:2], _WORDS, *state.shape[3:])
    return state.contiguous()


def _names(layers: int, kind: type[State]) -> dict[str, list[str]]:
    """What goes between the graphs: ``keys_0``, ``values_0``, ``hidden``, ``cell``, ..."""
    seen = [f"{part}_{layer}" for part in ("keys", "values") for layer in range(layers)]
    return {"seen": seen, "state": [name.split("_")[0] for name in kind.__annotations__]}


def _settings(checkpoint: Checkpoint, names: dict[str, list[str]]) -> dict[str, Any]:
    shape = checkpoint.captioner.shape
    return {
        "format": FORMAT,
        "showattend": showattend.__version__,
        "pixels": checkpoint.pixels.model_dump(),
        "grid": [shape.height, shape.width],
        **names,
        "start": START,
        "end": END,
        "never": [PAD, START, UNKNOWN],
        "max_words": checkpoint.search.max_words,
        "vocabulary": list(checkpoint.vocabulary.words),
        "origin": checkpoint.origin,
    }
