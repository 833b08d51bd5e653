# ruff: noqa: N999 (the name is Paddle's)
"""paddle._C_ops: kernels called by name, with all arguments in the order of Paddle's kernels.

Most of them are a public function with the same arguments; the others are here. A name that is
neither is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bireme.api.types import DTypeLike, PlaceLike, Shape
from bireme.core.tensor import Tensor

# Kernels that take a public function's arguments in its order, by the address of the function.
_SAME: dict[str, str] = {
    "paddle": (
        "add addmm allclose angle argsort asinh as_complex as_real atan atan2 bernoulli "
        "bincount bitwise_and bitwise_not bitwise_or bitwise_xor broadcast_tensors cast "
        "cholesky clip complex concat conj cross cummax cummin diag_embed digamma dist divide "
        "equal equal_all erf erfinv expand flatten flip floor_divide fmax fmin frac gather "
        "gather_nd greater_equal heaviside i0 i0e i1 i1e imag index_add index_sample "
        "index_select inverse kron kthvalue lerp less_equal less_than lgamma logit "
        "masked_select mode multinomial multiplex mv nextafter nonzero not_equal numel "
        "ones_like outer poisson pow put_along_axis real reciprocal remainder renorm "
        "repeat_interleave reshape reverse scale scatter scatter_nd_add shape square squeeze "
        "stack standard_gamma strided_slice subtract take_along_axis tan tile topk trace "
        "transpose trunc unbind unique_consecutive unsqueeze unstack where zeros_like "
    ),
    "paddle.nn.functional": (
        "celu elu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax maxout "
        "mish pixel_shuffle pixel_unshuffle relu relu6 selu silu softmax softplus softshrink "
        "softsign swiglu swish tanh_shrink thresholded_relu "
    ),
    "paddle.linalg": ("eig eigh eigvals lu_unpack qr slogdet solve svd "),
}
_WHERE = {name: space for space, names in _SAME.items() for name in names.split()}
_RENAMED = {"tanh_shrink": "tanhshrink", "reverse": "flip", "inverse": "inverse"}


def _functions() -> Any:
    import bireme

    return bireme


def zeros(shape: Shape, dtype: DTypeLike = "float32", place: PlaceLike | None = None) -> Tensor:
    return _functions().zeros(shape, dtype)


def ones(shape: Shape, dtype: DTypeLike = "float32", place: PlaceLike | None = None) -> Tensor:
    return _functions().ones(shape, dtype)


def full(
    shape: Shape,
    value: float | complex | Tensor,
    dtype: DTypeLike = "float32",
    place: PlaceLike | None = None,
) -> Tensor:
    return _functions().full(shape, value, dtype)


def full_(
    output: Tensor,
    shape: Shape,
    value: float | complex | Tensor,
    dtype: DTypeLike | None = None,
    place: PlaceLike | None = None,
) -> Tensor:
    """Fill `output`, which has the shape already."""
    made = _functions().full(shape, value, dtype or output.dtype)
    return _functions().assign(made, output)


def empty(shape: Shape, dtype: DTypeLike = "float32", place: PlaceLike | None = None) -> Tensor:
    return _functions().empty(shape, dtype)


def assign(x: Tensor) -> Tensor:
    return _functions().assign(x)


def assign_out_(x: Tensor, output: Tensor) -> Tensor:
    return _functions().assign(x, output)


def assign_(x: Tensor) -> Tensor:
    """The tensor itself, as an in-place op that changes nothing."""
    return x


def slice(
    input: Tensor,
    axes: Sequence[int],
    starts: Sequence[int] | Tensor,
    ends: Sequence[int] | Tensor,
    infer_flags: Sequence[int] = (),
    decrease_axis: Sequence[int] = (),
) -> Tensor:
    made = _functions().slice(input, axes, starts, ends)
    return made.squeeze(list(decrease_axis)) if decrease_axis else made


def split(x: Tensor, sections: Sequence[int], axis: int) -> list[Tensor]:
    return _functions().split(x, list(sections), axis)


def split_with_num(x: Tensor, num: int, axis: int) -> list[Tensor]:
    return _functions().split(x, num, axis)


def mean(x: Tensor, axis: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    return _functions().mean(x, list(axis) or None, keepdim)


def gelu(x: Tensor, approximate: bool = False) -> Tensor:
    return _functions().nn.functional.gelu(x, approximate)


def p_norm(
    x: Tensor,
    porder: float = 2.0,
    axis: int = -1,
    epsilon: float = 1e-12,
    keepdim: bool = False,
    asvector: bool = False,
) -> Tensor:
    return _functions().linalg.norm(x, porder, None if asvector else axis, keepdim)


def layer_norm(
    x: Tensor, scale: Tensor | None, bias: Tensor | None, epsilon: float, begin_norm_axis: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and the mean and the variance of each row."""
    f = _functions()
    rows = x.flatten(begin_norm_axis).flatten(0, begin_norm_axis - 1)
    made = f.nn.functional.layer_norm(x, x.shape[begin_norm_axis:], scale, bias, epsilon)
    return made, rows.mean(-1), rows.var(-1, unbiased=False)


