"""OpenAI's protocol: chats, completions, embeddings and models."""

from __future__ import annotations

import asyncio
import base64
import math
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson

from bireme.core.errors import BiremeError
from bireme.serving import openai_fields as read
from bireme.serving.errors import BadRequest, ClientGone, NotFound, ServingError, WrongMethod
from bireme.serving.http import Http, Response, json_response
from bireme.serving.inferring import Request, infer
from bireme.serving.language.grammar import Form
from bireme.serving.language.model import Event, LanguageModel
from bireme.serving.language.reading import CallReader
from bireme.serving.language.sampling import Choice, Sampling
from bireme.serving.language.scheduler import Text
from bireme.serving.language.tools import Call, Message, Tools, begins, demand, tools_of, turns
from bireme.serving.openai_fields import Fields
from bireme.serving.repository import Repository

_STREAM = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
_MOST_ANSWERS = 64  # of one request


class OpenAi:
    """The addresses below /v1."""

    def __init__(self, languages: Mapping[str, LanguageModel], repository: Repository):
        self._languages, self._models = languages, repository

    async def __call__(self, http: Http) -> Response:
        parts = http.path.strip("/").split("/")[1:]
        if parts[:1] == ["models"]:
            _only(http, "GET")
            return self._described("/".join(parts[1:]))
        found = {
            ("chat", "completions"): self._chat,
            ("completions",): self._complete,
            ("embeddings",): self._embed,
        }.get(tuple(parts))
        if found is None:
            raise NotFound(f"there is nothing at {http.path[:200]!r}")
        _only(http, "POST")
        fields = Fields(await http.json())
        name = fields.take("model")
        if not isinstance(name, str):
            raise BadRequest("model must be a name")
        http.model = name
        return await found(http, name, fields)

    def _described(self, name: str) -> Response:
        rows = [
            {"id": n, "object": "model", "created": m.created, "owned_by": "bireme",
             "chat": m.chats, "context": m.context}
            for n, m in self._languages.items()
        ]  # fmt: skip
        rows += [
            {"id": v.name, "object": "model", "created": 0, "owned_by": "bireme", "chat": False}
            for v in self._models.all()
            if _embeds(v.signature)
        ]
        if not name:
            return json_response({"object": "list", "data": rows})
        for row in rows:
            if row["id"] == name:
                return json_response(row)
        raise NotFound(f"there is no model {name[:200]!r}")

    def _language(self, name: str) -> LanguageModel:
        found = self._languages.get(name)
        if found is None:
            raise NotFound(
                f"there is no language model {name[:200]!r}. There are: "
                f"{', '.join(self._languages) or 'none'}"
            )
        return found

    async def _chat(self, http: Http, name: str, fields: Fields) -> Response:
        model = self._language(name)
        messages = read.messages_of(fields.take("messages"))
        variables = fields.take("chat_template_kwargs", {})
        if not isinstance(variables, dict) or not all(isinstance(k, str) for k in variables):
            raise BadRequest("chat_template_kwargs must be an object")
        new = fields.take("max_completion_tokens") or fields.take("max_tokens")
        fields.take("max_tokens")
        tools = tools_of(
            fields.take("tools", []),
            fields.take("tool_choice", "auto"),
            fields.flag("parallel_tool_calls", True),
        )
        logprobs = read.chat_logprobs(fields)
        reserved = {"tools", "add_generation_prompt", "chat_template"} & set(variables)
        if reserved:
            raise BadRequest(f"chat_template_kwargs cannot set {sorted(reserved)[0]!r}")
        try:
            prompt = await asyncio.to_thread(_chat_prompt, model, messages, tools, variables)
        except BiremeError as e:
            raise BadRequest(str(e)) from None
        return await self._answer(http, model, fields, [prompt], new, logprobs, Chat(model), tools)

    async def _complete(self, http: Http, name: str, fields: Fields) -> Response:
        model = self._language(name)
        size = model.tokenizer.vocab_size
        prompts = read.prompts_of(fields.take("prompt"), size)
        fields.only("echo", False)
        fields.only("suffix", "")
        logprobs = fields.whole("logprobs", -1, -1, 20)
        new = fields.take("max_tokens", 16)
        fields.only("best_of", 1)
        tokens = await asyncio.to_thread(_encoded, model, prompts)
        return await self._answer(http, model, fields, tokens, new, logprobs, Completion(model))

    async def _answer(
        self,
        http: Http,
        model: LanguageModel,
        fields: Fields,
        prompts: Sequence[list[int]],
        new: object,
        logprobs: int,
        shape: Chat | Completion,
        tools: Tools | None = None,
    ) -> Response:
        if new is not None and (type(new) is not int or new < 1):
            raise BadRequest(f"max_tokens must be a positive number. Received: {new!r:.100}")
        sampling = read.sampling_of(fields, model.tokenizer.vocab_size, logprobs)
        stops, seed = read.stops_of(fields.take("stop", ())), read.seed_of(fields)
        each, stream = read.choices_of(fields), fields.flag("stream")
        wanted = fields.take("response_format", {"type": "text"})
        if not isinstance(wanted, dict):
            raise BadRequest("response_format must be an object")
        options = fields.take("stream_options", {})
        if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
            raise BadRequest("stream_options may have include_usage")
        fields.done()
        if each * len(prompts) > _MOST_ANSWERS:
            raise BadRequest(f"a request has at most {_MOST_ANSWERS} answers")
        if tools is not None:
            if wanted.get("type") != "text":
                raise BadRequest("response_format is not supported together with tools")
            wanted = demand(model.tools, tools)
        form = await asyncio.to_thread(model.form, wanted)
        most = new if type(new) is int else None
        run = Answers(model, prompts, each, most, sampling, stops, seed, form, tools)
        http.watch(run.gone)
        if stream:
            first = await run.next()  # errors of the request have their own status
            events = _streamed(run, first, shape, bool(options.get("include_usage")))
            return Response(events, 200, "text/event-stream; charset=utf-8", dict(_STREAM))
        parts: list[list[Event]] = [[] for _ in range(each * len(prompts))]
        while run.left:
            event = await run.next()
            parts[event.index].append(event)
        choices = [shape.whole(i, events) for i, events in enumerate(parts)]
        return json_response({**shape.head(False), "choices": choices, "usage": run.usage()})

    async def _embed(self, http: Http, name: str, fields: Fields) -> Response:
        version = self._models.get(name)
        if not _embeds(version.signature):
            raise BadRequest(f"{name!r} gives no embeddings")
        given = fields.take("input")
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not texts or not all(isinstance(t, str) for t in texts):
            raise BadRequest("input must be a text or a list of texts")
        form = fields.take("encoding_format", "float")
        if form not in ("float", "base64"):
            raise BadRequest(f"encoding_format must be float or base64. Received: {form!r:.100}")
        fields.done()
        vectors: list[np.ndarray] = []
        counts: list[int] = []
        most = version.sizes[-1]
        for at in range(0, len(texts), most):
            part = np.empty(len(texts[at : at + most]), object)
            part[:] = [t.encode() for t in texts[at : at + most]]
            request = Request(name, "", {"text": part}, (), {})
            _, found = await infer(self._models, request, http.watch)
            http.forget()
            vectors += list(found["embedding"])
            counts += found["tokens"].tolist() if "tokens" in found else []
        data = [
            {"object": "embedding", "index": i, "embedding": _vector(v, form)}
            for i, v in enumerate(vectors)
        ]
        answer = {"object": "list", "data": data, "model": name}
        if len(counts) == len(texts):
            answer["usage"] = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
        return json_response(answer)


