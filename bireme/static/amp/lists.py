"""Which ops of a program run in low precision."""

from __future__ import annotations

from collections.abc import Iterable

from bireme.amp.auto_cast import auto_cast
from bireme.core.op import OPS


class AutoMixedPrecisionLists:
    """Ops that run in low precision (white) and that stay in float32 (black), besides those that
    say it of themselves; `custom_black_varnames` keep the ops that read these variables."""

    def __init__(
        self,
        custom_white_list: Iterable[str] | None = None,
        custom_black_list: Iterable[str] | None = None,
        custom_black_varnames: Iterable[str] | None = None,
        dtype: str = "float16",
    ) -> None:
        auto_cast(True, custom_white_list, custom_black_list, "O1", dtype)  # checks them
        self.amp_dtype = dtype
        self.custom_white = frozenset(custom_white_list or ())
        self.custom_black = frozenset(custom_black_list or ())
        self.black_varnames = frozenset(custom_black_varnames or ())

    @property
    def white_list(self) -> set[str]:
        own = {op.shown for op in OPS.values() if op.amp == "white"}
        return (own - self.custom_black) | self.custom_white

    @property
    def black_list(self) -> set[str]:
        own = {op.shown for op in OPS.values() if op.amp == "black"}
        return (own - self.custom_white) | self.custom_black


CustomOpLists = AutoMixedPrecisionLists
