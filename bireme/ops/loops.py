"""Differentiable loops under JAX of any number of iterations.

JAX differentiates loops of a fixed length. A loop that ends when its test fails has no such length,
so its gradient is written here: the forward run counts its iterations, and the backward run
traverses them from the last to the first. It recomputes states from a fixed number of checkpoints,
in two levels: up to `SLOTS` squared iterations every state is computed at most three times, and
beyond that a little more often. Memory does not grow with the count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bireme.host import jax_door

SLOTS = 64

Arrays = list[Any]
Step = Callable[[Any, Arrays, Arrays], Arrays]  # (iteration, carries, constants) -> carries


def while_loop(
    test: Callable[[Any, Arrays, Arrays], Any], step: Step, carries: Arrays, constants: Arrays
) -> tuple[Any, Arrays]:
    """Step while the test holds. Both are given (iteration, carries, constants). Returns the number
    of iterations and the last carries."""
    jax = jax_door.jax()

    @jax.custom_vjp
    def loop(first: Arrays, fixed: Arrays) -> Any:
        def more(now: Any) -> Any:
            return test(now[0], now[1], fixed)

        def turn(now: Any) -> Any:
            return now[0] + 1, step(now[0], now[1], fixed)

        return jax.lax.while_loop(more, turn, (_index(0), first))

    def forward(first: Arrays, fixed: Arrays) -> Any:
        count, last = loop(first, fixed)  # this one, so that a gradient's gradient is ours too
        return (count, last), (first, fixed, count)

    def backward(kept: Any, grads: Any) -> Any:
        first, fixed, count = kept
        return _pull_back(step, first, fixed, count, grads[1])

    loop.defvjp(forward, backward)
    return loop(list(carries), list(constants))


def repeat(step: Step, count: Any, carries: Arrays, constants: Arrays) -> Arrays:
    """Step `count` times, a number that is known only when the program runs."""

    def more(i: Any, _: Arrays, fixed: Arrays) -> Any:
        return i < fixed[-1]

    def turn(i: Any, now: Arrays, fixed: Arrays) -> Arrays:
        return step(i, now, fixed[:-1])

    return while_loop(more, turn, carries, [*constants, count])[1]


def _index(i: int) -> Any:
    return jax_door.jnp().asarray(i, "int64")


def _is_real(x: Any) -> bool:
    """Whether a gradient can flow through it."""
    jnp = jax_door.jnp()
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


def _pull_back(step: Step, first: Arrays, fixed: Arrays, count: Any, grads: Arrays) -> Any:
    """Gradients of the first carries and of the constants, None where there can be none."""
    at = [i for i, x in enumerate(first) if _is_real(x)]
    fixed_at = [i for i, x in enumerate(fixed) if _is_real(x)]
    found = _reverse(step, at, fixed_at, first, fixed, count, [grads[i] for i in at])
    here = dict(zip(at, found, strict=False))
    there = dict(zip(fixed_at, found[len(at) :], strict=True))
    return [here.get(i) for i in range(len(first))], [there.get(i) for i in range(len(fixed))]


def _reverse(
    step: Step,
    at: list[int],
    fixed_at: list[int],
    first: Arrays,
    fixed: Arrays,
    count: Any,
    grads: Arrays,
) -> Arrays:
    """The backward run as a function that can be differentiated itself: its value comes from
    `_checkpointed`, its own gradient from `_plain`, which says the same without checkpoints."""
    jax = jax_door.jax()

    @jax.custom_vjp
    def run(first: Arrays, fixed: Arrays, count: Any, grads: Arrays) -> Arrays:
        return _checkpointed(step, at, fixed_at, first, fixed, count, grads)

    def forward(*given: Any) -> Any:
        return run(*given), given

    def backward(given: Any, seconds: Arrays) -> Any:
        first, fixed, count, grads = given
        real = [first[i] for i in at], [fixed[i] for i in fixed_at], grads

        def again(some: Arrays, some_fixed: Arrays, g: Arrays) -> Arrays:
            whole, whole_fixed = _filled(first, at, some), _filled(fixed, fixed_at, some_fixed)
            return _plain(step, at, fixed_at, whole, whole_fixed, count, g)

        _, pull = jax.vjp(again, *real)
        by_first, by_fixed, by_grads = pull(seconds)
        none: Arrays = [None] * len(first)
        none_fixed: Arrays = [None] * len(fixed)
        return (
            _filled(none, at, by_first),
            _filled(none_fixed, fixed_at, by_fixed),
            None,
            by_grads,
        )

    run.defvjp(forward, backward)
    return run(first, fixed, count, grads)


def _filled(whole: Arrays, places: Sequence[int], some: Arrays) -> Arrays:
    out = list(whole)
    for i, x in zip(places, some, strict=True):
        out[i] = x
    return out


def _one_back(
    step: Step,
    at: list[int],
    fixed_at: list[int],
    i: Any,
    now: Arrays,
    fixed: Arrays,
    grads: Arrays,
) -> tuple[Arrays, Arrays]:
    """Gradients of iteration i's carries and of the constants it used."""
    jax = jax_door.jax()

    def one(some: Arrays, some_fixed: Arrays) -> Arrays:
        out = step(i, _filled(now, at, some), _filled(fixed, fixed_at, some_fixed))
        return [out[k] for k in at]

    _, pull = jax.vjp(one, [now[k] for k in at], [fixed[k] for k in fixed_at])
    return pull(grads)


