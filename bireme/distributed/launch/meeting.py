"""Which processes a job has, and where: what a launcher writes into their environment."""

from __future__ import annotations

import json
import os
import queue
import secrets
import socket
import sys
from glob import glob
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.distributed import door, wire
from bireme.distributed.door import Link
from bireme.distributed.job import DistributedError, is_local

_PURPOSE = b"meeting"
_LIMIT = 1 << 24  # bytes that a machine may say of its processes
_MANNERS = 60.0  # seconds for saying it


def _bound(host: str) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("" if not is_local(host) else host, 0))
    return made


class Ports:
    """Keeps ports for processes that will listen at them, so that nobody else is given one.

    On Linux a port may be bound twice if both allow it and nobody listens yet. Elsewhere it is
    free again at once, and may be lost to another program before its process comes.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self, count: int, host: str) -> list[int]:
        taken = [_bound(host) for _ in range(count)]
        self._held += taken
        ports = [s.getsockname()[1] for s in taken]
        if sys.platform != "linux":
            self.release()
        return ports

    def release(self) -> None:
        while self._held:
            self._held.pop().close()


def node(host: str, count: int, ports: Ports) -> dict[str, Any]:
    """A machine's part in the job: where its processes listen, and where all may meet."""
    master, calls, *own = [f"{host}:{p}" for p in ports.take(count + 2, host)]
    return {"master": master, "calls": calls, "endpoints": own}


def job_secret(create: bool) -> str:
    """The job's secret from the environment, or a new one."""
    if create and not os.environ.get(wire.SECRET):
        return secrets.token_hex(32)
    return wire.secret("launch").decode()


def gpus() -> list[str]:
    """The numbers of this machine's NVIDIA GPUs, without asking a library for them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [str(i) for i, name in enumerate(named.split(",")) if name not in ("", "-1")]
    if os.environ.get("JAX_PLATFORMS") == "cpu":
        return []
    return [str(i) for i in range(len(glob("/dev/nvidia[0-9]*")))]


def own_address(master: tuple[str, int]) -> str:
    """This machine's address as seen by the machine of the meeting point."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(master)
        return probe.getsockname()[0]


def meet(
    master: tuple[str, int], nodes: int, rank: int, mine: dict[str, Any], key: bytes
) -> tuple[list[dict[str, Any]], int]:
    """What each machine of the job has to say, in order, and this machine's number.

    The first machine (`rank` 0, or the one that can listen at `master`) collects and answers.
    """
    arrived: queue.SimpleQueue[Link] = queue.SimpleQueue()
    listening = None
    if rank <= 0:
        try:
            listening = door.Door(master, key, _PURPOSE, arrived.put)
        except DistributedError:
            if rank == 0:
                raise
    if listening is None:
        return _told_by_first(master, rank, mine, key)
    links: list[tuple[dict[str, Any], Link]] = []
    try:
        while len(links) < nodes - 1:
            link = arrived.get()
            try:
                links.append((_said(link, _MANNERS), link))
            except (EOFError, OSError, ValueError):
                link.close()  # it died, and will be started again
        return _told_to_all(nodes, mine, links)
    finally:
        listening.close()
        for _, link in links:
            link.close()


def _told_by_first(
    master: tuple[str, int], rank: int, mine: dict[str, Any], key: bytes
) -> tuple[list[dict[str, Any]], int]:
    link = door.connect(master, key, _PURPOSE, rank)
    try:
        link.send_bytes(json.dumps({**mine, "rank": rank}).encode())
        answer = _said(link, None)
    except (EOFError, OSError) as e:
        raise DistributedError(
            f"[launch] the first machine, at {master[0]}:{master[1]}, ended the meeting: {e}"
        ) from e
    finally:
        link.close()
    return answer["nodes"], answer["rank"]


def _said(link: Link, timeout: float | None) -> dict[str, Any]:
    return json.loads(link.recv_bytes(_LIMIT, timeout))


def _told_to_all(
    nodes: int, mine: dict[str, Any], links: list[tuple[dict[str, Any], Link]]
) -> tuple[list[dict[str, Any]], int]:
    asked = [said["rank"] for said, _ in links if said["rank"] > 0]
    if len(set(asked)) != len(asked) or max(asked, default=0) >= nodes:
        raise InvalidArgument(f"[launch] --rank must be different on each node. Received: {asked}")
    free = iter([i for i in range(1, nodes) if i not in asked])
    places = [said["rank"] if said["rank"] > 0 else next(free) for said, _ in links]
    everyone: list[dict[str, Any]] = [mine] * nodes
    for place, (said, _) in zip(places, links, strict=True):
        everyone[place] = said
    for place, (_, link) in zip(places, links, strict=True):
        link.send_bytes(json.dumps({"nodes": everyone, "rank": place}).encode())
    return everyone, 0


def environments(
    nodes: list[dict[str, Any]], node: int, devices: list[str], secret: str
) -> list[dict[str, str]]:
    """What each process of this machine is told, in Paddle's names."""
    endpoints = [e for n in nodes for e in n["endpoints"]]
    before = sum(len(n["endpoints"]) for n in nodes[:node])
    count = len(nodes[node]["endpoints"])
    result = []
    for i in range(count):
        rank = str(before + i)
        env = {
            "PADDLE_MASTER": nodes[0]["master"],
            "PADDLE_MASTER_ENDPOINT": nodes[0]["calls"],
            "PADDLE_GLOBAL_SIZE": str(len(endpoints)),
            "PADDLE_LOCAL_SIZE": str(count),
            "PADDLE_GLOBAL_RANK": rank,
            "PADDLE_LOCAL_RANK": str(i),
            "PADDLE_NNODES": str(len(nodes)),
            "PADDLE_CURRENT_ENDPOINT": endpoints[before + i],
            "PADDLE_TRAINER_ID": rank,
            "PADDLE_TRAINERS_NUM": str(len(endpoints)),
            "PADDLE_RANK_IN_NODE": str(i),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
            wire.SECRET: secret,
        }
        if devices:
            env["FLAGS_selected_gpus"] = ",".join(devices) if count == 1 else devices[i]
        else:
            env["PADDLE_DISTRI_BACKEND"] = "gloo"
            env["JAX_PLATFORMS"] = "cpu"
        result.append(env)
    return result
