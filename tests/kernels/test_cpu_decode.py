"""Attention to a cache and RMS norm by native kernels, against their compositions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme as paddle
import bireme.nn.functional as F
from bireme.capture.direct_program import DirectProgram
from bireme.core import dtype as dt
from bireme.core import kernels
from bireme.core.aval import aval
from bireme.kernels import native
from bireme.nn.generation.ops import cache_attend
from tests.kernels.kernel_oracle import MARKS

pytestmark = MARKS


@pytest.fixture(autouse=True)
def there() -> None:
    native.load()


CASES: list[tuple[tuple[int, ...], list[int], dict[str, Any]]] = [
    # batch, rows, heads, groups, size, length, depth
    ((1, 1, 9, 3, 64, 40, 64), [0], {}),
    ((2, 1, 4, 2, 7, 33, 5), [3, 32], {"scale": 0.3}),
    ((1, 3, 4, 4, 16, 20, 16), [11], {"window": 4}),
    ((2, 2, 6, 2, 24, 20, 24), [0, 9], {"cap": 0.5}),
    ((1, 1, 4, 1, 12, 50, 12), [49], {"slopes": (0.5, 0.25, 0.125, 0.1)}),
    ((1, 4, 2, 2, 8, 10, 8), [8], {}),  # over the end: moved back
]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_attention_to_a_cache(case: int, tier: str) -> None:
    (batch, rows, heads, groups, size, length, depth), place, settings = CASES[case]
    rng = np.random.default_rng(case)
    shapes = [
        (batch, rows, heads, size), (batch, rows, groups, size), (batch, rows, groups, depth),
        (batch, length, groups, size), (batch, length, groups, depth),
    ]  # fmt: skip
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    given = [paddle.to_tensor(a) for a in (*arrays, np.array(place))]
    found = [t.numpy() for t in cache_attend(*given, **settings)]
    with kernels.disabled("native_cache_attend"):
        wanted = [t.numpy() for t in cache_attend(*given, **settings)]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6, rtol=1e-5)
    np.testing.assert_array_equal(given[3].numpy(), arrays[3])  # the given cache is unchanged


@pytest.mark.parametrize(("rows", "width"), [(1, 576), (3, 13), (700, 40)])
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm_in_programs_for_inference(rows: int, width: int, weighted: bool) -> None:
    rng = np.random.default_rng(width)
    x = rng.standard_normal((rows, width)).astype(np.float32)
    weight = paddle.to_tensor(rng.standard_normal(width).astype(np.float32)) if weighted else None
    types = [aval(x.shape, dt.float32)]
    before = kernels.uses["native_rms_norm"]
    program = DirectProgram(lambda a: [F.rms_norm(a[0], width, weight, 1e-3)], types, (), "test")
    assert kernels.uses["native_rms_norm"] == before + 1
    found = np.asarray(program.bind()(program.put(x))[0])
    wanted = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-3)
    wanted = wanted * (1 if weight is None else weight.numpy())
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
