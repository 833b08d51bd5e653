"""Second signatures and keywords: out=, requires_grad=, sizes one by one, PyTorch's order."""

from typing import Any

from tests.parity.table import I, T, V, case, case_fn, method, raises, raises_fn

# --- out= takes the result, whatever shape and dtype it had ------------------------------------


def into(name: str) -> Any:
    def call(p: Any, *args: Any, **kwargs: Any) -> Any:
        found = p
        for part in name.split("."):
            found = getattr(found, part)
        out = p.full([3, 1], 7, "int32")
        return found(*args, **kwargs, out=out), out

    return call


for name in ("abs", "exp", "floor", "tanh", "sum", "mean", "amax", "logsumexp", "cumsum", "sign"):
    case_fn(f"{name}-out", into(name), T(3, 4))
for name in ("add", "subtract", "multiply", "maximum", "greater_than", "pow"):
    case_fn(f"{name}-out", into(name), T(3, 4, low=0.5), T(3, 4, low=0.5))
case_fn("matmul-out", into("matmul"), T(2, 3), T(3, 4))
case_fn("softmax-out", into("nn.functional.softmax"), T(2, 3), _check_grad=False)
case_fn("softmax-dim-out", into("softmax"), T(2, 3))
case_fn("cumprod-out", into("cumprod"), T(2, 3), 1)
case_fn("prod-out", into("prod"), T(2, 3), 1)
case_fn("gather-out", into("gather"), T(4, 3), I(2, high=4), 1)
case_fn("arange-out", into("arange"), 1, 7, 2)
case_fn("eye-out", into("eye"), 3, 2)
case_fn("searchsorted-out", into("searchsorted"), V([1.0, 3.0, 5.0]), T(4, low=0, high=6))
case_fn("bitwise-positional-out", lambda p, x, y: p.bitwise_and(x, y, p.zeros([1])), I(3), I(3))
case_fn("bitwise-not-out", lambda p, x: p.bitwise_not(x, p.zeros([1], "int64")), I(3))
case_fn("prod-positional-out", lambda p, x: p.prod(x, 0, False, None, p.zeros([1])), T(3, 2))
case_fn(
    "gather-positional-out",
    lambda p, x, i: p.gather(x, i, 0, None, p.zeros([1])),
    T(3, 2),
    I(2, high=3),
)

# --- made with a device, for a gradient --------------------------------------------------------


def made(name: str, *args: Any, **kwargs: Any) -> Any:
    def call(p: Any, *tensors: Any) -> Any:
        x = getattr(p, name)(*tensors, *args, **kwargs, device="cpu", requires_grad=True)
        (x * 3).sum().backward()
        return x, x.grad, x.stop_gradient

    return call


for name, args in {
    "zeros": ([2, 3],), "ones": ([2],), "full": ([2], 1.5), "eye": (2, 3), "arange": (0.0, 3.0),
    "linspace": (0.0, 1.0, 5), "range": (0.0, 3.0),
}.items():  # fmt: skip
    case_fn(f"{name}-requires-grad", made(name, *args), _check_grad=False)
for name in ("zeros_like", "ones_like", "full_like"):
    fill = (2.5,) if name == "full_like" else ()
    case_fn(f"{name}-requires-grad", made(name, *fill), T(2, 3), _check_grad=False)
for name in ("rand", "randn", "uniform", "empty"):
    case_fn(
        f"{name}-requires-grad",
        lambda p, name=name: getattr(p, name)([2, 3], requires_grad=True).stop_gradient,
    )
case_fn("as_tensor-requires-grad", lambda p: p.as_tensor([1.0, 2.0], requires_grad=True))
for name in ("zeros", "ones", "rand", "randn", "empty"):
    raises(name, [2], pin_memory=True)
    case_fn(f"{name}-sizes", lambda p, name=name: list(getattr(p, name)(2, 3).shape))
    case_fn(f"{name}-size", lambda p, name=name: list(getattr(p, name)(size=[4, 1]).shape))
raises("eye", 2, pin_memory=True)
raises("full", [2], 1.0, pin_memory=True)
raises("arange", 3, pin_memory=True)
raises("as_tensor", [1.0], pin_memory=True)
raises_fn("new_ones-pin", lambda p, x: x.new_ones([2], pin_memory=True), T(2))
for name in ("new_zeros", "new_ones"):
    case_fn(f"{name}-sizes", lambda p, x, name=name: getattr(x, name)(2, 3), T(2, dtype="float64"))
    case_fn(f"{name}-size", lambda p, x, name=name: getattr(x, name)(size=[2], dtype="int32"), T(2))
case_fn("new_full-grad", lambda p, x: x.new_full([2], 3.0, requires_grad=True), T(2))

# --- PyTorch's order of arguments -------------------------------------------------------------

