"""A reader never meets half a file."""

import os
from pathlib import Path

import pytest

from showattend.whole_files import write_whole


@pytest.mark.parametrize(
    ("content", "expected"),
    [("Grüße\n", b"Gr\xc3\xbc\xc3\x9fe\n"), (b"\0", b"\0"), ("\ud800", b"\\ud800")],
)
def test_text_and_bytes_in_a_folder_that_is_made(
    tmp_path: Path, content: str | bytes, expected: bytes
) -> None:
    path = tmp_path / "new" / "file"
    write_whole(path, content)
    assert path.read_bytes() == expected
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_older_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, "old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for failing in (os, "replace"), (Path, "write_bytes"):
        with monkeypatch.context() as patch:
            patch.setattr(*failing, full)
            with pytest.raises(OSError, match="No space"):
                write_whole(path, "new")
        assert path.read_text() == "old"
        assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", "old")
    (tmp_path / "link").symlink_to("file")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """As /dev/stdout, which a file in its place would break for the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "said")
    assert os.read(reader, 9) == b"said"
    os.close(reader)
    assert pipe.is_fifo()
