"""Convolutions, pooling, and changes of an image's size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import bireme as paddle
from bireme.convert.torch.aten import aten
from bireme.convert.torch.aten.shapes import constant_pad_nd
from bireme.convert.torch.program import TorchFileError
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

Ints = Any  # an integer, or a list of one or several

_CONV: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {
    1: F.conv1d_transpose,
    2: F.conv2d_transpose,
    3: F.conv3d_transpose,
}


def sized(value: Ints, rank: int) -> list[int]:
    """A setting for each dimension."""
    found = [value] if isinstance(value, int) else list(value)
    return found * rank if len(found) == 1 else found


def _batched(x: Tensor, rank: int, run: Callable[[Tensor], Tensor]) -> Tensor:
    """PyTorch takes images without a batch, too."""
    if x.ndim == rank + 2:
        return run(x)
    return paddle.squeeze(run(paddle.unsqueeze(x, 0)), 0)


@aten("conv1d", "conv2d", "conv3d")
def conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    rank = weight.ndim - 2
    steps, holes = sized(stride, rank), sized(dilation, rank)
    pads: Any = sized(padding, rank) if not isinstance(padding, str) else padding
    if pads == "valid":
        pads = [0] * rank
    elif pads == "same":
        # PyTorch pads one more at the end, whatever the input's size is.
        whole = [h * (k - 1) for h, k in zip(holes, weight.shape[2:], strict=True)]
        pads = [n for w in whole for n in (w // 2, w - w // 2)]
    return _batched(input, rank, lambda x: _CONV[rank](x, weight, bias, steps, pads, holes, groups))


@aten("convolution", "_convolution")
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
    *_: object,
) -> Tensor:
    if transposed:
        return conv_transpose(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv(input, weight, bias, stride, padding, dilation, groups)


@aten("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    rank = weight.ndim - 2
    settings = [sized(v, rank) for v in (stride, padding, output_padding)]
    return _batched(
        input,
        rank,
        lambda x: _TRANSPOSED[rank](
            x, weight, bias, *settings, groups=groups, dilation=sized(dilation, rank)
        ),
    )


def _with_places(x: Tensor, rank: int, run: Callable[[Tensor], Any]) -> list[Tensor]:
    """The largest elements and their places, which are int64 in PyTorch."""
    whole = x if x.ndim == rank + 2 else paddle.unsqueeze(x, 0)
    values, places = run(whole)
    places = places.astype("int64")
    return [values, places] if whole is x else [paddle.squeeze(m, 0) for m in (values, places)]


def _max_pool(rank: int, indices: bool) -> Callable[..., Any]:
    pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[rank]

    def rule(
        self: Tensor,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
    ) -> Any:
        if any(d != 1 for d in sized(dilation, rank)):
            raise TorchFileError("max pooling with holes (dilation) has no rule")
        kernel = sized(kernel_size, rank)
        steps = sized(stride, rank) if isinstance(stride, int) or stride else kernel
        pads = sized(padding, rank)
        if indices:
            return _with_places(
                self, rank, lambda x: pool(x, kernel, steps, pads, True, ceil_mode=ceil_mode)
            )
        return _batched(self, rank, lambda x: pool(x, kernel, steps, pads, ceil_mode=ceil_mode))

    return rule


def _avg_pool(rank: int) -> Callable[..., Tensor]:
    pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[rank]

    def rule(
        self: Tensor,
        kernel_size: Ints,
        stride: Ints = (),
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        kernel = sized(kernel_size, rank)
        steps = sized(stride, rank) if isinstance(stride, int) or stride else kernel
        pads = sized(padding, rank)
        if not ceil_mode and divisor_override is None:
            return _batched(
                self, rank, lambda x: pool(x, kernel, steps, pads, exclusive=not count_include_pad)
            )
        inner = [n for p in reversed(pads) for n in (p, p)]
        ends = [0] * rank
        if ceil_mode:
            windows = zip(self.shape[-rank:], kernel, steps, pads, strict=True)
            ends = [_beyond(*window) for window in windows]
        last = [n for end in reversed(ends) for n in (0, end)]

        def sums(x: Tensor) -> Tensor:
            return pool(x, kernel, steps, 0) * math.prod(kernel)

        def run(x: Tensor) -> Tensor:
            total = sums(constant_pad_nd(constant_pad_nd(x, inner), last))
            if divisor_override is not None:
                return total / divisor_override
            # PyTorch counts its padding, but not what `ceil_mode` adds at the end.
            ones = paddle.ones([1, 1, *x.shape[2:]], x.dtype)
            ones = constant_pad_nd(ones, inner, 1 if count_include_pad else 0)
            return total / sums(constant_pad_nd(ones, last))

        return _batched(self, rank, run)

    return rule


def _beyond(size: int, kernel: int, step: int, pad: int) -> int:
    """How far the last window of `ceil_mode` reaches over the padded end."""
    count = -(-(size + 2 * pad - kernel) // step) + 1
    if (count - 1) * step >= size + pad:  # a window must begin inside
        count -= 1
    return max((count - 1) * step + kernel - (size + 2 * pad), 0)


def _adaptive(rank: int, kind: str) -> Callable[..., Any]:
    pool = getattr(F, f"adaptive_{kind}_pool{rank}d")

    def rule(self: Tensor, output_size: Ints) -> Any:
        sizes = [
            self.shape[self.ndim - rank + i] if n is None else n
            for i, n in enumerate(sized(output_size, rank))
        ]
        if kind == "avg" and all(n == 1 for n in sizes):
            return paddle.mean(self, list(range(self.ndim - rank, self.ndim)), True)
        if kind == "max":
            shown = sizes if rank > 1 else sizes[0]
            return _with_places(self, rank, lambda x: pool(x, shown, return_mask=True))
        return _batched(self, rank, lambda x: pool(x, sizes if rank > 1 else sizes[0]))

    return rule


for _rank in (1, 2, 3):
    aten(f"max_pool{_rank}d")(_max_pool(_rank, False))
    aten(f"max_pool{_rank}d_with_indices")(_max_pool(_rank, True))
    aten(f"avg_pool{_rank}d")(_avg_pool(_rank))
    aten(f"adaptive_avg_pool{_rank}d", f"_adaptive_avg_pool{_rank}d")(_adaptive(_rank, "avg"))
    aten(f"adaptive_max_pool{_rank}d")(_adaptive(_rank, "max"))


def _scaled(sizes: Sequence[Any], factors: Sequence[float]) -> list[int] | None:
    if not all(isinstance(d, int) for d in sizes):
        return None
    return [int(d * f) for d, f in zip(sizes, factors, strict=True)]


def _resized(mode: str, rank: int) -> Callable[..., Tensor]:
    def rule(
        self: Tensor | None = None,
        output_size: Sequence[int] | None = None,
        *positional: Any,
        input: Tensor | None = None,
        align_corners: bool = False,
        scale_factors: Sequence[float] | None = None,
        **scales: Any,
    ) -> Tensor:
        x = input if self is None else self
        assert x is not None  # noqa: S101 (every overload has one of the two)
        if positional and isinstance(positional[0], bool):
            align_corners, *positional = positional  # type: ignore[assignment]
        given = [scales[k] for k in ("scales_d", "scales_h", "scales_w", "scales") if k in scales]
        factors = list(scale_factors or [s for s in given if s is not None])
        # Factors that the call gave, and not the quotient of the sizes, say where to sample.
        wanted: dict[str, Any] = {"size": output_size}
        if len(factors) == rank and output_size in (None, _scaled(x.shape[2:], factors)):
            wanted = {"scale_factor": factors}
        if rank == 1 and mode == "nearest":  # ours takes images
            one: dict[str, Any] = {k: [1, *v] for k, v in wanted.items()}
            return F.interpolate(x.unsqueeze(2), **one, mode=mode).squeeze(2)
        return F.interpolate(
            x,
            **wanted,
            mode=mode,
            align_corners=align_corners,
            data_format={1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank],
        )

    return rule


for _kind, _mode, _rank in (
    ("nearest1d", "nearest", 1),
    ("nearest2d", "nearest", 2),
    ("nearest3d", "nearest", 3),
    ("linear1d", "linear", 1),
    ("bilinear2d", "bilinear", 2),
    ("trilinear3d", "trilinear", 3),
    ("bicubic2d", "bicubic", 2),
):
    aten(f"upsample_{_kind}")(_resized(_mode, _rank))


@aten("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    modes, pads = ("bilinear", "nearest"), ("zeros", "border", "reflection")
    if interpolation_mode >= len(modes):
        raise TorchFileError("bicubic sampling by a grid has no rule")
    return F.grid_sample(input, grid, modes[interpolation_mode], pads[padding_mode], align_corners)


@aten("im2col")
def im2col(self: Tensor, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Tensor:
    kernel, steps, pads, holes = [sized(v, 2) for v in (kernel_size, stride, padding, dilation)]
    return F.unfold(self, kernel, steps, pads, holes)


@aten("zero_pad2d")
def zero_pad2d(self: Tensor, padding: Sequence[int]) -> Tensor:
    return constant_pad_nd(self, padding)


@aten(
    "_upsample_lanczos2d_aa",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
    "upsample_nearest_exact1d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)
def unusual_resize(*_: object, **__: object) -> Tensor:
    """Every scripted `interpolate` has these branches, which few calls take."""
    raise TorchFileError("interpolate with antialias, or in the mode nearest-exact, has no rule")
