"""Losses: reductions, weights, ignored labels, soft labels."""

from tests.parity.table import B, I, T, V, case, case_fn, half, layer

F = "nn.functional."
REDUCTIONS = ("mean", "sum", "none")
LABELS = V([0, 2, 1, 3], "int64")
SOFT = V(
    [[0.1, 0.2, 0.3, 0.4, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.2] * 5, [0.0, 0.5, 0.0, 0.5, 0.0]]
)

for reduction in REDUCTIONS:
    case(F + "mse_loss", T(3, 4), T(3, 4), reduction=reduction)
    case(F + "l1_loss", T(3, 4), T(3, 4), reduction=reduction)
    case(F + "smooth_l1_loss", T(3, 4), T(3, 4), reduction=reduction)
    case(F + "smooth_l1_loss", T(3, 4), T(3, 4), reduction=reduction, delta=0.4)
    case(F + "cross_entropy", T(4, 5), LABELS, reduction=reduction)
    case(F + "cross_entropy", T(4, 5), LABELS, weight=T(5, low=0.2), reduction=reduction)
    case(F + "cross_entropy", T(4, 5), LABELS, weight=T(5, low=0.2), reduction=reduction,
         ignore_index=2, use_softmax=True)  # fmt: skip
    case(F + "cross_entropy", T(4, 5), SOFT, weight=T(5, low=0.2), reduction=reduction,
         soft_label=True)  # fmt: skip
    case(F + "cross_entropy", T(4, 5), LABELS, weight=T(5, low=0.2), reduction=reduction,
         label_smoothing=0.1)  # fmt: skip
    case(F + "binary_cross_entropy", T(3, 4, low=0.1, high=0.9), T(3, 4, low=0, high=1, grad=False),
         weight=T(3, 4, low=0.1), reduction=reduction)  # fmt: skip
    case(F + "cross_entropy", T(4, 5), V([0, -100, 1, 3], "int64"), reduction=reduction)
    case(F + "cross_entropy", T(4, 5), LABELS, ignore_index=2, reduction=reduction)
    case(F + "cross_entropy", T(4, 5), LABELS, label_smoothing=0.1, reduction=reduction)
    case(F + "nll_loss", T(4, 5), LABELS, reduction=reduction)
    case(F + "nll_loss", T(4, 5), LABELS, weight=T(5, low=0.2, grad=False), reduction=reduction)
    case(F + "binary_cross_entropy", T(3, 4, low=0.1, high=0.9), T(3, 4, low=0, high=1, grad=False),
         reduction=reduction)  # fmt: skip
    case(F + "binary_cross_entropy_with_logits", T(3, 4), T(3, 4, low=0, high=1, grad=False),
         reduction=reduction)  # fmt: skip
    case(F + "kl_div", T(3, 4), T(3, 4, low=0.1, high=1, grad=False), reduction=reduction)
    case(F + "margin_ranking_loss", T(4), T(4), V([1.0, -1.0, 1.0, -1.0]), margin=0.1,
         reduction=reduction)  # fmt: skip
    case(F + "hinge_embedding_loss", T(4), V([1.0, -1.0, 1.0, -1.0]), reduction=reduction)
    case(F + "cosine_embedding_loss", T(4, 3), T(4, 3), V([1, -1, 1, -1], "int64"), margin=0.1,
         reduction=reduction)  # fmt: skip
    case(F + "triplet_margin_loss", T(4, 3), T(4, 3), T(4, 3), reduction=reduction, _rtol=1e-4)
    case(F + "soft_margin_loss", T(4), V([1.0, -1.0, 1.0, -1.0]), reduction=reduction)
    case(F + "multi_label_soft_margin_loss", T(4, 3), V([[1.0, 0.0, 1.0]] * 4),
         reduction=reduction)  # fmt: skip
    case(F + "multi_margin_loss", T(4, 5), LABELS, reduction=reduction)
    case(F + "poisson_nll_loss", T(3, 4), T(3, 4, low=0.5, grad=False), reduction=reduction)
    case(F + "gaussian_nll_loss", T(3, 4), T(3, 4), T(3, 4, low=0.3), reduction=reduction)
    case(F + "sigmoid_focal_loss", T(3, 4), V([[0.0, 1.0, 0.0, 1.0]] * 3), reduction=reduction,
         _rtol=1e-4)  # fmt: skip
    case(F + "triplet_margin_with_distance_loss", T(4, 3), T(4, 3), T(4, 3), reduction=reduction,
         _rtol=1e-4)  # fmt: skip

