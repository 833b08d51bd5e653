"""Every optimizer takes the same steps as the real one, and saves the same keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme

# One line that trains with every optimizer compiles as many programs, which is no mistake here.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")

CASES = [
    ("SGD", {}),
    ("SGD", {"weight_decay": 0.1}),
    ("Momentum", {}),
    ("Momentum", {"use_nesterov": True, "weight_decay": 0.05}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"weight_decay": 0.1}),
    ("AdamW", {"amsgrad": True}),
    ("Adamax", {}),
    ("Adagrad", {"initial_accumulator_value": 0.1}),
    ("Adadelta", {}),
    ("RMSProp", {"momentum": 0.9}),
    ("RMSProp", {"centered": True}),
    ("Lamb", {}),
    ("Lamb", {"lamb_weight_decay": 0.0, "always_adapt": True}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("ASGD", {"batch_num": 2}),
    ("Rprop", {}),
]


def _train(lib: Any, name: str, options: dict[str, Any], steps: int, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(0)
    shapes = [(4, 5), (5,), (5, 3), (3,)]
    params = []
    with _fresh_names(lib):
        layers = [lib.nn.Linear(4, 5), lib.nn.Linear(5, 3)]
    for layer in layers:
        if dtype != "float32":
            layer.to(dtype=dtype)
        params += [layer.weight, layer.bias]
    for p, shape in zip(params, shapes, strict=True):
        p.set_value(rng.standard_normal(shape).astype(dtype))
    optimizer = getattr(lib.optimizer, name)(learning_rate=0.01, parameters=params, **options)
    for _ in range(steps):
        x = lib.to_tensor(rng.standard_normal((6, 4)).astype(dtype))
        loss = (layers[1](lib.tanh(layers[0](x))) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
    return params, optimizer


def _fresh_names(lib: Any) -> Any:
    if lib is bireme:
        from bireme.nn import naming

        return naming.guard()
    return lib.utils.unique_name.guard()


def _plain(state: dict[str, Any]) -> dict[str, np.ndarray]:
    return {k: np.asarray(v.numpy()) for k, v in state.items()}


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: str(v))
def test_same_parameters_and_state(paddle: Any, name: str, options: dict[str, Any]) -> None:
    want, reference = _train(paddle, name, options, 5)
    got, optimizer = _train(bireme, name, options, 5)
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=2e-5, atol=2e-6)
    expected, state = _plain(reference.state_dict()), _plain(optimizer.state_dict())
    assert [_stem(k) for k in state] == [_stem(k) for k in expected]
    for (key, a), b in zip(expected.items(), state.values(), strict=True):
        assert b.shape == a.shape, key
        assert b.dtype == a.dtype, key
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-6, err_msg=key)


def _stem(key: str) -> str:
    """Without the number that counts optimizers made in this process."""
    return key.rpartition("_")[0]


@pytest.mark.parametrize("name", ["SGD", "Momentum", "Adam", "AdamW", "Lamb", "NAdam", "RAdam"])
def test_double_precision(paddle: Any, name: str) -> None:
    want, _ = _train(paddle, name, {}, 4, "float64")
    got, _ = _train(bireme, name, {}, 4, "float64")
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-7, atol=1e-9)
