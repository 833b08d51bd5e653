"""Names that no other file has a reason to call: small functions, attributes, layers."""

from typing import Any

import numpy as np

from tests.parity.table import B, I, T, V, case, case_fn, layer, layer_fn, method, raises

# --- functions ----------------------------------------------------------------------------------


def _changed_after_asarray(p: Any) -> Any:
    x = p.ones([2])
    x.stop_gradient = False
    y = p.asarray(x)
    y[0] = 5.0
    return x.detach(), y, y.stop_gradient


case_fn("asarray-of a tensor", _changed_after_asarray)
case_fn("cumsum_-flat", lambda p, x: p.cumsum_(x + 0), T(2, 3))
case_fn("cumsum_-axis", lambda p, x: p.cumsum_(x + 0, axis=1), T(2, 3))
case_fn("cumprod_-flat", lambda p, x: p.cumprod_(x + 0), T(2, 3), _finite_difference=False)
case_fn("Tensor.cumsum_", lambda p, x: (x + 0).cumsum_(0), T(2, 3))
case_fn("pow_", lambda p, x: p.pow_(x + 0, 2.0), T(2, 3))
case_fn("Tensor.pow_", lambda p, x: (x + 0).pow_(3), T(2, 3))
case_fn("multiply_", lambda p, x, y: p.multiply_(x + 0, y), T(2, 3), T(3))
case_fn("Tensor.multiply_", lambda p, x, y: (x + 0).multiply_(y), T(2, 3), T(3))
case_fn("Tensor.mul_", lambda p, x, y: (x + 0).mul_(y), T(2, 3), T(3))
case_fn("sinc_", lambda p, x: p.sinc_(x + 0), T(2, 3, low=0.5))
case_fn("Tensor.sinc_", lambda p, x: (x + 0).sinc_(), T(2, 3, low=0.5))
case_fn("where_", lambda p, c, x, y: p.where_(c, x + 0, y), B(2, 3), T(2, 3), T(2, 3))
case_fn("sub_", lambda p, x, y: p.sub_(x + 0, y), T(2, 3), T(3))
case_fn("Tensor.sub_", lambda p, x, y: (x + 0).sub_(y), T(2, 3), T(3))
case_fn("less_", lambda p, x, y: p.less_(x, y), I(2, 3), I(2, 3))
case_fn("Tensor.less_", lambda p, x, y: x.less_(y), I(2, 3), I(2, 3))
case_fn("bitwise_invert_", lambda p, x: p.bitwise_invert_(x), I(3))
case_fn("Tensor.bitwise_invert_", lambda p, x: x.bitwise_invert_(), I(3))
method("bitwise_invert", I(3))
method("sub", T(2, 3), T(3))
method("mul", T(2, 3), T(3))
method("true_divide", T(2, 3), T(2, 3, low=0.5))
case("true_divide", T(2, 3), T(2, 3, low=0.5))
case("narrow", T(4, 3), 0, 1, 2)
method("narrow", T(4, 3), 1, -2, 2)
case("argwhere", V([[1.0, 0.0], [0.0, 2.0]]))
method("argwhere", V([0, 3, 0, 1], "int64"))
case("view_as_complex", T(3, 2))
method("view_as_complex", T(3, 2))
case("view_as_real", T(3, dtype="complex64"))
method("view_as_real", T(3, dtype="complex64"))
case("histogram_bin_edges", V([1.0, 2.0, 5.0]), bins=4)
method("histogram_bin_edges", V([1.0, 2.0, 5.0]), 4)
case("histogramdd", T(6, 2), bins=[2, 3], ranges=[-2.0, 2.0, -2.0, 2.0], _check_grad=False)
method("histogramdd", T(6, 2), [2, 3], [-2.0, 2.0, -2.0, 2.0], _check_grad=False)
case_fn("broadcast_shapes", lambda p: list(p.broadcast_shapes([2, 1], [1, 3], [3])))
case_fn(
    "is_complex", lambda p, x, z: (p.is_complex(x), p.is_complex(z)), I(2), T(2, dtype="complex64")
)
case_fn("is_integer", lambda p, x, y: (p.is_integer(x), p.is_integer(y)), I(2), T(2))
case_fn(
    "is_floating_point",
    lambda p, x, y: (p.is_floating_point(x), x.is_floating_point(), p.is_floating_point(y)),
    T(2),
    I(2),
)
case_fn("from_numpy", lambda p: p.from_numpy(np.arange(6, dtype="int32").reshape(2, 3)))
case_fn("asarray", lambda p: (p.asarray([1, 2]), p.asarray(np.ones(2), dtype="float32")))
case_fn("tolist", lambda p, x: p.tolist(x), I(2, 3))
case("scatter_reduce", T(3, 4), 0, V([[0, 1, 2, 0]], "int64"), T(1, 4), "sum")
method("scatter_reduce", T(3, 4), 1, V([[0], [1], [3]], "int64"), T(3, 1), "amax")
case("scatter_add", T(3, 4), 0, V([[0, 1, 2, 0]], "int64"), T(1, 4))
method("scatter_add", T(3, 4), 0, V([[0, 1, 2, 0]], "int64"), T(1, 4))
case_fn(
    "scatter_add_",
    lambda p, x, i, y: p.scatter_add_(x + 0, 0, i, y),
    T(3, 4),
    V([[0, 1, 2, 0]], "int64"),
    T(1, 4),
)
case_fn(
    "Tensor.scatter_add_",
    lambda p, x, i, y: (x + 0).scatter_add_(0, i, y),
    T(3, 4),
    V([[0, 1, 2, 0]], "int64"),
    T(1, 4),
)
for name in (
    "FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor", "ByteTensor", "CharTensor",
    "ShortTensor", "IntTensor", "LongTensor", "BoolTensor",
):  # fmt: skip
    case_fn(name, lambda p, name=name: getattr(p, name)([[1, 0, 1]]))
    case_fn(f"{name}-sizes", lambda p, name=name: list(getattr(p, name)(2, 3).shape))
