"""Versions: of the Paddle API that Bireme provides, and of what it runs on."""

from __future__ import annotations

from importlib import metadata

full_version = "3.3.1"
major, minor, patch = full_version.split(".")
rc = "0"
is_tagged = True
commit = "unknown"  # programs log it; a release is known by its version
cinn_version = "False"
with_pip_cuda_libraries = "ON"


def parse(text: str) -> tuple[int, int, int, int]:
    """'3.3.1' as four numbers that compare; missing ones are 0."""
    numbers = [int(part) for part in text.split(".") if part.isdigit()]
    return tuple([*numbers, 0, 0, 0, 0][:4])  # type: ignore[return-value]


def _installed(*packages: str) -> str | None:
    """The version of the first of these packages that is installed."""
    for name in packages:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _cuda_library(name: str) -> str:
    """Version of an NVIDIA library beside JAX's CUDA plug-in; 'False' without the plug-in."""
    if _installed("jax-cuda13-plugin", "jax-cuda12-plugin") is None:
        return "False"
    return _installed(*[f"nvidia-{name}{suffix}" for suffix in ("", "-cu13", "-cu12")]) or "False"


def cuda() -> str:
    """The CUDA version that JAX's plug-in brings, 'False' without it."""
    return _cuda_library("cuda-runtime")


def cudnn() -> str:
    """The cuDNN version, 'False' without CUDA."""
    return _cuda_library("cudnn")


def nccl() -> str:
    """The NCCL version, '0' without CUDA."""
    found = _cuda_library("nccl")
    return "0" if found == "False" else found


def xpu() -> str:
    """Kunlun chips: 'False', Bireme has no support of its own for them."""
    return "False"


xpu_xre = xpu_xccl = xpu_xhpc = xpu


def tensorrt() -> str:
    """TensorRT's version, 'None' where it is not installed."""
    return _installed("tensorrt") or "None"


def cuda_archs() -> list[int]:
    """Compute capabilities of the GPUs that are there; XLA compiles for what it finds."""
    from bireme.device import cuda as gpus

    found = {gpus.get_device_capability(i) for i in range(gpus.device_count())}
    return sorted(10 * a + b for a, b in found)


hip = None


def show() -> None:
    """Print the versions.

    >>> show()  # doctest: +SKIP
    full_version: 3.3.1
    """
    from bireme import __version__

    lines = {
        "full_version": full_version,
        "major": major,
        "minor": minor,
        "patch": patch,
        "rc": rc,
        "cuda": cuda(),
        "cudnn": cudnn(),
        "nccl": nccl(),
        "xpu_xre": xpu_xre(),
        "xpu_xccl": xpu_xccl(),
        "xpu_xhpc": xpu_xhpc(),
        "tensorrt": tensorrt(),
        "cuda_archs": cuda_archs(),
        "bireme": __version__,
        "jax": _installed("jax"),
        "jaxlib": _installed("jaxlib"),
    }
    print("\n".join(f"{name}: {value}" for name, value in lines.items()))  # noqa: T201


__all__ = [
    "cuda",
    "cuda_archs",
    "cudnn",
    "hip",
    "nccl",
    "show",
    "tensorrt",
    "xpu",
    "xpu_xccl",
    "xpu_xhpc",
    "xpu_xre",
]
