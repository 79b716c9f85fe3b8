"""Which encoder sees the words: the probe's figures, by hand and on what is known."""

from types import ModuleType

import numpy as np
import pytest
from conftest import MakePicture, load_script


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load_script("word_probe")


def test_words_and_their_shares(script: ModuleType, make_picture: MakePicture) -> None:
    pictures = [
        make_picture("a.png", 0, ("A dog runs.", "The dog, a dog", "a cat")),
        make_picture("b.png", 1, ("a cat sits on the dog", "dogs")),
    ]
    words = script.common_words(pictures, 2)
    assert words == ["dog", "cat"]
    np.testing.assert_allclose(script.shares(pictures, words), [[2 / 3, 1 / 3], [1 / 2, 1 / 2]])


def test_average_precision_by_hand(script: ModuleType) -> None:
    """Hits at ranks 1, 2, 4, 5 and 7; a word that four images have does not count."""
    truth = np.array([[1, 1, 0, 1, 1, 0, 1, 0], [1, 1, 1, 1, 0, 0, 0, 0]], dtype=bool).T
    guess = np.array([np.arange(8, 0, -1), np.arange(8)], dtype=float).T
    expected = (1 / 1 + 2 / 2 + 3 / 4 + 4 / 5 + 5 / 7) / 5
    assert script.mean_average_precision(guess, truth) == pytest.approx(expected)


def test_r2_by_hand(script: ModuleType) -> None:
    truth = np.array([[0.0, 1.0], [2.0, 1.0]])
    assert script.r2(truth, truth) == 1.0
    assert script.r2(np.array([[1.0, 1.0], [1.0, 1.0]]), truth) == 0.0
    assert script.r2(np.array([[0.0, 1.5], [2.0, 1.5]]), truth) == pytest.approx(1 - 0.5 / 2)


def test_what_depends_on_the_features_is_told_and_noise_is_not(script: ModuleType) -> None:
    draw = np.random.default_rng(0)
    weights = draw.normal(size=(10, 3))

    def data(images: int) -> tuple[np.ndarray, np.ndarray]:
        seen = draw.normal(size=(images, 10))
        return seen, (seen @ weights > 0).astype(float)

    (seen, said), (seen_val, said_val) = data(600), data(300)
    told, precision = script.probe(seen, said, seen_val, said_val)
    assert told > 0.5
    assert precision > 0.9
    noise, noise_val = draw.normal(size=seen.shape), draw.normal(size=seen_val.shape)
    told, precision = script.probe(noise, said, noise_val, said_val)
    assert told < 0.05
    assert precision < 0.65


def test_an_encoder_has_a_size(script: ModuleType) -> None:
    with pytest.raises(SystemExit):
        script.main(["--root", ".", "--encoders", "resnet50"])
