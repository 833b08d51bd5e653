"""paddle.random: the seed that random operations started from."""

from __future__ import annotations

from bireme.core.random import default_generator

__all__ = ["initial_seed"]


def initial_seed() -> int:
    """The seed of the generator that serves all devices."""
    return default_generator.initial_seed()
