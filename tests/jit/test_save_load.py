"""Saved models: another process without the source infers and trains them; bad files say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bireme as paddle
from bireme import jit, nn
from bireme.capture.graph_io import GraphFileError
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.nn import functional as F
from bireme.static import InputSpec
from tests.jit.models import SmallCNN, SmallTransformer

LOADER = """
import sys, numpy as np, bireme as paddle
from bireme import jit
folder = sys.argv[1]
data = np.load(folder + "/data.npz")
layer = jit.load(folder + "/model")
outs = {}
for name in data.files:
    outs[name] = layer(paddle.to_tensor(data[name])).numpy()
layer.train()
optimizer = paddle.optimizer.SGD(0.1, parameters=layer.parameters())
losses = []
for _ in range(5):
    out = layer(paddle.to_tensor(data["a"]))
    loss = (out * out).mean()
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    losses.append(loss.item())
np.savez(folder + "/out.npz", losses=losses, **outs)
"""


def tensor(*shape: int, seed: int = 0):
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=shape).astype("float32"))


def in_new_process(folder: Path, batches: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    np.savez(folder / "data.npz", **batches)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", LOADER, str(folder)],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with np.load(folder / "out.npz") as out:
        return dict(out)


def check(model, spec, batches, folder) -> None:
    jit.save(model, str(folder / "model"), [spec])
    out = in_new_process(folder, batches)
    model.eval()
    for name, batch in batches.items():
        expected = model(paddle.to_tensor(batch)).numpy()
        np.testing.assert_allclose(out[name], expected, rtol=1e-4, atol=1e-5)
    model.train()
    optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
    for loss in out["losses"]:
        result = model(paddle.to_tensor(batches["a"]))
        ours = (result * result).mean()
        ours.backward()
        optimizer.step()
        optimizer.clear_grad()
        np.testing.assert_allclose(ours.item(), loss, rtol=1e-4)


def test_cnn(tmp_path) -> None:
    model = SmallCNN()
    model(tensor(4, 3, 8, 8))  # running statistics that are not the initial ones
    batches = {n: tensor(i, 3, 8, 8, seed=i).numpy() for n, i in (("a", 3), ("b", 1), ("c", 6))}
    check(model, InputSpec([None, 3, 8, 8]), batches, tmp_path)


def test_transformer(tmp_path) -> None:
    rng = np.random.default_rng(0)
    batches = {n: rng.integers(0, 50, (i, 8)) for n, i in (("a", 3), ("b", 1), ("c", 6))}
    check(SmallTransformer(), InputSpec([None, 8], "int64"), batches, tmp_path)


class Mixed(nn.Layer):
    """Several inputs and results, dropout, a frozen parameter, a constant, a no_grad part."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.weight.stop_gradient = True

    def forward(self, x, y):
        with paddle.no_grad():
            scale = self.fc(x).mean()
        table = paddle.to_tensor(np.arange(2000, dtype="float32").reshape(500, 4))
        h = F.dropout(self.frozen(x + y), 0.5, training=self.training)
        return {"a": h * scale, "b": [self.fc(h).detach() + table[3], 5]}


@pytest.fixture
def mixed(tmp_path) -> tuple[Mixed, str]:
    layer = Mixed()
    path = str(tmp_path / "deep" / "mixed")
    jit.save(layer, path, [InputSpec([None, 4], name="left"), InputSpec([None, 4])])
    return layer, path


def test_structure_modes_and_names(mixed) -> None:
    layer, path = mixed
    assert layer.training
    loaded = jit.load(path)
    assert not loaded.training
    x, y = tensor(3, 4), tensor(3, 4, seed=1)
    layer.eval()
    want, have = layer(x, y), loaded(left=x, y=y)
    np.testing.assert_allclose(want["a"].numpy(), have["a"].numpy(), rtol=1e-5)
    np.testing.assert_allclose(want["b"][0].numpy(), have["b"][0].numpy(), rtol=1e-5)
    assert have["b"][1] == 5
    assert {"fc.weight", "fc.bias", "frozen.weight"} <= set(loaded.state_dict())
    assert loaded.frozen.weight.stop_gradient
    layer.train()
    loaded.train()
    paddle.seed(3)
    want = layer(x, y)["a"]
    paddle.seed(3)
    have = loaded(x, y)["a"]
    np.testing.assert_allclose(want.numpy(), have.numpy(), rtol=1e-5)
    want.sum().backward()
    have.sum().backward()
    assert loaded.fc.weight.grad is None  # its only tracked use was detached
    np.testing.assert_allclose(
        layer.frozen.bias.grad.numpy(), loaded.frozen.bias.grad.numpy(), rtol=1e-5
    )
    with pytest.raises(InvalidArgument, match=r"takes 2 tensors: left, y\. Received: 1"):
        loaded(x)
    with pytest.raises(InvalidArgument, match="dimension 1 of left must be 4"):
        loaded(tensor(3, 5), tensor(3, 5))


