"""What fleet does with static programs and for jobs with servers, and how it times collectives."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from bireme import static
from bireme.core.errors import InvalidArgument
from bireme.distributed.fleet.timing import timed, timed_sizes

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor
    from bireme.distributed.fleet.topology import HybridCommunicateGroup
    from bireme.static import Executor, Program

logger = logging.getLogger("bireme.fleet")
_STATE = "model"  # the name of files in a folder


class JobPrograms:
    """Methods of `Fleet` that need to know only who this process is."""

    _role_maker: Any
    _hcg: HybridCommunicateGroup

    def _maker(self) -> Any:
        if self._role_maker is None:
            raise InvalidArgument("[fleet] call fleet.init(is_collective=True) first")
        return self._role_maker

    def get_hybrid_communicate_group(self) -> HybridCommunicateGroup:
        """The grid of the job's processes or devices."""
        if not hasattr(self, "_hcg"):
            raise InvalidArgument("[fleet] call fleet.init(is_collective=True) first")
        return self._hcg

    # --- jobs without servers -------------------------------------------------------------

    def is_coordinator(self) -> bool:
        """Whether this process coordinates federated training; no process here does."""
        return self._maker()._is_coordinator()

    def init_worker(self, scopes: object = None) -> None:
        """For jobs with parameter servers; others have nothing to do."""
        self._without_servers("init_worker")

    def init_server(self, *args: object, **kwargs: object) -> None:
        """For jobs with parameter servers; others have nothing to do."""
        self._without_servers("init_server")

    def run_server(self) -> None:
        """For jobs with parameter servers; others have nothing to do."""
        self._without_servers("run_server")

    def stop_worker(self) -> None:
        """For jobs with parameter servers; others have nothing to do."""
        self._without_servers("stop_worker")

    def _without_servers(self, name: str) -> None:
        if self._maker()._server_num() or self._maker()._is_server():
            raise InvalidArgument(
                f"[fleet.{name}] there is no parameter server: start the job without --server_num "
                "and call fleet.init(is_collective=True); nn.Embedding(sparse=True) with "
                "Adam(lazy_mode=True) updates only the rows that a batch uses"
            )
        logger.warning("%s does nothing in a job without servers", name)

    # --- static programs ------------------------------------------------------------------

    def save_persistables(
        self,
        executor: Executor,
        dirname: str,
        main_program: Program | None = None,
        mode: int = 0,
    ) -> None:
        """Write a program's parameters and state into a folder, by the first worker."""
        _only_mode(mode, "save_persistables")
        if self._maker()._is_first_worker():
            program = main_program or static.default_main_program()
            static.save(program, os.path.join(dirname, _STATE))

    def load_model(self, path: str, mode: int = 0) -> None:
        """Read what `save_persistables` wrote, into the default program."""
        _only_mode(mode, "load_model")
        static.load(static.default_main_program(), os.path.join(path, _STATE))

    def save_inference_model(
        self,
        executor: Executor,
        dirname: str,
        feeded_var_names: Sequence[str],
        target_vars: Sequence[Tensor],
        main_program: Program | None = None,
        export_for_deployment: bool = True,
        mode: int = 0,
    ) -> None:
        """Write what computes `target_vars` from the named inputs, by the first worker."""
        _only_mode(mode, "save_inference_model")
        if self._maker()._is_first_worker():
            program = main_program or static.default_main_program()
            block = program.global_block()
            feeds = [block.var(name) for name in feeded_var_names]
            static.save_inference_model(
                os.path.join(dirname, _STATE), feeds, list(target_vars), executor, program=program
            )

    def load_inference_model(self, path: str, mode: int = 0) -> list[Any]:
        """[program, names of its inputs, its results], as `static.load_inference_model` does."""
        _only_mode(mode, "load_inference_model")
        return static.load_inference_model(os.path.join(path, _STATE), static.Executor())

    def save(
        self,
        dirname: str,
        feed: Sequence[str | Tensor] = (),
        fetch: Sequence[str | Tensor] = (),
        **configs: int,
    ) -> None:
        """`save_inference_model` of these inputs and results, or else `save_persistables`."""
        if set(configs) - {"mode"}:
            raise InvalidArgument(f"[fleet.save] takes mode. Received: {sorted(configs)}")
        executor = static.Executor()
        if not feed and not fetch:
            self.save_persistables(executor, dirname, mode=configs.get("mode", 0))
            return
        block = static.default_main_program().global_block()
        names = [f if isinstance(f, str) else f.name for f in feed]
        targets = [block.var(f) if isinstance(f, str) else f for f in fetch]
        self.save_inference_model(executor, dirname, names, targets)

    # --- how long collectives take --------------------------------------------------------

    allreduce_perf = staticmethod(partial(timed, "allreduce"))
    reduce_perf = staticmethod(partial(timed, "reduce"))
    broadcast_perf = staticmethod(partial(timed, "broadcast"))
    allgather_perf = staticmethod(partial(timed, "allgather"))
    reduce_scatter_perf = staticmethod(partial(timed, "reduce_scatter"))

    def collective_perf(
        self, comm_type: str, round: int = 50, size_and_time: Mapping[int, float] | None = None
    ) -> None:
        """Log the seconds of a collective: {bytes: threshold}, or 1 MiB to 1 GiB."""
        timed_sizes(comm_type, round, size_and_time or {}, self.get_hybrid_communicate_group())


def _only_mode(mode: int, who: str) -> None:
    if mode != 0:
        raise InvalidArgument(
            f"[fleet.{who}] mode is 0: other modes are those of parameter servers. Got: {mode!r}"
        )
