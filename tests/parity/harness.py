"""Runs a row of the table in one framework and compares two runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.parity.table import Case, Spec


def resolve(module: Any, name: str) -> Any:
    found = module
    for part in name.split("."):
        found = getattr(found, part)
    return found


def is_tensor(module: Any, x: Any) -> bool:
    return isinstance(x, module.Tensor)


def dtype_name(dtype: Any) -> str:
    return str(dtype).split(".")[-1]


def flatten(module: Any, result: Any) -> list[Any]:
    """Tensors (and numbers) of a possibly nested result."""
    if is_tensor(module, result):
        return [result]
    if isinstance(result, dict):
        return [leaf for k in sorted(result) for leaf in flatten(module, result[k])]
    if isinstance(result, list | tuple):
        return [leaf for r in result for leaf in flatten(module, r)]
    return [] if result is None else [result]


class Run:
    """The outcome of a row in one framework."""

    def __init__(self, module: Any, case: Case, arrays: dict[int, np.ndarray] | None = None):
        self.module = module
        self.case = case
        self.tensors: list[tuple[Spec, Any]] = []
        self.arrays = {} if arrays is None else arrays
        self.layer: Any = None
        self._rng = case.rng()

    def build(self, x: Any) -> Any:
        if isinstance(x, Spec):
            index = len(self.tensors)
            drawn = x.make(self._rng)
            return self.given(x, self.arrays.setdefault(index, drawn))
        if isinstance(x, list):
            return [self.build(i) for i in x]
        if isinstance(x, tuple):
            return tuple(self.build(i) for i in x)
        return x

    def given(self, spec: Spec, array: np.ndarray) -> Any:
        """What the call gets for a specification; the tensor behind it goes into `tensors`."""
        differentiable = spec.differentiable
        tensor = self.module.to_tensor(array, dtype=spec.dtype, stop_gradient=not differentiable)
        self.tensors.append((spec, tensor))
        return tensor

    def outputs(self, weights: dict[str, np.ndarray] | None = None) -> list[Any]:
        case = self.case
        if case.kind == "layer":
            result = self._layer_outputs(weights)
        else:
            args = [self.build(a) for a in case.args]
            kwargs = {k: self.build(v) for k, v in case.kwargs.items()}
            if case.kind == "method":
                target = getattr(args[0], case.name)
                result = target(*args[1:], **kwargs) if callable(target) else target
            elif case.function is not None:
                result = case.function(self.module, *args, **kwargs)
            else:
                result = resolve(self.module, case.name)(*args, **kwargs)
        if case.post is not None:
            result = case.post(self.module, result)
        self.results = flatten(self.module, result)
        return self.results

    def _layer_outputs(self, weights: dict[str, np.ndarray] | None) -> Any:
        case = self.case
        self.layer = self._made_layer()
        self.weights = self._told_apart() if weights is None else weights
        have = set(self.layer.state_dict())
        want = set(self.weights)
        assert have == want, f"state_dict has {have - want} too many and lacks {want - have}"
        self.layer.set_state_dict({k: self.module.to_tensor(v) for k, v in self.weights.items()})
        result = self.layer(*[self.build(i) for i in case.inputs])
        saved = self.layer.state_dict()  # temporary buffers are nobody's business
        return result, {k: b for k, b in self.layer.named_buffers() if k in saved}

    def _made_layer(self) -> Any:
        case = self.case
        if case.function is not None:
            layer = case.function(self.module)
        else:
            layer = resolve(self.module, case.name)(*case.args, **case.kwargs)
        if case.eval:
            layer.eval()
        return layer

    def _told_apart(self) -> dict[str, np.ndarray]:
        """The fresh layer's weights, with noise on those that are constant: scales of one and
        biases of zero would hide a wrong formula."""
        weights = {}
        rng = np.random.default_rng(11)
        for name, tensor in self.layer.state_dict().items():
            array = tensor.numpy()
            if array.dtype.kind == "f" and array.size and (array == array.flat[0]).all():
                noise = rng.uniform(-0.4, 0.4, array.shape)
                array = (array + noise).astype(array.dtype)
            weights[name] = array
        return weights

    def loss(self) -> Any:
        """A scalar that weighs every differentiable result differently."""
        rng = np.random.default_rng(7)
        total = None
        for r in self.results:
            if not is_tensor(self.module, r) or r.stop_gradient:
                continue
            if not any(kind in str(r.dtype) for kind in ("float", "complex")):
                continue  # Paddle lets some integers pass for differentiable
            if "complex" in str(r.dtype):
                r = r.real() * 0.7 + r.imag() * 1.3
            if dtype_name(r.dtype) in ("float16", "bfloat16"):
                r = r.astype("float32")
            weight = rng.uniform(0.5, 1.5, tuple(r.shape)).astype(dtype_name(r.dtype))
            term = (r * self.module.to_tensor(weight)).sum()
            total = term if total is None else total + term
        return total

    def backward(self) -> dict[str, Any]:
        """The gradient of `loss` by every input (and parameter), still on its way."""
        loss = self.loss()
        if loss is None:
            return {}
        loss.backward()
        wanted = {f"input {i}": t for i, (s, t) in enumerate(self.tensors) if s.differentiable}
        if self.layer is not None:
            wanted.update(self.layer.named_parameters())
        return {name: t.grad for name, t in wanted.items()}

    def values(self) -> list[Any]:
        return [numbers(r) for r in self.results]

    def outcome(self) -> list[Any]:
        """The values of the row's outputs."""
        self.outputs()
        return self.values()


