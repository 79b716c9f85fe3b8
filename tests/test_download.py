"""Downloads from a server that does everything wrong that servers do: the table of docs/data.md."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from file_server import FileServer
from hypothesis import given, settings
from hypothesis import strategies as st
from tqdm import tqdm

from showattend import download as module
from showattend.download import DownloadError, Remote, ask, checksum, client, come, download

OLD = random.Random(0).randbytes(300_000)
NEW = random.Random(1).randbytes(300_000)


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES", (0.0,) * 3)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer({"/a.zip": OLD}).running() as running:
        yield running


def get(server: FileServer, folder: Path, content: bytes = OLD, path: str = "/a.zip") -> None:
    """One call; what it must give is ``content``, and nothing beside it."""
    folder.mkdir(exist_ok=True)
    target = folder / "a.zip"

    async def call() -> None:
        async with client() as web:
            with tqdm(disable=True) as bar:
                await download(web, f"{server.url}{path}", target, digest(content), bar)

    asyncio.run(call())
    assert target.read_bytes() == content
    assert list(folder.iterdir()) == [target]


def complaint(server: FileServer, folder: Path, content: bytes = OLD, path: str = "/a.zip") -> str:
    with pytest.raises(DownloadError) as caught:
        get(server, folder, content, path)
    line = str(caught.value)
    assert "\n" not in line
    assert not (folder / "a.zip").exists()
    return line


def test_a_file_comes_whole(server: FileServer, tmp_path: Path) -> None:
    get(server, tmp_path)
    assert [status for *_, status in server.asked] == [200, 200]  # its size, and its bytes


def test_an_empty_file_comes(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.zip"] = b""
    get(server, tmp_path, b"")


def test_a_dropped_connection_is_resumed(
    server: FileServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """More often than there are pauses: every drop brings bytes, which start them anew."""
    server.cut = 40_000
    get(server, tmp_path)
    starts = [int(r.removeprefix("bytes=")[:-1]) for r in server.resumed()]
    assert len(starts) >= 7 > len(module.PAUSES)
    assert starts == sorted(set(starts))
    assert sum(status == 206 for *_, status in server.asked) == len(starts)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == len(starts)
    assert all("a.zip: the connection was lost" in line for line in lines)


def cut_off(server: FileServer, folder: Path) -> int:
    """A call that ends after the first bytes have come; how many."""
    server.cut = 100_000
    server.before = lambda number: server.files.pop("/a.zip") if number == 2 else None
    assert "is not there (404" in complaint(server, folder)
    server.files["/a.zip"] = OLD
    server.cut, server.before = None, lambda number: None
    have = come(folder / "a.zip")
    assert 0 < have <= 100_000
    return have


@pytest.mark.parametrize("versions", ["strong", "date"])
def test_another_call_goes_on(server: FileServer, tmp_path: Path, versions: str) -> None:
    server.versions = versions
    have = cut_off(server, tmp_path)
    get(server, tmp_path)
    assert server.resumed() == [f"bytes={have}-"]


@pytest.mark.parametrize("versions", ["weak", "none"])
def test_what_has_no_version_is_begun_anew(
    server: FileServer, tmp_path: Path, versions: str
) -> None:
    """Nobody could tell whether the file is still the same."""
    server.versions = versions
    cut_off(server, tmp_path)
    get(server, tmp_path)
    assert all(asked is None for _, asked, _ in server.asked)


@pytest.mark.parametrize("versions", ["strong", "date", "weak", "none"])
def test_a_changed_file_is_not_glued_to_an_older_half(
    server: FileServer, tmp_path: Path, versions: str
) -> None:
    """It changes between two calls; the new one is as long as the old one."""
    server.versions = versions
    cut_off(server, tmp_path)
    server.files["/a.zip"] = NEW
    get(server, tmp_path, NEW)
    assert server.resumed() == []


def test_a_file_that_changes_between_the_question_and_the_bytes_is_begun_anew(
    server: FileServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Within a call: the range is asked with If-Range, and the server sends all of the new one."""
    server.cut = 100_000

    def change(number: int) -> None:
        if number == 3:  # 0 and 1 brought the first bytes, 2 asks, 3 would go on
            server.files["/a.zip"], server.cut = NEW, None

    server.before = change
    get(server, tmp_path, NEW)
    assert server.asked[3][1] is not None
    assert server.asked[3][2] == 200
    assert "the file is being changed on the server" in capfd.readouterr().err


