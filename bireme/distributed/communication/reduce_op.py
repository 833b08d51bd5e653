"""ReduceOp."""

from __future__ import annotations


class ReduceOp:
    """How values of several processes become one."""

    SUM = 0
    MAX = 1
    MIN = 2
    PROD = 3
    AVG = 4
