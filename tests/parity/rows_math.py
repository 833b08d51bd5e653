"""Elementwise arithmetic: values, gradients, dtypes, broadcasting, numbers, promotion."""

from tests.parity.table import B, I, T, V, case, case_fn, half, method

# --------------------------------------------------------------------------------------- unary
# More rows come from the functions themselves: rows_from_functions.py.

POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "digamma",
            "gammaln")  # fmt: skip
INSIDE_ONE = ("acos", "asin", "atanh", "erfinv")

for name in POSITIVE:
    case(name, T(3, 4, low=0.3, high=3), _rtol=3e-5)
for name in INSIDE_ONE:
    case(name, T(3, 4, low=-0.9, high=0.9), _rtol=3e-5)
case("tan", T(3, 4, low=-1.2, high=1.2))
case("acosh", T(3, 4, low=1.2, high=3))
case("logit", T(3, 4, low=0.1, high=0.9))
case("logit", T(3, 4, low=-0.2, high=1.2), eps=0.1, _finite_difference=False)
case("polygamma", T(3, 4, low=0.5, high=3), 1, _rtol=1e-4)
case("multigammaln", T(3, 4, low=3, high=6), 2, _rtol=1e-4)

for name in ("exp", "sqrt", "tanh", "log", "abs", "square", "reciprocal"):
    case(name, T(2, 3, dtype="float64", low=0.3))
for name in ("sin", "exp", "sqrt", "log", "sigmoid", "tanh", "rsqrt"):
    case(f"nn.functional.{name}" if name == "sigmoid" else name, I(2, 3, low=1))
for name in ("abs", "neg", "square", "sign", "floor", "ceil", "round", "trunc"):
    case(name, I(2, 3, low=-5))
    case(name, I(2, 3, low=-5, dtype="int32"))
for name in ("abs", "exp", "sin", "cos", "tanh", "square", "sqrt", "reciprocal", "log", "neg",
     "conj",
             "real", "imag", "angle", "sgn"):  # fmt: skip
    case(name, T(2, 3, dtype="complex64", low=0.3), _rtol=5e-5, _atol=5e-5)
for name in ("exp", "sqrt", "tanh", "abs"):
    half(name, T(2, 3, low=0.5))
for name in ("exp", "abs", "tanh", "log"):
    case(name, T(low=0.5))
    case(name, T(2, 0, 3))

SPECIAL = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0, -1.0]
for name in ("exp", "log", "sqrt", "tanh", "abs", "reciprocal", "sign", "floor", "expm1", "log1p",
             "erf", "rsqrt", "square"):  # fmt: skip
    case(name, V(SPECIAL, grad=False))

case("scale", T(3, 4), 2.0, 1.0)
case("scale", T(3, 4), scale=2.0, bias=1.0, bias_after_scale=False)
case("scale", I(3, 4), 3, 1)
case("clip", T(3, 4), -0.5, 0.5, _finite_difference=False)
case("clip", T(3, 4), min=-0.5)
case("clip", T(3, 4), max=0.5)
case("clip", I(3, 4), 2, 6)
case("clip", T(3, 4), V(-1.0), V(1.0))
case("clip", T(3, 4))
case("nan_to_num", V(SPECIAL, grad=True), _finite_difference=False)
case("nan_to_num", V(SPECIAL), nan=1.0, posinf=2.0, neginf=-2.0)
case("increment", T(1, grad=False))
case("increment", T(1, grad=False), 2.5)
case("frexp", T(3, 4), _check_grad=False)
case("signbit", T(3, 4))
case("cast", T(3, 4), "int64")
case("cast", T(3, 4), "float64")
case("cast", T(3, 4), "float16", _rtol=1e-3, _finite_difference=False)
case("cast", T(3, 4), "bool")
case("cast", I(3, 4, low=-3), "float32")
case("cast", B(3, 4), "int32")
case("cast", T(3, 4), "complex64", _finite_difference=False)
case("round", T(3, 4), decimals=1)
case("round", V([0.5, 1.5, 2.5, -0.5, -1.5]))

# -------------------------------------------------------------------------------------- binary

for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "atan2",
             "hypot", "logaddexp", "copysign"):  # fmt: skip
    case(name, T(3, 4), T(3, 4, low=0.5), _rtol=2e-5)
    case(name, T(3, 1, 4), T(5, 1, low=0.5), _rtol=2e-5)
case("pow", T(3, 4, low=0.3), T(3, 4))
case("pow", T(3, 1, low=0.3), T(4))
for exponent in (2, 3.0, 0.5, -1, 0, 1):
    case("pow", T(3, 4, low=0.4), exponent)
case("pow", I(3, 4), 2)
case("pow", I(3, 4, low=1, high=4), I(4, low=0, high=4))
for name in ("remainder", "mod", "floor_mod"):
    case(name, T(3, 4), T(3, 4, low=0.5), _finite_difference=False)
