"""Shapes: reshaping, joining, splitting, moving and repeating, with their views."""

from tests.parity.table import B, I, T, V, case, case_fn, half, method

case("reshape", T(2, 3), [3, 2])
case("reshape", T(2, 3, 4), [-1, 4])
case_fn("reshape-by-tensors", lambda p, x: p.reshape(x, [p.full([1], 3, "int32"), -1]), T(2, 3, 4))
case_fn(
    "shapes-as-lists",
    lambda p, x: (str(x.shape), str(x.shape + [1]), str((1,) + x.shape), x.shape == (2, 3)),  # noqa: RUF005
    T(2, 3),
)
case_fn("format-0-d", lambda p, x: (f"{x}", f"{x:.2f}"), V(2.5))
case_fn(
    "integers-that-ask-for-a-gradient",
    lambda p: p.to_tensor([1, 2], stop_gradient=False).stop_gradient,
)
case("reshape", T(2, 3, 4), [0, -1])
case("reshape", T(2, 3, 4), (4, 6))
case("reshape", T(2, 3), [-1])
case("reshape", T(1, 1), [])
case("reshape", T(), [1, 1])
case("reshape", T(0, 3), [3, 0])
case("reshape", T(0, 3), [0, 3])
case("reshape", I(2, 3), [6])
case("reshape", T(2, 3), V([3, 2], "int64"))
method("reshape", T(2, 3), [-1, 2])
method("reshape", T(2, 3), 3, 2)
method("flatten", T(2, 3, 4))
case("flatten", T(2, 3, 4), 1)
case("flatten", T(2, 3, 4), start_axis=0, stop_axis=1)
case("flatten", T(2, 3, 4), -2, -1)
case("flatten", T())
case("flatten", T(2, 0))
case("ravel", T(2, 3))
case("transpose", T(2, 3, 4), [2, 0, 1])
case("transpose", T(2, 3, 4), perm=[-1, 0, 1])
case("transpose", T(), [])
case("transpose", T(2, 0, 3), [1, 0, 2])
method("transpose", T(2, 3), [1, 0])
case("t", T(2, 3))
case("t", T(3))
case("moveaxis", T(2, 3, 4), 0, -1)
case("moveaxis", T(2, 3, 4), [0, 1], [2, 0])
case("swapaxes", T(2, 3, 4), 0, 2)
case("squeeze", T(1, 3, 1))
case("squeeze", T(1, 3, 1), 0)
case("squeeze", T(1, 3, 1), axis=-1)
case("squeeze", T(1, 3, 1), axis=[0, 2])
case("squeeze", T(1, 3, 1), axis=1)
case("unsqueeze", T(3), 0)
case("unsqueeze", T(3), -1)
case("unsqueeze", T(3), [0, 2])
case("unsqueeze", T(), 0)
method("unsqueeze", T(2, 3), 1)
method("squeeze", T(1, 3), 0)

case("concat", [T(2, 3), T(2, 3)])
case("concat", [T(2, 3), T(2, 1)], axis=1)
case("concat", [T(2, 3), T(2, 3)], axis=-1)
case("concat", [T(2, 3), T(0, 3)])
case("concat", [T(2, 3)])
case("concat", [I(2), I(3)])
case("concat", (T(2, 3), T(2, 3)), axis=V(1, "int64"))
case("stack", [T(2, 3), T(2, 3)])
case("stack", [T(2, 3), T(2, 3)], axis=-1)
case("stack", [T(), T()])
case("stack", [T(2, 0), T(2, 0)], axis=1)
for name in ("hstack", "vstack", "dstack", "column_stack", "row_stack"):
    case(name, [T(2, 3), T(2, 3)])
case("hstack", [T(2), T(3)])
case("split", T(4, 3), 2)
case("split", T(4, 6), [1, 2, 3], axis=1)
case("split", T(4, 6), [1, -1, 2], axis=-1)
method("split", T(4, 6), 3, axis=1)
case("chunk", T(4, 3), 2)
case("tensor_split", T(7, 2), 3)
case("tensor_split", T(7, 2), [2, 5])
for name in ("hsplit", "vsplit"):
    case(name, T(4, 4), 2)
case("dsplit", T(2, 2, 4), 2)
case("unbind", T(3, 2))
case("unbind", T(3, 2), axis=1)
case("unstack", T(3, 2), axis=1)

case("tile", T(2, 3), [2, 1])
case("tile", T(3), [2, 2])
case("tile", T(), [3])
case("tile", T(2, 3), (2,))
case("expand", T(1, 3), [2, 3])
case("expand", T(3), [2, -1])
case("expand", T(), [2, 2])
case("expand", T(2, 0), [3, 2, 0])
case("expand_as", T(1, 3), T(4, 3))
case("broadcast_to", T(3, 1), [2, 3, 4])
case("broadcast_tensors", [T(3, 1), T(1, 4)])
case("broadcast_shape", [3, 1, 4], [2, 1])
method("expand", T(1, 3), [2, 3])
method("tile", T(3), [2])
case("repeat_interleave", T(2, 3), 2)
case("repeat_interleave", T(2, 3), 2, axis=1)
case("repeat_interleave", T(2, 3), V([1, 3], "int64"), axis=0)

