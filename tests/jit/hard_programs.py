"""More functions as users write them: state in closures and objects, exceptions, generators, jumps
out of nested loops. `PROGRAMS` are captured whole; `REFUSED` run eagerly, for the reason given."""

from __future__ import annotations

import functools
import itertools
from contextlib import suppress
from typing import Any

import numpy as np

import bireme as paddle
from tests.jit.programs import DOWN, GRID, MIXED, UP, adding_to

PROGRAMS: list[tuple[Any, list[tuple[Any, ...]]]] = []
REFUSED: list[tuple[Any, list[tuple[Any, ...]], str]] = []
program = adding_to(PROGRAMS)


def refused(reason: str, *inputs: Any):
    """Add a function that no graph can stand for."""

    def add(function):
        given = inputs or (UP, DOWN)
        calls = [i if isinstance(i, tuple) else (i,) for i in given]
        REFUSED.append((function, calls, reason))
        return function

    return add


# --- generators, comprehensions, functions as values ------------------------------------------


def multiples(x, n):
    for i in range(n):
        yield x * i


@program(UP, DOWN)
def generator(x):
    s = x * 0
    for y in multiples(x, 3):
        if y.sum() > 0:
            s = s + y
    return s


@program(UP, DOWN)
def comprehension_of_choices(x):
    return paddle.stack([y if y.sum() > 0 else y * 0.5 for y in [x, -x]])


@program(UP, DOWN)
def lambdas_with_defaults(x):
    functions = [lambda v, k=k: v * k if v.sum() > 0 else v - k for k in range(3)]
    return sum(f(x) for f in functions)


@program(UP, DOWN)
def late_binding(x):
    functions = []
    for i in range(3):
        functions.append(lambda v: v * i)  # noqa: B023 (the point)
    if x.sum() > 0:
        return sum(f(x) for f in functions)
    return functions[0](x)


def weighted(*xs, scale=1.0, **named):
    y = xs[0] * scale
    for k in sorted(named):
        if named[k].sum() > 0:
            y = y + named[k]
    for z in xs[1:]:
        y = y - z
    return y


@program((UP, DOWN), (DOWN, UP))
def stars(x, y):
    arguments = (x, y)
    named = {"b": x, "a": y}
    return weighted(*arguments, scale=3.0, **named) + functools.partial(weighted, scale=4.0)(x, y)


@program(UP, DOWN)
def default_evaluated_once(x):
    def shifted(v, base=x * 2):
        if v.sum() > 0:
            return v + base
        return v - base

    return shifted(x) + shifted(-x)


def nearer(x, depth):
    if depth == 0:
        return x
    if x.sum() > 0:
        return nearer(x - 1, depth - 1)
    return nearer(x + 2, depth - 1)


@program(UP, DOWN)
def recursion_both_ways(x):
    return nearer(x, 4)


@program(UP, DOWN)
def iterators_of_python(x):
    s = x * 0
    for i, y in zip(itertools.count(1), itertools.chain([x], [x * 2]), strict=False):
        if y.sum() > 0:
            s = s + y * i
    return s


# --- state ------------------------------------------------------------------------------------


@program(UP, DOWN)
def closure_with_state(x):
    count = 0
    total = x * 0

    def add(y):
        nonlocal count, total
        if y.sum() > 0:
            count = count + 1
            total = total + y
        else:
            total = total - y
        return total

    add(x)
    add(-x)
    add(x * 2)
    return total * count


class Sum:
    def __init__(self):
        self.total = 0.0
        self.factor = 2.0

    @property
    def doubled(self):
        return self.factor * 2 if self.factor > 1 else self.factor

    def add(self, v):
        if v.sum() > 0:
            self.total = self.total + v
        return self

    @staticmethod
    def positive(x):
        return x if x.sum() > 0 else -x


@program(UP, DOWN)
def methods_and_properties(x):
    s = Sum()
    s.total = x * 0
    s.add(x).add(-x * 2)
    return s.total * s.doubled + Sum.positive(x)


