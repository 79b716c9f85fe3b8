"""A web server of this machine alone, with a switch for everything that servers do wrong."""

import hashlib
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class FileServer:
    """Serves ``files`` by their paths, with an ETag of their bytes.

    Args:
        ranges: a part of a file may be asked for.
        versions: sends ETags, and looks at If-Range.
        cut: the connection is dropped after so many bytes of every answer.
        missing: it announces so many bytes more than it has.
        statuses: answers of the next requests, instead of files.
        before: called before every request with its number, from 0.
        asked: path, Range header and status of every request.
    """

    files: dict[str, bytes]
    ranges: bool = True
    versions: bool = True
    cut: int | None = None
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


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Clients go away when they have seen enough."""


def _handler(served: FileServer) -> type[http.server.BaseHTTPRequestHandler]:
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Not on pytest's stderr."""

        def do_GET(self) -> None:  # noqa: N802
            with lock:
                served.before(len(served.asked))
                status = next(served.statuses, 200)
                content = served.files.get(self.path)
                if status == 200 and content is None:
                    status = 404
                asked = self.headers.get("Range")
                served.asked.append((self.path, asked, status))
                index = len(served.asked) - 1
            if status != 200 or content is None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            tag = f'"{hashlib.md5(content).hexdigest()}"'
            start = 0
            known = not served.versions or self.headers.get("If-Range", tag) == tag
            if asked and served.ranges and known:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                served.asked[index] = (self.path, asked, 206)
            announced = len(content) + served.missing
            self.send_response(206 if served.asked[index][2] == 206 else 200)
            if served.asked[index][2] == 206:
                self.send_header("Content-Range", f"bytes {start}-{announced - 1}/{announced}")
            self.send_header("Content-Length", str(announced - start))
            if served.versions:
                self.send_header("ETag", tag)
            self.end_headers()
            self.wfile.write(content[start:][: served.cut])

    return Handler
