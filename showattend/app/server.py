"""Serving the page; it and the server ask no other host.

No telemetry, no version check, no web fonts, and Gradio's own way of fetching URLs is shut.
"""

import logging
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import gradio as gr
import torch
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from showattend.app.models import Models
from showattend.app.page import build_page
from showattend.app.shared import AT_ONCE
from showattend.app.upload_room import UploadRoom
from showattend.app.viewer import script, style

UPLOAD_LIMIT = "20mb"
UPLOADS_BYTES = 4 << 30  # of all that are kept
QUEUE_LIMIT = 32  # visitors waiting; the next one is told that the queue is full
VISITS = 200  # whose photographs are remembered; a page opened before them starts anew


def serve(
    models: Sequence[str],
    host: str,
    port: int,
    *,
    runs: Path | None = None,
    auth: tuple[str, str] | None = None,
) -> None:
    """Serve the page until interrupted.

    Args:
        runs: a folder of training runs, to be shown besides.
        auth: the name and password that visitors must give.
    Raises:
        CheckpointError: no model, or the first one is missing or damaged; one line.
        OSError: the port is taken; one line.
    """
    offered = Models(models)
    offered.get(offered.names[0])  # a mistyped folder fails here, not at the first visitor
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the folder below goes too
    stay_home()
    # Visitors share the cores, rather than each one's threads all of them.
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // AT_ONCE))
    logging.getLogger("uvicorn.error").addFilter(one_line_if_broken_off)
    # Gradio serves whatever lies in its cache. By default all Gradio programs share one.
    with tempfile.TemporaryDirectory(prefix="showattend-") as cache:
        os.environ["GRADIO_TEMP_DIR"] = cache
        page = build_page(offered, runs).queue(
            max_size=QUEUE_LIMIT,
            api_open=False,  # no way around the queue
        )
        room = Middleware(UploadRoom, folder=Path(cache), most_bytes=UPLOADS_BYTES)
        try:
            _, url, _ = page.launch(
                server_name=host,
                server_port=port,
                auth=auth,
                prevent_thread_lock=True,
                quiet=True,
                share=False,
                state_session_capacity=VISITS,
                max_file_size=UPLOAD_LIMIT,
                app_kwargs={"middleware": [room]},
                enable_monitoring=False,
                run_history=False,
                ssr_mode=False,
                pwa=False,
                mcp_server=False,
                footer_links=[],
                theme=theme(),
                css=style(),
                head=script(),
            )
        except OSError as error:
            raise OSError(f"{host}:{port}: cannot listen there; choose another --port") from error
        print(f"showattend: {url} (Ctrl-C stops it)", flush=True)
        page.block_thread()


def read_password(file: Path) -> tuple[str, str]:
    """The name and password of a file of one line, NAME:PASSWORD: a command line is seen by all.

    Raises:
        PasswordError: the file holds something else; one line.
        OSError: it cannot be read.
    """
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    name, _, password = (lines or [""])[0].partition(":")
    if len(lines) != 1 or not name or not password:
        raise PasswordError(f"{file}: expected one line, NAME:PASSWORD")
    return name, password


class PasswordError(ValueError):
    """A file of a password is none: one clear line."""


def one_line_if_broken_off(record: logging.LogRecord) -> bool:
    """A filter of the server's log: an upload that broke off is a line, and no traceback."""
    if record.exc_info and isinstance(record.exc_info[1], ClientDisconnect):
        record.msg, record.args = "an upload broke off", ()
        record.exc_info = record.exc_text = None
    return True


def theme() -> gr.themes.Base:
    """One accent colour, and the system's own fonts."""
    return gr.themes.Default(
        primary_hue="orange",
        secondary_hue="orange",
        neutral_hue="stone",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    )


def stay_home() -> None:
    """Shut every way by which Gradio asks other hosts."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

    async def refuse(*_: object, **__: object) -> NoReturn:
        raise ValueError("showattend fetches no URL: upload the photograph itself")

    # A request may name a URL in place of a file. Both of Gradio's ways to it pass through
    # safehttpx, which would even ask a public resolver for the name.
    safehttpx = gr.processing_utils.sh
    safehttpx.get = safehttpx.async_validate_url = refuse
