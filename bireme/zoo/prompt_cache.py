"""Prompt caches in files."""

from __future__ import annotations

import os

import numpy as np

from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import atomic, safetensors_file
from bireme.io.foreign import open_regular
from bireme.nn import generation

_TOKENS, _MODEL = "tokens", "model"


class PromptCache(generation.PromptCache):
    """What a model made of the tokens that it has seen, so that a text which begins with the same
    ones is not read again.

        kept = zoo.PromptCache()
        for piece in zoo.chat(model, tokenizer, messages, prompt_cache=kept): ...
        kept.save("chat.safetensors")

    It belongs to one model with its present weights; for another it is empty.
    """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache as a safetensors file."""
        if not self.tokens:
            raise InvalidArgument("[PromptCache] it is empty: there is nothing to save")
        count = len(self.tokens)
        parts: dict[str, np.ndarray] = {_TOKENS: np.asarray(self.tokens, np.int64)}
        for i, array in enumerate(self.held):
            kept = np.asarray(array)[:, :count]
            parts[f"layers.{i // 2}.{'values' if i % 2 else 'keys'}"] = np.ascontiguousarray(kept)
        with atomic.replacing(path) as out:
            safetensors_file.write(parts, {_MODEL: self.model}, out)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> PromptCache:
        """The cache in a file that `save` wrote."""
        name = os.fspath(path)
        with open_regular(name, "PromptCache") as file:
            size = os.fstat(file.fileno()).st_size
            parts, about = safetensors_file.read(file, size, name)
        tokens = parts.pop(_TOKENS, None)
        names = [f"layers.{i}.{n}" for i in range(len(parts) // 2) for n in ("keys", "values")]
        found = PromptCache()
        if tokens is None or tokens.ndim != 1 or tokens.dtype != np.int64 or _MODEL not in about:
            raise FileFormatError(f"[PromptCache] {name!r} is no prompt cache")
        shapes = [parts[n].shape for n in names if n in parts]
        if (
            not names
            or set(names) != set(parts)
            or any(len(s) != 4 or s[:2] != (1, tokens.size) for s in shapes)
        ):
            raise FileFormatError(f"[PromptCache] {name!r} does not hold what its tokens need")
        found.tokens, found.model = tokens.tolist(), str(about[_MODEL])
        found.held = [np.array(parts[n]) for n in names]
        return found
