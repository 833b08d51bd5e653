"""Generating with models that read one sequence and write another: greedy, drawn, or by beams.

One program reads the input and the decoder's first tokens, one continues by a token; both are
compiled once per shape. The host looks at the tokens of each step: it decides which beams run on
and when all have ended.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import bireme as paddle
from bireme.api.types import TensorLike
from bireme.capture.direct_program import DirectProgram
from bireme.core import dtype as dt
from bireme.core import place, random
from bireme.core.aval import Aval, aval
from bireme.core.cache import BoundedCache
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn.generation.beams import Beams
from bireme.nn.generation.memory import MemoryCache
from bireme.nn.generation.rules import Rule
from bireme.nn.generation.sampling import next_token

_MAX_PROGRAMS = 64


@dataclass(frozen=True)
class Written:
    """What a model wrote: `tokens` [batch, sequences, longest], of which the first `lengths`
    count, and `scores`, the sums of log-probabilities (of beams by their length penalty). Without
    beams `log_probabilities` has those of the tokens, by the model itself."""

    tokens: np.ndarray
    lengths: np.ndarray
    scores: np.ndarray
    log_probabilities: np.ndarray | None = None

    def lists(self) -> list[list[list[int]]]:
        """The tokens of each sample's sequences."""
        return [
            [row[:n].tolist() for row, n in zip(rows, counts, strict=True)]
            for rows, counts in zip(self.tokens, self.lengths, strict=True)
        ]


@dataclass(frozen=True)
class _Plan:
    """What the programs of a generation depend on."""

    rules: tuple[Rule, ...] = field(compare=False)
    keys: tuple[Any, ...]
    beams: int
    wide: int  # continuations of each row that the host wants; 0: one token is chosen
    strategy: str
    length: int
    device: Any


_known: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _programs(model: Any) -> BoundedCache[Any, DirectProgram]:
    marks = [(id(t), t._value.aval) for t in (*model.parameters(), *model.buffers())]
    kept = _known.get(model)
    if kept is None or kept[0] != marks:
        kept = _known[model] = (marks, BoundedCache(_MAX_PROGRAMS))
    return kept[1]


def _chosen(plan: _Plan, logits: Tensor, given: list[Tensor | None], settings: Any) -> list[Tensor]:
    """(log-probabilities, tokens) [rows, wide] of the best continuations, or of the chosen one."""
    scores = logits[:, -1].astype("float32")
    logs = paddle.nn.functional.log_softmax(scores, -1)
    scores = logs if plan.beams > 1 else scores
    for rule, known in zip(plan.rules, given, strict=True):
        scores = rule.apply(scores, known)
    if plan.wide:
        best: Any = paddle.topk(scores, plan.wide, axis=-1)
        return [best[0], best[1]]
    token: Any = next_token(scores, *settings, plan.strategy).unsqueeze(-1)
    return [paddle.take_along_axis(logs, token, 1), token]


def _repeated(x: Tensor, times: int) -> Tensor:
    if times == 1:
        return x
    wide = x.unsqueeze(1).expand([x.shape[0], times, *x.shape[1:]])
    return wide.reshape([x.shape[0] * times, *x.shape[1:]])


def _begin(model: Any, plan: _Plan, types: Sequence[Aval], masked: bool, known: Any) -> Any:
    def begin(arguments: list[Tensor]) -> list[Tensor]:
        inputs, *rest = arguments
        mask = rest.pop(0) if masked else None
        ids, *rest = rest
        given, settings = _split(rest, known)
        cache = MemoryCache(plan.length)
        cache.beams = plan.beams
        memory = model.encode(inputs, mask)
        wide = [] if mask is None else [_repeated(mask, plan.beams)]
        logits = model.decode(ids, memory, wide[0] if wide else None, cache)
        cache.advance(ids.shape[1])
        return [*_chosen(plan, logits, given, settings), *_state(cache), *wide]

    return DirectProgram(begin, types, (), "generate")


def _split(
    arguments: list[Tensor], known: Sequence[bool]
) -> tuple[list[Tensor | None], list[Tensor]]:
    rest = list(arguments)
    given = [rest.pop(0) if k else None for k in known]
    return given, rest


def _state(cache: MemoryCache) -> list[Tensor]:
    if cache.place is None:
        raise InvalidArgument(
            "[generate] the model's decoder did not use its cache: call cache.attend or "
            "cache.attend_with in its attention"
        )
    own = [t for pair in cache.layers for t in pair]
    return [cache.place, *own, *[t for pair in cache.memories for t in pair]]


