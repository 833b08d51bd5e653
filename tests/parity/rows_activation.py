"""Activations: values, gradients, dtypes and what happens at the corners."""

from tests.parity.table import I, T, V, case, case_fn, half, layer, method, raises

F = "nn.functional."
PLAIN = (
    "relu", "relu6", "sigmoid", "tanh", "gelu", "silu", "swish", "mish", "softsign", "tanhshrink",
    "log_sigmoid",
    "hardswish", "hardsigmoid", "hardtanh", "hardshrink", "softshrink", "softplus", "elu", "celu",
    "selu",
    "leaky_relu", "thresholded_relu",
)  # fmt: skip
for name in PLAIN:
    case(F + name, T(3, 4, low=-4, high=4), _rtol=3e-5)
    case(F + name, T(2, 0))
    case(F + name, T())
    case(F + name, T(2, 3, dtype="float64"))
for name in ("relu", "gelu", "silu", "sigmoid", "leaky_relu"):
    half(F + name, T(3, 4))
for name in ("relu", "gelu", "elu", "hardswish", "softplus", "silu", "log_sigmoid"):
    case(F + name, V([0.0, -0.0, 100.0, -100.0, float("inf")]))
case(F + "gelu", T(3, 4), approximate=True)
case(F + "elu", T(3, 4), alpha=0.3)
case(F + "celu", T(3, 4), alpha=0.3)
case(F + "selu", T(3, 4), scale=1.5, alpha=1.2)
case(F + "leaky_relu", T(3, 4), negative_slope=0.2)
case(F + "hardtanh", T(3, 4), min=-0.5, max=0.7)
case(F + "hardshrink", T(3, 4), threshold=1.0)
case(F + "softshrink", T(3, 4), threshold=1.0)
case(F + "softplus", T(3, 4, low=-9, high=9), beta=2.0, threshold=5.0)
case(F + "thresholded_relu", T(3, 4), threshold=0.5, value=-1.0)
case(F + "hardsigmoid", T(3, 4), slope=0.2, offset=0.4)
case(F + "prelu", T(2, 3, 4), T(1))
case(F + "prelu", T(2, 3, 4), T(3))
case(F + "prelu", T(2, 4, 3), T(3), data_format="NLC")
case(F + "rrelu", T(3, 4), training=False)
for name in ("softmax", "log_softmax"):
    case(F + name, T(3, 4))
    case(F + name, T(3, 4), axis=0)
    case(F + name, T(2, 3, 4), axis=1)
    case(F + name, T(3, 4), dtype="float64")
    case(F + name, T())
    case(F + name, T(2, 0))
    case(F + name, V([1000.0, 1000.0, 990.0]))
    half(F + name, T(3, 4))
case(F + "maxout", T(2, 4, 3, 3), 2)
case(F + "glu", T(3, 4))
case(F + "glu", T(4, 3), axis=0)
case(F + "swiglu", T(3, 4), T(3, 4))
case(F + "swiglu", T(3, 4))
for name in ("relu_", "elu_", "softmax_", "tanh_", "leaky_relu_"):

    def run(p, x, name=name):
        y = x * 1.0
        return getattr(p.nn.functional, name)(y), y

    case_fn(f"in-place-{name}", run, T(3, 4))
case_fn("relu-at-zero", lambda p, x: p.nn.functional.relu(x), V([0.0, 1.0, -1.0], grad=True),
        _finite_difference=False)  # fmt: skip
method("sigmoid", T(3, 4))
method("tanh", T(3, 4))

for name in ("ReLU", "ReLU6", "Sigmoid", "Tanh", "GELU", "Silu", "Swish", "Mish", "Softsign",
     "Tanhshrink",
             "LogSigmoid", "Hardswish", "Hardsigmoid", "Hardtanh", "Hardshrink", "Softshrink",
             "Softplus",
             "ELU", "CELU", "SELU", "LeakyReLU", "ThresholdedReLU", "Softmax", "LogSoftmax", "GLU",
             "Identity"):  # fmt: skip
    layer(f"nn.{name}", inputs=[T(3, 4)])
layer("nn.PReLU", 3, inputs=[T(2, 3, 4)])
layer("nn.Maxout", 2, inputs=[T(2, 4, 3, 3)])
layer("nn.Softmax2D", inputs=[T(2, 3, 4, 4)])
layer("nn.RReLU", inputs=[T(3, 4)], _eval=True)
case("nn.functional.gelu", T(2, 3), "none")
case("nn.functional.gelu", T(2, 3), "tanh")
raises("nn.functional.softmax", T(2, 3), dtype="int32")
raises("nn.functional.log_softmax", T(2, 3), dtype="int32")
raises("nn.functional.dropout", I(2, 3))
raises("nn.functional.dropout2d", T(2, 3))
raises("nn.functional.dropout3d", T(2, 3))
raises("nn.functional.normalize", T(3))
raises("nn.functional.prelu", 1.0, T(1))
raises("nn.functional.interpolate", T(1, 1, 4, 4), size=[8, 8], mode="bicubic", align_corners=None)