case("index_select", T(3, 4), 1, I(2, high=4))
method("index_select", T(3, 4), 1, I(2, high=4))
case("index_add", T(3, 4), 0, V([0, 2], "int64"), T(2, 4))
case("sum", T(3, 4), 0, True)
case("sum", T(3, 4), 0, True, "float64")
method("sum", T(3, 4), 1, True)
case("gather", T(3, 4), 1, I(3, 2, high=4))
case_fn("gather-dim", lambda p, x, i: x.gather(dim=0, index=i), T(3, 4), I(2, 4, high=3))
case("scatter", T(3, 4), 1, V([[0], [1], [3]], "int64"), T(3, 1))
case_fn(
    "scatter-dim",
    lambda p, x, i, v: p.scatter(x, dim=1, index=i, src=v, reduce="add"),
    T(3, 4),
    V([[0], [1], [3]], "int64"),
    T(3, 1),
)
raises("scatter", T(3, 4), 1, V([[0], [1], [3]], "int64"))
case("permute", T(2, 3, 4), 2, 0, 1)
case_fn("permute-dims", lambda p, x: x.permute(dims=[1, 0]), T(2, 3))
case_fn("repeat-repeats", lambda p, x: x.repeat(repeats=[2, 1]), T(2, 3))
method("repeat", T(2, 3), 2, 2)
for shape in ((), (3,), (2, 3), (2, 3, 4), (2, 3, 1, 2)):
    case("softmax", T(*shape))
    method("softmax", T(*shape))
case("softmax", T(2, 3), 0, "float64")
method("softmax", T(2, 3), -1)
case("searchsorted", V([1.0, 3.0, 5.0]), V([3.0]), right=True, side="left")
case("searchsorted", V([1.0, 3.0, 5.0]), V([3.0]), side="right")
case("searchsorted", V([5.0, 1.0, 3.0]), V([3.0, 0.5]), sorter=V([1, 2, 0], "int64"))
method("cond", T(3, 3), _rtol=1e-3, _check_grad=False)
method("cond", T(3, 3), 1, _rtol=1e-3, _check_grad=False)
case_fn("cumprod_", lambda p, x: (x + 0).cumprod_(1, "float32"), T(2, 3), _finite_difference=False)

# Second names that functions take themselves, without a shim around them.
case_fn("asin-input", lambda p, x: p.asin(input=x), T(3, low=-0.9, high=0.9))
case_fn("gelu-input", lambda p, x: p.nn.functional.gelu(input=x, approximate=True), T(3))
for name in ("argmax", "argmin"):
    case_fn(f"Tensor.{name}-dim", lambda p, x, n=name: getattr(x, n)(dim=1, keepdims=True), T(2, 3))
case_fn("Tensor.expand_as-other", lambda p, x, y: x.expand_as(other=y), T(3), T(2, 3))
case_fn("Tensor.isclose-other", lambda p, x, y: x.isclose(other=y), T(3), T(3))
case_fn("Tensor.index_put-values", lambda p, x, v: x.index_put((p.to_tensor([1]),), values=v), T(3), T(1))  # noqa: E501 # fmt: skip
case_fn("parameters-recurse", lambda p: [len(net(p).parameters(recurse=r)) for r in (True, False)])
case_fn("named-recurse", lambda p: [n for n, _ in net(p).named_parameters(recurse=False)])
case_fn("buffers-recurse", lambda p: [len(net(p).buffers(recurse=r)) for r in (True, False)])
case_fn("register_buffer-persistent", lambda p, x: sorted(net(p, x).state_dict()), T(2))
case_fn("set_sublayer-module", lambda p: _replaced(p, "set_sublayer"))
case_fn("set_submodule-module", lambda p: _replaced(p, "set_submodule"))


def net(p: Any, buffer: Any = None) -> Any:
    made = p.nn.Sequential(p.nn.Linear(2, 3), p.nn.BatchNorm1D(3))
    if buffer is not None:
        made.register_buffer("passing", buffer, persistent=False)
        made.register_buffer("lasting", buffer, persistent=True)
    return made


def _replaced(p: Any, name: str) -> Any:
    whole = net(p)
    getattr(whole, name)("0", module=p.nn.Linear(2, 5))
    return whole[0].weight.shape


raises_fn("argmax-both-names", lambda p, x: x.argmax(axis=0, dim=0), T(2))
raises_fn("asin-both-names", lambda p, x: p.asin(x, input=x), T(2))

# --- memory -----------------------------------------------------------------------------------


def set_from(p: Any, x: Any, source: Any, *args: Any) -> Any:
    x, source = x + 0, source + 0
    x.set_(source, *args)
    x[0] = 9.0
    return x, source


case_fn("set_-source", set_from, T(2), T(3, 4), _check_grad=False)
case_fn("set_-strides", set_from, T(2), T(3, 4), [3], [2], _check_grad=False)
case_fn("set_-offset", set_from, T(2), T(12), [2, 2], [1, 3], 8, _check_grad=False)
case_fn("set_-empty", lambda p, x: (x + 0).set_(), T(2), _check_grad=False)
for want in ([2, 3], [3], [2, 2], [8]):
    case_fn(
        f"resize_-{want}",
        lambda p, x, want=want: (x + 0).resize_(want, True),
        T(4),
        _check_grad=False,
    )


def resize_leaf(p: Any, x: Any) -> Any:
    return x.resize_([1])


raises_fn("resize_-leaf", resize_leaf, T(2))
