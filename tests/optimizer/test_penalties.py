"""Penalties added to gradients by hand."""

from __future__ import annotations

import numpy as np

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
