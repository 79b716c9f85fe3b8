"""Photographs are found by name whatever the name, and pictures take no other file's place."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from showattend.files import Hear, Overlays, find_photographs, told_heads, told_weights
from showattend.images import ImageError
from showattend.matrix import words_by_cells, words_by_words
from showattend.overlay import caption_figure, is_drawn
from showattend.search import Caption, Regions

needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draw(path: str) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), "steelblue").save(path, "PNG")
    return path


def caption_of(*words: str) -> Caption:
    weights_TP = np.full((len(words), 4), 0.25, np.float32)
    return Caption(words, -1.0, weights_TP, weights_TP, None, Regions(2, 2))


def look(*paths: str, folder: str = "look", words: tuple[str, ...] = ("a", "dog")) -> list[str]:
    """A run that draws into the folder; what lies there then."""
    return save(caption_of(*words), *paths, folder=folder)


def save(
    caption: Caption, *paths: str, folder: str = "look", hear: Hear | None = None
) -> list[str]:
    overlays = Overlays(Path(folder), "squash", hear)
    overlays.refuse_originals(paths)
    for path in paths:
        overlays.save(path, caption)
    return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file())


def drawn(*names: str, words: tuple[str, ...] = ("a", "dog")) -> list[str]:
    """What a run draws for these names into the folder ``look``."""
    files = [
        file
        for name in names
        for file in (
            f"look/{name}.png",
            f"look/{name}.gif",
            f"look/{name}/matrix.png",
            *(f"look/{name}/{number:02}_{word}.png" for number, word in enumerate(words, 1)),
        )
    ]
    return sorted(files)


# Names


def test_the_empty_name_is_not_the_current_folder(here: Path) -> None:
    draw("a.png")
    with pytest.raises(ImageError, match=r"^'': is no path; name files, folders or globs$"):
        find_photographs("")


@pytest.mark.parametrize("name", ["x" * 300, "x" * 300 + ".jpg", "y/" * 3000, "a\0b.jpg"])
def test_a_name_that_no_file_can_have_is_left_to_who_opens_it(name: str) -> None:
    assert find_photographs(name) == [name]


def test_a_glob_that_no_file_can_match_holds_no_photograph() -> None:
    for name in ("x" * 300 + "*", "\0*"):
        with pytest.raises(ImageError, match="no photograph found"):
            find_photographs(name)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*.png", ["a.png", "b/c.png", "b/d/e.png", "b/d/f[1].png"]),
        ("./**/*.png", ["./a.png", "./b/c.png", "./b/d/e.png", "./b/d/f[1].png"]),
        ("b/**/*.png", ["b/c.png", "b/d/e.png", "b/d/f[1].png"]),
        ("b/**", ["b/c.png", "b/d/e.png", "b/d/f[1].png"]),
        ("**", ["a.png", "b/c.png", "b/d/e.png", "b/d/f[1].png"]),
        ("?/**/**/[e]*", ["b/d/e.png"]),
        ("**/d/**/e.png", ["b/d/e.png"]),
        ("**.png", ["a.png"]),  # not a part of its own: the same as *
        ("b/*/e.png", ["b/d/e.png"]),
        ("**/.h/*", [".h/g.png"]),  # hidden ones only by name
    ],
)
def test_globs(here: Path, pattern: str, expected: list[str]) -> None:
    for name in ("a.png", "b/c.png", "b/d/e.png", "b/d/f[1].png", ".h/g.png", "b/.i.png"):
        draw(name)
    assert find_photographs(pattern) == expected
    absolute = [os.path.normpath(here / name) for name in expected]
    found = find_photographs(str(here / pattern))
    assert [os.path.normpath(name) for name in found] == absolute


@needs_posix
def test_links_that_lead_round_in_a_circle_end(here: Path) -> None:
    draw("loop/a.jpg")
    draw("loop/deep/b.jpg")
    for number in range(8):
        Path("loop", f"self{number}").symlink_to(".")
        Path("loop", "deep", f"up{number}").symlink_to("..")
    for pattern in ("loop/**/*.jpg", "**/*.jpg", "loop/**/**/*.jpg", "loop/**"):
        assert find_photographs(pattern) == ["loop/a.jpg", "loop/deep/b.jpg"]
    assert find_photographs("loop/self0/**/*.jpg") == [  # a link that is named is followed
        "loop/self0/a.jpg",
        "loop/self0/deep/b.jpg",
    ]


# Pictures


def test_pictures_of_a_hard_look_are_framed(here: Path) -> None:
    """Each kind differs from that of the same weights as soft attention's."""
    photo, weights_TP = draw("p/cat.jpg"), np.array([[0, 0, 0, 1]], np.float32)
    for folder, alpha_TP in (("soft", weights_TP), ("hard", np.full((1, 4), 0.25, np.float32))):
        overlays = Overlays(Path(folder), "squash")
        overlays.save(photo, Caption(("cat",), -1.0, weights_TP, alpha_TP, None, Regions(2, 2)))
    for name in ("cat.png", "cat.gif", "cat/01_cat.png", "cat/matrix.png"):
        assert Path("soft", name).read_bytes() != Path("hard", name).read_bytes()


