#!/usr/bin/env python
"""Download Flickr30k's captions in Karpathy's splits; the photographs must be asked for by a form.

    scripts/download_flickr30k.py --to data/flickr30k

docs/data.md says where to ask for the photographs, and what is checked of the captions.
"""

import argparse
import sys

from showattend.archives import karpathy
from showattend.obtain import add_options, obtain, run

FORM = "https://forms.illinois.edu/sec/229675"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_options(parser)
    args = parser.parse_args()
    obtain((karpathy("flickr30k"),), args.to, source=args.source, keep_zips=args.keep_zips)
    print(f"ask for the photographs at {FORM}; settings for these:")
    captions = args.to / "dataset_flickr30k.json"
    print(f"data.kind=karpathy data.root=FOLDER_OF_PHOTOGRAPHS data.captions={captions}")


if __name__ == "__main__":
    sys.exit(run(main))
