"""Nested lists, tuples and dicts: flattening, packing, mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor


def convert_to_list(value: object, n: int, name: str, dtype: type = int) -> list[Any]:
    """A number as a list of `n` of them; a list of `n` as it is."""
    if isinstance(value, dtype):
        return [value] * n
    items = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else None
    if items is None or any(isinstance(i, Tensor) for i in items):
        raise TypeMismatch(
            f"'{name}' must be a {dtype.__name__} or a list of {n} of them. Received: {value!r}"
        )
    if len(items) != n:
        raise InvalidArgument(f"'{name}' must have {n} elements. Received: {value!r}")
    return items


def check_shape(
    shape: Any,
    op_name: str,
    expected_shape_type: type | tuple[type, ...] = (list, tuple, Tensor),
    expected_element_type: type | tuple[type, ...] = (int, Tensor),
    expected_tensor_dtype: Sequence[str] = ("int32", "int64"),
) -> None:
    """Raise unless `shape` is a list of sizes, or a tensor of them."""
    if not isinstance(shape, expected_shape_type):
        raise TypeMismatch(
            f"[{op_name}] shape must be a list, a tuple or a Tensor. Received: "
            f"{type(shape).__name__}"
        )
    elements = [] if isinstance(shape, Tensor) else list(shape)
    for size in elements:
        if not isinstance(size, expected_element_type) or isinstance(size, bool):
            raise TypeMismatch(f"[{op_name}] sizes must be integers. Received: {size!r}")
    for tensor in [t for t in (shape, *elements) if isinstance(t, Tensor)]:
        if tensor.dtype.name not in expected_tensor_dtype:
            raise TypeMismatch(
                f"[{op_name}] a tensor of sizes must be of {' or '.join(expected_tensor_dtype)}. "
                f"Received: {tensor.dtype.name}"
            )


def is_sequence(seq: object) -> bool:
    """Whether `seq` has entries: a list, tuple or dict, no string."""
    return isinstance(seq, dict) or (isinstance(seq, Sequence) and not isinstance(seq, str))


def to_sequence(nest: Any) -> Sequence[Any] | dict[Any, Any]:
    """`nest` itself if it has entries, a list of it if not."""
    return nest if is_sequence(nest) else [nest]


def _entries(nest: Any) -> list[Any]:
    """The direct entries; those of a dict in the order of its sorted keys."""
    return [nest[key] for key in _sorted_keys(nest)] if isinstance(nest, dict) else list(nest)


def _sorted_keys(nest: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(nest)
    except TypeError:
        raise TypeMismatch("a dict in a nested structure needs keys that can be sorted") from None


def flatten(nest: object) -> list[Any]:
    """All leaves in one list; dicts in the order of their sorted keys.

    >>> flatten({"b": [1, 2], "a": (3,)})
    [3, 1, 2]
    """
    if not is_sequence(nest):
        return [nest]
    return [leaf for entry in _entries(nest) for leaf in flatten(entry)]


def pack_sequence_as(structure: object, flat_sequence: Sequence[Any] | dict[Any, Any]) -> Any:
    """The leaves of `flat_sequence` in the form of `structure`."""
    if not is_sequence(flat_sequence):
        raise TypeMismatch(
            "[pack_sequence_as] flat_sequence must be a list. Received: "
            f"{type(flat_sequence).__name__}"
        )
    leaves = list(flat_sequence.values() if isinstance(flat_sequence, dict) else flat_sequence)
    wanted = len(flatten(structure))
    if wanted != len(leaves):
        raise InvalidArgument(
            f"[pack_sequence_as] the structure has {wanted} leaves. Received: {len(leaves)}"
        )
    return _packed(structure, iter(leaves))


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_sequence(structure):
        return next(leaves)
    entries = [_packed(entry, leaves) for entry in _entries(structure)]
    if isinstance(structure, dict):
        by_key = dict(zip(_sorted_keys(structure), entries, strict=True))
        return type(structure)((key, by_key[key]) for key in structure)
    if hasattr(structure, "_fields"):  # a named tuple
        return type(structure)(*entries)
    return type(structure)(entries)


def map_structure(func: Callable[..., Any], *structure: Any) -> Any:
    """`func` of the leaves of one or several structures of the same form.

    >>> map_structure(lambda a, b: a + b, [1, (2,)], [10, (20,)])
    [11, (22,)]
    """
    rows = zip(*[flatten(s) for s in structure], strict=False)
    return pack_sequence_as(structure[0], [func(*row) for row in rows])


def assert_same_structure(
    nest1: object,
    nest2: object,
    check_types: bool = True,
    skip_if: Callable[..., bool] | None = None,
) -> None:
    """Raise unless both have the same form; where `skip_if(a, b)` holds, nobody looks inside."""
    if skip_if is not None and skip_if(nest1, nest2):
        return
    if is_sequence(nest1) != is_sequence(nest2):
        raise InvalidArgument(f"the structures differ: {nest1!r} and {nest2!r}")
    if not is_sequence(nest1):
        return
    if check_types and type(nest1) is not type(nest2):
        raise TypeMismatch(
            f"the structures have different types: {type(nest1).__name__} and "
            f"{type(nest2).__name__}"
        )
    if isinstance(nest1, dict) and isinstance(nest2, dict) and set(nest1) != set(nest2):
        raise InvalidArgument(f"the dicts have different keys: {set(nest1)} and {set(nest2)}")
    first, second = _entries(nest1), _entries(nest2)
    if len(first) != len(second):
        raise InvalidArgument(f"the structures have {len(first)} and {len(second)} entries")
    for a, b in zip(first, second, strict=True):
        assert_same_structure(a, b, check_types, skip_if)


__all__ = [
    "assert_same_structure",
    "check_shape",
    "convert_to_list",
    "flatten",
    "is_sequence",
    "map_structure",
    "pack_sequence_as",
    "to_sequence",
]
