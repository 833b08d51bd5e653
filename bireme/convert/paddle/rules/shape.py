"""Shapes, joining, picking, making."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme
from bireme.api.types import Scalar
from bireme.convert.paddle.interpreter import Step, dims_of, rule
from bireme.convert.paddle.known import LARGEST, Known, settled
from bireme.convert.paddle.program import ModelFileError, UnsupportedModel
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.ops.creation import to_tensor

if TYPE_CHECKING:
    from bireme.convert.paddle.interpreter import Results


MAX_ELEMENTS = 1 << 32  # of one tensor that a program makes from nothing

# --- making ---------------------------------------------------------------------------------------


@rule("shape", "shape64")
def shape(step: Step) -> Results:
    dims = dims_of(step.raw("Input"))
    return Known.of(list(dims), "int32" if step.op.type == "shape" else "int64")


def filled(dims: list[Any], value: Scalar, dtype: str) -> Results:
    """A tensor of one value; a small one is a known value."""
    if all(isinstance(d, int) for d in dims):
        size = math.prod(dims)
        if any(d < 0 for d in dims) or size > MAX_ELEMENTS:
            raise ModelFileError(f"a constant of shape {dims}")
        if size <= LARGEST and isinstance(value, int | float | bool):
            return settled(np.full(dims, value, object), dtype)
    return bireme.full(dims, value, dtype)


@rule("fill_constant")
def fill_constant(step: Step) -> Results:
    value = step.number("value", "ValueTensor", default=0.0)
    text = step.attr("str_value", "")
    if text and step.raw("ValueTensor") is None:
        try:
            value = float(text)
        except ValueError:
            raise ModelFileError(f"the value {text!r:.40} is no number") from None
    dims = step.ints("shape", "ShapeTensor", "ShapeTensorList")
    return filled(dims, value, step.dtype("dtype", "float32") or "float32")


@rule("fill_constant_batch_size_like")
def fill_like_batch(step: Step) -> Results:
    dims = list(step.attr("shape"))
    source = dims_of(step.raw("Input"))
    dims[step.attr("output_dim_idx", 0)] = source[step.attr("input_dim_idx", 0)]
    text = step.attr("str_value", "")
    value = float(text) if text else step.attr("value", 0.0)
    return filled(dims, value, step.dtype("dtype", "float32") or "float32")


@rule("fill_any_like")
def fill_any_like(step: Step) -> Results:
    x = step.raw("X")
    own = x.dtype if isinstance(x, Known) else x.dtype.name
    value = step.number("value", "ValueTensor", default=0.0)
    return filled(list(dims_of(x)), value, step.dtype("dtype", own) or own)


@rule("fill_zeros_like")
def fill_zeros_like(step: Step) -> Results:
    return bireme.zeros_like(step.need("X"))


@rule("full_int_array")
def full_int_array(step: Step) -> Results:
    return Known.of(
        [int(v) for v in step.attr("value", [])], step.dtype("dtype", "int64") or "int64"
    )


@rule("assign_value")
def assign_value(step: Step) -> Results:
    dtype = step.dtype("dtype", "float32") or "float32"
    names = ("values", "fp32_values", "int32_values", "int64_values", "bool_values", "fp64_values")
    values = next((v for n in names if (v := step.attr(n))), [])
    dims = list(step.attr("shape", [len(values)]))
    if math.prod(dims) != len(values):
        raise ModelFileError(f"{len(values)} values for the shape {dims}")
    known = settled(np.array(values, object).reshape(dims), dtype)
    return known if len(values) <= LARGEST else known.tensor()


@rule("range")
def arange(step: Step) -> Results:
    start, end, pace = [step.number("", slot) for slot in ("Start", "End", "Step")]
    for slot, value in (("Start", start), ("End", end), ("Step", pace)):
        if isinstance(value, Tensor):
            raw = step.raw(slot)
            if not isinstance(raw, Known):
                value.numpy()  # says that a length is read, and where
    if step.raw("End").__class__ is Known and not step.raw("End").is_numeric:
        end = step.raw("End").array.ravel().tolist()[0]
    dtype = step.dtype("dtype") or step.raw("End").dtype
    return bireme.arange(start, end, pace, dtype if isinstance(dtype, str) else dtype.name)


@rule("linspace")
def linspace(step: Step) -> Results:
    start, stop = step.number("", "Start"), step.number("", "Stop")
    return bireme.linspace(start, stop, int(step.axis("", "Num")), step.dtype("dtype", "float32"))


@rule("eye")
def eye(step: Step) -> Results:
    rows, columns = step.attr("num_rows"), step.attr("num_columns", -1)
    return bireme.eye(rows, None if columns == -1 else columns, step.dtype("dtype", "float32"))


@rule("one_hot_v2", "one_hot")
def one_hot(step: Step) -> Results:
    x = step.need("X")
    if step.op.type == "one_hot":
        x = bireme.squeeze(x, -1)
    return F.one_hot(x, int(step.axis("depth", "depth_tensor")))


@rule("assign", "share_data", "shadow_feed", "memcpy", "print", "lod_reset_same")
def assign(step: Step) -> Results:
    return step.need("X" if "X" in step.op.inputs else "In")


@rule("size")
def size(step: Step) -> Results:
    dims = dims_of(step.raw("Input"))
    return Known.of([math.prod(dims)], "int64", ())


# --- reshaping ------------------------------------------------------------------------------------


@rule("reshape2", "reshape")
def reshape(step: Step) -> Results:
    return bireme.reshape(step.need("X"), step.ints("shape", "ShapeTensor", "Shape"))


@rule("flatten_contiguous_range")
def flatten_range(step: Step) -> Results:
    return bireme.flatten(step.need("X"), step.attr("start_axis", 1), step.attr("stop_axis", -1))


@rule("flatten2", "flatten")
def flatten2(step: Step) -> Results:
    x, axis = step.need("X"), step.attr("axis", 1)
    if axis == 0:
        return bireme.reshape(x, [1, -1])
    out = bireme.flatten(x, axis) if axis < x.ndim else bireme.unsqueeze(x, -1)
    return bireme.flatten(out, 0, axis - 1)


@rule("transpose2", "transpose")
def transpose(step: Step) -> Results:
    return bireme.transpose(step.need("X"), step.attr("axis"))


@rule("squeeze2", "squeeze")
def squeeze(step: Step) -> Results:
    return bireme.squeeze(step.need("X"), step.ints("axes", "AxesTensor") or None)


@rule("unsqueeze2", "unsqueeze")
def unsqueeze(step: Step) -> Results:
    return bireme.unsqueeze(step.need("X"), step.ints("axes", "AxesTensor", "AxesTensorList"))


@rule("expand_v2")
def expand_v2(step: Step) -> Results:
    return bireme.expand(step.need("X"), step.ints("shape", "Shape", "expand_shapes_tensor"))


@rule("expand_as_v2")
def expand_as(step: Step) -> Results:
    y = step.raw("Y")
    return bireme.expand(
        step.need("X"), step.ints("target_shape") if y is None else list(dims_of(y))
    )


@rule("expand")
def expand(step: Step) -> Results:
    return bireme.tile(step.need("X"), step.ints("expand_times", "ExpandTimes"))


@rule("tile")
def tile(step: Step) -> Results:
    return bireme.tile(
        step.need("X"), step.ints("repeat_times", "RepeatTimes", "repeat_times_tensor")
    )


@rule("pixel_shuffle")
def pixel_shuffle(step: Step) -> Results:
    layout = step.attr("data_format", "NCHW")
    return F.pixel_shuffle(step.need("X"), step.attr("upscale_factor", 1), layout)


# --- joining and taking apart ---------------------------------------------------------------------


@rule("concat")
def concat(step: Step) -> Results:
    return bireme.concat(step.many("X"), step.axis("axis", "AxisTensor"))


@rule("stack", out="Y")
def stack(step: Step) -> Results:
    return bireme.stack(step.many("X"), step.attr("axis", 0))


@rule("unstack", out="Y")
def unstack(step: Step) -> Results:
    return bireme.unstack(step.need("X"), step.attr("axis", 0))


@rule("unbind")
def unbind(step: Step) -> Results:
    return bireme.unbind(step.need("X"), step.attr("axis", 0))


@rule("split")
def split(step: Step) -> Results:
    axis = step.axis("axis", "AxisTensor")
    sections = step.ints("sections", "SectionsTensorList")
    return bireme.split(step.need("X"), sections or step.attr("num"), axis)


@rule("meshgrid")
def meshgrid(step: Step) -> Results:
    return list(bireme.meshgrid(step.many("X")))


@rule("combine_values")
def combine(step: Step) -> Results:
    return step.raws("X")


@rule("split_values")
def split_values(step: Step) -> Results:
    return step.raws("X")


@rule("slice_values")
def slice_values(step: Step) -> Results:
    return step.raws("X")[step.attr("index")]


# --- picking --------------------------------------------------------------------------------------


@rule("slice")
def slice_(step: Step) -> Results:
    x = step.need("Input")
    starts = step.ints("starts", "StartsTensor", "StartsTensorList")
    ends = step.ints("ends", "EndsTensor", "EndsTensorList")
    out = bireme.slice(x, list(step.attr("axes")), starts, ends)
    dropped = list(step.attr("decrease_axis") or ())
    return bireme.squeeze(out, dropped) if dropped else out


@rule("strided_slice")
def strided_slice(step: Step) -> Results:
    parts = [
        step.ints(name, f"{name.title()}Tensor", f"{name.title()}TensorList")
        for name in ("starts", "ends", "strides")
    ]
    starts, ends, strides = parts
    out = bireme.strided_slice(step.need("Input"), list(step.attr("axes")), starts, ends, strides)
    dropped = list(step.attr("decrease_axis") or ())
    return bireme.squeeze(out, dropped) if dropped else out


@rule("crop_tensor")
def crop(step: Step) -> Results:
    dims = step.ints("shape", "Shape", "ShapeTensor")
    return bireme.crop(step.need("X"), dims, step.ints("offsets", "Offsets", "OffsetsTensor"))


@rule("gather")
def gather(step: Step) -> Results:
    return bireme.gather(step.need("X"), step.need("Index"), step.axis("axis", "Axis"))


@rule("gather_nd")
def gather_nd(step: Step) -> Results:
    return bireme.gather_nd(step.need("X"), step.need("Index"))


@rule("index_select")
def index_select(step: Step) -> Results:
    return bireme.index_select(step.need("X"), step.need("Index"), step.attr("dim", 0))


@rule("index_sample")
def index_sample(step: Step) -> Results:
    return bireme.index_sample(step.need("X"), step.need("Index"))


@rule("take_along_axis", out="Result")
def take_along_axis(step: Step) -> Results:
    return bireme.take_along_axis(step.need("Input"), step.need("Index"), step.attr("Axis", 0))


@rule("put_along_axis", out="Result")
def put_along_axis(step: Step) -> Results:
    how = step.attr("Reduce", "assign")
    inputs = step.need("Input"), step.need("Index"), step.need("Value")
    return bireme.put_along_axis(*inputs, step.attr("Axis", 0), how)


@rule("scatter")
def scatter(step: Step) -> Results:
    inputs = step.need("X"), step.need("Ids"), step.need("Updates")
    return bireme.scatter(*inputs, step.attr("overwrite", True))


@rule("scatter_nd_add")
def scatter_nd_add(step: Step) -> Results:
    return bireme.scatter_nd_add(step.need("X"), step.need("Index"), step.need("Updates"))


@rule("flip")
def flip(step: Step) -> Results:
    return bireme.flip(step.need("X"), list(step.attr("axis")))


@rule("roll")
def roll(step: Step) -> Results:
    axes = list(step.attr("axis", []))
    return bireme.roll(step.need("X"), step.ints("shifts", "ShiftsTensor"), axes or None)


@rule("tril_triu")
def tril_triu(step: Step) -> Results:
    keep = bireme.tril if step.attr("lower", True) else bireme.triu
    return keep(step.need("X"), step.attr("diagonal", 0))


@rule("set_value")
def set_value(step: Step) -> Results:
    """x with a strided part replaced."""
    x = step.need("Input")
    if step.attr("none_axes") or step.attr("decrease_axes"):
        raise UnsupportedModel("set_value that drops or adds axes")
    index: list[Any] = [slice(None)] * x.ndim
    parts = [step.ints(name, f"{name.title()}TensorList") for name in ("starts", "ends", "steps")]
    for axis, start, end, pace in zip(step.attr("axes"), *parts, strict=True):
        index[axis] = slice(start, end, pace)
    value = step("ValueTensor")
    if value is None:
        values = step.attr("values") or step.attr("fp32_values") or step.attr("int64_values") or []
        value = to_tensor(np.array(values).reshape(step.attr("shape", [len(values)])))
    out = bireme.assign(x)
    out[tuple(index)] = bireme.cast(value, x.dtype)
    return out


@rule("where_index")
def nonzero(step: Step) -> Results:
    return bireme.nonzero(step.need("Condition"))


@rule("masked_select", out="Y")
def masked_select(step: Step) -> Results:
    return bireme.masked_select(step.need("X"), step.need("Mask"))
