"""Tables that nobody can check without downloading 40 GB: their form, and that nothing is twice."""

import re
from pathlib import Path

import pytest

from showattend.archives import FLICKR8K, Archive, coco, karpathy

ALL = (*coco(2014), *coco(2017), *map(karpathy, ("coco", "flickr8k", "flickr30k")), *FLICKR8K)


@pytest.mark.parametrize("archive", ALL, ids=lambda archive: archive.path)
def test_addresses_and_checksums_have_their_form(archive: Archive) -> None:
    assert re.fullmatch(r"https://[\w.]+(/[\w.-]+)+\.zip", archive.url())
    assert re.fullmatch(r"sha256:[0-9a-f]{64}|md5:[0-9a-f]{32}", archive.digest)


def test_every_zip_has_its_own_checksum_and_size() -> None:
    zips = {archive.url(): (archive.digest, archive.size) for archive in ALL}
    assert len(zips) == len(set(zips.values())) == 9
    assert {archive.name for archive in ALL} == {url.rpartition("/")[2] for url in zips}


def test_coco_is_as_large_as_it_says_of_itself() -> None:
    """cocodataset.org: 13GB, 6GB and 241MB of 2014; 18GB, 1GB and 241MB of 2017, in powers of 2."""
    for year, giga in ((2014, {"train": 13, "val": 6}), (2017, {"train": 18, "val": 1})):
        annotations, *photographs = coco(year)
        assert annotations.size is not None
        assert annotations.size // 2**20 == 241
        for archive, size in zip(photographs, giga.values(), strict=True):
            assert archive.size is not None
            assert round(archive.size / 2**30) == size


def test_a_split_alone() -> None:
    assert [archive.name for archive in coco(2017, ("val",))] == [
        "annotations_trainval2017.zip",
        "val2017.zip",
    ]


def test_a_mirror_has_the_same_paths() -> None:
    archive = coco(2017)[1]
    assert archive.url() == "https://s3.amazonaws.com/images.cocodataset.org/zips/train2017.zip"
    for source in ("http://mirror/coco", "http://mirror/coco/"):
        assert archive.url(source) == "http://mirror/coco/zips/train2017.zip"


def test_all_that_is_made_must_be_there(tmp_path: Path) -> None:
    annotations = coco(2014)[0]
    assert len(annotations.makes) == 4
    for made in annotations.makes:
        assert not annotations.is_unpacked(tmp_path)
        (tmp_path / made).parent.mkdir(exist_ok=True)
        (tmp_path / made).touch()
    assert annotations.is_unpacked(tmp_path)
