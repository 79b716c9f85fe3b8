"""Settings: every mistake is one line that names the file, the key and what was expected."""

from pathlib import Path

import pytest
import yaml

from showattend.config import ConfigError, Settings, check_settings, read_settings

FOLDER = Path(__file__).resolve().parents[1] / "configs"
CONFIGS = sorted(path for path in FOLDER.glob("*.yaml") if not path.stem.startswith("ablate_"))

SMALLEST = "data: {kind: shapes}\ntrain: {epochs: 3}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(SMALLEST)
    return path


def complaint(path: Path, text: str | None = None, overrides: list[str] | None = None) -> str:
    """The one line that a settings file is refused with."""
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_settings(path, overrides)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_configs_are_shipped() -> None:
    assert CONFIGS


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_a_shipped_config_is_valid_and_opens_with_its_command(path: Path) -> None:
    settings = read_settings(path)
    assert settings.train.epochs > 1
    assert f"--config configs/{path.name}" in path.read_text().split("data:")[0]


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("flickr8k_soft_finetuned", "flickr8k_soft"),
        ("flickr8k_rewarded", "flickr8k_soft_finetuned"),
    ],
)
def test_a_later_stage_says_of_its_model_what_the_first_said(name: str, before: str) -> None:
    """`--init` takes the model from the checkpoint: what a config says besides would be untrue."""
    same = {"data", "pixels", "encoder", "decoder", "search"}
    ours = {"encoder": {"trainable_stages"}, "decoder": {"word_dropout"}}
    later, first = (
        read_settings(FOLDER / f"{each}.yaml").model_dump(include=same, exclude=ours)
        for each in (name, before)
    )
    assert later == first


def test_what_is_not_said_has_the_documented_default(file: Path) -> None:
    settings = read_settings(file)
    assert settings.train.epochs == 3
    assert (settings.pixels.size, settings.pixels.resize, settings.pixels.mean) == (
        224,
        "squash",
        None,
    )
    assert (settings.encoder.name, settings.encoder.trainable_stages) == (
        "tf_efficientnet_lite0",
        0,
    )
    assert (settings.search.beam_size, settings.search.length_penalty) == (5, 0.7)


def test_settings_written_and_read_again_are_the_same(file: Path) -> None:
    changes = ["pixels.mean=[0.1,0.2,0.3]", "pixels.std=[1,2,3]"]
    gates = "encoder.channel_attention={kind: cbam, where: block, stages: [-1, 2]}"
    settings = read_settings(CONFIGS[0], [*changes, gates])
    file.write_text(yaml.safe_dump(settings.model_dump(mode="json")))
    assert read_settings(file) == settings


