"""The pages of a cache: who uses them, and which hold the beginnings of texts that may come again.

A page that is full is known by its tokens and by the page before it, so two texts share exactly the
pages of their common beginning. Nothing is hashed to a number that another text might have, too.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

Key = tuple[int, tuple[int, ...]]  # (the contents of the page before, the tokens)
START = 0  # the contents before the first page


class Pages:
    """Pages 1 to `count` - 1 of `size` tokens each. Page 0 is where padding is written."""

    def __init__(self, count: int, size: int, sharing: bool = True):
        self.count, self.size, self.sharing = count, size, sharing
        self._free = deque(range(1, count))
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # no users, contents known; oldest first
        self._known: dict[Key, int] = {}  # page by contents
        self._key: dict[int, Key] = {}
        self._contents: dict[int, int] = {}  # a number for each known page's contents, never reused
        self._next = START + 1

    def fresh(self) -> Pages:
        """As many pages, all empty."""
        return Pages(self.count, self.size, self.sharing)

    @property
    def available(self) -> int:
        """How many pages can be taken."""
        return len(self._free) + len(self._idle)

    @property
    def used(self) -> int:
        """How many pages have users."""
        return len(self._users)

    def take(self) -> int:
        """A page for one user, with any contents; the contents unused for longest go first."""
        if self._free:
            page = self._free.popleft()
        else:
            page, _ = self._idle.popitem(last=False)
            del self._known[self._key.pop(page)], self._contents[page]
        self._users[page] = 1
        return page

    def share(self, page: int) -> None:
        """One more user of a page."""
        self._idle.pop(page, None)
        self._users[page] = self._users.get(page, 0) + 1

    def release(self, pages: Sequence[int]) -> None:
        """One user less of each; of a text, the last pages are the first to be reused."""
        for page in reversed(pages):
            self._users[page] -= 1
            if self._users[page]:
                continue
            del self._users[page]
            if page in self._key:
                self._idle[page] = None
            else:
                self._free.append(page)

    def found(self, tokens: Sequence[int]) -> list[int]:
        """The pages that hold the beginning of these tokens, without the last token: its scores
        are needed, so it is computed in any case."""
        pages: list[int] = []
        before = START
        for at in range(0, len(tokens) - self.size, self.size):
            page = self._known.get((before, tuple(tokens[at : at + self.size])))
            if page is None:
                break
            pages.append(page)
            before = self._contents[page]
        return pages

    def idle_among(self, pages: Sequence[int]) -> int:
        """How many of these pages have no users."""
        return sum(page in self._idle for page in pages)

    def contents(self, page: int) -> int:
        """The number of a known page's contents."""
        return self._contents[page]

    def remember(self, page: int, before: int, tokens: Sequence[int]) -> int:
        """A page is full and computed: later texts may share it. Returns its contents' number."""
        if not self.sharing:
            return START
        key = before, tuple(tokens)
        known = self._known.get(key)
        if known is not None:
            return self._contents[known]
        self._known[key] = page
        self._key[page] = key
        self._contents[page] = self._next
        self._next += 1
        return self._contents[page]

    def check(self, held: Sequence[Sequence[int]]) -> None:
        """Raise if these users' pages and the others are not all pages, each counted right."""
        users: dict[int, int] = {}
        for pages in held:
            for page in pages:
                users[page] = users.get(page, 0) + 1
        every = sorted([*self._free, *self._idle, *self._users])
        if users != self._users or every != list(range(1, self.count)):
            raise RuntimeError(f"pages are lost or shared wrongly: {users} and {self._users}")
