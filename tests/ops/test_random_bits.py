"""The random bits: equal in both tiers, and statistically sound."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bireme.core import random as rng
from bireme.host import jax_door
from bireme.ops import random_bits

N = 1 << 18
KEYS = [(0, 0), (0, 1), (1, 0), (42, 7), (-1, 3), (2**40 + 1, 2**33)]


def _bits(seed, offset, n=N, word=0):
    return random_bits.bits(np, seed, offset, (n,), word)


def _jitted(function, *args):
    jax = jax_door.jax()
    return np.asarray(jax.jit(lambda s, o: function(jax.numpy, s, o, *args))(5, 9))


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5), (40000, 3)])
def test_bits_are_the_same_in_both_tiers(shape):
    assert (_jitted(random_bits.bits, shape) == random_bits.bits(np, 5, 9, shape)).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_uniform_is_the_same_in_both_tiers(dtype):
    expected = random_bits.uniform(np, 5, 9, (1000, 11), dtype)
    assert expected.dtype == dtype
    assert (_jitted(random_bits.uniform, (1000, 11), dtype) == expected).all()
    assert (expected >= 0).all()
    assert (expected < 1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_normal_is_the_same_in_both_tiers(dtype):
    expected = random_bits.normal(np, 5, 9, (1000, 11), dtype)
    assert expected.dtype == dtype
    np.testing.assert_allclose(_jitted(random_bits.normal, (1000, 11), dtype), expected, atol=2e-6)


def test_symbolic_dimensions():
    jax = jax_door.jax()
    (n,) = jax.export.symbolic_shape("n")
    spec = jax.ShapeDtypeStruct((n, 3), np.float32)
    made = jax.export.export(jax.jit(lambda x: random_bits.bits(jax.numpy, 5, 9, x.shape)))(spec)
    got = np.asarray(made.call(np.zeros((4, 3), np.float32)))
    assert (got == random_bits.bits(np, 5, 9, (4, 3))).all()


def test_blocks_beyond_32_bits_have_their_own_key():
    key = random_bits.key_words(np, 1, 2, 0)
    same = random_bits._block_key(key, np.zeros(1, np.uint32))
    other = random_bits._block_key(key, np.ones(1, np.uint32))
    assert all((a == b).all() for a, b in zip(key, same, strict=True))
    index = np.arange(N, dtype=np.uint32)
    _assert_independent(random_bits._hash(index, same), random_bits._hash(index, other))


@pytest.mark.parametrize("key", KEYS)
def test_every_bit_is_balanced(key):
    draws = _bits(*key)
    for bit in range(32):
        ones = int(((draws >> np.uint32(bit)) & 1).sum())
        assert abs(ones - N / 2) < 5 * np.sqrt(N) / 2, bit


@pytest.mark.parametrize("key", KEYS)
def test_bytes_pass_chi_square(key):
    octets = _bits(*key).view(np.uint8).reshape(-1, 4)
    for lane in range(4):
        p = stats.chisquare(np.bincount(octets[:, lane], minlength=256)).pvalue
        assert 1e-5 < p < 1 - 1e-5, lane


@pytest.mark.parametrize("lag", [1, 2, 3, 64, 128, 4096])
def test_serial_correlation(lag):
    draws = _bits(3, 4)
    _assert_independent(draws[:-lag], draws[lag:])


def test_pairs_of_successive_bytes_pass_chi_square():
    top = (_bits(8, 1, 1 << 20) >> np.uint32(24)).astype(np.int64)
    p = stats.chisquare(np.bincount(top[0::2] * 256 + top[1::2], minlength=65536)).pvalue
    assert 1e-5 < p < 1 - 1e-5


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((0, 0), (0, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0)), ((7, 100), (7, 101)),
        ((1, 2), (2, 1)), ((0, 0), (2**32, 0)), ((0, 0), (0, 2**32)), ((5, 5), (-5, 5)),
    ],
)  # fmt: skip
def test_streams_are_independent(a, b):
    _assert_independent(_bits(*a), _bits(*b))


def test_words_of_one_key_are_independent():
    _assert_independent(_bits(1, 1), _bits(1, 1, word=1))


def test_no_structure_across_consecutive_offsets():
    """The same element over many steps is a random sequence too (a dropout mask's pixel)."""
    rows = np.stack([_bits(11, step, 64) for step in range(4096)])
    for column in (0, 1, 31, 63):
        octets = (rows[:, column] >> np.uint32(24)).astype(np.int64)
        assert 1e-5 < stats.chisquare(np.bincount(octets, minlength=256)).pvalue < 1 - 1e-5
        _assert_independent(rows[:-1, column], rows[1:, column])
    flat = rows.reshape(-1)
    spectrum = np.abs(np.fft.rfft(flat / 2**32 - 0.5)[1:]) ** 2
    # Of m exponential peaks the largest is about log(m) times the mean.
    assert spectrum.max() / spectrum.mean() < np.log(spectrum.size) + 12


def test_draws_repeat_as_often_as_chance_says():
    n = 1 << 20
    repeats = n - np.unique(_bits(2, 2, n)).size
    expected = n * n / 2 / 2**32
    assert abs(repeats - expected) < 6 * np.sqrt(expected)


def test_avalanche_of_the_index():
    index = np.arange(1 << 14, dtype=np.uint32)
    key = random_bits.key_words(np, 3, 3, 0)
    before = random_bits._hash(index, key)
    for bit in range(32):
        changed = before ^ random_bits._hash(index ^ np.uint32(1 << bit), key)
        for out in range(32):
            share = ((changed >> np.uint32(out)) & 1).mean()
            assert abs(share - 0.5) < 0.03, (bit, out)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distributions_by_kolmogorov_smirnov(dtype):
    assert stats.kstest(random_bits.uniform(np, 1, 1, (N,), dtype), "uniform").pvalue > 1e-4
    assert stats.kstest(random_bits.normal(np, 1, 1, (N,), dtype), "norm").pvalue > 1e-4


def test_normal_tails():
    z = random_bits.normal(np, 6, 6, (1 << 22,))
    for sigma in (2.0, 3.0, 4.0):
        expected = 2 * stats.norm.sf(sigma) * z.size
        assert abs((np.abs(z) > sigma).sum() - expected) < 5 * np.sqrt(expected)


def test_generator_state():
    g = rng.Generator(5)
    assert [g.next_key(), g.next_key()] == [(5, 0), (5, 1)]
    kept = g.get_state()
    after = [g.next_key() for _ in range(3)]
    g.set_state(kept)
    assert [g.next_key() for _ in range(3)] == after
    assert g.manual_seed(2**63 + 1).next_key() == (-(2**63) + 1, 0)
    with pytest.raises(TypeError, match="Received"):
        rng.Generator("x")
    with pytest.raises(TypeError, match="get_rng_state"):
        rng.set_rng_state(3)


def _assert_independent(a, b):
    n = a.size
    x, y = a / 2**32 - 0.5, b / 2**32 - 0.5
    assert abs((x * y).mean() * 12) < 5 / np.sqrt(n)
    different = np.unpackbits((a ^ b).view(np.uint8)).mean()
    assert abs(different - 0.5) < 5 * 0.5 / np.sqrt(32 * n)
