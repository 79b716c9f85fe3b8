#!/usr/bin/env python
"""Train a model: the command ``showattend train``."""

import sys

from showattend.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
