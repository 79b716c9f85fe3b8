"""An ablation of tiny models on drawn shapes: trained once, resumed, shared, and tabulated."""

import importlib.util
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from showattend import ablate as module
from showattend.ablate import (
    MEASURES,
    RESULTS,
    Grounding,
    Hits,
    Measures,
    check_runs,
    count_parameters,
    is_measured,
    is_trained,
    read_measures,
    retime,
    run_jobs,
    write_measures,
)
from showattend.ablation_plan import Ablation, Job, plan_runs, read_plan, slug, take_part
from showattend.ablation_table import tabulate
from showattend.boxes import load_boxes
from showattend.captioner import build_captioner
from showattend.config import ChannelAttentionSettings, read_settings
from showattend.datasets import load_split
from showattend.evaluate import phrase_pointing
from showattend.grids import live_grids
from showattend.java_metrics import JavaError
from showattend.metrics import score_captions
from showattend.predict import load
from showattend.results import read_results, write_results
from showattend.train import TrainError

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "configs" / "ablate_flickr8k.yaml"
BASE = {
    "data": {"kind": "shapes", "train_images": 8, "val_images": 4, "min_count": 1},
    "pixels": {"size": 32},
    "encoder": {"name": "test_efficientnet", "stage": 1, "pretrained": False},
    "decoder": {"embedding": 4, "hidden": 6, "attention": 3, "projection": 7, "dropout": 0.1},
    "train": {"epochs": 3, "batch_images": 4, "captions_per_image": 2, "max_words": 8},
    "search": {"beam_size": 2, "max_words": 6},
}
TWO_ROWS: dict[str, Any] = {
    "base": "base.yaml",
    "overrides": ["train.epochs=2"],
    "rows": {"Narrow, soft": [], "wide": ["decoder.attention=5"]},
}


def write_plan(folder: Path, plan: dict[str, Any] | str) -> Path:
    (folder / "base.yaml").write_text(yaml.safe_dump(BASE))
    path = folder / "plan.yaml"
    path.write_text(plan if isinstance(plan, str) else yaml.safe_dump(plan, sort_keys=False))
    return path


def planned(folder: Path, plan: dict[str, Any] = TWO_ROWS, words: Sequence[str] = ()) -> Ablation:
    return plan_runs(write_plan(folder, plan), words, folder / "runs")


