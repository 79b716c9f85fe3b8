#!/usr/bin/env python
"""Measure this machine: what the README's figures of speed and memory come from.

    scripts/benchmark.py machine grids loading epoch caption score page --root ../shared/flickr8k

machine: matrix multiplication, in GFLOP/s. grids: all training and validation images encoded into
an empty cache. loading: an epoch's batches and grids read from the cache without training, beside
the training of batches that lie in memory. epoch: one training epoch of configs/flickr8k_small.yaml
from cached grids. caption:
the shipped model, cold from the command line, warm, and over a folder of 500. score: BLEU, ROUGE-L
and CIDEr-D of the validation split, beside pycocoevalcap with its Java tokenizer (needs both).
page: the web page in Debian's chromium (needs playwright), from the server's start to the first
caption, and from the pointer on a word to its picture. scripts/crowd.py measures it under load.
"""

import argparse
import io
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch.utils.flop_counter import FlopCounterMode

from showattend.batches import Batch
from showattend.captioner import build_captioner
from showattend.config import Settings, read_settings
from showattend.datasets import ImageId, Picture, load_split
from showattend.grids import AnyGrids, cache_grids
from showattend.java_metrics import java_tokens
from showattend.metrics import score_captions
from showattend.predict import load
from showattend.train import Run, resolve_pixels, start_run, time_epoch, train_epoch

CONFIG = Path(__file__).parents[1] / "configs" / "flickr8k_small.yaml"


def machine(_: Settings) -> None:
    """The rate of a square matmul: what the epoch's fraction is measured against."""
    for dtype in (torch.float32, torch.bfloat16):
        print(f"matmul 2000^3 {dtype}: {matmul_rate(dtype) / 1e9:.0f} GFLOP/s")
    print(f"threads {torch.get_num_threads()}, {torch.backends.cpu.get_cpu_capability()}")


def matmul_rate(dtype: torch.dtype) -> float:
    """FLOP/s, best of those within 2 s; a CPU without bfloat16 units takes 15 s for one."""
    a, b = torch.randn(2, 2000, 2000).to(dtype)
    a @ b
    seconds: list[float] = []
    while sum(seconds) < 2:
        seconds.append(seconds_of(lambda: a @ b))
    return 2 * 2000**3 / min(seconds)


def grids(settings: Settings) -> None:
    """Encode every image into an empty cache."""
    settings = resolve_pixels(settings)
    pictures = [*load_split(settings.data, "train"), *load_split(settings.data, "val")]
    captioner = build_captioner(
        settings.encoder, settings.decoder, size=settings.pixels.size, words=4
    )
    with tempfile.TemporaryDirectory() as folder, peak_anonymous_memory() as peak:
        began = time.perf_counter()
        cache_grids(captioner, settings.pixels, pictures, Path(folder))
        seconds = time.perf_counter() - began
    print(f"grids: {len(pictures)} images in {seconds:.0f} s, peak RssAnon {peak()} MiB")


def loading(settings: Settings) -> None:
    """Data alone, the decoder alone, and what comparing the grids' checksums takes of it."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(".cache/grids")
        run = start_run(Path(folder) / "run", settings, cache=cache, device=torch.device("cpu"))
        data = seconds_of(lambda: read_epoch(run))
        batches = list(run.batches.epoch(1))
        sampled = batches[:: max(1, len(batches) // 12)]  # those that time_epoch takes
        held = Held.of(run.train, sampled)
        run.train = cast(AnyGrids, held)
        decoder = time_epoch(run)
        first = held.read(sampled[0].positions)
        checking = seconds_of(lambda: [zlib.crc32(grid.numpy().data) for grid in first])
    captions = run.batches.captions()
    print(
        f"loading: {captions} captions in {data:.1f} s, {captions / data:.0f} a second: "
        f"{decoder / data:.1f} times the decoder's own {captions / decoder:.0f}; checksums take "
        f"{checking * len(batches) / data:.0%} of it"
    )


class Held:
    """Some batches' grids in memory."""

    def __init__(self, pictures: list[Picture], grids: dict[tuple[int, ...], torch.Tensor]) -> None:
        self.pictures = pictures
        self._grids = grids

    @classmethod
    def of(cls, grids: AnyGrids, batches: Sequence[Batch]) -> "Held":
        read = {
            tuple(batch.positions): cast(torch.Tensor, grids.read(batch.positions, batch.mirrored))
            for batch in batches
        }
        return cls(grids.pictures, read)

    def read(self, positions: Sequence[int], _: Sequence[bool] | None = None) -> torch.Tensor:
        return self._grids[tuple(positions)]


def read_epoch(run: Run) -> None:
    for batch in run.batches.epoch(1):
        run.train.read(batch.positions, batch.mirrored)


