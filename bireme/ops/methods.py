"""Tensor's operators and methods, attached once all op families are imported.

Operators are the generated op functions themselves, without a wrapper in between, because they
are called more often than anything else. Methods are public functions (`api/public.py`), and
what this file and others mark as `@method`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

from bireme.api.public import method, methods
from bireme.api.types import DeviceLike, DTypeLike, PlaceLike, Scalar, Shape
from bireme.core import dims, views
from bireme.core import dtype as dt
from bireme.core.errors import BiremeError, InvalidArgument, TypeMismatch
from bireme.core.op import OPS, TENSOR_TYPES, Op, invoke
from bireme.core.place import Place, as_place, keep_on_host, place_of
from bireme.core.tensor import Tensor
from bireme.core.value import value_of
from bireme.ops import linalg, logic, manipulation, math, math_unary, sparse_math
from bireme.ops.creation import full
from bireme.ops.math_unary import assign_value, cast
from bireme.ops.slicing import getitem, setitem

# --- operators ------------------------------------------------------------------------------------

OPERATORS = {
    "__add__": "add", "__radd__": "add", "__sub__": "subtract", "__mul__": "multiply",
    "__rmul__": "multiply", "__truediv__": "divide", "__div__": "divide",
    "__floordiv__": "floor_divide", "__mod__": "remainder", "__eq__": "equal",
    "__ne__": "not_equal", "__lt__": "less_than", "__le__": "less_equal", "__gt__": "greater_than",
    "__ge__": "greater_equal", "__and__": "bitwise_and", "__rand__": "bitwise_and",
    "__or__": "bitwise_or", "__ror__": "bitwise_or", "__xor__": "bitwise_xor",
    "__rxor__": "bitwise_xor",
}  # fmt: skip

REFLECTED = {
    "__rsub__": "__sub__", "__rtruediv__": "__truediv__", "__rdiv__": "__truediv__",
    "__rfloordiv__": "__floordiv__", "__rmod__": "__mod__", "__rpow__": "__pow__",
    "__rmatmul__": "__matmul__", "__rlshift__": "__lshift__", "__rrshift__": "__rshift__",
}  # fmt: skip

# Operators whose public function does more than call one op.
BY_FUNCTION = {
    "__abs__": math_unary.abs,
    "__invert__": logic.bitwise_not,
    "__lshift__": logic.bitwise_left_shift,
    "__matmul__": linalg.matmul,
    "__neg__": math_unary.neg,
    "__pow__": math.pow,
    "__rshift__": logic.bitwise_right_shift,
}

_OPERANDS = (int, float, complex, np.generic, np.ndarray, Tensor)


def _invoke_operator(op: Op, inputs: tuple[Any, ...], attrs: tuple[Any, ...]) -> Any:
    """`invoke`, leaving operands that are no numbers to their own reflected operator."""
    for x in inputs:
        if x.__class__ not in TENSOR_TYPES and not isinstance(x, _OPERANDS):
            if dims.is_dim_expression(x):
                continue
            return NotImplemented
    return invoke(op, inputs, attrs)


def as_operator(function: Any, name: str) -> Callable[..., Any]:
    """A generated op function under an operator's name.

    The code is shared; only its general path is exchanged, so the quick path stays as it is.
    """
    scope = {**function.__globals__, "_invoke": _invoke_operator}
    made = FunctionType(function.__code__, scope, name, function.__defaults__)
    made.__doc__, made.__qualname__ = function.__doc__, f"Tensor.{name}"
    made.__dict__.update(function.__dict__)
    return made


def _reflected(operator: Callable[..., Any], name: str) -> Callable[..., Any]:
    def reflected(self: Tensor, other: Any) -> Any:
        if not isinstance(other, _OPERANDS):
            return NotImplemented
        if other.__class__ is not float and other.__class__ is not int:
            other = _as_operand(other)
        return operator(other, self)

    reflected.__name__, reflected.__qualname__ = name, f"Tensor.{name}"
    return reflected


def _as_operand(other: Any) -> Any:
    from bireme.ops.creation import to_tensor

    return other if isinstance(other, Tensor) else to_tensor(other)


def _pos(self: Tensor) -> Tensor:
    return self


def _iterate(self: Tensor) -> Iterator[Tensor]:
    """The tensor's rows, as views."""
    if self.ndim == 0:
        raise TypeMismatch("a 0-d tensor cannot be iterated over; use .item() to read its value")
    return (getitem(self, i) for i in range(len(self)))


def _contains(self: Tensor, value: Any) -> bool:
    if isinstance(value, str):
        raise TypeMismatch(f"a tensor holds numbers, not strings. Received: {value!r}")
    return bool(np.asarray((self == value)._array()).any())


# --- methods of the handle ----------------------------------------------------------------------


