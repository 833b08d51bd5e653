"""What Caffe's files hold: fields by name and number, as far as a trained net needs them.

The same schema reads both forms: binary (`.caffemodel`) and text (`.prototxt`). The numbers are
those of Caffe, of SSD's branch of it and of OpenCV's, whose layers have numbers of their own.
"""

from __future__ import annotations

from typing import Any

from bireme.convert.wire import IGNORED, Schema, message

# What is IGNORED are settings that matter to training, and choices between implementations.
_FILLER = {"weight_filler": (7, IGNORED), "bias_filler": (8, IGNORED)}
_POOL = "enum:MAX,AVE,STOCHASTIC"

SHAPE = message(dim=(1, "[int64"))
BLOB = message(
    shape=(7, SHAPE), data=(5, "floats"), diff=(6, IGNORED), double_data=(8, "doubles"),
    double_diff=(9, IGNORED), raw_data_type=(10, "enum:DOUBLE,FLOAT,FLOAT16,INT,UINT"),
    raw_data=(12, "bytes"), num=(1, "int32"), channels=(2, "int32"), height=(3, "int32"),
    width=(4, "int32"),
)  # fmt: skip
_STATE = message(
    phase=(1, "enum:TRAIN,TEST"),
    min_level=(2, "int32"),
    max_level=(3, "int32"),
    stage=(4, "[string"),
    not_stage=(5, "[string"),
)
_PARAM = message(
    name=(1, "string"), share_mode=(2, IGNORED), lr_mult=(3, IGNORED), decay_mult=(4, IGNORED)
)

