"""What `python -m bench.gpu` measures, what it needs, and what it must show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.gpu.peer import GpuPeer

LABELS = {"bireme": "Bireme", "torch": "torch eager", "compile": "torch.compile"}
# What torch is in `decode`: its step is compiled, its prompt is not.
_DECODE_LABEL = "torch.compile"
_CONTEXT_GIB = 2  # of a process: CUDA's own, the libraries' workspaces


@dataclass(frozen=True, eq=False)
class Job:
    """One peer of one workload: what its process is asked for."""

    workload: str
    peer: str
    module: str
    arguments: Mapping[str, Any]
    gib: float  # of the GPU's memory, at most
    seconds: float  # that preparing takes when nobody else prepares and all caches are cold
    environment: Mapping[str, str]
    alone: bool = False  # whether nothing else may run on the GPU while it chooses its kernels

    @property
    def name(self) -> str:
        return f"{self.workload} {self.peer}"

    def start(self, **environment: str) -> GpuPeer:
        extra = {**environment, **self.environment}
        peer = GpuPeer(self.workload, self.peer, self.module, self.arguments, **extra)
        return peer.__enter__()


@dataclass(frozen=True)
class Limit:
    """A figure of ours set against a peer's, or, without one, a share of what the chip can do."""

    workload: str
    against: str | None
    figure: str = "ms"
    at_most: float | None = None
    at_least: float | None = None


LIMITS = (
    Limit("gpt2", "compile", at_most=0.97),
    Limit("gpt2", "torch", at_most=0.70),
    Limit("gpt2", "compile", "memory_gib", at_most=1.0),
    Limit("llama1b", "compile", at_most=0.97),
    Limit("resnet50", "compile", at_most=1.0),
    Limit("mlp_tiny", "torch", at_most=0.5),
    Limit("decode", "torch", at_most=0.9),
    Limit("decode", None, "of_ceiling", at_least=0.60),
    Limit("spectral", "torch"),
)
DESCRIPTIONS = {
    "gpt2": "124 M parameters, 16x1024 tokens, vocabulary 50257, bf16 autocast, AdamW",
    "llama1b": "22 layers, width 2048, 4x4096 tokens, bf16 autocast, AdamW",
    "resnet50": "batch 256 of 3x224x224, bf16 autocast, momentum",
    "mlp_tiny": "20 linear layers, 32 wide, batch 16, float32, SGD",
    "decode": "1.1 B parameters in bf16, batch 1, a static cache; torch's step is compiled "
    '(mode="reduce-overhead"); milliseconds a token',
    "spectral": "Navier-Stokes in 256^3 points, float32, Heun's method",
}

# Workload -> module, arguments, those of a size for any CPU, and peer -> (GiB, seconds alone).
# Peaks were 8.6 (ours) and 9.9 for gpt2, 37.7 and 37.5 for llama1b, 10.8 and 10.6 for resnet50; an
# allocator needs more, because free memory is in pieces.
_WORKLOADS: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, tuple[float, float]]]]
_WORKLOADS = {
    "llama1b": (
        "train",
        {"model": "llama1b", "seconds": 3.0},
        {"model": "llama_tiny", "seconds": 0.1},
        {"bireme": (60, 121), "compile": (46, 74)},
    ),
    "decode": (
        "decode",
        {"size": "1.1b"},
        {"size": "tiny"},
        {"bireme": (20, 90), "torch": (8, 60)},
    ),
    "gpt2": (
        "train",
        {"model": "gpt2", "seconds": 3.0},
        {"model": "gpt2_tiny", "seconds": 0.1},
        {"bireme": (18, 75), "compile": (16, 41), "torch": (30, 15)},
    ),
    "resnet50": (
        "train",
        {"model": "resnet50", "seconds": 3.0},
        {"model": "resnet_tiny", "seconds": 0.1},
        {"bireme": (22, 47), "compile": (24, 60)},
    ),
    "mlp_tiny": (
        "check",
        {"workload": "mlp_tiny", "seconds": 2.0},
        {"workload": "mlp_tiny", "seconds": 0.1},
        {"bireme": (4, 15), "torch": (3, 10)},
    ),
    "spectral": (
        "spectral",
        {"points": 256, "steps": 20},
        {"points": 16, "steps": 2},
        {"bireme": (8, 15), "torch": (8, 10)},
    ),
}
NAMES = tuple(_WORKLOADS)
# Llama's step was 0.973 of torch.compile's when three peers prepared at once, and 0.963 and 0.967
# when it chose its kernels by itself.
_ALONE = {("llama1b", "bireme")}


def label(workload: str, peer: str) -> str:
    return _DECODE_LABEL if (workload, peer) == ("decode", "torch") else LABELS[peer]


def jobs(names: Sequence[str], peers: Sequence[str], gpu_gib: float, tiny: bool) -> list[Job]:
    """All peers of the first workload, then of the next."""
    found = []
    for name in NAMES:
        module, full, small, needs = _WORKLOADS[name]
        for peer, (gib, seconds) in needs.items():
            if name in names and peer in peers:
                environment = {}
                if peer == "bireme" and not tiny:
                    # XLA takes its share at once and never asks for more. Growing on demand
                    # (without a preallocation) it can take twice of what it uses.
                    share = (gib - _CONTEXT_GIB) / gpu_gib
                    environment["XLA_CLIENT_MEM_FRACTION"] = f"{share:.4f}"
                arguments = small if tiny else full
                alone = (name, peer) in _ALONE
                found.append(Job(name, peer, module, arguments, gib, seconds, environment, alone))
    return found