case("remainder", I(3, 4, low=-9), I(4, low=2))
case("remainder", V([-5.0, 5.0, -5.5, 5.5]), V([3.0, -3.0, -2.0, 2.0]))
case("remainder", V([-7, 7, -7, 7], "int64"), V([3, -3, -3, 3], "int64"))
case("floor_divide", V([-7, 7, -7, 7], "int64"), V([3, -3, -3, 3], "int64"))
case("floor_divide", V([-7.0, 7.0, -7.5, 7.5]), V([3.0, -3.0, -2.0, 2.0]))
case("nextafter", T(3, 4), T(3, 4), _rtol=1e-7, _check_grad=False)
case("heaviside", V([-1.0, 0.0, 2.0]), V([0.3, 0.4, 0.5]))
case("ldexp", T(3, 4), I(4, low=0, high=3), _check_grad=False)
case("lerp", T(3, 4), T(3, 4), T(3, 4), _paddle_grad=False)
case("lerp", T(3, 4), T(4), 0.3)
case("gcd", I(3, 4, low=1, high=40), I(4, low=1, high=40))
case("lcm", I(3, 4, low=1, high=12), I(4, low=1, high=12))
case("add_n", [T(2, 3), T(2, 3), T(2, 3)])
case("add_n", T(2, 3))
case("multiplex", [T(3, 2), T(3, 2)], V([[0], [1], [0]], "int32"))
case("dist", T(3, 4), T(3, 4), 2, _rtol=1e-4)
case("dist", T(3, 4), T(4), 1)
case("dist", T(3, 4), T(3, 4), float("inf"), _finite_difference=False)
case("complex", T(3, 4), T(4))
case("polar", T(3, 4, low=0.5), T(3, 4))
case("as_complex", T(3, 2))
case("as_real", T(3, 2, dtype="complex64"))
case("gammainc", T(3, 4, low=0.5), T(3, 4, low=0.5), _check_grad=False, _rtol=1e-4)
case("gammaincc", T(3, 4, low=0.5), T(3, 4, low=0.5), _check_grad=False, _rtol=1e-4)

# dtypes, promotion, Python numbers
for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "pow"):
    case(name, T(2, 3, dtype="float64", low=0.4), T(3, dtype="float64"))
for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "floor_divide"):
    case(name, I(2, 3, low=1), I(3, low=1))
    case(name, I(2, 3, low=1, dtype="int32"), I(3, low=1, dtype="int32"))
for name in ("add", "subtract", "multiply", "divide"):
    case(name, T(2, 3, dtype="complex64", low=0.3), T(3, dtype="complex64", low=0.3), _rtol=5e-5)
    half(name, T(2, 3, low=0.5), T(3, low=0.5))
    case(name, T(2, 3), T(3, dtype="float64", low=0.4))
    case(name, T(2, 3, dtype="float16", low=0.5), T(3, low=0.5), _rtol=2e-3, _atol=2e-3)
case("add", T(2, 3), T(3, dtype="complex64"))
case("add", T(2, 3, dtype="float64"), T(3, dtype="complex64"))
case("add", B(2, 3), B(3))
case("multiply", B(2, 3), B(3))
case("add", T(2, 0, 3), T(3))
case("add", T(), T())
case("add", T(), T(2, 3))
case("multiply", T(2, 0), T())
case("maximum", V([float("nan"), 1.0]), V([2.0, float("nan")]))
case("fmax", V([float("nan"), 1.0]), V([2.0, float("nan")]))
case("maximum", V([1.0, 2.0], grad=True), V([1.0, 3.0], grad=True), _finite_difference=False)