def test_saved_again(mixed, tmp_path) -> None:
    _, path = mixed
    loaded = jit.load(path)
    jit.save(loaded, str(tmp_path / "again"), [InputSpec([None, 4])] * 2)
    again = jit.load(str(tmp_path / "again"))
    x = tensor(2, 4)
    np.testing.assert_allclose(loaded(x, x)["a"].numpy(), again(x, x)["a"].numpy(), rtol=1e-5)


def test_function_and_gradient_inside(tmp_path) -> None:
    def slope(x):
        x = x * 1.0
        x.stop_gradient = False
        (g,) = paddle.grad(F.gelu(x).sum(), [x])
        return g

    jit.save(slope, str(tmp_path / "slope"), [InputSpec([None])])
    loaded = jit.load(str(tmp_path / "slope"))
    x = tensor(5)
    np.testing.assert_allclose(loaded(x).numpy(), slope(x).numpy(), rtol=1e-5)


def test_saved_beside_an_old_paddle_model(tmp_path: Path) -> None:
    """What was saved last under this name is loaded, not a `.pdmodel` that was there before."""
    (tmp_path / "m.pdmodel").write_bytes(b"an old program")
    (tmp_path / "m.pdiparams").write_bytes(b"its weights")
    jit.save(nn.Linear(2, 1), str(tmp_path / "m"), [InputSpec([1, 2])])
    assert jit.load(str(tmp_path / "m"))(paddle.ones([1, 2])).shape == [1, 1]
    with pytest.raises(BiremeError):
        jit.load(str(tmp_path / "m.pdmodel"))


def test_needs_input_spec(tmp_path) -> None:
    with pytest.raises(InvalidArgument, match="give input_spec"):
        jit.save(nn.Linear(2, 2), str(tmp_path / "x"))
    with pytest.raises(GraphFileError, match="there is no file"):
        jit.load(str(tmp_path / "nothing"))


def edited(path: str, change) -> None:
    file = Path(path + ".json")
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def nodes(document) -> list:
    return document["programs"]["eval"]["graph"]["nodes"]