@program(UP, DOWN)
def object_made_in_a_branch(x):
    y = x
    if x.sum() > 0:
        s = Sum()
        s.total = x
        s.factor = 3.0
        parts = []
        for i in range(3):
            parts.append(s.add(x).total * i)
        y = sum(parts) * s.doubled
    return y


@program(UP, DOWN)
def dict_in_while(x):
    d = {"a": x, "n": paddle.to_tensor(0.0)}
    while d["a"].sum() < 30:
        d["a"] = d["a"] + 3
        d["n"] = d["n"] + 1
    return d["a"] * d["n"]


@program(UP, DOWN)
def swap_in_while(x):
    pair = [x, x * 2]
    while pair[0].sum() < 30:
        pair[0], pair[1] = pair[1] + 1, pair[0] + 4
    return pair[0] - pair[1]


@program(UP, DOWN)
def pop_in_both_branches(x):
    items = [x, x * 2, x * 3]
    y = items.pop() if len(items) > 5 else items[0]
    if x.sum() > 0:
        y = items.pop()
    else:
        y = items.pop(0)
    return y + items[0] + len(items)


@program(UP, DOWN)
def key_made_in_both_branches(x):
    d = {}
    if x.sum() > 0:
        d["y"] = x * 2
    else:
        d["y"] = x * 3
    return d["y"]


@program(UP, DOWN)
def keys_deleted(x):
    d = {"a": x, "b": x * 2, "c": x}
    for k in list(d):
        if k == "c":
            del d[k]
        elif d[k].sum() > 0:
            d[k] = d[k] * 3
    return d["a"] + d["b"] * len(d)


@program(UP, DOWN)
def alias_changed_in_branch(x):
    y = x * 1
    z = y
    items = [1.0]
    also = {"items": items}
    if x.sum() > 0:
        y += 5
        also["items"][0] = 2.0
    return (z + y) * items[0]


@program(UP, DOWN)
def in_place_on_both_sides(x):
    y = x * 1
    if x.sum() > 0:
        y.add_(x)
        y[0] = 7.0
    else:
        y.scale_(3.0)
    return y


# --- jumps and exceptions ---------------------------------------------------------------------


@program(UP, DOWN)
def return_from_nested_loops(x):
    for i in range(3):
        for j in range(3):
            x = x + 1
            if x.sum() > 8 + i * j:
                return x * 10 + i - j
    return x - 100


@program(UP, DOWN)
def return_from_nested_whiles(x):
    i = paddle.to_tensor(0)
    while i < 4:
        j = paddle.to_tensor(0)
        while j < 3:
            x = x + 1
            if x.sum() > 12:
                return x * j.astype("float32")
            j = j + 1
        i = i + 1
    return x


@program(UP, DOWN, MIXED)
def break_in_range(x):
    k = 0
    for k in range(10):
        x = x + k
        if x.sum() > 20:
            break
    return x * k


@program(UP, DOWN, MIXED)
def break_or_else_in_enumerate(x):
    s = x.sum() * 0
    i = -1
    for i, v in enumerate(x):
        if v > 0.7:
            break
        s = s + v * (i + 1)
    else:
        s = s + 1000
    return s + i


@program((UP, DOWN), (DOWN, UP), (MIXED, MIXED))
def break_and_continue_in_zip(x, y):
    s = x.sum() * 0
    for a, b in zip(x, y):  # noqa: B905 (tensors have one length)
        if a + b > 0:
            s = s + a
            continue
        if a < -1:
            break
        s = s + b
    return s


@program(UP, DOWN)
def forever_until_break(x):
    n = 0
    while True:
        x = x + 1
        n += 1
        if x.sum() > 10:
            break
        if n > 20:
            break
    return x * n


@program(UP, DOWN)
def return_or_else_in_while(x):
    while x.sum() < 20:
        x = x + 2
        if x[0] > 6:
            return x * 100
    else:
        x = x - 1
    return x


@program(UP, DOWN)
def return_inside_try_finally(x):
    z = x
    try:
        if x.sum() > 0:
            return z * 2
        z = z + 5
    finally:
        z = z * 100
    return z


@program(UP, DOWN)
def jumps_inside_try_finally(x):
    s = x * 0
    for i in range(4):
        try:
            if x.sum() > i:
                continue
            if s.sum() < -40:
                break
            s = s + x
        finally:
            x = x + 1
    return s + x