for enabled in (True, False):
    case_fn(
        f"set_grad_enabled-{enabled}",
        lambda p, x, on=enabled: _under(p, p.set_grad_enabled(on), x),
        T(2),
    )
case_fn("no_grad", lambda p, x: _under(p, p.no_grad(), x), T(2))
case_fn("enable_grad", lambda p, x: _under(p, p.enable_grad(), x), T(2))


def _under(p: Any, guard: Any, x: Any) -> Any:
    with guard:
        y = x * 2
        inside = p.is_grad_enabled()
    return y.stop_gradient, inside, p.is_grad_enabled()


case_fn("grad", lambda p, x: p.grad((x * x).sum(), x)[0], T(3), _check_grad=False)
case_fn("default_dtype", lambda p: _with_default(p))


def _with_default(p: Any) -> Any:
    p.set_default_dtype("float64")
    try:
        return p.get_default_dtype(), p.ones([2]), p.to_tensor([1.5])
    finally:
        p.set_default_dtype("float32")


# --- linear algebra -------------------------------------------------------------------------------


def _positive(p: Any, x: Any) -> Any:
    return x @ x.transpose([1, 0]) + p.eye(x.shape[0])


case_fn(
    "cholesky_inverse",
    lambda p, x: p.linalg.cholesky_inverse(p.linalg.cholesky(_positive(p, x))),
    T(3, 3),
    _check_grad=False,
    _rtol=1e-3,
    _atol=1e-4,
)
case_fn(
    "Tensor.cholesky_inverse",
    lambda p, x: p.linalg.cholesky(_positive(p, x)).cholesky_inverse(),
    T(3, 3),
    _check_grad=False,
    _rtol=1e-3,
    _atol=1e-4,
)
case_fn("Tensor.cholesky", lambda p, x: _positive(p, x).cholesky(), T(3, 3), _rtol=1e-3, _atol=1e-4)
case_fn(
    "Tensor.cholesky_solve",
    lambda p, x, y: y.cholesky_solve(p.linalg.cholesky(_positive(p, x))),
    T(3, 3),
    T(3, 2),
    _check_grad=False,
    _rtol=1e-3,
    _atol=1e-4,
)
case("linalg.vecdot", T(3, 4), T(3, 4))
case("linalg.cross", T(2, 3), T(2, 3), axis=1)
case("linalg.matrix_transpose", T(2, 3, 4))
case("linalg.matmul", T(2, 3), T(3, 4))
case("linalg.diagonal", T(3, 4), offset=1)
case_fn(
    "linalg.eig",
    lambda p, x: p.linalg.eig(x)[0].abs().sort(),
    T(3, 3),
    _check_grad=False,
    _rtol=1e-3,
    _atol=1e-4,
)
case_fn(
    "Tensor.eig",
    lambda p, x: x.eig()[0].abs().sort(),
    T(3, 3),
    _check_grad=False,
    _rtol=1e-3,
    _atol=1e-4,
)
case_fn(
    "linalg.lu_solve",
    lambda p, b, x: p.linalg.lu_solve(b, *p.linalg.lu(x)),
    T(3, 2),
    T(3, 3),
    _check_grad=False,
    _rtol=1e-3,
    _atol=1e-3,
)
case_fn(
    "Tensor.lu_unpack",
    lambda p, x: [*x.lu()[0].lu_unpack(x.lu()[1])],
    T(3, 3),
    _check_grad=False,
    _rtol=1e-4,
    _atol=1e-4,
)
raises("linalg.vecdot", T(3, 4), T(3, 5))

