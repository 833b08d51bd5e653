"""compile: a function with declared arguments becomes one program per combination of types."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

from bireme.autograd import no_grad
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.tensor import Tensor
from bireme.incubate.cc import typing as types
from bireme.jit import to_static
from bireme.static.input_spec import InputSpec


def compile(
    func: Callable[..., Any],
    train: bool = False,
    ap_path: str = "",
    ap_workspace_dir: str = "/tmp/paddle/ap",
    backend_device: str = "cuda",
    target_framework: str = "paddle",
    compile_engine: str = "PCC",
) -> OverloadedFunc:
    """Compile a function whose arguments are annotated with `cc.typing.Tensor`.

    The result takes tensors of the declared sizes and of every combination of the declared
    types; results carry gradients if `train`.

    >>> N, T = cc.typing.DimVar("N"), cc.typing.DTypeVar("T", "float32", "float64")
    >>> def double(x: cc.typing.Tensor([N, 4], T)):
    ...     return x * 2
    >>> fast = cc.compile(double)
    """
    if ap_path:
        raise InvalidArgument(
            "[cc.compile] kernels of one's own are registered with paddle.utils.cpp_extension or "
            f"as a bireme kernel. Received: ap_path={ap_path!r}"
        )
    if compile_engine not in ("PCC", "CINN"):
        raise InvalidArgument(
            f"[cc.compile] compile_engine is 'PCC' or 'CINN'. Received: {compile_engine!r}"
        )
    declared = _declared(func)
    variables = {t.dtype.name: t.dtype for t in declared.values()}
    made = {}
    for chosen in itertools.product(*(v.candidates for v in variables.values())):
        by_name = dict(zip(variables, chosen, strict=True))
        dtypes = tuple([by_name[t.dtype.name] for t in declared.values()])
        specs = [
            InputSpec([_size(d) for d in t.shape], dtype)
            for t, dtype in zip(declared.values(), dtypes, strict=True)
        ]
        made[dtypes] = to_static(func, input_spec=specs)
    return OverloadedFunc(func.__name__, declared, made, train)


class OverloadedFunc:
    """A function compiled for several types; a call chooses by the arguments' types."""

    def __init__(
        self,
        name: str,
        declared: dict[str, types.Tensor],
        by_dtypes: dict[tuple[str, ...], Callable[..., Any]],
        train: bool,
    ):
        self._name, self._declared, self._by_dtypes, self._train = name, declared, by_dtypes, train

    def __call__(self, *args: Tensor) -> Any:
        if len(args) != len(self._declared):
            raise TypeMismatch(
                f"[{self._name}] takes {len(self._declared)} tensors. Received: {len(args)}"
            )
        dtypes = tuple([a.dtype.name for a in args])
        function = self._by_dtypes.get(dtypes)
        if function is None:
            known = "; ".join(", ".join(d) for d in self._by_dtypes)
            raise TypeMismatch(
                f"[{self._name}] was compiled for other types. Received: {', '.join(dtypes)}; "
                f"use one of: {known}"
            )
        self._check_sizes(args)
        if self._train:
            return function(*args)
        with no_grad():
            return function(*args)

    def _check_sizes(self, args: tuple[Tensor, ...]) -> None:
        known: dict[str, int] = {}
        for (name, declared), given in zip(self._declared.items(), args, strict=True):
            fits = len(declared.shape) == given.ndim and all(
                _fits(d, size, known) for d, size in zip(declared.shape, given.shape, strict=True)
            )
            if not fits:
                raise ShapeMismatch(
                    f"[{self._name}] {name} was declared as {declared.shape}. Received: shape "
                    f"{list(given.shape)}" + (f", where {known} came before" if known else "")
                )


def _declared(func: Callable[..., Any]) -> dict[str, types.Tensor]:
    found = inspect.get_annotations(func, eval_str=True)
    names = list(inspect.signature(func).parameters)
    for name in names:
        if not isinstance(found.get(name), types.Tensor):
            raise TypeMismatch(
                f"[cc.compile] argument {name!r} of {func.__name__} must be annotated with "
                f"paddle.incubate.cc.typing.Tensor(shape, dtype). Received: {found.get(name)!r}"
            )
    if not names:
        raise InvalidArgument(f"[cc.compile] {func.__name__} takes no tensors")
    return {name: found[name] for name in names}


def _size(declared: int | types.DimVar) -> int | str:
    return declared.name_or_value if isinstance(declared, types.DimVar) else declared


def _fits(declared: int | types.DimVar, size: int, known: dict[str, int]) -> bool:
    """Whether a size is the declared one; names stand for one size in all arguments."""
    wanted = _size(declared)
    if isinstance(wanted, int):
        return size == wanted
    low, high = getattr(declared, "min", None), getattr(declared, "max", None)
    in_range = (low is None or size >= low) and (high is None or size <= high)
    return in_range and known.setdefault(wanted, size) == size


__all__ = ["compile"]
