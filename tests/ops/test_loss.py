"""Losses against the real paddle: values, gradients, reductions, both tiers."""

import numpy as np
import pytest

import bireme
from bireme.core.errors import InvalidArgument, ShapeMismatch
from tests.ops.functional_oracle import BF, check, rand, randint, tier

REDUCTIONS = ("mean", "sum", "none")
COLD = ("never",)


def probabilities(*shape, seed=0):
    e = np.exp(rand(*shape, seed=seed) * 2)
    return (e / e.sum(-1, keepdims=True)).astype("float32")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("options", [{}, {"ignore_index": 2}, {"ignore_index": -1}])
def test_cross_entropy(reduction, options):
    x = rand(6, 5) * 3
    label = randint(6, high=5)
    label[1] = 2
    if options.get("ignore_index") == -1:
        label[0] = -1
    tiers = ("never", "always") if reduction == "mean" else COLD
    check("cross_entropy", x, label, reduction=reduction, tiers=tiers, **options)
    check("cross_entropy", x, label[:, None], reduction=reduction, tiers=COLD, **options)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("ignore_index", [-100, 3])
def test_cross_entropy_weighted(reduction, ignore_index):
    weight = bireme.to_tensor(rand(5, low=0.1))
    label = randint(6, high=5)

    def ours(x, y):
        return BF.cross_entropy(x, y, weight, ignore_index, reduction)

    def theirs(x, y):
        import paddle

        made = paddle.to_tensor(weight.numpy())
        return paddle.nn.functional.cross_entropy(x, y, made, ignore_index, reduction)

    check("cross_entropy weighted", rand(6, 5), label, ours=ours, theirs=theirs)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_over_an_inner_axis(reduction):
    check("cross_entropy", rand(2, 5, 3, 4), randint(2, 3, 4, high=5), axis=1,
          reduction=reduction)  # fmt: skip
    check("cross_entropy", rand(2, 5, 3, 4), randint(2, 3, 4, high=5), axis=1, ignore_index=2,
          reduction=reduction, tiers=COLD)  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_soft(reduction):
    soft = probabilities(6, 5).astype("float32")

    def with_label(functional, to_tensor):
        return lambda x: functional.cross_entropy(
            x, to_tensor(soft), soft_label=True, reduction=reduction
        )

    import paddle

    check("soft", rand(6, 5) * 3, ours=with_label(BF, bireme.to_tensor),
          theirs=with_label(paddle.nn.functional, paddle.to_tensor))  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_cross_entropy_smoothed(reduction):
    label = randint(6, high=5)
    check("cross_entropy", rand(6, 5), label, reduction=reduction, label_smoothing=0.2)
    check("cross_entropy", rand(2, 3, 5), randint(2, 3, high=5), reduction=reduction,
          label_smoothing=0.1, tiers=COLD)  # fmt: skip


def test_cross_entropy_of_probabilities():
    check("cross_entropy", probabilities(6, 5), randint(6, high=5), use_softmax=False)


def test_cross_entropy_all_ignored_is_zero():
    label = np.full(4, 2, "int64")
    check("cross_entropy", rand(4, 5), label, ignore_index=2)


def test_cross_entropy_of_sure_logits():
    check("cross_entropy", rand(6, 5) * 30, randint(6, high=5), tiers=COLD)


def test_cross_entropy_refuses_bad_input():
    x = bireme.to_tensor(rand(4, 5))
    good = bireme.to_tensor(randint(4, high=5))
    with pytest.raises(ShapeMismatch, match="label"):
        BF.cross_entropy(x, bireme.to_tensor(randint(3, high=5)))
    with pytest.raises(InvalidArgument, match="reduction"):
        BF.cross_entropy(x, good, reduction="avg")
    with pytest.raises(ShapeMismatch, match="weight"):
        BF.cross_entropy(x, good, bireme.to_tensor(rand(4)))
    with pytest.raises(ShapeMismatch, match="dimensions"):
        BF.cross_entropy(x, bireme.to_tensor(randint(2, 2, 2, high=5)))
    with pytest.raises(ShapeMismatch, match="soft labels"):
        BF.cross_entropy(x, bireme.to_tensor(rand(4, 4)), soft_label=True)


