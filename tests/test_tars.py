"""Photographs in tar files: read in place, and damage is told and takes nothing from the others."""

import io
import os
import tarfile
from pathlib import Path

import pytest

import showattend.tars
from showattend.images import ImageError
from showattend.tars import Tar, is_tar

BLOCK = tarfile.BLOCKSIZE


def write_tar(path: Path, **members: bytes | None) -> str:
    """Names hold _ for what a keyword cannot; None is a folder."""
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            if content is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content or b""))
    return str(path)


def read(tar: Tar, start: int = 0, stop: int = 99) -> list[tuple[str, bytes | ImageError]]:
    return list(tar.read(start, stop))


def test_photographs_by_suffix_in_their_order(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "a.tar",
        **{
            "b.jpg": b"1",
            "b.txt": b"a caption",
            "c.jpg": None,
            "deep/a.PNG": b"22",
            "deep/._a.png": b"a system's own file",
            "../../etc/x.webp": b"333",
            "/abs.jpg": b"",
            "b.jpg.json": b"{}",
        },
    )
    tar = Tar(path)
    expected = [("b.jpg", b"1"), ("deep/a.PNG", b"22"), ("../../etc/x.webp", b"333")]
    expected.append(("/abs.jpg", b""))
    assert len(tar) == 4
    assert read(tar) == expected
    assert read(tar, 1, 3) == expected[1:3]
    assert sorted(tmp_path.iterdir()) == [Path(path)]


