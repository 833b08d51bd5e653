"""What Bireme concludes from reference counts, in the Python that runs this.

The functions are right for any objects, so most of these tests use plain ones. Each case says who
holds an object and what must follow, by containers, attributes, closures, iterators and threads.
"""

from __future__ import annotations

import pathlib
import sys
import threading
import tomllib
import weakref
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
from bireme.core import ownership
from bireme.core.errors import BiremeError
from bireme.core.trace import flush, state
from bireme.host import config


class Thing:
    """An object with an attribute, as a Value with its buffer."""

    def __init__(self, buf=None):
        self.buf = buf


def holding(kind: str, thing: object) -> object:
    """Something that holds `thing` once, in one of the ways in which programs do."""
    kinds = {
        "list": lambda: [thing],
        "tuple": lambda: (thing,),
        "dict": lambda: {0: thing},
        "key": lambda: {thing: 0},
        "set": lambda: {thing},
        "attribute": lambda: Thing(thing),
        "iterator": lambda: iter([thing]),
    }
    return kinds[kind]()


KINDS = ("list", "tuple", "dict", "key", "set", "attribute", "iterator")


@given(st.lists(st.sampled_from([None, *KINDS])))
def test_a_result_is_wanted_if_anything_else_holds_it(kinds):
    results = [Thing() for _ in kinds]
    others = [k and holding(k, results[i]) for i, k in enumerate(kinds)]
    assert ownership.wanted(results) == bytes([k is not None for k in kinds])
    others.clear()
    assert ownership.wanted(results) == bytes(len(kinds))


def test_a_result_in_a_variable_is_wanted():
    results = [Thing(), Thing()]
    kept = results[1]
    assert ownership.wanted(results) == b"\0\1"
    assert kept is results[1]
    del kept
    assert ownership.wanted(results) == b"\0\0"


def test_a_result_in_a_closure_or_a_generator_is_wanted():
    results = [Thing(), Thing(), Thing()]

    def closed(thing):
        return lambda: thing

    def generator(thing):
        yield thing
        yield thing

    made = [closed(results[0]), generator(results[2])]
    next(made[1])
    assert ownership.wanted(results) == b"\1\0\1"
    made.clear()
    assert ownership.wanted(results) == b"\0\0\0"


def test_a_result_that_another_thread_has_in_a_variable_is_wanted():
    results = [Thing(), Thing()]
    has_it, may_end = threading.Event(), threading.Event()

    def hold():
        mine = results[0]
        has_it.set()
        may_end.wait(30)
        del mine

    thread = threading.Thread(target=hold)
    thread.start()
    has_it.wait(30)
    assert ownership.wanted(results) == b"\1\0"
    may_end.set()
    thread.join()
    assert ownership.wanted(results) == b"\0\0"


def test_weak_references_do_not_count():
    results = [Thing()]
    reference = weakref.ref(results[0])
    assert ownership.wanted(results) == b"\0"
    assert reference() is results[0]


@given(st.lists(st.tuples(st.sampled_from([None, *KINDS]), st.sampled_from([None, *KINDS]))))
def test_an_input_is_donatable_if_only_the_trace_holds_it_and_only_it_its_buffer(kinds):
    trace_leaves = {Thing(np.empty(1)): ~i for i in range(len(kinds))}
    others = [
        (v and holding(v, leaf), b and holding(b if b not in ("key", "set") else "list", leaf.buf))
        for leaf, (v, b) in zip(trace_leaves, kinds, strict=True)
    ]
    leaves = list(trace_leaves)
    buffers = [leaf.buf for leaf in leaves]
    expected = bytes([v is None and b is None for v, b in kinds])
    assert ownership.donatable(leaves, buffers) == expected
    others.clear()
    assert ownership.donatable(leaves, buffers) == b"\1" * len(kinds)


def test_a_view_of_a_buffer_keeps_it_from_being_donated():
    leaves = list(held := {Thing(np.empty(4)): -1})
    buffers = [leaf.buf for leaf in leaves]
    view = buffers[0][1:]
    assert ownership.donatable(leaves, buffers) == b"\0"
    del view
    assert ownership.donatable(leaves, buffers) == b"\1"
    assert len(held) == 1


@given(st.lists(st.lists(st.sampled_from(KINDS), max_size=4), min_size=1))
def test_the_holders_of_an_item_are_counted(kinds):
    items = tuple([Thing() for _ in kinds])
    others = [[holding(k, items[i]) for k in ks] for i, ks in enumerate(kinds)]
    assert ownership.most_holders(items) == 1 + max(map(len, kinds))
    assert ownership.most_holders(list(items)) == 2 + max(map(len, kinds))
    assert len(others) == len(items)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([None, *KINDS])), min_size=1))
