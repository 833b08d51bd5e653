"""Who takes part in a job, and which of them this process is."""

from __future__ import annotations

import os
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.distributed.environment import ParallelEnv


class Role:
    """What a process does in a job."""

    WORKER = 1
    SERVER = 2
    HETER_WORKER = 3
    ALL = 4
    COORDINATOR = 5


def _listed(name: str) -> list[str]:
    return [e for e in os.environ.get(name, "").split(",") if e]


class PaddleCloudRoleMaker:
    """Reads the launcher's environment variables.

    >>> PaddleCloudRoleMaker(is_collective=True)._worker_num()
    1
    """

    def __init__(self, is_collective: bool = False, **kwargs: Any) -> None:
        self._is_collective = is_collective
        self._kwargs = kwargs
        self._role = Role.WORKER
        self._current_id = 0
        self._server_endpoints: list[str] = []
        self._worker_endpoints: list[str] = []
        self._trainers_num = 1
        self._read()

    def _read(self) -> None:
        env = ParallelEnv()
        self._current_id, self._trainers_num = env.rank, env.world_size
        self._worker_endpoints = _listed("PADDLE_TRAINER_ENDPOINTS")
        if self._is_collective:
            return
        self._server_endpoints = _listed("PADDLE_PSERVERS_IP_PORT_LIST")
        role = os.environ.get("TRAINING_ROLE", "TRAINER")
        if role not in ("TRAINER", "PSERVER"):
            raise InvalidArgument(
                f"the environment variable TRAINING_ROLE is TRAINER or PSERVER. Received: {role}"
            )
        if role == "PSERVER":
            self._role = Role.SERVER
            own = f"{os.environ.get('POD_IP', '127.0.0.1')}:{os.environ.get('PADDLE_PORT', '')}"
            if own in self._server_endpoints:
                self._current_id = self._server_endpoints.index(own)

    def _is_worker(self) -> bool:
        return self._role == Role.WORKER

    def _is_server(self) -> bool:
        return self._role == Role.SERVER

    def _is_coordinator(self) -> bool:
        return self._role == Role.COORDINATOR

    def _is_first_worker(self) -> bool:
        return self._is_worker() and self._current_id == 0

    def _worker_index(self) -> int:
        return self._current_id

    _server_index = _worker_index
    _role_id = _worker_index

    def _worker_num(self) -> int:
        return self._trainers_num

    def _server_num(self) -> int:
        return len(self._server_endpoints)

    def _node_num(self) -> int:
        return len({e.split(":")[0] for e in self._worker_endpoints}) or 1

    def _get_trainer_endpoints(self) -> list[str]:
        return self._worker_endpoints

    def _get_pserver_endpoints(self) -> list[str]:
        return self._server_endpoints

    def to_string(self) -> str:
        return (
            f"role: {self._role}, current_id: {self._current_id}, worker_endpoints: "
            f"{self._worker_endpoints}, server_endpoints: {self._server_endpoints}"
        )


class UserDefinedRoleMaker(PaddleCloudRoleMaker):
    """Takes from its arguments what a launcher would say.

    >>> maker = UserDefinedRoleMaker(
    ...     current_id=1, role=Role.WORKER, worker_num=2, server_endpoints=["127.0.0.1:36011"])
    >>> maker._worker_index(), maker._server_num()
    (1, 1)
    """

    def __init__(self, is_collective: bool = False, init_gloo: bool = False, **kwargs: Any) -> None:
        self._init_gloo = init_gloo
        super().__init__(is_collective, **kwargs)

    def _read(self) -> None:
        given = self._kwargs
        unknown = set(given) - {
            "current_id",
            "role",
            "worker_num",
            "worker_endpoints",
            "server_endpoints",
        }
        if unknown:
            raise InvalidArgument(f"[UserDefinedRoleMaker] does not know {sorted(unknown)[0]!r}")
        self._current_id = int(given.get("current_id", 0))
        self._role = Role.WORKER if self._is_collective else given.get("role", Role.WORKER)
        self._worker_endpoints = list(given.get("worker_endpoints") or [])
        self._server_endpoints = list(given.get("server_endpoints") or [])
        self._trainers_num = int(given.get("worker_num", 0)) or len(self._worker_endpoints)
        if not self._trainers_num:
            raise InvalidArgument("[UserDefinedRoleMaker] needs worker_num or worker_endpoints")
