"""Damaged model files: mutations of real ones. Run me to try many:

python -m tests.convert.paddle.mutants 10000
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bireme.convert.paddle.interpreter import check_rules
from bireme.convert.paddle.model import PaddleModel
from bireme.convert.paddle.params import read_combined
from bireme.convert.paddle.pir import read_pir
from bireme.convert.paddle.program import ModelFileError, UnsupportedModel, Var
from bireme.convert.paddle.program_desc import read_program_desc
from bireme.core.errors import BiremeError

_NUMBERS = [b"\x00", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\xff" * 9 + b"\x01"]
_WORDS = [b"-1", b"99999999999999999999", b"null", b"[]", b"{}", b'"x"', b"true", b"1e999"]


def mutants(source: bytes, count: int, seed: int, document: bool = False) -> Iterator[bytes]:
    """`count` damaged copies: bytes flipped, inserted, cut out, repeated, or the end cut off.

    Most damage to a JSON document only makes it unreadable, so nine of ten mutants of a
    `document` are good JSON with other values, moved parts and missing parts.
    """
    rng = random.Random(seed)
    pieces = _WORDS if document else _NUMBERS
    for number in range(count):
        if document and number % 10:
            yield _other_values(json.loads(source), rng)
            continue
        data = bytearray(source)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            if not data:
                break
            at = rng.randrange(len(data))
            kind = rng.randrange(6)
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at] = rng.randrange(256)
            elif kind == 2:
                data[at:at] = rng.choice(pieces)
            elif kind == 3:
                del data[at : at + rng.choice((1, 2, 8, 100))]
            elif kind == 4:
                piece = data[at : at + rng.choice((1, 8, 64))]
                data[at:at] = piece * rng.choice((1, 2, 50))
            else:
                del data[at:]
        yield bytes(data)


_VALUES: list[Any] = [
    None, True, -1, 0, 1, 7, 1 << 31, -(1 << 63), 1 << 70, 0.5, 1e300, "", "x", "1.relu", "0.t_i64",
    [], {}, [[]], [1, -1], {"#": "0.a_str", "D": "x"},
]  # fmt: skip


def _other_values(document: Any, rng: random.Random) -> bytes:
    holders: list[Any] = []
    todo = [document]
    while todo:
        node = todo.pop()
        if isinstance(node, dict | list) and node:
            holders.append(node)
            todo += node.values() if isinstance(node, dict) else node
    if not holders:  # a document of one value
        return json.dumps(rng.choice((None, -1, "x", [], {}))).encode()
    for _ in range(rng.choice((1, 1, 2, 5))):
        node = rng.choice(holders)
        if not node:
            continue
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        kind = rng.randrange(5)
        if kind == 0:
            del node[key]
        elif kind == 1:
            node[key] = json.loads(json.dumps(rng.choice(holders)))
        elif kind == 2 and isinstance(node, list):
            node[:] = node * 2
        elif kind == 3 and isinstance(node[key], int):
            node[key] += rng.choice((-1, 1, 1000))
        else:
            node[key] = rng.choice(_VALUES)
    return json.dumps(document).encode()


def survives(read: Any, data: bytes) -> bool:
    """Whether a reader takes the file; what it raises instead must be one of our errors."""
    try:
        read(data)
    except (ModelFileError, UnsupportedModel):
        return False
    return True


def program(data: bytes) -> None:
    """Read a ProgramDesc; one that is taken is run as far as types go."""
    run_types(read_program_desc(data))


def pir(data: bytes) -> None:
    run_types(read_pir(data))


def run_types(made: Any) -> None:
    """What loading does: check the ops, make the layer, capture the graph."""
    check_rules(made)
    large = sum(int(np.prod([max(d, 1) for d in v.shape], dtype=float)) for v in made.parameters)
    if large > 1 << 22:
        return  # such weights would not be in the file
    weights = {v.name: _zeros(v) for v in made.parameters}
    model = PaddleModel(made, weights)
    if any(d == 0 or d > 1 << 12 for v in made.feeds for d in v.shape):
        return
    try:
        model.input_specs
    except BiremeError as e:
        raise ModelFileError(str(e)) from None


def _zeros(var: Var) -> np.ndarray:
    from bireme.core.dtype import as_dtype

    return np.zeros([max(d, 1) for d in var.shape], as_dtype(var.dtype or "float32").numpy)


def weights_reader(parameters: list[Var]) -> Any:
    return lambda data: read_combined(memoryview(data), parameters, "weights")


def sources(folder: Path) -> dict[str, tuple[bytes, Any]]:
    """Small files of each format, made by the real Paddle, and their readers."""
    import paddle

    from tests.convert.paddle.real import small_net

    old, new, weights = small_net(paddle, folder)
    return {
        "ProgramDesc": (old, program),
        "PIR": (new, pir),
        "weights": (weights, weights_reader(read_pir(new).parameters)),
    }


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, (data, read) in sources(Path(folder)).items():
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            taken = sum(
                survives(read, m) for m in mutants(data, count, seed=1, document=name == "PIR")
            )
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            print(f"{name}: {count} mutants, {taken} still readable, {grown >> 10} MiB more")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
