"""QAT and PTQ against the real Paddle: the same layers, scales, losses and converted networks."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError
from bireme.nn import quant as bireme_quant

Q = bireme.quantization


@pytest.fixture
def paddle(paddle):
    """Paddle's own namespaces do not import these."""
    importlib.import_module("paddle.quantization.observers.groupwise")
    importlib.import_module("paddle.quantization.quanters")
    return paddle


def network(module):
    nn = module.nn
    return nn.Sequential(
        nn.Conv2D(2, 3, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2D(2),
        nn.Flatten(),
        nn.Linear(12, 4),
        nn.quant.Stub(),
    )


def pair(paddle):
    real, ours = network(paddle), network(bireme)
    ours.set_state_dict({k: v.numpy() for k, v in real.state_dict().items()})
    return (paddle, real), (bireme, ours)


def batches(count=3):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(2, 2, 4, 4)).astype("float32") for _ in range(count)]


def test_training(paddle):
    """Scales move as Paddle's do, gradients pass, and so losses agree step after step."""
    losses, states = [], []
    for module, net in pair(paddle):
        fake = module.quantization.quanters.FakeQuanterWithAbsMaxObserver
        qat = module.quantization.QAT(
            module.quantization.QuantConfig(fake(moving_rate=0.8), fake())
        )
        model = qat.quantize(net)
        assert type(model[0]).__name__ == "QuantedConv2D"
        sgd = module.optimizer.SGD(0.1, parameters=model.parameters())
        found = []
        for x in batches():
            loss = (model(module.to_tensor(x)) ** 2).mean()
            loss.backward()
            sgd.step()
            sgd.clear_grad()
            found.append(float(loss))
        model.eval()
        found.append(float(model(module.to_tensor(batches()[0])).sum()))
        losses.append(found)
        states.append({k: v.numpy() for k, v in model.state_dict().items()})
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert list(states[1]) == list(states[0])
    for key, value in states[0].items():
        np.testing.assert_allclose(states[1][key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@pytest.mark.parametrize("remain_weight", [False, True])
def test_observing_and_converting(paddle, remain_weight):
    results = []
    for module, net in pair(paddle):
        net.eval()
        observer = module.quantization.observers.AbsmaxObserver(quant_bits=8)
        ptq = module.quantization.PTQ(module.quantization.QuantConfig(observer, observer))
        watching = ptq.quantize(net)
        plain = [net(module.to_tensor(x)).numpy() for x in batches()]
        seen = [watching(module.to_tensor(x)).numpy() for x in batches()]
        np.testing.assert_array_equal(plain[0], seen[0])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Paddle copies scales with to_tensor
            fixed = ptq.convert(watching, remain_weight=remain_weight)
        out = [fixed(module.to_tensor(x)).numpy() for x in batches()]
        results.append((out, {k: v.numpy() for k, v in fixed.state_dict().items()}))
    (expected, theirs), (found, mine) = results
    assert list(mine) == list(theirs)
    for key, value in theirs.items():
        np.testing.assert_allclose(mine[key], value, rtol=1e-5, atol=1e-6, err_msg=key)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    if not remain_weight:
        assert np.array_equal(mine["4.weight"], np.rint(mine["4.weight"]))


def test_a_trained_network_converts():
    fake = Q.quanters.FakeQuanterWithAbsMaxObserver()
    qat = Q.QAT(Q.QuantConfig(activation=fake, weight=fake))
    model = qat.quantize(network(bireme))
    x = bireme.to_tensor(batches()[0])
    for _ in range(40):
        model(x)
    model.eval()
    fixed = qat.convert(model)
    np.testing.assert_allclose(fixed(x).numpy(), model(x).numpy(), atol=0.02)
    assert "QuantedLinear" in repr(fixed)


def test_configurations(paddle):
    for module in (paddle, bireme):
        space = module.quantization
        fake = space.quanters.FakeQuanterWithAbsMaxObserver()
        net = network(module)
        config = space.QuantConfig(activation=None, weight=None)
        config.add_type_config(module.nn.Linear, weight=fake)
        config.add_layer_config(net[0], activation=fake, weight=fake)
        model = space.QAT(config).quantize(net)
        assert type(model[0]).__name__ == "QuantedConv2D"
        assert model[0].activation_quanter is not None
        assert type(model[1]).__name__ == "ReLU"
        assert model[4].activation_quanter is None
        assert model[4].weight_quanter is not None
        assert type(net[0]).__name__ == "Conv2D"  # a copy was changed
        assert config.global_config is None
    with pytest.raises(BiremeError, match="must be a subclass"):
        Q.QuantConfig(None, None).add_type_config(3)


def test_a_quanter_of_ones_own():
    @Q.quanter("Halver")
    class HalverLayer(Q.BaseQuanter):
        def __init__(self, layer, factor=2.0):
            super().__init__()
            self.factor = factor

        def forward(self, input):
            return input / self.factor

        def scales(self):
            return bireme.to_tensor(1.0)

        def zero_points(self):
            return None

        def quant_axis(self):
            return -1

        def bit_length(self):
            return 8

    factory = globals()["Halver"]
    net = bireme.nn.Sequential(bireme.nn.Linear(3, 3))
    model = Q.QAT(Q.QuantConfig(factory(factor=4.0), None)).quantize(net)
    x = bireme.ones([1, 3])
    np.testing.assert_allclose(model(x).numpy(), net(x / 4).numpy(), rtol=1e-6)
    assert repr(factory(factor=4.0)) == "Halver(factor=4.0)"


def test_modes_are_checked():
    net = network(bireme)
    config = Q.QuantConfig(Q.observers.AbsmaxObserver(), None)
    with pytest.raises(BiremeError, match=r"model.eval\(\)"):
        Q.PTQ(config).quantize(net)
    net.eval()
    with pytest.raises(BiremeError, match=r"model.train\(\)"):
        Q.QAT(config).quantize(net)


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [-1, 64])
@pytest.mark.parametrize("algo", ["weight_only_int8", "weight_only_int4"])
def test_weights_quantize(both_tiers, algo, group):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(128, 6)).astype("float32")
    bits = 8 if algo.endswith("8") else 4
    most = 127 if bits == 8 else 7
    parts = weight.reshape(-1, 128 if group < 0 else group, 6)
    scale = np.abs(parts).max(1) / most

    def work():
        q, s = bireme_quant.weight_quantize(bireme.to_tensor(weight), algo, group_size=group)
        back = bireme_quant.weight_dequantize(q, s, algo, "float32", group)
        x = bireme.to_tensor(rng.normal(size=(2, 5, 128)).astype("float32"))
        bias = bireme.ones([6])
        y = bireme_quant.weight_only_linear(x, q, bias, s, f"int{bits}", group_size=group)
        assert y.shape == [2, 5, 6]
        np.testing.assert_allclose(y.numpy(), (x @ back + bias).numpy(), rtol=1e-4, atol=1e-4)
        return q, s, back

    q, s, back = both_tiers(work)
    assert q.shape == (6 if bits == 8 else 3, 128)
    np.testing.assert_allclose(s, scale[0] if group < 0 else scale, rtol=1e-6)
    error = np.abs(back - weight).reshape(parts.shape)
    assert (error <= scale[:, None] * 0.5001).all()


