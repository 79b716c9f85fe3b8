"""The program from its arguments to its lines and exit codes, with tiny untrained models."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from conftest import with_gates
from PIL import Image

import showattend
from showattend import predict
from showattend.captioner import build_captioner
from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.cli import build_parser, main
from showattend.config import (
    Attention,
    DecoderSettings,
    EncoderSettings,
    PixelSettings,
    SearchSettings,
)
from showattend.images import ImageError
from showattend.metrics import NAMES
from showattend.results import read_results
from showattend.search import Caption
from showattend.vocabulary import Vocabulary

ROOT = Path(showattend.__file__).parents[1]
ENCODER = EncoderSettings(
    name="test_resnet", pretrained=False
)  # timm's own for tests: 0.5 M weights
DECODER = DecoderSettings(embedding=8, hidden=8, attention=8, projection=8)
HALF = (0.5, 0.5, 0.5)
WORDS = ["a", "red", "dog", "on", "grass", "blue", "square"]
COLOURS = ("red", "green", "blue", "yellow")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    vocabulary = Vocabulary(WORDS)
    captioner = build_captioner(ENCODER, DECODER, size=64, words=len(vocabulary)).eval()
    folder = tmp_path_factory.mktemp("models") / "tiny"
    pixels = PixelSettings(size=64, mean=HALF, std=HALF)
    search = SearchSettings(beam_size=2, max_words=5)
    save_checkpoint(folder, Checkpoint(captioner, vocabulary, pixels, ENCODER, DECODER, search, {}))
    return folder


@pytest.fixture(scope="module")
def transformer(checkpoint: Path) -> Path:
    """The same with a decoder of two layers of two heads."""
    model = showattend.load(checkpoint, "cpu").checkpoint
    decoder = model.decoder.model_copy(
        update={"kind": "transformer", "layers": 2, "heads": 2, "attention": 8, "projection": 8}
    )
    captioner = build_captioner(ENCODER, decoder, size=64, words=len(model.vocabulary)).eval()
    folder = checkpoint.with_name("transformer")
    save_checkpoint(folder, replace(model, captioner=captioner, decoder=decoder))
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three photographs; and what is none, though it lies beside them."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("b.jpg", "a.PNG", "c.webp"):
        draw(folder / name)
    draw(folder / ".hidden.jpg")
    (folder / "notes.txt").write_text("no image")
    (folder / "album.jpg").mkdir()
    return folder


def draw(path: Path, colour: str | None = None) -> Path:
    """Write a photograph: of one colour, or of noise that only its name decides."""
    noise = np.random.default_rng(list(os.fsencode(path.name))).integers(
        0, 256, (48, 64, 3), np.uint8
    )
    image = Image.new("RGB", (64, 48), colour) if colour else Image.fromarray(noise)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, list[str], str]:
    """Exit code, stdout's lines and stderr."""
    code = main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return code, out.splitlines(), err


