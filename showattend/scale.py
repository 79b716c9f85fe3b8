"""Captioning at scale: photographs and tar files in, a folder of records' files out.

What file holds which photographs depends on the photographs alone, never on the number of processes
or on where a run was stopped. So a run is taken up again by leaving out the files that are there.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from showattend.files import find_photographs, one_line
from showattend.images import ImageError
from showattend.records import Record, RecordForm, check_whole, naming, record_of, written_whole
from showattend.search import Caption
from showattend.tars import SUFFIX, Tar, is_tar
from showattend.whole_files import write_whole

#: What a folder of records was made with; a reader of a folder takes no file that begins so.
SETTINGS = "_settings.json"
_DIGEST_OF = "digest of "
_OUTPUT = re.compile(r"(files|tar[0-9]{5,})-([0-9]{5,})-of-([0-9]{5,})\.(jsonl|parquet)")
_LOCK = re.compile(r"\.process-[0-9]+-of-([0-9]+)\.lock")
#: Seconds for a lock: a process that looks whether another run is there holds it for an instant.
_PATIENCE = 2.0
#: Captions of photographs, given by path or content, in their order; `CaptionModel.stream`.
Stream = Callable[[Iterable[str | bytes]], Iterable[tuple[str | bytes, Caption | ImageError]]]


class ScaleError(ValueError):
    """A run at scale cannot be begun or gone on with: one clear line."""


@dataclass(frozen=True)
class Share:
    """Which of several processes this is: number ``rank`` of ``world``, counted from 0."""

    rank: int = 0
    world: int = 1

    def has(self, number: int) -> bool:
        """Whether the piece of that number is this process's."""
        return number % self.world == self.rank


def share_of(environment: Mapping[str, str]) -> Share:
    """This process's, as torchrun tells it by RANK and WORLD_SIZE; all where it tells neither.

    Raises:
        ScaleError: they are no such numbers; one line.
    """
    given = [environment.get(name) for name in ("RANK", "WORLD_SIZE")]
    if given == [None, None]:
        return Share()
    rank, world = (int(text) if text and text.isdecimal() else -1 for text in given)
    if not 0 <= rank < world:
        raise ScaleError(
            f"RANK is {given[0]} and WORLD_SIZE {given[1]}: expected RANK from 0 to below "
            "WORLD_SIZE; set both, as torchrun does, or neither"
        )
    return Share(rank, world)


@dataclass(frozen=True)
class Inputs:
    """What is to be captioned: photographs' files, and tar files."""

    photographs: tuple[str, ...]
    tars: tuple[str, ...]

    def digest(self) -> str:
        """Of all names and the tar files' sizes: another set has another."""
        sizes = [Path(tar).stat().st_size for tar in self.tars]
        told = json.dumps([self.photographs, self.tars, sizes])
        return hashlib.sha256(told.encode()).hexdigest()


def find_inputs(names: Sequence[str]) -> Inputs:
    """What files, folders (the photographs and tar files in them) and globs stand for.

    Raises:
        ImageError: a name holds nothing of the kind, or a compressed tar file; one line.
    """
    found = [path for name in names for path in find_photographs(name, frozenset({SUFFIX}))]
    tars = tuple(path for path in found if is_tar(path))
    missing = [path for path in tars if not Path(path).is_file()]
    if missing:
        raise ImageError(f"{one_line(missing[0])}: no such tar file; check the path")
    return Inputs(tuple(path for path in found if not is_tar(path)), tars)


class Source(Protocol):
    """Photographs in an order: of each its name, and its path or content or why it has none."""

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> Iterator[tuple[str, str | bytes | ImageError]]:
        """Those from ``start`` to before ``stop``."""


@dataclass(frozen=True)
class Files:
    """Photographs that are files of their own; they are opened by whom their paths are given."""

    paths: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, start: int, stop: int) -> Iterator[tuple[str, str]]:
        yield from ((path, path) for path in self.paths[start:stop])


