"""Convolutions and transposed convolutions over 1, 2 and 3 dimensions.

All six are two ops: `conv` (correlation of windows with a weight) and `conv_transpose`, whose
body is the input gradient of `conv`. Compiled programs use XLA's convolution; the cold tier
works on strided windows and one matrix product. Input and weight gradients are separate
computations, so one that nobody needs is never made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.public import namespace
from bireme.api.types import IntOrPair, IntOrSingle, IntOrTriple, OutputSize, Padding
from bireme.core.aval import Aval, aval
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.host import jax_door
from bireme.ops.manipulation import expand, reshape
from bireme.ops.nn_support import channel_shape, ints, need_float, pad_constant, wide

public = namespace("paddle.nn.functional")

Pairs = tuple[tuple[int, int], ...]

# --- in JAX -------------------------------------------------------------------------------------


def _layout(ndim: int, last: bool) -> tuple[str, str, str]:
    """XLA's names for the dimensions of input, weight and result."""
    space = "DHW"[3 - (ndim - 2) :]
    data = f"N{space}C" if last else f"NC{space}"
    return data, f"OI{space}", data


def _xla_conv(x: Any, weight: Any, stride, pads, dilation, groups, last) -> Any:
    return jax_door.jax().lax.conv_general_dilated(
        x, weight, stride, pads, rhs_dilation=dilation, feature_group_count=groups,
        dimension_numbers=_layout(x.ndim, last),
    )  # fmt: skip


def _xla_input_grad(grad, weight, shape, stride, pads, dilation, groups, last) -> Any:
    """What `_xla_conv` pulls back to its input of `shape`."""
    jax = jax_door.jax()
    crop = None
    if any(
        k == 2 and s == 2 and lo == 1
        for k, s, (lo, _) in zip(weight.shape[2:], stride, pads, strict=True)
    ):
        # XLA takes such an axis for a group dimension and aborts the process (seen in jaxlib
        # 0.10). With the padding as part of the input it does not.
        first = 1 if last else 2
        crop = [slice(None)] * len(shape)
        padded = list(shape)
        for i, (lo, hi) in enumerate(pads, first):
            crop[i] = slice(lo, lo + shape[i])
            padded[i] = lo + shape[i] + hi
        shape, pads = tuple(padded), ((0, 0),) * len(pads)
    spec = jax.ShapeDtypeStruct(shape, grad.dtype)
    transpose = jax.linear_transpose(
        lambda x: _xla_conv(x, weight, stride, pads, dilation, groups, last), spec
    )
    found = transpose(grad)[0]
    return found if crop is None else found[tuple(crop)]


def _xla_weight_grad(grad, x, shape, stride, pads, dilation, groups, last) -> Any:
    """What `_xla_conv` pulls back to its weight of `shape`."""
    jax = jax_door.jax()
    spec = jax.ShapeDtypeStruct(shape, grad.dtype)
    transpose = jax.linear_transpose(
        lambda w: _xla_conv(x, w, stride, pads, dilation, groups, last), spec
    )
    return transpose(grad)[0]


# --- in NumPy: always channels first ------------------------------------------------------------


def _windows(x: np.ndarray, kernel, stride, dilation, counts) -> np.ndarray:
    """A view [N, C, *counts, *kernel] of the padded input."""
    lead, space = x.strides[:2], x.strides[2:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *counts, *kernel),
        (
            *lead,
            *(s * t for s, t in zip(space, stride, strict=True)),
            *(s * d for s, d in zip(space, dilation, strict=True)),
        ),
        writeable=False,
    )


