"""`paddle.async_save`: the contents of now, written while the program goes on."""

from __future__ import annotations

import io
import os
import threading
from typing import Any

import numpy as np

from bireme.core.errors import InvalidArgument, TypeMismatch, warn_user
from bireme.core.tensor import Tensor, constant
from bireme.core.trace import Trace, state
from bireme.io.serialization import save

_tasks: list[_Task] = []


class _Task(threading.Thread):
    """One file that is being written; what goes wrong is kept for whoever waits."""

    def __init__(self, obj: object, path: str | os.PathLike[str] | io.BytesIO, protocol: int):
        super().__init__(name="bireme-async-save")
        self.arguments = obj, path, protocol
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            save(*self.arguments)
        except BaseException as e:  # raised where somebody waits
            self.failure = e


def async_save(
    obj: object,
    path: str | os.PathLike[str] | io.BytesIO,
    protocol: int = 4,
    sync_other_task: bool = False,
    **configs: object,
) -> None:
    """`save` of a tensor or a dict of tensors as they are now, in a thread of its own.

    `sync_other_task` waits for earlier ones first. `clear_async_save_task_queue()` waits for all,
    and raises what one of them failed with.

    >>> async_save(net.state_dict(), "net.pdparams")  # doctest: +SKIP
    """
    if state.trace.__class__ is not Trace:
        raise InvalidArgument("[async_save] works in eager code; a program has paddle.static.save")
    if not isinstance(obj, dict | Tensor):
        raise TypeMismatch(
            f"[async_save] takes a dict or a Tensor. Received: {type(obj).__name__}; put it into "
            "a dict"
        )
    if configs:
        warn_user(f"[async_save] has no options of save(). Received: {sorted(configs)}")
    if sync_other_task:
        clear_async_save_task_queue()
    task = _Task(_copied(obj), path, protocol)
    _tasks.append(task)
    task.start()


def clear_async_save_task_queue() -> None:
    """Wait until everything is written."""
    while _tasks:
        task = _tasks.pop(0)
        task.join()
        if task.failure is not None:
            raise task.failure


def _copied(value: Any) -> Any:
    """The same structure with contents of its own, which no later step can change."""
    if isinstance(value, Tensor):
        made = constant(np.array(value._array()))
        made._name = value._name
        return made
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_copied(v) for v in value])
    return value
