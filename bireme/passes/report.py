"""Reports of the changes that passes made to a graph."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bireme.core.graph import Graph


@dataclass
class Row:
    """One pass over one graph."""

    name: str
    before: int  # calls
    after: int
    removed: Counter[str]  # calls by op
    added: Counter[str]
    seconds: float

    def changes(self) -> str:
        """For example "-24 batch_norm, +1 gelu"."""
        gone = [f"-{n} {op}" for op, n in self.removed.most_common()]
        return ", ".join([*gone, *(f"+{n} {op}" for op, n in self.added.most_common())]) or "-"


@dataclass
class Report:
    """One row per pass, in the order in which they ran; `print(report)` shows a table."""

    rows: list[Row] = field(default_factory=list)

    def add(self, name: str, before: Graph, after: Graph, seconds: float) -> None:
        had, has = _count(before), _count(after)
        self.rows.append(Row(name, had.total(), has.total(), had - has, has - had, seconds))

    def counts(self) -> dict[str, int]:
        """How many calls fewer each pass left (all its runs together)."""
        total: dict[str, int] = {}
        for row in self.rows:
            total[row.name] = total.get(row.name, 0) + row.before - row.after
        return total

    def __str__(self) -> str:
        if not self.rows:
            return "no passes ran"
        width = max(len("pass"), *(len(r.name) for r in self.rows))
        lines = [f"{'pass':<{width}}  {'before':>6}  {'after':>6}  {'ms':>7}  what changed"]
        for r in self.rows:
            figures = f"{r.before:>6}  {r.after:>6}  {r.seconds * 1e3:>7.1f}"
            lines.append(f"{r.name:<{width}}  {figures}  {r.changes()}")
        return "\n".join(lines)


def _count(graph: Graph) -> Counter[str]:
    return Counter(n.call.op.name for n in graph.nodes)
