"""What the script says that grids take, by hand, and that its data are what it says."""

from pathlib import Path
from typing import Any

import pytest
from conftest import MakePicture, load_script

from showattend.config import DataSettings
from showattend.datasets import load_split
from showattend.images import open_photograph

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPTS)  # it borrows from benchmark.py
    return load_script("grids")


def test_bytes_by_hand(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """8x8 cells of 24 channels; lite0: 14x14 of 112 and 7x7 of 1280. Two bytes a number."""
    backbones = (("test_efficientnet", 1, False, 32), ("tf_efficientnet_lite0", 3, True, 224))
    monkeypatch.setattr(script, "BACKBONES", backbones)
    plain, fused = script.bytes_table().rows.values()
    assert plain["bytes an image"].value == 64 * 24 * 2
    assert (plain["cells"].value, plain["channels"].value) == (64, 24)
    assert fused["bytes an image"].value == (196 * 112 + 49 * 1280) * 2
    assert fused["COCO, GB"].value == pytest.approx(20.878, abs=1e-3)
    assert fused["with flips, GB"].value == pytest.approx(41.756, abs=1e-3)


def test_photographs_encoded_anew_all_differ(
    script: Any, make_picture: MakePicture, tmp_path: Path
) -> None:
    sources = [make_picture(f"{seed}.png", seed, (f"a dog {seed}",)) for seed in range(3)]
    script.encode_anew(sources, tmp_path / "images", 12)
    files = sorted((tmp_path / "images").iterdir())
    assert len({path.read_bytes() for path in files}) == len(files) == 12
    assert all(open_photograph(path).size == (32, 32) for path in files)
    script.write_captions(sources, 2, 12, tmp_path / "captions.csv")
    data = DataSettings(kind="folder", root=tmp_path / "images", captions=tmp_path / "captions.csv")
    train, val = load_split(data, "train"), load_split(data, "val")
    assert [picture.source for picture in [*val, *train]] == files
    assert [picture.captions[0] for picture in train[:3]] == ["a dog 1", "a dog 0", "a dog 1"]