# The settings of each layer, by the name of their field: (number in V2, in V1, message).
_SETTINGS: dict[str, tuple[int, int | None, Schema]] = {
    "argmax_param": (
        103, 23, message(out_max_val=(1, "bool"), top_k=(2, "int32"), axis=(3, "int32")),
    ),
    "batch_norm_param": (
        139, None,
        message(
            use_global_stats=(1, "bool"), moving_average_fraction=(2, IGNORED),
            eps=(3, "float"), scale_bias=(7, "bool"),
        ),
    ),
    "bias_param": (
        141, None, message(axis=(1, "int32"), num_axes=(2, "int32"), filler=(3, IGNORED)),
    ),
    "concat_param": (104, 9, message(axis=(2, "int32"), concat_dim=(1, "int32"))),
    "convolution_param": (
        106, 10,
        message(
            num_output=(1, "int32"), bias_term=(2, "bool"), pad=(3, "[int32"),
            kernel_size=(4, "[int32"), group=(5, "int32"), stride=(6, "[int32"),
            pad_h=(9, "int32"), pad_w=(10, "int32"), kernel_h=(11, "int32"),
            kernel_w=(12, "int32"), stride_h=(13, "int32"), stride_w=(14, "int32"),
            engine=(15, IGNORED), axis=(16, "int32"), force_nd_im2col=(17, IGNORED),
            dilation=(18, "[int32"), **_FILLER,
        ),
    ),
    "crop_param": (144, None, message(axis=(1, "int32"), offset=(2, "[int32"))),
    "detection_output_param": (
        147, None,
        message(
            num_classes=(1, "int32"), share_location=(2, "bool"),
            background_label_id=(3, "int32"), save_output_param=(5, IGNORED),
            nms_param=(
                4, message(nms_threshold=(1, "float"), top_k=(2, "int32"), eta=(3, "float"))
            ),
            code_type=(6, "enum:NONE,CORNER,CENTER_SIZE,CORNER_SIZE"),
            keep_top_k=(7, "int32"), variance_encoded_in_target=(8, "bool"),
            confidence_threshold=(9, "float"), normalized_bbox=(10, "bool"),
            visualize=(11, IGNORED), visualize_threshold=(12, IGNORED), save_file=(13, IGNORED),
        ),
    ),
    "dropout_param": (
        108, 12, message(dropout_ratio=(1, IGNORED), scale_train=(2, "bool")),
    ),
    "eltwise_param": (
        110, 24,
        message(
            operation=(1, "enum:PROD,SUM,MAX"), coeff=(2, "[float"),
            stable_prod_grad=(3, IGNORED),
        ),
    ),
    "elu_param": (140, None, message(alpha=(1, "float"))),
    "embed_param": (
        137, None,
        message(
            num_output=(1, "int32"), input_dim=(2, "int32"), bias_term=(3, "bool"),
            weight_filler=(4, IGNORED), bias_filler=(5, IGNORED),
        ),
    ),
    "exp_param": (
        111, 41, message(base=(1, "float"), scale=(2, "float"), shift=(3, "float")),
    ),
    "flatten_param": (135, None, message(axis=(1, "int32"), end_axis=(2, "int32"))),
    "inner_product_param": (
        117, 17,
        message(
            num_output=(1, "int32"), bias_term=(2, "bool"), weight_filler=(3, IGNORED),
            bias_filler=(4, IGNORED), axis=(5, "int32"), transpose=(6, "bool"),
        ),
    ),
    "input_param": (143, None, message(shape=(1, [SHAPE]))),
    "log_param": (
        134, None, message(base=(1, "float"), scale=(2, "float"), shift=(3, "float")),
    ),
    "lrn_param": (
        118, 18,
        message(
            local_size=(1, "int32"), alpha=(2, "float"), beta=(3, "float"),
            norm_region=(4, "enum:ACROSS_CHANNELS,WITHIN_CHANNEL"), k=(5, "float"),
            engine=(6, IGNORED),
        ),
    ),
    "mvn_param": (
        120, 34,
        message(
            normalize_variance=(1, "bool"), across_channels=(2, "bool"), eps=(3, "float")
        ),
    ),
    "norm_param": (
        149, None,
        message(
            across_spatial=(1, "bool"), scale_filler=(2, IGNORED), channel_shared=(3, "bool"),
            eps=(4, "float"),
        ),
    ),
    "parameter_param": (145, None, message(shape=(1, SHAPE))),
    "permute_param": (148, None, message(order=(1, "[int32"))),
    "pooling_param": (
        121, 19,
        message(
            pool=(1, _POOL), kernel_size=(2, "int32"), stride=(3, "int32"), pad=(4, "int32"),
            kernel_h=(5, "int32"), kernel_w=(6, "int32"), stride_h=(7, "int32"),
            stride_w=(8, "int32"), pad_h=(9, "int32"), pad_w=(10, "int32"),
            engine=(11, IGNORED), global_pooling=(12, "bool"), ceil_mode=(13, "bool"),
        ),
    ),
    "power_param": (
        122, 21, message(power=(1, "float"), scale=(2, "float"), shift=(3, "float")),
    ),
    "prelu_param": (131, None, message(filler=(1, IGNORED), channel_shared=(2, "bool"))),
    "prior_box_param": (
        150, None,
        message(
            min_size=(1, "[float"), max_size=(2, "[float"), aspect_ratio=(3, "[float"),
            flip=(4, "bool"), clip=(5, "bool"), variance=(6, "[float"), img_size=(7, "int32"),
            img_h=(8, "int32"), img_w=(9, "int32"), step=(10, "float"), step_h=(11, "float"),
            step_w=(12, "float"), offset=(13, "float"), offset_h=(14, "[float"),
            offset_w=(15, "[float"), width=(16, "[float"), height=(17, "[float"),
        ),
    ),
    "reduction_param": (
        136, None,
        message(
            operation=(1, "enum:NONE,SUM,ASUM,SUMSQ,MEAN"), axis=(2, "int32"),
            coeff=(3, "float"),
        ),
    ),
    "relu_param": (123, 30, message(negative_slope=(1, "float"), engine=(2, IGNORED))),
    "reshape_param": (
        133, None, message(shape=(1, SHAPE), axis=(2, "int32"), num_axes=(3, "int32")),
    ),
    "scale_param": (
        142, None,
        message(
            axis=(1, "int32"), num_axes=(2, "int32"), filler=(3, IGNORED),
            bias_term=(4, "bool"), bias_filler=(5, IGNORED),
        ),
    ),
    "shuffle_channel_param": (164, None, message(group=(1, "int32"))),
    "sigmoid_param": (124, 38, message(engine=(1, IGNORED))),
    "slice_param": (
        126, 31,
        message(slice_dim=(1, "int32"), slice_point=(2, "[int32"), axis=(3, "int32")),
    ),
    "softmax_param": (125, 39, message(engine=(1, IGNORED), axis=(2, "int32"))),
    "tanh_param": (127, 37, message(engine=(1, IGNORED))),
    "threshold_param": (128, 25, message(threshold=(1, "float"))),
    "tile_param": (138, None, message(axis=(1, "int32"), tiles=(2, "int32"))),
}  # fmt: skip

