"""What must be refused: wrong ranks, shapes, dtypes, axes and things that are no tensors."""

from tests.parity.table import (
    B,
    I,
    T,
    V,
    raises,
    raises_fn,
    raises_layer,
    raises_method,
)  # fmt: skip

F = "nn.functional."

# ---------------------------------------------------------------------------------- elementwise

for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "pow", "atan2"):
    raises(name, T(2, 3), T(4))
    raises(name, T(2, 3), T(3, 2))
for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum"):
    raises(name, T(3), "one")
    raises(name, [1.0, 2.0], T(2))
    raises(name, None, T(2))
for name in ("add", "subtract", "multiply"):
    raises(name, I(3), T(3))
    raises(name, I(3), I(3, dtype="int32"))
for name in ("exp", "tanh", "sqrt", "abs", "floor", "square", "sign"):
    raises(name, "one")
    raises(name, [1.0, 2.0])
    raises(name, None)
raises("logical_and", B(2, 3), B(4))
raises("bitwise_and", T(3), T(3))
raises("bitwise_and", I(2, 3), I(4))
raises("clip", "one", 0.0, 1.0)
raises("cast", T(3), "float31")
raises("add_n", [T(2, 3), T(3, 2)])
raises("lerp", T(2, 3), T(4), 0.5)
raises("isnan", "one")
raises("where", B(3), T(3), T(4))
raises("where", T(3), T(3), T(3))
ZERO, NAN = V([2, 0], "int64"), V([0.5, float("nan")], "float32")
for name in ("floor_divide", "remainder"):
    raises(name, V([3, 4], "int64"), ZERO)
    raises(name, V([3, 4], "int64"), 0)
    raises(name, 3, ZERO)
raises("divide", V([3, 4], "int64"), ZERO, rounding_mode="trunc")
raises("multiplex", [T(2, 3), T(2, 3)], V([[0], [2]], "int32"))
raises("bernoulli", NAN)
raises("linalg.pinv", V([[1.0, float("nan")], [2.0, 1.0]], "float32"))
raises("linalg.lu_unpack", T(2, 2), V([1, 3], "int32"))
raises("geometric.send_u_recv", T(2, 3), V([0, 1], "int64"), V([0, 2], "int64"))
raises("as_complex", T(3, 3))
raises("complex", T(3), T(4))
raises_fn("add-mismatch", lambda p, x, y: x + y, T(2, 3), T(4))
raises_fn("in-place-broadcast", lambda p, x, y: (x * 1).add_(y), T(3), T(2, 3))
raises_fn("in-place-leaf", lambda p, x: x.add_(x), T(3))
raises_fn("bool-of-many", lambda p, x: bool(x), T(3))
raises_fn("float-of-many", lambda p, x: float(x), T(3))
raises_fn("item-of-many", lambda p, x: x.item(), T(3))
raises_fn("len-of-scalar", lambda p, x: len(x), T())
raises_fn("iterate-scalar", lambda p, x: list(x), T())

# ----------------------------------------------------------------------------------- reductions

for name in ("sum", "mean", "prod", "max", "min", "logsumexp", "amax", "all"):
    data = B(3, 4) if name == "all" else T(3, 4)
    raises(name, data, axis=2)
    raises(name, data, axis=-3)
    raises(name, "one")
    raises(name, data, axis="rows")
for name in (
    "std",
    "var",
    "median",
    "argmax",
    "argmin",
    "argsort",
    "sort",
    "cumsum",
    "nanmean",
    "any",
):
    raises(name, B(3, 4) if name == "any" else T(3, 4), axis=5)
raises("sum", T(3, 4), axis=[0, 0])
raises("max", T(0))
raises("min", T(2, 0), axis=1)
raises("topk", T(3, 4), 5)
raises("topk", T(3, 4), 2, axis=3)
raises("kthvalue", T(3, 4), 9)
raises("cumprod", T(3, 4), dim=4)
raises("quantile", T(3), 1.5)
raises("searchsorted", T(2, 3), T(3, 2))
raises("bincount", T(3))
raises("argmax", "one")
raises("count_nonzero", T(3, 4), axis=2)

