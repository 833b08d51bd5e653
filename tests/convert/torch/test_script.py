"""Programs that torch.jit.save wrote: results, gradients, state, open sizes, damage."""

from __future__ import annotations

import io
import os
import pathlib
import random
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme import convert, jit
from bireme.convert.torch import ScriptModel
from bireme.convert.torch.script.interpreter import Raised
from bireme.core.errors import BiremeError, FileFormatError, InvalidArgument
from bireme.host import config
from bireme.static import InputSpec

GOLDEN = pathlib.Path(__file__).parent / "golden"
NAMES = ["control", "stateful", "sizes", "writes", "open"]


def load(name: str) -> Any:
    model = convert.load(str(GOLDEN / f"{name}.pt"))
    assert isinstance(model, ScriptModel)
    return model


def golden(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / f"{name}.npz") as file:
        return dict(file)


def flat(value: Any) -> list[Any]:
    if isinstance(value, paddle.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in flat(v)] if isinstance(value, list | tuple) else []


def close(ours: Any, theirs: np.ndarray) -> None:
    assert tuple(ours.shape) == theirs.shape
    assert ours.dtype.name == theirs.dtype.name
    scale = float(np.abs(theirs).max()) if theirs.size else 1.0
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=max(1e-5 * scale, 1e-30))


def listed(arrays: dict[str, np.ndarray], kind: str) -> Iterator[np.ndarray]:
    count = 0
    while f"{kind}{count}" in arrays:
        yield arrays[f"{kind}{count}"]
        count += 1


@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients(name: str) -> None:
    model, arrays = load(name), golden(name)
    inputs = [paddle.to_tensor(a) for a in listed(arrays, "input")]
    for x in inputs:
        x.stop_gradient = not x.dtype.is_floating
    results = flat(model(*inputs))
    for ours, theirs in zip(results, listed(arrays, "result"), strict=True):
        close(ours, theirs)
    rng = np.random.default_rng(0)
    total = sum(
        (r * paddle.to_tensor(rng.normal(size=r.shape).astype("float32"))).sum()
        for r in results
        if r.dtype.is_floating
    )
    assert isinstance(total, paddle.Tensor)
    total.backward()
    parameters = dict(model.named_parameters())
    for key, array in arrays.items():
        if key.startswith("grad:"):
            close(parameters[key.removeprefix("grad:")].grad, array)
    for i, x in enumerate(inputs):
        if f"grad{i}" in arrays:
            close(x.grad, arrays[f"grad{i}"])


def test_control_flow() -> None:
    """Integers decide, so every number is a program of its own."""
    model, x = load("control"), paddle.to_tensor(golden("control")["input0"])
    assert model.input_names == ["x", "n", "extra"]
    for n in range(5):
        _, tensors, (features, turns) = model(x, n)
        assert sorted(tensors) == ["w", "z"]
        assert turns == 2
        assert features.shape == [1, 3, 6]
    np.testing.assert_allclose(
        model(x, extra=x)[1]["z"].numpy()[1:, 0],
        (model(x)[1]["z"] + 2 * x).numpy()[1:, 0],
        rtol=1e-5,
    )
    assert np.isinf(model(x, n=6)[0].numpy()).any()
    (doubled,) = model.listed({"a": paddle.ones([4])})
    assert doubled.tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(InvalidArgument, match="x, n, extra"):
        model(x, other=1)
    with pytest.raises(InvalidArgument, match="must be a tensor"):
        model(3)


def test_names_are_pytorchs() -> None:
    model = load("control")
    state = model.state_dict()
    assert {"lin.weight", "blocks.1.0.bias", "norm.running_var", "shift"} <= set(state)
    assert "lstm.weight_ih_l0_reverse" in dict(model.named_parameters())
    state["shift"].set_value(np.full(4, 2.0, "float32"))
    (shifted,) = model.listed({"a": paddle.ones([4])})
    assert shifted.tolist() == [2.0] * 4


