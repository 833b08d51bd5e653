"""Whose is an entry of an optimizer's state: by name where all names fit, otherwise by position.

Parameter names are counters of the process (`linear_0.w_0`), so a second model, or a layer that was
made first, gives the same network other names. Then the parameters of the state, in the order in
which they come, must be as many as the optimizer's, of the same shapes and types in order. Anything
else is an error that shows both, before anything is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.optimizer.slots import Slot, Slots

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor


_MASTER = re.compile(r"_fp32_master_\d+$")


class StateOfAnother(InvalidArgument, KeyError):
    """A state that is not that of this optimizer and its parameters."""

    __str__ = Exception.__str__


class Matched(NamedTuple):
    """A state by our parameters' names."""

    entries: dict[tuple[str, str], Any]  # (parameter, kind): contents
    masters: dict[str, Any]


def _parsed(key: str, kinds: Iterable[str]) -> tuple[str, str] | None:
    """(parameter, kind) of `<parameter or master>_<kind>_<n>`."""
    stem, _, number = key.rpartition("_")
    if not number.isdigit():
        return None
    fitting = [k for k in kinds if stem.endswith(f"_{k}")]
    if not fitting:
        return None
    kind = max(fitting, key=len)
    return _MASTER.sub("", stem[: -len(kind) - 1]), kind


def match(
    where: str,
    state: dict[str, Any],
    masters: dict[str, Any],
    params: list[Any],
    slots: Slots,
    clocks: tuple[Slot, ...],
) -> Matched:
    """The state's entries by the parameters that they belong to."""
    kinds = {k.name: k for k in (*slots.kinds, *clocks)}
    found: dict[str, dict[str, Any]] = {}
    unknown = []
    for key, value in state.items():
        parsed = _parsed(key, kinds)
        if parsed is None:
            unknown.append(key)
        else:
            found.setdefault(parsed[0], {})[parsed[1]] = value
    if unknown:
        raise StateOfAnother(
            f"[{where}] the state has entries that this optimizer does not keep: "
            f"{_listed(unknown)}. It keeps {sorted(kinds) or 'nothing'} of each parameter: load "
            "the state of the same kind of optimizer, with the same options"
        )
    owners = [*found, *[name for name in masters if name not in found]]
    if not params:  # those of a program that is still to be written
        by_name = {name: name for name in owners}
    else:
        by_name = _by_name(owners, params)
        if by_name is None:
            by_name = _by_position(where, owners, found, masters, params, slots)
        _check(where, by_name, found, masters, params, slots)
    entries = {
        (by_name[owner], kind): value for owner, own in found.items() for kind, value in own.items()
    }
    return Matched(entries, {by_name[name]: value for name, value in masters.items()})


def _by_name(owners: list[str], params: list[Any]) -> dict[str, str] | None:
    known = {p.name for p in params}
    return {name: name for name in owners} if known.issuperset(owners) else None


def _by_position(
    where: str,
    owners: list[str],
    found: dict[str, dict[str, Any]],
    masters: dict[str, Any],
    params: list[Any],
    slots: Slots,
) -> dict[str, str]:
    """Whose the entries are if the k-th parameter of the state is our k-th."""
    trained = [p for p in params if p._node is not None]
    for candidates in (trained, params):
        if len(candidates) == len(owners) and all(
            not _misfits(owner, p, found, masters, slots)
            for owner, p in zip(owners, candidates, strict=True)
        ):
            return {owner: p.name for owner, p in zip(owners, candidates, strict=True)}
    has = [f"{o} {_shape_in(o, found, masters, slots)}" for o in owners]
    wants = [f"{p.name} {list(p.shape)}" for p in trained or params]
    raise StateOfAnother(
        f"[{where}] the state is that of other parameters: neither their names nor their number, "
        f"shapes and types in order fit. The state has {len(has)}: {_listed(has)}. The optimizer "
        f"has {len(wants)}: {_listed(wants)}. Nothing was loaded"
    )


def _check(
    where: str,
    by_name: dict[str, str],
    found: dict[str, dict[str, Any]],
    masters: dict[str, Any],
    params: list[Any],
    slots: Slots,
) -> None:
    of = {p.name: p for p in params}
    kept = set(by_name.values())
    wrong = [
        f"it has nothing of {p.name}"
        for p in params
        if slots.kinds and slots.has(p) and p.name not in kept
    ]
    wrong += [
        text
        for owner, name in by_name.items()
        for text in _misfits(owner, of[name], found, masters, slots, types=False)
    ]
    if wrong:
        raise StateOfAnother(f"[{where}] the state does not fit: {_listed(wrong)}. Nothing loaded")


def _misfits(
    owner: str,
    param: Tensor,
    found: dict[str, dict[str, Any]],
    masters: dict[str, Any],
    slots: Slots,
    types: bool = True,
) -> list[str]:
    """What of the state's parameter `owner` cannot be that of `param`."""
    shape, wrong = tuple(param.shape), []
    own = found.get(owner, {})
    for kind in slots.kinds:
        value = own.get(kind.name)
        if value is None:
            if own or (slots.has(param) and owner not in masters):
                wrong.append(f"{owner} has no {kind.name}")
            continue
        wanted = (kind.rows, *shape) if kind.rows else shape
        if tuple(np.shape(value)) != wanted:
            wrong.append(
                f"{kind.name} of {owner} has shape {list(np.shape(value))}, that of {param.name} "
                f"needs {list(wanted)}"
            )
        elif types and _type(value) is not slots.dtype_of(param):
            wrong.append(f"{kind.name} of {owner} is {_type(value).name}")
    master = masters.get(owner)
    if master is not None and tuple(np.shape(master)) != shape:
        wrong.append(
            f"the master weight of {owner} has shape {list(np.shape(master))}, {param.name} has "
            f"{list(shape)}"
        )
    return wrong


def _shape_in(
    owner: str, found: dict[str, dict[str, Any]], masters: dict[str, Any], slots: Slots
) -> list[int]:
    for kind in slots.kinds:
        if kind.name in found.get(owner, {}):
            return list(np.shape(found[owner][kind.name]))[bool(kind.rows) :]
    return list(np.shape(masters.get(owner, ())))


def _type(value: Any) -> dt.DType:
    return dt.as_dtype(value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype)


def _listed(items: list[str]) -> str:
    text = ", ".join(items[:12])
    return f"{text}, and {len(items) - 12} more" if len(items) > 12 else text
