"""DistributedStrategy: what a program asks of fleet.

A field does something, or is a hint about speed that cannot change results, or has only the value
that is true here: others are refused with the reason.
"""

from __future__ import annotations

import copy
from typing import Any

from bireme.core.errors import FileFormatError, InvalidArgument, TypeMismatch
from bireme.distributed.auto_parallel.strategy import AMPConfig
from bireme.distributed.fleet import prototxt
from bireme.io import atomic

_ALONE = 2.0**-20  # MiB: each gradient is a message of its own

_HYBRID = {
    "dp_degree": -1,
    "mp_degree": 1,
    "pp_degree": 1,
    "sharding_degree": 1,
    "sep_degree": 1,
    "order": ["dp", "pp", "sharding", "sep", "mp"],
}
_SWITCHES = {
    "amp": False,
    "pipeline": False,
    "sharding": False,
    "tensor_parallel": False,
    "find_unused_parameters": False,
    "gradient_merge": False,
    "recompute": False,
    "sync_batch_norm": False,
    "fuse_all_reduce_ops": True,
    "fuse_grad_size_in_MB": 32,
    "last_comm_group_size_MB": 1,
    "asp": False,
    "lamb": False,
    "localsgd": False,
    # Hints about kernels and messages.
    "conv_workspace_size_limit": 512,
    "cudnn_batchnorm_spatial_persistent": False,
    "cudnn_exhaustive_search": False,
    "fuse_grad_merge": False,
    "fuse_grad_size_in_num": 8,
    "heter_ccl_mode": False,
    "hierarchical_allreduce_inter_nranks": 1,
    "nccl_comm_num": 1,
    "sync_nccl_allreduce": True,
    "use_hierarchical_allreduce": False,
    "without_graph_optimization": True,
}
_SERVER = "there is no parameter server"
_ENGINE = "fleet.auto.Engine plans layouts"
_ONLY: dict[str, tuple[Any, str]] = {
    "a_sync": (True, _SERVER),
    "adam_d2sum": (False, _SERVER),
    "adaptive_localsgd": (False, "localsgd has a fixed number of steps"),
    "auto": (False, _ENGINE),
    "auto_search": (False, _ENGINE),
    "dgc": (False, "gradients are exchanged whole"),
    "elastic": (False, "the launcher restarts jobs: --nnodes 1:4"),
    "fp16_allreduce": (False, "gradients travel in their own dtype; train in half precision"),
    "fs_client_param": ("", _SERVER),
    "is_fl_ps_mode": (False, _SERVER),
    "is_with_coordinator": (False, _SERVER),
    "lars": (False, "there is no Lars optimizer"),
    "qat": (False, "use paddle.quantization.QAT"),
    "semi_auto": (False, _ENGINE),
    "split_data": (True, "a process's batch is its own; fleet.auto.Engine cuts batches"),
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "amp_configs": {
        **{k: v for k, v in AMPConfig._defaults.items() if k not in ("enable", "level", "dtype")},
        "use_pure_fp16": False,
        "use_bf16": False,
    },
    "pipeline_configs": {
        "accumulate_steps": 1,
        "micro_batch_size": 1,
        "p2p_cache_shape": True,
        "enable_partial_send_recv": True,
    },
    "sharding_configs": {"stage": 1, "sharding_degree": 8},
    "tensor_parallel_configs": {"tensor_parallel_degree": 1, "tensor_init_seed": -1},
    "gradient_merge_configs": {"k_steps": 1, "avg": True},
    "recompute_configs": {"checkpoints": []},
    "lamb_configs": {"lamb_weight_decay": 0.01, "exclude_from_weight_decay": []},
    "localsgd_configs": {"k_steps": 1, "begin_step": 1},
    "hybrid_configs": _HYBRID,
}