def _vector(vector: np.ndarray, form: str) -> Any:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


def _embeds(signature: Any) -> bool:
    names = {f.name for f in signature.outputs}
    return [f.name for f in signature.inputs] == ["text"] and names in (
        {"embedding"},
        {"embedding", "tokens"},
    )


def _only(http: Http, method: str) -> None:
    if http.method != method:
        raise WrongMethod(f"{http.path[:200]!r} takes {method}")


def _chat_prompt(
    model: LanguageModel,
    messages: list[Message],
    tools: Tools | None,
    variables: Mapping[str, Any],
) -> list[int]:
    """The tokens of a chat; of a demanded call, too, up to its JSON."""
    words = model.tokenizer
    if tools is None and not any("tool_calls" in m or m["role"] == "tool" for m in messages):
        return words.encode_chat(messages, **variables)
    said = turns(messages, model.tools, tools)
    listed = None if tools is None or model.tools.described else tools.specifications()
    prompt = words.encode_chat(said, tools=listed, **variables)
    begun = "" if tools is None else begins(model.tools, tools)
    return prompt + (words.encode(begun, add_special_tokens=False) if begun else [])


def _encoded(model: LanguageModel, prompts: Sequence[str | list[int]]) -> list[list[int]]:
    found = [model.tokenizer.encode(p) if isinstance(p, str) else p for p in prompts]
    first = model.tokenizer.bos_token_id
    if not all(found) and first is None:
        raise BadRequest("the prompt is empty, and the model has no first token")
    return [tokens or [int(first or 0)] for tokens in found]


