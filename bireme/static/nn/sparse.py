"""sparse_embedding: a table of which only some rows are in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.api.types import DTypeLike
from bireme.core import dtype as dt
from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.core.op import op
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.ops.indexing import gather
from bireme.ops.logic import greater_equal
from bireme.ops.manipulation import expand, reshape, unsqueeze
from bireme.ops.math import multiply
from bireme.ops.math_unary import assign, cast
from bireme.ops.random import bernoulli
from bireme.static.copying import TEST_RULES
from bireme.static.nn.helper import Maker
from bireme.static.program import default_main_program
from bireme.static.variables import create_global_var

_TABLES = ("CommonSparseTable", "SSDSparseTable", "MemorySparseTable")


def _tally_type(totals: Aval, ids: Aval, amounts: Aval) -> Aval:
    return totals


def _tally_numpy(xp: Any, totals: Any, ids: Any, amounts: Any) -> Any:
    out = totals.copy()
    np.add.at(out, ids.reshape(-1), amounts.reshape(-1).astype(totals.dtype))
    return out


@op(name="tally", numpy=_tally_numpy, infer=_tally_type, differentiable=False)
def _tally(xp, totals, ids, amounts):
    """The totals with `amounts` added at `ids`; an id may come up several times."""
    return totals.at[ids.reshape(-1)].add(amounts.reshape(-1).astype(totals.dtype))


# A table that is only looked into counts nothing.
TEST_RULES["tally"] = lambda inputs, attrs: [inputs[0]]


def sparse_embedding(
    input: Tensor,
    size: Sequence[int],
    padding_idx: int | None = None,
    is_test: bool = False,
    entry: object = None,
    table_class: str = "MemorySparseTable",
    param_attr: ParamAttrLike | None = None,
    dtype: DTypeLike = "float32",
    slot: int | None = None,
) -> Tensor:
    """Rows of a new table, of which ids take possession by and by.

    `entry` says when an id has a row: `CountFilterEntry(n)` when it has come up n times,
    `ProbabilityEntry(p)` with this probability whenever it comes up; before that its row is zero
    and not trained. `ShowClickEntry` adds up shows and clicks of each id in the program's state
    `<table>_show` and `<table>_click`. With `is_test` nothing is counted.

    The table is a parameter like any other: shard it over devices if it is large. `table_class`
    and `slot` say how Paddle's servers keep it.
    """
    if input.dtype is not dt.int64:
        raise TypeMismatch(f"[sparse_embedding] ids are int64. Received: {input.dtype.name}")
    kind = dt.as_dtype(dtype)
    if kind not in (dt.float32, dt.float64):
        raise TypeMismatch(
            f"[sparse_embedding] a table is of float32 or float64. Received: {kind.name}"
        )
    if table_class not in _TABLES:
        raise InvalidArgument(
            f"[sparse_embedding] table_class is one of {', '.join(_TABLES)}. Received: "
            f"{table_class!r}"
        )
    table = Maker("sparse_embedding", None, kind).weight(list(size), param_attr)
    rows = F.embedding(input, table, padding_idx)
    rule, settings = _parsed(entry)
    if rule == "none":
        return rows
    if rule == "show_click_entry":
        for title, name in zip(("show", "click"), settings, strict=True):
            given = default_main_program().find(name)
            _count(table, title, input, given, is_test)
        return rows
    if rule == "count_filter_entry":
        ones = _ones(input)
        total = _count(table, "count", input, ones, is_test)
        known = greater_equal(total, float(settings[0]))
    else:
        drawn = bernoulli(multiply(_ones(input), float(settings[0])))
        total = _count(table, "entered", input, drawn, is_test)
        known = greater_equal(total, 1.0)
    mask = cast(gather(known, reshape(input, [-1])), kind)
    mask = reshape(mask, [*input._value.aval.shape, 1])
    return multiply(rows, mask)


def _parsed(entry: object) -> tuple[str, list[str]]:
    if entry is None:
        return "none", []
    spelled = getattr(entry, "_to_attr", None)
    if spelled is None:
        raise InvalidArgument(
            "[sparse_embedding] entry is a ProbabilityEntry, CountFilterEntry or ShowClickEntry "
            f"of paddle.distributed. Received: {type(entry).__name__}"
        )
    rule, *settings = spelled().split(":")
    return rule, settings


def _ones(like: Tensor) -> Tensor:
    return cast(greater_equal(like, like), "float32")


def _count(table: Any, title: str, ids: Tensor, amounts: Tensor, is_test: bool) -> Tensor:
    """The totals of all ids with this run's amounts, and kept for the next run."""
    rows = table.shape[0]
    totals = create_global_var([rows], 0.0, "float32", True, name=f"{table.name}_{title}")
    if is_test:
        return totals
    if amounts.ndim < ids.ndim:
        amounts = unsqueeze(amounts, -1)
    spread = expand(amounts, ids._value.aval.shape)
    return assign(_tally(totals, ids, spread), totals)
