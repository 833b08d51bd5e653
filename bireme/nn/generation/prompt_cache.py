"""Keys and values of a text that are kept between generations."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.core import dtype as dt
from bireme.core.aval import Aval, aval

if TYPE_CHECKING:
    from bireme.core.tensor import Tensor
    from bireme.nn.layer.layer import Layer


class PromptCache:
    """What a model made of the tokens that it has seen, so that a text which begins with the same
    ones is not read again.

        kept = PromptCache()
        for piece in zoo.chat(model, tokenizer, messages, prompt_cache=kept): ...

    It belongs to one model with its present weights; for another it is empty.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.held: list[Any] = []  # keys and values of every layer: [1, length, heads, size]
        self.model = ""  # the fingerprint of the model that made them

    def __len__(self) -> int:
        return len(self.tokens)

    def clear(self) -> None:
        """Forget everything."""
        self.tokens, self.held, self.model = [], [], ""

    def trim(self, count: int) -> None:
        """Forget all but the first `count` tokens."""
        self.tokens = self.tokens[: max(count, 0)]

    @property
    def length(self) -> int:
        """How many tokens there is room for."""
        return self.held[0].shape[1] if self.held else 0

    def shared(self, model: Layer, ids: Sequence[int]) -> int:
        """How many tokens at the beginning of `ids` need not be read again; the last one must."""
        if not self.tokens or self.model != fingerprint(model):
            return 0
        both = zip(self.tokens, ids[: len(ids) - 1], strict=False)
        return next(
            (i for i, (a, b) in enumerate(both) if a != b), min(len(self.tokens), len(ids) - 1)
        )

    def arrays(self, length: int) -> list[Any]:
        """The keys and values, with room for `length` tokens."""
        if length == self.length:
            return self.held
        grown = []
        for array in self.held:
            old = np.asarray(array)
            new = np.zeros((1, length, *old.shape[2:]), old.dtype)
            new[:, : min(length, old.shape[1])] = old[:, :length]
            grown.append(new)
        return grown

    def types(self, length: int) -> list[Aval]:
        """The types of `arrays(length)`."""
        return [aval((1, length, *a.shape[2:]), dt.as_dtype(a.dtype)) for a in self.held]

    def keep(self, model: Layer, tokens: Sequence[int], arrays: Sequence[Any]) -> None:
        """Remember what a generation has made of `tokens`."""
        self.tokens, self.held = list(tokens), list(arrays)
        self.model = fingerprint(model)


# Digests of arrays by their address: contents never change under an array, and a gigabyte takes
# about a second.
_digests: dict[int, tuple[weakref.ref[Any], bytes]] = {}


def fingerprint(model: Layer) -> str:
    """A text that differs between models, and between weights of one model."""
    for address in [a for a, (array, _) in _digests.items() if array() is None]:
        del _digests[address]
    whole = hashlib.sha256()
    state: dict[str, Any] = model.state_dict()
    for name, tensor in state.items():
        whole.update(f"{name} {tuple(tensor.shape)} {tensor.dtype.name} ".encode())
        whole.update(_digest(tensor))
    return whole.hexdigest()


def _digest(tensor: Tensor) -> bytes:
    array: Any = tensor._value.buf
    known = _digests.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    contents = np.ascontiguousarray(tensor.numpy())
    found = hashlib.sha256(contents.reshape(-1).view(np.uint8).data).digest()
    array = tensor._value.buf  # which was a promise before it was read
    _digests[id(array)] = weakref.ref(array), found
    return found
