"""Where data sets are published, as zips, and how to tell that one came whole."""

from dataclasses import dataclass
from pathlib import Path

# A zip of photographs grows by nothing when it is unpacked, as JPEGs are compressed already: 80 of
# COCO's by 1.004, 500 of Flickr8k's by 0.997. Captions grow by 3.4 (COCO's) and 3.7 (Flickr8k's).
PHOTOGRAPHS, TEXTS = 1.1, 10.0


@dataclass(frozen=True)
class Archive:
    """A published zip and what of it is wanted.

    Args:
        base: address of its publisher.
        path: of the zip under ``base``, or under a mirror of it.
        digest: the kind of checksum, a colon, and hex digits.
        makes: files and folders that it holds and that are wanted, with / between the parts.
        growth: it unpacks to at most so many times its own size.
        size: bytes, where they are published.
    """

    base: str
    path: str
    digest: str
    makes: tuple[str, ...]
    growth: float
    size: int | None = None

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def url(self, source: str | None = None) -> str:
        """Its address; ``source`` is a mirror in place of its publisher."""
        return f"{(source or self.base).rstrip('/')}/{self.path}"

    def most(self, size: int) -> int:
        """Bytes that a zip of so many bytes may unpack to."""
        return int(size * self.growth)

    def is_unpacked(self, folder: Path) -> bool:
        """Whether ``folder`` has all that it makes: files and folders come there whole."""
        return all((folder / made).exists() for made in self.makes)


# COCO's own address, http://images.cocodataset.org, has no certificate of its own; these are the
# same files under a name that has one (github.com/mlcommons/inference, pull request 2572).
_COCO = "https://s3.amazonaws.com/images.cocodataset.org"
_KARPATHY = "https://cs.stanford.edu/people/karpathy/deepimagesent"
_FLICKR8K = "https://github.com/jbrownlee/Datasets/releases/download/Flickr8k"

#: COCO publishes no checksums. Sizes and SHA-256 are those that TensorFlow Datasets holds every
#: download against: github.com/tensorflow/datasets, tensorflow_datasets/url_checksums/
#: coco_captions.txt. So are those of Karpathy's zip.
_COCO_PHOTOGRAPHS = {
    "train2014": (
        13_510_573_713,
        "ede4087e640bddba550e090eae701092534b554b42b05ac33f0300b984b31775",
    ),
    "val2014": (
        6_645_013_297,
        "fe9be816052049c34717e077d9e34aa60814a55679f804cd043e3cbee3b9fde0",
    ),
    "train2017": (
        19_336_861_798,
        "69a8bb58ea5f8f99d24875f21416de2e9ded3178e903f1f7603e283b9e06d929",
    ),
    "val2017": (
        815_585_330,
        "4f7e2ccb2866ec5041993c9cf2a952bbed69647b115d0f74da7ce8f4bef82f05",
    ),
}
_COCO_ANNOTATIONS = {
    2014: (252_872_794, "031296bbc80c45a1d1f76bf9a90ead27e94e99ec629208449507a4917a3bf009"),
    2017: (252_907_541, "113a836d90195ee1f884e704da6304dfaaecff1f023f49b6ca93c4aaae470268"),
}
_CAPTION_DATASETS = (
    36_745_453,
    "4cfd70132527b80933105e5829dc9034eaab9573482e2e680abbab6130244817",
)


def coco(year: int, splits: tuple[str, ...] = ("train", "val")) -> tuple[Archive, ...]:
    """Captions and boxes of both splits, and the photographs of those named (Lin et al. 2014)."""
    size, digest = _COCO_ANNOTATIONS[year]
    annotations = Archive(
        _COCO,
        f"annotations/annotations_trainval{year}.zip",
        f"sha256:{digest}",
        tuple(
            f"annotations/{kind}_{split}{year}.json"
            for kind in ("captions", "instances")
            for split in ("train", "val")
        ),
        TEXTS,
        size,
    )
    return annotations, *(_coco_photographs(f"{split}{year}") for split in splits)


def _coco_photographs(name: str) -> Archive:
    size, digest = _COCO_PHOTOGRAPHS[name]
    return Archive(_COCO, f"zips/{name}.zip", f"sha256:{digest}", (name,), PHOTOGRAPHS, size)


def karpathy(data_set: str) -> Archive:
    """The captions and splits of coco, flickr8k or flickr30k (Karpathy and Fei-Fei 2015)."""
    size, digest = _CAPTION_DATASETS
    made = (f"dataset_{data_set}.json",)
    return Archive(_KARPATHY, "caption_datasets.zip", f"sha256:{digest}", made, TEXTS, size)


#: Hodosh et al. 2013, as Jason Brownlee keeps it. The MD5 are those that torchvision for R holds
#: its downloads against: github.com/mlverse/torchvision, R/dataset-flickr.R.
FLICKR8K = (
    Archive(
        _FLICKR8K,
        "Flickr8k_text.zip",
        "md5:bf6c1abcb8e4a833b7f922104de18627",
        (
            "Flickr8k.token.txt",
            *(f"Flickr_8k.{name}Images.txt" for name in ("train", "dev", "test")),
        ),
        TEXTS,
    ),
    Archive(
        _FLICKR8K,
        "Flickr8k_Dataset.zip",
        "md5:f18a1e2920de5bd84dae7cf08ec78978",
        ("Flicker8k_Dataset",),  # spelt so
        PHOTOGRAPHS,
    ),
)
