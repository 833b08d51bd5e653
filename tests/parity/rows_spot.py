"""What a doubting user tries: names that mean little, unusual arguments, unusual tensors."""

from tests.parity.table import T, V, case, case_fn, method, raises, raises_fn, raises_method

# --- types of Paddle's that no tensor has ---------------------------------------------------------
method("type", T(2, 3))
case_fn("Tensor.type-sparse", lambda p, x: x.to_sparse_coo(2).type is None, T(2, 3))
case_fn(
    "unused dtypes",
    lambda p, x: (
        isinstance(p.pstring, p.dtype), isinstance(p.raw, p.dtype), p.pstring == p.raw,
        x.dtype in (p.pstring, p.raw), p.pstring in {p.pstring: 1},
    ),
    T(2),
)  # fmt: skip
for unused in ("pstring", "raw"):
    raises_fn(f"zeros-{unused}", lambda p, d=unused: p.zeros([2], dtype=getattr(p, d)))
    raises_fn(f"cast-{unused}", lambda p, x, d=unused: p.cast(x, getattr(p, d)), T(2))
    raises_fn(f"finfo-{unused}", lambda p, d=unused: p.finfo(getattr(p, d)))
    raises_fn(f"iinfo-{unused}", lambda p, d=unused: p.iinfo(getattr(p, d)))

# --- dimensions to swap, by name ------------------------------------------------------------------
case("transpose", T(3, 4), dim0=0, dim1=1)
case("transpose", T(2, 3, 4), axis0=0, axis1=-1)
case("transpose", T(2, 3, 4), 0, dim1=1)
method("transpose", T(2, 3, 4), dim0=-1, dim1=1)
case("swapaxes", T(2, 3, 4), axis0=0, axis1=2)
raises("transpose", T(3, 4))
raises("transpose", T(3, 4), dim0=0)
case("transpose", T(3, 4), dim0=0, axis1=1)
raises("transpose", T(3, 4), dim0=0, dims=1)
raises("transpose", T(3, 4), dim0=0, dim1=2)
case("tensor_split", T(3, 4), sections=2, dim=1)

# --- empty lists of dimensions, mixed precision, wrong kinds of arguments -------------------------
method("flip", T(), [])
case("flip", T(3, 4), ())
raises_method("flip", T(), [0])
case_fn("polar-mixed", lambda p, r, a: p.polar(r, a), T(3, low=0), T(3, dtype="float64"))
case_fn("polar-mixed", lambda p, r, a: p.polar(r, a), T(3, 1, dtype="float64", low=0), T(4))
raises("polar", T(3, dtype="float16"), T(3, dtype="float16"))
raises_method("split_with_sizes", T(3, 4), 2)
raises("nn.functional.dropout", T(3), "a")
raises_fn("optimizer-number", lambda p: p.optimizer.SGD(0.1, parameters=3))
raises_fn("optimizer-numbers", lambda p: p.optimizer.SGD(0.1, parameters=[1, 2]))
raises("vision.transforms.affine", T(3, 4, 4), "a", [1, 0], 1.0, [0, 0])
raises("vision.transforms.affine", T(3, 4, 4), 30, [1], 1.0, [0, 0])

# --- labels and positions by contents -------------------------------------------------------------
case("nn.functional.cross_entropy", T(3, 4), V([0.0, 1.0, 3.0]), _paddle_grad=False)
case(
    "nn.functional.cross_entropy", T(3, 4), V([[0.0], [1.0], [3.0]]), reduction="none",
    _paddle_grad=False,
)  # fmt: skip
raises("nn.functional.cross_entropy", T(3, 4), T(3, 4, grad=False, low=0))
raises_fn(
    "cross_entropy-class 9",
    lambda p, x: p.nn.functional.cross_entropy(x, p.to_tensor([0, 1, 9])),
    T(3, 4),
)
raises_fn(
    "embedding-row 9",
    lambda p, w: p.nn.functional.embedding(p.to_tensor([0, 9]), w),
    T(3, 4),
)
