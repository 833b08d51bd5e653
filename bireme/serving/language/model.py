"""A language model in service: from its files to texts that are continued."""

from __future__ import annotations

import functools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bireme import zoo
from bireme.core.errors import InvalidArgument
from bireme.nn import Layer
from bireme.serving.language.engine import Engine
from bireme.serving.language.grammar import Form, Grammars
from bireme.serving.language.pages import Pages
from bireme.serving.language.programs import Programs, layers_of, page_bytes, shapes_for
from bireme.serving.language.sampling import Choice, Chooser, Sampling
from bireme.serving.language.scheduler import Text
from bireme.serving.language.tools import Call, Style, style_of
from bireme.zoo.generating import Writer
from bireme.zoo.tokenizer import Tokenizer


@dataclass(frozen=True)
class LanguageOptions:
    """How a language model is served.

    dtype: of the weights and the cache. context: the most tokens of a prompt and its answer;
    0: what the model says, at most 2048. rows: texts that are computed together. cache_gb: memory
    for keys and values. page: tokens per page. chunk: prompt tokens that are computed before the
    running texts get their next token. sharing: whether common beginnings are computed once.
    """

    dtype: str = "float32"
    context: int = 0
    rows: int = 16
    cache_gb: float = 1.0
    page: int = 16
    chunk: int = 256
    sharing: bool = True

    def __post_init__(self) -> None:
        numbers = (self.rows, self.page, self.chunk)
        if min(numbers) < 1 or self.cache_gb <= 0 or self.context < 0:
            raise InvalidArgument(
                "[serve] rows, page, chunk and cache_gb must be positive. Received: "
                f"{numbers}, {self.cache_gb}"
            )


@dataclass(frozen=True, slots=True)
class Event:
    """A piece of one answer: its text, the token, why it ended, if it did, and what it calls."""

    index: int
    piece: str
    choice: Choice | None
    finish: str | None
    error: Exception | None = None
    calls: tuple[Call, ...] = ()


def is_language(source: object) -> bool:
    """Whether a source is a language model: a GGUF file, a folder of Hugging Face's with one, a
    name of a hub, or `lm:` before any of them."""
    if not isinstance(source, str):
        return False
    if source.startswith(("lm:", "pypi:", "hf:")) or source.endswith(".gguf"):
        return True
    config = os.path.join(source, "config.json")
    if not os.path.isfile(config) or os.path.getsize(config) > 1 << 22:
        return False
    try:
        with open(config, "rb") as file:
            read = json.load(file)
    except ValueError:
        return False
    names = read.get("architectures") if isinstance(read, dict) else None
    return isinstance(names, list) and any(str(n).endswith("ForCausalLM") for n in names)


class LanguageModel:
    """A model, its tokenizer, and the engine that continues texts."""

    def __init__(self, name: str, source: str, options: LanguageOptions | None = None):
        model, tokenizer = zoo.load(
            source.removeprefix("lm:"),
            task="causal_lm",
            dtype=(options or LanguageOptions()).dtype,
        )
        self._begin(name, model, tokenizer, options or LanguageOptions())

    @classmethod
    def of(
        cls, name: str, model: Layer, tokenizer: Tokenizer, options: LanguageOptions | None = None
    ) -> LanguageModel:
        """A model that is loaded already."""
        made = cls.__new__(cls)
        made._begin(name, model, tokenizer, options or LanguageOptions())
        return made

    def _begin(
        self, name: str, model: Layer, tokenizer: Tokenizer, options: LanguageOptions
    ) -> None:
        model.eval()
        self.name, self.tokenizer, self.options = name, tokenizer, options
        self._grammars: Grammars | None = None
        self.created = int(time.time())
        self.context = options.context or min(_longest(model), 2048)
        per_text = -(-self.context // options.page)
        self.page_bytes = page_bytes(layers_of(model), options.page)
        pages = min(int(options.cache_gb * 1e9) // self.page_bytes, per_text * options.rows + 1)
        if pages < 2:
            raise InvalidArgument(
                f"[serve] {options.cache_gb} GB hold no page of {self.page_bytes} bytes"
            )
        shapes = shapes_for(options.rows, options.chunk, per_text)
        self.programs = Programs(model, shapes, pages, options.page)
        found = Pages(pages, options.page, options.sharing)
        self.engine = Engine(self.programs, found, options.rows, self.context, options.chunk)

    @property
    def chats(self) -> bool:
        """Whether the model was made for chats."""
        return self.tokenizer.chat_template is not None

    @functools.cached_property
    def tools(self) -> Style:
        """How the model writes calls of tools."""
        return style_of(self.tokenizer)

    @property
    def cache_bytes(self) -> int:
        """What the pages take."""
        return self.engine.scheduler.pages.count * self.page_bytes

    def form(self, given: Mapping[str, Any]) -> Form | None:
        """The form of texts that a `response_format` asks for; None for plain text."""
        if given.get("type") == "text":
            return None
        if self._grammars is None:
            self._grammars = Grammars(self.tokenizer)
        return self._grammars.form(given)

    def write(
        self,
        prompt: Sequence[int],
        new: int | None,
        sampling: Sampling,
        push: Callable[[Event], None],
        *,
        stop: Sequence[str] = (),
        seed: int = 0,
        index: int = 0,
        form: Form | None = None,
    ) -> Text:
        """Continue a prompt; `push` gets its events from the engine's thread."""
        writer = Writer(self.tokenizer, stop)
        chooser = Chooser(sampling, seed, index, None if form is None else form.copy())
        ends = set(self.tokenizer.end_ids)

        def sink(choice: Choice | Exception, last: bool) -> bool:
            if isinstance(choice, Exception):
                push(Event(index, "", None, "error", choice))
                return False
            piece = writer.put(choice.token)
            finish = "stop" if writer.done or choice.token in ends else None
            if last and finish is None:
                piece, finish = piece + writer.end(), "length"
            push(Event(index, piece, choice, finish))
            return finish is None

        return self.engine.submit(prompt, new, chooser, sink)


def _longest(model: Any) -> int:
    """The longest text that a model was made for."""
    raw = getattr(getattr(model, "_config", None), "raw", {})
    for name in ("max_position_embeddings", "n_positions"):
        if isinstance(raw.get(name), int) and raw[name] > 0:
            return raw[name]
    return 2048