def refusal(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """The one line that a command ends with that cannot be carried out."""
    try:
        code = main([str(word) for word in argv])
    except SystemExit as stopped:  # argparse's way
        code = stopped.code
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("showattend: error: ") and err.count("\n") == 1
    return err


# --- the program itself ---------------------------------------------------------------------------


def test_help_needs_no_heavy_library() -> None:
    program = (
        "import sys; from showattend.cli import build_parser; build_parser().format_help();"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"torch", "torchvision", "timm", "numpy", "PIL", "pydantic", "yaml", "tqdm", "gradio"}
    assert not heavy & set(loaded)


@pytest.mark.parametrize("command", ["caption", "train", "evaluate", "compare"])
def test_scripts_are_doors_to_the_commands(command: str) -> None:
    path = ROOT / "scripts" / f"{command}.py"
    shown = subprocess.run(
        [sys.executable, path, "--help"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert shown.startswith(f"usage: showattend {command} ")


def test_module_is_the_program() -> None:
    command = [sys.executable, "-m", "showattend", "--version"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown == f"showattend {showattend.__version__}\n"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["paint"],
        ["caption"],
        ["caption", "a.jpg", "--beem", "3"],
        ["caption", "a.jpg", "--beam", "0"],
        ["caption", "a.jpg", "--beam", "65"],
        ["caption", "a.jpg", "--batch", "x"],
        ["caption", "a.jpg", "--csv", "--json"],
        ["caption", "a.jpg", "--weights"],
        ["caption", "a.jpg", "--attention", "hard"],
        ["caption", "a.jpg", "--look-at", "left"],
        ["caption", "a.jpg", "--look-at", "0.5,0,1,1", "--look-from", "0"],
        ["caption", "a.jpg", "--look-from", "2"],
        ["caption", "a.jpg", "--look-at", "0,0,1,1", "--regions", "regions.npz"],
        ["caption", "a.jpg", "--model", "no such model"],
        ["train"],
        ["train", "--config", "shapes_soft", "--resume", "runs/a"],
        ["train", "--resume", "runs/a", "train.epochs=3"],
        ["train", "--resume", "runs/a", "--init", "soft"],
        ["train", "--resume", "runs/a", "--run", "runs/b"],
        ["train", "--resume", "no such run"],
        ["train", "--config", "no such config"],
        ["train", "--config", "shapes_soft", "epochs"],
        ["evaluate"],
        ["evaluate", "--checkpoint", "no such model"],
        ["app", "--port", "70000"],
        ["app", "stray"],
    ],
)
def test_mistakes_end_in_one_line(
    argv: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal(capsys, *argv)
    assert not list(tmp_path.iterdir())


def test_absent_device_is_refused(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "cuda" in refusal(capsys, "caption", "a.jpg", "--model", checkpoint, "--device", "cuda")


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        np.zeros(3).reshape(2)  # a ValueError that no user can do anything about

    monkeypatch.setattr(predict, "load", broken)
    with pytest.raises(ValueError, match="reshape"):
        main(["caption", "a.jpg"])


def test_interrupt_ends_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(predict, "load", interrupted)
    assert run(capsys, "caption", "a.jpg") == (130, [], "showattend: interrupted\n")


def test_reader_that_left_ends_it_quietly(
    checkpoint: Path,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        code = main(["caption", str(photos), "--model", str(checkpoint)])
    assert code == 141
    assert capsys.readouterr().err == ""


# --- caption --------------------------------------------------------------------------------------


def test_text_is_a_line_for_each_photograph_in_order(
    checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, err = run(capsys, "caption", photos, "--model", checkpoint)
    paths = [photos / name for name in ("a.PNG", "b.jpg", "c.webp")]
    captions = showattend.load(checkpoint).caption(paths)
    assert (code, err) == (0, "")  # and no progress bar where stderr is no terminal
    assert lines == [
        f"{path}\t{caption.text}" for path, caption in zip(paths, captions, strict=True)
    ]


def test_options_may_stand_between_paths(
    checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(photos / name) for name in ("b.jpg", "a.PNG", "c.webp")]
    code, lines, _ = run(
        capsys, "caption", paths[0], "--model", checkpoint, paths[1], "--beam", 1, "--", paths[2]
    )
    assert code == 0
    assert [line.partition("\t")[0] for line in lines] == paths


def test_globs_and_run_folders(
    checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "best").symlink_to(checkpoint)
    draw(photos / "deep" / "d.jpg")
    code, lines, _ = run(capsys, "caption", photos / "**" / "*.jpg", "--model", run_folder)
    assert code == 0
    names = [line.partition("\t")[0] for line in lines]
    assert names == [str(photos / "b.jpg"), str(photos / "deep" / "d.jpg")]


def test_name_with_brackets_is_a_file_where_there_is_one(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = draw(tmp_path / "me[1].jpg")
    draw(tmp_path / "me1.jpg")
    _, (line,), _ = run(capsys, "caption", path, "--model", checkpoint)
    assert line.startswith(f"{path}\t")


def test_beam_and_batch_reach_the_search(
    checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted(str(photos / name) for name in ("a.PNG", "b.jpg", "c.webp"))
    expected = showattend.load(checkpoint).caption(paths, beam_size=1)
    argv = ("caption", photos, "--model", checkpoint, "--beam", 1, "--batch", 2, "--json")
    _, lines, _ = run(capsys, *argv)
    found = [json.loads(line)["log_prob"] for line in lines]
    assert found == pytest.approx([caption.log_prob for caption in expected], abs=1e-3)


def test_bad_photograph_takes_nothing_from_the_others(
    checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = draw(photos / "bad.jpg").read_bytes()
    (photos / "bad.jpg").write_bytes(whole[: len(whole) // 2])
    names = ["a.PNG", "b.jpg", "bad.jpg", "c.webp"]

    code, lines, err = run(capsys, "caption", photos, "--model", checkpoint)
    assert code == 1
    assert [Path(line.partition("\t")[0]).name for line in lines] == ["a.PNG", "b.jpg", "c.webp"]
    assert err.startswith(f"showattend: error: {photos / 'bad.jpg'}: ") and err.count("\n") == 1

    code, lines, err = run(capsys, "caption", photos, "--model", checkpoint, "--csv")
    assert (code, len(lines), err.count("\n")) == (1, 1 + 3, 1)

    code, lines, err = run(capsys, "caption", photos, "--model", checkpoint, "--json")
    entries = [json.loads(line) for line in lines]
    assert (code, err) == (1, "")
    assert [Path(entry["image"]).name for entry in entries] == names
    assert entries[2].keys() == {"image", "error"} and "bad.jpg" in entries[2]["error"]


@pytest.mark.parametrize(
    "name", ["gone.jpg", "empty", "gone/*.jpg", "a\nb.jpg", "empty/\t*", "x" * 300 + ".jpg"]
)
def test_what_is_not_there_is_one_failure_among_others(
    name: str, checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "empty").mkdir()
    argv = ("caption", photos / name, photos / "b.jpg", "--model", checkpoint)
    code, lines, err = run(capsys, *argv)
    assert (code, len(lines), err.count("\n")) == (1, 1, 1)
    assert str(photos / name).replace("\n", "\\n").replace("\t", "\\t") in err
    code, lines, _ = run(capsys, *argv, "--json")
    assert code == 1
    assert sorted("error" in json.loads(line) for line in lines) == [False, True]


def test_empty_path_is_not_the_current_folder(
    checkpoint: Path,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(photos)
    code, lines, err = run(capsys, "caption", "", "b.jpg", "--model", checkpoint)
    assert (code, len(lines)) == (1, 1)
    assert err == "showattend: error: '': is no path; name files, folders or globs\n"


def test_csv_rows(checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = run(capsys, "caption", photos / "b.jpg", "--model", checkpoint, "--csv")
    caption = showattend.load(checkpoint).caption(photos / "b.jpg")
    rows = list(csv.reader(lines))
    assert rows[0] == ["image", "caption", "log_prob"]
    assert rows[1][:2] == [str(photos / "b.jpg"), caption.text]
    assert float(rows[1][2]) == pytest.approx(caption.log_prob, abs=1e-3)


def test_json_lines(checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("caption", photos / "b.jpg", "--model", checkpoint, "--json")
    _, (line,), _ = run(capsys, *argv)
    caption = showattend.load(checkpoint).caption(photos / "b.jpg")
    entry = json.loads(line)
    assert entry == {
        "image": str(photos / "b.jpg"),
        "caption": caption.text,
        "words": list(caption.words),
        "log_prob": pytest.approx(caption.log_prob, abs=1e-3),
        "model": str(checkpoint),
    }
    _, (line,), _ = run(capsys, *argv, "--weights")
    maps_Thw = np.array(json.loads(line)["attention"])
    assert maps_Thw.shape == (len(caption.words), 2, 2)
    np.testing.assert_allclose(maps_Thw, caption.maps(), atol=1e-5)
    np.testing.assert_allclose(maps_Thw.sum(axis=(1, 2)), 1, atol=1e-5)
    assert "alpha" not in json.loads(line)


def test_json_tells_which_channels_fired(
    checkpoint: Path, tmp_path: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_checkpoint(tmp_path / "gated", with_gates(showattend.load(checkpoint).checkpoint))
    argv = ("caption", photos / "b.jpg", "--model", tmp_path / "gated", "--json")
    gates = showattend.load(tmp_path / "gated").channel_gates(photos / "b.jpg")
    _, (line,), _ = run(capsys, *argv)
    stage, grid = json.loads(line)["channels"]
    assert (stage["where"], grid["where"]) == ("body.act1", "grid")
    assert set(grid) == {"where", "strongest", "weakest"}
    assert grid["strongest"][0] == [
        gates["grid"].argmax(),
        pytest.approx(gates["grid"].max(), abs=1e-4),
    ]
    assert grid["weakest"][0][0] == gates["grid"].argmin()
    _, (line,), _ = run(capsys, *argv, "--weights")
    for told, gates_C in zip(json.loads(line)["channels"], gates.values(), strict=True):
        np.testing.assert_allclose(told["gates"], gates_C, atol=1e-4)


def test_a_look_at_one_cell_is_told_with_its_distribution(
    checkpoint: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("caption", photos / "b.jpg", "--model", checkpoint, "--json", "--weights")
    _, (line,), _ = run(capsys, *argv, "--attention", "argmax")
    caption = showattend.load(checkpoint).caption(photos / "b.jpg", attention="argmax")
    entry = json.loads(line)
    maps_Thw, alpha_Thw = np.array(entry["attention"]), np.array(entry["alpha"])
    np.testing.assert_allclose(alpha_Thw, caption.alpha.reshape(-1, 2, 2), atol=1e-5)
    np.testing.assert_array_equal(maps_Thw == 1, alpha_Thw == alpha_Thw.max((1, 2), keepdims=True))


@pytest.mark.parametrize("attention", get_args(Attention))
def test_every_way_to_look_has_its_name(attention: str) -> None:
    for argv in (["caption", "a.jpg"], ["evaluate", "--checkpoint", "soft"]):
        assert build_parser().parse_args([*argv, "--attention", attention]).attention == attention


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines.jpg",
        "tab\there.jpg",
        "back\rhere.jpg",
        'a "b", c.jpg',
        "狗\u2028.jpg",
        pytest.param(
            "\udcff.jpg",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="names are text there"),
        ),
    ],
)
def test_odd_names_keep_the_form_of_the_lines(
    name: str, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = draw(tmp_path / name)
    main(["caption", str(path), "--model", str(checkpoint)])
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 1 and text.count("\t") == 1

    main(["caption", str(path), "--model", str(checkpoint), "--json"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 1 and json.loads(text)["image"] == str(path)

    main(["caption", str(path), "--model", str(checkpoint), "--csv"])
    header, row = csv.reader(io.StringIO(capsys.readouterr().out, newline=""))
    assert len(header) == len(row) == 3
    assert row[0] == str(path).replace("\udcff", "\\udcff")


def test_stream_holds_one_batch_at_a_time(checkpoint: Path, tmp_path: Path) -> None:
    asked: list[Path] = []

    def paths() -> Iterator[Path]:
        for number in range(5):
            asked.append(tmp_path / f"{number}.jpg")
            yield asked[-1] if number == 1 else draw(asked[-1])

    results = showattend.load(checkpoint).stream(paths(), batch_size=2)
    first, caption = next(results)
    assert len(asked) == 2 and first == asked[0] and isinstance(caption, Caption)
    path, error = next(results)
    assert len(asked) == 2 and path == asked[1] and isinstance(error, ImageError)
    assert all(isinstance(caption, Caption) for _, caption in results)
    assert len(asked) == 5


def test_lines_are_written_before_the_next_batch_is_opened(
    checkpoint: Path,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []

    def spy(path: str) -> Image.Image:
        written.append(capsys.readouterr().out)
        return Image.open(path).convert("RGB")

    monkeypatch.setattr(predict, "open_photograph", spy)
    main(["caption", str(photos), "--model", str(checkpoint), "--batch", "1"])
    assert [text.count("\n") for text in written] == [0, 1, 1]


def test_captions_are_steered(
    checkpoint: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the pictures: they are drawn from the caption's own maps."""
    argv = ("--look-at", "0.5,0,1,1", "--look-from", 2, "--begin", "A red", "--json", "--weights")
    _, (line,), _ = run(
        *(capsys, "caption", photos / "b.jpg", "--model", checkpoint, *argv),
        *("--overlay", tmp_path / "looks"),
    )
    entry = json.loads(line)
    assert entry["words"][:2] == ["a", "red"]
    maps_Thw = np.array(entry["attention"])
    left_Thw = maps_Thw[:, :, : maps_Thw.shape[2] // 2]
    assert (left_Thw[0] > 0).all() and (left_Thw[1:] == 0).all()
    assert (tmp_path / "looks" / "b.png").is_file()


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (("--begin", "a zebra"), "begin has 'zebra', which is none of the 11 words that"),
        (("--begin", "a red dog on grass"), "begin has 5 words: expected fewer than max_words, 5"),
        (("--look-at", "0,0,2,1"), "look_at is (0.0, 0.0, 2.0, 1.0): expected a box"),
        (("--look-at", "0,0,1"), "look_at is (0.0, 0.0, 1.0): expected a box"),
    ],
)
def test_steering_that_cannot_be_ends_in_one_line(
    argv: tuple[str, ...],
    problem: str,
    checkpoint: Path,
    photos: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert problem in refusal(capsys, "caption", photos, "--model", checkpoint, *argv)


def test_where_a_steered_transformer_listened_is_not_drawn(
    transformer: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What its words heard depends on the look, which `word_attention` cannot be bound to."""
    argv = ("caption", photos / "b.jpg", "--model", transformer, "--overlay", tmp_path / "looks")
    assert run(capsys, *argv, "--look-at", "0,0,0.5,1")[0] == 0
    assert (tmp_path / "looks" / "b" / "layer1_head1.png").is_file()
    assert not (tmp_path / "looks" / "b" / "words.png").exists()


def test_overlays_of_equal_stems_lie_side_by_side(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [draw(tmp_path / name) for name in ("x/dog.jpg", "y/Dog.jpg", "x/dog.png.jpg")]
    folder = tmp_path / "out"
    argv = ("caption", *paths, "--model", checkpoint, "--overlay", folder)
    code, lines, err = run(capsys, *argv)
    assert (code, len(lines), err) == (0, 3, "")
    names = ("dog", "Dog_2", "dog.png_2")
    entries = {name + suffix for name in names for suffix in ("", ".png", ".gif")}
    assert {path.name for path in folder.iterdir()} == entries
    captions = showattend.load(checkpoint).caption(paths)
    for name, caption in zip(names, captions, strict=True):
        words = sorted(path.name for path in (folder / name).iterdir())
        assert words.pop() == "matrix.png"
        assert [word[3:-4] for word in words] == list(caption.words)
        with Image.open(folder / f"{name}.gif") as animation:
            assert 1 < animation.n_frames <= len(caption.words) + 1  # equal frames are merged
        with Image.open(folder / f"{name}.png") as figure:
            assert figure.width > 64


def test_a_transformers_overlays_show_its_heads_and_words(
    transformer: Path, checkpoint: Path, photos: Path, tmp_path: Path
) -> None:
    argv = ["caption", str(photos / "b.jpg"), "--overlay", str(tmp_path), "--model"]
    figures = {f"layer{layer}_head{head}.png" for layer in (1, 2) for head in (1, 2)}

    def sheets() -> set[str]:
        return {path.name for path in (tmp_path / "b").iterdir() if path.name[0].isalpha()}

    assert main([*argv, str(transformer)]) == 0
    assert sheets() == {"matrix.png", "words.png", *figures}
    # What a layer reads hangs on the look below it, and a look by chance cannot be had once more.
    assert main([*argv, str(transformer), "--attention", "sample"]) == 0
    assert sheets() == {"matrix.png", *figures}
    assert main([*argv, str(checkpoint)]) == 0
    assert sheets() == {"matrix.png"}


def test_json_weights_of_every_head(
    transformer: Path, photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("caption", photos / "b.jpg", "--model", transformer, "--json", "--weights")
    _, (line,), _ = run(capsys, *argv)
    told, caption = json.loads(line), showattend.load(transformer).caption(photos / "b.jpg")
    heads_TLHhw = np.array(told["heads"])
    assert heads_TLHhw.shape == caption.head_maps().shape
    np.testing.assert_allclose(heads_TLHhw, caption.head_maps(), atol=1e-6)
    np.testing.assert_allclose(heads_TLHhw.mean(axis=(1, 2)), told["attention"], atol=2e-6)


def test_overlays_never_take_a_photographs_place(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = draw(tmp_path / "dog.png")
    before = path.read_bytes()
    argv = ("caption", path, "--model", checkpoint, "--overlay", tmp_path)
    assert "--overlay" in refusal(capsys, *argv)
    assert path.read_bytes() == before


def test_overlay_that_fails_takes_nothing_from_the_others(
    checkpoint: Path,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace = os.replace

    def fails_for_one(part: Path, path: Path) -> None:
        if path.name == "a.gif":
            raise OSError(36, "File name too long", str(part))
        replace(part, path)

    monkeypatch.setattr(os, "replace", fails_for_one)
    argv = ("caption", photos, "--model", checkpoint, "--overlay", tmp_path / "out")
    code, lines, err = run(capsys, *argv)
    assert (code, len(lines), err.count("\n")) == (1, 2, 1)
    assert err.startswith(f"showattend: error: {photos / 'a.PNG'}: its pictures cannot be written")


def test_overlays_may_lie_among_ones_own_files(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two runs of one command: the second replaces what the first drew, and nothing else."""
    monkeypatch.chdir(tmp_path)
    draw(Path("p", "cat.jpg"))
    before = draw(Path("cat.png"), "red").read_bytes()
    for _ in range(2):
        assert main(["caption", "p/cat.jpg", "--model", str(checkpoint), "--overlay", "."]) == 0
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {"p", "cat.png", "cat_2", "cat_2.png", "cat_2.gif"}
    assert Path("cat.png").read_bytes() == before


def test_photograph_that_vanishes_before_it_is_drawn_is_a_failure(
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = draw(tmp_path / "dog.jpg")

    def open_once(path: str) -> Image.Image:
        picture = Image.open(path).convert("RGB")
        Path(path).unlink()
        return picture

    monkeypatch.setattr(predict, "open_photograph", open_once)
    argv = ("caption", path, "--model", checkpoint, "--overlay", tmp_path / "out")
    code, lines, err = run(capsys, *argv)
    assert (code, lines) == (1, []) and str(path) in err


def test_unwritable_overlay_ends_in_one_line(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").write_text("a file")
    path = draw(tmp_path / "in" / "dog.jpg")
    argv = ("caption", path, "--model", checkpoint, "--overlay", tmp_path / "out")
    assert str(tmp_path / "out") in refusal(capsys, *argv)


# --- train and evaluate ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings of a tiny training, and its own photographs of coloured squares."""
    folder = tmp_path_factory.mktemp("data")
    rows = [("image", "caption", "split")]
    for number in range(12):
        colour, split = COLOURS[number % 4], "train" if number < 8 else "val"
        draw(folder / "photos" / f"{number}.png", colour)
        rows += [(f"{number}.png", f"a {colour} {thing}", split) for thing in ("square", "photo")]
    (folder / "captions.csv").write_text("".join(",".join(row) + "\n" for row in rows))
    path = folder / "tiny.yaml"
    path.write_text(
        f"""
data: {{kind: folder, root: {folder / "photos"}, captions: {folder / "captions.csv"}, min_count: 1}}
pixels: {{size: 64}}
encoder: {{name: test_resnet, pretrained: false}}
decoder: {{embedding: 8, hidden: 8, attention: 8, projection: 8, dropout: 0.0}}
train: {{epochs: 1, batch_images: 4}}
search: {{beam_size: 2, max_words: 5}}
"""
    )
    return path


def table(lines: list[str]) -> dict[str, str]:
    """The rows of an evaluation's table."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines if "  " in line)


def test_train_resume_evaluate(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOWATTEND_CACHE", str(tmp_path / "cache"))
    code, lines, _ = run(capsys, "train", "train.seed=3", "--config", config, "train.epochs=2")
    folder = tmp_path / "runs" / "tiny"
    assert code == 0 and lines[-1].startswith("best: ")
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(metrics) == 2
    assert list((tmp_path / "cache").glob("*/grids-0000.f16"))
    assert "seed: 3" in (folder / "settings.yaml").read_text()

    assert "--resume" in refusal(capsys, "train", "--config", config)  # the folder is taken
    monkeypatch.delenv("SHOWATTEND_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    code, _, _ = run(capsys, "train", "--resume", folder)
    assert code == 0
    assert not (tmp_path / "home").exists()  # it remembers its own cache

    out = tmp_path / "deep" / "scores"
    code, lines, _ = run(capsys, "evaluate", "--checkpoint", folder, "--out", out)
    rows = table(lines)
    assert code == 0
    assert rows["data set"] == f"folder in {config.parent / 'photos'}"
    assert (rows["split"], rows["images"], rows["beam"]) == ("val", "4", "2")
    best = max(metrics, key=lambda line: (line["CIDEr-D"], -line["loss"]))
    for name in (*NAMES, "attention entropy"):
        assert float(rows[name].split()[0]) == pytest.approx(best[name], abs=0.1)
    assert float(rows["ms an image"]) > 0
    assert lines[-1].startswith("Times 100")
    captions = showattend.load(folder).caption([config.parent / "photos" / "8.png"])
    assert {path.name for path in out.iterdir()} == {"results.json", "scores.json", "scores.md"}
    found = read_results(out / "results.json")
    assert found.keys() == {"8.png", "9.png", "10.png", "11.png"}
    assert found["8.png"] == captions[0].text

    code, lines, _ = run(
        capsys, "evaluate", "--checkpoint", folder / "last", "--split", "train", "--beam", 1
    )
    assert code == 0
    assert (table(lines)["images"], table(lines)["beam"]) == ("8", "1")

    code, lines, _ = run(capsys, "evaluate", "--checkpoint", folder, "--attention", "argmax")
    assert code == 0
    assert table(lines)["attention"] == "argmax"
    assert "attention" not in rows


def test_train_starts_from_a_checkpoint(
    config: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--config", config, "--init", checkpoint, "--run", tmp_path / "run")
    code, _, _ = run(capsys, "train", *argv, "--cache", tmp_path / "cache")
    words = showattend.load(tmp_path / "run").checkpoint.vocabulary.words
    assert code == 0
    assert words[4 : 4 + len(WORDS)] == tuple(WORDS) and "yellow" in words


def test_evaluate_takes_its_data_from_a_config(
    config: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--data" in refusal(capsys, "evaluate", "--checkpoint", checkpoint)
    code, lines, _ = run(capsys, "evaluate", "--checkpoint", checkpoint, "--data", config)
    assert code == 0 and table(lines)["images"] == "4"
    argv = ("evaluate", "--checkpoint", checkpoint, "--data", "shapes_soft", "data.val_images=3")
    code, lines, _ = run(capsys, *argv)
    assert code == 0
    assert (table(lines)["data set"], table(lines)["images"]) == ("shapes", "3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data.rot=x"], "did you mean `root`"),
        (["data.root=no such folder"], "no such folder"),
        (["train.epochs=3"], "train.epochs=3"),
        (["--split", "tset"], "split tset"),
    ],
)
def test_evaluate_refuses_in_one_line(
    words: list[str],
    said: str,
    config: Path,
    checkpoint: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ("evaluate", "--checkpoint", checkpoint, "--data", config, *words)
    assert said in refusal(capsys, *argv)


def test_evaluate_scores_a_result_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And again from the command's own output."""
    parity = Path(__file__).parent / "data" / "coco_caption_parity"
    references = parity / "en_captions_val2014.json"
    results = parity / "captions_val2014_fakecap_results.json"
    for file in (results, tmp_path / "results.json"):
        code, lines, _ = run(
            capsys, "evaluate", "--results", file, "--references", references, "--out", tmp_path
        )
        rows = table(lines)
        assert code == 0
        found = {name: float(rows[name].split()[0]) for name in NAMES}
        assert found == {
            "BLEU-1": 57.94,
            "BLEU-2": 40.44,
            "BLEU-3": 27.85,
            "BLEU-4": 19.08,
            "ROUGE-L": 39.63,
            "CIDEr-D": 59.98,
        }
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert len(scores["images"]) == 1000
    assert scores["images"][0].keys() == {"image_id", "caption", "scores"}
    assert scores["tables"]["score"]["CIDEr-D"]["score"]["value"] == pytest.approx(59.98, abs=0.01)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--results", "a.json"], "name by --references"),
        (
            ["--results", "a.json", "--references", "b.json", "--beam", "3"],
            "belong to --checkpoint",
        ),
        (
            ["--results", "a.json", "--references", "b.json", "--attention", "argmax"],
            "belong to --checkpoint",
        ),
        (["--results", "a.json", "--references", "b.json"], "a.json: cannot be read"),
        (["--results", "a.json", "--checkpoint", "soft"], "not allowed with"),
        (["--checkpoint", "soft", "--references", "b.json"], "belong to --results"),
        ([], "one of the arguments --checkpoint --results is required"),
    ],
)
def test_evaluate_needs_a_model_or_results(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capsys, "evaluate", *words)


def test_evaluate_reads_the_boxes_before_it_captions(
    config: Path,
    checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("showattend.evaluate.caption_split", pytest.fail)
    argv = ("evaluate", "--checkpoint", checkpoint, "--data", config, "--all", "--out", tmp_path)
    assert "nope: is no JSON file" in refusal(capsys, *argv, "data.boxes=nope")
    (tmp_path / "file").touch()
    argv = (*argv[:-1], tmp_path / "file")
    assert "file: File exists" in refusal(capsys, *argv)


def test_compare_holds_two_models_against_each_other(
    config: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An untrained model, and the captions of some other program."""
    results = tmp_path / "other.json"
    said = [{"image_id": f"{k}.png", "caption": "a red square"} for k in range(8, 12)]
    results.write_text(json.dumps(said))
    out = tmp_path / "report"
    argv = ("compare", checkpoint, results, "--data", config, "--out", out, "--images", 1)
    code, lines, err = run(capsys, *argv)
    rows = table(lines)
    assert code == 0 and "report.html" in err
    assert (rows["split"], rows["images"]) == ("val", "4")
    assert rows["data set"] == f"folder in {config.parent / 'photos'}"
    assert any(re.match(rf"{checkpoint} − {results} +difference +p$", line) for line in lines)
    assert {path.name for path in out.iterdir()} == {"report.html", "report.md", "report.json"}
    (out / "report.json").write_text("{}")
    assert "report.json: is no comparison's" in refusal(capsys, *argv)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["soft"], "only one side is named"),
        ([], "the following arguments are required: SIDE"),
        (["soft", "sfot"], "sfot: neither a shipped model"),
        (["a.json", "b.json"], "name them by --data CONFIG"),
        (["a.json", "b.json", "--data", "shapes_soft"], "a.json: cannot be read"),
        (["soft", "rewarded", "train.epochs=3"], "only the data can be changed"),
        (["soft", "rewarded", "data.root=no such folder"], "no such folder"),
        (["soft", "rewarded", "--split", "tset"], "split tset"),
    ],
)
def test_compare_refuses_in_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refusal(capsys, "compare", *words)


def test_compare_refuses_runs_of_other_data(
    config: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run was trained on is read from beside its checkpoint."""
    for name, data in (("a", "val_images: 3"), ("b", "val_images: 4")):
        shutil.copytree(checkpoint, tmp_path / name / "best")
        settings = f"data: {{kind: shapes, {data}}}\ntrain: {{epochs: 1}}\n"
        (tmp_path / name / "settings.yaml").write_text(settings)
    argv = ("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "out")
    assert "the val splits of their data hold other images" in refusal(capsys, *argv)
    code, lines, _ = run(capsys, *argv, "data.val_images=2")
    assert code == 0 and table(lines)["images"] == "2"


def test_unknown_setting_is_refused_with_the_nearest(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("train", "--config", config, "--run", tmp_path / "run", "train.epoch=3")
    assert "did you mean `epochs`" in refusal(capsys, *argv)
    assert not (tmp_path / "run").exists()


# --- app ------------------------------------------------------------------------------------------


def test_app_serves_the_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    served: list[object] = []
    server = types.ModuleType("showattend.app.server")
    server.serve = lambda *how, **options: served.append((how, options))  # type: ignore[attr-defined]
    server.read_password = lambda file: ("ada", file.name)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "showattend.app.server", server)
    assert main(["app", "--port", "7000", "--model", "soft", "runs/a"]) == 0
    assert main(["app", "--runs", str(tmp_path), "--auth", "secret"]) == 0
    assert served == [
        ((["soft", "runs/a"], "127.0.0.1", 7000), {"runs": None, "auth": None}),
        (
            (predict.shipped_models(), "127.0.0.1", 7860),
            {"runs": tmp_path, "auth": ("ada", "secret")},
        ),
    ]


def test_app_refuses_a_folder_of_runs_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "--runs", str(tmp_path / "absent")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"--runs {tmp_path / 'absent'}: no such folder" in error


# --- hostile photographs --------------------------------------------------------------------------

ODD_IMAGES = ROOT.parent / "shared" / "odd_images"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not ODD_IMAGES.is_dir(), reason="needs ../shared/odd_images")
def test_every_odd_image_ends_in_a_caption_or_a_line() -> None:
    """The shipped model over all 521 files: no traceback, no hang over 10 s, under 2 GiB."""
    documents = {"INDEX.tsv", "PILLOW_LICENSE"}
    files = sorted(path for path in ODD_IMAGES.rglob("*") if path.is_file())
    files = [path for path in files if path.name not in documents]
    assert len(files) == 521
    command = [sys.executable, "-m", "showattend", "caption", "--json", "--batch", "1"]
    results, waits = [], []
    with subprocess.Popen(
        [*command, *map(str, files)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        last = None
        for line in process.stdout:
            now = time.monotonic()
            if last is not None:  # the first line waits for torch and the model besides
                waits.append(now - last)
            last = now
            results.append(json.loads(line))
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    captioned = sum("caption" in result for result in results)
    print(f"{captioned} captions, {len(results) - captioned} errors, longest {max(waits):.1f} s, ")
    print(f"peak {usage.ru_maxrss / 1024:.0f} MiB")
    assert process.returncode == 1  # some are no photographs
    assert [result["image"] for result in results] == [str(path) for path in files]
    for result in results:
        assert result.get("caption") or "\n" not in result["error"]
    assert "Traceback" not in errors
    assert max(waits) < 10
    assert usage.ru_maxrss < 2 * 1024**2  # KiB


@pytest.mark.parametrize("setting", ["decoder.kind=gru", "encoder.stage=2", "pixels.size=96"])
def test_a_setting_that_init_would_lose_is_refused(
    capsys: pytest.CaptureFixture[str], setting: str
) -> None:
    argv = ["train", "--config", "shapes_soft", "--init", "soft", "train.epochs=1", setting]
    assert main(argv) == 2
    assert f"error: {setting}: with --init this is the checkpoint's own" in capsys.readouterr().err


def test_too_little_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As torch says it: 256 TiB are more than any machine has."""

    def load(*_: object) -> None:
        torch.empty(2**46)

    monkeypatch.setattr(predict, "load", load)
    assert main(["caption", "photo.jpg"]) == 2
    error = capsys.readouterr().err
    assert "allocate" in error
    assert error.endswith("; lower decoder.*, train.batch_images or --batch\n")
    assert error.count("\n") == 1
