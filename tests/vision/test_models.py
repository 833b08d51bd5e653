"""Networks against Paddle's: the same parameter names, and outputs with the same weights."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.vision import models

SMALL = [
    ("LeNet", {}, (1, 28, 28)),
    ("resnet18", {"num_classes": 10}, (3, 40, 40)),
    ("resnet18", {"num_classes": -1, "with_pool": False}, (3, 40, 40)),
    ("resnet50", {"num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v1", {"scale": 0.25, "num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v2", {"scale": 0.5, "num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v3_small", {"scale": 0.5, "num_classes": 10}, (3, 32, 32)),
]
LARGE = [
    ("resnext50_32x4d", {}, (3, 32, 32)),
    ("wide_resnet50_2", {}, (3, 32, 32)),
    ("vgg11", {"batch_norm": True, "num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v3_large", {"scale": 0.75}, (3, 32, 32)),
    ("resnet101", {}, (3, 32, 32)),
]


def lively_weights(real):
    """Weights at which every layer matters: the defaults of deep nets give outputs near zero."""
    rng = np.random.default_rng(0)
    weights = {}
    for name, value in real.state_dict().items():
        array = value.numpy()
        if name.endswith("_variance"):
            array = rng.uniform(0.5, 1.5, array.shape)
        elif array.ndim == 1:
            array = array + 0.1 * rng.normal(size=array.shape)
        else:
            fan_in = array.shape[0] if array.ndim == 2 else np.prod(array.shape[1:])
            array = rng.normal(size=array.shape) * np.sqrt(2 / fan_in)
        weights[name] = array.astype("float32")
    return weights


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [*SMALL, *[pytest.param(*case, marks=pytest.mark.slow) for case in LARGE]],
)
def test_weights_are_interchangeable_with_paddles(paddle, monkeypatch, name, options, size):
    monkeypatch.setattr("bireme.core.config.compile_mode", "never")
    real, ours = getattr(paddle.vision.models, name)(**options), getattr(models, name)(**options)
    weights = lively_weights(real)
    assert list(ours.state_dict()) == list(weights)
    real.set_state_dict(weights)
    ours.set_state_dict(weights)
    real.eval()
    ours.eval()
    x = np.random.default_rng(1).normal(size=(2, *size)).astype("float32")
    expected = real(paddle.to_tensor(x)).numpy()
    found = ours(bireme.to_tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


FUNCTIONS = [n for n in models.__all__ if inspect.isfunction(getattr(models, n))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_paddles_arguments(paddle, name):
    real = list(inspect.signature(getattr(paddle.vision.models, name)).parameters)
    assert list(inspect.signature(getattr(models, name)).parameters) == real


def test_training_reaches_every_parameter(monkeypatch):
    monkeypatch.setattr("bireme.core.config.compile_mode", "never")
    model = models.mobilenet_v3_small(scale=0.35, num_classes=3)
    x = bireme.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype("float32"))
    model(x).sum().backward()
    missing = [n for n, p in model.named_parameters() if p.trainable and p.grad is None]
    assert not missing


def test_pretrained(tmp_path):
    first = models.LeNet()
    bireme.save(first.state_dict(), tmp_path / "weights")
    other = models.resnet18(num_classes=2)
    bireme.save(other.state_dict(), tmp_path / "resnet")
    loaded = models.resnet18(pretrained=str(tmp_path / "resnet"), num_classes=2)
    np.testing.assert_array_equal(loaded.fc.weight.numpy(), other.fc.weight.numpy())
    with pytest.raises(BiremeError, match="path of a file"):
        models.resnet18(pretrained=True)
    with pytest.raises(BiremeError, match="depth must be one of"):
        models.ResNet(models.resnet.BottleneckBlock, 77)
    with pytest.raises(BiremeError, match="depth 50 and more"):
        models.resnet18(groups=2)
