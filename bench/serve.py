"""`python -m bench.serve`: requests a second, and what one takes, against other servers.

The model is the identity of 16 floats, sent as binary tensors over REST from closed loops. Another
server of the same protocol, such as Triton with a model `echo` that takes `x` and gives `y`, is
named with `--peer triton=http://127.0.0.1:8000`; servers take turns. `direct` is a call of the
model in this process, without a server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlparse

import numpy as np

from bireme.serving import Server, Settings

X = np.arange(16, dtype=np.float32).reshape(1, 16)


class Echo:
    inputs: ClassVar[Any] = {"x": ("FP32", [-1, 16])}
    outputs: ClassVar[Any] = {"y": ("FP32", [-1, 16])}
    batched = True

    def predict(self, x: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": x}


@dataclass(frozen=True)
class Turn:
    """The seconds of each request of one turn, and how long the turn was."""

    seconds: list[float]
    length: float

    @property
    def row(self) -> str:
        ms = np.percentile(self.seconds, [50, 99]) * 1e3
        return f"{len(self.seconds) / self.length:10.0f}{ms[0]:10.3f}{ms[1]:10.3f}"


def request() -> tuple[bytes, dict[str, str]]:
    tensor = {"name": "x", "shape": [1, 16], "datatype": "FP32",
              "parameters": {"binary_data_size": X.nbytes}}  # fmt: skip
    wanted = {"name": "y", "parameters": {"binary_data": True}}
    header = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
    return header + X.tobytes(), {"Inference-Header-Content-Length": str(len(header))}


def asking(url: str) -> Callable[[], None]:
    """A function that asks once over a connection of its own, and checks the answer."""
    where, (body, headers) = urlparse(url), request()
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)

    def ask() -> None:
        connection.request("POST", "/v2/models/echo/infer", body, headers)
        answer = connection.getresponse()
        if not answer.read().endswith(X.tobytes()) or answer.status != 200:
            raise RuntimeError(f"{url} gave a wrong answer: {answer.status}")

    return ask


def turn(make: Callable[[], Callable[[], object]], clients: int, length: float) -> Turn:
    """Closed loops for so many seconds."""
    found: list[float] = []
    start = time.perf_counter()

    def loop() -> None:
        ask, own = make(), []
        while (begin := time.perf_counter()) < start + length:
            ask()
            own.append(time.perf_counter() - begin)
        found.extend(own)

    threads = [threading.Thread(target=loop) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Turn(found, time.perf_counter() - start)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.serve", description=__doc__)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=URL")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args(argv)
    with Server({"echo": Echo}, Settings(port=0)) as server:
        makers: dict[str, Callable[[], Callable[[], object]]] = {
            "direct": lambda: lambda: Echo().predict(X),
            "bireme": lambda: asking(server.url),
        }
        for text in given.peer:
            name, _, url = text.partition("=")
            makers[name] = lambda url=url: asking(url)
        print(f"{'server':<12}{'clients':>8}{'1/s':>10}{'p50 ms':>10}{'p99 ms':>10}")
        for clients in given.clients:
            turns: dict[str, list[Turn]] = {name: [] for name in makers}
            for _ in range(given.rounds):
                for name, make in makers.items():
                    turns[name].append(turn(make, clients, given.seconds))
            for name, own in turns.items():
                middle = sorted(own, key=lambda t: len(t.seconds) / t.length)[len(own) // 2]
                print(f"{name:<12}{clients:>8}{middle.row}")


if __name__ == "__main__":
    main()
