"""Normalisation, in training and evaluation mode; running statistics are compared as well."""

from tests.parity.table import T, V, case, half, layer

F = "nn.functional."
LOOSE = {"_rtol": 2e-4, "_atol": 2e-5}


def stats(channels):
    """Running mean and variance."""
    return T(channels, grad=False), T(channels, low=0.5, grad=False)


for shape in ((4, 3), (4, 3, 5), (4, 3, 2, 2)):
    case(F + "batch_norm", T(*shape), *stats(3), T(3), T(3), training=False, **LOOSE)
    case(F + "batch_norm", T(*shape), *stats(3), T(3), T(3), training=True, **LOOSE)
case(
    F + "batch_norm",
    T(4, 2, 2, 3),
    *stats(3),
    T(3),
    T(3),
    training=True,
    data_format="NHWC",
    **LOOSE,
)
case(F + "batch_norm", T(4, 3, 2, 2), *stats(3), training=False, **LOOSE)
case(F + "batch_norm", T(4, 3, 2, 2), *stats(3), T(3), T(3), training=True, momentum=0.5,
     epsilon=1e-3,
     **LOOSE)  # fmt: skip
case(
    F + "batch_norm", T(4, 3), *stats(3), T(3), T(3), training=True, use_global_stats=True, **LOOSE
)
case(F + "layer_norm", T(4, 5), 5, T(5), T(5), **LOOSE)
case(F + "layer_norm", T(4, 5), [5], **LOOSE)
case(F + "layer_norm", T(2, 3, 4), [3, 4], T(12), T(12), **LOOSE)
case(F + "layer_norm", T(2, 3, 4), 4, weight=T(4), epsilon=1e-3, **LOOSE)
case(F + "layer_norm", T(2, 3, 4), 4, bias=T(4), **LOOSE)
case(F + "layer_norm", T(4, 5, dtype="float64"), 5, T(5, dtype="float64"), T(5, dtype="float64"))
half(F + "layer_norm", T(4, 5), 5, _check_grad=False)
case(F + "group_norm", T(2, 4, 3, 3), 2, weight=T(4), bias=T(4), **LOOSE)
case(F + "group_norm", T(2, 4, 3, 3), 4, _paddle_grad=False, **LOOSE)
case(F + "group_norm", T(2, 3, 3, 4), 2, weight=T(4), bias=T(4), data_format="NHWC", **LOOSE)
case(F + "instance_norm", T(2, 3, 4, 4), **LOOSE)
case(F + "instance_norm", T(2, 3, 4, 4), weight=T(3), bias=T(3), **LOOSE)
case(F + "instance_norm", T(2, 3, 5), **LOOSE)
case(F + "local_response_norm", T(2, 5, 4, 4), 3, **LOOSE)
case(F + "local_response_norm", T(2, 5, 4), 3, alpha=0.1, beta=0.5, k=2.0, **LOOSE)
case(F + "normalize", T(3, 4), **LOOSE)
case(F + "normalize", T(3, 4), p=1, axis=0, **LOOSE)
case(F + "normalize", V([[0.0, 0.0], [3.0, 4.0]]))

for mode in (False, True):
    layer("nn.BatchNorm1D", 3, inputs=[T(4, 3)], _eval=mode, **LOOSE)
    layer("nn.BatchNorm1D", 3, inputs=[T(4, 3, 5)], _eval=mode, **LOOSE)
    layer("nn.BatchNorm2D", 3, inputs=[T(4, 3, 2, 2)], _eval=mode, **LOOSE)
    layer("nn.BatchNorm3D", 3, inputs=[T(2, 3, 2, 2, 2)], _eval=mode, **LOOSE)
layer("nn.BatchNorm2D", 3, momentum=0.3, epsilon=1e-3, inputs=[T(4, 3, 2, 2)], **LOOSE)
layer("nn.BatchNorm2D", 3, weight_attr=False, bias_attr=False, inputs=[T(4, 3, 2, 2)], **LOOSE)
layer("nn.BatchNorm2D", 3, data_format="NHWC", inputs=[T(4, 2, 2, 3)], **LOOSE)
layer("nn.BatchNorm2D", 3, use_global_stats=True, inputs=[T(4, 3, 2, 2)], **LOOSE)
layer("nn.BatchNorm", 3, inputs=[T(4, 3, 2, 2)], **LOOSE)
layer("nn.LayerNorm", 5, inputs=[T(4, 5)], **LOOSE)
layer("nn.LayerNorm", [3, 4], inputs=[T(2, 3, 4)], **LOOSE)
layer("nn.LayerNorm", 5, weight_attr=False, bias_attr=False, inputs=[T(4, 5)], **LOOSE)
layer("nn.GroupNorm", 2, 4, inputs=[T(2, 4, 3, 3)], **LOOSE)
layer("nn.InstanceNorm1D", 3, inputs=[T(2, 3, 5)], **LOOSE)
layer("nn.InstanceNorm2D", 3, inputs=[T(2, 3, 4, 4)], **LOOSE)
layer("nn.InstanceNorm3D", 3, inputs=[T(2, 3, 2, 2, 2)], **LOOSE)
layer("nn.LocalResponseNorm", 3, inputs=[T(2, 5, 4, 4)], **LOOSE)
layer("nn.SpectralNorm", [3, 4], inputs=[T(3, 4)], _paddle_grad=False, **LOOSE)
