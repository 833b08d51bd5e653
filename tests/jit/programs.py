"""Functions in the style of Paddle's dygraph-to-static tests, each with inputs that take it down
different paths. `PROGRAMS` is what `test_programs.py` runs."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn

PROGRAMS: list[tuple[Any, list[tuple[Any, ...]]]] = []


def adding_to(programs: list[Any]):
    """A decorator that adds a function with one tuple of argument data per call."""

    def program(*inputs: Any):
        def add(function):
            programs.append((function, [i if isinstance(i, tuple) else (i,) for i in inputs]))
            return function

        return add

    return program


program = adding_to(PROGRAMS)


UP = np.array([1.0, 2.0, 3.0], "float32")
DOWN = -UP
MIXED = np.array([0.5, -2.0, 1.0], "float32")
GRID = np.arange(6, dtype="float32").reshape(2, 3) - 2.0

# --- if -------------------------------------------------------------------------------------


@program(UP, DOWN)
def if_else(x):
    if x.mean() > 0:
        y = x * 2
    else:
        y = x - 1
    return y


@program(UP, DOWN)
def if_only(x):
    y = x
    if x.sum() > 0:
        y = y * x
    return y + 1


@program(UP, DOWN, MIXED)
def if_elif_else(x):
    s = x.sum()
    if s > 3:
        r = x * 3
    elif s < -3:
        r = x / 2
    else:
        r = x * x * x
    return r


@program(UP, DOWN, MIXED)
def nested_if(x):
    y = x + 1
    if x.sum() > 0:
        z = y
        if x[0] > 0.7:
            y = y * 2
        else:
            z = z - x
        y = y + z
    else:
        y = -y
    return y


@program((UP, 2), (DOWN, 2), (UP, 5))
def python_and_tensor_conditions(x, n):
    if n > 3:
        x = x * 10
    if x.mean() > 0:
        x = x + n
    return x


@program(UP, DOWN)
def number_becomes_tensor(x):
    k = 1
    if x.sum() > 0:
        k = 5
    return x * k


@program(UP, DOWN)
def float_or_int(x):
    k = 1
    if x.sum() > 0:
        k = 2.5
    return x * k


@program(UP, DOWN)
def flag_variable(x):
    positive = False
    if x.sum() > 0:
        positive = True
    if positive:
        return x
    return x * 0.5


@program(UP, DOWN)
def variable_made_in_both(x):
    if x.sum() > 0:
        a, b = x, x * 2
    else:
        a, b = x * 3, x * 4
    return a * b


@program(UP, DOWN)
def ternary(x):
    y = x * 2 if x.max() > 2 else x / 2
    return y if y.sum() > 0 else y * y


@program(UP, DOWN)
def ternary_of_numbers(x):
    return x * (3 if x.sum() > 0 else 4)


@program(UP, DOWN)
def no_op_branch(x):
    if x.sum() > 0:
        pass
    else:
        x = x.abs()
    return x


# --- early return ---------------------------------------------------------------------------


@program(UP, DOWN)
def early_return(x):
    if x.sum() > 0:
        return x * 2
    y = x + 1
    return y * y


@program(UP, DOWN, MIXED)
def three_returns(x):
    s = x.sum()
    if s > 3:
        return x
    if s < -3:
        return x * 2
    return x * 3


@program(UP, DOWN, MIXED)
def partial_return(x):
    y = x * 2
    if x.sum() > -1:
        y = y + 1
        if x[0] > 0.7:
            return y
        y = y * 3
    return y - 5


@program(UP, DOWN)
def return_tuple(x):
    if x.sum() > 0:
        return x, x * 2
    return x * 3, x - 1


@program(UP, DOWN)
def return_dict(x):
    if x.sum() > 0:
        return {"a": x, "n": 1}
    return {"a": x * 3, "n": 2}


@program(UP, DOWN, MIXED)
def return_in_while(x):
    i = paddle.zeros([], "int64")
    while i < 10:
        x = x + 1
        if x.sum() > 8:
            return x * 100
        i += 1
    return x


@program(GRID, -GRID)
def return_in_for(x):
    for row in x:
        if row.sum() > 0:
            return row * 2
    return x[0]


# --- while ----------------------------------------------------------------------------------


@program(UP, DOWN)
def while_sum(x):
    while x.sum() < 20:
        x = x.abs() * 1.5 + 1
    return x


@program(UP, DOWN)
def while_counts(x):
    i = 0
    while x.sum() < 20:
        x = x + 2
        i += 1
    return x * i


@program((UP, 3), (UP, 0))
def while_tensor_bound(x, n):
    n = paddle.to_tensor(n) + x.sum().astype("int64") * 0
    i = 0
    while i < n:
        x = x * 2
        i = i + 1
    return x


@program(UP, MIXED)
def while_break(x):
    i = paddle.zeros([], "int64")
    while i < 10:
        x = x + 1
        if x.sum() > 15:
            break
        i += 1
    return x, i


@program(UP, MIXED)
def while_continue(x):
    i = paddle.zeros([], "int64")
    total = x * 0
    while i < 6:
        i += 1
        if i % 2 == 0:
            continue
        total = total + x * i
    return total


@program(UP, MIXED)
def while_break_and_continue(x):
    i = paddle.zeros([], "int64")
    while True:
        i += 1
        if i == 2:
            continue
        x = x * 1.1
        if i > 5:
            break
    return x


@program(UP)
def nested_while(x):
    i = paddle.zeros([], "int64")
    total = paddle.zeros([1])
    while i < 3:
        j = paddle.zeros([], "int64")
        while j < i:
            total = total + x.sum() * j
            j += 1
        i += 1
    return total


@program(UP, DOWN)
def if_in_while(x):
    i = paddle.zeros([], "int64")
    while i < 4:
        if x.sum() > 0:
            x = x - i
        else:
            x = x + 2 * i
        i += 1
    return x


@program(UP, DOWN)
def while_in_if(x):
    if x.sum() > 0:
        while x.sum() < 30:
            x = x * 2
    else:
        x = x + 1
    return x


@program(UP)
def while_else(x):
    i = paddle.zeros([], "int64")
    while i < 3:
        x = x + 1
        i += 1
    else:
        x = x * 10
    return x


@program(UP, DOWN)
def while_with_temporaries(x):
    i = paddle.zeros([], "int64")
    while i < 3:
        y = x * 2
        z = y + i
        x = z - x
        i += 1
    return x


@program(UP, DOWN)
def variable_from_loop(x):
    i = paddle.zeros([], "int64")
    while i < 3:
        last = x * i
        i += 1
    return last


@program(UP)
def python_while(x):
    n = 3
    while n > 0:
        x = x + n
        n -= 1
    return x


# --- for ------------------------------------------------------------------------------------


@program(UP)
def for_range_int(x):
    for i in range(4):
        x = x + i
    return x


@program(UP)
def for_range_tensor(x):
    n = x.sum().astype("int64")
    for i in range(n):
        x = x + i
    return x


@program(UP)
def for_range_start_step(x):
    n = x.sum().astype("int64")
    total = x
    for i in range(1, n, 2):
        total = total * 0.5 + i
    for i in range(n, 0, -3):
        total = total + i
    return total


@program(GRID)
def for_rows(x):
    total = paddle.zeros([3])
    for row in x:
        total = total + row * row
    return total


@program(np.linspace(-1, 1, 40, dtype="float32"))
def for_many_rows(x):
    total = 0.0
    for v in x:
        if v > 0:
            total = total + v * v
    return total


@program(np.linspace(-1, 1, 40, dtype="float32"))
def for_many_rows_with_break(x):
    total = 0.0
    for i, v in enumerate(x):
        if v > 0.5:
            break
        total = total + v * i
    return total


@program(GRID)
def for_enumerate(x):
    total = paddle.zeros([3])
    for i, row in enumerate(x):
        total = total + row * (i + 1)
    return total


@program((GRID, GRID + 1))
def for_zip(x, y):
    total = paddle.zeros([3])
    for a, b in zip(x, y):  # noqa: B905
        total = total + a * b
    return total


@program(UP)
def for_list_of_tensors(x):
    parts = [x, x * 2, x * 3]
    total = x * 0
    for p in parts:
        if p.sum() > 10:
            total = total + p
    return total


@program(UP)
def for_else_and_break(x):
    for i in range(3):
        if x.sum() > 8 + i:
            break
        x = x + 1
    else:
        x = x * 100
    return x


@program(UP)
def for_continue(x):
    total = x * 0
    for i in range(5):
        if x.sum() * i < 10:
            continue
        total = total + x * i
    return total


@program(GRID)
def nested_for(x):
    total = paddle.zeros([])
    for row in x:
        for v in row:
            if v < 0:
                continue
            total = total + v * v
    return total


@program(UP)
def comprehension(x):
    return sum([v * i for i, v in enumerate(x) if i != 1])


# --- logic ----------------------------------------------------------------------------------


@program(UP, DOWN, MIXED)
def and_or_not(x):
    if x.sum() > 0 and not x.max() > 2.5:
        return x * 2
    if x.min() < -2.5 or x[0] > 100:
        return x * 3
    return x


@program(UP, DOWN, MIXED)
def chained_comparison(x):
    if -3 < x.sum() < 3:
        return x
    return x * 2


@program(UP, DOWN)
def short_circuit(x):
    y = None
    if y is not None and y.sum() > 0:
        return y
    if y is None or y.sum() > 0:
        x = x + 1
    return x


@program(UP, MIXED)
def assertion(x):
    assert x.sum() > -100, "too small"
    assert x is not None
    return x * 2


# --- lists, dicts, attributes ---------------------------------------------------------------


@program(UP, DOWN)
def list_item_in_if(x):
    parts = [x, x * 2]
    if x.sum() > 0:
        parts[0] = parts[0] * 5
    return parts[0] + parts[1]


@program(UP)
def list_append_in_python_loop(x):
    parts = []
    for i in range(3):
        parts.append(x * i)
    return paddle.stack(parts)


@program(UP)
def list_in_while(x):
    state = [x, x * 0]
    i = paddle.zeros([], "int64")
    while i < 3:
        state[1] = state[1] + state[0]
        state[0] = state[0] * 2
        i += 1
    return state


@program(UP, DOWN)
def dict_in_if_and_while(x):
    d = {"sum": x * 0, "n": 0}
    while d["n"] < 3:
        if x.sum() > 0:
            d["sum"] = d["sum"] + x
        d["n"] += 1
    i = paddle.zeros([], "int64")
    while i < 2:
        d["sum"] = d["sum"] * 2
        i += 1
    return d


Pair = namedtuple("Pair", "left right")


@program(UP, DOWN)
def named_tuple(x):
    p = Pair(x, x * 2)
    if x.sum() > 0:
        p = Pair(p.right, p.left * 3)
    return p.left - p.right


@program(UP, DOWN)
def ordered_dict(x):
    d = OrderedDict(a=x)
    if x.sum() > 0:
        d["a"] = d["a"] * 2
    return d["a"]


@program(GRID)
def write_in_place_in_loop(x):
    y = x * 1
    i = paddle.zeros([], "int64")
    while i < 2:
        y[i] = y[i] * 10
        i += 1
    return y


@program(UP, DOWN)
def write_in_place_in_branch(x):
    y = x * 1
    if x.sum() > 0:
        y.add_(x)
    return y * 2


class Box:
    """Something with attributes."""

    def __init__(self, value):
        self.value = value
        self.__hidden = 1

    def push(self, x):
        if x.sum() > 0:
            self.value = self.value + x
            self.__hidden += 1
        return self.value * self.__hidden


@program(UP, DOWN)
def attributes(x):
    box = Box(x * 2)
    if x.sum() > 0:
        box.value = box.value * 3
    return box.value


@program(UP, DOWN)
def method_with_private_name(x):
    return Box(x * 2).push(x)


# --- functions ------------------------------------------------------------------------------


def helper(x, scale=2.0, *, shift=1.0):
    if x.sum() > 0:
        return x * scale
    return x + shift


@program(UP, DOWN)
def calls_helper(x):
    return helper(x) + helper(-x, 3.0, shift=4.0)


@program(UP, DOWN)
def nested_function(x):
    def inner(y):
        if y.sum() > 0:
            return y + x
        return y - x

    return inner(x) * inner(x * 2)


def make_closure():
    scale = 3.0

    def scaled(x):
        if x.sum() > 0:
            y = x * scale
        else:
            y = x
        return y

    return scaled


PROGRAMS.append((make_closure(), [(UP,), (DOWN,)]))


@program(UP, DOWN)
def closure_over_loop_variable(x):
    functions = [lambda v, i=i: v * i if v.sum() > 0 else v - i for i in range(3)]
    for f in functions:
        x = f(x) + 1
    return x


@program(UP, DOWN)
def nonlocal_counter(x):
    total = x * 0

    def add(v):
        nonlocal total
        if v.sum() > 0:
            total = total + v
        else:
            total = total - 2 * v

    add(x)
    add(-x)
    return total


def countdown(x, n):
    if n == 0:
        return x
    if x.sum() > 100:
        return x
    return countdown(x * 2, n - 1)


@program(UP, DOWN)
def recursion(x):
    return countdown(x, 4)


@program((UP, 1, 2), (DOWN, 3, 4))
def varargs(x, *rest, **named):
    for r in rest:
        if x.sum() > 0:
            x = x + r
    return x


@program(UP, DOWN)
def lambda_branch(x):
    f = lambda v: v * 2 if v.mean() > 0 else v / 2  # noqa: E731
    return f(x)


@program(UP)
def try_and_with(x):
    try:
        with paddle.no_grad():
            s = x.sum() * 2
        if s > 3:
            x = x * s
    finally:
        x = x + 1
    return x


@program(UP, DOWN)
def no_grad_in_branch(x):
    if x.sum() > 0:
        with paddle.no_grad():
            k = x * 2
        y = x * k
    else:
        y = x * x.detach()
    return y


# --- shapes ---------------------------------------------------------------------------------


@program(GRID, np.ones((3, 4), "float32"))
def shapes(x):
    n, m = x.shape
    y = x.reshape([m, n])
    if x.shape[0] > 2:
        y = y * 2
    for i in range(x.shape[1]):
        y = y + i
    return y.sum() / len(x)


@program(GRID)
def shape_of_loop_result(x):
    i = paddle.zeros([], "int64")
    while i < 2:
        x = x.reshape([x.shape[0] * x.shape[1]]).reshape(x.shape)
        x = paddle.concat([x[:, 1:], x[:, :1]], axis=1)
        i += 1
    return x


# --- layers ---------------------------------------------------------------------------------


class Gate(nn.Layer):
    def __init__(self):
        super().__init__()
        paddle.seed(1)
        self.up = nn.Linear(3, 3)
        self.down = nn.Linear(3, 3)

    def gate(self, x):
        if x.mean() > 0:
            return self.up(x)
        return self.down(x)

    def forward(self, x, repeat=1):
        for _ in range(repeat):
            x = self.gate(x)
        return x


GATE = Gate()


class Deep(Gate):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Gate(), nn.ReLU(), Gate())

    def forward(self, x, repeat=1):
        x = super().forward(x, repeat)
        return self.blocks(x)


DEEP = Deep()


@program(UP, DOWN)
def layer_from_outside(x):
    return GATE(x, repeat=2)


@program(UP, DOWN)
def layers_in_a_container(x):
    return DEEP(x)
