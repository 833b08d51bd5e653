"""Writes tuning/peft.zip where torch, transformers and peft are: python make_peft.py

A tiny Llama, adapters that peft made and saved, and the logits with each; and for the Llama what
transformers' beam search finds (beams.json). With a folder as an
argument it reads adapters that Bireme wrote beside the same base instead, and prints the largest
difference of the logits from those in `logits.npy` of each.
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
import zipfile
from typing import Any

import numpy as np

GOLDEN = pathlib.Path(__file__).parent / "tuning" / "peft.zip"
CASES: dict[str, dict[str, Any]] = {
    "plain": {"target_modules": ["q_proj", "v_proj"]},
    "all": {"target_modules": "all-linear", "lora_dropout": 0.1},
    "rs": {"target_modules": ["down_proj"], "use_rslora": True},
    "pattern": {
        "target_modules": ["q_proj", "o_proj"],
        "rank_pattern": {"layers.1.self_attn.q_proj": 2},
        "alpha_pattern": {"o_proj": 3},
    },
}

PROMPTS = [[7], [3, 9, 12], list(range(20, 37)), [5, 5, 6, 8, 40]]
BEAMS: list[tuple[int, float, bool | str, list[int]]] = [
    (4, 1.0, False, [11]), (3, 0.0, True, [11, 30, 33]), (2, 2.0, "never", [30]),
]  # fmt: skip


def _logits(model: Any) -> np.ndarray:
    import torch  # pyright: ignore[reportMissingImports]

    with torch.no_grad():
        return model(torch.arange(12).reshape(1, 12)).logits.numpy()


def _beams(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Searches of single prompts, and the tokens they found."""
    import torch  # pyright: ignore[reportMissingImports]
    from transformers import LlamaForCausalLM  # pyright: ignore[reportMissingImports]

    model = LlamaForCausalLM.from_pretrained(folder / "base").eval()
    with torch.no_grad():
        for param in model.parameters():  # less even scores
            param.mul_(3)
    found = []
    for beams, penalty, early, ends in BEAMS:
        for prompt in PROMPTS:
            out = model.generate(
                torch.tensor([prompt]), max_new_tokens=10, min_new_tokens=0, num_beams=beams,
                num_return_sequences=2, length_penalty=penalty, early_stopping=early,
                eos_token_id=ends, pad_token_id=0, do_sample=False,
            )[:, len(prompt) :]  # fmt: skip
            found.append({"prompt": prompt, "search": [beams, penalty, early, ends],
                          "tokens": out.tolist()})  # fmt: skip
    return found


def make(folder: pathlib.Path) -> None:
    import torch  # pyright: ignore[reportMissingImports]
    from peft import LoraConfig, get_peft_model  # pyright: ignore[reportMissingImports]
    from transformers import (  # pyright: ignore[reportMissingImports]
        LlamaConfig,
        LlamaForCausalLM,
    )

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=False,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder / "base")
    (folder / "beams.json").write_text(json.dumps(_beams(folder)))
    for name, options in CASES.items():
        torch.manual_seed(1)
        base = LlamaForCausalLM.from_pretrained(folder / "base")
        made = LoraConfig(
            r=4, lora_alpha=6, task_type="CAUSAL_LM", init_lora_weights=False, **options
        )
        model = get_peft_model(base, made).eval()
        model.save_pretrained(folder / name)
        np.save(folder / f"{name}.npy", _logits(model))
    with zipfile.ZipFile(GOLDEN, "w", zipfile.ZIP_DEFLATED) as out:
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".json", ".safetensors", ".npy"):
                out.write(path, path.relative_to(folder))


def check(folder: pathlib.Path) -> None:
    from peft import PeftModel  # pyright: ignore[reportMissingImports]
    from transformers import LlamaForCausalLM  # pyright: ignore[reportMissingImports]

    for path in sorted(folder.glob("*/adapter_config.json")):
        base = LlamaForCausalLM.from_pretrained(folder / "base")
        found = _logits(PeftModel.from_pretrained(base, path.parent).eval())
        print(path.parent.name, np.abs(found - np.load(path.parent / "logits.npy")).max())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(pathlib.Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            make(pathlib.Path(made))