def test_weights_of_a_hard_look_are_told_with_their_distribution() -> None:
    weights_TP, alpha_TP = np.array([[0, 0, 0, 1]]), np.array([[0.125, 0.25, 0.125, 0.5]])
    hard = Caption(("cat",), -1.0, weights_TP, alpha_TP, None, Regions(2, 2))
    soft = Caption(("cat",), -1.0, alpha_TP, alpha_TP, None, Regions(2, 2))
    maps = [[[0.125, 0.25], [0.125, 0.5]]]
    assert told_weights(hard) == {"attention": [[[0, 0], [0, 1]]], "alpha": maps}
    assert told_weights(soft) == {"attention": maps}


def heads_of(*words: str) -> Caption:
    """Two layers of three heads, each of which looks at a cell of its own, or at two."""
    heads_TLHP = np.zeros((len(words), 2, 3, 4), np.float32)
    heads_TLHP[:, 0, [0, 1, 2], [0, 1, 2]] = 1
    heads_TLHP[:, 1, :, 2:] = 0.5
    mean_TP = heads_TLHP.mean(axis=(1, 2))
    return Caption(words, -1.0, mean_TP, mean_TP, heads_TLHP, Regions(2, 2))


HEADS = [f"look/cat/layer{layer}_head{head}.png" for layer in (1, 2) for head in (1, 2, 3)]


def test_weights_of_several_heads_are_told() -> None:
    told = told_heads(heads_of("cat"))
    assert told["heads"][0][0] == [[[1, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 0], [1, 0]]]
    assert told["heads"][0][1] == [[[0, 0], [0.5, 0.5]]] * 3
    assert told_heads(caption_of("cat")) == {}


def test_every_head_has_its_figure(here: Path) -> None:
    photo, caption = draw("p/cat.jpg"), heads_of("a", "dog")
    assert save(caption, photo) == sorted([*drawn("cat"), *HEADS])
    assert all(is_drawn(Path(path)) for path in HEADS)
    with Image.open(photo) as picture, Image.open(HEADS[4]) as saved:
        title, maps_Thw = "layer 2, head 2: a dog", np.array([[[0, 0], [0.5, 0.5]]] * 2)
        expected = caption_figure(picture, caption.words, maps_Thw, "squash", title)
        assert saved.convert("RGB").tobytes() == expected.tobytes()


def test_the_matrices_are_of_the_caption(here: Path) -> None:
    """That of the words is the mean over layers and heads."""
    photo, caption = draw("p/cat.jpg"), heads_of("a", "dog")
    heard_TLHT = np.array([[[[1, 0]] * 3] * 2, [[[1, 0], [0.5, 0.5], [0, 1]]] * 2])
    heard: list[tuple[str, ...]] = []

    def hear(picture: Image.Image, words: tuple[str, ...]) -> np.ndarray:
        assert picture.size == (8, 6)
        heard.append(words)
        return heard_TLHT

    files = save(caption, photo, hear=hear)
    assert heard == [("a", "dog")]
    assert files == sorted([*drawn("cat"), *HEADS, "look/cat/words.png"])
    expected = {
        "matrix": words_by_cells(caption.words, caption.maps()),
        "words": words_by_words(caption.words, [[1, 0], [0.5, 0.5]]),
    }
    for name, sheet in expected.items():
        path = Path(f"look/cat/{name}.png")
        assert is_drawn(path)
        with Image.open(path) as saved:
            assert saved.convert("RGB").tobytes() == sheet.tobytes()


