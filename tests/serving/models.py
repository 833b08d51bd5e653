"""Made-up models that tests serve."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np

ROWS = {"x": ("FP32", [-1, 4])}


class Echo:
    """Gives its input, and counts batches."""

    inputs: ClassVar[Any] = ROWS
    outputs: ClassVar[Any] = {"y": ("FP32", [-1, 4])}
    batched = True

    def predict(self, x: np.ndarray) -> Any:
        return {"y": x}


class Gate:
    """Waits until the test lets it go, and remembers the numbers of rows that it was given."""

    inputs: ClassVar[Any] = ROWS
    outputs: ClassVar[Any] = {"y": ("FP32", [-1, 4])}
    batched = True

    def __init__(self) -> None:
        self.open, self.entered = threading.Event(), threading.Semaphore(0)
        self.rows: list[int] = []

    def predict(self, x: np.ndarray) -> Any:
        self.rows.append(len(x))
        self.entered.release()
        assert self.open.wait(60)
        return {"y": 2 * x}


class Words:
    """The lengths of strings, and the strings in capitals."""

    inputs: ClassVar[Any] = {"s": ("BYTES", [-1])}
    outputs: ClassVar[Any] = {"n": ("INT64", [-1]), "S": ("BYTES", [-1])}

    def predict(self, s: np.ndarray) -> Any:
        return {"n": np.array([len(t) for t in s], np.int64), "S": [t.upper() for t in s]}


class Twice:
    """Calls another model of the server."""

    inputs: ClassVar[Any] = ROWS
    outputs: ClassVar[Any] = {"y": ("FP32", [-1, 4])}

    def load(self, models: Any) -> None:
        self.models = models

    def predict(self, x: np.ndarray) -> Any:
        return {"y": 2 * self.models("echo", x=x)["y"]}


class Broken:
    """Raises."""

    inputs: ClassVar[Any] = ROWS
    outputs: ClassVar[Any] = {"y": ("FP32", [-1, 4])}

    def predict(self, x: np.ndarray) -> Any:
        raise KeyError("inside")
