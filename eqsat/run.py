"""`python -m eqsat.run script.py` does what `eqsat run script.py` does."""

from __future__ import annotations

import sys

from eqsat.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["run", *sys.argv[1:]]))
