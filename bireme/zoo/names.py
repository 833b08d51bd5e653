"""Our parameter names and those in files, one table for both directions.

Our models name their parts as Hugging Face does for Llama, so most names are the same; a family
gives what differs:

    Names(
        base="transformer",                          # their prefix of the part we call `model`
        layers={"layers.*.attn": "h.*.attn"},        # our path: their path, of a layer or a part
        plain=("layers.*.attn.c_attn",),             # stored [in, out] as ours, not transposed
        rules=(fused(...), stacked(...)),            # several tensors that belong together
        ignored=("rotary_emb.inv_freq",),            # tensors in files that carry nothing
        copies={"lm_head.weight": "wte.weight"},     # tied: a file may hold the tensor twice
        optional={"pooler": ""},                     # parts that files may lack, see `lacking`
    )

The weight of an `nn.Linear` is [in, out] here and [out, in] in their files; the table transposes
it. A `*` stands for one number in both paths. Paths of our base part start without "model.".
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bireme.nn.layer.layer import Layer
from bireme.zoo.kept import Kept, KeptLinear

Arrays = list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Rule:
    """Parameters `ours` and file tensors `theirs` that belong together, with what turns one into
    the other. Names may hold one `*`, which is the same number in all of them."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    load: Callable[[Arrays], Arrays]
    save: Callable[[Arrays], Arrays]


def _same(arrays: Arrays) -> Arrays:
    return arrays


def _turned(arrays: Arrays) -> Arrays:
    return [a.T for a in arrays]


def fused(
    ours: Sequence[str], theirs: str, sizes: Sequence[int], turned: bool = True, axis: int = 0
) -> Rule:
    """One tensor of theirs that holds several of ours, row after row (q, k and v, say)."""
    ends = np.cumsum(sizes)[:-1].tolist()

    def load(arrays: Arrays) -> Arrays:
        if arrays[0].shape[axis] != sum(sizes):
            return arrays * len(sizes)  # the loader compares shapes and says what is wrong
        parts = np.split(arrays[0], ends, axis=axis)
        return [p.T for p in parts] if turned else parts

    def save(arrays: Arrays) -> Arrays:
        return [np.concatenate([a.T if turned else a for a in arrays], axis=axis)]

    return Rule(tuple(ours), (theirs,), load, save)


def interleaved(ours: Sequence[str], theirs: str, heads: int) -> Rule:
    """One tensor of theirs with rows of every head's q, k and v in turn, and ours apart."""
    count = len(ours)

    def load(arrays: Arrays) -> Arrays:
        a = arrays[0]
        if a.shape[0] % (count * heads):
            return arrays * count  # the loader compares shapes and says what is wrong
        parts = a.reshape(heads, count, -1, *a.shape[1:])
        return [parts[:, i].reshape(-1, *a.shape[1:]).T for i in range(count)]

    def save(arrays: Arrays) -> Arrays:
        rows = [a.T.reshape(heads, 1, -1, *a.T.shape[1:]) for a in arrays]
        return [np.concatenate(rows, axis=1).reshape(-1, *arrays[0].T.shape[1:])]

    return Rule(tuple(ours), (theirs,), load, save)


def stacked(ours: str, theirs: str, count: int, turned: bool = True) -> Rule:
    """One of our parameters that holds `count` of their tensors, whose names have `{}` for the
    number: experts."""

    def load(arrays: Arrays) -> Arrays:
        return [np.stack([a.T if turned and a.ndim == 2 else a for a in arrays])]

    def save(arrays: Arrays) -> Arrays:
        return [a.T if turned and a.ndim == 2 else a for a in arrays[0]]

    return Rule((ours,), tuple(theirs.replace("{}", str(e)) for e in range(count)), load, save)


def moved(ours: str, theirs: str, axes: Sequence[int] | None = None) -> Rule:
    """One parameter and one tensor, with these axes when loaded (None: the same)."""
    if axes is None:
        return Rule((ours,), (theirs,), _same, _same)
    order = tuple(axes)
    back = tuple(int(i) for i in np.argsort(order))

    def load(arrays: Arrays) -> Arrays:
        a = arrays[0]
        return [a.transpose(order) if a.ndim == len(order) else a]

    return Rule((ours,), (theirs,), load, lambda a: [a[0].transpose(back)])


