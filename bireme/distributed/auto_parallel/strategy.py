"""Strategy: how `dist.to_static` trains.

Settings exist if they change something, if they are hints about fusions (XLA fuses), or if Paddle's
default is what happens here: another value is then refused when a model is made.
"""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from bireme.core.errors import InvalidArgument, TypeMismatch


class Settings:
    """Named values with defaults; other names are errors."""

    _defaults: ClassVar[dict[str, Any]] = {}
    _only_default: ClassVar[dict[str, str]] = {}  # settings that stay as they are, and why

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        if config is not None and not isinstance(config, dict):
            raise TypeMismatch(
                f"[{type(self).__name__}] settings are a dict. Received: {type(config).__name__}"
            )
        self.__dict__.update(copy.deepcopy(self._defaults))
        for name, value in (config or {}).items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._defaults:
            raise InvalidArgument(
                f"[{type(self).__name__}] there is no setting {name!r}; it has "
                f"{', '.join(self._defaults)}"
            )
        default = self._defaults[name]
        kinds = (int, float) if isinstance(default, float) else type(default)
        if default is not None and not isinstance(value, kinds):
            raise TypeMismatch(
                f"[{type(self).__name__}] {name} is of type {type(default).__name__}. Received: "
                f"{value!r}"
            )
        self.__dict__[name] = value

    def check(self) -> None:
        """Refuse values that nothing here acts on."""
        for name, reason in self._only_default.items():
            if getattr(self, name) != self._defaults[name]:
                raise InvalidArgument(
                    f"[{type(self).__name__}] {name} has no effect here: {reason}. Received: "
                    f"{getattr(self, name)!r}"
                )

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._defaults}

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.to_dict().items())
        return f"{type(self).__name__}({inside})"


class ShardingConfig(Settings):
    """Optimizer state (stage 1), gradients (2) and parameters (3) in `degree` parts."""

    enable: bool
    stage: int
    degree: int
    _defaults: ClassVar[dict[str, Any]] = {"enable": False, "stage": 1, "degree": 8}


class GradientMergeConfig(Settings):
    """Update after every `k_steps` batches, with the average of their gradients or their sum."""

    enable: bool
    k_steps: int
    avg: bool
    _defaults: ClassVar[dict[str, Any]] = {"enable": False, "k_steps": 1, "avg": True}


class AMPConfig(Settings):
    """Mixed precision, with loss scaling for float16."""

    enable: bool
    dtype: str
    level: str
    init_loss_scaling: float
    incr_every_n_steps: int
    decr_every_n_nan_or_inf: int
    incr_ratio: float
    decr_ratio: float
    use_dynamic_loss_scaling: bool
    custom_black_list: list[str]
    custom_white_list: list[str]
    _defaults: ClassVar[dict[str, Any]] = {
        "enable": False,
        "dtype": "float16",
        "level": "o1",
        "init_loss_scaling": 32768.0,
        "incr_every_n_steps": 1000,
        "decr_every_n_nan_or_inf": 2,
        "incr_ratio": 2.0,
        "decr_ratio": 0.8,
        "use_dynamic_loss_scaling": True,
        "custom_black_list": [],
        "custom_white_list": [],
    }


class RecomputeConfig(Settings):
    """Run each of the model's direct sublayers again in the backward pass instead of keeping its
    insides."""

    enable: bool
    checkpoints: list[str]
    no_recompute_segments: list[int]
    sr: int
    refined_ops_patterns: list[dict[str, Any]]
    enable_tuning: bool
    _defaults: ClassVar[dict[str, Any]] = {
        "enable": False,
        "checkpoints": [],
        "no_recompute_segments": [],
        "sr": 0,
        "refined_ops_patterns": [],
        "enable_tuning": False,
    }
    _only_default: ClassVar[dict[str, str]] = dict.fromkeys(
        ("checkpoints", "no_recompute_segments", "sr", "refined_ops_patterns", "enable_tuning"),
        "each direct sublayer is run again; use fleet.utils.recompute for other parts",
    )


class PipelineConfig(Settings):
    """Stages of a model; they are cut with `PipelineLayer`, so `enable` is refused."""

    enable: bool
    schedule_mode: str
    micro_batch_size: int
    accumulate_steps: int
    _defaults: ClassVar[dict[str, Any]] = {
        "enable": False,
        "schedule_mode": "1F1B",
        "micro_batch_size": 1,
        "accumulate_steps": 1,
    }
    _only_default: ClassVar[dict[str, str]] = {
        "enable": "cut a model with paddle.distributed.fleet.meta_parallel.PipelineLayer"
    }


class FusedPassesConfig(Settings):
    """Fusions that are asked for; XLA fuses what pays, asked or not."""

    enable: bool
    gemm_epilogue: bool
    dropout_add: bool
    fused_passes_list: list[str]
    _defaults: ClassVar[dict[str, Any]] = {
        "enable": False,
        "gemm_epilogue": False,
        "dropout_add": False,
        "fused_passes_list": [],
    }


_PARTS = {
    "sharding": ShardingConfig,
    "gradient_merge": GradientMergeConfig,
    "amp": AMPConfig,
    "recompute": RecomputeConfig,
    "pipeline": PipelineConfig,
    "fused_passes": FusedPassesConfig,
}


class Strategy:
    """Settings of a training step: `sharding`, `gradient_merge`, `amp`, `recompute`, `pipeline`
    and `fused_passes`. `auto_mode` is the Engine's: with "semi" a model that lies on a mesh stays
    as it is, with "full" the rest of it is planned.

    >>> Strategy({"sharding": {"enable": True, "stage": 2}}).sharding.stage
    2
    """

    sharding: ShardingConfig
    gradient_merge: GradientMergeConfig
    amp: AMPConfig
    recompute: RecomputeConfig
    pipeline: PipelineConfig
    fused_passes: FusedPassesConfig
    auto_mode: str

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        if config is not None and not isinstance(config, dict):
            raise InvalidArgument(f"[Strategy] config is a dict. Received: {config!r:.80}")
        given = dict(config or {})
        self.auto_mode = given.pop("auto_mode", "semi")
        for name, kind in _PARTS.items():
            self.__dict__[name] = kind(given.pop(name, None))
        if given:
            raise InvalidArgument(
                f"[Strategy] there is no part {sorted(given)[0]!r}; it has {', '.join(_PARTS)}"
            )

    def check(self) -> None:
        """Refuse settings that nothing here acts on."""
        for name in _PARTS:
            getattr(self, name).check()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "auto_mode":
            if value not in ("semi", "full"):
                raise InvalidArgument(f"[Strategy] auto_mode is semi or full. Received: {value!r}")
            self.__dict__[name] = value
            return
        raise InvalidArgument(
            f"[Strategy] {name!r} cannot be replaced; set fields of {', '.join(_PARTS)}, as in "
            "strategy.sharding.enable = True"
        )

    def __repr__(self) -> str:
        return "Strategy(" + ", ".join(repr(getattr(self, n)) for n in _PARTS) + ")"
