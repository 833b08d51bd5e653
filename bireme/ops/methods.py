"""Tensor's operators and methods, attached once all op families are imported.

Operators are the generated op functions themselves, without a wrapper in between, because they
are called more often than anything else. Methods are the public functions of the `paddle`
namespace whose first argument is a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np

from bireme.core import dims, views
from bireme.core import dtype as dt
from bireme.core.errors import BiremeError, InvalidArgument, TypeMismatch
from bireme.core.keywords import accept
from bireme.core.op import OPS, TENSOR_TYPES, Op, invoke
from bireme.core.place import Place, as_place, keep_on_host, place_of
from bireme.core.tensor import Tensor
from bireme.core.trace import Value
from bireme.ops import inplace, joining, manipulation, rearrange, sparse_math, sparse_tensor
from bireme.ops.creation import full
from bireme.ops.forms import FORMS
from bireme.ops.math_unary import assign_value, cast
from bireme.ops.slicing import getitem, setitem

# Public functions of `paddle` that are no methods: they make tensors, or take none first.
NOT_METHODS = frozenset((
    "arange", "as_tensor", "asarray", "assign", "bernoulli", "binomial", "cartesian_prod", "cat",
    "check_shape", "column_stack", "complex", "concatenate", "create_parameter", "crop", "dstack",
    "einsum", "empty", "empty_like", "erf_", "expm1_", "eye", "finfo", "from_dlpack", "from_numpy",
    "full", "full_like", "ger", "get_cuda_rng_state", "get_rng_state", "hstack", "iinfo",
    "linspace", "log_normal", "logspace", "manual_seed", "meshgrid", "normal",
    "ones", "ones_like", "pdist", "poisson", "positive", "rand", "rand_like", "randint",
    "randint_like", "randn", "randn_like", "randperm", "range", "row_stack", "searchsorted",
    "seed", "set_cuda_rng_state", "set_rng_state", "standard_gamma", "standard_normal",
    "to_dlpack", "to_tensor", "tril_indices", "triu_indices", "uniform", "vecdot", "vstack",
    "zeros", "zeros_like",
))  # fmt: skip

# Functions of `paddle.linalg`, `paddle.signal` and `paddle.nn.functional` that are methods too.
ELSEWHERE = (
    "cholesky", "cholesky_inverse", "cholesky_solve", "cond", "corrcoef", "cov", "eig", "eigvals",
    "eigvalsh", "householder_product", "inverse", "istft", "lstsq", "lu", "lu_unpack",
    "matrix_power", "multi_dot", "norm", "ormqr", "pca_lowrank", "pinv", "qr", "sigmoid",
    "slogdet", "softmax", "solve", "stft", "svd_lowrank", "top_p_sampling",
)  # fmt: skip

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
    "__abs__": "abs", "__invert__": "bitwise_not", "__lshift__": "bitwise_left_shift",
    "__matmul__": "matmul", "__neg__": "neg", "__pow__": "pow",
    "__rshift__": "bitwise_right_shift",
}  # fmt: skip

_OPERANDS = (int, float, complex, np.generic, np.ndarray, Tensor)


def _invoke_operator(op: Op, inputs: tuple[Any, ...], attrs: tuple[Any, ...]) -> Any:
    """`invoke`, leaving operands that are no numbers to their own reflected operator."""
    for x in inputs:
        if x.__class__ not in TENSOR_TYPES and not isinstance(x, _OPERANDS):
            if dims.is_dim_expression(x):
                continue
            return NotImplemented
    return invoke(op, inputs, attrs)


def as_operator(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A generated op function under an operator's name.

    The code is shared; only its general path is exchanged, so the quick path stays as it is.
    """
    scope = {**function.__globals__, "_invoke": _invoke_operator}
    made = FunctionType(function.__code__, scope, name, function.__defaults__)
    made.__doc__, made.__qualname__ = function.__doc__, f"Tensor.{name}"
    made.op = function.op  # type: ignore[attr-defined]
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


def astype(self: Tensor, dtype: Any) -> Tensor:
    """This tensor with another dtype; itself if it has that dtype already."""
    want = dt.as_dtype(dtype)
    return self if self._value.aval.dtype is want else cast(self, want)


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
        from bireme.core import jax_door

        buffer = jax_door.jax().device_put(x._array(), place.device())
    return Tensor(Value(x._value.aval, None, 0, buffer), x._node)


def cpu(self: Tensor) -> Tensor:
    """This tensor in the host's memory."""
    return _moved(self, as_place("cpu"))


def cuda(self: Tensor, device_id: int | str | Place | None = None, blocking: bool = True) -> Tensor:
    """This tensor on a GPU, the first by default."""
    if isinstance(device_id, str | Place):
        return _moved(self, as_place(device_id))
    return _moved(self, as_place(f"gpu:{device_id or 0}"))


def pin_memory(self: Tensor, blocking: bool = True) -> Tensor:
    """This tensor in host memory; the engine's copies need no pinned pages."""
    return cpu(self)


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


def _is_dtype(spec: Any) -> bool:
    if isinstance(spec, Place) or spec is None:
        return False
    try:
        dt.as_dtype(spec)
    except BiremeError:
        return False
    return True


def apply(self: Tensor, func: Callable[[Tensor], Tensor]) -> Tensor:
    """`func(self)`, for tensors that need no gradient."""
    if not self.stop_gradient:
        raise InvalidArgument("[apply] cannot be called on a tensor that needs a gradient")
    return func(self)


