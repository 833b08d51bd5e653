"""Loss layers: each holds its settings and calls its function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from bireme.api.types import Reduction
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer.layer import Layer


def _checked(reduction: str, where: str) -> str:
    if reduction not in ("sum", "mean", "none"):
        raise InvalidArgument(
            f"[{where}] reduction must be 'sum', 'mean' or 'none'. Received: {reduction!r}"
        )
    return reduction


class MSELoss(Layer):
    """The mean (or sum) of squared differences."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.reduction = _checked(reduction, "MSELoss")

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.mse_loss(input, label, reduction=self.reduction)


class L1Loss(Layer):
    """The mean (or sum) of absolute differences."""

    def __init__(self, reduction: Reduction = "mean", name: str | None = None) -> None:
        super().__init__()
        self.reduction = _checked(reduction, "L1Loss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.l1_loss(input, label, reduction=self.reduction)


class BCELoss(Layer):
    """Binary cross entropy of probabilities."""

    def __init__(
        self, weight: Tensor | None = None, reduction: Reduction = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self.weight = weight
        self.reduction = _checked(reduction, "BCELoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, label, weight=self.weight, reduction=self.reduction)


class NLLLoss(Layer):
    """Negative log likelihood of log-probabilities."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.ignore_index = ignore_index
        self.reduction = _checked(reduction, "NLLLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.nll_loss(
            input,
            label,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class KLDivLoss(Layer):
    """Kullback-Leibler divergence from log-probabilities to `label`."""

    def __init__(
        self, reduction: Reduction | Literal["batchmean"] = "mean", log_target: bool = False
    ) -> None:
        super().__init__()
        self.reduction = reduction
        self.log_target = log_target

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.kl_div(input, label, reduction=self.reduction, log_target=self.log_target)


class SmoothL1Loss(Layer):
    """Squared near zero, linear beyond `delta`."""

    def __init__(
        self,
        reduction: Reduction = "mean",
        delta: float = 1.0,
        is_huber: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.reduction = _checked(reduction, "SmoothL1Loss")
        self.delta = delta
        self.is_huber = is_huber
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.smooth_l1_loss(
            input, label, reduction=self.reduction, delta=self.delta, is_huber=self.is_huber
        )


class PoissonNLLLoss(Layer):
    """Negative log likelihood of counts."""

    full: Any  # as in Paddle, a setting that hides Layer.full

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        epsilon: float = 1e-8,
        reduction: Reduction = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.log_input = log_input
        self.full = full
        self.epsilon = epsilon
        self.reduction = _checked(reduction, "PoissonNLLLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            input,
            label,
            log_input=self.log_input,
            full=self.full,
            epsilon=self.epsilon,
            reduction=self.reduction,
        )


class GaussianNLLLoss(Layer):
    """Negative log likelihood of a normal distribution."""

    full: Any  # as in Paddle, a setting that hides Layer.full

    def __init__(
        self,
        full: bool = False,
        epsilon: float = 1e-6,
        reduction: Reduction = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.full = full
        self.epsilon = epsilon
        self.reduction = _checked(reduction, "GaussianNLLLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor, variance: Tensor) -> Tensor:
        return F.gaussian_nll_loss(
            input, label, variance, full=self.full, epsilon=self.epsilon, reduction=self.reduction
        )


class MarginRankingLoss(Layer):
    """max(0, -label * (input - other) + margin)."""

    def __init__(
        self, margin: float = 0.0, reduction: Reduction = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self.margin = margin
        self.reduction = _checked(reduction, "MarginRankingLoss")
        self.name = name

    def forward(self, input: Tensor, other: Tensor, label: Tensor) -> Tensor:
        return F.margin_ranking_loss(
            input, other, label, margin=self.margin, reduction=self.reduction
        )


class HingeEmbeddingLoss(Layer):
    """Distances small for label 1 and above `margin` for label -1."""

    def __init__(
        self, margin: float = 1.0, reduction: Reduction = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self.margin = margin
        self.reduction = _checked(reduction, "HingeEmbeddingLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, label, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(Layer):
    """Cosines near 1 for label 1 and below `margin` for label -1."""

    def __init__(
        self, margin: float = 0, reduction: Reduction = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self.margin = margin
        self.reduction = _checked(reduction, "CosineEmbeddingLoss")
        self.name = name

    def forward(self, input1: Tensor, input2: Tensor, label: Tensor) -> Tensor:
        return F.cosine_embedding_loss(
            input1, input2, label, margin=self.margin, reduction=self.reduction
        )


class SoftMarginLoss(Layer):
    """log(1 + exp(-label * input))."""

    def __init__(self, reduction: Reduction = "mean", name: str | None = None) -> None:
        super().__init__()
        self.reduction = _checked(reduction, "SoftMarginLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.soft_margin_loss(input, label, reduction=self.reduction)


class MultiLabelSoftMarginLoss(Layer):
    """Binary cross entropy of several labels per row."""

    def __init__(
        self, weight: Tensor | None = None, reduction: Reduction = "mean", name: str | None = None
    ) -> None:
        super().__init__()
        self.weight = weight
        self.reduction = _checked(reduction, "MultiLabelSoftMarginLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.multi_label_soft_margin_loss(
            input, label, weight=self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(Layer):
    """Margin of several labels against all other classes."""

    def __init__(self, reduction: Reduction = "mean", name: str | None = None) -> None:
        super().__init__()
        self.reduction = _checked(reduction, "MultiLabelMarginLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.multi_label_margin_loss(input, label, reduction=self.reduction)


class MultiMarginLoss(Layer):
    """Margin of the right class against all others."""

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.p = p
        self.margin = margin
        self.weight = weight
        self.reduction = _checked(reduction, "MultiMarginLoss")
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.multi_margin_loss(
            input, label, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction
        )


class TripletMarginLoss(Layer):
    """The positive nearer than the negative by `margin`."""

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        epsilon: float = 1e-6,
        swap: bool = False,
        reduction: Reduction = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.margin = margin
        self.p = p
        self.epsilon = epsilon
        self.swap = swap
        self.reduction = _checked(reduction, "TripletMarginLoss")
        self.name = name

    def forward(self, input: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            input,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            epsilon=self.epsilon,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(Layer):
    """TripletMarginLoss with a distance of your own."""

    def __init__(
        self,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: Reduction = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap
        self.reduction = _checked(reduction, "TripletMarginWithDistanceLoss")
        self.name = name

    def forward(self, input: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            input,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class BCEWithLogitsLoss(Layer):
    """Binary cross entropy of logits."""

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
        pos_weight: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.reduction = _checked(reduction, "BCEWithLogitsLoss")
        self.pos_weight = pos_weight
        self.name = name

    def forward(self, logit: Tensor, label: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            logit, label, weight=self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class CrossEntropyLoss(Layer):
    """Softmax and cross entropy in one, from logits."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        soft_label: bool = False,
        axis: int = -1,
        use_softmax: bool = True,
        label_smoothing: float = 0.0,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.soft_label = soft_label
        self.axis = axis
        self.use_softmax = use_softmax
        self.label_smoothing = label_smoothing
        self.name = name

    def forward(self, input: Tensor, label: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            label,
            self.weight,
            self.ignore_index,
            self.reduction,
            self.soft_label,
            self.axis,
            self.use_softmax,
            self.label_smoothing,
        )


class CTCLoss(Layer):
    """Connectionist temporal classification of unaligned sequences."""

    def __init__(
        self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__()
        self.blank = blank
        self.reduction = reduction
        self.zero_infinity = zero_infinity

    def forward(
        self,
        log_probs: Tensor,
        labels: Tensor,
        input_lengths: Tensor,
        label_lengths: Tensor,
        norm_by_times: bool = False,
    ) -> Tensor:
        return F.ctc_loss(
            log_probs,
            labels,
            input_lengths,
            label_lengths,
            self.blank,
            self.reduction,
            norm_by_times=norm_by_times,
            zero_infinity=self.zero_infinity,
        )


class HSigmoidLoss(Layer):
    """Hierarchical sigmoid: a softmax over many classes in logarithmic time."""

    def __init__(
        self,
        feature_size: int,
        num_classes: int,
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        is_custom: bool = False,
        is_sparse: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if num_classes < 2 and not is_custom:
            raise InvalidArgument(
                f"[HSigmoidLoss] num_classes must be at least 2. Received: {num_classes}"
            )
        self._feature_size = feature_size
        self._num_classes = num_classes
        self._is_custom = is_custom
        self._is_sparse = is_sparse
        inner_nodes = num_classes if is_custom else num_classes - 1
        self.weight = self.create_parameter([inner_nodes, feature_size], weight_attr)
        self.bias = self.create_parameter([inner_nodes, 1], bias_attr, is_bias=True)

    def forward(
        self,
        input: Tensor,
        label: Tensor,
        path_table: Tensor | None = None,
        path_code: Tensor | None = None,
    ) -> Tensor:
        return F.hsigmoid_loss(
            input,
            label,
            self._num_classes,
            self.weight,
            self.bias,
            path_table=path_table,
            path_code=path_code,
            is_sparse=self._is_sparse,
        )


__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HSigmoidLoss",
    "HingeEmbeddingLoss",
    "KLDivLoss",
    "L1Loss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]
