"""Convolution, pooling, normalization, resizing, embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import bireme
from bireme.api.types import Padding
from bireme.convert.paddle.interpreter import Step, dims_of, rule
from bireme.convert.paddle.program import UnsupportedModel
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

if TYPE_CHECKING:
    from bireme.convert.paddle.interpreter import Results


def padding_of(step: Step) -> Padding:
    how = step.attr("padding_algorithm", "EXPLICIT")
    return list(step.attr("paddings", [0, 0])) if how == "EXPLICIT" else how


def layout_of(step: Step, name: str = "data_format") -> str:
    given = step.attr(name, "NCHW")
    return "NCHW" if given == "AnyLayout" else given


def _conv(convolve: Callable[..., Tensor]) -> Callable[[Step], Any]:
    def run(step: Step) -> Any:
        out = convolve(
            step.need("Input"),
            step.need("Filter"),
            None,
            list(step.attr("strides", [1])),
            padding_of(step),
            list(step.attr("dilations", [1])),
            step.attr("groups", 1),
            layout_of(step),
        )
        bias = step("Bias")
        if bias is not None and bias.size:
            shape = [1] * out.ndim
            shape[1 if layout_of(step).startswith("NC") else -1] = -1
            out = out + bireme.reshape(bias, shape)
        return out

    return run


rule("conv2d", "depthwise_conv2d", out="Output")(_conv(F.conv2d))


@rule("conv3d", out="Output")
def conv3d(step: Step) -> Results:
    given = layout_of(step)
    return F.conv3d(
        step.need("Input"),
        step.need("Filter"),
        None,
        list(step.attr("strides", [1, 1, 1])),
        padding_of(step),
        list(step.attr("dilations", [1, 1, 1])),
        step.attr("groups", 1),
        "NCDHW" if given == "NCHW" else given,
    )


@rule("conv2d_transpose", "depthwise_conv2d_transpose", out="Output")
def conv2d_transpose(step: Step) -> Results:
    size = step.ints("output_size", "OutputSize")
    return F.conv2d_transpose(
        step.need("Input"),
        step.need("Filter"),
        None,
        list(step.attr("strides", [1, 1])),
        padding_of(step),
        list(step.attr("output_padding", [])) or 0,
        list(step.attr("dilations", [1, 1])),
        step.attr("groups", 1),
        size or None,
        layout_of(step),
    )


@rule("deformable_conv", "deformable_conv_v1", out="Output")
def deformable_conv(step: Step) -> Results:
    ops = getattr(bireme.vision, "ops", None)
    if ops is None or not hasattr(ops, "deform_conv2d"):
        raise UnsupportedModel("deformable convolution")
    return ops.deform_conv2d(
        step.need("Input"),
        step.need("Offset"),
        step.need("Filter"),
        None,
        list(step.attr("strides", [1, 1])),
        list(step.attr("paddings", [0, 0])),
        list(step.attr("dilations", [1, 1])),
        step.attr("deformable_groups", 1),
        step.attr("groups", 1),
        step("Mask"),
    )


@rule("pool2d")
def pool2d(step: Step) -> Results:
    x, layout = step.need("X"), layout_of(step)
    largest = step.attr("pooling_type", "max") == "max"
    sizes = step.ints("ksize", "KernelSize")
    spatial = [2, 3] if layout == "NCHW" else [1, 2]
    one = step.attr("adaptive", False) and all(s == 1 for s in sizes)
    if step.attr("global_pooling", False) or one:
        return (bireme.amax if largest else bireme.mean)(x, spatial, keepdim=True)
    if step.attr("adaptive", False):
        if largest:
            return F.adaptive_max_pool2d(x, sizes)
        return F.adaptive_avg_pool2d(x, sizes, layout)
    strides, ceil = list(step.attr("strides", [1, 1])), step.attr("ceil_mode", False)
    if largest:
        return F.max_pool2d(x, sizes, strides, padding_of(step), False, ceil, layout)
    exclusive = step.attr("exclusive", True)
    return F.avg_pool2d(x, sizes, strides, padding_of(step), ceil, exclusive, None, layout)


@rule("max_pool2d_with_index")
def pool_with_index(step: Step) -> Results:
    x, sizes = step.need("X"), step.ints("ksize", "KernelSize")
    if step.attr("adaptive", False) or step.attr("global_pooling", False):
        out, at = F.adaptive_max_pool2d(x, 1 if step.attr("global_pooling") else sizes, True)
    else:
        out, at = F.max_pool2d(
            x, sizes, list(step.attr("strides")), list(step.attr("paddings")), True
        )
    return {"Out": out, "Mask": at}


@rule("batch_norm", "sync_batch_norm", out="Y")
def batch_norm(step: Step) -> Results:
    return F.batch_norm(
        step.need("X"),
        step.need("Mean"),
        step.need("Variance"),
        step("Scale"),
        step("Bias"),
        epsilon=step.attr("epsilon", 1e-5),
        data_format=step.attr("data_layout", "NCHW"),
    )


@rule("layer_norm", out="Y")
def layer_norm(step: Step) -> Results:
    x = step.need("X")
    shape = list(dims_of(x)[step.attr("begin_norm_axis", 1) :])
    scale, bias = [
        None if t is None else bireme.reshape(t, shape) for t in (step("Scale"), step("Bias"))
    ]
    return F.layer_norm(x, shape, scale, bias, step.attr("epsilon", 1e-5))


@rule("instance_norm", out="Y")
def instance_norm(step: Step) -> Results:
    return F.instance_norm(
        step.need("X"), weight=step("Scale"), bias=step("Bias"), eps=step.attr("epsilon", 1e-5)
    )


@rule("group_norm", out="Y")
def group_norm(step: Step) -> Results:
    return F.group_norm(
        step.need("X"),
        step.attr("groups", 1),
        step.attr("epsilon", 1e-5),
        step("Scale"),
        step("Bias"),
        step.attr("data_layout", "NCHW"),
    )


@rule("affine_channel")
def affine_channel(step: Step) -> Results:
    shape = [1, -1, 1, 1] if step.attr("data_layout", "NCHW") == "NCHW" else [1, 1, 1, -1]
    scale, bias = [bireme.reshape(step.need(s), shape) for s in ("Scale", "Bias")]
    return step.need("X") * scale + bias


@rule("lrn")
def lrn(step: Step) -> Results:
    # The op sums alpha * x^2 over the window; the function divides alpha by its size.
    n = step.attr("n", 5)
    return F.local_response_norm(
        step.need("X"),
        n,
        step.attr("alpha", 1e-4) * n,
        step.attr("beta", 0.75),
        step.attr("k", 2.0),
    )


_MODES = {
    "nearest_interp": "nearest",
    "bilinear_interp": "bilinear",
    "bicubic_interp": "bicubic",
    "linear_interp": "linear",
    "trilinear_interp": "trilinear",
}


@rule(*_MODES, *[f"{kind}_v2" for kind in _MODES])
def interpolate(step: Step) -> Results:
    x = step.need("X")
    mode = _MODES[step.op.type.removesuffix("_v2")]
    given = step.attr("data_layout", "NCHW")
    planes = x.ndim - 2
    layout = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[planes][
        given.endswith("C")
    ]
    size: Any = step.ints("", "OutSize", "SizeTensor") or None
    scale: Any = None
    if size == [None]:
        size = None
    if size is None:
        scale = step.ints("scale", "Scale")
        scale = [s for s in scale if isinstance(s, int | float) and s > 0] or None
        if scale is None:
            names = {1: ["out_w"], 2: ["out_h", "out_w"], 3: ["out_d", "out_h", "out_w"]}[planes]
            size = [step.attr(n) for n in names]
        elif len(scale) == 1:
            scale = scale * planes
    align = (
        step.attr("align_corners", True) if mode != "nearest" else step.attr("align_corners", False)
    )
    return F.interpolate(x, size, scale, mode, align, step.attr("align_mode", 1), layout)


@rule("pad")
def pad(step: Step) -> Results:
    value = step.number("pad_value", "PadValue", default=0.0)
    return F.pad(step.need("X"), step.ints("paddings"), "constant", value, pad_from_left_axis=True)


@rule("pad2d", "pad3d")
def pad3d(step: Step) -> Results:
    amounts = step.ints("paddings", "Paddings")
    value = step.attr("value", step.attr("pad_value", 0.0))
    mode: str = step.attr("mode", "constant")
    mode = "replicate" if mode == "edge" else mode
    flat = step.op.type == "pad2d"
    if flat:  # top, bottom, left, right; the function counts from the last axis
        amounts = [*amounts[2:], *amounts[:2]]
    layout = step.attr("data_format", "NCHW" if flat else "NCDHW")
    return F.pad(step.need("X"), amounts, mode, value, layout)


@rule("lookup_table", "lookup_table_v2")
def embedding(step: Step) -> Results:
    ids, table = step.need("Ids"), step.need("W")
    if step.op.type == "lookup_table":
        ids = bireme.squeeze(ids, -1)
    blank = step.attr("padding_idx", -1)
    out = F.embedding(ids, table)
    if blank >= 0:
        kept = bireme.cast(bireme.unsqueeze(ids != blank, -1), out.dtype)
        out = out * kept
    return out


@rule("grid_sampler", out="Output")
def grid_sampler(step: Step) -> Results:
    return F.grid_sample(
        step.need("X"),
        step.need("Grid"),
        step.attr("mode", "bilinear"),
        step.attr("padding_mode", "zeros"),
        step.attr("align_corners", True),
    )


@rule("affine_grid", out="Output")
def affine_grid(step: Step) -> Results:
    shape = step.ints("output_shape", "OutputShape")
    return F.affine_grid(step.need("Theta"), shape, step.attr("align_corners", True))


@rule("unfold", out="Y")
def unfold(step: Step) -> Results:
    names = ("kernel_sizes", "strides", "paddings", "dilations")
    kernel, strides, paddings, dilations = [list(step.attr(n)) for n in names]
    return F.unfold(step.need("X"), kernel, strides, paddings, dilations)


@rule("shuffle_channel")
def shuffle_channel(step: Step) -> Results:
    return F.channel_shuffle(step.need("X"), step.attr("group", 1))


@rule("temporal_shift")
def temporal_shift(step: Step) -> Results:
    return F.temporal_shift(step.need("X"), step.attr("seg_num"), step.attr("shift_ratio", 0.25))


@rule("label_smooth")
def label_smooth(step: Step) -> Results:
    return F.label_smooth(step.need("X"), step("PriorDist"), step.attr("epsilon", 0.1))


@rule("flash_attn", out="out")
def flash_attn(step: Step) -> Results:
    return F.scaled_dot_product_attention(
        step.need("q"),
        step.need("k"),
        step.need("v"),
        step("attn_mask"),
        is_causal=step.attr("causal", False),
    )