@program(UP, DOWN)
def try_with_else(x):
    try:
        if x.sum() > 0:
            y = x * 2
        else:
            y = x
    except ValueError:
        y = x * 100
    else:
        y = y + 1
    return y


@program(UP, DOWN)
def assertion_in_a_branch(x):
    if x.sum() > 0:
        assert x.max() > 2, "small"
        y = x
    else:
        y = -x
    return y


# --- expressions ------------------------------------------------------------------------------


@program(UP, DOWN)
def walrus_in_if(x):
    if (s := x.sum()) > 0:
        return x * s
    return x - s


@program(UP, DOWN)
def walrus_in_while(x):
    n = 0.0
    while (s := x.sum()) < 10:
        x = x + 1
        n += 1
    return x * s + n


@program(UP, DOWN)
def walrus_in_while_with_else(x):
    while (s := x.sum()) < 10:
        x = x + s.abs() + 1
    else:
        x = x * 2
    return x + s


@program(UP, np.array([0.0, 2.0, 3.0], "float32"))
def value_of_or(x):
    return x * (x[0] or x[1])


@program(UP, np.array([0.0, 2.0, 3.0], "float32"))
def value_of_and(x):
    count = (x > 0).sum()
    return x * (count and 5) + (x[0] and x[1] and x[2])


@program(UP, DOWN)
def number_from_a_tensor(x):
    # A Python number has no gradient.
    return x * float(x.sum()) + int(x.max())


@program((UP, 1), (UP, 2), (DOWN, 3))
def match_a_number(x, k):
    match k:
        case 1:
            y = x
        case 2:
            y = x * 2
        case _:
            y = x * 3
    if y.sum() > 0:
        y = -y
    return y


@program(UP, DOWN)
def chained_targets(x):
    a = b = x
    if x.sum() > 0:
        a = b = a * 2
    (c, d), e = (a, b), x
    return a + b + c + d + e


@program(UP, DOWN)
def cut_in_a_loop(x):
    h = x
    i = paddle.to_tensor(0)
    while i < 3:
        h = h.detach() * x
        i += 1
    return h


@program(UP, DOWN)
def no_grad_in_parts(x):
    with paddle.no_grad():
        s = x.sum() * 2
    if s > 0:
        y = x * s
    else:
        with paddle.no_grad():
            y = x * x
    return y + x


@program(UP, DOWN)
def dropout_that_keeps(x):
    if x.sum() > 0:
        y = paddle.nn.functional.dropout(x, 0.0)
    else:
        y = paddle.nn.functional.dropout(x, 0.5, training=False)
    return y * 2


@program(GRID)
def arithmetic_of_sizes(x):
    n, m = x.shape
    y = x.reshape([n * m])
    half = (n * m) // 2
    if n * m > 4:
        y = y[:half]
    return y * (n % 2 + 1)


# --- refused: exceptions that depend on tensors -----------------------------------------------


@refused("raises ValueError")
def raise_that_is_caught(x):
    try:
        if x.sum() > 0:
            raise ValueError("positive")
        y = x
    except ValueError:
        y = x * 10
    return y


@refused("raises ValueError")
def raise_that_never_happens(x):
    if x.sum() > 100:
        raise ValueError("too large")
    return x * 2


@refused("raises IndexError")
def index_out_of_range_in_a_branch(x):
    items = [1.0]
    return x * (items[5] if x.sum() > 100 else items[0])


@refused("raises AttributeError")
def error_behind_and(x):
    nothing: Any = None
    if x.sum() > 100 and nothing.field:
        x = x * 2
    return x


@refused("raises RecursionError", (UP, np.array(3.0, "float32")))
def recursion_over_a_tensor(x, n):
    def factorial(x, n):
        if n.sum() <= 1:
            return x
        return factorial(x * n, n - 1)

    return factorial(x, n)


@refused("is in a branch|in a `try`", DOWN, UP)
def assertion_that_is_caught(x):
    try:
        assert x.sum() > 0
        y = x
    except AssertionError:
        y = x * 50
    return y


