"""Text from language models: continued, in batches, and in chats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from bireme.core.errors import InvalidArgument
from bireme.nn import generation
from bireme.nn.layer.layer import Layer
from bireme.zoo.tokenizer import StreamDecoder, Tokenizer

Messages = Sequence[Mapping[str, Any]]


class Sampling(TypedDict, total=False):
    """How tokens are chosen, as in `nn.generation.generate`; temperature 0, the default, takes the
    likeliest one every time. With a `prompt_cache` a prompt that begins as the last text did is not
    read again; `lookup` is how many tokens are proposed at once where a text repeats itself."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    seed: int | None
    prompt_cache: generation.PromptCache | None
    lookup: int


def generate(
    model: Layer,
    tokenizer: Tokenizer,
    prompts: str | Sequence[str],
    max_new_tokens: int = 128,
    *,
    stop: str | Sequence[str] = (),
    **sampling: Unpack[Sampling],
) -> list[str]:
    """Continue every prompt; returns the new texts.

    Temperature 0 takes the likeliest token every time. A text ends with the model's own end token
    or before one of the `stop` strings. What a prompt gives does not depend on its batch.
    """
    encoded = encoded_prompts(tokenizer, prompts)
    if not encoded:
        return []
    padded, lengths = padded_prompts(encoded)
    options = sampling_options(tokenizer, sampling)
    options["cache_length"] = cache_length(padded.shape[1], max_new_tokens)
    options["lengths"] = lengths
    _check_rope(model, options, padded.shape[1] + max_new_tokens)
    if not _stops(stop):
        new = generation.generate(model, padded, max_new_tokens, **options).numpy()
        return [_decoded(tokenizer, row) for row in new]
    writers = [Writer(tokenizer, stop) for _ in encoded]
    for tokens in generation.stream(model, padded, max_new_tokens, **options):
        for writer, token in zip(writers, tokens, strict=True):
            writer.put(token)
        if all(w.done for w in writers):
            break
    return [w.text() for w in writers]


def stream(
    model: Layer,
    tokenizer: Tokenizer,
    prompt: str | Sequence[int],
    max_new_tokens: int = 128,
    *,
    stop: str | Sequence[str] = (),
    **sampling: Unpack[Sampling],
) -> Iterator[str]:
    """As `generate` for one prompt, a text or its tokens: pieces of text as soon as they are
    there. No piece ends inside a character."""
    ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
    ids = ids or _begin(tokenizer)
    options = sampling_options(tokenizer, sampling)
    options["cache_length"] = cache_length(len(ids), max_new_tokens)
    _check_rope(model, options, len(ids) + max_new_tokens)
    writer = Writer(tokenizer, stop)
    for (token,) in generation.stream(model, [ids], max_new_tokens, **options):
        piece = writer.put(token)
        if piece:
            yield piece
        if writer.done:
            break
    rest = writer.end()
    if rest:
        yield rest


