"""Types of variables in Paddle's programs: dense tensor, rows, array and others."""

from __future__ import annotations

import enum


class VarType(enum.Enum):
    """The types of a variable's contents, with Paddle's numbers."""

    DENSE_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    DENSE_TENSOR_ARRAY = 13
    READER = 15
    RAW = 17
    STRING = 25
    STRINGS = 26
    VOCAB = 27
