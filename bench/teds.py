"""How alike two tables are: TEDS, one minus the edit distance of their trees by the larger's size.

A tree is table > row > cell. Rows cost 1 to add or take away; so do cells, and a cell that is kept
costs 1 if its spans differ, else the edit distance of its text by the longer's length.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass(slots=True)
class Node:
    """A table, a row or a cell."""

    kind: str
    spans: tuple[int, int] = (1, 1)
    text: str = ""
    children: list[Node] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.table = Node("table")
        self.cell: Node | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.table.children.append(Node("tr"))
        elif tag in ("td", "th"):
            given = dict(attrs)
            spans = int(given.get("rowspan") or 1), int(given.get("colspan") or 1)
            self.cell = Node("td", spans)
            self.table.children[-1].children.append(self.cell)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell.text += data


def parsed(html: str) -> Node:
    """The tree of a table's HTML."""
    reader = _Reader()
    reader.feed(html)
    return reader.table


def teds(truth: str, found: str) -> float:
    """From 0 to 1, for the HTML of two tables."""
    a, b = parsed(truth), parsed(found)
    size = max(len(_ordered(a)[0]), len(_ordered(b)[0]))
    return 1 - _distance(a, b) / size


def edits(a: str, b: str) -> int:
    """The least characters to add, take away or change."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (x != y))
    return row[-1]


def _ordered(tree: Node) -> tuple[list[Node], list[int]]:
    """Nodes after their children, and for each the place of its leftmost leaf."""
    nodes: list[Node] = []
    leftmost: list[int] = []

    def walk(node: Node) -> int:
        first = -1
        for child in node.children:
            leaf = walk(child)
            first = leaf if first < 0 else first
        first = len(nodes) if first < 0 else first
        nodes.append(node)
        leftmost.append(first)
        return first

    walk(tree)
    return nodes, leftmost


def _change(a: Node, b: Node) -> float:
    if a.kind != b.kind or a.spans != b.spans:
        return 1.0
    one, other = a.text.strip(), b.text.strip()
    return edits(one, other) / max(len(one), len(other), 1)


def _distance(a: Node, b: Node) -> float:
    """The edit distance of ordered trees (Zhang and Shasha)."""
    (left, l1), (right, l2) = _ordered(a), _ordered(b)
    trees = [[0.0] * len(right) for _ in left]

    def roots(leftmost: list[int]) -> list[int]:
        return sorted({leaf: i for i, leaf in enumerate(leftmost)}.values())

    for i in roots(l1):
        for j in roots(l2):
            rows, columns = i - l1[i] + 2, j - l2[j] + 2
            forest = [[float(r + c) if not (r and c) else 0.0 for c in range(columns)]
                      for r in range(rows)]  # fmt: skip
            for r in range(1, rows):
                x = l1[i] + r - 1
                for c in range(1, columns):
                    y = l2[j] + c - 1
                    base = min(forest[r - 1][c], forest[r][c - 1]) + 1
                    if l1[x] == l1[i] and l2[y] == l2[j]:
                        kept = forest[r - 1][c - 1] + _change(left[x], right[y])
                        forest[r][c] = trees[x][y] = min(base, kept)
                    else:
                        kept = forest[l1[x] - l1[i]][l2[y] - l2[j]] + trees[x][y]
                        forest[r][c] = min(base, kept)
    return trees[-1][-1]
