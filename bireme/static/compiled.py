"""CompiledProgram and its settings. Every program is compiled; Paddle's switches are the compiler's
decisions here."""

from __future__ import annotations

from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.static.program import Program

_SETTINGS: dict[str, Any] = {
    "build_cinn_pass": False,
    "debug_graphviz_path": "",
    "enable_addto": False,
    "enable_auto_fusion": False,
    "enable_inplace": True,
    "fuse_all_optimizer_ops": False,
    "fuse_all_reduce_ops": None,
    "fuse_bn_act_ops": False,
    "fuse_bn_add_act_ops": True,
    "fuse_broadcast_ops": None,
    "fuse_dot_product_attention": False,
    "fuse_elewise_add_act_ops": False,
    "fuse_gemm_epilogue": False,
    "fuse_relu_depthwise_conv": False,
    "memory_optimize": None,
    "num_trainers": 1,
    "reduce_strategy": 0,
    "remove_unnecessary_lock": True,
    "sync_batch_norm": False,
    "trainer_id": 0,
}


class BuildStrategy:
    """Wishes about fusions and memory. XLA decides on them for every program, so they change no
    result and no speed; unknown names are errors."""

    class ReduceStrategy:
        AllReduce = 0
        Reduce = 1

    class GradientScaleStrategy:
        CoeffNumDevice = 0
        One = 1
        Customized = 2

    def __init__(self) -> None:
        self.__dict__.update(_SETTINGS)
        self.__dict__["gradient_scale_strategy"] = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise InvalidArgument(f"[BuildStrategy] there is no setting {name!r}")
        self.__dict__[name] = value


class CompiledProgram:
    """A program with its settings; `Executor.run` takes it like the program itself."""

    def __init__(self, program_or_graph: Program, build_strategy: BuildStrategy | None = None):
        if not isinstance(program_or_graph, Program):
            raise TypeMismatch(
                f"[CompiledProgram] takes a Program. Received: {type(program_or_graph).__name__}"
            )
        if build_strategy is not None and not isinstance(build_strategy, BuildStrategy):
            raise TypeMismatch(
                "[CompiledProgram] build_strategy must be a BuildStrategy. Received: "
                f"{type(build_strategy).__name__}"
            )
        self._program = program_or_graph
        self._build_strategy = build_strategy or BuildStrategy()