def is_same_shape(self: Tensor, y: Tensor) -> bool:
    """Whether both tensors have the same shape."""
    return self.shape == y.shape


def data_ptr(self: Tensor) -> int:
    """The address of the contents."""
    buffer = self._array()
    if isinstance(buffer, np.ndarray):
        return buffer.ctypes.data
    return buffer.unsafe_buffer_pointer()


def get_strides(self: Tensor) -> list[int]:
    """How many elements apart neighbours lie in memory, for each dimension."""
    return list(views.strides(self))


def stride(self: Tensor, dim: int | None = None) -> Any:
    """The strides of all dimensions, or of one."""
    found = get_strides(self)
    return found if dim is None else found[dim]


def is_contiguous(self: Tensor) -> bool:
    """Whether the elements lie in order, without gaps."""
    return self._view is None or views.is_contiguous(self)


def contiguous(self: Tensor) -> Tensor:
    """This tensor if its elements lie in order, else a copy of it."""
    return self if is_contiguous(self) else assign_value(self)


def _is_shared_buffer_with(self: Tensor, other: Tensor) -> bool:
    """Whether both see each other's writes, as views of one tensor."""
    return views.share_memory(self, other)


def get_device(self: Tensor) -> int:
    """The number of the GPU that holds this tensor, -1 for the CPU."""
    place = self.place
    return -1 if place.is_cpu_place() else place.get_device_id()


def _factory(name: str, default: Any) -> Callable[..., Tensor]:
    def make(
        self: Tensor, size: Any, *more: Any, dtype: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        shape = (*manipulation.ints(size, "size"), *more)
        wanted = {"device": device, "requires_grad": requires_grad, "pin_memory": pin_memory}
        return new_full(self, shape, default, dtype=dtype, **wanted)

    make.__name__, make.__qualname__ = name, f"Tensor.{name}"
    make.__doc__ = f"A tensor of {default}s with this tensor's dtype and device."
    return make


def new_full(
    self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor full of `fill_value` with this tensor's dtype and device."""
    want = self.dtype if dtype is None else dt.as_dtype(dtype)
    where = self.place if device is None else device
    wanted = {"device": where, "requires_grad": requires_grad, "pin_memory": pin_memory}
    return full(size, fill_value, want, **wanted)


def get_selected_rows(self: Tensor) -> None:
    """None, as for every dense tensor in Paddle: gradients of tables are dense too."""


HANDLE_METHODS = (
    _is_shared_buffer_with, apply, astype, contiguous, cpu, cuda, data_ptr, get_device,
    get_strides, is_contiguous, is_same_shape, new_full, pin_memory, stride, to, type_as,
    joining.split_with_sizes, manipulation.repeat, rearrange.fill_diagonal_,
    rearrange.fill_diagonal_tensor,
    inplace.make_inplace(rearrange.fill_diagonal_tensor), inplace.reconstruct_from_,
    get_selected_rows, *sparse_tensor.METHODS,
)  # fmt: skip


def _transposed(self: Tensor) -> Tensor:
    """All dimensions in reverse order."""
    return manipulation.transpose(self, tuple(range(self.ndim))[::-1])


def _data(self: Tensor) -> Tensor:
    """The contents without history, sharing memory."""
    return self.detach()


def _set_data(self: Tensor, value: Tensor) -> None:
    self._put(Value(self._value.aval, None, 0, value._array()))


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


# --- attaching ------------------------------------------------------------------------------------


def _generated(op_name: str, functions: dict[str, Any]) -> Callable[..., Any] | None:
    """The generated function of an op, which may stand under another name in its module."""
    op = OPS.get(op_name)
    return None if op is None else _FUNCTION_OF.get(op)


_FUNCTION_OF: dict[Op, Callable[..., Any]] = {}


def attach(functions: dict[str, Any], modules: Any) -> None:
    """Give Tensor its operators and methods: `functions` are the public ones by name."""
    sparse_math.attach()
    for module in modules:
        for value in vars(module).values():
            if isinstance(getattr(value, "op", None), Op):
                _FUNCTION_OF.setdefault(value.op, value)
    for name, op_name in OPERATORS.items():
        function = _generated(op_name, functions)
        if function is not None:
            setattr(Tensor, name, as_operator(function, name))
    for name, public in BY_FUNCTION.items():
        if public in functions:
            setattr(Tensor, name, functions[public])
    for name, direct in REFLECTED.items():
        if direct in vars(Tensor):
            setattr(Tensor, name, _reflected(vars(Tensor)[direct], name))
    own = {
        "__contains__": _contains, "__getitem__": getitem, "__iter__": _iterate, "__pos__": _pos,
        "__setitem__": setitem, "new_empty": _factory("new_empty", 0),
        "new_ones": _factory("new_ones", 1), "new_zeros": _factory("new_zeros", 0),
    }  # fmt: skip
    own |= {f.__name__: f for f in HANDLE_METHODS}
    own |= {name: _converter(name, want) for name, want in _CONVERTERS.items()}
    own |= PROPERTIES
    for name, value in own.items():
        setattr(Tensor, name, value)
    kept = set(vars(Tensor))
    # The first family with the name has it: `cond` is a matrix's, not the branch of a graph.
    families = [*modules][::-1]
    found = {n: getattr(m, n) for m in families for n in ELSEWHERE if callable(getattr(m, n, None))}
    found |= functions | inplace.methods(functions | found)
    for name, function in accept("", found, guard=False, forms=FORMS).items():
        if name not in NOT_METHODS and name not in kept:
            setattr(Tensor, name, function)
