"""Files from the web that come whole, go on where they were cut off, and are what they should be.

Bytes go to a hidden ``.part`` file, whose name tells the address, size and version of what it is a
part of: when the file changes on the server, no half of it is ever glued to an older half. Only
what has the right checksum gets its own name.
"""

import asyncio
import hashlib
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
from tqdm import tqdm

T = TypeVar("T")

#: Seconds before each new try. They begin anew whenever a try has brought bytes.
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
#: What servers answer that are busy or being mended.
_PASSING = {408, 425, 429, 500, 502, 503, 504}
_SILENCE = 30.0  # seconds without a byte that count as a lost connection
_CHUNK = 1 << 20  # bytes


class DownloadError(ValueError):
    """A file cannot be had: one clear line."""


class _MayPass(Exception):
    """A fault that another try may not meet."""


@dataclass(frozen=True)
class Remote:
    """What a server says of a file.

    Args:
        size: bytes.
        version: its ETag, or the date of its last change; None if it tells neither.
    """

    url: str
    size: int
    version: str | None

    def part(self, target: Path) -> Path:
        """Where what has come of it lies until it is whole."""
        key = hashlib.blake2b(repr(self).encode(), digest_size=8).hexdigest()
        return target.with_name(f".{target.name}.{key}.part")


def client() -> httpx.AsyncClient:
    """What asks the servers: it follows redirects, and uses the proxies of the environment."""
    return httpx.AsyncClient(
        follow_redirects=True, timeout=_SILENCE, headers={"Accept-Encoding": "identity"}
    )


async def ask(web: httpx.AsyncClient, url: str) -> Remote:
    """What the server says of the file at ``url``; nothing of it is read.

    Raises:
        DownloadError: there is no connection, or the file cannot be had, after several tries where
            these may help.
    """

    async def attempt() -> Remote:
        try:
            return await _ask(web, url)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise DownloadError(
                f"{url}: {_said(error, url)}; is the network there? Or choose another --source"
            ) from None

    return await _patiently(url, attempt)


async def download(
    web: httpx.AsyncClient, url: str, target: Path, digest: str, bar: "tqdm[Any]"
) -> None:
    """Write the file at ``url`` to ``target``, going on where an earlier call was cut off.

    Args:
        digest: what :func:`checksum` must find.
        bar: moves by the bytes that come.

    Raises:
        DownloadError: it cannot be had or written, or is another file than expected. What has come
            stays for the next call, except of another file.
    """
    try:
        part = await _patiently(url, lambda: _go_on(web, url, target, bar), lambda: come(target))
        found = await checksum(part, digest)
        if found == digest:
            os.replace(part, target)
            return
        _drop(part, bar)
    except OSError as error:
        raise DownloadError(
            f"{target}: cannot be written ({error.strerror or error}); the {come(target):,} bytes "
            "that have come stay: mend this and run again, it goes on from there"
        ) from None
    raise DownloadError(
        f"{url}: another file came than the published one ({found}, not {digest}) and is removed; "
        "run again, and if it stays so choose another --source"
    )


async def checksum(path: Path, like: str) -> str:
    """The checksum of a file, of the kind that ``like`` is of: "sha256:" or "md5:" and hex digits.

    Others may go on meanwhile, and may cancel it.
    """
    kind = like.partition(":")[0]
    found = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
            await asyncio.sleep(0)
    return f"{kind}:{found.hexdigest()}"


def come(target: Path) -> int:
    """Bytes that earlier calls have brought of a file that is not whole.

    Raises:
        DownloadError: where a part should lie is no regular file; one line.
    """
    return sum(part.stat().st_size for part in _parts(target))


def _parts(target: Path) -> list[Path]:
    names = (path for path in target.parent.iterdir() if path.suffix == ".part")
    parts = [path for path in names if path.name.startswith(f".{target.name}.")]
    for part in parts:
        if not part.is_file():  # a pipe would be waited for for ever
            raise DownloadError(
                f"{part}: is no regular file, and stands where a part of {target.name} belongs; "
                "remove it and run again"
            )
    return parts


def _drop(part: Path, bar: "tqdm[Any]") -> None:
    bar.update(-part.stat().st_size)
    part.unlink()


