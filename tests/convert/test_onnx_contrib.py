"""ONNX Runtime's own ops against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import bireme as paddle
from bireme.convert.onnx.layer import OnnxLayer
from bireme.convert.onnx.reader import OnnxError

MICROSOFT = "com.microsoft"
B, S, H, D = 2, 5, 4, 8
W = H * D


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype("float32")


def ints(high: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(shape).integers(0, high, shape).astype(dtype)


def model_of(
    op: str, inputs: Sequence[Any], outputs: int, domain: str = MICROSOFT, **attrs: Any
) -> onnx.ModelProto:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(outputs)], domain=domain, **attrs)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape))
        for name, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    made = [
        helper.make_tensor_value_info(f"y{i}", TensorProto.UNDEFINED, None) for i in range(outputs)
    ]
    for info in made:
        info.ClearField("type")
    graph = helper.make_graph([node], "g", given, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def compare(
    op: str, inputs: Sequence[Any], outputs: int = 1, domain: str = MICROSOFT, **attrs: Any
) -> None:
    model = model_of(op, inputs, outputs, domain, **attrs)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    theirs = session.run(None, given)
    ours = OnnxLayer(model)(*[paddle.to_tensor(x) for x in given.values()])
    ours = ours if isinstance(ours, list | tuple) else [ours]
    assert len(ours) == len(theirs)
    for a, b in zip(theirs, ours, strict=True):
        theirs_here = np.asarray(a)
        assert theirs_here.shape == tuple(b.shape)
        np.testing.assert_allclose(b.numpy(), theirs_here, rtol=2e-5, atol=2e-5)


def table(length: int, half: int) -> tuple[np.ndarray, np.ndarray]:
    angles = np.arange(length)[:, None] / 10 ** (np.arange(half) / half)[None]
    return np.cos(angles).astype("float32"), np.sin(angles).astype("float32")


def nbits(rows: int, columns: int, block: int, bits: int) -> list[np.ndarray]:
    blocks = -(-columns // block)
    packed = ints(256, rows, blocks, block * bits // 8, dtype="uint8")
    zeros = ints(256, rows * -(-blocks * bits // 8), dtype="uint8")
    return [rand(3, columns), packed, np.abs(rand(rows * blocks)) + 0.1, zeros]


X, SKIP, G = rand(B, S, W), rand(B, S, W, seed=1), rand(W)
COS, SIN = table(16, D // 2)
PAST = rand(2, B, H, 3, D)
LENGTHS = np.array([5, 3], "int32")
SQUARE = (rand(B, S, S) > -0.5).astype("int32")
RAW = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32")
QKV = [rand(W, 3 * W), rand(3 * W)]

CASES: dict[str, tuple[Any, ...]] = {
    "FastGelu": ("FastGelu", [X, G]),
    "FastGelu without bias": ("FastGelu", [X]),
    "BiasGelu": ("BiasGelu", [X, G]),
    "Gelu": ("Gelu", [X]),
    "QuickGelu": ("QuickGelu", [X], 1, {"alpha": 1.5}),
    "FusedMatMul": ("FusedMatMul", [rand(2, 3, 4), rand(2, 5, 4)], 1, {"transB": 1, "alpha": 0.5}),
    "FusedMatMul, both": ("FusedMatMul", [rand(2, 4, 3), rand(4, 5)], 1, {"transA": 1}),
    "FusedMatMul, batches": ("FusedMatMul", [rand(3, 2, 4), rand(2, 4, 5)], 1, {"transBatchA": 1}),
    "FusedGemm": ("FusedGemm", [rand(3, 4), rand(4, 5), rand(5)], 1, {"activation": "Relu"}),
    "FusedConv": (
        "FusedConv",
        [rand(1, 2, 6, 6), rand(3, 2, 3, 3), rand(3)],
        1,
        {"activation": "LeakyRelu", "activation_params": [0.2], "pads": [1, 1, 1, 1]},
    ),
    "SkipLayerNormalization": (
        "SkipLayerNormalization",
        [X, SKIP, G, rand(W, seed=2), rand(W, seed=3)],
        4,
    ),
    "SkipSimplifiedLayerNormalization": ("SkipSimplifiedLayerNormalization", [X, SKIP, G]),
    "EmbedLayerNormalization": (
        "EmbedLayerNormalization",
        [ints(9, B, S), ints(2, B, S), rand(9, W), rand(7, W), rand(2, W), G, rand(W, seed=2), RAW],
        2,
    ),
    "EmbedLayerNormalization, positions": (
        "EmbedLayerNormalization",
        [
            ints(9, B, S),
            None,
            rand(9, W),
            rand(7, W),
            None,
            G,
            rand(W, seed=2),
            None,
            ints(7, B, S),
        ],
        2,
    ),
    "MatMulNBits": (
        "MatMulNBits",
        nbits(6, 40, 16, 4),
        1,
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
    ),
    "MatMulNBits without zeros": (
        "MatMulNBits",
        nbits(6, 32, 16, 4)[:3],
        1,
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
    ),
    "MatMulNBits of 8": (
        "MatMulNBits",
        nbits(6, 32, 16, 8),
        1,
        {"K": 32, "N": 6, "bits": 8, "block_size": 16},
    ),
    "Attention": ("Attention", [X, *QKV], 1, {"num_heads": H}),
    "Attention, lengths": ("Attention", [X, *QKV, LENGTHS], 1, {"num_heads": H}),
    "Attention, raw mask": ("Attention", [X, *QKV, RAW], 1, {"num_heads": H}),
    "Attention, square mask": ("Attention", [X, *QKV, SQUARE], 1, {"num_heads": H}),
    "Attention, causal, past": (
        "Attention",
        [X, *QKV, None, PAST],
        2,
        {"num_heads": H, "unidirectional": 1},
    ),
    "Attention, bias": (
        "Attention",
        [X, *QKV, None, None, rand(B, H, S, S)],
        1,
        {"num_heads": H, "scale": 0.3},
    ),
    "Attention, sizes": (
        "Attention",
        [X, rand(W, 80), rand(80)],
        1,
        {"num_heads": H, "qkv_hidden_sizes": [32, 32, 16]},
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention",
        [X, rand(B, 7, W), rand(B, 7, W, seed=4)],
        1,
        {"num_heads": H},
    ),
    "MultiHeadAttention, bias, mask": (
        "MultiHeadAttention",
        [X, SKIP, X, rand(3 * W), RAW],
        1,
        {"num_heads": H},
    ),
    "MultiHeadAttention, past": (
        "MultiHeadAttention",
        [X, SKIP, X, None, None, rand(B, H, S, S + 3), PAST[0], PAST[1]],
        3,
        {"num_heads": H},
    ),
    "MultiHeadAttention, causal": (
        "MultiHeadAttention",
        [X, SKIP, X],
        1,
        {"num_heads": H, "unidirectional": 1},
    ),
    "MultiHeadAttention, heads": (
        "MultiHeadAttention",
        [X, rand(B, H, 6, D), rand(B, H, 6, D, seed=5)],
        1,
        {"num_heads": H},
    ),
    "RotaryEmbedding": ("RotaryEmbedding", [X, ints(16, B, S, dtype="int64"), COS, SIN]),
    "RotaryEmbedding, offset": (
        "RotaryEmbedding",
        [rand(B, H, S, D), np.array([3], "int64"), COS, SIN],
        1,
        {"interleaved": 1},
    ),
    "RotaryEmbedding, part": (
        "RotaryEmbedding",
        [X, ints(16, B, S, dtype="int64"), COS[:, :2], SIN[:, :2]],
        1,
        {"rotary_embedding_dim": 4, "num_heads": H},
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        [
            X,
            rand(B, S, 2 * D),
            rand(B, S, 2 * D, seed=6),
            None,
            None,
            np.array([4, 4], "int32"),
            np.array(5, "int32"),
        ],
        3,
        {"num_heads": H, "kv_num_heads": 2},
    ),
    "GroupQueryAttention, cache, rotary": (
        "GroupQueryAttention",
        [
            rand(B, 1, 4 * 16),
            rand(B, 1, 2 * 16),
            rand(B, 1, 2 * 16, seed=6),
            rand(B, 2, 6, 16),
            rand(B, 2, 6, 16, seed=7),
            np.array([6, 6], "int32"),
            np.array(7, "int32"),
            *table(16, 8),
        ],
        3,
        {"num_heads": H, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "GroupQueryAttention, window, cap": (
        "GroupQueryAttention",
        [
            X,
            rand(B, S, 2 * D),
            rand(B, S, 2 * D, seed=6),
            None,
            None,
            np.array([4, 4], "int32"),
            np.array(5, "int32"),
        ],
        3,
        {"num_heads": H, "kv_num_heads": 2, "local_window_size": 2, "softcap": 5.0},
    ),
    "DequantizeLinear": (
        "DequantizeLinear",
        [ints(255, 3, 4, dtype="uint8"), np.array(0.1, "float32"), np.array(3, "uint8")],
    ),
    "QuantizeLinear": (
        "QuantizeLinear",
        [rand(3, 4), np.array(0.1, "float32"), np.array(3, "uint8")],
    ),
    "Trilu": ("Trilu", [rand(3, 4), np.array(1, "int64")]),
}


@pytest.mark.parametrize("case", CASES)
def test_equals_onnxruntime(case: str) -> None:
    op, inputs, *rest = CASES[case]
    outputs, attrs = [*rest, *[1, {}][len(rest) :]]
    compare(op, inputs, outputs, **attrs)


def test_simplified_layer_norm() -> None:
    """ONNX Runtime registers it under ONNX's own domain."""
    compare("SimplifiedLayerNormalization", [X, G], 1, "", axis=-1, epsilon=1e-6)


def test_what_has_no_rule_says_so() -> None:
    model = model_of("Attention", [X, *QKV], 1, num_heads=H, do_rotary=1)
    with pytest.raises(OnnxError, match="do_rotary"):
        OnnxLayer(model)(*[paddle.to_tensor(x) for x in (X, *QKV)])
