"""Embedding, padding, resampling, attention and the other common functions."""

from tests.parity.table import B, I, T, V, case, case_fn, half

F = "nn.functional."
IDS = V([[0, 2], [1, 3]], "int64")

case(F + "linear", T(2, 3), T(3, 4))
case(F + "linear", T(2, 3), T(3, 4), T(4))
case(F + "linear", T(5, 2, 3), T(3, 4), T(4))
case(F + "linear", T(0, 3), T(3, 4), T(4))
half(F + "linear", T(2, 3), T(3, 4), T(4), _atol=5e-2)
case(F + "embedding", IDS, T(5, 3))
case(F + "embedding", IDS, T(5, 3), padding_idx=2)
case(F + "embedding", IDS, T(5, 3), padding_idx=-1)
case(F + "embedding", V([1, 1, 1], "int32"), T(5, 3))
case(F + "embedding", V([], "int64"), T(5, 3))
case(F + "one_hot", I(2, 3, high=4), 4)
case(F + "bilinear", T(2, 3), T(2, 4), T(5, 3, 4), T(1, 5))
case(F + "cosine_similarity", T(3, 4), T(3, 4), _rtol=1e-4)
case(F + "cosine_similarity", T(3, 4), T(3, 4), axis=0, _rtol=1e-4)
case(F + "pairwise_distance", T(3, 4), T(3, 4), _rtol=1e-4)
case(F + "pairwise_distance", T(3, 4), T(3, 4), p=1.0, keepdim=True)
case(F + "sequence_mask", V([1, 3, 2], "int64"))
case(F + "sequence_mask", V([1, 3, 2], "int64"), maxlen=4, dtype="float32")
case(F + "dropout", T(3, 4), p=0.0)
case(F + "dropout", T(3, 4), p=0.5, training=False)
case(F + "dropout", T(3, 4), p=0.5, training=False, mode="downscale_in_infer")
case(F + "dropout2d", T(2, 3, 4, 4), p=0.5, training=False)
case(F + "dropout3d", T(2, 3, 2, 2, 2), p=0.0)
case(F + "alpha_dropout", T(3, 4), p=0.5, training=False)
case(F + "dropout", T(3, 4), p=1.0)

case(F + "pad", T(2, 3), [1, 1, 0, 2])
case(F + "pad", T(2, 3, 4), [1, 2])
case(F + "pad", T(2, 3, 4), [1, 2], data_format="NLC")
for mode in ("constant", "reflect", "replicate", "circular"):
    case(F + "pad", T(2, 3, 4, 4), [1, 2, 0, 1], mode=mode)
    case(F + "pad", T(1, 2, 3, 3, 3), [1, 1, 0, 1, 1, 0], mode=mode, data_format="NCDHW")
    case(F + "pad", T(2, 3, 5), [2, 1], mode=mode, data_format="NCL")
case(F + "pad", T(2, 4, 4, 3), [1, 2, 0, 1], mode="reflect", data_format="NHWC")
case(F + "pad", T(2, 3, 4, 4), [1, 1, 1, 1], value=3.5)
case(F + "pad", I(2, 3), [1, 1, 1, 1], value=7)
case(F + "zeropad2d", T(2, 3, 4, 4), [1, 0, 2, 1])

for mode in ("nearest", "bilinear", "bicubic", "area"):
    case(F + "interpolate", T(1, 2, 4, 4), size=[7, 6], mode=mode, _rtol=1e-4, _atol=1e-4)
    if mode != "area":
        case(F + "interpolate", T(1, 2, 5, 4), scale_factor=2, mode=mode, _rtol=1e-4, _atol=1e-4)
    case(F + "interpolate", T(1, 2, 6, 6), size=[3, 4], mode=mode, _rtol=1e-4, _atol=1e-4)
for mode in ("bilinear", "bicubic"):
    case(F + "interpolate", T(1, 2, 4, 4), size=[7, 6], mode=mode, align_corners=True, _rtol=1e-4,
         _atol=1e-4)  # fmt: skip
case(F + "interpolate", T(1, 2, 4, 4), size=[7, 6], mode="bilinear", align_mode=1, _rtol=1e-4)
case(F + "interpolate", T(1, 4, 4, 2), size=[7, 6], mode="bilinear", data_format="NHWC", _rtol=1e-4)
case(F + "interpolate", T(1, 2, 5), size=[8], mode="linear", data_format="NCW", _rtol=1e-4)
case(F + "interpolate", T(1, 2, 3, 3, 3), size=[4, 5, 6], mode="trilinear", data_format="NCDHW",
     _rtol=1e-4)  # fmt: skip
