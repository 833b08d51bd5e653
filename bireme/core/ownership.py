"""Who holds an object: everything that Bireme concludes from CPython's reference counts.

A result that nobody can ask for is not computed, an input that nobody else holds is overwritten in
place, and an object that nobody outside holds may change: all three are one question about
references, and this is the only module that asks it. It is also the only one that asks the garbage
collector for objects (`every`).

Counts are CPython's own business, so what is counted here is kept narrow. Only containers and
attributes hold the objects, never a variable of a function on the way: variables count differently
from one Python to the next. What remains is what the counting itself adds. That is measured at the
import, on objects whose holders are known, and `tests/core/test_ownership.py` checks each function
in every Python that is supported. A Python that was not tried is refused.
"""

from __future__ import annotations

import gc
import sys
import sysconfig
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from bireme.core.errors import BiremeError

_TRIED = ((3, 11), (3, 12), (3, 13))


class UntriedPython(BiremeError, ImportError):
    """An interpreter in which nobody has tried what Bireme concludes from reference counts."""


def _refuse_untried(name: str, version: tuple[int, int], free_threaded: bool) -> None:
    if name == "cpython" and version in _TRIED and not free_threaded:
        return
    tried = [".".join(map(str, v)) for v in _TRIED]
    kind = "free-threaded " if free_threaded else ""
    raise UntriedPython(
        f"Bireme runs on CPython {', '.join(tried[:-1])} and {tried[-1]}, with the global "
        f"interpreter lock: it counts references, which differ elsewhere. Received: {kind}{name} "
        f"{'.'.join(map(str, version))}; make a virtual environment with one of the former"
    )


_refuse_untried(
    sys.implementation.name,
    sys.version_info[:2],
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
)
_references = sys.getrefcount


def _of_counting() -> int:
    """How many references the counting adds to those of the containers and attributes."""
    alone = [object()]
    (count,) = map(_references, alone)
    return count - 1


_BY_COUNTING = _of_counting()
_ONE, _TWO = _BY_COUNTING + 1, _BY_COUNTING + 2


def wanted(results: list[Any]) -> bytes:
    """For each result of a trace a 1 if something besides this list holds it, otherwise a 0."""
    return bytes([count > _ONE for count in map(_references, results)])


def donatable(leaves: Sequence[Any], buffers: Sequence[Any]) -> bytes:
    """For each input of a trace a 1 if it can be overwritten: nothing but the trace and `leaves`
    holds the Value, and nothing but the Value and `buffers` its contents."""
    return bytes(
        [
            value <= _TWO and buffer <= _TWO
            for value, buffer in zip(
                map(_references, leaves), map(_references, buffers), strict=True
            )
        ]
    )


def most_holders(items: Collection[Any]) -> int:
    """How many containers and attributes, `items` among them, hold the item that most hold."""
    return max(map(_references, items)) - _BY_COUNTING


def holders_outside(objects: Mapping[Any, Any]) -> dict[Any, int]:
    """For each key, how many references besides those of the mapping itself its object has."""
    inside = Counter(map(id, objects.values()))
    counts = map(_references, objects.values())
    found = dict(zip(objects, counts, strict=True))
    return {k: n - _BY_COUNTING - inside[id(objects[k])] for k, n in found.items()}


def only_attributes_hold(owner: object, names: Iterable[str]) -> bool:
    """Whether the one object that is in all of these attributes of `owner` is nowhere else."""
    attributes = tuple(names)
    count = next(map(_references, map(getattr, (owner,), attributes)))
    return count <= _BY_COUNTING + len(attributes)


def every(kind: type) -> list[Any]:
    """All instances of a class, found by the garbage collector: for what happens once in a process
    or a program. A registry would cost each operation as much as recording it.

    Objects that `gc.freeze` has put aside are not found.
    """
    # Not isinstance(): it would ask lazy objects of other libraries what they are.
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


_UNSHARED = 1 << 40  # CPython keeps one object for small integers, and none for such large ones


def placeholders(count: int) -> list[Any]:
    """Objects that only this list holds, in place of results that nobody can ask for."""
    return list(range(_UNSHARED, _UNSHARED + count))
