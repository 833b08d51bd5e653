"""Tokenizers: text to token ids and back, chats to prompts, and streams of tokens to text."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import atomic
from bireme.io.foreign import read_json, read_whole, reading
from bireme.zoo import templates
from bireme.zoo.files import Source

_SPECIAL = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_CONFIG, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"


def need(module: str) -> None:
    """Raise an error that names the extra if `module` is not installed."""
    if importlib.util.find_spec(module) is None:
        raise InvalidArgument(f"[zoo] this needs {module}: pip install 'bireme[nlp]'")


class Tokenizer:
    """Text to token ids and back.

    `inner` is a tokenizer of the library `tokenizers`; `settings` has what tokenizer_config.json
    says: special tokens, the longest text, the chat template.
    """

    def __init__(self, inner: Any, settings: Mapping[str, Any], ends: Sequence[int] = ()):
        self.inner = inner
        self.settings = dict(settings)
        self.special = {f"{name}_token": _text(settings.get(f"{name}_token")) for name in _SPECIAL}
        self.chat_template = _template(settings.get("chat_template"))
        ends = [*ends, *([] if self.eos_token_id is None else [self.eos_token_id])]
        self.end_ids = tuple(dict.fromkeys(ends))  # any of these ends a generation

    def _id(self, name: str) -> int | None:
        token = self.special[f"{name}_token"]
        return None if token is None else self.inner.token_to_id(token)

    @property
    def bos_token_id(self) -> int | None:
        """The token with which texts begin."""
        return self._id("bos")

    @property
    def eos_token_id(self) -> int | None:
        """The token with which texts end."""
        return self._id("eos")

    @property
    def pad_token_id(self) -> int | None:
        """The token that fills shorter texts of a batch."""
        return self._id("pad")

    @property
    def mask_token_id(self) -> int | None:
        """The token that stands for one to be guessed."""
        return self._id("mask")

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, added ones included."""
        return self.inner.get_vocab_size(with_added_tokens=True)

    @property
    def max_length(self) -> int | None:
        """The longest text that the model takes, if the files say it."""
        longest = self.settings.get("model_max_length")
        return longest if isinstance(longest, int) and longest < 1 << 30 else None

    def encode(
        self, text: str, pair: str | None = None, add_special_tokens: bool = True
    ) -> list[int]:
        """The token ids of a text, or of two."""
        return self.inner.encode(text, pair, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of token ids."""
        found = [int(i) for i in ids]
        text = self.inner.decode(found, skip_special_tokens=skip_special_tokens)
        return _cleaned(text) if self.settings.get("clean_up_tokenization_spaces") is True else text

    def __call__(
        self,
        text: str | Sequence[str] | Sequence[tuple[str, str]],
        pair: str | Sequence[str] | None = None,
        *,
        padding: bool | int = True,
        max_length: int | None = None,
        add_special_tokens: bool = True,
    ) -> dict[str, np.ndarray]:
        """`input_ids`, `token_type_ids` and `attention_mask` as int64 [texts, tokens].

        Shorter texts are filled on the right, up to `padding` tokens if that is a number; what is
        longer than `max_length` is cut off.
        """
        texts: list[Any] = [text] if isinstance(text, str) else list(text)
        if pair is not None:
            pairs = [pair] if isinstance(pair, str) else list(pair)
            if len(pairs) != len(texts):
                raise InvalidArgument(
                    f"[tokenizer] {len(texts)} texts cannot be paired with {len(pairs)}"
                )
            texts = list(zip(texts, pairs, strict=True))
        if not texts or not all(isinstance(t, str | tuple) for t in texts):
            raise InvalidArgument("[tokenizer] give a text, a list of texts, or of pairs of texts")
        found = self._encode_all(texts, max_length, add_special_tokens)
        widest = max(len(e.ids) for e in found)
        if padding is not True and padding:
            widest = max(widest, int(padding))
        elif not padding and any(len(e.ids) != widest for e in found):
            raise InvalidArgument("[tokenizer] texts of different lengths need padding=True")
        pad = self.pad_token_id or 0
        ids = np.full((len(found), widest), pad, np.int64)
        types, mask = np.zeros_like(ids), np.zeros_like(ids)
        for i, e in enumerate(found):
            ids[i, : len(e.ids)] = e.ids
            types[i, : len(e.ids)] = e.type_ids
            mask[i, : len(e.ids)] = 1
        return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}

    def _encode_all(self, texts: list[Any], longest: int | None, special: bool) -> list[Any]:
        if longest is None:
            return self.inner.encode_batch(texts, add_special_tokens=special)
        self.inner.enable_truncation(longest)
        try:
            return self.inner.encode_batch(texts, add_special_tokens=special)
        finally:
            self.inner.no_truncation()

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        chat_template: str | None = None,
        **variables: object,
    ) -> str:
        """The prompt of a chat; `encode_chat` gives its tokens."""
        template = chat_template or self.chat_template
        if template is None:
            raise InvalidArgument(
                "[chat] the tokenizer has no chat template: this model was not made for chats. Use "
                "generate, or give chat_template="
            )
        known = {k: v for k, v in self.special.items() if v is not None}
        return templates.render(
            template,
            messages,
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **{**known, **variables},
        )

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """The token ids of a chat. Its template writes the special tokens, so none are added."""
        return self.encode(self.apply_chat_template(messages, **options), add_special_tokens=False)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write tokenizer.json, tokenizer_config.json and the chat template."""
        target = os.fspath(folder)
        os.makedirs(target, exist_ok=True)
        settings = {k: v for k, v in self.settings.items() if k != "chat_template"}
        settings.setdefault("tokenizer_class", "PreTrainedTokenizerFast")
        with atomic.Save(target) as save:
            for name, text in (
                ("tokenizer.json", self.inner.to_str(pretty=True)),
                (_CONFIG, json.dumps(settings, indent=2, ensure_ascii=False) + "\n"),
                (_TEMPLATE, self.chat_template),
            ):
                if text is not None:
                    with save.file(os.path.join(target, name)) as out:
                        out.write(text.encode())


class StreamDecoder:
    """Text of tokens as they come: a character is given when all of its bytes are there.

    stream = StreamDecoder(tokenizer)
    for token in tokens:
        print(stream.put(token), end="")
    print(stream.end())
    """

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool = True):
        self._tokenizer, self._skip = tokenizer, skip_special_tokens
        self._ids: list[int] = []
        self._start = 0  # of the tokens whose text is decoded again, for what it does to the next
        self._given = 0  # the tokens whose text was given

    def put(self, token: int) -> str:
        """The text that is complete with this token."""
        self._ids.append(int(token))
        before = self._text(self._start, self._given)
        now = self._text(self._start, len(self._ids))
        if len(now) <= len(before) or now.endswith("\ufffd"):
            return ""
        self._start, self._given = self._given, len(self._ids)
        return now[len(before) :]

    def end(self) -> str:
        """What is left when no more tokens come."""
        before = self._text(self._start, self._given)
        return self._text(self._start, len(self._ids))[len(before) :]

    def _text(self, start: int, end: int) -> str:
        return self._tokenizer.decode(self._ids[start:end], self._skip)


