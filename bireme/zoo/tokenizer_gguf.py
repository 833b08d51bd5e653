"""The vocabulary in a GGUF file as a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bireme.core.errors import FileFormatError
from bireme.zoo.files import Source
from bireme.zoo.tokenizer import Tokenizer

_CONTROL, _ADDED, _BYTE = 3, 4, 6  # types of tokens

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}COUNT"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3, _QWEN2 = _WORDS.replace("COUNT", "{1,3}"), _WORDS.replace("COUNT", "")

# How text is cut before pairs are merged, by `tokenizer.ggml.pre`.
_CUTS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "jina-es", "jina-de"), (_GPT2,)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "stablelm2", "deepseek-r1-qwen", "megrez"), (_QWEN2,)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), (r"\p{N}", _GPT2)),
}


def from_gguf(source: Source) -> Tokenizer:
    """The tokenizer in a GGUF source."""
    values = source.extra
    tokens, types = values.get("tokenizer.ggml.tokens"), values.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, list) or not all(isinstance(t, str) for t in tokens) or not tokens:
        raise FileFormatError(f"[zoo] {source.path!r} has no list of tokens")
    kinds = [1] * len(tokens) if types is None else [int(t) for t in types]
    kind = values["tokenizer.ggml.model"]
    if len(kinds) != len(tokens) or kind not in ("gpt2", "llama"):
        raise FileFormatError(
            f"[zoo] {source.path!r} has a vocabulary of the type {kind!r:.60} with {len(tokens)} "
            f"tokens and {len(kinds)} types; 'gpt2' and 'llama' are read"
        )
    build = _bytes_inner if kind == "gpt2" else _pieces_inner
    inner = build(values, tokens, source.path)
    _add_tokens(inner, tokens, kinds)
    settings: dict[str, Any] = {"chat_template": values.get("tokenizer.chat_template")}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = values.get(f"tokenizer.ggml.{key}_token_id")
        if type(number) is int and number < len(tokens):
            settings[f"{name}_token"] = tokens[number]
    add = {n: values.get(f"tokenizer.ggml.add_{n}_token") for n in ("bos", "eos")}
    if add["bos"] is None:
        add["bos"] = kind == "llama"
    _surround(inner, {n: settings.get(f"{n}_token") for n in ("bos", "eos") if add[n]})
    ends = [values.get(f"tokenizer.ggml.{n}_token_id") for n in ("eos", "eot", "eom")]
    return Tokenizer(inner, settings, [i for i in ends if type(i) is int])


def _bytes_inner(values: Mapping[str, Any], tokens: list[str], path: str) -> Any:
    """A byte-level BPE, as GPT-2 has it."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    cut = values.get("tokenizer.ggml.pre", "gpt-2")
    if cut not in _CUTS:
        raise FileFormatError(
            f"[zoo] {path!r} cuts its texts in a way that is not known: tokenizer.ggml.pre is "
            f"{cut!r:.60}. Known are {', '.join(_CUTS)}"
        )
    merges = values.get("tokenizer.ggml.merges")
    parts = [tuple(m.split(" ")) for m in merges] if isinstance(merges, list) else []
    if not parts or any(len(p) != 2 for p in parts):
        raise FileFormatError(f"[zoo] {path!r} has no list of merges")
    vocabulary = {t: i for i, t in enumerate(tokens)}
    whole = _CUTS[cut][0] is _LLAMA3  # a word that is a token stays one, whatever the merges say
    try:
        model = models.BPE(vocabulary, parts, fuse_unk=False, ignore_merges=whole)
    except Exception as e:  # the library raises this class itself
        raise FileFormatError(f"[zoo] {path!r}: the merges do not fit the tokens: {e}") from e
    inner = Tokenizer(model)
    if _CUTS[cut][0] is _QWEN2:
        inner.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.Split(Regex(c), "isolated") for c in _CUTS[cut]]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = pre_tokenizers.Sequence([*steps, last])
    inner.decoder = decoders.ByteLevel()
    return inner


def _pieces_inner(values: Mapping[str, Any], tokens: list[str], path: str) -> Any:
    """A BPE over characters with scores, as SentencePiece has it."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = values.get("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(tokens):
        raise FileFormatError(f"[zoo] {path!r} has no score for every token")
    vocabulary = {t: i for i, t in enumerate(tokens)}
    unknown = values.get("tokenizer.ggml.unknown_token_id", 0)
    unknown = tokens[unknown] if type(unknown) is int and unknown < len(tokens) else tokens[0]
    merges = _merges(tokens, [float(s) for s in scores], vocabulary)
    model = models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    inner = Tokenizer(model)
    prefix = values.get("tokenizer.ggml.add_space_prefix", True)
    spaces = normalizers.Replace(" ", "▁")
    start = [normalizers.Prepend("▁")] if prefix else []
    inner.normalizer = normalizers.Sequence([*start, spaces])
    back = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    inner.decoder = decoders.Sequence([*back, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return inner


def _merges(
    tokens: list[str], scores: list[float], vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Pairs of tokens that make a token, those of the best tokens first."""
    found: list[tuple[float, int, int, str, str]] = []
    for token, score in zip(tokens, scores, strict=True):
        own = []
        for i in range(1, len(token)):
            left, right = vocabulary.get(token[:i]), vocabulary.get(token[i:])
            if left is not None and right is not None:
                own.append((left, right, i))
        own.sort()
        found += [(-score, -i, i - len(token), token[:i], token[i:]) for _, _, i in own]
    found.sort(key=lambda m: m[:3])
    return [(left, right) for _, _, _, left, right in found]


def _add_tokens(inner: Any, tokens: list[str], kinds: list[int]) -> None:
    from tokenizers import AddedToken

    added = [
        AddedToken(t, special=k == _CONTROL, normalized=False)
        for t, k in zip(tokens, kinds, strict=True)
        if k in (_CONTROL, _ADDED)
    ]
    inner.add_tokens(added)


def _surround(inner: Any, marks: Mapping[str, str | None]) -> None:
    """Special tokens before and after every text."""
    from tokenizers import processors

    first, last = marks.get("bos"), marks.get("eos")
    known = [t for t in (first, last) if t is not None]
    if not known:
        return

    def around(name: str, number: int) -> list[str]:
        start = [f"{first}:{number}"] if first is not None else []
        end = [f"{last}:{number}"] if last is not None else []
        return [*start, f"${name}:{number}", *end]

    inner.post_processor = processors.TemplateProcessing(
        single=around("A", 0),
        pair=[*around("A", 0), *around("B", 1)],
        special_tokens=[(t, inner.token_to_id(t)) for t in dict.fromkeys(known)],
    )