def test_a_server_that_ignores_if_range_is_seen_by_its_etag(
    server: FileServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It sends the rest of the new file for the half of the old one; nothing of it is written."""
    server.if_range = False
    server.cut = 100_000

    def change(number: int) -> None:
        if number == 3:
            server.files["/a.zip"], server.cut = NEW, None

    server.before = change
    get(server, tmp_path, NEW)
    assert server.asked[3][2] == 206
    assert "the file is being changed on the server" in capfd.readouterr().err


def test_another_range_than_asked_for_is_not_written(server: FileServer, tmp_path: Path) -> None:
    have = cut_off(server, tmp_path)
    server.shift = 1
    assert "sends other bytes than it was asked for" in complaint(server, tmp_path)
    assert come(tmp_path / "a.zip") == have
    server.shift = 0
    get(server, tmp_path)


def test_a_part_that_ends_before_its_range_is_gone_on_from(
    server: FileServer, tmp_path: Path
) -> None:
    """It is as long as its own header says, so that no connection seems lost."""
    have = cut_off(server, tmp_path)
    server.most = 90_000
    get(server, tmp_path)
    starts = [have, have + 90_000, have + 180_000][: len(server.resumed())]
    assert server.resumed() == [f"bytes={start}-" for start in starts]
    assert len(starts) == 3


def a_part(server: FileServer, folder: Path) -> Path:
    """Where the first bytes of a call that was cut off lie."""
    cut_off(server, folder)
    (part,) = folder.iterdir()
    return part


def test_a_part_longer_than_its_file_is_begun_anew(server: FileServer, tmp_path: Path) -> None:
    part = a_part(server, tmp_path)
    part.write_bytes(OLD + b"!!")
    get(server, tmp_path)
    assert server.resumed() == []


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_a_part_that_is_no_file_is_named(
    server: FileServer, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    part = a_part(server, tmp_path)
    part.unlink()
    make(part)
    assert complaint(server, tmp_path) == (
        f"{part}: is no regular file, and stands where a part of a.zip belongs; remove it and run "
        "again"
    )
    assert list(tmp_path.iterdir()) == [part]


def test_a_server_without_ranges_begins_anew(server: FileServer, tmp_path: Path) -> None:
    server.ranges = False
    server.cut = 100_000

    def mend(number: int) -> None:
        server.cut = None if number >= 3 else server.cut

    server.before = mend
    get(server, tmp_path)
    assert [status for *_, status in server.asked] == [200] * 4
    assert server.asked[3][1] is not None


def test_a_server_without_ranges_that_always_drops_is_given_up(
    server: FileServer, tmp_path: Path
) -> None:
    """Every try brings bytes, but no more than those before."""
    server.ranges = False
    server.cut = 100_000
    line = complaint(server, tmp_path)
    assert "the connection was lost" in line
    assert "times in a row; what has come stays" in line


def test_wrong_bytes_are_removed(server: FileServer, tmp_path: Path) -> None:
    server.files["/a.zip"] = OLD[:-1] + bytes([OLD[-1] ^ 1])
    line = complaint(server, tmp_path)
    assert f"another file came than the published one ({digest(server.files['/a.zip'])}" in line
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_tried_again(server: FileServer, tmp_path: Path) -> None:
    line = complaint(server, tmp_path, path="/b.zip")
    assert line == f"{server.url}/b.zip: is not there (404 Not Found); choose another --source"
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 403, 416])
def test_a_refusal_is_not_tried_again(server: FileServer, tmp_path: Path, status: int) -> None:
    server.statuses = itertools.repeat(status)
    assert f"the server answers {status} " in complaint(server, tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(server: FileServer, tmp_path: Path, status: int) -> None:
    server.statuses = iter([status, 200, status])  # once when asked, once when read
    get(server, tmp_path)
    assert [status for *_, status in server.asked] == [status, 200, status, 200, 200]


def test_a_server_that_stays_busy_is_given_up(server: FileServer, tmp_path: Path) -> None:
    server.statuses = itertools.repeat(503)
    line = complaint(server, tmp_path)
    assert line.startswith(
        f"{server.url}/a.zip: the server answers 503 Service Unavailable, 4 times in a row"
    )
    assert len(server.asked) == 4


def test_pauses_grow(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def count(seconds: float) -> None:
        slept.append(seconds)
        await sleep(0)

    monkeypatch.setattr(module, "PAUSES", (1.0, 2.0, 4.0, 8.0, 16.0))
    monkeypatch.setattr(asyncio, "sleep", count)
    server.statuses = itertools.repeat(503)
    complaint(server, tmp_path)
    assert slept == [1, 2, 4, 8, 16]


def test_a_file_shorter_than_announced_is_never_taken(server: FileServer, tmp_path: Path) -> None:
    server.missing = 10
    line = complaint(server, tmp_path)
    assert "the connection was lost" in line
    assert come(tmp_path / "a.zip") == len(OLD)


def test_a_lost_network_is_one_line(tmp_path: Path, no_network: None) -> None:
    line = complaint(FileServer({}, url="https://example.org"), tmp_path)
    assert "no connection to example.org" in line
    assert "4 times in a row" in line


def test_a_closed_port_is_one_line(tmp_path: Path) -> None:
    with FileServer({}).running() as server:
        pass
    assert "no connection to 127.0.0.1" in complaint(server, tmp_path)


def test_a_silent_server_is_given_up(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SILENCE", 1.0)
    monkeypatch.setattr(module, "PAUSES", ())
    over = threading.Event()

    def wait(_: int) -> None:
        over.wait(30)

    server.before = wait
    try:
        assert "the server was silent for 1 s" in complaint(server, tmp_path)
    finally:
        over.set()


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "nowhere", "http://[::", "http://127.0.0.1:x"])
def test_what_is_no_address_is_refused_at_once(tmp_path: Path, url: str) -> None:
    assert f"{url}/a.zip: " in complaint(FileServer({}, url=url), tmp_path)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://xn--a"])
def test_a_port_or_a_host_that_cannot_be_is_no_address(url: str) -> None:
    async def call() -> Remote:
        async with client() as web:
            return await ask(web, f"{url}/a.zip")

    with pytest.raises(DownloadError) as caught:
        asyncio.run(call())
    assert str(caught.value).startswith(f"{url}/a.zip: is no address of a file (")
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_tell_the_size_is_refused(
    server: FileServer, tmp_path: Path
) -> None:
    server.sizes = False
    assert "does not say how long it is" in complaint(server, tmp_path)


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(["strong", "date", "weak", "none"]),
    st.booleans(),
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from([OLD[:70_000], OLD[:70_000], NEW[:70_000], NEW[:50_000]]),
            st.none() | st.integers(1, 70_000),
            st.sampled_from([200, 200, 200, 503]),
        ),
        min_size=1,
    ),
)
def test_whatever_the_server_does_no_other_file_comes(
    versions: str, ranges: bool, if_range: bool, moods: list[tuple[bytes, int | None, int]]
) -> None:
    """Drops, changes of the file and busy times in any order, over two calls."""
    wanted = OLD[:70_000]
    server = FileServer({"/a.zip": wanted}, versions=versions, ranges=ranges, if_range=if_range)

    def change(number: int) -> None:
        server.files["/a.zip"], server.cut, status = moods[number % len(moods)]
        server.statuses = iter([status])

    server.before = change
    with server.running(), tempfile.TemporaryDirectory() as name, tqdm(disable=True) as bar:
        target = Path(name, "a.zip")

        async def call() -> None:
            async with client() as web:
                await download(web, f"{server.url}/a.zip", target, digest(wanted), bar)

        for _ in range(2):
            with contextlib.suppress(DownloadError):
                asyncio.run(call())
            assert not target.exists() or target.read_bytes() == wanted


def test_redirects_are_followed_at_every_try(server: FileServer, tmp_path: Path) -> None:
    """As GitHub's releases lead to a store of files."""
    server.moved["/release/a.zip"] = "/a.zip"
    server.cut = 200_000
    get(server, tmp_path, path="/release/a.zip")
    assert len(server.resumed()) == 1
    server.moved["/a.zip"] = "/a.zip"
    assert "redirect" in complaint(server, tmp_path / "new", path="/a.zip").lower()


def test_a_full_disk_is_one_line_and_the_bytes_stay(server: FileServer, small_disk: Path) -> None:
    (small_disk / "other").write_bytes(bytes(150_000))
    line = complaint(server, small_disk)
    assert "a.zip: cannot be written (No space left on device)" in line
    have = come(small_disk / "a.zip")
    assert 0 < have < 60_000
    assert f"the {have:,} bytes that have come stay" in line
    (small_disk / "other").unlink()
    server.files["/a.zip"] = OLD  # still larger than the disk, but it goes on
    assert "No space left" in complaint(server, small_disk)
    assert server.resumed() == [f"bytes={have}-"]


def test_a_limit_of_the_system_is_one_line(server: FileServer, tmp_path: Path) -> None:
    """As a full disk, where nobody may mount one: no file may grow beyond 100,000 bytes."""
    program = f"""
import asyncio, resource
from pathlib import Path
from tqdm import tqdm
from showattend.download import DownloadError, client, download
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
async def call():
    async with client() as web:
        url, bar = "{server.url}/a.zip", tqdm(disable=True)
        await download(web, url, Path("a.zip"), "{digest(OLD)}", bar)
try:
    asyncio.run(call())
except DownloadError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "a.zip: cannot be written (File too large); the 100,000 bytes that have come stay: mend "
        "this and run again, it goes on from there\n"
    )
    get(server, tmp_path)
    assert server.resumed() == ["bytes=100000-"]


def test_a_checksum_is_of_the_kind_asked_for(tmp_path: Path) -> None:
    """RFC 1321's and FIPS 180's own test string."""
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert asyncio.run(checksum(path, "md5:")) == "md5:900150983cd24fb0d6963f7d28e17f72"
    assert asyncio.run(checksum(path, "sha256:")) == (
        "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )


def test_a_question_reads_nothing(server: FileServer) -> None:
    async def call() -> Remote:
        async with client() as web:
            return await ask(web, f"{server.url}/a.zip")

    assert asyncio.run(call()) == Remote(
        f"{server.url}/a.zip", len(OLD), f'"{hashlib.md5(OLD).hexdigest()}"'
    )
