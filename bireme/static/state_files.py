"""static.save and static.load: a program's state in Paddle's own state files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.io import serialization
from bireme.static.executor import Executor, as_program
from bireme.static.program import Program

_PARAMETERS, _REST = ".pdparams", ".pdopt"


def save(program: Program, model_path: str, protocol: int = 4, **configs: Any) -> None:
    """Write the parameters to `model_path.pdparams` and other state to `model_path.pdopt`.

    Paddle reads these files. The program itself is not written: it is made again by the code
    that wrote it, or saved by `save_inference_model`. `pickle_protocol=` is `protocol`'s old name.
    """
    protocol = configs.pop("pickle_protocol", protocol)
    if configs:
        raise InvalidArgument(f"[save] does not know the option {sorted(configs)[0]!r}")
    path = os.fspath(model_path)
    if not os.path.basename(path):
        raise InvalidArgument(
            f"[save] the path must end in a name, such as 'out/model'. Received: {model_path!r}"
        )
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    chosen = as_program(program)
    contents = {
        path + ending: {name: t.numpy() for name, t in chosen.state_dict(mode).items()}
        for mode, ending in (("param", _PARAMETERS), ("opt", _REST))
    }
    serialization.save_together(contents, protocol)


def load(
    program: Program,
    model_path: str,
    executor: Executor | None = None,
    var_list: Iterable[Tensor] | None = None,
) -> None:
    """Put state that `save` wrote into the global scope: all of it, or that of `var_list`."""
    chosen = as_program(program)
    found = load_program_state(model_path, var_list)
    wanted = chosen.state_names() if var_list is None else [v.name for v in var_list]
    missing = [n for n in wanted if n not in found]
    if missing:
        raise InvalidArgument(
            f"[load] {model_path!r} has no contents for {missing[:5]}; it holds "
            f"{sorted(found)[:10]}"
        )
    chosen.set_state_dict({n: found[n] for n in wanted if n in found})


def load_program_state(
    model_path: str, var_list: Iterable[Tensor] | None = None
) -> dict[str, np.ndarray]:
    """State that `save` wrote, as arrays by name: all of it, or that of `var_list`."""
    path = os.fspath(model_path).removesuffix(_PARAMETERS).removesuffix(_REST)
    parts = serialization.load_together((path + _PARAMETERS, path + _REST), return_numpy=True)
    if parts[0] is None:
        raise serialization.no_such_file(path + _PARAMETERS)
    found: dict[str, np.ndarray] = {}
    for part in parts:
        if part is not None:
            found.update({k: v for k, v in part.items() if isinstance(v, np.ndarray)})
    if var_list is None:
        return found
    names = [v.name if isinstance(v, Tensor) else v for v in var_list]
    return {n: found[n] for n in names if n in found}


def set_program_state(program: Program, state_dict: dict[str, Any]) -> None:
    """Put arrays by name into the global scope, as far as the program knows them."""
    chosen = as_program(program)
    unknown = sorted(set(state_dict) - set(chosen.state_names()))
    chosen.set_state_dict(state_dict)
    if unknown:
        warnings.warn(f"the program has no state of these names: {unknown}", stacklevel=2)
