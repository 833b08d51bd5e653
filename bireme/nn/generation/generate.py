"""Generating tokens with an ordinary model: one program per prompt size and one for every step.

A prompt is padded to a power of two. The step program takes what the last one gave (token,
places, cache, tokens so far) without passing through Python, updates the cache in place, and
chooses the next token itself; Python only starts it again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import bireme as paddle
from bireme import passes
from bireme.api.types import TensorLike
from bireme.capture.direct_program import DirectProgram
from bireme.core import dtype as dt
from bireme.core import place, random, trace
from bireme.core.aval import Aval, aval
from bireme.core.cache import BoundedCache
from bireme.core.errors import InvalidArgument
from bireme.core.graph import Graph
from bireme.core.tensor import Tensor
from bireme.nn.generation.adjusting import Adjusting, adjusting
from bireme.nn.generation.cache import KVCache
from bireme.nn.generation.lookup import compile_check, tokens_by_lookup
from bireme.nn.generation.ops import cache_write
from bireme.nn.generation.prompt_cache import PromptCache
from bireme.nn.generation.sampling import next_token
from bireme.nn.generation.stack import decoder_stack as decoder_stack  # for the pass

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer


_SMALLEST = 16  # the first bucket
_LOOK_EVERY = 16  # steps between two looks at whether all samples have ended
_HEAD = 6  # of a state: token, place, ended, offset, tokens, count; then the cache
_TOKENS_AT = 4


@dataclass(frozen=True)
class _Shape:
    """What the programs of a generation depend on."""

    batch: int
    bucket: int
    length: int
    strategy: str
    ends: int
    training: bool
    device: Any
    autocast: Any
    adjusting: Adjusting


_MAX_PROGRAMS = 64  # of each kind that a model keeps


class _Programs:
    """The programs of one model, as long as its parameters stay the same tensors."""

    def __init__(self, model: Any):
        self.marks = _marks(model)
        self.prefill: BoundedCache[Any, DirectProgram] = BoundedCache(_MAX_PROGRAMS)
        self.step: BoundedCache[Any, DirectProgram] = BoundedCache(_MAX_PROGRAMS)
        self.check: BoundedCache[Any, DirectProgram] = BoundedCache(_MAX_PROGRAMS)

    def of(
        self, model: Any, shape: _Shape, kept: tuple[Aval, ...]
    ) -> tuple[DirectProgram, DirectProgram]:
        """The programs of the first tokens, after those of a prompt cache if `kept` has its types,
        and of every further one."""
        first = self.prefill.get((shape, kept))
        if first is None:
            first = self.prefill.add((shape, kept), _compile_prefill(model, shape, kept))
        key = (*[shape.__dict__[k] for k in shape.__dict__ if k != "bucket"], *first.outs)
        step = self.step.get(key)
        if step is None:
            step = self.step.add(key, _compile_step(model, shape, first.outs))
        return first, step


_known: weakref.WeakKeyDictionary[Any, _Programs] = weakref.WeakKeyDictionary()


def _marks(model: Any) -> list[tuple[int, Any]]:
    state = [*model.parameters(), *model.buffers()] if hasattr(model, "parameters") else []
    return [(id(t), t._value.aval) for t in state]


def _programs(model: Any) -> _Programs:
    found = _known.get(model)
    if found is None or found.marks != _marks(model):
        found = _known[model] = _Programs(model)
    return found


_SETTINGS = (
    aval((), dt.int64),  # seed
    aval((), dt.float32),  # temperature
    aval((), dt.int64),  # top_k
    aval((), dt.float32),  # top_p
    aval((), dt.int64),  # the token for samples that have ended
)


def _choose(
    logits: Tensor, offset: Tensor, settings: list[Tensor], shape: _Shape, history: Tensor | None
) -> Tensor:
    seed, temperature, top_k, top_p = settings[:4]
    scores = logits[:, -1]
    if shape.adjusting.types():
        numbers = settings[len(_SETTINGS) :]
        scores = shape.adjusting.apply(scores, history, temperature, numbers)
    return next_token(scores, seed, offset, temperature, top_k, top_p, shape.strategy)


def _after(token: Tensor, ended: Tensor, settings: list[Tensor], ends: Tensor) -> Any:
    """(token, ended): padding where a sample had ended before, and whether it has now."""
    token = paddle.where(ended, settings[4], token)
    return token, ended | (token.unsqueeze(-1) == ends).any(-1)


def _flat(cache: KVCache) -> list[Tensor]:
    return [t for pair in cache.layers for t in pair]


def _compile_prefill(model: Any, shape: _Shape, kept: tuple[Aval, ...]) -> DirectProgram:
    """The program of a prompt, or of what follows the tokens in a prompt cache."""
    penalties = shape.adjusting.penalties
    types = [
        aval((shape.batch, shape.bucket), dt.int64),
        aval((shape.batch,), dt.int64),
        aval((), dt.int64),
        aval((shape.ends,), dt.int64),
        *_SETTINGS,
        *shape.adjusting.types(),
    ]
    more = [aval((1,), dt.int64), *kept] if kept else []
    if kept and penalties:  # which are of all tokens
        more += [aval((1, shape.length), dt.int64), aval((1,), dt.int64)]

    def prefill(arguments: list[Tensor]) -> list[Tensor]:
        ids, counts, offset, ends, *settings = arguments[: len(types)]
        cache = KVCache(shape.length)
        whole, total = ids, counts
        if kept:
            cache.place, *flat = arguments[len(types) :]
            if penalties:
                *flat, whole, total = flat
            cache.layers = list(zip(flat[::2], flat[1::2], strict=True))
        cache.counts = counts
        logits = logits_of(model, ids, cache)
        if logits.shape[1] != 1:
            logits = cache.last(logits)
        history = None
        if penalties:
            history = shape.adjusting.start(whole, total, logits.shape[-1])
        token = _choose(logits, offset, settings, shape, history)
        token, ended = _after(token, paddle.zeros([shape.batch], "bool"), settings, ends)
        cache.advance(counts)
        tokens = paddle.zeros([shape.batch, shape.length], "int64")
        zero = paddle.zeros([1], "int64")
        tokens = cache_write(tokens, token.unsqueeze(-1), zero)
        assert cache.place is not None  # noqa: S101 (it has just advanced)
        after = [] if history is None else [shape.adjusting.add(history, token)]
        return [token, cache.place, ended, offset + 1, tokens, zero + 1, *_flat(cache), *after]

    return DirectProgram(prefill, [*types, *more], (), "generate")


def _compile_step(model: Any, shape: _Shape, state: Sequence[Aval]) -> DirectProgram:
    def step(arguments: list[Tensor]) -> list[Tensor]:
        token, at, ended, offset, tokens, count = arguments[:_HEAD]
        kept, (ends, *settings) = arguments[_HEAD : len(state)], arguments[len(state) :]
        history = kept.pop() if shape.adjusting.penalties else None
        cache = KVCache(shape.length)
        cache.place = at
        cache.layers = list(zip(kept[::2], kept[1::2], strict=True))
        logits = logits_of(model, token.unsqueeze(-1), cache)
        token = _choose(logits, offset, settings, shape, history)
        token, ended = _after(token, ended, settings, ends)
        cache.advance(1)
        tokens = cache_write(tokens, token.unsqueeze(-1), count)
        assert cache.place is not None  # noqa: S101 (it was set above)
        after = [] if history is None else [shape.adjusting.add(history, token)]
        return [token, cache.place, ended, offset + 1, tokens, count + 1, *_flat(cache), *after]

    # The cache and the tokens so far are updated in place. What Python may still look at is not.
    donated = (_TOKENS_AT, *range(_HEAD, len(state)))
    types = [*state, aval((shape.ends,), dt.int64), *_SETTINGS, *shape.adjusting.types()]
    # For kernels that read all weights of one input at once, or those of all layers
    # (kernels/gpu_decode.py, kernels/gpu_decoder.py).
    on_gpu = place.default_place().is_gpu_place()
    return DirectProgram(step, types, donated, "generate", _merged if on_gpu else None)


def _merged(graph: Graph) -> Graph:
    return passes.run(graph, ["stack_layers", "merge_products"])


def logits_of(model: Any, ids: Tensor, cache: KVCache) -> Tensor:
    logits = model(ids, cache=cache)
    if isinstance(logits, tuple | list):
        logits = logits[0]
    if not isinstance(logits, Tensor) or logits.ndim != 3:
        raise InvalidArgument(
            "[generate] model(input_ids, cache=cache) must return scores [batch, tokens, "
            f"vocabulary]. Received: {getattr(logits, 'shape', type(logits).__name__)}"
        )
    if not cache.layers:
        raise InvalidArgument(
            "[generate] the model did not use its cache: call cache.attend(layer, q, k, v) in "
            "its attention"
        )
    return logits


class _Run:
    """One generation: the state on the device, and the step that turns it into the next."""

    def __init__(
        self,
        model: Any,
        input_ids: Any,
        new: int,
        lengths: Any,
        decode_strategy: str,
        temperature: float,
        top_k: int,
        top_p: float,
        eos_token_id: Any,
        pad_token_id: int | None,
        seed: int | None,
        cache_length: int | None,
        adjustments: tuple[Any, ...] = (),
        prompt_cache: PromptCache | None = None,
        lookup: int = 0,
    ):
        strategy, ends = _options(new, decode_strategy, temperature, top_k, top_p, eos_token_id)
        pad = pad_token_id if pad_token_id is not None else (ends[0] if ends else 0)
        self.ends = ends
        ids, counts = checked_prompt(input_ids, lengths)
        batch, rows = ids.shape
        bucket = bucket_of(rows)
        length = cache_length or bucket_of(bucket + new)
        self.prompt, seen = ids[0, : counts[0]].tolist(), 0
        if (prompt_cache is not None or lookup) and batch != 1:
            raise InvalidArgument(
                "[generate] prompt_cache and lookup are for one prompt at a time. Received: "
                f"{batch} prompts"
            )
        if prompt_cache is not None:
            seen = prompt_cache.shared(model, self.prompt)
            length = max(length, prompt_cache.length)
        if rows + new > length or bucket > length:
            raise InvalidArgument(
                f"[generate] a prompt of {rows} tokens (padded to {bucket}) and {new} new ones do "
                f"not fit a cache of {length}. Give a larger cache_length, or fewer tokens"
            )
        if seen:  # the padding must end where that of the whole prompt would
            total = len(self.prompt)
            seen = max(0, min(seen, bucket_of(total) - bucket_of(total - seen)))
        if seen:
            ids, counts = ids[:, seen : counts[0]], counts - seen
            rows = ids.shape[1]
            bucket = bucket_of(rows)
        training = bool(getattr(model, "training", False))
        adjusted, numbers = adjusting(*adjustments)
        if lookup and (strategy != "greedy" or adjusted.types() or lookup < 0):
            raise InvalidArgument(
                "[generate] lookup is a number of tokens, for the likeliest token every time "
                "without penalties, biases and min_p"
            )
        shape = _Shape(
            batch,
            bucket,
            length,
            strategy,
            max(len(ends), 1),
            training,
            place.default_place(),
            trace.state.trace.amp,
            adjusted,
        )
        kept = tuple(prompt_cache.types(length)) if prompt_cache is not None and seen else ()
        first, again = _programs(model).of(model, shape, kept)
        self.model, self.length, self.after = model, length, 1 if adjusted.penalties else 0
        key, offset = random.default_generator.draw() if seed is None else (seed, 0)
        put = again.put
        self.settings = [
            put(np.asarray(list(ends) or [-1], np.int64)),
            put(np.asarray(key, np.int64)),
            put(np.asarray(temperature, np.float32)),
            put(np.asarray(top_k, np.int64)),
            put(np.asarray(top_p, np.float32)),
            put(np.asarray(pad, np.int64)),
            *[put(n) for n in numbers],
        ]
        padded = np.zeros((batch, bucket), np.int64)
        padded[:, :rows] = ids
        self.again = again.bind()
        # Keys of one generation are offsets of one stream; the high half keeps streams apart.
        start = put(np.asarray(offset << 32, np.int64))
        more = []
        if prompt_cache is not None and seen:
            more = [put(np.asarray([seen], np.int64)), *map(put, prompt_cache.arrays(length))]
            if adjusted.penalties:
                whole = np.zeros((1, length), np.int64)
                whole[0, : len(self.prompt)] = self.prompt
                more += [put(whole), put(np.asarray([len(self.prompt)], np.int64))]
        self.put = put
        self.state = first.bind()(put(padded), put(counts), start, *self.settings, *more)

    def step(self) -> None:
        self.state = self.again(*self.state, *self.settings)

    @property
    def token(self) -> Any:
        return self.state[0]

    @property
    def ended(self) -> Any:
        return self.state[2]

    def tokens(self, count: int) -> np.ndarray:
        return np.asarray(self.state[_TOKENS_AT])[:, :count]

    @property
    def place(self) -> int:
        """How many tokens of the only sample are in the cache."""
        return int(np.asarray(self.state[1])[0])

    @property
    def _layers(self) -> list[Any]:
        return self.state[_HEAD : len(self.state) - self.after]

    def keep(self, prompt_cache: PromptCache | None, new: Sequence[int]) -> None:
        """Leave what was made of the prompt and of `new` tokens to later generations."""
        if prompt_cache is not None:
            text = [*self.prompt, *new]
            prompt_cache.keep(self.model, text[: self.place], self._layers)

    def check(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The best token after each of `tokens`, which follow those in the cache, and whether it is
        clearly the best."""
        layers = self._layers
        types = [aval(tuple(a.shape), dt.as_dtype(a.dtype)) for a in layers]
        key = len(tokens), tuple(types), trace.state.trace.amp, self.model.training
        programs = _programs(self.model)
        found = programs.check.get(key)
        if found is None:
            made = compile_check(self.model, logits_of, len(tokens), self.length, types)
            found = programs.check.add(key, made)
        ids = self.put(np.asarray([tokens], np.int64))
        best, clear, *layers = found.bind()(ids, self.state[1], *layers)
        self.state = [*self.state[:_HEAD], *layers]
        return np.asarray(best)[0], np.asarray(clear)[0]

    def resume(self, token: int, place: int) -> None:
        """Go on from `token`, which follows the first `place` tokens of the cache."""
        now = [self.put(np.asarray([n], np.int64)) for n in (token, place)]
        self.state = [*now, *self.state[2:]]


