"""Photographs within tar files, such as WebDataset's shards, read where they lie.

Nothing is unpacked, so no member's name, whatever it is, names a place on the disk.
"""

import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import IO, NamedTuple

from showattend.images import MAX_PIXELS, ImageError, photograph_suffixes, regular_file

SUFFIX = ".tar"
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
#: Bytes of a photograph: the largest that is opened, with four bytes a pixel and not compressed.
MOST_BYTES = 4 * MAX_PIXELS


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
        if size > MOST_BYTES:
            return ImageError(f"{name!r}: has {size:,} bytes; expected at most {MOST_BYTES:,}")
        try:
            file.seek(start)
            return file.read(size)
        except OSError as error:
            return ImageError(f"{name!r}: cannot be read ({error.strerror}); check {self.path!r}")

    def _list(self, file: IO[bytes]) -> None:
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                while (member := archive.next()) is not None:
                    archive.members.clear()  # type: ignore[attr-defined]  # it would grow
                    if member.isreg() and _is_photograph(member.name):
                        self._members.append(Member(member.name, member.offset_data, member.size))
                end = archive.offset
        except tarfile.TarError as error:
            reason = f"is damaged or no tar file ({error}); what stands before that was read"
            raise ImageError(f"{self.path!r}: {reason}") from None
        file.seek(end)  # tarfile takes what it does not know as the end, and a cut between members
        if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            reason = "is damaged or cut off: it has no end mark; what stands before was read"
            raise ImageError(f"{self.path!r}: {reason}")


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
