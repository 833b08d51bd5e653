"""Every saver: how it writes version n over the one before, and how that is read back.

A load returns the one number of which all contents are made, so a mixture is an error. Everything
runs in the NumPy tier: children are forked from a process that has made the models.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import bireme as paddle
from bireme import distributed as dist
from bireme import static
from bireme.distributed import io as static_io
from bireme.distributed.checkpoint import ShardedWeight, saving
from bireme.io.serialization import load_together

SIZE = 1 << 16  # numbers in the larger tensor of a model


@dataclass(frozen=True)
class Saver:
    """`save(folder, n)` and `load(folder)`; `ranks` processes save together."""

    save: Callable[[str, int], None]
    load: Callable[[str], int]
    ranks: int = 1


def one(values: Any) -> int:
    """The number that all arrays are full of."""
    seen = {float(v) for a in values for v in (np.min(a), np.max(a))}
    if len(seen) != 1:
        raise AssertionError(f"a mixture of {sorted(seen)}")
    return int(seen.pop())


def arrays(n: int) -> dict[str, Any]:
    return {
        "large": paddle.to_tensor(np.full([SIZE], n, "float32")),
        "small": paddle.to_tensor(np.full([3], n, "int64")),
    }


def tensors(state: Any) -> list[np.ndarray]:
    """The arrays in nested dicts."""
    if isinstance(state, dict):
        return [a for v in state.values() for a in tensors(v)]
    if isinstance(state, paddle.Tensor):
        return [state.numpy()]
    return [state] if isinstance(state, np.ndarray) else []


def fill(state: Any, n: int) -> None:
    for value in state.values():
        if isinstance(value, dict):
            fill(value, n)
        elif isinstance(value, paddle.Tensor):
            value.set_value(np.full(value.shape, n, value.dtype.numpy))


class Net(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.first = paddle.nn.Linear(4, SIZE // 4)
        self.second = paddle.nn.Linear(SIZE // 4, 1)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


def plain(ending: str) -> Saver:
    return Saver(
        lambda folder, n: paddle.save(arrays(n), f"{folder}/state{ending}"),
        lambda folder: one(tensors(paddle.load(f"{folder}/state{ending}"))),
    )


def graph() -> Saver:
    net = Net()

    def save(folder: str, n: int) -> None:
        fill(net.state_dict(), n)
        paddle.jit.save(net, f"{folder}/graph", [static.InputSpec([1, 4])])

    def load(folder: str) -> int:
        return one(tensors(paddle.jit.load(f"{folder}/graph").state_dict()))

    return Saver(save, load)


def model() -> Saver:
    """`Model.save`: weights and the optimizer's state."""

    def made() -> Any:
        net = Net()
        optimizer = paddle.optimizer.Momentum(parameters=net.parameters())
        whole = paddle.Model(net)
        whole.prepare(optimizer, paddle.nn.MSELoss())
        whole.train_batch([np.zeros([1, 4], "float32")], [np.zeros([1, 1], "float32")])
        return whole

    writer, reader = made(), made()

    def save(folder: str, n: int) -> None:
        fill(writer.network.state_dict(), n)
        fill(writer._optimizer.state_dict(), n)
        writer.save(f"{folder}/model")

    def load(folder: str) -> int:
        # Another model's optimizer has other names, so its state is read as it is on disk.
        parts = load_together([f"{folder}/model.pdparams", f"{folder}/model.pdopt"])
        reader.load(f"{folder}/model", reset_optimizer=True)
        found = one(a for part in parts for a in tensors(part))
        later = one(tensors(reader.network.state_dict()))
        if later < found:
            raise AssertionError(f"{later} was read after {found}")
        return found

    return Saver(save, load)


