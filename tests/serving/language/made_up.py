"""A tiny language model over bytes, made up."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer as Inner
from tokenizers import decoders, models, pre_tokenizers

import bireme as paddle
from bireme import zoo
from bireme.zoo.tokenizer import Tokenizer
from tests.zoo.folders import tiny

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def tokenizer() -> Tokenizer:
    """A token per byte, and an end."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<end>": 0, **{letter: i + 1 for i, letter in enumerate(letters)}}
    inner = Inner(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<end>"])
    return Tokenizer(inner, {"eos_token": "<end>", "chat_template": TEMPLATE})


def model(kind: str = "llama", **more: Any) -> Any:
    """A decoder with random weights, whose texts vary."""
    paddle.seed(3)
    config = tiny(kind, vocab_size=257, max_position_embeddings=256, eos_token_id=0, **more)
    made = zoo.AutoModelForCausalLM.from_config(zoo.AutoConfig.from_dict(config))
    for parameter in made.parameters():
        if parameter.ndim == 2:
            parameter.set_value(parameter * 12)
    made.eval()
    return made
