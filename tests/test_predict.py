"""The API's own checks: what cannot be meant ends in one line."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import MakePicture, with_gates
from PIL import Image

from showattend import predict
from showattend.captioner import build_captioner
from showattend.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from showattend.config import Attention, ConfigError
from showattend.images import ImageError
from showattend.predict import Caption, CaptionModel, DeviceError, choose_device, load


@pytest.fixture
def model(checkpoint: Checkpoint) -> CaptionModel:
    return CaptionModel(checkpoint, "tiny")


@pytest.fixture
def photo(make_picture: MakePicture) -> Path:
    source = make_picture("dog.png").source
    assert isinstance(source, Path)
    return source


def test_the_model_that_load_takes_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("hard", "other", "soft"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "half_made").mkdir()
    monkeypatch.setattr(predict, "_SHIPPED", tmp_path)
    assert predict.shipped_models() == ["soft", "hard", "other"]


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ({"beam_size": 0}, "`beam_size` is 0: input should be greater than or equal to 1"),
        ({"beam_size": 65}, "`beam_size` is 65: input should be less than or equal to 64"),
        ({"beam_size": 2.5}, "`beam_size` is 2.5: input should be a valid integer"),
        ({"max_words": 0}, "`max_words` is 0: input should be greater than or equal to 1"),
        ({"attention": "soft"}, "`attention` is 'soft': input should be 'argmax', 'sample' or"),
    ],
)
def test_search_out_of_range_is_one_line(
    model: CaptionModel, photo: Path, search: Any, expected: str
) -> None:
    for ask in (
        lambda: model.caption(photo, **search),
        lambda: model.candidates([photo], **search),
        lambda: list(model.stream([photo], **search)),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert str(caught.value).startswith(f"search: {expected}")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"temperature": math.nan}, "temperature is nan: expected a number above 0"),
        ({"temperature": math.inf}, "temperature is inf: expected a number above 0"),
        ({"temperature": 0.0}, "temperature is 0.0: expected a number above 0"),
        ({"temperature": -1.0}, "temperature is -1.0: expected a number above 0"),
        ({"top_p": math.nan}, "top_p is nan: expected a number above 0 and at most 1"),
        ({"top_p": 0.0}, "top_p is 0.0: expected a number above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p is 1.5: expected a number above 0 and at most 1"),
    ],
)
def test_sampling_out_of_range_is_one_line(
    model: CaptionModel, photo: Path, how: Any, expected: str
) -> None:
    with pytest.raises(ValueError) as caught:
        model.sample(photo, **how)
    assert str(caught.value).startswith(expected)
    assert "\n" not in str(caught.value)


def test_samples_are_captions(model: CaptionModel, photo: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    assert 1 <= len(model.sample(photo, 0.5, 1.0, generator).words) <= 5


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_holds_a_photograph(model: CaptionModel, photo: Path, batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"^batch_size is {batch_size}: expected 1 or more$"):
        list(model.stream([photo], batch_size=batch_size))


@pytest.mark.parametrize(("sentence", "problem"), [(None, "is no text"), ("", "has no words")])
def test_attending_needs_words(
    model: CaptionModel, photo: Path, sentence: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=f"^{sentence!r}: {problem}; give a sentence such as"):
        model.attend(photo, sentence)


@pytest.fixture
def transformer(checkpoint: Checkpoint) -> CaptionModel:
    """Two layers of two heads, with weights large enough to look here rather than there."""
    small = {"kind": "transformer", "layers": 2, "heads": 2, "attention": 4, "projection": 6}
    decoder = checkpoint.decoder.model_copy(update=small)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        captioner = build_captioner(
            checkpoint.encoder, decoder, size=32, words=len(checkpoint.vocabulary)
        )
    with torch.no_grad():
        for parameter in captioner.decoder.parameters():
            parameter.mul_(2.0)
    tiny = replace(checkpoint, captioner=captioner.eval(), decoder=decoder)
    return CaptionModel(tiny, "tiny")


def test_a_transformers_words_look_at_those_before_them(
    transformer: CaptionModel, photo: Path
) -> None:
    weights_TLHT = transformer.word_attention(photo, "A dog on the grass!")
    assert weights_TLHT.shape == (5, 2, 2, 5)
    np.testing.assert_allclose(weights_TLHT.sum(axis=-1), 1, rtol=1e-5)
    assert (weights_TLHT[0, :, :, 0] == 1).all()  # before the first word there is START alone
    for t in range(5):
        assert (weights_TLHT[t, :, :, : t + 1] > 0).all()
        assert (weights_TLHT[t, :, :, t + 1 :] == 0).all()


def test_a_word_that_is_written_later_changes_no_row(
    transformer: CaptionModel, photo: Path
) -> None:
    """The row of a word is what was known as it was written: itself is not."""
    one, other = (transformer.word_attention(photo, f"a dog {word}") for word in ("on", "cat"))
    np.testing.assert_array_equal(one, other)
    assert (one[2] != transformer.word_attention(photo, "a cat on")[2]).any()


def test_words_of_a_caption_are_taken_as_they_are(transformer: CaptionModel, photo: Path) -> None:
    text = transformer.word_attention(photo, "a dog")
    np.testing.assert_array_equal(transformer.word_attention(photo, ["a", "dog"]), text)
    assert transformer.word_attention(photo, ("a dog",)).shape == (1, 2, 2, 1)  # one unknown word


def test_what_a_layer_reads_depends_on_the_look(transformer: CaptionModel, photo: Path) -> None:
    """Below the first look there is none: only the second layer hears of it."""
    soft = transformer.word_attention(photo, "a dog on grass")
    hard = transformer.word_attention(photo, "a dog on grass", "argmax")
    np.testing.assert_array_equal(soft[:, 0], hard[:, 0])
    assert (soft[1:, 1] != hard[1:, 1]).any()


def test_an_lstm_has_no_attention_among_words(model: CaptionModel, photo: Path) -> None:
    with pytest.raises(ValueError) as caught:
        model.word_attention(photo, "a dog")
    assert str(caught.value) == (
        "tiny: its decoder is of the kind lstm, which has no attention among words; use a model "
        "whose decoder.kind is transformer"
    )


@pytest.mark.parametrize(
    ("sentence", "problem"),
    [
        ("", "^'': has no words; give"),
        ([], r"^\[\]: is no text; give"),
        (5, "^5: is no text; give"),
        ("a " * 1001, "^the sentence has 1001 words: expected at most 1000$"),
    ],
)
def test_attention_among_words_needs_words(
    transformer: CaptionModel, photo: Path, sentence: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        transformer.word_attention(photo, sentence)


def test_channel_gates_are_told_with_and_without_a_caption(
    checkpoint: Checkpoint, photo: Path, make_picture: MakePicture
) -> None:
    """Of each photograph its own, by every door that opens one."""
    model, other = CaptionModel(with_gates(checkpoint), "tiny"), make_picture("cat.png", 1).source
    assert isinstance(other, Path)
    gates = model.channel_gates(photo)
    assert {place: gates_C.shape for place, gates_C in gates.items()} == {
        "body.blocks.0": (16,),
        "grid": (24,),
    }
    assert all(gates_C.min() < 0.9 and gates_C.max() > 1.1 for gates_C in gates.values())
    both = model.caption([other, photo])
    assert not np.allclose(both[0].gates["grid"], gates["grid"], atol=1e-3)
    for caption in (
        both[1],
        model.caption(photo, beam_size=1),
        next(model.stream([photo]))[1],
        model.sample(photo),
        model.attend(photo, "a dog"),
    ):
        assert isinstance(caption, Caption)
        assert list(caption.gates) == list(gates)
        for place, gates_C in gates.items():
            np.testing.assert_allclose(caption.gates[place], gates_C, rtol=1e-5)


def test_without_channel_attention_there_are_no_gates(model: CaptionModel, photo: Path) -> None:
    assert model.caption(photo).gates == {}
    with pytest.raises(ValueError) as caught:
        model.channel_gates(photo)
    assert str(caught.value) == (
        "tiny: has no channel attention; use a model trained with encoder.channel_attention"
    )


@pytest.mark.parametrize("name", ["cpu:", "cpu:x"])
def test_a_device_without_a_number_is_one_line(name: str) -> None:
    with pytest.raises(DeviceError, match=f"^--device {name}: names no device; choose auto or cpu"):
        choose_device(name)


@pytest.mark.parametrize("model", [5, None])
def test_a_model_is_a_name_or_a_folder(model: Any) -> None:
    with pytest.raises(CheckpointError, match=f"^{model}: expected a shipped model's name or a"):
        load(model)


def test_damaged_weights_end_in_one_line(model: CaptionModel, photo: Path) -> None:
    with torch.no_grad():
        model.checkpoint.captioner.decoder.word_logits.bias.fill_(math.nan)
    for ask in (lambda: model.caption(photo), lambda: list(model.stream([photo]))):
        with pytest.raises(ValueError, match="its weights are damaged"):
            ask()


def test_a_run_is_read_in_the_middle_of_a_save(tmp_path: Path, checkpoint: Checkpoint) -> None:
    """Between the two renames the older best lies under another name."""
    save_checkpoint(tmp_path / "run" / ".best.old", checkpoint)
    assert load(tmp_path / "run").checkpoint.vocabulary.words == checkpoint.vocabulary.words


@pytest.mark.parametrize("attention", ["argmax", "sample", "expectation"])
def test_the_way_to_look_reaches_every_door(
    model: CaptionModel, photo: Path, attention: Attention
) -> None:
    for caption in (
        model.caption(photo, attention=attention),
        model.caption([photo], beam_size=1, attention=attention)[0],
        model.candidates([photo], attention=attention)[0][0],
        next(model.stream([photo], attention=attention))[1],
        model.sample(photo, attention=attention),
    ):
        assert isinstance(caption, Caption)
        soft = np.array_equal(caption.weights, caption.alpha)
        assert soft == (attention == "expectation")
        if attention == "argmax":
            np.testing.assert_array_equal(
                caption.weights.argmax(axis=1), caption.alpha.argmax(axis=1)
            )
        if not soft:
            assert set(np.unique(caption.weights)) == {0.0, 1.0}


def test_a_sample_looks_as_the_checkpoint_does(checkpoint: Checkpoint, photo: Path) -> None:
    search = checkpoint.search.model_copy(update={"attention": "argmax"})
    model = CaptionModel(replace(checkpoint, search=search), "tiny")
    assert set(np.unique(model.sample(photo).weights)) == {0.0, 1.0}
    with pytest.raises(ConfigError, match="`attention` is 'hard'"):
        model.sample(photo, attention="hard")  # type: ignore[arg-type]


# Steering


def test_the_way_to_steer_reaches_every_door(model: CaptionModel, photo: Path) -> None:
    """The right half of the photograph is the right half of the 8x8 grid."""
    box = (0.5, 0, 1, 1)
    for caption in (
        model.caption(photo, look_at=box, begin="A dog"),
        model.caption([photo], beam_size=1, look_at=box, begin=["a", "dog"])[0],
        model.candidates([photo], look_at=box, begin="a dog")[0][-1],
        next(model.stream([photo], look_at=box, begin="a dog"))[1],
        model.sample(photo, look_at=box, begin="a dog"),
        model.attend(photo, "a dog", look_at=box),
    ):
        assert isinstance(caption, Caption)
        assert caption.words[:2] == ("a", "dog")
        assert caption.maps().shape == (len(caption.words), 8, 8)
        assert (caption.maps()[:, :, :4] == 0).all()
        np.testing.assert_allclose(caption.weights.sum(axis=1), 1, rtol=1e-5)


def test_cells_and_the_first_word_of_the_look_are_chosen(model: CaptionModel, photo: Path) -> None:
    corner_hw = np.zeros((8, 8), bool)
    corner_hw[7, 7] = True
    (free, bound) = (
        model.attend(photo, "a dog on grass", **how)
        for how in ({}, {"look_at": corner_hw, "look_from": 3})
    )
    np.testing.assert_array_equal(free.weights[:2], bound.weights[:2])
    assert (bound.weights[2:, -1] == 1).all()
    assert bound.log_prob != free.log_prob


def test_a_word_is_replaced_and_the_rest_rewritten(model: CaptionModel, photo: Path) -> None:
    """What the beam finds is as probable as teacher forcing says, the given words included."""
    caption = model.caption(photo)
    replaced = model.caption(photo, begin=[*caption.words[:1], "grass"])
    assert replaced.words[:2] == (*caption.words[:1], "grass")
    told = model.attend(photo, " ".join(replaced.words))
    assert replaced.log_prob == pytest.approx(told.log_prob, abs=1e-4)


@pytest.mark.parametrize(
    ("resize", "box", "rows", "columns"),
    [
        ("squash", (0, 0, 0.5, 1), (0, 8), (0, 4)),
        ("crop", (0, 0, 0.5, 1), (0, 8), (0, 4)),  # sees 1/4 to 3/4 of the width
        ("crop", (0.5, 0.5, 0.625, 1), (4, 8), (4, 6)),
        ("pad", (0, 0, 0.5, 1), (2, 6), (0, 4)),  # the photograph lies in the middle rows
        ("pad", (0, 0, 1, 0.5), (2, 4), (0, 8)),
    ],
)
def test_a_box_is_one_of_the_photograph_however_it_is_cut(
    checkpoint: Checkpoint, resize: Any, box: Any, rows: Any, columns: Any
) -> None:
    pixels = checkpoint.pixels.model_copy(update={"resize": resize})
    model = CaptionModel(replace(checkpoint, pixels=pixels), "tiny")
    caption = model.caption(Image.new("RGB", (64, 32), "red"), look_at=box)
    expected_hw = np.zeros((8, 8), bool)
    expected_hw[slice(*rows), slice(*columns)] = True
    for map_hw in caption.maps():
        np.testing.assert_array_equal(map_hw > 0, expected_hw)


def test_a_box_that_the_model_does_not_see_takes_nothing_from_the_others(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    pixels = checkpoint.pixels.model_copy(update={"resize": "crop"})
    model = CaptionModel(replace(checkpoint, pixels=pixels), "tiny")
    paths = [tmp_path / "wide.png", tmp_path / "square.png"]
    for path, width in zip(paths, (64, 32), strict=True):
        Image.new("RGB", (width, 32), "red").save(path)
    box = (0, 0, 0.25, 1)
    with pytest.raises(ImageError) as caught:
        model.caption(paths, look_at=box)
    assert str(caught.value) == (
        f"{str(paths[0])!r}: of the box (0, 0, 0.25, 1) the model sees nothing; of this "
        "photograph it sees 0.25, 0, 0.75, 1"
    )
    (_, wide), (_, square) = model.stream(paths, look_at=box)
    assert isinstance(wide, ImageError)
    assert isinstance(square, Caption) and (square.maps()[:, :, 2:] == 0).all()


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({"begin": "a zebra"}, "begin has 'zebra', which is none of the 9 words that tiny knows; "),
        ({"begin": ["a dog"]}, "begin has 'a dog', which is none of the 9 words that tiny knows; "),
        ({"begin": "a <end>"}, "begin has "),
        (
            {"begin": "a dogg"},
            "begin has 'dogg', which is none of the 9 words that tiny knows; choose another, such "
            "as 'dog'",
        ),
        ({"begin": "a dog on grass a"}, "begin has 5 words: expected fewer than max_words, 5"),
        ({"begin": "..."}, "'...': has no words"),
        ({"begin": 5}, "5: is no text"),
        ({"look_at": (0, 0, 2, 1)}, "look_at is (0, 0, 2, 1): expected a box"),
        ({"look_at": np.ones((2, 2), bool)}, "look_at is a mask (2, 2) with 4 cells: expected (8,"),
        ({"look_from": 2}, "look_from is 2: say by look_at where to look from there"),
    ],
)
def test_steering_that_cannot_be_is_one_line(
    model: CaptionModel, photo: Path, how: Any, problem: str
) -> None:
    for ask in (
        lambda: model.caption(photo, **how),
        lambda: next(model.stream([photo], **how)),
        lambda: model.sample(photo, **how),
    ):
        with pytest.raises(ValueError) as caught:
            ask()
        assert str(caught.value).startswith(problem)
        assert "\n" not in str(caught.value)
