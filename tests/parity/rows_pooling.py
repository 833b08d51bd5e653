"""Pooling: windows, strides, ceil mode, exclusive counts, masks, adaptive sizes."""

from tests.parity.table import T, V, case, case_fn, layer

F = "nn.functional."

for kind in ("max", "avg"):
    case(F + f"{kind}_pool1d", T(2, 3, 8), 2)
    case(F + f"{kind}_pool1d", T(2, 3, 8), 3, stride=2, padding=1)
    case(F + f"{kind}_pool1d", T(2, 3, 7), 2, stride=2, ceil_mode=True)
    case(F + f"{kind}_pool2d", T(2, 3, 6, 6), 2)
    case(F + f"{kind}_pool2d", T(2, 3, 6, 6), 3, stride=2, padding=1)
    case(F + f"{kind}_pool2d", T(2, 3, 7, 6), [3, 2], stride=[2, 1])
    case(F + f"{kind}_pool2d", T(2, 3, 7, 7), 2, ceil_mode=True)
    case(F + f"{kind}_pool2d", T(2, 3, 7, 7), 3, stride=2, padding=1, ceil_mode=True)
    case(F + f"{kind}_pool2d", T(2, 3, 7, 7), 3, padding="SAME")
    case(F + f"{kind}_pool2d", T(2, 3, 7, 7), 3, padding="VALID")
    case(F + f"{kind}_pool2d", T(2, 3, 7, 7), 3, padding=[1, 0])
    case(F + f"{kind}_pool2d", T(2, 3, 7, 7), 3, padding=[1, 0, 0, 1])
    case(F + f"{kind}_pool2d", T(2, 6, 6, 3), 2, data_format="NHWC")
    case(F + f"{kind}_pool2d", T(2, 3, 6, 6, dtype="float64"), 2)
    case(F + f"{kind}_pool3d", T(1, 2, 4, 4, 4), 2)
    case(F + f"{kind}_pool3d", T(1, 2, 5, 5, 5), 3, stride=2, padding=1)
    case(F + f"adaptive_{kind}_pool1d", T(2, 3, 8), 4)
    case(F + f"adaptive_{kind}_pool1d", T(2, 3, 7), 3)
    case(F + f"adaptive_{kind}_pool2d", T(2, 3, 6, 6), 1)
    case(F + f"adaptive_{kind}_pool2d", T(2, 3, 7, 5), [3, 2])
    case(F + f"adaptive_{kind}_pool2d", T(2, 3, 6, 6), [None, 2])
    case(F + f"adaptive_{kind}_pool3d", T(1, 2, 4, 5, 4), 2)
case(F + "avg_pool1d", T(2, 3, 8), 3, padding=1, exclusive=False)
case(F + "avg_pool2d", T(2, 3, 6, 6), 3, padding=1, exclusive=False)
case(F + "avg_pool2d", T(2, 3, 6, 6), 2, divisor_override=3)
case(F + "avg_pool2d", T(2, 3, 7, 7), 3, stride=2, padding=1, ceil_mode=True, exclusive=False)
case(F + "avg_pool3d", T(1, 2, 4, 4, 4), 3, padding=1, exclusive=False)
case(F + "max_pool1d", T(2, 3, 8), 2, return_mask=True)
case(F + "max_pool2d", T(2, 3, 6, 6), 2, return_mask=True)
case(F + "max_pool2d", T(2, 3, 7, 7), 3, stride=2, padding=1, return_mask=True)
case(F + "max_pool3d", T(1, 2, 4, 4, 4), 2, return_mask=True)
case(F + "adaptive_max_pool2d", T(2, 3, 7, 5), [3, 2], return_mask=True)
case(F + "max_pool2d", V([[[[1.0, 1.0], [1.0, 1.0]]]], grad=True), 2, _finite_difference=False)
case(F + "max_unpool2d", T(1, 1, 2, 2), V([[[[0, 3], [8, 14]]]], "int32"), 2)
case_fn("pool-and-unpool", lambda p, x: p.nn.functional.max_unpool2d(
    *p.nn.functional.max_pool2d(x, 2, return_mask=True), 2), T(2, 3, 4, 4))  # fmt: skip
case_fn("pool1d-and-unpool", lambda p, x: p.nn.functional.max_unpool1d(
    *p.nn.functional.max_pool1d(x, 2, return_mask=True), 2), T(2, 3, 4))  # fmt: skip
case(F + "lp_pool1d", T(2, 3, 8, low=0.1), 2.0, 2)
case(F + "lp_pool2d", T(2, 3, 6, 6, low=0.1), 2.0, 2)

layer("nn.MaxPool1D", 2, inputs=[T(2, 3, 8)])
layer("nn.MaxPool2D", 2, 2, inputs=[T(2, 3, 6, 6)])
layer("nn.MaxPool2D", 2, return_mask=True, inputs=[T(2, 3, 6, 6)])
layer("nn.MaxPool3D", 2, inputs=[T(1, 2, 4, 4, 4)])
layer("nn.AvgPool1D", 2, inputs=[T(2, 3, 8)])
layer("nn.AvgPool2D", 3, 2, 1, inputs=[T(2, 3, 6, 6)])
layer("nn.AvgPool3D", 2, inputs=[T(1, 2, 4, 4, 4)])
layer("nn.AdaptiveAvgPool1D", 3, inputs=[T(2, 3, 7)])
layer("nn.AdaptiveAvgPool2D", 1, inputs=[T(2, 3, 6, 6)])
layer("nn.AdaptiveAvgPool3D", 2, inputs=[T(1, 2, 4, 4, 4)])
layer("nn.AdaptiveMaxPool1D", 3, inputs=[T(2, 3, 7)])
layer("nn.AdaptiveMaxPool2D", [3, 2], inputs=[T(2, 3, 7, 5)])
layer("nn.AdaptiveMaxPool3D", 2, inputs=[T(1, 2, 4, 4, 4)])