def test_training_mode() -> None:
    """Dropout draws, and batch norm updates its statistics."""
    model, x = load("control"), paddle.to_tensor(golden("control")["input0"])
    still = model(x)[1]["z"].numpy()
    before = model.norm.running_mean.numpy().copy()
    model.train()
    made = [model(x)[1]["z"].numpy() for _ in range(4)]
    assert any(not np.array_equal(made[0], m) for m in made[1:])
    assert int(model.norm.num_batches_tracked) == 4
    assert not np.array_equal(before, model.norm.running_mean.numpy())
    model.eval()
    np.testing.assert_allclose(model(x)[1]["z"].numpy(), still)
    optimizer = paddle.optimizer.SGD(0.01, parameters=model.parameters())
    model(x)[2][0].sum().backward()
    optimizer.step()
    assert not np.array_equal(model(x)[1]["z"].numpy(), still)


def test_attributes_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "never")  # bits are compared: one tier for all
    model, x = load("stateful"), paddle.to_tensor(golden("stateful")["input0"])
    first = model(x).numpy()
    second = model(x).numpy()
    assert not np.allclose(first, second)
    model.reset()
    np.testing.assert_array_equal(model(x).numpy(), first)
    with pytest.raises(BiremeError, match="attribute 'state'"):
        jit.save(model, "m", [InputSpec([2, 3])])
    np.testing.assert_array_equal(model(x).numpy(), second)


