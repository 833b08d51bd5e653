"""Write this version's golden model: `python -m tests.golden.make`.

Run once when the format version of jit.save was raised, and commit the new folder. Folders of
earlier versions are never written again: they are what users have on their disks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import bireme
from bireme import jit, nn
from bireme.io.serialization import VERSION as STATE_VERSION
from bireme.jit.artifact import VERSION

HERE = Path(__file__).resolve().parent


class Golden(nn.Layer):
    """One of each kind of thing that the format holds: parameters, buffers, constants large and
    small, open sizes, numbers, slices, dtypes, random keys, branches, loops, nested results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2D(2, 3, 3, padding=1)
        self.norm = nn.BatchNorm2D(3)
        self.embed = nn.Embedding(7, 4)
        self.fc = nn.Linear(3, 4)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Any, ids: Any) -> Any:
        y = nn.functional.gelu(self.norm(self.conv(x)))
        y = self.drop(self.fc(y[:, :, 1::2].mean([2, 3])))
        y = y + self.embed(ids) * bireme.to_tensor([0.5, 1.0, 1.5, 2.0])
        y = bireme.static.nn.cond(y.sum() > 0, lambda: y * 2.0, lambda: -y)

        def more(i: Any, v: Any) -> Any:
            return i < 3

        _, y = bireme.static.nn.while_loop(
            more, lambda i, v: (i + 1, v + 0.5), [bireme.to_tensor(0), y]
        )
        low = y.astype("float16").astype("float32")
        return {"scores": nn.functional.softmax(y), "all": [y.argmax(-1), (low, 7, "word", None)]}


def inputs(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(rows)
    return rng.normal(size=(rows, 2, 8, 8)).astype("float32"), rng.integers(0, 7, rows)


def leaves(result: Any) -> list[np.ndarray]:
    best, (low, *_) = result["all"]
    return [t.numpy() for t in (result["scores"], best, low)]


def main() -> None:
    folder = HERE / f"v{VERSION}"
    if folder.exists():
        sys.exit(f"{folder.name} is there already; raise VERSION first")
    folder.mkdir()
    bireme.seed(11)
    model = Golden()
    rng = np.random.default_rng(5)
    model.norm._mean.set_value(rng.normal(size=3).astype("float32"))
    model.norm._variance.set_value(rng.uniform(0.5, 2, 3).astype("float32"))
    model.eval()
    specs = [
        bireme.static.InputSpec([None, 2, 8, 8], "float32", "x"),
        bireme.static.InputSpec([None], "int64", "ids"),
    ]
    jit.save(model, str(folder / "model"), specs)
    made = leaves(model(*map(bireme.to_tensor, inputs(3))))
    bireme.save(
        {"state": model.state_dict(), "step": 3, "list": [bireme.arange(3), "text", None]},
        str(folder / f"state{STATE_VERSION}.bin"),
    )
    np.savez(folder / "expected.npz", *made)


if __name__ == "__main__":
    main()
