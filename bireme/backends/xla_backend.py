"""The default backend: the whole graph as one XLA program, on CPU, GPU or a PJRT plug-in."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from bireme.backends.base import Backend, Executable
from bireme.backends.improving import Improvement
from bireme.core import kernels, requirements, sharding
from bireme.core.graph import Graph, Node
from bireme.core.place import Place, default_place
from bireme.host import background, cache_folder, config, heap, jax_door, thresholds
from bireme.host.arrays import Array
from bireme.kernels import PATCH_PRODUCT, fusing
from bireme.kernels import install as install_kernels

_MOMENT = 5e-5  # seconds that a run waits after its inputs are ready, if its scratch is large

# A quick compilation for a GPU does without the search for the fastest kernels, which takes most of
# the time (H200: a ViT compiles in 4 s instead of 69, and its step takes 24.7 ms instead of 19.6).
# Products have good kernels in cuBLAS. Convolutions without a search get a slow one (a U-Net's step
# takes 4.6 s instead of 10 ms), unless XLA has to be deterministic: it then takes what cuDNN
# recommends (7.8 ms). In that mode two equal calls of cuDNN's attention fail when they run
# (jaxlib 0.11.2), so with these convolutions are searched for.
_SEARCH_CONVOLUTIONS = {"xla_gpu_enable_triton_gemm": False}
_WITHOUT_SEARCH = _SEARCH_CONVOLUTIONS | {"xla_gpu_autotune_level": 0}
_RECOMMENDED = _SEARCH_CONVOLUTIONS | {"xla_gpu_deterministic_ops": True}


def quick_options(nodes: Sequence[Node], chosen: Counter[kernels.Choice]) -> dict[str, Any]:
    """How XLA compiles these nodes, with the kernels that were chosen, for a GPU in seconds."""
    names = [n.call.op.name for n in nodes]
    products = sum(n for (_, kernel), n in chosen.items() if kernel == PATCH_PRODUCT)
    inner = any("graph" in n.call.attrs for n in nodes)  # may hold anything
    if not inner and sum(name.startswith("conv") for name in names) == products:
        return _WITHOUT_SEARCH
    several = inner or sum(name == "attention" for name in names) > 1
    return _SEARCH_CONVOLUTIONS if several else _RECOMMENDED


def compiler_options(platform: str, nodes: Sequence[Node]) -> dict[str, bool]:
    """How XLA is to compile a program of these nodes."""
    if platform != "cpu" or len(nodes) < thresholds.FRUGAL_OPS:
        return {}
    made = sum(o.size * o.dtype.itemsize for n in nodes for o in n.call.outs)
    return jax_door.frugal_options() if made < len(nodes) * thresholds.FRUGAL_BYTES_EACH else {}


# A function of open sizes and its types, as ones of padded arrays.
Pad = Callable[[Callable[..., list[Any]], list[Any]], tuple[Callable[..., list[Any]], list[Any]]]


class XlaExecutable(Executable):
    def __init__(
        self,
        compiled: Any,
        device: Any,
        chosen: Counter[kernels.Choice],
        improvement: Improvement | None = None,
    ):
        self.kernels = chosen
        self.improvement = improvement
        self._device = device
        self._on_cpu = getattr(device, "platform", None) == "cpu"
        self._take(compiled)

    def _take(self, compiled: Any) -> None:
        self.compiled = compiled
        self.call = jax_door.direct_call(compiled)
        planned = compiled.memory_analysis()  # a plug-in need not tell
        self._scratch = 0 if planned is None else planned.temp_size_in_bytes
        self._made = 0  # results that do not take an input's place
        if planned is not None:
            self._made = max(planned.output_size_in_bytes - planned.alias_size_in_bytes, 0)
        self._alone = self._on_cpu and self._scratch >= thresholds.SCRATCH_THAT_WAITS

    def improve(self, wait: bool = False) -> bool:
        if self.improvement is None:
            return False
        best = self.improvement.result() if wait else self.improvement.after_run()
        if best is None and not self.improvement.has_failed:
            return False
        self.improvement = None
        if best is not None:
            self._take(best)
        return best is not None

    def reserve(self) -> None:
        if self._scratch + self._made < thresholds.RESERVED:
            return
        if self._on_cpu:
            heap.probe(self._scratch, self._made)
            return
        stats = getattr(self._device, "memory_stats", lambda: None)()
        if stats and "bytes_limit" in stats:
            limit = stats["bytes_limit"]
            free = limit - stats["bytes_in_use"]
            # The scratch memory is one block: it lies in a hole, or in what the pool still gets.
            block = max(
                stats.get("largest_free_block_bytes", free), limit - stats.get("pool_bytes", 0)
            )
            if self._scratch + self._made > free or self._scratch > block:
                raise MemoryError(
                    f"a run takes {self._scratch} bytes of the device's memory in one block and "
                    f"{self._made} besides; {free} are free, {min(block, free)} of them in one"
                )

    def call_and_wait(self, arguments: Sequence[Any]) -> list[Any]:
        return jax_door.jax().block_until_ready(self.call(*arguments))

    def wait_for(self, inputs: Sequence[Any]) -> None:
        if self._alone:
            jax_door.jax().block_until_ready(inputs)
            time.sleep(_MOMENT)

    def put(self, array: np.ndarray) -> Array:
        made = jax_door.jax().device_put(array, self._device)
        if array.nbytes > thresholds.HEAVY:  # until it is copied, it is there twice
            made.block_until_ready()
        return made

    def takes(self, buffer: Array) -> bool:
        return isinstance(buffer, np.ndarray | jax_door.jax().Array)

    def adds_on(self, place: Place) -> int:
        device = place.device()
        if device is not self._device and device not in getattr(self._device, "device_set", ()):
            return 0
        return self._scratch + self._made


class XlaBackend(Backend):
    name = "xla"
    pads = True

    def compile(
        self,
        graph: Graph,
        *,
        place: Place | None = None,
        fixed: Mapping[int, Any] | None = None,
        donated: tuple[int, ...] = (),
        shardings: tuple[Any, ...] | None = None,
        watched: tuple[int, ...] = (),
        pad: Pad | None = None,
    ) -> Executable:
        install_kernels()
        jax = jax_door.jax()
        nodes = graph.needed()
        # The partitioner carries the inputs' shardings through the program; numbers go to all.
        spread = next((s for s in shardings or () if s is not None), None)
        everywhere = None if spread is None else sharding.replicated(spread)
        device = (default_place() if place is None else place).device()
        _make_pool(device)
        # The partitioner cannot look into a kernel, so sharded programs use plain lowerings.
        platform = device.platform if everywhere is None else "none"
        lowering = kernels.lowering_for(platform, inference=fixed is not None)
        with jax.default_device(device), lowering as chosen:
            # Rules are for closed sizes.
            fused = graph
            if pad is None:
                fused = fusing.fused(graph, platform, fixed is not None, chosen)
            function = _program(graph, fused, fixed, watched)
            types = _types(graph, fixed, shardings, everywhere)
            if pad is not None:
                function, types = pad(function, types)
            positions = _positions(graph, donated, fixed)
            lowered = jax.jit(function, donate_argnums=positions, keep_unused=True).lower(*types)
        background.check()  # importing JAX and lowering took seconds; XLA cannot be interrupted
        closed = not fixed and pad is None
        options = compiler_options(device.platform, nodes) if closed else {}
        compiled, improvement = _compiled(lowered, platform, options, quick_options(nodes, chosen))
        where = device if everywhere is None else everywhere
        return XlaExecutable(compiled, where, chosen, improvement)

    def put(self, array: Array, place: Place) -> Array:
        jax = jax_door.jax()
        if not isinstance(array, jax.Array):
            array = np.asarray(array)
        return jax.device_put(array, place.device())

    def device_count(self, kind: str) -> int:
        try:
            return len(jax_door.jax().local_devices(backend=kind))
        except RuntimeError:
            return 0

    def memory_stats(self, place: Place) -> dict[str, int]:
        return place.device().memory_stats() or {}

    def unfinished(self, place: Place) -> list[Any]:
        if not jax_door.is_loaded():
            return []
        return jax_door.jax().live_arrays(place.device().platform)

    def synchronize(self, place: Place) -> None:
        if not jax_door.is_loaded():
            return
        jax = jax_door.jax()
        # Programs run in order on a device: a fresh result means that all before are done.
        jax.device_put(0, place.device()).block_until_ready()
        jax.effects_barrier()
        for array in self.unfinished(place):
            array.block_until_ready()


@functools.cache
def _make_pool(device: Any) -> None:
    """Have XLA take a GPU's memory for its pool while a first program is compiled: 1.4 s on a
    large GPU, which the first run would wait for."""
    if device.platform != "cpu":
        put = jax_door.jax().device_put
        threading.Thread(target=put, args=(np.zeros(1, np.float32), device), daemon=True).start()


def _compiled(
    lowered: Any, platform: str, options: dict[str, bool], quick: dict[str, Any]
) -> tuple[Any, Improvement | None]:
    """A compiled program, and how to compile it better if this one was made quickly."""

    def best() -> Any:
        return lowered.compile(compiler_options=options)

    if platform != "gpu" or config.compile_mode != "auto":
        return background.yielding(best) if platform == "cpu" else best(), None
    if jax_door.keeps_programs():
        with suppress(cache_folder.NotCached), cache_folder.cached_only():
            return best(), None
    return lowered.compile(compiler_options=quick | options), Improvement(best)


def _program(
    graph: Graph, fused: Graph, fixed: Mapping[int, Any] | None, watched: tuple[int, ...]
) -> Callable[..., list[Any]]:
    """What is traced for `graph`, which `fused` computes: a function of the numbers and the inputs,
    or of the inputs that are not fixed. XLA folds what is."""
    jnp = jax_door.jnp()
    evaluate = fusing.evaluator(graph, fused)

    def program(floats: Any, ints: Any, *inputs: Any) -> list[Any]:
        with requirements.collecting(watched) as evidence:
            made = evaluate(floats, ints, *inputs)
            return [*made, jnp.stack(evidence())] if watched else made

    if fixed is None:
        return program
    floats, ints = map(np.array, graph.vectors())
    free = _free(graph, fixed)

    def with_fixed(*inputs: Any) -> list[Any]:
        # As arrays of JAX: a body tells the tiers apart by what it is given.
        leaves = {i: jnp.asarray(a) for i, a in fixed.items()}
        leaves.update(zip(free, inputs, strict=True))
        return program(floats, ints, *[leaves[i] for i in range(len(leaves))])

    return with_fixed


def _free(graph: Graph, fixed: Mapping[int, Any] | None) -> list[int]:
    """The inputs that a call is given, in order."""
    return [i for i in range(len(graph.inputs)) if fixed is None or i not in fixed]


def _positions(
    graph: Graph, donated: tuple[int, ...], fixed: Mapping[int, Any] | None
) -> tuple[int, ...]:
    """Where the donated inputs are among the arguments."""
    first = 2 if fixed is None else 0
    return tuple([first + at for at, i in enumerate(_free(graph, fixed)) if i in donated])


def _types(
    graph: Graph,
    fixed: Mapping[int, Any] | None,
    shardings: tuple[Any, ...] | None,
    everywhere: Any,
) -> list[Any]:
    """The arguments' types, as JAX writes them."""
    jax = jax_door.jax()
    spread = (None,) * len(graph.inputs) if shardings is None else shardings
    types = []
    if fixed is None:
        types = [
            jax.ShapeDtypeStruct((graph.n_floats,), np.float64, sharding=everywhere),
            jax.ShapeDtypeStruct((graph.n_ints,), np.int64, sharding=everywhere),
        ]
    for i in _free(graph, fixed):
        t = graph.inputs[i]
        types.append(jax.ShapeDtypeStruct(t.shape, t.dtype.numpy, sharding=spread[i]))
    return types