def checked_prompt(input_ids: Any, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
    ids = np.asarray(input_ids.numpy() if isinstance(input_ids, Tensor) else input_ids)
    if ids.ndim == 1:
        ids = ids[None]
    if ids.ndim != 2 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise InvalidArgument(
            "[generate] input_ids must be integers of shape [batch, tokens], with at least one. "
            f"Received: {ids.dtype}{list(ids.shape)}"
        )
    if lengths is None:
        return ids, np.full(ids.shape[0], ids.shape[1], np.int64)
    counts = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths, np.int64)
    if counts.shape != ids.shape[:1] or counts.min() < 1 or counts.max() > ids.shape[1]:
        raise InvalidArgument(
            f"[generate] lengths must give each of the {ids.shape[0]} samples 1 to {ids.shape[1]} "
            f"tokens. Received: {counts.tolist()}"
        )
    return ids, counts


def bucket_of(n: int) -> int:
    return max(_SMALLEST, 1 << (n - 1).bit_length())


def _options(
    new: int, decode_strategy: str, temperature: float, top_k: int, top_p: float, ends: Any
) -> tuple[str, tuple[int, ...]]:
    if decode_strategy not in ("greedy_search", "sampling"):
        raise InvalidArgument(
            "[generate] decode_strategy must be 'greedy_search' or 'sampling'. Received: "
            f"{decode_strategy!r}"
        )
    if new < 1:
        raise InvalidArgument(f"[generate] max_new_tokens must be positive. Received: {new}")
    if temperature <= 0 or top_k < 0 or not 0 < top_p <= 1:
        raise InvalidArgument(
            "[generate] temperature must be positive, top_k not negative and top_p in (0, 1]. "
            f"Received: {temperature}, {top_k}, {top_p}"
        )
    strategy = "greedy"
    if decode_strategy == "sampling":
        strategy = "sample" if top_k == 0 and top_p == 1 else "filter"
    listed = () if ends is None else ((ends,) if isinstance(ends, int) else tuple(ends))
    return strategy, listed