case(F + "cross_entropy", T(4, 5), V([[0], [2], [1], [3]], "int64"))
case(F + "cross_entropy", T(4, 5), V([0, 2, 1, 3], "int32"))
case(F + "cross_entropy", T(4, 5), SOFT, soft_label=True)
case(F + "cross_entropy", T(4, 5), T(4, 5, low=0, high=1, grad=False), soft_label=True,
     _paddle_grad=False)  # fmt: skip
case(F + "cross_entropy", T(4, 5), SOFT, soft_label=True, reduction="none")
case(F + "cross_entropy", T(4, 5, low=0.1, high=1), LABELS, use_softmax=False)
case(F + "cross_entropy", T(2, 5, 3), V([[0, 1, 2], [3, 4, 0]], "int64"), axis=1)
case(F + "cross_entropy", T(2, 3, 5), V([[0, 1, 2], [3, 4, 0]], "int64"))
case(F + "cross_entropy", T(2, 3, 5), V([[0, -100, 2], [3, 4, 0]], "int64"), reduction="mean")
case(F + "cross_entropy", V([[1000.0, 990.0, 995.0]], grad=True), V([1], "int64"),
     _finite_difference=False)  # fmt: skip
case(F + "cross_entropy", T(2, 5), V([-100, -100], "int64"), reduction="sum")
case(F + "cross_entropy", T(4, 5, dtype="float64"), LABELS)
half(F + "cross_entropy", T(4, 5), LABELS)
case(F + "softmax_with_cross_entropy", T(4, 5), V([[0], [2], [1], [3]], "int64"))
case(F + "softmax_with_cross_entropy", T(4, 5), V([[0], [2], [1], [3]], "int64"),
     return_softmax=True,
     _paddle_grad=False)  # fmt: skip
case(F + "softmax_with_cross_entropy", T(4, 5), SOFT, soft_label=True)
case(F + "binary_cross_entropy", T(3, 4, low=0.1, high=0.9), T(3, 4, low=0, high=1, grad=False),
     weight=T(4, low=0.1))  # fmt: skip
case(F + "binary_cross_entropy_with_logits", T(3, 4), T(3, 4, low=0, high=1, grad=False),
     pos_weight=T(4, low=0.5), _paddle_grad=False)  # fmt: skip
case(F + "binary_cross_entropy_with_logits", T(3, 4), T(3, 4, low=0, high=1, grad=False),
     weight=T(4, low=0.5))  # fmt: skip
case(F + "binary_cross_entropy_with_logits", V([100.0, -100.0], grad=True), V([0.0, 1.0]))
case(F + "kl_div", T(3, 4), T(3, 4, low=0.1, high=1, grad=False), reduction="batchmean")
case(F + "kl_div", T(3, 4), T(3, 4, low=-1, high=1, grad=False), log_target=True)
case(F + "nll_loss", T(2, 5, 3), V([[0, 1, 2], [3, 4, 0]], "int64"))
case(F + "nll_loss", T(4, 5), V([[0], [1], [2], [0]], "int64"))
case(F + "nll_loss", T(4, 5), LABELS, ignore_index=2)
case(
    F + "poisson_nll_loss",
    T(3, 4, low=0.3),
    T(3, 4, low=0.5, grad=False),
    log_input=False,
    full=True,
)
case(F + "log_loss", T(3, 1, low=0.1, high=0.9), V([[1.0], [0.0], [1.0]]))
case(F + "square_error_cost", T(3, 4), T(3, 4))
case(F + "dice_loss", T(3, 4, low=0.1, high=0.9), V([[0], [2], [1]], "int64"))
case(F + "npair_loss", T(4, 3), T(4, 3), V([0.0, 1.0, 2.0, 3.0]), _rtol=1e-4)
case(F + "multi_margin_loss", T(4, 5), LABELS, p=2, margin=0.5)
case(F + "ctc_loss", T(4, 2, 6), V([[4, 5, 1, 3], [5, 4, 3, 3]], "int32"), V([4, 4], "int64"),
     V([4, 4], "int64"), reduction="none", _finite_difference=False)  # fmt: skip
case(F + "ctc_loss", T(5, 2, 4), V([[1, 2], [3, 1]], "int32"), V([5, 4], "int64"), V([2, 1],
     "int64"),
     _rtol=1e-4, _atol=1e-4)  # fmt: skip
case(F + "ctc_loss", T(5, 2, 4), V([[1, 1], [3, 1]], "int32"), V([5, 4], "int64"), V([2, 2],
     "int64"),
     reduction="none", _rtol=1e-4, _atol=1e-4)  # fmt: skip
