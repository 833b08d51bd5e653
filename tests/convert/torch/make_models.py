"""Writes the models in `golden/`, with inputs, results and gradients, by PyTorch 2.13. The tests do
without it:

    python tests/convert/torch/make_models.py
"""

from __future__ import annotations

import io
import json
import pathlib
import zipfile
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

GOLDEN = pathlib.Path(__file__).parent / "golden"


class Pictures(nn.Module):
    """Convolutions, norms, pools, resizing, writes in place; an open batch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True)
        )
        self.deep = nn.Conv2d(8, 8, 3, padding="same", groups=8)
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.register_buffer("shift", torch.arange(4.0).reshape(1, 4, 1, 1))
        self.head = nn.Linear(4 * 9, 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        x = self.stem(x)
        x = x + F.hardswish(self.norm(self.deep(x)))
        x = F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        x = F.interpolate(self.up(x) + self.shift, scale_factor=1.7, mode="bilinear")
        x = F.adaptive_avg_pool2d(x, 3)
        return self.head(x.flatten(1)).softmax(-1), {"features": x.mean((2, 3)), "peak": x.amax()}


class Words(nn.Module):
    """Attention with a causal mask and padding, embeddings, tied weights, two open sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(19, 16)
        self.places = nn.Embedding(32, 16)
        self.norm = nn.LayerNorm(16)
        self.mix = nn.Linear(16, 48)
        self.out = nn.Linear(16, 19, bias=False)
        self.out.weight = self.words.weight

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, n = ids.shape
        x = self.words(ids) + self.places.weight[:n]
        q, k, v = self.mix(self.norm(x)).view(b, n, 3, 4, 4).permute(2, 0, 3, 1, 4)
        seen = torch.tril(torch.ones(n, n, dtype=torch.bool)) & mask.bool()[:, None, None, :]
        x = x + F.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).reshape(b, n, 16)
        x = torch.where(mask[..., None] > 0, x, torch.zeros_like(x))
        return self.out(F.gelu(self.norm(x), approximate="tanh"))


class Branches(nn.Module):
    """A branch on a value, positions, writes to a part, integer arithmetic."""

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        y = torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))
        y = y.clone()
        y[:, 1:3] = y[:, 1:3].exp()
        y = y.scatter_add(1, at, torch.ones_like(x)[:, :2])
        top, places = y.topk(2, dim=1)
        return (
            torch.cat([y[at[:, 0] % 2 == 0][:, :2].sum(0, keepdim=True), top], 0)
            + (places // 2).sum()
        )


def without_paths(data: bytes) -> bytes:
    """The file without stack traces, which hold paths, and without sample inputs."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if "/models/" in name:
                content = json.dumps(stripped(json.loads(content)), separators=(",", ":")).encode()
            if "sample_inputs" not in name:
                new.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


def stripped(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: {} if k == "metadata" else stripped(v) for k, v in value.items()}
    return [stripped(v) for v in value] if isinstance(value, list) else value


def make(name: str, model: nn.Module, inputs: tuple[torch.Tensor, ...], sizes: Any) -> None:
    model.eval()
    exported = torch.export.export(model, inputs, dynamic_shapes=sizes)
    file = io.BytesIO()
    torch.export.save(exported, file)
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{name}.pt2").write_bytes(without_paths(file.getvalue()))
    results = torch.utils._pytree.tree_leaves(model(*inputs))
    rng = np.random.default_rng(0)
    loss = sum(
        (r * torch.from_numpy(rng.normal(size=r.shape).astype("float32"))).sum() for r in results
    )
    arrays = {f"input{i}": t.numpy() for i, t in enumerate(inputs)}
    arrays |= {f"result{i}": t.detach().numpy() for i, t in enumerate(results)}
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        loss.backward()
        arrays |= {f"grad:{n}": p.grad.numpy() for n, p in model.named_parameters()}
    np.savez_compressed(GOLDEN / f"{name}.npz", **arrays)


def main() -> None:
    torch.manual_seed(0)
    pictures = Pictures()
    pictures.stem[1].running_mean.normal_()
    pictures.stem[1].running_var.uniform_(0.5, 2)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=32)
    make("pictures", pictures, (torch.randn(2, 3, 17, 17),), ({0: batch},))
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    both = {0: batch, 1: length}
    make("words", Words(), (torch.randint(0, 19, (2, 7)), mask), (both, both))
    make("branches", Branches(), (torch.randn(3, 5), torch.tensor([[0, 1], [2, 3], [4, 0]])), None)


if __name__ == "__main__":
    main()
