"""Paddle's second names for keywords (`input` for `x`, `dim` for `axis` …) and its `out=`.

The names are data; a thin shim translates them (functions that are called often take them
themselves: `@op(also=...)`). It is put around those public functions only
that have such names, hands positional calls straight through, and the operators do not pass
it at all.

Functions that are more than one op also get their complaint about an argument that is no
tensor here: they use it as one, and what fails is explained. Trying costs nothing.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from bireme.core.errors import not_a_tensor, second_name
from bireme.core.views import check_inplace, replace

# Namespace below `paddle`, then "other=own other=own" and the functions that take them.
ALIASES: dict[str, dict[str, str]] = {
    "": {
        "input=x other=y": (
            "add add_ bitwise_or bitwise_or_ div div_ divide divide_ eq equal expand_as "
            "floor_divide floor_mod gcd gcd_ ge greater greater_equal greater_than gt isclose lcm "
            "lcm_ le less less_equal less_than logical_and logical_or logical_xor lt matmul "
            "maximum minimum mod mul mul_ multiply multiply_ ne not_equal remainder sub sub_ "
            "subtract subtract_ where"
        ),
        "input=x": (
            "abs acos acosh adaptive_avg_pool1d atanh ceil clamp clip conv1d conv2d conv3d cos "
            "cosh cumprod empty_like exp expm1 floor frac full_like is_complex is_floating_point "
            "isfinite isinf isnan log log10 log1p log2 logical_not masked_select multinomial "
            "nonzero ones_like randn_like reshape round rsqrt sigmoid sign sin sinh sqrt swapaxes "
            "swapdims tanh trace transpose tril triu zeros_like"
        ),
        "dim=axis input=x": (
            "all amax amin any argsort chunk cumsum diff index_select logsumexp mean median prod "
            "quantile repeat_interleave squeeze sum topk unique_consecutive unsqueeze var"
        ),
        "dim=axis tensors=x": "cat concat concatenate stack",
        "dim=axis input=x keepdims=keepdim": "argmax argmin",
        "dims=axis input=x": "roll",
        "dim=axis input=x source=value": "index_add index_add_",
        "input=x mat2=y": "bmm",
        "input=x tensor=y": "dot",
        "input=x values=value": "index_put",
        "size=shape": "empty full normal ones rand randn zeros",
        "dim=axis": "cross unbind",
        "dim=axis input=arr": "take_along_axis take_along_dim",
        "input=x size=shape": "broadcast_to expand",
        "input=x vec2=y": "ger outer",
        "A=x B=y": "solve",
        "A=x dim=axis input=x ord=p": "norm",
        "boundaries=sorted_sequence input=x": "bucketize",
        "device=place": "to_tensor",
        "dim1=axis1 dim2=axis2 input=x": "diagonal",
        (
            "dim=axis indices=num_or_indices indices_or_sections=num_or_indices input=x "
            "sections=num_or_indices"
        ): "tensor_split",
        "dim=axis input=x sizes=shape": "unflatten",
        "dimension=axis": "unfold",
        "dims=repeat_times input=x": "tile",
        "dtype=shape_or_dtype size=shape_or_dtype": "view",
        "elements=x test_elements=test_x": "isin",
        "end=stop steps=num": "linspace",
        "end_dim=stop_axis input=x start_dim=start_axis": "flatten",
        "eps=epsilon input=x": "layer_norm",
        "exponent=y input=x": "pow",
        "from=min to=max": "uniform_",
        "input=values": "searchsorted",
        "lambd=lam": "exponential_",
        "m=num_columns n=num_rows": "eye",
        "obj=x": "is_tensor",
        "type=dtype": "finfo",
    },
    "nn.functional": {
        "input=x": (
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d conv1d conv2d conv3d "
            "dropout embedding gelu grid_sample group_norm interpolate log_sigmoid logsigmoid "
            "lp_pool1d lp_pool2d one_hot pad sigmoid silu softplus tanh"
        ),
        "input=x return_indices=return_mask": (
            "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d"
        ),
        "input=x lambd=threshold": "hardshrink softshrink",
        (
            "dilation=dilations input=x kernel_size=kernel_sizes output_size=output_sizes "
            "padding=paddings stride=strides"
        ): "fold",
        "dim=axis": "cosine_similarity",
        "dim=axis eps=epsilon input=x": "normalize",
        "dim=axis input=x": "glu softmax",
        "eps=epsilon input=x": "layer_norm",
        "eps=epsilon x1=x x2=y": "pairwise_distance",
        "target=label": "cross_entropy",
    },
    "linalg": {
        "A=x B=y": "solve",
        "A=x dim=axis input=x ord=p": "norm",
        "dim=axis": "cross",
        "dim=axis ord=p": "vector_norm",
    },
    "fft": {
        "dim=axes input=x": (
            "fft2 fftn fftshift hfft2 hfftn ifft2 ifftn ifftshift ihfft2 ihfftn irfft2 irfftn "
            "rfft2 rfftn"
        ),
        "dim=axis input=x": "fft hfft ifft ihfft irfft rfft",
    },
    "sparse": {
        "input=x": "reshape",
    },
    "nn": {
        "return_indices=return_mask": (
            "AdaptiveMaxPool1D AdaptiveMaxPool1d AdaptiveMaxPool2D AdaptiveMaxPool2d "
            "AdaptiveMaxPool3D AdaptiveMaxPool3d"
        ),
        "modules=sublayers": "LayerDict LayerList ModuleDict ModuleList",
        "eps=epsilon": "GroupNorm LayerNorm PairwiseDistance",
        "dim=axis": "CosineSimilarity GLU",
        "lambd=threshold": "Hardshrink Softshrink",
        (
            "dilation=dilations kernel_size=kernel_sizes output_size=output_sizes "
            "padding=paddings stride=strides"
        ): "Fold",
    },
}

# Functions that put their result into `out=` if it is given.
TAKES_OUT: dict[str, str] = {
    "": (
        "abs acos acosh add all amax amin any arange atanh bitwise_and bitwise_invert "
        "bitwise_left_shift bitwise_left_shift_ bitwise_not bitwise_or bitwise_right_shift "
        "bitwise_right_shift_ bitwise_xor bmm bucketize cat ceil clamp clip complex concat "
        "concatenate cos cosh cumprod cumsum diff div divide dot empty eq equal exp expm1 eye "
        "floor floor_divide floor_mod frac full gather ge ger greater greater_equal greater_than "
        "gt index_add index_select le less less_equal less_than linspace log log10 log1p log2 "
        "logical_and logical_not logical_or logical_xor logsumexp lt masked_select matmul maximum "
        "mean median minimum mod msort mul multinomial multiply ne nonzero normal not_equal ones "
        "outer polar pow prod quantile rand randn randperm range remainder round rsqrt scatter "
        "searchsorted sigmoid sign sin sinh softmax solve sqrt stack standard_normal sub subtract "
        "sum take_along_axis take_along_dim tanh topk tril triu true_divide uniform var where "
        "zeros"
    ),
    "linalg": ("norm solve svd vector_norm"),
    "nn.functional": ("normalize sigmoid softmax tanh"),
    "fft": (
        "fft fft2 fftfreq fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 "
        "irfftn rfft rfft2 rfftfreq rfftn"
    ),
}


# Where `out` stands if it may be given by position.
OUT_AT: dict[str, int] = {
    "bitwise_and": 2, "bitwise_invert": 1, "bitwise_left_shift": 3, "bitwise_left_shift_": 3,
    "bitwise_not": 1, "bitwise_or": 2, "bitwise_right_shift": 3, "bitwise_right_shift_": 3,
    "bitwise_xor": 2, "gather": 4, "prod": 4, "scatter": 5,
}  # fmt: skip

# Functions whose list of sizes may be given number by number, and its place: `zeros(2, 3)`.
SPREAD: dict[str, dict[str, int]] = {
    "": {"empty": 0, "ones": 0, "permute": 1, "rand": 0, "randn": 0, "zeros": 0}
}

# Second names that change a default: median(x, dim=0) gives values and indices, as in PyTorch.
_ALSO: dict[tuple[str, str], dict[str, Any]] = {("median", "dim"): {"mode": "min"}}


def accept(
    namespace: str,
    functions: dict[str, Any],
    guard: bool = True,
    forms: dict[str, Callable[..., Any]] | None = None,
) -> dict[str, Any]:
    """The functions of a namespace, those with second names inside a shim.

    Without `guard` they are methods: their first argument is a tensor anyway. `forms` are second
    signatures, for calls with `dim=` or a number as second argument.
    """
    aliases = {
        name: dict(pair.split("=") for pair in pairs.split())
        for pairs, names in ALIASES.get(namespace, {}).items()
        for name in names.split()
    }
    with_out = set(TAKES_OUT.get(namespace, "").split())
    spread = SPREAD.get(namespace, {})
    shims: dict[Any, Any] = {}  # names of one function keep being one function
    accepted = {}
    for name, function in functions.items():
        names, out, at = aliases.get(name, {}), name in with_out, spread.get(name)
        if not guard and names:  # nobody names a method's own tensor
            first = _parameters(function)[0]
            names = {other: mine for other, mine in names.items() if mine != first}
        form = None if forms is None else forms.get(name)
        key = (function, tuple(names.items()), out, at)
        if key not in shims:
            made = shim(function, names, OUT_AT.get(name, -1) if out else None, at, form)
            if guard and made is function and isinstance(function, FunctionType):
                made = guarded(function)
            shims[key] = made
        accepted[name] = shims[key]
    return accepted


def shim(
    function: Callable[..., Any],
    aliases: dict[str, str],
    out: int | None = None,
    spread: int | None = None,
    form: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """`function`, also called by other keywords and, where asked for, with `out=`; see `accept`.

    `out` is its place among the positional arguments, -1 if it is a keyword only.
    """
    own = _parameters(function)
    names = {other: mine for other, mine in aliases.items() if other not in own and mine in own}
    others = frozenset(names)
    if "out" in own:
        out = None
    if not names and out is None and spread is None and form is None:
        return function

    def rename(kwargs: dict[str, Any]) -> dict[str, Any]:
        for other, mine in names.items():
            if other in kwargs:
                value = kwargs.pop(other)
                kwargs[mine] = second_name(function.__name__, mine, kwargs.get(mine), other, value)
                if (function.__name__, other) in _ALSO:
                    kwargs = _ALSO[function.__name__, other] | kwargs
        return kwargs

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if not kwargs:
                return function(*args)
            into = kwargs.pop("out", None) if out is not None else None
            if not others.isdisjoint(kwargs):
                kwargs = rename(kwargs)
            result = function(*args, **kwargs)
        except AttributeError as e:
            raise _explained(e, function, args, kwargs) from None
        return result if into is None else put(into, result, function.__name__)

    made = call
    if spread is not None or form is not None or (out is not None and out >= 0):
        made = functools.wraps(function)(_arranging(call, function, spread, out, form))
    if out is not None:  # so that help() and other readers of signatures know of it
        made.__signature__ = _with_out(inspect.signature(function), out)  # type: ignore[attr-defined]
    return made


def _arranging(
    call: Callable[..., Any],
    function: Callable[..., Any],
    spread: int | None,
    out: int | None,
    form: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """The shim `call` of a function whose positional arguments come in several ways."""
    last = sys.maxsize if out is None or out < 0 else out
    first = sys.maxsize if spread is None else spread

    def arranged(*args: Any, **kwargs: Any) -> Any:
        count = len(args)
        if form is not None and (args[1].__class__ is int if count > 1 else "dim" in kwargs):
            return form(*args, **kwargs)
        if count > first and args[first].__class__ is int:
            args = (*args[:first], args[first:])
        elif count > last:
            args, kwargs["out"] = (*args[:last], *args[last + 1 :]), args[last]
        if kwargs:
            return call(*args, **kwargs)
        try:
            return function(*args)  # no more frames than without these ways
        except AttributeError as e:
            raise _explained(e, function, args, kwargs) from None

    return arranged


def _with_out(known: inspect.Signature, at: int) -> inspect.Signature:
    """The signature with `out` where Paddle has it."""
    parameters = list(known.parameters.values())
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    if at < 0:
        kind = inspect.Parameter.KEYWORD_ONLY
        later = [i for i, p in enumerate(parameters) if p.kind is kind and p.name in _AFTER_OUT]
        at = min(later, default=len(parameters))
    parameters.insert(at, inspect.Parameter("out", kind, default=None))
    return known.replace(parameters=parameters)


_AFTER_OUT = frozenset(("device", "name", "sorter"))


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose complaints about arguments that are no tensors can be understood."""
    if hasattr(function, "op"):
        return function  # it complains itself

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except AttributeError as e:
            raise _explained(e, function, args, kwargs) from None

    return call


def _explained(
    error: AttributeError, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> Exception:
    """What to raise for `error`: a TypeMismatch if it came from an argument used as a tensor."""
    given = error.obj
    if error.name not in _TENSOR_ATTRIBUTES or hasattr(given, "_value"):
        return error
    named = [*zip(_parameters(function), args, strict=False), *kwargs.items()]
    names = [name for name, value in named if value is given]
    if not names:
        return error
    return not_a_tensor(function.__name__, names[0], given)


_TENSOR_ATTRIBUTES = frozenset(
    ("_array", "_value", "_node", "aval", "dtype", "ndim", "shape", "size", "numpy")
)


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    if "__signature__" in vars(function):
        return tuple(function.__signature__.parameters)  # type: ignore[attr-defined]
    code = function.__code__  # type: ignore[attr-defined]
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def put(into: Any, result: Any, name: str) -> Any:
    """Give `result` to the tensors given as `out=`, whatever shape and dtype they had."""
    if isinstance(into, list | tuple):
        for one, part in zip(into, result, strict=True):
            put(one, part, name)
        return into
    check_inplace(into, f"{name}(out=)")
    return replace(into, result, None)
