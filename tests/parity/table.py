"""The language of the parity table: one line per call.

    case("add", T(3, 4), T(4))
    case("nn.functional.gelu", T(3, 4), approximate=True)
    case("concat", [T(2, 3), T(2, 3)], axis=1)
    method("unsqueeze", T(2, 3), -1)
    layer("nn.Linear", 4, 3, inputs=[T(2, 4)])
    case_fn("getitem-mask", lambda p, x: x[x > 0], T(3, 4))
    raises("matmul", T(2, 3), T(2, 3))
    raises_fn("setitem-shape", write_too_much, T(2, 3))

Every row runs against the real Paddle (values, gradients, dtypes, shapes, errors) and against
itself: cold tier = compiled tier, gradient = finite difference, second call compiles nothing.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Spec:
    """An input tensor: shape, dtype and range. `grad` asks for its gradient to be compared."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = -2.0
    high: float = 2.0
    grad: bool = True
    value: Any = None

    def make(self, rng: np.random.Generator) -> np.ndarray:
        """The contents; a bfloat16 tensor is handed over in float32 and cast by `to_tensor`."""
        dtype = "float32" if self.dtype == "bfloat16" else self.dtype
        if self.value is not None:
            return np.asarray(self.value, dtype=dtype)
        if dtype == "bool":
            return rng.integers(0, 2, self.shape).astype(bool)
        if "int" in dtype:
            return rng.integers(int(self.low), int(self.high), self.shape).astype(dtype)
        array = rng.uniform(self.low, self.high, self.shape)
        if "complex" in dtype:
            array = array + 1j * rng.uniform(self.low, self.high, self.shape)
        return np.asarray(array, dtype=dtype)

    @property
    def differentiable(self) -> bool:
        return self.grad and ("float" in self.dtype or "complex" in self.dtype)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return shape if self.dtype == "float32" else f"{shape}:{self.dtype}"


def T(
    *shape: int, dtype: str = "float32", low: float = -2.0, high: float = 2.0, grad: bool = True
) -> Spec:
    """A floating (or complex) tensor, uniform in [low, high)."""
    return Spec(shape, dtype, low, high, grad)


def I(*shape: int, low: int = 0, high: int = 10, dtype: str = "int64") -> Spec:  # noqa: E743
    """An integer tensor in [low, high)."""
    return Spec(shape, dtype, low, high, grad=False)


def B(*shape: int) -> Spec:
    """A boolean tensor."""
    return Spec(shape, "bool", grad=False)


def V(value: Any, dtype: str = "float32", grad: bool = False) -> Spec:
    """A tensor with given contents."""
    return Spec(np.shape(value), dtype, value=value, grad=grad)


@dataclass
class Case:
    """One row of the table."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    kind: str = "call"  # "call", "method", "layer" or "function"
    function: Callable[..., Any] | None = None
    inputs: tuple[Any, ...] = ()
    must_raise: bool = False
    rtol: float = 1e-5
    atol: float = 1e-5
    check_grad: bool = True
    paddle_grad: bool = True  # Paddle's gradient is right (else only finite differences count)
    check_value: bool = True
    finite_difference: bool = True
    eval: bool = False  # the layer runs in evaluation mode
    wide_oracle: bool = False  # Paddle has no half-precision kernel: it computes in float32
    post: Callable[[Any, Any], Any] | None = None
    id: str = ""

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(self.id.encode()))

    def in_float64(self) -> Case:
        """The same row with float32 inputs widened, for finite differences."""
        return dataclasses.replace(
            self,
            args=_widen(self.args),
            kwargs={k: _widen(v) for k, v in self.kwargs.items()},
            inputs=_widen(self.inputs),
        )

    def for_paddle(self) -> Case:
        """The row as Paddle's CPU kernels can run it."""
        if not self.wide_oracle:
            return self
        return dataclasses.replace(
            self,
            args=_unhalved(self.args),
            kwargs={k: _unhalved(v) for k, v in self.kwargs.items()},
            inputs=_unhalved(self.inputs),
        )

    def specs(self) -> Iterator[Spec]:
        """Every tensor that goes in."""
        yield from _specs_in((self.args, tuple(self.kwargs.values()), self.inputs))


def _widen(x: Any) -> Any:
    if isinstance(x, Spec) and x.dtype == "float32":
        return dataclasses.replace(x, dtype="float64")
    if isinstance(x, list | tuple):
        return type(x)(_widen(i) for i in x)
    return x


