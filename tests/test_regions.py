"""Regions in place of a grid: their files, batches of any number, training and captioning."""

import builtins
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import MakeDecoder, ragged
from PIL import Image

from showattend import scorecard
from showattend import train as train_module
from showattend.ablate import check_runs
from showattend.ablation_plan import AblateError, Job
from showattend.app import caption_tab, uploads
from showattend.app.models import Models
from showattend.app.shared import Shared
from showattend.boxes import load_boxes
from showattend.captioner import Captioner
from showattend.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from showattend.cli import main
from showattend.config import (
    ConfigError,
    DataSettings,
    HardSettings,
    SearchSettings,
    Settings,
    check_settings,
    read_settings,
)
from showattend.datasets import Picture, load_split
from showattend.decoder import Scene
from showattend.encoder import EncoderError, GridShape
from showattend.grounding import attend_sentences
from showattend.items import as_items
from showattend.java_metrics import JavaError
from showattend.losses import doubly_stochastic_penalty, word_loss
from showattend.predict import CaptionModel, load
from showattend.regions import RegionFile, RegionsError, check_regions, open_regions
from showattend.reinforce import MovingAverage, hard_attention_step
from showattend.search import Boxes, Caption, beam_search, pick_words
from showattend.sides import CompareError, caption_sides, find_sides
from showattend.train import TrainError, resume_run, start_run, train
from showattend.vocabulary import Vocabulary

CPU = torch.device("cpu")
SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
C = 5
COUNTS = [1, 4, 9]
Regions = tuple[np.ndarray, np.ndarray]
Arrays = Mapping[str, np.ndarray]


def regions(count: int, seed: int = 0, channels: int = C) -> Regions:
    """Features (n, C) and boxes (n, 4)."""
    random = np.random.default_rng(seed)
    low_P2 = random.uniform(0, 0.5, (count, 2))
    boxes_P4 = np.hstack([low_P2, low_P2 + random.uniform(0.1, 0.5, (count, 2))])
    return random.normal(size=(count, channels)).astype(np.float32), boxes_P4.astype(np.float32)


def write_npz(path: Path, arrays: Arrays) -> None:
    np.savez(path, **arrays)


def write_compressed(path: Path, arrays: Arrays) -> None:
    np.savez_compressed(path, **arrays)


def write_hdf5(path: Path, arrays: Arrays) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for key, values in arrays.items():
            file[key] = values


WRITERS: dict[str, Callable[[Path, Arrays], None]] = {
    "plain.npz": write_npz,
    "small.npz": write_compressed,
    "all.h5": write_hdf5,
    "all.HDF5": write_hdf5,
}


def as_arrays(named: Mapping[str, Regions]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, (features_PC, boxes_P4) in named.items():
        arrays |= {f"{name}/features": features_PC, f"{name}/boxes": boxes_P4}
    return arrays


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITERS)
def test_regions_come_back_from_a_file(tmp_path: Path, name: str) -> None:
    named = {"beach": regions(3), "a dog.on": regions(1, 1), "7": regions(9, 2)}
    WRITERS[name](tmp_path / name, as_arrays(named))
    file = RegionFile(tmp_path / name, C)
    for key, (features_PC, boxes_P4) in named.items():
        found_PC, found_P4 = file.read(key)
        np.testing.assert_array_equal(found_PC, features_PC)
        np.testing.assert_array_equal(found_P4, boxes_P4)
        np.testing.assert_array_equal(file.boxes(key), boxes_P4)