def test_scales_are_paddles(paddle):
    weight = np.random.default_rng(0).normal(size=(128, 32)).astype("float16")
    for group in (-1, 64):
        _, expected = paddle.nn.quant.weight_quantize(
            paddle.to_tensor(weight), "weight_only_int8", 70, group
        )
        q, found = bireme_quant.weight_quantize(
            bireme.to_tensor(weight), "weight_only_int8", 70, group
        )
        assert (q.shape, q.dtype.name) == ([32, 128], "int8")
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=2e-3)


def test_weight_only_linear_passes_gradients():
    rng = np.random.default_rng(0)
    q, s = bireme_quant.weight_quantize(bireme.to_tensor(rng.normal(size=(8, 4)).astype("float32")))
    x = bireme.to_tensor(rng.normal(size=(3, 8)).astype("float32"), stop_gradient=False)
    bireme_quant.weight_only_linear(x, q, weight_scale=s).sum().backward()
    back = bireme_quant.weight_dequantize(q, s, out_dtype="float32")
    np.testing.assert_allclose(x.grad.numpy(), np.tile(back.numpy().sum(1), (3, 1)), rtol=1e-5)


def test_llm_int8_linear(both_tiers):
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(64, 5)).astype("float32")
    x = rng.normal(size=(3, 4, 64)).astype("float32")
    x[..., 7] *= 40  # an outlier feature: exact, and no burden on the others' scale

    def work():
        q, s = bireme_quant.weight_quantize(bireme.to_tensor(weight), "llm.int8")
        return bireme_quant.llm_int8_linear(bireme.to_tensor(x), q, bireme.ones([5]), s)

    found = both_tiers(work, rtol=1e-4, atol=1e-4)
    expected = x @ weight + 1
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


