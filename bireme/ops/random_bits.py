"""Random bits: a hash of a key and of each element's position, the same in NumPy and in JAX.

A seeded program gives the same numbers whether it was compiled, flushed or replayed, and a backward
pass can recompute a mask instead of keeping it. XLA's own generators cost up to 40 % of a training
step with dropout on a CPU; this hash costs a few per cent. It is not cryptographic: never use it
for secrets.

All functions work on arrays of at least one dimension, where NumPy's unsigned integers wrap
silently. The multipliers and shifts of `_mix` and `_remix` are the low-bias constants found by the
public "hash prospector" search.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bireme.host.arrays import Array, Namespace

_CHUNK = 1 << 15  # elements that NumPy hashes at a time: the temporaries stay in cache

_ADD = np.uint32(0x9E3779B9)
_M1, _M2 = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)
_M3, _M4, _M5 = np.uint32(0xED5AD4BB), np.uint32(0xAC4C1B51), np.uint32(0x31848BAB)
_S11, _S14, _S15, _S16, _S17 = (
    np.uint32(11),
    np.uint32(14),
    np.uint32(15),
    np.uint32(16),
    np.uint32(17),
)


def _mix(x: Any) -> Any:
    """A bijection of uint32 in which every input bit flips about half of the output bits."""
    x = (x ^ (x >> _S16)) * _M1
    x = (x ^ (x >> _S15)) * _M2
    return x ^ (x >> _S16)


def _remix(x: Any) -> Any:
    """A slower and stronger bijection of the same kind."""
    x = (x ^ (x >> _S17)) * _M3
    x = (x ^ (x >> _S11)) * _M4
    x = (x ^ (x >> _S15)) * _M5
    return x ^ (x >> _S14)


def _words(xp: Any, number: Any) -> tuple[Any, Any]:
    """The low and the high half of an int64, of shape [1], or of each of several."""
    number = xp.asarray(number, dtype=np.int64)
    number = number if number.ndim else number.reshape((1,))
    low = number.astype(np.uint32)
    return low, (number >> np.int64(32)).astype(np.uint32)


def key_words(
    xp: Namespace, seed: Array | int, offset: Array | int, word: int
) -> tuple[Any, Any, Any]:
    """Three well mixed uint32 of shape [1] from everything that names a stream."""
    s0, s1 = _words(xp, seed)
    o0, o1 = _words(xp, offset)
    k = _remix(s0 + _ADD)
    keys = []
    for part in (s1, o0, o1, np.uint32(word + 1), np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)):
        k = _remix((k ^ part) + _ADD)
        keys.append(k)
    return keys[-3], keys[-2], keys[-1]


def _hash(index: Any, key: tuple[Any, Any, Any]) -> Any:
    """The bits at positions `index`. Keys enter before, between and after the two bijections, so
    streams are not shifts of one another; adding the middle makes the whole no bijection, since
    independent draws do repeat."""
    k0, k1, k2 = key
    middle = _mix(index ^ k0)
    return _remix(middle + k1) ^ (middle + k2)


def bits(
    xp: Namespace, seed: Array | int, offset: Array | int, shape: tuple[Any, ...], word: int = 0
) -> Any:
    """Uniform uint32 of `shape`. Different `word`s of one key are independent of each other."""
    own = getattr(type(xp), "random_bits", None)  # the same hash in native code
    if own is not None:
        return own(seed, offset, shape, word)
    size: Any = 1
    for d in shape:
        size = size * d
    key = key_words(xp, seed, offset, word)
    if xp is np:
        flat = np.empty(size, np.uint32)
        for at in range(0, size, _CHUNK):
            index = np.arange(at, min(at + _CHUNK, size), dtype=np.uint64)
            block = np.array([at >> 32], np.uint32)
            flat[at : at + _CHUNK] = _hash(index.astype(np.uint32), _block_key(key, block))
        return flat.reshape(shape)
    if type(size) is int and size > 2**32:
        index = xp.arange(size, dtype=np.uint64)
        key = _block_key(key, (index >> np.uint64(32)).astype(np.uint32))
        return _hash(index.astype(np.uint32), key).reshape(shape)
    return _hash(xp.arange(size, dtype=np.uint32), key).reshape(shape)


def _block_key(key: tuple[Any, Any, Any], block: Any) -> tuple[Any, Any, Any]:
    """Every 2^32 elements form a block with a key of its own; block 0 has the key itself, so
    that ordinary sizes need no 64-bit arithmetic."""
    k0, k1, k2 = key
    tweak = _remix(block)
    return k0 ^ tweak, k1 + tweak * _M3, k2 ^ _mix(tweak)


def uniform(
    xp: Namespace,
    seed: Array | int,
    offset: Array | int,
    shape: tuple[Any, ...],
    dtype: type | np.dtype[Any] = np.float32,
) -> Any:
    """Uniform floats in [0, 1): every multiple of 2^-p with p the type's precision in bits."""
    dtype = np.dtype(dtype)
    high = bits(xp, seed, offset, shape)
    if dtype == np.float64:
        low = bits(xp, seed, offset, shape, word=1)
        whole = (high >> np.uint32(5)).astype(dtype) * 67108864.0 + (low >> np.uint32(6)).astype(
            dtype
        )
        return whole * 2.0**-53
    precision = {"float32": 24, "float16": 11, "bfloat16": 8}.get(dtype.name, 3)

    def unit(xp: Namespace, high: Any) -> Any:
        whole = (high >> np.uint32(32 - precision)).astype(np.float32)
        return whole * np.float32(2.0**-precision)

    if xp is np:
        return _in_chunks(shape, high, unit).astype(dtype, copy=False)
    return unit(xp, high).astype(dtype)