async def _patiently(
    url: str, attempt: Callable[[], Awaitable[T]], reached: Callable[[], int] = lambda: 0
) -> T:
    """Try until it succeeds; give up after `PAUSES` in which ``reached`` did not grow."""
    most, tried = reached(), 0
    while True:
        try:
            return await attempt()
        except (
            httpx.UnsupportedProtocol,
            httpx.InvalidURL,
            OverflowError,  # a port above 65535
            UnicodeError,  # a host that is no name (idna)
        ) as error:
            raise _no_address(url, error) from None
        except ExceptionGroup as error:  # anyio's, of its tries to connect
            if error.split(OverflowError)[1] is not None:
                raise
            raise _no_address(url, error.exceptions[0]) from None
        except (httpx.TransportError, _MayPass) as error:
            now = reached()
            most, tried = max(most, now), 1 if now > most else tried + 1
            said = _said(error, url)
            if tried > len(PAUSES):
                raise DownloadError(
                    f"{url}: {said}, {tried} times in a row; what has come stays: run again later, "
                    "or choose another --source"
                ) from None
            pause = PAUSES[tried - 1]
            tqdm.write(f"{url}: {said}; again in {pause:g} s", file=sys.stderr)
            await asyncio.sleep(pause)
        except httpx.HTTPError as error:
            raise DownloadError(f"{url}: {error}") from None


def _no_address(url: str, error: Exception) -> DownloadError:
    return DownloadError(f"{url}: is no address of a file ({error}); choose another --source")


def _said(error: Exception, url: str) -> str:
    """What happened, in words."""
    if isinstance(error, _MayPass):
        return str(error)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"no connection to {httpx.URL(url).host} ({error or 'no answer'})"
    if isinstance(error, httpx.TimeoutException):
        return f"the server was silent for {_SILENCE:g} s"
    return f"the connection was lost ({error or type(error).__name__})"


async def _ask(web: httpx.AsyncClient, url: str) -> Remote:
    # A GET that is not read to its end: some stores sign their addresses for GET alone.
    async with web.stream("GET", url) as response:
        return _remote(url, response)


def _remote(url: str, response: httpx.Response) -> Remote:
    status = f"{response.status_code} {response.reason_phrase}".strip()
    if response.status_code in _PASSING:
        raise _MayPass(f"the server answers {status}")
    if response.status_code in (404, 410):
        raise DownloadError(f"{url}: is not there ({status}); choose another --source")
    if response.status_code != 200:
        raise DownloadError(f"{url}: the server answers {status}; choose another --source")
    size = response.headers.get("Content-Length", "")
    if not size.isdecimal():
        raise DownloadError(
            f"{url}: the server does not say how long it is; choose another --source"
        )
    return Remote(url, int(size), _version(response))


def _version(response: httpx.Response) -> str | None:
    """What If-Range may be asked with (RFC 9110, section 13.1.5): weak ETags are not."""
    tag: str | None = response.headers.get("ETag")
    return response.headers.get("Last-Modified") if tag is None or tag.startswith("W/") else tag


async def _go_on(web: httpx.AsyncClient, url: str, target: Path, bar: "tqdm[Any]") -> Path:
    """Bring what is missing of a file; its part, which is whole then."""
    remote = await _ask(web, url)
    part = remote.part(target)
    for old in _parts(target):
        too_long = old.stat().st_size > remote.size  # somebody wrote to it; no range mends that
        if old != part or remote.version is None or too_long:
            _drop(old, bar)
    have = part.stat().st_size if part.exists() else 0
    if have < remote.size or not part.exists():
        await _append(web, remote, part, have, bar)
    if part.stat().st_size != remote.size:
        raise _MayPass(f"{part.stat().st_size:,} bytes came of {remote.size:,}")
    return part


async def _append(
    web: httpx.AsyncClient, remote: Remote, part: Path, have: int, bar: "tqdm[Any]"
) -> None:
    """Write the bytes from ``have`` on behind those of the part, or all, as the server sends."""
    headers = {"Range": f"bytes={have}-", "If-Range": remote.version or ""} if have else {}
    async with web.stream("GET", remote.url, headers=headers) as response:
        if have and response.status_code == 206:
            wanted = f"bytes {have}-{remote.size - 1}/{remote.size}"
            if response.headers.get("Content-Range") != wanted:
                raise _MayPass("the server sends other bytes than it was asked for")
            if _version(response) != remote.version:
                raise _MayPass("the file is being changed on the server")
        elif _remote(remote.url, response) != remote:
            raise _MayPass("the file is being changed on the server")
        elif have:
            _drop(part, bar)  # the server knows no ranges, and begins anew
        with part.open("ab") as file:
            async for chunk in response.aiter_raw():
                file.write(chunk)
                bar.update(len(chunk))