def generate(
    model: Layer,
    input_ids: TensorLike,
    max_new_tokens: int = 20,
    *,
    lengths: TensorLike | None = None,
    decode_strategy: str = "greedy_search",
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    seed: int | None = None,
    cache_length: int | None = None,
    prompt_cache: PromptCache | None = None,
    lookup: int = 0,
) -> Tensor:
    """Continue `input_ids` [batch, tokens]; returns the new tokens [batch, up to max_new_tokens].

    `model(input_ids, cache=cache)` returns scores [batch, tokens, vocabulary] and uses the cache
    in its attention (see `KVCache`). Prompts of different lengths are padded on the right and
    described by `lengths`. Generation ends when every sample has produced one of `eos_token_id`;
    shorter ones are filled with `pad_token_id`. Tokens are drawn on the device from Bireme's
    generator, or from one of their own with `seed`. `cache_length` fixes the cache's size, so that
    prompts of all sizes share one step program.

    `min_p` leaves tokens at least that share of the best one's probability. `repetition_penalty`
    divides the scores of tokens that the prompt or the new text has; `presence_penalty` is taken
    from those of the new text, and `frequency_penalty` once for each time they are there.
    `logit_bias` adds to tokens' scores.

    `prompt_cache` keeps what the model made of the prompt and of the new tokens; the next
    generation reads only what differs. `lookup` proposes up to that many tokens at once where the
    text repeats itself, and takes those that one at a time would give. Both are for one prompt.

        tokens = generate(model, prompt, 100, decode_strategy="sampling", top_p=0.9)
    """
    with paddle.no_grad():
        run = _Run(
            model,
            input_ids,
            max_new_tokens,
            lengths,
            decode_strategy,
            temperature,
            top_k,
            top_p,
            eos_token_id,
            pad_token_id,
            seed,
            cache_length,
            (min_p, repetition_penalty, presence_penalty, frequency_penalty, logit_bias),
            prompt_cache,
            lookup,
        )
        if lookup:
            return _looked_up(run, max_new_tokens, lookup, prompt_cache)
        earlier, done = run.ended, 1
        while done < max_new_tokens:
            if run.ends and done % _LOOK_EVERY == 0:
                # A look at steps that are long over: nobody waits for the one that runs.
                if bool(np.asarray(earlier).all()):
                    break
                earlier = run.ended
            run.step()
            done += 1
        tokens = run.tokens(done)
        run.keep(prompt_cache, tokens[0].tolist())
    return paddle.to_tensor(tokens[:, : _used(tokens, run.ends)])


