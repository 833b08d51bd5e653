"""Encoders, encoder-decoders and image models give transformers' numbers, on made-up weights."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.zoo.files import open_source
from bireme.zoo.loading import load_model, names_of
from bireme.zoo.saving import save_pretrained
from tests.zoo import made_up

CASES = made_up.cases()


def _model(case: str, about: dict[str, Any], into: pathlib.Path) -> Any:
    return load_model(open_source(made_up.folder(case, about, into)))


def _outputs(
    model: Any, task: str, given: dict[str, Any], wanted: dict[str, Any]
) -> dict[str, Any]:
    if "logits_per_text" in wanted:
        return {
            "text_embeds": model.embed_text(given["input_ids"]),
            "image_embeds": model.embed_image(given["pixel_values"]),
            "logits_per_text": model(**given),
        }
    if "start_logits" in wanted:
        start, end = model(**given)
        return {"start_logits": start, "end_logits": end}
    found = {next(iter(wanted)): model(**given)}
    if "pooler_output" in wanted:
        found["pooler_output"] = model.pooled(found["last_hidden_state"])
    return found


@pytest.mark.parametrize("case", CASES)
def test_numbers_and_gradients(case: str, tmp_path: pathlib.Path) -> None:
    about, arrays = made_up.read(case)
    model = _model(case, about, tmp_path)
    given = {n[3:]: paddle.to_tensor(a) for n, a in arrays.items() if n.startswith("in.")}
    wanted = {n[4:]: a for n, a in arrays.items() if n.startswith("out.")}
    found = _outputs(model, model.task, given, wanted)
    mask = arrays.get("in.attention_mask")
    loss: Any = 0.0
    for name, value in wanted.items():
        real = mask if mask is not None and value.shape[:2] == mask.shape else None
        ours = found[name].numpy()
        assert ours.shape == value.shape
        scale = max(np.abs(value).max(), 1.0)
        difference = np.abs(ours - value)
        if real is not None:
            difference = difference[real.astype(bool)]
        assert difference.max() <= 1e-5 * scale, (name, difference.max(), scale)
        weights = made_up.weights_of_loss(case, name, value.shape)
        if real is not None:
            weights = weights * real.reshape(*real.shape, *[1] * (value.ndim - 2))
        loss = loss + (found[name] * paddle.to_tensor(weights.astype(np.float32))).sum()
    loss.backward()
    _compare_gradients(case, about, model, arrays["grads"])


def _compare_gradients(case: str, about: dict[str, Any], model: Any, wanted: np.ndarray) -> None:
    params = dict(model.named_parameters())
    grads: dict[str, np.ndarray] = {}
    for entry in names_of(model).entries(model):
        if not all(n in params for n in entry.ours):
            continue  # a buffer
        values = [params[n] for n in entry.ours]
        made = [np.zeros(p.shape, np.float32) if p.grad is None else p.grad.numpy() for p in values]
        grads.update(zip(entry.theirs, entry.save(made), strict=True))
    wrong = []
    for name, row in zip(about["grads"], wanted, strict=True):
        ours = made_up.digest(case, name, grads.pop(_name(name, grads)))
        size = max(np.abs(wanted).max(), 1.0)
        if np.abs(ours - row).max() > 1e-4 * size:
            wrong.append((name, ours.round(5).tolist(), row.round(5).tolist()))
    assert not wrong, wrong[:3]
    left = {n: g for n, g in grads.items() if np.abs(g).max() > 0}
    assert not left, f"gradients that transformers does not have: {sorted(left)}"


def _name(name: str, grads: dict[str, np.ndarray]) -> str:
    if name in grads:
        return name
    return next(n for n in grads if n.endswith(f".{name}"))


@pytest.mark.parametrize(
    "case",
    [
        "albert-masked",
        "bart-lm",
        "clip-towers",
        "dinov2-swiglu",
        "marian-two",
        "modernbert-masked",
        "t5-gated",
    ],
)
def test_files_are_written_as_they_were_read(case: str, tmp_path: pathlib.Path) -> None:
    from safetensors.numpy import load_file

    about, _ = made_up.read(case)
    save_pretrained(_model(case, about, tmp_path / "a"), tmp_path / "b")
    before = load_file(tmp_path / "a" / "model.safetensors")
    after = load_file(tmp_path / "b" / "model.safetensors")
    # A base model is written with its prefix, and tables of sines although they can be made again;
    # transformers takes both. The token for masked patches carries nothing.
    after = {n if n in before else n.removeprefix("dinov2."): a for n, a in after.items()}
    after = {n: a for n, a in after.items() if n in before or "embed_positions" not in n}
    for name, array in after.items():
        np.testing.assert_array_equal(array, before[name], name)
    assert before.keys() - after.keys() <= {"embeddings.mask_token"}
