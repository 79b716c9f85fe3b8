"""The whole model: encoder and decoder, and its builder from settings."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from showattend.channel_attention import ChannelAttention, channel_attention
from showattend.config import REGIONS, DecoderSettings, EncoderSettings
from showattend.decoder import Decoder, Scene
from showattend.encoder import Encoder, EncoderError, GridShape, as_grid
from showattend.items import Items
from showattend.recurrent import GruDecoder, LstmDecoder
from showattend.transformer import TransformerDecoder

#: More photographs at a time make tensors for which the C library asks the system for fresh memory
#: each time: a quarter slower.
_AT_ONCE_ON_CPU = 2


class Captioner(nn.Module):
    """A photograph's pixels in, a scene to caption out; or, without an encoder, regions' features.

    ``shape`` is that of the encoder's grid; attention chooses among its P = height * width cells.
    ``channel_attention`` gates the channels of the grid (of a fused one: of its late map). It sits
    behind the encoder, so that it can be trained on the cached grids of a frozen one. Where
    ``encoder`` is None the model looks at regions, as many as an image has, and ``shape`` is that
    of each: one cell.
    """

    def __init__(
        self,
        encoder: Encoder | None,
        decoder: Decoder,
        shape: GridShape,
        channel_attention: ChannelAttention | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.shape = shape
        self.channel_attention = channel_attention

    def grid(self, pixels_B3SS: Tensor) -> Tensor:
        """The encoder's grid (B, P, C), packed where it is fused, before any gate or projection.

        Raises:
            EncoderError: there is no encoder; one line.
        """
        if self.encoder is None:
            raise EncoderError("the model has no CNN (encoder.name: regions); give it regions")
        return as_grid(self.encoder(pixels_B3SS))

    @torch.inference_mode()
    def encode(self, pixels_B3SS: Tensor) -> Tensor:
        """The same without gradients, at the encoder's best speed: what is cached on disk."""
        at_once = _AT_ONCE_ON_CPU if pixels_B3SS.device.type == "cpu" else len(pixels_B3SS)
        starts = range(0, len(pixels_B3SS), at_once)
        return torch.cat([self.grid(pixels_B3SS[i : i + at_once]) for i in starts])

    def look(self, grid_BPC: Tensor | Items) -> Scene:
        """What the decoder sees of a grid, or of regions; cached grids come as fp16."""
        dtype = self.decoder.embed.weight.dtype
        if isinstance(grid_BPC, Items):
            scene = self.decoder.look(grid_BPC.features_BPC.to(dtype), grid_BPC.mask_BP)
            return replace(scene, boxes_BP4=grid_BPC.boxes_BP4)
        return self.decoder.look(self._gated(grid_BPC.to(dtype)))

    def _gated(self, grid_BPC: Tensor) -> Tensor:
        """The grid after channel attention, if there is any."""
        if self.channel_attention is None:
            return grid_BPC
        late_BChw, early_BPC = self.shape.late(grid_BPC), grid_BPC[:, :, self.shape.channels :]
        return torch.cat([as_grid(self.channel_attention(late_BChw)), early_BPC], dim=-1)

    @property
    def device(self) -> torch.device:
        return self.decoder.embed.weight.device


def build_captioner(
    encoder: EncoderSettings,
    decoder: DecoderSettings,
    *,
    size: int,
    words: int,
    pretrained: bool | None = None,
) -> Captioner:
    """Build the model that settings describe.

    Args:
        size: side of the model's square in pixels; regions need none.
        words: V, the specials included.
        pretrained: overrides the setting; False where a checkpoint brings the weights.
    Raises:
        EncoderError: the backbone cannot be built.
        DecoderError: the decoder's settings do not fit the grid.
    """
    if encoder.name == REGIONS:
        assert encoder.channels is not None  # the settings' own check
        item = GridShape(1, 1, encoder.channels)
        return Captioner(None, build_decoder(item, words, decoder), item)
    options = dict(encoder)
    del options["channels"]  # of regions alone
    if pretrained is not None:
        options["pretrained"] = pretrained
    network = Encoder(**options)
    shape = network.grid_shape(size)
    writer, gate = build_decoder(shape, words, decoder), None
    if network.grid_gate is not None:
        kind, reduction = network.grid_gate.kind, network.grid_gate.reduction
        gate = channel_attention(kind, shape.channels, reduction)
    return Captioner(network, writer, shape, gate)


def build_decoder(grid: GridShape, words: int, settings: DecoderSettings) -> Decoder:
    """The decoder of ``settings.kind``. Raises: DecoderError."""
    kinds = {"lstm": LstmDecoder, "gru": GruDecoder, "transformer": TransformerDecoder}
    return kinds[settings.kind](grid, words, settings)
