"""Caption a split free-running, and score it."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from tqdm import tqdm

from showattend.boxes import Grounded
from showattend.captioner import Captioner
from showattend.config import SearchSettings
from showattend.datasets import ImageId, Picture
from showattend.grids import AnyGrids
from showattend.grounding import attend_phrases, point_at_phrases, point_at_shapes
from showattend.images import Resize
from showattend.losses import entropies
from showattend.metrics import score_captions
from showattend.pointing import shares
from showattend.search import Caption, beam_search
from showattend.vocabulary import Vocabulary

_BATCH = 64


@torch.inference_mode()
def caption_split(
    captioner: Captioner,
    vocabulary: Vocabulary,
    grids: AnyGrids,
    search: SearchSettings,
    *,
    count: int | None = None,
    part: int = 0,
    parts: int = 1,
) -> dict[ImageId, Caption]:
    """The best caption of every picture (or of the first ``count``), never shown a reference.

    Args:
        part, parts: of these pictures every ``parts``-th, from ``part`` on.
    """
    captioner.eval()
    pictures = grids.pictures[:count]
    own = range(part, len(pictures), parts)
    captions: dict[ImageId, Caption] = {}
    with tqdm(total=len(own), desc="captions", unit="img", leave=False, disable=None) as bar:
        for start in range(0, len(own), _BATCH):
            positions = own[start : start + _BATCH]
            scene = captioner.look(grids.read(positions).to(captioner.device))
            for position, found in zip(
                positions, beam_search(captioner, vocabulary, scene, search), strict=True
            ):
                captions[pictures[position].image_id] = found[0]
            bar.update(len(positions))
    return captions


def score_split(
    captions: Mapping[ImageId, Caption], pictures: Sequence[Picture]
) -> dict[str, float]:
    """BLEU, ROUGE-L and CIDEr-D (x100) on raw references; the attention's mean entropy (nats).

    On drawn shapes also "peak in box": for how many of 100 nouns the attention's peak lay in the
    box of the named object.
    """
    texts = {image_id: caption.text for image_id, caption in captions.items()}
    references = {picture.image_id: picture.captions for picture in pictures}
    scores = score_captions(texts, {image_id: references[image_id] for image_id in texts})
    scores["attention entropy"] = attention_entropy(captions.values())
    pointing = point_at_shapes(captions, pictures)
    if pointing.nouns:
        scores["peak in box"] = 100.0 * pointing.rate
    return scores


def attention_entropy(captions: Iterable[Caption]) -> float:
    """Mean over words of -sum_i alpha_i ln alpha_i; ln P for a flat map, 0 for a single cell."""
    # One by one: of regions, P is each picture's own.
    alphas = (torch.from_numpy(caption.alpha.astype(np.float64)) for caption in captions)
    return float(torch.cat([entropies(alpha_TP) for alpha_TP in alphas]).mean())


def phrase_pointing(
    captioner: Captioner,
    vocabulary: Vocabulary,
    grids: AnyGrids,
    boxes: Mapping[ImageId, Sequence[Grounded]],
    resize: Resize,
) -> float:
    """Of 100 phrases, for how many the peak of the head word's map lies in the box."""
    maps = attend_phrases(captioner, vocabulary, grids, boxes)
    return pointing_rate(maps, boxes, grids.pictures, resize)


def pointing_rate(
    maps: Mapping[ImageId, Sequence[np.ndarray]],
    boxes: Mapping[ImageId, Sequence[Grounded]],
    pictures: Sequence[Picture],
    resize: Resize,
) -> float:
    """The same from the maps of `attend_phrases`."""
    found = shares(point_at_phrases(maps, boxes, pictures, resize))
    return 100.0 * found["all", "head"].value
