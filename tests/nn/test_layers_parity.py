"""Every layer gives the real one's outputs, gradients and repr with the same weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme

pytestmark = pytest.mark.filterwarnings("ignore")  # the reference warns about its own plans

R = np.random.default_rng(7)


def _f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype("float32")


def _p(*shape: int) -> np.ndarray:
    return R.uniform(0.05, 0.95, shape).astype("float32")


def _i(high: int, *shape: int) -> np.ndarray:
    return R.integers(0, high, shape).astype("int64")


SIGN = np.array([1, -1, 1, -1], "float32")

# name, constructor arguments, inputs of forward
CASES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("Linear", {"in_features": 3, "out_features": 4}, [_f(2, 5, 3)]),
    ("Linear", {"in_features": 3, "out_features": 4, "bias_attr": False}, [_f(2, 3)]),
    ("Bilinear", {"in1_features": 3, "in2_features": 2, "out_features": 4}, [_f(5, 3), _f(5, 2)]),
    ("Embedding", {"num_embeddings": 6, "embedding_dim": 3}, [_i(6, 2, 4)]),
    ("Embedding", {"num_embeddings": 6, "embedding_dim": 3, "padding_idx": 2}, [_i(6, 2, 4)]),
    ("Identity", {}, [_f(2)]),
    ("Flatten", {"start_axis": 1, "stop_axis": 2}, [_f(2, 3, 4, 5)]),
    ("Unflatten", {"axis": 1, "shape": [2, -1]}, [_f(3, 8)]),
    ("CosineSimilarity", {"axis": 1}, [_f(3, 4), _f(3, 4)]),
    ("PairwiseDistance", {"p": 2.0}, [_f(3, 4), _f(3, 4)]),
    ("Dropout", {"p": 0.0}, [_f(3, 4)]),
    ("Conv1D", {"in_channels": 4, "out_channels": 6, "kernel_size": 3, "padding": 1, "groups": 2},
     [_f(2, 4, 7)]),
    ("Conv2D", {"in_channels": 3, "out_channels": 4, "kernel_size": [3, 2], "stride": 2},
     [_f(2, 3, 8, 7)]),
    ("Conv2D", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": 1,
                "padding_mode": "reflect"}, [_f(2, 3, 6, 6)]),
    ("Conv2D", {"in_channels": 3, "out_channels": 4, "kernel_size": 3, "padding": "SAME",
                "data_format": "NHWC"}, [_f(2, 6, 6, 3)]),
    ("Conv3D", {"in_channels": 2, "out_channels": 3, "kernel_size": 2, "dilation": 2},
     [_f(1, 2, 5, 5, 5)]),
    ("Conv1DTranspose", {"in_channels": 3, "out_channels": 2, "kernel_size": 3, "stride": 2},
     [_f(2, 3, 5)]),
    ("Conv2DTranspose", {"in_channels": 4, "out_channels": 2, "kernel_size": 3, "stride": 2,
                         "padding": 1, "output_padding": 1, "groups": 2}, [_f(2, 4, 5, 5)]),
    ("Conv3DTranspose", {"in_channels": 2, "out_channels": 2, "kernel_size": 2},
     [_f(1, 2, 3, 3, 3)]),
    ("BatchNorm1D", {"num_features": 4}, [_f(6, 4)]),
    ("BatchNorm1D", {"num_features": 4}, [_f(6, 4, 3)]),
    ("BatchNorm2D", {"num_features": 3, "momentum": 0.8}, [_f(4, 3, 5, 5)]),
    ("BatchNorm2D", {"num_features": 3, "data_format": "NHWC"}, [_f(4, 5, 5, 3)]),
    ("BatchNorm3D", {"num_features": 2}, [_f(3, 2, 3, 3, 3)]),
    ("BatchNorm", {"num_channels": 3, "act": "relu"}, [_f(4, 3, 5, 5)]),
    ("LayerNorm", {"normalized_shape": [4, 5]}, [_f(3, 4, 5)]),
    ("LayerNorm", {"normalized_shape": 5, "epsilon": 1e-3, "bias_attr": False}, [_f(3, 5)]),
    ("GroupNorm", {"num_groups": 2, "num_channels": 4}, [_f(3, 4, 5, 5)]),
    ("InstanceNorm1D", {"num_features": 3}, [_f(2, 3, 6)]),
    ("InstanceNorm2D", {"num_features": 3}, [_f(2, 3, 4, 4)]),
    ("InstanceNorm3D", {"num_features": 2}, [_f(2, 2, 3, 3, 3)]),
    ("LocalResponseNorm", {"size": 3}, [_f(2, 5, 4, 4)]),
    ("SpectralNorm", {"weight_shape": [4, 5], "power_iters": 60}, [_f(4, 5)]),
    ("MaxPool1D", {"kernel_size": 2}, [_f(2, 3, 8)]),
    ("MaxPool2D", {"kernel_size": 3, "stride": 2, "padding": 1}, [_f(2, 3, 8, 8)]),
    ("MaxPool3D", {"kernel_size": 2}, [_f(1, 2, 4, 4, 4)]),
    ("AvgPool1D", {"kernel_size": 2, "padding": 1}, [_f(2, 3, 8)]),
    ("AvgPool2D", {"kernel_size": 3, "stride": 2, "padding": 1, "exclusive": False},
     [_f(2, 3, 8, 8)]),
    ("AvgPool3D", {"kernel_size": 2, "ceil_mode": True}, [_f(1, 2, 5, 5, 5)]),
    ("LPPool1D", {"norm_type": 2, "kernel_size": 2}, [_p(2, 3, 8)]),
    ("LPPool2D", {"norm_type": 3, "kernel_size": 2}, [_p(2, 3, 8, 8)]),
    ("AdaptiveAvgPool1D", {"output_size": 3}, [_f(2, 3, 8)]),
    ("AdaptiveAvgPool2D", {"output_size": [3, None]}, [_f(2, 3, 8, 7)]),
    ("AdaptiveAvgPool3D", {"output_size": 2}, [_f(1, 2, 5, 5, 5)]),
    ("AdaptiveMaxPool1D", {"output_size": 3}, [_f(2, 3, 8)]),
    ("AdaptiveMaxPool2D", {"output_size": 3}, [_f(2, 3, 8, 7)]),
    ("AdaptiveMaxPool3D", {"output_size": 2}, [_f(1, 2, 5, 5, 5)]),
    ("Upsample", {"scale_factor": 2, "mode": "bilinear"}, [_f(1, 2, 3, 4)]),
    ("UpsamplingNearest2D", {"size": 6}, [_f(1, 2, 3, 4)]),
    ("UpsamplingBilinear2D", {"scale_factor": 2}, [_f(1, 2, 3, 4)]),
    ("PixelShuffle", {"upscale_factor": 2}, [_f(1, 8, 3, 3)]),
    ("PixelUnshuffle", {"downscale_factor": 2}, [_f(1, 2, 4, 4)]),
    ("ChannelShuffle", {"groups": 2}, [_f(1, 4, 3, 3)]),
    ("Unfold", {"kernel_sizes": 2, "strides": 2}, [_f(1, 2, 6, 6)]),
    ("Fold", {"output_sizes": [4, 4], "kernel_sizes": 2, "strides": 2}, [_f(1, 8, 4)]),
    ("Pad1D", {"padding": [1, 2], "mode": "replicate"}, [_f(1, 2, 4)]),
    ("Pad2D", {"padding": 1, "value": 3.0}, [_f(1, 2, 4, 4)]),
    ("Pad3D", {"padding": 1, "mode": "circular"}, [_f(1, 2, 3, 3, 3)]),
    ("ZeroPad2D", {"padding": [1, 0, 2, 1]}, [_f(1, 2, 4, 4)]),
    ("ReflectionPad2D", {"padding": 1}, [_f(1, 2, 4, 4)]),
    ("ConstantPad1D", {"padding": 1, "value": 2.0}, [_f(1, 2, 4)]),
    ("MultiHeadAttention", {"embed_dim": 8, "num_heads": 2}, [_f(2, 4, 8)]),
    ("MultiHeadAttention", {"embed_dim": 8, "num_heads": 2, "kdim": 6, "vdim": 5},
     [_f(2, 4, 8), _f(2, 3, 6), _f(2, 3, 5)]),
    ("TransformerEncoderLayer", {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0},
     [_f(2, 4, 8), _f(2, 1, 4, 4)]),
    ("TransformerEncoderLayer", {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0,
                                 "activation": "gelu", "normalize_before": True}, [_f(2, 4, 8)]),
    ("TransformerDecoderLayer", {"d_model": 8, "nhead": 2, "dim_feedforward": 16, "dropout": 0.0},
     [_f(2, 4, 8), _f(2, 3, 8)]),
    ("Transformer", {"d_model": 8, "nhead": 2, "num_encoder_layers": 2, "num_decoder_layers": 1,
                     "dim_feedforward": 16, "dropout": 0.0}, [_f(2, 4, 8), _f(2, 3, 8)]),
    ("SimpleRNNCell", {"input_size": 3, "hidden_size": 4}, [_f(2, 3)]),
    ("LSTMCell", {"input_size": 3, "hidden_size": 4}, [_f(2, 3)]),
    ("GRUCell", {"input_size": 3, "hidden_size": 4}, [_f(2, 3), _f(2, 4)]),
    ("PReLU", {"num_parameters": 3}, [_f(2, 3, 4)]),
    *[(name, {}, [_f(3, 4, 5)]) for name in (
        "CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
        "LogSigmoid", "LogSoftmax", "Mish", "ReLU", "ReLU6", "SELU", "Sigmoid", "Silu", "Softmax",
        "Softplus", "Softshrink", "Softsign", "Swish", "Tanh", "Tanhshrink", "ThresholdedReLU",
        "Softmax2D")],
    ("GLU", {"axis": 1}, [_f(3, 4)]),
    ("Maxout", {"groups": 2}, [_f(2, 4, 3, 3)]),
    ("MSELoss", {}, [_f(4, 3), _f(4, 3)]),
    ("L1Loss", {"reduction": "sum"}, [_f(4, 3), _f(4, 3)]),
    ("SmoothL1Loss", {"delta": 0.5}, [_f(4, 3), _f(4, 3)]),
    ("BCELoss", {}, [_p(4, 3), _p(4, 3)]),
    ("BCEWithLogitsLoss", {}, [_f(4, 3), _p(4, 3)]),
    ("CrossEntropyLoss", {}, [_f(5, 4), _i(4, 5)]),
    ("CrossEntropyLoss", {"reduction": "none", "label_smoothing": 0.1}, [_f(5, 4), _i(4, 5)]),
    ("NLLLoss", {}, [_f(5, 4), _i(4, 5)]),
    ("KLDivLoss", {"reduction": "batchmean"}, [_f(4, 3), _p(4, 3)]),
    ("PoissonNLLLoss", {}, [_f(4, 3), _p(4, 3)]),
    ("GaussianNLLLoss", {}, [_f(4, 3), _f(4, 3), _p(4, 3)]),
    ("MarginRankingLoss", {"margin": 0.1}, [_f(4), _f(4), SIGN]),
    ("HingeEmbeddingLoss", {}, [_f(4), SIGN]),
    ("CosineEmbeddingLoss", {"margin": 0.1}, [_f(4, 3), _f(4, 3), SIGN]),
    ("SoftMarginLoss", {}, [_f(4), SIGN]),
    ("MultiLabelSoftMarginLoss", {}, [_f(4, 3), np.sign(_f(4, 3))]),
    ("MultiMarginLoss", {}, [_f(5, 4), _i(4, 5)]),
    ("TripletMarginLoss", {}, [_f(4, 3), _f(4, 3), _f(4, 3)]),
    ("TripletMarginWithDistanceLoss", {}, [_f(4, 3), _f(4, 3), _f(4, 3)]),
    ("HSigmoidLoss", {"feature_size": 3, "num_classes": 4}, [_f(4, 3), _i(4, 4)]),
]  # fmt: skip


def _flat(out: Any) -> list[Any]:
    if isinstance(out, list | tuple):
        return [t for part in out for t in _flat(part)]
    return [out]


def _run(lib: Any, layer: Any, arrays: list[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    inputs = [lib.to_tensor(a) for a in arrays]
    # Targets of losses need no gradient, and the reference has none for most of them.
    for x in inputs[:1] if type(layer).__name__.endswith("Loss") else inputs:
        if x.numpy().dtype.kind == "f":
            x.stop_gradient = False
    outs = _flat(layer(*inputs))
    total = sum((o * o).sum() for o in outs)
    total.backward()
    grads = [x.grad for x in inputs] + [p.grad for p in layer.parameters()]
    return [o.numpy() for o in outs], [g.numpy() for g in grads if g is not None]


@pytest.mark.parametrize(
    ("name", "options", "arrays"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)]
)
def test_layer(paddle: Any, name: str, options: dict[str, Any], arrays: list[Any]) -> None:
    theirs = getattr(paddle.nn, name)(**options)
    mine = getattr(bireme.nn, name)(**options)
    state = theirs.state_dict()
    assert list(mine.state_dict()) == list(state)
    if state:
        assert mine.set_state_dict({k: v.numpy() for k, v in state.items()}) == ([], [])
    assert repr(mine) == repr(theirs)
    want, want_grads = _run(paddle, theirs, arrays)
    got, got_grads = _run(bireme, mine, arrays)
    assert len(got) == len(want)
    assert len(got_grads) == len(want_grads)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-5)
    if name == "SpectralNorm":
        return  # the reference's gradient is not that of its output
    for a, b in zip(want_grads, got_grads, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-3, atol=2e-4)
    for key, value in theirs.state_dict().items():  # running statistics
        np.testing.assert_allclose(
            mine.state_dict()[key].numpy(), value.numpy(), rtol=2e-4, atol=2e-5, err_msg=key
        )


def test_silu_in_place(paddle: Any) -> None:
    for module in (paddle, bireme):
        x = module.to_tensor([1.0, -2.0])
        module.nn.Silu(inplace=True)(x)
        np.testing.assert_allclose(x.numpy(), [0.7310586, -0.2384058], rtol=1e-5)
