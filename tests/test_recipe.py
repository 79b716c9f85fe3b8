"""A training in stages: each from the best of the one before, stopped and gone on with."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import load_script

STAGE = """
data: {{kind: shapes, train_images: 24, val_images: 4, min_count: 1}}
pixels: {{size: 64}}
encoder: {{name: tf_efficientnet_lite0, stage: 2, pretrained: false}}
decoder: {{embedding: 8, hidden: 12, attention: 6, projection: 10}}
train: {{epochs: {epochs}, batch_images: 8, learning_rate: 0.01}}
search: {{beam_size: 1, max_words: 6}}
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("recipe")


def epochs(stage: Path) -> list[int]:
    lines = (stage / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def test_a_stage_that_is_there_is_resumed(script: ModuleType, tmp_path: Path) -> None:
    folder, config = tmp_path / "1-a", Path("a.yaml")
    program = [sys.executable, "-m", "showattend", "train"]
    begun = script.stage(folder, config, ["data.root=x"], "soft", "grids")
    asked = ["--config", "a.yaml", "--run", str(folder), "data.root=x", "--init", "soft"]
    assert begun == [*program, "--cache", "grids", *asked]
    folder.mkdir()
    (folder / "settings.yaml").touch()
    resumed = script.stage(folder, config, ["data.root=x"], "soft", None)
    assert resumed == [*program, "--resume", str(folder)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stages_follow_each_other_and_are_done_once(
    script: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "words.yaml", tmp_path / "more.yaml"
    first.write_text(STAGE.format(epochs=1))
    second.write_text(STAGE.format(epochs=2))
    command = [str(first), str(second), "--run", str(tmp_path / "run")]
    command += ["--cache", str(tmp_path / "cache"), "train.seed=3"]
    assert script.main([*command[:1], *command[2:]]) == 0  # stopped after its first stage
    assert script.main(command) == 0
    assert (epochs(tmp_path / "run/1-words"), epochs(tmp_path / "run/2-more")) == ([1], [1, 2])
    environment = json.loads((tmp_path / "run/2-more/environment.json").read_text())
    assert environment["seed"] == 3
    assert f"--init {tmp_path / 'run/1-words/best'}" in environment["command"]
    said = capfd.readouterr().out
    assert "stage 2 of 2" in said
    assert "finished; nothing to resume" in said


def test_a_stage_that_fails_is_the_last(script: ModuleType, tmp_path: Path) -> None:
    config = tmp_path / "broken.yaml"
    config.write_text("data: {kind: shapes}\n")
    assert script.main([str(config), str(config), "--run", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run/2-broken").exists()