def run(ablation: Ablation, cache: Path, **options: bool) -> list[str]:
    return run_jobs(ablation.jobs, cache=cache, device=CPU, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ablation:
    """Two rows with one seed, trained and measured."""
    folder = tmp_path_factory.mktemp("ablation")
    ablation = planned(folder)
    assert run(ablation, folder / "cache") == []
    return ablation


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("this is not to be done again")


# --- the runs -------------------------------------------------------------------------------------


def test_every_row_is_a_run_with_its_captions_and_measures(whole: Ablation) -> None:
    narrow, wide = whole.jobs
    assert narrow.folder.name == "narrow-soft-seed1"
    assert wide.folder.name == "wide-seed1"
    pictures = load_split(whole.common.data, "val")
    for job, attention in ((narrow, 3), (wide, 5)):
        settings = read_settings(job.folder / "settings.yaml")
        assert (settings.train.epochs, settings.decoder.attention) == (2, attention)
        assert is_trained(job)
        assert is_measured(job)
        model = load(job.folder)
        said = {each.image_id: model.caption(each.open()).text for each in pictures}
        assert read_results(job.folder / RESULTS) == said
        stored = load_file(job.folder / "best" / "model.safetensors")
        measures = read_measures(job)
        assert measures is not None
        # The encoder is frozen; and a checkpoint, too, holds the tied matrix once.
        assert measures.parameters == sum(
            each.numel() for name, each in stored.items() if name.startswith("decoder.")
        )
        assert measures.timed == 4
        assert 0 < measures.milliseconds < 10_000
        assert 0 < measures.epoch_seconds < 100


def test_a_trained_stage_of_the_encoder_counts(tmp_path: Path) -> None:
    settings = planned(tmp_path).common
    encoder = settings.encoder.model_copy(update={"trainable_stages": 1})
    frozen, partly = (
        build_captioner(each, settings.decoder, size=32, words=9)
        for each in (settings.encoder, encoder)
    )
    trained = sum(each.numel() for each in partly.encoder.parameters() if each.requires_grad)
    assert trained > 0
    assert count_parameters(partly) == count_parameters(frozen) + trained


def test_channel_attention_behind_the_encoder_counts(tmp_path: Path) -> None:
    """SE on C channels at reduction 4 has 2 C C / 4 weights."""
    settings = planned(tmp_path).common
    gate = ChannelAttentionSettings(kind="se", where="stage", stages=(-1,), reduction=4)
    gated = settings.encoder.model_copy(update={"channel_attention": gate})
    plain, more = (
        build_captioner(each, settings.decoder, size=32, words=9)
        for each in (settings.encoder, gated)
    )
    channels = plain.shape.channels
    assert channels % 4 == 0
    assert count_parameters(more) == count_parameters(plain) + channels**2 // 2


def test_the_pointing_game_is_that_of_the_evaluation(whole: Ablation) -> None:
    job = whole.jobs[0]
    checkpoint = load(job.folder).checkpoint
    pictures = load_split(job.settings.data, "val")
    grids = live_grids(checkpoint.captioner, checkpoint.pixels, pictures, "fatal")
    model = (checkpoint.captioner, checkpoint.vocabulary)
    wanted = phrase_pointing(*model, grids, load_boxes(job.settings.data, pictures), "squash")
    measures = read_measures(job)
    assert measures is not None
    found = measures.grounding.groups["all"]
    assert len(found.hits) == len(found.phrases) == 4
    assert 100 * sum(found.hits) / sum(found.phrases) == pytest.approx(wanted)


def test_the_table_holds_the_scores_of_the_captions(whole: Ablation, tmp_path: Path) -> None:
    table = tabulate(whole)
    table.write(tmp_path)
    tree = json.loads((tmp_path / "table.json").read_text())
    pictures = load_split(whole.common.data, "val")
    references = {each.image_id: each.captions for each in pictures}
    for job in whole.jobs:
        scores = score_captions(read_results(job.folder / RESULTS), references)
        row = tree["tables"]["row"][job.row]
        for name in ("BLEU-4", "CIDEr-D"):
            assert row[name]["value"] == pytest.approx(scores[name])
    assert tree["changes"] == {"Narrow, soft": [], "wide": ["decoder.attention=5"]}
    text = (tmp_path / "table.md").read_text()
    for said in ("data: shapes", "split: val, 4 images", "best on these same images, by CIDEr-D",
                 "budget: 2 epochs, at most 2 captions", "seeds: 1", "thread(s)",
                 "- wide: `decoder.attention=5`"):  # fmt: skip
        assert said in text
    assert "not finished" not in text


def test_a_second_call_does_nothing_again(
    whole: Ablation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train", "start_run", "resume_run", "load_checkpoint", "write_whole"):
        monkeypatch.setattr(module, name, refuse)
    check_runs(whole.jobs)
    assert run(whole, tmp_path / "cache") == []


def test_a_killed_run_is_resumed(
    whole: Ablation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in its second epoch, and once more before its captions; it ends as if it had not."""

    class Killed(Exception):
        pass

    original, seen = torch.nn.utils.clip_grad_norm_, 0

    def killing_clip(*args: object, **kwargs: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 3:  # of two steps an epoch
            raise Killed
        original(*args, **kwargs)

    def killing_captions(*_: object, **__: object) -> None:
        raise Killed

    ablation = planned(tmp_path)
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", killing_clip)
    with pytest.raises(Killed):
        run(ablation, tmp_path / "cache")
    assert not is_trained(ablation.jobs[0])
    monkeypatch.undo()
    monkeypatch.setattr(module, "start_run", refuse)
    monkeypatch.setattr(module, "caption_split", killing_captions)
    with pytest.raises(Killed):
        run(ablation, tmp_path / "cache")
    assert is_trained(ablation.jobs[0])
    assert not is_measured(ablation.jobs[0])
    monkeypatch.undo()
    monkeypatch.setattr(module, "resume_run", refuse)
    assert run(ablation, tmp_path / "cache") == []
    for one, other in zip(ablation.jobs, whole.jobs, strict=True):
        ours, theirs = (load_file(job.folder / "best/model.safetensors") for job in (one, other))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        assert (one.folder / RESULTS).read_bytes() == (other.folder / RESULTS).read_bytes()


def test_a_failed_training_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(started: Any) -> None:
        if started.settings.decoder.attention == 3:
            raise TrainError("the loss is not finite; lower train.learning_rate")
        train(started)

    train = module.train
    monkeypatch.setattr(module, "train", fail)
    ablation = planned(tmp_path)
    narrow, wide = ablation.jobs
    assert run(ablation, tmp_path / "cache") == [
        f"{narrow.folder}: the loss is not finite; lower train.learning_rate"
    ]
    assert is_measured(wide)
    table = tabulate(ablation)
    assert table.notes == [f"not finished: {narrow.folder}"]
    assert "p" not in table.tables[0].columns  # for the first row is not there


def test_meteor_is_added_to_what_is_measured(
    whole: Ablation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_java(_: object) -> None:
        raise JavaError("METEOR: needs Java")

    before = [read_measures(job) for job in whole.jobs]
    monkeypatch.setattr(module, "load_checkpoint", refuse)
    monkeypatch.setattr(module, "meteor", no_java)
    run(whole, Path("none"), java=True)
    assert capsys.readouterr().out.count("not computed: METEOR: needs Java\n") == 2
    assert [read_measures(job) for job in whole.jobs] == before
    monkeypatch.setattr(module, "meteor", lambda corpus: (len(corpus.images) / 100, None))
    run(whole, Path("none"), java=True)
    for job, known in zip(whole.jobs, before, strict=True):
        assert known is not None
        assert read_measures(job) == known.model_copy(update={"meteor": 4.0})
        write_measures(job, known)


def test_other_boxes_are_pointed_at_anew_and_nothing_else(
    whole: Ablation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn shapes know their boxes whatever the setting says, so the game ends as before."""
    boxes = plan_runs(whole.path, ["data.boxes=boxes.json"], whole.path.parent / "runs")
    before = [read_measures(job) for job in whole.jobs]
    for name in ("train", "caption_split", "CaptionModel"):
        monkeypatch.setattr(module, name, refuse)
    run(boxes, Path("none"))
    for job, known in zip(whole.jobs, before, strict=True):
        assert known is not None
        grounding = known.grounding.model_copy(update={"boxes": Path("boxes.json")})
        assert read_measures(job) == known.model_copy(update={"grounding": grounding})
        write_measures(job, known)


def test_times_can_be_taken_anew_and_leave_the_rest(whole: Ablation) -> None:
    job = whole.jobs[0]
    known = read_measures(job)
    assert known is not None
    slow = known.model_copy(update={"milliseconds": 1e9, "epoch_seconds": 1e9, "hardware": "?"})
    write_measures(job, slow)
    retime(job, cache=whole.path.parent / "cache", device=CPU)
    again = read_measures(job)
    assert again is not None
    assert 0 < again.milliseconds < 10_000
    assert 0 < again.epoch_seconds < 100
    times = {"milliseconds": 0.0, "epoch_seconds": 0.0}
    assert again.model_copy(update=times) == known.model_copy(update=times)


def test_runs_of_other_settings_are_refused(whole: Ablation) -> None:
    folder = whole.path.parent
    changed = plan_runs(whole.path, ["decoder.hidden=8"], folder / "runs")
    with pytest.raises(ValueError, match=r"settings\.yaml: decoder\.hidden is 6, and 8 in") as why:
        check_runs(changed.jobs)
    assert "\n" not in str(why.value)
    # Boxes come after the training, where it does not depend on them.
    check_runs(plan_runs(whole.path, ["data.boxes=boxes.json"], folder / "runs").jobs)
    taught = ["data.boxes=boxes.json", "loss.attention=1"]
    with pytest.raises(ValueError, match=r"data\.boxes is None, and 'boxes\.json' in the plan"):
        check_runs(plan_runs(whole.path, taught, folder / "runs").jobs)


# --- the table ------------------------------------------------------------------------------------


def finish(job: Job, texts: dict[int | str, str], **measures: Any) -> None:
    """What a finished run leaves for the table: 4 of 8 phrases, 1 of 4 small ones."""
    job.folder.mkdir(parents=True)
    lines = [{"epoch": k, "CIDEr-D": 1.0, "seconds": 1.0 + 2 * k} for k in (1, 2)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (job.folder / "metrics.jsonl").write_text(text)
    write_results(job.folder / RESULTS, texts)
    groups = {
        "all": Hits(hits=[1, 0, 2, 1], phrases=[2, 2, 2, 2]),
        "small": Hits(hits=[0, 0, 1, 0], phrases=[1, 1, 1, 1]),
    }
    known: dict[str, Any] = {
        "parameters": 1234,
        "milliseconds": 56.7,
        "epoch_seconds": 4.2,
        "timed": 4,
        "hardware": "an abacus",
        "grounding": Grounding(boxes=None, groups=groups),
    }
    write_measures(job, Measures(**known | measures))


def texts_of(ablation: Ablation, *, right: bool) -> dict[int | str, str]:
    """Captions that people wrote, or such as nobody wrote."""
    pictures = load_split(ablation.common.data, "val")
    return {each.image_id: each.captions[0] if right else "zebras" for each in pictures}


def test_the_tables_figures_are_those_of_hand(tmp_path: Path) -> None:
    rows: dict[str, list[str]] = {"right": [], "right too": [], "wrong": [], "to come": []}
    ablation = planned(tmp_path, TWO_ROWS | {"rows": rows})
    right, too, wrong, to_come = ablation.jobs
    finish(right, texts_of(ablation, right=True), meteor=20.5)
    finish(too, texts_of(ablation, right=True))
    finish(wrong, texts_of(ablation, right=False))
    table = tabulate(ablation)
    assert table.notes == [f"not finished: {to_come.folder}"]
    (figures,) = table.tables
    lines = {line[0]: dict(zip(figures.columns, line[1:], strict=True)) for line in figures.lines()}
    assert list(lines) == ["row", "right", "right too", "wrong"]
    assert lines["right"]["BLEU-4"] == "100.00 [100.00, 100.00]"
    assert lines["wrong"]["BLEU-4"] == lines["wrong"]["CIDEr-D"] == "0.00 [0.00, 0.00]"
    assert [lines[row]["p"] for row in rows if row in lines] == ["-", "1.000", "0.001"]
    assert [lines[row]["METEOR"] for row in rows if row in lines] == ["20.50", "", ""]
    assert lines["right"]["pointing, %"].startswith("50.00 [")
    assert lines["right"]["small, %"] == "25.00 [0.00, 75.00]"
    assert lines["right"]["parameters"] == "1,234"
    assert lines["right"]["s an epoch"] == "4"
    assert lines["right"]["ms an image"] == "56.7"
    assert "hardware: an abacus\n" in table.markdown()


def test_several_seeds_are_a_mean_and_each_by_itself(tmp_path: Path) -> None:
    ablation = planned(tmp_path, TWO_ROWS | {"seeds": [1, 7]})
    for job in ablation.jobs:
        right = job.seed == 1
        milliseconds = 10.0 if right else 20.0
        finish(job, texts_of(ablation, right=right), milliseconds=milliseconds, meteor=milliseconds)
    rows, runs = tabulate(ablation).tables
    row = rows.rows["wide"]
    assert (row["seeds"].value, row["BLEU-4"].value) == (2, 50.0)
    assert (row["METEOR"].value, row["ms an image"].value) == (15.0, 15.0)
    assert row["pointing, %"].value == 50.0
    assert row["p"].value == 1.0
    assert math.isnan(rows.rows["Narrow, soft"]["p"].value)
    own = [runs.rows[f"wide, seed {seed}"] for seed in (1, 7)]
    assert [cells["BLEU-4"].value for cells in own] == [100.0, 0.0]
    assert [cells["ms an image"].value for cells in own] == [10.0, 20.0]


def test_pointing_with_other_boxes_is_left_out(tmp_path: Path) -> None:
    ablation = planned(tmp_path, words=["data.boxes=boxes.json"])
    finish(ablation.jobs[0], texts_of(ablation, right=True))
    assert "pointing, %" not in tabulate(ablation).tables[0].columns


def test_damaged_files_are_named_in_one_line(tmp_path: Path) -> None:
    ablation = planned(tmp_path)
    with pytest.raises(ValueError, match=r"plan\.yaml: none of its runs is finished"):
        tabulate(ablation)
    for job in ablation.jobs:
        finish(job, texts_of(ablation, right=True))
    path = ablation.jobs[1].folder / RESULTS
    write_results(path, {99: "a dog"})
    with pytest.raises(ValueError, match=r"wide-seed1/results\.json: 1 image\(s\) of the captions"):
        tabulate(ablation)
    write_results(path, dict(list(texts_of(ablation, right=True).items())[:3]))
    with pytest.raises(ValueError, match="wide-seed1: captions other images than "):
        tabulate(ablation)
    (path.parent / MEASURES).write_text("{")
    with pytest.raises(ValueError, match=r"measures\.json: is not JSON; remove it"):
        tabulate(ablation)
    (path.parent / MEASURES).write_text("{}")
    with pytest.raises(ValueError, match=r"measures\.json: `parameters` is missing"):
        tabulate(ablation)


# --- the plan -------------------------------------------------------------------------------------


def test_the_shipped_plan_is_read() -> None:
    plan = read_plan(SHIPPED)
    base = read_settings(SHIPPED.parent / plan.base, plan.overrides)
    assert base.train.epochs == 4
    assert next(iter(plan.rows.items())) == ("soft, additive", [])
    assert "decoder.score=dot" in plan.rows["dot"]
    assert all("=" in each for own in plan.rows.values() for each in own)
    assert f"# {len(plan.rows)} rows of 4 epochs" in SHIPPED.read_text()


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("- a\n- list\n", "expected keys such as `base:` and `rows:`, found none"),
        ("base: base.yaml\nrow: {a: []}\n", "unknown key `row`; did you mean `rows`?"),
        ("rows: {a: []}\n", "`base` is missing"),
        ("base: base.yaml\nrows: {}\n", "`rows` is {}: "),
        ("base: base.yaml\nrows: {a: train.epochs=3}\n", "`rows.a` is 'train.epochs=3': "),
        ("base: base.yaml\nrows:\n  a: []\n  a: []\n", "`a` is there twice"),
        ("base: base.yaml\nrows: {a b: [], A-B: []}\n", "'A-B': would have the folder of 'a b'"),
        ("base: base.yaml\nrows: {'?': []}\n", "row '?': its name has no letter"),
        ("base: base.yaml\nseeds: [1, 1]\nrows: {a: []}\n", "name every seed once"),
        ("base: base.yaml\nseeds: []\nrows: {a: []}\n", "`seeds` is []"),
        ("base: base.yaml\nseeds: [yes]\nrows: {a: []}\n", "`seeds.0` is True"),
        ("base: base.yaml\nrows: {a: [train.seed=3]}\n", "named by the plan's `seeds`"),
        ("base: base.yaml\noverrides: [train.seed=3]\nrows: {a: []}\n", "the plan's `seeds`"),
        ("base: base.yaml\nrows: {a: [], b: [train.epochs=9]}\n", "row 'b': changes train.epochs"),
        ("base: base.yaml\nrows: {a: [], b: [data.kind=coco]}\n", "row 'b': "),
        ("base: base.yaml\nrows: {a: [], b: [data.min_count=2]}\n", "changes data.min_count"),
        ("base: base.yaml\nrows: {a: [], b: [decoder.hiden=9]}\n", "did you mean `hidden`?"),
        ("base: no.yaml\nrows: {a: []}\n", "no.yaml: cannot be read"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_one_line_that_names_it(tmp_path: Path, plan: str, said: str) -> None:
    path = write_plan(tmp_path, plan)
    with pytest.raises(ValueError) as why:
        plan_runs(path, [], tmp_path / "runs")
    line = str(why.value)
    assert said in line
    assert str(tmp_path) in line
    assert "\n" not in line


def test_settings_of_all_rows_are_laid_under_a_rows_own(tmp_path: Path) -> None:
    ablation = planned(tmp_path, words=["train.epochs=1", "decoder.attention=4"])
    assert [job.settings.train.epochs for job in ablation.jobs] == [1, 1]
    assert [job.settings.decoder.attention for job in ablation.jobs] == [4, 5]


@given(st.lists(st.integers(1, 3), min_size=1, max_size=9), st.integers(1, 5))
def test_parts_share_the_rows_without_overlap(seeds_of_rows: list[int], parts: int) -> None:
    """Every job is in one part, and a row's seeds are in the same."""
    settings: Any = None
    jobs = [
        Job(f"row {place}", place, seed, Path(f"row{place}-seed{seed}"), settings)
        for place, seeds in enumerate(seeds_of_rows)
        for seed in range(seeds)
    ]
    shared = [take_part(jobs, part, parts) for part in range(parts)]
    folders = sorted(job.folder for part in shared for job in part)
    assert folders == sorted(job.folder for job in jobs)
    assert all(job.place % parts == part for part in range(parts) for job in shared[part])
    rows = [{job.row for job in part} for part in shared]
    assert sum(map(len, rows)) == len(seeds_of_rows)
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


@given(st.text("aZ9 -_./é", max_size=9))
def test_a_slug_can_name_a_folder_anywhere(name: str) -> None:
    assert set(slug(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert slug(slug(name)) == slug(name)


# --- the script -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("ablate_script", ROOT / "scripts" / "ablate.py")
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_script_shares_the_rows_and_writes_the_table(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, runs = write_plan(tmp_path, TWO_ROWS), tmp_path / "runs"
    command = [str(plan), "--runs", str(runs), "train.epochs=1", "--cache", str(tmp_path / "cache")]
    assert script.main([*command, "--part", "1/2"]) == 0
    assert sorted(path.name for path in runs.iterdir()) == ["table.json", "table.md", "wide-seed1"]
    assert f"not finished: {runs / 'narrow-soft-seed1'}" in capsys.readouterr().err
    (runs / "table.md").unlink()
    assert script.main([*command, "--table-only"]) == 0
    assert not (runs / "narrow-soft-seed1").exists()
    assert "- wide: `decoder.attention=5`" in (runs / "table.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--part", "2/2"], "'2/2': expected K/N with K from 0 to N - 1, such as 0/2 and 1/2"),
        (["--part", "1"], "'1': expected K/N"),
        (["--part", "0/2", "--table-only"], "not allowed with"),
        (["--table-only", "--all"], "--table-only and --times leave those"),
        (["--times", "--all"], "--table-only and --times leave those"),
        (["--times", "--part", "0/2"], "not allowed with"),
    ],
)
def test_the_scripts_mistakes(
    script: Any, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        script.main(["plan.yaml", *words])
    assert said in capsys.readouterr().err