def _start(grads: Arrays, fixed: Arrays, fixed_at: list[int]) -> Arrays:
    jnp = jax_door.jnp()
    return [*grads, *[jnp.zeros(fixed[k].shape, fixed[k].dtype) for k in fixed_at]]


def _plain(
    step: Step,
    at: list[int],
    fixed_at: list[int],
    first: Arrays,
    fixed: Arrays,
    count: Any,
    grads: Arrays,
) -> Arrays:
    """The backward run with every state computed from the first. Slow in long loops, but made
    of loops that can be differentiated."""
    n = len(first)

    def turn(k: Any, sums: Arrays, constants: Arrays) -> Arrays:
        start, held, total = constants[:n], constants[n:-1], constants[-1]
        i = total - 1 - k
        now = repeat(step, i, start, held)
        here, there = _one_back(step, at, fixed_at, i, now, held, sums[: len(at)])
        return [*here, *[a + b for a, b in zip(sums[len(at) :], there, strict=True)]]

    return repeat(turn, count, _start(grads, fixed, fixed_at), [*first, *fixed, count])


def _checkpointed(
    step: Step,
    at: list[int],
    fixed_at: list[int],
    first: Arrays,
    fixed: Arrays,
    count: Any,
    grads: Arrays,
) -> Arrays:
    """The backward run from two levels of checkpoints."""
    lax, jnp = jax_door.jax().lax, jax_door.jnp()

    def advance(now: Arrays, start: Any, end: Any) -> Arrays:
        return lax.while_loop(
            lambda s: s[0] < end, lambda s: (s[0] + 1, step(s[0], s[1], fixed)), (start, now)
        )[1]

    def shelf(now: Arrays, start: Any, end: Any) -> tuple[Any, Any, Any]:
        """The states at `start`, `start + stride` … before `end`, and how many there are."""
        stride = jnp.maximum((end - start + SLOTS - 1) // SLOTS, 1)
        rows = [jnp.zeros((SLOTS, *x.shape), x.dtype) for x in now]

        def put(s: Any) -> Any:
            k, state, kept = s
            kept = [
                lax.dynamic_update_index_in_dim(r, x, k, 0)
                for r, x in zip(kept, state, strict=True)
            ]
            here = start + k * stride
            return k + 1, advance(state, here, jnp.minimum(here + stride, end)), kept

        k, _, rows = lax.while_loop(
            lambda s: start + s[0] * stride < end, put, (_index(0), now, rows)
        )
        return rows, stride, k

    def at_row(rows: Arrays, k: Any) -> Arrays:
        return [lax.dynamic_index_in_dim(r, k, 0, keepdims=False) for r in rows]

    def one(i: Any, now: Arrays, sums: Arrays) -> Arrays:
        here, there = _one_back(step, at, fixed_at, i, now, fixed, sums[: len(at)])
        return [*here, *[a + b for a, b in zip(sums[len(at) :], there, strict=True)]]

    def walk(now: Arrays, start: Any, end: Any, sums: Arrays, level: int) -> Arrays:
        """From iteration `end - 1` back to `start`, whose state is `now`."""
        if level == 0:
            return lax.while_loop(
                lambda s: s[0] > start,
                lambda s: (s[0] - 1, one(s[0] - 1, advance(now, start, s[0] - 1), s[1])),
                (end, sums),
            )[1]
        rows, stride, n = shelf(now, start, end)

        def segment(s: Any) -> Any:
            k, sums = s[0] - 1, s[1]
            begin = start + k * stride
            stop = jnp.minimum(begin + stride, end)
            return k, walk(at_row(rows, k), begin, stop, sums, level - 1)

        return lax.while_loop(lambda s: s[0] > 0, segment, (n, sums))[1]

    return walk(list(first), _index(0), count, _start(grads, fixed, fixed_at), 2)
