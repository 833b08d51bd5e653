"""Layer: registration, names, state, hooks, modes, copies."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import nn
from bireme.core.errors import InvalidArgument


def _guard(lib: Any) -> Any:
    if lib is bireme:
        from bireme.nn import naming

        return naming.guard()
    return lib.utils.unique_name.guard()


def _network(lib: Any) -> Any:
    class Block(lib.nn.Layer):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.fc = lib.nn.Linear(size, size)
            self.norm = lib.nn.BatchNorm1D(size)
            self.register_buffer("steps", lib.to_tensor([0.0]))
            self.register_buffer("scratch", lib.to_tensor([1.0]), persistable=False)
            self.scale = self.create_parameter([1])
            self.extra = lib.to_tensor([3.0])

        def forward(self, x: Any) -> Any:
            return self.norm(self.fc(x)) * self.scale

    class Net(lib.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = lib.nn.LayerList([Block(4), Block(4)])
            self.shared = self.blocks[0].fc
            self.head = lib.nn.Sequential(("out", lib.nn.Linear(4, 2)), ("act", lib.nn.ReLU()))

        def forward(self, x: Any) -> Any:
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    with _guard(lib):
        return Net()


def test_names_and_structure_are_the_real_ones(paddle: Any) -> None:
    mine, theirs = _network(bireme), _network(paddle)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert [n for n, _ in mine.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    assert [n for n, _ in mine.named_buffers("p")] == [n for n, _ in theirs.named_buffers("p")]
    assert [n for n, _ in mine.named_sublayers()] == [n for n, _ in theirs.named_sublayers()]
    names = [[p.name for p in net.parameters()] for net in (mine, theirs)]
    assert names[0] == names[1]
    assert repr(mine) == repr(theirs)
    assert mine.full_name() == theirs.full_name()
    assert [x.full_name() for x in mine.sublayers()] == [x.full_name() for x in theirs.sublayers()]


def test_attributes() -> None:
    layer = nn.Linear(2, 3)
    with pytest.raises(TypeError, match="is a parameter"):
        layer.weight = bireme.ones([2, 3])
    layer.bias = None
    assert layer.bias is None
    assert [n for n, _ in layer.named_parameters()] == ["weight"]
    del layer.weight
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'weight'"):
        layer.weight
    layer.other = nn.ReLU()
    assert "other" in dir(layer)
    layer._parameters["weight"] = nn.Parameter(bireme.ones([2, 3]))
    assert layer.weight.shape == [2, 3]
    layer._parameters.pop("weight")
    assert not hasattr(layer, "weight")


def test_registration_errors() -> None:
    layer = nn.Linear(2, 3)
    for name, kind in [("", KeyError), ("a.b", KeyError), ("weight", KeyError), (3, TypeError)]:
        with pytest.raises(kind):
            layer.register_buffer(name, None)
    with pytest.raises(TypeError, match="Parameter"):
        layer.add_parameter("p", bireme.ones([1]))

    class Forgetful(nn.Layer):
        def __init__(self) -> None:
            self.fc = nn.Linear(1, 1)

    with pytest.raises(ValueError, match=r"super\(\)\.__init__\(\)"):
        Forgetful()


def test_state_dict_round_trip() -> None:
    first, second = _network(bireme), _network(bireme)
    missing, unexpected = second.set_state_dict(first.state_dict())
    assert (missing, unexpected) == ([], [])
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_state_dict_mismatches() -> None:
    layer = nn.Linear(2, 3)
    before = layer.weight.numpy()
    state = {"weight": np.zeros((5, 5), "float32"), "bogus": np.zeros(1)}
    with pytest.warns(UserWarning, match="Skip loading") as caught:
        missing, unexpected = layer.set_state_dict(state)
    assert len(caught) == 2
    assert missing == ["weight", "bias"]
    assert unexpected == ["weight", "bogus"]
    np.testing.assert_array_equal(layer.weight.numpy(), before)
    with pytest.raises(ValueError, match=r"\[5, 5\].*\[2, 3\]"):
        layer.load_state_dict(state)
    with pytest.raises(RuntimeError, match="missing keys"):
        layer.load_state_dict({"weight": before})
    result = layer.load_state_dict({"weight": before}, strict=False)
    assert result.missing_keys == ["bias"]


def test_hooks() -> None:
    layer = nn.Linear(2, 2)
    seen: list[str] = []
    pre = layer.register_forward_pre_hook(lambda m, x: (x[0] * 2,))
    post = layer.register_forward_post_hook(lambda m, x, y: seen.append("post") or y + 1)
    x = bireme.ones([1, 2])
    want = bireme.nn.functional.linear(x * 2, layer.weight, layer.bias) + 1
    np.testing.assert_allclose(layer(x).numpy(), want.numpy(), rtol=1e-6)
    pre.remove()
    post.remove()
    assert seen == ["post"]
    np.testing.assert_allclose(layer(x).numpy(), layer.forward(x).numpy())


def test_always_called_hook_runs_on_errors() -> None:
    class Broken(nn.Layer):
        def forward(self, x: Any) -> Any:
            raise RuntimeError("broken")

    layer = Broken()
    seen: list[int] = []
    layer.register_forward_post_hook(lambda *a: seen.append(1), always_call=True)
    with pytest.raises(RuntimeError, match="broken"):
        layer(1)
    assert seen == [1]


def test_eval_reaches_every_layer_past_an_overridden_train(paddle: Any) -> None:
    for lib in (paddle, bireme):
        Dropout = lib.nn.Dropout

        class Frozen(lib.nn.Layer):
            def __init__(self) -> None:
                super().__init__()
                self.dropout = Dropout(0.5)  # noqa: B023 (used before the loop goes on)

            def train(self, mode: bool = True) -> Any:
                super().train(True)  # as one that keeps some part in one mode
                return self

        inner = Frozen()
        outer = lib.nn.Sequential(inner)
        for net in (inner, outer):
            net.train()
            assert net.eval() is net
            assert not any(layer.training for layer in net.sublayers(include_self=True)), lib
        outer.train(False)
        assert not any(layer.training for layer in outer.sublayers(include_self=True)), lib


def test_modes_apply_and_gradients() -> None:
    net = _network(bireme)
    net.eval()
    assert not any(layer.training for layer in net.sublayers(include_self=True))
    net.train()
    assert all(layer.training for layer in net.sublayers(include_self=True))
    order: list[str] = []
    net.apply(lambda layer: order.append(type(layer).__name__))
    assert order[-1] == "Net"
    net.requires_grad_(False)
    assert all(p.stop_gradient for p in net.parameters())


def test_deepcopy_and_pickle() -> None:
    net = _network(bireme)
    twin = copy.deepcopy(net)
    assert twin.shared is twin.blocks[0].fc
    assert list(twin.state_dict()) == list(net.state_dict())
    assert twin.blocks[0].fc.weight is not net.blocks[0].fc.weight
    assert twin.blocks[0].fc.weight.name.startswith("linear_0.w_0_deepcopy")
    twin.blocks[0].fc.weight.set_value(np.zeros((4, 4), "float32"))
    assert np.abs(net.blocks[0].fc.weight.numpy()).sum() > 0
    again = pickle.loads(pickle.dumps(nn.Linear(2, 3)))
    assert again.weight.shape == [2, 3]
    assert not again.weight.stop_gradient


def test_a_dropped_model_is_freed_at_once() -> None:
    gc.collect()
    gc.disable()
    try:
        net = _network(bireme)
        weight = weakref.ref(net.blocks[0].fc.weight)
        del net
        assert weight() is None
    finally:
        gc.enable()


def test_conversion() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm(2))
    net.float16()
    assert net[0].weight.dtype is bireme.float16
    assert net[1].weight.dtype is bireme.float32
    net.to(dtype="float64")
    assert {p.dtype for p in net.parameters()} == {bireme.float64}
    assert net[0].weight.numpy().dtype == np.float64
    assert net.to(device="cpu") is net


def test_containers() -> None:
    seq = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    seq.append(nn.Linear(2, 1))
    seq.insert(1, nn.Tanh())
    assert [type(x).__name__ for x in seq] == ["Linear", "Tanh", "ReLU", "Linear"]
    assert len(seq[1:3]) == 2
    assert seq[-1] is seq["3"]
    del seq[0]
    items = nn.LayerList([nn.ReLU(), nn.Tanh()])
    items += [nn.Sigmoid()]
    items.insert(0, nn.GELU())
    assert [type(x).__name__ for x in items] == ["GELU", "ReLU", "Tanh", "Sigmoid"]
    assert type(items.pop(1)).__name__ == "ReLU"
    with pytest.raises(IndexError, match="3 entries"):
        items[3]
    named = nn.LayerDict({"a": nn.ReLU()})
    named["b"] = nn.Tanh()
    assert list(named.keys()) == ["a", "b"]
    assert "a" in named
    assert type(named.pop("a")).__name__ == "ReLU"
    params = nn.ParameterList([nn.Parameter(bireme.ones([2])) for _ in range(2)])
    assert [n for n, _ in params.named_parameters()] == ["0", "1"]
    assert nn.ParameterDict({"w": nn.Parameter(bireme.ones([2]))})["w"].shape == [2]


def test_paths() -> None:
    net = _network(bireme)
    assert net.get_sublayer("blocks.0.fc") is net.shared
    assert net.get_parameter("blocks.0.fc.weight") is net.shared.weight
    net.set_sublayer("head.act", nn.Tanh())
    assert type(net.head[1]).__name__ == "Tanh"
    with pytest.raises(AttributeError, match="no sublayer 'nothing'"):
        net.get_sublayer("blocks.nothing")


def test_sharded_state_dict_and_full(paddle):
    def model(module):
        return module.nn.Sequential(module.nn.Linear(2, 3), module.nn.BatchNorm1D(3))

    ours, theirs = model(bireme), model(paddle)
    for prefix in ("", "p."):
        mine, real = ours.sharded_state_dict(prefix), theirs.sharded_state_dict(prefix)
        assert list(mine) == list(real)
        for key, part in mine.items():
            assert part.key == real[key].key
            assert part.global_shape == tuple(real[key].global_shape)
            assert part.global_offset == tuple(real[key].global_offset)
    whole = list(ours.full())
    assert [name for name, _ in whole] == [name for name, _ in theirs.full()]
    assert whole[1][1] is ours[0].weight
    halves = [list(ours.full(num_splits=2, shard_idx=i)) for i in range(2)]
    assert sorted(n for half in halves for n, _ in half) == [n for n, _ in whole]
    with pytest.raises(InvalidArgument, match="aoa_config"):
        ours.full({"aoa_statements": []})
    with pytest.raises(InvalidArgument, match="option 'groups'"):
        ours.full(groups=1)