@pytest.mark.parametrize("name", ["plain.npz", "all.h5"])
def test_pictures_are_read_by_the_stem_of_their_file(tmp_path: Path, name: str) -> None:
    named = {f"{count}": regions(count, count) for count in COUNTS}
    WRITERS[name](tmp_path / name, as_arrays(named))
    pictures = [Picture(100 + count, tmp_path / f"{count}.jpg", ("a dog",)) for count in COUNTS]
    reader = open_regions(tmp_path / name, C, pictures)  # no photograph is there, nor needed
    assert reader.pictures == pictures
    items = reader.read([2, 0], [False, False])
    assert items.features_BPC.shape == (2, 9, C)
    assert items.features_BPC.dtype == torch.float32
    assert items.mask_BP.sum(dim=1).tolist() == [9, 1]
    assert torch.equal(items.features_BPC[0], torch.from_numpy(named["9"][0]))
    assert torch.equal(items.boxes_BP4[1, :1], torch.from_numpy(named["1"][1]))
    assert not items.features_BPC[1, 1:].any()
    assert not items.boxes_BP4[1, 1:].any()


def test_two_photographs_of_one_name_are_refused(tmp_path: Path) -> None:
    write_npz(tmp_path / "r.npz", as_arrays({"a": regions(1)}))
    twins = [Picture(i, tmp_path / f"{i}" / "a.jpg", ("a dog",)) for i in range(2)]
    with pytest.raises(RegionsError, match=r"r\.npz: 2 photographs are called a; give"):
        open_regions(tmp_path / "r.npz", C, twins)


def changed(**arrays: Any) -> dict[str, np.ndarray]:
    """The regions of `a`, three of them, but for what is given."""
    return as_arrays({"a": regions(3)}) | {f"a/{key}": value for key, value in arrays.items()}


def box(*corners: float) -> np.ndarray:
    return np.vstack([regions(2)[1], np.array([corners])])


NAN_BOX = box(0, 0, float("nan"), 1)
WRONG: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "other": (as_arrays({"b": regions(3)}), "has no a/features; every photograph needs"),
    "no boxes": ({"a/features": regions(3)[0]}, "has no a/boxes"),
    "width": (changed(features=regions(3, channels=4)[0]), r"a/features is \(3, 4\): .*\(3, 5\)"),
    "count": (changed(features=regions(2)[0]), r"a/features is \(2, 5\): expected \(3, 5\)"),
    "axes": (changed(boxes=np.zeros(4)), r"a/boxes is \(4\): expected \(n, 4\), n at least 1"),
    "corners": (changed(boxes=np.zeros((3, 5))), r"a/boxes is \(3, 5\): expected \(n, 4\)"),
    "none": (as_arrays({"a": (np.zeros((0, C)), np.zeros((0, 4)))}), r"a/boxes is \(0, 4\)"),
    "feature": (changed(features=np.full((3, C), np.nan)), "a/features holds what is no number"),
    "text": (changed(features=np.full((3, C), "x", "S1")), "a/features holds what is no number"),
    "nan": (changed(boxes=NAN_BOX), "a/boxes holds what is no number"),
    "pixels": (changed(boxes=box(0, 0, 100, 50)), "in row 2 the box 0, 0, 100, 50: expected x0 <"),
    "outside": (changed(boxes=box(-0.1, 0, 0.5, 0.5)), r"the box -0\.1, 0, 0\.5, 0\.5"),
    "empty": (changed(boxes=box(0.5, 0, 0.5, 1)), r"the box 0\.5, 0, 0\.5, 1"),
    "turned": (changed(boxes=box(0, 0.9, 1, 0.1)), r"the box 0, 0\.9, 1, 0\.1"),
}


@pytest.mark.parametrize("name", ["plain.npz", "all.h5"])
@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_regions_is_one_line(tmp_path: Path, name: str, case: str) -> None:
    arrays, line = WRONG[case]
    WRITERS[name](tmp_path / name, arrays)
    with pytest.raises(RegionsError, match=line) as caught:
        RegionFile(tmp_path / name, C).read("a")
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert "\n" not in str(caught.value)


