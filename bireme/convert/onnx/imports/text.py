"""Strings: known values only."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

import numpy as np

from bireme.convert.onnx.imports import onnx_op
from bireme.convert.onnx.patterns import Pattern
from bireme.convert.onnx.reader import OnnxError, check_known

if TYPE_CHECKING:
    from bireme.convert.onnx.interpreter import NodeView, Value, Values


_MAX_WORK = 10_000_000


@onnx_op("StringConcat", host=True)
def string_concat(n: NodeView, x: Value, y: Value) -> np.ndarray:
    longest = [max(map(len, v.ravel().tolist()), default=0) for v in (x, y)]
    check_known(np.broadcast_shapes(x.shape, y.shape), 8 + sum(longest))
    return np.asarray(np.add(x.astype(object), y.astype(object)), object)


@onnx_op("StringSplit", host=True)
def string_split(n: NodeView, x: Value) -> Values:
    delimiter, most = n.attr("delimiter") or None, n.attr("maxsplit", -1)
    rows = [str(v).split(delimiter, most) if v else [] for v in x.ravel()]
    width = max((len(r) for r in rows), default=0)
    check_known([len(rows), width], 8)
    padded = [r + [""] * (width - len(r)) for r in rows]
    made = np.array(padded, object).reshape(*x.shape, width)
    return made, np.array([len(r) for r in rows], np.int64).reshape(x.shape)


@onnx_op("StringNormalizer", host=True)
def string_normalizer(n: NodeView, x: Value) -> np.ndarray:
    change = {"UPPER": str.upper, "LOWER": str.lower}.get(n.attr("case_change_action", "NONE"))
    exact = bool(n.attr("is_case_sensitive", 0))
    stop = n.attr("stopwords") or []
    stop = set(stop) if exact else {s.lower() for s in stop}

    def row(words: Any) -> list[str]:
        kept = [w for w in words if (w if exact else w.lower()) not in stop]
        return [change(w) for w in kept] if change else kept

    if x.ndim == 1:
        return np.array(row(x) or [""], object)
    return np.array([row(x[0]) or [""]], object)


@onnx_op("RegexFullMatch", host=True)
def regex_full_match(n: NodeView, x: Value) -> np.ndarray:
    pattern = n.attr("pattern", "")
    compiled = Pattern(pattern)
    found = [compiled.matches_all(str(v)) for v in x.ravel()]
    return np.array(found, bool).reshape(x.shape)


@onnx_op("TfIdfVectorizer", host=True)
def tf_idf(n: NodeView, x: Value) -> np.ndarray:
    x = n.known(x)
    pool: list[Any] = n.attr("pool_int64s") or n.attr("pool_strings") or []
    starts, places = n.attr("ngram_counts"), n.attr("ngram_indexes")
    low, high, skips = (n.attr(k) for k in ("min_gram_length", "max_gram_length", "max_skip_count"))
    grams: dict[str, int] = {}
    count = 0
    for size, start in enumerate(starts, 1):
        end = starts[size] if size < len(starts) else len(pool)
        for at in range(start, end, size):
            if low <= size <= high:
                grams[repr(tuple(pool[at : at + size]))] = count
            count += 1
    weights = n.attr("weights") or [1.0] * len(places)
    width = max(places) + 1
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    check_known([rows.shape[0], width], 4)
    out = np.zeros((rows.shape[0], width), np.float32)
    work = 0
    for r, row in enumerate(rows.tolist()):
        seen: collections.Counter[int] = collections.Counter()
        for size in range(low, min(high, len(row)) + 1):
            for skip in range(min(skips, len(row)) + 1) if size > 1 else [0]:
                step = skip + 1
                work += size * (1 + max(0, len(row) - (size - 1) * step))
                if work > _MAX_WORK:
                    raise OnnxError(f"counting the n-grams takes more than {_MAX_WORK} steps")
                for at in range(len(row) - (size - 1) * step):
                    gram = grams.get(repr(tuple([row[at + k * step] for k in range(size)])))
                    if gram is not None:
                        seen[gram] += 1
        for gram, times in seen.items():
            mode = n.attr("mode")
            value = times if mode == "TF" else weights[gram] * (times if mode == "TFIDF" else 1)
            out[r, places[gram]] = value
    return out[0] if x.ndim == 1 else out
