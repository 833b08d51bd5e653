"""PyTorch's primitive functions: what a program asks about tensors, and what it raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

import bireme as paddle
from bireme.convert.torch.program import TorchFileError
from bireme.convert.torch.script import counts
from bireme.convert.torch.script.builtin import PLAIN, text_of
from bireme.convert.torch.script.dtypes import CODES, NAMES
from bireme.convert.torch.script.values import Count, Device, Value
from bireme.core.errors import CaptureError
from bireme.core.tensor import Tensor
from bireme.ops.control_record import is_symbolic

if TYPE_CHECKING:
    from bireme.convert.torch.script.interpreter import Interpreter

PRIMITIVE: dict[str, Callable[..., Value]] = {}


def _primitive(*names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    def add(function: Callable[..., Value]) -> Callable[..., Value]:
        for name in names:
            PRIMITIVE[name] = function
        return function

    return add


@_primitive("RaiseException")
def raise_exception(of: Interpreter, message: str, kind: str = "") -> None:
    from bireme.convert.torch.script.interpreter import Raised

    of.check_change("whether the program raises an error")
    kind = str(kind or "").rpartition(".")[2]
    raise Raised(f"{kind}: {message!s:.1000}" if kind else f"{message!s:.1000}")


@_primitive("NumToTensor")
def num_to_tensor(of: Interpreter, value: Value) -> Count:
    return counts.of_number(value)


@_primitive("dtype")
def dtype(of: Interpreter, x: Value) -> int:
    name = x.dtype if isinstance(x, Count) else x.dtype.name
    return CODES[name]


@_primitive("device")
def device(of: Interpreter, x: Value = None, *index: int) -> Device:
    if isinstance(x, str):  # torch.device("cpu")
        kind, _, number = x.partition(":")
        at = int(number) if number.isdigit() else (index[0] if index else None)
        return Device(kind, at)
    return Device("cpu")


@_primitive("layout")
def layout(of: Interpreter, x: Value) -> int:
    return 0


@_primitive("index")
def index(of: Interpreter, x: Value) -> Value:
    return x.index


@_primitive("type")
def type_(of: Interpreter, x: Value) -> str:
    return x.type if isinstance(x, Device) else "torch.Tensor"


@_primitive("shape")
def shape(of: Interpreter, x: Value) -> list[Value]:
    return [] if isinstance(x, Count) else list(x.shape)


@_primitive("size")
def size(of: Interpreter, x: Value, dim: int | None = None) -> Value:
    found = shape(of, x)
    return found if dim is None else found[dim]


@_primitive("ndim", "dim")
def ndim(of: Interpreter, x: Value) -> int:
    return 0 if isinstance(x, Count) else x.ndim


@_primitive("numel")
def numel(of: Interpreter, x: Value) -> Value:
    count: Value = 1
    for d in shape(of, x):
        count = count * d
    return count


@_primitive("len")
def length(of: Interpreter, x: Value) -> Value:
    if isinstance(x, Tensor):
        if not x.ndim:
            raise TorchFileError("a tensor without dimensions has no length")
        return x.shape[0]
    return len(x)


@_primitive("data", "detach")
def data(of: Interpreter, x: Value) -> Value:
    return x.detach() if isinstance(x, Tensor) else x


@_primitive("requires_grad")
def requires_grad(of: Interpreter, x: Tensor) -> bool:
    return not x.stop_gradient


@_primitive(
    "is_cuda",
    "is_quantized",
    "is_sparse",
    "is_mkldnn",
    "is_mps",
    "is_vulkan",
    "is_xpu",
    "is_ipu",
    "is_meta",
    "is_nested",
    "is_sparse_csr",
    "is_hpu",
    "is_xla",
)
def never(of: Interpreter, x: Value) -> bool:
    return False


@_primitive("is_cpu", "is_leaf", "is_scripting", "is_contiguous")
def always(of: Interpreter, *x: Value) -> bool:
    return True


@_primitive("is_floating_point")
def is_floating_point(of: Interpreter, x: Value) -> bool:
    return "float" in NAMES[dtype(of, x)]


@_primitive("is_complex")
def is_complex(of: Interpreter, x: Value) -> bool:
    return "complex" in NAMES[dtype(of, x)]


@_primitive("element_size", "itemsize")
def element_size(of: Interpreter, x: Tensor) -> int:
    return x.dtype.itemsize


@_primitive("get_device")
def get_device(of: Interpreter, x: Value) -> int:
    return -1


@_primitive("Int", "item", "ImplicitTensorToNum", "ScalarImplicit")
def number(of: Interpreter, x: Value) -> Value:
    if isinstance(x, Count):
        return x.value
    if not isinstance(x, Tensor):
        return int(x)
    if is_symbolic(x):
        raise CaptureError("a number depends on the values of tensors")
    return x.item()


@_primitive("Float")
def real(of: Interpreter, x: Value) -> float:
    return of.calls.real(x)


@_primitive("Bool")
def truth(of: Interpreter, x: Value) -> Value:
    return of.truth(x)


@_primitive("str")
def text(of: Interpreter, x: Value) -> str:
    return text_of(x)


@_primitive("tolist")
def tolist(of: Interpreter, x: Tensor, *_: Value) -> Value:
    if is_symbolic(x):
        raise CaptureError("a list depends on the values of tensors")
    return x.tolist()


@_primitive("unchecked_unwrap_optional")
def unwrapped(of: Interpreter, x: Value) -> Value:
    if x is None:
        raise TorchFileError("the program takes the value of None")
    return x


@_primitive("unchecked_cast")
def unchecked(of: Interpreter, x: Value) -> Value:
    return x


@_primitive("min", "max", "abs")
def _extreme(of: Interpreter, *x: Value) -> Value:
    raise TorchFileError("never called")


def _of_plain(name: str) -> Callable[..., Value]:
    return lambda of, *values: PLAIN[name](*values)


for _name in ("min", "max", "abs"):
    PRIMITIVE[_name] = _of_plain(_name)


@_primitive("rangelist")
def rangelist(of: Interpreter, count: int) -> list[int]:
    if count > 10_000_000:
        raise TorchFileError("a list of the program is too long")
    return list(range(count))


@_primitive("Print")
def print_(of: Interpreter, *values: Value) -> None:
    """A program that prints runs without doing so."""


@_primitive("warn")
def warn(of: Interpreter, message: str, stacklevel: int = 2) -> None:
    """Warnings of the program are for its authors."""


@_primitive("is_grad_enabled")
def is_grad_enabled(of: Interpreter) -> bool:
    return paddle.autograd.is_grad_enabled()


@_primitive("set_grad_enabled")
def set_grad_enabled(of: Interpreter, mode: bool) -> None:
    from bireme.core.trace import state

    state.trace.tape = bool(mode)


@_primitive("tensor", "as_tensor")
def tensor(
    of: Interpreter, value: Value, dtype: int | None = None, *_: Value, **__: Value
) -> Value:
    """A tensor of numbers, or of lists of them."""
    name = None if dtype is None else NAMES[dtype]
    if isinstance(value, Count):
        value = counts.as_tensor(value)
    if isinstance(value, Tensor):
        return value if name is None else value.astype(name)
    if isinstance(value, list) and any(not isinstance(v, int | float | list) for v in value):
        rows = [tensor(of, v, dtype) for v in value]
        return paddle.stack([r if isinstance(r, Tensor) else counts.as_tensor(r) for r in rows])
    if not isinstance(value, list | int | float | complex):
        from bireme.convert.torch.aten.types import tensor as of_size

        return of_size(value).astype(name or "int64")
    if name is None:
        kind = np.asarray(value).dtype.kind if value != [] else "f"
        name = {"b": "bool", "i": "int64", "f": "float32", "c": "complex64"}[kind]
    return paddle.to_tensor(value, dtype=name)


@_primitive("result_type")
def result_type(of: Interpreter, a: Value, b: Value) -> int:
    from bireme.convert.torch.aten.types import result_type as joined

    return CODES[joined(a, b).name]


@_primitive("get_default_dtype")
def get_default_dtype(of: Interpreter) -> int:
    return CODES["float32"]


@_primitive("is_available", "is_autocast_enabled", "is_autocast_cpu_enabled", "is_tracing")
def no(of: Interpreter, *_: Value) -> bool:
    return False


@_primitive("cpu", "cuda", "pin_memory", "contiguous", "resolve_conj", "resolve_neg")
def same(of: Interpreter, x: Value, *_: Value, **__: Value) -> Value:
    return x