@dataclasses.dataclass(frozen=True)
class Names:
    """The table of one model; see the module's docstring."""

    base: str = "model"
    layers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    plain: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    ignored: tuple[str, ...] = ()
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    optional: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def entries(self, model: Layer) -> list[Rule]:
        """A rule without `*` for every parameter of `model`, each parameter in exactly one."""
        found: list[Rule] = []
        params = _parameters(model)
        has_base = any(name.startswith("model.") for name in params)
        rules = {ours: rule for rule in self.rules for ours in rule.ours}
        done: set[str] = set()
        for name, (owner, param) in params.items():
            if name in done:
                continue
            inner = name.removeprefix("model.") if has_base else name
            is_base = not has_base or name.startswith("model.")
            number, key = _rule_key(inner, rules)
            if key is not None:
                rule = _numbered(rules[key], number)
                ours = rule.ours
                theirs = rule.theirs
                if is_base:
                    ours = tuple(f"model.{n}" if has_base else n for n in ours)
                    theirs = tuple(self._with_base(n) for n in theirs)
                done.update(ours)
                found.append(Rule(ours, theirs, rule.load, rule.save))
                continue
            done.add(name)
            theirs_name = self._renamed(inner)
            if is_base:
                theirs_name = self._with_base(theirs_name)
            turned = _is_linear_weight(owner, name, param) and not self._is_plain(inner)
            how = _turned if turned else _same
            found.append(Rule((name,), (theirs_name,), how, how))
        return found

    def lacking(self, model: Layer, has: Callable[[str, str], bool]) -> list[str]:
        """The model's paths of the optional parts that the files leave out: those of which no
        tensor is there, or which only repeat another tensor. `has(name, other)` says whether a
        file has the tensor `name`, and not as a copy of `other`."""
        parts: dict[str, tuple[str, list[str]]] = {}
        for entry in self.entries(model):
            for part, original in self.optional.items():
                found = re.match(rf"(model\.)?{_pattern(part)}(?=\.|$)", entry.ours[0])
                if found:
                    parts.setdefault(found.group(), (original, []))[1].extend(entry.theirs)
        return [
            path
            for path, (original, theirs) in parts.items()
            if not any(has(n, original) for n in theirs)
        ]

    def _with_base(self, name: str) -> str:
        return f"{self.base}.{name}" if self.base else name

    def _renamed(self, name: str) -> str:
        for ours, theirs in self.layers.items():
            found = re.match(_pattern(ours) + r"(?=\.|$)", name)
            if found:
                put = theirs
                for part in found.groups():
                    put = put.replace("*", part, 1)
                return put + name[found.end() :]
        return name

    def _is_plain(self, name: str) -> bool:
        return any(re.match(_pattern(p) + r"(?=\.|$)", name) for p in self.plain)

    def is_ignored(self, theirs: str) -> bool:
        """Whether a file's tensor carries nothing that the model needs."""
        return any(re.search(rf"(^|\.){_pattern(p)}$", theirs) for p in self.ignored)


def _pattern(path: str) -> str:
    return re.escape(path).replace(r"\*", r"(\d+)")


def _rule_key(name: str, rules: Mapping[str, Rule]) -> tuple[str, str | None]:
    """(the number that stands for `*`, the key in `rules`) of a parameter's name."""
    if name in rules:
        return "", name
    for found in re.finditer(r"(?<=\.)\d+(?=\.)", name):
        key = f"{name[: found.start()]}*{name[found.end() :]}"
        if key in rules:
            return found.group(), key
    return "", None


def _numbered(rule: Rule, number: str) -> Rule:
    def put(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(n.replace("*", number) for n in names)

    return dataclasses.replace(rule, ours=put(rule.ours), theirs=put(rule.theirs))


def _parameters(model: Layer) -> dict[str, tuple[Any, Any]]:
    """(owner, tensor) of every parameter and kept buffer by name, shared ones once."""
    return {
        name: (owner, tensor)
        for prefix, owner in _owners(model)
        for name, tensor in _own(prefix, owner)
    }


def _owners(model: Any) -> Iterator[tuple[str, Any]]:
    yield from model.named_sublayers(include_self=True)


def _own(prefix: str, owner: Any) -> Iterator[tuple[str, Any]]:
    held = owner.state_dict(include_sublayers=False)
    for name, tensor in held.items():
        name = "weight" if isinstance(owner, Kept) and name == "blocks" else name
        yield (f"{prefix}.{name}" if prefix else name), tensor


def _is_linear_weight(owner: Any, name: str, tensor: Any) -> bool:
    from bireme import nn

    return (
        isinstance(owner, nn.Linear | KeptLinear)
        and name.endswith("weight")
        and len(tensor.shape) == 2
    )
