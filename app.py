#!/usr/bin/env python
"""The web page, where hosts of Gradio programs look for it: the same as `showattend app`."""

import sys

from showattend.cli import main

if __name__ == "__main__":
    sys.exit(main(["app", *sys.argv[1:]]))