def test_softmax_with_cross_entropy():
    check("softmax_with_cross_entropy", rand(6, 5), randint(6, 1, high=5))
    check("softmax_with_cross_entropy", rand(6, 5), randint(6, 1, high=5), return_softmax=True,
          grads=False)  # fmt: skip


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_loss(reduction):
    check("nll_loss", rand(6, 5), randint(6, high=5), reduction=reduction, ignore_index=1)
    check("nll_loss", rand(2, 5, 3, 4), randint(2, 3, 4, high=5), reduction=reduction, tiers=COLD)
    check("nll_loss", rand(2, 5, 3), randint(2, 3, high=5), reduction=reduction, tiers=COLD)
    weight = rand(5, low=0.1)
    check("nll_loss", rand(6, 5), randint(6, high=5), weight, reduction=reduction, tiers=COLD)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss"])
def test_distances(name, reduction):
    check(name, rand(4, 5) * 3, rand(4, 5, seed=1), reduction=reduction)


def test_distance_options():
    check("smooth_l1_loss", rand(4, 5) * 3, rand(4, 5, seed=1), delta=0.5, is_huber=False)
    check("mse_loss", rand(4, 5), rand(5, seed=1), tiers=COLD)
    check("square_error_cost", rand(4, 5), rand(4, 5, seed=1))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_binary_cross_entropy(reduction):
    p = rand(4, 5, low=0.05, high=0.95)
    y = randint(4, 5, high=2).astype("float32")
    check("binary_cross_entropy", p, y, reduction=reduction)
    w = rand(4, 5, low=0.1, seed=3)
    check("binary_cross_entropy", p, y, w, reduction=reduction, grads=False)
    x = rand(4, 5) * 5
    check("binary_cross_entropy_with_logits", x, y, reduction=reduction)
    check("binary_cross_entropy_with_logits", x, y, reduction=reduction, weight=w,
          pos_weight=rand(5, low=0.5, high=3.0), grads=False)  # fmt: skip


def test_binary_cross_entropy_weighted_gradients():
    import paddle

    y = randint(4, 5, high=2).astype("float32")
    w, pos = rand(4, 5, low=0.1, seed=3), rand(5, low=0.5, high=3.0)

    def make(lib):
        t = lib.to_tensor
        return lambda x: lib.nn.functional.binary_cross_entropy_with_logits(
            x, t(y), t(w), pos_weight=t(pos)
        )

    check("bce", rand(4, 5) * 4, ours=make(bireme), theirs=make(paddle))


@pytest.mark.parametrize("reduction", [*REDUCTIONS, "batchmean"])
def test_kl_div(reduction):
    x = np.log(probabilities(4, 5))
    check("kl_div", x, probabilities(4, 5, seed=2), reduction=reduction)
    check("kl_div", x, np.log(probabilities(4, 5, seed=2)), reduction=reduction, log_target=True,
          tiers=COLD)  # fmt: skip


def test_other_pairwise():
    p = rand(6, 1, low=0.1, high=0.9)
    y = randint(6, 1, high=2).astype("float32")
    check("log_loss", p, y)
    for reduction in REDUCTIONS:
        check("sigmoid_focal_loss", rand(6, 4) * 2, randint(6, 4, high=2).astype("float32"),
              reduction=reduction, grads=False)  # fmt: skip
    check("poisson_nll_loss", rand(6, 4), rand(6, 4, low=0.0, high=5.0), full=True)
    check("poisson_nll_loss", rand(6, 4, low=0.1), rand(6, 4, low=0.0, high=5.0), log_input=False)
    check("gaussian_nll_loss", rand(6, 4), rand(6, 4, seed=2), rand(6, 4, low=0.1), grads=False)
    check("gaussian_nll_loss", rand(6, 4), rand(6, 4, seed=2), rand(6, low=0.1), full=True,
          grads=False)  # fmt: skip


