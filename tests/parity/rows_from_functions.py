"""Rows that functions bring along: the `sample` of `@public`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bireme.api.public import RECORDS, Public
from tests.parity.table import T, case


def _argument(value: Any) -> Any:
    """A tuple of sizes is a tensor; anything else is itself."""
    is_shape = isinstance(value, tuple) and all(type(v) is int for v in value)
    return T(*value) if is_shape else value


def calls(record: Public) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """(name, arguments, keywords) of a function's rows, by its first namespace."""
    name = f"{record.spaces[0]}.{record.name}".removeprefix("paddle.")
    for sample in record.sample:
        keywords = sample[-1] if isinstance(sample[-1], dict) else {}
        given = sample[:-1] if keywords else sample
        yield name, [_argument(v) for v in given], {k: _argument(v) for k, v in keywords.items()}


for space, records in RECORDS.items():
    for record in records.values():
        if record.spaces[0] == space:
            for name, args, kwargs in calls(record):
                # Two libraries' elementary functions differ in the last digits of float32.
                case(name, *args, **kwargs, _rtol=3e-5)
