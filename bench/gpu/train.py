"""`python -m bench.gpu.train [gpt2 llama1b resnet50]`: training steps on a GPU beside torch's.

Each peer runs in a process of its own, one after the other: forward in bf16 autocast, backward and
AdamW (momentum for ResNet-50), plain eager user code; `compile` is torch.compile of the same model.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.gpu import images, language
from bench.gpu.peer import GpuPeer, PeerError
from bench.gpu.state import wait_for

PEERS = ("bireme", "torch", "compile")
BF16_CEILING = 790e12  # of a large product, measured (see docs/notes/gpu-training.md)


def _size(model: str) -> Any:
    return images.SIZES[model] if model in images.SIZES else language.SIZES[model]


def bireme_step(model: str) -> tuple[Any, Any]:
    import bireme as paddle

    size = _size(model)
    net, optimizer, data = (images if model in images.SIZES else _Language).paddle(paddle, size)

    def step(i: int) -> Any:
        x, y = data[i % len(data)]
        with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
            loss = net(x, y)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return step, wait_for


def torch_step(model: str, compiled: bool) -> tuple[Any, Any]:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    size = _size(model)
    net, optimizer, data = (images if model in images.SIZES else _Language).torch(torch, size)
    run = torch.compile(net) if compiled else net

    def step(i: int) -> Any:
        x, y = data[i % len(data)]
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, lambda loss: torch.cuda.synchronize()


class _Language:
    @staticmethod
    def paddle(paddle: Any, size: Any) -> Any:
        net = language.build(paddle, size)
        optimizer = paddle.optimizer.AdamW(
            size.learning_rate, parameters=net.parameters(), weight_decay=0.01
        )
        data = [(b[:, :-1], b[:, 1:]) for b in language.batches(size)]
        return net, optimizer, [(paddle.to_tensor(x), paddle.to_tensor(y)) for x, y in data]

    @staticmethod
    def torch(torch: Any, size: Any) -> Any:
        net = language.build_torch(torch, size)
        optimizer = torch.optim.AdamW(
            net.parameters(), size.learning_rate, weight_decay=0.01, fused=True
        )
        data = [(b[:, :-1], b[:, 1:]) for b in language.batches(size)]
        return (
            net,
            optimizer,
            [(torch.tensor(x, device="cuda"), torch.tensor(y, device="cuda")) for x, y in data],
        )


def prepare(peer: str, model: str, seconds: float) -> Callable[[], dict[str, Any]]:
    """Build, compile and warm up; what is returned then measures, for `seconds` at least."""
    if peer == "bireme":
        step, wait = bireme_step(model)
    else:
        step, wait = torch_step(model, peer == "compile")
    losses = [float(step(i)) for i in range(4)]
    for i in range(6):
        last = step(i)
    wait(last)
    if peer == "bireme":
        from bireme.core.executor import wait_for_searches

        wait_for_searches()

    def measure() -> dict[str, Any]:
        best, spent = float("inf"), 0.0
        while spent < seconds:
            start = time.perf_counter()
            for i in range(10):
                last = step(i)
            wait(last)
            took = time.perf_counter() - start
            best, spent = min(best, took / 10), spent + took
        flops = _size(model).flops() / best
        return {
            "ms": best * 1e3, "losses": losses, "host_ms": _host_only(step, wait),
            "tflops": flops / 1e12, "of_ceiling": flops / BF16_CEILING,
        }  # fmt: skip

    return measure


def _host_only(step: Any, wait: Any) -> float:
    """Milliseconds until a step has been handed to the GPU, which works on while we return."""
    start = time.perf_counter()
    last = step(0)
    spent = time.perf_counter() - start
    wait(last)
    return spent * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["gpt2"])
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--out", help="write the figures here")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for model in options.models:
        rows = results[model] = {}
        for peer in options.peers.split(","):
            arguments = {"model": model, "seconds": options.seconds}
            try:
                with GpuPeer(model, peer, "train", arguments) as worker:
                    rows[peer] = worker.prepare() | worker.measure()
            except PeerError as e:
                print(f"{model} {peer} failed: {e}", flush=True)
                continue
            show(model, peer, rows)
    if options.out:
        Path(options.out).write_text(json.dumps(results, indent=1))


def show(model: str, peer: str, rows: dict[str, Any]) -> None:
    row = rows[peer]
    ratio = rows["bireme"]["ms"] / row["ms"] if "bireme" in rows else float("nan")
    memory = row["memory_gib"]
    print(
        f"{model:9s} {peer:8s} {row['ms']:8.2f} ms  ours/peer {ratio:5.2f}  "
        f"{row['tflops']:6.1f} TFLOP/s ({row['of_ceiling']:4.0%} of a large product)  "
        f"{'-' if memory is None else f'{memory:6.1f} GiB'}  ready {row['ready_s']:5.1f} s  "
        f"host {row['host_ms']:5.1f} ms  "
        f"losses {', '.join(f'{x:.4f}' for x in row['losses'])}",
        flush=True,
    )


if __name__ == "__main__":
    main()
