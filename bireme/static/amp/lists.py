"""Which ops of a program run in low precision."""

from __future__ import annotations

from collections.abc import Iterable

from bireme.amp.auto_cast import auto_cast, spellings
from bireme.core.op import OPS


class AutoMixedPrecisionLists:
    """Ops that run in low precision (white), ops that stay in float32 (black), and ops that take
    what comes (gray), under the names that they have here and in Paddle's programs.

    The custom lists come before what ops declare themselves; `custom_black_varnames` keep the ops
    that read these variables in float32.
    """

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
        return (_declared("white") - self.custom_black) | self.custom_white

    @property
    def black_list(self) -> set[str]:
        return (_declared("black") - self.custom_white) | self.custom_black

    @property
    def gray_list(self) -> set[str]:
        return _declared(None) - self.custom_white - self.custom_black


def _declared(kind: str | None) -> set[str]:
    own = {op.shown for op in OPS.values() if op.amp == kind}
    return own.union(*map(spellings, own))


CustomOpLists = AutoMixedPrecisionLists
