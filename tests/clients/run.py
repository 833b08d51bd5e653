"""Build one client's model on one engine and write down what it computes.

python -m tests.clients.run real   bert real.npz
python -m tests.clients.run bireme bert ours.npz real.npz    (from the first one's weights)
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

SEED = 7
RATE = 0.05


def outputs(value: Any) -> Iterator[Any]:
    """The tensors in a model's answer, in order."""
    if hasattr(value, "values") and not hasattr(value, "stop_gradient"):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for v in value:
            yield from outputs(v)
    elif hasattr(value, "stop_gradient"):
        yield value


def plain_loss(paddle: Any, answer: Any) -> Any:
    """A loss for models that bring none: the mean square of every float result."""
    floats = [o for o in outputs(answer) if "float" in str(o.dtype) and not o.stop_gradient]
    return sum((o * o).mean() for o in floats)


def without_chance(model: Any) -> None:
    """Random layers off, so that two engines can agree in training mode."""
    for layer in model.sublayers(include_self=True):
        for name in ("p", "drop_prob", "dropout", "dropout_rate", "act_dropout"):
            if isinstance(getattr(layer, name, None), float):
                setattr(layer, name, 0.0)


def record(paddle: Any, case: Any, weights: Any) -> dict[str, np.ndarray]:
    paddle.set_default_dtype(case.dtype)
    paddle.seed(SEED)
    np.random.seed(SEED)
    net = case.build()
    model = net.model
    without_chance(model)
    if weights is not None:
        given = {k[2:]: weights[k] for k in weights.files if k.startswith("w/")}
        own = model.state_dict()
        assert set(own) == set(given), sorted(set(own) ^ set(given))
        model.set_state_dict({k: paddle.to_tensor(v) for k, v in given.items()})
    found = {f"w/{k}": v.numpy() for k, v in model.state_dict().items()}

    def call() -> Any:
        rng = np.random.default_rng(SEED)
        return net.call(model, net.inputs(paddle, rng))

    model.eval()
    with paddle.no_grad():
        for i, out in enumerate(outputs(call())):
            found[f"out/{i}"] = out.numpy()
    model.train()
    trained = [p for p in model.parameters() if not p.stop_gradient]
    rule = paddle.optimizer.Momentum(RATE, parameters=trained)
    for step in range(2):
        loss = net.loss(paddle, call())
        found[f"loss/{step}"] = loss.numpy()
        loss.backward()
        if step == 0:
            for name, p in model.named_parameters():
                if p.grad is not None:
                    found[f"grad/{name}"] = p.grad.numpy()
        rule.step()
        rule.clear_grad()
    for name, b in model.named_buffers():
        found[f"buffer/{name}"] = b.numpy()
    return found


def main(engine: str, name: str, target: str, start: str | None = None) -> None:
    warnings.simplefilter("ignore")
    import setuptools  # noqa: F401 (some clients import distutils, which must come second)

    if engine == "bireme":
        from bireme import compat

        compat.install()
    import paddle

    from tests.clients.models import CASES
    from tests.clients.packages import CLIENTS

    case = CASES[name]
    CLIENTS[case.package].enable()
    weights = np.load(start) if start else None
    np.savez(target, **record(paddle, case, weights))


if __name__ == "__main__":
    main(*sys.argv[1:])