class Answers:
    """All answers of one request, as events in the order in which they come."""

    def __init__(
        self,
        model: LanguageModel,
        prompts: Sequence[list[int]],
        each: int,
        new: int | None,
        sampling: Sampling,
        stops: Sequence[str],
        seed: int,
        form: Form | None,
        tools: Tools | None = None,
    ):
        self._model, self._loop = model, asyncio.get_running_loop()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._texts: list[Text] = []
        self._prompt_tokens = sum(map(len, prompts))
        self._new_tokens = 0
        self.left = each * len(prompts)
        self._readers = [
            CallReader(model.tools, tools, model.tokenizer) for _ in range(self.left) if tools
        ]
        try:
            for i, prompt in enumerate(p for p in prompts for _ in range(each)):
                text = model.write(
                    prompt, new, sampling, self._push, stop=stops, seed=seed, index=i, form=form
                )
                self._texts.append(text)
        except ServingError:
            self.cancel()
            raise

    def _push(self, event: Event) -> None:
        """From the engine's thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def next(self) -> Event:
        """The next event; raises its error."""
        event = await self._events.get()
        if event is None:
            raise ClientGone("the client has closed its connection")
        if event.error is not None:
            self.cancel()
            raise event.error
        self._new_tokens += event.choice is not None
        self.left -= event.finish is not None
        return self._readers[event.index].read(event) if self._readers else event

    def gone(self) -> None:
        """The client has closed its connection."""
        self.cancel()
        self._events.put_nowait(None)

    def cancel(self) -> None:
        """Free what the answers hold."""
        for text in self._texts:
            self._model.engine.cancel(text)

    def usage(self) -> dict[str, int]:
        """How many tokens were read and written."""
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": self._new_tokens,
            "total_tokens": self._prompt_tokens + self._new_tokens,
        }


async def _streamed(
    run: Answers, first: Event, shape: Chat | Completion, usage: bool
) -> AsyncIterator[bytes]:
    """The events of a request as server-sent events."""
    try:
        for piece in shape.opening(first):
            yield _sent({**shape.head(True), "choices": [piece]})
        event = first
        while True:
            if event.piece or event.finish or event.calls or shape.told(event):
                yield _sent({**shape.head(True), "choices": [shape.part(event)]})
            if not run.left:
                break
            event = await run.next()
        if usage:
            yield _sent({**shape.head(True), "choices": [], "usage": run.usage()})
        yield b"data: [DONE]\n\n"
    except ServingError as e:
        yield _sent({"error": {"message": str(e), "type": "server_error", "code": e.code.lower()}})
    finally:
        run.cancel()


def _sent(document: Any) -> bytes:
    return b"data: " + orjson.dumps(document) + b"\n\n"


class Shape:
    """How answers are written down."""

    prefix = kind = streamed_kind = ""

    def __init__(self, model: LanguageModel):
        self._model = model
        self._id = f"{self.prefix}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def head(self, streamed: bool) -> dict[str, Any]:
        """What every document of an answer begins with."""
        kind = self.streamed_kind if streamed else self.kind
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model.name,
        }

    def told(self, event: Event) -> bool:
        """Whether an event has something to tell besides text."""
        return event.choice is not None and bool(event.choice.likeliest or event.choice.logprob)

    def token(self, token: int) -> str:
        """A token as a text."""
        return self._model.tokenizer.decode([token], skip_special_tokens=False)


class Chat(Shape):
    """`chat.completion`."""

    prefix, kind, streamed_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, model: LanguageModel):
        super().__init__(model)
        self._opened: set[int] = set()

    def opening(self, first: Event) -> list[dict[str, Any]]:
        """The first piece of a stream, which has the role."""
        self._opened.add(first.index)
        delta = {"role": "assistant", "content": ""}
        return [{"index": first.index, "delta": delta, "logprobs": None, "finish_reason": None}]

    def part(self, event: Event) -> dict[str, Any]:
        """A piece of a stream."""
        delta: dict[str, Any] = {"content": event.piece} if event.piece else {}
        if event.index not in self._opened:
            self._opened.add(event.index)
            delta = {"role": "assistant", "content": event.piece}
        if event.calls:
            delta["tool_calls"] = [{"index": i, **_call(c)} for i, c in enumerate(event.calls)]
        return {
            "index": event.index,
            "delta": delta,
            "logprobs": self._logprobs([event]),
            "finish_reason": event.finish,
        }

    def whole(self, index: int, events: Sequence[Event]) -> dict[str, Any]:
        """A whole answer."""
        content = "".join(e.piece for e in events)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if events[-1].calls:
            message["content"] = content or None
            message["tool_calls"] = [_call(c) for c in events[-1].calls]
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(events),
            "finish_reason": events[-1].finish,
        }

    def _logprobs(self, events: Sequence[Event]) -> Any:
        rows = [self._row(e.choice) for e in events if e.choice is not None and self.told(e)]
        return {"content": rows, "refusal": None} if rows else None

    def _row(self, choice: Choice) -> dict[str, Any]:
        best = [self._one(t, p) for t, p in choice.likeliest]
        return {**self._one(choice.token, choice.logprob), "top_logprobs": best}

    def _one(self, token: int, logprob: float) -> dict[str, Any]:
        text = self.token(token)
        return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}


def _call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


class Completion(Shape):
    """`text_completion`."""

    prefix, kind, streamed_kind = "cmpl", "text_completion", "text_completion"

    def opening(self, first: Event) -> list[dict[str, Any]]:
        """A stream begins with its first piece."""
        return []

    def part(self, event: Event) -> dict[str, Any]:
        """A piece of a stream."""
        return self.whole(event.index, [event])

    def whole(self, index: int, events: Sequence[Event]) -> dict[str, Any]:
        """A whole answer."""
        return {
            "index": index,
            "text": "".join(e.piece for e in events),
            "logprobs": self._logprobs(events),
            "finish_reason": events[-1].finish,
        }

    def _logprobs(self, events: Sequence[Event]) -> Any:
        told = [e for e in events if self.told(e)]
        if not told:
            return None
        choices = [e.choice for e in told if e.choice is not None]
        offsets, at = [], 0
        for event in told:
            offsets.append(at)
            at += len(event.piece)
        return {
            "tokens": [self.token(c.token) for c in choices],
            "token_logprobs": [_finite(c.logprob) for c in choices],
            "top_logprobs": [{self.token(t): _finite(p) for t, p in c.likeliest} for c in choices],
            "text_offset": offsets,
        }


def _finite(logprob: float) -> float:
    """JSON has no infinity: a token that cannot come."""
    return logprob if math.isfinite(logprob) else -9999.0