# ------------------------------------------------------------------------------------- reshaping

raises("reshape", T(2, 3), [4])
raises("reshape", T(2, 3), [4, -1])
raises("reshape", T(2, 3), [-1, -1])
raises("reshape", T(2, 3), [2, -2])
raises("reshape", T(2, 3), "two")
raises("reshape", [1.0, 2.0], [2, 1])
raises("transpose", T(2, 3), [0, 2])
raises("transpose", T(2, 3), [0, 0])
raises("flatten", T(2, 3), 1, 0)
raises("flatten", T(2, 3), 0, 5)
raises("squeeze", T(1, 3), 4)
raises("unsqueeze", T(3), 5)
raises("moveaxis", T(2, 3), 0, 4)
raises("concat", [T(2, 3), T(3, 2)])
raises("concat", [T(2, 3), T(2)])
raises("concat", [T(2, 3), T(2, 3)], axis=2)
raises("concat", [])
raises("concat", [T(2), I(2)])
raises("stack", [T(2, 3), T(3, 2)])
raises("stack", [T(2, 3), T(2, 3)], axis=4)
raises("stack", [])
raises("split", T(4, 3), 3)
raises("split", T(4, 3), [1, 2])
raises("split", T(4, 3), 2, axis=2)
raises("chunk", T(4, 3), 3)
raises("expand", T(2, 3), [4, 3])
raises("expand", T(2, 3), [3])
raises("broadcast_to", T(2, 3), [2, 4])
raises("tile", T(2, 3), [2, -1])
raises("flip", T(2, 3), 2)
raises("roll", T(2, 3), 1, axis=3)
raises("roll", T(), 1, axis=0)
raises("unflatten", T(), 0, [1, 1])
raises("tril", T(3))
raises("diag", T(2, 2, 2))
raises("diagonal", T(3))
raises("t", T(2, 2, 2))
raises("unbind", T(2, 3), axis=2)
raises("rot90", T(3))
raises("repeat_interleave", T(2, 3), 2, axis=3)
raises("broadcast_shape", [2, 3], [4])
raises_method("reshape", T(2, 3), [7])
raises_method("transpose", T(2, 3), [1, 1])

# -------------------------------------------------------------------------------------- indexing

raises_fn("getitem-out-of-range", lambda p, x: x[5], T(3, 4))
raises_fn("getitem-negative-out-of-range", lambda p, x: x[-4], T(3, 4))
raises_fn("getitem-second-out-of-range", lambda p, x: x[0, 4], T(3, 4))
raises_fn("getitem-too-many", lambda p, x: x[0, 0, 0], T(3, 4))
raises_fn("getitem-scalar", lambda p, x: x[0], T())
raises_fn("getitem-float", lambda p, x: x[1.5], T(3, 4))
raises_fn("getitem-string", lambda p, x: x["one"], T(3, 4))
raises_fn("getitem-mask-shape", lambda p, x: x[p.to_tensor([True, False])], T(3, 4))
raises_fn("getitem-float-tensor", lambda p, x: x[p.to_tensor([0.0, 1.0])], T(3, 4))
raises_fn("getitem-lists-do-not-broadcast", lambda p, x: x[[0, 1], [0, 1, 2]], T(3, 4))
raises_fn("getitem-step-zero", lambda p, x: x[::0], T(3, 4))


def _write(key, value):
    def run(p, x, *others):
        y = x * 1.0
        y[key] = others[0] if others else value
        return y

    return run


