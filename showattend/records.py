"""Captions as records in a file, JSONL or Parquet, that is there whole or not at all."""

import errno
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from showattend.images import ImageError
from showattend.search import Caption

RecordForm = Literal["jsonl", "parquet"]
Record = dict[str, Any]
#: Rows that a Parquet file takes at a time, so that its writer holds no more.
_ROWS = 1000


class RecordsError(ValueError):
    """Records cannot be written, or are not whole: one clear line."""


def record_of(image: str, tar: str | None, result: Caption | ImageError) -> Record:
    """One photograph's: ``image`` (its path, or its name in ``tar``), ``tar`` (a path or None),
    ``caption``, ``words``, ``log_prob``, and ``error``; either this is None or the three before.
    """
    record: Record = {"image": _text(image), "tar": None if tar is None else _text(tar)}
    if isinstance(result, Caption):
        log_prob = round(result.log_prob, 4)
        told = {"caption": result.text, "words": list(result.words), "log_prob": log_prob}
        return record | told | {"error": None}
    where, nothing = _text(image), {"caption": None, "words": None, "log_prob": None}
    return record | nothing | {"error": str(result).replace("<bytes>", where, 1)}


def _text(name: str) -> str:
    """A file's name may hold bytes that are no text, which Parquet and many readers of JSON refuse;
    they are told as escapes.
    """
    return name.encode(errors="backslashreplace").decode()


class Writer(Protocol):
    """Takes records one by one."""

    def add(self, record: Record) -> None:
        """Write a record, or keep it until some more have come."""

    def end(self) -> None:
        """Write what is kept, and what the file ends in."""


@contextmanager
def written_whole(path: Path, form: RecordForm) -> Iterator[Writer]:
    """A writer into a temporary file beside ``path``, which takes its place once all is on disk.

    Temporary files that a killed process left of the same ``path`` are removed then: no other one
    may be writing it.

    Raises:
        RecordsError: it cannot be written, as where the disk is full, or there is no library for
            the form; one line.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with naming(path), part.open("wb") as file:
            writer: Writer = _WRITERS[form](file)
            try:
                yield writer
            finally:
                writer.end()  # Parquet's wants to be closed before its file is, come what may
            file.flush()
            os.fsync(file.fileno())
        with naming(path):
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    for left in path.parent.glob(f".{path.name}.*.part"):
        left.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What goes wrong while ``path`` is written is told by its name, which the system leaves out.

    Raises:
        RecordsError: it cannot be written; one line.
    """
    try:
        yield
    except OSError as error:
        if error.filename and Path(error.filename).parent not in (
            path.parent,
            path.resolve().parent,
        ):
            raise  # it has the name of another file
        reason = error.strerror or str(error)
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        cure = "make room" if full else "check the folder and its disk"
        raise RecordsError(f"{path}: {reason}; {cure} and run the same command again") from error


def check_whole(path: Path, form: RecordForm, *, empty: bool) -> None:
    """Make sure that what has the name of a file of records may be one: its end is looked at.

    Args:
        empty: whether it may hold no record.

    Raises:
        RecordsError: it is no file, or is cut short; one line.
    """
    cure = "remove it and run the same command again, which makes it anew"
    if not path.is_file():
        raise RecordsError(f"{path}: is no file, but has the name of a file of records; {cure}")
    end = _ENDS[form]
    with naming(path), path.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        file.seek(max(0, length - len(end)))
        whole = file.read() == end
    if not (whole or (empty and form == "jsonl" and not length)):
        raise RecordsError(f"{path}: is cut short; {cure}")


class _Jsonl:
    """One object a line, in ASCII."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def add(self, record: Record) -> None:
        self._file.write(f"{json.dumps(record)}\n".encode())

    def end(self) -> None:
        pass


class _Parquet:
    """Columns as the records' keys; a row group every `_ROWS` rows."""

    def __init__(self, file: IO[bytes]) -> None:
        import_parquet()
        import pyarrow as pa
        from pyarrow import parquet

        text = pa.string()
        self._schema = pa.schema(
            {
                "image": text,
                "tar": text,
                "caption": text,
                "words": pa.list_(text),
                "log_prob": pa.float64(),
                "error": text,
            }
        )
        self._table = pa.Table
        self._writer = parquet.ParquetWriter(file, self._schema)
        self._kept: list[Record] = []

    def add(self, record: Record) -> None:
        self._kept.append(record)
        if len(self._kept) == _ROWS:
            self._write()

    def end(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        self._writer.write_table(self._table.from_pylist(self._kept, schema=self._schema))
        self._kept.clear()


def import_parquet() -> None:
    """Raises: RecordsError: its library is not there; one line."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        raise RecordsError(
            "--format parquet: needs pyarrow; pip install 'showattend[parquet]', or take jsonl"
        ) from None


_WRITERS: dict[RecordForm, type[_Jsonl] | type[_Parquet]] = {"jsonl": _Jsonl, "parquet": _Parquet}
#: What a whole file of each form ends in.
_ENDS: dict[RecordForm, bytes] = {"jsonl": b"\n", "parquet": b"PAR1"}
