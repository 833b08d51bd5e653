"""Reading and writing through indices, and the gather/scatter family."""

from tests.parity.table import B, I, T, V, case, case_fn, method, raises

# ------------------------------------------------------------------------------------- reading

READS = {
    "int": lambda p, x: x[1],
    "negative-int": lambda p, x: x[-1],
    "two-ints": lambda p, x: x[1, 2],
    "all-ints": lambda p, x: x[1, 2, 3],
    "slice": lambda p, x: x[1:],
    "slice-step": lambda p, x: x[::2],
    "slice-negative-step": lambda p, x: x[::-1],
    "slice-negative-step-bounded": lambda p, x: x[:, 3:0:-2],
    "slice-negative": lambda p, x: x[:, -2:],
    "slice-beyond": lambda p, x: x[:, 1:100],
    "slice-empty": lambda p, x: x[2:1],
    "slices": lambda p, x: x[0:2, 1:3, ::2],
    "ellipsis": lambda p, x: x[..., 0],
    "ellipsis-middle": lambda p, x: x[0, ..., 1],
    "none": lambda p, x: x[None],
    "none-last": lambda p, x: x[..., None],
    "none-between": lambda p, x: x[:, None, 1],
    "full": lambda p, x: x[:],
    "only-ellipsis": lambda p, x: x[...],
    "list": lambda p, x: x[[0, 2, 0]],
    "list-second": lambda p, x: x[:, [1, 3]],
    "two-lists": lambda p, x: x[[0, 1], [2, 3]],
    "lists-broadcast": lambda p, x: x[[[0], [1]], [2, 3]],
    "lists-apart": lambda p, x: x[[0, 1], :, [1, 2]],
    "list-and-int": lambda p, x: x[1, [0, 2]],
    "list-and-slice": lambda p, x: x[[0, 1], 1:3],
    "slice-then-lists": lambda p, x: x[:, [0, 1], [1, 2]],
    "tensor": lambda p, x: x[p.to_tensor([2, 0])],
    "tensor-0d": lambda p, x: x[p.to_tensor(1)],
    "tensor-2d": lambda p, x: x[p.to_tensor([[0, 1], [2, 0]])],
    "tensor-second": lambda p, x: x[:, p.to_tensor([3, 0])],
    "tensor-negative": lambda p, x: x[p.to_tensor([-1, -2])],
    "mask": lambda p, x: x[x > 0],
    "mask-first": lambda p, x: x[p.to_tensor([True, False, True])],
    "mask-second": lambda p, x: x[:, p.to_tensor([True, False, True, True])],
    "mask-none-true": lambda p, x: x[x > 100],
    "mask-list": lambda p, x: x[[True, False, True]],
    "numpy": lambda p, x: x[__import__("numpy").array([0, 2])],
    "tuple-of-slices": lambda p, x: x[(slice(0, 1), slice(None), 0)],
    "chained": lambda p, x: x[1:][0][:, 1],
    "tensor-bound": lambda p, x: x[p.to_tensor(1) :],
}  # fmt: skip
for name, read in READS.items():
    case_fn(f"getitem-{name}", read, T(3, 4, 5))
case_fn("getitem-int64", lambda p, x: x[1:, [0, 1]], I(3, 4))
case_fn("getitem-bool", lambda p, x: x[0], B(3, 4))
case_fn("getitem-0d-ellipsis", lambda p, x: x[...], T())
case_fn("getitem-0d-none", lambda p, x: x[None], T())
case_fn("getitem-zero-size", lambda p, x: x[:, 1:], T(2, 3, 0))
case_fn("getitem-empty-list", lambda p, x: x[p.to_tensor([], dtype="int64")], T(3, 2))
case_fn("iterate", lambda p, x: [row * i for i, row in enumerate(x)], T(3, 2))
case_fn("unpack", lambda p, x: sum(a * b for a, b in zip(*x, strict=True)), T(2, 3))

# ------------------------------------------------------------------------------------- writing


def _write(key, value):
    """`y[key] = value` on a copy of x; both may be functions of the module and the tensors."""

    def run(p, x, *others):
        y = x * 1.0
        index = key(p, x) if callable(key) else key
        y[index] = value(p, *others) if callable(value) else value
        return y

    return run


