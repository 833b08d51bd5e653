"""A training run that saves in the middle of an epoch and another process that goes on from there.

    python resuming.py whole|resume FILE WORKERS eager|captured

`whole` trains all steps and saves on its way, in both formats. Both print the exact loss of each
step after that, and at the end the exact weights, optimizer state and generator state.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

import numpy as np

import bireme as paddle
from bireme import nn
from bireme.io import DataLoader, Dataset

ENDINGS = (".safetensors", ".pdparams")
SAVED_AT, STEPS = 8, 15  # of 6 batches in an epoch


class Points(Dataset):
    def __len__(self) -> int:
        return 23

    def __getitem__(self, i: int) -> Any:
        rng = np.random.default_rng(i)
        return rng.standard_normal(6).astype("float32"), np.int64(i % 3)


class Net(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1D(16), nn.GELU(), nn.Dropout(0.4), nn.Linear(16, 3)
        )

    def forward(self, x: Any) -> Any:
        return self.body(x)


def exact(*arrays: Any) -> str:
    digest = hashlib.sha256()
    for a in arrays:
        digest.update(np.ascontiguousarray(a).tobytes())
    return digest.hexdigest()[:16]


def main(mode: str, path: str, workers: int, how: str) -> None:
    paddle.seed(1 if mode != "resume" else 100)
    np.random.seed(2 if mode != "resume" else 200)
    if mode == "resume":
        nn.Linear(2, 2)  # other names for all that follows
    net = Net()
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.05, 20)
    optimizer = paddle.optimizer.AdamW(schedule, parameters=net.parameters())
    scaler = paddle.amp.GradScaler(init_loss_scaling=64.0, incr_every_n_steps=3)
    loader = DataLoader(Points(), batch_size=4, shuffle=True, num_workers=workers)

    def train(x: Any, y: Any) -> Any:
        loss = nn.functional.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.clear_grad()
        return loss

    step = paddle.jit.to_static(train) if how == "captured" else train
    parts = {"net": net, "optimizer": optimizer, "scaler": scaler, "loader": loader}
    done = 0
    if mode == "resume":
        state = paddle.load(path)
        for name, part in parts.items():
            part.set_state_dict(state[name])
        paddle.set_rng_state(state["rng"])
        np.random.set_state(state["numpy"])
        done = state["done"]
    while done < STEPS:
        for x, y in loader:
            loss = step(x, y)
            schedule.step()
            done += 1
            if done > SAVED_AT:
                print("loss", done, float(loss).hex(), optimizer.get_lr().hex())
            if done == SAVED_AT and mode != "resume":
                state = {name: part.state_dict() for name, part in parts.items()}
                state |= {"rng": paddle.get_rng_state(), "numpy": np.random.get_state()}
                for ending in ENDINGS:
                    paddle.save({**state, "done": done}, path + ending)
            if done == STEPS:
                break
    kept = [t.numpy() for t in net.state_dict().values()]
    kept += [t.numpy() for t in optimizer.state_dict().values() if isinstance(t, paddle.Tensor)]
    print("end", exact(*kept), scaler.state_dict(), paddle.get_rng_state(), np.random.rand())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