def chat(
    model: Layer,
    tokenizer: Tokenizer,
    messages: str | Messages,
    max_new_tokens: int = 512,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    stop: str | Sequence[str] = (),
    variables: Mapping[str, object] | None = None,
    **sampling: Unpack[Sampling],
) -> Iterator[str]:
    """The model's answer to a chat, as pieces of text.

        for piece in zoo.chat(model, tokenizer, "What is the capital of France?"):
            print(piece, end="", flush=True)

    `messages` is a question or a list of {"role": ..., "content": ...}; `variables` are for the
    chat template, such as {"enable_thinking": False}.
    """
    turns: Messages = (
        [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    )
    ids = tokenizer.encode_chat(turns, tools=tools, **(variables or {}))
    return stream(model, tokenizer, ids, max_new_tokens, stop=stop, **sampling)


def encoded_prompts(tokenizer: Tokenizer, prompts: str | Sequence[str]) -> list[list[int]]:
    """The tokens of each prompt."""
    texts = [prompts] if isinstance(prompts, str) else list(prompts)
    return [tokenizer.encode(t) or _begin(tokenizer) for t in texts]


def padded_prompts(encoded: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """(tokens [prompts, tokens], padded on the right, their numbers)."""
    lengths = np.array([len(ids) for ids in encoded], np.int64)
    padded = np.zeros((len(encoded), int(lengths.max())), np.int64)
    for row, ids in zip(padded, encoded, strict=True):
        row[: len(ids)] = ids
    return padded, lengths


def _begin(tokenizer: Tokenizer) -> list[int]:
    """The tokens of an empty prompt."""
    first = tokenizer.bos_token_id
    if first is None:
        raise InvalidArgument("[generate] the prompt is empty and the model has no first token")
    return [first]


def cache_length(prompt: int, new: int) -> int:
    """Room for both, in steps so large that most calls share their programs."""
    bucket = 1 << max(prompt - 1, 15).bit_length()
    return max(256, 1 << (bucket + new - 1).bit_length())


def sampling_options(tokenizer: Tokenizer, sampling: Sampling) -> dict[str, Any]:
    options: dict[str, Any] = dict(sampling)
    temperature = options.pop("temperature", 0.0)
    if temperature < 0:
        raise InvalidArgument(
            f"[generate] temperature must be 0 (the likeliest token) or more. Received: "
            f"{temperature}"
        )
    options["eos_token_id"] = list(tokenizer.end_ids)
    if temperature:
        options |= {"decode_strategy": "sampling", "temperature": temperature}
    return options


def _check_rope(model: Layer, options: dict[str, Any], longest: int) -> None:
    """Where a text's length changes the positions of its first tokens, what was made of them before
    is of no use: such texts are read whole."""
    rope = getattr(getattr(model, "config", None), "rope", None)
    if rope is None or rope.kind not in ("dynamic", "longrope") or longest <= rope.longest:
        return
    kept = options.pop("prompt_cache", None)
    if kept is not None:
        kept.clear()
    if options.get("lookup"):
        raise InvalidArgument(
            f"[generate] lookup cannot be used for {longest} tokens with this model, whose "
            f"positions change when a text is longer than {rope.longest}"
        )


def _stops(stop: str | Sequence[str]) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(stops):
        raise InvalidArgument("[generate] a stop string must not be empty")
    return stops


def _decoded(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """The text up to the first end token."""
    ends = np.isin(ids, tokenizer.end_ids)
    count = int(ends.argmax()) if ends.any() else len(ids)
    return tokenizer.decode(ids[:count].tolist())


class Writer:
    """The text of one sample as its tokens come, up to an end token or a stop string."""

    def __init__(self, tokenizer: Tokenizer, stop: str | Sequence[str]):
        self._ends, self._stops = set(tokenizer.end_ids), _stops(stop)
        self._decoder = StreamDecoder(tokenizer)
        self._held = ""  # text that may be the beginning of a stop string
        self._given: list[str] = []
        self.done = False

    def put(self, token: int) -> str:
        """The text that this token completes."""
        if self.done:
            return ""
        if token in self._ends:
            return self.end()
        return self._give(self._decoder.put(token), last=False)

    def end(self) -> str:
        """What is left when no more tokens come."""
        if self.done:
            return ""
        piece = self._give(self._decoder.end(), last=True)
        self.done = True
        return piece

    def text(self) -> str:
        """All of it."""
        self.end()
        return "".join(self._given)

    def _give(self, piece: str, last: bool) -> str:
        text = self._held + piece
        found = [i for i in (text.find(s) for s in self._stops) if i >= 0]
        if found:
            self.done, ready = True, text[: min(found)]
        else:
            held = 0 if last else max((overlap(text, s) for s in self._stops), default=0)
            ready, self._held = text[: len(text) - held], text[len(text) - held :]
        self._given.append(ready)
        return ready


def overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text may begin the stop string."""
    most = min(len(text), len(stop) - 1)
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