def embedding(x: Tensor, weight: Tensor, padding_idx: int = -1, sparse: bool = False) -> Tensor:
    return _functions().nn.functional.embedding(
        x, weight, None if padding_idx == -1 else padding_idx, sparse
    )


def prelu(x: Tensor, alpha: Tensor, data_format: str = "NCHW", mode: str = "all") -> Tensor:
    return _functions().nn.functional.prelu(x, alpha, data_format)


def huber_loss(input: Tensor, label: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """The loss of each element, and the difference that it is made of."""
    f = _functions()
    return f.nn.functional.smooth_l1_loss(input, label, "none", delta), label - input


def cross_entropy_with_softmax(
    input: Tensor,
    label: Tensor,
    soft_label: bool = False,
    use_softmax: bool = True,
    numeric_stable_mode: bool = True,
    ignore_index: int = -100,
    axis: int = -1,
) -> tuple[Tensor, Tensor]:
    """Probabilities, and the loss of each row."""
    f = _functions().nn.functional
    probabilities = f.softmax(input, axis) if use_softmax else input
    loss = f.cross_entropy(
        input, label, ignore_index=ignore_index, reduction="none", soft_label=soft_label,
        axis=axis, use_softmax=use_softmax,
    )  # fmt: skip
    wanted = [1 if d == axis % input.ndim else n for d, n in enumerate(input.shape)]
    return probabilities, loss.reshape(wanted)


def accuracy(x: Tensor, indices: Tensor, label: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The part of rows whose best guesses have the label; how many these are, and of how many."""
    hits = (indices == label.astype(indices.dtype)).any(-1)
    right = hits.astype("int32").sum()
    total = _functions().full([], hits.size, "int32")
    return right.astype("float32") / hits.size, right, total


def yolo_box(*args: Any) -> tuple[Tensor, Tensor]:
    """Boxes and scores; see `paddle.vision.ops.yolo_box`."""
    x, size, anchors, classes, threshold, ratio, clip, scale, aware, factor = args
    return _functions().vision.ops.yolo_box(
        x, size, anchors, classes, threshold, ratio, clip, None, scale, aware, factor
    )


def check_finite_and_unscale_(x: Sequence[Tensor], scale: Tensor) -> tuple[list[Tensor], Tensor]:
    """Divide in place by `scale`; also whether some element is not finite."""
    f = _functions()
    found = f.stack([f.logical_not(f.isfinite(t)).any() for t in x]).any().reshape([1])
    return [f.assign((t / scale).astype(t.dtype), t) for t in x], found


def __getattr__(name: str) -> Any:
    space = _WHERE.get(name)
    if space is None and name.endswith("_"):
        space = _WHERE.get(name[:-1])
    if space is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    owner = _functions()
    for part in space.split(".")[1:]:
        owner = getattr(owner, part)
    return getattr(owner, _RENAMED.get(name, name))
