#!/usr/bin/env python
"""Let a crowd of clients loose on the page: its answers, its waiting times and its memory.

    scripts/crowd.py PHOTOGRAPHS... [--odd FILES...] [--clients 30] [--seconds 120]

Serves the page on a free port of this machine, then every client uploads a photograph and asks for
its caption, over and over, as programs do (docs/app.md); with --odd half of the clients upload
damaged and hostile files instead. Prints, for either half, how many answers of which kind came,
median and 95th percentile of the waiting time, and the server's memory every ten seconds.
"""

import argparse
import asyncio
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from showattend.files import find_photographs

_PATIENCE = 60.0  # seconds that a client waits for an answer
_START = 120.0  # seconds that the server has to come up


@dataclass
class Told:
    """What a group of clients was answered."""

    kinds: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)  # of captions alone

    def line(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())
        if len(self.seconds) < 2:
            return kinds
        slow = statistics.quantiles(self.seconds, n=20)[-1]
        return f"{kinds}; a caption took {statistics.median(self.seconds):.2f} s, 95 % {slow:.2f} s"


async def visit(url: str, files: Iterator[Path], until: float, told: Told) -> None:
    """One client, to the end."""
    async with httpx.AsyncClient(base_url=f"{url}/gradio_api", timeout=_PATIENCE) as client:
        while time.monotonic() < until:
            began = time.monotonic()
            try:
                kind = await ask(client, next(files))
            except httpx.HTTPError as error:
                kind = f"lost: {type(error).__name__}"
            told.kinds[kind] += 1
            if kind == "caption":
                told.seconds.append(time.monotonic() - began)


async def ask(client: httpx.AsyncClient, path: Path) -> str:
    """Upload a file and ask for its caption; what became of it, in a word or a line."""
    answer = await client.post("/upload", files={"files": (path.name, path.read_bytes())})
    if answer.status_code != httpx.codes.OK:
        return f"upload refused: {answer.status_code}"
    (uploaded,) = answer.json()
    record = {"path": uploaded, "orig_name": path.name, "meta": {"_type": "gradio.FileData"}}
    answer = await client.post("/call/caption", json={"data": [record, "soft", 5]})
    if answer.status_code != httpx.codes.OK:
        return f"refused: {answer.status_code} {_reason(answer.text)}"
    event = answer.json()["event_id"]
    answer = await client.get(f"/call/caption/{event}")
    kind, _, data = answer.text.rpartition("event: ")[2].partition("\ndata: ")
    if kind == "complete":
        return "caption" if json.loads(data)[0]["captions"] else "no caption"
    return f"refused: {_reason(data)}"


def _reason(text: str) -> str:
    """The line without what is of one file alone."""
    line = re.sub(r"\S+: ", "", str(json.loads(text)), count=1)
    return re.sub(r"\d[\d,.]*", "N", line)[:70]


@contextmanager
def serving(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The page with the shipped models, until the block ends."""
    command = [sys.executable, "-m", "showattend", "app", "--port", str(port)]
    with subprocess.Popen(command) as process:
        try:
            _await_page(f"http://127.0.0.1:{port}", process)
            yield process
        finally:
            process.terminate()


def _await_page(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx.get(url)
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("crowd: error: the server did not start")


def _megabytes(process: int) -> float:
    """Resident memory (Linux)."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    kilobytes = re.search(r"VmRSS:\s+(\d+)", status)
    return int(kilobytes[1]) / 1024 if kilobytes else float("nan")


async def watch(process: int, until: float) -> None:
    """Print the server's memory now and then."""
    began = time.monotonic()
    while time.monotonic() < until:
        print(f"{time.monotonic() - began:5.0f} s  {_megabytes(process):6.0f} MiB", flush=True)
        await asyncio.sleep(10)


async def crowd(args: argparse.Namespace, url: str, process: int) -> list[tuple[str, Told]]:
    """All clients at once; what the good half and the odd half were told."""
    photographs = [Path(path) for name in args.photographs for path in find_photographs(name)]
    odd = [path for name in args.odd for path in _files(Path(name))]
    until = time.monotonic() + args.seconds
    groups = [("photographs", photographs, Told())] + ([("odd files", odd, Told())] if odd else [])
    clients = []
    for number in range(args.clients):
        _, files, told = groups[number % len(groups)]
        own = itertools.cycle(files[number % len(files) :] + files[: number % len(files)])
        clients.append(visit(url, own, until, told))
    await asyncio.gather(watch(process, until), *clients)
    return [(name, told) for name, _, told in groups]


def _files(path: Path) -> Sequence[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("photographs", nargs="+", help="files, folders or globs")
    parser.add_argument("--odd", nargs="+", default=[], metavar="PATH", help="files or folders")
    parser.add_argument("--clients", type=int, default=30, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=120, help="default: %(default)s")
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with serving(port) as process:
        for name, told in asyncio.run(crowd(args, f"http://127.0.0.1:{port}", process.pid)):
            print(f"{name}: {told.line()}")


if __name__ == "__main__":
    main()