def test_nothing_is_ever_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    objects_PC = np.empty((3, C), object)
    objects_PC[:] = Evil()
    np.savez(tmp_path / "r.npz", **changed(features=objects_PC))
    with pytest.raises(RegionsError, match=r"the regions of a cannot be read \(Object arrays"):
        RegionFile(tmp_path / "r.npz", C).read("a")
    objects_PC.dump(tmp_path / "p.npz")  # a pickle that is called .npz
    with pytest.raises(RegionsError, match=r"p\.npz: cannot be read as \.npz \(File is not a zip"):
        RegionFile(tmp_path / "p.npz", C)
    assert not (tmp_path / "ran").exists()


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegionsError, match=r"r\.npz: no such file; name by data\.regions"):
        RegionFile(tmp_path / "r.npz", C)
    with pytest.raises(RegionsError, match=r"r\.tsv: regions come as \.npz, \.h5, \.hdf5"):
        RegionFile(tmp_path / "r.tsv", C)
    whole = tmp_path / "whole.npz"
    write_npz(whole, changed())
    content = bytearray(whole.read_bytes())
    place = content.index(changed()["a/features"].tobytes())
    content[place : place + 4] = b"torn"
    whole.write_bytes(content)
    with pytest.raises(RegionsError, match=r"the regions of a cannot be read \(Bad CRC"):
        RegionFile(whole, C).read("a")
    (tmp_path / "r.h5").write_bytes(b"no HDF5")
    imports = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "h5py":
            raise ImportError(name)
        return imports(name, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", without)
        with pytest.raises(RegionsError, match=r"pip install 'showattend\[hdf5\]', or give an"):
            RegionFile(tmp_path / "r.h5", C)
    pytest.importorskip("h5py")
    with pytest.raises(RegionsError, match=r"r\.h5: cannot be read as \.h5 \("):
        RegionFile(tmp_path / "r.h5", C)


def test_a_group_where_an_array_should_be(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "r.h5", {"a/features/x": np.zeros(3), "a/boxes": regions(3)[1]})
    with pytest.raises(RegionsError, match="the regions of a cannot be read"):
        RegionFile(tmp_path / "r.h5", C).read("a")


def test_arrays_are_checked_as_files_are() -> None:
    features_PC, boxes_P4 = regions(2)
    check_regions(features_PC, boxes_P4, C)
    check_regions(features_PC, boxes_P4 * 0 + [0, 0, 1.0005, 1], C)  # rounding is no mistake
    with pytest.raises(RegionsError, match=r"^features is \(2, 5\): expected \(2, 6\)"):
        check_regions(features_PC, boxes_P4, 6)
    with pytest.raises(RegionsError, match=r"^boxes has in row 0 the box"):
        check_regions(features_PC, boxes_P4 * 100, C)


# --- batches: as each image alone -----------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "lstm": {},
    "gru": {"kind": "gru", "projection": 6},
    "transformer": {"kind": "transformer", "layers": 2, "heads": 2, "attention": 4},
    "heads": {"heads": 3, "projection": 6, "word_in_query": True},
    "hard": {"look": "hard"},
}
BATCH = [regions(count, count) for count in COUNTS]


@pytest.fixture(scope="module")
def make_model(make_decoder: MakeDecoder) -> Callable[..., Captioner]:
    def make(**changes: Any) -> Captioner:
        item = GridShape(1, 1, C)
        if changes.get("heads") == 2:
            changes |= {"projection": 6}
        return Captioner(None, make_decoder(scale=2.0, grid=item, **changes), item).eval()

    return make


def rubbish(items: Any) -> Any:
    """The same with rubbish in the padding."""
    noise = torch.full_like(items.features_BPC, 1e4)
    return dataclasses.replace(
        items, features_BPC=torch.where(items.mask_BP.unsqueeze(-1), items.features_BPC, noise)
    )


def scene_of(captioner: Captioner, batch: list[Regions]) -> Scene:
    return captioner.look(rubbish(as_items(batch)))


