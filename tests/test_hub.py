"""Models as others of the Hub: saved, carded and loaded again, by the mixin's own calls."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import MakePicture
from huggingface_hub import ModelCard

from showattend import predict
from showattend.checkpoint import CONFIG, WEIGHTS, Checkpoint, CheckpointError
from showattend.hub import model_card
from showattend.predict import CaptionModel


@pytest.fixture
def model(checkpoint: Checkpoint) -> CaptionModel:
    return CaptionModel(checkpoint, "runs/tiny")


@pytest.mark.usefixtures("no_network")
def test_what_is_saved_is_loaded(
    tmp_path: Path, model: CaptionModel, make_picture: MakePicture
) -> None:
    folder = tmp_path / "saved"
    for _ in range(2):  # also over an older one
        model.save_pretrained(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", CONFIG, WEIGHTS]
    loaded = CaptionModel.from_pretrained(folder, device="cpu")
    assert isinstance(loaded, CaptionModel)
    assert loaded.name == str(folder)
    assert loaded.checkpoint.origin == {"run": "tiny"}
    photo = make_picture("a.png").source
    assert isinstance(photo, Path)
    assert loaded.caption(photo).log_prob == model.caption(photo).log_prob
    before, after = (m.checkpoint.captioner.state_dict() for m in (model, loaded))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_card_that_somebody_wrote_stays(tmp_path: Path, model: CaptionModel) -> None:
    (tmp_path / "README.md").write_text("mine")
    model.save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"


def test_what_was_saved_before_stays_when_the_new_cannot_be(
    tmp_path: Path, model: CaptionModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    (folder / "README.md").write_text("mine")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(folder: Path, *_: object) -> None:
        (folder / WEIGHTS).write_bytes(b"the beginning")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(predict, "write_checkpoint", full)
    with pytest.raises(OSError, match="No space left"):
        model.save_pretrained(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_anothers_model_is_not_overwritten(tmp_path: Path, model: CaptionModel) -> None:
    (tmp_path / CONFIG).write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="holds other files"):
        model.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG]


@pytest.mark.parametrize("content", [b"{", b"[]", b"null", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_config_is_named(tmp_path: Path, model: CaptionModel, content: bytes) -> None:
    model.save_pretrained(tmp_path)
    (tmp_path / CONFIG).write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json: is no") as caught:
        CaptionModel.from_pretrained(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nowhere/at-all", "/no/such/folder", "a b"])
def test_a_name_of_nothing_is_one_line(name: str) -> None:
    """Without a way to the Hub, too."""
    with pytest.raises(CheckpointError, match="is no folder, and could not be had") as caught:
        CaptionModel.from_pretrained(name, local_files_only=True)
    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_whole_is_refused(tmp_path: Path, model: CaptionModel) -> None:
    model.save_pretrained(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read"):
        CaptionModel.from_pretrained(tmp_path, device="cpu")
    (tmp_path / CONFIG).unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: not found; a checkpoint is a folder"):
        CaptionModel.from_pretrained(tmp_path, device="cpu")


def test_unknown_arguments_are_refused(tmp_path: Path, model: CaptionModel) -> None:
    model.save_pretrained(tmp_path)
    with pytest.raises(TypeError, match="from_pretrained: has no argument 'beam'"):
        CaptionModel.from_pretrained(tmp_path, beam=3)


def test_the_card_tells_what_the_checkpoint_knows(tmp_path: Path, checkpoint: Checkpoint) -> None:
    origin = {"run": "a|b\n", "data": "flickr8k", "seed": 3, "BLEU-4": 21.8695, "CIDEr-D": 53.6}
    card = model_card(replace(checkpoint, origin=origin), name="soft", repository="me/soft")
    card.save(tmp_path / "README.md")
    read = ModelCard.load(tmp_path / "README.md")
    assert read.data.license == "other"
    assert read.data.license_name == "as the terms of flickr8k"
    assert read.data.library_name == "showattend"
    results = {result.metric_name: result.metric_value for result in read.data.eval_results or []}
    assert results == {"BLEU-4": 21.87, "CIDEr-D": 53.6}
    assert "| run | a\\|b |\n| data | flickr8k |\n| seed | 3 |\n| BLEU-4 | 21.8695 |" in read.text
    assert 'CaptionModel.from_pretrained("me/soft")' in read.text
    assert '"name": "test_efficientnet"' in read.text
    assert "Not for decisions about people." in read.text


def test_license_and_limits_are_the_publishers(model: CaptionModel) -> None:
    card = model.generate_model_card(license="cc-by-4.0", limits="Of drawn shapes alone.")
    assert card.data.license == "cc-by-4.0"
    assert "license_name" not in card.data.to_dict()
    assert card.text.rstrip().endswith("Of drawn shapes alone.")
    assert card.data.model_name == "tiny"
