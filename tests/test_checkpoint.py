"""A model in a folder: it comes back as it was, and damage is one line."""

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from safetensors.torch import load_file, save_file

import showattend
from showattend.captioner import build_captioner
from showattend.checkpoint import (
    CONFIG,
    WEIGHTS,
    Checkpoint,
    CheckpointError,
    load_checkpoint,
    replaced_folder,
    save_checkpoint,
)
from showattend.config import EncoderSettings
from showattend.search import Caption, beam_search
from showattend.vocabulary import Vocabulary


class Killed(BaseException):
    """The process ends here: nothing may catch it and go on."""


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Checkpoint) -> Path:
    save_checkpoint(tmp_path / "best", checkpoint)
    return tmp_path / "best"


def captions(checkpoint: Checkpoint) -> list[list[Caption]]:
    captioner = checkpoint.captioner
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        scene = captioner.look(captioner.grid(pixels))
    return beam_search(captioner, checkpoint.vocabulary, scene, checkpoint.search)


def assert_same_model(one: Checkpoint, other: Checkpoint) -> None:
    ours, theirs = one.captioner.state_dict(), other.captioner.state_dict()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def changed(checkpoint: Checkpoint) -> Checkpoint:
    """The same with other weights and another origin."""
    checkpoint.captioner.decoder.gate.bias.data.add_(1.0)
    return replace(checkpoint, origin={"run": "later"})


def complaint(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(folder)
    line = str(caught.value)
    assert "\n" not in line
    return line


# What is saved comes back


def test_a_round_trip_keeps_every_bit(folder: Path, checkpoint: Checkpoint) -> None:
    loaded = load_checkpoint(folder)
    assert_same_model(loaded, checkpoint)
    assert loaded.vocabulary.words == checkpoint.vocabulary.words
    for name in ("pixels", "encoder", "decoder", "search", "origin"):
        assert getattr(loaded, name) == getattr(checkpoint, name)
    assert not loaded.captioner.training
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]