@pytest.mark.parametrize("kind", KINDS)
def test_training_on_a_batch_is_training_on_each_image(
    make_model: Callable[..., Captioner], kind: str
) -> None:
    """Logits, losses and the penalty of images with 1, 4 and 9 regions."""
    captioner = make_model(**KINDS[kind])
    words_BKT = ragged([[5, 4], [5, 2], [3, 3]])
    scene = scene_of(captioner, BATCH)
    taught = captioner.decoder.teach(scene, words_BKT)
    logits_BKTV = torch.stack([taught.place(column) for column in taught.logits_NV.T], dim=-1)
    total, words, penalties = 0.0, 0, []
    for b, of_image in enumerate(BATCH):
        alone = captioner.look(as_items([of_image]))
        told = captioner.decoder.teach(alone, words_BKT[b : b + 1])
        found_NV = logits_BKTV[b].transpose(0, 1)[told.spoken_BKT[0].T]
        torch.testing.assert_close(found_NV, told.logits_NV)
        total += word_loss(told.logits_NV, told.targets_N, 0.1).item() * len(told.targets_N)
        words += len(told.targets_N)
        for target in ("one", "words_over_cells"):
            own = doubly_stochastic_penalty(told.mean_alpha(), told.spoken_BKT, target)
            penalties.append(own.item())
    loss = word_loss(taught.logits_NV, taught.targets_N, 0.1)
    assert loss.item() == pytest.approx(total / words, rel=1e-5)
    for number, target in enumerate(("one", "words_over_cells")):
        penalty = doubly_stochastic_penalty(
            taught.mean_alpha(), taught.spoken_BKT, target, scene.mask_BP
        )
        assert penalty.item() == pytest.approx(np.mean(penalties[number::2]), rel=1e-5)


def test_gradients_of_a_batch_are_finite_and_those_of_each_image(
    make_model: Callable[..., Captioner],
) -> None:
    captioner = make_model(projection=6)
    words_BKT = ragged([[4], [4], [4]])

    def gradient(batch: list[Regions], words: torch.Tensor) -> torch.Tensor:
        taught = captioner.decoder.teach(scene_of(captioner, batch), words)
        loss = word_loss(taught.logits_NV, taught.targets_N, 0.0)
        weight = captioner.decoder.project.linear.weight
        return torch.autograd.grad(loss, weight)[0]

    each = [gradient([BATCH[b]], words_BKT[b : b + 1]) for b in range(3)]
    torch.testing.assert_close(gradient(BATCH, words_BKT), torch.stack(each).mean(dim=0))


@pytest.mark.parametrize("estimator", ["reinforce", "gumbel"])
def test_hard_attention_never_chooses_what_is_not_there(
    make_model: Callable[..., Captioner], estimator: str
) -> None:
    captioner = make_model(look="hard")
    settings = HardSettings(estimator=estimator, expectation=(0.0, 0.0), samples=50)
    torch.manual_seed(0)
    scene = scene_of(captioner, BATCH)
    total, taught = hard_attention_step(
        captioner.decoder, scene, ragged([[4], [4], [4]]), settings, MovingAverage(9)
    )
    assert total.isfinite()
    assert scene.mask_BP is not None
    missing_BP = ~scene.mask_BP
    assert not (taught.mean_alpha() * missing_BP[:, None, None, :]).any()
    # Log probabilities of cells that are there: none is that of a weight of 0.
    assert taught.log_chosen_BKT.min() > -60