def _columns(x, kernel, stride, pads, dilation, groups, counts) -> np.ndarray:
    """[groups, N * windows, C / groups * kernel]: what a group's weight multiplies."""
    x = np.ascontiguousarray(pad_constant(np, x, ((0, 0), (0, 0), *pads), 0))
    view = _windows(x, kernel, stride, dilation, counts)
    n, channels, d = x.shape[0], x.shape[1], len(kernel)
    view = view.reshape(n, groups, channels // groups, *counts, *kernel)
    order = (1, 0, *range(3, 3 + d), 2, *range(3 + d, 3 + 2 * d))
    return view.transpose(order).reshape(
        groups, n * int(np.prod(counts)), channels // groups * int(np.prod(kernel))
    )


def _np_conv(x, weight, stride, pads, dilation, groups) -> np.ndarray:
    kernel = weight.shape[2:]
    counts = _counts(x.shape[2:], kernel, stride, pads, dilation)
    if 0 in x.shape:
        return np.zeros((x.shape[0], weight.shape[0], *counts), x.dtype)
    columns = _columns(x, kernel, stride, pads, dilation, groups, counts)
    out = columns @ weight.reshape(groups, weight.shape[0] // groups, -1).transpose(0, 2, 1)
    out = out.reshape(groups, x.shape[0], *counts, -1)
    out = np.moveaxis(out, -1, 2)  # groups, N, O / groups, *counts
    return np.ascontiguousarray(out.swapaxes(0, 1)).reshape(x.shape[0], -1, *counts)


def _np_weight_grad(grad, x, shape, stride, pads, dilation, groups) -> np.ndarray:
    counts = grad.shape[2:]
    if 0 in grad.shape:
        return np.zeros(shape, grad.dtype)
    columns = _columns(x, shape[2:], stride, pads, dilation, groups, counts)
    rows = grad.reshape(grad.shape[0], groups, shape[0] // groups, -1)
    rows = rows.transpose(1, 2, 0, 3).reshape(groups, shape[0] // groups, -1)
    return (rows @ columns).reshape(shape)


def _np_input_grad(grad, weight, shape, stride, pads, dilation, groups) -> np.ndarray:
    kernel, counts = weight.shape[2:], grad.shape[2:]
    n, d = grad.shape[0], len(kernel)
    if 0 in grad.shape:
        return np.zeros(shape, grad.dtype)
    rows = grad.reshape(n, groups, weight.shape[0] // groups, -1).transpose(1, 0, 3, 2)
    rows = rows.reshape(groups, -1, weight.shape[0] // groups)
    columns = rows @ weight.reshape(groups, weight.shape[0] // groups, -1)
    columns = columns.reshape(groups, n, *counts, weight.shape[1], *kernel)
    order = (1, 0, 2 + d, *range(2, 2 + d), *range(3 + d, 3 + 2 * d))
    columns = columns.transpose(order).reshape(n, shape[1], *counts, *kernel)
    padded = [s + max(lo, 0) + max(hi, 0) for s, (lo, hi) in zip(shape[2:], pads, strict=True)]
    out = np.zeros((*shape[:2], *padded), columns.dtype)
    for offsets in np.ndindex(*kernel):
        where = tuple(
            slice(o * e + max(-lo, 0), o * e + max(-lo, 0) + (c - 1) * t + 1, t)
            for o, e, c, t, (lo, _) in zip(offsets, dilation, counts, stride, pads, strict=True)
        )
        out[(slice(None), slice(None), *where)] += columns[(..., *offsets)]
    crop = tuple(
        slice(max(lo, 0), max(lo, 0) + s) for s, (lo, _) in zip(shape[2:], pads, strict=True)
    )
    return out[(slice(None), slice(None), *crop)]


def _first(x: Any) -> Any:
    return np.moveaxis(x, -1, 1)


def _last(x: Any) -> Any:
    return np.moveaxis(x, 1, -1)


# --- the two ops --------------------------------------------------------------------------------


def _conv_of(xp, x, weight, stride, pads, dilation, groups, last) -> Any:
    if xp is not np:
        return _xla_conv(x, weight, stride, pads, dilation, groups, last)
    x, weight = wide(np, x), wide(np, weight)
    out = _np_conv(_first(x) if last else x, weight, stride, pads, dilation, groups)
    return _last(out) if last else out


def _input_grad_of(xp, grad, weight, shape, stride, pads, dilation, groups, last) -> Any:
    if xp is not np:
        return _xla_input_grad(grad, weight, shape, stride, pads, dilation, groups, last)
    grad, weight = wide(np, grad), wide(np, weight)
    if not last:
        return _np_input_grad(grad, weight, shape, stride, pads, dilation, groups)
    shape = (shape[0], shape[-1], *shape[1:-1])
    return _last(_np_input_grad(_first(grad), weight, shape, stride, pads, dilation, groups))


def _weight_grad_of(xp, grad, x, shape, stride, pads, dilation, groups, last) -> Any:
    if xp is not np:
        return _xla_weight_grad(grad, x, shape, stride, pads, dilation, groups, last)
    grad, x = wide(np, grad), wide(np, x)
    if last:
        grad, x = _first(grad), _first(x)
    return _np_weight_grad(grad, x, shape, stride, pads, dilation, groups)


def _with_bias(xp: Any, out: Any, bias: Any, last: bool) -> Any:
    if bias is None:
        return out
    return out + xp.reshape(bias, channel_shape(out.ndim, out.ndim - 1 if last else 1))


def _bias_grad(xp: Any, grad: Any, last: bool) -> Any:
    channel = grad.ndim - 1 if last else 1
    return xp.sum(wide(xp, grad), axis=tuple([i for i in range(grad.ndim) if i != channel]))


def _counts(space, kernel, stride, pads, dilation) -> tuple[Any, ...]:
    return tuple(
        (n + lo + hi - d * (k - 1) - 1) // s + 1
        for n, k, s, (lo, hi), d in zip(space, kernel, stride, pads, dilation, strict=True)
    )


def _space(x: Aval, last: bool) -> tuple[Any, ...]:
    return x.shape[1:-1] if last else x.shape[2:]


def _channels(x: Aval, last: bool) -> Any:
    return x.shape[-1] if last else x.shape[1]


def _shaped(x: Aval, channels: Any, space: tuple[Any, ...], last: bool) -> Aval:
    shape = (x.shape[0], *space, channels) if last else (x.shape[0], channels, *space)
    return aval(shape, x.dtype)


def _common_check(x: Aval, weight: Aval, bias: Aval | None, groups: int) -> None:
    need_float("x", x)
    if weight.ndim != x.ndim:
        raise ShapeMismatch(
            f"x and weight must have the same number of dimensions, not {x.ndim} and {weight.ndim}"
        )
    for other in (weight, bias):
        if other is not None and other.dtype is not x.dtype:
            raise TypeMismatch(
                f"x, weight and bias must have one dtype, not {x.dtype.name} and "
                f"{other.dtype.name}; cast one with .astype('{x.dtype.name}')"
            )
    if weight.shape[0] % groups != 0:
        raise ShapeMismatch(
            f"weight's first dimension, {weight.shape[0]}, must be a multiple of groups={groups}"
        )


def _check_bias(bias: Aval | None, channels: Any) -> None:
    if bias is not None and bias.shape != (channels,):
        raise ShapeMismatch(
            f"'bias' must be a vector of {channels} numbers, one per output channel, not "
            f"{list(bias.shape)}"
        )


def _conv_check(
    x: Aval, weight: Aval, bias: Aval | None, stride, pads: Pairs, dilation, groups: int,
    last: bool,
) -> None:  # fmt: skip
    _common_check(x, weight, bias, groups)
    channels = _channels(x, last)
    if channels != weight.shape[1] * groups:
        raise ShapeMismatch(
            f"x has {channels} channels but weight {list(weight.shape)} with groups={groups} takes "
            f"{weight.shape[1] * groups}; weight is [out_channels, in_channels / groups, *kernel]"
        )
    _check_bias(bias, weight.shape[0])
    for n, k, (lo, hi), d in zip(_space(x, last), weight.shape[2:], pads, dilation, strict=True):
        if type(n) is int and n + lo + hi < d * (k - 1) + 1:
            raise ShapeMismatch(
                f"the kernel spans {d * (k - 1) + 1} elements but the padded input only has "
                f"{n + lo + hi}; use a smaller kernel or dilation, or more padding"
            )


def _conv_infer(
    x: Aval, weight: Aval, bias: Aval | None, stride, pads: Pairs, dilation, groups: int,
    last: bool,
) -> Aval:  # fmt: skip
    space = _counts(_space(x, last), weight.shape[2:], stride, pads, dilation)
    return _shaped(x, weight.shape[0], space, last)


def _conv_vjp(
    xp: Any, grad: Any, x: Any, weight: Any, stride, pads: Pairs, dilation, groups: int,
    last: bool, types: Any, needs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    how = (stride, pads, dilation, groups, last)
    return (
        _input_grad_of(xp, grad, weight, types[0].shape, *how) if needs[0] else None,
        _weight_grad_of(xp, grad, x, types[1].shape, *how) if needs[1] else None,
        _bias_grad(xp, grad, last) if needs[2] else None,
    )


@op(
    name="conv",
    inputs=("x", "weight", "bias"),
    vjp=_conv_vjp,
    infer=_conv_infer,
    check=_conv_check,
    amp="white",
    used_by={"x": ("weight",), "weight": ("x",)},
)
def _conv(xp, x, weight, bias, stride=(), pads=(), dilation=(), groups=1, last=False):
    """Windows of `x` times `weight` [out, in / groups, *kernel], plus bias."""
    return _with_bias(xp, _conv_of(xp, x, weight, stride, pads, dilation, groups, last), bias, last)


def _transpose_infer(
    x: Aval, weight: Aval, bias: Aval | None, space: tuple[Any, ...], stride, pads: Pairs,
    dilation, groups: int, last: bool,
) -> Aval:  # fmt: skip
    return _shaped(x, weight.shape[1] * groups, space, last)


def _transpose_check(
    x: Aval, weight: Aval, bias: Aval | None, space: tuple[Any, ...], stride, pads: Pairs,
    dilation, groups: int, last: bool,
) -> None:  # fmt: skip
    _common_check(x, weight, bias, groups)
    if _channels(x, last) != weight.shape[0]:
        raise ShapeMismatch(
            f"x has {_channels(x, last)} channels but weight {list(weight.shape)} takes "
            f"{weight.shape[0]}; weight is [in_channels, out_channels / groups, *kernel]"
        )
    _check_bias(bias, weight.shape[1] * groups)
    steps = zip(_space(x, last), space, weight.shape[2:], stride, pads, dilation, strict=True)
    for have, want, k, s, (lo, hi), d in steps:
        smallest = (have - 1) * s - lo - hi + d * (k - 1) + 1
        known = type(have) is int and type(want) is int
        if known and not smallest <= want < smallest + max(s, d):
            raise ShapeMismatch(
                f"an output size {want} does not follow from an input size {have}, which gives "
                f"{smallest} or up to {max(s, d) - 1} more"
            )


def _transpose_vjp(
    xp: Any, grad: Any, x: Any, weight: Any, space: tuple[Any, ...], stride, pads: Pairs,
    dilation, groups: int, last: bool, needs: Any,
) -> tuple[Any, ...]:  # fmt: skip
    how = (stride, pads, dilation, groups, last)
    return (
        _conv_of(xp, grad, weight, *how) if needs[0] else None,
        _weight_grad_of(xp, x, grad, weight.shape, *how) if needs[1] else None,
        _bias_grad(xp, grad, last) if needs[2] else None,
    )


@op(
    name="conv_transpose",
    inputs=("x", "weight", "bias"),
    vjp=_transpose_vjp,
    infer=_transpose_infer,
    check=_transpose_check,
    amp="white",
)
def _conv_transpose(
    xp, x, weight, bias, space=(), stride=(), pads=(), dilation=(), groups=1, last=False
):
    """The input gradient of `conv` as a function of its own, for a result of size `space`."""
    channels = weight.shape[1] * groups
    shape = (x.shape[0], *space, channels) if last else (x.shape[0], channels, *space)
    out = _input_grad_of(xp, x, weight, shape, stride, pads, dilation, groups, last)
    return _with_bias(xp, out, bias, last)


# --- Paddle's arguments -------------------------------------------------------------------------

_FIRST = {1: "NCL", 2: "NCHW", 3: "NCDHW"}
_LAST = {1: "NLC", 2: "NHWC", 3: "NDHWC"}


def _is_last(function: str, data_format: str, n: int) -> bool:
    if data_format == _FIRST[n]:
        return False
    if data_format == _LAST[n]:
        return True
    raise InvalidArgument(
        f"[{function}] data_format must be {_FIRST[n]!r} or {_LAST[n]!r}. Received: {data_format!r}"
    )


def padding_pairs(
    function: str, padding: Padding, n: int, last: bool, space: Sequence[Any],
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int],
) -> Pairs:  # fmt: skip
    """(before, after) per spatial axis from any of Paddle's forms.

    An int; n ints; 2 n ints; one pair per axis, batch and channel included; 'SAME'; 'VALID'.
    """
    if type(padding) is int:
        return ((padding, padding),) * n
    if isinstance(padding, str):
        return _named_padding(function, padding, n, space, kernel, stride, dilation)
    values: Any = padding
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, list | tuple):
        if values and isinstance(values[0], list | tuple):
            if len(values) == n + 2:
                outer = [values[0], values[-1] if last else values[1]]
                if any(tuple(p) != (0, 0) for p in outer):
                    raise InvalidArgument(
                        f"[{function}] batch and channel dimensions cannot be padded. Received: "
                        f"padding={padding!r}"
                    )
                values = values[1:-1] if last else values[2:]
            if len(values) == n:
                return tuple([(int(lo), int(hi)) for lo, hi in values])
        elif len(values) == 1:
            return ((int(values[0]), int(values[0])),) * n
        elif len(values) == n:
            return tuple([(int(p), int(p)) for p in values])
        elif len(values) == 2 * n:
            return tuple([(int(values[2 * i]), int(values[2 * i + 1])) for i in range(n)])
    elif isinstance(values, int | np.integer):
        return ((int(values), int(values)),) * n
    raise InvalidArgument(
        f"[{function}] padding must be an integer, {n} or {2 * n} integers, one pair per "
        f"dimension, 'SAME' or 'VALID'. Received: {padding!r}"
    )


def _named_padding(
    function: str, padding: str, n: int, space: Sequence[Any], kernel: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int],
) -> Pairs:  # fmt: skip
    kind = padding.upper()
    if kind == "VALID":
        return ((0, 0),) * n
    if kind != "SAME":
        raise InvalidArgument(
            f"[{function}] padding must be 'SAME' or 'VALID' if it is a string. Received: "
            f"{padding!r}"
        )
    pairs = []
    for size, k, s in zip(space, kernel, stride, strict=True):
        # As in Paddle, 'SAME' takes a dilation of 1.
        total = max((-(-size // s) - 1) * s + k - size, 0)
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)


def _dilation_for(padding: Any, dilation: tuple[int, ...]) -> tuple[int, ...]:
    """Paddle resets the dilation to 1 where the padding is 'SAME'."""
    if isinstance(padding, str) and padding.upper() == "SAME":
        return (1,) * len(dilation)
    return dilation


def _convolve(
    function: str, n: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any,
    padding: Any, dilation: Any, groups: int, data_format: str,
) -> Tensor:  # fmt: skip
    options = (n, stride, padding, dilation, groups, data_format)
    try:
        plain = _plain_options.get(options)
    except TypeError:  # a list among them
        plain = None
    if plain is None:
        plain = _checked_options(function, x, weight, *options)
    if x._value.aval.ndim != n + 2:
        _need_spatial(function, n, x, weight)
    try:
        return _conv(x, weight, bias, *plain)
    except ShapeMismatch:
        whole = _one_per_channel(bias, weight._value.aval.shape[0])
        if whole is None:
            raise
        return _conv(x, weight, whole, *plain)


def _one_per_channel(bias: Tensor | None, channels: int) -> Tensor | None:
    """A bias of one number, which Paddle adds to every channel, as one for each."""
    if bias is None or channels == 1 or bias._value.aval.size != 1:
        return None
    return expand(reshape(bias, [1]), [channels])


# The attributes of convolutions whose options do not depend on the input, by options.
_plain_options: dict[Any, tuple[Any, ...]] = {}


def _checked_options(
    function: str, x: Tensor, weight: Tensor, n: int, stride: Any, padding: Any, dilation: Any,
    groups: int, data_format: str,
) -> tuple[Any, ...]:  # fmt: skip
    """(stride, pads, dilation, groups, channels last) as the op takes them."""
    options = (n, stride, padding, dilation, groups, data_format)
    last = _is_last(function, data_format, n)
    stride = ints(function, "stride", stride, n)
    dilation = ints(function, "dilation", dilation, n)
    _need_spatial(function, n, x, weight)
    pads = padding_pairs(
        function, padding, n, last, _space(x._value.aval, last), weight._value.aval.shape[2:],
        stride, dilation,
    )  # fmt: skip
    dilation = _dilation_for(padding, dilation)
    if min(stride) < 1 or min(dilation) < 1 or groups < 1:
        raise InvalidArgument(
            f"[{function}] stride, dilation and groups must be positive. Received: "
            f"stride={stride}, dilation={dilation}, groups={groups}"
        )
    checked = (stride, pads, dilation, groups, last)
    if not isinstance(padding, str):
        with contextlib.suppress(TypeError):  # a list among them
            _plain_options[options] = checked
    return checked


def _need_spatial(function: str, n: int, x: Tensor, weight: Tensor) -> None:
    if x.ndim != n + 2 or weight.ndim != n + 2:
        raise ShapeMismatch(
            f"[{function}] x and weight must have {n + 2} dimensions. Received: x of shape "
            f"{x.shape}, weight of shape {weight.shape}"
        )


@public(also={"input": "x"})
def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrSingle = 1,
    padding: Padding = 0, dilation: IntOrSingle = 1, groups: int = 1, data_format: str = "NCL",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolution of [N, C, L] with weight [out, C / groups, kernel]."""
    return _convolve("conv1d", 1, x, weight, bias, stride, padding, dilation, groups, data_format)


@public(also={"input": "x"})
def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrPair = 1,
    padding: Padding = 0, dilation: IntOrPair = 1, groups: int = 1, data_format: str = "NCHW",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolution of [N, C, H, W] with weight [out, C / groups, kernel, kernel]."""
    return _convolve("conv2d", 2, x, weight, bias, stride, padding, dilation, groups, data_format)


@public(also={"input": "x"})
def conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrTriple = 1,
    padding: Padding = 0, dilation: IntOrTriple = 1, groups: int = 1, data_format: str = "NCDHW",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolution of [N, C, D, H, W] with weight [out, C / groups, *kernel]."""
    return _convolve("conv3d", 3, x, weight, bias, stride, padding, dilation, groups, data_format)


def _deconvolve(
    function: str, n: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any,
    padding: Any, output_padding: Any, dilation: Any, groups: int, output_size: Any,
    data_format: str,
) -> Tensor:  # fmt: skip
    last = _is_last(function, data_format, n)
    _need_spatial(function, n, x, weight)
    stride = ints(function, "stride", stride, n)
    dilation = ints(function, "dilation", dilation, n)
    extra = ints(function, "output_padding", output_padding, n)
    space = _space(x._value.aval, last)
    kernel = weight._value.aval.shape[2:]
    pads = padding_pairs(function, padding, n, last, space, kernel, stride, dilation)
    dilation = _dilation_for(padding, dilation)
    smallest = tuple(
        (size - 1) * s - lo - hi + d * (k - 1) + 1
        for size, s, (lo, hi), d, k in zip(space, stride, pads, dilation, kernel, strict=True)
    )
    if output_size is None:
        for e, s, d in zip(extra, stride, dilation, strict=True):
            if e < 0 or (e and e >= max(s, d)):
                raise InvalidArgument(
                    f"[{function}] output_padding must be less than stride or dilation. "
                    f"Received: output_padding={extra}, stride={stride}, dilation={dilation}"
                )
        size = tuple(m + e for m, e in zip(smallest, extra, strict=True))
    else:
        if any(extra):
            raise InvalidArgument(
                f"[{function}] give output_padding or output_size, not both. Received: "
                f"output_padding={output_padding}, output_size={output_size}"
            )
        size = ints(function, "output_size", output_size, n)
        for m, want, s in zip(smallest, size, stride, strict=True):
            if type(m) is int and not m <= want < m + s:  # an open size is seen when it is fed
                raise InvalidArgument(
                    f"[{function}] output_size must be in [{smallest}, {smallest} + stride - 1]. "
                    f"Received: {size}"
                )
    how = (size, stride, pads, dilation, groups, last)
    try:
        return _conv_transpose(x, weight, bias, *how)
    except ShapeMismatch:
        whole = _one_per_channel(bias, weight._value.aval.shape[1] * groups)
        if whole is None:
            raise
        return _conv_transpose(x, weight, whole, *how)


@public
def conv1d_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrSingle = 1,
    padding: Padding = 0, output_padding: IntOrSingle = 0, groups: int = 1,
    dilation: IntOrSingle = 1, output_size: OutputSize | None = None, data_format: str = "NCL",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Transposed convolution of [N, C, L] with weight [C, out / groups, kernel]."""
    return _deconvolve(
        "conv1d_transpose", 1, x, weight, bias, stride, padding, output_padding, dilation,
        groups, output_size, data_format,
    )  # fmt: skip


@public
def conv2d_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrPair = 1,
    padding: Padding = 0, output_padding: IntOrPair = 0, dilation: IntOrPair = 1, groups: int = 1,
    output_size: OutputSize | None = None, data_format: str = "NCHW", name: str | None = None,
) -> Tensor:  # fmt: skip
    """Transposed convolution of [N, C, H, W] with weight [C, out / groups, *kernel]."""
    return _deconvolve(
        "conv2d_transpose", 2, x, weight, bias, stride, padding, output_padding, dilation,
        groups, output_size, data_format,
    )  # fmt: skip


@public
def conv3d_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: IntOrTriple = 1,
    padding: Padding = 0, output_padding: IntOrTriple = 0, groups: int = 1,
    dilation: IntOrTriple = 1, output_size: OutputSize | None = None, data_format: str = "NCDHW",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Transposed convolution of [N, C, D, H, W] with weight [C, out / groups, *kernel]."""
    return _deconvolve(
        "conv3d_transpose", 3, x, weight, bias, stride, padding, output_padding, dilation,
        groups, output_size, data_format,
    )  # fmt: skip
