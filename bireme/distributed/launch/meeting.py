"""Which processes a job has, and where: what a launcher writes into their environment."""

from __future__ import annotations

import json
import os
import secrets
import socket
from contextlib import ExitStack
from glob import glob
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.distributed import wire
from bireme.distributed.job import is_local


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody listens at."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for s in sockets:
            s.bind(("" if not is_local(host) else host, 0))
        return [s.getsockname()[1] for s in sockets]


def node(host: str, count: int) -> dict[str, Any]:
    """A machine's part in the job: where its processes listen, and where all may meet."""
    master, calls, *own = [f"{host}:{p}" for p in free_ports(count + 2, host)]
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
    listener = None
    if rank <= 0:
        try:
            listener = wire.listen(master)
        except RuntimeError:
            if rank == 0:
                raise
    if listener is None:
        link = wire.connect(master, key)
        link.send_bytes(json.dumps({**mine, "rank": rank}).encode())
        answer = json.loads(link.recv_bytes())
        link.close()
        return answer["nodes"], answer["rank"]
    links = []
    while len(links) < nodes - 1:
        link = listener.accept()
        if wire.admit(link, key):
            links.append((json.loads(link.recv_bytes()), link))
    listener.close()
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
        link.close()
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