case("flip", T(2, 3), 0)
case("flip", T(2, 3), [0, -1])
case("roll", T(2, 3), 1)
case("roll", T(2, 3), 1, axis=1)
case("roll", T(2, 3), [1, -1], axis=[0, 1])
case("rot90", T(2, 3))
case("rot90", T(2, 3), 2, [1, 0])
for name in ("tril", "triu"):
    case(name, T(3, 4))
    case(name, T(3, 4), 1)
    case(name, T(2, 3, 3), -1)
case("diag", T(3))
case("diag", T(3), 1)
case("diag", T(2), padding_value=3.0)
case("diag", T(3, 4))
case("diag", T(3, 4), -1)
case("diagflat", T(2, 2))
case("diagonal", T(3, 4))
case("diagonal", T(3, 4), 1)
case("diagonal", T(2, 3, 4), axis1=1, axis2=2)
case("diag_embed", T(2, 3), _paddle_grad=False)
case("diag_embed", T(2, 3), offset=1, dim1=0, dim2=2, _paddle_grad=False)
case("diagonal_scatter", T(3, 3), T(3), _paddle_grad=False)
case("atleast_1d", T())
case("atleast_2d", T(3))
case("atleast_3d", T(3, 4))
case("view_as", T(2, 3), T(3, 2))
case("view", T(2, 3), [3, 2])
case("view", T(2, 3), "int32", _check_grad=False)
case("as_strided", T(3, 4), [2, 2], [4, 1], 4, _finite_difference=False)
case("unfold", T(6), 0, 2, 2)
case("unflatten", T(2, 6), 1, [2, 3])
case("crop", T(3, 4), [2, 2], [1, 1])
case("meshgrid", T(2), T(3))
case("meshgrid", [T(2), T(3)])
case("cartesian_prod", [V([1, 2], "int64"), V([3, 4, 5], "int64")])
case("combinations", T(4), 2)
case("shape", T(2, 3))
case("rank", T(2, 3))
case("block_diag", [T(2, 2), T(1, 3)])
case("renorm", T(3, 4), 2.0, 0, 1.0, _rtol=1e-4)
half("reshape", T(2, 3), [6])
half("concat", [T(2, 3), T(2, 3)], axis=1)


def _in_place(name):
    def run(p, x, *args):
        y = x * 1.0
        getattr(y, name)(*args)
        return y

    run.__name__ = name
    return run


case_fn("in-place-reshape_", _in_place("reshape_"), T(2, 3), [3, 2])
case_fn("in-place-squeeze_", _in_place("squeeze_"), T(1, 3))
case_fn("in-place-unsqueeze_", _in_place("unsqueeze_"), T(3), 0)
case_fn("in-place-flatten_", _in_place("flatten_"), T(2, 3))
case_fn("in-place-transpose_", _in_place("transpose_"), T(2, 3), [1, 0])
case_fn("in-place-tril_", _in_place("tril_"), T(3, 3))


def _view_sees_write(p, x):
    base = x * 1.0
    view = base.reshape([3, 2])
    view.add_(p.ones([3, 2]))
    return base, view


def _write_reaches_view(p, x):
    base = x * 1.0
    row = base[1]
    base.add_(p.ones([2, 3]))
    return row.detach(), base


def _strided_write(p, x):
    base = x * 1.0
    view = p.as_strided(base, [2, 2], [4, 1])
    view.add_(p.ones([2, 2]))
    return base, view


def _window_write(p, x):
    base = x * 1.0
    view = p.unfold(base, 0, 2, 2)
    view.add_(p.ones([3, 2]))
    return base, view


case_fn("as_strided-shares-memory", _strided_write, T(3, 4), _check_grad=False)
case_fn("unfold-shares-memory", _window_write, T(6), _check_grad=False)
case_fn("reshape-shares-memory", _view_sees_write, T(2, 3), _check_grad=False)
case_fn("slice-shares-memory", _write_reaches_view, T(2, 3), _check_grad=False)
case_fn("reshape-chain", lambda p, x: x.reshape([4, 6]).transpose([1, 0]).reshape([2, 3, 4]),
        T(2, 3, 4))  # fmt: skip
case_fn("split-and-swap", lambda p, x: p.concat(p.split(x, 2, axis=1)[::-1], axis=1), T(2, 4))
case_fn("mask-to-int", lambda p, x: p.concat([x.astype("int64"), p.ones([2], "int64")]), B(3))
case_fn("patches", lambda p, x: x.reshape([2, 2, 2, 2, 2]).transpose([0, 1, 3, 2, 4]).flatten(1),
        T(2, 4, 4))  # fmt: skip
case_fn("T-3d", lambda p, x: x.T, T(2, 3, 4))
case_fn("shape-arithmetic", lambda p, x: x.reshape([x.shape[0] * x.shape[1], -1]), T(2, 3, 4))
case_fn("iterate-int", lambda p, x: [row + 1 for row in x], I(3, 2))
