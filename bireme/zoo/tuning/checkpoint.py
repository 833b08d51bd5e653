"""States of a run in the middle of it: one file, replaced whole, from which the run goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import bireme as paddle
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.nn.layer.layer import Layer
from bireme.optimizer import Optimizer
from bireme.zoo.tuning.samples import Tokens

NAME = "checkpoint.pdparams"


def fingerprint(data: Sequence[Sequence[Tokens]]) -> str:
    """A checksum of samples, to tell whether a run goes on with the data that it began with."""
    digest = hashlib.sha256()
    for group in data:
        for sample in group:
            digest.update(len(sample).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(sample.ids, "<i8").tobytes())
            digest.update(sample.learned.tobytes())
    return digest.hexdigest()[:32]


def save(
    folder: str,
    about: Mapping[str, Any],
    model: Layer,
    optimizer: Optimizer,
    losses: Sequence[float],
) -> None:
    """Write the state after `len(losses)` steps. Of frozen parameters nothing is written. Random
    numbers and the place in the data follow from the seed and the number of steps."""
    state = {
        "about": json.dumps(dict(about), sort_keys=True),
        "parameters": trained(model),
        "optimizer": dict(optimizer.state_dict()),
        "losses": np.asarray(losses, np.float64),
    }
    paddle.save(state, os.path.join(folder, NAME))


def trained(model: Layer) -> dict[str, Any]:
    """The parameters that are trained, and all buffers."""
    frozen = {n for n, p in model.named_parameters() if p.stop_gradient}
    return {n: t for n, t in model.state_dict().items() if n not in frozen}


def load(folder: str, about: Mapping[str, Any], model: Layer, optimizer: Optimizer) -> list[float]:
    """Put a saved state into the model and the optimizer; the losses of the steps that are done.

    Without a saved state the run begins: an empty list. A state of other data or settings raises.
    """
    path = os.path.join(folder, NAME)
    if not os.path.exists(path):
        return []
    state = paddle.load(path)
    keys = {"about", "parameters", "optimizer", "losses"}
    if not isinstance(state, dict) or set(state) != keys or not isinstance(state["about"], str):
        raise FileFormatError(f"[finetune] {path!r} is no checkpoint of a fine-tuning")
    before = json.loads(state["about"])
    now = json.loads(json.dumps(dict(about)))
    other = sorted(k for k in {*before, *now} if before.get(k) != now.get(k))
    if other:
        shown = "; ".join(f"{k}: {before.get(k)!r} then, {now.get(k)!r} now" for k in other)
        raise InvalidArgument(
            f"[finetune] the run in {folder!r} was begun with other settings, so it cannot go on: "
            f"{shown}. Give the same, or another folder"
        )
    mine, saved = trained(model), state["parameters"]
    if set(mine) != set(saved) or any(list(mine[n].shape) != list(saved[n].shape) for n in mine):
        raise InvalidArgument(f"[finetune] the run in {folder!r} trains another model's parameters")
    for name, tensor in mine.items():
        tensor.set_value(saved[name])
    optimizer.set_state_dict(state["optimizer"])
    return np.asarray(state["losses"], np.float64).tolist()
