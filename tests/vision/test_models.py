"""Networks against Paddle's: the same parameter names, and outputs with the same weights."""

from __future__ import annotations

import importlib
import inspect

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.vision import models
from bireme.vision.models import vgg

# One of each family in the plain suite; every name that is public in the slow one.
SMALL = [
    ("LeNet", {}, (1, 28, 28)),
    ("resnet18", {"num_classes": 10}, (3, 40, 40)),
    ("resnet18", {"num_classes": -1, "with_pool": False}, (3, 40, 40)),
    ("resnet50", {"num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v1", {"scale": 0.25, "num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v2", {"scale": 0.5, "num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v3_small", {"scale": 0.5, "num_classes": 10}, (3, 32, 32)),
    ("alexnet", {"num_classes": -1}, (3, 64, 64)),
    ("densenet121", {"num_classes": 10, "dropout": 0.1}, (3, 32, 32)),
    ("googlenet", {"num_classes": -1}, (3, 95, 95)),
    ("squeezenet1_0", {"num_classes": 10}, (3, 64, 64)),
    ("squeezenet1_1", {"num_classes": 10, "with_pool": False}, (3, 64, 64)),
    ("shufflenet_v2_x0_25", {"num_classes": 10}, (3, 32, 32)),
    ("shufflenet_v2_swish", {"num_classes": -1, "with_pool": False}, (3, 32, 32)),
]
# Inception at 96 pixels normalises over 4 values: float32 differs by 3 % there, float64 by 2e-7.
SIZES = {"alexnet": 224, "googlenet": 224, "inception_v3": 139, "squeezenet1_0": 64}
LARGE = [
    ("vgg11", {"batch_norm": True, "num_classes": 10}, (3, 32, 32)),
    ("mobilenet_v3_large", {"scale": 0.75}, (3, 32, 32)),
    ("inception_v3", {"num_classes": -1, "with_pool": False}, (3, 80, 80)),
    *[
        (name, {}, (3, SIZES.get(name, 32), SIZES.get(name, 32)))
        for name in models.__all__
        if name[0].islower()
    ],
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
        weights[name] = array.astype(value.numpy().dtype)
    return weights


def without_chance(module, net):
    """Random layers off: the two generators differ."""
    net.train()
    for layer in net.sublayers():
        if isinstance(layer, module.nn.Dropout):
            layer.p = 0.0


def outputs_of(model, x):
    out = model(x)
    return out if isinstance(out, list | tuple) else (out,)


def assert_near(found, expected, tolerance=1e-4):
    assert found.shape == expected.shape
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * max(np.abs(expected).max(), 1e-6)
    )


def twins(paddle, name, options):
    """Paddle's network and ours with the same weights."""
    real, ours = getattr(paddle.vision.models, name)(**options), getattr(models, name)(**options)
    if paddle.get_default_dtype() == "float64":
        real.to(dtype="float64")  # some batch norms are float32 whatever the default is
        ours.to(dtype="float64")
    weights = lively_weights(real)
    assert list(ours.state_dict()) == list(weights)
    real.set_state_dict(weights)
    ours.set_state_dict(weights)
    return real, ours


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [*SMALL, *[pytest.param(*case, marks=pytest.mark.slow) for case in LARGE]],
)
def test_weights_are_interchangeable_with_paddles(paddle, monkeypatch, name, options, size):
    monkeypatch.setattr("bireme.host.config.compile_mode", "never")
    real, ours = twins(paddle, name, options)
    real.eval()
    ours.eval()
    x = np.random.default_rng(1).normal(size=(2, *size)).astype("float32")
    expected = outputs_of(real, paddle.to_tensor(x))
    found = outputs_of(ours, bireme.to_tensor(x))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert_near(mine.numpy(), theirs.numpy())


TRAINED = [
    ("LeNet", {}, (1, 28, 28)),
    ("mobilenet_v3_small", {"scale": 0.35, "num_classes": 5}, (3, 64, 64)),
    ("shufflenet_v2_x0_25", {"num_classes": 5}, (3, 64, 64)),
]
TRAINED_LARGE = [
    (name, {}, (3, SIZES.get(name, 64), SIZES.get(name, 64)))
    for name in (
        "resnet18",
        "resnext50_32x4d",
        "vgg11",
        "mobilenet_v1",
        "mobilenet_v2",
        "mobilenet_v3_large",
        "alexnet",
        "densenet121",
        "squeezenet1_0",
        "googlenet",
    )
]


@pytest.mark.filterwarnings("ignore:When training, we now always track")  # Paddle's batch norm
@pytest.mark.parametrize(
    ("name", "options", "size"),
    [*TRAINED, *[pytest.param(*case, marks=pytest.mark.slow) for case in TRAINED_LARGE]],
)
def test_a_training_step_is_paddles(paddle, monkeypatch, name, options, size):
    """Outputs in training mode, then gradients, statistics and weights after one step."""
    monkeypatch.setattr("bireme.host.config.compile_mode", "never")
    real, ours = twins(paddle, name, options)
    x = np.random.default_rng(1).normal(size=(4, *size)).astype("float32")
    without_chance(paddle, real)
    without_chance(bireme, ours)
    before = {k: v.numpy() for k, v in ours.state_dict().items()}
    results = []
    for module, net in ((paddle, real), (bireme, ours)):
        sgd = module.optimizer.SGD(0.01, parameters=net.parameters())
        out = outputs_of(net, module.to_tensor(x))
        loss = sum((o * o).mean() for o in out)
        loss.backward()
        sgd.step()
        sgd.clear_grad()
        results.append(([o.numpy() for o in out], net.state_dict()))
    (expected, theirs), (found, mine) = results
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b, 1e-3)
    # Batch norm over few values magnifies rounding: the whole update is compared, not each weight.
    total = difference = 0.0
    for key, start in before.items():
        change, wanted = mine[key].numpy() - start, theirs[key].numpy() - start
        total += float((wanted.astype("float64") ** 2).sum())
        difference += float(((change - wanted).astype("float64") ** 2).sum())
    assert total > 0
    assert difference < 1e-4 * total  # 1 % of the update's length


@pytest.fixture
def double(paddle):
    """Deep nets magnify a rounding error of float32 past any use, on Paddle as here."""
    for module in (paddle, bireme):
        module.set_default_dtype("float64")
    yield
    for module in (paddle, bireme):
        module.set_default_dtype("float32")


@pytest.mark.slow
@pytest.mark.usefixtures("double")
@pytest.mark.filterwarnings("ignore:When training, we now always track")
@pytest.mark.parametrize("name", [n for n in models.__all__ if n[0].islower()])
def test_every_network_trains_as_paddles(paddle, monkeypatch, name):
    """One step: results, then every weight and running statistic after it."""
    monkeypatch.setattr("bireme.host.config.compile_mode", "never")
    side = {"alexnet": 224, "googlenet": 224, "inception_v3": 96}.get(name, 32)
    real, ours = twins(paddle, name, {"num_classes": 10})
    before = {k: v.numpy() for k, v in ours.state_dict().items()}
    x = np.random.default_rng(1).normal(size=(4, 3, side, side))
    results = []
    for module, net in ((paddle, real), (bireme, ours)):
        without_chance(module, net)
        sgd = module.optimizer.SGD(0.01, parameters=net.parameters())
        out = outputs_of(net, module.to_tensor(x))
        sum((o * o).mean() for o in out).backward()
        sgd.step()
        results.append(([o.numpy() for o in out], net.state_dict()))
    (expected, theirs), (found, mine) = results
    for a, b in zip(found, expected, strict=True):
        assert_near(a, b, 1e-5)
    for key, start in before.items():
        change, wanted = mine[key].numpy() - start, theirs[key].numpy() - start
        # Paddle keeps epsilon as a float32, and some gradients are nothing but rounding.
        scale = np.abs(wanted).max(initial=0) + 1e-8 * np.abs(start).max(initial=0)
        assert np.abs(change - wanted).max(initial=0) <= 1e-4 * scale, key


def test_steps_of_mobilenet_v3_compile_once(monkeypatch):
    """Nothing in the network changes the recorded program from step to step."""
    monkeypatch.setattr("bireme.host.config.compile_mode", "always")
    model = models.mobilenet_v3_small(scale=0.35, num_classes=3)
    momentum = bireme.optimizer.Momentum(0.01, parameters=model.parameters())
    rng = np.random.default_rng(0)

    def step():
        x = bireme.to_tensor(rng.normal(size=(2, 3, 32, 32)).astype("float32"))
        loss = bireme.nn.functional.cross_entropy(model(x), bireme.to_tensor([0, 1]))
        loss.backward()
        momentum.step()
        momentum.clear_grad()
        return float(loss)

    step()
    step()
    with bireme.profiler.count_compiles() as counted:
        for _ in range(10):
            step()
    assert counted == [0]


FUNCTIONS = [n for n in models.__all__ if inspect.isfunction(getattr(models, n))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_paddles_arguments(paddle, name):
    real = list(inspect.signature(getattr(paddle.vision.models, name)).parameters)
    assert list(inspect.signature(getattr(models, name)).parameters) == real


def test_training_reaches_every_parameter(monkeypatch):
    monkeypatch.setattr("bireme.host.config.compile_mode", "never")
    model = models.mobilenet_v3_small(scale=0.35, num_classes=3)
    x = bireme.to_tensor(np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype("float32"))
    model(x).sum().backward()
    missing = [n for n, p in model.named_parameters() if p.trainable and p.grad is None]
    assert not missing


def test_layers_of_a_vgg_of_ones_own(paddle):
    real = importlib.import_module("paddle.vision.models.vgg")
    for batch_norm in (False, True):
        ours = vgg.make_layers([4, "M", 8, 8, "M"], batch_norm)
        theirs = real.make_layers([4, "M", 8, 8, "M"], batch_norm)
        assert [type(x).__name__ for x in ours] == [type(x).__name__ for x in theirs]
        shapes = [(k, list(v.shape)) for k, v in ours.state_dict().items()]
        assert shapes == [(k, list(v.shape)) for k, v in theirs.state_dict().items()]


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
    for wrong in (
        lambda: models.DenseNet(122),
        lambda: models.SqueezeNet("1.2"),
        lambda: models.ShuffleNetV2(0.7),
        lambda: models.ShuffleNetV2(act="gelu"),
    ):
        with pytest.raises(BiremeError, match="must be"):
            wrong()
    with pytest.raises(BiremeError, match="depth 50 and more"):
        models.resnet18(groups=2)
