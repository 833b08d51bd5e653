"""The one place that imports JAX: lazily, with the settings that Bireme needs.

`import bireme` and a first small result need no JAX at all; the import happens when something
must be compiled or inferred from a lowering.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np

from bireme.host import cache_folder, code_cache, config, uninterrupted

F = TypeVar("F", bound=Callable[..., Any])

_lock = threading.Lock()
_jax: Any = None


class _Refusal(threading.local):
    error: Exception | None = None


_refusal = _Refusal()


@contextmanager
def refused(error: Exception) -> Iterator[None]:
    """Inside the block asking for JAX raises `error`: for what runs without it or not at all."""
    before, _refusal.error = _refusal.error, error
    try:
        yield
    finally:
        _refusal.error = before


def jax() -> Any:
    """The jax module, set up for 64-bit types and the on-disk compilation cache."""
    global _jax
    if _refusal.error is not None:
        raise _refusal.error
    if _jax is None:
        with _lock:
            if _jax is None:
                config.watch_forks()
                # First: its warning may be an error, and nothing is half done then.
                folder = None if config.forked else cache_folder.inside("xla")
                with _users_numbers_untouched():
                    module = importlib.import_module("jax")
                    importlib.import_module("jax.numpy")
                    importlib.import_module("jax.export")
                module.config.update("jax_enable_x64", True)
                # Donations are matched to results by type; what a partitioner cannot use is
                # no news to the user.
                warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
                if folder is not None:
                    _cache_programs(module, folder)
                    code_cache.save()  # the folder is there now
                _jax = module
    return _jax


def _cache_programs(module: Any, folder: str) -> None:
    """Have compiled programs kept in `folder`, each with a digest and written atomically: JAX's own
    files are neither."""
    ours: Any = importlib.import_module("jax._src.compilation_cache")
    others = ours.get_file_cache

    def get_file_cache(path: str) -> Any:
        return (cache_folder.Programs(path), path) if path == folder else others(path)

    ours.get_file_cache = get_file_cache
    module.config.update("jax_compilation_cache_dir", folder)
    module.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def keeps_programs() -> bool:
    """Whether compiled programs are kept on disk."""
    settings = jax().config
    return bool(settings.jax_enable_compilation_cache and settings.jax_compilation_cache_dir)


def traced_once(*static: str) -> Callable[[F], F]:
    """A function of arrays that JAX traces and lowers once for each combination of types and of its
    arguments named `static`; a program that calls it in twelve layers has it once, too."""

    def decorate(function: F) -> F:
        @functools.cache
        def jitted() -> Any:
            return jax().jit(function, static_argnames=static)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return jitted()(*args, **kwargs)

        return cast("F", call)

    return decorate


@functools.cache
def _padded_call() -> Any:
    made = importlib.import_module("jax.extend.core").Primitive("padded_call")
    made.multiple_results = True
    shaped = jax().core.ShapedArray
    made.def_abstract_eval(lambda *_, function, outs: [shaped(*out) for out in outs])
    return made


def padded_call(
    function: Callable[..., Sequence[Any]], outs: Sequence[tuple[Any, Any]], *arrays: Any
) -> list[Any]:
    """`function` of arrays, in a program with open sizes that is traced only to be evaluated on
    padded arrays (capture/padded.py): it is called with those, and makes padded results of the
    shapes and dtypes `outs`."""
    return _padded_call().bind(*arrays, function=function, outs=tuple(outs))


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many constants and how many carried values a `scan` in a jaxpr has, from its
    parameters."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = params["ft_in"].unpack()  # since JAX 0.11
    return len(list(fixed)), len(list(carried))


def pallas() -> Any:
    """The module in which kernels for accelerators are written."""
    jax()
    return importlib.import_module("jax.experimental.pallas")


def pallas_triton() -> Any:
    """The part of Pallas that is for GPU kernels only."""
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


def is_loading() -> bool:
    """Whether a thread is importing JAX."""
    return _jax is None and _lock.locked()


def jnp() -> Any:
    return jax().numpy


# Exceptions of user functions inside compiled programs; XLA reports them in its own words.
_raised: list[Exception] = []


def keeping_errors(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a callback of a program; its exceptions are kept for `callback_error`."""

    def call(*given: Any) -> Any:
        try:
            return function(*given)
        except Exception as error:
            _raised.append(error)
            raise

    return call


def callback_error() -> Exception | None:
    """The exception of the last callback of a failed program, once."""
    found = _raised[-1] if _raised else None
    _raised.clear()
    return found


def trace_level() -> Any:
    """Which of JAX's nested traces is being written: branches and derivatives have their own."""
    jax()
    return importlib.import_module("jax.extend.core").get_opaque_trace_state()


def abstract_eval(lowering: Callable[[Any, Any], Any], types: Sequence[Any]) -> Any:
    """Result types of a lowering on inputs of these types, by abstract evaluation."""
    j = jax()
    specs = [None if t is None else j.ShapeDtypeStruct(t.shape, t.dtype.numpy) for t in types]
    return uninterrupted.run(lambda: j.eval_shape(lambda arrays: lowering(j.numpy, arrays), specs))


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
    # It would take SIGTERM from the process, which then neither ends nor stops when asked to.
    j.config.update("jax_enable_preemption_service", False)
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


def meet(name: str, ranks: list[int], seconds: float) -> None:
    """Return when all these processes of the job have called this with the same name."""
    client = importlib.import_module("jax._src.distributed").global_state.client
    client.wait_at_barrier(name, int(seconds * 1000), process_ids=ranks)


def leave_job() -> None:
    """Part from the other processes; waits until all of them do."""
    jax().distributed.shutdown()


def direct_call(compiled: Any) -> Any:
    """The C++ entry of a compiled program, without the Python frame around it.

    It is faster, and it cannot be interrupted between running (which consumes donated inputs) and
    returning the results.
    """
    try:
        call = compiled._executable.create_cpp_call(compiled._params)
    except (AttributeError, TypeError):
        call = None
    return compiled if call is None else call
