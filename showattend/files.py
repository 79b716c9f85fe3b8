"""Both ends of the command ``caption``: photographs by name, and captions as lines and pictures."""

import csv
import glob
import io
import json
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal, TextIO

from PIL import Image
from tqdm import tqdm

from showattend.images import FORMATS, ImageError, Resize, open_photograph
from showattend.overlay import save_animation, save_figure, save_word_pngs
from showattend.search import Caption

Form = Literal["text", "csv", "json"]

#: Controls, line and paragraph separators, and bytes of a file's name that are no text.
_BREAKS_A_LINE = ("Cc", "Zl", "Zp", "Cs")


# --- in -------------------------------------------------------------------------------------------


def find_photographs(name: str) -> list[str]:
    """The files that a file's, a folder's or a glob's name stands for, sorted.

    Of a folder these are the visible files with the suffix of an image, but not those in folders
    within. A file's own name is returned unseen: who opens it finds out whether it can be.

    Raises:
        ImageError: a folder or a glob holds no photograph; one line.
    """
    path = Path(name)
    if path.is_dir():
        found = _images_in(path)
    elif glob.has_magic(name) and not path.exists():
        matches = glob.glob(name, recursive=True)  # noqa: PTH207 (Path.glob takes no absolute path)
        found = [match for match in matches if not Path(match).is_dir()]
    else:
        return [name]
    if not found:
        raise ImageError(f"{one_line(name)}: no photograph found; name files, folders or globs")
    return sorted(found)


def _images_in(folder: Path) -> list[str]:
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        name = one_line(str(folder))
        raise ImageError(f"{name}: cannot be read ({error.strerror}); check the folder") from None
    return [
        str(path)
        for path in inside
        if path.suffix.lower() in _suffixes()
        and not path.name.startswith(".")
        and not path.is_dir()
    ]


@cache
def _suffixes() -> frozenset[str]:
    """What the files of the formats that `open_photograph` takes end in, such as ``.jpg``."""
    formats = Image.registered_extensions()
    return frozenset(suffix for suffix, format_ in formats.items() if format_ in FORMATS)


# --- out ------------------------------------------------------------------------------------------


@dataclass
class Report:
    """One line a photograph, written out as soon as it is known.

    Attributes:
        form: of the lines; ``json`` means one object a line.
        model: the name that the objects give the model.
        weights: whether the objects hold the attention's weights.
        overlays: where pictures go, if wanted.
        failures: how many photographs have no caption.
    """

    form: Form
    model: str
    weights: bool = False
    overlays: "Overlays | None" = None
    failures: int = 0

    def begin(self) -> None:
        """The header, where the form has one."""
        if self.form == "csv":
            _write(_csv_row("image", "caption", "log_prob"), sys.stdout)

    def add(self, path: str, result: Caption | ImageError) -> None:
        """One photograph's result; its pictures are written before its line.

        Raises:
            OSError: pictures or lines cannot be written.
        """
        if self.overlays is not None and isinstance(result, Caption):
            try:
                self.overlays.save(path, result)
            except ImageError as error:  # the file was there a moment ago
                result = error
        if isinstance(result, Caption):
            _write(self._line(path, result), sys.stdout)
            return
        self.failures += 1
        if self.form == "json":
            _write(json.dumps({"image": path, "error": str(result)}), sys.stdout)
        else:
            _write(f"showattend: error: {result}", sys.stderr)

    def _line(self, path: str, caption: Caption) -> str:
        if self.form == "csv":
            return _csv_row(path, caption.text, f"{caption.log_prob:.4f}")
        if self.form == "text":
            return f"{one_line(path)}\t{caption.text}"
        entry = {
            "image": path,
            "caption": caption.text,
            "words": caption.words,
            "log_prob": round(caption.log_prob, 4),
            "model": self.model,
        }
        if self.weights:
            entry["attention"] = caption.maps().astype(float).round(6).tolist()
        return json.dumps(entry)  # in ASCII, so that no encoding of the output can spoil it


@dataclass
class Overlays:
    """Pictures of where the model looked: DIR/NAME.png, DIR/NAME.gif and DIR/NAME/ for the words.

    Attributes:
        folder: DIR.
        resize: how the model cuts its square from a photograph.
    """

    folder: Path
    resize: Resize
    _taken: set[str] = field(default_factory=set)

    def refuse_originals(self, paths: Sequence[str]) -> None:
        """Make sure that no picture can take a photograph's place.

        Raises:
            ValueError: some of the photographs lie in the folder itself; one line.
        """
        folder = self.folder.resolve()
        for path in paths:
            if Path(path).resolve().parent == folder:
                raise ValueError(
                    f"--overlay {self.folder}: {one_line(path)} lies there and could be "
                    "overwritten; name another folder"
                )

    def save(self, path: str, caption: Caption) -> None:
        """Draw all pictures of one photograph.

        Raises:
            ImageError: the photograph cannot be opened any more.
            OSError: the pictures cannot be written.
        """
        photo, maps_Thw = open_photograph(path), caption.maps()
        name = self._new_name(Path(path).stem)
        figure, animation = self.folder / f"{name}.png", self.folder / f"{name}.gif"
        save_figure(figure, photo, caption.words, maps_Thw, self.resize, caption.text)
        save_animation(animation, photo, caption.words, maps_Thw, self.resize)
        save_word_pngs(self.folder / name, photo, caption.words, maps_Thw, self.resize)

    def _new_name(self, stem: str) -> str:
        """The stem; for a second photograph of that stem ``STEM_2``, and so on."""
        name, number = stem, 1
        while not self._taken.isdisjoint(_entries(name)):
            number += 1
            name = f"{stem}_{number}"
        self._taken.update(_entries(name))
        return name


def _entries(name: str) -> set[str]:
    """What NAME takes up in the folder, as file systems that know no case see it."""
    return {f"{name}{suffix}".casefold() for suffix in ("", ".png", ".gif")}


def one_line(text: str) -> str:
    """The text with escapes for what would break or garble a line."""
    return "".join(
        ascii(letter)[1:-1] if unicodedata.category(letter) in _BREAKS_A_LINE else letter
        for letter in text
    )


def _csv_row(*cells: str) -> str:
    row = io.StringIO()
    csv.writer(row).writerow(cells)  # ends in \r\n, so that both letters are quoted in cells
    return row.getvalue().removesuffix("\r\n")


def _write(line: str, file: TextIO) -> None:
    tqdm.write(line, file=file)  # a progress bar steps aside for it
    file.flush()
