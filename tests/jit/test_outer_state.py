"""Captured functions follow what they read outside, and do what they do there in every call."""

from __future__ import annotations

import io
import logging
import random
import types
import warnings

import numpy as np
import pytest

import bireme as paddle
from bireme import jit, nn
from bireme.core.errors import CaptureError
from bireme.nn import functional as F


def tensor(*shape: int, seed: int = 0):
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=shape).astype("float32"))


X = tensor(3, seed=5)
SCALE = 2.0
WEIGHT = tensor(3)
ACT = F.relu
CALLS = 0


def plain(value):
    """Results as lists and numbers, to compare."""
    if isinstance(value, paddle.Tensor):
        return np.round(value.numpy(), 4).tolist()
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def graphs(function) -> int:
    """How many graphs were captured."""
    return sum(len(v) for v in function._variants.values())


@pytest.fixture(autouse=True)
def globals_as_they_were():
    kept = {k: globals()[k] for k in ("SCALE", "WEIGHT", "ACT", "CALLS")}
    yield
    globals().update(kept)


def follow(function, changes, *arguments, expected_graphs: int | None = None):
    """Call a function eagerly and captured before and after each change; the results are equal."""
    static = jit.to_static(function, full_graph=True)
    for change in [lambda: None, lambda: None, *changes]:
        change()
        given = arguments or (X,)
        np.testing.assert_allclose(static(*given).numpy(), function(*given).numpy(), rtol=1e-5)
    if expected_graphs is not None:
        assert graphs(static) == expected_graphs


def put(**values):
    return lambda: globals().update(values)


def test_global_tensor_is_read_again() -> None:
    changes = [put(WEIGHT=tensor(3, seed=s)) for s in (1, 2, 3)]
    follow(lambda x: x * WEIGHT, changes, expected_graphs=1)


def test_global_tensor_of_another_shape() -> None:
    follow(lambda x: x * WEIGHT, [put(WEIGHT=tensor(2, 3))], expected_graphs=2)


def test_global_number_flag_and_function() -> None:
    # Going back finds the first graph again.
    follow(lambda x: x * SCALE, [put(SCALE=3.0), put(SCALE=2.0)], expected_graphs=2)
    follow(lambda x: ACT(x) if SCALE > 1 else x, [put(ACT=F.tanh), put(SCALE=0.0)])


def test_equal_number_is_the_same() -> None:
    follow(lambda x: x * SCALE, [put(SCALE=float("2.0"))], expected_graphs=1)


def test_closure() -> None:
    w, k = tensor(3), 1.0

    def function(x):
        return x * w + k

    def other():
        nonlocal w, k
        w, k = tensor(3, seed=4), 2.0

    follow(function, [other])


def test_attributes() -> None:
    o = types.SimpleNamespace(w=tensor(3), k=1.0, inner=types.SimpleNamespace(v=tensor(3, seed=1)))

    def function(x):
        return x * o.w * o.k + o.inner.v

    follow(
        function,
        [
            lambda: setattr(o, "w", tensor(3, seed=2)),
            lambda: setattr(o, "k", 3.0),
            lambda: setattr(o.inner, "v", tensor(3, seed=3)),
            lambda: setattr(o, "inner", types.SimpleNamespace(v=tensor(3, seed=4))),
        ],
    )


def test_class_attribute() -> None:
    class Config:
        scale = 2.0

    follow(lambda x: x * Config.scale, [lambda: setattr(Config, "scale", 3.0)])


def test_elements() -> None:
    parts = [tensor(3), tensor(3, seed=1)]
    table = {"a": tensor(3, seed=2), "k": 2.0}

    def function(x):
        for p in parts:
            x = x * p
        return x + paddle.concat(parts).sum() + table["a"] * table["k"]

    follow(
        function,
        [
            lambda: parts.__setitem__(0, tensor(3, seed=3)),
            lambda: parts.append(tensor(3, seed=4)),
            lambda: table.update(a=tensor(3, seed=5)),
            lambda: table.update(k=3.0),
            lambda: table.update(other=1),  # not read
        ],
    )