# --- attributes and methods of a tensor -----------------------------------------------------------

for name in (
    "bool", "byte", "char", "short", "int", "long", "half", "float", "double", "bfloat16",
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "cfloat",
    "cdouble", "complex64", "complex128",
):  # fmt: skip
    method(name, T(2, 3, low=0.5, high=3), _check_grad=name.startswith(("float", "double", "half")),
           _finite_difference=False, _rtol=2e-2)  # fmt: skip
for name in (
    "is_cuda", "is_leaf", "itemsize", "strides", "offset", "requires_grad", "layout",
 "is_dense", "is_sparse", "is_sparse_coo", "is_sparse_csr", "is_contiguous",
    "is_selected_rows", "is_dist",
):  # fmt: skip

    def read(p: Any, x: Any, name: str = name) -> Any:
        found = getattr(x, name)
        found = found() if callable(found) else found
        return list(found) if isinstance(found, list | tuple) else found

    case_fn(f"Tensor.{name}", read, T(2, 3))
case_fn("Tensor.get_strides", lambda p, x: list(x.get_strides()), T(2, 3))
case_fn("Tensor.stride", lambda p, x: (list(x.stride()), x.stride(0)), T(2, 3))
case_fn("Tensor.contiguous", lambda p, x: x.transpose([1, 0]).contiguous(), T(2, 3))
case_fn(
    "Tensor.is_same_shape", lambda p, x, y: (x.is_same_shape(y), x.is_same_shape(x)), T(2), T(3)
)
case_fn("Tensor.type_as", lambda p, x, y: x.type_as(y), T(2), I(2))
case_fn("Tensor.new_empty", lambda p, x: list(x.new_empty([2, 3]).shape), T(2))
case_fn(
    "Tensor.to",
    lambda p, x: (x.to("float64"), x.to("cpu"), x.to("cpu", "int32")),
    T(2),
    _check_grad=False,
)
case_fn("Tensor.cpu", lambda p, x: x.cpu(), T(2))
case_fn("Tensor.data", lambda p, x: (x.data, x.data.stop_gradient), T(2), _check_grad=False)
case_fn("Tensor.detach_", lambda p, x: (x * 2).detach_().stop_gradient, T(2))
case_fn("Tensor.value", lambda p, x: x.value() + 0, T(2), _check_grad=False)
case_fn("Tensor.copy_", lambda p, x, y: x.copy_(y, True), V([1.0, 2.0]), T(2), _check_grad=False)
case_fn(
    "Tensor.set_value", lambda p, x: (x.set_value(np.array([5, 6], "float32")), x)[1], V([1.0, 2.0])
)
case_fn(
    "Tensor.inplace_version", lambda p, x: (x.inplace_version, x.add_(x).inplace_version), V([1.0])
)
case_fn("Tensor.requires_grad_", lambda p, x: x.requires_grad_(True).stop_gradient, V([1.0]))
case_fn("Tensor.apply", lambda p, x: x.apply(lambda v: v * 2), V([1.0, 2.0]))
case_fn("Tensor.apply_", lambda p, x: x.apply_(lambda v: v * 2), V([1.0, 2.0]))
case_fn("Tensor.fill_diagonal_", lambda p, x: (x + 0).fill_diagonal_(3.0, 1), T(3, 4))
method("fill_diagonal_tensor", T(3, 3), T(3), _paddle_grad=False)
case_fn(
    "Tensor.fill_diagonal_tensor_",
    lambda p, x, y: (x + 0).fill_diagonal_tensor_(y),
    T(3, 3),
    T(3),
    _paddle_grad=False,
)
case_fn("Tensor.clamp_", lambda p, x: (x + 0).clamp_(-1.0, 1.0), T(3))
case_fn("Tensor.sigmoid_", lambda p, x: (x + 0).sigmoid_(), T(3))
case_fn("Tensor.split_with_sizes", lambda p, x: x.split_with_sizes([1, 2], 0), T(3, 2))
case_fn("Tensor.gradient", lambda p, x: _gradient(x), V([1.0, 2.0], grad=True), _check_grad=False)
case_fn(
    "Tensor.clear_grad",
    lambda p, x: _cleared(x, "clear_grad"),
    V([1.0, 2.0], grad=True),
    _check_grad=False,
)
case_fn(
    "Tensor.clear_gradient",
    lambda p, x: _cleared(x, "clear_gradient"),
    V([1.0, 2.0], grad=True),
    _check_grad=False,
)
case_fn(
    "Tensor.register_hook", lambda p, x: _hooked(x), V([1.0, 2.0], grad=True), _check_grad=False
)
case_fn(
    "Tensor.retain_grads", lambda p, x: _retained(x), V([1.0, 2.0], grad=True), _check_grad=False
)