@method
def astype(self: Tensor, dtype: DTypeLike) -> Tensor:
    """This tensor with another dtype; itself if it has that dtype already."""
    want = dt.as_dtype(dtype)
    return self if self._value.aval.dtype is want else cast(self, want)


@method
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the dtype of `other`."""
    return astype(self, other._value.aval.dtype)


def _converter(name: str, want: dt.DType) -> Callable[[Tensor], Tensor]:
    def convert(self: Tensor) -> Tensor:
        return astype(self, want)

    convert.__name__, convert.__qualname__ = name, f"Tensor.{name}"
    convert.__doc__ = f"This tensor as {want.name}."
    return convert


_CONVERTERS = {
    "bfloat16": dt.bfloat16, "bool": dt.bool_, "byte": dt.uint8, "cdouble": dt.complex128,
    "cfloat": dt.complex64, "char": dt.int8, "complex128": dt.complex128,
    "complex64": dt.complex64, "double": dt.float64, "float": dt.float32, "float16": dt.float16,
    "float32": dt.float32, "float64": dt.float64, "half": dt.float16, "int": dt.int32,
    "int16": dt.int16, "int32": dt.int32, "int64": dt.int64, "int8": dt.int8, "long": dt.int64,
    "short": dt.int16, "uint8": dt.uint8,
}  # fmt: skip


def _moved(x: Tensor, place: Place) -> Tensor:
    """`x` on another device; the gradient comes straight back."""
    if place_of(x._array()) == place:
        return x
    if place.is_cpu_place():
        buffer = np.asarray(x._array()).view()  # an array of its own: the mark is for it alone
        keep_on_host(buffer)
    else:
        buffer = place.put(x._array())
    made = value_of(x._value.aval, buffer)
    if x._value.buf.__class__ is np.ndarray and x.dtype.is_integer:
        made.host = x._value.buf
    return Tensor(made, x._node)


@method
def cpu(self: Tensor) -> Tensor:
    """This tensor in the host's memory."""
    return _moved(self, as_place("cpu"))


@method
def cuda(self: Tensor, device_id: int | str | Place | None = None, blocking: bool = True) -> Tensor:
    """This tensor on a GPU, the first by default."""
    if isinstance(device_id, str | Place):
        return _moved(self, as_place(device_id))
    return _moved(self, as_place(f"gpu:{device_id or 0}"))


@method
def pin_memory(self: Tensor, blocking: bool = True) -> Tensor:
    """This tensor in host memory; the engine's copies need no pinned pages."""
    return cpu(self)


@method
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """This tensor with another dtype, on another device, or both as `other` has them.

    `x.to("float64")`, `x.to("gpu:0")`, `x.to("cpu", "float32")`, `x.to(other)`.
    """
    want: dict[str, Any] = {"device": None, "dtype": None, "blocking": None, "copy": False}
    given = list(args)
    if "other" in kwargs:
        given.insert(0, kwargs.pop("other"))
    if given and isinstance(given[0], Tensor):
        other = given.pop(0)
        want["dtype"], want["device"] = other.dtype, other.place
        names = ["blocking", "copy"]
    elif given and _is_dtype(given[0]):
        names = ["dtype", "blocking", "copy"]
    else:
        names = ["device", "dtype", "blocking", "copy"]
    if len(given) > len(names) or set(kwargs) - set(want):
        raise TypeMismatch(
            "[to] takes a device, a dtype or a tensor, then blocking and copy. Received: "
            f"{len(args)} arguments and {sorted(kwargs)}"
        )
    want.update(zip(names, given, strict=False))
    want.update(kwargs)
    made = self if want["dtype"] is None else cast(self, want["dtype"])
    if want["device"] is not None:
        made = _moved(made, as_place(want["device"]))
    return assign_value(made) if want["copy"] and made is self else made


@method
def _to(
    self: Tensor,
    device: PlaceLike | None = None,
    dtype: DTypeLike | None = None,
    blocking: bool | None = None,
    copy_tensor: bool | None = None,
) -> Tensor:
    """`to`, with the order of arguments that Paddle's own `to` ends in."""
    return to(self, device, dtype, blocking, bool(copy_tensor))


def _is_dtype(spec: Any) -> bool:
    if isinstance(spec, Place) or spec is None:
        return False
    try:
        dt.as_dtype(spec)
    except BiremeError:
        return False
    return True


@method
def apply(self: Tensor, func: Callable[[Tensor], Tensor]) -> Tensor:
    """`func(self)`, for tensors that need no gradient."""
    if not self.stop_gradient:
        raise InvalidArgument("[apply] cannot be called on a tensor that needs a gradient")
    return func(self)