def program() -> tuple[Any, Any, Any, Any]:
    main, start = static.Program(), static.Program()
    paddle.enable_static()
    try:
        with static.program_guard(main, start):
            x = static.data("x", [1, 4])
            y = static.nn.fc(static.nn.fc(x, SIZE // 4), 1)
            paddle.optimizer.Momentum(0.1, 0.9).minimize(y.mean())
        executor = static.Executor()
        executor.run(start)
    finally:
        paddle.disable_static()
    return main, executor, x, y


def program_savers() -> dict[str, Saver]:
    main, executor, x, y = program()

    def filled(n: int) -> None:
        state = main.state_dict()
        main.set_state_dict({k: np.full(v.shape, n, v.dtype.numpy) for k, v in state.items()})

    def save(folder: str, n: int) -> None:
        filled(n)
        static.save(main, f"{folder}/program")

    def load(folder: str) -> int:
        return one(static.load_program_state(f"{folder}/program").values())

    def save_inference(folder: str, n: int) -> None:
        filled(n)
        static.save_inference_model(f"{folder}/program", [x], [y], executor, program=main)

    def load_inference(folder: str) -> int:
        layer = paddle.jit.load(f"{folder}/program")
        return one(tensors(layer.state_dict()))

    def save_all(folder: str, n: int) -> None:
        filled(n)
        static_io.save_persistables(executor, folder, main)

    def load_all(folder: str) -> int:
        static_io.load_persistables(executor, folder, main)
        return one(v.numpy() for v in main.state_dict().values())

    def save_bytes(folder: str, n: int) -> None:
        static.save_to_file(f"{folder}/bytes", np.full(SIZE * 4, n, "int32").tobytes())

    def load_bytes(folder: str) -> int:
        return one([np.frombuffer(static.load_from_file(f"{folder}/bytes"), "int32")])

    return {
        "static.save": Saver(save, load),
        "static.save_inference_model": Saver(save_inference, load_inference),
        "static.save_to_file": Saver(save_bytes, load_bytes),
        "save_persistables": Saver(save_all, load_all),
    }


def wave() -> Saver:
    def save(folder: str, n: int) -> None:
        sound = paddle.to_tensor(np.full([2, SIZE], n, "int16"))
        paddle.audio.save(f"{folder}/sound.wav", sound, 16000)

    def load(folder: str) -> int:
        return one([paddle.audio.load(f"{folder}/sound.wav", normalize=False)[0].numpy()])

    return Saver(save, load)


def load_parts(folder: str) -> int:
    return one(tensors(dist.load_merged_state_dict(folder)))


def parts() -> Saver:
    return Saver(lambda folder, n: dist.save_state_dict(arrays(n), folder, unique_id=0), load_parts)


def parts_of_two() -> Saver:
    """Two processes, each with half of a tensor. They meet over a socket instead of a network."""

    def save(folder: str, n: int) -> None:
        half = paddle.to_tensor(np.full([SIZE], n, "float32"))
        offset = SIZE * saving.get_rank()
        whole = ShardedWeight("w", half, (SIZE,), (2 * SIZE,), (offset,))
        dist.save_state_dict({"w": whole}, folder, unique_id=0)

    return Saver(save, load_parts, ranks=2)


def join(rank: int, ranks: int, line: socket.socket) -> None:
    """Make this process one of a job."""
    stream = line.makefile("rwb")

    def gathered(value: Any, group: Any) -> list[Any]:
        pickle.dump(value, stream)
        stream.flush()
        other = pickle.load(stream)  # EOFError if it was killed
        return [value, other] if rank == 0 else [other, value]

    saving._gathered = gathered
    saving.get_rank = lambda group=None: rank
    saving.get_world_size = lambda group=None: ranks


def savers() -> dict[str, Saver]:
    """All of them, by name."""
    return {
        "save": plain(".safetensors"),
        "save .pdparams": plain(".pdparams"),
        "jit.save": graph(),
        "Model.save": model(),
        **program_savers(),
        "audio.save": wave(),
        "save_state_dict": parts(),
        "save_state_dict, two processes": parts_of_two(),
    }


def run_child(saver: Saver, folder: str, rank: int, line: Any, first: int, told: int) -> None:
    """Save version after version until killed; say of each when it begins and when it is there."""
    code = 0
    try:
        if line is not None:
            join(rank, saver.ranks, line)
        n = first
        while True:
            if rank == 0:
                os.write(told, b"b")
            saver.save(folder, n)
            if rank == 0:
                os.write(told, b"d")
            n += 1
    except (EOFError, BrokenPipeError, ConnectionError):
        code = 3  # the other process of the job was killed
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)
