"""The page of what fires a channel: the photographs of its ends, and the mistakes of who asks."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import MakePicture, load_script, with_gates
from PIL import Image

from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.images import ImageError
from showattend.predict import load

script: Any = load_script("channel_images")

NAMES = [f"{letter}.png" for letter in "abcdefg"]


@pytest.fixture
def model(checkpoint: Checkpoint, tmp_path: Path) -> Path:
    """Its grid has gates, on 24 channels."""
    save_checkpoint(tmp_path / "gated", with_gates(checkpoint))
    return tmp_path / "gated"


@pytest.fixture
def photos(make_picture: MakePicture, tmp_path: Path) -> list[str]:
    for seed, name in enumerate(NAMES):
        make_picture(name, seed)
    return [str(tmp_path / name) for name in NAMES]


def test_the_ends_by_hand() -> None:
    """None is at both ends, and the one in the middle counts as high."""
    gate = dict(zip("abcde", (1.0, 0.5, 2.0, 0.25, 1.5), strict=True))
    assert script.ends_of(gate, 2) == (["c", "e"], ["d", "b"])
    assert script.ends_of(gate, 9) == (["c", "e", "a"], ["d", "b"])
    assert script.ends_of({"a": 1.0}, 2) == (["a"], [])


def test_the_channels_that_vary_most_by_hand() -> None:
    """Deviations 0, 0.5, 1 and 0.5."""
    gates = {"a": np.array([1.9, 1.0, 2.0, 0.5]), "b": np.array([1.9, 0.0, 0.0, 1.5])}
    assert script.most_varied(gates, 1) == [2]
    assert script.most_varied(gates, 3) == [2, 1, 3]


def test_a_channel_has_one_scale() -> None:
    """Half as active is half as far up the colours; below zero is nothing."""
    photo = Image.new("RGB", (20, 20), (128, 128, 128))
    shown = {name: script.Seen(name, photo, torch.empty(0)) for name in "abc"}
    active = {
        "a": np.array([[0.0, 4.0]], np.float32),
        "b": np.array([[2.0, -4.0]], np.float32),
        "c": np.array([[2.0, 4.0]], np.float32),
    }
    drawn = {k: np.asarray(v) for k, v in script.overlays(shown, active, "squash").items()}
    left, right, row = 0, 19, 10
    np.testing.assert_array_equal(drawn["a"][row, left], drawn["b"][row, right])
    np.testing.assert_array_equal(drawn["a"][row, right], drawn["c"][row, right])
    np.testing.assert_array_equal(drawn["b"][row, left], drawn["c"][row, left])
    brightness = [int(drawn["c"][row, x].sum()) for x in (left, right)]
    assert int(drawn["a"][row, left].sum()) < brightness[0] < brightness[1]
    silent = script.overlays(shown, {"a": np.zeros((1, 2), np.float32)}, "squash")
    assert np.ptp(np.asarray(silent["a"])) == 0


def test_the_page_shows_the_photographs_of_the_ends(
    model: Path, photos: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, odd = tmp_path / "a&b.html", tmp_path / "odd.png"
    odd.write_text("no image")
    options = ["--model", str(model), "--out", str(out), "--channels", "20,3", "--images-each", "2"]
    script.main([*options, "--images", *photos[:3], str(odd), *photos[3:]])
    told, complaints = capsys.readouterr()
    assert told == f"{out}: 2 channels, 7 photographs\n"
    assert [line for line in complaints.splitlines() if "left out" in line] == [
        f"left out: {odd}: is no image that can be read; save it as JPEG or PNG"
    ]
    html = out.read_text()
    assert re.findall(r"<h2>Channel (\d+)", html) == ["20", "3"]
    assert "http" not in html and "over 7 photographs" in html
    assert html.count('src="data:image/jpeg;base64,/9j/') == 2 * 4
    gates_NC = np.stack([load(model).channel_gates(photo)["grid"] for photo in photos])
    for channel, section in zip((20, 3), html.split("<h2>")[1:], strict=True):
        gates_N = gates_NC[:, channel]
        order = np.argsort(-gates_N)
        ends = [*order[:2], *order[:-3:-1]]
        assert re.findall(r'alt="(.\.png)"', section) == [NAMES[k] for k in ends]
        values = [float(value) for value in re.findall(r"<figcaption>([\d.]+)<", section)]
        np.testing.assert_allclose(values, gates_N[ends], atol=0.0051)
        found = re.search(r"Gates ([\d.]+) to ([\d.]+), mean ([\d.]+), .* ([\d.]+)\.\n", section)
        assert found is not None
        expected = (gates_N.min(), gates_N.max(), gates_N.mean(), gates_N.std())
        np.testing.assert_allclose(np.array(found.groups(), float), expected, atol=0.0051)


def test_without_channels_those_that_vary_most_are_shown(
    model: Path, photos: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    folder = str(Path(photos[0]).parent)
    script.main(["--model", str(model), "--images", folder, "--out", str(out), "--varied", "3"])
    gates_NC = np.stack([load(model).channel_gates(photo)["grid"] for photo in photos])
    channels = re.findall(r"<h2>Channel (\d+)", out.read_text())
    assert [int(channel) for channel in channels] == np.argsort(-gates_NC.std(axis=0))[:3].tolist()


def test_mistakes_are_one_line(
    model: Path, checkpoint: Checkpoint, photos: list[str], tmp_path: Path
) -> None:
    save_checkpoint(tmp_path / "plain", checkpoint)
    out = ["--out", str(tmp_path / "page.html")]
    with pytest.raises(script.ChannelsError, match=r"plain: no gates on its grid; use a model"):
        script.main(["--model", str(tmp_path / "plain"), "--images", photos[0], *out])
    wanted = ["--model", str(model), *out, "--images"]
    with pytest.raises(
        script.ChannelsError, match=r"^--channels 24: the grid has channels 0 to 23$"
    ):
        script.main([*wanted, photos[0], "--channels", "3,24"])
    with pytest.raises(ImageError, match=r"^--images: none of the photographs can be opened$"):
        script.main([*wanted, str(tmp_path / "gated" / "config.json")])
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--channels", "3,x"], "'3,x': expected channels such as 3,17"),
        (["--varied", "0"], "'0': expected a whole number from 1 on"),
        (["--channels", "3", "--varied", "2"], "not allowed with"),
    ],
)
def test_what_cannot_be_meant(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.main(["--model", "m", "--images", "i", "--out", "o", *words])
    assert said in capsys.readouterr().err