def test_focal_loss_gradient():
    import paddle

    y = randint(6, 4, high=2).astype("float32")

    def make(lib):
        return lambda x: lib.nn.functional.sigmoid_focal_loss(
            x, lib.to_tensor(y), lib.to_tensor(np.float32(3)), reduction="mean"
        )

    check("focal", rand(6, 4) * 2, ours=make(bireme), theirs=make(paddle))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins(reduction):
    sign = np.where(randint(6, high=2) > 0, 1, -1)
    y = sign.astype("float32")
    more = {"reduction": reduction, "tiers": ("never", "always") if reduction == "mean" else COLD}
    a, b, c = rand(6, 4), rand(6, 4, seed=1), rand(6, 4, seed=2)
    check("margin_ranking_loss", rand(6), rand(6, seed=1), y, margin=0.1, grads=False, **more)
    check("hinge_embedding_loss", rand(6), y, grads=False, **more)
    check("cosine_embedding_loss", a, b, sign, margin=0.1, **more)
    check("triplet_margin_loss", a, b, c, swap=True, **more)
    check("triplet_margin_with_distance_loss", a, b, c, margin=0.5, **more)
    check("multi_margin_loss", a, randint(6, high=4), margin=0.7, p=2, **more)
    check("multi_margin_loss", a, randint(6, high=4), weight=rand(4, low=0.2), grads=False, **more)
    check("multi_label_soft_margin_loss", a, randint(6, 4, high=2).astype("float32"), grads=False,
          **more)  # fmt: skip
    check("soft_margin_loss", a, np.where(b > 0, 1, -1).astype("int64"), **more)
    label = np.array([[1, 3, -1, 0], [0, -1, 2, 1], [-1, 1, 1, 1], [3, 2, 1, 0], [2, -1, -1, -1],
                      [0, 1, -1, -1]])  # fmt: skip
    check("multi_label_margin_loss", a, label, **more)


def test_classes():
    check("dice_loss", probabilities(3, 4, 5), randint(3, 4, 1, high=5))
    check("npair_loss", rand(6, 4), rand(6, 4, seed=1), randint(6, high=3).astype("float32"),
          grads=False)  # fmt: skip
    check("hsigmoid_loss", rand(6, 4), randint(6, 1, high=7), 7, rand(6, 4, seed=2), rand(6, 1))


def test_ctc_loss():
    lengths = np.array([7, 5, 6], "int64")
    labels = np.array([[1, 2, 2, 0], [3, 1, 0, 0], [2, 2, 1, 3]], "int32")
    label_lengths = np.array([3, 2, 4], "int64")
    for reduction in REDUCTIONS:
        check("ctc_loss", rand(7, 3, 5) * 2, labels, lengths, label_lengths, reduction=reduction,
              tiers=("never", "always") if reduction == "mean" else COLD, rtol=1e-4,
              atol=1e-5)  # fmt: skip
    check("ctc_loss", rand(7, 3, 5), labels, lengths, label_lengths, norm_by_times=True, rtol=1e-4,
          atol=1e-5)  # fmt: skip


def test_rnnt_loss():
    lengths, label_lengths = np.array([4, 3], "int32"), np.array([2, 1], "int32")
    label = np.array([[1, 2], [3, 0]], "int32")
    # Paddle normalises on GPUs only, so the oracle gets log-probabilities.
    x = np.log(probabilities(2, 4, 3, 5))
    for reduction in REDUCTIONS:
        check("rnnt_loss", x, label, lengths, label_lengths, reduction=reduction, rtol=1e-4,
              atol=1e-5, grads=False)  # fmt: skip


