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


def flatten(module: Any, result: Any) -> list[Any]:
    """Tensors (and numbers) of a possibly nested result."""
    if is_tensor(module, result):
        return [result]
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
        self._rng = case.rng()

    def build(self, x: Any) -> Any:
        if isinstance(x, Spec):
            index = len(self.tensors)
            drawn = x.make(self._rng)
            array = self.arrays.setdefault(index, drawn)
            tensor = self.module.to_tensor(array, stop_gradient=not x.differentiable)
            self.tensors.append((x, tensor))
            return tensor
        if isinstance(x, list):
            return [self.build(i) for i in x]
        if isinstance(x, tuple):
            return tuple(self.build(i) for i in x)
        return x

    def outputs(self, weights: dict[str, np.ndarray] | None = None) -> list[Any]:
        case = self.case
        if case.kind == "layer":
            self.layer = resolve(self.module, case.name)(*case.args, **case.kwargs)
            if weights is not None:
                self.layer.set_state_dict({k: self.module.to_tensor(v) for k, v in weights.items()})
            result = self.layer(*[self.build(i) for i in case.inputs])
        else:
            args = [self.build(a) for a in case.args]
            kwargs = {k: self.build(v) for k, v in case.kwargs.items()}
            if case.kind == "method":
                target = getattr(args[0], case.name)
                result = target(*args[1:], **kwargs) if callable(target) else target
            else:
                result = resolve(self.module, case.name)(*args, **kwargs)
        if case.post is not None:
            result = case.post(self.module, result)
        self.results = flatten(self.module, result)
        return self.results

    def loss(self) -> Any:
        """A scalar that weighs every differentiable result differently."""
        rng = np.random.default_rng(7)
        total = None
        for r in self.results:
            if not is_tensor(self.module, r) or r.stop_gradient:
                continue
            if "complex" in str(r.dtype):
                r = r.real() * 0.7 + r.imag() * 1.3
            weight = rng.uniform(0.5, 1.5, tuple(r.shape)).astype(str(r.dtype).split(".")[-1])
            term = (r * self.module.to_tensor(weight)).sum()
            total = term if total is None else total + term
        return total

    def gradients(self) -> list[np.ndarray | None]:
        loss = self.loss()
        if loss is None:
            return []
        loss.backward()
        wanted = [t for s, t in self.tensors if s.differentiable]
        if self.case.kind == "layer":
            wanted += list(self.layer.parameters())
        return [None if t.grad is None else t.grad.numpy() for t in wanted]


def numbers(x: Any) -> np.ndarray:
    return np.asarray(x.numpy() if hasattr(x, "numpy") else x)


def compare(ours: list[Any], theirs: list[Any], case: Case, what: str) -> None:
    assert len(ours) == len(theirs), f"{what}: {len(ours)} results instead of {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if hasattr(b, "dtype") and hasattr(a, "dtype"):
            mine, want = str(a.dtype).split(".")[-1], str(b.dtype).split(".")[-1]
            assert mine == want, f"{what} {i}: dtype {mine} instead of {want}"
        if hasattr(b, "shape"):
            assert list(a.shape) == list(b.shape), (
                f"{what} {i}: shape {a.shape} instead of {b.shape}"
            )
        if case.check_value:
            close(numbers(a), numbers(b), case, f"{what} {i}")


def close(a: np.ndarray, b: np.ndarray, case: Case, what: str) -> None:
    if b.dtype == np.uint16:  # how Paddle hands out bfloat16
        b = (b.astype(np.uint32) << 16).view(np.float32)
        a = a.astype(np.float32)
    np.testing.assert_allclose(a, b, rtol=case.rtol, atol=case.atol, err_msg=what)
