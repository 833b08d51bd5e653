"""Normalisation."""

from __future__ import annotations

import math

from bireme.core.errors import InvalidArgument, ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttr, ParamAttrLike
from bireme.nn.initializer import Constant
from bireme.ops.manipulation import reshape
from bireme.static.nn.helper import Maker, activate, known, statistics_dtype


def _channels(x: Tensor, layout: str, function: str) -> int:
    if layout not in ("NCHW", "NHWC"):
        raise InvalidArgument(
            f"[{function}] data_layout must be 'NCHW' or 'NHWC'. Received: {layout!r}"
        )
    if not 2 <= x.ndim <= 5:
        raise ShapeMismatch(
            f"[{function}] the input must have 2 to 5 dimensions. Received: {x._value.aval}"
        )
    return known(x, 1 if layout == "NCHW" else -1, function)


def batch_norm(
    input: Tensor,
    act: str | None = None,
    is_test: bool = False,
    momentum: float = 0.9,
    epsilon: float = 1e-5,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    data_layout: str = "NCHW",
    in_place: bool = False,
    name: str | None = None,
    moving_mean_name: str | None = None,
    moving_variance_name: str | None = None,
    do_model_average_for_mean_and_var: bool = True,
    use_global_stats: bool = False,
) -> Tensor:
    """Batch normalisation; its running statistics are state of the program.

    `in_place` only asks Paddle to reuse memory, which the compiler does in any case.
    """
    channels = _channels(input, data_layout, "batch_norm")
    if bias_attr is False:
        raise InvalidArgument("[batch_norm] needs a bias: bias_attr must not be False")
    maker = Maker("batch_norm", name, statistics_dtype(input))
    weight = maker.weight([channels], param_attr, Constant(1.0))
    bias = maker.bias([channels], bias_attr)
    running = []
    for own, start in ((moving_mean_name, 0.0), (moving_variance_name, 1.0)):
        average = do_model_average_for_mean_and_var
        attr = ParamAttr(own, Constant(start), trainable=False, do_model_average=average)
        running.append(maker.weight([channels], attr))
    out = F.batch_norm(
        input,
        running[0],
        running[1],
        weight,
        bias,
        training=not is_test,
        momentum=momentum,
        epsilon=epsilon,
        data_format=data_layout,
        use_global_stats=use_global_stats or None,  # here False leaves it to is_test
    )
    return activate(out, act)


def layer_norm(
    input: Tensor,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-5,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    act: str | None = None,
    name: str | None = None,
) -> Tensor:
    """Mean 0 and variance 1 over all dimensions from `begin_norm_axis` on."""
    if (scale and param_attr is False) or (shift and bias_attr is False):
        raise InvalidArgument(
            "[layer_norm] scale=True needs a param_attr and shift=True a bias_attr; to leave them "
            "out pass scale=False or shift=False"
        )
    sizes = [known(input, axis, "layer_norm") for axis in range(begin_norm_axis, input.ndim)]
    maker = Maker("layer_norm", name, input.dtype)
    flat = [math.prod(sizes)]
    weight = maker.weight(flat, param_attr, Constant(1.0)) if scale else None
    bias = maker.bias(flat, bias_attr) if shift else None
    weight = None if weight is None else reshape(weight, sizes)
    bias = None if bias is None else reshape(bias, sizes)
    return activate(F.layer_norm(input, sizes, weight, bias, epsilon), act)


def instance_norm(
    input: Tensor,
    epsilon: float = 1e-5,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Mean 0 and variance 1 per sample and channel."""
    channels = _channels(input, "NCHW", "instance_norm")
    if (param_attr is False) != (bias_attr is False):
        raise InvalidArgument(
            "[instance_norm] param_attr and bias_attr must both be False, or neither"
        )
    maker = Maker("instance_norm", name, statistics_dtype(input))
    weight = maker.weight([channels], param_attr, Constant(1.0))
    bias = maker.bias([channels], bias_attr)
    return F.instance_norm(input, weight=weight, bias=bias, eps=epsilon)


def group_norm(
    input: Tensor,
    groups: int,
    epsilon: float = 1e-5,
    param_attr: ParamAttrLike | None = None,
    bias_attr: ParamAttrLike | None = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Tensor:
    """Mean 0 and variance 1 per sample and group of channels."""
    channels = _channels(input, data_layout, "group_norm")
    maker = Maker("group_norm", name, input.dtype)
    weight = maker.weight([channels], param_attr, Constant(1.0))
    bias = maker.bias([channels], bias_attr)
    return activate(F.group_norm(input, groups, epsilon, weight, bias, data_layout), act)
