"""DistributedInfer: a trained program over the whole job, ready to infer."""

from __future__ import annotations

import os
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.fleet.role_maker import PaddleCloudRoleMaker
from bireme.io import serialization
from bireme.static.executor import Executor
from bireme.static.program import Program, default_main_program, default_startup_program


class DistributedInfer:
    """Loads what a training saved and gives the program to run.

    Tables are part of the program here, cut over devices where they are sharded, so no lookups
    go to servers and the program stays as it was written, without updates.

    >>> infer = DistributedInfer(main, startup)  # doctest: +SKIP
    >>> infer.init_distributed_infer_env(exe, loss, dirname="saved")  # doctest: +SKIP
    >>> exe.run(infer.get_dist_infer_program(), feed=batch, fetch_list=[y])  # doctest: +SKIP
    """

    def __init__(
        self, main_program: Program | None = None, startup_program: Program | None = None
    ) -> None:
        self.origin_main_program = main_program or default_main_program()
        self.origin_startup_program = startup_program or default_startup_program()
        self._ready = False

    def init_distributed_infer_env(
        self,
        exe: Executor,
        loss: Tensor | str,
        role_maker: PaddleCloudRoleMaker | None = None,
        dirname: str | None = None,
    ) -> None:
        """Join the job, start the program's state, and load what `dirname` has of it (files of
        `distributed.io.save_persistables`). `loss` must be a result of the program."""
        from bireme.distributed import fleet

        self.origin_main_program.slot_of(loss)  # says so if it is another program's
        if fleet.fleet._role_maker is None:
            fleet.init(role_maker, is_collective=role_maker is None)
        exe.run(self.origin_startup_program)
        if dirname is not None:
            self._load(dirname)
        self._ready = True

    def _load(self, folder: str) -> None:
        program = self.origin_main_program
        found: dict[str, Any] = {}
        for name in program.state_names():
            path = os.path.join(folder, name + ".pdparams")
            if os.path.isfile(path):
                found.update(serialization.load(path, return_numpy=True))
        program.set_state_dict(found)

    def get_dist_infer_program(self) -> Program:
        """The program, for testing."""
        if not self._ready:
            raise InvalidArgument("[DistributedInfer] call init_distributed_infer_env first")
        return self.origin_main_program.clone(for_test=True)
