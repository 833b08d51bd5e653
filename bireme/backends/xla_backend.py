"""The default backend: the whole graph as one XLA program, on CPU, GPU or a PJRT plug-in."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.backends.base import Backend, Executable
from bireme.core import jax_door, kernels, place, sharding
from bireme.core.graph import Graph, Node
from bireme.kernels import install as install_kernels

# XLA:CPU takes a run's scratch memory when its inputs are ready; the run that made them gives its
# own back a moment later. A loop that runs ahead would use two in turn, and the heap keep the pages
# of both. So from this size on a run is called a moment after its inputs are ready; such a program
# takes tens of milliseconds, and MobileNet's step a sixth longer with 50 to 90 MiB less.
_LARGE_SCRATCH = 16 << 20
_MOMENT = 5e-5

# What compiling leaves on the heap grows with the number of ops, about 150 KiB each. Where there
# are many and they make little each, that weighs more than the speed of their loops: MobileNet's
# step (331 ops, 327 KiB each) is as fast either way, but those of ResNet-18, a U-Net and an encoder
# (1.2 to 1.9 MiB each) take 4 to 7 % longer by the emitters that leave little.
_MANY_OPS, _LITTLE_EACH = 128, 512 << 10


def compiler_options(platform: str, nodes: Sequence[Node]) -> dict[str, bool]:
    """How XLA is to compile a program of these nodes."""
    if platform != "cpu" or len(nodes) < _MANY_OPS:
        return {}
    made = sum(o.size * o.dtype.itemsize for n in nodes for o in n.call.outs)
    return jax_door.frugal_options() if made < len(nodes) * _LITTLE_EACH else {}


class XlaExecutable(Executable):
    def __init__(self, compiled: Any, device: Any, chosen: Counter[kernels.Choice]):
        self.kernels = chosen
        self.compiled = compiled
        self.call = jax_door.direct_call(compiled)
        self._device = device
        on_cpu = getattr(device, "platform", None) == "cpu"
        self._alone = on_cpu and self._scratch() >= _LARGE_SCRATCH

    def _scratch(self) -> int:
        planned = self.compiled.memory_analysis()
        return 0 if planned is None else planned.temp_size_in_bytes

    def wait_for(self, inputs: Sequence[Any]) -> None:
        if self._alone:
            jax_door.jax().block_until_ready(inputs)
            time.sleep(_MOMENT)

    def put(self, array: Any) -> Any:
        return jax_door.jax().device_put(array, self._device)

    def adds_on(self, device: Any) -> int:
        """Bytes on a device that a run needs besides its inputs: results and scratch memory."""
        if device is not self._device and device not in getattr(self._device, "device_set", ()):
            return 0
        planned = self.compiled.memory_analysis()
        if planned is None:  # a plug-in need not tell
            return 0
        made = planned.output_size_in_bytes - planned.alias_size_in_bytes
        return planned.temp_size_in_bytes + made


class XlaBackend(Backend):
    name = "xla"

    def __init__(self) -> None:
        install_kernels()

    def compile(
        self,
        graph: Graph,
        nodes: list[Node],
        donated: tuple[int, ...],
        shardings: tuple[Any, ...] | None = None,
    ) -> Executable:
        jax = jax_door.jax()
        jnp = jax.numpy

        def program(floats: Any, ints: Any, *inputs: Any) -> list[Any]:
            return graph.evaluate(inputs, floats, ints, lambda c, a: c.run(jnp, a), nodes)

        # The partitioner carries the inputs' shardings through the program; numbers go to all.
        given = (None,) * len(graph.inputs) if shardings is None else shardings
        spread = next((s for s in given if s is not None), None)
        everywhere = None if spread is None else sharding.replicated(spread)
        specs = [
            jax.ShapeDtypeStruct((graph.n_floats,), jnp.float64, sharding=everywhere),
            jax.ShapeDtypeStruct((graph.n_ints,), jnp.int64, sharding=everywhere),
            *(
                jax.ShapeDtypeStruct(t.shape, t.dtype.numpy, sharding=s)
                for t, s in zip(graph.inputs, given, strict=True)
            ),
        ]
        device = place.default_place().device()
        # The partitioner cannot look into a kernel, so sharded programs use plain lowerings.
        platform = device.platform if everywhere is None else "none"
        with jax.default_device(device), kernels.lowering_for(platform) as chosen:
            jitted = jax.jit(
                program, donate_argnums=tuple(i + 2 for i in donated), keep_unused=True
            )
            lowered = jitted.lower(*specs)
        compiled = lowered.compile(compiler_options=compiler_options(device.platform, nodes))
        return XlaExecutable(compiled, device if everywhere is None else everywhere, chosen)

    def compile_fixed(self, graph: Graph, fixed: dict[int, Any]) -> Executable:
        """Compile for inference: the inputs in `fixed` and all numbers are built in, so that XLA
        folds them. The executable is called with the other inputs, in order."""
        jax = jax_door.jax()
        jnp = jax.numpy
        nodes = graph.needed()
        floats, ints = np.zeros(graph.n_floats), np.zeros(graph.n_ints, np.int64)
        for number, value in graph.numbers.items():
            (floats if number.kind == "float" else ints)[number.index] = value
        free = [i for i in range(len(graph.inputs)) if i not in fixed]

        def program(*inputs: Any) -> list[Any]:
            leaves = {**fixed, **dict(zip(free, inputs, strict=True))}
            ordered = [leaves[i] for i in range(len(leaves))]
            return graph.evaluate(ordered, floats, ints, lambda c, a: c.run(jnp, a), nodes)

        types = [graph.inputs[i] for i in free]
        specs = [jax.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in types]
        device = place.default_place().device()
        how = kernels.lowering_for(device.platform, inference=True)
        with jax.default_device(device), how as chosen:
            lowered = jax.jit(program, keep_unused=True).lower(*specs)
        return XlaExecutable(lowered.compile(), device, chosen)
