"""How a model is served: what serve.toml and `Server.add` may say."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.serving.queue import Limits
from bireme.serving.sizes import checked_sizes, sizes_up_to


@dataclass(frozen=True)
class Options:
    """The settings of one model.

    max_batch: the most rows that run together; 1, 2, 4 ... rows are compiled. `sizes` gives
        other sizes: with one size, an answer is the same bits whatever runs beside it.
    delay: seconds that a batch may wait to become full.
    workers: threads that run the model.
    shapes: for inputs with open sizes besides the rows, the shapes (without rows) to compile for:
        {"image": [[3, 224, 224], [3, 320, 320]]}. Inputs of one position belong together.
    engine: what runs saved models, as in `inference.Config.set_engine`.
    queue_requests, queue_bytes, queue_wait: what may wait; see `Limits`.
    versions: "latest", "all", or a list of numbers of a folder's versions.
    """

    max_batch: int = 16
    sizes: Sequence[int] = ()
    delay: float = 0.0
    workers: int = 1
    shapes: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    engine: str = "xla"
    queue_requests: int = 1024
    queue_bytes: int = 256 << 20
    queue_wait: float = 10.0
    versions: str | Sequence[int] = "latest"

    def __post_init__(self) -> None:
        self.batch_sizes()
        lengths = {len(s) for s in self.shapes.values()}
        if len(lengths) > 1 or 0 in lengths:
            raise InvalidArgument(
                "[serve] shapes must list as many shapes for each input: those of one position "
                f"belong together. Received: {dict(self.shapes)}"
            )
        if self.delay < 0 or self.workers < 1 or self.queue_requests < 1 or self.queue_wait < 0:
            raise InvalidArgument(
                "[serve] delay and queue_wait must not be negative, workers and queue_requests at "
                f"least 1. Received: {self.delay}, {self.queue_wait}, {self.workers}, "
                f"{self.queue_requests}"
            )

    def batch_sizes(self) -> tuple[int, ...]:
        """The numbers of rows to compile."""
        return checked_sizes(self.sizes) if self.sizes else sizes_up_to(self.max_batch)

    def combinations(self) -> list[dict[str, tuple[int, ...]]]:
        """The shapes of the inputs that are named, position by position; one without any."""
        if not self.shapes:
            return [{}]
        count = len(next(iter(self.shapes.values())))
        return [{n: tuple(s[i]) for n, s in self.shapes.items()} for i in range(count)]

    def programs(self) -> int:
        """How many programs a model has."""
        return len(self.batch_sizes()) * len(self.combinations())

    def limits(self) -> Limits:
        """The queue's limits."""
        return Limits(self.queue_requests, self.queue_bytes, self.queue_wait)


def changed(options: Options, given: Mapping[str, Any], where: str) -> Options:
    """The options with some changed; raises for names that are none."""
    known = {f.name: f for f in fields(Options)}
    for name, value in given.items():
        if name not in known:
            raise InvalidArgument(
                f"[serve] {where} has a key {name!r}. Known: {', '.join(sorted(known))}"
            )
        if not _fits(getattr(Options(), name), value):
            raise InvalidArgument(f"[serve] {where}: {name} cannot be {value!r}")
    return replace(options, **dict(given))


def _fits(usual: Any, value: Any) -> bool:
    if isinstance(usual, bool | int) and not isinstance(usual, bool):
        return type(value) is int
    if isinstance(usual, float):
        return type(value) in (int, float)
    if isinstance(usual, str):
        return isinstance(value, str | list)
    return isinstance(value, list | tuple | dict)


def read_options(folder: str, options: Options) -> Options:
    """The options with what the folder's serve.toml says."""
    path = os.path.join(folder, "serve.toml")
    if not os.path.isfile(path):
        return options
    if os.path.getsize(path) > 1 << 20:
        raise InvalidArgument(f"[serve] {path} is larger than a MiB")
    with open(path, "rb") as file:
        try:
            given = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
            raise InvalidArgument(f"[serve] {path} is not TOML: {e}") from None
    return changed(options, given, path)
