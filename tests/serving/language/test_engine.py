"""Texts together are the texts alone: whatever runs beside them, wherever their pages lie."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import profiler
from bireme.nn import generation
from bireme.nn.generation import KVCache, PagedCache
from bireme.serving.errors import BadRequest, Unavailable
from bireme.serving.language.model import Event, LanguageModel, LanguageOptions
from bireme.serving.language.sampling import Chooser, Sampling
from tests.serving.language.made_up import model, tokenizer

GREEDY = Sampling(temperature=0.0)
PROMPTS = [
    [(7 * i + j * j) % 250 + 1 for j in range(length)]
    for i, length in enumerate([1, 3, 16, 17, 33, 40, 9, 25])
]
PROMPTS += [[*PROMPTS[5], 9, 8], [*PROMPTS[5][:32], 1], PROMPTS[5]]  # common beginnings
NEW = [20, 5, 12, 30, 9, 14, 1, 22, 10, 10, 14]


@pytest.fixture(scope="module")
def made() -> Any:
    return model()


@pytest.fixture(scope="module")
def wanted(made: Any) -> list[list[int]]:
    """What `generate` gives for each prompt alone."""
    return [alone(made, p, n) for p, n in zip(PROMPTS, NEW, strict=True)]


def alone(made: Any, prompt: list[int], new: int) -> list[int]:
    found = generation.generate(made, [prompt], new, cache_length=128, eos_token_id=0)
    return found.numpy()[0].tolist()


def together(served: LanguageModel, at_once: int) -> list[list[int]]:
    """All prompts' tokens, `at_once` prompts at a time."""
    found: list[list[int]] = [[] for _ in PROMPTS]
    slots, done = threading.Semaphore(at_once), threading.Semaphore(0)

    def push(event: Event) -> None:
        assert event.error is None, event.error
        assert event.choice is not None
        found[event.index].append(event.choice.token)
        if event.finish:
            slots.release()
            done.release()

    for i, (prompt, new) in enumerate(zip(PROMPTS, NEW, strict=True)):
        slots.acquire()
        served.write(prompt, new, GREEDY, push, index=i)
    for _ in PROMPTS:
        assert done.acquire(timeout=300)
    return found


@pytest.mark.parametrize(
    ("at_once", "more"),
    [
        (1, {}),
        (8, {"rows": 4}),
        (32, {"chunk": 16, "cache_gb": 1.9e-5}),  # few pages: texts are preempted
        (32, {"sharing": False, "cache_gb": 1.9e-5}),
    ],
)
def test_texts_together_are_the_texts_alone(
    made: Any, wanted: list[list[int]], at_once: int, more: dict[str, Any]
) -> None:
    options = LanguageOptions(**{"context": 80, "rows": 4, "page": 8, "chunk": 32, **more})
    served = LanguageModel.of("tiny", made, tokenizer(), options)
    try:
        with profiler.count_compiles() as compiles:
            for _ in range(2):  # the second time with a full prefix cache
                assert together(served, at_once) == wanted
        assert compiles[0] == 0
    finally:
        served.engine.drain(60)
    assert served.engine.load["pages"] == 0
    assert bool(served.engine.load["preempted"]) == ("cache_gb" in more)


@pytest.mark.parametrize(
    ("kind", "more"),
    [("qwen3", {"head_dim": 12}), ("mistral", {"sliding_window": 4})],
)
def test_other_families_run_as_they_are(kind: str, more: dict[str, Any]) -> None:
    made = model(kind, **more)
    options = LanguageOptions(context=64, rows=2, page=8, chunk=32)
    served = LanguageModel.of(kind, made, tokenizer(), options)
    try:
        events: queue.Queue[Event] = queue.Queue()
        served.write(PROMPTS[3], 12, GREEDY, events.put)
        found = []
        while True:
            event = events.get(timeout=300)
            assert event.choice is not None
            found.append(event.choice.token)
            if event.finish:
                break
        assert found == alone(made, PROMPTS[3], 12)
    finally:
        served.engine.drain(60)


