"""What a variable may be, besides its element type."""

from __future__ import annotations

import enum


class VarType(enum.Enum):
    """The kinds of things that a variable of a Paddle program may hold, numbered as there."""

    DENSE_TENSOR = 7
    SELECTED_ROWS = 8
    DENSE_TENSOR_ARRAY = 13
    RAW = 17