@method
def is_same_shape(self: Tensor, y: Tensor) -> bool:
    """Whether both tensors have the same shape."""
    return self.shape == y.shape


@method
def data_ptr(self: Tensor) -> int:
    """The address of the contents."""
    buffer = self._array()
    if isinstance(buffer, np.ndarray):
        return buffer.ctypes.data
    return buffer.unsafe_buffer_pointer()


@method
def get_strides(self: Tensor) -> list[int]:
    """How many elements apart neighbours lie in memory, for each dimension."""
    return list(views.strides(self))


@method
def stride(self: Tensor, dim: int | None = None) -> int | list[int]:
    """The strides of all dimensions, or of one."""
    found = get_strides(self)
    return found if dim is None else found[dim]


@method
def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in order, without gaps."""
    return self._view is None or views.is_contiguous(self)


@method
def contiguous(self: Tensor) -> Tensor:
    """This tensor if its elements lie in order, else a copy of it."""
    return self if is_contiguous(self) else assign_value(self)


@method
def _is_shared_buffer_with(self: Tensor, other: Tensor) -> bool:
    """Whether both see each other's writes, as views of one tensor."""
    return views.share_memory(self, other)


@method
def get_device(self: Tensor) -> int:
    """The number of the GPU that holds this tensor, -1 for the CPU."""
    place = self.place
    return -1 if place.is_cpu_place() else place.get_device_id()


def _factory(name: str, default: Any) -> Callable[..., Tensor]:
    def make(
        self: Tensor,
        size: Any,
        *more: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
    ) -> Tensor:
        shape = (*manipulation.ints(size, "size"), *more)
        wanted = {"device": device, "requires_grad": requires_grad, "pin_memory": pin_memory}
        return new_full(self, shape, default, dtype=dtype, **wanted)

    make.__name__, make.__qualname__ = name, f"Tensor.{name}"
    make.__doc__ = f"A tensor of {default}s with this tensor's dtype and device."
    return make


@method
def new_full(
    self: Tensor,
    size: Shape,
    fill_value: Scalar,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor full of `fill_value` with this tensor's dtype and device."""
    want = self.dtype if dtype is None else dt.as_dtype(dtype)
    where = self.place if device is None else device
    wanted = {"device": where, "requires_grad": requires_grad, "pin_memory": pin_memory}
    return full(size, fill_value, want, **wanted)


@method
def get_selected_rows(self: Tensor) -> None:
    """None, as for every dense tensor in Paddle: gradients of tables are dense too."""


def _transposed(self: Tensor) -> Tensor:
    """All dimensions in reverse order."""
    return manipulation.transpose(self, tuple(range(self.ndim))[::-1])


def _data(self: Tensor) -> Tensor:
    """The contents without history, sharing memory."""
    return self.detach()


def _set_data(self: Tensor, value: Tensor) -> None:
    self._put(value_of(self._value.aval, value._array()))


PROPERTIES = {
    "T": property(_transposed),
    "mT": property(lambda self: manipulation.matrix_transpose(self)),
    "data": property(_data, _set_data),
    "strides": property(get_strides),
    "inplace_version": property(lambda self: self._version),
    "grad_fn": property(lambda self: None if self.is_leaf else self._node),
    "is_cuda": property(lambda self: self.place.is_gpu_place()),
    "device": property(lambda self: str(self.place)[6:-1]),
    "num_shard": property(lambda self: None, doc="None: no tensor has parts in Paddle's sense."),
    "grad_": property(lambda self: self.grad, lambda self, value: setattr(self, "grad", value)),
}


for _name, _want in _CONVERTERS.items():
    method(_converter(_name, _want))
for _name, _fill in (("new_empty", 0), ("new_ones", 1), ("new_zeros", 0)):
    method(_factory(_name, _fill))


# --- attaching ------------------------------------------------------------------------------------


def attach() -> None:
    """Give Tensor its operators and methods."""
    import_module("bireme.ops.methods_inner")  # records more of them
    sparse_math.attach()
    for name, op_name in OPERATORS.items():
        setattr(Tensor, name, as_operator(OPS[op_name].function, name))
    for name, function in BY_FUNCTION.items():
        setattr(Tensor, name, function)
    for name, direct in REFLECTED.items():
        setattr(Tensor, name, _reflected(vars(Tensor)[direct], name))
    own = {
        "__contains__": _contains,
        "__getitem__": getitem,
        "__iter__": _iterate,
        "__pos__": _pos,
        "__setitem__": setitem,
    }
    for name, value in (own | PROPERTIES).items():
        setattr(Tensor, name, value)
    own_names = set(vars(Tensor))
    for name, function in methods().items():
        if name in own_names:
            raise ImportError(f"Tensor.{name} is defined twice; write method=False for one of them")
        setattr(Tensor, name, function)
