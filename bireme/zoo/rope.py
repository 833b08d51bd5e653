"""Rotary positions: the frequencies of every scaling, and turning queries and keys by them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

import bireme as paddle
from bireme.core.errors import FileFormatError
from bireme.core.tensor import Tensor
from bireme.zoo.config import Keys, UnknownSetting

Turns = tuple[Tensor, Tensor]  # cosines and sines
_KINDS = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")
_WIDEST = 65_536  # elements of a head
_KNOWN = {
    "rope_theta", "rope_type", "type", "factor", "partial_rotary_factor",
    "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale",
    "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "short_factor",
    "long_factor",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Rope:
    """How positions turn the first `size` elements of a head."""

    size: int
    theta: float
    kind: str = "default"
    factor: float = 1.0
    longest: int = 2048  # tokens the model was trained for; beyond them dynamic and longrope change
    scale: float = 1.0  # of cosines and sines
    inverse: tuple[float, ...] = ()  # of up to `longest` tokens
    inverse_beyond: tuple[float, ...] = ()  # longrope's, of more

    def tables(self, places: Tensor, counts: Tensor | None) -> Turns:
        """Cosines and sines [batch, tokens, 1, size] in float32 of `places` [batch, tokens];
        `counts` [batch] says how many tokens each sample has in all."""
        angles = places.astype("float32").unsqueeze(-1) * self._inverse(places, counts)
        both = paddle.concat([angles, angles], -1).unsqueeze(2)
        cos, sin = both.cos(), both.sin()
        return (cos, sin) if self.scale == 1.0 else (cos * self.scale, sin * self.scale)

    def _inverse(self, places: Tensor, counts: Tensor | None) -> Tensor:
        usual = paddle.to_tensor(np.asarray(self.inverse, np.float32))
        if self.kind not in ("dynamic", "longrope"):
            return usual
        total = places.max(1) + 1 if counts is None else counts
        total = total.astype("float32").reshape([-1, 1, 1])
        if self.kind == "longrope":
            beyond = paddle.to_tensor(np.asarray(self.inverse_beyond, np.float32))
            return paddle.where(total > self.longest, beyond, usual)
        # The base grows with the tokens beyond those of the training.
        grown = self.factor * total / self.longest - (self.factor - 1)
        base = self.theta * paddle.clip(grown, min=1.0) ** (self.size / (self.size - 2))
        powers = np.arange(0, self.size, 2, dtype=np.float32) / np.float32(self.size)
        return 1.0 / base ** paddle.to_tensor(powers)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x [batch, tokens, heads, size] turned by tables from `Rope`, halves and not pairs."""
    size = cos.shape[-1]
    if size < x.shape[-1]:
        first, rest = paddle.split(x, [size, x.shape[-1] - size], -1)
        return paddle.concat([turn(first, cos, sin), rest], -1)
    low, high = paddle.split(x, 2, -1)
    return x * cos + paddle.concat([-high, low], -1) * sin


def turn_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """As `turn`, for models that turn neighbours (2i, 2i + 1) and not halves."""
    size = cos.shape[-1]
    if size < x.shape[-1]:
        first, rest = paddle.split(x, [size, x.shape[-1] - size], -1)
        return paddle.concat([turn_pairs(first, cos, sin), rest], -1)
    half = size // 2
    cos, sin = (t[..., :half].unsqueeze(-1) for t in (cos, sin))
    low, high = paddle.split(x.reshape([*x.shape[:-1], half, 2]), 2, -1)
    return paddle.concat([low * cos - high * sin, high * cos + low * sin], -1).reshape(x.shape)


def read_rope(
    keys: Keys, head: int, longest: int, theta: float = 10000.0, partial: float = 1.0
) -> Rope:
    """The rope of a config: `rope_parameters` (transformers 5), or `rope_theta` and
    `rope_scaling` (before)."""
    given = keys.take("rope_parameters", None)
    older = keys.take("rope_scaling", None)
    theta = keys.real("rope_theta", theta)
    partial = keys.real("partial_rotary_factor", partial, "rotary_pct")
    original = keys.take("original_max_position_embeddings", None)
    settings = {**(older or {}), **(given or {})}
    return make_rope(keys, settings, head, longest, theta, partial, original)