def test_one_tensor_in_two_places() -> None:
    o = types.SimpleNamespace(a=X, b=X)
    follow(lambda x: x * o.a + o.b, [lambda: setattr(o, "a", tensor(3, seed=8))])


class Scaled(nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.act = nn.Sequential(nn.LeakyReLU(0.1))
        self.scale = 1.0

    def forward(self, x):
        return self.act(self.inner(x)) * self.scale


def test_layers() -> None:
    layer = Scaled()
    follow(
        layer.forward,
        [
            lambda: setattr(layer, "scale", 3.0),
            lambda: setattr(layer, "inner", nn.Linear(3, 3)),
            lambda: setattr(layer.act[0], "_negative_slope", 0.9),
            lambda: layer.act.add_sublayer("more", nn.Sigmoid()),
            lambda: layer.inner.register_forward_post_hook(lambda _, i, o: o * 2),
        ],
        tensor(2, 3),
    )


def test_numbers_that_keep_changing_end_the_captures() -> None:
    def function(x):
        return x * SCALE

    static = jit.to_static(function)

    def calls():
        for i in range(12):
            globals()["SCALE"] = float(i)
            np.testing.assert_allclose(static(X).numpy(), X.numpy() * i, rtol=1e-6)

    with pytest.warns(jit.CaptureWarning, match="captured 8 times") as seen:
        calls()
    assert len(seen) == 1
    assert graphs(static) == 8


# --- what a function does outside -----------------------------------------------------------


def repeated(make, *calls, captured: bool = True):
    """`make()` gives a function and what to look at; both forms leave the same after some calls."""
    function, look = make()
    expected = [plain(function(*c)) for c in calls], plain(look())
    function, look = make()
    static = jit.to_static(function, full_graph=captured)
    assert ([plain(static(*c)) for c in calls], plain(look())) == expected
    if captured:
        assert graphs(static) == 1


def test_attributes_are_set_in_every_call() -> None:
    def make():
        o = types.SimpleNamespace(last=None)

        def function(x):
            o.last = x * 2
            return x

        return function, lambda: o.last

    repeated(make, (X,), (X * 2,), (X * 3,))


def test_plain_attributes_are_set() -> None:
    def make():
        o = types.SimpleNamespace()

        def function(x):
            o.shape, o.dtype, o.text = x.shape, x.dtype, "text"
            return x

        return function, lambda: (list(o.shape), o.dtype.name, o.text)

    repeated(make, (X,), (X * 2,))


def test_arrays_of_numpy_stay_arrays() -> None:
    o = types.SimpleNamespace()

    def function(x):
        o.mask = np.ones(3)
        return x

    with pytest.warns(jit.CaptureWarning, match="array of NumPy"):
        jit.to_static(function)(X)
    assert isinstance(o.mask, np.ndarray)


def test_attributes_are_set_in_branches() -> None:
    def make():
        o = types.SimpleNamespace(last=X)

        def function(x):
            if x.sum() > 0:
                o.last = x * 2
            else:
                o.last = x * 3
            return x

        return function, lambda: o.last

    repeated(make, (X,), (-X,), (X,))


def test_lists_and_dicts_get_their_entries_in_every_call() -> None:
    def make():
        seen, table = [], {}

        def function(x):
            seen.append(x.sum())
            table["last"] = [x + 1, "text"]
            return x

        return function, lambda: (seen, table)

    repeated(make, (X,), (X * 2,), (X * 3,))


def test_state_in_an_attribute() -> None:
    class Cell(nn.Layer):
        def __init__(self):
            super().__init__()
            self.state = paddle.zeros([3])

        def forward(self, x):
            self.state = self.state * 0.5 + x
            return self.state

    def make():
        cell = Cell()
        return cell.forward, lambda: cell.state

    repeated(make, (X,), (X * 2,), (X * 3,), (X,))


def test_a_cache_that_the_first_call_makes() -> None:
    class Cached(nn.Layer):
        def __init__(self):
            super().__init__()
            self.cache = None

        def forward(self, x):
            if self.cache is None:
                self.cache = paddle.full([3], 2.0)
            return x * self.cache

    layer = Cached()
    static = jit.to_static(layer.forward, full_graph=True)
    for _ in range(4):
        np.testing.assert_allclose(static(X).numpy(), X.numpy() * 2, rtol=1e-6)
    assert graphs(static) == 2
    layer.cache = tensor(3, seed=9)
    np.testing.assert_allclose(static(X).numpy(), (X * layer.cache).numpy(), rtol=1e-6)
    assert graphs(static) == 2


def test_match_statements_are_followed() -> None:
    o = types.SimpleNamespace(kind="a")

    def function(x):
        match o.kind:
            case "a":
                return x * 2
            case _ if SCALE > 1:
                return x * 3
        return x

    follow(function, [lambda: setattr(o, "kind", "b"), put(SCALE=0.0)])


def test_prints_in_every_call(capsys) -> None:
    def function(x):
        y = x.sum()
        print("the sum is", y)
        return y

    function(X)
    expected = capsys.readouterr().out
    static = jit.to_static(function, full_graph=True)
    for _ in range(3):
        static(X)
        assert capsys.readouterr().out == expected


def test_logs_in_every_call(caplog) -> None:
    logger = logging.getLogger("test_outer_state")

    def function(x):
        logger.warning("the sum is %s", x.sum())
        return x

    static = jit.to_static(function, full_graph=True)
    for n in range(1, 4):
        static(X)
        assert len(caplog.records) == n
        assert f"{X.numpy().sum():.4f}"[:5] in caplog.text


def counter():
    o = types.SimpleNamespace(n=0)

    def function(x):
        o.n += 1
        return x * o.n

    return function, lambda: o.n


def global_counter():
    globals()["CALLS"] = 0

    def function(x):
        global CALLS
        CALLS += 1
        return x * CALLS

    return function, lambda: CALLS


def random_numbers():
    source = random.Random(3)
    return (lambda x: x * source.random()), lambda: 0


def numpy_random_numbers():
    source = np.random.default_rng(3)
    return (lambda x: x * float(source.normal())), lambda: 0


def iterator():
    items = iter([1.0, 2.0, 3.0])
    return (lambda x: x * next(items)), lambda: 0


def generator():
    items = (i for i in (1.0, 2.0))

    def function(x):
        for item in items:
            x = x * item
        return x

    return function, lambda: 0


def growing_set():
    seen = set()

    def function(x):
        seen.add(len(seen))
        return x * len(seen)

    return function, lambda: sorted(seen)


def stream():
    written = io.StringIO()

    def function(x):
        written.write("called ")
        return x

    return function, written.getvalue


def shrinking_list():
    items = [1.0, 2.0, 3.0, 4.0]
    return (lambda x: x * items.pop()), lambda: items


def growing_and_read():
    items = []

    def function(x):
        items.append(1.0)
        return x * sum(items)

    return function, lambda: items


@pytest.mark.parametrize(
    "make",
    [
        counter, global_counter, random_numbers, numpy_random_numbers, iterator, generator,
        growing_set, stream, shrinking_list, growing_and_read,
    ],
)  # fmt: skip
def test_what_a_graph_cannot_repeat_runs_eagerly(make) -> None:
    with pytest.warns(jit.CaptureWarning, match="runs eagerly") as seen:
        repeated(make, (X,), (X * 2,), (X * 3,), captured=False)
    assert len(seen) == 1
    assert "\n" not in str(seen[0].message)
    function, look = make()
    before = plain(look())
    with pytest.raises(CaptureError):
        jit.to_static(function, full_graph=True)(X)
    assert plain(look()) == before


def test_a_changed_argument_runs_eagerly() -> None:
    def function(x, out):
        out.append(x * 2)
        return x

    got: list = []
    with pytest.warns(jit.CaptureWarning, match="that it was given"):
        jit.to_static(function)(X, got)
    np.testing.assert_allclose(got[0].numpy(), X.numpy() * 2)


def test_a_failed_capture_leaves_nothing_behind() -> None:
    seen, o = [], types.SimpleNamespace(k=1)

    def function(x):
        seen.append(1)
        o.k = 2
        return x.numpy()

    with pytest.raises(CaptureError):
        jit.to_static(function, full_graph=True)(X)
    assert (seen, o.k) == ([], 1)


def trainer():
    paddle.seed(3)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 1))
    rate = paddle.optimizer.lr.StepDecay(0.1, 2)
    optimizer = paddle.optimizer.AdamW(rate, parameters=model.parameters())

    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return model, optimizer, step


