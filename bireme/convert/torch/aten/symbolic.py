"""Sizes, which are integers or, in a capture, expressions; Python's operators on them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.shapes import Size
from bireme.convert.torch.aten.types import Number
from bireme.convert.torch.program import TorchFileError
from bireme.core.tensor import Tensor


@aten("sym_size", "size")
def sym_size(self: Tensor, dim: int | None = None) -> Size | list[Size]:
    return list(self.shape) if dim is None else self.shape[dim]


@aten("sym_numel", "numel")
def sym_numel(self: Tensor) -> Size:
    count: Any = 1
    for d in self.shape:
        count = count * d
    return count


@aten("dim")
def dim(self: Tensor) -> int:
    return self.ndim


@aten("item", "_local_scalar_dense")
def item(self: Tensor) -> Number:
    return self.item()


def _of_sizes(names: str, function: Callable[..., Any]) -> None:
    def rule(*operands: Any, **named: Any) -> Any:
        operands = (*operands, *named.values())
        if any(isinstance(o, Tensor) for o in operands):
            raise TorchFileError(f"{names} of tensors has no rule")
        return function(*operands)

    aten(*names.split())(rule)


for _names, _function in {
    "_operator.add": operator.add,
    "_operator.sub": operator.sub,
    "_operator.mul": operator.mul,
    "_operator.floordiv": operator.floordiv,
    "_operator.truediv": operator.truediv,
    "_operator.mod": operator.mod,
    "_operator.pow": operator.pow,
    "_operator.neg": operator.neg,
    "_operator.eq": operator.eq,
    "_operator.ne": operator.ne,
    "_operator.lt": operator.lt,
    "_operator.le": operator.le,
    "_operator.gt": operator.gt,
    "_operator.ge": operator.ge,
    "_operator.and_": lambda a, b: a and b,
    "_operator.or_": lambda a, b: a or b,
    "torch.sym_not": operator.not_,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_int": lambda a: math.trunc(a) if isinstance(a, float) else a,
    "torch.sym_float": float,
    "torch.sym_ite": lambda c, a, b: a if c else b,
    "torch._sym_sqrt": math.sqrt,
    "math.trunc": math.trunc,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.sqrt": math.sqrt,
}.items():
    _of_sizes(_names, _function)


@aten("_operator.getitem")
def getitem(a: Any, b: int) -> Any:
    return a[b]
