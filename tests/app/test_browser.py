"""The page in a real browser, against the real server; and that neither asks another host."""

import base64
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradio_client import Client, handle_file
from PIL import Image, ImageSequence

from showattend.app.reading import read_photograph
from showattend.app.viewer import photograph
from showattend.overlay import STRENGTH, word_overlays
from showattend.predict import load

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = Path("/usr/bin/chromium")
ROOT = Path(__file__).parents[2]
PHOTOGRAPHS = ROOT.parent / "shared" / "coco_sample" / "train2017"
PHOTOGRAPH = PHOTOGRAPHS / "000000442450.jpg"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS = 120  # for anything that the page waits for: the machine may be busy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM}: not installed"),
    pytest.mark.skipif(not PHOTOGRAPHS.exists(), reason=f"{PHOTOGRAPHS}: not on this machine"),
]

# Runs the program while Python's own audit reports every name it looks up and every address it
# connects to.
WATCHED = """
import sys
log = open(sys.argv.pop(1), "a", buffering=1)
def watch(event, args):
    if event in ("socket.getaddrinfo", "socket.gethostbyname"):
        print(args[0], file=log)
    elif event in ("socket.connect", "socket.sendto") and isinstance(args[1], tuple):
        print(args[1][0], file=log)
sys.addaudithook(watch)
from showattend.cli import main
sys.exit(main(sys.argv[1:]))
"""


@dataclass
class Server:
    url: str
    process: subprocess.Popen[str]
    watched: Path
    printed: Path
    temporary: Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("app")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """The page with the shipped soft and hard models."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    watched, printed, temporary = folder / "watched", folder / "printed", folder / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", WATCHED, str(watched), "app", "--port", str(port)]
    with printed.open("w") as output:
        process = subprocess.Popen(
            [*command, "--model", "soft", "hard"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            _await_server(url, process, printed)
            yield Server(url, process, watched, printed, temporary)
        finally:
            process.kill()
            process.wait()


def _await_server(url: str, process: subprocess.Popen[str], printed: Path) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start: {printed.read_text()}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page, what it asked for and what it complained of."""

    page: Any
    asked: list[str]
    complaints: list[str]

    def upload(self, photograph: Path) -> None:
        self.page.set_input_files("input[type=file] >> nth=0", photograph)

    def open_tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()

    def await_views(self, count: int, viewer: int = 0) -> Any:
        """So many readings beside each other in the page's nth open viewer."""
        self.page.wait_for_function(
            """([count, viewer]) => [...document.querySelectorAll('.sa-viewer[data-ready]')]
                .filter(each => each.offsetParent)[viewer]
                ?.querySelectorAll('.sa-view').length === count""",
            arg=[count, viewer],
        )
        return self.page.locator(".sa-viewer[data-ready]:visible").nth(viewer)


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(1000 * SECONDS)
    page = context.new_page()
    visit = Visit(page, [], [])
    page.on("request", lambda request: visit.asked.append(request.url))
    page.on(
        "console",
        lambda message: visit.complaints.append(message.text) if message.type == "error" else None,
    )
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.goto(server.url)
    page.wait_for_selector(".sa-welcome")
    page.wait_for_selector("#examples img")
    yield visit
    context.close()


def current(view: Any) -> str:
    """The word that lies open."""
    return str(view.locator('.sa-chip[aria-current="true"]').inner_text())


def picture(view: Any) -> np.ndarray:
    """What the canvas shows, (H, W, 3)."""
    url = view.locator("canvas").first.evaluate("canvas => canvas.toDataURL('image/png')")
    return np.asarray(decoded(url), np.float64)


def decoded(url: str) -> Image.Image:
    """The picture that a data URL holds."""
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")


# --- caption --------------------------------------------------------------------------------------


