"""`python -m bireme`: the command line where no `bireme` is on the path."""

from __future__ import annotations

import sys

from bireme.cli import main

if __name__ == "__main__":
    sys.exit(main())
