"""Shared helpers of the layer functions: named parameters, activations, known sizes."""

from __future__ import annotations

from typing import Any

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn import naming
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Initializer
from bireme.nn.parameters import make_parameter
from bireme.static.weight_norm import WeightNormParamAttr, normed_weight


class Maker:
    """Makes the parameters of one call: `fc_0.w_0`, `fc_0.b_0` …"""

    def __init__(self, kind: str, name: str | None, dtype: DTypeLike):
        self.owner = name or naming.generate(kind)
        self.dtype = dtype

    def weight(
        self, shape: list[Any], attr: ParamAttrLike | None, initializer: Initializer | None = None
    ) -> Any:
        if isinstance(attr, WeightNormParamAttr):
            return normed_weight(attr, shape, self.dtype, self.owner, initializer)
        return make_parameter(shape, self.dtype, attr, False, initializer, owner=self.owner)

    def bias(self, shape: list[Any], attr: ParamAttrLike | None) -> Any:
        return make_parameter(shape, self.dtype, attr, True, None, owner=self.owner)


def known(x: Tensor, axis: int, function: str) -> int:
    """A size that parameters depend on."""
    size = x._value.aval.shape[axis]
    if type(size) is not int:
        raise InvalidArgument(
            f"[{function}] dimension {axis} of the input must be known, because parameters "
            f"depend on it. Received: {x._value.aval}"
        )
    return size


def statistics_dtype(x: Tensor) -> dt.DType:
    """Normalisation parameters of half-precision networks are kept in float32."""
    return dt.float32 if x.dtype in (dt.float16, dt.bfloat16) else x.dtype


def activate(x: Tensor, act: str | None) -> Tensor:
    """The activation of this name, or `x` itself."""
    if act is None:
        return x
    function = getattr(F, act, None) if isinstance(act, str) else None
    if function is None:
        raise InvalidArgument(
            f"the activation must be the name of one, such as 'relu'. Received: {act!r}"
        )
    return function(x)
