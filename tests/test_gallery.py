"""The page of photographs that nobody chose: which they are, and what stands on it."""

from pathlib import Path
from types import ModuleType

import pytest
from conftest import MakePicture, load_script

from showattend.checkpoint import Checkpoint, save_checkpoint
from showattend.predict import CaptionModel


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("gallery")


def test_captions_are_the_models_own(
    script: ModuleType, checkpoint: Checkpoint, make_picture: MakePicture
) -> None:
    pictures = [make_picture(f"{i}.png", i, ("a dog",)) for i in range(3)]
    model = CaptionModel(checkpoint, "tiny")
    said = [caption.text for caption in script.captions(model, pictures)]
    assert said == [caption.text for caption in model.caption([each.name for each in pictures])]


def test_a_page_of_every_second(
    script: ModuleType,
    checkpoint: Checkpoint,
    make_picture: MakePicture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pictures = [make_picture(f"{i}.png", i, (f"caption <{i}>",)) for i in range(5)]
    monkeypatch.setattr(script, "load_split", lambda data, split: pictures)
    save_checkpoint(tmp_path / "tiny", checkpoint)
    model, out = str(tmp_path / "tiny"), tmp_path / "page.html"
    script.main(["--root", ".", "--models", model, "--every", "2", "--out", str(out)])
    page = out.read_text()
    assert [page.count(f"caption &lt;{i}&gt;") for i in range(5)] == [1, 0, 1, 0, 1]
    assert page.count("<img") == 3
    assert page.count(f"<h3>{model}</h3>") == 3
    assert len(capsys.readouterr().out.splitlines()) == 2 + 3


def test_every_must_be_one_or_more(script: ModuleType) -> None:
    with pytest.raises(SystemExit):
        script.main(["--root", ".", "--every", "0"])
