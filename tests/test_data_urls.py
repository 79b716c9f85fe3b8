"""URLs that hold files, against what browsers read of them: RFC 2397."""

import io
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from showattend.data_urls import data_url, jpeg_url


@pytest.mark.parametrize("content", [b"", b"a", bytes(range(256))])
def test_the_content_is_read_back(content: bytes) -> None:
    with urlopen(data_url(content, "text/csv")) as answer:
        assert answer.read() == content
        assert answer.headers.get_content_type() == "text/csv"


def test_a_picture_is_read_back() -> None:
    with urlopen(jpeg_url(Image.new("RGB", (20, 10), (200, 100, 50)), 90)) as answer:
        assert answer.headers.get_content_type() == "image/jpeg"
        read = Image.open(io.BytesIO(answer.read()))
    assert (read.format, read.size) == ("JPEG", (20, 10))
    assert np.abs(np.asarray(read, int) - (200, 100, 50)).max() <= 3