# SSD's branch gave its layers other numbers than OpenCV.
_SSD = {
    "permute_param": 202,
    "prior_box_param": 203,
    "detection_output_param": 204,
    "norm_param": 206,
}


def _settings(column: int) -> dict[str, tuple[int, Any]]:
    chosen = {name: (row[column], row[2]) for name, row in _SETTINGS.items()}
    return {name: (n, m) for name, (n, m) in chosen.items() if isinstance(n, int)}


LAYER = message(
    name=(1, "string"), type=(2, "string"), bottom=(3, "[string"), top=(4, "[string"),
    loss_weight=(5, IGNORED), param=(6, [_PARAM]), blobs=(7, [BLOB]), include=(8, [_STATE]),
    exclude=(9, [_STATE]), phase=(10, "enum:TRAIN,TEST"), propagate_down=(11, IGNORED),
    transform_param=(100, IGNORED), loss_param=(101, IGNORED), **_settings(0),
)  # fmt: skip
LAYER.update({number: LAYER[_SETTINGS[name][0]] for name, number in _SSD.items()})

# Kinds of V1 layers, in the order of their numbers, under V2's names.
V1_TYPES = {
    "NONE": "", "ACCURACY": "Accuracy", "BNLL": "BNLL", "CONCAT": "Concat",
    "CONVOLUTION": "Convolution", "DATA": "Data", "DROPOUT": "Dropout",
    "EUCLIDEAN_LOSS": "EuclideanLoss", "FLATTEN": "Flatten", "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output", "IM2COL": "Im2col", "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss", "INNER_PRODUCT": "InnerProduct", "LRN": "LRN",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss", "POOLING": "Pooling",
    "RELU": "ReLU", "SIGMOID": "Sigmoid", "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss", "SPLIT": "Split", "TANH": "TanH",
    "WINDOW_DATA": "WindowData", "ELTWISE": "Eltwise", "POWER": "Power",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss", "HINGE_LOSS": "HingeLoss",
    "MEMORY_DATA": "MemoryData", "ARGMAX": "ArgMax", "THRESHOLD": "Threshold",
    "DUMMY_DATA": "DummyData", "SLICE": "Slice", "MVN": "MVN", "ABSVAL": "AbsVal",
    "SILENCE": "Silence", "CONTRASTIVE_LOSS": "ContrastiveLoss", "EXP": "Exp",
    "DECONVOLUTION": "Deconvolution",
}  # fmt: skip

V0 = message(
    name=(1, "string"), type=(2, "string"), num_output=(3, "int32"), biasterm=(4, "bool"),
    weight_filler=(5, IGNORED), bias_filler=(6, IGNORED), pad=(7, "int32"),
    kernelsize=(8, "int32"), group=(9, "int32"), stride=(10, "int32"), pool=(11, _POOL),
    dropout_ratio=(12, IGNORED), local_size=(13, "int32"), alpha=(14, "float"),
    beta=(15, "float"), k=(22, "float"), concat_dim=(65, "int32"), blobs=(50, [BLOB]),
    blobs_lr=(51, IGNORED), weight_decay=(52, IGNORED),
)  # fmt: skip
V1_LAYER = message(
    layer=(1, V0), bottom=(2, "[string"), top=(3, "[string"), name=(4, "string"),
    type=(5, "enum:" + ",".join(V1_TYPES)), blobs=(6, [BLOB]), blobs_lr=(7, IGNORED),
    weight_decay=(8, IGNORED), include=(32, [_STATE]), exclude=(33, [_STATE]),
    loss_weight=(35, IGNORED), transform_param=(36, IGNORED), param=(1001, "[string"),
    blob_share_mode=(1002, IGNORED), **_settings(1),
)  # fmt: skip
NET = message(
    name=(1, "string"), layers=(2, [V1_LAYER]), input=(3, "[string"), input_dim=(4, "[int64"),
    force_backward=(5, IGNORED), state=(6, IGNORED), debug_info=(7, IGNORED),
    input_shape=(8, [SHAPE]), layer=(100, [LAYER]),
)  # fmt: skip
