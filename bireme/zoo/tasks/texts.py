"""What tasks on texts share: a folder's model and tokenizer, and texts as arrays."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.nn import Layer
from bireme.zoo.files import Source, open_source
from bireme.zoo.loading import load_model
from bireme.zoo.tokenizer import load_tokenizer


def read_json_of(folder: str, name: str) -> Any:
    """The contents of a JSON file in a model's folder, or None."""
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as e:
            raise FileFormatError(f"[task] {path!r} is no JSON: {e}") from e


class TextModel:
    """A model with its tokenizer, and how long its texts may be."""

    def __init__(self, path: str | os.PathLike[str], kind: str | None, longest: int | None = None):
        self.source: Source = open_source(path)
        self.model: Layer = load_model(self.source, task=kind)
        self.config: Any = self.model.config
        inner: Any = load_tokenizer(self.source).inner
        settings = read_json_of(self.source.path, "tokenizer_config.json") or {}
        self.longest = longest or _longest(self.config, settings, self.source.path)
        # The folder's tokenizer.json may pad to a fixed length: padding is ours.
        inner.no_padding()
        inner.enable_truncation(self.longest)
        self.tokenizer: Any = inner
        self.settings: dict[str, Any] = settings
        self.typed = getattr(self.config, "types", 0) > 1

    def token(self, name: str) -> int | None:
        """The number of the special token that tokenizer_config.json calls `name`_token."""
        text = self.settings.get(f"{name}_token")
        text = text.get("content") if isinstance(text, dict) else text
        return self.tokenizer.token_to_id(text) if isinstance(text, str) else None

    @property
    def pad(self) -> int:
        """The number of the padding token."""
        given = self.config.raw.get("pad_token_id")
        found = given if isinstance(given, int) else self.token("pad")
        return found or 0

    def encoded(self, texts: Sequence[Any]) -> list[Any]:
        """Texts, or pairs of them, as encodings of the library `tokenizers`."""
        return self.tokenizer.encode_batch(list(texts))

    def columns(self, encodings: Sequence[Any]) -> tuple[list[list[np.ndarray]], list[int]]:
        """(the model's arguments besides the mask, what each is padded with)."""
        ids = [np.asarray(e.ids, np.int64) for e in encodings]
        if not self.typed:
            return [ids], [self.pad]
        return [ids, [np.asarray(e.type_ids, np.int64) for e in encodings]], [self.pad, 0]

    def call(self, model: Any, arguments: Sequence[Any]) -> Any:
        """`model` on what `columns` gives, with the mask as the last argument."""
        if self.typed:
            ids, types, mask = arguments
            return model(ids, mask, types)
        ids, mask = arguments
        return model(ids, mask)


def _longest(config: Any, settings: dict[str, Any], folder: str) -> int:
    """The most tokens of a text: what the files say, and no more than there are positions."""
    sentences = read_json_of(folder, "sentence_bert_config.json") or {}
    positions = getattr(config, "positions", 0) or 0
    if getattr(getattr(config, "kind", None), "padded", False):
        positions -= config.pad + 1
    limits = [
        n
        for n in (sentences.get("max_seq_length"), settings.get("model_max_length"), positions)
        if isinstance(n, int) and 0 < n < 2**20
    ]
    return min(limits) if limits else 512


def listed(texts: object, what: str) -> tuple[list[Any], bool]:
    """(a list of texts, whether one was given and not a list)."""
    if isinstance(texts, str):
        return [texts], True
    if not isinstance(texts, Sequence) or not all(isinstance(t, str) for t in texts):
        raise InvalidArgument(
            f"[task] {what} takes a text or a list of texts. Received: {type(texts).__name__}"
        )
    return list(texts), False