case(F + "label_smooth", T(3, 4, low=0, high=1))

layer("nn.CrossEntropyLoss", inputs=[T(4, 5), LABELS])
layer("nn.CrossEntropyLoss", ignore_index=2, reduction="sum", inputs=[T(4, 5), LABELS])
layer("nn.MSELoss", inputs=[T(3, 4), T(3, 4)])
layer("nn.L1Loss", "sum", inputs=[T(3, 4), T(3, 4)])
layer("nn.SmoothL1Loss", inputs=[T(3, 4), T(3, 4)])
layer("nn.BCELoss", inputs=[T(3, 4, low=0.1, high=0.9), T(3, 4, low=0, high=1, grad=False)])
layer("nn.BCEWithLogitsLoss", inputs=[T(3, 4), T(3, 4, low=0, high=1, grad=False)])
layer("nn.NLLLoss", inputs=[T(4, 5), LABELS])
layer("nn.KLDivLoss", inputs=[T(3, 4), T(3, 4, low=0.1, high=1, grad=False)])
layer("nn.MarginRankingLoss", inputs=[T(4), T(4), V([1.0, -1.0, 1.0, -1.0])])
layer("nn.HingeEmbeddingLoss", inputs=[T(4), V([1.0, -1.0, 1.0, -1.0])])
layer("nn.CosineEmbeddingLoss", inputs=[T(4, 3), T(4, 3), V([1, -1, 1, -1], "int64")])
layer("nn.TripletMarginLoss", inputs=[T(4, 3), T(4, 3), T(4, 3)], _rtol=1e-4)
layer("nn.SoftMarginLoss", inputs=[T(4), V([1.0, -1.0, 1.0, -1.0])])
layer("nn.MultiLabelSoftMarginLoss", inputs=[T(4, 3), V([[1.0, 0.0, 1.0]] * 4)])
layer("nn.MultiMarginLoss", inputs=[T(4, 5), LABELS])
layer("nn.PoissonNLLLoss", inputs=[T(3, 4), T(3, 4, low=0.5, grad=False)])
layer("nn.GaussianNLLLoss", inputs=[T(3, 4), T(3, 4), T(3, 4, low=0.3)])
layer("nn.CTCLoss", inputs=[T(5, 2, 4), V([[1, 2], [3, 1]], "int32"), V([5, 4], "int64"),
                            V([2, 1], "int64")], _rtol=1e-4, _atol=1e-4)  # fmt: skip

case_fn("masked-mean-loss", lambda p, x,
     m: (p.nn.functional.relu(x) * m.astype("float32")).sum() / 5.0,
        T(3, 4), B(3, 4))  # fmt: skip
case_fn("two-losses", lambda p, x, y: p.nn.functional.mse_loss(x, p.zeros_like(x)) +
        0.1 * p.nn.functional.cross_entropy(x, y), T(4, 5), I(4, high=5))  # fmt: skip

for reduction in REDUCTIONS:
    case(F + "multi_label_margin_loss", T(2, 4), V([[0, 2, -1, -1], [3, -1, -1, -1]], "int64"),
         reduction=reduction)  # fmt: skip
case(F + "hsigmoid_loss", T(3, 4), V([[0], [1], [3]], "int64"), 4, T(3, 4), T(3, 1), _rtol=1e-4)
case_fn("rnnt_loss", lambda p, x, labels, times, lengths: p.nn.functional.rnnt_loss(
    p.nn.functional.log_softmax(x), labels, times, lengths, fastemit_lambda=0.0), T(2, 4, 3, 5),
    V([[1, 2], [3, 1]], "int32"), V([4, 3], "int32"), V([2, 1], "int32"), _rtol=1e-4,
    _atol=1e-4)  # fmt: skip
case_fn("adaptive_log_softmax", lambda p, x, head, a, b:
        p.nn.functional.adaptive_log_softmax_with_loss(x, p.to_tensor([0, 3, 4]), head, [[a, b]],
        [2, 5]),
        T(3, 4), T(4, 3), T(4, 2), T(2, 3), _rtol=1e-4, _atol=1e-4)  # fmt: skip
layer("nn.MultiLabelMarginLoss", inputs=[T(2, 4), V([[0, 2, -1, -1], [3, -1, -1, -1]], "int64")])
case("nn.functional.cross_entropy", T(4, 3), I(4, high=3), soft_label=True, label_smoothing=0.1)
