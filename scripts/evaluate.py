#!/usr/bin/env python
"""Score a model on a data set: the command ``showattend evaluate``."""

import sys

from showattend.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
