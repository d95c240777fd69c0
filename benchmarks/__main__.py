"""`python -m benchmarks STORE`: `framewin bench` with all other ways that are installed."""

import sys

from benchmarks.ways import WAYS
from framewin.cli import main

if __name__ == "__main__":
    main(["bench", *sys.argv[1:]], obj=WAYS)