raises_fn("setitem-shape", _write(0, None), T(3, 4), T(3))
raises_fn("setitem-slice-shape", _write(slice(0, 2), None), T(3, 4), T(3, 4))
raises_fn("setitem-out-of-range", _write(9, 1.0), T(3, 4))
raises_fn("setitem-too-many", _write((0, 0, 0), 1.0), T(3, 4))
raises_fn("setitem-string", _write(0, "one"), T(3, 4))
raises("gather", T(3, 4), T(2))
raises("gather", T(3, 4), V([[0, 1], [1, 2]], "int64"))
raises("gather", T(3, 4), V([0], "int64"), axis=3)
raises("gather_nd", T(3, 4), V([[0, 1, 2]], "int64"))
raises("gather_nd", T(3, 4), T(2, 2))
raises("index_select", T(3, 4), T(2))
raises("index_sample", T(3, 4), V([0, 1], "int64"))
raises("scatter", T(4, 3), V([1, 3], "int64"), T(2, 4))
raises("scatter_nd_add", T(4, 3), V([[1], [2]], "int64"), T(3, 3))
raises("take_along_axis", T(3, 4), V([0, 1], "int64"), 1)
raises("take_along_axis", T(3, 4), V([[0, 1]], "int64"), 3)
raises("masked_select", T(3, 4), I(3, 4))
raises("masked_fill", T(3, 4), B(5), 0.0)
raises(F + "one_hot", T(3), 4)

# ---------------------------------------------------------------------------------------- linalg

raises("matmul", T(2, 3), T(2, 3))
raises("matmul", T(2, 3), T(4))
raises("matmul", T(), T(3))
raises("matmul", T(2, 2, 3), T(3, 3, 4))
raises("matmul", "one", T(2, 3))
raises("matmul", T(2, 3), [[1.0], [2.0], [3.0]])
raises("bmm", T(2, 3), T(3, 4))
raises("bmm", T(2, 2, 3), T(3, 3, 4))
raises("mm", T(2, 3), T(2, 3))
raises("mv", T(2, 3), T(2))
raises("dot", T(3), T(4))
raises("dot", T(2, 2, 2), T(2, 2, 2))
raises("addmm", T(5, 5), T(2, 3), T(3, 4))
raises("cross", T(2, 4), T(2, 4))
raises("tensordot", T(2, 3), T(4, 5), 1)
raises("einsum", "ij,jk->ik", T(2, 3), T(4, 5))
raises("einsum", "ij->ik", T(2, 3))
raises("einsum", "ijk->i", T(2, 3))
raises("linalg.inv", T(2, 3))
raises("linalg.inv", T(3))
raises("linalg.det", T(2, 3))
raises("linalg.cholesky", T(2, 3))
raises("linalg.solve", T(2, 3), T(3, 1))
raises("linalg.matrix_power", T(2, 3), 2)
raises("linalg.qr", T(3))
raises("linalg.eigh", T(2, 3))
raises("linalg.norm", T(3, 4), axis=3)
raises("trace", T(3))
raises("outer", "one", T(3))

# -------------------------------------------------------------------------------------- creation

raises("zeros", [-2, 3])
raises("ones", "two")
raises("zeros", [2], dtype="float31")
raises("to_tensor", [[1, 2], [3]])
raises("to_tensor", "text")
raises("to_tensor", object)
raises("eye", -1)
raises("eye", 2.5)
raises("ones_like", [1.0])
raises("arange", 0, 5, 0)

# ----------------------------------------------------------------------------- nn: dense and conv