def test_settings_cannot_be_changed(file: Path) -> None:
    settings = read_settings(file)
    with pytest.raises(ValueError, match="frozen"):
        settings.train.epochs = 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SMALLEST + "serach: {beam_size: 3}", "unknown key `serach`; did you mean `search`?"),
        (
            "data: {kind: shapes}\ntrain: {epochs: 3, learn_rate: 1}",
            "unknown key `train.learn_rate`; did you mean `learning_rate`?",
        ),
        (  # the misspelt key is named, not the one that is missing because of it
            "data: {kind: shapes}\ntrain: {epoch: 3}",
            "unknown key `train.epoch`; did you mean `epochs`? (and 1 more)",
        ),
        (
            SMALLEST + "search: {qqq: 3}",
            "unknown key `search.qqq`; valid keys: attention, beam_size, length_penalty, max_words",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(
    file: Path, text: str, expected: str
) -> None:
    assert complaint(file, text) == f"{file}: {expected}"


@pytest.mark.parametrize(
    ("override", "key", "expected"),
    [
        ("train.epochs=many", "train.epochs", "'many'"),
        ("train.epochs=2.5", "train.epochs", "2.5"),
        ("train.epochs=", "train.epochs", "None"),
        ("train.epochs=0", "train.epochs", "greater than or equal to 1"),
        ("train.epochs=yes", "train.epochs", "True"),
        ("train.seed=-1", "train.seed", "greater than or equal to 0"),
        ("train.seed=99999999999999999999999", "train.seed", "less than or equal to"),
        ("decoder.hidden=1000000000000", "decoder.hidden", "less than or equal to 65536"),
        ("search.max_words=1000000", "search.max_words", "less than or equal to 1000"),
        ("pixels.std=[1e-300,1,1]", "pixels.std.0", "greater than or equal to 0.001"),
        ("pixels.mean=[1e300,1,1]", "pixels.mean.0", "less than or equal to 1"),
        ("train.flips=7", "train.flips", "boolean"),
        ("train.learning_rate=0", "train.learning_rate", "greater than 0"),
        ("train.learning_rate=.nan", "train.learning_rate", "finite"),
        ("train.clip_norm=.inf", "train.clip_norm", "finite"),
        (
            "train.select_on=CIDEr",
            "train.select_on",
            "'ROUGE-L', 'CIDEr-D', 'METEOR' or 'pointing'",
        ),
        ("train.scheduled_sampling=1", "train.scheduled_sampling", "less than 1"),
        ("decoder.dropout=-0.1", "decoder.dropout", "greater than or equal to 0"),
        ("decoder.projection=0", "decoder.projection", "greater than or equal to 1"),
        ("loss.doubly_stochastic=-1", "loss.doubly_stochastic", "greater than or equal to 0"),
        ("loss.doubly_stochastic_target=T/P", "loss.doubly_stochastic_target", "'one'"),
        ("search.beam_size=65", "search.beam_size", "less than or equal to 64"),
        ("search.length_penalty=5", "search.length_penalty", "less than or equal to 4"),
        ("pixels.size=8", "pixels.size", "greater than or equal to 32"),
        ("pixels.resize=stretch", "pixels.resize", "'squash', 'crop' or 'pad'"),
        ("pixels.mean=[0.5,0.5]", "pixels.mean.2", ""),
        (
            "pixels.std=[0.5,0,0.5]",
            "pixels.std.1",
            "greater than or equal to 0.001",
        ),
        ("encoder.trainable_stages=-1", "encoder.trainable_stages", "greater than or equal to 0"),
        ("encoder.channel_attention=se", "encoder.channel_attention", "dictionary"),
        (
            "encoder.channel_attention={kind: sk, where: block}",
            "encoder.channel_attention.kind",
            "'se', 'eca' or 'cbam'",
        ),
        (
            "encoder.channel_attention={kind: se, where: head}",
            "encoder.channel_attention.where",
            "'block' or 'stage'",
        ),
        (
            "encoder.channel_attention={kind: se, where: stage, stages: []}",
            "encoder.channel_attention.stages",
            "at least 1 item",
        ),
        (
            "encoder.channel_attention={kind: se, where: stage, stages: [yes]}",
            "encoder.channel_attention.stages.0",
            "valid integer",
        ),
        (
            "encoder.channel_attention={kind: se, where: stage, reduction: 0}",
            "encoder.channel_attention.reduction",
            "greater than or equal to 1",
        ),
        ("data.kind=imagenet", "data.kind", "'flickr8k'"),
        ("search=[1]", "search", "dictionary"),
    ],
)
def test_a_wrong_value_is_refused_with_its_key_and_what_was_expected(
    file: Path, override: str, key: str, expected: str
) -> None:
    """And with where it was written."""
    line = complaint(file, overrides=[override])
    assert line.startswith(f"{override}: `{key}` is ")
    assert expected in line


def test_a_missing_key_and_a_missing_section_are_named(file: Path) -> None:
    assert complaint(file, "data: {kind: shapes}\ntrain: {}") == (
        f"{file}: `train.epochs` is missing"
    )
    assert complaint(file, "train: {epochs: 1}") == f"{file}: `data` is missing"


def test_channel_attention_is_off_by_default_and_its_places_are_named(file: Path) -> None:
    assert read_settings(file).encoder.channel_attention is None
    gates = read_settings(
        file, ["encoder.channel_attention.kind=eca", "encoder.channel_attention.where=stage"]
    ).encoder.channel_attention
    assert gates is not None
    assert (gates.kind, gates.where, gates.stages, gates.reduction) == ("eca", "stage", (-1,), 16)
    line = complaint(file, overrides=["encoder.channel_attention={kind: se}"])
    assert line == (
        "encoder.channel_attention={kind: se}: `encoder.channel_attention.where` is missing"
    )
    line = complaint(file, overrides=["encoder.channel_attention={kind: se, were: stage}"])
    assert "were: stage}: unknown key `encoder.channel_attention.were`" in line


def test_a_layout_says_what_it_needs(file: Path) -> None:
    line = complaint(file, overrides=["data.kind=flickr8k"])
    assert line == f"{file}: data.root is missing: say where the flickr8k photographs lie"
    for kind in ("karpathy", "folder"):
        line = complaint(file, overrides=[f"data.kind={kind}", "data.root=photos"])
        assert line == f"{file}: data.captions is missing: {kind} needs its captions file"


def test_overrides_are_laid_over_in_order_and_read_as_yaml(file: Path) -> None:
    settings = read_settings(
        file,
        [
            "train.epochs=5",
            "train.epochs=7",
            "train.learning_rate=1e-4",
            "train.flips=true",
            "decoder.projection=null",
            "pixels.mean=[0.1, 0.2, 0.3]",
            "data.root=/photos/a=b",
        ],
    )
    assert settings.train.epochs == 7
    assert settings.train.learning_rate == 1e-4
    assert settings.train.flips is True
    assert settings.decoder.projection is None
    assert settings.pixels.mean == (0.1, 0.2, 0.3)
    assert settings.data.root == Path("/photos/a=b")


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.epochs", "expected SECTION.KEY=VALUE, such as train.epochs=3"),
        ("=3", "expected SECTION.KEY=VALUE, such as train.epochs=3"),
        ("train..epochs=3", "expected SECTION.KEY=VALUE, such as train.epochs=3"),
        ("train.epochs.x=3", "epochs is not a section"),
        ("train.epochs=[", "the value is not YAML"),
    ],
)
def test_a_malformed_override_is_quoted(file: Path, override: str, expected: str) -> None:
    assert complaint(file, overrides=[override]) == f"{override!r}: {expected}"


