"""Both ends of the command ``caption``: photographs by name, and captions as lines and pictures."""

import csv
import glob
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

import numpy as np
from PIL import Image
from tqdm import tqdm

from showattend.box_overlay import save_box_overlays
from showattend.channels import told_channels
from showattend.images import ImageError, Resize, open_photograph, photograph_suffixes
from showattend.matrix import words_by_cells, words_by_words
from showattend.overlay import (
    caption_figure,
    is_drawn,
    save_animation,
    save_figure,
    save_png,
    save_word_pngs,
)
from showattend.regions import RegionsError
from showattend.search import Boxes, Caption, Regions

Form = Literal["text", "csv", "json"]
#: A photograph and the T words of its caption -> (T, L, H, T), `CaptionModel.word_attention`.
Hear = Callable[[Image.Image, tuple[str, ...]], np.ndarray]

#: Controls, line and paragraph separators, and bytes of a file's name that are no text.
_BREAKS_A_LINE = ("Cc", "Zl", "Zp", "Cs")
#: Bytes of a picture's name before its suffix: file systems take 255, some of them ``_2.png``.
_LONGEST_NAME = 240
#: What a run draws into DIR/NAME/.
_OF_WORDS = re.compile(r"\d\d+_.+\.png|matrix\.png|words\.png|layer\d+_head\d+\.png")
_SEPARATOR = f"[{re.escape(os.sep + (os.altsep or ''))}]"
#: The part ``**`` of a glob, with what parts it from the next one.
_ANY_DEPTH = re.compile(rf"(?:^|(?<={_SEPARATOR}))\*\*(?:{_SEPARATOR}+|$)")


# --- in -------------------------------------------------------------------------------------------


def find_photographs(name: str, others: frozenset[str] = frozenset()) -> list[str]:
    """The files that a file's, a folder's or a glob's name stands for, sorted.

    Of a folder these are the visible files with the suffix of an image, but not those in folders
    within. A file's own name is returned unseen: who opens it finds out whether it can be.

    Args:
        others: suffixes of a folder's files that are wanted too, such as ``.tar``.
    Raises:
        ImageError: the name is empty, or a folder or a glob holds no photograph; one line.
    """
    if not name:
        raise ImageError("'': is no path; name files, folders or globs")
    if _is_folder(name):
        found = _images_in(Path(name), photograph_suffixes() | others)
    elif glob.has_magic(name) and not os.path.exists(name):  # noqa: PTH110 (as in _is_folder)
        found = [match for match in _matches(name) if not _is_folder(match)]
    else:
        return [name]
    if not found:
        raise ImageError(f"{one_line(name)}: no photograph found; name files, folders or globs")
    return sorted(found)


def _is_folder(name: str) -> bool:
    return os.path.isdir(name)  # noqa: PTH112 (Path.is_dir raises if the name is too long)


def _matches(pattern: str) -> set[str]:
    """As `glob.glob`, but ``**`` goes through no link to a folder: it may lead round in a circle.

    A link that the pattern names, or matches by ``*``, is followed as everywhere.
    """
    before, *after = _ANY_DEPTH.split(pattern, maxsplit=1)
    if not after:
        return set(glob.glob(pattern))  # noqa: PTH207 (Path.glob takes no absolute path)
    starts = glob.glob(before) if before else [""]  # noqa: PTH207
    folders = [folder for start in starts for folder in _folders_from(start)]
    return {
        match for folder in folders for match in _matches(glob.escape(folder) + (after[0] or "*"))
    }


def _folders_from(start: str) -> Iterator[str]:
    """A folder, as a glob that ends in a separator gives it, and all visible ones below it."""
    left = [start]
    while left:
        folder = left.pop()
        yield folder
        inside = glob.glob(os.path.join(glob.escape(folder), "*", ""))  # noqa: PTH118, PTH207
        left += [inner for inner in inside if not Path(inner).is_symlink()]


