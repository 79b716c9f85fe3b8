"""How much of the disk uploads may take: past that, they are refused until older ones are deleted.

Gradio bounds each upload and deletes it an hour later, but not how many there are.
"""

from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

#: What the smallest upload counts: a disk also runs out of files.
LEAST_BYTES = 256 * 1024
_INSUFFICIENT_STORAGE = 507  # RFC 4918, 11.5
_FULL = "There is no room for more uploads now: try again in an hour."


class UploadRoom:
    """ASGI middleware that answers uploads with 507 and one line while the folder is full.

    Args:
        app: what answers otherwise.
        folder: where uploads are kept.
        most_bytes: of all of them; one that is on its way may go beyond it.
    """

    def __init__(self, app: ASGIApp, folder: Path, most_bytes: int) -> None:
        self._app = app
        self._folder = folder
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        upload = scope["type"] == "http" and scope["path"].endswith("/upload")
        if upload and await run_in_threadpool(taken, self._folder) >= self._most_bytes:
            answer = PlainTextResponse(_FULL, _INSUFFICIENT_STORAGE)
        await answer(scope, receive, send)


def taken(folder: Path) -> int:
    """Bytes that a folder's files count: their sizes, and at least `LEAST_BYTES` each."""
    return sum(max(_size(path), LEAST_BYTES) for path in folder.rglob("*") if path.is_file())


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # deleted since it was listed
        return 0
