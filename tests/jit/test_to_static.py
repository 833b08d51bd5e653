"""Captured functions do what the eager ones do."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import bireme as paddle
from bireme import jit, nn
from bireme.core import stats
from bireme.core import trace as tracing
from bireme.core.errors import CaptureError
from bireme.nn import functional as F
from bireme.static import InputSpec
from tests.jit.models import SmallCNN, SmallTransformer


def tensor(*shape: int, needs: bool = False, seed: int = 0):
    data = np.random.default_rng(seed).normal(size=shape).astype("float32")
    return paddle.to_tensor(data, stop_gradient=not needs)


def entries(function) -> list:
    return list(function._entries.values())


def same_twice(make, batches, specs) -> None:
    """Two models with equal weights, one captured, train alike on all batches."""
    eager, other = make(), make()
    other.set_state_dict(eager.state_dict())
    static = jit.to_static(other, input_spec=specs, full_graph=True)
    for i, x in enumerate(batches):
        paddle.seed(i)
        a = eager(x)
        paddle.seed(i)
        b = static(x)
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-5)
        (a * a).sum().backward()
        (b * b).sum().backward()
    for (name, p), q in zip(eager.named_parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)
        if not p.stop_gradient:
            np.testing.assert_allclose(
                p.grad.numpy(), q.grad.numpy(), rtol=1e-3, atol=1e-3, err_msg=name
            )
    assert len(entries(static.forward)) == 1


def test_cnn_trains_alike() -> None:
    batches = [tensor(n, 3, 8, 8, seed=n) for n in (2, 5, 2)]
    same_twice(SmallCNN, batches, [InputSpec([None, 3, 8, 8])])


def test_transformer_trains_alike() -> None:
    rng = np.random.default_rng(0)
    batches = [paddle.to_tensor(rng.integers(0, 50, (n, 8))) for n in (2, 5, 2)]
    same_twice(lambda: SmallTransformer(dropout=0.2), batches, [InputSpec([None, 8], "int64")])


def test_one_op_per_call() -> None:
    from bireme.core.trace import flush, state

    layer = jit.to_static(nn.Linear(4, 4))
    x = tensor(2, 4)
    layer(x)
    flush()
    y = layer(x)
    assert len(state.trace.code) == 1 + 3  # the call, x, weight, bias
    assert y.shape == [2, 4]


def test_steps_compile_once() -> None:
    layer = jit.to_static(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
    x = tensor(4, 8)
    for _ in range(4):
        layer(x).sum().backward()
        for p in layer.parameters():
            p._put((p.detach() - 0.1 * p.grad)._value)
            p.clear_gradient(False)
        layer.parameters()[0].numpy()
    from bireme.core.executor import wait_for_compilation

    wait_for_compilation()
    with stats.count_compiles() as compiled:
        for _ in range(5):
            layer(x).sum().backward()
            for p in layer.parameters():
                p._put((p.detach() - 0.1 * p.grad)._value)
                p.clear_gradient(False)
            layer.parameters()[0].numpy()
    assert compiled[0] == 0


def test_signatures() -> None:
    @jit.to_static
    def function(x, scale=2.0, flag=True):
        return x * scale if flag else x

    x = tensor(2, 3)
    for _ in range(3):
        np.testing.assert_allclose(function(x).numpy(), x.numpy() * 2)
        np.testing.assert_allclose(function(x, 3.0).numpy(), x.numpy() * 3, rtol=1e-6)
        np.testing.assert_allclose(function(x, flag=False).numpy(), x.numpy())
        function(tensor(4, 3))
    assert len(entries(function)) == 4


def test_nested_arguments_and_results() -> None:
    @jit.to_static(full_graph=True)
    def function(pair, named):
        a, b = pair
        return {"sum": a + b, "rest": [named["c"] * 2.0, 7, None]}, "text"

    out, text = function((tensor(2), tensor(2)), {"c": tensor(3)})
    assert text == "text"
    assert out["rest"][1:] == [7, None]
    assert out["sum"].shape == [2]
    assert out["rest"][0].shape == [3]


def test_reading_a_value_falls_back() -> None:
    def function(x):
        if x.sum().item() > 0:
            return x
        return -x

    static = jit.to_static(function)
    x = tensor(3)
    reason = r"function\(\) runs eagerly: the value of .* read at .*test_to_static"
    with pytest.warns(jit.CaptureWarning, match=reason) as seen:
        np.testing.assert_allclose(static(x).numpy(), function(x).numpy())
    assert len(seen) == 1
    assert "\n" not in str(seen[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        static(x)  # warned once
    with pytest.raises(CaptureError, match="was read at"):
        jit.to_static(function, full_graph=True)(x)


def test_reading_an_input_names_it() -> None:
    @jit.to_static(full_graph=True)
    def function(image):
        return image * image.numpy()

    with pytest.raises(CaptureError, match="the input 'image' of type float32"):
        function(tensor(2))


def test_leaked_tensor_says_so() -> None:
    kept = []

    @jit.not_to_static
    def keep(y):
        kept.append(y)

    @jit.to_static
    def function(x):
        keep(x * 2.0)
        return x

    function(tensor(2))
    with pytest.raises(CaptureError, match="Return it from the function instead"):
        kept[0].numpy()
    with pytest.raises(CaptureError, match="kept outside"):
        (kept[0] + 1.0).numpy()


def test_outer_tensors_are_seen_as_they_are() -> None:
    w = tensor(3, needs=True)

    @jit.to_static
    def function(x):
        return x * w

    x = tensor(3, seed=1)
    function(x).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), x.numpy())
    with paddle.no_grad():
        w.set_value(np.full(3, 5.0, "float32"))
    np.testing.assert_allclose(function(x).numpy(), x.numpy() * 5, rtol=1e-6)
    assert len(entries(function)) == 1


def test_pending_outer_tensor() -> None:
    w = tensor(3) * 2.0  # not computed yet
    function = jit.to_static(lambda x: x + w)
    x = tensor(3, seed=1)
    np.testing.assert_allclose(function(x).numpy(), x.numpy() + w.numpy())


def test_state_made_inside_starts_afresh() -> None:
    @jit.to_static(full_graph=True)
    def function(x):
        total = paddle.to_tensor(np.zeros(3, "float32"))
        total.add_(x)
        return total

    x = tensor(3)
    for _ in range(3):
        np.testing.assert_allclose(function(x).numpy(), x.numpy())


def test_buffers_are_written_back() -> None:
    class Counter(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", paddle.to_tensor(np.zeros(1, "float32")))

        def forward(self, x):
            self.count.add_(paddle.to_tensor(np.ones(1, "float32")))
            return x + self.count

    layer = jit.to_static(Counter(), full_graph=True)
    x = tensor(1)
    for i in range(1, 4):
        np.testing.assert_allclose(layer(x).numpy(), x.numpy() + i, rtol=1e-6)
    np.testing.assert_allclose(layer.count.numpy(), [3.0])


def test_inplace_on_an_argument() -> None:
    @jit.to_static(full_graph=True)
    def function(x):
        x.add_(paddle.to_tensor(np.ones(2, "float32")))
        return x * 2.0

    x = tensor(2)
    before = x.numpy()
    y = function(x)
    np.testing.assert_allclose(x.numpy(), before + 1)
    np.testing.assert_allclose(y.numpy(), (before + 1) * 2)


def test_modes_and_unfreezing() -> None:
    layer = jit.to_static(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), full_graph=True)
    x = tensor(2, 4)
    layer.eval()
    np.testing.assert_allclose(layer(x).numpy(), layer(x).numpy())
    layer.train()
    assert not np.allclose(layer(x).numpy(), layer(x).numpy())
    layer.eval()
    weight = layer[0].weight
    weight.stop_gradient = True
    layer(x).sum().backward()
    assert weight.grad is None
    weight.stop_gradient = False
    layer(x).sum().backward()
    assert weight.grad is not None


def test_replaced_parameter_is_noticed() -> None:
    layer = jit.to_static(nn.Linear(2, 2))
    x = tensor(1, 2)
    layer(x)
    layer.weight = layer.create_parameter([2, 2], default_initializer=nn.initializer.Constant(1.0))
    expected = x.numpy() @ np.ones((2, 2), "float32") + layer.bias.numpy()
    np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-5)


def test_no_grad_and_detach_inside() -> None:
    w = tensor(3, needs=True)

    def function(x):
        with paddle.no_grad():
            scale = w * 3.0
        return x * w + w.detach() * scale

    static = jit.to_static(function, full_graph=True)
    x = tensor(3, seed=2)
    static(x).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), x.numpy(), rtol=1e-6)


def test_second_derivative() -> None:
    static = jit.to_static(lambda x: F.gelu(x) * x, full_graph=True)
    x = tensor(4, needs=True)

    def second(function):
        (g,) = paddle.grad(function(x).sum(), [x], create_graph=True)
        (h,) = paddle.grad(g.sum(), [x])
        return h.numpy()

    np.testing.assert_allclose(second(static), second(lambda x: F.gelu(x) * x), rtol=1e-4)


def test_random_numbers_are_fresh_and_repeatable() -> None:
    static = jit.to_static(lambda x: F.dropout(x, 0.5), full_graph=True)
    x = tensor(100)
    paddle.seed(5)
    first, second = static(x).numpy(), static(x).numpy()
    assert not np.array_equal(first, second)
    paddle.seed(5)
    np.testing.assert_array_equal(F.dropout(x, 0.5).numpy(), first)


def test_sizes_that_cannot_stay_open() -> None:
    @jit.to_static(input_spec=[InputSpec([None, 3])])
    def function(x):
        return x * float(int(x.shape[0]))

    with pytest.warns(jit.CaptureWarning, match="once per size"):
        np.testing.assert_allclose(function(tensor(2, 3)).numpy(), tensor(2, 3).numpy() * 2)
    np.testing.assert_allclose(function(tensor(4, 3)).numpy(), tensor(4, 3).numpy() * 4)


def test_open_sizes_shared_between_inputs() -> None:
    spec = InputSpec([None, None])
    function = jit.to_static(lambda x, y: x + y, input_spec=[spec, spec], full_graph=True)
    for n in (2, 5):
        a, b = tensor(3, n), tensor(3, n, seed=1)
        np.testing.assert_allclose(function(a, b).numpy(), a.numpy() + b.numpy())
    row = tensor(3, 1)
    np.testing.assert_allclose(function(a, row).numpy(), a.numpy() + row.numpy())


def test_decorated_method_and_switch() -> None:
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        @jit.to_static
        def forward(self, x):
            note()
            return self.fc(x)

    seen: list[int] = []
    note = jit.not_to_static(lambda: seen.append(1))  # not repeated: it counts runs of the source
    one, two = Net(), Net()
    x = tensor(1, 2)
    for _ in range(3):
        np.testing.assert_allclose(one(x).numpy(), one.fc(x).numpy(), rtol=1e-6)
        np.testing.assert_allclose(two(x).numpy(), two.fc(x).numpy(), rtol=1e-6)
    assert len(seen) == 2
    jit.enable_to_static(False)
    try:
        one(x)
        assert len(seen) == 3
    finally:
        jit.enable_to_static(True)


def test_a_captured_step_ends_the_trace() -> None:
    """Steps whose losses nobody reads are not piled up into ever longer programs."""
    net = paddle.nn.Linear(4, 3)
    optimizer = paddle.optimizer.SGD(0.1, parameters=net.parameters())

    @paddle.jit.to_static
    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    x = paddle.ones([2, 4])
    for _ in range(3):
        float(step(x))
    before = len(tracing.state.trace.values)
    for _ in range(5):
        loss = step(x)
    assert len(tracing.state.trace.values) <= before
    assert float(loss) > 0
