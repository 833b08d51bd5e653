"""Penalties added to gradients by hand."""

from __future__ import annotations

import numpy as np
import pytest

import bireme


def test_append_regularization_ops(paddle):
    found = []
    for lib in (paddle, bireme):
        net = lib.nn.Linear(
            3, 2, weight_attr=lib.ParamAttr(regularizer=lib.regularizer.L1Decay(0.3))
        )
        net.weight.set_value(np.linspace(-1, 1, 6, dtype="float32").reshape(3, 2))
        net.bias.set_value(np.ones(2, "float32"))
        optimizer = lib.optimizer.SGD(0.1, parameters=net.parameters())
        pairs = [(p, lib.ones(p.shape)) for p in net.parameters()]
        results = optimizer.append_regularization_ops(pairs, lib.regularizer.L2Decay(0.5))
        found.append([g.numpy() for _, g in results])
        kept = optimizer.append_regularization_ops([(net.bias, None)])
        assert kept[0][1] is None
    for ours, theirs in zip(found[1], found[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("kind", ["L1Decay", "L2Decay"])
@pytest.mark.parametrize("name", ["AdamW", "Lamb", "Adam", "Momentum"])
def test_a_parameters_own_penalty_beside_decoupled_decay(paddle, name, kind):
    found = []
    for lib in (paddle, bireme):
        penalty = getattr(lib.regularizer, kind)(0.3)
        net = lib.nn.Linear(3, 2, weight_attr=lib.ParamAttr(regularizer=penalty))
        net.weight.set_value(np.linspace(-1, 1, 6, dtype="float32").reshape(3, 2))
        net.bias.set_value(np.ones(2, "float32"))
        optimizer = getattr(lib.optimizer, name)(0.1, parameters=net.parameters())
        for i in range(3):
            net(lib.full([2, 3], 0.1 * i)).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
        found.append([p.numpy() for p in net.parameters()])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
