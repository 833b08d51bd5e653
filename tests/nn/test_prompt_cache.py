"""Texts that are not read twice, and several tokens at once: the tokens of plain calls."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bireme as paddle
from bench.gpu.decode import SIZES, build
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.nn.generation import generate, stream
from bireme.nn.generation.generate import _Run
from bireme.nn.generation.lookup import agreed, proposed
from bireme.zoo import PromptCache

pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")
SMALL = SIZES["tiny"]
ROOM: dict[str, Any] = {"cache_length": 128}


@pytest.fixture(scope="module")
def model() -> Any:
    paddle.seed(7)
    made = build(paddle, SMALL)
    for p in made.parameters():  # wider scores: no near ties
        if p.ndim == 2:
            p.set_value(p * 5)
    return made


def _ids(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, SMALL.vocabulary, count).tolist()


def _tokens(model: Any, ids: list[int], new: int, **options: Any) -> list[int]:
    return generate(model, [ids], new, **ROOM, **options).numpy()[0].tolist()


def test_a_conversation_reads_only_what_is_new(model: Any, tmp_path: pathlib.Path) -> None:
    kept, text = PromptCache(), _ids(20)
    for turn in range(3):
        want = _tokens(model, text, 6)
        assert _tokens(model, text, 6, prompt_cache=kept) == want
        assert kept.tokens == [*text, *want[:-1]]  # the last one was never fed
        text = [*text, *want, *_ids(5 + turn, turn)]
    assert kept.shared(model, text) == len(kept)
    kept.save(tmp_path / "kept.safetensors")
    again = PromptCache.load(tmp_path / "kept.safetensors")
    assert again.tokens == kept.tokens
    assert again.shared(model, text) == len(kept)
    assert _tokens(model, text, 6, prompt_cache=again) == _tokens(model, text, 6)


def test_other_ends_and_lengths_of_a_text(model: Any) -> None:
    kept, text = PromptCache(), _ids(40)
    _tokens(model, text, 4, prompt_cache=kept)
    for end in (0, 1, 17, 39, 40):
        other = [*text[:end], *_ids(9, seed=100 + end)]
        assert kept.shared(model, other) == min(end, len(other) - 1)
        assert _tokens(model, other, 5, prompt_cache=kept) == _tokens(model, other, 5)
        _tokens(model, text, 4, prompt_cache=kept)
    long = [*text, *_ids(20)]  # the cache grows, and a smaller one is not shrunk
    want = generate(model, [long], 4, cache_length=256).numpy().tolist()
    assert generate(model, [long], 4, cache_length=256, prompt_cache=kept).numpy().tolist() == want
    assert kept.length == 256
    assert _tokens(model, long, 4, prompt_cache=kept) == want[0]


def test_penalties_count_the_whole_text(model: Any) -> None:
    kept, text = PromptCache(), _ids(20)
    _tokens(model, text, 4, prompt_cache=kept)
    options: dict[str, Any] = {"repetition_penalty": 3.0, "presence_penalty": 1.0}
    longer = [*text, *_ids(3, 1)]
    assert _tokens(model, longer, 8, prompt_cache=kept, **options) == _tokens(
        model, longer, 8, **options
    )


def test_a_stream_that_is_left_keeps_what_it_read(model: Any) -> None:
    kept, text = PromptCache(), _ids(12)
    pieces: Any = stream(model, [text], 20, **ROOM, prompt_cache=kept)
    first = [next(pieces)[0] for _ in range(3)]
    pieces.close()
    assert kept.tokens == [*text, *first][: len(kept)]
    assert len(kept) >= len(text) + 2
    longer = [*text, *first, *_ids(4, 3)]
    assert _tokens(model, longer, 5, prompt_cache=kept) == _tokens(model, longer, 5)


@pytest.mark.parametrize("which", [0, 2, -1])
def test_other_weights_have_no_use_for_it(model: Any, which: int) -> None:
    """One other number is enough, wherever it is."""
    kept, text = PromptCache(), _ids(12)
    _tokens(model, text, 3, prompt_cache=kept)
    assert kept.shared(model, text) > 0
    weight = model.parameters()[which]
    before = paddle.to_tensor(weight.numpy().copy())
    other = weight.numpy().copy()
    other.reshape(-1)[-1] += 0.5
    try:
        weight.set_value(other)
        assert kept.shared(model, text) == 0
        assert _tokens(model, text, 3, prompt_cache=kept) == _tokens(model, text, 3)
    finally:
        weight.set_value(before)


@pytest.mark.parametrize("count", [1, 4, 7])
def test_lookup_gives_the_same_tokens(model: Any, count: int) -> None:
    piece = _ids(7, seed=count)
    for text in (piece * 4, _ids(30, seed=9), [*_ids(5), *piece, 1, *piece]):
        want = _tokens(model, text, 30)
        assert _tokens(model, text, 30, lookup=count) == want
        found = [t for (t,) in stream(model, [text], 30, **ROOM, lookup=count)]
        assert found == want


class Circle(paddle.nn.Layer):
    """After token t comes 3 t + 1 of 11."""

    def __init__(self) -> None:
        super().__init__()
        follow = (3 * np.arange(11) + 1) % 11
        self.scores = self.create_parameter([11, 11])
        self.scores.set_value(paddle.to_tensor(np.eye(11, dtype=np.float32)[follow]))

    def forward(self, ids: Any, cache: Any = None) -> Any:
        x = paddle.nn.functional.embedding(ids, self.scores)
        heads = x.unsqueeze(2)
        y = cache.attend(0, heads, heads, heads).squeeze(2)
        return cache.last(x + 0 * y)


def test_lookup_takes_several_tokens_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    circle = Circle()
    text = [0, 1, 4, 2, 7, 0, 1]  # one round, and the beginning of the next
    want = [4, 2, 7, 0, 1] * 4
    steps, step = [], _Run.step
    monkeypatch.setattr(_Run, "step", lambda run: (steps.append(1), step(run)))
    kept = PromptCache()
    found = generate(circle, [text], 20, cache_length=64, lookup=4, prompt_cache=kept)
    assert found.numpy()[0].tolist() == want
    assert len(steps) == 4  # the last ones; the others came five at a time
    assert kept.tokens == [*text, *want][: len(kept)]
    assert generate(circle, [text], 20, cache_length=64).numpy()[0].tolist() == want


def test_ends_and_a_full_cache_stop_a_lookup(model: Any) -> None:
    text = _ids(7) * 4
    want = _tokens(model, text, 30)
    end = want[11]
    first = want.index(end)
    assert _tokens(model, text, 30, lookup=5, eos_token_id=end) == want[: first + 1]
    tight: dict[str, Any] = {"cache_length": 64}
    wide = generate(model, [text], 36, **tight).numpy().tolist()
    assert generate(model, [text], 36, **tight, lookup=6).numpy().tolist() == wide


def test_what_cannot_be(model: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgument, match="one prompt"):
        generate(model, [[1, 2], [3, 4]], 2, prompt_cache=PromptCache())
    with pytest.raises(InvalidArgument, match="likeliest"):
        generate(model, [[1, 2]], 2, lookup=3, decode_strategy="sampling")
    with pytest.raises(InvalidArgument, match="empty"):
        PromptCache().save(tmp_path / "none")
    kept = PromptCache()
    _tokens(model, [1, 2, 3], 2, prompt_cache=kept)
    kept.save(tmp_path / "kept")
    whole = (tmp_path / "kept").read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        data = bytearray(whole)
        data[rng.integers(0, 400)] = rng.integers(0, 256)
        (tmp_path / "kept").write_bytes(data[: rng.integers(1, len(data))])
        with pytest.raises(BiremeError):
            PromptCache.load(tmp_path / "kept")
        refused += 1
    assert refused == 60


@given(st.lists(st.integers(0, 3), max_size=30), st.integers(1, 5))
def test_proposals_are_what_followed(text: list[int], count: int) -> None:
    found = proposed(text, count)
    assert len(found) <= count
    if found:
        joined = "".join(map(str, text))
        assert any(
            joined[: at + len(found)].endswith("".join(map(str, text[-2:] + found)))
            for at in range(len(text))
        )


def test_agreement() -> None:
    clear = np.array([True, True, True])
    best = np.array([5, 6, 7])
    assert agreed([5, 6], best, clear) == [5, 6, 7]
    assert agreed([5, 9], best, clear) == [5, 6]
    assert agreed([9, 9], best, clear) == [5]
    assert agreed([5, 6], best, np.array([True, False, True])) == [5]
    assert agreed([5, 6], best, np.array([False, True, True])) == []