def _unhalved(x: Any) -> Any:
    if isinstance(x, Spec) and x.dtype in ("float16", "bfloat16"):
        return dataclasses.replace(x, dtype="float32")
    if isinstance(x, list | tuple):
        return type(x)(_unhalved(i) for i in x)
    return x


def _specs_in(x: Any) -> Iterator[Spec]:
    if isinstance(x, Spec):
        yield x
    elif isinstance(x, list | tuple):
        for i in x:
            yield from _specs_in(i)


CASES: list[Case] = []
_seen: dict[str, int] = {}
_OPTIONS = (
    "rtol", "atol", "check_grad", "paddle_grad", "check_value", "finite_difference", "eval",
    "wide_oracle", "post",
)  # fmt: skip


def _shown(x: Any) -> str:
    if isinstance(x, list | tuple):
        inside = ",".join(map(_shown, x))
        return f"[{inside}]" if isinstance(x, list) else f"({inside})"
    return getattr(x, "__name__", None) or str(x)


def _add(kind: str, name: str, args: Any, kwargs: dict[str, Any], **more: Any) -> None:
    options = {
        k[1:]: kwargs.pop(k) for k in list(kwargs) if k.startswith("_") and k[1:] in _OPTIONS
    }
    described = [_shown(a) for a in args] + [f"{k}={_shown(v)}" for k, v in kwargs.items()]
    described += [_shown(i) for i in more.get("inputs", ())]
    prefix = {"method": "Tensor.", "function": "fn."}.get(kind, "")
    row_id = f"{prefix}{name.replace('nn.functional.', 'F.')}({','.join(described)})"
    if more.get("must_raise"):
        row_id = f"raises-{row_id}"
    _seen[row_id] = _seen.get(row_id, 0) + 1
    if _seen[row_id] > 1:
        row_id += f"#{_seen[row_id]}"
    CASES.append(Case(name, tuple(args), kwargs, kind, id=row_id, **more, **options))


def case(name: str, *args: Any, **kwargs: Any) -> None:
    """A function call; options of the row itself start with an underscore (`_rtol=1e-3`)."""
    _add("call", name, args, kwargs)


def half(name: str, *args: Any, **kwargs: Any) -> None:
    """The same call in float16 and bfloat16; each `T(...)` is given without a dtype.

    Paddle has few such kernels for the CPU, so its side computes in float32.
    """
    for dtype, tolerance in (("float16", 4e-3), ("bfloat16", 3e-2)):
        options = {"_rtol": tolerance, "_atol": tolerance, "_wide_oracle": True} | kwargs
        _add("call", name, _narrow(args, dtype), options)


def _narrow(x: Any, dtype: str) -> Any:
    if isinstance(x, Spec) and x.dtype == "float32":
        return dataclasses.replace(x, dtype=dtype)
    if isinstance(x, list | tuple):
        return type(x)(_narrow(i, dtype) for i in x)
    return x


def case_fn(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """A few lines of user code: `function(module, *tensors)`; `name` says what it shows."""
    _add("function", name, args, kwargs, function=function)


def method(name: str, *args: Any, **kwargs: Any) -> None:
    """A Tensor method or property; the first argument is the tensor."""
    _add("method", name, args, kwargs)


def layer(name: str, *args: Any, inputs: Any, **kwargs: Any) -> None:
    """A Layer built with the arguments, given Paddle's weights, and called on `inputs`."""
    _add("layer", name, args, kwargs, inputs=tuple(inputs))


def layer_fn(name: str, build: Callable[[Any], Any], inputs: Any, **kwargs: Any) -> None:
    """As `layer`, for a network that `build(module)` puts together."""
    _add("layer", name, (), kwargs, function=build, inputs=tuple(inputs))


def raises(name: str, *args: Any, **kwargs: Any) -> None:
    """A call that must raise in both."""
    _add("call", name, args, kwargs, must_raise=True)


def raises_method(name: str, *args: Any, **kwargs: Any) -> None:
    """A Tensor method that must raise in both."""
    _add("method", name, args, kwargs, must_raise=True)


def raises_fn(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """A few lines of user code that must raise in both."""
    _add("function", name, args, kwargs, function=function, must_raise=True)


def raises_layer(name: str, *args: Any, inputs: Any = (), **kwargs: Any) -> None:
    """A Layer that must refuse its arguments or its inputs in both."""
    _add("layer", name, args, kwargs, inputs=tuple(inputs), must_raise=True)
