"""DistributedStrategy: what a program asks of fleet. Only fields that do something exist."""

from __future__ import annotations

from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed.auto_parallel.strategy import AMPConfig

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
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "amp_configs": {
        **{k: v for k, v in AMPConfig._defaults.items() if k not in ("enable", "level", "dtype")},
        "use_pure_fp16": False,
        "use_bf16": False,
    },
    "pipeline_configs": {"accumulate_steps": 1, "micro_batch_size": 1},
    "sharding_configs": {"stage": 1, "sharding_degree": 8},
    "tensor_parallel_configs": {"tensor_parallel_degree": 1, "tensor_init_seed": -1},
    "gradient_merge_configs": {"k_steps": 1, "avg": True},
    "recompute_configs": {"checkpoints": []},
    "hybrid_configs": _HYBRID,
}


class DistributedStrategy:
    """Degrees of each kind of parallel training, mixed precision, sizes of messages.

    With `recompute` the sublayers that `recompute_configs["checkpoints"]` names (as
    `named_sublayers()` does) keep only their inputs for the backward pass. With `gradient_merge`
    the optimizer updates at every `gradient_merge_configs["k_steps"]`-th step.

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
    amp_configs: dict[str, Any]
    pipeline_configs: dict[str, Any]
    sharding_configs: dict[str, Any]
    tensor_parallel_configs: dict[str, Any]
    gradient_merge_configs: dict[str, Any]
    recompute_configs: dict[str, Any]
    hybrid_configs: dict[str, Any]

    def __init__(self) -> None:
        self.__dict__.update(_SWITCHES)
        for name, defaults in _CONFIGS.items():
            self.__dict__[name] = dict(defaults)

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

    def _message_sizes(self) -> tuple[float, float]:
        """Of gradients that travel together, in MiB: the first message's and the others'."""
        if not self.fuse_all_reduce_ops:
            return _ALONE, _ALONE
        return self.last_comm_group_size_MB, self.fuse_grad_size_in_MB

    def __repr__(self) -> str:
        lines = [f"  {k} = {v!r}" for k, v in vars(self).items()]
        return "DistributedStrategy\n" + "\n".join(lines)