@refused("was read")
def capture_error_is_not_the_users(x):
    try:
        n = float(x.numpy()[0])
    except RuntimeError:
        n = 0.0
    return x * n


@refused("was read")
def capture_error_is_not_suppressed(x):
    n = 0.0
    with suppress(Exception):
        n = float(x.numpy()[0])
    return x * n


# --- refused: changes that depend on tensors ----------------------------------------------------


def push(items, item):
    items.append(item)


@refused("a list is changed")
def function_that_appends(x):
    items = [1]
    if x.sum() > 0:
        push(items, 5)
    return x * len(items)


@refused("a list is changed")
def function_with_a_branch_that_appends(x):
    def replace(items, v):
        if v.max() > 0:
            items[0] = v

    items = [x]
    if x.sum() > 0:
        replace(items, x * 5)
    return items[0]


@refused("attribute factor of a Sum is changed")
def method_that_sets(x):
    class Setting(Sum):
        def set(self, factor):
            self.factor = factor

    Setting.__name__ = "Sum"
    s = Setting()
    if x.sum() > 0:
        s.set(3.0)
    return x * s.factor


@refused("a list is changed")
def method_in_a_loop(x):
    items = []
    i = paddle.to_tensor(0)
    while i < 3:
        push(items, 1)
        i = i + 1
    return x * len(items)


@refused("attribute factor of a Sum is changed")
def object_in_a_list(x):
    sums = [Sum(), Sum()]
    if x.sum() > 0:
        sums[0].factor = 5.0
    return x * sums[0].factor


@refused("attribute factor of a Sum is changed")
def set_by_name(x):
    s = Sum()
    if x.sum() > 0:
        setattr(s, "factor", 7.0)  # noqa: B010
    return x * s.factor


@refused("a set is changed")
def set_of_python(x):
    seen = set()
    if x.sum() > 0:
        seen.add(1)
    return x * len(seen)


@refused("a list is changed")
def pop_in_a_choice(x):
    items = [x, x * 2]
    y = items.pop() if x.sum() > 0 else x
    return y * len(items)


@refused("a list is changed")
def pop_behind_and(x):
    items = [1, 2]
    if x.sum() > 0 and items.pop() > 0:
        x = x * 2
    return x * len(items)


@refused("a list is changed")
def method_under_another_name(x):
    items = [1]
    add = items.append
    if x.sum() > 0:
        add(2)
    return x * len(items)


@refused("a list is changed")
def method_of_the_class(x):
    items = [1]
    if x.sum() > 0:
        list.append(items, 2)
    return x * len(items)


@refused("a list_iterator is changed")
def item_taken_in_a_branch(x):
    numbers = iter([1.0, 2.0, 3.0])
    a = next(numbers)
    if x.sum() > 0:
        a = next(numbers)
    return x * a + next(numbers)


@refused("a list_iterator is changed")
def loop_over_an_iterator_in_a_branch(x):
    numbers = iter([1.0, 2.0, 3.0])
    if x.sum() > 0:
        for n in numbers:
            x = x * n
    return x + len(list(numbers))


@refused("outer variable count")
def closure_that_counts(x):
    count = 0

    def bump():
        nonlocal count
        count = 5

    if x.sum() > 0:
        bump()
    return x * (count + 1)


@refused("shares its memory")
def view_written_in_a_branch(x):
    y = x * 1
    v = y[1:]
    if x.sum() > 0:
        v[0] = 100.0
    return y + 1


# --- refused: values that only a run knows ----------------------------------------------------


@refused("was read")
def comprehension_with_a_condition(x):
    kept = [y for y in [x, x * 2, -x] if y.sum() > 0]
    return kept[0] * len(kept)


@refused("was read")
def greatest_by_python(x):
    return max(x[0], x[1]) * x + min(x.sum(), x[2])


@refused("'mode' is 'b' in one branch")
def string_from_a_branch(x):
    mode = "a"
    if x.sum() > 0:
        mode = "b"
    return x * (1 if mode == "a" else 2)


@refused("None in the other")
def nothing_from_a_branch(x):
    r = None
    if x.sum() > 0:
        r = x * 2
    if r is None:
        return x
    return r + 1
