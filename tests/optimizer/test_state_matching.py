"""An optimizer's state goes to the parameters that it is of, or is refused; never dropped."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import nn
from bireme.core.errors import InvalidArgument
from bireme.host import config
from bireme.optimizer.matching import StateOfAnother

pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")


@pytest.fixture(autouse=True)
def one_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits are compared, and a compilation might end between the two."""
    monkeypatch.setattr(config, "compile_mode", "never")


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("Momentum", {}),
    ("Adam", {"amsgrad": True}),
    ("AdamW", {}),
    ("NAdam", {}),
    ("RMSProp", {"centered": True}),
    ("ASGD", {"batch_num": 2}),
    ("Rprop", {}),
]


def network(*sizes: int) -> Any:
    return nn.Sequential(*[nn.Linear(a, b) for a, b in itertools.pairwise(sizes)])


def optimizer_of(net: Any, name: str = "Adam", **options: Any) -> Any:
    return getattr(bireme.optimizer, name)(0.01, parameters=net.parameters(), **options)


def step(net: Any, optimizer: Any, seed: int = 0) -> None:
    width = net.parameters()[0].shape[0]
    x = np.random.default_rng(seed).standard_normal((3, width)).astype("float32")
    (net(bireme.to_tensor(x)) ** 2).mean().backward()
    optimizer.step()
    optimizer.clear_grad()


def arrays(state: dict[str, Any]) -> list[np.ndarray]:
    return [v.numpy() for v in state.values() if isinstance(v, bireme.Tensor)]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=str)
def test_a_second_model_takes_over_by_position(name: str, options: dict[str, Any]) -> None:
    first = network(4, 5, 3)
    trained = optimizer_of(first, name, **options)
    for i in range(3):
        step(first, trained, i)
    nn.Linear(4, 5)  # moves the counters on
    second = network(4, 5, 3)
    assert not {p.name for p in first.parameters()} & {p.name for p in second.parameters()}
    second.set_state_dict(first.state_dict())
    resumed = optimizer_of(second, name, **options)
    resumed.set_state_dict(trained.state_dict())
    for net, optimizer in ((first, trained), (second, resumed)):
        step(net, optimizer, 9)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    for a, b in zip(arrays(trained.state_dict()), arrays(resumed.state_dict()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_layer_made_first_shifts_the_names() -> None:
    """Some of the state's names are ours then, and of other parameters."""
    with bireme.utils.unique_name.guard():
        first = network(4, 4, 4, 4)
        trained = optimizer_of(first)
        step(first, trained)
        state = {k: v.numpy() for k, v in trained.state_dict().items()}
    with bireme.utils.unique_name.guard():
        nn.Linear(4, 4)
        second = network(4, 4, 4, 4)
        resumed = optimizer_of(second)
        assert {p.name for p in first.parameters()} & {p.name for p in second.parameters()}
        resumed.set_state_dict(state)
    for a, b in zip(state.values(), resumed.state_dict().values(), strict=True):
        np.testing.assert_array_equal(a, b.numpy())


def test_names_go_before_the_order() -> None:
    net = network(4, 4, 4)
    trained = optimizer_of(net)
    step(net, trained)
    backwards = bireme.optimizer.Adam(0.01, parameters=net.parameters()[::-1])
    backwards.set_state_dict(trained.state_dict())
    kinds = {k.rpartition("_")[0]: v.numpy() for k, v in trained.state_dict().items()}
    for key, value in backwards.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), kinds[key.rpartition("_")[0]])


