"""The page as a whole: what is on it, and what a request can reach."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio import analytics
from gradio.state_holder import SessionState
from PIL import Image

from showattend.app.caption_tab import caption
from showattend.app.models import Models
from showattend.app.page import build_page
from showattend.app.server import stay_home
from showattend.app.uploads import EXAMPLES, NOT_OURS

pytestmark = pytest.mark.usefixtures("cache")


async def built(models: list[str]) -> gr.Blocks:
    """Within a running loop: otherwise Gradio opens one and leaves it so."""
    stay_home()
    return build_page(Models(models))


def visible(page: gr.Blocks, kind: type) -> list[Any]:
    blocks: list[Any] = [block for block in page.blocks.values() if type(block) is kind]
    return [block for block in blocks if block.visible]


def test_a_choice_of_models_only_where_there_is_one() -> None:
    assert visible(asyncio.run(built(["soft"])), gr.Dropdown) == []
    (dropdown,) = visible(asyncio.run(built(["soft", "hard"])), gr.Dropdown)
    assert [name for name, _ in dropdown.choices] == ["soft", "hard"]
    assert dropdown.value == "soft"


def test_every_control_says_what_it_does() -> None:
    page = asyncio.run(built(["soft", "hard"]))
    controls = [
        block
        for kind in (gr.Dropdown, gr.Slider, gr.CheckboxGroup, gr.Textbox)
        for block in visible(page, kind)
    ]
    assert len(controls) >= 4
    for control in controls:
        assert control.label and control.info, control.label


def test_the_page_has_no_telemetry_and_one_door_for_programs() -> None:
    page = asyncio.run(built(["soft"]))
    assert not page.analytics_enabled
    assert not analytics.analytics_enabled()
    assert page.delete_cache == (600, 3600)
    told = page.get_api_info()
    assert list(told["named_endpoints"]) == ["/caption"]
    assert told["unnamed_endpoints"] == {}
    parameters = told["named_endpoints"]["/caption"]["parameters"]
    assert [each["parameter_name"] for each in parameters] == ["photo", "model", "beam_size"]


def test_a_request_without_gradios_mark_opens_no_file_of_the_server(
    folder: str,
    photo: dict[str, Any],
    draw: Callable[[Path], Path],
    tmp_path: Path,
    warned: list[str],
) -> None:
    """Through Gradio's own handling of requests: it checks a path only beside `meta._type`."""
    page = asyncio.run(built([folder]))
    (event,) = [fn for fn in page.fns.values() if getattr(fn.fn, "func", None) is caption]

    def shown(path: str) -> Any:
        inputs = [{"path": path}, folder, 3]
        answer = asyncio.run(page.process_api(event, inputs, SessionState(page)))
        return answer["data"][1]

    assert shown(photo["path"])["views"][0]["photo"].startswith("data:image/jpeg")
    assert shown(str(draw(tmp_path / "private.png"))) is None
    assert warned == [NOT_OURS]


def test_every_example_is_credited_and_free() -> None:
    credits = (EXAMPLES / "CREDITS.md").read_text(encoding="utf-8")
    photographs = sorted(EXAMPLES.glob("*.jpg"))
    assert 4 <= len(photographs) <= 6
    assert sum(path.stat().st_size for path in photographs) < 700_000
    for path in photographs:
        (row,) = [line for line in credits.splitlines() if line.startswith(f"| `{path.name}` ")]
        assert re.search(r"\| \d{12} \| \[photo \d+\]\(http://\S+staticflickr\.com/\S+\) \|", row)
        assert re.search(r"\(CC BY(-SA)? 2\.0\)\]\(http://creativecommons\.org/licenses/by", row)
        with Image.open(path) as picture:
            assert max(picture.size) <= 500