def test_every_word_is_drawn_as_python_draws_it(visit: Visit, server: Server) -> None:
    for name in ("soft", "hard"):
        if name == "hard":
            visit.page.get_by_label("Model").first.click()
            visit.page.get_by_role("option", name="hard").click()
            visit.page.wait_for_selector("text=framed: what was looked at")
        else:
            visit.upload(PHOTOGRAPH)
        view = visit.await_views(1)
        reading = read_photograph(load(name, "cpu"), str(PHOTOGRAPH))
        caption = reading.captions[0]
        chips = view.locator(".sa-chip").all()
        assert [chip.inner_text() for chip in chips] == ["photograph", *caption.words]
        photo = decoded(photograph(reading)["photo"])  # as the browser has it, after JPEG
        overlays = word_overlays(
            photo, caption.maps(), reading.resize, STRENGTH, caption.alpha_maps()
        )
        for chip, expected in zip(chips, [photo, *overlays], strict=True):
            chip.click()
            shown, wanted = picture(view), np.asarray(expected, np.float64)
            assert shown.shape == wanted.shape
            # Rounding parts them by a shade, another word's map by many.
            assert np.abs(shown - wanted).mean() < 1, chip.inner_text()
    _assert_all_stayed_here(visit, server)


def test_from_upload_to_downloads(visit: Visit, server: Server, tmp_path: Path) -> None:
    page = visit.page
    visit.upload(PHOTOGRAPH)
    view = visit.await_views(1)
    words = view.locator(".sa-chip").all_inner_texts()
    assert len(words) > 4
    assert current(view) == words[1]
    asked = len(visit.asked)

    # Step through the words: by button, by key, by click; pointing lays a word open for a while.
    first = picture(view)
    page.click("[data-move='1']")
    assert current(view) == words[2]
    second = picture(view)
    assert np.abs(second - first).mean() > 1
    page.keyboard.press("ArrowLeft")
    assert current(view) == words[1]
    np.testing.assert_array_equal(picture(view), first)
    view.locator(".sa-chip >> nth=2").hover()
    assert current(view) == words[2]
    np.testing.assert_array_equal(picture(view), second)
    page.mouse.move(5, 5)
    assert current(view) == words[1]
    view.locator(".sa-chip >> nth=3").click()
    page.mouse.move(5, 5)
    assert current(view) == words[3]
    assert f"“{words[3]}”" in view.locator(".sa-note").inner_text()
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Stop").wait_for()
    page.get_by_role("button", name="Play").wait_for()  # it ends by itself
    assert current(view) == words[-1]

    # Another strength, and what is folded up.
    before = picture(view)
    page.get_by_label("Overlay strength").fill("0.9")
    assert np.abs(picture(view) - before).mean() > 1
    assert current(view) == words[-1]
    for fold in view.locator(".sa-fold summary").all():
        fold.click()
    page.wait_for_function(
        "n => document.querySelectorAll('.sa-panel canvas').length === n", arg=len(words) - 1
    )
    view.locator(".sa-matrix canvas").hover(position={"x": 3, "y": 3})
    assert f"“{words[1]}”, row 1, column 1" in view.inner_text()

    # A runner-up takes the stage.
    rows = view.locator(".sa-captions tbody tr")
    assert rows.count() == 5
    runner_up = rows.nth(1).locator("button").inner_text()
    rows.nth(1).locator("button").click()
    assert view.locator(".sa-chip").all_inner_texts()[1:] != words[1:]
    assert rows.nth(1).get_attribute("aria-current") == "true"
    assert visit.asked[asked:] == []  # nothing of all this asked the server

    # The files are of the runner-up.
    figure, animation, data = (
        _download(page, f"Download {label}", tmp_path) for label in ("figure", "animation", "data")
    )
    with Image.open(figure) as drawn:
        drawn.load()
        assert drawn.format == "PNG"
        assert drawn.width > 1000
    told = json.loads(data.read_text(encoding="utf-8"))
    assert data.name == "000000442450_caption.json"
    assert told["photograph"] == "000000442450"
    assert told["captions"][told["chosen"]]["text"] == runner_up
    with Image.open(animation) as drawn:
        assert drawn.format == "GIF"
        frames = len(list(ImageSequence.Iterator(drawn)))
    assert frames == 1 + len(told["captions"][1]["words"])
    _assert_all_stayed_here(visit, server)


def test_the_caption_appears_word_by_word(browser: Any, server: Server) -> None:
    """Where the visitor's system does not ask for calm."""
    page = browser.new_page()
    page.set_default_timeout(1000 * SECONDS)
    page.goto(server.url)
    page.click("#examples button >> nth=0")
    page.wait_for_selector(".sa-viewer[data-ready] .sa-chip.sa-unsaid")
    last = page.locator(".sa-chip").last.inner_text()
    page.wait_for_function("!document.querySelector('.sa-unsaid')")
    assert page.inner_text('.sa-chip[aria-current="true"]') == last
    page.close()


