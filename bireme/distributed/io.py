"""paddle.distributed.io: a program's persistent state in a folder."""

from __future__ import annotations

import io as bytes_io
import os
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.io import serialization
from bireme.static.executor import Executor, as_program
from bireme.static.program import Program

_ENDING = ".pdparams"


def is_persistable(var: Tensor) -> bool:
    """Whether a variable keeps its contents from run to run: parameters and other state.

    >>> is_persistable(paddle.static.data("x", [1]))  # doctest: +SKIP
    False
    """
    return bool(var.persistable)


def save_persistables(
    executor: Executor,
    dirname: str | None,
    main_program: Program | None = None,
    filename: str | None = None,
) -> bytes | None:
    """Write the program's state into a folder: one file for each variable, or one for all.

    Without a folder the state comes back as bytes. What is written is in the global scope, where
    every `executor` keeps it.
    """
    program = _program(executor, main_program)
    state = {name: held.numpy() for name, held in program.state_dict().items()}
    if dirname is None:
        buffer = bytes_io.BytesIO()
        serialization.save(state, buffer)
        return buffer.getvalue()
    os.makedirs(dirname, exist_ok=True)
    if filename is not None:
        serialization.save(state, os.path.join(dirname, filename + _ENDING))
        return None
    serialization.save_together(
        {os.path.join(dirname, n + _ENDING): {n: contents} for n, contents in state.items()},
        folder=dirname,  # a variable's name may have slashes
    )
    return None


def load_persistables(
    executor: Executor,
    dirname: str,
    main_program: Program | None = None,
    filename: str | None = None,
) -> None:
    """Read what `save_persistables` wrote into the global scope."""
    program = _program(executor, main_program)
    names = program.state_names()
    files = [filename] if filename is not None else names
    found: dict[str, np.ndarray] = {}
    paths = [os.path.join(dirname, name + _ENDING) for name in files]
    parts = serialization.load_together(paths, dirname, return_numpy=True)
    for path, part in zip(paths, parts, strict=True):
        if part is None:
            raise InvalidArgument(f"[load_persistables] there is no file {path!r}")
        found.update(part)
    missing = [n for n in names if n not in found]
    if missing:
        raise InvalidArgument(f"[load_persistables] {filename!r} has nothing for {missing[:5]}")
    program.set_state_dict({n: found[n] for n in names})


def _program(executor: Executor, program: Program | None) -> Program:
    if not isinstance(executor, Executor):
        raise InvalidArgument(
            f"[distributed.io] the first argument is an Executor. Received: "
            f"{type(executor).__name__}"
        )
    return as_program(program)


def load_inference_model_distributed(
    dirname: str,
    executor: Executor,
    model_filename: str | None = None,
    params_filename: str | None = None,
    pserver_endpoints: list[str] | None = None,
) -> list[Any]:
    """[program, names of inputs, results] of a saved model, see `static.load_inference_model`.

    Tables are part of the program, so there are no servers to ask: `pserver_endpoints` is
    refused.
    """
    from bireme.static.model_files import load_inference_model

    if pserver_endpoints:
        raise InvalidArgument(
            "[load_inference_model_distributed] tables are part of the program; leave "
            f"pserver_endpoints out. Received: {pserver_endpoints}"
        )
    options = {
        k: v
        for k, v in (("model_filename", model_filename), ("params_filename", params_filename))
        if v is not None
    }
    return load_inference_model(dirname, executor, **options)
