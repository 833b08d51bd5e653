"""What training scripts rely on: groups, clipping, frozen parameters, resuming, no recompiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme.core import executor, trace
from bireme.core.stats import statistics
from bireme.host import config
from bireme.nn import naming


def _parameter(lib: Any, value: Any, **attr: Any) -> Any:
    array = np.asarray(value, "float32")
    settings = lib.ParamAttr(initializer=lib.nn.initializer.Assign(array), **attr)
    return lib.create_parameter(list(array.shape), "float32", attr=settings)


def _model(lib: Any) -> tuple[Any, Any]:
    guard = naming.guard() if lib is bireme else lib.utils.unique_name.guard()
    with guard:
        first, second = lib.nn.Linear(3, 4), lib.nn.Linear(4, 2)
    rng = np.random.default_rng(1)
    for p in (first.weight, first.bias, second.weight, second.bias):
        p.set_value(rng.standard_normal(tuple(p.shape)).astype("float32"))
    return first, second


def _steps(lib: Any, layers: Any, optimizer: Any, count: int, seed: int = 5) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        x = lib.to_tensor(rng.standard_normal((5, 3)).astype("float32"))
        (layers[1](lib.tanh(layers[0](x))) ** 2).sum().backward()
        optimizer.step()
        optimizer.clear_grad()


def _values(layers: Any) -> list[np.ndarray]:
    return [p.numpy() for layer in layers for p in layer.parameters()]


def _compare(paddle: Any, make: Any, count: int = 4) -> None:
    results = []
    for lib in (paddle, bireme):
        layers = _model(lib)
        _steps(lib, layers, make(lib, layers), count)
        results.append(_values(layers))
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("clip", "arguments"),
    [
        ("ClipGradByGlobalNorm", (0.5,)),
        ("ClipGradByGlobalNorm", (1e6,)),
        ("ClipGradByNorm", (0.3,)),
        ("ClipGradByValue", (0.2,)),
        ("ClipGradByValue", (0.2, -0.1)),
    ],
)
def test_clipping(paddle: Any, clip: str, arguments: tuple[float, ...]) -> None:
    def make(lib: Any, layers: Any) -> Any:
        params = [p for layer in layers for p in layer.parameters()]
        chosen = getattr(lib.nn, clip)(*arguments)
        return lib.optimizer.Momentum(0.05, parameters=params, grad_clip=chosen)

    _compare(paddle, make)


def test_parameter_groups(paddle: Any) -> None:
    def make(lib: Any, layers: Any) -> Any:
        groups = [
            {"params": layers[0].parameters(), "learning_rate": 0.1},
            {"params": layers[1].parameters(), "weight_decay": 0.2, "beta1": 0.8},
        ]
        return lib.optimizer.Adam(0.05, parameters=groups, weight_decay=0.01)

    _compare(paddle, make)


def test_adam_corrects_its_bias_to_all_digits() -> None:
    """A constant gradient moves a weight by the rate in every step; 1 - 0.999^t is tiny."""
    p = bireme.to_tensor(np.zeros(3, "float32"), stop_gradient=False)
    optimizer = bireme.optimizer.Adam(0.5, parameters=[p])
    for step in range(1, 40):
        p.sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        np.testing.assert_allclose(p.numpy(), -0.5 * step, rtol=5e-7)


def test_adamw_groups_and_decay_filter(paddle: Any) -> None:
    def make(lib: Any, layers: Any) -> Any:
        groups = [
            {"params": layers[0].parameters(), "weight_decay": 0.0},
            {"params": layers[1].parameters(), "learning_rate": 0.5},
        ]
        return lib.optimizer.AdamW(
            0.05,
            parameters=groups,
            weight_decay=0.3,
            apply_decay_param_fun=lambda name: name.endswith("w_0"),
        )

    _compare(paddle, make)


def test_regularizers_and_rates_of_parameters(paddle: Any) -> None:
    results = []
    for lib in (paddle, bireme):
        a = _parameter(lib, [1.0, -2.0], regularizer=lib.regularizer.L1Decay(0.5))
        b = _parameter(lib, [1.0, -2.0], learning_rate=0.1)
        c = _parameter(lib, [1.0, -2.0], trainable=False)
        optimizer = lib.optimizer.SGD(
            0.1, parameters=[a, b, c], weight_decay=lib.regularizer.L2Decay(0.2)
        )
        ((a * a).sum() + (b * b).sum() + (c * c).sum()).backward()
        optimizer.step()
        results.append([p.numpy() for p in (a, b, c)])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)


def test_parameter_without_gradient_falls_behind(paddle: Any) -> None:
    results = []
    for lib in (paddle, bireme):
        a, b = _parameter(lib, [1.0, 2.0]), _parameter(lib, [3.0, 4.0])
        optimizer = lib.optimizer.Adam(0.1, parameters=[a, b])
        for step in range(5):
            loss = (a * a).sum() if step in (1, 2) else (a * a).sum() + (b * b * b).sum()
            loss.backward()
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
        results.append([p.numpy() for p in (a, b)])
        powers = [v.numpy().item() for k, v in optimizer.state_dict().items() if "beta1_pow" in k]
        np.testing.assert_allclose(powers, [0.9**6, 0.9**4], rtol=1e-5)
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_cleared_gradients_are_zeros_and_still_count(paddle: Any) -> None:
    results = []
    for lib in (paddle, bireme):
        a, b = _parameter(lib, [1.0, 2.0]), _parameter(lib, [3.0, 4.0])
        optimizer = lib.optimizer.Momentum(0.1, parameters=[a, b])
        (a.sum() + b.sum()).backward()
        optimizer.step()
        optimizer.clear_grad()
        np.testing.assert_array_equal(a.grad.numpy(), [0.0, 0.0])
        a.sum().backward()
        optimizer.step()  # b moves on by its velocity
        optimizer.clear_grad(set_to_zero=False)
        assert a.grad is None
        results.append([a.numpy(), b.numpy()])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)


def test_state_dict_resumes(paddle: Any) -> None:
    schedule = bireme.optimizer.lr.ExponentialDecay(0.05, 0.9)
    layers = _model(bireme)
    params = [p for layer in layers for p in layer.parameters()]
    first = bireme.optimizer.Adam(schedule, parameters=params)
    _steps(bireme, layers, first, 3)
    saved = {k: v.numpy() if hasattr(v, "numpy") else v for k, v in first.state_dict().items()}
    weights = _values(layers)
    _steps(bireme, layers, first, 2, seed=9)
    want = _values(layers)

    again = _model(bireme)
    for p, w in zip([p for layer in again for p in layer.parameters()], weights, strict=True):
        p.set_value(w)
    second = bireme.optimizer.Adam(
        bireme.optimizer.lr.ExponentialDecay(0.05, 0.9),
        parameters=[p for layer in again for p in layer.parameters()],
    )
    second.set_state_dict(saved)
    _steps(bireme, again, second, 2, seed=9)
    for a, b in zip(want, _values(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert "LR_Scheduler" in saved


def test_state_of_the_real_optimizer_loads(paddle: Any) -> None:
    layers = _model(paddle)
    params = [p for layer in layers for p in layer.parameters()]
    reference = paddle.optimizer.AdamW(0.05, parameters=params)
    _steps(paddle, layers, reference, 3)
    ours = _model(bireme)
    mine = [p for layer in ours for p in layer.parameters()]
    for p, q in zip(mine, params, strict=True):
        p.set_value(q.numpy())
    optimizer = bireme.optimizer.AdamW(0.05, parameters=mine)
    optimizer.set_state_dict({k: v.numpy() for k, v in reference.state_dict().items()})
    _steps(paddle, layers, reference, 2, seed=11)
    _steps(bireme, ours, optimizer, 2, seed=11)
    for a, b in zip(_values(layers), _values(ours), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-6)


def test_a_changing_rate_compiles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trace.flush()
    monkeypatch.setattr(config, "compile_mode", "always")
    layers = _model(bireme)
    params = [p for layer in layers for p in layer.parameters()]
    schedule = bireme.optimizer.lr.CosineAnnealingDecay(0.1, 7)
    clip = bireme.nn.ClipGradByGlobalNorm(1.0)
    optimizer = bireme.optimizer.AdamW(schedule, parameters=params, grad_clip=clip)
    x = bireme.to_tensor(np.ones((5, 3), "float32"))
    for step in range(6):
        (layers[1](bireme.tanh(layers[0](x))) ** 2).sum().backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()
        if step == 1:
            before = statistics.started
    trace.flush()
    assert statistics.started == before


def test_a_step_writes_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    trace.flush()
    monkeypatch.setattr(config, "compile_mode", "never")
    executor.clear_programs()
    layers = _model(bireme)
    params = [p for layer in layers for p in layer.parameters()]
    optimizer = bireme.optimizer.Momentum(0.1, parameters=params)
    x = bireme.to_tensor(np.ones((5, 3), "float32"))
    loss = layers[1](layers[0](x)).sum()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    (program,) = executor._programs.values()
    assert len(program.outputs) == 2 * len(params) + 1  # weights, velocities, the loss


def test_half_precision_keeps_masters() -> None:
    layer = bireme.nn.Linear(4, 4).bfloat16()
    optimizer = bireme.optimizer.AdamW(
        1e-4, parameters=layer.parameters(), multi_precision=True, weight_decay=0.0
    )
    start = layer.weight.astype("float32").numpy()
    x = bireme.ones([2, 4], "bfloat16")
    for _ in range(4):
        layer(x).astype("float32").sum().backward()
        optimizer.step()
        optimizer.clear_grad()
    state = optimizer.state_dict()
    master = state["master_weights"][layer.weight.name]
    assert master.dtype is bireme.float32
    np.testing.assert_allclose(master.numpy(), start - 4e-4, rtol=0, atol=2e-6)
    assert layer.weight.dtype is bireme.bfloat16
    np.testing.assert_array_equal(
        layer.weight.astype("float32").numpy(),
        master.astype("bfloat16").astype("float32").numpy(),
    )
    assert any(k.startswith(master.name) for k in state)


def test_rescaled_gradients_are_smaller() -> None:
    a = _parameter(bireme, [1.0])
    optimizer = bireme.optimizer.Momentum(0.1, parameters=[a], rescale_grad=0.5)
    (a * 4).sum().backward()
    optimizer.step()
    assert a.item() == pytest.approx(0.8)


def test_minimize_uses_existing_gradients() -> None:
    a = _parameter(bireme, [2.0])
    optimizer = bireme.optimizer.SGD(0.1, parameters=[a])
    loss = (a * a).sum()
    loss.backward()
    _, pairs = optimizer.minimize(loss)
    assert pairs[0][0] is a
    assert a.item() == pytest.approx(1.6)


@pytest.mark.filterwarnings("ignore:To copy construct")  # from inside the reference
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(paddle: Any, search: str | None) -> None:
    results = []
    for lib in (paddle, bireme):
        x = _parameter(lib, [-1.2, 1.0])
        optimizer = lib.optimizer.LBFGS(
            0.5 if search is None else 1.0,
            max_iter=6,
            line_search_fn=search,
            parameters=[x],
        )

        def closure(lib: Any = lib, x: Any = x, optimizer: Any = optimizer) -> Any:
            loss = ((x - lib.to_tensor([1.0, 2.0])) ** 4).sum() + (x[0] * x[1]) ** 2
            optimizer.clear_grad()
            loss.backward()
            return loss

        for _ in range(2):
            optimizer.step(closure)
        results.append(x.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-3, atol=1e-3)


def test_clear_errors() -> None:
    a = _parameter(bireme, [1.0])
    with pytest.raises(AttributeError, match=r"model\.parameters"):
        bireme.optimizer.SGD(0.1)
    with pytest.raises(TypeError, match="single Tensor"):
        bireme.optimizer.SGD(0.1, parameters=a)
    with pytest.raises(ValueError, match=r"beta1 must be in \[0, 1\)"):
        bireme.optimizer.Adam(beta1=1.5, parameters=[a])
    optimizer = bireme.optimizer.SGD(bireme.optimizer.lr.StepDecay(0.1, 2), parameters=[a])
    with pytest.raises(RuntimeError, match="scheduler"):
        optimizer.set_lr(0.1)
    with pytest.raises(ValueError, match="more than one parameter group"):
        bireme.optimizer.SGD(0.1, parameters=[{"params": [a]}, {"params": [a]}])


def test_state_in_one_buffer():
    layer = bireme.nn.Linear(2, 3)
    opt = bireme.optimizer.AdamW(0.1, parameters=layer.parameters())
    layer(bireme.ones([4, 2])).sum().backward()
    opt.step()
    assert opt.fused_states_buffer is None  # nobody asked for it
    opt.use_fusion_storage()
    opt.set_merged_model_params({"w": layer.weight})
    buffer = opt.fused_states_buffer.numpy()
    state = opt.state_dict()
    ranges = [e for kind in opt.fused_states_accumulators_meta.values() for e in kind.values()]
    assert len(ranges) == 8  # two moments and two powers of two parameters
    for entry in ranges:
        part = buffer[entry["start"] : entry["end"]].reshape(entry["shape"])
        np.testing.assert_array_equal(part, state[entry["name"]].numpy())
    np.testing.assert_array_equal(buffer[-6:], layer.weight.numpy().ravel())
    assert opt.fused_states_master_weights_meta == {}
    assert opt.fused_states_buffer_ipc_meta is None
    assert opt.fused_buffer_version == 1
    opt.need_refuse()
    assert opt.fused_states_buffer is not None
    assert opt.fused_buffer_version == 2