def test_groupwise_observer(paddle):
    weight = np.random.default_rng(0).normal(size=(128, 6)).astype("float32")
    weight[:64, 2] = 0
    scales = []
    for module in (paddle, bireme):
        observer = module.quantization.observers.groupwise if module is paddle else None
        make = observer.GroupWiseWeightObserverLayer if observer else (
            lambda layer, **k: Q.observers.GroupWiseWeightObserver(**k)._instance(layer)
        )  # fmt: skip
        layer = make(None, quant_bits=8, group_size=64)
        layer(module.to_tensor(weight))
        scales.append(layer.scales().numpy())
    np.testing.assert_array_equal(scales[0], scales[1])
    net = bireme.nn.Sequential(bireme.nn.Linear(128, 6))
    net.eval()
    config = Q.QuantConfig(None, Q.observers.GroupWiseWeightObserver(group_size=64))
    ptq = Q.PTQ(config)
    watching = ptq.quantize(net)
    x = bireme.to_tensor(np.random.default_rng(1).normal(size=(2, 128)).astype("float32"))
    plain = watching(x).numpy()
    np.testing.assert_allclose(ptq.convert(watching)(x).numpy(), plain, atol=0.05)


def test_bad_arguments():
    weight = bireme.ones([8, 4])
    q, s = bireme_quant.weight_quantize(weight)
    for match, wrong in (
        ("algo must be", lambda: bireme_quant.weight_quantize(weight, "int3")),
        ("group_size must be", lambda: bireme_quant.weight_quantize(weight, group_size=32)),
        ("groups of 64", lambda: bireme_quant.weight_quantize(weight, group_size=64)),
        ("odd number", lambda: bireme_quant.weight_quantize(weight[:, :3], "weight_only_int4")),
        ("weight_scale", lambda: bireme_quant.weight_only_linear(bireme.ones([1, 8]), q)),
        ("int8, as weight", lambda: bireme_quant.weight_dequantize(weight, s)),
        ("features", lambda: bireme_quant.llm_int8_linear(bireme.ones([1, 9]), q, None, s)),
    ):  # fmt: skip
        with pytest.raises(BiremeError, match=match):
            wrong()


def test_what_a_configuration_says_about_layers():
    net = bireme.nn.Sequential(
        bireme.nn.Conv2D(1, 2, 3), bireme.nn.ReLU(), bireme.nn.Sequential(bireme.nn.Linear(2, 2))
    )
    observer = Q.quanters.FakeQuanterWithAbsMaxObserver()
    config = Q.QuantConfig(activation=None, weight=None)
    config.add_layer_config([net[2]], activation=observer, weight=None)
    config.add_customized_leaf(bireme.nn.Sequential)
    config._specify(net)
    assert [config._is_quantifiable(layer) for layer in net] == [False, False, True]
    assert config._get_config_by_layer(net[2][0]).activation is observer
    assert [config._is_leaf(layer) for layer in (*net, net[2][0])] == [True] * 4
    assert config._is_customized_leaf(net[2])
    assert config._is_default_leaf(net[1])
    assert isinstance(config._get_observer(net[2]), Q.BaseQuanter)
    assert config._get_observer(net[0]) is None
    assert not config._need_observe(net[0])


@pytest.mark.parametrize("bits", [(4, 3), (5, 2)])
def test_small_floats(paddle, bits):
    x, scale = np.random.default_rng(0).normal(size=(4, 3)).astype("float32"), np.float32([1, 2, 3])
    out = []
    for lib in (paddle, bireme):
        form = lib.nn.quant.format
        options = {"zero_point": np.zeros(3, "float32"), "quant_axis": 1, "bit_length": bits}
        small = form.LinearQuanter(scale, **options)(lib.to_tensor(x))
        out.append((small.numpy(), form.LinearDequanter(scale, **options)(small).numpy()))
    np.testing.assert_allclose(out[1], out[0], rtol=1e-6)
