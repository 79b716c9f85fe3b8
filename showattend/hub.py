"""What the Hugging Face Hub is told of a checkpoint, and where its copies come to lie."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

import showattend
from showattend.checkpoint import CONFIG, WEIGHTS, Checkpoint, CheckpointError

#: What the Hub shows of a repository.
CARD = "README.md"
#: What a copy of an empty repository holds.
OF_A_REPOSITORY = (CARD, ".git", ".gitattributes")
#: Scores that a run may have noted in its checkpoint, and what the Hub calls them.
_METRICS = {
    "BLEU-1": "bleu1",
    "BLEU-2": "bleu2",
    "BLEU-3": "bleu3",
    "BLEU-4": "bleu",
    "METEOR": "meteor",
    "ROUGE-L": "rouge",
    "CIDEr-D": "cider",
}
_TEXT = """---
{{ card_data }}
---

# {{ name }}

Captions photographs in one sentence, and tells for every word where it looked (Show, Attend and
Tell, Xu et al. 2015, arXiv 1502.03044).

```python
from showattend import CaptionModel  # pip install showattend

model = CaptionModel.from_pretrained("{{ repository }}")
model.caption("photo.jpg").text
```

`showattend evaluate --checkpoint FOLDER --data CONFIG` scores it.

## Where it comes from

| fact | value |
| --- | --- |
{{ facts }}

Scores, times 100, are those of the validation split on which the epoch was chosen.

## Settings

Made by showattend {{ version }}. The vocabulary has {{ words }} words.

```json
{{ settings }}
```

## Limits

{{ limits }}
"""
LIMITS = (
    "It knows the world of its training data: of other things it says what it knows, and it "
    "repeats that data's habits and prejudices. Colours, counts, and the sexes and ages of people "
    "are often wrong. Attention tells which features were used; it is no proof of what was seen. "
    "Not for decisions about people."
)


def model_card(
    checkpoint: Checkpoint,
    *,
    name: str,
    repository: str = "FOLDER",
    license: str = "other",
    limits: str = LIMITS,
) -> ModelCard:
    """The README.md of a checkpoint's repository, filled from what the checkpoint holds.

    Args:
        repository: its name on the Hub, or its folder.
        license: as the Hub spells it; by default it says that the terms of the data hold.
    """
    origin = checkpoint.origin
    data = str(origin.get("data", "data that is not named"))
    card_data = ModelCardData(
        language="en",
        library_name="showattend",
        pipeline_tag="image-to-text",
        tags=["image-captioning", "attention"],
        model_name=name,
        eval_results=_results(origin, data) or None,
        license=license,
        license_name=f"as the terms of {data}" if license == "other" else None,
    )
    sections = ("pixels", "encoder", "decoder", "search")
    settings = {section: getattr(checkpoint, section).model_dump() for section in sections}
    card: ModelCard = ModelCard.from_template(
        card_data,
        template_str=_TEXT,
        name=name,
        repository=repository,
        facts="\n".join(f"| {_cell(key)} | {_cell(value)} |" for key, value in origin.items()),
        version=showattend.__version__,
        words=f"{len(checkpoint.vocabulary):,}",
        settings=json.dumps(settings, indent=1),
        limits=limits,
    )
    return card


def _results(origin: dict[str, Any], data: str) -> list[EvalResult]:
    return [
        EvalResult(
            task_type="image-to-text",
            dataset_type=data,
            dataset_name=data,
            dataset_split="validation",
            metric_type=metric,
            metric_name=name,
            metric_value=round(origin[name], 2),
        )
        for name, metric in _METRICS.items()
        if isinstance(origin.get(name), int | float)
    ]


def _cell(value: object) -> str:
    """Of a table in Markdown."""
    return " ".join(str(value).split()).replace("|", "\\|")


@contextmanager
def hub_reached(repository: str) -> Iterator[None]:
    """What the Hub's client raises in many ways, in one.

    Raises:
        CheckpointError: there is no such repository, or no way to the Hub; one line.
    """
    try:
        yield
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        raise CheckpointError(
            f"{repository}: is no folder, and could not be had from the Hugging Face Hub ({reason})"
        ) from None


def hub_folder(repository: str, **options: Any) -> Path:
    """The local copy of a repository's two files, downloaded where there is none.

    Args:
        options: of `huggingface_hub.snapshot_download`.
    """
    return Path(snapshot_download(repository, allow_patterns=[CONFIG, WEIGHTS], **options))
