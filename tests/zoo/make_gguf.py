"""GGUF files for tests, written by hand."""

from __future__ import annotations

import pathlib
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from bireme.ops.block_formats import BLOCK_FORMATS

_CODES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1}


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    """The type of a value and its contents."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    first = _value(value[0])[:4]
    each = b"".join(_value(v)[4:] for v in value)
    return struct.pack("<I", 9) + first + struct.pack("<Q", len(value)) + each


def gguf(values: Mapping[str, Any], tensors: Mapping[str, Any]) -> bytes:
    """The bytes of a file. A tensor is an array, or (shape, code of the format, bytes)."""
    parts = {
        n: t if isinstance(t, tuple) else (t.shape, _CODES[t.dtype], t.tobytes())
        for n, t in tensors.items()
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, len(parts), len(values))
    head += b"".join(_text(k) + _value(v) for k, v in values.items())
    data = b""
    for name, (shape, code, contents) in parts.items():
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += _text(name) + dims + struct.pack("<IQ", code, len(data))
        data += contents + b"\0" * (-len(contents) % 32)
    return head + b"\0" * (-len(head) % 32) + data


WORDS = ["<|end|>", "<|user|>", *[chr(c) for c in range(97, 123)], "Ġ", "Ċ", "th", "the", "Ġthe"]


def tiny_llama(path: pathlib.Path, **more: Any) -> dict[str, np.ndarray]:
    """A model of one layer with a vocabulary and a chat template; returns its tensors."""
    rng = np.random.default_rng(0)
    width, inner, heads, kv, size = 16, 24, 4, 2, 4
    vocabulary = len(WORDS)

    def made(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    tensors = {
        "token_embd.weight": made(vocabulary, width),
        "output_norm.weight": 1 + made(width),
        "blk.0.attn_norm.weight": 1 + made(width),
        "blk.0.attn_q.weight": made(heads * size, width),
        "blk.0.attn_k.weight": made(kv * size, width),
        "blk.0.attn_v.weight": made(kv * size, width),
        "blk.0.attn_output.weight": made(width, heads * size),
        "blk.0.ffn_norm.weight": 1 + made(width),
        "blk.0.ffn_gate.weight": made(inner, width),
        "blk.0.ffn_up.weight": made(inner, width),
        "blk.0.ffn_down.weight": made(width, inner),
    }
    values = {
        "general.architecture": "llama",
        "llama.block_count": 1, "llama.context_length": 64, "llama.embedding_length": width,
        "llama.feed_forward_length": inner, "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv, "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (vocabulary - 2)],
        "tokenizer.ggml.merges": ["t h", "th e", "Ġ the"],
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.chat_template": "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}",
        **more,
    }  # fmt: skip
    path.write_bytes(gguf(values, tensors))
    return tensors


def _blocks(rng: np.random.Generator, form: str, rows: int, width: int) -> Any:
    """A tensor of random blocks with small scales, as `gguf` takes it."""
    f = BLOCK_FORMATS[form]
    made = rng.integers(0, 256, (rows * width // f.count, f.size), dtype=np.uint8)
    made[:, 1] = made[:, 1] & 0x80 | 0x24
    if form == "Q4_1":
        made[:, 3] = 0xA4
    return (rows, width), f.code, made.tobytes()


def kept_llama(path: pathlib.Path, embedding: str = "Q8_0") -> None:
    """A llama of two layers in quantised blocks, with queries that lie as pairs."""
    rng = np.random.default_rng(0)
    width, inner, heads, kv, size = 64, 96, 4, 2, 16
    tensors: dict[str, Any] = {
        "token_embd.weight": _blocks(rng, embedding, len(WORDS), width),
        "output_norm.weight": np.ones(width, np.float32),
    }
    for i in range(2):
        tensors |= {
            f"blk.{i}.attn_norm.weight": np.ones(width, np.float32),
            f"blk.{i}.attn_q.weight": _blocks(rng, "Q4_1", heads * size, width),
            f"blk.{i}.attn_k.weight": _blocks(rng, "Q4_0", kv * size, width),
            f"blk.{i}.attn_v.weight": _blocks(rng, "Q8_0", kv * size, width),
            f"blk.{i}.attn_output.weight": _blocks(rng, "Q5_0", width, heads * size),
            f"blk.{i}.ffn_norm.weight": np.ones(width, np.float32),
            f"blk.{i}.ffn_gate.weight": _blocks(rng, "Q4_1", inner, width),
            f"blk.{i}.ffn_up.weight": _blocks(rng, "Q4_0", inner, width),
            f"blk.{i}.ffn_down.weight": rng.standard_normal((width, inner)).astype(np.float32) / 9,
        }
    values = {
        "general.architecture": "llama",
        "llama.block_count": 2, "llama.context_length": 64, "llama.embedding_length": width,
        "llama.feed_forward_length": inner, "llama.attention.head_count": heads,
        "llama.attention.head_count_kv": kv, "llama.rope.freq_base": 10000.0,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": WORDS,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (len(WORDS) - 2)],
        "tokenizer.ggml.merges": ["t h", "th e", "Ġ the"],
        "tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.bos_token_id": 1,
    }  # fmt: skip
    path.write_bytes(gguf(values, tensors))
