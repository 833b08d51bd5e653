"""A tokenizer as the vocabulary of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bireme.core.errors import InvalidArgument
from bireme.zoo import tokenizer_gguf as reading
from bireme.zoo.files import Source
from bireme.zoo.tokenizer import Tokenizer

_NORMAL, _UNKNOWN, _CONTROL, _ADDED, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_KEYS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}

# What the tokenizer and the one that is read back must agree on.
_PROBES = (
    "Hello, World! it's 1234567 o'clock", "  two  spaces\n\n\tand tabs \r\n", "a  b   c\u00a0d",
    "naïve café Ünïcødé", "人工智能 こんにちは 안녕", "🙂👩\u200d👧 family", "3.14159e-10",
    "def f(x):\n    return x**2  # ok", "don't WE'LL I'M", "e\u0301 \u212b ﬁ",
    "\u0627\u0644\u0639 हिन्दी ไทย", "x", " ", "\n",
)  # fmt: skip


def tokenizer_values(tokenizer: Tokenizer, rows: int) -> dict[str, Any]:
    """The values of a GGUF file that hold a tokenizer; `rows` is how many vectors of words the
    model has. What GGUF cannot say of a tokenizer is an error."""
    state = json.loads(tokenizer.inner.to_str())
    model = state["model"]
    if model.get("type") != "BPE":
        raise _cannot(f"its model is {model.get('type')!r}; only BPE is written")
    pieces = bool(model.get("byte_fallback"))
    values = _pieces(state) if pieces else _bytes(state)
    names, kinds = _tokens(tokenizer, rows, pieces)
    values |= {"tokenizer.ggml.tokens": names, "tokenizer.ggml.token_type": kinds}
    if pieces:
        values["tokenizer.ggml.scores"] = _scores(names, _merges(model))
    for name, key in _KEYS.items():
        number = tokenizer._id(name)
        if number is not None:
            values[f"tokenizer.ggml.{key}_token_id"] = number
    others = [i for i in tokenizer.end_ids if i != tokenizer.eos_token_id]
    values |= {
        f"tokenizer.ggml.{n}_token_id": i for n, i in zip(("eot", "eom"), others, strict=False)
    }
    around = tokenizer.encode("x"), tokenizer.encode("x", add_special_tokens=False)
    values["tokenizer.ggml.add_bos_token"] = around[0][:1] != around[1][:1]
    values["tokenizer.ggml.add_eos_token"] = around[0][-1:] != around[1][-1:]
    if tokenizer.chat_template:
        values["tokenizer.chat_template"] = tokenizer.chat_template
    _check(tokenizer, values)
    return values


def _cannot(why: str) -> InvalidArgument:
    return InvalidArgument(f"[save_gguf] GGUF cannot hold this tokenizer: {why}")


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Older files have the pairs as one text."""
    pairs = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    return [(left, right) for left, right in pairs]


def _bytes(state: Mapping[str, Any]) -> dict[str, Any]:
    """A byte-level BPE: the merges, and a name for how texts are cut."""
    cuts = _cuts(state.get("pre_tokenizer"))
    whole = bool(state["model"].get("ignore_merges"))
    found = next((n for n, known in reading._CUTS.items() if tuple(known) == cuts), None)
    if found is None or whole != (reading._CUTS[found][0] is reading._LLAMA3):
        raise _cannot(f"its texts are cut by {cuts!r:.300}, for which llama.cpp has no name")
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": found,
        "tokenizer.ggml.merges": [" ".join(pair) for pair in _merges(state["model"])],
    }


def _cuts(step: Any) -> tuple[str, ...]:
    """The patterns by which a pre-tokenizer cuts texts; a part that is none ends up as its type,
    which no name stands for."""
    if not isinstance(step, Mapping):
        return ()
    kind = step.get("type")
    if kind == "Sequence":
        return tuple(c for part in step["pretokenizers"] for c in _cuts(part))
    if kind == "Digits" and step.get("individual_digits"):
        return (r"\p{N}",)
    if kind == "ByteLevel" and not step.get("add_prefix_space"):
        return (reading._GPT2,) if step.get("use_regex", True) else ()
    if kind == "Split" and step.get("behavior") == "Isolated" and not step.get("invert"):
        pattern = step.get("pattern", {})
        return (str(pattern.get("Regex", pattern)),)
    return (f"<{kind}>",)


def _pieces(state: Mapping[str, Any]) -> dict[str, Any]:
    """A BPE over characters, as SentencePiece has it."""
    text = json.dumps([state.get("normalizer"), state.get("pre_tokenizer")])
    prefix = '"Prepend"' in text or '"prepend_scheme": "first"' in text
    prefix = prefix or '"prepend_scheme": "always"' in text
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.add_space_prefix": prefix,
    }


def _tokens(tokenizer: Tokenizer, rows: int, pieces: bool) -> tuple[list[str], list[int]]:
    """Every token and its type; rows without one are unused tokens."""
    inner = tokenizer.inner
    known = {i: t for t, i in inner.get_vocab(with_added_tokens=True).items()}
    if known and max(known) >= rows:
        raise _cannot(f"it has {max(known) + 1} tokens and the model {rows} vectors")
    added = inner.get_added_tokens_decoder()
    taken = set(known.values())
    names, kinds = [], []
    for i in range(rows):
        name, kind = known.get(i), _NORMAL
        if name is None:
            name, kind = f"[PAD{i}]", _UNUSED
            if name in taken:
                raise _cannot(f"{name!r} is one of its tokens")
        elif i in added:
            kind = _CONTROL if added[i].special else _ADDED
        elif pieces and len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            kind = _BYTE
        if pieces and name == tokenizer.special.get("unk_token"):
            kind = _UNKNOWN
        names.append(name)
        kinds.append(kind)
    return names, kinds


def _scores(names: Sequence[str], merges: Sequence[tuple[str, str]]) -> list[float]:
    """A token that is merged earlier has a higher score; what no merge makes comes last."""
    rank: dict[str, int] = {}
    for left, right in merges:
        rank.setdefault(left + right, len(rank))
    return [-float(rank.get(name, len(rank) + i)) for i, name in enumerate(names)]


def _check(tokenizer: Tokenizer, values: Mapping[str, Any]) -> None:
    again = reading.from_gguf(Source("the new file", {}, {}, values))
    for text in _PROBES:
        for special in (True, False):
            want = tokenizer.encode(text, add_special_tokens=special)
            got = again.encode(text, add_special_tokens=special)
            if want != got:
                raise _cannot(f"{text!r} is {want[:12]} and would be read back as {got[:12]}")