def test_an_unknown_key_in_an_override_is_refused_too(file: Path) -> None:
    assert complaint(file, overrides=["search.beam=3"]) == (
        "search.beam=3: unknown key `search.beam`; did you mean `beam_size`?"
    )


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert complaint(tmp_path / "no.yaml") == (
        f"{tmp_path / 'no.yaml'}: cannot be read (No such file or directory); give a YAML file"
    )
    assert complaint(tmp_path).startswith(f"{tmp_path}: cannot be read (")


@pytest.mark.parametrize("value", ["2020-13-45", "0x_", "!!int foo", "[" * 3000])
def test_what_yaml_itself_stumbles_over_is_one_line(file: Path, value: str) -> None:
    with pytest.raises(ConfigError, match="the value is not YAML"):
        read_settings(file, [f"train.epochs={value}"])
    assert "is not YAML" in complaint(file, f"train: {{epochs: {value}")


def test_fusing_needs_a_projection_and_supervision_needs_boxes(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"decoder\.projection is null"):
        read_settings(file, ["encoder.fused=true", "encoder.stage=3", "decoder.projection=null"])
    with pytest.raises(ConfigError, match=r"data\.boxes is missing"):
        read_settings(file, ["data.kind=flickr8k", "data.root=.", "loss.attention=0.3"])
    read_settings(file, ["loss.attention=0.3"])  # drawn shapes know their boxes


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("loss.label_smoothing=0.1", "loss and hard: change nothing where there is a reward"),
        ("hard.entropy=0.1", "loss and hard: change nothing where there is a reward"),
        ("train.scheduled_sampling=0.1", "changes nothing where there is a reward"),
        ("reward.samples=1", "`reward.samples` is 1"),
        ("reward.temperature=0", "`reward.temperature` is 0"),
        ("reward.baseline=mean", "`reward.baseline` is"),
    ],
)
def test_a_reward_refuses_what_it_would_not_heed(file: Path, override: str, expected: str) -> None:
    assert read_settings(file, ["reward={}"]).reward is not None
    assert expected in complaint(file, overrides=["reward={}", override])


def test_a_bag_of_words_needs_a_context_to_tell_it_from(file: Path) -> None:
    settings = read_settings(file, ["loss.bag_of_words=1", "decoder.kind=gru"])
    assert settings.loss.bag_of_words == 1.0
    line = complaint(file, overrides=["loss.bag_of_words=1", "decoder.kind=transformer"])
    assert "loss.bag_of_words: of an lstm or a gru" in line


def test_supervised_attention_needs_whole_photographs(file: Path) -> None:
    crops = ["train.smallest_crop=0.8"]
    assert read_settings(file, crops).train.smallest_crop == 0.8
    assert "train.smallest_crop" in complaint(file, overrides=[*crops, "loss.attention=0.3"])


def test_what_is_not_yaml_is_one_line(file: Path) -> None:
    assert complaint(file, "data: {kind: [\n- x\n").startswith(f"{file}: is not YAML (")
    file.write_bytes(b"\xff\xfe\x00data")
    assert complaint(file).startswith(f"{file}: is not YAML (")
    for text in ("", "a text", "- a\n- list\n"):
        assert complaint(file, text) == (
            f"{file}: expected sections such as `data:` and `train:`, found none"
        )


def test_a_key_that_is_there_twice_is_refused(file: Path) -> None:
    """The second would silently take the place of the first."""
    twice = complaint(file, SMALLEST + "data: {kind: coco}\n")
    assert "is not YAML (`data` is there twice" in twice
    assert "line 3" in twice


def test_a_tree_is_checked_like_a_file() -> None:
    tree = {"data": {"kind": "shapes"}, "train": {"epochs": 2}}
    assert isinstance(check_settings(tree, "here"), Settings)
    with pytest.raises(ConfigError, match=r"^here: `train\.epochs` is missing$"):
        check_settings(tree | {"train": {}}, "here")