@pytest.mark.parametrize("sizes", [(4, 5), (5, 4, 3), (4, 5, 3, 3)])
def test_what_fits_neither_way_is_refused_with_both_lists(sizes: tuple[int, ...]) -> None:
    first = network(4, 5, 3)
    trained = optimizer_of(first)
    step(first, trained)
    other = network(*sizes)
    optimizer = optimizer_of(other)
    step(other, optimizer)
    before = arrays(optimizer.state_dict())
    with pytest.raises(StateOfAnother, match="state has") as caught:
        optimizer.set_state_dict(trained.state_dict())
    assert isinstance(caught.value, InvalidArgument)
    assert first.parameters()[0].name in str(caught.value)
    assert other.parameters()[0].name in str(caught.value)
    for a, b in zip(before, arrays(optimizer.state_dict()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_kind_of_optimizer_is_refused() -> None:
    net = network(4, 5)
    trained = optimizer_of(net)
    step(net, trained)
    for wrong in (optimizer_of(net, "Momentum"), optimizer_of(net, "SGD")):
        with pytest.raises(StateOfAnother, match="does not keep"):
            wrong.set_state_dict(trained.state_dict())
    with pytest.raises(StateOfAnother, match="moment2_max"):
        optimizer_of(net, amsgrad=True).set_state_dict(trained.state_dict())


def test_entries_of_another_shape_are_refused() -> None:
    net = network(4, 5)
    trained = optimizer_of(net)
    step(net, trained)
    state = {
        k: v.numpy().T if "w_0_moment1" in k else v.numpy() for k, v in trained.state_dict().items()
    }
    for optimizer in (optimizer_of(net), trained):
        with pytest.raises(StateOfAnother, match=r"\[5, 4\]"):
            optimizer.set_state_dict(state)


def test_the_schedule_and_the_rest_load_together_or_not_at_all() -> None:
    def make() -> Any:
        schedule = bireme.optimizer.lr.StepDecay(0.1, 2)
        return schedule, bireme.optimizer.Adam(schedule, parameters=network(4, 5).parameters())

    schedule, optimizer = make()
    schedule.step(7)
    state = optimizer.state_dict()
    again, fresh = make()
    with pytest.raises(StateOfAnother, match="LR_Scheduler"):  # as in Paddle
        fresh.set_state_dict({k: v for k, v in state.items() if k != "LR_Scheduler"})
    with pytest.raises(StateOfAnother):
        fresh.set_state_dict({**state, "other_moment1_0": np.zeros(3, "float32")})
    assert again.last_epoch == 0
    with pytest.raises(InvalidArgument, match="last_lr"):
        fresh.set_state_dict({**state, "LR_Scheduler": {"last_epoch": 3}})
    assert again.last_epoch == 0
    fresh.set_state_dict(state)
    assert again.last_epoch == 7


def test_a_state_is_there_before_the_first_step_and_is_nobody_elses() -> None:
    net = network(4, 5)
    trained = optimizer_of(net)
    step(net, trained)
    resumed = optimizer_of(net)
    resumed.set_state_dict(trained.state_dict())
    before = arrays(trained.state_dict())
    step(net, trained)  # must not change what was given
    for a, b in zip(before, arrays(resumed.state_dict()), strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(before) == len(arrays(resumed.state_dict())) == 8


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_masters_move_with_the_rest(dtype: str) -> None:
    nets = [network(4, 5, 3) for _ in range(2)]
    optimizers = []
    for net in nets:
        net.to(dtype=dtype)
        optimizers.append(optimizer_of(net, "AdamW", multi_precision=True))
    x = bireme.ones([2, 4], dtype)
    for _ in range(2):
        (nets[0](x) ** 2).mean().backward()
        optimizers[0].step()
        optimizers[0].clear_grad()
    nets[1].set_state_dict(nets[0].state_dict())
    optimizers[1].set_state_dict(optimizers[0].state_dict())
    states = [o.state_dict() for o in optimizers]
    assert len(states[1]["master_weights"]) == 4
    found = [arrays(s["master_weights"]) + arrays(s) for s in states]
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_frozen_parameter_has_no_state() -> None:
    nets = [network(4, 5, 3) for _ in range(2)]
    for net in nets:
        net[0].weight.stop_gradient = True
    trained = optimizer_of(nets[0])
    step(nets[0], trained)
    resumed = optimizer_of(nets[1])
    resumed.set_state_dict(trained.state_dict())
    assert len(arrays(resumed.state_dict())) == 12


def test_other_states_are_whole_or_refused() -> None:
    scaler = bireme.amp.GradScaler(init_loss_scaling=8.0)
    state = scaler.state_dict()
    del state["incr_count"]
    state["scale"] = np.array([2.0], "float32")
    with pytest.raises(InvalidArgument, match="incr_count"):
        scaler.load_state_dict(state)
    assert scaler.state_dict()["scale"] == 8.0
    lr = bireme.optimizer.lr
    warm = lr.LinearWarmup(lr.StepDecay(0.1, 2), 3, 0.0, 0.1)
    with pytest.raises(InvalidArgument, match="LinearWarmup_LR"):
        warm.set_state_dict({"last_epoch": 5, "last_lr": 0.1})
    assert warm.last_epoch == 0
    nets = [network(4, 5) for _ in range(2)]
    averages = [
        bireme.incubate.optimizer.ModelAverage(0.5, parameters=net.parameters()) for net in nets
    ]
    nets[0](bireme.ones([2, 4])).sum().backward()
    averages[0].step()
    with pytest.raises(StateOfAnother):
        averages[1].set_state_dict(averages[0].state_dict())
