"""Does a model's attention look at the thing it names? The pointing game on whole splits.

Teacher forced, on the phrases of people's own sentences, and on the captions that a model writes of
drawn shapes. The game itself, its baselines and its ceiling are in `pointing`; what a model's own
captions mention of a photograph is in `mentions`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from showattend.batches import padded
from showattend.boxes import Box, Grounded
from showattend.captioner import Captioner
from showattend.datasets import ImageId, Picture
from showattend.grids import AnyGrids
from showattend.images import Resize, seen_box
from showattend.pointing import Pointed, inside, peak, point
from showattend.search import Boxes, Caption
from showattend.shapes import CANVAS, noun_boxes
from showattend.shapes import Scene as ShapeScene
from showattend.vocabulary import END, Vocabulary

_BATCH = 64


@dataclass(frozen=True)
class Pointing:
    """How many nouns were said, and for how many the attention's peak lay in the named box."""

    nouns: int
    hits: int

    @property
    def rate(self) -> float:
        """Hits per noun, 0..1; NaN where no noun was said."""
        return self.hits / self.nouns if self.nouns else float("nan")


def point_at_shapes(captions: Mapping[ImageId, Caption], pictures: Sequence[Picture]) -> Pointing:
    """The pointing game on generated captions of drawn shapes.

    Every noun that the model says counts. One that names nothing in the picture has no box and is
    a miss.
    """
    nouns = hits = 0
    for picture in pictures:
        caption = captions.get(picture.image_id)
        if caption is None or not isinstance(picture.source, ShapeScene):
            continue
        if isinstance(caption.regions, Boxes):  # the game is played on a grid
            continue
        # Not the weights: those of a window of cells have no single peak.
        maps_Thw = caption.alpha_maps()
        for position, boxes in noun_boxes(picture.source, caption.words):
            nouns += 1
            hits += inside(peak(maps_Thw[position], CANVAS, CANVAS), boxes)
    return Pointing(nouns, hits)


def point_at_phrases(
    maps: Mapping[ImageId, Sequence[np.ndarray]],
    boxes: Mapping[ImageId, Sequence[Grounded]],
    pictures: Sequence[Picture],
    resize: Resize,
    *,
    shift: int = 0,
) -> dict[ImageId, list[Pointed]]:
    """The pointing game on people's sentences, with the attention of `attend_phrases` on them.

    Args:
        shift: see `pointing.point`.
    """
    pointed: dict[ImageId, list[Pointed]] = {}
    for picture in pictures:
        key = picture.image_id
        if key in maps:
            seen = seen_part(picture, resize)
            pairs = zip(maps[key], boxes[key], strict=True)
            pointed[key] = [
                each
                for maps_Thw, grounded in pairs
                for each in point(maps_Thw, grounded, seen, shift=shift)
            ]
    return pointed


def seen_part(picture: Picture, resize: Resize) -> Box:
    """The part of a photograph that the model sees, in fractions of the photograph.

    Raises:
        ImageError: the photograph must be opened for its size, and cannot be.
    """
    if resize == "squash":
        return 0.0, 0.0, 1.0, 1.0
    width, height = picture.open().size
    x0, y0, x1, y1 = seen_box(width, height, resize)
    return x0 / width, y0 / height, x1 / width, y1 / height


@torch.inference_mode()
def attend_sentences(
    captioner: Captioner,
    vocabulary: Vocabulary,
    grids: AnyGrids,
    sentences: Mapping[ImageId, Sequence[str]],
) -> dict[ImageId, list[np.ndarray]]:
    """Where the model looks when it is made to say sentences about the pictures (teacher forcing).

    All sentences of a picture share its one grid. Pictures without sentences are left out.

    Returns:
        of each sentence the maps (T + 1, h, w) of its words and of the end mark.
    Raises:
        ValueError: the model looks at regions, which have no maps; one line.
    """
    if captioner.encoder is None:
        raise ValueError("the model looks at regions and not at a grid: there are no maps")
    captioner.eval()
    shape = captioner.shape
    ids = {
        image_id: [vocabulary.encode(text) for text in said] for image_id, said in sentences.items()
    }
    maps: dict[ImageId, list[np.ndarray]] = {}
    for positions in _batches(grids.pictures, ids):
        keys = [grids.pictures[position].image_id for position in positions]
        scene = captioner.look(grids.read(positions).to(captioner.device))
        words_BKT, order_BK = _longest_first([ids[key] for key in keys])
        taught = captioner.decoder.teach(scene, words_BKT.to(captioner.device))
        alpha_BKTP = taught.mean_alpha().float().cpu().numpy()
        for key, alpha_KTP, order_K in zip(keys, alpha_BKTP, order_BK, strict=True):
            maps[key] = [
                alpha_KTP[order_K.index(k), : len(said) + 1].reshape(-1, shape.height, shape.width)
                for k, said in enumerate(ids[key])
            ]
    return maps


def attend_phrases(
    captioner: Captioner,
    vocabulary: Vocabulary,
    grids: AnyGrids,
    boxes: Mapping[ImageId, Sequence[Grounded]],
) -> dict[ImageId, list[np.ndarray]]:
    """The same of the sentences whose phrases have boxes: what `point_at_phrases` takes."""
    sentences = {image: [each.sentence for each in said] for image, said in boxes.items()}
    return attend_sentences(captioner, vocabulary, grids, sentences)


def _batches(
    pictures: Sequence[Picture], ids: Mapping[ImageId, Sequence[Sequence[int]]]
) -> Iterator[list[int]]:
    """Positions of the pictures that have sentences, those with the longest first: in a batch of
    images of like length little is computed in vain.
    """
    longest = {key: max(map(len, said)) for key, said in ids.items() if said}
    wanted = [k for k, picture in enumerate(pictures) if picture.image_id in longest]
    wanted.sort(key=lambda k: -longest[pictures[k].image_id])
    for start in range(0, len(wanted), _BATCH):
        yield wanted[start : start + _BATCH]


def _longest_first(
    batch: Sequence[Sequence[Sequence[int]]],
) -> tuple[torch.Tensor, list[list[int]]]:
    """The sentences of each image, END behind, longest first as `teach` likes them; their order."""
    lengths_BK = [[-len(ids) for ids in said] for said in batch]
    order_BK = [sorted(range(len(falling)), key=falling.__getitem__) for falling in lengths_BK]
    words_BKT = padded(
        [[[*said[k], END] for k in order] for said, order in zip(batch, order_BK, strict=True)]
    )
    return words_BKT, order_BK
