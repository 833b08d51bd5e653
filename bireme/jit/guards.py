"""Guards: state that must be as it was at the capture, compared before every call.

In the steady state a comparison by identity is enough; its loops run in C. A number that is another
object of the same value is equal; another tensor of the same kind in the same place is the input
from then on; any other change needs another graph.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, is_not
from typing import Any

from bireme.core.tensor import Tensor
from bireme.jit.watch import PLAIN, Watch, contents, count, each

_cell_contents = attrgetter("cell_contents")


class Guards:
    def __init__(self, watch: Watch, is_known: Callable[[dict[Any, Any], Any], bool]):
        """`is_known(holder, key)`: someone else looks after this entry."""
        found = [e for e in watch.entries.values() if not is_known(e[0], e[1])]
        self.holders = [e[0] for e in found]
        self.keys = [e[1] for e in found]
        self.values = [e[2] for e in found]
        self.cells = [cell for cell, _ in watch.cells.values()]
        self.cell_values = [value for _, value in watch.cells.values()]
        self.attributes = list(watch.attributes.values())
        self.containers = [c for c, _ in watch.contents.values()]
        self.contents = [items for _, items in watch.contents.values()]

    def hold(self, replace: Callable[[Tensor, Tensor], bool]) -> bool:
        """Whether everything is as it was. `replace(old, new)` takes another tensor as input."""
        try:
            if not (
                any(map(is_not, map(dict.get, self.holders, self.keys), self.values))
                or any(map(is_not, map(_cell_contents, self.cells), self.cell_values))
                or (self.attributes and not self._same_attributes())
                or (self.containers and not self._same_contents())
            ):
                return True
            return self._still(replace)
        except (AttributeError, ValueError):  # an attribute or a variable is gone
            return False

    def _same_attributes(self) -> bool:
        for thing, name, value in self.attributes:
            now = getattr(thing, name)
            if now is not value and not _equal(now, value):
                return False
        return True

    def _same_contents(self) -> bool:
        for container, items in zip(self.containers, self.contents, strict=True):
            if count(container) != len(items) or any(map(is_not, each(container), items)):
                return False
        return True

    def _still(self, replace: Callable[[Tensor, Tensor], bool]) -> bool:
        """The thorough comparison; state that counts as equal is stored as it is now."""
        now: list[Any] = [h.get(k) for h, k in zip(self.holders, self.keys, strict=True)]
        cells = [c.cell_contents for c in self.cells]
        inside = [contents(c) for c in self.containers]
        attributes = [getattr(thing, name) for thing, name, _ in self.attributes]
        if [len(i) for i in inside] != [len(i) for i in self.contents]:
            return False
        before = [*self.values, *self.cell_values, *[a[2] for a in self.attributes]]
        after = [*now, *cells, *attributes]
        before += [x for items in self.contents for x in items]
        after += [x for items in inside for x in items]
        others: dict[int, tuple[Tensor, Tensor]] = {}
        for old, new in zip(before, after, strict=True):
            if isinstance(old, Tensor) and isinstance(new, Tensor):
                known = others.setdefault(id(old), (old, new))
                if known[1] is not new:  # one tensor in two places is now two
                    return False
            elif old is not new and not _equal(old, new):
                return False
        for old, new in others.values():
            if old is not new and not replace(old, new):
                return False
        self.values, self.cell_values, self.contents = now, cells, inside
        self.attributes = [
            (t, n, a) for (t, n, _), a in zip(self.attributes, attributes, strict=True)
        ]
        return True


def _equal(a: Any, b: Any) -> bool:
    return a.__class__ is b.__class__ and a.__class__ in PLAIN and bool(a == b)
