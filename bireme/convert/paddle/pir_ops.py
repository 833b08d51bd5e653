"""PIR's ops in the language of ProgramDesc, which the rules speak.

PIR numbers its operands and ProgramDesc names its slots, so each row says

    "matmul": row("matmul_v2", "X Y", transpose_x="trans_x", transpose_y="trans_y")

the ProgramDesc op, its input slots in PIR's order, and what PIR calls its attributes. Results go
to `Out` unless a row says otherwise. An op without a row is of the same name and takes `X`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, str]


def row(type: str, inputs: str = "X", outputs: str = "Out", **attrs: str) -> Row:
    return Row(type, tuple(inputs.split()), tuple(outputs.split()), attrs)


_AXIS = "X AxisTensor"
_SHAPED = "Out XShape"
_CONV = ("Input Filter", "Output")
_NORM = {"data_format": "data_layout"}
_BATCH_NORM = "X Mean Variance Scale Bias"
_BATCH_NORM_OUT = "Y MeanOut VarianceOut SavedMean SavedVariance ReserveSpace"
_RESIZE = "X OutSize SizeTensor Scale"

ROWS: dict[str, Row] = {
    # activations
    "hardswish": row("hard_swish"),
    "hardsigmoid": row("hard_sigmoid"),
    "leaky_relu": row("leaky_relu", negative_slope="alpha"),
    "logsigmoid": row("logsigmoid"),
    "tanh_shrink": row("tanh_shrink"),
    "hardshrink": row("hard_shrink"),
    "softshrink": row("softshrink", threshold="lambda"),
    "hardtanh": row("brelu"),
    "prelu": row("prelu", "X Alpha"),
    "dropout": row("dropout", "X Seed P", "Out Mask", mode="dropout_implementation"),
    "isnan": row("isnan_v2"),
    "isinf": row("isinf_v2"),
    "isfinite": row("isfinite_v2"),
    # two tensors
    "add": row("elementwise_add", "X Y"),
    "subtract": row("elementwise_sub", "X Y"),
    "multiply": row("elementwise_mul", "X Y"),
    "divide": row("elementwise_div", "X Y"),
    "maximum": row("elementwise_max", "X Y"),
    "minimum": row("elementwise_min", "X Y"),
    "remainder": row("elementwise_mod", "X Y"),
    "floor_divide": row("elementwise_floordiv", "X Y"),
    "elementwise_pow": row("elementwise_pow", "X Y"),
    "fmax": row("elementwise_fmax", "X Y"),
    "fmin": row("elementwise_fmin", "X Y"),
    "atan2": row("atan2", "X1 X2"),
    "mv": row("mv", "X Vec"),
    **{
        name: row(name, "X Y")
        for name in (
            "equal", "not_equal", "less_than", "less_equal", "greater_than", "greater_equal",
            "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or",
            "bitwise_xor", "dot", "bmm", "kron",
        )
    },
    "scale": row("scale", "X ScaleTensor"),
    "pow": row("pow", "X", y="factor"),
    "clip": row("clip", "X Min Max"),
    "cast": row("cast", dtype="out_dtype"),
    "add_n": row("sum"),
    "increment": row("increment", value="step"),
    "where": row("where", "Condition X Y"),
    "cumsum": row("cumsum", _AXIS),
    "p_norm": row("p_norm"),
    "norm": row("norm", "X", "Out Norm"),
    # products
    "matmul": row("matmul_v2", "X Y", transpose_x="trans_x", transpose_y="trans_y"),
    "addmm": row("addmm", "Input X Y", alpha="Alpha", beta="Beta"),
    "einsum": row("einsum", "Operands", "Out InnerCache XShape"),
    # reductions
    "sum": row("reduce_sum", _AXIS, dtype="out_dtype", keepdim="keep_dim"),
    "mean": row("reduce_mean", _AXIS, keepdim="keep_dim"),
    "max": row("reduce_max", _AXIS, keepdim="keep_dim"),
    "min": row("reduce_min", _AXIS, keepdim="keep_dim"),
    "prod": row("reduce_prod", _AXIS, keep_dim="keep_dim"),
    "all": row("reduce_all", "X", keepdim="keep_dim"),
    "any": row("reduce_any", "X", keepdim="keep_dim"),
    "amax": row("reduce_amax", "X", keepdim="keep_dim"),
    "amin": row("reduce_amin", "X", keepdim="keep_dim"),
    "logsumexp": row("logsumexp", "X", keepdim="keep_dim"),
    "mean_all": row("mean"),
    "argmax": row("arg_max", _AXIS),
    "argmin": row("arg_min", _AXIS),
    "argsort": row("argsort", "X", "Out Indices"),
    "topk": row("top_k_v2", "X K", "Out Indices"),
    "kthvalue": row("kthvalue", "X", "Out Indices"),
    # making
    "shape": row("shape", "Input"),
    "shape64": row("shape64", "Input"),
    "numel": row("size", "Input"),
    "full": row("fill_constant", ""),
    "full_": row("fill_constant", ""),
    "full_with_tensor": row("fill_constant", "ValueTensor ShapeTensor"),
    "full_like": row("fill_any_like", "X ValueTensor"),
    "full_batch_size_like": row("fill_constant_batch_size_like", "Input"),
    "full_int_array": row("full_int_array", ""),
    "assign_value": row("assign_value", ""),
    "assign_value_": row("assign_value", ""),
    "arange": row("range", "Start End Step"),
    "linspace": row("linspace", "Start Stop Num"),
    "one_hot": row("one_hot_v2", "X depth_tensor"),
    "assign": row("assign"),
    "assign_out_": row("assign"),
    "share_data_": row("share_data"),
    "shadow_feed": row("shadow_feed"),
    "shadow_output": row("assign"),
    "memcpy_h2d": row("memcpy"),
    "memcpy_d2h": row("memcpy"),
    # shapes
    "reshape": row("reshape2", "X ShapeTensor", _SHAPED),
    "flatten": row("flatten_contiguous_range", "X", _SHAPED),
    "transpose": row("transpose2", "X", perm="axis"),
    "squeeze": row("squeeze2", "X AxesTensor", _SHAPED),
    "unsqueeze": row("unsqueeze2", "X AxesTensor", _SHAPED),
    "expand": row("expand_v2", "X Shape"),
    "expand_as": row("expand_as_v2", "X Y"),
    "tile": row("tile", "X RepeatTimes"),
    "pixel_shuffle": row("pixel_shuffle"),
    # joining and taking apart
    "concat": row("concat", _AXIS),
    "stack": row("stack", "X", "Y"),
    "unstack": row("unstack", "X", "Y"),
    "unbind": row("unbind"),
    "split": row("split", "X SectionsTensorList AxisTensor"),
    "split_with_num": row("split", _AXIS),
    "meshgrid": row("meshgrid"),
    "builtin.combine": row("combine_values"),
    "builtin.split": row("split_values"),
    "builtin.slice": row("slice_values"),
    # picking
    "slice": row("slice", "Input StartsTensor EndsTensor"),
    "strided_slice": row("strided_slice", "Input StartsTensor EndsTensor StridesTensor"),
    "crop": row("crop_tensor", "X Shape Offsets"),
    "gather": row("gather", "X Index Axis"),
    "gather_nd": row("gather_nd", "X Index"),
    "index_select": row("index_select", "X Index", axis="dim"),
    "index_sample": row("index_sample", "X Index"),
    "take_along_axis": row("take_along_axis", "Input Index", "Result", axis="Axis"),
    "put_along_axis": row("put_along_axis", "Input Index Value", "Result", axis="Axis",
                          reduce="Reduce"),
    "scatter": row("scatter", "X Ids Updates"),
    "scatter_nd_add": row("scatter_nd_add", "X Index Updates"),
    "roll": row("roll", "X ShiftsTensor"),
    "tril": row("tril"),
    "triu": row("triu"),
    "set_value_with_tensor": row("set_value",
        "Input ValueTensor StartsTensorList EndsTensorList StepsTensorList",
        decrease_axes="decrease_axes"),
    "set_value_with_tensor_": row("set_value",
        "Input ValueTensor StartsTensorList EndsTensorList StepsTensorList"),
    "set_value": row("set_value", "Input StartsTensorList EndsTensorList StepsTensorList"),
    "set_value_": row("set_value", "Input StartsTensorList EndsTensorList StepsTensorList"),
    "nonzero": row("where_index", "Condition"),
    "masked_select": row("masked_select", "X Mask", "Y"),
    # layers
    "conv2d": row("conv2d", *_CONV),
    "depthwise_conv2d": row("depthwise_conv2d", *_CONV),
    "conv3d": row("conv3d", *_CONV),
    "conv2d_transpose": row("conv2d_transpose", "Input Filter OutputSize", "Output"),
    "depthwise_conv2d_transpose": row("depthwise_conv2d_transpose", "Input Filter OutputSize",
                                      "Output"),
    "conv2d_transpose_bias": row("conv2d_transpose", "Input Filter Bias OutputSize", "Output"),
    "deformable_conv": row("deformable_conv", "Input Offset Filter Mask", "Output"),
    "pool2d": row("pool2d", "X KernelSize"),
    "max_pool2d_with_index": row("max_pool2d_with_index", "X", "Out Mask", kernel_size="ksize"),
    "batch_norm": row("batch_norm", _BATCH_NORM, _BATCH_NORM_OUT, **_NORM),
    "batch_norm_": row("batch_norm", _BATCH_NORM, _BATCH_NORM_OUT, **_NORM),
    "sync_batch_norm_": row("batch_norm", _BATCH_NORM, _BATCH_NORM_OUT, **_NORM),
    "layer_norm": row("layer_norm", "X Scale Bias", "Y Mean Variance"),
    "group_norm": row("group_norm", "X Scale Bias", "Y Mean Variance", **_NORM),
    "instance_norm": row("instance_norm", "X Scale Bias", "Y SavedMean SavedVariance"),
    "nearest_interp": row("nearest_interp_v2", _RESIZE),
    "bilinear_interp": row("bilinear_interp_v2", _RESIZE),
    "bicubic_interp": row("bicubic_interp_v2", _RESIZE),
    "linear_interp": row("linear_interp_v2", _RESIZE),
    "trilinear_interp": row("trilinear_interp_v2", _RESIZE),
    "pad": row("pad", "X PadValue"),
    "pad3d": row("pad3d", "X Paddings", pad_value="value"),
    "embedding": row("lookup_table_v2", "Ids W"),
    "grid_sample": row("grid_sampler", "X Grid", "Output"),
    "affine_grid": row("affine_grid", "Theta OutputShape", "Output"),
    "unfold": row("unfold", "X", "Y"),
    "flash_attn": row("flash_attn", "q k v fixed_seed_offset attn_mask",
                      "out softmax softmax_lse seed_offset"),
    "label_smooth": row("label_smooth", "X PriorDist"),
    "rnn": row("rnn", "Input PreState WeightList SequenceLength DropoutState",
               "Out DropoutStateOut State Reserve"),
    "sequence_mask": row("sequence_mask", "X MaxLenTensor", "Y"),
    # control
    "if": row("if_branches", "Cond"),
    "while": row("while_loop", "Cond X"),
    "cf.yield": row("yield_values"),
}  # fmt: skip