class DistributedStrategy:
    """Degrees of each kind of parallel training, mixed precision, sizes of messages.

    With `recompute` the sublayers that `recompute_configs["checkpoints"]` names (as
    `named_sublayers()` does) keep only their inputs for the backward pass. With `gradient_merge`
    the optimizer updates at every `gradient_merge_configs["k_steps"]`-th step. With `localsgd`
    processes train apart and average their parameters every `localsgd_configs["k_steps"]` steps.
    `lamb` makes an Adam a Lamb; `asp` keeps pruned weights at zero.

    >>> strategy = DistributedStrategy()
    >>> strategy.hybrid_configs = {"dp_degree": 2, "mp_degree": 4}
    >>> strategy.hybrid_configs["mp_degree"]
    4
    """

    amp: bool
    pipeline: bool
    sharding: bool
    tensor_parallel: bool
    find_unused_parameters: bool
    gradient_merge: bool
    recompute: bool
    sync_batch_norm: bool
    fuse_all_reduce_ops: bool
    fuse_grad_size_in_MB: int  # noqa: N815 (Paddle's names)
    last_comm_group_size_MB: int  # noqa: N815
    asp: bool
    lamb: bool
    localsgd: bool
    lamb_configs: dict[str, Any]
    localsgd_configs: dict[str, Any]
    amp_configs: dict[str, Any]
    pipeline_configs: dict[str, Any]
    sharding_configs: dict[str, Any]
    tensor_parallel_configs: dict[str, Any]
    gradient_merge_configs: dict[str, Any]
    recompute_configs: dict[str, Any]
    hybrid_configs: dict[str, Any]

    def __init__(self) -> None:
        self.__dict__.update(_SWITCHES)
        self.__dict__.update({name: value for name, (value, _) in _ONLY.items()})
        for name, defaults in _CONFIGS.items():
            self.__dict__[name] = copy.deepcopy(defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SWITCHES:
            wanted = type(_SWITCHES[name])
            if type(value) is not wanted:
                raise TypeMismatch(
                    f"[DistributedStrategy] {name} is of type {wanted.__name__}. Received: "
                    f"{value!r}"
                )
            self.__dict__[name] = value
            return
        if name in _ONLY:
            if value != _ONLY[name][0]:
                raise InvalidArgument(
                    f"[DistributedStrategy] {name} stays {_ONLY[name][0]!r}: {_ONLY[name][1]}. "
                    f"Received: {value!r:.80}"
                )
            return
        if name not in _CONFIGS:
            known = ", ".join([*_SWITCHES, *_CONFIGS])
            raise InvalidArgument(
                f"[DistributedStrategy] there is no field {name!r}; there are {known}"
            )
        if not isinstance(value, dict):
            raise TypeMismatch(f"[DistributedStrategy] {name} is a dict. Received: {value!r:.80}")
        unknown = set(value) - set(_CONFIGS[name])
        if unknown:
            raise InvalidArgument(
                f"[DistributedStrategy] {name} has no {sorted(unknown)[0]!r}; it has "
                f"{', '.join(_CONFIGS[name])}"
            )
        self.__dict__[name].update(value)

    def save_to_prototxt(self, output: str) -> None:
        """Write the fields that differ from their defaults."""
        text = prototxt.write(dict(vars(self)), _defaults())
        with atomic.replacing(output) as file:
            file.write(text.encode())

    def load_from_prototxt(self, pb_file: str) -> None:
        """Take over the fields in a file of `save_to_prototxt`, here or in Paddle."""
        with open(pb_file, "rb") as file:
            text = file.read(1 << 21)
        try:
            fields = prototxt.read(text.decode())
        except UnicodeDecodeError:
            raise FileFormatError(f"[load_from_prototxt] {pb_file} is not text") from None
        defaults = _defaults()
        for name, value in fields.items():
            if isinstance(value, dict) and name in _CONFIGS:
                value = {
                    k: [v] if isinstance(defaults[name].get(k), list) and type(v) is not list else v
                    for k, v in value.items()
                }
            setattr(self, name, value)

    def _message_sizes(self) -> tuple[float, float]:
        """Of gradients that travel together, in MiB: the first message's and the others'."""
        if not self.fuse_all_reduce_ops:
            return _ALONE, _ALONE
        return self.last_comm_group_size_MB, self.fuse_grad_size_in_MB

    def __repr__(self) -> str:
        lines = [f"  {k} = {v!r}" for k, v in vars(self).items()]
        return "DistributedStrategy\n" + "\n".join(lines)


def _defaults() -> dict[str, Any]:
    return {**_SWITCHES, **{n: v for n, (v, _) in _ONLY.items()}, **_CONFIGS}