# --- steer ----------------------------------------------------------------------------------------


def test_a_steered_region_and_begun_words_give_another_caption(
    visit: Visit, server: Server
) -> None:
    page = visit.page
    visit.upload(PHOTOGRAPH)
    visit.await_views(1)
    visit.open_tab("Steer")
    page.wait_for_selector(".sa-picker[data-ready]")
    box = page.locator(".sa-pick").bounding_box()
    _drag(page, box, (0.62, 0.5), (0.95, 0.9))
    cells = int(re.findall(r"look at (\d+) of 400", page.inner_text(".sa-picker"))[0])
    assert 40 < cells < 80
    page.get_by_role("button", name="Caption again").click()
    free, steered = visit.await_views(2).locator(".sa-view").all()
    assert [view.locator(".sa-heading").inner_text() for view in (free, steered)] == [
        "free",
        "steered",
    ]
    ours = _said(free)
    assert ours != _said(steered)
    steered.locator(".sa-chip >> nth=2").click()
    peak = re.findall(r"row (\d+), column (\d+)", steered.locator(".sa-note").inner_text())[0]
    assert 13 <= int(peak[1]) <= 19  # within the box
    assert 11 <= int(peak[0]) <= 18

    # A word is clicked and changed: what is before it stays.
    page.get_by_role("button", name="Clear", exact=True).click()
    page.wait_for_selector("text=No region")
    page.locator(".sa-picker .sa-chip >> nth=1").click()
    words = page.get_by_label("Begin with")
    page.wait_for_function("document.querySelector('[placeholder=\"a brown dog\"]').value !== ''")
    begun = words.input_value().split()
    assert begun == ours[:2]
    words.fill(f"{begun[0]} dogs")
    page.get_by_role("button", name="Caption again").click()
    page.wait_for_selector(".sa-viewer:visible >> text=dogs")
    _, steered = visit.await_views(2).locator(".sa-view").all()
    assert _said(steered)[:2] == [begun[0], "dogs"]

    # What cannot be is said in one line.
    words.fill("a zebroid")
    page.get_by_role("button", name="Caption again").click()
    toast = page.get_by_test_id("toast-body")
    toast.wait_for()
    assert "zebroid" in toast.inner_text()
    _, kept = visit.await_views(2).locator(".sa-view").all()
    assert _said(kept)[:2] == [begun[0], "dogs"]

    # Another photograph takes it away, also what is yet to come.
    words.fill("two people")
    page.get_by_role("button", name="Caption again").click()
    page.locator("#examples button >> nth=4").click()
    page.wait_for_function("document.querySelector('[placeholder=\"a brown dog\"]').value === ''")
    page.wait_for_selector(".sa-picker[data-ready]:visible")
    page.wait_for_timeout(3_000)  # longer than it takes to be written
    assert page.locator(".sa-viewer:visible .sa-view").count() == 0
    _assert_all_stayed_here(visit, server)


def test_all_can_be_done_by_keyboard(visit: Visit, server: Server) -> None:
    page = visit.page
    page.locator("#examples button").first.focus()
    page.keyboard.press("Enter")
    view = visit.await_views(1)
    words = view.locator(".sa-chip").all_inner_texts()
    for moved in (2, 3):
        page.keyboard.press("ArrowRight")
        assert current(view) == words[moved]
    view.locator(".sa-chip >> nth=1").focus()  # lies open at once, and the arrows go on from it
    assert current(view) == words[1]
    page.keyboard.press("ArrowRight")
    assert current(view) == words[2]
    assert view.locator(".sa-chip >> nth=2").evaluate("chip => chip === document.activeElement")
    page.get_by_role("tab", name="Steer").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".sa-picker[data-ready]:visible")
    page.locator(".sa-pick").focus()
    moves = ["ArrowDown", "ArrowDown", "ArrowRight", "Space"]
    for key in [*moves, "Shift+ArrowRight", "Shift+ArrowDown"]:
        page.keyboard.press(key)
    assert "look at 4 of 400" in page.inner_text(".sa-picker")
    page.keyboard.press("Escape")
    assert "No region" in page.inner_text(".sa-picker")
    page.keyboard.press("Space")
    assert "look at 1 of 400" in page.inner_text(".sa-picker")
    page.get_by_role("button", name="Caption again").focus()
    page.keyboard.press("Enter")
    visit.await_views(2)
    _assert_all_stayed_here(visit, server)


