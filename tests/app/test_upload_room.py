"""Uploads are refused while their folder is full, and nothing else is."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from showattend.app.upload_room import LEAST_BYTES, UploadRoom, taken


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    def answer(_: Request) -> PlainTextResponse:
        return PlainTextResponse("taken")

    room = Middleware(UploadRoom, folder=tmp_path, most_bytes=2 * LEAST_BYTES)
    routes = [Route(path, answer, methods=["GET", "POST"]) for path in ("/api/upload", "/api/info")]
    return TestClient(Starlette(routes=routes, middleware=[room]))


def test_small_files_count_and_so_do_large_ones(tmp_path: Path) -> None:
    assert taken(tmp_path) == 0
    (tmp_path / "hash").mkdir()
    (tmp_path / "hash" / "small").write_bytes(b"a")
    assert taken(tmp_path) == LEAST_BYTES
    (tmp_path / "large.jpg").write_bytes(b"a" * (LEAST_BYTES + 1))
    assert taken(tmp_path) == 2 * LEAST_BYTES + 1


def test_there_is_room_until_there_is_none(client: TestClient, tmp_path: Path) -> None:
    for name in ("a.jpg", "b.jpg"):
        assert client.post("/api/upload").text == "taken"
        (tmp_path / name).write_bytes(b"a")
    full = client.post("/api/upload")
    assert (full.status_code, full.text.count("\n")) == (507, 0)
    assert "no room for more uploads" in full.text
    assert client.get("/api/info").text == "taken"
    (tmp_path / "a.jpg").unlink()
    assert client.post("/api/upload").text == "taken"
