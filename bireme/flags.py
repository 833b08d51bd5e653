"""`paddle.set_flags` and `paddle.get_flags`: the switches of Paddle."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from bireme.core import trace
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.host import config


class _Flag(NamedTuple):
    """Reads and writes one setting of the engine."""

    read: Callable[[], Any]
    write: Callable[[Any], None]


def _check_nan_inf(value: Any) -> None:
    trace.flush()  # what was recorded before belongs to the setting of before
    config.check_nan_inf = bool(value)


def _run_each_op(value: Any) -> None:
    trace.flush()
    config.eager_mode = "op" if value else "step"
    trace.state.trace.limit = config.trace_limit()


def _allow_tf32(value: Any) -> None:
    trace.flush()
    config.tf32 = bool(value)


def _always_on(value: Any) -> None:
    if not value:
        raise InvalidArgument(
            "[set_flags] reshape, transpose, slices and the like always share memory here, so "
            "FLAGS_use_stride_kernel cannot be False; write x.clone() where you need a copy"
        )


_FLAGS = {
    # A NaN or an infinity in a result raises and names the op that made it.
    "FLAGS_check_nan_inf": _Flag(lambda: config.check_nan_inf, _check_nan_inf),
    # A GPU's float32 products and convolutions may round their inputs to TF32.
    "FLAGS_allow_tf32": _Flag(lambda: config.tf32, _allow_tf32),
    # Every op runs at its call, so that time is spent where it belongs.
    "FLAGS_benchmark": _Flag(lambda: config.eager_mode == "op", _run_each_op),
    # Views share memory with what they are views of.
    "FLAGS_use_stride_kernel": _Flag(lambda: True, _always_on),
}

# Settings of Paddle's allocators, kernels and program format. Programs set them and read them back;
# there is nothing here that they could change.
_OF_PADDLE: dict[str, Any] = {
    "FLAGS_allocator_strategy": "auto_growth",
    "FLAGS_call_stack_level": 1,
    "FLAGS_check_nan_inf_level": 0,
    "FLAGS_conv_workspace_size_limit": 512,
    "FLAGS_cudnn_batchnorm_spatial_persistent": False,
    "FLAGS_cudnn_exhaustive_search": False,
    "FLAGS_eager_communication_connection": False,
    "FLAGS_eager_delete_tensor_gb": 0.0,
    "FLAGS_enable_async_trace": False,
    "FLAGS_enable_pir_api": True,
    "FLAGS_enable_pir_in_executor": True,
    "FLAGS_enable_pir_with_pt_in_dy2st": True,
    "FLAGS_fraction_of_gpu_memory_to_use": 0.92,
    "FLAGS_max_inplace_grad_add": 0,
    "FLAGS_new_executor_sequential_run": False,
    "FLAGS_paddle_num_threads": 1,
    "FLAGS_pir_apply_inplace_pass": True,
    "FLAGS_prim_enable_dynamic": False,
    "FLAGS_sort_sum_gradient": False,
    "FLAGS_use_auto_growth_pinned_allocator": False,
    "FLAGS_use_mkldnn": False,
    "FLAGS_use_stream_safe_cuda_allocator": True,
    "FLAGS_use_system_allocator": False,
}
_FLAGS |= {
    name: _Flag(partial(_OF_PADDLE.get, name), partial(_OF_PADDLE.__setitem__, name))
    for name in _OF_PADDLE
}


def _flag(function: str, name: Any) -> _Flag:
    found = _FLAGS.get(name)
    if found is None:
        raise InvalidArgument(
            f"[{function}] {name!r} is no flag of this engine; it has {', '.join(_FLAGS)}. "
            "Settings of XLA are environment variables such as XLA_FLAGS"
        )
    return found


def set_flags(flags: dict[str, Any]) -> None:
    """Change switches at run time.

    >>> set_flags({"FLAGS_check_nan_inf": True})
    """
    if not isinstance(flags, dict):
        raise TypeMismatch(f"[set_flags] takes a dict. Received: {type(flags).__name__}")
    chosen = [(_flag("set_flags", name), value) for name, value in flags.items()]
    for flag, value in chosen:
        flag.write(value)


def get_flags(flags: str | Iterable[str]) -> dict[str, Any]:
    """The present values of one or several switches."""
    if not isinstance(flags, str | list | tuple):
        raise TypeMismatch(
            f"[get_flags] takes a name or a list of them. Received: {type(flags).__name__}"
        )
    names = [flags] if isinstance(flags, str) else flags
    return {name: _flag("get_flags", name).read() for name in names}


def disable_signal_handler() -> None:
    """Leave signals to the program. Bireme installs no handlers, so there is nothing to undo."""


__all__ = ["disable_signal_handler", "get_flags", "set_flags"]