def _gradient(x: Any) -> Any:
    (x * x).sum().backward()
    return x.gradient().tolist()


def _cleared(x: Any, name: str) -> Any:
    (x * x).sum().backward()
    getattr(x, name)()
    return x.grad is None or float(x.grad.abs().sum())


def _hooked(x: Any) -> Any:
    handle = x.register_hook(lambda g: g * 10)
    (x * x).sum().backward()
    handle.remove()
    (x * x).sum().backward()
    return x.grad


def _retained(x: Any) -> Any:
    y = x * 2
    y.retain_grads()
    (y * y).sum().backward()
    return y.grad


# --- layers ---------------------------------------------------------------------------------------

SPATIAL = {1: T(2, 3, 6), 2: T(2, 3, 5, 6), 3: T(1, 2, 4, 5, 6)}
for n, x in SPATIAL.items():
    for kind in ("Constant", "Circular", "Replication", "Reflection"):
        value = (0.5,) if kind == "Constant" else ()
        layer(f"nn.{kind}Pad{n}D", [1, 2] * n, *value, inputs=[x])
    layer(f"nn.Pad{n}D", [1, 2] * n, "replicate", inputs=[x])
    layer_fn(f"MaxUnPool{n}D", lambda p, n=n: _unpool(p, n), [x])
