"""The page's handlers, called without a server: what they draw, say, write and refuse."""

import asyncio
import base64
import io
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
from gradio import analytics, processing_utils
from gradio.processing_utils import sh as safehttpx
from gradio.state_holder import SessionState
from PIL import Image, ImageDraw, ImageSequence

from showattend.app import page as app
from showattend.app.page import (
    EXAMPLES,
    HINT,
    Models,
    Reading,
    as_json,
    build_app,
    captions_html,
    figure_html,
    matrix_html,
    read_photograph,
    stage_html,
    write_files,
)
from showattend.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from showattend.matrix import words_by_cells
from showattend.overlay import word_overlays
from showattend.predict import load
from showattend.search import Caption, Regions

WEIGHTS = np.array([[1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25], [0, 0, 0.4, 0.6]], np.float32)
FIRST = Caption(
    words=("a", "<b>", "dog"),
    log_prob=-6.0,
    weights=WEIGHTS,
    alpha=WEIGHTS,
    heads=None,
    regions=Regions(2, 2),
)
SECOND = replace(
    FIRST, words=("two", "cats"), log_prob=-9.0, weights=WEIGHTS[1:], alpha=WEIGHTS[1:]
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Gradio keeps files: not in the folder that all programs of this machine share."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "gradio"))
    return tmp_path / "gradio"


@pytest.fixture
def reading() -> Reading:
    photo = Image.new("RGB", (120, 80), "steelblue")
    ImageDraw.Draw(photo).ellipse((10, 10, 50, 50), fill="gold")
    return Reading("dog", photo, "squash", (FIRST, SECOND), 0.5, "soft")


@pytest.fixture
def hard_reading(reading: Reading) -> Reading:
    """Two words, each read from one cell: the first, then the last."""
    weights = np.array([[1, 0, 0, 0], [0, 0, 0, 1]], np.float32)
    alpha = np.array([[0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1]], np.float32)
    looked = replace(SECOND, weights=weights, alpha=alpha)
    return replace(reading, captions=(looked, looked), model="models/hard")


@pytest.fixture
def hard_folder(checkpoint: Checkpoint, tmp_path: Path) -> str:
    decoder = checkpoint.decoder.model_copy(update={"look": "hard"})
    save_checkpoint(tmp_path / "hard", replace(checkpoint, decoder=decoder))
    return str(tmp_path / "hard")


@pytest.fixture
def folder(checkpoint: Checkpoint, tmp_path: Path) -> str:
    save_checkpoint(tmp_path / "tiny", checkpoint)
    return str(tmp_path / "tiny")


@pytest.fixture
def photo(cache: Path) -> Path:
    """An upload."""
    return draw(cache / "0f" / "beach.png")


def draw(path: Path) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (600, 900, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise).save(path)
    return path


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that the page shows in its corner."""
    lines: list[str] = []
    monkeypatch.setattr(gr, "Warning", lambda line, **_: lines.append(line))
    return lines


def upload(path: Path) -> dict[str, Any]:
    return {"path": str(path), "orig_name": path.name}


def pictures(page: str) -> Iterator[np.ndarray]:
    for data in re.findall(r'src="data:image/\w+;base64,([^"]+)"', page):
        yield np.asarray(Image.open(io.BytesIO(base64.b64decode(data))), np.float64)


def near(picture: np.ndarray, other: Image.Image) -> bool:
    """The same but for what JPEG loses."""
    return float(np.abs(picture - np.asarray(other)).mean()) < 4


# --- reading --------------------------------------------------------------------------------------


def test_a_photograph_becomes_captions_and_a_small_picture(folder: str, photo: Path) -> None:
    model = load(folder)
    reading = read_photograph(model, str(photo), beam_size=2)
    assert reading.name == "beach"
    assert reading.photo.size == (640, 427)
    expected = model.candidates([str(photo)], beam_size=2)[0]
    assert [caption.words for caption in reading.captions] == [c.words for c in expected]
    np.testing.assert_array_equal(reading.caption.weights, expected[0].weights)


def test_captions_are_ordered_by_rank(reading: Reading, folder: str, photo: Path) -> None:
    assert reading.rank(FIRST) == -3.0  # -6 / (3 + 1)^0.5
    read = read_photograph(load(folder), str(photo), beam_size=3)
    ranks = [read.rank(caption) for caption in read.captions]
    assert len(ranks) == 3
    assert ranks == sorted(ranks, reverse=True)


def test_a_model_is_loaded_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []

    def slow(name: str) -> object:
        loads.append(name)
        time.sleep(0.05)  # long enough for the others to ask meanwhile
        return object()

    monkeypatch.setattr(app, "load", slow)
    models = Models(["soft", "hard"])
    assert loads == []
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(models.get, ["soft"] * 8))) == 1
    assert loads == ["soft"]


def test_only_offered_models_are_loaded(folder: str) -> None:
    with pytest.raises(CheckpointError, match="not among the models of this page"):
        Models(["soft"]).get(folder)
    with pytest.raises(CheckpointError, match="no model to serve"):
        build_app([])


# --- HTML -----------------------------------------------------------------------------------------


def test_every_word_has_its_overlay(reading: Reading) -> None:
    bare, *words = pictures(stage_html((reading,), 0.6))
    overlays = word_overlays(reading.photo, FIRST.maps(), "squash", 0.6)
    assert near(bare, reading.photo)
    assert len(words) == 3
    for word, overlay in zip(words, overlays, strict=True):
        assert near(word, overlay)
    assert not near(words[0], overlays[2])


def test_strength_is_how_far_the_overlays_leave_the_photograph(reading: Reading) -> None:
    assert all(near(picture, reading.photo) for picture in pictures(stage_html((reading,), 0.0)))
    bare, *words = pictures(stage_html((reading,), 1.0))
    assert near(bare, reading.photo)
    assert not any(near(word, reading.photo) for word in words)


def test_words_are_chips_with_their_peak_and_the_first_is_current(reading: Reading) -> None:
    page = stage_html((reading,), 0.6)
    chips = re.findall(r'data-step="(\d)" title="(.*?)" aria-current="(\w+)">(.*?)</button>', page)
    assert [chip[3] for chip in chips] == ["photograph", "a", "&lt;b&gt;", "dog"]
    assert [chip[2] for chip in chips] == ["false", "true", "false", "false"]
    assert "strongest cell holds 100.0%; an even look gives each cell 25.0%" in chips[1][1]
    assert "strongest cell holds 60.0%" in chips[3][1]
    assert "<b>" not in page
    assert "weight of one of 2 × 2 cells" in page


def test_a_hard_look_is_framed_and_told_as_such(hard_reading: Reading) -> None:
    page = stage_html((hard_reading,), 0.6)
    caption, alpha_Thw = hard_reading.caption, np.tile([[[0.4, 0.3], [0.2, 0.1]]], (2, 1, 1))
    overlays = word_overlays(hard_reading.photo, caption.maps(), "squash", 0.6, alpha_Thw)
    for word, overlay in zip(list(pictures(page))[1:], overlays, strict=True):
        assert near(word, overlay)
    assert "“two”: the framed part holds 40.0%; an even look gives each cell 25.0%." in page
    assert "“cats”: the framed part holds 10.0%" in page
    assert "framed: what was looked at" in page


def test_two_readings_lie_side_by_side(reading: Reading, hard_reading: Reading) -> None:
    page = stage_html((reading, hard_reading), 0.6)
    assert re.findall('<div class="sa-heading">(.*?)</div>', page) == ["soft", "hard"]
    assert len(list(pictures(page))) == 4 + 3
    assert re.findall(r'data-step="(\d)"', page) == ["0", "1", "2", "3", "0", "1", "2"]
    tables = captions_html((reading, hard_reading))
    buttons = re.findall(r'data-reading="(\d)" data-index="(\d)"', tables)
    assert buttons == [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]


def test_the_table_lists_the_beam(reading: Reading) -> None:
    rows = re.findall("<tr aria-current.*?</tr>", captions_html((replace(reading, chosen=1),)))
    assert len(rows) == 2
    assert "a &lt;b&gt; dog" in rows[0]
    assert "<td>-6.00</td><td>-3.000</td>" in rows[0]
    assert 'aria-current="false"' in rows[0]
    assert 'aria-current="true"' in rows[1]


# --- files ----------------------------------------------------------------------------------------


def test_json_tells_all_that_was_read(reading: Reading) -> None:
    told = json.loads(json.dumps(as_json(replace(reading, chosen=1))))
    assert told["photograph"] == "dog"
    assert told["model"] == "soft"
    assert told["chosen"] == 1
    first, second = told["captions"]
    assert first["words"] == ["a", "<b>", "dog"]
    assert first["text"] == "a <b> dog"
    assert (first["log_prob"], first["rank"]) == (-6.0, -3.0)
    assert first["maps"] == [[[1, 0], [0, 0]], [[0.25, 0.25], [0.25, 0.25]], [[0, 0], [0.4, 0.6]]]
    assert len(second["maps"]) == 2


def test_json_tells_what_a_hard_look_was_drawn_from(hard_reading: Reading) -> None:
    told, _ = as_json(hard_reading)["captions"]
    assert told["maps"] == [[[1, 0], [0, 0]], [[0, 0], [0, 1]]]
    assert told["alpha"] == [[[0.4, 0.3], [0.2, 0.1]]] * 2


def test_files_are_of_the_chosen_caption(reading: Reading, tmp_path: Path) -> None:
    figure, animation, data = write_files(replace(reading, chosen=1), 0.6, tmp_path)
    names = [path.name for path in (figure, animation, data)]
    assert names == ["dog_figure.png", "dog_words.gif", "dog_caption.json"]
    with Image.open(figure) as picture:
        assert picture.format == "PNG"
    with Image.open(animation) as picture:
        assert picture.format == "GIF"
        assert len(list(ImageSequence.Iterator(picture))) == 1 + 2  # the photograph, two words
    assert json.loads(data.read_text(encoding="utf-8"))["chosen"] == 1
    (shown,) = pictures(figure_html(reading, figure))
    np.testing.assert_array_equal(shown, np.asarray(Image.open(figure)))


def test_the_matrix_is_of_the_chosen_caption(reading: Reading, hard_reading: Reading) -> None:
    page = matrix_html(replace(reading, chosen=1))
    (shown,) = pictures(page)
    np.testing.assert_array_equal(shown, words_by_cells(SECOND.words, SECOND.maps()))
    assert page.count("<details>") == 1 and "open" not in page.split("<div")[0]
    assert ">Words by cells<" in page
    assert "for each word of “a &lt;b&gt; dog”" in matrix_html(reading)
    (framed,) = pictures(named := matrix_html(hard_reading, named=True))
    assert ">hard: words by cells<" in named
    assert framed.shape[0] > shown.shape[0]  # it says what the frames are


# --- handlers -------------------------------------------------------------------------------------


def test_an_upload_fills_the_page(folder: str, photo: Path, cache: Path) -> None:
    models = Models([folder])
    readings, stage, captions, results = app._caption(models, cache, upload(photo), folder, 3, 0.6)
    assert stage == stage_html(readings, 0.6)
    assert captions == captions_html(readings)
    assert results.visible
    (reading,) = readings
    assert len(reading.captions) == 3
    figure, *buttons = app._files(cache, readings, 0.6)
    buttons, second_row = buttons[:3], buttons[3:]
    assert not any(button.visible for button in second_row)
    assert len(list(pictures(figure))) == 2  # of all words, and the matrix
    files = [Path(button.value["path"]) for button in buttons]
    assert [file.suffix for file in files] == [".png", ".gif", ".json"]
    assert len(list(cache.rglob("*.gif"))) == 1  # Gradio made no second copy
    assert all(button.interactive for button in buttons)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("notes.jpg", b"no photograph", "notes.jpg: is no image that can be read"),
        ("empty.png", b"", "empty.png: is empty"),
        ("<i>.png", b"\x89PNG\r\n\x1a\n", "&lt;i&gt;.png: is"),
    ],
)
def test_a_bad_upload_gives_one_line_and_an_empty_page(
    folder: str, cache: Path, warned: list[str], name: str, content: bytes, expected: str
) -> None:
    cache.mkdir()
    (cache / name).write_bytes(content)
    *shown, results = app._caption(Models([folder]), cache, upload(cache / name), folder, 3, 0.6)
    assert shown == [(), HINT, ""]
    assert not results.visible
    (line,) = warned
    assert line.startswith(expected)
    assert "\n" not in line
    assert str(cache) not in line


def test_a_missing_model_gives_one_line(
    photo: Path, cache: Path, warned: list[str], tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing")
    assert app._caption(Models([missing]), cache, upload(photo), missing, 3, 0.6)[0] == ()
    assert "missing: neither a shipped model" in warned[0]


def test_a_beam_out_of_range_gives_one_line(
    folder: str, photo: Path, cache: Path, warned: list[str]
) -> None:
    assert app._caption(Models([folder]), cache, upload(photo), folder, 0, 0.6)[0] == ()
    assert warned == ["search: `beam_size` is 0: input should be greater than or equal to 1"]


def test_only_uploads_and_examples_are_opened(
    folder: str, photo: Path, cache: Path, tmp_path: Path, warned: list[str]
) -> None:
    """A request may name any file; the answer does not tell whether there is one."""
    private = draw(tmp_path / "private.png")
    (cache / "link.png").symlink_to(private)
    beside = draw(tmp_path / "gradio-of-others" / "beach.png")
    paths: list[Any] = [
        private,
        tmp_path / "none.png",
        cache / "link.png",
        cache / ".." / private.name,
        cache / "swept.png",
        cache,
        beside,
        "",
        "a\0b",
        "x" * 5000,
        "https://example.org/a.jpg",
    ]
    records = [{"path": str(path)} for path in paths]
    for record in [*records, {"path": 5}, {"path": None}, {}, [str(photo)], str(photo)]:
        read = app._caption(Models([folder]), cache, record, folder, 3, 0.6)  # type: ignore[arg-type]
        assert read[:3] == [(), HINT, ""]
    assert warned == [app._NOT_OURS] * 16
    for path in (photo, EXAMPLES / "horses.jpg"):
        read = app._caption(Models([folder]), cache, {"path": str(path)}, folder, 3, 0.6)
        assert read[0][0].name == path.stem


def test_a_request_without_gradios_mark_opens_no_file_of_the_server(
    folder: str, photo: Path, tmp_path: Path, warned: list[str]
) -> None:
    """Through Gradio's own handling of requests: it checks a path only beside `meta._type`."""
    page = asyncio.run(built([folder]))
    (caption,) = [fn for fn in page.fns.values() if getattr(fn.fn, "func", None) is app._caption]

    def stage(path: Path) -> str:
        inputs = [{"path": str(path)}, folder, 3, 0.6]
        answer = asyncio.run(page.process_api(caption, inputs, SessionState(page)))
        return str(answer["data"][1])

    assert "data:image/jpeg" in stage(photo)
    assert "data:image" not in stage(draw(tmp_path / "private.png"))
    assert warned == [app._NOT_OURS]


def test_without_a_photograph_nothing_is_shown(folder: str, cache: Path) -> None:
    readings, stage, _, results = app._caption(Models([folder]), cache, None, folder, 3, 0.6)
    assert (readings, stage, results.visible) == ((), HINT, False)
    figure, *buttons = app._files(cache, (), 0.6)
    assert figure == ""
    assert not any(button.interactive for button in buttons)
    assert not list(cache.rglob("*.png"))
    assert app._redraw((), 0.6) == HINT


def test_a_runner_up_takes_the_stage(reading: Reading) -> None:
    click = gr.SelectData(None, {"index": [0, 1], "value": "two cats"})
    chosen, stage, captions, _ = app._choose((reading,), 0.3, click)
    assert chosen[0].caption is SECOND
    assert stage == stage_html(chosen, 0.3)
    assert captions == captions_html(chosen)
    for index in ([0, 2], [1, 0]):
        with pytest.raises(IndexError):
            app._choose((reading,), 0.3, gr.SelectData(None, {"index": index, "value": ""}))


def test_of_two_readings_the_clicked_one_changes(reading: Reading, hard_reading: Reading) -> None:
    click = gr.SelectData(None, {"index": [1, 0], "value": ""})
    both = (replace(reading, chosen=1), replace(hard_reading, chosen=1))
    first, second = app._choose(both, 0.3, click)[0]
    assert first is both[0]
    assert second == hard_reading


def test_both_models_read_a_photograph_and_fill_both_rows(
    folder: str, hard_folder: str, photo: Path, cache: Path
) -> None:
    models = Models([folder, hard_folder])
    readings, stage, captions, _ = app._caption(
        models, cache, upload(photo), "tiny and hard", 3, 0.6
    )
    assert [reading.model_name for reading in readings] == ["tiny", "hard"]
    for reading, name in zip(readings, (folder, hard_folder), strict=True):
        alone = read_photograph(models.get(name), str(photo), 3)
        assert [c.words for c in reading.captions] == [c.words for c in alone.captions]
    assert stage.count('class="sa-view"') == 2
    assert captions.count("<table") == 2
    figures, *buttons = app._files(cache, readings, 0.6)
    assert figures.count("<img") == 4  # of each reading all words, and the matrix
    names = [Path(button.value["path"]).name for button in buttons]
    ends = ("figure.png", "words.gif", "caption.json")
    assert names == [f"beach_{model}_{end}" for model in ("tiny", "hard") for end in ends]
    assert all(button.visible and button.interactive for button in buttons)
    assert buttons[3].label == "Download figure (PNG): hard"


# --- page -----------------------------------------------------------------------------------------


async def built(models: list[str]) -> gr.Blocks:
    """Within a running loop: otherwise Gradio opens one and leaves it so."""
    return build_app(models)


def visible(page: gr.Blocks, kind: type) -> list[Any]:
    blocks: list[Any] = [block for block in page.blocks.values() if type(block) is kind]
    return [block for block in blocks if block.visible]


def test_a_choice_of_models_only_where_there_is_one() -> None:
    assert visible(asyncio.run(built(["soft"])), gr.Dropdown) == []
    (dropdown,) = visible(asyncio.run(built(["soft", "hard"])), gr.Dropdown)
    assert [name for name, _ in dropdown.choices] == ["soft", "hard", "soft and hard"]
    assert dropdown.value == "soft"
    assert "Soft attention" in dropdown.info
    assert "hard attention" in dropdown.info


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["soft"], ()),
        (["runs/a", "runs/b", "runs/c"], ("runs/a", "runs/b")),
        (["hard", "soft", "supervised"], ("soft", "hard")),
        (["soft", "supervised"], ("soft", "supervised")),
    ],
)
def test_the_pair_is_soft_and_hard_or_the_first_two(names: list[str], pair: tuple[str]) -> None:
    models = Models(names)
    assert models.pair == pair
    both = [" and ".join(Path(name).name for name in pair)] if pair else []
    assert models.choices == names + both


def test_the_page_has_no_telemetry_and_no_open_interface() -> None:
    page = asyncio.run(built(["soft"]))
    assert not page.analytics_enabled
    assert not analytics.analytics_enabled()
    assert page.get_api_info()["named_endpoints"] == {}
    assert page.get_api_info()["unnamed_endpoints"] == {}
    assert page.delete_cache == (600, 3600)


@pytest.mark.usefixtures("no_network")
def test_the_server_fetches_no_url(tmp_path: Path) -> None:
    asyncio.run(built(["soft"]))
    url, download = "https://example.org/a.jpg", processing_utils.async_ssrf_protected_download
    for fetch in (safehttpx.async_validate_url("example.org"), download(url, str(tmp_path))):
        with pytest.raises(ValueError, match="fetches no URL"):
            asyncio.run(fetch)


def test_the_fonts_are_the_systems_own() -> None:
    theme = app._theme()
    assert theme._stylesheets == []
    assert "@font-face" not in theme._get_theme_css()
    assert "system-ui" in theme.font


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
