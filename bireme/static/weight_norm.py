"""WeightNormParamAttr: a weight as a direction and a length, trained apart."""

from __future__ import annotations

import numpy as np

from bireme.api.types import DTypeLike
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.attributes import ParamAttr
from bireme.nn.initializer import Initializer, XavierUniform
from bireme.nn.parameters import make_parameter
from bireme.ops.math_unary import sqrt
from bireme.regularizer import WeightDecayRegularizer


class WeightNormParamAttr(ParamAttr):
    """weight = length * direction / |direction|, with one length per index of `dim`, or one in
    all. For the `param_attr` and `weight_attr` of static.nn functions."""

    def __init__(
        self,
        dim: int | None = None,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = False,
        need_clip: bool = True,
    ):
        super().__init__(
            name, initializer, learning_rate, regularizer, trainable, do_model_average, need_clip
        )
        self.dim = dim

    def part(self, name: str, initializer: Initializer) -> ParamAttr:
        """The settings of one of the two parameters."""
        return ParamAttr(
            name,
            initializer,
            self.learning_rate,
            self.regularizer,
            self.trainable,
            self.do_model_average,
            self.need_clip,
        )


class _Direction(Initializer):
    """Keeps its result, from which the length starts."""

    def __init__(self, inner: Initializer):
        self.inner = inner
        self.made: np.ndarray | None = None

    def make(self, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        made = self.inner.make(shape, dtype)
        self.made = made
        return made


class _Length(Initializer):
    """The lengths of the result of a `_Direction`."""

    def __init__(self, direction: _Direction, axes: tuple[int, ...]):
        self.direction, self.axes = direction, axes

    def make(self, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        made = self.direction.made
        if made is None:
            raise InvalidArgument("[WeightNormParamAttr] the direction has no contents yet")
        wide = np.asarray(made, np.float64)
        return np.sqrt((wide * wide).sum(axis=self.axes)).reshape(shape).astype(dtype.numpy)


def normed_weight(
    attr: WeightNormParamAttr,
    shape: list[int],
    dtype: DTypeLike,
    name: str,
    initializer: Initializer | None,
) -> Tensor:
    """The weight that the two new parameters give."""
    dim = attr.dim
    if dim is not None and not -len(shape) <= dim < len(shape):
        raise InvalidArgument(
            f"[WeightNormParamAttr] dim must be in [0, {len(shape)}). Received: {dim}"
        )
    kept = None if dim is None else dim % len(shape)
    axes = tuple([i for i in range(len(shape)) if i != kept])
    start = _Direction(attr.initializer or initializer or XavierUniform())
    lengths = [shape[i] if i == kept else 1 for i in range(len(shape))]
    own = attr.name or name
    direction = make_parameter(shape, dtype, attr.part(f"{own}.w_v", start), False, None)
    length = make_parameter(
        lengths, dtype, attr.part(f"{own}.w_g", _Length(start, axes)), False, None
    )
    size = sqrt((direction * direction).sum(axis=list(axes), keepdim=True))
    return direction * (length / size)
