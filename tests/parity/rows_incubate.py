"""What `paddle.incubate` computes on a CPU."""

from tests.parity.table import I, T, V, case, case_fn, raises

N = "incubate.nn.functional."
SMALL = {"_rtol": 1e-4, "_atol": 1e-4}

case(N + "swiglu", T(2, 3, 8))
case(N + "swiglu", T(2, 8), T(2, 8))
case_fn("fused_rms_norm", lambda p, *a: p.incubate.nn.functional.fused_rms_norm(*a, 1e-5, 2),
        T(2, 3, 8), T(8), T(8), _check_grad=False, **SMALL)  # fmt: skip
case_fn("fused_rms_norm-residual",
        lambda p, x, w, b, c, r: p.incubate.nn.functional.fused_rms_norm(x, w, b, 1e-5, -1, c, r),
        T(2, 3, 8), T(8), T(8), T(8), T(2, 3, 8), _check_grad=False, **SMALL)  # fmt: skip
case_fn("fused_layer_norm-residual",
        lambda p, x, w, b, c, r: p.incubate.nn.functional.fused_layer_norm(
            x, w, b, 1e-5, 0.5, 2, c, r),
        T(2, 3, 8), T(8), T(8), T(8), T(2, 3, 8), _check_grad=False, **SMALL)  # fmt: skip
case_fn("fused_layer_norm",
        lambda p, x, w, b, c: [p.incubate.nn.functional.fused_layer_norm(
            x, w, b, 1e-5, begin_norm_axis=1, bias=c)[i] for i in (0, 2, 3)],
        T(2, 8), T(8), T(8), T(8), _check_grad=False, **SMALL)  # fmt: skip
case_fn("fused_layer_norm-no-norm",
        lambda p, x, c, r: p.incubate.nn.functional.fused_layer_norm(
            x, None, None, 1e-5, 0.5, 1, c, r)[0],
        T(2, 8), T(8), T(2, 8), _check_grad=False, **SMALL)  # fmt: skip
case(N + "fused_dropout_add", T(2, 8), T(2, 8), 0.0)
case(N + "fused_dropout_add", T(2, 8), T(2, 8), 0.5, False)
case(N + "fused_matmul_bias", T(2, 8), T(8, 3))

case("incubate.softmax_mask_fuse", T(2, 3, 4, 4), T(2, 1, 4, 4, grad=False), **SMALL)
case("incubate.identity_loss", T(3, 4))
case("incubate.identity_loss", T(3, 4), "mean")
case("incubate.identity_loss", T(3, 4), 0)
raises("incubate.identity_loss", T(3), "max")
IDS = V([0, 0, 2, 2, 2], "int64")
for _name in ("sum", "mean", "max", "min"):
    case(f"incubate.segment_{_name}", T(5, 3), IDS)
    case("incubate.graph_send_recv", T(4, 3), V([0, 1, 2, 0], "int64"), V([1, 2, 1, 0], "int64"),
         _name)  # fmt: skip
case("incubate.graph_send_recv", T(4, 3), I(5, low=0, high=4), I(5, low=0, high=3), out_size=3)
case("incubate.graph_reindex", V([0, 1, 2], "int64"), V([8, 9, 0, 4, 7, 6, 7], "int64"),
     V([2, 3, 2], "int32"))  # fmt: skip
