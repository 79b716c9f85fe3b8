"""``python -m showattend`` is the program ``showattend``."""

import sys

from showattend.cli import main

if __name__ == "__main__":
    sys.exit(main())