def _step(
    model: Any,
    plan: _Plan,
    state: Sequence[Aval],
    rows: int,
    masked: bool,
    layers: int,
    known: Sequence[bool],
    rest_types: Sequence[Aval],
) -> DirectProgram:
    beams = plan.beams > 1

    def step(arguments: list[Tensor]) -> list[Tensor]:
        kept, rest = list(arguments[: len(state)]), list(arguments[len(state) :])
        mask = kept.pop() if masked else None
        token = rest.pop(0)
        order = rest.pop(0) if beams else None
        given, settings = _split(rest, known)
        cache = MemoryCache(plan.length)
        cache.place, own = kept[0], kept[1 : 1 + 2 * layers]
        if order is not None:
            own = [paddle.index_select(t, order, 0) for t in own]
        cache.layers = list(zip(own[::2], own[1::2], strict=True))
        far = kept[1 + 2 * layers :]
        cache.memories = list(zip(far[::2], far[1::2], strict=True))
        logits = model.decode(token, None, mask, cache)
        cache.advance(1)
        out = _chosen(plan, logits, given, settings)
        return [*out, *_state(cache)[: 1 + 2 * layers]]

    types = [*state, aval((rows, 1), dt.int64)]
    if beams:
        types.append(aval((rows,), dt.int64))
    donated = tuple(range(1, 1 + 2 * layers))
    return DirectProgram(step, [*types, *rest_types], donated, "generate")


class Run:
    """One generation, a step at a time."""

    def __init__(
        self, model: Any, inputs: Any, mask: Any, start: np.ndarray, plan: _Plan, settings: Any
    ):
        self.model, self.plan, self.settings = model, plan, settings
        self.masked = mask is not None
        self.rows = len(start)
        self.programs = _programs(model)
        self.offset = 0
        self.bound: Any = None  # the step's program with the weights
        self.tokens = np.zeros((self.rows, 0), np.int64)
        given = self._given()
        arguments = [inputs, *([mask] if self.masked else []), start, *given, *self._settings()]
        types = _types(arguments)
        key = ("begin", plan, self.masked, model.training, tuple(types))
        program = self.programs.get(key)
        if program is None:
            program = self.programs.add(key, _begin(model, plan, types, self.masked, self.known))
        found = program.bind()(*[program.put(np.asarray(a)) for a in arguments])
        self.chosen, self.state = found[:2], found[2:]
        self.types = program.outs[2:]
        self.layers = _count_layers(len(self.types) - 1 - self.masked)

    def _given(self) -> list[np.ndarray]:
        found = [rule.given(self.tokens) for rule in self.plan.rules]
        self.known = tuple(g is not None for g in found)
        return [g for g in found if g is not None]

    def _settings(self) -> list[np.ndarray]:
        seed, temperature, top_k, top_p = self.settings
        self.offset += 1
        return [
            np.asarray(seed, np.int64),
            np.asarray(self.offset, np.int64),
            np.asarray(temperature, np.float32),
            np.asarray(top_k, np.int64),
            np.asarray(top_p, np.float32),
        ]

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """(log-probabilities, tokens) [rows, wide] after the last step."""
        return np.asarray(self.chosen[0]), np.asarray(self.chosen[1])

    def step(self, token: np.ndarray, order: np.ndarray | None = None) -> None:
        """Continue every row by a token; with beams, row i goes on from row `order[i]`."""
        tokens = self.tokens if order is None else self.tokens[order]
        self.tokens = np.concatenate([tokens, token[:, None]], 1)
        plan, given = self.plan, self._given()
        arguments = [*given, *self._settings()]
        types = _types(arguments)
        key = ("step", plan, self.masked, self.model.training, tuple(self.types), tuple(types))
        program = self.programs.get(key)
        if program is None:
            made = _step(
                self.model, plan, self.types, self.rows, self.masked, self.layers, self.known, types
            )
            program = self.programs.add(key, made)
        own = [
            token[:, None].astype(np.int64),
            *([] if order is None else [order.astype(np.int64)]),
        ]
        put = program.put
        if self.bound is None or self.bound[0] is not program:
            self.bound = program, program.bind()
        found = self.bound[1](*self.state, *[put(np.asarray(a)) for a in [*own, *arguments]])
        self.chosen = found[:2]
        self.state = [*found[2:], *self.state[1 + 2 * self.layers :]]