def test_holders_outside_of_a_mapping_are_counted(entries):
    """The same object may be there under several keys, which is no holder outside."""
    objects = {key: Thing() for key in range(4)}
    mapping = {i: objects[which] for i, (which, _) in enumerate(entries)}
    others = [k and holding(k, objects[which]) for which, k in entries]
    expected = Counter(which for which, k in entries if k is not None)
    del objects
    found = ownership.holders_outside(mapping)
    assert found == {i: expected[which] for i, (which, _) in enumerate(entries)}
    assert len(others) == len(entries)


@pytest.mark.parametrize("kind", KINDS)
def test_attributes_hold_an_object_alone_until_something_else_does(kind):
    owner = Thing(Thing())
    owner.also = owner.buf
    assert ownership.only_attributes_hold(owner, ("buf", "also"))
    other = holding(kind, owner.buf)
    assert not ownership.only_attributes_hold(owner, ("buf", "also"))
    del other
    assert ownership.only_attributes_hold(owner, ("buf", "also"))
    assert not ownership.only_attributes_hold(owner, ("buf",))  # the other attribute holds it


def test_attributes_of_classes_with_slots_are_counted_too():
    class Slotted:
        __slots__ = ("one", "two")

    owner = Slotted()
    owner.one = owner.two = Thing()
    assert ownership.only_attributes_hold(owner, ("one", "two"))
    kept = owner.one
    assert not ownership.only_attributes_hold(owner, ("one", "two"))
    assert kept is owner.two


def test_every_instance_of_a_class_is_found():
    class Rare:
        pass

    class Rarer(Rare):
        pass

    made = [Rare(), Rarer()]
    assert set(map(id, ownership.every(Rare))) == set(map(id, made))
    assert list(map(id, ownership.every(Rarer))) == [id(made[1])]
    made.clear()
    assert ownership.every(Rare) == []


@given(st.integers(0, 300))
def test_placeholders_are_distinct_and_nobody_elses(count):
    made = ownership.placeholders(count)
    assert len(set(map(id, made))) == count
    assert ownership.wanted(made) == bytes(count)


def test_what_python_keeps_for_ever_is_wanted():
    """Small integers, None and interned strings are shared, and on some Pythons immortal."""
    assert ownership.wanted([None, 1, "", ()]) == b"\1\1\1\1"


# --- what the engine makes of it ------------------------------------------------------------


def test_a_result_that_died_is_not_computed():
    flush()
    x = paddle.ones([3])
    kept = x + 1
    x + 2
    assert ownership.wanted(state.trace.values) == b"\1\0"
    assert kept.numpy().tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("holds", [False, True], ids=["alone", "held"])
def test_an_input_is_overwritten_only_if_nobody_else_holds_it(holds, monkeypatch):
    """`x = x * 2` may reuse the memory of x; somebody else's buffer must not be touched."""
    monkeypatch.setattr(config, "compile_mode", "always")
    x = paddle.to_tensor(np.full(1000, 3.0, "float32")) * 1.0
    flush()
    before = x._value.buf.unsafe_buffer_pointer()
    kept = x._value if holds else None
    x = x * 2.0
    assert x.numpy()[0] == 6.0
    assert (x._value.buf.unsafe_buffer_pointer() == before) is not holds
    if kept is not None:
        assert np.asarray(kept.buf)[0] == 3.0


@pytest.mark.parametrize(
    ("name", "version", "free_threaded", "refused"),
    [
        ("cpython", (3, 10), False, True),
        ("cpython", (3, 11), False, False),
        ("cpython", (3, 12), False, False),
        ("cpython", (3, 13), False, False),
        ("cpython", (3, 13), True, True),
        ("cpython", (3, 14), False, True),
        ("pypy", (3, 11), False, True),
    ],
)
def test_a_python_that_was_not_tried_is_refused(name, version, free_threaded, refused):
    if not refused:
        ownership._refuse_untried(name, version, free_threaded)
        return
    with pytest.raises(ImportError, match=r"runs on CPython 3\.11, 3\.12 and 3\.13") as caught:
        ownership._refuse_untried(name, version, free_threaded)
    assert isinstance(caught.value, BiremeError)
    assert f"{name} {version[0]}.{version[1]}" in str(caught.value)


def test_the_package_asks_for_the_pythons_that_were_tried():
    project = tomllib.loads((pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text())[
        "project"
    ]
    first, last = min(ownership._TRIED), max(ownership._TRIED)
    assert project["requires-python"] == f">=3.{first[1]},<3.{last[1] + 1}"
    assert sys.version_info[:2] in ownership._TRIED


@pytest.mark.parametrize(
    ("word", "users"),
    [
        ("getrefcount", {"core/ownership.py"}),
        ("gc.get_objects", {"core/ownership.py"}),
        ("gc.get_referrers", set()),
        ("f_locals", set()),
        ("_getframe", {"core/errors.py"}),
        ("__class__ = Overwritten", {"core/value.py"}),
    ],
)
def test_pythons_insides_are_used_in_one_place(word, users):
    package = pathlib.Path(paddle.__file__).parent
    files = [p for p in package.rglob("*.py") if word in p.read_text()]
    assert {str(p.relative_to(package)) for p in files} == users
