"""Regular expressions that take time in proportion to the text, whatever the expression is.

Python's own try one way after the other, which is exponential for some expressions, and a model
file may hold any. ONNX means the syntax of RE2, which has no references and looks at nothing
around; so all ways can be followed at once, as a set of states.
"""

from __future__ import annotations

from collections.abc import Callable

from bireme.convert.onnx.reader import OnnxError

MAX_STATES = 4096
MAX_REPEAT = 1000  # as in RE2
MAX_DEPTH = 100

Test = Callable[[str], bool]
# A state: (test of a character, next state) or, without a test, the states that it stands for.
_Fragment = tuple[int, int]

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_CLASSES: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "s": lambda c: c in " \t\n\r\f",
    "w": lambda c: c == "_" or (c.isascii() and c.isalnum()),
}
_POSIX: dict[str, Test] = {
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "digit": _CLASSES["d"],
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "upper": lambda c: "A" <= c <= "Z",
    "lower": lambda c: "a" <= c <= "z",
    "space": lambda c: c in " \t\n\r\f\v",
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
    "word": _CLASSES["w"],
}


class Pattern:
    """A regular expression.

    >>> Pattern("(a+)+b").matches_all("a" * 40)
    False
    """

    def __init__(self, text: str):
        self._text, self._at = text, 0
        self._tests: list[Test | None] = []
        self._next: list[list[int]] = []
        self._fold = self._dot_all = False
        start, end = self._alternatives(0)
        if self._at < len(text):
            raise self._wrong(f"{text[self._at]!r} closes nothing")
        self._end = end
        self._start = self._closure([start])
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches_all(self, text: str) -> bool:
        """Whether the whole text is what the expression says."""
        states = self._start
        for c in text:
            found = self._known.get((states, c))
            if found is None:
                if len(self._known) > 1000:
                    self._known.clear()
                found = self._known[states, c] = self._step(states, c)
            if not found:
                return False
            states = found
        return self._end in states

    def _step(self, states: frozenset[int], c: str) -> frozenset[int]:
        reached = []
        for s in states:
            test = self._tests[s]
            if test is not None and test(c):
                reached += self._next[s]
        return self._closure(reached)

    def _closure(self, states: list[int]) -> frozenset[int]:
        """Those states, and all that are reached without a character."""
        found, todo = set(states), list(states)
        while todo:
            s = todo.pop()
            if self._tests[s] is None:
                for other in self._next[s]:
                    if other not in found:
                        found.add(other)
                        todo.append(other)
        return frozenset(found)

    # --- reading the expression ---------------------------------------------------------------

    def _wrong(self, why: str) -> OnnxError:
        return OnnxError(
            f"the pattern {self._text[:80]!r} is not valid, or not of RE2's syntax: {why} at "
            f"character {self._at}"
        )

    def _state(self, test: Test | None, following: list[int]) -> int:
        if len(self._tests) >= MAX_STATES:
            raise self._wrong(f"it needs more than {MAX_STATES} states")
        self._tests.append(test)
        self._next.append(following)
        return len(self._tests) - 1

    def _one(self, test: Test) -> _Fragment:
        end = self._state(None, [])
        return self._state(test, [end]), end

    def _empty(self) -> _Fragment:
        end = self._state(None, [])
        return end, end

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        c = self._peek()
        if not c:
            raise self._wrong("it ends too early")
        self._at += 1
        return c

    def _alternatives(self, depth: int) -> _Fragment:
        if depth > MAX_DEPTH:
            raise self._wrong(f"groups are nested more than {MAX_DEPTH} deep")
        fold, dot_all = self._fold, self._dot_all
        starts, end = [], self._state(None, [])
        while True:
            start, last = self._sequence(depth)
            starts.append(start)
            self._next[last].append(end)
            if self._peek() != "|":
                break
            self._at += 1
        self._fold, self._dot_all = fold, dot_all  # flags end with their group
        return self._state(None, starts), end

    def _sequence(self, depth: int) -> _Fragment:
        start, end = self._empty()
        while self._peek() not in ("", "|", ")"):
            at = self._at
            first, last = self._atom(depth)
            many = self._repeats()
            if many is not None:
                first, last = self._repeated((first, last), many, at, depth)
            self._next[end].append(first)
            end = last
        return start, end

    def _repeats(self) -> tuple[int, int | None] | None:
        """(least, most) of what follows an atom; a `?` behind it only says which way is first."""
        c = self._peek()
        found: tuple[int, int | None] | None
        if c in ("*", "+", "?") and c:
            self._at += 1
            found = {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
        else:
            found = self._counts() if c == "{" else None
        if found is not None:
            if self._peek() == "?":
                self._at += 1
            if self._peek() in ("*", "+") and self._peek():
                raise self._wrong("a repetition is repeated")
        return found

    def _counts(self) -> tuple[int, int | None] | None:
        close = self._text.find("}", self._at, self._at + 12)
        low, comma, high = self._text[self._at + 1 : max(close, 0)].partition(",")
        good = (
            low.isascii()
            and low.isdecimal()
            and (not high or (high.isascii() and high.isdecimal()))
        )
        if close < 0 or not good:
            return None  # a plain brace
        self._at = close + 1
        least, most = int(low), int(high) if high else None if comma else int(low)
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise self._wrong(f"{least} to {most} repetitions; at most {MAX_REPEAT} are allowed")
        return least, most

    def _repeated(
        self, first: _Fragment, many: tuple[int, int | None], at: int, depth: int
    ) -> _Fragment:
        """An atom several times: its text is read again for each copy."""
        least, most = many
        after = self._at

        def copy() -> _Fragment:
            nonlocal first
            if first[0] >= 0:
                made, first = first, (-1, -1)
                return made
            self._at = at
            made = self._atom(depth)
            self._at = after
            return made

        start, end = self._empty()
        for _ in range(least):
            a, b = copy()
            self._next[end].append(a)
            end = b
        if most is None:
            a, b = copy()
            loop = self._state(None, [a])
            self._next[end].append(loop)
            self._next[b].append(loop)
            end = self._state(None, [])
            self._next[loop].append(end)
            return start, end
        last = self._state(None, [])
        for _ in range(most - least):
            a, b = copy()
            self._next[end] += [a, last]
            end = b
        self._next[end].append(last)
        return start, last

    def _atom(self, depth: int) -> _Fragment:
        c = self._take()
        if c == "(":
            return self._group(depth)
        if c == "[":
            return self._one(self._set())
        if c == ".":
            return self._one((lambda _: True) if self._dot_all else (lambda c: c != "\n"))
        if c in "^$":
            return self._anchor(c)
        if c == "\\":
            return self._escape()
        if c in "*+?":
            raise self._wrong("there is nothing to repeat")
        return self._one(self._literal(c))

    def _anchor(self, c: str) -> _Fragment:
        # The whole text is matched, so the ends of the pattern are those of the text.
        if c == "^" and self._text[: self._at - 1].strip("(^"):
            raise self._wrong("'^' is read at the beginning only")
        if c == "$" and self._text[self._at :].strip(")$"):
            raise self._wrong("'$' is read at the end only")
        return self._empty()

    def _group(self, depth: int) -> _Fragment:
        fold, dot_all = self._fold, self._dot_all
        if self._peek() == "?":
            self._at += 1
            if (
                self._text.startswith(("P<", "<"), self._at)
                and self._text[self._at + 1] not in "=!"
            ):
                close = self._text.find(">", self._at)
                if close < 0:
                    raise self._wrong("a group's name does not end")
                self._at = close + 1
            elif self._flags():
                return self._empty()
        made = self._alternatives(depth + 1)
        if self._take() != ")":
            raise self._wrong("a group is not closed")
        self._fold, self._dot_all = fold, dot_all
        return made

    def _flags(self) -> bool:
        """Read `i`, `s`, `-i:` and the like; whether they are for the rest of the group around."""
        on = True
        while True:
            c = self._take()
            if c == "-":
                on = False
            elif c == "i":
                self._fold = on
            elif c == "s":
                self._dot_all = on
            elif c in "mU":
                pass  # neither lines nor which way is first matter where the whole text is matched
            elif c in ":)":
                return c == ")"
            else:
                raise self._wrong(f"a group that begins with '(?{c}'")

    def _literal(self, wanted: str) -> Test:
        if self._fold:
            folded = wanted.casefold()
            return lambda c: c.casefold() == folded
        return lambda c: c == wanted

    def _escape(self) -> _Fragment:
        c = self._take()
        if c in "AzZ":
            return self._anchor("^" if c == "A" else "$") if c != "Z" else self._refuse(c)
        if c == "Q":
            close = self._text.find("\\E", self._at)
            quoted = self._text[self._at : close if close >= 0 else None]
            self._at = close + 2 if close >= 0 else len(self._text)
            start, end = self._empty()
            for letter in quoted:
                a, b = self._one(self._literal(letter))
                self._next[end].append(a)
                end = b
            return start, end
        return self._one(self._escaped(c))

    def _refuse(self, c: str) -> _Fragment:
        raise self._wrong(f"'\\{c}' is not known")

    def _escaped(self, c: str) -> Test:
        if c in "dswDSW":
            test = _CLASSES[c.lower()]
            return test if c.islower() else lambda x: not test(x)
        letter = self._letter(c)
        return self._literal(letter)

    def _letter(self, c: str) -> str:
        """The character after a backslash."""
        if c in _ESCAPES:
            return _ESCAPES[c]
        if c == "x":
            if self._peek() == "{":
                close = self._text.find("}", self._at, self._at + 9)
                digits, self._at = self._text[self._at + 1 : max(close, 0)], close + 1
            else:
                digits = self._text[self._at : self._at + 2]
                self._at += 2
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise self._wrong(f"{digits!r} is no number of a character") from None
        if c.isalnum():
            raise self._wrong(f"'\\{c}' is not known")
        return c

    def _set(self) -> Test:
        """What stands in brackets."""
        inverted = self._peek() == "^"
        self._at += inverted
        tests: list[Test] = []
        letters: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            c = self._take()
            if c == "[" and self._peek() == ":":
                tests.append(self._posix())
                continue
            if c == "\\":
                c = self._take()
                if c in "dswDSW":
                    tests.append(self._escaped(c))
                    continue
                c = self._letter(c)
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._take()
                last = self._letter(self._take()) if last == "\\" else last
                if last < c:
                    raise self._wrong(f"the range {c}-{last} is empty")
                tests.append(self._range(c, last))
            else:
                letters.add(c)
        self._at += 1
        if self._fold:
            folded = {c.casefold() for c in letters}
            tests.append(lambda c: c.casefold() in folded)
        elif letters:
            tests.append(lambda c: c in letters)
        return lambda c: any(test(c) for test in tests) != inverted

    def _range(self, low: str, high: str) -> Test:
        if self._fold:
            return lambda c: any(low <= v <= high for v in (c, c.lower(), c.upper()))
        return lambda c: low <= c <= high

    def _posix(self) -> Test:
        close = self._text.find(":]", self._at)
        name = self._text[self._at + 1 : max(close, 0)]
        test = _POSIX.get(name.removeprefix("^"))
        if close < 0 or test is None:
            raise self._wrong(f"the class {name[:20]!r} is not known")
        self._at = close + 2
        return (lambda c: not test(c)) if name.startswith("^") else test
