"""Mixtures of experts against the same computed token by token in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bireme as paddle
from bireme import nn
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.incubate.distributed.models import moe
from bireme.incubate.distributed.models.moe import MoELayer, StackedExperts
from bireme.ops.expert_slots import experts_to_tokens, queue_places, tokens_to_experts

WIDTH = 6


class Expert(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 10)
        self.down = nn.Linear(10, WIDTH)

    def forward(self, x):
        return self.down(paddle.tanh(self.up(x)))


def layer(gate, count: int = 4) -> MoELayer:
    paddle.seed(3)
    return MoELayer(WIDTH, nn.LayerList([Expert() for _ in range(count)]), gate=gate)


def by_token(model: MoELayer, x: np.ndarray, value: np.ndarray, index: np.ndarray) -> np.ndarray:
    out = np.zeros_like(x)
    for t in range(len(x)):
        for v, e in zip(value[t], index[t], strict=True):
            if e >= 0:
                made = model.experts[int(e)](paddle.to_tensor(x[t : t + 1])).numpy()[0]
                out[t] += v * made
    return out


def tokens(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(2, 7, WIDTH)).astype("float32")


def test_a_naive_gate_weighs_by_scores(tier) -> None:
    model, x = layer({"type": "naive", "top_k": 2}), tokens()
    flat = x.reshape(-1, WIDTH)
    scores = flat @ model.gate.gate.weight.numpy() + model.gate.gate.bias.numpy()
    index = np.argsort(-scores, axis=1)[:, :2]
    want = by_token(model, flat, np.take_along_axis(scores, index, 1), index)
    got = model(paddle.to_tensor(x))
    np.testing.assert_allclose(got.numpy().reshape(-1, WIDTH), want, rtol=1e-4, atol=1e-5)
    assert model.gate.get_loss() is None


def limited(index: np.ndarray, experts: int, limit: int) -> np.ndarray:
    left, found = [limit] * experts, index.copy()
    for at in np.ndindex(*index.shape):
        e = index[at]
        if left[e] == 0:
            found[at] = -1
        else:
            left[e] -= 1
    return found


@pytest.mark.parametrize("rate", [0.25, 1.2])
def test_a_gshard_gate_limits_and_balances(rate) -> None:
    gate = moe.GShardGate(WIDTH, 4, 1, capacity=(rate, 2.4), random_routing=False)
    model, x = layer(gate), tokens()
    flat = x.reshape(-1, WIDTH)
    scores = flat @ gate.gate.weight.numpy() + gate.gate.bias.numpy()
    first = np.argsort(-scores, axis=1)[:, :2]
    index = limited(first, 4, math.ceil(rate * len(flat)))
    want = by_token(model, flat, np.take_along_axis(scores, first, 1), index)
    got = model(paddle.to_tensor(x)).numpy().reshape(-1, WIDTH)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    share = np.bincount(first.ravel(), minlength=4) / len(flat)
    loss = gate.get_loss()
    assert loss is not None
    assert loss.item() == pytest.approx((share * probs.mean(0)).mean() * 16, rel=1e-5)
    assert gate.get_loss() is None


def test_a_second_expert_is_left_out_at_random() -> None:
    gate = moe.GShardGate(WIDTH, 4, 1)
    paddle.seed(1)
    _, index = gate(paddle.to_tensor(np.random.default_rng(0).normal(size=(400, WIDTH)) * 0.1)
                    .astype("float32"))  # fmt: skip
    out = (index.numpy() == -1).mean(axis=0)
    assert out[0] == 0
    assert 0.2 < out[1] <= 1


def test_a_switch_gate_takes_one() -> None:
    gate = moe.SwitchGate(WIDTH, 4, 1, capacity=(1.2, 0.3))
    model, x = layer(gate), tokens()
    model.eval()
    flat = x.reshape(-1, WIDTH)
    scores = flat @ gate.gate.weight.numpy() + gate.gate.bias.numpy()
    probs = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    index = limited(probs.argmax(1)[:, None], 4, math.ceil(0.3 * len(flat)))
    want = by_token(model, flat, probs.max(1, keepdims=True), index)
    got = model(paddle.to_tensor(x)).numpy().reshape(-1, WIDTH)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    valid = (index >= 0).sum()
    share = np.bincount(index[index >= 0], minlength=4) / valid
    loss = gate.get_loss()
    assert loss is not None
    assert loss.item() == pytest.approx((share * probs.sum(0) / valid).sum() * 4, rel=1e-5)
    model.train()
    assert np.isfinite(model(paddle.to_tensor(x)).numpy()).all()


def test_gradients_reach_tokens_gate_and_experts(tier) -> None:
    model, x = layer({"type": "naive", "top_k": 2}), tokens()

    def gradients(forward) -> list[np.ndarray]:
        given = paddle.to_tensor(x, stop_gradient=False)
        model.clear_gradients()
        (forward(given) ** 2).sum().backward()
        return [given.grad.numpy(), *(p.grad.numpy() for p in model.parameters())]

    def dense(given):
        """All experts on all tokens."""
        flat = given.reshape([-1, WIDTH])
        value, index = model.gate(flat)
        made = paddle.stack([e(flat) for e in model.experts], axis=1)
        weights = (nn.functional.one_hot(index, 4) * value.unsqueeze(-1)).sum(axis=1)
        return (made * weights.unsqueeze(-1)).sum(axis=1)

    for got, want in zip(gradients(model), gradients(dense), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_stacked_experts_are_the_same_experts() -> None:
    gate = moe.GShardGate(WIDTH, 3, 1, capacity=(0.5, 0.5), random_routing=False)
    stacked = StackedExperts(3, WIDTH, 8, act="relu")
    model, x = MoELayer(WIDTH, stacked, gate=gate), tokens()

    class One(nn.Layer):
        def __init__(self, number) -> None:
            super().__init__()
            self.number = number

        def forward(self, t):
            return nn.functional.relu(t @ stacked.up[self.number]) @ stacked.down[self.number]

    plain = MoELayer(WIDTH, nn.LayerList([One(i) for i in range(3)]), gate=gate)
    given = paddle.to_tensor(x)
    np.testing.assert_allclose(model(given).numpy(), plain(given).numpy(), rtol=1e-5, atol=1e-6)
    captured = paddle.jit.to_static(model, full_graph=True)
    np.testing.assert_allclose(captured(given).numpy(), plain(given).numpy(), rtol=1e-5, atol=1e-6)


def test_tokens_come_back_from_their_experts(both_tiers) -> None:
    index = np.array([[0, 2], [2, -1], [2, 1], [0, 2]])
    x = np.arange(8, dtype="float32").reshape(4, 2) + 1

    def there_and_back(given, chosen):
        place = queue_places(chosen, 3)
        rows = tokens_to_experts(given, chosen, place, 3, 2)
        return place, rows, experts_to_tokens(rows, chosen, place)

    place, rows, back = both_tiers(
        lambda: there_and_back(paddle.to_tensor(x), paddle.to_tensor(index))
    )
    assert place.tolist() == [[0, 0], [1, -1], [2, 0], [1, 3]]
    assert rows[2].tolist() == [[1, 2], [3, 4]]
    assert back[2].tolist() == [[0, 0], [5, 6]]  # the third in the queue of expert 2 is left out


def test_wrong_arguments_say_what_is_right() -> None:
    experts = nn.LayerList([Expert()])
    with pytest.raises(InvalidArgument, match="naive, gshard or switch"):
        MoELayer(WIDTH, experts, gate={"type": "soft"})
    with pytest.raises(TypeMismatch, match="a dict or a gate"):
        MoELayer(WIDTH, experts, gate="naive")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="topk is 2"):
        moe.GShardGate(WIDTH, 4, 1, topk=1)
    with pytest.raises(InvalidArgument, match="topk is 1"):
        moe.SwitchGate(WIDTH, 4, 1, topk=2)
    with pytest.raises(InvalidArgument, match="topk is 1 to 1"):
        moe.NaiveGate(WIDTH, 1, 1)
    with pytest.raises(ShapeMismatch, match=r"\[batch, sequence, 6\]"):
        layer({"type": "naive"})(paddle.zeros([3, WIDTH]))
    with pytest.raises(InvalidArgument, match="act is a function"):
        StackedExperts(2, 4, 4, act="nothing")


def test_clipping_in_one_process_is_that_of_all_gradients() -> None:
    model = nn.Linear(4, 4)
    clip = moe.ClipGradForMOEByGlobalNorm(0.5)
    optimizer = paddle.optimizer.SGD(1.0, parameters=model.parameters(), grad_clip=clip)
    before = [p.numpy() for p in model.parameters()]
    (model(paddle.ones([2, 4])) * 100).sum().backward()
    optimizer.step()
    moved = [b - p.numpy() for b, p in zip(before, model.parameters(), strict=True)]
    assert math.sqrt(sum((m**2).sum() for m in moved)) == pytest.approx(0.5, rel=1e-4)
