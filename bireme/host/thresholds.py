"""Sizes and times from which on something pays, in one table, with the measurement that set each.

A row is a number under a name. Code reads it through this module (`thresholds.GPU_NORM`), so that a
test can lower it. `print(thresholds.table())` shows all. What a kernel cannot do at all (a width
that no tile fits) is no threshold and stays beside the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class Row:
    """A threshold: its value and unit, the day when it was set, and by what."""

    value: float
    unit: str
    day: str
    measured: str


_rows: list[Row] = []


def _set(value: _Number, unit: str, day: str, measured: str) -> _Number:
    _rows.append(Row(value, unit, day, measured))
    return value


# --- kernels of the CPU ---------------------------------------------------------------------------

CPU_ATTENTION_QUERIES = _set(
    16,
    "queries at least",
    "2026-11-15",
    "with fewer (a step of decoding) most of the time goes into packing the keys",
)
CPU_DECODE_QUERIES = _set(
    16, "queries of a sample at most", "2026-11-19", "with more, matrix products are faster"
)
CPU_BFLOAT16_WORK = _set(
    1 << 20,
    "multiplications at least",
    "2026-11-15",
    "bench eager under autocast: mlp_wide 33 -> 15 to 17 ms, encoder 147 -> 113 to 135; below it a "
    "call costs more than it saves",
)
CPU_LINEAR_WORK = _set(
    1 << 22, "multiplications at least", "2026-11-15", "below it a call costs more than it saves"
)
CPU_LINEAR_SMALL_WORK = _set(
    1 << 18,
    "multiplications at most",
    "2026-11-16",
    "a captured step of forty small parameters: 180 -> 113 us; XLA's product waits on the heap for "
    "the thread that prepares the next step",
)
CPU_PRODUCT_WORK = _set(
    1 << 23,
    "multiplications at least",
    "2026-11-19",
    "multiplications from which another thread is worth waking",
)
CPU_SHIFTED_TAPS = _set(
    81,
    "elements of a kernel at most",
    "2026-11-15",
    "each is an operation of its own; XLA's own took up to a hundred times as long below it",
)
CPU_COLUMNS_WEIGHT = _set(
    1 << 18,
    "elements of a weight at least",
    "2026-11-15",
    "XLA transposes the weight three times a step, which is dear from here on",
)
CPU_WINOGRAD_CHANNELS = _set(
    16,
    "channels at least",
    "2026-11-15",
    "fewer make products that are slower than XLA's convolution",
)
CPU_PIECE = _set(
    1 << 12,
    "elements at least",
    "2026-11-20",
    "one native pass is faster than NumPy's from here on",
)
CPU_PIECE_SHARED = _set(
    1 << 17, "elements at least", "2026-11-20", "a second thread helps one simple function"
)

# --- kernels of GPUs (all on an H200; docs/notes/gpu-training.md and gpu-decoding.md) ------------

GPU_NORM = _set(
    1 << 20,
    "elements of the input at least",
    "2026-11-16",
    "GPT-2's step 34.3 -> 31.7 ms and Llama's 244 -> 235, with the loss's kernel",
)
GPU_SUM_ADDENDS = _set(
    4, "addends at most", "2026-11-16", "chosen with GPU_NORM; no measurement was kept"
)
GPU_LOSS_CLASSES = _set(
    4096,
    "classes at least",
    "2026-11-16",
    "chosen for vocabularies: over 50304 columns log-sum-exp takes 583 us, its slope 892",
)
GPU_VOCABULARY = _set(
    1 << 20,
    "elements of a weight at least",
    "2026-11-15",
    "GPT-2's vocabulary padded to a multiple of 64, with attention's residuals: 43.1 -> 36.4 ms",
)
GPU_JOINED = _set(
    1 << 22,
    "elements of what the layers read at least",
    "2026-11-16",
    "Llama's step from 0.971 to 0.967 of torch.compile",
)
GPU_JOINED_SHARE = _set(
    4,
    "times the smaller layers' columns that the array has at least",
    "2026-11-16",
    "joining gate and up moves more bytes than it saves; queries, keys and values do not",
)
GPU_GATE = _set(
    1 << 20,
    "elements at least",
    "2026-11-15",
    "Llama lost 4 of 238 ms with this and joined slices",
)
GPU_POOLING_TAPS = _set(
    64, "places of a window at most", "2026-11-20", "XLA compiles each place by itself"
)
GPU_DECODE_ROWS = _set(
    4, "rows at most", "2026-11-15", "chosen with the kernel, which is for a token of few samples"
)
GPU_DECODE_WEIGHT = _set(
    1 << 16,
    "elements of a weight at least",
    "2026-11-15",
    "chosen with the kernel; no measurement was kept",
)

# --- compiling, and the cold tier beside it -------------------------------------------------------

# XLA:CPU takes a run's scratch memory when its inputs are ready; the run that made them gives its
# own back a moment later. A loop that runs ahead would use two in turn, and the heap keep the pages
# of both. So from this size on a run is called a moment after its inputs are ready; such a program
# takes tens of milliseconds.
SCRATCH_THAT_WAITS = _set(
    16 << 20,
    "bytes at least",
    "2026-11-16",
    "MobileNet's step peaks at 395 to 449 MiB instead of 444 to 524, and takes a sixth longer",
)
RESERVED = _set(
    1 << 20, "bytes at least", "2026-11-19", "less than this is not looked for before a run"
)
# What compiling leaves on the heap grows with the number of ops, about 150 KiB each. Where there
# are many and they make little each, that weighs more than the speed of their loops.
FRUGAL_OPS = _set(
    128,
    "ops at least",
    "2026-11-16",
    "MobileNet's step (331 ops) is as fast either way",
)
FRUGAL_BYTES_EACH = _set(
    512 << 10,
    "bytes an op makes at most",
    "2026-11-16",
    "ResNet-18, a U-Net and an encoder (1.2 to 1.9 MiB each) take 4 to 7 % longer by the emitters "
    "that leave little; MobileNet (327 KiB each) does not",
)
HEAVY = _set(64 << 20, "bytes at least", "2026-11-19", "an array that is not to be there twice")
BEGINS_ON_HOST = _set(
    0.05,
    "seconds in the cold tier at most",
    "2026-11-19",
    "the fastest compilation for a GPU takes five times as long",
)
MOVED = _set(
    1024,
    "bytes at most",
    "2026-11-19",
    "a smaller array of the host is passed to each run as it is",
)
SMALL_OP = _set(
    5e-5, "seconds an op at most", "2026-11-19", "about what Python needs to call one in NumPy"
)
LOOKED_FOR_ON_DISK = _set(
    0.02, "seconds in the cold tier at least", "2026-11-19", "chosen; no measurement was kept"
)
NOTED_ON_DISK = _set(0.3, "seconds of compiling at least", "2026-11-19", "what JAX keeps on disk")
SEARCHED_RUNS = _set(
    20, "runs at least", "2026-11-19", "a quick program that ends sooner is not searched for"
)
SEARCHED_SECONDS = _set(
    10.0,
    "seconds at least",
    "2026-11-19",
    "without the search a ViT compiles in 4 s instead of 69, and its step takes 24.7 instead of "
    "19.6 ms",
)
LONG_PRODUCT = _set(
    256, "factors at most", "2026-11-19", "JAX differentiates longer cumulative products"
)


def rows() -> dict[str, Row]:
    """The table by name. A value that was changed since (in a test) is shown as it was set."""
    names = [n for n in globals() if n.isupper()]
    return dict(zip(names, _rows, strict=True))


def table() -> str:
    """The thresholds as text."""
    return "\n".join(
        f"{name} = {row.value:g} {row.unit} ({row.day}): {row.measured}"
        for name, row in rows().items()
    )
