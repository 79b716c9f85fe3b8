"""A web server of this machine alone, with a switch for everything that servers do wrong."""

import email.utils
import hashlib
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class FileServer:
    """Serves ``files`` by their paths, with an ETag of their bytes.

    Args:
        ranges: a part of a file may be asked for.
        versions: how it tells one version of a file from another: "strong" or "weak" ETags, the
            "date" of the last change, or not at all ("none").
        if_range: it looks at If-Range; without it, it sends a part of whatever there is.
        shift: a part begins so many bytes later than asked for.
        most: a part is said and sent to be so long, though its range says more.
        sizes: it says how long a file is.
        moved: paths, and where their files are now.
        cut: the connection is dropped after so many bytes of every answer.
        stall: after so many bytes of an answer nothing comes any more, until it is None.
        together: no answer ends before so many are being sent at once.
        missing: it announces so many bytes more than it has.
        statuses: answers of the next requests, instead of files.
        before: called before every request with its number, from 0.
        asked: path, Range header and status of every request.
    """

    files: dict[str, bytes]
    ranges: bool = True
    versions: str = "strong"
    if_range: bool = True
    shift: int = 0
    most: int | None = None
    sizes: bool = True
    moved: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    stall: int | None = None
    together: threading.Barrier | None = None
    missing: int = 0
    statuses: Iterator[int] = field(default_factory=lambda: iter(()))
    before: Callable[[int], None] = lambda number: None
    asked: list[tuple[str, str | None, int]] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def running(self) -> Iterator["FileServer"]:
        server = _Server(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def resumed(self) -> list[str]:
        """The ranges that were asked for and sent."""
        return [asked for _, asked, status in self.asked if asked and status == 206]


def version(kind: str, content: bytes) -> tuple[str, str]:
    """The header that tells it, and what it says."""
    digest = hashlib.md5(content, usedforsecurity=False).digest()
    if kind == "date":
        seconds = int.from_bytes(digest[:3]) + 1_500_000_000
        return "Last-Modified", email.utils.formatdate(seconds, usegmt=True)
    return "ETag", f'{"W/" if kind == "weak" else ""}"{digest.hex()}"'


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Clients go away when they have seen enough."""


def _handler(served: FileServer) -> type[http.server.BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Not on pytest's stderr."""

        def do_GET(self) -> None:
            with lock:
                served.before(len(served.asked))
                content = served.files.get(self.path)
                status, start = self.decide(content)
                served.asked.append((self.path, self.headers.get("Range"), status))
            self.send_response(status)
            if content is None or status not in (200, 206):
                self.send_header("Content-Length", "0")
                self.send_header("Location", served.moved.get(self.path, ""))
                self.end_headers()
            else:
                self.send_heads(content, start, status)
                end = served.cut if status == 200 else served.most or served.cut
                self.send_body(content[start:][:end])

        def decide(self, content: bytes | None) -> tuple[int, int]:
            """The status, and the first byte to send."""
            status = 302 if self.path in served.moved else next(served.statuses, 200)
            if status != 200 or content is None:
                return status if status != 200 else 404, 0
            tag = version(served.versions, content)[1]
            same = not served.if_range or self.headers.get("If-Range", tag) == tag
            if "Range" not in self.headers or not served.ranges or not same:
                return 200, 0
            asked = self.headers["Range"].removeprefix("bytes=").removesuffix("-")
            return 206, int(asked) + served.shift

        def send_heads(self, content: bytes, start: int, status: int) -> None:
            announced = len(content) + served.missing
            length = announced - start
            if status == 206:
                length = min(length, served.most or length)
                self.send_header("Content-Range", f"bytes {start}-{announced - 1}/{announced}")
            if served.sizes:
                self.send_header("Content-Length", str(length))
            if served.versions != "none":
                self.send_header(*version(served.versions, content))
            self.end_headers()

        def send_body(self, body: bytes) -> None:
            if served.together:
                self.wfile.write(body[:1])
                served.together.wait(25)
                body = body[1:]
            if (stall := served.stall) is not None:
                self.wfile.write(body[:stall])
                while served.stall is not None:
                    time.sleep(0.01)
                body = body[stall:]
            self.wfile.write(body)

    return Handler