case(F + "interpolate", T(1, 2, 3, 3, 3), size=[4, 5, 6], mode="nearest", data_format="NCDHW")
case(F + "upsample", T(1, 2, 4, 4), scale_factor=2, mode="nearest")
case(F + "grid_sample", T(1, 2, 4, 4), T(1, 3, 3, 2, low=-0.9, high=0.9), _rtol=1e-4, _atol=1e-4)
case(F + "grid_sample", T(1, 2, 4, 4), T(1, 3, 3, 2), mode="nearest", align_corners=False,
     _check_grad=False)  # fmt: skip
case(F + "grid_sample", T(1, 2, 4, 4), T(1, 3, 3, 2), padding_mode="border", align_corners=False,
     _rtol=1e-4, _atol=1e-4, _finite_difference=False)  # fmt: skip
case(F + "grid_sample", T(1, 2, 4, 4), T(1, 3, 3, 2), padding_mode="reflection", _rtol=1e-4,
     _atol=1e-4, _finite_difference=False)  # fmt: skip
case(F + "affine_grid", T(2, 2, 3), [2, 3, 4, 5])
case(F + "affine_grid", T(2, 2, 3), [2, 3, 4, 5], align_corners=False)
case(F + "pixel_shuffle", T(2, 8, 3, 3), 2)
case(F + "pixel_shuffle", T(2, 3, 3, 8), 2, data_format="NHWC")
case(F + "pixel_unshuffle", T(2, 2, 4, 4), 2)
case(F + "channel_shuffle", T(2, 6, 3, 3), 3)
case(F + "unfold", T(2, 3, 5, 5), 3)
case(F + "unfold", T(2, 3, 6, 6), [3, 2], strides=2, paddings=1, dilations=1)
case(F + "fold", T(2, 12, 9), [4, 4], [2, 2])
case(F + "fold", T(2, 12, 4), [4, 4], 2, strides=2)
case(F + "temporal_shift", T(4, 4, 3, 3), 2, 0.25)
case(F + "gather_tree", I(3, 2, 2, high=2), I(3, 2, 2, high=2))
case(F + "scaled_dot_product_attention", T(2, 3, 2, 4), T(2, 5, 2, 4), T(2, 5, 2, 4), _rtol=1e-4,
     _atol=1e-4)  # fmt: skip
case(F + "scaled_dot_product_attention", T(2, 4, 2, 4), T(2, 4, 2, 4), T(2, 4, 2, 4),
     is_causal=True,
     _rtol=1e-4, _atol=1e-4)  # fmt: skip
case(F + "scaled_dot_product_attention", T(2, 3, 2, 4), T(2, 5, 2, 4), T(2, 5, 2, 4),
     attn_mask=T(2, 2, 3, 5, grad=False), _rtol=1e-4, _atol=1e-4)  # fmt: skip
case(F + "scaled_dot_product_attention", T(2, 3, 2, 4), T(2, 5, 2, 4), T(2, 5, 2, 4),
     attn_mask=V([[[[True, True, False, True, True]] * 3] * 2] * 2, "bool"), _rtol=1e-4,
     _atol=1e-4)  # fmt: skip
case(F + "gumbel_softmax", T(3, 4), _check_value=False)
case_fn("dropout-keeps-mean-shape", lambda p, x: p.nn.functional.dropout(x, 0.5).shape, T(3, 4),
        _check_grad=False)  # fmt: skip
case_fn("embedding-sum", lambda p, w, m: (p.nn.functional.embedding(p.to_tensor([0, 1, 1]), w) *
        m.astype("float32").unsqueeze(-1)).sum(0), T(4, 3), B(3))  # fmt: skip

case(F + "embedding", IDS, T(5, 3, grad=False), max_norm=1.0, _rtol=1e-4)
case(F + "scaled_dot_product_attention", T(3, 2, 4), T(3, 2, 4), T(3, 2, 4), _rtol=1e-4, _atol=1e-4)
case(F + "flash_attention.flash_attention", T(1, 3, 2, 4), T(1, 3, 2, 4), T(1, 3, 2, 4),
     return_softmax=True, _rtol=1e-4, _atol=1e-4, _check_grad=False)  # fmt: skip