def epoch(settings: Settings) -> None:
    """One training epoch from cached grids, and the FLOPs that it counts."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(".cache/grids")
        run = start_run(Path(folder) / "run", settings, cache=cache, device=torch.device("cpu"))
        with FlopCounterMode(display=False) as counter:
            train_epoch(run, 1)
        seconds = train_epoch(run, 2)["seconds"]  # uncounted, so that it is not slowed down
    flops = counter.get_total_flops()
    rate = matmul_rate(torch.float32)
    print(
        f"epoch: {run.batches.captions()} captions in {seconds:.1f} s; "
        f"{flops / 1e12:.2f} TFLOP counted, {flops / seconds / 1e9:.0f} GFLOP/s, "
        f"{flops / seconds / rate:.0%} of the matmul rate ({rate / 1e9:.0f} GFLOP/s)"
    )


def caption(settings: Settings) -> None:
    """The shipped model on photographs, from the command line and warm."""
    pictures = load_split(settings.data, "val")[:500]
    paths = [picture.source for picture in pictures if isinstance(picture.source, Path)]
    program = [sys.executable, "-m", "showattend"]
    print(f"showattend --help: {seconds_of(lambda: quietly([*program, '--help'])):.2f} s")
    cold = seconds_of(lambda: quietly([*program, "caption", str(paths[0])]))
    print(f"showattend caption PHOTO, cold: {cold:.2f} s")
    model = load()
    model.caption(paths[0])
    each = [seconds_of(partial(model.caption, path, beam_size=5)) for path in paths[:50]]
    print(f"warm, beam 5: {1000 * sorted(each)[25]:.0f} ms a photograph (median of 50)")
    seconds = seconds_of(partial(model.caption, paths, beam_size=5))
    print(f"folder of {len(paths)}, beam 5: {len(paths) / seconds:.1f} photographs a second")


def score(settings: Settings) -> None:
    """A caption an image against its others: ours, and pycocoevalcap's own path."""
    pictures = load_split(settings.data, "val")
    texts = {picture.image_id: picture.captions[0] for picture in pictures}
    references = {picture.image_id: picture.captions[1:] for picture in pictures}
    score_captions(texts, references)  # nltk is imported at the first call
    ours = seconds_of(lambda: score_captions(texts, references))
    theirs = seconds_of(lambda: pycocoevalcap_scores(texts, references))
    print(f"score: {len(texts)} images in {ours:.2f} s; pycocoevalcap {theirs:.1f} s")


def pycocoevalcap_scores(
    texts: Mapping[ImageId, str], references: Mapping[ImageId, Sequence[str]]
) -> None:
    from pycocoevalcap.bleu.bleu import Bleu
    from pycocoevalcap.cider.cider import Cider
    from pycocoevalcap.rouge.rouge import Rouge

    # Its own tokenizer, but for the temporary files that it leaves in the installed package.
    human = [caption for image in texts for caption in references[image]]
    words = iter(java_tokens([*texts.values(), *human]))
    said = {image: [" ".join(next(words))] for image in texts}
    heard = {image: [" ".join(next(words)) for _ in references[image]] for image in texts}
    for scorer in (Bleu(4), Rouge(), Cider()):
        with redirect_stdout(io.StringIO()):
            scorer.compute_score(heard, said)


def page(_: Settings) -> None:
    """The web page in a browser: its cold start, and pointing at words."""
    from playwright.sync_api import sync_playwright

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = [sys.executable, "-m", "showattend", "app", "--port", str(port)]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(reduced_motion="reduce")
        began = time.perf_counter()
        with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                process.stdout.readline()  # it says where it serves
                served = time.perf_counter() - began
                tab.goto(f"http://127.0.0.1:{port}")
                tab.click("#examples button >> nth=0", timeout=60_000)
                tab.wait_for_selector(".sa-viewer[data-ready] .sa-chip", timeout=60_000)
                captioned = time.perf_counter() - began
                each = sorted(tab.evaluate(_POINT))
            finally:
                process.terminate()
        browser.close()
    print(f"page: served after {served:.1f} s; first caption after {captioned:.1f} s")
    middle, most = each[len(each) // 2], each[-1]
    print(f"a word's picture is there after {middle:.0f} ms (median), at most {most:.0f} ms")


_CHROMIUM = "/usr/bin/chromium"
#: Milliseconds from the pointer on each word until its picture can be read back.
_POINT = """() => [...document.querySelectorAll('.sa-chip')].slice(1).map((chip) => {
  const canvas = document.querySelector('.sa-picture canvas'), began = performance.now();
  chip.dispatchEvent(new PointerEvent('pointerover', {bubbles: true, pointerType: 'mouse'}));
  canvas.getContext('2d').getImageData(0, 0, 1, 1);
  return performance.now() - began;
})"""


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def quietly(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def peak_anonymous_memory() -> Iterator[Callable[[], int]]:
    """Samples this process's RssAnon (MiB; mapped files not counted) ten times a second."""
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    peak[0] = max(peak[0], int(line.split()[1]) // 1024)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    yield lambda: peak[0]
    stop.set()
    thread.join()


PARTS = {
    "machine": machine,
    "grids": grids,
    "loading": loading,
    "epoch": epoch,
    "caption": caption,
    "score": score,
    "page": page,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--root", required=True, help="the Flickr8k folder")
    arguments = parser.parse_args()
    settings = read_settings(CONFIG, [f"data.root={arguments.root}", "train.epochs=2"])
    for part in arguments.parts:
        PARTS[part](settings)


if __name__ == "__main__":
    main()
