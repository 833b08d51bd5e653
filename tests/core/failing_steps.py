"""Training steps that fail, and what is left after them. `python -m tests.core.failing_steps` runs
every kind in every mode on the default device and prints a table; `... 2 8` the third of eight
parts of them.

A kind is what a step does besides training a small network; each step is told whether it is to go
wrong. Good and bad steps record the same operations, so a bad one meets the program that the good
ones have compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.autograd import PyLayer
from bireme.backends.numpy_backend import NumpyBackend
from bireme.backends.xla_backend import XlaExecutable
from bireme.host import config
from bireme.nn import functional as F
from bireme.utils import custom_op

WIDTHS = (6, 16, 3)
MODES = ("cold", "compiled", "captured")


class Net(nn.Layer):
    """Layers with parameters, running statistics and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTHS[0], WIDTHS[1])
        self.norm = nn.BatchNorm1D(WIDTHS[1])
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(WIDTHS[1], WIDTHS[2])
        self.table = nn.Embedding(5, WIDTHS[1])

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(F.relu(self.norm(self.first(x)))))


class Planned(Exception):
    """What a user's function raises."""


def _raising() -> None:
    if switch["bad"]:
        raise Planned("as planned")


class _Forward(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        _raising()
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


class _Backward(PyLayer):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        _raising()
        return grad * 2


def _host(xp: Any, x: Any) -> Any:
    if x[0, 0] < 0:
        raise Planned("as planned")
    return x


def _host_back(xp: Any, grad: Any, x: Any) -> Any:
    if x[0, 0] < 0:
        raise Planned("as planned")
    return grad


def _interrupting(xp: Any, x: Any) -> Any:
    if x[0, 0] < 0:
        raise KeyboardInterrupt
    return x


def _same(xp: Any, x: Any) -> Any:
    return x


def _first(t: Any) -> Any:
    return t


in_forward = custom_op(_host, infer=_first, host=True, name="failing_forward",
                       backward=lambda xp, grad: grad)  # fmt: skip
in_backward = custom_op(_same, infer=_first, host=True, name="failing_backward",
                        backward=_host_back)  # fmt: skip
interrupting = custom_op(_interrupting, infer=_first, host=True, name="interrupting",
                         backward=lambda xp, grad: grad)  # fmt: skip


class Data:
    """What a step computes with besides its batch; `wrong` is the number that does not fit."""

    names = ("labels", "ids", "sign", "matrix")

    def __init__(self, wrong: int, bad: bool):
        self.arrays = (
            np.array([0, 1, 2, wrong if bad else 1]),
            np.array([0, wrong if bad else 1]),
            np.full((1, 1), -1.0 if bad else 1.0, "float32"),
            np.eye(3, dtype="float32") * (0.0 if bad else 2.0),
        )


class Given:
    """The same as tensors, and the ids and labels also as results of the device's."""

    def __init__(self, labels: Any, ids: Any, sign: Any, matrix: Any):
        self.labels, self.ids, self.sign, self.matrix = labels, ids, sign, matrix
        self.made_labels, self.made_ids = labels * 1, ids * 1


# The user's own code goes wrong while this is true.
switch = {"bad": False}


def _hook(net: Any, out: Any, d: Given) -> Any:
    inner = out * 1.0
    inner.register_hook(lambda g: _raising())
    return inner.mean()


def _interrupted_hook(net: Any, out: Any, d: Given) -> Any:
    def hook(grad: Any) -> None:
        if switch["bad"]:
            raise KeyboardInterrupt

    inner = out * 1.0
    inner.register_hook(hook)
    return inner.mean()


def _post_hook(net: Any, out: Any, d: Given) -> Any:
    handle = net.last.register_forward_post_hook(lambda layer, x, y: _raising())
    try:
        return net(out @ paddle.ones([WIDTHS[2], WIDTHS[0]])).mean()
    finally:
        handle.remove()


def _bernoulli(net: Any, out: Any, d: Given) -> Any:
    return paddle.bernoulli(paddle.ones([3, 3]) * d.sign * 0.5).mean() + out.mean()


def _impossible(net: Any, out: Any, d: Given) -> Any:
    return paddle.multinomial(paddle.ones([3, 4]) * d.sign, 1).astype("float32").mean() + out.mean()


# What each kind adds to the loss.
KINDS: dict[str, Callable[[Any, Any, Given], Any]] = {
    "label too large": lambda n, o, d: F.cross_entropy(o, d.labels),
    "label negative": lambda n, o, d: F.cross_entropy(o, d.labels),
    "label of the device's": lambda n, o, d: F.cross_entropy(o, d.made_labels),
    "label of a larger tensor": lambda n, o, d: F.cross_entropy(
        o[:3], paddle.concat([d.labels, d.labels])[1:4]
    ),
    "nll label": lambda n, o, d: F.nll_loss(F.log_softmax(o), d.labels),
    "id too large": lambda n, o, d: n.table(d.ids).mean(),
    "id negative": lambda n, o, d: n.table(d.ids).mean(),
    "gather": lambda n, o, d: paddle.gather(o, d.made_ids).mean(),
    "index by a tensor": lambda n, o, d: o[d.made_ids].mean(),
    "take_along_axis": lambda n, o, d: paddle.take_along_axis(
        o, d.made_ids.reshape([2, 1]), 1, broadcast=False
    ).mean(),
    "one_hot": lambda n, o, d: (F.one_hot(d.labels, 3) * o).mean(),
    "scatter": lambda n, o, d: paddle.scatter(o, d.made_ids, paddle.ones([2, 3])).mean(),
    "singular inverse": lambda n, o, d: paddle.linalg.inv(d.matrix).sum() + o.mean(),
    "singular solve": lambda n, o, d: paddle.linalg.solve(d.matrix, o.transpose([1, 0])).mean(),
    "indefinite cholesky": lambda n, o, d: (
        paddle.linalg.cholesky(d.matrix - 1e-3 * paddle.eye(3)).sum() + o.mean()
    ),
    "impossible probabilities": _impossible,
    "probabilities out of range": _bernoulli,
    "bce input": lambda n, o, d: F.binary_cross_entropy(
        d.sign * 0.5 + o * 0.0, paddle.ones([4, 3])
    ),
    "NaN check": lambda n, o, d: (o * paddle.sqrt(d.sign)).mean(),
    "gradient hook": _hook,
    "interrupt in a hook": _interrupted_hook,
    "forward hook": _post_hook,
    "PyLayer forward": lambda n, o, d: _Forward.apply(o).mean(),
    "PyLayer backward": lambda n, o, d: _Backward.apply(o).mean(),
    "custom op": lambda n, o, d: in_forward(o * 0.0 + d.sign).mean() + o.mean(),
    "custom op's gradient": lambda n, o, d: in_backward(o * 0.0 + d.sign).mean() + o.mean(),
    "interrupt in an op": lambda n, o, d: interrupting(o * 0.0 + d.sign).mean() + o.mean(),
    "out of memory": lambda n, o, d: o.mean(),
    "clip": lambda n, o, d: o.mean(),
    "learning rate": lambda n, o, d: o.mean(),
}
WRONG = {"label negative": -1, "id too large": 5, "id negative": -1, "gather": 4, "scatter": 4,
         "index by a tensor": -5}  # fmt: skip
# Raised while Python records, in code that a captured function runs once, when it is captured.
PYTHON = frozenset(["gradient hook", "interrupt in a hook", "forward hook", "PyLayer forward",
                    "PyLayer backward", "clip"])  # fmt: skip


# Raised while the forward pass is recorded. As in Paddle, the part of it that came before stands.
FORWARD = frozenset(["forward hook", "PyLayer forward"])


class _Clip(nn.ClipGradByGlobalNorm):
    raises = False

    def __call__(self, pairs: Any) -> Any:
        if self.raises:
            _raising()
        return super().__call__(pairs)


class _Rate(paddle.optimizer.lr.LRScheduler):
    raises = False

    def get_lr(self) -> float:
        return 1e-2

    def __call__(self) -> float:
        if self.raises:
            _raising()
        return 1e-2


class Training:
    """A network, its optimizer, and steps of one kind."""

    def __init__(self, kind: str, mode: str):
        paddle.seed(7)
        self.kind = kind
        self.net = Net()
        clip, rate = _Clip(1.0), _Rate(1e-2)
        clip.raises, rate.raises = kind == "clip", kind == "learning rate"
        self.optimizer = paddle.optimizer.AdamW(
            rate, parameters=self.net.parameters(), grad_clip=clip
        )
        self.x = np.random.default_rng(0).normal(size=(4, WIDTHS[0])).astype("float32")
        self._run = paddle.jit.to_static(self._step) if mode == "captured" else self._step

    def _step(self, x: Any, labels: Any, ids: Any, sign: Any, matrix: Any) -> Any:
        out = self.net(x)
        extra = KINDS[self.kind](self.net, out, Given(labels, ids, sign, matrix))
        loss = out.square().mean() + extra
        loss.backward()
        self.optimizer.step()
        self.optimizer.clear_grad()
        return loss

    def step(self, bad: bool = False) -> float:
        data = Data(WRONG.get(self.kind, 3), bad)
        with _surroundings(self.kind, bad):
            return self._run(*map(paddle.to_tensor, (self.x, *data.arrays))).item()

    def state(self) -> dict[str, np.ndarray]:
        """Parameters, buffers, the optimizer's state and the generator's position."""
        found = {k: v.numpy() for k, v in self.net.state_dict().items()}
        for k, v in self.optimizer.state_dict().items():
            if hasattr(v, "numpy"):
                found[f"optimizer {k}"] = v.numpy()
        found["rng"] = np.array([list(paddle.get_rng_state()[0])])
        return found


@contextmanager
def _surroundings(kind: str, bad: bool) -> Iterator[None]:
    """What a step of this kind needs around it."""
    checked, reserve, cold = config.check_nan_inf, XlaExecutable.reserve, NumpyBackend.run_call
    switch["bad"] = bad
    try:
        if kind == "NaN check":
            config.check_nan_inf = bad
        if kind == "out of memory" and bad:
            XlaExecutable.reserve = NumpyBackend.run_call = _no_memory  # type: ignore
        yield
    finally:
        switch["bad"] = False
        config.check_nan_inf = checked
        XlaExecutable.reserve, NumpyBackend.run_call = reserve, cold  # type: ignore


def _no_memory(*_: Any) -> None:
    raise MemoryError("as planned")


def differing(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Names of what is not bit for bit the same in both."""
    return sorted(k for k in a.keys() | b.keys()
                  if k not in a or k not in b or a[k].tobytes() != b[k].tobytes())  # fmt: skip


def leaves_all(kind: str, mode: str) -> str:
    """What is wrong after a failed step of this kind; empty if nothing is."""
    before_mode = config.compile_mode
    config.compile_mode = "never" if mode == "cold" else "sync"
    try:
        training = Training(kind, mode)
        at_capture = mode == "captured" and kind in PYTHON
        for _ in range(0 if at_capture else 4):
            training.step()
        before = training.state()
        try:
            training.step(bad=True)
        except BaseException as error:
            raised = type(error).__name__
        else:
            return "it did not fail"
        changed = differing(before, training.state())
        if mode != "captured" and kind in FORWARD:
            changed = [k for k in changed if k not in ("norm._mean", "norm._variance", "rng")]
        if changed:
            return f"{raised} changed {changed}"
        losses = [training.step() for _ in range(3)]
        if not np.isfinite(losses).all() or not differing(before, training.state()):
            return f"training did not go on after {raised}: {losses}"
        return ""
    finally:
        config.compile_mode = before_mode


def main(part: int = 0, parts: int = 1) -> int:
    """Every kind in every mode, or each `parts`-th of them."""
    failures = 0
    cases = [(mode, kind) for mode in MODES for kind in KINDS][part::parts]
    for mode, kind in cases:
        wrong = leaves_all(kind, mode)
        failures += bool(wrong)
        print(f"{mode:9} {kind:28} {wrong or 'as before, training goes on'}", flush=True)
    print(f"{len(cases) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