@pytest.mark.parametrize("mode", ["never", "always"])
def test_rnnt_gradient_by_differences(mode):
    rest = [bireme.to_tensor(a) for a in (np.array([[1, 2], [3, 0]]), np.array([4, 3]),
                                          np.array([2, 1]))]  # fmt: skip
    x, along = rand(2, 4, 3, 5, dtype="float64"), rand(2, 4, 3, 5, dtype="float64", seed=3)

    def loss(array, **options):
        leaf = bireme.to_tensor(array, stop_gradient=False)
        return leaf, BF.rnnt_loss(leaf, *rest, **options)

    with tier(mode):
        leaf, value = loss(x, fastemit_lambda=0.0)
        value.backward(bireme.to_tensor(np.float64(1.0)))
        ahead, behind = (loss(x + s * 1e-6 * along)[1].numpy() for s in (1, -1))
        faster, value = loss(x, fastemit_lambda=0.5)
        value.backward(bireme.to_tensor(np.float64(1.0)))
    np.testing.assert_allclose(
        (leaf.grad.numpy() * along).sum(), (ahead - behind) / 2e-6, rtol=1e-6
    )
    # FastEmit pushes the label's symbols up and leaves the value alone.
    assert (faster.grad.numpy()[0, 0, 0, 1] < leaf.grad.numpy()[0, 0, 0, 1]).all()


def test_adaptive_log_softmax():
    head, bias = rand(6, 5), rand(5)
    tails = [[rand(6, 3, seed=1), rand(3, 4, seed=2)], [rand(6, 2, seed=3), rand(2, 3, seed=4)]]
    label = np.array([0, 2, 4, 9, 7, 1, 6, 3])

    def make(lib):
        def run(x, y, weight, offset):
            pairs = [[lib.to_tensor(w) for w in pair] for pair in tails]
            return lib.nn.functional.adaptive_log_softmax_with_loss(
                x, y, weight, pairs, [3, 7, 10], offset
            )

        return run

    import paddle

    check("adaptive", rand(8, 6), label, head, bias, ours=make(bireme), theirs=make(paddle),
          rtol=1e-4, atol=1e-5)  # fmt: skip


def test_margin_cross_entropy_without_margin_is_cross_entropy():
    cosines = bireme.to_tensor(rand(6, 5) * 0.9, stop_gradient=False)
    label = bireme.to_tensor(randint(6, high=5))
    loss, weights = BF.margin_cross_entropy(
        cosines, label, 1.0, 0.0, 0.0, scale=8.0, return_softmax=True
    )
    plain = bireme.to_tensor(cosines.numpy() * 8)
    np.testing.assert_allclose(loss.numpy(), BF.cross_entropy(plain, label).numpy(), rtol=1e-5)
    np.testing.assert_allclose(weights.numpy().sum(1), 1, rtol=1e-5)
    harder = BF.margin_cross_entropy(cosines, label, margin2=0.5, scale=8.0, reduction=None)
    assert harder.shape == [6, 1]
    assert harder.numpy().mean() > loss.numpy()
    loss.backward(bireme.to_tensor(np.float32(1.0)))
    assert np.isfinite(cosines.grad.numpy()).all()
    with pytest.raises(InvalidArgument, match="group"):
        BF.margin_cross_entropy(cosines, label, group="world")


def test_bad_input():
    x, y = bireme.to_tensor(rand(4, 5)), bireme.to_tensor(rand(3, 5))
    with pytest.raises(ShapeMismatch, match="one shape"):
        BF.binary_cross_entropy(x, y)
    with pytest.raises(ShapeMismatch, match="broadcast"):
        BF.mse_loss(x, y)
    for name in ("mse_loss", "kl_div", "nll_loss", "soft_margin_loss", "hinge_embedding_loss"):
        with pytest.raises(InvalidArgument, match="reduction"):
            getattr(BF, name)(x, x, reduction="median")
    with pytest.raises(InvalidArgument, match="margin"):
        BF.triplet_margin_loss(x, x, x, margin=-1.0)
    with pytest.raises(ShapeMismatch, match="one shape"):
        BF.triplet_margin_loss(x, x, y)
