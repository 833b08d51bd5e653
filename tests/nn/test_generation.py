"""Generation: the cached, compiled loop gives what plain recomputation gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bireme as paddle
from bench.gpu.decode import SIZES, Size, build, prepare
from bireme.core.errors import InvalidArgument
from bireme.nn.generation import KVCache, generate, stream
from bireme.nn.generation.cache import cache_write
from bireme.nn.generation.sampling import _filtered, next_token

SMALL = SIZES["tiny"]


@pytest.fixture(scope="module")
def model():
    paddle.seed(7)
    made = build(paddle, SMALL)
    for p in made.parameters():  # wider scores: no near ties
        if p.ndim == 2:
            p.set_value(p * 5)
    return made


def prompt(length, batch=1, seed=0):
    return np.random.default_rng(seed).integers(0, SMALL.vocabulary, (batch, length))


def recomputed(model, ids, new):
    """Greedy tokens from the model without a cache, on the whole sequence every time. The padding
    on the right, which a causal model does not see, only saves compilations."""
    ids, batch = np.array(ids), len(ids)
    made = []
    for _ in range(new):
        padded = np.zeros((batch, SMALL.length), np.int64)
        padded[:, : ids.shape[1]] = ids
        with paddle.no_grad():
            scores = model(paddle.to_tensor(padded)).numpy()[:, ids.shape[1] - 1]
        made.append(scores.argmax(-1))
        ids = np.concatenate([ids, made[-1][:, None]], 1)
    return np.stack(made, 1)


@pytest.mark.parametrize(("length", "batch"), [(1, 1), (10, 1), (16, 1), (17, 2)])
def test_cached_equals_recomputed(model, length, batch):
    ids = prompt(length, batch, seed=length)
    made = generate(model, ids, 12, cache_length=SMALL.length)
    assert made.dtype is paddle.int64
    np.testing.assert_array_equal(made.numpy(), recomputed(model, ids, 12))


def test_samples_of_different_lengths(model):
    ids = prompt(12, batch=3)
    lengths = [12, 5, 1]
    together = generate(model, ids, 8, lengths=lengths, cache_length=SMALL.length).numpy()
    for row, (tokens, n) in enumerate(zip(ids, lengths, strict=True)):
        alone = recomputed(model, tokens[None, :n], 8)
        np.testing.assert_array_equal(together[row], alone[0])


def test_programs_are_shared(model):
    generate(model, prompt(9), 4, cache_length=SMALL.length)
    with paddle.profiler.count_compiles() as compiled:
        for length, new in ((10, 4), (16, 30), (3, 48)):  # one bucket, any number of tokens
            generate(model, prompt(length, seed=length), new, cache_length=SMALL.length)
    assert compiled[0] == 0
    fresh = build(paddle, SMALL)
    with paddle.profiler.count_compiles() as compiled:
        generate(fresh, prompt(20), 30, cache_length=SMALL.length)
        assert paddle.profiler.compile_count() > 0
        generate(fresh, prompt(31), 30, cache_length=SMALL.length)
    assert compiled[0] == 2  # a prompt's bucket and the step
    with paddle.profiler.count_compiles() as compiled:
        generate(fresh, prompt(5), 30, cache_length=SMALL.length)
    assert compiled[0] == 1  # another bucket, the same step


def test_a_hundred_tokens_are_one_program():
    size = Size(1, 32, 2, 1, 64, 64, length=128, dtype="float32")
    model = build(paddle, size)
    with paddle.profiler.count_compiles() as compiled:
        made = generate(model, [[1, 2, 3]], 100)
    assert compiled[0] == 2
    assert made.shape == [1, 100]


def test_the_cache_is_updated_in_place(model):
    from bireme.nn.generation import generate as package
    from bireme.nn.generation.generate import _Run

    assert package is generate
    run = _Run(model, prompt(4), 8, None, "greedy_search", 1.0, 0, 1.0, None, 0, None, SMALL.length)
    before = run.state[-1]
    where = before.unsafe_buffer_pointer()
    run.step()
    assert before.is_deleted()
    assert run.state[-1].unsafe_buffer_pointer() == where


def test_new_weights_are_seen(model):
    other = build(paddle, SMALL)
    ids = prompt(6)
    generate(other, ids, 4, cache_length=SMALL.length)
    with paddle.profiler.count_compiles() as compiled:
        other.set_state_dict(model.state_dict())
        made = generate(other, ids, 4, cache_length=SMALL.length)
    assert compiled[0] == 0
    np.testing.assert_array_equal(made.numpy(), recomputed(model, ids, 4))


def test_stream_gives_the_same(model):
    ids = prompt(7, batch=2)
    whole = generate(model, ids, 10, cache_length=SMALL.length).numpy()
    steps = list(stream(model, ids, 10, cache_length=SMALL.length))
    np.testing.assert_array_equal(np.array(steps).T, whole)


def test_ends(model):
    ids = prompt(8, batch=2)
    free = generate(model, ids, 40, cache_length=SMALL.length).numpy()
    end = int(free[0, 3])
    made = generate(
        model, ids, 40, eos_token_id=end, pad_token_id=255, cache_length=SMALL.length
    ).numpy()
    for row, plain in zip(made, free, strict=True):
        stop = int((plain == end).argmax()) if (plain == end).any() else len(plain) - 1
        n = min(stop + 1, len(row))
        np.testing.assert_array_equal(row[:n], plain[:n])
        assert (row[n:] == 255).all()
    first = generate(model, ids[:1], 40, eos_token_id=[end, 3], cache_length=SMALL.length)
    assert first.shape[1] <= 4
    streamed = list(stream(model, ids[:1], 40, eos_token_id=end, cache_length=SMALL.length))
    assert streamed[-1] == [end]
    assert len(streamed) <= 4


def test_sampling_is_repeatable_and_varies(model):
    options = {"decode_strategy": "sampling", "temperature": 1.5, "cache_length": SMALL.length}
    ids = prompt(8)
    one, two, three = (generate(model, ids, 20, seed=s, **options).tolist() for s in (1, 1, 2))
    assert one == two != three
    paddle.seed(3)
    first = generate(model, ids, 20, **options).tolist()
    second = generate(model, ids, 20, **options).tolist()
    paddle.seed(3)
    assert generate(model, ids, 20, **options).tolist() == first != second
    greedy = generate(model, ids, 20, cache_length=SMALL.length).tolist()
    with paddle.profiler.count_compiles() as compiled:
        for top_k, top_p in ((1, 1.0), (0, 1e-6), (1, 0.5)):  # run-time numbers: one program
            made = generate(model, ids, 20, top_k=top_k, top_p=top_p, **options)
            assert made.tolist() == greedy
    assert compiled[0] == 2


def drawn(scores, count, **options):
    given = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "strategy": "filter", **options}
    logits = paddle.to_tensor(np.tile(np.asarray(scores, np.float32), (count, 1)))
    token = next_token(logits, 5, 9, *given.values())
    return np.bincount(token.numpy(), minlength=len(scores)) / count


def test_distribution(tier):
    probabilities = np.array([0.4, 0.3, 0.2, 0.1])
    scores = np.log(probabilities)
    np.testing.assert_allclose(drawn(scores, 20000, strategy="sample"), probabilities, atol=0.015)
    np.testing.assert_allclose(drawn(scores, 20000, top_k=2), [4 / 7, 3 / 7, 0, 0], atol=0.015)
    kept = np.array([4, 3, 2, 0]) / 9
    np.testing.assert_allclose(drawn(scores, 20000, top_p=0.75), kept, atol=0.015)
    np.testing.assert_allclose(drawn(scores, 20000, top_p=0.8, top_k=3), kept, atol=0.015)
    sharp = probabilities**2 / (probabilities**2).sum()
    np.testing.assert_allclose(drawn(scores, 20000, temperature=0.5), sharp, atol=0.015)
    assert drawn(scores, 10, strategy="greedy").tolist() == [1, 0, 0, 0]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(0, 14), st.floats(0.01, 1.0))
def test_what_is_kept(seed, size, top_k, top_p):
    scores = np.random.default_rng(seed).normal(size=(1, size)).astype("float32") * 3
    order = np.argsort(-scores[0])
    chosen = order[: top_k or size]
    weights = np.exp(scores[0, chosen].astype("float64"))
    weights /= weights.sum()
    reached = np.cumsum(weights) - weights
    sure = set(chosen[(reached < top_p - 1e-5) | (np.arange(len(chosen)) == 0)])
    perhaps = set(chosen[(reached < top_p + 1e-5) | (np.arange(len(chosen)) == 0)])
    found = set(np.flatnonzero(np.isfinite(_filtered(np, scores, top_k, np.float32(top_p))[0])))
    assert sure <= found <= perhaps


def test_autocast_is_heeded():
    model = build(paddle, SMALL)
    generate(model, prompt(4), 2, cache_length=SMALL.length)
    with (
        paddle.amp.auto_cast(level="O1", dtype="bfloat16"),
        paddle.profiler.count_compiles() as compiled,
    ):
        generate(model, prompt(4), 2, cache_length=SMALL.length)
    assert compiled[0] == 2


def test_tiers_draw_the_same(both_tiers):
    scores = paddle.to_tensor(np.random.default_rng(0).normal(size=(64, 100)).astype("float32"))
    both_tiers(lambda: next_token(scores, 1, 2, 0.8, 40, 0.9, "filter"))
    both_tiers(lambda: next_token(scores, 1, 2, 0.8, 0, 1.0, "sample"))


def test_writing(both_tiers):
    kept = paddle.zeros([2, 5, 3])
    fresh = paddle.ones([2, 2, 3])
    for place in ([1], [3], [0, 2], [4, 1]):
        out = both_tiers(lambda p=place: cache_write(kept, fresh, paddle.to_tensor(p)))
        for row, at in zip(out.numpy() if hasattr(out, "numpy") else out,
                           itertools.cycle(place), strict=False):  # fmt: skip
            rows = np.flatnonzero(row.reshape(5, 3).any(1))
            assert rows.tolist() == [min(at, 3), min(at, 3) + 1]


def test_cache_in_eager_code(model):
    ids = prompt(6)
    cache = KVCache(SMALL.length)
    with paddle.no_grad():
        first = model(paddle.to_tensor(ids), cache=cache)
        cache.advance(6)
        token = first.argmax(-1)
        second = model(token, cache=cache)
        cache.advance(1)
        whole = model(paddle.concat([paddle.to_tensor(ids), token], 1))
    np.testing.assert_allclose(first[:, 0].numpy(), whole[:, 5].numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(second[:, 0].numpy(), whole[:, 6].numpy(), rtol=1e-4, atol=1e-4)


def test_gradients_pass_through_the_cache(tier):
    kept, fresh = paddle.rand([2, 4, 3]), paddle.rand([2, 1, 3])
    kept.stop_gradient = fresh.stop_gradient = False
    weights = paddle.arange(24, dtype="float32").reshape([2, 4, 3])
    (cache_write(kept, fresh, paddle.to_tensor([1, 3])) * weights).sum().backward()
    expected = weights.numpy().copy()
    np.testing.assert_array_equal(fresh.grad.numpy()[:, 0], [expected[0, 1], expected[1, 3]])
    expected[0, 1] = expected[1, 3] = 0
    np.testing.assert_array_equal(kept.grad.numpy(), expected)


class WithoutCache(paddle.nn.Layer):
    def forward(self, ids, cache=None):
        return paddle.zeros([1, ids.shape[1], 5])


class WithDropout(paddle.nn.Layer):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, cache=None):
        return paddle.nn.functional.dropout(self.model(ids, cache), 0.5)


def test_errors(model):
    def refused(message, *args, **options):
        with pytest.raises(InvalidArgument, match=message):
            generate(*args, **options)

    refused("do not fit a cache", model, prompt(20), 50, cache_length=64)
    refused("decode_strategy", model, prompt(2), 2, decode_strategy="beam")
    refused("top_p in", model, prompt(2), 2, top_p=0.0)
    refused("input_ids", model, np.zeros((1, 0), np.int64), 2)
    refused("lengths", model, prompt(3), 2, lengths=[4])
    refused("did not use its cache", WithoutCache(), prompt(3), 2)
    refused(r"model.eval\(\)", WithDropout(model), prompt(3), 2)


@pytest.mark.slow
def test_the_benchmark_runs():
    found = prepare("bireme", SMALL)()
    assert found["tokens_per_s"] > 0
    assert len(found["first_tokens"]) == 8
