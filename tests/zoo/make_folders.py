"""Made-up models, written by transformers: `python -m tests.zoo.make_folders [NAME ...]`.

Runs where torch and transformers are installed (`pip install torch transformers`). Each model
becomes a zip file in `golden/` with what `save_pretrained` writes and `expected.safetensors`:
inputs, outputs, and marks of every parameter's gradient (`marks`) for a loss that is the mean of
the outputs times fixed random numbers. Weights are multiples of 1/16, so that they compress.
"""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
import zipfile
import zlib
from typing import Any

import numpy as np

GOLDEN = pathlib.Path(__file__).parent / "golden"


def _configs() -> dict[str, dict[str, Any]]:
    """By name: model_type, head, and what differs from tiny defaults."""
    import importlib

    found: dict[str, dict[str, Any]] = {}
    for path in sorted(pathlib.Path(__file__).parent.glob("folders*.py")):
        found.update(importlib.import_module(f"tests.zoo.{path.stem}").FOLDERS)
    return found


def marks(name: str, gradient: np.ndarray) -> np.ndarray:
    """Four numbers that differ where gradients do: the norm, and sums with random signs."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    flat = np.asarray(gradient, np.float64).reshape(-1)
    signs = rng.integers(0, 2, (3, flat.size)) * 2.0 - 1
    return np.array([np.linalg.norm(flat), *(signs @ flat)])


def loss_weights(name: str, shape: Any) -> np.ndarray:
    """The numbers that an output is multiplied with before its mean is taken."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return rng.standard_normal(tuple(shape)).astype(np.float32)


def make(out: pathlib.Path, name: str, spec: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _make(folder, name, spec)
        with zipfile.ZipFile(out / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            for file in sorted(os.listdir(folder)):
                entry = zipfile.ZipInfo(file)
                entry.compress_type = zipfile.ZIP_DEFLATED
                z.writestr(entry, pathlib.Path(folder, file).read_bytes())


def _make(folder: str, name: str, spec: dict[str, Any]) -> None:
    import torch
    import transformers
    from safetensors.torch import save_file

    spec = dict(spec)
    kind, head = spec.pop("model_type"), spec.pop("head", "AutoModelForCausalLM")
    inputs_of, std = spec.pop("inputs", "text"), spec.pop("std", 0.2)
    torch.manual_seed(int.from_bytes(name.encode()[-4:], "little"))
    config = transformers.AutoConfig.for_model(kind, **spec)
    config._attn_implementation = "eager"
    model = getattr(transformers, head).from_config(config, attn_implementation="eager")
    model = model.eval().float()
    with torch.no_grad():
        for p in model.parameters():
            drawn = torch.randn_like(p) * std if p.ndim > 1 else p + torch.randn_like(p) * 0.1
            p.copy_((drawn * 16).round() / 16)
    model.save_pretrained(folder)
    given = _inputs(inputs_of, config, torch)
    result = model(**given)
    outputs = _outputs(result, torch)
    found = {f"in.{k}": v for k, v in given.items()}
    loss = 0
    for k, v in outputs.items():
        found[f"out.{k}"] = v.detach().contiguous()
        loss = loss + (v * torch.tensor(loss_weights(k, v.shape))).mean()
    loss.backward()
    for n, p in model.named_parameters():
        if p.grad is not None:
            for saved, gradient in _as_saved(n, p.grad.numpy(), kind).items():
                found[f"grad.{saved}"] = torch.tensor(marks(saved, gradient))
    save_file(found, os.path.join(folder, "expected.safetensors"))
    stale = os.path.join(folder, "generation_config.json")
    if os.path.exists(stale):
        os.remove(stale)


def _as_saved(name: str, gradient: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """A parameter under the names it is saved by: experts apart."""
    parts = ["gate_proj", "up_proj", "down_proj"]
    if kind == "mixtral":
        name, parts = name.replace(".mlp.", ".block_sparse_moe."), ["w1", "w3", "w2"]
    if kind == "gpt_neox":
        name = name.replace("lm_head.", "embed_out.")
    stem, _, last = name.rpartition(".")
    if not stem.endswith(".experts"):
        return {name.replace(".gate.moe_statics.", ".moe_statics."): gradient}
    if last == "gate_up_proj":
        pieces = dict(zip(parts, np.split(gradient, 2, axis=1), strict=False))
    else:
        pieces = {parts[2]: gradient}
    return {f"{stem}.{e}.{n}.weight": g[e] for n, g in pieces.items() for e in range(len(g))}


def _outputs(result: Any, torch: Any) -> dict[str, Any]:
    wanted = (
        "logits",
        "start_logits",
        "end_logits",
        "last_hidden_state",
        "pooler_output",
        "image_embeds",
        "text_embeds",
        "logits_per_image",
    )
    found = {k: getattr(result, k, None) for k in wanted}
    return {k: v for k, v in found.items() if isinstance(v, torch.Tensor)}


def _inputs(kind: str, config: Any, torch: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(3)
    if kind == "image":
        size, channels = config.image_size, config.num_channels
        return {"pixel_values": torch.randn(2, channels, size, size, generator=generator)}
    vocab = config.vocab_size if hasattr(config, "vocab_size") else 60
    ids = torch.randint(5, vocab, (2, 12), generator=generator)
    if kind == "text":
        return {"input_ids": ids}
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    ids[1, 8:] = config.pad_token_id or 0
    if kind == "masked":
        return {"input_ids": ids, "attention_mask": mask}
    if kind == "seq2seq":
        other = torch.randint(5, vocab, (2, 7), generator=generator)
        return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": other}
    raise ValueError(f"inputs {kind!r}")


def main() -> None:
    names = sys.argv[1:]
    GOLDEN.mkdir(exist_ok=True)
    for name, spec in _configs().items():
        if names and not any(name.startswith(n) for n in names):
            continue
        try:
            make(GOLDEN, name, spec)
            print("made", name)
        except Exception as e:
            print("FAILED", name, type(e).__name__, str(e)[:300])


if __name__ == "__main__":
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
    main()
