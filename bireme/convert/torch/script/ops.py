"""Calls of PyTorch's ops: a program's arguments as the rules of `aten` take them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence

from bireme.convert.torch.aten import rule_of
from bireme.convert.torch.program import DTypeName, TorchFileError
from bireme.convert.torch.script.counts import as_tensor
from bireme.convert.torch.script.dtypes import NAMES
from bireme.convert.torch.script.values import Count, Device, Record, Value, leaves
from bireme.convert.torch.writes import write
from bireme.core.tensor import Tensor

# Arguments that change no number.
_IGNORED = frozenset(
    (
        "device",
        "layout",
        "pin_memory",
        "memory_format",
        "non_blocking",
        "requires_grad",
        "generator",
        "copy",
    )
)
# Ops whose result is a list; other results of several tensors are tuples.
_LISTS = frozenset(
    (
        "split",
        "chunk",
        "unbind",
        "split_with_sizes",
        "tensor_split",
        "meshgrid",
        "where",
        "size",
        "broadcast_tensors",
        "unsafe_split",
        "unsafe_chunk",
        "hsplit",
        "vsplit",
        "dsplit",
        "nonzero_numpy",
        "sym_size",
        "atleast_1d",
        "atleast_2d",
    )
)
_NOT_PLAIN = frozenset(("RaiseException",))


def known_op(name: str) -> bool:
    return rule_of(name) is not None


def dtype_argument(args: Sequence[Value], named: dict[str, Value]) -> str | None:
    """The dtype among the arguments of `torch.to`: a number, or that of another tensor."""
    if named.get("dtype") is not None:
        return NAMES[named["dtype"]]
    for argument in args:
        if isinstance(argument, Tensor):
            return argument.dtype.name
        if isinstance(argument, Count):
            return argument.dtype
        if isinstance(argument, int) and not isinstance(argument, bool):
            return NAMES[argument]
    return None


def call_op(name: str, args: list[Value], named: dict[str, Value]) -> Value:
    """The result of an op with tensors."""
    found = rule_of(name)
    if found is None:
        raise TorchFileError(f"{name:.100} has no rule. Add one in bireme.convert.torch.aten")
    rule, writes = found
    args = [_given(a) for a in args]
    named = {k: _given(v) for k, v in named.items()}
    if name in ("to", "type_as"):
        wanted = dtype_argument(args[1:], named)
        return rule(args[0], dtype=None if wanted is None else DTypeName(wanted))
    parameters, free = _parameters(rule)
    args = [
        DTypeName(NAMES[a])
        if i < len(parameters) and parameters[i] == "dtype" and _is_code(a)
        else a
        for i, a in enumerate(args)
    ]
    if name == "view" and len(args) == 2 and _is_code(args[1]):
        args[1] = DTypeName(NAMES[args[1]])
    if _is_code(named.get("dtype")):
        named["dtype"] = DTypeName(NAMES[named["dtype"]])
    if not free:
        named = {k: v for k, v in named.items() if k not in _IGNORED or k in parameters}
    if writes and not args:
        args = [named.pop("self")]
    made = rule(*args, **named)
    if writes:
        return write(args[0], made, name)
    if "out" in named and isinstance(named["out"], Tensor):
        raise TorchFileError(f"{name} with out= has no rule")
    return tuple(made) if isinstance(made, list) and name not in _LISTS else made


def _is_code(value: Value) -> bool:
    return type(value) is int and value in NAMES


def _given(value: Value) -> Value:
    """An argument as rules take it."""
    if isinstance(value, Count):
        return as_tensor(value)
    if isinstance(value, Device):
        return None
    if isinstance(value, list) and any(isinstance(v, Count) for v in leaves(value)):
        return [_size(v) for v in value] if _sizes(value) else [_given(v) for v in value]
    return list(value) if isinstance(value, Record) else value


def _sizes(values: list[Value]) -> bool:
    return not any(isinstance(v, Tensor | list) for v in values)


def _size(value: Value) -> Value:
    return value.value if isinstance(value, Count) else value


@functools.cache
def _parameters(rule: Value) -> tuple[tuple[str, ...], bool]:
    """(the names of a rule's parameters, whether it takes others)."""
    found = inspect.signature(rule).parameters.values()
    free = any(p.kind is p.VAR_KEYWORD for p in found)
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple([p.name for p in found if p.kind in kinds]), free