def assert_same(found: Caption, alone: Caption) -> None:
    assert found.words == alone.words
    assert found.log_prob == pytest.approx(alone.log_prob, rel=1e-5)
    np.testing.assert_allclose(found.weights, alone.weights, atol=1e-6)
    np.testing.assert_allclose(found.alpha, alone.alpha, atol=1e-6)
    if alone.heads is not None:
        assert found.heads is not None
        np.testing.assert_allclose(found.heads, alone.heads, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_captions_of_a_batch_are_those_of_each_image(
    make_model: Callable[..., Captioner], vocabulary: Vocabulary, kind: str, beam_size: int
) -> None:
    captioner = make_model(**KINDS[kind])
    search = SearchSettings(beam_size=beam_size, max_words=6)
    batch = beam_search(captioner, vocabulary, scene_of(captioner, BATCH), search)
    for found, of_image in zip(batch, BATCH, strict=True):
        scene = captioner.look(as_items([of_image]))
        (alone,) = beam_search(captioner, vocabulary, scene, search)
        assert len(found) == len(alone)
        for ours, theirs in zip(found, alone, strict=True):
            assert_same(ours, theirs)
            assert isinstance(ours.regions, Boxes)
            np.testing.assert_array_equal(ours.regions.boxes_P4, of_image[1])
            assert ours.weights.shape == (len(ours.words), len(of_image[1]))
            np.testing.assert_allclose(ours.weights.sum(axis=1), 1, rtol=1e-5)


def test_a_single_region_is_looked_at_by_every_word(
    make_model: Callable[..., Captioner], vocabulary: Vocabulary
) -> None:
    captioner = make_model()
    scene = scene_of(captioner, BATCH)
    caption = pick_words(captioner, vocabulary, scene, max_words=4)[0]
    assert (caption.weights == 1.0).all()
    for ask in (caption.maps, caption.alpha_maps):
        with pytest.raises(ValueError, match=r"regions and not at a grid: there are no maps; take"):
            ask()


# --- settings -------------------------------------------------------------------------------------


def tree(**sections: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, dict[str, Any]] = {
        "data": {"kind": "shapes", "regions": "r.npz", "train_images": 6, "val_images": 3},
        "encoder": {"name": "regions", "channels": C},
        "decoder": {"embedding": 8, "hidden": 12, "attention": 6, "projection": 10},
        "train": {"epochs": 2, "batch_images": 4, "learning_rate": 0.01, "max_words": 8},
        "search": {"beam_size": 2, "max_words": 8},
    }
    return plain | {name: plain.get(name, {}) | keys for name, keys in sections.items()}


REFUSED: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "coordinates": ({"decoder": {"coordinates": True}}, "decoder.coordinates: belongs to a grid"),
    "glimpse": ({"decoder": {"glimpse": 3}}, "decoder.glimpse: belongs to a grid of cells"),
    "grid layers": ({"decoder": {"grid_layers": 1}}, "decoder.grid_layers: belongs to a grid"),
    "stage": ({"encoder": {"stage": 3}}, "encoder.stage: belongs to a grid"),
    "fused": ({"encoder": {"fused": True}}, "encoder.fused: belongs to a grid"),
    "trained": ({"encoder": {"trainable_stages": 1}}, "encoder.trainable_stages: belongs to"),
    "gates": (
        {"encoder": {"channel_attention": {"kind": "se", "where": "stage"}}},
        "encoder.channel_attention: belongs to a grid",
    ),
    "resize": ({"pixels": {"resize": "crop"}}, "pixels.resize: belongs to a grid of cells; leave"),
    "size": ({"pixels": {"size": 64}}, "pixels.size: belongs to a grid"),
    "mean": ({"pixels": {"mean": (0.1, 0.1, 0.1)}}, "pixels.mean: belongs to a grid"),
    "flips": ({"train": {"flips": True}}, "train.flips: belongs to a grid"),
    "supervision": ({"loss": {"attention": 0.3}}, "loss.attention: belongs to a grid"),
    "pointing": ({"train": {"select_on": "pointing"}}, "train.select_on=pointing: plays on a grid"),
    "no file": ({"data": {"regions": None}}, "data.regions is missing: name the file"),
    "no width": ({"encoder": {"channels": None}}, "encoder.channels is missing: say how many"),
    "a CNN's width": (
        {"encoder": {"name": "resnet50"}},
        "encoder.channels: resnet50 knows its own; leave it out, or set encoder.name=regions",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_mean_nothing_to_regions_are_named(case: str) -> None:
    sections, line = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        check_settings(tree(**sections), "here")
    assert str(caught.value).startswith(f"here: {line}")


def test_what_regions_take() -> None:
    settings = check_settings(tree(decoder={"projection": None, "look": "hard"}), "here")
    assert check_settings(settings.model_dump(), "again") == settings


# --- whole runs -----------------------------------------------------------------------------------


def shape_regions(settings: Settings, folder: Path) -> Path:
    """The file of drawn scenes with 1 to 4 regions of noise each."""
    named = {}
    for split in ("train", "val"):
        for number, picture in enumerate(load_split(settings.data, split)):
            named[str(picture.image_id)] = regions(1 + number % 4, number)
    write_npz(folder / "r.npz", as_arrays(named))
    return folder / "r.npz"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("runs")
    path = shape_regions(check_settings(tree(), "here"), folder)
    settings = check_settings(
        tree(
            data={"regions": str(path)},
            loss={"doubly_stochastic": 0.1, "label_smoothing": 0.1},
            train={"average": 0.8},
        ),
        "here",
    )
    run = start_run(folder / "run", settings, cache=folder / "cache", device=CPU)
    train(run)
    assert not (folder / "cache").exists()
    return folder / "run"


def test_a_run_learns_and_goes_on_exactly(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[1]["loss"] < lines[0]["loss"]
    settings = read_settings(run_folder / "settings.yaml")
    run = start_run(tmp_path / "run", settings, cache=tmp_path, device=CPU)
    epoch = train_module.train_epoch

    def stop_after_one(run: Any, number: int) -> dict[str, Any]:
        if number == 2:
            raise KeyboardInterrupt
        return epoch(run, number)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(train_module, "train_epoch", stop_after_one)
        train(run)
    train(resume_run(tmp_path / "run", cache=tmp_path, device=CPU))
    whole = load_checkpoint(run_folder / "last").captioner.state_dict()
    for name, value in load_checkpoint(tmp_path / "run" / "last").captioner.state_dict().items():
        assert torch.equal(value, whole[name]), name


def test_going_on_from_a_checkpoint(run_folder: Path, tmp_path: Path, checkpoint: Any) -> None:
    settings = read_settings(run_folder / "settings.yaml")
    run = start_run(
        tmp_path / "run", settings, cache=tmp_path, device=CPU, init=run_folder / "best"
    )
    assert run.captioner.encoder is None
    save_checkpoint(tmp_path / "cnn", checkpoint)
    with pytest.raises(TrainError, match=r"data\.regions: encoder\.name is test_efficientnet, a"):
        start_run(tmp_path / "b", settings, cache=tmp_path, device=CPU, init=tmp_path / "cnn")
    cnn = check_settings(
        tree(data={"regions": None}, encoder={"name": "resnet18", "channels": None}), "x"
    )
    with pytest.raises(ConfigError, match=r"^--init .*best: data\.regions is missing"):
        start_run(tmp_path / "c", cnn, cache=tmp_path, device=CPU, init=run_folder / "best")


def test_a_checkpoint_says_what_it_looks_at(run_folder: Path, tmp_path: Path) -> None:
    config = json.loads((run_folder / "best" / "config.json").read_text())
    assert (config["encoder"]["name"], config["encoder"]["channels"]) == ("regions", C)
    model = load(run_folder)
    with pytest.raises(RegionsError, match=r"has no CNN to look at a photograph; .* 5 features"):
        model.caption(Image.new("RGB", (8, 8)))
    with pytest.raises(EncoderError, match="give it regions"):
        model.checkpoint.captioner.encode(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="there are no maps"):
        attend_sentences(
            model.checkpoint.captioner,
            model.checkpoint.vocabulary,
            None,
            {},  # type: ignore[arg-type]
        )
    with pytest.raises(CompareError, match="looks at regions, which have no maps"):
        caption_sides(find_sides([str(run_folder), str(run_folder / "last")]), [], CPU)
    config["encoder"]["channels"] = None
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"config\.json: encoder\.channels is missing"):
        load_checkpoint(tmp_path)


def test_captions_of_arrays(run_folder: Path, checkpoint: Any) -> None:
    model = load(run_folder)
    for count in COUNTS:
        features_PC, boxes_P4 = regions(count, count)
        caption = model.caption_regions(features_PC, boxes_P4, beam_size=2, max_words=4)
        assert caption.words
        assert caption.weights.shape == (len(caption.words), count)
        assert isinstance(caption.regions, Boxes)
        np.testing.assert_array_equal(caption.regions.boxes_P4, boxes_P4)
    with pytest.raises(RegionsError, match=r"^features is \(1, 4\)"):
        model.caption_regions(np.zeros((1, 4)), np.array([[0, 0, 1, 1]]))
    with pytest.raises(RegionsError, match="soft: looks at photographs; give it no regions"):
        CaptionModel(checkpoint, "soft").caption_regions(*regions(1))


def test_the_command_captions_and_draws(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "four", "none"):
        Image.new("RGB", (40, 30), "olive").save(tmp_path / f"{name}.jpg")
    write_npz(tmp_path / "r.npz", as_arrays({"one": regions(1), "four": regions(4)}))
    photos = [str(tmp_path / f"{name}.jpg") for name in ("one", "none", "four")]
    command = ["caption", *photos, "--model", str(run_folder), "--json", "--weights"]
    code = main(
        [*command, "--regions", str(tmp_path / "r.npz"), "--overlay", str(tmp_path / "looks")]
    )
    assert code == 1  # of one photograph there are no regions
    one, none, four = map(json.loads, capsys.readouterr().out.splitlines())
    assert np.shape(one["attention"]) == (len(one["words"]), 1)
    assert np.shape(four["attention"]) == (len(four["words"]), 4)
    np.testing.assert_allclose(four["boxes"], regions(4)[1], atol=1e-5)
    assert (
        none["error"]
        == f"{tmp_path / 'r.npz'}: has no none/features; every photograph needs its regions"
    )
    drawn = {path.name for path in (tmp_path / "looks").iterdir()}
    assert drawn == {"one", "one.png", "one.gif", "four", "four.png", "four.gif"}
    assert main(command) == 2
    assert "by --regions FILE" in capsys.readouterr().err
    assert main(["caption", photos[0], "--regions", str(tmp_path / "r.npz")]) == 2
    assert "soft: looks at photographs; give it no regions" in capsys.readouterr().err


def test_the_command_evaluates(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", "--checkpoint", str(run_folder), "--out", str(tmp_path)]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "regions" in out
    assert "peak in box" not in out
    results = json.loads((tmp_path / "results.json").read_text())
    assert len(results) == 3
    batch = {each["image_id"]: each["caption"] for each in results}
    model = load(run_folder)
    settings = resume_run(run_folder, cache=tmp_path, device=CPU)
    for position, picture in enumerate(settings.val.pictures):
        items = settings.val.read([position])
        alone = model.caption_regions(items.features_BPC[0].numpy(), items.boxes_BP4[0].numpy())
        assert alone.text == batch[picture.image_id]
    capsys.readouterr()
    data = tmp_path / "data.yaml"
    data.write_text("data: {kind: shapes, val_images: 3}\ntrain: {epochs: 1}\n")
    assert main([*command, "--data", str(data)]) == 2
    assert "data.regions is missing: the model looks at regions" in capsys.readouterr().err


def test_the_full_scorecard_draws_boxes_and_plays_no_pointing_game(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: Any) -> Any:
        raise JavaError("needs Java")

    monkeypatch.setattr(scorecard, "meteor", absent)
    monkeypatch.setattr(scorecard, "spice", absent)
    command = ["evaluate", "--checkpoint", str(run_folder), "--out", str(tmp_path), "--all"]
    assert main(command) == 0
    tree = json.loads((tmp_path / "scores.json").read_text())
    assert "attention: the model looks at regions" in " ".join(tree["missing"])
    assert not any("pointing" in title for title in tree["tables"])
    assert (tmp_path / "page.html").read_text().count("data:image/jpeg") == 3


def test_what_takes_photographs_alone_says_so(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    monkeypatch.setattr(uploads.gr, "Warning", lambda line, **_: warned.append(line))
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    photo = {"path": str(tmp_path / "a.png"), "meta": {"_type": "gradio.FileData"}}
    nothing: Any = None
    shared = Shared(Models([str(run_folder)]), tmp_path, *[nothing] * 5)
    assert caption_tab.caption(shared, photo, str(run_folder), 3)[0] is None
    assert "has no CNN to look at a photograph" in warned[0]
    job = Job("row", 0, 1, run_folder, check_settings(tree(), "here"))
    with pytest.raises(AblateError, match=r"encoder\.name is regions: a plan times photographs"):
        check_runs([job])


# --- real photographs -----------------------------------------------------------------------------

SHARED = Path(__file__).resolve().parents[2] / "shared"


def photographs_with_boxes(folder: Path, count: int) -> list[str]:
    """Captions and boxes of some Flickr8k photographs as files; returns the photographs' names.

    Every photograph has the boxes of its phrases, each once, and one around all of it.
    """
    flickr8k, file = SHARED / "flickr8k", SHARED / "flickr30k_entities" / "flickr8k_boxes.json"
    data = DataSettings(kind="flickr8k", root=flickr8k, boxes=file)
    pictures = load_split(data, "train")[:count]
    boxes, lines = {}, []
    for place, (picture, said) in enumerate(
        zip(pictures, load_boxes(data, pictures).values(), strict=True)
    ):
        name, split = str(picture.image_id), "val" if place % 5 == 0 else "train"
        drawn = {box for caption in said for phrase in caption.phrases for box in phrase.boxes}
        boxes[name] = [(0.0, 0.0, 1.0, 1.0), *sorted(drawn)]
        for caption in picture.captions:
            lines.append({"image": name, "caption": caption, "split": split})
    (folder / "boxes.json").write_text(json.dumps(boxes))
    (folder / "captions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(boxes)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not on this machine")
def test_real_photographs_by_their_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Features by the script, a short training, captions and pictures, all by the commands."""
    names = photographs_with_boxes(tmp_path, 40)
    monkeypatch.chdir(tmp_path)
    images, script = SHARED / "flickr8k" / "images", SCRIPTS / "region_features.py"
    pool = [sys.executable, str(script), "boxes.json", "regions.npz", "--images", str(images)]
    told = subprocess.run(pool, capture_output=True, text=True, check=True).stdout
    assert told == "regions.npz: 40 photographs; train with encoder.channels=1400\n"
    config = tmp_path / "tiny.yaml"
    sections = tree(
        data={
            "kind": "folder",
            "root": str(images),
            "captions": "captions.jsonl",
            "regions": "regions.npz",
            "min_count": 2,
        },
        encoder={"channels": 1400},
        train={"epochs": 6, "average": 0.8},
    )
    config.write_text(json.dumps(sections))  # JSON is YAML
    assert main(["train", "--config", str(config), "--run", "run"]) == 0
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3
    capsys.readouterr()
    photos = [str(images / name) for name in names[:3]]
    options = ["--model", "run", "--regions", "regions.npz", "--overlay", "looks", "--json"]
    assert main(["caption", *photos, *options, "--weights"]) == 0
    for line in capsys.readouterr().out.splitlines():
        entry = json.loads(line)
        np.testing.assert_allclose(np.sum(entry["attention"], axis=1), 1, atol=1e-4)
        assert Path("looks", f"{Path(entry['image']).stem}.png").is_file()