def _given(p, v):
    return v


case_fn("setitem-int-number", _write(1, 5.0), T(3, 4))
case_fn("setitem-int-tensor", _write(1, _given), T(3, 4), T(4))
case_fn("setitem-int-broadcast", _write(1, _given), T(3, 4), T(1))
case_fn("setitem-0d-value", _write((1, 2), _given), T(3, 4), T())
case_fn("setitem-slice", _write(slice(1, None), _given), T(3, 4), T(2, 4))
case_fn("setitem-slice-broadcast", _write(slice(None), _given), T(3, 4), T(4))
case_fn("setitem-slice-step", _write((slice(None), slice(None, None, 2)), _given), T(3, 4), T(3, 2))
case_fn("setitem-negative-step", _write(slice(None, None, -1), _given), T(3, 4), T(3, 4))
case_fn("setitem-ellipsis", _write((Ellipsis, 0), _given), T(3, 4), T(3))
case_fn("setitem-none", _write((None, 1), 2.0), T(3, 4))
case_fn("setitem-all", _write(Ellipsis, 0.5), T(3, 4))
case_fn("setitem-list", _write([0, 2], _given), T(3, 4), T(2, 4))
case_fn("setitem-two-lists", _write(([0, 1], [2, 3]), _given), T(3, 4), T(2))
case_fn("setitem-list-number", _write([0, 2], 1.5), T(3, 4))
case_fn("setitem-tensor", _write(lambda p, x: p.to_tensor([1, 0]), _given), T(3, 4), T(2, 4))
case_fn("setitem-tensor-and-slice", _write(lambda p, x: (slice(0, 2), p.to_tensor([1, 0])), _given),
        T(3, 4), T(2, 2))  # fmt: skip
case_fn("setitem-mask-number", _write(lambda p, x: x > 0, 0.0), T(3, 4))
case_fn("setitem-mask-rows", _write(lambda p, x: p.to_tensor([True, False, True]), _given), T(3, 4),
        T(4))  # fmt: skip
case_fn("setitem-int-into-float", _write(0, 3), T(3, 4))
case_fn("setitem-float64-value", _write(0, _given), T(3, 4), T(4, dtype="float64"))
case_fn("setitem-empty-slice", _write(slice(2, 1), 3.0), T(3, 4))
case_fn("setitem-0d", _write(Ellipsis, 4.0), T())


def _write_int(p, x):
    y = x + 0
    y[1] = 7
    y[:, 0] = p.to_tensor([3, 4, 5])
    return y


def _write_twice(p, x, v):
    y = x * 2
    y[0] = v
    z = y * y
    y = y.clone()
    y[1:] = z[1:] * 3
    return y


def _accumulate(p, x):
    total = p.zeros([4])
    for i in range(3):
        total[i] = x[i].sum()
    return total


def _augmented_slice(p, x):
    y = x * 1.0
    y[0] += 2
    y[:, 1] *= 3
    return y


def _write_through_view(p, x):
    y = x * 1.0
    y[1][2] = 9.0
    return y


case_fn("setitem-int64", _write_int, I(3, 4))
case_fn("setitem-twice", _write_twice, T(3, 4), T(4))
case_fn("setitem-loop", _accumulate, T(3, 4), _finite_difference=False)
case_fn("setitem-augmented", _augmented_slice, T(3, 4))
case_fn("setitem-through-view", _write_through_view, T(3, 4), _check_grad=False)

# ---------------------------------------------------------------------------- gather and scatter