def _looked_up(run: _Run, new: int, lookup: int, prompt_cache: PromptCache | None) -> Tensor:
    found = list(tokens_by_lookup(run, new, lookup))
    run.keep(prompt_cache, found)
    return paddle.to_tensor(np.asarray([found], np.int64))


def _used(tokens: np.ndarray, ends: Sequence[int]) -> int:
    """How many columns there are until every sample has ended."""
    if not ends:
        return tokens.shape[1]
    ended = np.isin(tokens, ends)
    first = np.where(ended.any(1), ended.argmax(1) + 1, tokens.shape[1])
    return int(first.max())


def stream(
    model: Layer,
    input_ids: TensorLike,
    max_new_tokens: int = 20,
    *,
    lengths: TensorLike | None = None,
    decode_strategy: str = "greedy_search",
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int | None = None,
    seed: int | None = None,
    cache_length: int | None = None,
    prompt_cache: PromptCache | None = None,
    lookup: int = 0,
) -> Iterator[list[int]]:
    """As `generate`, but yields each step's tokens, one per sample, as soon as they are there.

    The next step is under way while the caller works with the last one's tokens.
    """
    with paddle.no_grad():
        run = _Run(
            model,
            input_ids,
            max_new_tokens,
            lengths,
            decode_strategy,
            temperature,
            top_k,
            top_p,
            eos_token_id,
            pad_token_id,
            seed,
            cache_length,
            (min_p, repetition_penalty, presence_penalty, frequency_penalty, logit_bias),
            prompt_cache,
            lookup,
        )
    given: list[int] = []  # of the first sample
    try:
        for tokens in _each(run, max_new_tokens, lookup):
            given.append(tokens[0])
            yield tokens
    except GeneratorExit:
        run.keep(prompt_cache, given)
        raise
    run.keep(prompt_cache, given)


def _each(run: _Run, new: int, lookup: int) -> Iterator[list[int]]:
    if lookup:
        yield from ([token] for token in tokens_by_lookup(run, new, lookup))
        return
    for i in range(new):
        token, ended = run.token, run.ended
        if i + 1 < new:
            run.step()
        yield np.asarray(token).tolist()
        if run.ends and bool(np.asarray(ended).all()):
            return
