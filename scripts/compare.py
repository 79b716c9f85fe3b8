#!/usr/bin/env python
"""Hold models against each other: the command ``showattend compare``."""

import sys

from showattend.cli import main

if __name__ == "__main__":
    sys.exit(main(["compare", *sys.argv[1:]]))
