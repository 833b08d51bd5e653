"""Compare a bireme.nn.functional call with the real paddle: values, gradients, dtypes."""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import paddle

import bireme
import bireme.nn.functional as BF
from bireme.core.stats import RecompileWarning
from bireme.host import config

TIERS = ("never", "always")
PF = paddle.nn.functional


@contextmanager
def tier(mode):
    """Run in one tier: 'never' is the NumPy tier, 'always' the compiled one."""
    keep, config.compile_mode = config.compile_mode, mode
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RecompileWarning)  # one line here runs every op
            yield
    finally:
        config.compile_mode = keep


def rand(*shape, dtype="float32", seed=0, low=-1.0, high=1.0):
    made = np.random.default_rng(seed + sum(shape)).uniform(low, high, shape)
    return made.astype(dtype)


def randint(*shape, high, low=0, seed=0, dtype="int64"):
    return np.random.default_rng(seed + sum(shape)).integers(low, high, shape).astype(dtype)


def _flatten(out):
    return list(out) if isinstance(out, tuple | list) else [out]


def _weight(shape, i):
    return rand(*shape, seed=100 + i) if shape else np.float32(0.7)


def _dtype_name(tensor):
    return str(tensor.dtype).split(".")[-1]


def _is_tensor(value):
    return isinstance(value, np.ndarray)


def call(lib, function, args, kwargs, grads):
    """(results, gradients) as NumPy arrays; `grads` False leaves the backward out."""
    leaves = []

    def lift(value):
        if _is_tensor(value):
            made = lib.to_tensor(value)
            if grads and value.dtype.kind == "f":
                made.stop_gradient = False
                leaves.append(made)
            return made
        if isinstance(value, list) and value and all(map(_is_tensor, value)):
            return [lift(v) for v in value]
        return value

    args = [lift(a) for a in args]
    kwargs = {k: lift(v) for k, v in kwargs.items()}
    outs = _flatten(function(*args, **kwargs))
    if grads:
        floats = [o for o in outs if not o.stop_gradient and "float" in _dtype_name(o)]
        for i, o in enumerate(floats):
            seed = lib.to_tensor(
                np.asarray(_weight(o.shape, i)).astype(str(o.dtype).split(".")[-1])
            )
            o.backward(seed, retain_graph=i + 1 < len(floats))
    found = [None if leaf.grad is None else leaf.grad.numpy() for leaf in leaves]
    return [(_dtype_name(o), o.numpy()) for o in outs], found


def check(name, *args, grads=True, rtol=2e-5, atol=2e-6, tiers=TIERS, ours=None, theirs=None,
          **kwargs):  # fmt: skip
    """Assert that our function gives what paddle gives, in every tier."""
    theirs = theirs or getattr(PF, name)
    ours = ours or getattr(BF, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, want_grads = call(paddle, theirs, args, kwargs, grads)
    for mode in tiers:
        with tier(mode):
            got, got_grads = call(bireme, ours, args, kwargs, grads)
        where = f"{name} ({mode})"
        assert len(got) == len(want), where
        for (got_type, g), (want_type, w) in zip(got, want, strict=True):
            assert got_type == want_type, f"{where}: dtype {got_type}, paddle has {want_type}"
            assert g.shape == w.shape, f"{where}: shape {g.shape}, paddle has {w.shape}"
            np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, err_msg=where)
        for i, (g, w) in enumerate(zip(got_grads, want_grads, strict=True)):
            if w is None:
                continue
            assert g is not None, f"{where}: no gradient for tensor {i}"
            assert g.dtype == w.dtype, where
            np.testing.assert_allclose(
                g, w, rtol=rtol * 5, atol=atol * 5, err_msg=f"{where}: gradient {i}"
            )


def both_tiers(function):
    """`function()` in both tiers must give the same arrays; returns the compiled one's."""
    results = []
    for mode in TIERS:
        with tier(mode):
            results.append([np.asarray(o.numpy()) for o in _flatten(function())])
    for a, b in zip(*results, strict=True):
        # Half precision is rounded after every operation in one tier and once in the other.
        rtol = np.finfo(a.dtype).eps if a.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(a, b, rtol=rtol, atol=2e-6)
    return results[1]