raises(F + "linear", T(2, 3), T(4, 5))
raises(F + "linear", T(2, 3), T(3, 5), T(4))
raises(F + "linear", "one", T(3, 5))
raises(F + "embedding", T(2, 3), T(5, 3))
raises(F + "embedding", V([0, 1], "int64"), T(5, 3), padding_idx=7)
raises(F + "conv2d", T(2, 3, 6), T(4, 3, 3, 3))
raises(F + "conv2d", T(2, 3, 6, 6), T(4, 2, 3, 3))
raises(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3))
raises(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), groups=2)
raises(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), padding="HALF")
raises(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), stride=[1, 1, 1])
raises(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), stride=0)
raises(F + "conv2d", T(2, 3, 6, 6), T(4, 3, 3, 3), data_format="HWNC")
raises(F + "conv2d", "one", T(4, 3, 3, 3))
raises(F + "conv1d", T(2, 3), T(4, 3, 3))
raises(F + "conv1d", T(2, 3, 8), T(4, 2, 3))
raises(F + "conv3d", T(1, 2, 4, 4), T(3, 2, 2, 2, 2))
raises(F + "conv2d_transpose", T(2, 3, 4, 4), T(4, 3, 3, 3))
raises(F + "conv2d_transpose", T(2, 3, 4, 4), T(3, 4, 3, 3), stride=2, output_size=[50, 9])
raises(F + "max_pool2d", T(3, 6, 6), 2)
raises(F + "max_pool2d", T(2, 3, 6, 6), 0)
raises(F + "avg_pool2d", T(2, 3, 6, 6), [2, 2, 2])
raises(F + "max_pool1d", T(2, 3), 2)
raises(F + "adaptive_avg_pool2d", T(2, 3), 2)
raises(F + "adaptive_avg_pool2d", T(2, 3, 6, 6), [1, 2, 3])
raises(F + "pad", T(2, 3, 4, 4), [1, 1, 1, 1], mode="mirror")
raises(F + "pad", T(2, 3, 4, 4), [5, 5, 5, 5], mode="reflect")
raises(F + "interpolate", T(1, 2, 4, 4))
raises(F + "interpolate", T(1, 2, 4, 4), size=[4, 4], mode="cubical")
raises(F + "interpolate", T(1, 2, 4, 4), size=[4, 4], mode="linear")
raises(F + "pixel_shuffle", T(2, 3, 3, 3), 2)
raises(F + "dropout", T(3), p=1.5)
raises(F + "dropout", T(3), p=-0.1)
raises(F + "dropout", T(3), mode="sideways")
raises(F + "unfold", T(3, 5, 5), 3)
raises(F + "grid_sample", T(1, 2, 4, 4), T(1, 3, 3, 3))

# ------------------------------------------------------------------------- nn: norms, activations

raises(F + "batch_norm", T(4, 3), T(4, grad=False), T(4, grad=False), T(4), T(4))
raises(F + "layer_norm", T(4, 5), 4)
raises(F + "layer_norm", T(4, 5), 5, T(4), T(4))
raises(F + "group_norm", T(2, 4, 3, 3), 3)
raises(F + "local_response_norm", T(2, 5), 3)
raises(F + "softmax", T(3, 4), axis=2)
raises(F + "softmax", "one")
raises(F + "log_softmax", T(3, 4), axis=-3)
raises(F + "relu", "one")
raises(F + "relu", [1.0, -1.0])
raises(F + "gelu", None)
raises(F + "softmax", B(3))
raises(F + "prelu", T(2, 3, 4), T(5))
raises(F + "maxout", T(2, 5, 3, 3), 2)
raises(F + "glu", T(3, 5))
raises(F + "hardshrink", "one")

# ---------------------------------------------------------------------------------------- losses

LABELS = V([0, 2, 1, 3], "int64")
for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits"):
    raises(F + name, T(3, 4), T(3, 4), reduction="average")
    raises(F + name, T(3, 4), T(5, 4))
raises(F + "cross_entropy", T(4, 5), LABELS, reduction="average")
raises(F + "cross_entropy", T(4, 5), V([0, 1, 2], "int64"))
raises(F + "cross_entropy", T(4, 5), LABELS, weight=T(4))
raises(F + "cross_entropy", T(4, 5), T(4, 5), label_smoothing=2.0, soft_label=True)
raises(F + "cross_entropy", T(4, 5), LABELS, soft_label=True)
raises(F + "cross_entropy", "one", LABELS)
raises(F + "nll_loss", T(4, 5), V([0, 1, 2], "int64"))
raises(F + "nll_loss", T(4), V([0], "int64"))
raises(F + "margin_ranking_loss", T(4), T(4), T(4), reduction="average")
raises(F + "ctc_loss", T(5, 4), V([[1, 2]], "int32"), V([5], "int64"), V([2], "int64"))

# ---------------------------------------------------------------------------------------- layers

