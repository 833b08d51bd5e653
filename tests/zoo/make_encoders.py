"""Writes the golden files of encoders, encoder-decoders and image models. Run it with a Python that
has torch and transformers:

    python tests/zoo/make_encoders.py [case ...]
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import made_up
from made_up_cases import CASES

transformers.logging.set_verbosity_error()


def inputs_of(case: str, kind: str, config: Any) -> dict[str, np.ndarray]:
    """Inputs of every kind: two samples, the second one shorter."""
    rng = np.random.default_rng(len(case))
    if kind == "image":
        side = config.image_size
        size = side if isinstance(side, int) else side[0]
        return {"pixel_values": rng.standard_normal((2, 3, size, size)).astype(np.float32)}
    if kind == "towers":
        side = config.vision_config.image_size
        words = config.text_config.vocab_size
        ids = rng.integers(5, words - 1, (2, 7))
        ids[:, -1] = words - 1  # the end token, which CLIP pools
        return {
            "input_ids": ids,
            "pixel_values": rng.standard_normal((3, 3, side, side)).astype(np.float32),
        }
    if kind == "tower":
        ids = rng.integers(5, config.vocab_size - 1, (2, 7))
        ids[:, -1] = config.vocab_size - 1
        return {"input_ids": ids}
    if kind == "audio":
        frames = 2 * config.max_source_positions
        made = rng.standard_normal((2, config.num_mel_bins, frames)).astype(np.float32)
        return {"input_features": made, "decoder_input_ids": rng.integers(5, 60, (2, 6))}
    tokens = 21 if kind == "long" else 11
    pad = config.pad_token_id or 0
    ids = rng.integers(5, config.vocab_size, (2, tokens))
    mask = np.ones((2, tokens), np.int64)
    ids = np.where(ids == pad, 5, ids)
    ids[1, -3:], mask[1, -3:] = pad, 0
    found = {"input_ids": ids, "attention_mask": mask}
    if kind == "typed":
        found["token_type_ids"] = rng.integers(0, config.type_vocab_size, (2, tokens))
    if kind.startswith("seq2seq"):
        words = getattr(config, "decoder_vocab_size", None) or config.vocab_size
        decoded = rng.integers(5, words, (2, 7))
        found["decoder_input_ids"] = np.where(decoded == pad, 5, decoded)
    return found


OUTPUTS = (
    "logits", "last_hidden_state", "pooler_output", "start_logits", "end_logits",
    "logits_per_text", "text_embeds", "image_embeds",
)  # fmt: skip


def make(case: str) -> None:
    architecture, kind, settings = CASES[case]
    cls = getattr(transformers, architecture)
    config = cls.config_class(**settings)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as first:
        cls(config).save_pretrained(first)
        path = pathlib.Path(first)
        raw = json.loads((path / "config.json").read_text())
        shapes = {n: list(t.shape) for n, t in load_file(path / "model.safetensors").items()}
        about = {"config": raw, "tensors": shapes, "kind": kind}
        made_up.folder(case, about, path)
        model, info = cls.from_pretrained(
            first, attn_implementation="eager", output_loading_info=True
        )
    assert not info["missing_keys"], info
    assert not info["unexpected_keys"], info
    model.eval()
    inputs = inputs_of(case, kind, config)
    searched = beams(model, inputs) if kind == "seq2seq" else {}
    uncached = {"use_cache": False} if kind.startswith("seq2seq") or kind == "audio" else {}
    found = model(**{n: torch.from_numpy(a) for n, a in inputs.items()}, **uncached)
    outputs = {n: getattr(found, n) for n in OUTPUTS if getattr(found, n, None) is not None}
    if outputs.keys() & {"logits", "text_embeds", "image_embeds"}:
        outputs.pop("last_hidden_state", None)
    real = torch.from_numpy(inputs["attention_mask"]) if "attention_mask" in inputs else None
    loss: Any = 0.0
    for name, value in outputs.items():
        weights = torch.from_numpy(made_up.weights_of_loss(case, name, tuple(value.shape)))
        if real is not None and value.shape[:2] == real.shape:
            weights = weights * real.reshape(*real.shape, *[1] * (value.ndim - 2))
        loss = loss + (value * weights).sum()
    loss.backward()
    grads = {n: made_up.digest(case, n, g) for n, g in gradients(model).items()}
    about["grads"] = list(grads)
    arrays = {f"in.{n}": a for n, a in inputs.items()}
    arrays |= {f"out.{n}": a.detach().numpy() for n, a in outputs.items()}
    arrays |= searched
    arrays["grads"] = np.stack(list(grads.values())) if grads else np.zeros((0, 7))
    made_up.write(case, about, arrays)


_NO_PARAMETER = 12345.0


def gradients(model: Any) -> dict[str, np.ndarray]:
    """The gradients under the names of the file: saved as if they were the parameters."""
    with torch.no_grad():
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.fill_(_NO_PARAMETER)
        for p in model.parameters():
            p.copy_(torch.full_like(p, _NO_PARAMETER) if p.grad is None else p.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        found = load_file(pathlib.Path(folder) / "model.safetensors")
    return {n: np.array(g) for n, g in found.items() if not np.all(g == _NO_PARAMETER)}


def beams(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Greedy tokens and those of a beam search of 4."""
    given = {n: torch.from_numpy(inputs[n]) for n in ("input_ids", "attention_mask")}
    start = model.config.decoder_start_token_id or 0
    found = {}
    for name, count in (("greedy", 1), ("beams", 4)):
        tokens = model.generate(
            **given, num_beams=count, max_new_tokens=12, do_sample=False, length_penalty=1.0,
            early_stopping=False, decoder_start_token_id=start,
        )  # fmt: skip
        found[name] = tokens.numpy()
    return found


if __name__ == "__main__":
    made_up.GOLDEN.mkdir(parents=True, exist_ok=True)
    for wanted in sys.argv[1:] or CASES:
        make(wanted)
        print(wanted, (made_up.GOLDEN / f"{wanted}.npz").stat().st_size)
