"""linear, embedding, one_hot, distances, masks against the real paddle."""

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.stats import statistics
from tests.ops.functional_oracle import BF, both_tiers, check, rand, randint, tier


@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (4,), (2, 0, 4)])
def test_linear(shape):
    check("linear", rand(*shape), rand(4, 3), rand(3))
    check("linear", rand(*shape), rand(4, 3))


def test_linear_float64():
    check("linear", rand(5, 4, dtype="float64"), rand(4, 3, dtype="float64"), tiers=("never",))


def test_linear_refuses_bad_input():
    x = bireme.to_tensor(rand(2, 4))
    with pytest.raises(ShapeMismatch, match="in_features"):
        BF.linear(x, bireme.to_tensor(rand(3, 4)))
    with pytest.raises(ShapeMismatch, match="bias"):
        BF.linear(x, bireme.to_tensor(rand(4, 3)), bireme.to_tensor(rand(4)))
    with pytest.raises(TypeMismatch, match="one dtype"):
        BF.linear(x, bireme.to_tensor(rand(4, 3, dtype="float64")))
    with pytest.raises(TypeMismatch, match="float32"):
        BF.linear(bireme.to_tensor(randint(2, 4, high=3)), bireme.to_tensor(rand(4, 3)))
    with pytest.raises(TypeMismatch, match="x is bool"):
        BF.linear(x > 0, bireme.to_tensor(rand(4, 3)) > 0)


def test_bilinear():
    check("bilinear", rand(5, 3), rand(5, 4), rand(2, 3, 4), rand(1, 2))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"padding_idx": -2},
                                     {"scale_grad_by_freq": True}])  # fmt: skip
def test_embedding(options):
    check("embedding", randint(3, 7, high=6), rand(6, 4), **options)


def test_embedding_max_norm_changes_the_weight():
    weight = bireme.to_tensor(rand(6, 4) * 10)
    out = BF.embedding(bireme.to_tensor([1, 3]), weight, max_norm=1.0)
    norms = np.linalg.norm(weight.numpy(), axis=1)
    assert (norms[[1, 3]] < 1.001).all()
    assert (norms[[0, 2, 4, 5]] > 1.5).all()
    np.testing.assert_array_equal(out.numpy(), weight.numpy()[[1, 3]])


def test_embedding_refuses_bad_input():
    weight = bireme.to_tensor(rand(6, 4))
    with pytest.raises(TypeMismatch, match="integers"):
        BF.embedding(bireme.to_tensor(rand(2)), weight)
    with pytest.raises(InvalidArgument, match="padding_idx"):
        BF.embedding(bireme.to_tensor([1]), weight, padding_idx=6)


def test_one_hot():
    check("one_hot", randint(3, 2, high=5), 6, grads=False)
    check("one_hot", randint(3, 2, high=5), grads=False)


def test_distances():
    a, b = rand(3, 4, 5), rand(3, 4, 5, seed=1)
    check("cosine_similarity", a, b)
    check("cosine_similarity", a, b, axis=-1)
    for p in (2.0, 1.0, 3.0):
        check("normalize", a, p=p)
        check("pairwise_distance", rand(4, 5), rand(4, 5, seed=3), p=p)
    check("normalize", rand(5), axis=0)
    check("normalize", a, p=float("inf"), axis=2, grads=False)


def test_labels_and_masks():
    check("label_smooth", rand(3, 5), epsilon=0.2)
    check("label_smooth", rand(3, 5), rand(1, 5), grads=False)
    check("sequence_mask", np.array([1, 3, 2]), maxlen=5, grads=False)
    check("sequence_mask", np.array([[1, 3], [0, 2]]), dtype="float32", grads=False)
    with pytest.raises(InvalidArgument, match="epsilon"):
        BF.label_smooth(bireme.to_tensor(rand(2, 2)), epsilon=2.0)


def test_gather_tree():
    ids = randint(4, 2, 3, high=10)
    parents = randint(4, 2, 3, high=3, seed=5)
    check("gather_tree", ids, parents, grads=False)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_share_it_should(p):
    x = bireme.to_tensor(np.ones((200, 300), "float32"))
    (out,) = both_tiers(lambda: (bireme.core.random.seed(7), BF.dropout(x, p))[1])
    share = (out != 0).mean()
    assert abs(share - (1 - p)) < 0.01
    np.testing.assert_allclose(out[out != 0], 1 / (1 - p), rtol=1e-6)


def test_dropout_backward_makes_the_same_mask():
    x = bireme.to_tensor(rand(8, 16) + 2, stop_gradient=False)
    out = BF.dropout(x, 0.4)
    out.backward(bireme.to_tensor(np.ones((8, 16), "float32")))
    np.testing.assert_allclose(x.grad.numpy(), out.numpy() / x.numpy(), rtol=1e-5)


def test_dropout_modes():
    x = bireme.to_tensor(rand(4, 5))
    assert BF.dropout(x, 0.5, training=False) is x
    assert BF.dropout(x, 0.0) is x
    np.testing.assert_array_equal(BF.dropout(x, 1.0).numpy(), 0)
    check("dropout", rand(4, 5), 0.3, training=False, mode="downscale_in_infer")
    kept = BF.dropout(x, 0.3, mode="downscale_in_infer").numpy()
    np.testing.assert_array_equal(kept[kept != 0], x.numpy()[kept != 0])
    with pytest.raises(InvalidArgument, match="p must be"):
        BF.dropout(x, 1.5)
    with pytest.raises(InvalidArgument, match="mode"):
        BF.dropout(x, 0.5, mode="up")
    with pytest.raises(InvalidArgument, match="axis"):
        BF.dropout(x, 0.5, axis=2)


def test_dropout_along_axes():
    x = bireme.to_tensor(np.ones((20, 30, 4, 5), "float32"))
    for out in (BF.dropout(x, 0.5, axis=[0, 1]), BF.dropout2d(x, 0.5)):
        flat = out.numpy().reshape(600, 20)
        assert (flat == flat[:, :1]).all()
        assert 0.4 < (flat[:, 0] == 0).mean() < 0.6
    last = BF.dropout2d(x, 0.5, data_format="NHWC").numpy()
    assert (last == last[:, :1, :1]).all()
    deep = BF.dropout3d(bireme.to_tensor(np.ones((20, 30, 2, 2, 2), "float32"))).numpy()
    assert (deep == deep[:, :, :1, :1, :1]).all()
    one = BF.dropout1d(bireme.to_tensor(np.ones((20, 30, 6), "float32"))).numpy()
    assert (one == one[:, :, :1]).all()


def test_alpha_dropout_keeps_moments():
    x = bireme.to_tensor(np.random.default_rng(0).normal(size=(400, 500)).astype("float32"))
    out = BF.alpha_dropout(x, 0.3).numpy()
    assert abs(out.mean()) < 0.02
    assert abs(out.std() - 1) < 0.02
    channels = BF.feature_alpha_dropout(bireme.to_tensor(np.ones((20, 30, 8), "float32")), 0.5)
    assert (channels.numpy() == channels.numpy()[:, :, :1]).all()


def test_a_changing_probability_compiles_once():
    x = bireme.to_tensor(rand(8, 16))
    with tier("always"):
        seen = [BF.dropout(x, 0.5).numpy()]
        count = statistics.started
        seen += [BF.dropout(x, p).numpy() for p in (0.1, 0.3, 0.5, 0.5)]
    assert statistics.started == count
    assert (seen[0] != seen[-1]).any()