@dataclass(frozen=True)
class Run:
    """A run into a folder of records' files.

    Attributes:
        folder: where they go: ``files-00000-of-00003.jsonl`` of photographs' files, and
            ``tar00000-00000-of-00010.jsonl`` of each tar file.
        size: the most records of a file.
        share: which of them this process writes.
    """

    folder: Path
    form: RecordForm
    size: int
    share: Share

    def begin(self, settings: Mapping[str, object]) -> None:
        """Make the folder, or make sure that it is that of the same run.

        Raises:
            ScaleError: it holds other files, or those of another run; one line.
            RecordsError: its settings cannot be written; one line.
            OSError: it cannot be made.
        """
        settings = json.loads(json.dumps({**settings, "format": self.form, "size": self.size}))
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / SETTINGS
        others = [entry for entry in self.folder.iterdir() if not entry.name.startswith((".", "_"))]
        if not path.exists():
            if others:
                raise ScaleError(f"{self.folder}: holds other files; name a new folder")
            with naming(path):
                write_whole(path, json.dumps(settings, indent=1) + "\n")
        older = _read_settings(path)
        for key in sorted(settings.keys() | older.keys()):
            if settings.get(key) != older.get(key):
                began = (
                    f"with {key} {_short(older.get(key))}, which is now {_short(settings.get(key))}"
                )
                if key.startswith(_DIGEST_OF):  # that it is another one is all that it tells
                    began = f"with another state of {key.removeprefix(_DIGEST_OF)}"
                raise ScaleError(
                    f"{self.folder}: was begun {began}; go on with the same, or name a new folder"
                )

    def write(self, inputs: Inputs, stream: Stream) -> Iterator[Record]:
        """Caption what no file holds yet of this process's share; each record once it is known.

        Raises:
            ScaleError: another run is writing into the folder; one line.
            RecordsError: a file cannot be written, or one of those there is cut short; one line.
        """
        with self._alone():
            yield from self._missing(inputs, stream)

    def _missing(self, inputs: Inputs, stream: Stream) -> Iterator[Record]:
        there = self._there()
        files = Files(inputs.photographs)
        if len(files):
            yield from self._parts("files", None, files, 0, whole=False, stream=stream)
        # Listing a tar file takes time: where there are enough, each process lists its own alone.
        whole = len(inputs.tars) >= self.share.world
        for number, path in enumerate(inputs.tars):
            name = f"tar{number:05}"
            if (whole and not self.share.has(number)) or _all_parts(there.get(name, {})):
                continue
            yield from self._parts(name, path, Tar(path), number, whole=whole, stream=stream)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Lock this process's share of the folder, and see that no run of another number of
        processes, whose shares are others, is writing there.
        """
        own = self.folder / f".process-{self.share.rank}-of-{self.share.world}.lock"
        with ExitStack() as held:
            held.enter_context(self._locked(own))
            for path in sorted(self.folder.glob(".process-*.lock")):
                match = _LOCK.fullmatch(path.name)
                if match and int(match[1]) != self.share.world:
                    with self._locked(path):
                        pass
            yield

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        lock = FileLock(path)
        with naming(path):
            try:
                lock.acquire(timeout=_PATIENCE)
            except Timeout:
                raise ScaleError(
                    f"{self.folder}: another run is writing into this folder; wait for its end"
                ) from None
        try:
            yield
        finally:
            lock.release()

    def _there(self) -> dict[str, dict[int, set[int]]]:
        """The files of records that are there: of each name, the numbers by how many there are to
        be. Files of other names are others'.
        """
        there: dict[str, dict[int, set[int]]] = {}
        for path in sorted(self.folder.iterdir()):
            match = _OUTPUT.fullmatch(path.name)
            if match and match[4] == self.form:
                name, number, count = match[1], int(match[2]), int(match[3])
                # A tar file may hold no photograph; else each file has a record.
                check_whole(path, self.form, empty=name != "files" and count == 1)
                there.setdefault(name, {}).setdefault(count, set()).add(number)
        return there

    def _parts(
        self,
        name: str,
        tar: str | None,
        source: Source,
        number: int,
        *,
        whole: bool,
        stream: Stream,
    ) -> Iterator[Record]:
        count = max(1, -(-len(source) // self.size))
        for part in range(count):
            path = self.folder / f"{name}-{part:05}-of-{count:05}.{self.form}"
            if path.exists() or not (whole or self.share.has(number + part)):
                continue
            content = source.read(part * self.size, (part + 1) * self.size)
            with written_whole(path, self.form) as writer:
                for image, result in captioned(content, stream):
                    record = record_of(image, tar, result)
                    writer.add(record)
                    yield record


def _all_parts(there: Mapping[int, set[int]]) -> bool:
    """Whether all files of a tar file are there; it need not be listed then."""
    return any(
        0 < count == sum(number < count for number in numbers) for count, numbers in there.items()
    )


def _read_settings(path: Path) -> dict[str, object]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        raise ScaleError(f"{path}: is damaged; name a new folder")
    return tree


def _short(value: object) -> str:
    """Digests are long."""
    return one_line(str(value))[:40]


def captioned(
    content: Iterable[tuple[str, str | bytes | ImageError]], stream: Stream
) -> Iterator[tuple[str, Caption | ImageError]]:
    """Each name with its caption, or with why it has none, in the order given."""
    waiting: deque[tuple[str, ImageError | None]] = deque()

    def readable() -> Iterator[str | bytes]:
        for name, photo in content:
            waiting.append((name, photo if isinstance(photo, ImageError) else None))
            if not isinstance(photo, ImageError):
                yield photo

    def unreadable() -> Iterator[tuple[str, ImageError]]:
        while waiting and (error := waiting[0][1]) is not None:
            yield waiting.popleft()[0], error

    for _, result in stream(readable()):
        yield from unreadable()
        yield waiting.popleft()[0], result
    yield from unreadable()


def device_of(name: str, environment: Mapping[str, str], cards: int) -> str:
    """Of several processes on one machine each takes a card of its own, by LOCAL_RANK.

    Args:
        cards: how many CUDA devices there are.
    """
    local = environment.get("LOCAL_RANK", "")
    if name not in ("auto", "cuda") or not cards or not local.isdecimal():
        return name
    return f"cuda:{int(local) % cards}"


def weights_digest(folder: Path, names: Sequence[str]) -> str:
    """Of a checkpoint's files: other weights or settings have another."""
    digest = hashlib.sha256()
    for name in names:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()
