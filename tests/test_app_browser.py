"""The page in a real browser, against the real server; and that neither asks another host."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageSequence

from showattend.captioner import build_captioner
from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.config import DecoderSettings, EncoderSettings, PixelSettings, SearchSettings
from showattend.predict import load, shipped_models
from showattend.vocabulary import Vocabulary

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = Path("/usr/bin/chromium")
PHOTOGRAPHS = Path(__file__).parents[2] / "shared" / "coco_sample" / "train2017"
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
def model(folder: Path, vocabulary: Vocabulary) -> str:
    """The shipped soft model, or one that has learnt nothing but writes five words."""
    if "soft" in shipped_models():
        return "soft"
    pixels = PixelSettings(size=64, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    encoder = EncoderSettings(name="test_resnet", pretrained=False)
    decoder = DecoderSettings(embedding=8, hidden=8, attention=8, projection=8)
    late = SearchSettings(max_words=5, length_penalty=4.0)  # the longest captions rank highest
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        captioner = build_captioner(encoder, decoder, size=64, words=len(vocabulary)).eval()
        for parameter in captioner.decoder.parameters():
            parameter.mul_(5)  # so that it does not look everywhere alike
    save_checkpoint(
        folder / "late", Checkpoint(captioner, vocabulary, pixels, encoder, decoder, late, {})
    )
    return str(folder / "late")


@pytest.fixture(scope="module")
def hard_model(model: str, folder: Path) -> str:
    """The shipped hard model, or the soft one's weights, made to look at one cell for a word."""
    if "hard" in shipped_models():
        return "hard"
    soft = load(model, "cpu").checkpoint
    decoder = soft.decoder.model_copy(update={"look": "hard"})
    save_checkpoint(folder / "hard", replace(soft, decoder=decoder))
    return str(folder / "hard")


