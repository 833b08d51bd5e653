"""Making parameters: named, initialised on the host, nothing compiled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.api.types import DTypeLike, PlaceLike
from bireme.core import dtype as dt
from bireme.core.aval import aval
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.recorder_hooks import new_state
from bireme.core.tensor import Parameter
from bireme.core.trace import Value, state
from bireme.core.value import value_of
from bireme.nn import naming
from bireme.nn.attributes import ParamAttrLike, as_param_attr
from bireme.nn.lazy import is_lazy, without_contents

if TYPE_CHECKING:
    from bireme.nn.initializer.base import Initializer


_CAN_INITIALIZE = (dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.int8)


def create_parameter(
    shape: Iterable[int],
    dtype: DTypeLike | None = None,
    name: str | None = None,
    attr: ParamAttrLike | None = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Any:
    """A new Parameter outside any layer; None if `attr` is False."""
    return make_parameter(shape, dtype, attr, is_bias, default_initializer, name=name)


def make_parameter(
    shape: Iterable[int],
    dtype: DTypeLike | None,
    attr: ParamAttrLike | None,
    is_bias: bool,
    default_initializer: Initializer | None,
    *,
    name: str | None = None,
    owner: str | None = None,
    place: PlaceLike | None = None,
) -> Any:
    """A new Parameter, named after the layer `owner` (its full name) if neither it nor its
    attribute has a name; None if `attr` is False."""
    from bireme.nn import initializer as init

    settings = as_param_attr(attr)
    if settings is None:
        return None
    for d in (sizes := list(shape)):
        if isinstance(d, float):
            raise TypeMismatch(f"[create_parameter] sizes must be integers. Received: {sizes}")
    if default_initializer is not None and not isinstance(default_initializer, init.Initializer):
        raise TypeMismatch(
            "[create_parameter] default_initializer must be an initializer. Received: "
            f"{type(default_initializer).__name__}"
        )
    dims = tuple(int(d) for d in sizes)
    if any(d < 0 for d in dims):
        raise InvalidArgument(f"[create_parameter] sizes must not be negative. Received: {dims}")
    kind = dt.default_float() if dtype is None else dt.as_dtype(dtype)
    default = init.global_initializer(is_bias) or default_initializer
    chosen = settings.initializer or default
    if chosen is None:
        if kind not in _CAN_INITIALIZE:
            raise TypeMismatch(
                f"[create_parameter] a {kind.name} parameter needs an initializer; pass "
                "default_initializer=paddle.nn.initializer.Constant(0)"
            )
        chosen = init.Constant(0.0) if is_bias else init.XavierUniform()
    if owner is None and name is None and settings.name is None:
        owner = naming.generate("create_parameter")
    full_name = settings.name or name or naming.generate(f"{owner}.{'b' if is_bias else 'w'}")

    def make() -> np.ndarray:
        return np.ascontiguousarray(chosen.make(dims, kind)).reshape(dims)

    def build(value: Value) -> Any:
        param: Any = Parameter(value, settings.trainable, full_name)
        param.optimize_attr = {"learning_rate": settings.learning_rate}
        param.regularizer = settings.regularizer
        param.need_clip = settings.need_clip
        param.do_model_average = settings.do_model_average
        return param

    if is_lazy():
        blank = np.broadcast_to(np.zeros((), kind.numpy), dims)  # takes no memory
        param = without_contents(build(value_of(aval(dims, kind), blank)), make)
    else:
        param = new_state(state.trace, full_name, aval(dims, kind), make, build)
    if place is not None:
        from bireme.core.place import as_place
        from bireme.nn.layer.conversion import convert

        convert(param, None, as_place(place))
    return param
