"""What `Model.prepare(amp_configs=...)` says about mixed precision."""

from __future__ import annotations

from typing import Any

from bireme.core.errors import InvalidArgument

_LISTS = ("custom_white_list", "custom_black_list")
_SCALER = (
    "init_loss_scaling",
    "incr_ratio",
    "decr_ratio",
    "incr_every_n_steps",
    "decr_every_n_nan_or_inf",
    "use_dynamic_loss_scaling",
)


class AmpSettings:
    """A level, lists of ops for autocast, and arguments of the GradScaler."""

    def __init__(self, configs: str | dict[str, Any] | None):
        given: dict[str, Any] = {"level": configs} if isinstance(configs, str) else {}
        given.update(configs if isinstance(configs, dict) else {})
        self.level = given.pop("level", "O1" if configs else "O0")
        if self.level not in ("O0", "O1", "O2"):
            raise InvalidArgument(
                "[prepare] the level of amp_configs is 'O0', 'O1' or 'O2'. Received: "
                f"{self.level!r}"
            )
        self.lists: dict[str, Any] = {k: given.pop(k) for k in _LISTS if k in given}
        self.scaler: dict[str, Any] = {k: given.pop(k) for k in _SCALER if k in given}
        if given:
            known = ", ".join(("level", *_LISTS, *_SCALER))
            raise InvalidArgument(
                f"[prepare] amp_configs takes {known}. Received: {', '.join(sorted(given))}"
            )

    @property
    def on(self) -> bool:
        return self.level != "O0"
