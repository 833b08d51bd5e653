"""The inputs of a run: what is fed, in the type that was declared, and state out of the scope."""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.core.dtype import DType, bfloat16, uint16
from bireme.core.errors import InvalidArgument, warn_user
from bireme.core.tensor import Tensor, constant
from bireme.static.program_op import fits
from bireme.static.recorder import Variable
from bireme.static.scope import Scope, ScopeTensor


def input_of(var: Variable | Tensor, feed: dict[str, Any], scope: Scope) -> Tensor:
    """The contents of an input of a run: a constant, state in the scope, or what is fed."""
    if isinstance(var, Tensor):
        return var
    t = var.leaf.aval
    if var.kind == "number":
        assert var.read is not None  # noqa: S101 (every number has one)
        return constant(np.asarray(var.read(), t.dtype.numpy))
    if var.kind == "state":
        return scope.tensor(var.name)
    if var.kind == "made":
        raise InvalidArgument(
            f"[Executor.run] variable {var.name!r} was made by create_var and no op fills it"
        )
    if var.name not in feed:
        raise InvalidArgument(
            f"[Executor.run] the program needs {var.name!r} ({t}), which is not fed. Received: "
            f"feed of {sorted(feed) or 'nothing'}"
        )
    return _fed(var, feed[var.name])


def _fed(var: Variable, given: Any) -> Tensor:
    t = var.leaf.aval
    if isinstance(given, ScopeTensor):
        given = given.numpy()
    if isinstance(given, Tensor):
        tensor = given
    elif isinstance(given, np.ndarray | np.generic):
        tensor = constant(np.array(given))
    else:
        tensor = constant(np.array(given, t.dtype.numpy))
    if not var.checked:
        return tensor
    tensor = _in_type(var.name, tensor, t.dtype)
    have = tensor._value.aval
    shown = [d if type(d) is int else -1 for d in t.shape]
    if not fits(t.shape, have.shape):
        raise InvalidArgument(
            f"[Executor.run] fed variable {var.name!r} must have shape {shown}. Received: "
            f"{list(have.shape)}"
        )
    if have.ndim < t.ndim:
        warn_user(
            f"[Executor.run] fed variable {var.name!r} should have {t.ndim} dimensions, shape "
            f"{shown}. Received: {list(have.shape)}"
        )
    return tensor


def _in_type(name: str, fed: Tensor, want: DType) -> Tensor:
    """What is fed in the declared dtype; narrower numbers of the same kind are told of."""
    have = fed.dtype
    if have is want:
        return fed
    if want is bfloat16 and have is uint16:  # how NumPy spells bfloat16 in Paddle
        return constant(fed.numpy().view(want.numpy))
    if not np.can_cast(have.numpy, want.numpy, "same_kind"):
        raise InvalidArgument(
            f"[Executor.run] the data type of fed variable {name!r} must be {want.name}. "
            f"Received: {have.name}; convert it with .astype('{want.name}')"
        )
    warn_user(
        f"[Executor.run] the data type of fed variable {name!r} must be {want.name}. Received: "
        f"{have.name}, which is converted"
    )
    return constant(fed.numpy().astype(want.numpy))
