#!/usr/bin/env python
"""Download COCO: photographs, captions and boxes of 2014 or 2017, and Karpathy's splits of 2014's.

    scripts/download_coco.py --to data/coco [--year 2014] [--karpathy] [--splits val]

Stopped or cut off, it goes on where it was when it is run again; docs/data.md says how large all is
and what is checked.
"""

import argparse
import sys

from showattend.archives import coco, karpathy
from showattend.obtain import add_options, obtain, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    parser.add_argument("--year", type=int, choices=(2014, 2017), default=2017)
    parser.add_argument(
        "--splits",
        nargs="+",
        choices=("train", "val"),
        default=("train", "val"),
        help="whose photographs; captions are those of both (default: both)",
    )
    parser.add_argument(
        "--karpathy", action="store_true", help="also dataset_coco.json, splits of 2014's"
    )
    args = parser.parse_args()
    if args.karpathy and args.year != 2014:
        parser.error("--karpathy: its photographs are those of 2014; add --year 2014")
    archives = coco(args.year, tuple(dict.fromkeys(args.splits)))
    if args.karpathy:
        archives = (*archives, karpathy("coco"))
    obtain(archives, args.to, source=args.source, keep_zips=args.keep_zips)
    print(f"settings: data.kind=coco data.root={args.to}")
    if args.karpathy:
        captions = args.to / "dataset_coco.json"
        print(f"or: data.kind=karpathy data.root={args.to} data.captions={captions}")


if __name__ == "__main__":
    sys.exit(run(main))