def uniform_rows(xp: Namespace, seeds: Array, count: int) -> Array:
    """Uniform float32 [rows, count] in [0, 1), each row by a seed of its own."""
    key = key_words(xp, seeds.reshape((-1, 1)), 0, 0)
    draws = _hash(xp.arange(count, dtype=np.uint32)[None], key)
    return (draws >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normal(
    xp: Namespace,
    seed: Array | int,
    offset: Array | int,
    shape: tuple[Any, ...],
    dtype: type | np.dtype[Any] = np.float32,
) -> Any:
    """Standard normal floats, by inversion. `bits` agree exactly between NumPy and XLA; here the
    logarithm may differ in its last place."""
    dtype = np.dtype(dtype)
    if dtype == np.float64:
        return _normal64(xp, seed, offset, shape)
    if xp is np:
        return _in_chunks(shape, bits(np, seed, offset, shape), _normal32).astype(dtype, copy=False)
    return _normal32(xp, bits(xp, seed, offset, shape)).astype(dtype)


def _in_chunks(shape: tuple[Any, ...], draws: np.ndarray, function: Any) -> np.ndarray:
    """float32 numbers from `draws`, in whose memory they are: a large table is there once."""
    flat = draws.reshape(-1)
    result = flat.view(np.float32)
    for at in range(0, flat.size, _CHUNK):
        result[at : at + _CHUNK] = function(np, flat[at : at + _CHUNK])
    return result.reshape(shape)


_f32 = np.float32

# Polynomials of M. Giles, "Approximating the erfinv function" (single precision).
_CENTRAL = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _normal32(xp: Any, draws: Any) -> Any:
    """One float32 normal per word: 24 bits for the tail's probability, one for the sign.

    Starting from the tail's probability p rather than from 1 - 2p keeps the far tail exact.
    """
    p = ((draws >> np.uint32(8)).astype(np.float32) + _f32(0.5)) * _f32(2.0**-25)
    w = -xp.log(_f32(4) * p * (_f32(1) - p))
    central = w < _f32(5)
    t = xp.where(central, w - _f32(2.5), xp.sqrt(w) - _f32(3))
    value = xp.where(central, _f32(_CENTRAL[0]), _f32(_TAIL[0]))
    for a, b in zip(_CENTRAL[1:], _TAIL[1:], strict=True):
        value = value * t + xp.where(central, _f32(a), _f32(b))
    sign = _f32(1) - _f32(2) * (draws & np.uint32(1)).astype(np.float32)
    return sign * (_f32(1) - _f32(2) * p) * value * _f32(1.4142135623730951)


def _normal64(xp: Any, seed: Any, offset: Any, shape: tuple[Any, ...]) -> Any:
    u = uniform(xp, seed, offset, shape, np.float64) + 2.0**-54
    if xp is np:
        from scipy.special import ndtri

        return ndtri(u)
    from bireme.host import jax_door

    return jax_door.jax().scipy.special.ndtri(u)
