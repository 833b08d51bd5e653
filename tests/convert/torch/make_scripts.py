"""Writes TorchScript programs to `golden/`, with inputs, results and gradients, and checkpoints to
`tests/io/golden`, by PyTorch 2.13. The tests do without it:

    python tests/convert/torch/make_scripts.py
"""

import io
import pathlib
import zipfile
from collections import OrderedDict
from typing import Any, Dict, Final, List, NamedTuple, Optional, Tuple  # noqa: UP035 (TorchScript's)

import numpy as np
import torch
from torch import nn

GOLDEN = pathlib.Path(__file__).parent / "golden"
CHECKPOINTS = pathlib.Path(__file__).parents[2] / "io" / "golden"


class Out(NamedTuple):
    features: torch.Tensor
    turns: int


class _Adder:
    def __init__(self, step: int):
        self.step = step
        self.seen: List[int] = []  # noqa: UP006

    def add(self, x: int) -> int:
        self.seen.append(x)
        return x + self.step


Adder = torch.jit.script(_Adder)


class Control(nn.Module):
    """Branches, loops with break and continue, early returns, containers, strings, classes."""

    K: Final[int] = 3
    weights: Dict[str, int]  # noqa: UP006

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.5)) for _ in "ab"]
        )
        self.weights = {"a": 1, "b": 2}
        self.norm = nn.BatchNorm1d(4)
        self.lstm = nn.LSTM(4, 3, batch_first=True, bidirectional=True)
        self.register_buffer("shift", torch.arange(4.0))

    def early(self, x: torch.Tensor, n: int) -> torch.Tensor:
        if n > self.K:
            return x * 2
        for i in range(n):
            if i == 2:
                break
            x = x + i
            if i == 1:
                continue
            x = x - 1
        while bool(x.sum() < 10):
            x = x + 1
        return x

    @torch.jit.export
    def listed(self, d: Dict[str, torch.Tensor]) -> List[torch.Tensor]:  # noqa: UP006
        return [d[k] * self.shift for k in d.keys()]  # noqa: SIM118

    def forward(
        self,
        x: torch.Tensor,
        n: int = 2,
        extra: Optional[torch.Tensor] = None,  # noqa: UP045
    ) -> Tuple[torch.Tensor, Dict[str, torch.Tensor], Out]:  # noqa: UP006
        adder = Adder(2)
        y = self.early(self.lin(x), n)
        for i, block in enumerate(self.blocks):
            y = block(y) + adder.add(i)
        if extra is not None:
            y = y + extra
        for _, v in self.weights.items():
            y = y * v
        label = f"{n} and {y.shape[0]}"
        z = y.clone()
        z[:, 1:3] = 0.0
        z[0] += 1
        z = torch.cat([t * 1.0 for t in z.unbind(0)]).view(-1, 4)
        assert len(label) > 2, "too short"
        scale = float("inf") if n > 5 else -1e-2
        h, _ = self.lstm(self.norm(y)[None])
        w = torch.zeros(2, 3, dtype=torch.int64, device=x.device)
        return y * scale, {"z": z, "w": w}, Out(h, len(adder.seen))


class Stateful(nn.Module):
    """Attributes that change from call to call."""

    state: torch.Tensor
    calls: int
    seen: List[int]  # noqa: UP006

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)
        self.state = torch.zeros(0)
        self.calls = 0
        self.seen = torch.jit.annotate(List[int], [])  # noqa: UP006

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not len(self.state):
            self.state = torch.zeros(x.shape[0], 4)
        self.state = self.cell(x, self.state)
        self.calls += 1
        self.seen.append(x.shape[0])
        return self.state * self.calls + float(sum(self.seen))

    @torch.jit.export
    def reset(self) -> None:
        self.state = torch.zeros(0)
        self.calls = 0
        self.seen = torch.jit.annotate(List[int], [])  # noqa: UP006


