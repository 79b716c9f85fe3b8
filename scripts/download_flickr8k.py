#!/usr/bin/env python
"""Download Flickr8k, photographs and captions: for non-commercial research and education only.

    scripts/download_flickr8k.py --to data/flickr8k

Stopped or cut off, it goes on where it was when it is run again; docs/data.md says how large all is
and what is checked.
"""

import argparse
import sys

from showattend.archives import FLICKR8K
from showattend.obtain import add_options, obtain, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    args = parser.parse_args()
    obtain(FLICKR8K, args.to, source=args.source, keep_zips=args.keep_zips)
    print(f"settings: data.kind=flickr8k data.root={args.to}")


if __name__ == "__main__":
    sys.exit(run(main))
