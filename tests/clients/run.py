"""Build one client's model on one engine and write down what it computes, in two precisions.

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
# A rounding error that takes one number past the corner of a ReLU or to the other side of a
# maximum changes gradients by percents. It happens to any engine with some inputs, not with most.
TRIALS = 5
KEPT = 20_000  # of a gradient's elements: deep nets have millions


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


def sample(array: np.ndarray) -> np.ndarray:
    """At most twice KEPT elements, evenly spread."""
    return array.reshape(-1)[:: max(1, array.size // KEPT)]


def given_weights(model: Any, given: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    own = {k: v.numpy() for k, v in model.state_dict().items()}
    if given is None:
        return own
    assert set(own) == set(given), sorted(set(own) ^ set(given))
    return {k: given[k].astype(v.dtype) for k, v in own.items()}


def nudged(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every float32 moved to the next one, up or down."""
    rng = np.random.default_rng(SEED)
    return {
        k: np.nextafter(v, rng.choice([-9, 9], v.shape).astype(v.dtype))
        if v.dtype == np.float32
        else v
        for k, v in weights.items()
    }


def record(
    paddle: Any, case: Any, how: str, given: dict[str, np.ndarray] | None
) -> dict[str, np.ndarray]:
    dtype = "float64" if how == "float64" else "float32"
    paddle.set_default_dtype(dtype)
    paddle.seed(SEED)
    np.random.seed(SEED)
    net = case.build()
    model = net.model
    if any(dtype not in str(p.dtype) for p in model.parameters()):
        model.to(dtype=dtype)  # some layers are float32 whatever the default is
    without_chance(model)
    weights = given_weights(model, given)
    if how == "nudged":
        weights = nudged(weights)
    found = {f"w/{k}": v for k, v in weights.items()}
    trained = [p for p in model.parameters() if not p.stop_gradient]

    def call(trial: int) -> Any:
        rng = np.random.default_rng(SEED + trial)
        return net.call(model, net.inputs(paddle, rng))

    for trial in range(TRIALS):
        model.set_state_dict({k: paddle.to_tensor(v) for k, v in weights.items()})
        model.eval()
        with paddle.no_grad():
            for i, out in enumerate(outputs(call(trial))):
                found[f"out/{trial}/{i}"] = out.numpy()
        model.train()
        rule = paddle.optimizer.Momentum(RATE, parameters=trained)
        loss = net.loss(paddle, call(trial))
        found[f"loss/{trial}/"] = loss.numpy()
        loss.backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                found[f"grad/{trial}/{name}"] = sample(p.grad.numpy())
        rule.step()
        rule.clear_grad()
        for name, b in model.named_buffers():
            found[f"buffer/{trial}/{name}"] = b.numpy()
        found[f"next/{trial}/"] = net.loss(paddle, call(trial)).numpy()
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
    given = None
    if start:
        with np.load(start) as file:
            given = {k[10:]: file[k] for k in file.files if k.startswith("float32/w/")}
    found: dict[str, np.ndarray] = {}
    for how in ("float32", "nudged" if case.float32_only else "float64"):
        results = record(paddle, case, how, given)
        given = given or {k[2:]: v for k, v in results.items() if k.startswith("w/")}
        found |= {f"{how}/{k}": v for k, v in results.items()}
    np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