case_fn("x+1", lambda p, x: x + 1, I(3))
case_fn("x+1.5-int", lambda p, x: x + 1.5, I(3))
case_fn("x*2.0-int32", lambda p, x: x * 2.0, I(3, dtype="int32"))
case_fn("x/2-int", lambda p, x: x / 2, I(3))
case_fn("x/y-int", lambda p, x, y: x / y, I(3, low=1), I(3, low=1))
case_fn("x//2", lambda p, x: x // 2, I(3, low=-5))
case_fn("x%3", lambda p, x: x % 3, I(5, low=-5))
case_fn("x**2", lambda p, x: x**2, T(3))
case_fn("2**x", lambda p, x: 2**x, T(3))
case_fn("1-x", lambda p, x: 1 - x, T(3))
case_fn("1/x", lambda p, x: 1 / x, T(3, low=0.5))
case_fn("-x", lambda p, x: -x, T(3))
case_fn("abs(x)", lambda p, x: abs(x), T(3))
case_fn("x+True", lambda p, x: x + True, I(3))
case_fn("bool+1", lambda p, x: x + 1, B(3))
case_fn("bool*1.5", lambda p, x: x * 1.5, B(3))
case_fn("half*2.5", lambda p, x: x * 2.5, T(3, dtype="float16"), _rtol=2e-3, _atol=2e-3)
case_fn("x+complex", lambda p, x: x + (1 + 2j), T(3))
case_fn("x@y", lambda p, x, y: x @ y, T(2, 3), T(3, 2))
case_fn("0d-int+float", lambda p, x, y: x + y, I(), T(3))
case_fn("float64-0d+float32", lambda p, x, y: x + y, T(dtype="float64"), T(3))
case_fn("chain", lambda p, x, y: (x * y + x / (y + 3)).tanh().sum(), T(3, 4), T(4, low=0))
case_fn("branch-and-join", lambda p, x: x.exp() * x + x.exp(), T(3, 4))
case_fn("numpy-operand", lambda p, x: x + __import__("numpy").ones(3, "float32"), T(3))


def _in_place(name):
    def run(p, x, *others):
        y = x * 1.0
        returned = getattr(y, name)(*others)
        return y, returned

    run.__name__ = name
    return run


def _in_place_function(name):
    """The same by the function's name in the package."""

    def run(p, x, *others):
        y = x.clone()
        returned = getattr(p, name)(y, *others)
        return y, returned

    run.__name__ = name
    return run


for name in ("exp_", "sqrt_", "tanh_", "sin_", "abs_", "reciprocal_", "floor_", "ceil_", "round_",
     "log_",
             "square_", "neg_", "rsqrt_"):  # fmt: skip
    case_fn(f"in-place-{name}", _in_place(name), T(3, 4, low=0.5))
for name in ("add_", "subtract_", "multiply_", "divide_", "remainder_"):
    case_fn(f"in-place-{name}", _in_place(name), T(3, 4, low=0.5), T(3, 4, low=0.5),
            _finite_difference=False)  # fmt: skip
for name in ("asin_", "asinh_", "atanh_", "cosh_", "log1p_"):
    case_fn(f"function-{name}", _in_place_function(name), T(3, 4, low=0.1, high=0.9))
case_fn("function-acosh_", _in_place_function("acosh_"), T(3, 4, low=1.1, high=3))
case_fn("function-logical_xor_", _in_place_function("logical_xor_"), B(3, 4), B(3, 4))
case_fn("function-not_equal_", _in_place_function("not_equal_"), I(3, 4, high=3), I(3, 4, high=3))
case_fn("in-place-scale_", _in_place("scale_"), T(3, 4), 2.0, 1.0)
case_fn("in-place-clip_", _in_place("clip_"), T(3, 4), -0.5, 0.5)
case_fn("in-place-pow_", _in_place("pow_"), T(3, 4, low=0.5), 2.0)
case_fn("in-place-lerp_", _in_place("lerp_"), T(3, 4), T(3, 4), 0.3)
case_fn("in-place-fill_", _in_place("fill_"), T(3, 4), 2.5)
case_fn("in-place-zero_", _in_place("zero_"), T(3, 4))
case_fn("in-place-cast_", _in_place("cast_"), T(3, 4), "float64")


def _augmented(p, x, y):
    z = x * 1.0
    z += y
    z *= 2
    z -= 1
    z /= y + 5
    return z


case_fn("augmented-assignment", _augmented, T(3, 4), T(4))

for name in ("abs", "exp", "tanh", "square", "floor", "sign", "sigmoid", "rsqrt", "log1p", "erf"):
    method(name, T(2, 3, low=0.3))
method("add", T(2, 3), T(3))
method("pow", T(2, 3, low=0.5), 2)
method("clip", T(2, 3), -1.0, 1.0)
method("astype", T(2, 3), "int32")
method("cast", T(2, 3), "float64")
method("scale", T(2, 3), 2.0)
method("lerp", T(2, 3), T(2, 3), 0.5)
method("trunc", T(2, 3))
method("item", T())
method("item", I())
method("item", T(2, 3), 4)
method("tolist", T(2, 3))
method("ndim", T(2, 3))
case_fn("x.size", lambda p, x: int(x.size), T(2, 3))
method("shape", T(2, 0, 3))
method("dtype", T(2, dtype="float64"))
method("numel", T(2, 3))
method("dim", T(2, 3))
method("rank", T(2, 3))
method("element_size", T(2, dtype="float64"))
method("is_floating_point", T(2))
method("is_complex", T(2))
method("is_integer", I(2))
method("clone", T(2, 3))
method("detach", T(2, 3))
method("T", T(2, 3))
method("mT", T(4, 2, 3))
case_fn("bool(x)", lambda p, x: bool(x), V([1.0]))
case_fn("float(x)", lambda p, x: float(x), T())
case_fn("int(x)", lambda p, x: int(x), V(3.7))
case_fn("len(x)", lambda p, x: len(x), T(4, 2))
case_fn("x.T-0d-sum", lambda p, x: x.T.sum(), T(3, 4))

case("div", T(3, 4), T(3, 4, low=0.5), rounding_mode="trunc", _check_grad=False)
case("div", T(3, 4), T(3, 4, low=0.5), rounding_mode="floor", _check_grad=False)
