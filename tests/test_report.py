"""Tables as text, Markdown and JSON."""

import json

import pytest

from showattend.report import Cell, Table, markdown, markup, plain

NAN = float("nan")
TABLE = Table(
    "score",
    {
        "BLEU-4": {"model": Cell(21.678, (20.5, 22.75)), "people": Cell(21.7)},
        "images": {"model": Cell(1000)},
        "METEOR": {"people": Cell(NAN)},
    },
    "Times 100.",
)


@pytest.mark.parametrize(
    ("cell", "text", "tree"),
    [
        (Cell(21.678), "21.68", 21.678),
        (Cell(35000), "35,000", 35000),
        (Cell(0.0009990, decimals=3), "0.001", 0.0009990),
        (Cell(0.5, (0.25, 0.75)), "0.50 [0.25, 0.75]", {"value": 0.5, "95 %": [0.25, 0.75]}),
        (Cell(NAN), "-", None),
        (Cell(NAN, (NAN, NAN)), "-", {"value": None, "95 %": [None, None]}),
    ],
)
def test_a_figure_in_words_and_in_json(cell: Cell, text: str, tree: object) -> None:
    assert cell.text() == text
    assert cell.tree() == tree
    json.dumps(cell.tree(), allow_nan=False)


def test_plain_text_stands_in_columns() -> None:
    assert plain(TABLE).splitlines() == [
        "score                  model  people",
        "BLEU-4  21.68 [20.50, 22.75]   21.70",
        "images                 1,000",
        "METEOR                             -",
        "Times 100.",
    ]


def test_markdown() -> None:
    assert markdown(TABLE).splitlines() == [
        "| score | model | people |",
        "| --- | ---: | ---: |",
        "| BLEU-4 | 21.68 [20.50, 22.75] | 21.70 |",
        "| images | 1,000 |  |",
        "| METEOR |  | - |",
        "",
        "Times 100.",
    ]


def test_json_lists_what_is_there() -> None:
    assert TABLE.tree()["images"] == {"model": 1000}
    assert TABLE.tree()["BLEU-4"]["people"] == 21.7


def test_markup_is_a_table_of_a_page() -> None:
    table = Table("a<b", {"x & y": {"c": Cell(1)}, "z": {"d": Cell(0.5)}}, "p > 0")
    assert markup(table).splitlines() == [
        "<table>",
        "<tr><th>a&lt;b<th>c<th>d",
        "<tr><th>x &amp; y<td>1<td>",
        "<tr><th>z<td><td>0.50",
        "</table><p>p &gt; 0",
    ]
