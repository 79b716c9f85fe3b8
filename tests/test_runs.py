"""Runs in hand-made folders: which are found, what is told of them, and what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from showattend import runs_page
from showattend.datasets import load_split
from showattend.runs import (
    MOST,
    RunsError,
    TrainingRun,
    chosen_runs,
    find_runs,
    progress_lines,
    read_captions,
    read_run,
    score_tables,
    setting_lines,
)
from showattend.runs_page import details_html, progress_html

NOW = 1_000_000.0


def write_run(folder: Path, *scores: float, age: float = 0.0, **train: Any) -> Path:
    """A run on ten drawn pictures with an epoch of 100 s for every score; the last ended ``age``
    seconds before `NOW`."""
    folder.mkdir(parents=True)
    tree = {"data": {"kind": "shapes", "val_images": 10}, "train": {"epochs": 3} | train}
    (folder / "settings.yaml").write_text(yaml.safe_dump(tree))
    lines = [
        {"epoch": n, "loss": 5.0 - n, "seconds": 90, "validation seconds": 10, "CIDEr-D": score}
        for n, score in enumerate(scores, start=1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(folder / "metrics.jsonl", (NOW - age, NOW - age))
    return folder


def write_captions(folder: Path, *, right: bool, first: int = 0) -> None:
    """Captions of the pictures from the first on: people's own, or always the same words."""
    settings = read_run(folder.parent, folder).settings
    assert settings is not None
    entries = [
        {"image_id": each.image_id, "caption": each.captions[0] if right else "a <b>thing</b>"}
        for each in load_split(settings.data, "val")[first:]
    ]
    (folder / "results.json").write_text(json.dumps(entries))


def one(root: Path, name: str) -> TrainingRun:
    (run,) = chosen_runs(root, [name])
    return run


# --- which there are ------------------------------------------------------------------------------


def test_runs_are_found_one_and_two_levels_down_the_latest_first(tmp_path: Path) -> None:
    write_run(tmp_path / "old", 1.0, age=90)
    write_run(tmp_path / "plan" / "row", 1.0, age=10)
    write_run(tmp_path / "new", 1.0, age=5)
    write_run(tmp_path / "too" / "far" / "down", 1.0)
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").write_text("text")
    assert list(find_runs(tmp_path)) == ["new", "plan/row", "old"]
    assert find_runs(tmp_path / "absent") == {}


