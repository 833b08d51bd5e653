"""Hostile requests: each has an answer, never a 5xx for a client's fault, and the server stays up.

    python -m tests.serving.hostile 100000

Documents of the Open Inference Protocol and of OpenAI's are changed in small ways (other values,
missing and unknown keys, broken bytes, wrong lengths of binary data, deep nesting, wrong
encodings) and sent to all addresses. The seed of a request that is not answered well is printed.
"""

from __future__ import annotations

import copy
import http.client
import json
import random
import sys
import time
from collections import Counter
from typing import Any

from bireme.profiler.memory import peak_process_bytes
from bireme.serving import Options, Server, Settings
from tests.serving.models import Echo

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 2**200, 1e308, 0.5, "", "x", "FP32", "BYTES",
    "INT64", [], {}, [[]], [1], [[1, 2], [3]], "\0", "\u00e9" * 50, {"a": {"b": []}}, [1, "a"],
    99999999999,
]  # fmt: skip
KEYS = ("binary_data_size", "x", "shared_memory_region", "classification", "__class__")
INFER = {
    "id": "1",
    "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}],
    "outputs": [{"name": "y"}],
    "parameters": {"priority": 1, "timeout": 60_000_000},
}
BINARY = {
    "inputs": [
        {"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
    ]
}
CHAT = {
    "model": "echo", "messages": [{"role": "user", "content": "hi"}], "temperature": 1, "n": 1,
    "stop": ["a"], "stream": False, "max_tokens": 3,
}  # fmt: skip
PATHS = [
    *["/v2/models/echo/infer"] * 8, "/v2/models/echo/versions/1/infer", "/v2/models/%00/infer",
    "/v2/models/../../etc/infer", "/v1/chat/completions", "/v1/completions", "/v1/embeddings",
    "/v2/repository/index", "/v2/repository/models/echo/load", "/v2/models/echo/stats",
    "/v2/models/echo/config", "/v2/health/ready", "/metrics", "/v2", "/", "/x",
    "/v2/models/echo/infer?x=%ff",
]  # fmt: skip
METHODS = [*["POST"] * 12, "GET", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]
Request = tuple[str, str, bytes, dict[str, str]]


def changed(rng: random.Random, document: Any) -> Any:
    """The document with one to three changes, each at a random place."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        node = document
        while True:
            keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.7:
                node = node[key]
                continue
            way = rng.random()
            if way < 0.6:
                node[key] = copy.deepcopy(rng.choice(VALUES))
            elif way < 0.8 and isinstance(node, dict):
                node[rng.choice(KEYS)] = copy.deepcopy(rng.choice(VALUES))
            else:
                del node[key]
            break
    return document


def request(seed: int) -> Request:
    """(method, path, body, headers) of one hostile request."""
    rng = random.Random(seed)
    path = rng.choice(PATHS)
    headers = {"Content-Type": "application/json"}
    body = json.dumps(changed(rng, CHAT if path.startswith("/v1") else INFER)).encode()
    way = rng.random()
    if way < 0.15:
        broken = bytearray(body)
        for _ in range(rng.randint(1, 4)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        body = bytes(broken)
    elif way < 0.35:
        head = json.dumps(changed(rng, BINARY)).encode()
        length: Any = len(head)
        if rng.random() < 0.5:
            length = rng.choice([length - 1, 0, -1, 10**9, "a", 2**70])
        headers["Inference-Header-Content-Length"] = str(length)
        body = head + rng.randbytes(rng.choice([0, 15, 16, 17, 400]))
    elif way < 0.37:
        body = b"[" * 100_000
    elif way < 0.39:
        headers["Content-Encoding"] = rng.choice(["gzip", "deflate", "br", "x"])
    return rng.choice(METHODS), path, body, headers


def campaign(port: int, count: int, first: int = 0) -> Counter[int]:
    """The statuses of this many answers; a missing one or a server's error raises."""
    statuses: Counter[int] = Counter()
    for seed in range(first, first + count):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            client.request(*request(seed))
            answer = client.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as e:
            raise AssertionError(f"request {seed} has no answer: {e!r}") from e
        finally:
            client.close()
        # The deadline that a client sets may pass on a busy machine: that is no fault.
        if answer.status >= 500 and answer.status != 504:
            raise AssertionError(f"request {seed} made {answer.status}: {text[:300]!r}")
        statuses[answer.status] += 1
    return statuses


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    begin = time.perf_counter()
    with Server({"echo": Echo}, Settings(port=0, body_bytes=1 << 20), Options(max_batch=4)) as made:
        print(dict(campaign(made.port, wanted)))
    peak = peak_process_bytes() >> 20
    print(f"{wanted} requests, {time.perf_counter() - begin:.0f} s, peak {peak} MiB")
