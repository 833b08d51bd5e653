"""Beam search, adaptive softmax, the transducer's loss and SyncBatchNorm against Paddle."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError


def twins(paddle, build):
    """Paddle's layer and ours with the same random weights."""
    real, ours = build(paddle), build(bireme)
    rng = np.random.default_rng(0)
    weights = {
        k: rng.uniform(0.2, 1.0, v.shape).astype("float32") if "variance" in k
        else rng.normal(size=v.shape).astype("float32")
        for k, v in real.state_dict().items()
    }  # fmt: skip
    assert list(ours.state_dict()) == list(weights)
    real.set_state_dict(weights)
    ours.set_state_dict(weights)
    return (paddle, real), (bireme, ours)


class _Parts:
    def __init__(self, module):
        class Net(module.nn.Layer):
            def __init__(self):
                super().__init__()
                self.embed = module.nn.Embedding(9, 6)
                self.cell = module.nn.GRUCell(6, 5)
                self.out = module.nn.Linear(5, 9)

        self.net = Net()


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("beams", [1, 4])
def test_beam_search(paddle, beams, time_major):
    results = []
    start = np.random.default_rng(1).normal(size=(3, 5)).astype("float32")
    for module, net in twins(paddle, lambda m: _Parts(m).net):
        decoder = module.nn.BeamSearchDecoder(
            net.cell, start_token=0, end_token=1, beam_size=beams, embedding_fn=net.embed,
            output_fn=net.out,
        )  # fmt: skip
        outputs, states, lengths = module.nn.dynamic_decode(
            decoder, module.to_tensor(start), max_step_num=7, output_time_major=time_major,
            return_length=True,
        )  # fmt: skip
        results.append((outputs, states.log_probs, states.finished, lengths, states.cell_states))
    for theirs, mine in zip(*results, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)
        assert mine.dtype.name == str(theirs.dtype).removeprefix("paddle.")
    tiled = [
        m.nn.BeamSearchDecoder.tile_beam_merge_with_batch(m.to_tensor(start), 2).numpy()
        for m in (paddle, bireme)
    ]
    np.testing.assert_array_equal(*tiled)


@pytest.mark.parametrize("impute", [False, True])
def test_a_decoder_of_ones_own(paddle, impute):
    """Counts down from each start; a sequence ends at zero."""
    base = importlib_decoder(paddle)
    results = []
    for module in (paddle, bireme):

        class CountDown(base if module is paddle else object):
            tracks_own_finished = False

            def initialize(self, inits):
                return inits, inits, inits[:, 0] <= 0

            def step(self, time, inputs, states, **kwargs):
                after = states - kwargs["by"]
                return after * 10, after, after, after[:, 0] <= 0

        start = module.to_tensor(np.array([[1.0], [3.0], [2.0]], "float32"))
        out = module.nn.dynamic_decode(
            CountDown(), start, impute_finished=impute, return_length=True, by=1.0
        )
        results.append([o.numpy() for o in out])
    for theirs, mine in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def importlib_decoder(paddle):
    import importlib

    return importlib.import_module("paddle.nn.decode").Decoder


def test_bad_beams():
    with pytest.raises(BiremeError, match="beam_size must be positive"):
        bireme.nn.BeamSearchDecoder(None, 0, 1, 0)


@pytest.mark.parametrize("bias", [False, True])
def test_adaptive_softmax(paddle, bias):
    x = np.random.default_rng(2).normal(size=(6, 8)).astype("float32")
    label = np.array([0, 3, 5, 9, 11, 2])
    results = []
    pair = twins(
        paddle,
        lambda m: m.nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 7], div_value=2.0, head_bias=bias),
    )
    for module, layer in pair:
        rng = np.random.default_rng(3)
        for both in layer.tail_weights:
            for weight in both:
                weight.set_value(module.to_tensor(rng.normal(size=weight.shape).astype("float32")))
        given = module.to_tensor(x, stop_gradient=False)
        out, loss = layer(given, module.to_tensor(label))
        loss.backward()
        results.append(
            [out, loss, given.grad, layer.log_prob(given), layer.predict(given).astype("int64")]
        )
    for theirs, mine in zip(*results, strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-5)
    for wrong in ([], [3, 3], [7, 3], [12], [0, 4], [2.5]):
        with pytest.raises(BiremeError, match="increasing integers"):
            bireme.nn.AdaptiveLogSoftmaxWithLoss(8, 12, wrong)


def test_transducer_loss_layer():
    rng = np.random.default_rng(0)
    x = bireme.to_tensor(rng.normal(size=(2, 4, 3, 5)).astype("float32"))
    label = bireme.to_tensor(np.array([[1, 2], [3, 1]], "int32"))
    sizes = [bireme.to_tensor(np.array(v, "int32")) for v in ([4, 3], [2, 1])]
    found = bireme.nn.RNNTLoss(reduction="sum", fastemit_lambda=0.0)(x, label, *sizes)
    expected = bireme.nn.functional.rnnt_loss(
        x, label, *sizes, reduction="sum", fastemit_lambda=0.0
    )
    np.testing.assert_allclose(found.numpy(), expected.numpy())


@pytest.mark.filterwarnings("ignore:When training, we now always track")
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (2, 3, 4, 4), (2, 3, 2, 2, 2)])
def test_sync_batch_norm(paddle, shape):
    """On one process Paddle's own batch norm of that rank is the oracle."""
    rank = {2: 1, 3: 1, 4: 2, 5: 3}[len(shape)]
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    real = getattr(paddle.nn, f"BatchNorm{rank}D")(3)
    ours = bireme.nn.SyncBatchNorm(3)
    assert list(ours.state_dict()) == list(real.state_dict())
    expected, found = real(paddle.to_tensor(x)), ours(bireme.to_tensor(x))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ours._mean.numpy(), real._mean.numpy(), rtol=1e-5, atol=1e-6)


def test_networks_become_synchronous():
    nn = bireme.nn
    net = nn.Sequential(nn.Conv2D(3, 4, 3), nn.BatchNorm2D(4), nn.Sequential(nn.BatchNorm2D(4)))
    weight = net[1].weight
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert type(made[1]) is nn.SyncBatchNorm
    assert type(made[2][0]) is nn.SyncBatchNorm
    assert made[1].weight is weight
    assert nn.SyncBatchNorm.convert_sync_batchnorm(made)[1] is made[1]