def numbers(x: Any) -> Any:
    """A result as an array in a type that NumPy can compare; strings and the like stay."""
    if callable(getattr(x, "numpy", None)):
        array = np.asarray(x.numpy())
        if array.dtype == np.uint16:  # how Paddle hands out bfloat16
            return np.asarray((array.astype(np.uint32) << 16).view(np.float32))
        return array.astype(np.float32) if array.dtype.kind == "V" else array
    return np.asarray(x) if isinstance(x, bool | int | float | complex | np.ndarray) else x


def compare(ours: list[Any], theirs: list[Any], case: Case, what: str) -> None:
    assert len(ours) == len(theirs), f"{what}: {len(ours)} results instead of {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        compare_one(a, b, case, f"{what} {i}")


def compare_one(a: Any, b: Any, case: Case, what: str) -> None:
    """`a` is ours, `b` is Paddle's."""
    if not hasattr(b, "dtype"):
        assert not hasattr(a, "dtype"), f"{what}: a {type(a).__name__} instead of {b!r}"
        if not isinstance(b, bool | int | float | complex):
            assert dtype_name(a) == dtype_name(b), f"{what}: {a!r} instead of {b!r}"
            return
        assert type(a) is type(b), f"{what}: a {type(a).__name__} instead of a {type(b).__name__}"
    else:
        assert hasattr(a, "dtype"), f"{what}: {a!r} instead of a tensor"
        mine, want = dtype_name(a.dtype), dtype_name(b.dtype)
        if case.wide_oracle and want == "float32":
            want = next(s.dtype for s in case.specs() if "float" in s.dtype)
        assert mine == want, f"{what}: dtype {mine} instead of {want}"
        assert list(a.shape) == list(b.shape), f"{what}: shape {a.shape} instead of {b.shape}"
    if case.check_value:
        close(numbers(a), numbers(b), case.rtol, case.atol, what)


def close(a: Any, b: Any, rtol: float, atol: float, what: str) -> None:
    """Equal within the tolerances; NaN equals NaN and infinities have their sign."""
    if not isinstance(b, np.ndarray):
        assert a == b, f"{what}: {a!r} instead of {b!r}"
    elif b.dtype.kind in "biu":
        np.testing.assert_array_equal(a, b, err_msg=what)
    else:
        if a.dtype.kind not in "fc":  # ml_dtypes' bfloat16
            a = a.astype(np.float32)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=what)


def compare_gradients(ours: dict[str, Any], theirs: dict[str, Any], case: Case) -> None:
    assert sorted(ours) == sorted(theirs), f"gradients by {list(ours)} instead of {list(theirs)}"
    for name, b in theirs.items():
        a = ours[name]
        assert (a is None) == (b is None), f"gradient by {name}: {a} instead of {b}"
        if a is not None:
            compare_one(a, b, case, f"gradient by {name}")