def test_a_run_leaves_no_picture_of_another_caption_or_model(here: Path) -> None:
    """Of what lies in the words' folder, it removes what an earlier run drew there by that name."""
    photo = draw("p/cat.jpg")
    save(heads_of("a", "dog", "runs"), photo, hear=lambda *_: np.full((3, 2, 3, 3), 1 / 3))
    assert len(list(Path("look/cat").iterdir())) == 3 + 2 + 6
    kept = "look/cat/my favourite.png"
    Path("look/cat/01_a.png").rename(kept)
    assert look(photo, words=("a", "cat")) == sorted([kept, *drawn("cat", words=("a", "cat"))])


def test_a_run_takes_the_place_of_the_one_before_it(here: Path) -> None:
    paths = (draw("x/dog.jpg"), draw("y/Dog.jpg"), draw("x/cat.jpg"))
    assert look(*paths) == drawn("dog", "Dog_2", "cat")
    Path("look/dog/.DS_Store").touch()
    before = {path: Path(path).stat().st_mtime_ns for path in drawn("dog", "Dog_2", "cat")}
    os.utime("look/dog.png", ns=(0, 0))
    assert look(*paths) == sorted([*before, "look/dog/.DS_Store"])
    assert Path("look/dog.png").stat().st_mtime_ns > 0


@pytest.mark.parametrize("there", ["look/cat.png", "look/cat.gif", "look/cat/a.txt", "look/cat"])
def test_no_other_file_is_replaced(here: Path, there: str) -> None:
    photo = draw("p/cat.jpg")
    Path(there).parent.mkdir(parents=True)
    Path(there).write_bytes(b"somebody's work")
    for _ in range(2):  # the second run finds the first one's pictures, not those alone
        assert look(photo) == sorted([there, *drawn("cat_2")])
        assert Path(there).read_bytes() == b"somebody's work"


@needs_posix
def test_no_file_behind_a_link_is_replaced(here: Path) -> None:
    photo, other = draw("p/cat.jpg"), draw("mine.png")
    before = Path(other).read_bytes()
    Path("look").mkdir()
    Path("look/cat.png").symlink_to(here / other)
    Path("look/cat_2.png").symlink_to(here / "none.png")
    look(photo)
    assert Path(other).read_bytes() == before
    assert not Path("none.png").exists()
    assert Path("look/cat_3.png").is_file()


def test_a_photograph_below_the_folder_is_not_replaced(here: Path) -> None:
    photo, other = draw("look/cat/01_a.png"), draw("p/cat.jpg")
    before = Path(photo).read_bytes()
    assert look(photo, other) == sorted([photo, *drawn("01_a", "cat_2")])
    assert Path(photo).read_bytes() == before


def test_an_earlier_runs_picture_that_is_read_is_not_replaced(here: Path) -> None:
    photo = draw("p/cat.jpg")
    look(photo)
    word = "look/cat/01_a.png"
    before = Path(word).read_bytes()
    assert look(word, photo) == drawn("cat", "01_a", "cat_2")
    assert Path(word).read_bytes() == before


def test_a_photograph_in_the_folder_itself_is_refused(here: Path) -> None:
    with pytest.raises(ValueError, match=r"^--overlay look: look/cat\.png lies there, .*; name an"):
        look(draw("look/cat.png"))


@pytest.mark.parametrize(
    ("photograph", "name"),
    [
        ("...jpg", "photograph"),
        ("....jpg", "photograph"),
        (".jpg", ".jpg"),
        ("a" * 251 + ".jpg", "a" * 240),
        ("a" * 255, "a" * 240),
        ("🐶" * 62 + ".jpg", "🐶" * 60),  # four bytes each
    ],
)
def test_names_that_make_no_picture_are_changed(here: Path, photograph: str, name: str) -> None:
    assert look(draw(f"p/{photograph}")) == drawn(name)
    assert sorted(path.name for path in here.iterdir()) == ["look", "p"]


def test_long_names_that_begin_alike_lie_side_by_side(here: Path) -> None:
    stem = "a" * 251
    assert look(draw(f"p/{stem}.jpg"), draw(f"q/{stem}.png")) == drawn("a" * 240, "a" * 240 + "_2")


def test_pictures_that_cannot_be_written_are_the_photographs_failure(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photo = draw("p/cat.jpg")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "look/.1f.part")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ImageError) as caught:
        look(photo)
    assert str(caught.value) == (
        "p/cat.jpg: its pictures cannot be written (No space left on device); check --overlay look"
    )


def test_a_folder_that_cannot_be_made_is_refused(here: Path) -> None:
    Path("look").write_text("a file")
    with pytest.raises(ValueError, match=r"^--overlay look: cannot be made \(File exists\); name"):
        look(draw("p/cat.jpg"))
