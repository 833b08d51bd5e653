"""Functions that make variables of programs, and the class for `isinstance` tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.errors import InvalidArgument
from bireme.core.recorder_hooks import new_state
from bireme.core.tensor import Tensor
from bireme.core.trace import Value, state
from bireme.nn import naming
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.parameters import make_parameter
from bireme.static import recorder

if TYPE_CHECKING:
    from bireme.nn.initializer.base import Initializer


# What a program is written with are tensors; `isinstance(x, Variable)` holds for them.
Variable = Tensor


class VariableDesc:
    """A variable of a program as Paddle's scripts ask for it: `x.desc`."""

    def __init__(self, described: recorder.Variable):
        self._described = described

    def name(self) -> str:
        return self._described.name

    def shape(self) -> list[int]:
        """The declared sizes, -1 for open ones."""
        return [d if type(d) is int else -1 for d in self._described.leaf.aval.shape]

    def dtype(self) -> dt.DType:
        return self._described.leaf.aval.dtype

    def persistable(self) -> bool:
        return self._described.tensor.persistable

    def stop_gradient(self) -> bool:
        return self._described.tensor.stop_gradient

    def need_check_feed(self) -> bool:
        return self._described.kind == "data" and self._described.checked

    def set_need_check_feed(self, check: bool) -> None:
        """Whether what is fed must have the declared sizes and dtype; otherwise it is taken as it
        comes, and the program is compiled for it."""
        self._described.checked = bool(check)


def create_parameter(
    shape: Sequence[int],
    dtype: DTypeLike,
    name: str | None = None,
    attr: ParamAttrLike | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Any:
    """A new parameter of the program that is being written."""
    return make_parameter(shape, dtype, attr, is_bias, default_initializer, name=name)


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: DTypeLike,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Tensor:
    """State that starts as `value` everywhere and is not trained.

    It lives in the scope like all state, whether `persistable` (which tells Paddle to keep it
    between runs) or not; the compiler decides where it is kept, `force_cpu` or not.
    """
    sizes = tuple([int(d) for d in shape])
    kind = dt.as_dtype(dtype)
    if any(d < 0 for d in sizes):
        raise InvalidArgument(f"[create_global_var] sizes must be known. Received: {list(shape)}")
    own = name or naming.generate("global_var")

    def build(contents: Value) -> Tensor:
        made = Tensor(contents, None)
        made.name, made.persistable = own, True
        return made

    def make() -> np.ndarray:
        return np.full(sizes, value, kind.numpy)

    return new_state(state.trace, own, aval(sizes, kind), make, build)
