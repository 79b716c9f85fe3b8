#!/usr/bin/env python
"""Caption photographs: the command ``showattend caption``."""

import sys

from showattend.cli import main

if __name__ == "__main__":
    sys.exit(main(["caption", *sys.argv[1:]]))
