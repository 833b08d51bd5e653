"""Tensor methods below Paddle's public API (`_slice`, `_numel`, `_share_buffer_to` …), as far as
packages and programs call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.api.public import method
from bireme.api.types import PlaceLike, TensorLike
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import HookHandle, Tensor
from bireme.core.views import replace
from bireme.ops.creation import empty, to_tensor
from bireme.ops.inplace import set_
from bireme.ops.methods import to


@method
def _numel(self: Tensor) -> int:
    """The number of elements, as an int."""
    return int(self.size)


@method
def _slice(self: Tensor, begin: int, end: int) -> Tensor:
    """Rows `begin` to `end`, sharing memory."""
    return self[begin:end]


@method
def _copy_to(self: Tensor, place: PlaceLike, blocking: bool) -> Tensor:
    """A copy on another device; copies are waited for where they are read, `blocking` or not."""
    return to(self, place, copy=True)


@method
def _local_value(self: Tensor) -> Tensor:
    """The part of this process, which drives all its devices: the tensor."""
    return self


@method
def _use_gpudnn(self: Tensor, use_cudnn: bool = True) -> Tensor:
    """The tensor: XLA chooses the kernels, with `use_cudnn` or without."""
    return self


@method
def _md5sum(self: Tensor) -> str:
    """The MD5 sum of the contents, in hexadecimal."""
    import hashlib

    return hashlib.md5(self.numpy().tobytes(), usedforsecurity=False).hexdigest()


@method
def is_same(self: Tensor, other: Tensor) -> bool:
    """Whether both names are of one variable of a program."""
    return self is other or self._value is other._value


# --- memory ---------------------------------------------------------------------------------------


@method
def _share_buffer_to(self: Tensor, dst: Tensor) -> None:
    """Make `dst` a view of this tensor's memory."""
    if dst.dtype is not self.dtype:
        replace(dst, empty([0], self.dtype), None)
    set_(dst, self)


@method
def _clear(self: Tensor) -> None:
    """Let go of the contents: the tensor is empty afterwards."""
    replace(self, empty([0], self.dtype), None)


@method(name="set")
def _set_contents(self: Tensor, array: TensorLike, place: PlaceLike | None = None) -> None:
    """Replace the contents, whatever shape and dtype they had, as `get_tensor().set(...)` does."""
    replace(self, to_tensor(np.array(array), place=place), None)


# --- gradients ------------------------------------------------------------------------------------


@method
def _grad_ivar(self: Tensor) -> Tensor | None:
    """The gradient, None before there is one."""
    return self.grad


@method
def _set_grad_ivar(self: Tensor, grad: Tensor | None) -> None:
    """Replace the gradient."""
    self.grad = grad


@method
def _grad_name(self: Tensor) -> str:
    """The gradient's name."""
    return f"{self.name}@GRAD"


@method
def _zero_grads(self: Tensor) -> None:
    """Fill the gradient with zeros."""
    if self.grad is not None:
        self.grad.zero_()


@method
def _register_backward_hook(self: Tensor, hook: Callable[[], Any]) -> HookHandle:
    """Call `hook()` whenever a gradient was added to that of this leaf."""
    if self.stop_gradient or not self.is_leaf:
        raise InvalidArgument(
            "[_register_backward_hook] takes a leaf that needs a gradient. Received: a tensor "
            f"with stop_gradient={self.stop_gradient} and is_leaf={self.is_leaf}"
        )

    def called(leaf: Tensor) -> None:
        hook()

    node = self._node
    node.after = node.after or []
    node.after.append(called)
    return HookHandle(node.after, called)


@method
def _bump_inplace_version(self: Tensor) -> None:
    """Count one more change in place; what was saved for gradients before is out of date."""
    replace(self, self.clone(), self._node)


@method
def _inplace_version(self: Tensor) -> int:
    """How often the tensor was changed in place."""
    return self._version


@method
def _reset_grad_inplace_version(self: Tensor, set_to_zero: bool = False) -> None:
    """Forget the gradient's changes in place."""
    if self.grad is not None:
        self.grad._version = 0


_SECOND_NAMES: dict[str, Callable[..., Any]] = {
    "_grad_value": _grad_ivar,
    "_copy_gradient_from": _set_grad_ivar,
    "_clear_data": _clear,
    "_clear_dataptr": _clear,
    "_clear_to_zero_allocation": _clear,
    "_unsafe_share_buffer_to": _share_buffer_to,
    "_share_underline_tensor_to": _share_buffer_to,
    "_register_grad_hook": Tensor.register_hook,
}
for _name, _function in _SECOND_NAMES.items():
    method(name=_name)(_function)
