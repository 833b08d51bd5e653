"""Keys and values of a text that are kept between generations, in memory or in a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.io import atomic, safetensors_file
from bireme.io.foreign import open_regular

_SAMPLE = 16  # elements of each parameter that tell one model from another
_TOKENS, _MODEL = "tokens", "model"


class PromptCache:
    """What a model made of the tokens that it has seen, so that a text which begins with the same
    ones is not read again.

        kept = PromptCache()
        for piece in zoo.chat(model, tokenizer, messages, prompt_cache=kept): ...
        kept.save("chat.safetensors")

    It belongs to one model with its present weights; for another it is empty.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._arrays: list[Any] = []  # keys and values of every layer: [1, length, heads, size]
        self._model = ""

    def __len__(self) -> int:
        return len(self.tokens)

    def clear(self) -> None:
        """Forget everything."""
        self.tokens, self._arrays, self._model = [], [], ""

    def trim(self, count: int) -> None:
        """Forget all but the first `count` tokens."""
        self.tokens = self.tokens[: max(count, 0)]

    @property
    def length(self) -> int:
        """How many tokens there is room for."""
        return self._arrays[0].shape[1] if self._arrays else 0

    def shared(self, model: Any, ids: Sequence[int]) -> int:
        """How many tokens at the beginning of `ids` need not be read again; the last one must."""
        if not self.tokens or self._model != fingerprint(model):
            return 0
        both = zip(self.tokens, ids[: len(ids) - 1], strict=False)
        return next(
            (i for i, (a, b) in enumerate(both) if a != b), min(len(self.tokens), len(ids) - 1)
        )

    def arrays(self, length: int) -> list[Any]:
        """The keys and values, with room for `length` tokens."""
        if length == self.length:
            return self._arrays
        grown = []
        for array in self._arrays:
            old = np.asarray(array)
            new = np.zeros((1, length, *old.shape[2:]), old.dtype)
            new[:, : min(length, old.shape[1])] = old[:, :length]
            grown.append(new)
        return grown

    def types(self, length: int) -> list[Aval]:
        """The types of `arrays(length)`."""
        return [aval((1, length, *a.shape[2:]), dt.as_dtype(a.dtype)) for a in self._arrays]

    def keep(self, model: Any, tokens: Sequence[int], arrays: Sequence[Any]) -> None:
        """Remember what a generation has made of `tokens`."""
        self.tokens, self._arrays = list(tokens), list(arrays)
        self._model = fingerprint(model)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the cache as a safetensors file."""
        if not self.tokens:
            raise InvalidArgument("[PromptCache] it is empty: there is nothing to save")
        count = len(self.tokens)
        parts: dict[str, np.ndarray] = {_TOKENS: np.asarray(self.tokens, np.int64)}
        for i, array in enumerate(self._arrays):
            kept = np.asarray(array)[:, :count]
            parts[f"layers.{i // 2}.{'values' if i % 2 else 'keys'}"] = np.ascontiguousarray(kept)
        with atomic.replacing(path) as out:
            safetensors_file.write(parts, {_MODEL: self._model}, out)

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
        found.tokens, found._model = tokens.tolist(), str(about[_MODEL])
        found._arrays = [np.array(parts[n]) for n in names]
        return found


def fingerprint(model: Any) -> str:
    """A text that differs between models, and between weights of one model."""
    whole = hashlib.sha256()
    state = model.state_dict() if hasattr(model, "state_dict") else {}
    for name, tensor in state.items():
        first = (0,) * (len(tensor.shape) - 1)
        few = tensor[(*first, slice(_SAMPLE))] if tensor.shape else tensor
        whole.update(f"{name}{tuple(tensor.shape)}".encode())
        whole.update(np.ascontiguousarray(few.numpy()).tobytes())
    return whole.hexdigest()