case("gather", T(4, 3), V([0, 2, 2], "int64"))
case("gather", T(4, 3), V([0, 2], "int32"), axis=1)
case("gather", T(4, 3), V(1, "int64"))
case("gather", T(4, 3), V([], "int64"))
case("gather_nd", T(3, 4), V([[0, 1], [2, 3]], "int64"))
case("gather_nd", T(3, 4), V([[1], [2]], "int64"))
case("gather_nd", T(3, 4, 2), V([[[0, 1]], [[2, 3]]], "int64"))
case("index_select", T(3, 4), V([0, 2], "int64"))
case("index_select", T(3, 4), V([1, 1, 3], "int32"), axis=1)
case("index_sample", T(3, 4), V([[0, 1], [2, 3], [1, 1]], "int64"))
case("index_add", T(3, 4), V([0, 2, 0], "int64"), 0, T(3, 4))
case("index_add", T(3, 4), V([1, 3], "int64"), 1, T(3, 2))
case("index_fill", T(3, 4), V([0, 2], "int64"), 0, 1.5)
case("index_put", T(3, 4), (V([0, 1], "int64"), V([2, 3], "int64")), T(2))
case("index_put", T(3, 4), (V([0, 0], "int64"), V([2, 2], "int64")), T(2), accumulate=True)
case("index_put", T(3, 4), (V([0, 1], "int64"),), T(4))
case("scatter", T(4, 3), V([1, 3], "int64"), T(2, 3))
case("scatter", T(4, 3), V([1, 1, 3], "int64"), T(3, 3), overwrite=False)
case("scatter_nd", V([[1], [3], [1]], "int64"), T(3, 2), [4, 2])
case("scatter_nd_add", T(4, 2), V([[1], [3], [1]], "int64"), T(3, 2))
case("take_along_axis", T(3, 4), V([[0, 1, 2, 0]], "int64"), 0)
case("take_along_axis", T(3, 4), V([[0], [3], [1]], "int64"), 1)
case("take_along_axis", T(3, 4), V([[0, 1], [3, 2]], "int64"), 1, broadcast=False)
case("put_along_axis", T(3, 4), V([[0], [3], [1]], "int64"), T(3, 1), 1)
case("put_along_axis", T(3, 4), V([[0], [3], [1]], "int64"), T(3, 1), 1, reduce="add")
case("put_along_axis", T(3, 4), V([[0, 1, 2, 0]], "int64"), 2.0, 0)
case("put_along_axis", T(3, 4), V([[0], [3], [1]], "int64"), T(3, 1), 1, reduce="mul")
case("take", T(3, 4), V([0, 5, 11], "int64"))
case("take", T(3, 4), V([0, -1, 13], "int64"), mode="wrap")
case("take", T(3, 4), V([0, 5, 30], "int64"), mode="clip")
case("masked_select", T(3, 4), V([[True, False, True, False]] * 3, "bool"))
case("masked_fill", T(3, 4), B(3, 4), 0.5)
case("masked_fill", T(3, 4), B(4), T(), _paddle_grad=False)
case("masked_scatter", T(3, 4), V([[True, False, True, False]] * 3, "bool"), T(8))
case("where", B(3, 4), T(3, 4), T(3, 4))
case("where", B(3, 1), T(4), T(3, 4))
case("where", B(3, 4), T(3, 4), 0.0)
case("where", B(3, 4), 1.0, 0.0)
case("where", B(3, 4), I(3, 4), I(3, 4))
case("where", V([[True, False], [False, True]], "bool"))
case("where", B(2, 0), T(2, 0), T(2, 0))
case("select_scatter", T(3, 4), T(4), 0, 1)
case("slice_scatter", T(4, 4), T(2, 4), [0], [1], [3], [1])
case("slice", T(3, 4), [0, 1], [1, 0], [3, 2])
case("slice", T(3, 4), axes=[1], starts=[-3], ends=[-1])
case("strided_slice", T(3, 8), [1], [7], [0], [-2])
case("strided_slice", T(3, 8), axes=[0, 1], starts=[0, 1], ends=[3, 8], strides=[2, 3])
case("nn.functional.one_hot", V([0, 2, 1], "int64"), 3)
case("shard_index", V([[1], [6], [12]], "int64"), 20, 2, 0)
method("gather", T(4, 3), V([0, 2], "int64"))
method("index_select", T(3, 4), V([0, 2], "int64"), 1)
method("masked_fill", T(3, 4), B(3, 4), 0.0)
case("masked_scatter", T(3), V([[True, False, True], [False, False, True]], dtype="bool"), T(6),
     _check_grad=False)  # fmt: skip
raises("masked_scatter", T(3), V([1, 0, 1], dtype="int64"), T(6))
raises("masked_scatter", T(3), B(3), I(6))
raises("concat", [])
raises("stack", [])