def test_captions_and_attention_are_the_same(folder: Path, checkpoint: Checkpoint) -> None:
    for ours, theirs in zip(captions(load_checkpoint(folder)), captions(checkpoint), strict=True):
        assert [c.words for c in ours] == [c.words for c in theirs]
        assert [c.log_prob for c in ours] == [c.log_prob for c in theirs]
        assert all((a.alpha == b.alpha).all() for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("where", ["stage", "block"])
@pytest.mark.parametrize("kind", ["se", "eca", "cbam"])
def test_channel_attention_comes_back(
    tmp_path: Path, checkpoint: Checkpoint, kind: str, where: str
) -> None:
    tree = checkpoint.encoder.model_dump()
    gates = {"kind": kind, "where": where, "stages": [-1], "reduction": 4}
    encoder = EncoderSettings(**tree | {"channel_attention": gates})
    captioner = build_captioner(encoder, checkpoint.decoder, size=32, words=9).eval()
    for name, parameter in captioner.named_parameters():
        if "channel_attention" in name:
            torch.nn.init.normal_(parameter)
    gated = replace(checkpoint, captioner=captioner, encoder=encoder)
    save_checkpoint(tmp_path / "gated", gated)
    loaded = load_checkpoint(tmp_path / "gated")
    assert loaded.encoder == encoder
    assert_same_model(loaded, gated)
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    scenes = [model.captioner.look(model.captioner.grid(pixels)) for model in (loaded, gated)]
    assert torch.equal(scenes[0].grid_BPC, scenes[1].grid_BPC)


def test_a_checkpoint_from_before_channel_attention_is_read(
    folder: Path, checkpoint: Checkpoint
) -> None:
    assert not any("channel_attention" in name for name in load_file(folder / WEIGHTS))
    tree = json.loads((folder / CONFIG).read_text())
    assert tree["encoder"].pop("channel_attention") is None
    (folder / CONFIG).write_text(json.dumps(tree))
    assert_same_model(load_checkpoint(folder), checkpoint)


def test_half_precision_is_half_the_size_and_close(tmp_path: Path, checkpoint: Checkpoint) -> None:
    save_checkpoint(tmp_path / "whole", checkpoint)
    save_checkpoint(tmp_path / "half", checkpoint, dtype=torch.float16)
    stored = load_file(tmp_path / "half" / WEIGHTS)
    assert {value.dtype for value in stored.values()} == {torch.float16, torch.int64}
    sizes = [(tmp_path / name / WEIGHTS).stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.7 * sizes[1]  # names take their share of a model this small
    loaded = load_checkpoint(tmp_path / "half").captioner.state_dict()
    for name, value in checkpoint.captioner.state_dict().items():
        assert loaded[name].dtype == value.dtype
        torch.testing.assert_close(loaded[name], value, rtol=2**-11, atol=1e-7)
        assert torch.equal(loaded[name].half(), value.half())


def test_tied_weights_are_stored_once_and_tied_again(folder: Path, checkpoint: Checkpoint) -> None:
    stored = load_file(folder / WEIGHTS)
    assert "decoder.embed.weight" in stored
    assert "decoder.word_logits.weight" not in stored
    decoder = load_checkpoint(folder).captioner.decoder
    assert decoder.word_logits.weight is decoder.embed.weight
    assert stored.keys() | {"decoder.word_logits.weight"} == (
        checkpoint.captioner.state_dict().keys()
    )


def test_untied_weights_are_both_stored(tmp_path: Path, checkpoint: Checkpoint) -> None:
    decoder = checkpoint.decoder.model_copy(update={"tie_embeddings": False})
    untied = build_captioner(checkpoint.encoder, decoder, size=32, words=9)
    save_checkpoint(tmp_path / "x", replace(checkpoint, captioner=untied, decoder=decoder))
    loaded = load_checkpoint(tmp_path / "x")
    assert_same_model(loaded, replace(checkpoint, captioner=untied))
    weights = loaded.captioner.decoder
    assert not torch.equal(weights.word_logits.weight, weights.embed.weight)


def test_the_config_is_for_people_too(folder: Path) -> None:
    tree = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    assert tree["showattend"] == showattend.__version__
    assert tree["vocabulary"] == ["a", "dog", "cat", "on", "grass"]  # without the specials
    assert tree["origin"] == {"run": "tiny"}
    assert tree["pixels"]["mean"] == [0.5, 0.5, 0.5]


def test_words_of_all_alphabets_come_back(tmp_path: Path, checkpoint: Checkpoint) -> None:
    words = Vocabulary(["café", "犬", "n't", '"', "\\"])
    save_checkpoint(tmp_path / "x", replace(checkpoint, vocabulary=words))
    assert load_checkpoint(tmp_path / "x").vocabulary.words == words.words


def test_loading_needs_no_network(tmp_path: Path, checkpoint: Checkpoint, no_network: None) -> None:
    """Even where the settings say that training began from ImageNet weights."""
    encoder = checkpoint.encoder.model_copy(update={"pretrained": True})
    save_checkpoint(tmp_path / "x", replace(checkpoint, encoder=encoder))
    assert_same_model(load_checkpoint(tmp_path / "x"), checkpoint)


def test_nothing_is_pickled(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("pickled")

    for owner, name in [(pickle, "dumps"), (pickle, "dump"), (pickle, "loads"), (pickle, "load")]:
        monkeypatch.setattr(owner, name, refuse)
    for name in ("load", "save"):
        monkeypatch.setattr(torch, name, refuse)
    save_checkpoint(tmp_path / "x", checkpoint)
    assert_same_model(load_checkpoint(tmp_path / "x"), checkpoint)


# Damage


class Trap:
    """Unpickling it leaves a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("format_", ["torch", "torch, as before 1.6", "pickle"])
def test_a_pickle_is_refused_unopened(folder: Path, tmp_path: Path, format_: str) -> None:
    trap = {"weights": Trap(tmp_path / "sprung")}
    if format_ == "pickle":
        (folder / WEIGHTS).write_bytes(pickle.dumps(trap))
    else:
        zipped = format_ == "torch"
        torch.save(trap, folder / WEIGHTS, _use_new_zipfile_serialization=zipped)
    assert complaint(folder).startswith(f"{folder / WEIGHTS}: cannot be read (")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("kept", [0, 4, 100, -5000, -1])
def test_torn_weights_are_refused(folder: Path, kept: int) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:kept])
    assert complaint(folder).startswith(f"{folder / WEIGHTS}: cannot be read (")


def test_garbage_for_weights_is_refused(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(os.urandom(5000))
    assert complaint(folder).startswith(f"{folder / WEIGHTS}: cannot be read (")


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    expected = "not found; a checkpoint is a folder with model.safetensors and config.json"
    assert complaint(tmp_path / "no") == f"{tmp_path / 'no' / CONFIG}: {expected}"
    assert complaint(folder / CONFIG) == f"{folder / CONFIG / CONFIG}: {expected}"  # a file
    (folder / WEIGHTS).unlink()
    assert complaint(folder).startswith(f"{folder / WEIGHTS}: cannot be read (")
    (folder / CONFIG).unlink()
    assert complaint(folder) == f"{folder / CONFIG}: {expected}"


def edit(folder: Path, **changes: object) -> None:
    tree = json.loads((folder / CONFIG).read_text()) | changes
    tree = {key: value for key, value in tree.items() if value is not None}
    (folder / CONFIG).write_text(json.dumps(tree))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"format": 2}, "is not a showattend checkpoint of format 1"),
        ({"format": None}, "is not a showattend checkpoint of format 1"),
        ({"decoder": None}, "`decoder` is missing"),
        ({"decodr": {}}, "unknown key `decodr`; did you mean `decoder`?"),
        ({"search": {"beam": 3}}, "unknown key `search.beam`; did you mean `beam_size`?"),
        ({"vocabulary": "a dog"}, "`vocabulary` is 'a dog': input should be a valid list"),
        (
            {"vocabulary": ["a", "a"]},
            "vocabulary: a word is listed twice, or is one of the four specials",
        ),
        (
            {"encoder": {"name": "resnet5"}},
            "encoder.name resnet5: unknown CNN; did you mean resnet50?",
        ),
    ],
)
def test_a_wrong_config_is_one_line(
    folder: Path, changes: dict[str, object], expected: str
) -> None:
    edit(folder, **changes)
    assert complaint(folder) == f"{folder / CONFIG}: {expected}"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe{}", b"{'a': 1}"])
def test_a_config_that_is_not_json_is_refused(folder: Path, content: bytes) -> None:
    (folder / CONFIG).write_bytes(content)
    assert complaint(folder) == f"{folder / CONFIG}: is not JSON; the checkpoint is damaged"


def test_a_config_that_is_no_object_is_refused(folder: Path) -> None:
    (folder / CONFIG).write_text("[1, 2]")
    assert complaint(folder) == (f"{folder / CONFIG}: is not a showattend checkpoint of format 1")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder: Path, value: float) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["decoder.word_logits.bias"][3] = value
    save_file(weights, folder / "model.safetensors")
    assert "decoder.word_logits.bias holds what is no number" in complaint(folder)


def test_weights_of_another_model_are_refused(folder: Path) -> None:
    path = folder / WEIGHTS
    whole = load_file(path)
    gate = "decoder.gate.weight"
    for stored in (
        {name: value for name, value in whole.items() if name != gate},
        whole | {gate: torch.zeros(2, 6)},
        {("decoder.gate.w" if name == gate else name): v for name, v in whole.items()},
    ):
        save_file(stored, path)
        line = complaint(folder)
        assert line.startswith(f"{path}: ")
        assert "do not fit its config.json, such as decoder.gate.w" in line
    save_file(whole, path)
    edit(folder, vocabulary=["a", "dog"])  # a word for each row, or none is right
    assert "2 tensors do not fit its config.json, such as decoder.embed.weight" in complaint(folder)


# Whole or not at all


def test_saving_again_replaces_the_older_one(folder: Path, checkpoint: Checkpoint) -> None:
    later = changed(checkpoint)
    save_checkpoint(folder, later)
    assert_same_model(load_checkpoint(folder), later)
    assert load_checkpoint(folder).origin == {"run": "later"}
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_what_others_put_into_the_folder_stays(folder: Path, checkpoint: Checkpoint) -> None:
    (folder / "README.md").write_text("a card")
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("mine")
    save_checkpoint(folder, checkpoint)
    assert (folder / "README.md").read_text() == "a card"
    assert (folder / "notes" / "a.txt").read_text() == "mine"


def test_another_programs_config_does_not_make_a_checkpoint(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(CheckpointError, match="holds other files"):
        save_checkpoint(tmp_path, checkpoint)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_missing_parents_are_made(tmp_path: Path, checkpoint: Checkpoint) -> None:
    save_checkpoint(tmp_path / "runs" / "one" / "best", checkpoint)
    assert_same_model(load_checkpoint(tmp_path / "runs" / "one" / "best"), checkpoint)


def test_a_write_that_fails_leaves_the_older_one(
    folder: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def disk_full(path: Path, _: bytes) -> NoReturn:
        path.write_text("half a fi")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", disk_full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(folder, changed(checkpoint))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_a_first_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replaced_folder(tmp_path / "best") as new:
        assert not (tmp_path / "best").exists()
        (new / "file").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """End the next save at one of its last steps, none of which a ``finally`` could undo."""
    rename, renames = os.rename, iter(range(1, 3))

    def counted(*paths: Path) -> None:
        number = next(renames)
        if moment == f"before rename {number}":
            raise Killed
        rename(*paths)
        if moment == f"after rename {number}":
            raise Killed

    monkeypatch.setattr(os, "rename", counted)


@pytest.mark.parametrize(
    ("moment", "survivor"),
    [
        ("before rename 1", "tiny"),
        ("after rename 1", "tiny"),
        ("before rename 2", "tiny"),
        ("after rename 2", "later"),
    ],
)
def test_a_kill_leaves_one_whole_checkpoint(
    folder: Path,
    checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    survivor: str,
) -> None:
    later = changed(checkpoint)
    with monkeypatch.context() as patched:
        kill_at(patched, moment)
        with pytest.raises(Killed):
            save_checkpoint(folder, later)
    assert load_checkpoint(folder).origin == {"run": survivor}
    # and the next save works, and clears what the kill left
    save_checkpoint(folder, replace(later, origin={"run": "last"}))
    assert load_checkpoint(folder).origin == {"run": "last"}
    assert [path.name for path in folder.parent.iterdir()] == ["best"]


def test_saving_right_after_a_kill_between_the_renames(
    folder: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a load in between, which would have repaired it; and failing once more."""
    with monkeypatch.context() as patched:
        kill_at(patched, "after rename 1")
        with pytest.raises(Killed):
            save_checkpoint(folder, changed(checkpoint))
    with pytest.raises(KeyboardInterrupt), replaced_folder(folder):
        raise KeyboardInterrupt
    assert load_checkpoint(folder).origin == {"run": "tiny"}


def test_half_a_folder_of_a_killed_save_is_not_mixed_in(
    folder: Path, checkpoint: Checkpoint
) -> None:
    half = folder.parent / ".best.new"
    half.mkdir()
    (half / "stray").touch()
    save_checkpoint(folder, checkpoint)
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS]
    assert not half.exists()
