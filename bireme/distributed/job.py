"""This process as one of a job: joining the others, finding their devices, parting again.

Collectives run as small programs over the devices of several processes, which JAX's distributed
runtime brings together (Gloo between CPUs, NCCL between GPUs). Tensors, objects and calls from
one process to another travel over `wire.py`.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
from functools import lru_cache
from typing import Any

import numpy as np

from bireme.core import executor, ownership, place, trace
from bireme.core.errors import BiremeError
from bireme.core.trace import Value
from bireme.distributed.environment import ParallelEnv, _number
from bireme.host import jax_door


class DistributedError(BiremeError, RuntimeError):
    """A job that this process cannot be part of, or a partner that did not answer."""


class PartnerLost(DistributedError):
    """An exchange that failed because another process did, most likely."""


# The exit status of a process that only failed because another one did (EX_TEMPFAIL): the
# launcher looks for the cause elsewhere.
PARTNER_LOST = 75

_joined = False
_exit_status = 0  # of a process that has called sys.exit; one that fails waits for nobody


def coordinator() -> str:
    """`host:port` of the process that all others meet at, as a launcher wrote it down."""
    env = os.environ
    if env.get("MASTER_ADDR") and env.get("MASTER_PORT"):
        return f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    if env.get("PADDLE_MASTER"):
        return env["PADDLE_MASTER"].removeprefix("http://")
    first = env.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]
    host, _, port = first.rpartition(":")
    if not port.isdigit():
        raise DistributedError(
            "[init_parallel_env] no place to meet: set PADDLE_MASTER to host:port of the first "
            "process, or start the program with `python -m bireme.distributed.launch`"
        )
    # That port itself is where the first process takes messages.
    return f"{host}:{int(port) - 1}"


def is_local(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _is_own(host: str) -> bool:
    """Whether this machine can listen at the address itself, rather than at all that it has."""
    try:
        with socket.create_server((host, 0)):
            return True
    except OSError:
        return False


def join(rank: int, world: int) -> None:
    """Meet the other processes; returns when all of them have come."""
    global _joined
    if _joined:
        return
    address = coordinator()
    host = address.rpartition(":")[0]
    _bring_to_host()
    # A job on one machine is nobody else's business; one on several, only of that network.
    bind = address if is_local(host) or (rank == 0 and _is_own(host)) else None
    gpu = None
    if kind() == "gpu":
        gpu = ParallelEnv().device_id
    try:
        jax_door.join_job(address, world, rank, bind, gpu, _number("FLAGS_stop_check_timeout", 300))
    except RuntimeError as e:
        raise DistributedError(
            f"[init_parallel_env] process {rank} of {world} could not meet the others at "
            f"{address}. Are all of them running? {str(e)[:500]}"
        ) from e
    if kind() == "cpu":
        place.set_default_place(place.CPUPlace())
    _joined = True
    atexit.register(leave)


def leave() -> None:
    """Part from the job. All processes wait here for the last one, unless this one failed."""
    global _joined
    if not _joined:
        return
    _joined = False
    status = _exit_status or _status_of(getattr(sys, "last_value", None))
    if status:
        # Waiting for the others now would hide the failure from the launcher.
        fail(status)
    device.cache_clear()
    jax_door.leave_job()


def _status_of(uncaught: BaseException | None) -> int:
    """The exit status of a process that ends with this error, which Python has printed."""
    if uncaught is None:
        return 0
    return PARTNER_LOST if isinstance(uncaught, PartnerLost) else 1


def ends_with(code: Any) -> None:
    """The program calls `sys.exit(code)`; the process ends as soon as its exit functions have run.

    Python tells exit functions of no status, so those who run the program (the launcher's
    processes, `bireme run`) call this. A process that was started without them and exits with an
    error waits for the others as after a success, unless the error is an exception.
    """
    global _exit_status
    if code is not None:
        _exit_status = code & 0xFF if isinstance(code, int) else 1


def kind() -> str:
    """The kind of device that processes exchange data between."""
    if os.environ.get("PADDLE_DISTRI_BACKEND") == "gloo":
        return "cpu"
    if "FLAGS_selected_gpus" in os.environ:
        return "gpu"  # not asking JAX, which would first take memory on all of them
    return place.default_place().kind


@lru_cache(maxsize=4096)
def device(rank: int) -> Any:
    """The device of a process that its collectives use."""
    jax = jax_door.jax()
    if not _joined:
        return place.default_place().device()
    found = next((d for d in jax.devices(kind()) if d.process_index == rank), None)
    if found is None:
        raise DistributedError(f"process {rank} has no {kind()} device")
    return found


def _bring_to_host() -> None:
    """Before JAX starts anew: everything that was computed so far, as NumPy arrays."""
    from bireme.backends import numpy_backend

    trace.flush()
    executor.wait_for_compilation()
    executor.clear_programs()
    numpy_backend._one_op.cache_clear()
    if jax_door.is_loaded():
        for value in ownership.every(Value):
            if value.buf is not None:
                value.buf = np.asarray(value.buf)


def fail(status: int) -> None:
    """End this process at once, without waiting for the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
