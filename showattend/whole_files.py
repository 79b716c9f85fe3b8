"""Files that are there whole or not at all."""

import os
import uuid
from pathlib import Path


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file (text as UTF-8) beside its place, then move it there; its folder is made.

    A reader finds the older file or the new one, and a full disk leaves the older one.

    Raises:
        OSError: it cannot be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{uuid.uuid4().hex}.part")  # os.replace cannot cross disks
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
