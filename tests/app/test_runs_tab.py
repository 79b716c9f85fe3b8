"""The tab's handlers, called without a server, and what they offer to programs: nothing."""

import asyncio
import os
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from showattend.app import runs_tab
from showattend.app.runs_tab import add_runs_tab


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two runs, the later one named `b`, and one beside them."""
    for second, name in enumerate(("a", "b", "../outside")):
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        settings = f"data: {{kind: shapes}}\ntrain: {{epochs: 9, seed: {second}}}\n"
        (folder / "settings.yaml").write_text(settings)
        (folder / "metrics.jsonl").write_text('{"epoch": 1, "loss": 5, "CIDEr-D": 6}\n')
    os.utime(tmp_path / "runs" / "a" / "metrics.jsonl", (1, 1))
    return tmp_path / "runs"


async def built(root: Path) -> gr.Blocks:
    """Within a running loop: otherwise Gradio opens one and leaves it so."""
    with gr.Blocks() as page, gr.Tabs(), gr.Tab("Runs"):
        add_runs_tab(root)
    return page


def is_skipped(update: Any) -> bool:
    return isinstance(update, dict) and set(update) == {"__type__"}


def test_what_is_as_it_was_is_not_sent_anew(root: Path) -> None:
    content, shown, timer = runs_tab._progress(root, ["a"], "")
    assert content == shown
    assert "<th scope=row>a<td>stopped<td>1 of 9" in content
    assert timer.active
    again, kept, timer = runs_tab._progress(root, ["a"], shown)
    assert is_skipped(again)
    assert is_skipped(kept)
    assert timer.active
    with (root / "a" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "loss": 4, "CIDEr-D": 7}\n')
    assert "<td>2 of 9" in runs_tab._progress(root, ["a"], shown)[0]


def test_nothing_is_looked_at_while_nothing_is_chosen(root: Path) -> None:
    content, _, timer = runs_tab._progress(root, [], "what was there")
    assert content == runs_tab._HINT
    assert not timer.active
    assert runs_tab._details(root, []) == ""


@pytest.mark.parametrize("names", [["../outside"], ["<b>"], "a", 7])
def test_another_name_is_refused_in_a_line(root: Path, names: Any) -> None:
    content = runs_tab._progress(root, names, "")[0]
    assert content.startswith('<p class="sa-trouble">')
    assert "<b>" not in content
    assert "seed" not in content
    assert runs_tab._details(root, names) == ""


def test_two_runs_differ_in_a_setting(root: Path) -> None:
    told = runs_tab._details(root, ["a", "b"])
    assert "<th scope=row>train.seed<td>0<td>1" in told
    assert "showattend evaluate --checkpoint" in told


def test_the_tab_offers_the_runs_and_programs_none_of_its_handlers(root: Path) -> None:
    page = asyncio.run(built(root))
    (names,) = (block for block in page.blocks.values() if isinstance(block, gr.Dropdown))
    assert [name for name, _ in names.choices] == ["b", "a"]
    (timer,) = (block for block in page.blocks.values() if isinstance(block, gr.Timer))
    assert not timer.active
    assert len(page.fns) == 4
    assert all(handler.api_visibility == "private" for handler in page.fns.values())
