"""Sparse layers: against the wheel's weights and results, and against dense convolutions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import bireme
from bireme import sparse
from bireme.core.errors import InvalidArgument
from bireme.host import config
from bireme.profiler import count_compiles

WHERE = np.array([[0, 0, 0, 0, 1], [0, 1, 1, 2, 1], [0, 1, 2, 3, 0], [0, 0, 2, 1, 1]])


def cloud(p: Any, dims: int = 3) -> Any:
    values = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    shape = [*[2, 3, 4, 3][: dims + 1], 2]
    return p.sparse.sparse_coo_tensor(
        p.to_tensor(WHERE[: dims + 1]), p.to_tensor(values), shape, stop_gradient=False
    )


@pytest.mark.parametrize(
    ("name", "dims", "args", "options"),
    [
        ("Conv3D", 3, (2, 3, 2), {"padding": 1}),
        ("SubmConv3D", 3, (2, 3, 3), {"padding": 1, "key": "a"}),
        ("Conv2D", 2, (2, 3, 3), {"padding": 1, "stride": 2}),
        ("SubmConv2D", 2, (2, 3, 3), {"bias_attr": False}),
        ("BatchNorm", 3, (2,), {}),
        ("MaxPool3D", 3, (2,), {"stride": 1}),
        ("ReLU", 3, (), {}),
        ("ReLU6", 3, (), {}),
        ("LeakyReLU", 3, (0.3,), {}),
    ],
)
def test_equals_the_wheel(name: str, dims: int, args: Any, options: Any, paddle: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(paddle.sparse.nn, name)(*args, **options)
        weights = {k: v.numpy() for k, v in theirs.state_dict().items()}
        want = theirs(cloud(paddle, dims))
        wanted = want.values().sum()
        wanted.backward()
    ours = getattr(sparse.nn, name)(*args, **options)
    ours.set_state_dict({k: bireme.to_tensor(v) for k, v in weights.items()})
    got = ours(cloud(bireme, dims))
    got.values().sum().backward()
    assert str(ours) == str(theirs)
    assert list(got.shape) == list(want.shape)
    np.testing.assert_array_equal(got.indices().numpy(), want.indices().numpy())
    np.testing.assert_allclose(got.values().numpy(), want.values().numpy(), rtol=1e-4, atol=1e-5)
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(
            ours.state_dict()[key].numpy(), value.numpy(), rtol=1e-5, err_msg=key
        )
    if name != "BatchNorm":  # its gradients are sums of zeros
        for (key, mine), want_p in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            assert mine.grad is not None
            np.testing.assert_allclose(
                mine.grad.numpy(), want_p.grad.numpy(), rtol=1e-3, atol=1e-4, err_msg=key
            )


def test_convolution_equals_the_dense_one_where_it_has_outputs() -> None:
    x = cloud(bireme)
    weight = bireme.randn([3, 3, 3, 2, 4])
    for padding in (1, "SAME", [0, 1, 1]):
        found = sparse.nn.functional.conv3d(x, weight, padding=padding)
        dense = bireme.nn.functional.conv3d(
            x.to_dense().transpose([0, 4, 1, 2, 3]),
            weight.transpose([4, 3, 0, 1, 2]),
            padding=padding,
        ).transpose([0, 2, 3, 4, 1])
        np.testing.assert_allclose(
            found.to_dense().numpy(), dense.numpy(), rtol=1e-4, atol=1e-4, err_msg=str(padding)
        )


def test_a_key_shares_the_search_for_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    from bireme.sparse.nn.functional import conv

    searches = []
    search = conv.make_submanifold
    monkeypatch.setattr(conv, "make_submanifold", lambda *a: searches.append(1) or search(*a))
    net = bireme.nn.Sequential(
        sparse.nn.SubmConv3D(2, 4, 3, key="same"), sparse.nn.BatchNorm(4), sparse.nn.ReLU(),
        sparse.nn.SubmConv3D(4, 4, 3, key="same"), sparse.nn.SubmConv3D(4, 1, 3, key="other"),
    )  # fmt: skip
    net(cloud(bireme))
    assert len(searches) == 2


def test_a_sparse_network_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "compile_mode", "sync")
    bireme.seed(1)
    net = bireme.nn.Sequential(
        sparse.nn.SubmConv3D(2, 8, 3, key="k"), sparse.nn.ReLU(),
        sparse.nn.SubmConv3D(8, 1, 3, key="k"),
    )  # fmt: skip
    optimizer = bireme.optimizer.Adam(0.02, parameters=net.parameters())
    x = cloud(bireme)
    target = bireme.to_tensor(np.linspace(-1, 1, 5, dtype=np.float32).reshape(5, 1))
    losses = []

    def step() -> None:
        loss = ((net(x).values() - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))

    for _ in range(4):
        step()
    with count_compiles() as compiled:
        for _ in range(40):
            step()
    assert compiled == [0]
    assert losses[-1] < 0.05 * losses[0]


def test_sync_batch_norm() -> None:
    net = bireme.nn.Sequential(sparse.nn.BatchNorm(2), sparse.nn.ReLU())
    made = sparse.nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert isinstance(made[0], sparse.nn.SyncBatchNorm)
    np.testing.assert_allclose(
        made(cloud(bireme)).values().numpy(), net(cloud(bireme)).values().numpy()
    )
    assert isinstance(sparse.nn.Softmax()(cloud(bireme)), bireme.Tensor)


@pytest.mark.parametrize(
    "options",
    [{"groups": 2}, {"padding_mode": "reflect"}, {"data_format": "NCDHW"}, {"weight_attr": False}],
)
def test_what_is_not_possible_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="must"):
        sparse.nn.Conv3D(2, 4, 3, **options)