BAD = {
    "version": (lambda d: d.update(version=99), "format version 99"),
    "format": (lambda d: d.update(format="x"), "not a saved Bireme model"),
    "unknown op": (lambda d: nodes(d)[0].update(op="os.system"), "does not have: os.system"),
    "outside file": (lambda d: d["weights"].update(file="../x.safetensors"), "lie beside"),
    "other weights": (lambda d: d["weights"].update(id="0"), "belongs to another save"),
    "shape": (
        lambda d: d["state"]["fc.weight"].update(type="float32[4, 5]"),
        "should be float32",
    ),
    "missing weight": (lambda d: d["state"].update(ghost={"type": "float32[1]"}), "'ghost'"),
    "later value": (lambda d: nodes(d)[0].update(args=["%7"]), "node 0"),
    "wrong type": (lambda d: nodes(d)[-1].update(out=["float32[9]"]), "results should be"),
    "attribute": (lambda d: nodes(d)[0].update(attrs={"evil": 1}), "unknown attributes"),
    "dimension": (
        lambda d: d["programs"]["eval"]["graph"]["inputs"][0].update(type="float32[f(x), 4]"),
        "damaged|dimension",
    ),
    "output": (lambda d: d["programs"]["eval"]["graph"].update(outputs=["%99"]), "%99"),
    "no program": (lambda d: d.update(programs={}), "no 'eval' program"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files(mixed, case) -> None:
    _, path = mixed
    change, message = BAD[case]
    edited(path, change)
    with pytest.raises(GraphFileError, match=message):
        jit.load(path)


def test_truncated_files(mixed) -> None:
    _, path = mixed
    text = Path(path + ".json").read_bytes()
    Path(path + ".json").write_bytes(text[: len(text) // 2])
    with pytest.raises(GraphFileError, match="not readable JSON"):
        jit.load(path)
    Path(path + ".json").write_bytes(text)
    weights = Path(path + ".safetensors")
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(BiremeError, match="safetensors"):
        jit.load(path)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damage_is_reported_or_harmless(mixed, data) -> None:
    """Whatever is changed in the JSON, loading works or raises GraphFileError, nothing else."""
    _, path = mixed
    original = Path(path + ".json").read_text()
    document = json.loads(original)
    here, key = document, None
    for _ in range(data.draw(st.integers(1, 8))):
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(here[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            break
        parent, here = here, here[key]
    else:
        here = parent
    if key is None or (isinstance(here, dict) and key not in here):
        return
    if isinstance(here, list) and not (isinstance(key, int) and key < len(here)):
        return
    here[key] = data.draw(
        st.sampled_from([None, -1, 1e308, "x", "%0", "$x", [], {}, True, [[]], "float32[batch]",
                         {"dim": "batch*" * 9}, {"slice": [1, 2]}, 2**70, {"key": 3}])
    )  # fmt: skip
    Path(path + ".json").write_text(json.dumps(document))
    try:
        jit.load(path)
    except GraphFileError:
        pass
    finally:
        Path(path + ".json").write_text(original)


class TwoResults(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1D(3)
        self.linear = nn.Linear(3, 2)

    def forward(self, x):
        h = self.norm(x)
        return {"h": h, "out": (self.linear(h), h.sum())}


def test_output_spec_keeps_some_results(tmp_path: Path) -> None:
    layer = TwoResults()
    spec = [InputSpec([None, 3])]
    x = tensor(4, 3)
    jit.save(layer, str(tmp_path / "one"), spec, output_spec=[1])
    jit.save(layer, str(tmp_path / "two"), spec, output_spec=[2, 0])
    layer.eval()
    everything = layer(x)
    one, two = jit.load(str(tmp_path / "one")), jit.load(str(tmp_path / "two"))
    np.testing.assert_allclose(one(x).numpy(), everything["out"][0].numpy(), rtol=1e-6)
    total, h = two(x)
    np.testing.assert_allclose(total.numpy(), everything["out"][1].numpy(), rtol=1e-5)
    np.testing.assert_allclose(h.numpy(), everything["h"].numpy(), rtol=1e-6)
    layer.train()
    two.train()
    wanted, got = layer(x), two(x)  # which also writes the running statistics
    np.testing.assert_allclose(got[1].numpy(), wanted["h"].numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        two.state_dict()["norm._mean"].numpy(), layer.norm._mean.numpy(), rtol=1e-6
    )


def test_hooks_are_saved_if_asked_for(tmp_path: Path) -> None:
    layer = nn.Linear(3, 2)
    layer.register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 2,))
    layer.register_forward_post_hook(lambda layer, inputs, out: out + 1)
    x = tensor(4, 3)
    spec = [InputSpec([None, 3], name="rows")]
    jit.save(layer, str(tmp_path / "plain"), spec)
    jit.save(layer, str(tmp_path / "hooked"), spec, with_hook=True)
    plain, hooked = jit.load(str(tmp_path / "plain")), jit.load(str(tmp_path / "hooked"))
    np.testing.assert_allclose(plain(x).numpy(), layer.forward(x).numpy(), rtol=1e-6)
    np.testing.assert_allclose(hooked(x).numpy(), layer(x).numpy(), rtol=1e-6)
    assert hooked.input_names == ["rows"]
    assert set(hooked.state_dict()) == set(layer.state_dict())


def test_options_of_save(tmp_path: Path) -> None:
    layer, spec = nn.Linear(3, 2), [InputSpec([None, 3])]
    path = str(tmp_path / "model")
    jit.save(layer, path, spec, clip_extra=False, combine_params=True, skip_prune_program=True)
    for options, why in (
        ({"separate_parameters": True}, "one safetensors file"),
        ({"skip_forward": True}, "forward of its layer"),
        ({"input_names_after_prune": ["x"]}, "no input 'x'"),
        ({"output_specs": [0]}, "takes output_spec, with_hook"),
        ({"output_spec": [tensor(2)]}, "list of positions"),
        ({"output_spec": [3]}, "among 1 results"),
    ):
        with pytest.raises(ValueError, match=why):
            jit.save(layer, path, spec, **options)


class Coder(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.decode(self.encode(x))

    @jit.to_static(input_spec=[InputSpec([None, 4], name="x")])
    def encode(self, x):
        return F.relu(self.down(self.drop(x)))

    @jit.to_static(input_spec=[InputSpec([None, 2], name="code")])
    def decode(self, code):
        if code.sum() > 100:
            code = code * 0
        return self.up(code)

    @jit.to_static
    def unknown(self, x):
        return x


def test_other_methods_are_saved(tmp_path: Path) -> None:
    layer, path = Coder(), str(tmp_path / "coder")
    jit.save(layer, path, [InputSpec([None, 4])])
    loaded = jit.load(path)
    layer.eval()
    x = tensor(3, 4)
    code = layer.encode(x)
    np.testing.assert_allclose(loaded.encode(x).numpy(), code.numpy(), rtol=1e-6)
    np.testing.assert_allclose(loaded.decode(code).numpy(), layer.decode(code).numpy(), rtol=1e-6)
    np.testing.assert_allclose(loaded.decode(code=code + 100).numpy(), layer.decode(code + 100))
    np.testing.assert_allclose(loaded(x).numpy(), layer(x).numpy(), rtol=1e-6)
    assert not hasattr(loaded, "unknown")
    assert set(loaded.state_dict()) == set(layer.state_dict())
    loaded.train()
    assert (loaded.encode(paddle.ones([64, 4])).numpy() == 0).mean() > 0.05
    loaded.decode(code).sum().backward()
    assert loaded.state_dict()["up.weight"].grad is not None


def test_a_file_cannot_replace_methods(tmp_path: Path) -> None:
    path = tmp_path / "coder"
    jit.save(Coder(), str(path), [InputSpec([None, 4])])
    text = (tmp_path / "coder.json").read_text()
    (tmp_path / "coder.json").write_text(text.replace('"eval:encode"', '"eval:state_dict"'))
    with pytest.raises(GraphFileError, match="cannot be the name"):
        jit.load(str(path))