raises_layer("nn.Linear", 4, 3, inputs=[T(2, 5)])
raises_layer("nn.Linear", 4, 3, inputs=["one"])
raises_layer("nn.Conv2D", 3, 4, 3, inputs=[T(2, 4, 6, 6)])
raises_layer("nn.Conv2D", 3, 4, 3, inputs=[T(2, 3, 6)])
raises_layer("nn.Conv2D", 3, 4, 3, groups=2, inputs=[T(2, 3, 6, 6)])
raises_layer("nn.Conv2D", 3, 4, 3, padding_mode="mirror", inputs=[T(2, 3, 6, 6)])
raises_layer("nn.BatchNorm1D", 3, inputs=[T(4, 5)])
raises_layer("nn.BatchNorm1D", 3, inputs=[T(4, 3, 2, 2)])
raises_layer("nn.BatchNorm2D", 3, inputs=[T(4, 3)])
raises_layer("nn.BatchNorm3D", 3, inputs=[T(4, 3, 2, 2)])
raises_layer("nn.LayerNorm", 4, inputs=[T(4, 5)])
raises_layer("nn.GroupNorm", 3, 4, inputs=[T(2, 4, 3, 3)])
raises_layer("nn.InstanceNorm2D", 3, inputs=[T(2, 3)])
raises_layer("nn.Embedding", 5, 3, padding_idx=9, inputs=[V([0], "int64")])
raises_layer("nn.Embedding", 5, 3, inputs=[T(2)])
raises_layer("nn.MultiHeadAttention", 8, 3, inputs=[T(2, 3, 8)])
raises_layer("nn.LSTM", 3, 4, direction="sideways", inputs=[T(2, 5, 3)])
raises_layer("nn.LSTM", 3, 4, inputs=[T(2, 5, 4)])
raises_layer("nn.CrossEntropyLoss", reduction="average", inputs=[T(4, 5), LABELS])
raises_layer("nn.MSELoss", "average", inputs=[T(3), T(3)])
raises_layer("nn.Upsample", scale_factor=2, mode="cubical", inputs=[T(1, 2, 4, 4)])

# -------------------------------------------------------------------------------------- autograd


def _backward_twice(p, x):
    y = (x * x).sum()
    y.backward()
    y.backward()


def _grad_of_unused(p, x, y):
    return p.grad([(x * 2).sum()], [y])


def _overwritten(p, x):
    y = x * 2
    z = y * y
    y.add_(p.ones([3]))
    z.sum().backward()


raises_fn("backward-twice", _backward_twice, T(3))
raises_fn("grad-of-unused", _grad_of_unused, T(3), T(3))
raises_fn("backward-through-overwritten", _overwritten, T(3))
raises_fn("backward-grad-shape", lambda p, x: (x * 2).backward(p.ones([4])), T(3))

# --- shapes that only look as if they broadcast ---------------------------------------------------

raises("inner", T(2, 3), T(4, 1))
raises("addmm", T(2, 4), T(2, 3), T(3, 1))
raises("baddbmm", T(5, 2, 4), T(5, 2, 3), T(5, 3, 1))
raises("tensordot", T(2, 3), T(3, 2), -1)
raises("nn.functional.swiglu", T(3, 4), T(3, 1))
raises("nn.functional.smooth_l1_loss", T(3, 4), T(3, 1))
raises("scatter_add", T(3, 4), 0, V([[0, 1, 2, 0]], "int64"), T(1, 1))
raises("select_scatter", T(3, 4), T(1), 0, 1)
raises("nn.functional.gather_tree", I(3, 2, 2), I(3, 2, 1))
raises("multiply", T(3, 4), T(3, 2))

# --- kinds of numbers that make no sense ----------------------------------------------------------

for name in (
    "floor",
    "ceil",
    "trunc",
    "frac",
    "lgamma",
    "digamma",
    "erfinv",
    "i0",
    "i1",
    "signbit",
):
    raises(name, T(3, dtype="complex64"))
for name in ("maximum", "minimum", "fmax", "fmin", "atan2", "copysign", "logaddexp", "heaviside"):
    raises(name, T(3, dtype="complex64"), T(3, dtype="complex64"))
for name in ("subtract", "remainder", "floor_divide", "pow"):
    raises(name, B(3), B(3))
for name in ("sign", "sgn", "frac"):
    raises(name, B(3))
raises("clip", T(3, dtype="complex64"), 0.0, 1.0)
raises("lerp", B(3), B(3), B(3))
raises("nextafter", I(3), I(3))
raises("nn.functional.mse_loss", B(3), B(3))
