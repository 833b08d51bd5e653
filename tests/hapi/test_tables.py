"""summary and flops against the real ones."""

from __future__ import annotations

import pytest

import bireme


def small(lib):
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1),
        nn.BatchNorm2D(8),
        nn.ReLU(),
        nn.AvgPool2D(2),
        nn.LeakyReLU(),
        nn.Conv2D(8, 8, 3, groups=4, bias_attr=False),
        nn.AdaptiveAvgPool2D(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(32, 10),
    )


def recurrent(lib):
    return lib.nn.LSTM(4, 5)


def two_inputs(lib):
    class Two(lib.nn.Layer):
        def __init__(self):
            super().__init__()
            self.a = lib.nn.Linear(3, 4)
            self.b = lib.nn.Embedding(10, 4)
            self.a.bias.stop_gradient = True

        def forward(self, x, ids):
            return self.a(x) + self.b(ids)

    return Two()


CASES = {
    "small": (small, {"input_size": (None, 3, 16, 16)}),
    "lstm": (recurrent, {"input_size": (2, 7, 4)}),
    "two": (two_inputs, {"input_size": [(2, 3), (2,)], "dtypes": ["float32", "int64"]}),
    "linear": (lambda lib: lib.nn.Linear(3, 4), {"input_size": (5, 3)}),
}


@pytest.mark.parametrize("case", CASES)
def test_summary(paddle, capsys, case):
    make, options = CASES[case]
    shown = []
    for lib in (paddle, bireme):
        with lib.utils.unique_name.guard():
            net = make(lib)
            capsys.readouterr()
            totals = lib.summary(net, **options)
            out = capsys.readouterr().out
            shown.append(([line.rstrip() for line in out.splitlines()], totals, net.training))
    assert shown[1] == shown[0]


def test_summary_of_given_inputs(capsys):
    net = two_inputs(bireme)
    spec = bireme.static.InputSpec([None, 3], "float32", "x")
    assert bireme.summary(bireme.nn.Linear(3, 4), spec)["total_params"] == 16
    assert bireme.summary(bireme.nn.Linear(3, 4), input=bireme.ones([2, 3]))["total_params"] == 16
    for size, message in (
        (None, "input_size or input"),
        ((None, None), "batch size"),
        ((0,), "above"),
    ):
        with pytest.raises(ValueError, match=message):
            bireme.summary(net, size)
    assert bireme.Model(bireme.nn.Linear(3, 4), spec).summary()["trainable_params"] == 16


@pytest.mark.parametrize("detail", [False, True])
def test_flops(paddle, capsys, detail, monkeypatch):
    # With today's NumPy the real one trips over its own one-element tensors.
    monkeypatch.setattr(paddle.Tensor, "__int__", lambda t: int(t.numpy().reshape(-1)[0]))
    found = []
    for lib in (paddle, bireme):
        with lib.utils.unique_name.guard():
            net = small(lib)
            capsys.readouterr()
            count = lib.flops(net, [2, 3, 16, 16], print_detail=detail)
            out = capsys.readouterr().out
            numbers = [line for line in out.splitlines() if "[2" in line or "Total" in line]
            cells = [line.replace("|", " ").split() for line in numbers]
            found.append((count, cells, sorted(net.state_dict())))
    assert found[1][0] == found[0][0]
    assert found[1][1] == found[0][1]
    assert found[1][2] == found[0][2]


def test_flops_of_own_layers(capsys):
    class Square(bireme.nn.Layer):
        def forward(self, x):
            return x * x

    def count(layer, x, y):
        layer.total_ops += y.size

    net = bireme.nn.Sequential(Square(), bireme.nn.Linear(4, 2))
    assert bireme.flops(net, [3, 4], custom_ops={Square: count}) == 12 + 4 * 6
    assert "Treat it as zero" not in capsys.readouterr().out
    assert bireme.flops(net, [3, 4]) == 4 * 6
    assert "Treat it as zero FLOPs" in capsys.readouterr().out
    with pytest.raises(TypeError, match="takes a Layer"):
        bireme.flops(print, [1])


def test_tables_of_a_captured_network():
    """Its graph has been captured for open sizes; the tables show the sizes that were asked for."""
    net = bireme.nn.Sequential(
        bireme.nn.Conv2D(1, 4, 3), bireme.nn.Flatten(), bireme.nn.Linear(4 * 14 * 14, 3)
    )
    totals, work = bireme.summary(net, (2, 1, 16, 16)), bireme.flops(net, [1, 1, 16, 16])
    bireme.jit.to_static(net, input_spec=[bireme.static.InputSpec([None, 1, 16, 16], "float32")])
    net(bireme.ones([3, 1, 16, 16]))
    assert bireme.summary(net, (2, 1, 16, 16)) == totals
    assert bireme.flops(net, [1, 1, 16, 16]) == work
