"""Runs one program as a process: `python -m bench.short.worker NAME bireme|paddle`."""

from __future__ import annotations

import importlib
import sys


def main(name: str, peer: str) -> None:
    paddle = importlib.import_module(peer)
    from bench.short.programs import PROGRAMS

    paddle.seed(0)
    print(PROGRAMS[name](paddle))


if __name__ == "__main__":
    main(*sys.argv[1:])
