"""The language of the parity table: one line per call.

    case("add", T(3, 4), T(4))
    case("nn.functional.gelu", T(3, 4), approximate=True)
    case("concat", [T(2, 3), T(2, 3)], axis=1)
    layer("nn.Linear", 4, 3, inputs=[T(2, 4)])
    raises("matmul", T(2, 3), T(2, 3))

Every row runs against the real Paddle (values, gradients, dtypes, shapes, errors) and against
itself: cold tier = compiled tier, gradient = finite difference, second call compiles nothing.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
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
        if self.value is not None:
            return np.asarray(self.value, dtype=self.dtype)
        if self.dtype == "bool":
            return rng.integers(0, 2, self.shape).astype(bool)
        if "int" in self.dtype:
            return rng.integers(int(self.low), int(self.high), self.shape).astype(self.dtype)
        array = rng.uniform(self.low, self.high, self.shape)
        if "complex" in self.dtype:
            array = array + 1j * rng.uniform(self.low, self.high, self.shape)
        return array.astype(self.dtype)

    @property
    def differentiable(self) -> bool:
        return self.grad and ("float" in self.dtype or "complex" in self.dtype)


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
    kind: str = "call"  # "call", "method", "layer" or "raises"
    inputs: tuple[Any, ...] = ()
    rtol: float = 1e-5
    atol: float = 1e-5
    check_grad: bool = True
    check_value: bool = True
    finite_difference: bool = True
    post: Callable[[Any, Any], Any] | None = None
    number: int = 0
    why: str = field(default="", repr=False)

    @property
    def id(self) -> str:
        return f"{self.kind}-{self.name}-{self.number}"

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(zlib.crc32(self.id.encode()))

    def in_float64(self) -> Case:
        """The same row with float32 inputs widened, for finite differences."""

        def widen(x: Any) -> Any:
            if isinstance(x, Spec) and x.dtype == "float32":
                return dataclasses.replace(x, dtype="float64")
            if isinstance(x, list):
                return [widen(i) for i in x]
            return x

        return dataclasses.replace(
            self,
            args=tuple(widen(a) for a in self.args),
            kwargs={k: widen(v) for k, v in self.kwargs.items()},
            inputs=tuple(widen(i) for i in self.inputs),
        )


CASES: list[Case] = []
_counts: dict[str, int] = {}
_OPTIONS = ("rtol", "atol", "check_grad", "check_value", "finite_difference", "post", "why")


def _add(
    kind: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Any = ()
) -> None:
    options = {
        k[1:]: kwargs.pop(k) for k in list(kwargs) if k.startswith("_") and k[1:] in _OPTIONS
    }
    key = f"{kind}-{name}"
    _counts[key] = _counts.get(key, 0) + 1
    CASES.append(Case(name, args, kwargs, kind, tuple(inputs), number=_counts[key], **options))


def case(name: str, *args: Any, **kwargs: Any) -> None:
    """A function call; options of the row itself start with an underscore (`_rtol=1e-3`)."""
    _add("call", name, args, kwargs)


def method(name: str, *args: Any, **kwargs: Any) -> None:
    """A Tensor method; the first argument is the tensor."""
    _add("method", name, args, kwargs)


def layer(name: str, *args: Any, inputs: Any, **kwargs: Any) -> None:
    """A Layer built with the arguments, given Paddle's weights, and called on `inputs`."""
    _add("layer", name, args, kwargs, inputs)


def raises(name: str, *args: Any, **kwargs: Any) -> None:
    """A call that must raise in both."""
    _add("raises", name, args, kwargs)
