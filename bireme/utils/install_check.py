"""`paddle.utils.run_check`: does the installation work?"""

from __future__ import annotations

import numpy as np


def run_check() -> None:
    """Train a tiny network on every tier and device and say whether that worked.

    >>> run_check()  # doctest: +SKIP
    Bireme works on cpu.
    """
    from bireme import device
    from bireme.host import config

    before, mode = device.get_device(), config.compile_mode
    places = ["cpu", *device.get_available_device(), *device.get_available_custom_device()]
    try:
        for place in places:
            device.set_device(place)
            for config.compile_mode in ("never", "always"):
                _train_a_little()
            print(f"Bireme works on {place}.")  # noqa: T201 (asked for)
    finally:
        config.compile_mode = mode
        device.set_device(before)
    print("Bireme is installed successfully!")  # noqa: T201


def _train_a_little() -> None:
    from bireme import nn, optimizer, to_tensor

    layer = nn.Linear(2, 3)
    sgd = optimizer.SGD(0.1, layer.parameters())
    x = to_tensor(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
    losses = []
    for _ in range(2):
        loss = (layer(x) ** 2).mean()
        loss.backward()
        sgd.step()
        sgd.clear_grad()
        losses.append(float(loss))
    if not losses[1] < losses[0]:
        raise RuntimeError(f"the loss does not fall: {losses}; this installation is broken")


__all__ = ["run_check"]
