"""Programs for many sizes against the same function for each size. The padding holds what would
show if it were read: numbers that are not finite, and indices out of range."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from bireme.capture import padded

LOW, HIGH = 3, 12
SIZES = padded.SizeRange("n", LOW, HIGH)


def poisoned(x: np.ndarray, extents: tuple[int, ...]) -> np.ndarray:
    """`x` in the corner of an array of these sizes."""
    wide = np.full(extents, np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).max, x.dtype)
    wide[tuple(slice(n) for n in x.shape)] = x
    return wide


def check(function: Callable[..., Any], *shapes: Any, ints: int | None = None) -> None:
    """`function` of inputs of these shapes ('n' is open; a second item in a shape's dict is its
    dtype) for several sizes."""
    (n,) = export.symbolic_shape("n", scope=export.SymbolicScope([f"n>={LOW}", f"n<={HIGH}"]))

    def resolved(shape: Any, size: Any) -> tuple[Any, ...]:
        return tuple([d if isinstance(d, int) else d(size) for d in shape])

    dtypes = [np.int32 if isinstance(s, list) else np.float32 for s in shapes]
    types = [jax.ShapeDtypeStruct(resolved(s, n), d) for s, d in zip(shapes, dtypes, strict=True)]
    traced = jax.jit(function).trace(*types)
    wide_shapes = [tuple(SIZES.extent(d) for d in t.shape) for t in types]

    @jax.jit
    def wide(size: Any, *inputs: Any) -> list[Any]:
        jaxpr = traced.jaxpr
        return padded.run(jaxpr.jaxpr, jaxpr.consts, padded.Sizes(SIZES, size), inputs)

    rng = np.random.default_rng(0)
    for size in (LOW, 7, 8, HIGH):
        inputs = []
        for s, d in zip(shapes, dtypes, strict=True):
            shape = resolved(s, size)
            is_index = d == np.int32
            drawn = rng.integers(0, ints or size, shape) if is_index else rng.normal(size=shape)
            inputs.append(drawn.astype(d))
        exact = jax.tree.leaves(jax.jit(function)(*inputs))
        corners = [poisoned(x, w) for x, w in zip(inputs, wide_shapes, strict=True)]
        found = wide(np.int32(size), *corners)
        for want, have in zip(exact, found, strict=True):
            part = np.asarray(have)[tuple(slice(d) for d in want.shape)]
            np.testing.assert_allclose(part, want, rtol=2e-5, atol=1e-5)


N = lambda n: n  # noqa: E731


def attention(q: Any) -> Any:
    scores = jnp.einsum("bqd,bkd->bqk", q, q) / np.sqrt(q.shape[-1])
    causal = jnp.tril(jnp.ones((q.shape[1], q.shape[1]), bool))
    return jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1) @ q


CASES: dict[str, tuple[Any, ...]] = {
    "sums": (
        lambda x: (x.sum(1), x.mean(), x.max(1), x.min((0, 1)), x.prod(1), x.std(1)),
        (4, N, 3),
    ),
    "places": (lambda x: (x.argmax(1), x.argmin(1), (x > 0).any(1), (x > 9).all(1)), (4, N, 3)),
    "running": (
        lambda x: (
            jnp.cumsum(x, 1),
            lax.cumsum(x, 1, reverse=True),
            lax.cummax(x, 1, reverse=True),
        ),
        (4, N, 3),
    ),
    "products": (lambda x, w: (x @ w, jnp.einsum("bnd,bne->de", x, x)), (4, N, 3), (3, 5)),
    "attention": (jax.grad(lambda q: (attention(q) ** 2).sum()), (2, N, 4)),
    "joined axes": (
        lambda x: (x.reshape(-1, 3) * 2, x.reshape(4, -1), x.reshape(-1), x.reshape(2, 2, -1, 3)),
        (4, N, 3),
    ),
    "split axes": (
        lambda x: (x.reshape(4, -1, 3).sum(1), x.reshape(2, 2, -1)),
        (lambda n: 4 * n, 3),
    ),
    "last axes": (lambda x: x.reshape(3, -1).sum(1), (3, 2, N)),
    "squares": (lambda x: x.reshape(-1).cumsum().reshape(x.shape), (N, N)),
    "parts": (
        lambda x: (x[:, 1:], x[:, :-1], x[:, -1], x[:, ::2], x[:, ::-1], x[:, -3:], x[:, 1:-1]),
        (4, N, 3),
    ),
    "parts written": (
        lambda x: (x.at[:, 1:].set(7.0), x.at[:, :-1].add(1.0), x.at[:, -1].set(0.0)),
        (4, N, 3),
    ),
    "joined": (
        lambda x, y: (
            jnp.concatenate([x, y], 1),
            jnp.concatenate([y, x, x], 1),
            jnp.pad(x, ((0, 0), (2, 3), (0, 0))),
        ),
        (4, N, 3),
        (4, 2, 3),
    ),
    "padded to a whole": (
        lambda x: jnp.pad(x, ((0, 0), (0, HIGH - x.shape[1])), constant_values=2.0),
        (4, N),
    ),
    "rows of a table": (
        jax.grad(lambda w, ids: (w[ids] ** 2).sum() + w[ids[:, 1:]].sum()),
        (9, 3),
        [4, N],
        9,
    ),
    "rows of an open table": (
        lambda x, ids: (jnp.take_along_axis(x, ids, 1), x[jnp.arange(4)[:, None], ids]),
        (4, N),
        [4, 5],
    ),
    "open rows of an open table": (
        lambda x, ids: (x[ids], jnp.zeros(x.shape).at[ids].add(x)),
        (N, 3),
        [N],
    ),
    "written rows": (lambda w, ids: w.at[ids].set(5.0), (9, 3), [N], 9),
    "sorted": (
        lambda x: (jnp.sort(x, 1), jnp.argsort(x, 1), lax.top_k(jnp.swapaxes(x, 1, 2), 2)),
        (4, N, 3),
    ),
    "median": (lambda x: jnp.take(jnp.sort(x), jnp.asarray(x.shape[0]) // 2), (N,)),
    "convolution": (
        jax.grad(
            lambda w, x: (lax.conv_general_dilated(x, w, (2,), [(1, 1)]) ** 2).sum(),
            (0, 1),
        ),
        (5, 3, 3),
        (2, 3, lambda n: 2 * n),
    ),
    "images": (
        jax.grad(
            lambda w, x: (
                lax.conv_general_dilated(x, w, (1, 1), "SAME", rhs_dilation=(2, 1)) ** 2
            ).sum(),
            (0, 1),
        ),
        (5, 3, 3, 3),
        (2, 3, N, N),
    ),
    "pooling": (
        lambda x: (
            lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 2), ((0, 0), (1, 1))),
            lax.reduce_window(x, 0.0, lax.add, (1, 3), (1, 1), ((0, 0), (1, 1))),
        ),
        (4, N),
    ),
    "recurrence": (
        jax.grad(
            lambda w, x: lax.scan(
                lambda h, r: (jnp.tanh(h @ w + r), h.sum()),
                jnp.zeros((4, 3)),
                jnp.swapaxes(x, 0, 1),
            )[1].sum(),
            (0, 1),
        ),
        (3, 3),
        (4, N, 3),
    ),
    "a loop": (
        lambda x: lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + s[1].sum()), (0, x)
        )[1],
        (N,),
    ),
    "a branch": (lambda x: lax.cond(x[0] > 0, lambda a: a.sum(), lambda a: a.max(), x), (N,)),
    "its own size": (lambda x: (x / x.shape[0], jnp.arange(x.shape[0]) - x.shape[0]), (N,)),
    "a part at run time": (
        lambda x, k: (
            lax.dynamic_slice(x, (0 * k[0], k[0] + 9), (4, 2)),
            lax.dynamic_update_slice(x, jnp.ones((4, 2), x.dtype), (0 * k[0], k[0])),
        ),
        (4, N),
        [1],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_every_size_gives_what_its_own_program_gives(name: str) -> None:
    function, *shapes = CASES[name]
    ints = shapes.pop() if isinstance(shapes[-1], int) else None
    check(function, *shapes, ints=ints)


def test_what_no_rule_covers_is_refused() -> None:
    with pytest.raises(padded.Unsupported, match="fft"):
        check(lambda x: jnp.fft.rfft(x).real, (4, N))
    with pytest.raises(padded.Unsupported, match="cholesky"):
        check(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(x.shape[0])), (N, N))


def test_an_extent_is_the_largest_size_that_is_met() -> None:
    (n,) = export.symbolic_shape("n")
    assert SIZES.extent(n) == HIGH
    assert SIZES.extent(20 - n) == 20 - LOW
    assert SIZES.extent(n % 5) == 4
    assert SIZES.extent(7) == 7