def make_rope(
    keys: Keys,
    given: Mapping[str, Any],
    head: int,
    longest: int,
    theta: float,
    partial: float = 1.0,
    original: int | None = None,
) -> Rope:
    """A Rope of one dictionary of settings."""
    unknown = {k for k, v in given.items() if v is not None} - _KNOWN
    kind = given.get("rope_type") or given.get("type") or "default"
    kind = {"su": "longrope", "mrope": "mrope"}.get(kind, kind)
    if unknown or kind not in _KINDS:
        raise UnknownSetting(
            f"[zoo] the rope of a {keys.model_type!r} model is not known: type {kind!r}, keys "
            f"{sorted(unknown)}. Known types: {', '.join(_KINDS)}"
        )
    theta = float(given.get("rope_theta") or theta)
    share = given.get("partial_rotary_factor")
    size = int(head * (partial if share is None else float(share)))
    if size < 2 or size > min(head, _WIDEST) or size % 2 or not 0 < theta < 1e30 or longest < 1:
        raise FileFormatError(
            f"[zoo] a rope of {size} of {head} elements, base {theta} and {longest} positions is "
            "impossible"
        )
    start = given.get("original_max_position_embeddings") or original
    made = _Frequencies(keys, given, kind, size, theta, longest, start)
    return made.rope()


class _Frequencies:
    """The inverse frequencies of one kind, in float32 as the references compute them."""

    def __init__(
        self,
        keys: Keys,
        given: Mapping[str, Any],
        kind: str,
        size: int,
        theta: float,
        longest: int,
        start: Any,
    ):
        self.keys, self.given, self.kind = keys, given, kind
        self.size, self.theta, self.longest = size, theta, longest
        self.start = int(start) if start else longest
        powers = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
        self.periods = np.power(np.float32(theta), powers, dtype=np.float32)

    def number(self, name: str, default: Any = None) -> float:
        value = self.given.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise self.keys.bad(f"rope_parameters.{name}", value, "a positive number")
        return float(value)

    def rope(self) -> Rope:
        one = np.float32(1)
        if self.kind == "default":
            return self._made(one / self.periods)
        if self.kind == "linear":
            return self._made(one / self.periods / np.float32(self.number("factor")))
        if self.kind == "dynamic":
            return Rope(
                self.size,
                self.theta,
                "dynamic",
                self.number("factor"),
                self.longest,
                inverse=tuple((one / self.periods).tolist()),
            )
        return {"yarn": self._yarn, "llama3": self._llama3, "longrope": self._longrope}[self.kind]()

    def _made(self, inverse: np.ndarray, scale: float = 1.0) -> Rope:
        return Rope(
            self.size,
            self.theta,
            self.kind,
            longest=self.longest,
            scale=scale,
            inverse=tuple(inverse.astype(np.float32).tolist()),
        )

    def _llama3(self) -> Rope:
        factor = self.number("factor")
        low, high = self.number("low_freq_factor"), self.number("high_freq_factor")
        start = self.number("original_max_position_embeddings", self.start)
        inverse = 1 / self.periods.astype(np.float32)
        waves = 2 * math.pi / inverse
        smooth = (start / waves - low) / (high - low)
        between = (1 - smooth) * inverse / factor + smooth * inverse
        slow = np.where(waves > start / low, inverse / factor, inverse)
        middle = (waves >= start / high) & (waves <= start / low)
        return self._made(np.where(middle, between, slow))

    def _yarn(self) -> Rope:
        start = self.start
        factor = self.number("factor", self.longest / start)
        scale = self.given.get("attention_factor")
        if scale is None:
            all_dims, mscale = self.given.get("mscale_all_dim"), self.given.get("mscale")
            scale = _grown(factor)
            if all_dims and mscale:
                scale = _grown(factor, mscale) / _grown(factor, all_dims)
        fast, slow = self.number("beta_fast", 32), self.number("beta_slow", 1)

        def place(turns: float) -> float:
            spread = math.log(start / (turns * 2 * math.pi))
            return self.size * spread / (2 * math.log(self.theta))

        low, high = place(fast), place(slow)
        if self.given.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.size - 1)
        high = high + 0.001 if low == high else high
        ramp = (np.arange(self.size // 2, dtype=np.float32) - low) / (high - low)
        kept = 1 - np.clip(ramp, 0, 1)
        inverse = 1 / (factor * self.periods) * (1 - kept) + 1 / self.periods * kept
        return self._made(inverse, float(scale))

    def _longrope(self) -> Rope:
        factor = self.number("factor", self.longest / self.start)
        scale = self.given.get("attention_factor")
        if scale is None:
            grown = 1 + math.log(factor) / math.log(self.start) if factor > 1 else 1.0
            scale = math.sqrt(grown)
        found = []
        for name in ("short_factor", "long_factor"):
            values = np.asarray(self.given.get(name) or [], np.float32)
            if values.shape != self.periods.shape:
                raise self.keys.bad(f"rope_parameters.{name}", values.tolist(), "as long as a rope")
            found.append(tuple((1 / (values * self.periods)).tolist()))
        return Rope(self.size, self.theta, "longrope", factor, self.start, float(scale), *found)


def _grown(factor: float, mscale: float = 1.0) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0
