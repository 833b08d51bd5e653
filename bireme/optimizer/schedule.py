"""The base of the learning-rate schedules."""

from __future__ import annotations

import warnings
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.tensor import Tensor


class LRScheduler:
    """Base of the schedules: a subclass defines `get_lr` from `last_epoch` and `base_lr`."""

    def __init__(
        self, learning_rate: float = 0.1, last_epoch: int = -1, verbose: bool = False
    ) -> None:
        if not isinstance(learning_rate, float | int):
            raise TypeMismatch(
                f"[{type(self).__name__}] the learning rate must be a number. Received: "
                f"{type(learning_rate).__name__}"
            )
        if learning_rate < 0:
            raise InvalidArgument(
                f"[{type(self).__name__}] the learning rate must not be negative. Received: "
                f"{learning_rate}"
            )
        self.base_lr = float(learning_rate)
        self.last_lr = float(learning_rate)
        self.last_epoch = last_epoch
        self.verbose = verbose
        self.step()

    def __call__(self) -> float:
        """The current learning rate."""
        return self.last_lr

    def get_lr(self) -> float:
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to `epoch`."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        closed = getattr(self, "_get_closed_form_lr", None)
        self.last_lr = self.get_lr() if epoch is None or closed is None else closed()
        self._report()

    def _report(self) -> None:
        if self.verbose:
            name = type(self).__name__
            print(  # noqa: T201 (asked for by `verbose`)
                f"Epoch {self.last_epoch}: {name} set learning rate to {self.last_lr}."
            )

    def state_keys(self) -> None:
        """Set `self.keys`, the attributes that make up the state."""
        self.keys = ["last_epoch", "last_lr"]

    def state_dict(self) -> dict[str, Any]:
        self.state_keys()
        state = {k: self.__dict__[k] for k in self.keys if k in self.__dict__}
        return {k: float(v) if isinstance(v, Tensor) else v for k, v in state.items()}

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.state_keys()
        for key in self.keys:
            if key not in state_dict:
                raise InvalidArgument(
                    f"[{type(self).__name__}] the state has no entry {key!r}. Received: "
                    f"{sorted(state_dict)}"
                )
        for key in self.keys:
            self.__dict__[key] = state_dict[key]
        if len(state_dict) > len(self.keys):
            warnings.warn(
                f"{type(self).__name__} did not use all of the state: "
                f"{sorted(set(state_dict) - set(self.keys))}",
                stacklevel=2,
            )

    set_dict = set_state_dict