def test_what_leads_out_of_the_folder_is_no_run(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside", 1.0)
    root = tmp_path / "runs"
    write_run(root / "own", 1.0)
    (root / "link").symlink_to(outside)
    (root / "up").symlink_to(tmp_path)  # in which there is a run one level down
    (root / "loop").symlink_to(root / "loop")
    (root / "same").symlink_to(root / "own")
    assert sorted(find_runs(root)) == ["own", "same"]


def test_a_file_that_lies_elsewhere_is_not_read(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside", 1.0)
    (tmp_path / "outside" / "results.json").write_text("[]")
    folder = tmp_path / "runs" / "own"
    folder.mkdir(parents=True)
    (folder / "settings.yaml").write_text((outside / "settings.yaml").read_text())
    for name in ("metrics.jsonl", "results.json"):
        (folder / name).symlink_to(outside / name)
    run = one(tmp_path / "runs", "own")
    assert (run.curve, run.results) == ([], None)
    assert run.troubles == ["metrics.jsonl: not there"]


@pytest.mark.parametrize(
    "names",
    [
        ["../outside"],
        ["own/../../outside"],
        ["/etc"],
        ["."],
        [""],
        ["own", 7],
        [["own"]],
        ["own\x00"],
        "own",
        {"own": 1},
        None,
        ["own"] * (MOST + 1),
    ],
)
def test_no_other_name_is_read(tmp_path: Path, names: object) -> None:
    write_run(tmp_path / "outside", 1.0)
    write_run(tmp_path / "runs" / "own", 1.0)
    with pytest.raises(RunsError) as refused:
        chosen_runs(tmp_path / "runs", names)
    assert "\n" not in str(refused.value)


# --- what is told of one --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "age", "train", "state"),
    [
        ([], 0, {}, "no epoch yet"),
        ([1.0], 299, {}, "running"),  # an epoch takes 100 s
        ([1.0], 301, {}, "stopped"),
        ([1.0, 2.0, 3.0], 0, {}, "ended"),
        ([2.0, 1.0], 0, {"patience": 1}, "ended"),
    ],
)
def test_states(
    tmp_path: Path, scores: list[float], age: float, train: dict[str, Any], state: str
) -> None:
    write_run(tmp_path / "run", *scores, age=age, **train)
    assert one(tmp_path, "run").state(NOW) == state


def test_the_table_of_progress(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 7.0, 9.0, 8.0)
    heading, row = progress_lines([one(tmp_path, "run")], NOW)
    told = dict(zip(heading, row, strict=True))
    assert told["epoch"] == "3 of 3"
    assert told["best epoch"] == "2, by CIDEr-D"
    assert (told["CIDEr-D"], told["BLEU-4"], told["loss"]) == ("9.00", "", "3.00")


def test_settings_that_differ(tmp_path: Path) -> None:
    write_run(tmp_path / "a", 1.0)
    write_run(tmp_path / "b", 1.0, seed=2, patience=5)  # 5 is what stands in no file of the others
    write_run(tmp_path / "c", 1.0, val_images=3)
    runs = chosen_runs(tmp_path, ["a", "b", "c"])
    assert setting_lines(runs) == [
        ["setting", "a", "b", "c"],
        ["train.val_images", "null", "null", "3"],
        ["train.seed", "1", "2", "1"],
    ]
    assert setting_lines(runs[:1]) == []


BROKEN = {
    "half": ("metrics.jsonl", '{"epoch": 1, "lo'),
    "deep": ("metrics.jsonl", "[" * 100_000),
    "other": ("metrics.jsonl", '{"epoch": 1, "loss": 5}\n'),
    "binary": ("metrics.jsonl", b"\xff\xfe"),
    "no_yaml": ("settings.yaml", "data: [\n"),
    "misspelt": ("settings.yaml", "data: {kind: shapes}\ntrain: {epochz: 3}\n"),
    "bytes": ("settings.yaml", b"\xff\xfe"),
    "removed": ("settings.yaml", None),
    "no_metrics": ("metrics.jsonl", None),
    "captions": ("results.json", "{"),
    "foreign": ("results.json", '[{"image_id": "x", "caption": "<i>"}]'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_run_is_a_line_beside_the_others(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / "whole", 1.0, 2.0)
    folder = write_run(tmp_path / name, 1.0, 2.0)
    file, content = BROKEN[name]
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    runs = chosen_runs(tmp_path, [name, "whole"])
    told = progress_html(runs, NOW) + details_html(runs)
    assert f"{name}: {file}: " in told
    assert "whole</" not in told.partition("sa-trouble")[2].partition("</p>")[0]
    assert str(tmp_path) + "/" + name + "/" + file not in told
    assert "<th scope=row>whole<td>" in told
    assert progress_html([runs[0]], NOW) + details_html([runs[0]])


# --- captions -------------------------------------------------------------------------------------


def test_captions_are_scored_and_compared(tmp_path: Path) -> None:
    for name in ("good", "bad", "short"):
        write_run(tmp_path / name, 1.0)
        write_captions(tmp_path / name, right=name != "bad", first=int(name == "short"))
    runs = chosen_runs(tmp_path, ["good", "bad", "short"])
    good, bad, short = map(read_captions, runs)
    assert good.scores.corpus["BLEU-4"] == pytest.approx(100.0)
    assert bad.scores.corpus["BLEU-4"] == pytest.approx(0.0, abs=0.01)
    scores, difference = score_tables({"good": good, "bad": bad})
    assert scores.rows["good"]["BLEU-4"].value == pytest.approx(100.0)
    assert difference.title == "good − bad"
    assert difference.rows["BLEU-4"]["difference"].value == pytest.approx(100.0, abs=0.01)
    assert difference.rows["BLEU-4"]["p"].value < 0.05
    with pytest.raises(RunsError, match="good and short: their captions are of other images"):
        score_tables({"good": good, "short": short})


def test_a_run_without_captions_says_how_they_are_made(tmp_path: Path) -> None:
    write_run(tmp_path / "a run", 1.0)
    with pytest.raises(RunsError, match=r"showattend evaluate --checkpoint '.*/a run' --out"):
        read_captions(one(tmp_path, "a run"))


def test_captions_older_than_the_last_epoch(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", 1.0)
    write_captions(folder, right=True)
    assert one(tmp_path, "run").troubles == []
    os.utime(folder / "results.json", (NOW - 1, NOW - 1))
    assert "results.json: older than the last epoch" in one(tmp_path, "run").troubles[0]


# --- the page -------------------------------------------------------------------------------------


def test_every_text_is_escaped(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "<u>run$", 1.0)
    write_captions(folder, right=False)
    runs = chosen_runs(tmp_path, ["<u>run$"])
    told = progress_html(runs, NOW) + details_html(runs)
    assert "&lt;u&gt;run$" in told
    assert "a &lt;b&gt;thing&lt;/b&gt;" in told
    assert not {"<u>", "<b>"} & set(told.replace(">", ">\n").split())


def test_the_best_and_the_worst_captions_are_shown_with_their_pictures(tmp_path: Path) -> None:
    write_captions(write_run(tmp_path / "run", 1.0), right=True)
    told = details_html([one(tmp_path, "run")])
    assert told.count('<img alt="" width=224') == 10  # of ten pictures five and five
    assert told.count("<figure>") == 10


def test_curves_are_drawn_once_until_an_epoch_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(runs_page, "draw_curves", lambda sides: drawn.append(sides) or "curves")
    folder = write_run(tmp_path / "run", 1.0, age=50)
    first = progress_html([one(tmp_path, "run")], NOW)
    assert progress_html([one(tmp_path, "run")], NOW) == first
    assert len(drawn) == 1
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "loss": 4, "CIDEr-D": 2}\n')
    assert progress_html([one(tmp_path, "run")], NOW) != first
    assert [len(sides["run"]["run"]) for sides in drawn] == [1, 2]
