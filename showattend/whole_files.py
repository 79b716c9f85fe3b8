"""Files that are there whole or not at all."""

import os
import uuid
from pathlib import Path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8) beside its place, then move it there; its folder is made.

    A reader finds the older file or the new one, and a full disk leaves the older one. A link stays
    a link, and what is no file, such as /dev/stdout, is written to as it is. Half a letter, which a
    file's name may hold, is written as its escape.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{uuid.uuid4().hex}.part")  # os.replace cannot cross disks
    try:
        part.write_bytes(data)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
