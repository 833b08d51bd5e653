"""Entries: which ids of a sparse table get a row of their own, see `static.nn.sparse_embedding`."""

from __future__ import annotations

from bireme.core.errors import InvalidArgument


class EntryAttr:
    """A rule by which ids enter a table."""

    _name: str = ""

    def _to_attr(self) -> str:
        """The rule as Paddle's files spell it."""
        return ":".join([self._name, *map(str, self._settings())])

    def _settings(self) -> tuple[object, ...]:
        raise NotImplementedError("an entry says what its settings are")


class ProbabilityEntry(EntryAttr):
    """An id enters with this probability each time it comes up.

    >>> ProbabilityEntry(0.1)._to_attr()
    'probability_entry:0.1'
    """

    _name = "probability_entry"

    def __init__(self, probability: float) -> None:
        if not isinstance(probability, float) or not 0 < probability < 1:
            raise InvalidArgument(
                f"[ProbabilityEntry] probability is a float in (0, 1). Received: {probability!r}"
            )
        self._probability = probability

    def _settings(self) -> tuple[object, ...]:
        return (self._probability,)


class CountFilterEntry(EntryAttr):
    """An id enters when it has come up this many times.

    >>> CountFilterEntry(10)._to_attr()
    'count_filter_entry:10'
    """

    _name = "count_filter_entry"

    def __init__(self, count_filter: int) -> None:
        if not isinstance(count_filter, int) or count_filter < 0:
            raise InvalidArgument(
                f"[CountFilterEntry] count_filter is an int, 0 or more. Received: {count_filter!r}"
            )
        self._count_filter = count_filter

    def _settings(self) -> tuple[object, ...]:
        return (self._count_filter,)


class ShowClickEntry(EntryAttr):
    """Every id enters, and the table adds up how often it was shown and clicked: the program's
    variables of these names say so for each example.

    >>> ShowClickEntry("show", "click")._to_attr()
    'show_click_entry:show:click'
    """

    _name = "show_click_entry"

    def __init__(self, show_name: str, click_name: str) -> None:
        if not isinstance(show_name, str) or not isinstance(click_name, str):
            raise InvalidArgument(
                f"[ShowClickEntry] the names of two variables are wanted. Received: {show_name!r}, "
                f"{click_name!r}"
            )
        self._show_name, self._click_name = show_name, click_name

    def _settings(self) -> tuple[object, ...]:
        return (self._show_name, self._click_name)
