"""Small good files of pretrained models: GGUF, folders, tokenizers, templates, prompt caches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bireme.core.errors import BiremeError
from tests.fuzz import structure
from tests.fuzz.formats import Format, beside

_TEMPLATE = b"""{%- if tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- set ns = namespace(first=true, system='') %}
{%- for m in messages %}
{%- if m['role'] == 'system' %}{% set ns.system = m['content'] | trim %}{% continue %}{% endif %}
{%- if loop.index0 % 2 and m.role == 'tool' %}{{ raise_exception('users begin') }}{% endif %}
{{- '<|' ~ m.role ~ '|>' + (m.content[:40] | upper) * 2 + eos_token }}
{%- endfor %}
{%- macro end(x, n=3) %}{{ x.split('a')[0].strip() }}
{%- for i in range(n) %}-{% endfor %}{% endmacro %}
{%- if add_generation_prompt %}{{ end('<|assistant|>', 4) }}{{ strftime_now('%Y')[:0] }}{% endif %}
"""


def zoo_formats(folder: Path) -> dict[str, Format]:
    """What `zoo.load` reads; the files that are not damaged lie beside the one that is."""
    import bireme
    from bireme import zoo
    from bireme.zoo import templates
    from bireme.zoo.files import open_source
    from bireme.zoo.kept import KeptLinear
    from bireme.zoo.loading import load_model
    from tests.zoo.make_gguf import kept_llama, tiny_llama

    place = folder / "zoo"
    place.mkdir()
    file = place / "tiny.gguf"
    tiny_llama(file)
    model, tokenizer = zoo.load(file)
    saved = place / "folder"
    zoo.save_pretrained(model, saved, tokenizer, shard_size=4000)

    def gguf() -> None:
        source = open_source(file)
        for tensor in source.tensors.values():
            tensor.read()
        load_model(source)
        found = zoo.AutoTokenizer.from_pretrained(file)
        found.decode(found.encode("the bad end <|user|>"))

    quantised = place / "kept.gguf"
    kept_llama(quantised)

    def blocks() -> None:
        """The native kernels read the blocks as they are in the file."""
        for layer in load_model(open_source(quantised), dtype="keep").sublayers():
            if isinstance(layer, KeptLinear):
                layer(bireme.ones([3, layer.in_features])).numpy()

    def whole() -> None:
        load_model(open_source(saved))

    def words() -> None:
        found = zoo.AutoTokenizer.from_pretrained(saved)
        found.decode(found.encode("the bad end <|user|> \U0001f642"))

    def render(data: bytes) -> None:
        turns = [
            {"role": r, "content": c} for r, c in (("user", "a cat"), ("assistant", "the end"))
        ]
        templates.render(
            str(data, "utf-8", "replace"), [{"role": "system", "content": " be brief "}, *turns],
            tools=[{"name": "f"}], add_generation_prompt=True, eos_token="</s>",
        )  # fmt: skip

    kept = place / "kept.safetensors"
    cache = zoo.PromptCache()
    cache.keep(model, [1, 2, 3], [np.zeros((1, 3, 2, 4), np.float32)] * 2)
    cache.save(kept)
    either = structure.any_of(structure.numbers, structure.flipped)
    kinds: dict[str, tuple[Path, Callable[[], Any], structure.Mutate]] = {
        "GGUF": (file, gguf, either),
        "GGUF blocks": (quantised, blocks, either),
        "zoo index": (saved / "model.safetensors.index.json", whole, structure.document),
        "zoo config": (saved / "config.json", whole, structure.document),
        "tokenizer.json": (saved / "tokenizer.json", words, structure.document),
        "tokenizer config": (saved / "tokenizer_config.json", words, structure.document),
        "prompt cache": (kept, lambda: zoo.PromptCache.load(kept), structure.safetensors),
    }
    assert json.loads((saved / "model.safetensors.index.json").read_text())["weight_map"]
    made = {
        name: Format(*beside(path, read), mutate, (BiremeError,), share=0.2)
        for name, (path, read, mutate) in kinds.items()
    }
    made["chat template"] = Format(_TEMPLATE, render, structure.lines, (BiremeError,), share=0.2)
    return made