def _count_layers(arrays: int) -> int:
    """Every layer has a pair of its own and one of the other sequence."""
    if arrays % 4:
        raise InvalidArgument(
            "[generate] every layer of the decoder must call cache.attend (or attend_with) and "
            "cache.memory, once each"
        )
    return arrays // 4


def _types(arguments: Sequence[Any]) -> list[Aval]:
    return [aval(np.shape(a), dt.as_dtype(np.asarray(a).dtype)) for a in arguments]


def _array(given: Any) -> np.ndarray:
    return np.asarray(given.numpy() if isinstance(given, Tensor) else given)


def write(
    model: Any,
    inputs: TensorLike,
    max_new_tokens: int = 20,
    *,
    attention_mask: TensorLike | None = None,
    start: TensorLike,
    num_beams: int = 1,
    num_return_sequences: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool | str = False,
    decode_strategy: str = "greedy_search",
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int = 0,
    rules: Sequence[Rule] = (),
    seed: int | None = None,
) -> Written:
    """What `model` writes for `inputs` (tokens [batch, tokens], or what its `encode` takes).

    `start` [batch, tokens] are the decoder's first tokens. `attention_mask` is 0 at the inputs'
    padding. With `num_beams` above 1 the best sequences of a beam search; else each next token
    is the best one or drawn, as in `generate`. `rules` say what must not or must be written
    (`nn.generation.rules`).
    """
    _check(max_new_tokens, num_beams, num_return_sequences, decode_strategy, temperature)
    ends = () if eos_token_id is None else tuple(np.atleast_1d(eos_token_id).tolist())
    first = _array(start).astype(np.int64)
    batch = len(first)
    if first.ndim != 2 or not first.size:
        raise InvalidArgument(f"[generate] start must be [batch, tokens]. Received: {first.shape}")
    longest = 1 << max(first.shape[1] + max_new_tokens - 1, 15).bit_length()
    sampling = decode_strategy == "sampling"
    strategy = "greedy" if not sampling else ("sample" if not top_k and top_p == 1 else "filter")
    search = None
    if num_beams > 1:
        search = Beams(
            batch, num_beams, max_new_tokens, ends, length_penalty, early_stopping, pad_token_id
        )
    plan = _Plan(
        tuple(rules),
        tuple(rule.key for rule in rules),
        num_beams,
        search.wide if search else 0,
        strategy,
        longest,
        place.default_place(),
    )
    key = random.default_generator.draw()[0] if seed is None and sampling else seed or 0
    mask = None if attention_mask is None else _array(attention_mask).astype(np.int64)
    with paddle.no_grad():
        run = Run(
            model,
            _array(inputs),
            mask,
            np.repeat(first, num_beams, 0),
            plan,
            (key, temperature, top_k, top_p),
        )
        if search is None:
            return _one_by_one(run, max_new_tokens, ends, pad_token_id)
        while True:
            order, token = search.take(*run.best())
            if search.done:
                return Written(*search.best(num_return_sequences))
            run.step(token, order)


def _one_by_one(run: Run, longest: int, ends: Sequence[int], pad: int) -> Written:
    ended = np.zeros(run.rows, bool)
    tokens = np.full((run.rows, longest), pad, np.int64)
    lengths, each = np.zeros(run.rows, np.int64), np.zeros((run.rows, longest), np.float32)
    for i in range(longest):
        logs, found = run.best()
        token = np.where(ended, pad, found[:, 0])
        tokens[:, i] = token
        each[:, i] = np.where(ended, 0, logs[:, 0])
        lengths += ~ended
        ended |= np.isin(token, ends)
        if ended.all() or i + 1 == longest:
            break
        run.step(token)
    return Written(tokens[:, None], lengths[:, None], each.sum(1)[:, None], each[:, None])


def _check(new: int, beams: int, sequences: int, strategy: str, temperature: float) -> None:
    if strategy not in ("greedy_search", "sampling") or (beams > 1 and strategy == "sampling"):
        raise InvalidArgument(
            "[generate] decode_strategy must be 'greedy_search' or 'sampling', the latter without "
            f"beams. Received: {strategy!r} with {beams} beams"
        )
    if new < 1 or beams < 1 or not 1 <= sequences <= beams or not temperature > 0:
        raise InvalidArgument(
            "[generate] max_new_tokens and num_beams must be positive, num_return_sequences at "
            "most num_beams, and temperature positive. Received: "
            f"{new}, {beams}, {sequences} and {temperature}"
        )
