"""Proofs: which requirements of a program are known to hold before it runs.

The value range of a requirement's input follows from the ops that made it (`ranges.py`), down to
the program's inputs and numbers. Inputs in host memory are scanned, once each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bireme.core import ranges
from bireme.core.errors import BiremeError
from bireme.core.graph import Graph, Node
from bireme.core.op import Call
from bireme.core.requirements import Holds, Requirement, fail
from bireme.host.arrays import Array


class Watched(NamedTuple):
    """A requirement of a program, with the known range of the elements that it is about."""

    requirement: Requirement
    call: Call
    result: int  # the first result of the entry that it belongs to
    range: ranges.Range | None
    plain: int | None  # the leaf whose elements these are, unchanged

    @property
    def source(self) -> int | None:
        """The leaf that all elements are from, if there is one."""
        known = self.range
        if known is None or known != ranges.Range(leaves=known.leaves) or len(known.leaves) != 1:
            return None
        return next(iter(known.leaves))


class Question(NamedTuple):
    """A requirement to prove before a run, and the input to scan first."""

    number: int  # of the requirement, among those of the program
    watched: Watched
    source: int | None


def of_program(graph: Graph, nodes: Sequence[Node]) -> tuple[Watched, ...]:
    """The requirements of these nodes, in the order in which a run meets them."""
    found: list[Watched] = []
    for node in nodes:
        if node.call.checks:
            _collect(ranges.RangeScope.of_program(graph, nodes), nodes, found, None)
            break
    return tuple(found)


def _collect(
    scope: ranges.RangeScope, nodes: Sequence[Node], found: list[Watched], entry: int | None
) -> None:
    for node in nodes:
        first = node.first if entry is None else entry
        for requirement in node.call.requires:
            known = plain = None
            if not isinstance(requirement, Holds):
                ref = node.args[requirement.position(node.call)]
                known, plain = scope.range_of(ref), scope.plain_leaf(ref)
            found.append(Watched(requirement, node.call, first, known, plain))
        if node.call.checks > len(node.call.requires):
            for inner in ranges.inner_scopes(scope, node):
                _collect(inner, inner.nodes, found, first)


def is_fallible(nodes: Sequence[Node]) -> bool:
    """Whether some op among these may raise while a program runs."""
    for node in nodes:  # noqa: SIM110 (a generator takes three times as long)
        if node.call.fallible:
            return True
    return False


def questions(watched: Sequence[Watched]) -> tuple[Question, ...]:
    """The requirements that `unproved` tests. A gradient has the same ones as its op, and the first
    of equal requirements raises for all, so each is tested once."""
    first = {}
    for i, w in enumerate(watched):
        unknown = i if w.range is None else None  # nothing says that it is equal to another
        first.setdefault((w.requirement, w.range, w.plain, unknown), Question(i, w, w.source))
    return tuple(first.values())


def unproved(
    asked: Sequence[Question], leaves: Sequence[Any], floats: Sequence[Any], ints: Sequence[Any]
) -> tuple[int, ...]:
    """The requirements, by number, that are not proved before the run."""
    found = []
    for number, w, source in asked:
        if source is not None:
            try:  # most often an input of the run, which was looked at before
                low, high = leaves[source].limits[None]
            except (AttributeError, KeyError):
                pass
            else:
                if w.requirement.allows(low, high):  # pyright: ignore[reportAttributeAccessIssue]
                    continue
        if not _is_proved(w, leaves, floats, ints):
            found.append(number)
    return tuple(found)


def _is_proved(w: Watched, leaves: Sequence[Any], floats: Any, ints: Any) -> bool:
    requirement = w.requirement
    if isinstance(requirement, Holds) or w.range is None:
        return False
    if w.range.nan and not requirement.nan:
        return False
    limits = w.range.limits(leaves, floats, ints)
    if limits is None:
        return False
    if requirement.allows(*limits):
        return True
    if requirement.ignored is None or w.plain is None:
        return False
    limits = ranges.limits_of(leaves[w.plain], requirement.ignored)
    return limits is not None and requirement.allows(*limits)


def look(watched: Sequence[Watched], wanted: Sequence[int], evidence: Array) -> None:
    """Raise for the first requirement that does not hold, by the evidence of a run."""
    for i, (low, high) in zip(wanted, np.asarray(evidence), strict=True):
        w = watched[i]
        error = w.requirement.failure(float(low), float(high))
        if error is not None:
            try:
                fail(w.call, error)
            except BiremeError as raised:
                raised.failed_result = w.result  # type: ignore[attr-defined]
                raise
