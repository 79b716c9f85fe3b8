"""Photographs within tar files, such as WebDataset's shards, read where they lie.

Nothing is unpacked, so no member's name, whatever it is, names a place on the disk.
"""

import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple, cast

from showattend.images import MAX_PIXELS, ImageError, photograph_suffixes, regular_file

SUFFIX = ".tar"
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
#: Bytes of a photograph: the largest that is opened, with four bytes a pixel and not compressed.
MOST_BYTES = 4 * MAX_PIXELS
#: Bytes that a member's headers may take at a time; names and attributes of files take thousands.
_HEADER_BYTES = 2**20
#: What tarfile raises of numbers that make no sense, beside its own errors.
_SENSELESS = (RecursionError, MemoryError, OverflowError, ValueError)


class Member(NamedTuple):
    """A photograph's name in the tar file, and where its bytes lie."""

    name: str
    start: int
    size: int


class Tar:
    """A tar file's photographs: its members with the suffix of an image, in their order.

    Where the file is damaged, what stands before the damage counts, and after it one member of the
    tar file's own name that cannot be read. So damage is told as that of a photograph is.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._members: list[Member] = []
        self._damage: ImageError | None = None
        try:
            with regular_file(path) as (_, file, _):
                self._list(file)
        except ImageError as error:
            self._damage = error

    def __len__(self) -> int:
        return len(self._members) + (self._damage is not None)

    def read(self, start: int, stop: int) -> Iterator[tuple[str, bytes | ImageError]]:
        """The members from ``start`` to before ``stop``: each one's name and its bytes, or why it
        has none.
        """
        members = iter(self._members[start:stop])
        try:
            with regular_file(self.path) as (_, file, _):
                for name, begin, size in members:
                    yield name, self._content(file, name, begin, size)
        except ImageError as error:  # the file is gone
            yield from ((name, error) for name, _, _ in members)
        if self._damage is not None and start <= len(self._members) < stop:
            yield self.path, self._damage

    def _content(self, file: IO[bytes], name: str, start: int, size: int) -> bytes | ImageError:
        if not 0 <= size <= MOST_BYTES:
            return ImageError(f"{name!r}: has {size:,} bytes; expected at most {MOST_BYTES:,}")
        try:
            file.seek(start)
            return file.read(size)
        except (OSError, *_SENSELESS) as error:  # a start beyond what any file can have
            return ImageError(f"{name!r}: cannot be read ({_reason(error)}); check {self.path!r}")

    def _list(self, file: IO[bytes]) -> None:
        try:
            end = self._list_members(file)
            file.seek(end)  # tarfile takes what it does not know as the end, and a cut as well
            marked = file.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)
        except (tarfile.TarError, *_SENSELESS) as error:
            reason = f"is damaged or no tar file ({_reason(error)}); what stands before was read"
            raise ImageError(f"{self.path!r}: {reason}") from None
        if not marked:
            reason = "is damaged or cut off: it has no end mark; what stands before was read"
            raise ImageError(f"{self.path!r}: {reason}")

    def _list_members(self, file: IO[bytes]) -> int:
        """Where the list ends."""
        headers = cast(IO[bytes], _Headers(file))
        with tarfile.open(fileobj=headers, mode="r:") as archive:
            here = 0
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it would grow
                if member.size < 0 or archive.offset <= here:  # else it may be listed for ever
                    raise tarfile.ReadError(f"a member of {member.size} bytes")
                here = archive.offset
                if member.isreg() and _is_photograph(member.name):
                    self._members.append(Member(member.name, member.offset_data, member.size))
            return archive.offset


class _Headers:
    """A file of which no more than headers' bytes are read at a time, whatever a header asks for:
    memory for a billion may be got, and may end the process later.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def is_tar(path: str) -> bool:
    """Whether a file is one by its name.

    Raises:
        ImageError: it is a compressed one; one line.
    """
    name = path.lower()
    if name.endswith(_COMPRESSED):
        raise ImageError(
            f"{path!r}: is a compressed tar file, which can be read from its start alone; "
            "decompress it (photographs are compressed already)"
        )
    return name.endswith(SUFFIX)


def _is_photograph(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in photograph_suffixes() and not path.name.startswith(".")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "too many headers of one member"
    if isinstance(error, OSError):
        return str(error.strerror)
    return str(error) or type(error).__name__