def _images_in(folder: Path, suffixes: frozenset[str]) -> list[str]:
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        name = one_line(str(folder))
        raise ImageError(f"{name}: cannot be read ({error.strerror}); check the folder") from None
    return [
        str(path)
        for path in inside
        if path.suffix.lower() in suffixes
        and not path.name.startswith(".")
        and not _is_folder(str(path))
    ]


# --- out ------------------------------------------------------------------------------------------


@dataclass
class Report:
    """One line a photograph, written out as soon as it is known.

    Attributes:
        form: of the lines; ``json`` means one object a line.
        model: the name that the objects give the model.
        weights: whether the objects hold the attention's weights, and the gates of all channels.
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

    def add(self, path: str, result: Caption | ImageError | RegionsError) -> None:
        """One photograph's result; its pictures are written before its line.

        Raises:
            OSError: lines cannot be written.
        """
        if self.overlays is not None and isinstance(result, Caption):
            try:
                self.overlays.save(path, result)
            except ImageError as error:
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
        if caption.gates:
            entry["channels"] = told_channels(caption.gates, every=self.weights)
        if self.weights:
            entry |= told_weights(caption) | told_heads(caption)
        return json.dumps(entry)  # in ASCII, so that no encoding of the output can spoil it


def told_weights(caption: Caption) -> dict[str, Any]:
    """The weights for programs, (T, h, w), or of regions (T, P) and where these lie; beside those
    of a hard look the distribution it comes from.
    """
    told = {"attention": _laid_out(caption.weights, caption.regions)}
    if isinstance(caption.regions, Boxes):
        told["boxes"] = _as_lists(caption.regions.boxes_P4)
    if not np.array_equal(caption.weights, caption.alpha):
        told["alpha"] = _laid_out(caption.alpha, caption.regions)
    return told


def told_heads(caption: Caption) -> dict[str, Any]:
    """Where there are several layers or heads, the distribution of each: (T, L, H, h, w), or of
    regions (T, L, H, P).
    """
    return {} if caption.heads is None else {"heads": _laid_out(caption.heads, caption.regions)}


def _laid_out(values_P: np.ndarray, regions: Regions | Boxes) -> list[Any]:
    """Rows and columns of a grid in place of the last axis, P; regions stay in a row."""
    if isinstance(regions, Regions):
        values_P = values_P.reshape(*values_P.shape[:-1], regions.height, regions.width)
    return _as_lists(values_P)


def _as_lists(maps: np.ndarray) -> list[Any]:
    lists: list[Any] = maps.astype(float).round(6).tolist()
    return lists


@dataclass
class Overlays:
    """Pictures of where the model looked: DIR/NAME.png, DIR/NAME.gif and DIR/NAME/ for the words.

    In DIR/NAME/ there are a picture a word, matrix.png (words by cells), words.png (words by words)
    of a Transformer, and layer1_head1.png and so on where there are several layers or heads.
    NAME is the photograph's; where another photograph of this run or any file that no earlier run
    drew has it, NAME_2, and so on. So a run takes the place of the one before it, and of no other
    file.

    Attributes:
        folder: DIR.
        resize: how the model cuts its square from a photograph.
        hear: tells at which words a Transformer looked; None of other models.
    """

    folder: Path
    resize: Resize
    hear: Hear | None = None
    _taken: set[str] = field(default_factory=set)
    _originals: set[str] = field(default_factory=set)

    def refuse_originals(self, paths: Sequence[str]) -> None:
        """Make the folder, and sure that no picture can take a photograph's place.

        Raises:
            ValueError: some of the photographs lie in the folder itself, or it cannot be made; one
                line.
        """
        self._originals = {os.path.realpath(path) for path in paths}
        folder = os.path.realpath(self.folder)
        for path in paths:
            if os.path.dirname(os.path.realpath(path)) == folder:  # noqa: PTH120
                raise ValueError(
                    f"--overlay {self.folder}: {one_line(path)} lies there, among the pictures to "
                    "be drawn; name another folder"
                )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = f"cannot be made ({error.strerror}); name a folder"
            raise ValueError(f"--overlay {self.folder}: {reason}") from None

    def save(self, path: str, caption: Caption) -> None:
        """Draw all pictures of one photograph.

        Raises:
            ImageError: the photograph cannot be opened any more, or the pictures not written; one
                line.
        """
        photo = open_photograph(path)
        try:
            name = self._new_name(_safe_stem(path))
            if isinstance(caption.regions, Boxes):
                save_box_overlays(self.folder, name, photo, caption, caption.regions)
                return
            seen = (photo, caption.words, caption.maps(), self.resize)
            alpha_Thw = caption.alpha_maps()
            figure, animation = self.folder / f"{name}.png", self.folder / f"{name}.gif"
            save_figure(figure, *seen, caption.text, alpha_Thw)
            save_animation(animation, *seen, alpha_Thw=alpha_Thw)
            drawn = save_word_pngs(self.folder / name, *seen, alpha_Thw=alpha_Thw)
            drawn += self._save_sheets(self.folder / name, photo, caption)
            _remove_earlier(self.folder / name, drawn)
        except OSError as error:
            reason = error.strerror or error
            raise ImageError(
                f"{one_line(path)}: its pictures cannot be written ({reason}); "
                f"check --overlay {one_line(str(self.folder))}"
            ) from error

    def _save_sheets(self, folder: Path, photo: Image.Image, caption: Caption) -> list[Path]:
        """Draw what shows all words in one picture, beside the pictures of each."""
        paths = []
        for name, sheet in self._sheets(photo, caption):
            paths.append(folder / f"{name}.png")
            save_png(paths[-1], sheet)
        return paths

    def _sheets(self, photo: Image.Image, caption: Caption) -> Iterator[tuple[str, Image.Image]]:
        words = caption.words
        yield "matrix", words_by_cells(words, caption.maps(), caption.alpha_maps())
        if self.hear is not None:
            yield "words", words_by_words(words, self.hear(photo, words).mean(axis=(1, 2)))
        if caption.heads is None:
            return
        for layer, head in np.ndindex(caption.heads.shape[1:3]):
            title = f"layer {layer + 1}, head {head + 1}: {caption.text}"
            maps_Thw = caption.head_maps()[:, layer, head]
            figure = caption_figure(photo, words, maps_Thw, self.resize, title)
            yield f"layer{layer + 1}_head{head + 1}", figure

    def _new_name(self, stem: str) -> str:
        """The stem, or else the first of ``STEM_2``, ``STEM_3``, ... that is free."""
        name, number = stem, 1
        while not (self._taken.isdisjoint(_entries(name)) and self._is_free(name)):
            number += 1
            name = f"{stem}_{number}"
        self._taken.update(_entries(name))
        return name

    def _is_free(self, name: str) -> bool:
        """Whether nothing has the name but what an earlier run drew and this one does not read."""
        words = self.folder / name
        there = [self.folder / f"{name}{suffix}" for suffix in (".png", ".gif")]
        there += _visible(words) if words.is_dir() else [words]
        return all(
            is_drawn(path) and os.path.realpath(path) not in self._originals
            for path in there
            if os.path.lexists(path)
        )


def _remove_earlier(folder: Path, drawn: Sequence[Path]) -> None:
    """Remove what an earlier run drew of another caption, or of another model, into its place."""
    new = {path.stat().st_ino for path in drawn}  # some systems spell a file's name their own way
    for path in folder.iterdir():
        earlier = _OF_WORDS.fullmatch(path.name) and not path.is_symlink() and is_drawn(path)
        if earlier and path.stat().st_ino not in new:
            path.unlink()


def _visible(folder: Path) -> list[Path]:
    """What lies in it, but for what some systems leave in every folder that is looked at."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _safe_stem(path: str) -> str:
    """The photograph's name without its suffix, short enough, and never a folder such as ``..``."""
    stem = Path(path).stem
    while len(os.fsencode(stem)) > _LONGEST_NAME:
        stem = stem[:-1]
    return stem if stem.strip(".") else "photograph"


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
