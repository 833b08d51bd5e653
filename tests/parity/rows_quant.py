"""Quantisation: rounding to integers and back, with the gradient passed straight through."""

import importlib

import numpy as np

from tests.parity.table import T, case_fn


def _fake(p, x, rate=0.9, bits=8, train=True):
    quanters = importlib.import_module(f"{p.__name__}.quantization.quanters")
    layer = quanters.FakeQuanterWithAbsMaxObserver(rate, bits)._instance(None)
    if not train:
        layer.eval()
    return layer(x)


# The gradient is the incoming one on purpose, which finite differences do not see.
case_fn("fake-quant", _fake, T(4, 5), _finite_difference=False)
case_fn("fake-quant", _fake, T(4, 5), rate=0.5, bits=4, _finite_difference=False)
case_fn("fake-quant", _fake, T(4, 5), train=False, _finite_difference=False)


def _linear(p, x, scales, axis):
    space = importlib.import_module(f"{p.__name__}.nn.quant.format")
    scale, zero = p.to_tensor(np.asarray(scales, "float32")), p.zeros([len(scales)])
    steps = space.LinearQuanter(scale, zero, axis)(x)
    return steps, space.LinearDequanter(scale, zero, axis)(steps)


def _quiet(p, x, scales, axis):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Paddle copies the scales with to_tensor
        return _linear(p, x, scales, axis)


case_fn("quant-linear", _quiet, T(3, 5, grad=False), [1.5], -1)
case_fn("quant-linear", _quiet, T(3, 5, grad=False), [0.5, 1.0, 2.0], 0)
case_fn("quant-linear", _quiet, T(2, 3, 2, grad=False), [0.5, 1.0, 2.0], 1)