def test_open_sizes(tmp_path: pathlib.Path) -> None:
    model, arrays = load("sizes"), golden("sizes")
    assert [tuple(s.shape) for s in model.input_specs()] == [(2, 3, 6, 6), (2, 4)]
    specs = [InputSpec(["batch", 3, "side", 6]), InputSpec(["batch", "words"], "int64")]
    jit.save(model, str(tmp_path / "m"), specs)
    saved = jit.load(str(tmp_path / "m"))
    rng = np.random.default_rng(1)
    for batch, side, words in ((2, 6, 4), (1, 7, 3), (3, 4, 8)):
        x = paddle.to_tensor(rng.normal(size=(batch, 3, side, 6)).astype("float32"))
        ids = paddle.to_tensor(rng.integers(0, 5, (batch, words)))
        for a, b in zip(flat(model(x, ids)), flat(saved(x, ids)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    inputs = [paddle.to_tensor(a) for a in listed(arrays, "input")]
    for ours, theirs in zip(flat(saved(*inputs)), listed(arrays, "result"), strict=True):
        close(ours, theirs)


def test_values_decide_in_a_saved_graph(tmp_path: pathlib.Path) -> None:
    model, x = load("open"), paddle.to_tensor(golden("open")["input0"])
    with pytest.raises(InvalidArgument, match="sizes"):
        model.input_specs()
    jit.save(model, str(tmp_path / "m"), [InputSpec([None, 4])])
    saved = jit.load(str(tmp_path / "m"))
    for scale in (1.0, -3.0, 0.1):
        np.testing.assert_allclose(saved(x * scale).numpy(), model(x * scale).numpy(), rtol=1e-5)


def test_exports_to_onnx(tmp_path: pathlib.Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    arrays = golden("writes")
    path = str(tmp_path / "m")
    paddle.onnx.export(load("writes"), path, input_spec=[InputSpec([3, 4])])
    session = runtime.InferenceSession(f"{path}.onnx", providers=["CPUExecutionProvider"])
    (made,) = session.run(None, {session.get_inputs()[0].name: arrays["input0"]})
    np.testing.assert_allclose(made, arrays["result0"], rtol=1e-4, atol=1e-5)


# --- files that are not what they seem -----------------------------------------------------------


def changed(name: str, member: str, change: Callable[[bytes], bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(GOLDEN / f"{name}.pt") as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.namelist():
            content = old.read(entry)
            new.writestr(entry, change(content) if entry.endswith(member) else content)
    return made.getvalue()


def loaded(tmp_path: pathlib.Path, data: bytes) -> Any:
    (tmp_path / "m.pt").write_bytes(data)
    return convert.load(str(tmp_path / "m.pt"))


def program(tmp_path: pathlib.Path, body: str) -> Any:
    """`open`, with another forward."""
    text = f"""
class Open(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  def forward(self: __torch__.Open,
    x: Tensor) -> Tensor:
{body}
"""
    return loaded(tmp_path, changed("open", "__torch__.py", lambda _: text.encode()))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    import os\n    return x", "no Import"),
        ("    return (lambda: x)()", "no Lambda"),
        ("    y = [a for a in [x]]\n    return x", "no ListComp"),
        ("    return torch.add(x, f'{x}')", "no JoinedStr"),
        ("    return torch.no_such_op(x)", "torch.no_such_op"),
        ("    return ops.mine.op(x)", "ops.mine.op"),
        ("    return " + "(" * 90 + "x" + ")" * 90, "nests more than"),
        ("    return x +", "invalid syntax"),
    ],
)
def test_what_torchscript_does_not_write(tmp_path: pathlib.Path, body: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        program(tmp_path, body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    y = x.__class__\n    return x", "no attribute"),
        ("    y = self.__class__\n    return x", "no attribute"),
        ("    return __import__('os')", "no function '__import__'"),
        ("    return open('/etc/passwd')", "no function 'open'"),
        ("    y = torch.mul('a', 10000000000)\n    return x", "too long"),
        ("    y = torch.mul([0], 10000000000)\n    return x", "too long"),
        ("    y = torch.mul(9223372036854775807, 2)\n    return x", "64 bits"),
        ("    return (self).forward(x, )", "nested more than"),
        ("    while True:\n      pass\n    return x", "steps"),
        (
            "    ops.prim.RaiseException('no', 'builtins.ValueError')\n    return x",
            "ValueError: no",
        ),
    ],
)
def test_a_hostile_program_gets_nowhere(
    tmp_path: pathlib.Path, body: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bireme.convert.torch.script.interpreter.MAX_STEPS", 10_000)
    model = program(tmp_path, body)
    with pytest.raises(BiremeError, match=message):
        model(paddle.ones([2]))


def test_the_line_of_an_error(tmp_path: pathlib.Path) -> None:
    model = program(tmp_path, "    ops.prim.RaiseException('too short')\n    return x")
    with pytest.raises(Raised, match=r"Open\.forward, line 8: too short"):
        model(paddle.ones([2]))


@pytest.mark.parametrize(
    "name", [b"os\nsystem", b"__torch__.torch.classes.x\nY", b"builtins\neval"]
)
def test_pickles_call_nothing(tmp_path: pathlib.Path, name: bytes) -> None:
    pickle = b"\x80\x02c" + name + b"\n(X\x02\0\0\0lstR."
    wanted = name.decode().replace("\n", ".")
    with pytest.raises(FileFormatError, match=wanted):
        loaded(tmp_path, changed("open", "data.pkl", lambda _: pickle))


def test_a_checkpoint_is_no_program_and_the_other_way_round(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileFormatError, match="convert"):
        paddle.load(str(GOLDEN / "open.pt"))
    checkpoint = pathlib.Path(__file__).parents[2] / "io" / "golden" / "zipped.ckpt"
    with pytest.raises(FileFormatError, match=r"paddle\.load"):
        convert.load(str(checkpoint))


def test_damaged_files(tmp_path: pathlib.Path) -> None:
    """Any byte may be wrong: a clear error, or a model."""
    rng = random.Random(0)
    for turn in range(60):
        name = NAMES[turn % len(NAMES)]

        def damage(content: bytes) -> bytes:
            data = bytearray(content)
            for _ in range(rng.randint(1, 4)):
                if data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
            return bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.2 else data)

        member = rng.choice(["data.pkl", ".py", "constants.pkl", "data/1", "traced_inputs.pkl"])
        try:
            model = loaded(tmp_path, changed(name, member, damage))
            model(*[paddle.to_tensor(a) for a in listed(golden(name), "input")])
        except BiremeError:
            pass


def test_torch_is_not_needed() -> None:
    code = f"""
import sys
sys.modules["torch"] = None
import bireme
from bireme import convert
model = convert.load({str(GOLDEN / "writes.pt")!r})
print(list(model(bireme.ones([3, 4])).shape))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=dict(os.environ),
        check=False,
    )
    assert done.stdout.strip() == "[3, 4]", done.stderr