def test_the_paged_cache_is_the_static_one(made: Any) -> None:
    ids = paddle.to_tensor([PROMPTS[4][:20], PROMPTS[5][:20]], "int64")
    with paddle.no_grad():
        plain = KVCache(32)
        made(ids[:, :16], cache=plain)
        plain.advance(16)
        want = made(ids[:, 16:], cache=plain).numpy()
        types = [(k.shape[2:], k.dtype) for k, _ in plain.layers]
        pools = [(paddle.zeros([9, 8, *s], d), paddle.zeros([9, 8, *s], d)) for s, d in types]
        tables = paddle.to_tensor([[8, 1, 6], [2, 7, 4]], "int64")
        full = paddle.full([2], 16, "int64")
        cache = PagedCache(pools, tables, full * 0, full)
        made(ids[:, :16], cache=cache)
        cache = PagedCache(cache.layers, tables, full, paddle.full([2], 4, "int64"))
        found = made(ids[:, 16:], cache=cache).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_paged_attend_in_both_tiers(both_tiers: Any) -> None:
    from bireme.nn.generation.paged import paged_attend

    g = np.random.default_rng(0)
    query = g.normal(size=(2, 3, 4, 8)).astype(np.float32)
    key, value = (g.normal(size=(2, 3, 2, 8)).astype(np.float32) for _ in "kv")
    pools = [g.normal(size=(7, 4, 2, 8)).astype(np.float32) for _ in "kv"]
    tables, place, counts = np.array([[1, 3], [5, 2]]), np.array([2, 5]), np.array([3, 1])
    given = [query, key, value, *pools, tables, place, counts]

    def run() -> Any:
        return paged_attend(*[paddle.to_tensor(a) for a in given], window=4, cap=5.0)

    both_tiers(run)


def test_cancelled_texts_free_their_pages(made: Any) -> None:
    options = LanguageOptions(context=80, rows=2, page=8, chunk=32)
    served = LanguageModel.of("tiny", made, tokenizer(), options)
    events: queue.Queue[Event] = queue.Queue()
    texts = [served.write(p, 40, GREEDY, events.put, index=i) for i, p in enumerate(PROMPTS[:4])]
    events.get(timeout=300)
    for text in texts:
        served.engine.cancel(text)
    served.engine.drain(300)
    assert served.engine.load == {"running": 0, "waiting": 0, "pages": 0,
                                  "preempted": served.engine.load["preempted"]}  # fmt: skip
    with pytest.raises(Unavailable):
        served.write([1], 1, GREEDY, events.put)
    with pytest.raises(BadRequest, match="80 fit"):
        served.write([1] * 80, 1, GREEDY, events.put)


def test_choices_follow_the_settings() -> None:
    scores = np.log(np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    draw = lambda **s: [Chooser(Sampling(**s), i).choose(scores).token for i in range(2000)]  # noqa: E731
    np.testing.assert_allclose(np.bincount(draw()) / 2000, np.exp(scores), atol=0.05)
    assert set(draw(top_k=2)) == {2, 3}
    assert set(draw(top_p=0.6)) == {2, 3}
    assert set(draw(min_p=0.9)) == {3}
    assert set(draw(temperature=0.0)) == {3}
    assert set(draw(logit_bias={0: 100.0})) == {0}
    chooser = Chooser(Sampling(temperature=0.0, frequency_penalty=1.0), 0)
    assert [chooser.choose(scores).token for _ in range(4)] == [3, 2, 1, 3]
    found = Chooser(Sampling(temperature=0.0, logprobs=2), 0).choose(scores)
    assert found.likeliest[0] == (3, pytest.approx(np.log(0.4), abs=1e-6))
    assert [t for t, _ in found.likeliest] == [3, 2]
    first, again = (Chooser(Sampling(), 5, 1) for _ in "ab")
    assert [first.choose(scores) for _ in range(9)] == [again.choose(scores) for _ in range(9)]