def test_steps_go_on_whatever_happens_between_them() -> None:
    """Steps called one after the other skip the trace; every interruption is noticed."""
    x = tensor(5, 3)
    losses = []
    for captured in (False, True):
        model, optimizer, step = trainer()
        if captured:
            step = jit.to_static(step, full_graph=True)
        paddle.seed(11)
        weight = model[0].weight
        kept, seen = [], []
        for i in range(24):
            seen.append(step(x))
            if i == 5:
                kept.append(weight.detach())  # shares the contents, which must not be overwritten
            if i == 8:
                kept.append(weight[0] * 2)  # recorded and not computed yet
            if i == 10:
                with paddle.no_grad():
                    weight.set_value(weight * 0.5)
            if i == 12:
                model[2].p = 0.4
            if i == 14:
                model.eval()
            if i == 16:
                model.train()
                model[3].bias.stop_gradient = True
            if i == 18:
                (weight.sum() * 3).backward()  # the next step adds to it
            if i == 20:
                optimizer.set_state_dict(optimizer.state_dict())
            optimizer._learning_rate.step()
        losses.append([float(s) for s in seen] + [float(k.sum()) for k in kept])
        assert model[0].weight.grad is not None  # zeros
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3, atol=1e-6)


def test_steps_skip_the_trace() -> None:
    _, _, step = trainer()
    static = jit.to_static(step, full_graph=True)
    x = tensor(5, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            static(x)
    (entry,) = static._entries.values()
    assert entry.fast_path is not None
    assert entry.fast_path.program.hits >= 2


def test_unknown_compilers_are_refused() -> None:
    with pytest.raises(ValueError, match="backend"):
        jit.to_static(lambda x: x, backend="other")
    with pytest.raises(TypeError, match="BuildStrategy"):
        jit.to_static(lambda x: x, build_strategy=3)
    jit.to_static(lambda x: x, build_strategy=paddle.static.BuildStrategy(), backend=None)


@pytest.mark.parametrize("specs", [None, [paddle.static.InputSpec([None, 3])]])
def test_steps_of_two_sizes(specs) -> None:
    losses = []
    for captured in (False, True):
        _, _, step = trainer()
        if captured:
            step = jit.to_static(step, input_spec=specs, full_graph=True)
        paddle.seed(11)
        sizes = [5, 5, 5, 2, 5, 5, 2, 2, 2, 5]
        losses.append([float(step(tensor(n, 3, seed=i))) for i, n in enumerate(sizes)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3, atol=1e-6)


def test_ready_steps_hold_no_contents() -> None:
    """What a step keeps for its next call does not keep others from updating in place."""
    model, _, step = trainer()
    static = jit.to_static(step, full_graph=True)
    for _ in range(3):
        static(tensor(5, 3))
    float(static(tensor(5, 3)))
    weight = model[0].weight
    held = weight._value
    (entry,) = static._entries.values()
    assert entry.fast_path is not None
    assert not any(value is held for value in vars(entry.fast_path).values())
    assert not any(
        item is held
        for value in vars(entry.fast_path).values()
        if isinstance(value, list | tuple)
        for item in value
    )


@pytest.mark.parametrize("make", [list, dict.fromkeys])
def test_a_change_deep_in_a_large_container_is_seen(make):
    large = make(range(5000))

    @paddle.jit.to_static
    def count(x):
        return x * len([k for k in large if k == 4321])

    x = paddle.ones([2])
    assert count(x).tolist() == [1.0, 1.0]
    if isinstance(large, list):
        large[4321] = -1
    else:
        large[5000] = large.pop(4321)
    assert count(x).tolist() == [0.0, 0.0]
