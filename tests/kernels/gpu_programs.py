"""Steps of small networks as programs for a GPU, traced on a machine without one.

`python -m tests.kernels.gpu_programs` prints for each what `test_gpu_choices.py` compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bench.gpu import language
from bireme import passes
from bireme.capture.capture import Captured, capture
from bireme.core import kernels, trace
from bireme.core.aval import aval
from bireme.core.dtype import bfloat16
from bireme.core.graph import Graph
from bireme.host import thresholds
from bireme.kernels import (
    fusing,
    gpu_attention,
    gpu_gate,
    install,
    nvidia,
)
from bireme.nn import functional as F
from bireme.nn.generation import ops as generation_ops  # noqa: F401 (`linears`)

Step = Callable[[], tuple[Any, list[Any]]]  # the loss, and whose gradients are wanted


def lowered(graph: Graph, platform: str, floats: Any, ints: Any, inputs: Any) -> list[Any]:
    """The graph's results, by the kernels and rules of this platform."""
    with kernels.lowering_for(platform) as chosen:
        fused = fusing.fused(graph, platform, chosen=chosen)
        fused.check()
        return fusing.evaluator(graph, fused)(floats, ints, *inputs)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Kernels choose as on an NVIDIA GPU, for arrays of any size; nothing can be run."""
    install()
    attend = gpu_attention._function
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvidia, "available", lambda: True)
        patch.setattr(nvidia, "interpreted", lambda: True)
        patch.setattr(gpu_attention, "_function", lambda call, s: attend(call, s, "xla"))
        patch.setattr(gpu_gate, "_BLOCK", 8)
        for name in ("DECODE_WEIGHT", "GATE", "JOINED", "LOSS_CLASSES", "NORM", "VOCABULARY"):
            patch.setattr(thresholds, f"GPU_{name}", 1)
        yield


def language_model(name: str, captured: bool = False) -> Step:
    size = language.SIZES[name]
    tokens = language.batches(size)[0]

    def step() -> tuple[Any, list[Any]]:
        net = language.build(paddle, size)
        run = paddle.jit.to_static(net) if captured else net
        x, y = (paddle.to_tensor(t) for t in (tokens[:, :-1], tokens[:, 1:]))
        with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
            loss = run(x, y)
        return loss, net.parameters()

    return step


def images() -> tuple[Any, list[Any]]:
    net = paddle.nn.Sequential(
        paddle.nn.Conv2D(3, 8, 3, padding=1), paddle.nn.BatchNorm2D(8), paddle.nn.ReLU(),
        paddle.nn.MaxPool2D(2), paddle.nn.Conv2D(8, 16, 2, stride=2), paddle.nn.Flatten(),
        paddle.nn.Linear(64, 10),
    )  # fmt: skip
    x, y = paddle.rand([2, 3, 8, 8]), paddle.to_tensor([1, 2])
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
        loss = F.cross_entropy(net(x), y)
    return loss, net.parameters()


def gates_in_half() -> tuple[Any, list[Any]]:
    """Pure float16, with gates of both forms and layers that read one array."""
    widths = {"wide": 64, "gate": 16, "up": 16, "mix": 16}
    layers = {n: paddle.nn.Linear(64, w, bias_attr=False) for n, w in widths.items()}
    for layer in layers.values():
        layer.to(dtype="float16")
    x = paddle.rand([2, 4, 64]).astype("float16")
    x.stop_gradient = False
    x.retain_grads()
    h = x * 2.0
    gate, up, mix = (layers[n](h) for n in ("gate", "up", "mix"))
    out = F.silu(gate) * up + F.swiglu(mix, up) + layers["wide"](h)[..., :16]
    return out.astype("float32").sum(), [x, *[p for n in layers.values() for p in n.parameters()]]


class Block(paddle.nn.Layer):
    """Of a language model without attention."""

    def __init__(self, width: int, inner: int):
        super().__init__()
        nn = paddle.nn
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q, self.k, self.mix = (nn.Linear(width, width, bias_attr=False) for _ in range(3))
        self.gate, self.up = (nn.Linear(width, inner, bias_attr=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias_attr=False)

    def forward(self, x: Any) -> Any:
        h = self.norm1(x)
        x = x + self.mix(self.q(h) * self.k(h))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def decoding() -> Captured:
    """A token through two blocks in bfloat16."""
    paddle.seed(0)
    blocks = [Block(64, 128) for _ in range(2)]
    for block in blocks:
        block.to(dtype="bfloat16")

    def step(arguments: Any) -> Any:
        (x,) = arguments
        with paddle.no_grad():
            for block in blocks:
                x = block(x)
        return [x]

    return capture(step, [aval((1, 1, 64), bfloat16)], label="test", tape=False, amp=None)


PROGRAMS: dict[str, Callable[[], Graph]] = {
    "gpt": lambda: graph_of(language_model("gpt2_tiny")),
    "gpt captured": lambda: graph_of(language_model("gpt2_tiny", captured=True)),
    "llama": lambda: graph_of(language_model("llama_tiny")),
    "images": lambda: graph_of(images),
    "gates in half": lambda: graph_of(gates_in_half),
    "decoding": lambda: passes.run(decoding().graph, ["merge_products"]),
}


def _recorded(step: Step) -> Graph:
    """The recorded step: its results are the loss and what is made of the gradients."""
    paddle.seed(0)
    trace.flush()
    loss, wanted = step()
    loss.backward()
    updates = [t.grad * 0.5 for t in wanted if t.grad is not None]
    recorded = trace.state.trace
    outputs = [loss._value.slot, *[u._value.slot for u in updates]]
    return Graph.from_code(recorded.code, [v.aval for v in recorded.leaves], outputs)


def graph_of(step: Step) -> Graph:
    """The recorded step, which is never run."""
    graph = _recorded(step)
    trace.flush()  # nobody holds its results any more
    return graph


def arguments(graph: Graph) -> tuple[Any, ...]:
    """The types of what a program of this graph is called with: numbers and inputs."""
    from jax import ShapeDtypeStruct

    numbers = ((graph.n_floats, np.float64), (graph.n_ints, np.int64))
    return (
        *[ShapeDtypeStruct((n,), dtype) for n, dtype in numbers],
        *[ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in graph.inputs],
    )


def signature(graph: Graph) -> tuple[Counter[kernels.Choice], Counter[str]]:
    """Which kernels were chosen, and the primitives that are left without dead code."""
    from jax import make_jaxpr
    from jax.interpreters import partial_eval

    with kernels.lowering_for("gpu") as chosen:
        fused = fusing.fused(graph, "gpu", chosen=chosen)
        fused.check()
        closed = make_jaxpr(fusing.evaluator(graph, fused))(*arguments(graph))
    jaxpr, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(closed.jaxpr.outvars))
    found: Counter[str] = Counter()
    _count(jaxpr, found)
    return chosen, found


def _count(jaxpr: Any, found: Counter[str]) -> None:
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        if name == "pallas_call":
            info = eqn.params.get("name_and_src_info") or eqn.params.get("name")
            name = "kernel " + str(getattr(info, "name", info))
        inner = [p for p in eqn.params.values() if hasattr(getattr(p, "jaxpr", p), "eqns")]
        if inner and not name.startswith("kernel"):
            for p in inner:
                _count(getattr(p, "jaxpr", p), found)
            continue
        kinds = ",".join(str(v.aval) for v in eqn.outvars)
        found[f"{name} {kinds}"] += 1


def main() -> None:
    with as_on_a_gpu():
        for name, make in PROGRAMS.items():
            chosen, found = signature(make())
            print(f"== {name}")
            for choice, n in sorted(chosen.items()):
                print(f"  {choice}: {n}")
            for primitive, n in sorted(found.items()):
                print(f"    {n:4} {primitive}")


if __name__ == "__main__":
    main()