# --- compare, batch, phone ------------------------------------------------------------------------


def test_soft_and_hard_step_together(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.upload(PHOTOGRAPH)
    visit.await_views(1)
    visit.open_tab("Compare")
    page.get_by_label("Your sentence").fill("two people walk through the snow")
    page.get_by_role("button", name="Compare", exact=True).click()
    viewer = visit.await_views(2)
    soft, hard = viewer.locator(".sa-view").all()
    assert hard.locator(".sa-heading").inner_text() == "hard"
    assert viewer.locator(".sa-captions").count() == 2

    # Pointing at a word shows the same word of the other, wherever it stands.
    ours, theirs = _said(soft), _said(hard)
    common = next(word for word in reversed(ours) if theirs.count(word) == 1)
    soft.locator(".sa-chip", has_text=re.compile(f"^{common}$")).first.hover()
    assert current(hard) == common
    assert "strongest cell" in soft.locator(".sa-note").inner_text()
    assert "framed part" in hard.locator(".sa-note").inner_text()

    # A runner-up of one leaves the other as it is.
    viewer.locator(".sa-captions").nth(1).locator("tbody button").nth(1).click()
    assert _said(soft) == ours
    assert _said(hard) != theirs
    rows = viewer.locator('.sa-captions tr[aria-current="true"] td:first-child')
    assert rows.all_inner_texts() == ["1", "2"]

    # The visitor's own sentence, as both would say it.
    spoken = visit.await_views(2, viewer=1)
    for view in spoken.locator(".sa-view").all():
        assert _said(view) == ["two", "people", "walk", "through", "the", "snow"]
    assert "ROUGE-L of this one sentence" in page.inner_text(".sa-scroll:visible >> nth=0")

    # The longest word that a sentence may have stays within the page, and what is refused changes
    # nothing.
    page.get_by_label("Your sentence").fill("x" * 300)
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_selector("text=does not know")
    for view in visit.await_views(2, viewer=1).locator(".sa-view").all():
        box = view.bounding_box()
        assert box["x"] + box["width"] <= 1280
    page.get_by_label("Your sentence").fill("dog " * 41)
    page.get_by_role("button", name="Compare", exact=True).click()
    page.get_by_test_id("toast-body").wait_for()
    assert visit.await_views(2, viewer=1).locator(".sa-view").count() == 2
    _assert_all_stayed_here(visit, server)


def test_alt_texts_for_a_folder(visit: Visit, server: Server, tmp_path: Path) -> None:
    page = visit.page
    visit.open_tab("Batch")
    photographs = sorted(PHOTOGRAPHS.glob("*.jpg"))[:3]
    (tmp_path / "notes.jpg").write_text("no photograph")
    page.locator("input[type=file]").last.set_input_files([*photographs, tmp_path / "notes.jpg"])
    page.wait_for_function("document.body.textContent.includes('notes')")
    page.get_by_role("button", name="Write alt texts").click()
    page.get_by_role("button", name="Download alt texts").wait_for()
    assert page.locator(".sa-table img").count() == 3
    assert "notes.jpg: is no image that can be read" in page.inner_text(".sa-table:visible")
    rows = _download(page, "Download alt texts", tmp_path).read_text().splitlines()
    assert rows[0] == "image,alt_text"
    assert [row.partition(",")[0] for row in rows[1:]] == [
        *(photograph.name for photograph in photographs),
        "notes.jpg",
    ]
    assert all(row.endswith(".") for row in rows[1:4])
    _assert_all_stayed_here(visit, server)


def test_a_phone_scrolls_in_one_direction(visit: Visit, server: Server) -> None:
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("#examples button >> nth=0")
    view = visit.await_views(1)
    for fold in view.locator(".sa-fold summary").all():
        fold.click()
    page.wait_for_selector(".sa-matrix canvas")
    width = "document.documentElement.scrollWidth"
    assert page.evaluate(width) <= 390
    visit.open_tab("Steer")
    page.wait_for_selector(".sa-picker[data-ready]:visible")
    assert page.evaluate(width) <= 390
    visit.open_tab("Compare")
    page.get_by_role("button", name="Compare", exact=True).click()
    visit.await_views(2)
    assert page.evaluate(width) <= 390
    visit.open_tab("Batch")
    assert page.evaluate(width) <= 390
    page.get_by_label("number input for Beam size").fill("2")
    page.keyboard.press("Tab")
    visit.open_tab("Caption")
    page.wait_for_function(
        "[...document.querySelectorAll('.sa-captions')].filter(t => t.offsetParent)[0]"
        ".querySelectorAll('tbody tr').length === 2"
    )
    _assert_all_stayed_here(visit, server)


# --- strangers ------------------------------------------------------------------------------------


def test_a_bad_file_gives_a_readable_line(visit: Visit, server: Server, tmp_path: Path) -> None:
    page = visit.page
    visit.upload(PHOTOGRAPH)
    visit.await_views(1)
    bad = tmp_path / "notes.jpg"
    bad.write_text("no photograph")
    page.get_by_label("Remove Image").or_(page.get_by_label("Clear")).first.click()
    page.wait_for_selector(".sa-welcome")
    visit.upload(bad)
    toast = page.get_by_test_id("toast-body")
    toast.wait_for()
    said = toast.inner_text()
    assert "notes.jpg: is no image that can be read; save it as JPEG or PNG" in said
    assert str(server.temporary) not in said
    assert "Traceback" not in page.inner_text("body")
    assert "Traceback" not in server.printed.read_text()
    # The next good photograph finds all in order.
    page.get_by_label("Remove Image").or_(page.get_by_label("Clear")).first.click()
    visit.upload(PHOTOGRAPH)
    visit.await_views(1)
    _assert_all_stayed_here(visit, server)


def test_hostile_uploads_are_refused_in_one_line_and_harm_nothing(server: Server) -> None:
    api = f"{server.url}/gradio_api"
    for name, content, line in (
        ("bomb.png", _bomb(), "bomb.png: has too many pixels"),
        ("strip.png", _png(Image.new("RGB", (10_000, 8))), "strip.png: has 10000 x 8 pixels"),
        ("page.jpg", b"<html><script>alert(1)</script>", "page.jpg: is no image that can be read"),
        ("half.png", _png(Image.open(PHOTOGRAPH))[:5000], "half.png: "),
    ):
        refused = _ask(api, _upload(api, name, content))
        assert refused.startswith("error"), name
        assert line in refused, name
        assert str(server.temporary) not in refused
    # Too large a file is refused before it is kept.
    assert _status(_upload_request(api, "huge.png", b"\0" * 21_000_000)) == 413
    # A name that leads elsewhere stays within the uploads.
    path = Path(_upload(api, "../../../../etc/evil.png", b"x"))
    assert path.is_relative_to(server.temporary)
    # An upload that breaks off.
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as broken:
        broken.sendall(
            b"POST /gradio_api/upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\nContent-Dis"
        )
    assert '"captions"' in _ask(api, _upload(api, "good.jpg", PHOTOGRAPH.read_bytes()))
    assert "Traceback" not in server.printed.read_text()


def test_there_is_no_way_around_the_queue(server: Server) -> None:
    """Gradio's direct routes would answer any number of requests at once."""
    api = f"{server.url}/gradio_api"
    uploaded = _upload(api, "mine.jpg", PHOTOGRAPH.read_bytes())
    record = {"path": uploaded, "meta": {"_type": "gradio.FileData"}}
    body = json.dumps({"data": [record, "soft", 5]}).encode()
    for route in ("run/caption", "api/caption", "run/partial", "run/partial_1"):
        headers = {"Content-Type": "application/json"}
        assert _status(urllib.request.Request(f"{api}/{route}", body, headers)) == 404, route


def test_nothing_but_the_page_is_served(server: Server) -> None:
    api = f"{server.url}/gradio_api"
    here = Path(__file__).resolve()
    for path in ("/etc/passwd", str(here), "/tmp/../etc/passwd", str(ROOT / "app.py")):
        assert _status(f"{api}/file={path}") == 403
    assert _status(f"{api}/file=https://example.org/photo.jpg") == 403
    assert _status(f"{server.url}/monitoring/summary") in (403, 404)
    # What a photograph's record may name: an upload, but neither another file nor a URL.
    uploaded = _upload(api, "mine.jpg", PHOTOGRAPH.read_bytes())
    assert '"captions"' in _ask(api, uploaded)
    for path in (str(here), "/etc/passwd", "https://example.org/photo.jpg"):
        answer = _ask(api, path)
        assert answer.startswith("error")
        assert "root:" not in answer
    assert "not among the models of this page" in _ask(api, uploaded, model="/etc")


def test_programs_ask_as_the_page_about_it_says(server: Server, tmp_path: Path) -> None:
    """docs/app.md: the example in Python, and the one for curl."""
    page = (ROOT / "docs" / "app.md").read_text(encoding="utf-8")
    expected = load("soft", "cpu").caption(str(PHOTOGRAPH)).text
    client = Client(server.url, verbose=False)
    told = client.predict(handle_file(str(PHOTOGRAPH)), "soft", 5, api_name="/caption")
    assert 'client.predict(handle_file("photo.jpg"), "soft", 5, api_name="/caption")' in page
    assert told["captions"][0]["text"] == expected
    client.close()
    commands = re.findall("```sh\n(.*?)```", page, re.DOTALL)[0]
    commands = commands.replace("http://127.0.0.1:7860", server.url)
    (tmp_path / "photo.jpg").write_bytes(PHOTOGRAPH.read_bytes())
    done = subprocess.run(
        ["bash", "-euc", commands], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "event: complete" in done.stdout
    assert expected in done.stdout


def test_photographs_go_with_the_server(visit: Visit, server: Server) -> None:
    """The last test, for it ends the server."""
    visit.upload(PHOTOGRAPH)
    visit.await_views(1)
    assert list(server.temporary.rglob("000000442450.jpg"))
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=SECONDS)
    assert [path for path in server.temporary.rglob("*") if path.is_file()] == []


# --- tools ----------------------------------------------------------------------------------------


def _said(view: Any) -> list[str]:
    words: list[str] = view.locator(".sa-chip").all_inner_texts()[1:]
    return words


def _drag(page: Any, box: dict[str, float], *corners: tuple[float, float]) -> None:
    """Between two corners, in fractions of a box of the page."""
    (x0, y0), (x1, y1) = (
        (box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners
    )
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, (y0 + y1) / 2)
    page.mouse.move(x1, y1)
    page.mouse.up()


def _download(page: Any, label: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=label).click()
    path = Path(folder, download.value.suggested_filename)
    download.value.save_as(path)
    return path


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "png")
    return buffer.getvalue()