@pytest.fixture(scope="module")
def server(model: str, hard_model: str, folder: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    watched, printed, temporary = folder / "watched", folder / "printed", folder / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-c", WATCHED, str(watched), "app", "--port", str(port)]
    with printed.open("w") as output:
        process = subprocess.Popen(
            [*command, "--model", model, hard_model],
            cwd=Path(__file__).parents[1],
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
        self.page.set_input_files("input[type=file]", photograph)

    def key(self) -> str:
        return str(self.page.get_attribute(".sa-stage", "data-key"))

    def await_new(self, key: str) -> None:
        self.page.wait_for_function(
            "key => (document.querySelector('.sa-stage')?.dataset.key ?? key) !== key", arg=key
        )

    def current_word(self) -> str:
        return str(self.page.inner_text('.sa-chip[aria-current="true"]'))

    def current_picture(self) -> bytes:
        """What lies open: the only picture over the photograph that is opaque."""
        self.page.wait_for_timeout(400)  # one picture fades into the next
        (url,) = self.page.eval_on_selector_all(
            ".sa-pictures img",
            "all => all.slice(1).filter(i => getComputedStyle(i).opacity > 0).map(i => i.src)",
        ) or [self.page.get_attribute(".sa-pictures img", "src")]
        return base64.b64decode(url.partition(",")[2])


@pytest.fixture
def visit(browser: Any, server: Server) -> Iterator[Visit]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
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
    page.wait_for_selector(".sa-hint")
    page.wait_for_selector("#examples img")
    yield visit
    context.close()


def test_from_upload_to_downloads(visit: Visit, server: Server, tmp_path: Path) -> None:
    page = visit.page
    visit.upload(PHOTOGRAPHS / "000000442450.jpg")
    page.wait_for_selector(".sa-stage")
    words = page.locator(".sa-chip").all_inner_texts()
    assert words[0] == "photograph"
    assert len(words) > 2

    # Step through the words: by button, by key, by click.
    assert visit.current_word() == words[1]
    first = visit.current_picture()
    page.click("[data-move='1']")
    assert visit.current_word() == words[2]
    second = visit.current_picture()
    assert second != first
    page.keyboard.press("ArrowLeft")
    assert visit.current_word() == words[1]
    assert visit.current_picture() == first
    page.click("[data-move='-1']")
    assert visit.current_word() == "photograph"
    assert visit.current_picture() not in (first, second)
    page.click(".sa-chip >> nth=2")
    assert visit.current_picture() == second
    assert f"“{words[2]}”" in page.inner_text(".sa-note")

    # Another strength redraws the word that lies open.
    page.get_by_label("number input for Overlay strength").fill("0.9")
    page.keyboard.press("Tab")
    page.wait_for_function(
        "old => document.querySelector('.sa-pictures img[aria-current=\"true\"]').src !== old",
        arg=f"data:image/jpeg;base64,{base64.b64encode(second).decode()}",
    )
    assert visit.current_word() == words[2]

    # A runner-up takes the stage.
    rows = page.locator(".sa-captions tbody tr")
    assert rows.count() > 1
    best, runner_up = (rows.nth(index).locator("button").inner_text() for index in (0, 1))
    key = visit.key()
    rows.nth(1).locator("button").click()
    visit.await_new(key)
    assert page.locator(".sa-chip").all_inner_texts()[1:] != words[1:]
    assert page.inner_text('.sa-captions tr[aria-current="true"] button') == runner_up != best

    # The files are of the runner-up.
    page.wait_for_function(
        "text => document.querySelector('.sa-figure img')?.alt.includes(text)", arg=f"“{runner_up}”"
    )
    figure, animation, data = (
        _download(page, label, tmp_path) for label in ("figure", "animation", "data")
    )
    with Image.open(figure) as picture:
        picture.load()
        assert picture.format == "PNG"
        assert picture.width > 1000
    told = json.loads(data.read_text(encoding="utf-8"))
    assert told["photograph"] == "000000442450"
    assert told["captions"][told["chosen"]]["text"] == runner_up
    with Image.open(animation) as picture:
        assert picture.format == "GIF"
        frames = len(list(ImageSequence.Iterator(picture)))
    assert frames == 1 + len(told["captions"][1]["words"])

    _assert_all_stayed_here(visit, server)


def test_examples_beam_size_and_a_phone(visit: Visit, server: Server) -> None:
    page = visit.page
    page.set_viewport_size({"width": 390, "height": 844})
    page.click("#examples button >> nth=0")
    page.wait_for_selector(".sa-captions")
    width = "document.documentElement.scrollWidth"
    page.wait_for_selector(".sa-figure img")
    assert page.evaluate(width) <= 390
    assert page.locator(".sa-captions tbody tr").count() == 5
    page.get_by_label("number input for Beam size").fill("2")
    page.keyboard.press("Tab")
    page.wait_for_function("document.querySelectorAll('.sa-captions tbody tr').length === 2")
    key = visit.key()
    page.click("#examples button >> nth=1")
    visit.await_new(key)
    _assert_all_stayed_here(visit, server)


def test_soft_and_hard_step_together(visit: Visit, server: Server) -> None:
    page = visit.page
    visit.upload(PHOTOGRAPHS / "000000442450.jpg")
    page.wait_for_selector(".sa-stage")
    assert page.locator(".sa-view").count() == 1
    page.get_by_label("Model").first.click()
    page.get_by_role("option", name=" and hard").click()
    page.wait_for_function("document.querySelectorAll('.sa-view').length === 2")
    soft, hard = page.locator(".sa-view").all()
    assert hard.locator(".sa-heading").inner_text() == "hard"
    lengths = [view.locator(".sa-chip").count() for view in (soft, hard)]
    for view, chips in zip((soft, hard), lengths, strict=True):
        assert chips > 2
        assert view.locator("img").count() == chips
    assert page.locator(".sa-captions").count() == 2

    # One step leads on in both, word by word.
    page.click("[data-move='1']")
    current = '.sa-chip[aria-current="true"]'
    assert [view.locator(current).get_attribute("data-step") for view in (soft, hard)] == ["2", "2"]
    assert "strongest cell" in soft.locator(".sa-note").inner_text()
    assert "framed part" in hard.locator(".sa-note").inner_text()
    urls = [view.locator("img").nth(2).get_attribute("src") for view in (soft, hard)]
    assert urls[0] != urls[1]

    # A runner-up of one leaves the other as it is.
    said = soft.locator(".sa-chip").all_inner_texts()
    key = visit.key()
    page.locator(".sa-captions").nth(1).locator("tbody button").nth(1).click()
    visit.await_new(key)
    assert page.locator(".sa-view").first.locator(".sa-chip").all_inner_texts() == said
    rows = page.locator('.sa-captions tr[aria-current="true"] td:first-child')
    assert rows.all_inner_texts() == ["1", "2"]

    page.get_by_role("button", name="Download figure (PNG): hard").wait_for()
    page.wait_for_function("document.querySelectorAll('.sa-figure img').length === 2")
    _assert_all_stayed_here(visit, server)


def test_a_bad_file_gives_a_readable_line(visit: Visit, server: Server, tmp_path: Path) -> None:
    page = visit.page
    visit.upload(PHOTOGRAPHS / "000000442450.jpg")
    page.wait_for_selector(".sa-stage")
    bad = tmp_path / "notes.jpg"
    bad.write_text("no photograph")
    page.get_by_label("Remove Image").or_(page.get_by_label("Clear")).first.click()
    page.wait_for_selector(".sa-hint")
    visit.upload(bad)
    toast = page.get_by_test_id("toast-body")
    toast.wait_for()
    said = toast.inner_text()
    assert "notes.jpg: is no image that can be read; save it as JPEG or PNG" in said
    assert str(server.temporary) not in said
    assert "Traceback" not in page.inner_text("body")
    assert page.locator(".sa-hint").is_visible()
    assert "Traceback" not in server.printed.read_text()
    # The next good photograph finds all in order.
    page.get_by_label("Remove Image").or_(page.get_by_label("Clear")).first.click()
    visit.upload(PHOTOGRAPHS / "000000442450.jpg")
    page.wait_for_selector(".sa-stage")
    _assert_all_stayed_here(visit, server)


def test_nothing_but_the_page_is_served(visit: Visit, server: Server) -> None:
    api = f"{server.url}/gradio_api"
    here = Path(__file__).resolve()
    for path in ("/etc/passwd", str(here), "/tmp/../etc/passwd", str(here.parents[1] / "app.py")):
        assert _status(f"{api}/file={path}") == 403
    assert _status(f"{api}/file=https://example.org/photo.jpg") == 403
    assert _status(f"{server.url}/monitoring/summary") in (403, 404)
    # What a photograph's record may name: an upload, but neither another file nor a URL.
    visit.upload(PHOTOGRAPHS / "000000442450.jpg")
    visit.page.wait_for_selector(".sa-stage")
    (uploaded, *_) = server.temporary.rglob("000000442450.jpg")
    assert '"success":true' in _caption_by_hand(visit.page, api, str(uploaded))
    for path in (str(here), "https://example.org/photo.jpg"):
        assert '"success":false' in _caption_by_hand(visit.page, api, path)
    _assert_all_stayed_here(visit, server)


def test_photographs_go_with_the_server(visit: Visit, server: Server) -> None:
    """The last test, for it ends the server."""
    visit.upload(PHOTOGRAPHS / "000000442450.jpg")
    visit.page.wait_for_selector(".sa-figure img")
    assert list(server.temporary.rglob("000000442450.jpg"))
    assert list(server.temporary.rglob("*.gif"))
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=SECONDS)
    assert [path for path in server.temporary.rglob("*") if path.is_file()] == []


def _download(page: Any, label: str, folder: Path) -> Path:
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Download {label}").click()
    path = Path(folder, download.value.suggested_filename)
    download.value.save_as(path)
    return path


def _status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def _caption_by_hand(page: Any, api: str, path: str) -> str:
    """Ask for a caption as the page does, but with a record of a file that was not uploaded."""
    config = page.evaluate("window.gradio_config")
    (event,) = [
        dependency
        for dependency in config["dependencies"]
        if len(dependency["inputs"]) == 4 and len(dependency["outputs"]) == 4
    ]
    record = {"path": path, "orig_name": "a.jpg", "meta": {"_type": "gradio.FileData"}}
    body = {"data": [record, "model", 1, 0.5], "fn_index": event["id"], "session_hash": "byhand"}
    return str(
        page.evaluate(
            """async ([api, body]) => {
              await fetch(`${api}/queue/join`, {method: 'POST', body: JSON.stringify(body),
                headers: {'Content-Type': 'application/json'}});
              return (await fetch(`${api}/queue/data?session_hash=byhand`)).text();
            }""",
            [api, body],
        )
    )


def _assert_all_stayed_here(visit: Visit, server: Server) -> None:
    assert visit.complaints == []
    assert {
        url for url in visit.asked if not url.startswith((server.url, "data:", "blob:"))
    } == set()
    hosts = set(server.watched.read_text().splitlines())
    assert hosts  # the server looks itself up: so the watch works
    assert hosts <= {"127.0.0.1", "localhost", "None"}  # None: to listen, not to ask
