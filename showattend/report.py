"""Tables of scores, for a terminal, a Markdown file, a page and JSON."""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from showattend.bootstrap import Interval


@dataclass(frozen=True)
class Cell:
    """One figure, and the 95 % interval that it was found with."""

    value: float
    interval: Interval | None = None
    decimals: int = 2

    def text(self) -> str:
        """Whole numbers whole, others with their decimals; "-" where there is none."""
        if math.isnan(self.value):
            return "-"
        if isinstance(self.value, int):
            return f"{self.value:,}"
        if self.interval is None:
            return f"{self.value:.{self.decimals}f}"
        value, low, high = (f"{each:.{self.decimals}f}" for each in (self.value, *self.interval))
        return f"{value} [{low}, {high}]"

    def tree(self) -> Any:
        """For JSON, which has no NaN."""
        if self.interval is None:
            return _or_none(self.value)
        return {"value": _or_none(self.value), "95 %": [_or_none(end) for end in self.interval]}


@dataclass(frozen=True)
class Table:
    """Figures by row and column; a row may lack columns. ``note`` says what they are."""

    title: str
    rows: Mapping[str, Mapping[str, Cell]]
    note: str

    @property
    def columns(self) -> list[str]:
        """In the order in which rows bring them up."""
        return list(dict.fromkeys(name for row in self.rows.values() for name in row))

    def lines(self) -> list[list[str]]:
        """The heading, then every row, as texts."""
        columns = self.columns
        body = [
            [name, *(row[column].text() if column in row else "" for column in columns)]
            for name, row in self.rows.items()
        ]
        return [[self.title, *columns], *body]

    def tree(self) -> dict[str, Any]:
        """For JSON."""
        return {
            name: {column: cell.tree() for column, cell in row.items()}
            for name, row in self.rows.items()
        }


def plain(table: Table) -> str:
    """For a terminal: columns under each other."""
    lines = table.lines()
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = [_aligned(line, widths) for line in lines]
    return "\n".join([*rows, *filter(None, [table.note])])


def markdown(table: Table) -> str:
    """For a README."""
    heading, *body = table.lines()
    rule = ["---", *["---:"] * len(table.columns)]
    rows = ["| " + " | ".join(line) + " |" for line in (heading, rule, *body)]
    return "\n".join([*rows, *(["", table.note] if table.note else [])])


def markup(table: Table) -> str:
    """For a page of HTML."""
    heading, *body = ([html.escape(text, quote=False) for text in line] for line in table.lines())
    rows = ["<tr><th>" + "<th>".join(heading)]
    rows += [f"<tr><th>{name}<td>" + "<td>".join(cells) for name, *cells in body]
    note = f"<p>{html.escape(table.note, quote=False)}" if table.note else ""
    return "\n".join(["<table>", *rows, f"</table>{note}"])


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        text.ljust(width) if place == 0 else text.rjust(width)
        for place, (text, width) in enumerate(zip(line, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()