def _bomb() -> bytes:
    """A PNG of some kilobytes that says it has 2.5 billion pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        crc = zlib.crc32(kind + content).to_bytes(4, "big")
        return len(content).to_bytes(4, "big") + kind + content + crc

    side = (50_000).to_bytes(4, "big")
    header = chunk(b"IHDR", side + side + bytes([1, 0, 0, 0, 0]))
    rows = zlib.compress(bytes(6251 * 1000), 9)
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _upload_request(api: str, name: str, content: bytes) -> urllib.request.Request:
    head = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + b"\r\n--b--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    return urllib.request.Request(f"{api}/upload", body, kind)


def _upload(api: str, name: str, content: bytes) -> str:
    with urllib.request.urlopen(_upload_request(api, name, content), timeout=SECONDS) as answer:
        (path,) = json.load(answer)
    return str(path)


def _ask(api: str, path: str, model: str = "soft") -> str:
    """The last event of a request for a caption, such as "complete ..." or "error ..."."""
    record = {"path": path, "orig_name": "a.jpg", "meta": {"_type": "gradio.FileData"}}
    body = json.dumps({"data": [record, model, 1]}).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{api}/call/caption", body, kind)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        event = json.load(answer)["event_id"]
    with urllib.request.urlopen(f"{api}/call/caption/{event}", timeout=SECONDS) as answer:
        return str(answer.read().decode().rpartition("event: ")[2])


def _status(request: str | urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def _assert_all_stayed_here(visit: Visit, server: Server) -> None:
    assert visit.complaints == []
    assert {
        url for url in visit.asked if not url.startswith((server.url, "data:", "blob:"))
    } == set()
    hosts = set(server.watched.read_text().splitlines())
    assert hosts  # the server looks itself up: so the watch works
    assert hosts <= {"127.0.0.1", "localhost", "None"}  # None: to listen, not to ask