def load_tokenizer(source: Source) -> Tokenizer:
    """The tokenizer of a source."""
    need("tokenizers")
    if "tokenizer.ggml.model" in source.extra:
        from bireme.zoo.tokenizer_gguf import from_gguf

        return from_gguf(source)
    return folder_tokenizer(source.path, source.config)


def folder_tokenizer(path: str, config: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in a folder."""
    import tokenizers

    name = os.path.join(path, "tokenizer.json")
    if not os.path.exists(name):
        raise FileFormatError(
            f"[zoo] {path!r} has no tokenizer.json. transformers writes one when it saves the "
            "tokenizer"
        )
    with reading("zoo", name):
        text = str(read_whole(name, "zoo"), "utf-8")
        try:
            inner = tokenizers.Tokenizer.from_str(text)
        except Exception as e:  # the library raises this class itself
            raise ValueError(str(e)) from e
    inner.no_padding()
    inner.no_truncation()
    settings = _json(path, "special_tokens_map.json") | _json(path, _CONFIG)
    template = os.path.join(path, _TEMPLATE)
    if os.path.exists(template):
        settings["chat_template"] = str(read_whole(template, "zoo"), "utf-8", "replace")
    generation = _json(path, "generation_config.json").get("eos_token_id")
    ends = [*_ids(generation), *_ids(config.get("eos_token_id"))]
    return Tokenizer(inner, settings, ends)


def _json(path: str, name: str) -> dict[str, Any]:
    whole = os.path.join(path, name)
    found = read_json(whole, "zoo") if os.path.exists(whole) else {}
    if not isinstance(found, dict):
        raise FileFormatError(f"[zoo] {whole!r} is no JSON object")
    return found


def _ids(value: object) -> list[int]:
    listed = value if isinstance(value, list) else [value]
    return [i for i in listed if type(i) is int]


def _text(token: Any) -> str | None:
    """A special token is a string or a dict with its `content`."""
    token = token.get("content") if isinstance(token, Mapping) else token
    return token if isinstance(token, str) else None


def _template(given: Any) -> str | None:
    """The template, or of several by name the one called "default"."""
    if isinstance(given, list):
        named = {t.get("name"): t.get("template") for t in given if isinstance(t, Mapping)}
        given = named.get("default")
    return given if isinstance(given, str) else None


def _cleaned(text: str) -> str:
    """Spaces that some tokenizers put before marks and contractions are removed."""
    for mark in (".", "?", "!", ","):
        text = text.replace(f" {mark}", mark)
    text = text.replace(" ' ", "'")
    for mark in ("n't", "'m", "'s", "'ve", "'re"):
        text = text.replace(f" {mark}", mark)
    return text
