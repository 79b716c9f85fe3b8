"""The page of the best and worst images."""

import re
from pathlib import Path

import numpy as np
from conftest import MakePicture
from hypothesis import given, settings
from hypothesis import strategies as st

from showattend.page import Shown, extremes, page
from showattend.search import Caption, Regions

some = settings(max_examples=50, deadline=None)  # a busy machine is no failure


def test_the_extremes_come_first_and_none_is_both() -> None:
    scores = {
        name: {"CIDEr-D": score} for name, score in zip("abcde", (3, 9, 0, 5, 1), strict=True)
    }
    assert extremes(scores, "CIDEr-D", 2) == (["b", "d"], ["c", "e"])
    assert extremes(scores, "CIDEr-D", 99) == (["b", "d", "a"], ["c", "e"])


@some
@given(values=st.lists(st.floats(0, 10), max_size=9), count=st.integers(0, 12))
def test_no_image_is_shown_twice(values: list[float], count: int) -> None:
    best, worst = extremes({k: {"x": value} for k, value in enumerate(values)}, "x", count)
    assert len({*best, *worst}) == len(best) + len(worst) == min(2 * count, len(values))
    if best and worst:
        assert min(values[k] for k in best) >= max(values[k] for k in worst)


def test_the_page_is_whole_and_fetches_nothing(make_picture: MakePicture, tmp_path: Path) -> None:
    picture = make_picture("a<b.png", captions=("a dog & a cat",))
    weights_TP = np.full((2, 4), 0.25)
    caption = Caption(("a", "<dog>"), -1.0, weights_TP, weights_TP, None, Regions(2, 2))
    html = page("Best & worst", [Shown(picture, caption, {"CIDEr-D": 81.25})], [], "squash")
    assert "Best &amp; worst" in html
    assert "a &lt;dog&gt;" in html and "<dog>" not in html
    assert "a&lt;b.png: CIDEr-D 81.2" in html
    assert "<li>a dog &amp; a cat" in html
    assert re.findall(r'src="(data:image/jpeg;base64),/9j/', html) == ["data:image/jpeg;base64"]
    assert "http" not in html