def test_links_are_no_photographs(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind in (("soft.jpg", tarfile.SYMTYPE), ("hard.jpg", tarfile.LNKTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
    assert read(Tar(str(path))) == []


@pytest.mark.parametrize(
    ("length", "names", "damage"),
    [
        (10240, ["a.jpg", "b.jpg"], None),
        (4 * BLOCK, ["a.jpg", "b.jpg"], "it has no end mark"),
        (4 * BLOCK - 1, ["a.jpg", "b.jpg"], "unexpected end of data"),
        (3 * BLOCK, ["a.jpg", "b.jpg"], "unexpected end of data"),  # no byte of b.jpg is there
        (2 * BLOCK + 9, ["a.jpg"], "it has no end mark"),  # in the middle of a header
        (2 * BLOCK, ["a.jpg"], "it has no end mark"),
        (9, [], "truncated header"),
        (0, [], "empty file"),
    ],
)
def test_cut_off_files(tmp_path: Path, length: int, names: list[str], damage: str | None) -> None:
    path = write_tar(tmp_path / "a.tar", **{"a.jpg": b"1" * 9, "b.jpg": b"2" * BLOCK})
    os.truncate(path, length)
    tar = Tar(path)
    found = read(tar)
    assert len(tar) == len(found)
    if damage is not None:
        name, error = found.pop()
        assert name == path
        assert isinstance(error, ImageError)
        assert damage in str(error)
        assert str(error).startswith(f"'{path}': is damaged ")
        assert "\n" not in str(error)
    assert [name for name, _ in found] == names
    if names:
        assert found[0] == ("a.jpg", b"1" * 9)


def test_a_broken_header_ends_the_list_and_is_told(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", **{"a.jpg": b"1", "b.jpg": b"2", "c.jpg": b"3"})
    with Path(path).open("r+b") as file:
        file.seek(2 * BLOCK)
        file.write(b"\xff" * BLOCK)
    found = read(Tar(path))
    assert found[0] == ("a.jpg", b"1")
    assert [name for name, _ in found] == ["a.jpg", path]


def header(kind: bytes, size: int, body: bytes = b"") -> bytes:
    """A header that claims a size, and what follows it."""
    entry = tarfile.TarInfo("header")
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT) + body + bytes(-len(body) % BLOCK)


def pax(text: bytes, size: int | None = None) -> bytes:
    return header(tarfile.XHDTYPE, len(text) if size is None else size, text)


@pytest.mark.parametrize(
    "hostile",
    [
        pax(b"9 path=a\n") * 5000,
        pax(b"9 path=a\n", 2**45),
        pax(b"9 path=a\n", 2**70),
        pax(b"99999999999999999999 path=a\n"),
        pax(b"9" * 5000 + b" path=a\n"),
        pax(b"9 path=a\n", -BLOCK),
        header(tarfile.GNUTYPE_LONGNAME, 2, b"a\0") * 5000,
        header(tarfile.GNUTYPE_LONGNAME, 2**33, b"a\0"),
        header(tarfile.GNUTYPE_LONGLINK, 2**70, b"a\0"),
        header(tarfile.REGTYPE, 2**70),
        header(tarfile.REGTYPE, -2 * BLOCK),
        pax(b"14 size=-1536\n") + header(tarfile.REGTYPE, 0),  # back to the start, for ever
    ],
    ids=range(12),
)
def test_hostile_headers_are_damage(tmp_path: Path, hostile: bytes) -> None:
    path = Path(write_tar(tmp_path / "a.tar", **{"a.jpg": b"1"}))
    path.write_bytes(path.read_bytes()[: 2 * BLOCK] + hostile + bytes(2 * BLOCK))
    first, (name, error) = read(Tar(str(path)))
    assert first == ("a.jpg", b"1")
    assert name == str(path)
    assert str(error).startswith(f"'{path}': is damaged or no tar file (")
    assert str(error).endswith("; what stands before was read")
    path.write_bytes(hostile + bytes(2 * BLOCK))  # tarfile reads the first when it is opened
    [(name, error)] = read(Tar(str(path)))
    assert str(error).startswith(f"'{path}': is damaged or no tar file (")


def test_a_start_that_no_file_has_is_of_its_member_alone(tmp_path: Path) -> None:
    tar = Tar(write_tar(tmp_path / "a.tar", **{"a.jpg": b"1", "b.jpg": b"2"}))
    tar._members[0] = tar._members[0]._replace(start=2**70)
    (_, error), good = read(tar)
    assert str(error).startswith("'a.jpg': cannot be read (")
    assert good == ("b.jpg", b"2")


def test_damage_is_of_the_last_piece_alone(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", **{"a.jpg": b"1", "b.jpg": b"2"})
    os.truncate(path, 4 * BLOCK)
    tar = Tar(path)
    pieces = [read(tar, start, start + 2) for start in (0, 2, 4)]
    assert [[name for name, _ in piece] for piece in pieces] == [["a.jpg", "b.jpg"], [path], []]


def test_what_is_no_tar_file_is_one_failure(tmp_path: Path) -> None:
    text, folder, gone = (str(tmp_path / name) for name in ("t.tar", "d.tar", "gone.tar"))
    Path(text).write_text("no tar file" * 99)
    Path(folder).mkdir()
    for path, reason in ((text, "no tar file"), (folder, "is a folder"), (gone, "cannot be read")):
        [(name, error)] = read(Tar(path))
        assert name == path
        assert isinstance(error, ImageError)
        assert reason in str(error)


def test_a_file_that_goes_away_fails_member_by_member(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", **{"a.jpg": b"1", "b.jpg": b"2"})
    tar = Tar(path)
    Path(path).unlink()
    found = read(tar)
    assert [name for name, _ in found] == ["a.jpg", "b.jpg"]
    assert all(isinstance(error, ImageError) for _, error in found)


def test_members_too_large_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tar(tmp_path / "a.tar", **{"a.jpg": b"1" * 11, "b.jpg": b"2" * 10})
    monkeypatch.setattr(showattend.tars, "MOST_BYTES", 10)
    (_, error), good = read(Tar(path))
    assert str(error) == "'a.jpg': has 11 bytes; expected at most 10"
    assert good == ("b.jpg", b"2" * 10)


def test_names() -> None:
    assert is_tar("a/b.tar") and is_tar("A.TAR")
    assert not is_tar("a.jpg") and not is_tar("tar")
    for name in ("a.tar.gz", "a.TGZ", "a.tar.zst"):
        with pytest.raises(ImageError, match=r"is a compressed tar file.*; decompress it"):
            is_tar(name)
