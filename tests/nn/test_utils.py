"""nn.utils: gradient clipping, flat vectors, weight and spectral normalisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from bireme import nn

GRADS = [np.array([3.0, -4.0], "float32"), np.array([[12.0], [1.0]], "float32")]


def _with_grads(lib: Any) -> list[Any]:
    params = []
    for grad in GRADS:
        p = lib.create_parameter(list(grad.shape), "float32")
        (p * lib.to_tensor(grad)).sum().backward()
        params.append(p)
    return params


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.7, 100.0])
def test_clip_grad_norm(paddle: Any, norm_type: float, max_norm: float) -> None:
    results = []
    for lib in (paddle, bireme):
        params = _with_grads(lib)
        total = lib.nn.utils.clip_grad_norm_(params, max_norm, norm_type)
        results.append([total.numpy(), *[p.grad.numpy() for p in params]])
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5)


def test_clip_grad_norm_can_refuse_infinities() -> None:
    p = bireme.create_parameter([1], "float32")
    (p * float("inf")).sum().backward()
    with pytest.raises(RuntimeError, match="norm is inf"):
        nn.utils.clip_grad_norm_([p], 1.0, error_if_nonfinite=True)


def test_clip_grad_value() -> None:
    params = _with_grads(bireme)
    nn.utils.clip_grad_value_(params, 2.0)
    np.testing.assert_array_equal(params[0].grad.numpy(), [2.0, -2.0])
    np.testing.assert_array_equal(params[1].grad.numpy(), [[2.0], [1.0]])


def test_vectors() -> None:
    layer = nn.Linear(2, 3)
    vector = nn.utils.parameters_to_vector(layer.parameters())
    assert vector.shape == [9]
    nn.utils.vector_to_parameters(vector * 0 + 2.0, layer.parameters())
    assert set(layer.weight.numpy().ravel()) == {2.0}
    assert not layer.weight.stop_gradient
    with pytest.raises(ValueError, match="9 elements"):
        nn.utils.vector_to_parameters(vector[:3], layer.parameters())


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(paddle: Any, dim: int | None) -> None:
    weight = np.random.default_rng(0).standard_normal((3, 4)).astype("float32")
    x = np.random.default_rng(1).standard_normal((2, 3)).astype("float32")
    results = []
    for lib in (paddle, bireme):
        layer = lib.nn.Linear(3, 4)
        layer.weight.set_value(weight)
        lib.nn.utils.weight_norm(layer, dim=dim)
        out = layer(lib.to_tensor(x))
        (out * out).sum().backward()
        results.append(
            [out, layer.weight_g, layer.weight_v, layer.weight_g.grad, layer.weight_v.grad]
        )
        assert list(layer.state_dict()) == ["bias", "weight_v", "weight_g"]
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(
            got.numpy().reshape(want.shape), want.numpy(), rtol=1e-4, atol=1e-5
        )
    nn.utils.remove_weight_norm(layer)
    np.testing.assert_allclose(layer.weight.numpy(), weight, rtol=1e-5)
    assert sorted(n for n, _ in layer.named_parameters()) == ["bias", "weight"]


def test_spectral_norm() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(5, 4), n_power_iterations=20)
    assert list(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    out = layer(bireme.ones([1, 5]))
    assert np.linalg.svd(layer.weight.numpy())[1][0] == pytest.approx(1.0, rel=1e-3)
    out.sum().backward()
    assert layer.weight_orig.grad is not None
    layer.eval()
    before = layer.weight_u.numpy()
    layer(bireme.ones([1, 5]))
    np.testing.assert_array_equal(layer.weight_u.numpy(), before)
    with pytest.raises(ValueError, match="already"):
        nn.utils.spectral_norm(layer)
