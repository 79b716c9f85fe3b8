"""The page of a comparison: tables, learning curves, and pictures with both sides' attention."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from showattend.datasets import Picture
from showattend.gaze import LEAST_SHARED
from showattend.images import Resize
from showattend.page import STYLE, overlay
from showattend.report import Table, markup
from showattend.search import Caption


@dataclass(frozen=True)
class Said:
    """What one side says of a picture; caption and resize are None of a file of results."""

    text: str
    caption: Caption | None
    resize: Resize | None
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Pair:
    """A picture with what both sides say of it.

    Attributes:
        lead: how much higher the first side's CIDEr-D is.
        apart: `gaze.distance` of the two captions; None where it has none.
        said: side -> what it says.
    """

    picture: Picture
    lead: float
    apart: float | None
    said: Mapping[str, Said]


@dataclass(frozen=True)
class Contrast:
    """The pictures on which two sides part, by why they are shown."""

    sides: tuple[str, str]
    groups: Mapping[str, Sequence[Pair]]


_STYLE = """
table { margin: 1.2rem 0 .2rem; } table + p { margin: 0; color: #555; font-size: .9em; }
th { font-weight: 600; } tr:first-child { border-bottom: 1px solid; }
tr th:first-child { text-align: left; padding-left: 0; } h2 { margin-top: 3rem; }
figure > p { margin: .6rem 0 .2rem; } dt { float: left; clear: left; width: 9rem; color: #555; }
"""


def compare_page(
    title: str,
    mark: str,
    facts: Mapping[str, str],
    tables: Sequence[Table],
    notes: Sequence[str],
    curves: str | None,
    contrasts: Sequence[Contrast],
) -> str:
    """The HTML, complete in itself: pictures are in it, and nothing is fetched.

    Raises:
        ImageError: a picture cannot be opened.
    """
    name = html.escape(title)
    listed = "".join(f"<dt>{_text(key)}<dd>{_text(value)}" for key, value in facts.items())
    parts = [
        f'<!doctype html><html lang=en><meta charset=utf-8><meta name=generator content="{mark}">',
        f"<title>{name}</title><style>{STYLE}{_STYLE}</style><h1>{name}</h1><dl>{listed}</dl>",
        *map(markup, tables),
        f"<h2>Notes</h2><ul>{''.join(f'<li>{_text(note)}' for note in notes)}</ul>",
    ]
    if curves is not None:
        parts += ["<h2>Learning curves</h2>", curves]
    for contrast in contrasts:
        parts.append(f"<h2>Pictures: {_text(' and '.join(contrast.sides))}</h2><p>{_PICTURES}")
        for heading, pairs in contrast.groups.items():
            parts.append(f"<h3>{_text(heading)}</h3>")
            parts += [_figure(pair) for pair in pairs] or ["<p>None."]
    return "\n".join(parts) + "\n</html>\n"


def _figure(pair: Pair) -> str:
    """Both sides above each other, then what people said."""
    sides = "".join(
        f"<p><b>{_text(side)}: {_text(said.text)}</b><br>{_scores(said)}</p>"
        + _overlay(pair.picture, said)
        for side, said in pair.said.items()
    )
    apart = "" if pair.apart is None else f", maps apart {pair.apart:.2f}"
    people = "".join(f"<li>{_text(caption)}" for caption in pair.picture.captions)
    return (
        f"<figure>{sides}<figcaption>{_text(str(pair.picture.image_id))}: difference of CIDEr-D "
        f"{pair.lead:+.1f}{apart}<ul>{people}</ul></figcaption></figure>"
    )


def _overlay(picture: Picture, said: Said) -> str:
    if said.caption is None or said.resize is None:
        return ""
    return overlay(picture, said.caption, said.resize)


def _scores(said: Said) -> str:
    return ", ".join(f"{name} {score:.1f}" for name, score in said.scores.items())


def _text(text: str) -> str:
    return html.escape(text, quote=False)


_PICTURES = (
    "Wins are by the image's CIDEr-D. How far apart two captions look (0 to 1) is the share of the "
    "weight that lies elsewhere when both say the same word (total variation distance of the two "
    f"maps), a mean over the words that they share, of captions that share {LEAST_SHARED} or more."
)