layer("nn.ZeroPad1D", [1, 2], inputs=[SPATIAL[1]])
layer("nn.ZeroPad3D", [1, 2, 0, 1, 2, 0], inputs=[SPATIAL[3]])
layer("nn.LPPool1D", 2.0, 2, inputs=[T(2, 3, 6, low=0.5)])
layer("nn.LPPool2D", 2.0, 2, inputs=[T(2, 3, 4, 6, low=0.5)])
layer("nn.HSigmoidLoss", 4, 4, inputs=[T(3, 4), I(3, 1, high=4)])
layer("nn.TripletMarginWithDistanceLoss", inputs=[T(3, 4), T(3, 4), T(3, 4)])
case_fn(
    "max_unpool3d",
    lambda p, x: p.nn.functional.max_unpool3d(
        *p.nn.functional.max_pool3d(x, 2, return_mask=True), 2
    ),
    T(1, 2, 4, 4, 4),
    _check_grad=False,
)


def _unpool(p: Any, n: int) -> Any:
    class Both(p.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.pool = getattr(p.nn, f"MaxPool{n}D")(2, return_mask=True)
            self.unpool = getattr(p.nn, f"MaxUnPool{n}D")(2)

        def forward(self, x: Any) -> Any:
            return self.unpool(
                *self.pool(
                    x[..., :4] if n == 1 else x[:, :, :4, :4] if n == 2 else x[:, :, :4, :4, :4]
                )
            )

    return Both()


for n, x in ((2, T(1, 2, 6, 7)), (3, T(1, 2, 4, 5, 6))):
    case(f"nn.functional.fractional_max_pool{n}d", x, 2, random_u=0.3)
    layer(f"nn.FractionalMaxPool{n}D", 2, random_u=0.3, inputs=[x])
case_fn("Tensor.where_", lambda p, c, x, y: c.where_(x + 0, y), B(2, 3), T(2, 3), T(2, 3))
case_fn("randn_like", lambda p, x: (p.randn_like(x).shape, p.randn_like(x, "float64").dtype), T(2))
case_fn("rand_like", lambda p, x: (p.rand_like(x).shape, p.rand_like(x, "float64").dtype), T(2))
case_fn("autocast-off", lambda p: (p.is_autocast_enabled(), p.amp.is_autocast_enabled()))
case_fn("cpu_places", lambda p: len(p.static.cpu_places(2)))
case_fn("Size", lambda p: list(p.Size([2, 3])))
case_fn("in_dynamic_mode", lambda p: p.in_dynamic_mode())
case_fn("device-questions", lambda p: (p.device.is_compiled_with_xpu(), p.device.is_compiled_with_rocm(), p.device.is_compiled_with_ipu(), p.device.is_compiled_with_cinn(), p.device.is_compiled_with_custom_device("npu"), p.device.get_device()))  # noqa: E501 # fmt: skip
case_fn("RNNTLoss", lambda p, x: p.nn.RNNTLoss()(p.nn.functional.log_softmax(x), p.to_tensor([[1, 2]], "int32"), p.to_tensor([4], "int32"), p.to_tensor([2], "int32")), T(1, 4, 3, 5), _check_grad=False, _rtol=1e-4)  # noqa: E501 # fmt: skip
case_fn("nms", lambda p, x, s: p.vision.ops.nms(p.concat([x, x + 1], 1), 0.3, s), T(5, 2, low=0, high=3), T(5), _check_grad=False)  # noqa: E501 # fmt: skip
layer("vision.ops.RoIAlign", 2, inputs=[T(1, 2, 6, 6), V([[0.0, 0.0, 4.0, 4.0]]), V([1], "int32")])
layer("vision.ops.RoIPool", 2, inputs=[T(1, 2, 6, 6), V([[0.0, 0.0, 4.0, 4.0]]), V([1], "int32")])
layer("vision.ops.PSRoIPool", 2, inputs=[T(1, 8, 6, 6), V([[0.0, 0.0, 4.0, 4.0]]), V([1], "int32")])
layer(
    "vision.ops.DeformConv2D",
    2,
    3,
    3,
    padding=1,
    inputs=[T(1, 2, 5, 5), T(1, 18, 5, 5)],
    _rtol=1e-4,
)
layer("incubate.nn.FusedDropoutAdd", 0.0, inputs=[T(2, 3), T(2, 3)])
