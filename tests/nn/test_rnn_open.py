"""A cell over sequences whose length is open in a program."""

from __future__ import annotations

import numpy as np
import pytest

import bireme
from bireme import nn, static


class Doubled(nn.SimpleRNNCell):
    """A cell of a user's own: its outputs are not its states."""

    def forward(self, inputs: bireme.Tensor, states: bireme.Tensor | None = None) -> tuple:
        out, state = super().forward(inputs, states)
        return {"twice": out * 2, "plain": out}, state


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", [Doubled, nn.GRUCell])
def test_an_open_length_gives_what_the_known_length_gives(cell: type, reverse: bool) -> None:
    rng = np.random.default_rng(0)
    x, lengths = rng.random((2, 5, 4), "float32"), np.array([3, 5])
    net = nn.RNN(cell(4, 3), is_reverse=reverse)
    weights = [p.numpy() for p in net.parameters()]
    given = bireme.to_tensor(x, stop_gradient=False)
    expected, last = net(given, sequence_length=bireme.to_tensor(lengths))
    parts = expected.values() if isinstance(expected, dict) else [expected]
    sum([p.sum() for p in parts], last.sum()).backward()
    bireme.enable_static()
    try:
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup):
            data = static.data("x", [None, None, 4])
            data.stop_gradient = False
            net = nn.RNN(cell(4, 3), is_reverse=reverse)
            out, final = net(data, sequence_length=static.data("n", [None], "int64"))
            outs = list(out.values()) if isinstance(out, dict) else [out]
            loss = sum([o.sum() for o in outs], final.sum())
            grad = static.gradients([loss], [data])[0]
        executor = static.Executor()
        executor.run(startup)
        for p, w in zip(net.parameters(), weights, strict=True):
            static.global_scope().var(p.name).get_tensor().set(w)
        found = executor.run(main, {"x": x, "n": lengths}, [*outs, final, grad])
    finally:
        bireme.disable_static()
    for got, want in zip(found, [*parts, last, given.grad], strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)