class Sizes(nn.Module):
    """Traced: sizes that go through tensors, nested arguments and results, two open sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.words = nn.Embedding(5, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Dict[str, torch.Tensor]:  # noqa: UP006
        y = self.conv(x)
        b, c, h, w = y.shape
        y = y.reshape(b, c, h * w // 1).permute(0, 2, 1)
        half = y.shape[1] // 2
        y = y[:, :half] + torch.arange(half, device=y.device)[None, :, None] / half
        mask = torch.full((half, half), float("-inf")).triu(1)
        mixed = (y @ y.transpose(1, 2) + mask).softmax(-1) @ y
        return {"y": mixed, "e": self.words(ids) * (ids.shape[1] / 2)}


class Writes(nn.Module):
    """Writes to views, which gradients go through."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.w
        part = y[:, 1:3]
        whole = y.view(-1)
        part.mul_(self.w[:, :2])
        whole[2:5] = self.w[0, :3].exp()
        y.add_(part.sum())
        y[0].mul_(0.5)
        rows = y.t()
        rows[0] += whole[:3] * 2
        return y.sin() + part.mean() + whole.sum()


class Open(nn.Module):
    """A branch and a loop that only the values decide."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2 if bool(x.sum() > 0) else x - 1
        turns = 0
        while bool(y.abs().max() < 50):
            y = y * 1.5 + 0.1
            turns += 1
        return y + turns


def without_paths(data: bytes) -> bytes:
    """The file without debugging tables, which hold paths."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            if not name.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(name), old.read(name), zipfile.ZIP_DEFLATED)
    return made.getvalue()


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in flat(v)] if isinstance(value, list | tuple) else []


def make(name: str, program: Any, *inputs: Any) -> None:
    file = io.BytesIO()
    torch.jit.save(program, file)
    (GOLDEN / f"{name}.pt").write_bytes(without_paths(file.getvalue()))
    given = [i.clone().requires_grad_() if i.is_floating_point() else i for i in inputs]
    results = flat(program(*given))
    rng = np.random.default_rng(0)
    parts = [
        (r * torch.from_numpy(rng.normal(size=r.shape).astype("float32"))).sum()
        for r in results
        if r.is_floating_point()
    ]
    torch.stack(parts).sum().backward()
    arrays = {f"input{i}": t.detach().numpy() for i, t in enumerate(inputs)}
    arrays |= {f"result{i}": t.detach().numpy() for i, t in enumerate(results)}
    arrays |= {
        f"grad:{n}": p.grad.numpy() for n, p in program.named_parameters() if p.grad is not None
    }
    arrays |= {f"grad{i}": t.grad.numpy() for i, t in enumerate(given) if t.grad is not None}
    np.savez_compressed(GOLDEN / f"{name}.npz", **arrays)


def make_checkpoints() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    state: OrderedDict[str, Any] = OrderedDict(
        whole=whole, part=whole[1:, 1:3], turned=whole.t(), tied=nn.Parameter(whole),
        half=torch.tensor([1.0, 2.0]).bfloat16(), count=torch.tensor(7), empty=torch.zeros(0, 3),
        flags=torch.tensor([True, False]), z=torch.tensor([1 + 2j]),
    )  # fmt: skip
    state._metadata = {"": {"version": 2}}  # type: ignore[attr-defined]
    found = {"state_dict": state, "epoch": 3, "shape": torch.Size([2, 3]), "lr": 0.1}
    CHECKPOINTS.mkdir(exist_ok=True)
    for name, new in (("legacy.pth", False), ("zipped.ckpt", True)):
        torch.save(found, CHECKPOINTS / name, _use_new_zipfile_serialization=new)


def main() -> None:
    torch.manual_seed(0)
    GOLDEN.mkdir(exist_ok=True)
    control = Control()
    control.norm.running_mean.normal_()
    control.norm.running_var.uniform_(0.5, 2)
    make("control", torch.jit.script(control.eval()), torch.randn(3, 4))
    make("stateful", torch.jit.script(Stateful().eval()), torch.randn(2, 3))
    example = (torch.randn(2, 3, 6, 6), torch.randint(0, 5, (2, 4)))
    make("sizes", torch.jit.trace(Sizes().eval(), example, strict=False), *example)
    make("writes", torch.jit.script(Writes().eval()), torch.randn(3, 4))
    make("open", torch.jit.script(Open().eval()), torch.randn(3, 4))
    make_checkpoints()


if __name__ == "__main__":
    main()
