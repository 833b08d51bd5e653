"""The one place that imports JAX: lazily, with the settings that Bireme needs.

`import bireme` and a first small result need no JAX at all; the import happens when something
must be compiled or inferred from a lowering.
"""

from __future__ import annotations

import importlib
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import config

if TYPE_CHECKING:
    from bireme.core.op import Call

_lock = threading.Lock()
_jax: Any = None


def jax() -> Any:
    """The jax module, set up for 64-bit types and the on-disk compilation cache."""
    global _jax
    if _jax is None:
        with _lock:
            if _jax is None:
                with _users_numbers_untouched():
                    module = importlib.import_module("jax")
                    importlib.import_module("jax.numpy")
                    importlib.import_module("jax.export")
                module.config.update("jax_enable_x64", True)
                # Donations are matched to results by type; what a partitioner cannot use is
                # no news to the user.
                warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
                if config.cache_dir and not config.forked:
                    folder = os.path.join(config.cache_dir, "xla")
                    module.config.update("jax_compilation_cache_dir", folder)
                    module.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
                _jax = module
    return _jax


def pallas() -> Any:
    """The module in which kernels for accelerators are written."""
    jax()
    return importlib.import_module("jax.experimental.pallas")


def pallas_triton() -> Any:
    """What kernels for GPUs have besides."""
    jax()
    return importlib.import_module("jax.experimental.pallas.triton")


def pallas_options(warps: int) -> dict[str, Any]:
    """Options of `pallas_call` for a GPU."""
    return {"compiler_params": pallas_triton().CompilerParams(num_warps=warps)}


@contextmanager
def _users_numbers_untouched() -> Iterator[None]:
    """Importing JAX draws from NumPy's global generator (its cluster detection does).

    The import happens at some moment of a program, often in a thread, and would change what a
    seeded program draws afterwards: this thread gets numbers from elsewhere meanwhile.
    """
    users, importing = np.random.rand, threading.get_ident()

    def rand(*shape: int) -> Any:
        draw = np.random.RandomState().rand if threading.get_ident() == importing else users
        return draw(*shape)

    np.random.rand = rand
    try:
        yield
    finally:
        np.random.rand = users


def limit_cpu_threads(count: int) -> bool:
    """Let XLA's CPU client have `count` threads. False if it was made already: its threads are
    the process's, and stay."""
    if importlib.import_module("jax._src.xla_bridge").backends_are_initialized():
        return False
    os.environ["PJRT_NPROC"] = str(count)  # read once, when the client is made
    return True


def frugal_options() -> dict[str, bool]:
    """Options with which XLA takes less memory to compile a program for a CPU.

    In JAX 0.10 loops can still be written by the older emitters. Those of MLIR took 250 MiB more
    while MobileNet's step was compiled, and left 50 MiB of pages behind that small objects of
    theirs hold (caches of XLA's threads). What XLA_FLAGS says of it counts.
    """
    name = "xla_cpu_use_fusion_emitters"
    has_choice = jax().__version_info__ < (0, 11)
    if not has_choice or name in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {name: False}


def is_loaded() -> bool:
    return _jax is not None


def jnp() -> Any:
    return jax().numpy


def abstract_eval(call: Call) -> Any:
    """Result types of a Call by abstract evaluation of its lowering."""
    j = jax()
    specs = [None if t is None else j.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in call.types]
    return j.eval_shape(lambda arrays: call.run(j.numpy, arrays), specs)


def join_job(
    address: str, world: int, rank: int, bind: str | None, gpu: int | None, patience: int
) -> None:
    """Make this process one of `world` that compile programs over all their devices.

    JAX must not have looked at its devices yet, so whatever it had is dropped: the caller has
    brought every buffer to the host.
    """
    j = jax()
    importlib.import_module("jax.extend.backend").clear_backends()
    j.clear_caches()
    j.config.update("jax_cpu_collectives_implementation", "gloo")
    j.distributed.initialize(
        address,
        world,
        rank,
        local_device_ids=None if gpu is None else [gpu],
        cluster_detection_method="deactivate",
        initialization_timeout=patience,
        coordinator_bind_address=bind,
        shutdown_timeout_seconds=24 * 3600,  # one process may have much more to do than others
    )


def leave_job() -> None:
    """Part from the other processes; waits until all of them do."""
    jax().distributed.shutdown()


def direct_call(compiled: Any) -> Any:
    """The C++ entry of a compiled program, without the Python frame around it.

    Besides being faster, it cannot be interrupted between running (which consumes donated
    inputs) and returning the results.
    """
    try:
        call = compiled._executable.create_cpp_call(compiled._params)
    except (AttributeError, TypeError):
        call = None
    return compiled if call is None else call
