"""The parts of complex tensors share their memory, as in Paddle."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bireme

SCENARIOS: list[Callable[[Any], Any]] = []


def scenario(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    SCENARIOS.append(function)
    return function


def numbers(p: Any) -> Any:
    return p.to_tensor([[1 + 2j, 3 + 4j], [5 + 6j, 7 + 8j]])


@scenario
def write_to_the_real_part(p):
    z = numbers(p)
    r = z.real()
    r[0] = 9.0
    return z.tolist(), r.tolist(), r.strides, r.is_contiguous()


@scenario
def write_to_the_imaginary_part_in_place(p):
    z = numbers(p)
    p.imag(z).multiply_(p.to_tensor(10.0).astype(z.imag().dtype))
    return z.tolist(), z.imag().strides


@scenario
def write_to_the_number(p):
    z = numbers(p)
    r, i, pairs = z.real(), z.imag(), p.as_real(z)
    z[1, 0] = 0.5 - 1j
    return r.tolist(), i.tolist(), pairs.tolist()


@scenario
def write_to_pairs(p):
    z = numbers(p)
    pairs = p.as_real(z)
    pairs[0, 1] = 0.0
    return z.tolist(), pairs.strides, pairs.is_contiguous()


@scenario
def write_to_the_complex_view_of_pairs(p):
    x = p.to_tensor([[1.0, 2.0], [3.0, 4.0]])
    z = p.as_complex(x)
    z[1] = -1 + 1j
    return x.tolist(), z.strides, z.is_contiguous()


@scenario
def write_through_a_slice_of_a_part(p):
    z = numbers(p)
    z.real()[:, 1].add_(p.to_tensor([100.0, 200.0]).astype(z.real().dtype))
    return z.tolist()


@scenario
def gradient_through_a_part(p):
    z = numbers(p)
    z.stop_gradient = False
    (p.real(z) ** 2 + 3 * p.imag(z)).sum().backward()
    return z.grad.tolist()


@scenario
def leaf_changed_through_a_part_under_no_grad(p):
    z = numbers(p)
    z.stop_gradient = False
    with p.no_grad():
        z.real().zero_()
    return z.tolist()


@scenario
def parts_that_are_infinite(p):
    z = p.complex(p.to_tensor([np.inf, 1.0]), p.to_tensor([2.0, -np.inf]))
    pairs = p.to_tensor([[np.inf, 1.0], [0.0, -np.inf]])
    return z.real().tolist(), z.imag().tolist(), p.as_real(p.as_complex(pairs)).tolist()


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda f: f.__name__)
def test_equals_paddle(run: Callable[[Any], Any], paddle: Any, tier: str) -> None:
    assert inspect.isfunction(run)
    theirs, ours = run(paddle), run(bireme)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, bool):
            assert a == b
        else:
            np.testing.assert_allclose(np.array(a), np.array(b))
