"""Losses over very many classes and over unaligned sequences."""

from __future__ import annotations

from collections.abc import Sequence

import bireme
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.layer.layer import Layer


class RNNTLoss(Layer):
    """The loss of a transducer; see `paddle.nn.functional.rnnt_loss`."""

    def __init__(
        self,
        blank: int = 0,
        fastemit_lambda: float = 0.001,
        reduction: str = "mean",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self.blank = blank
        self.fastemit_lambda = fastemit_lambda
        self.reduction = reduction

    def forward(
        self, input: Tensor, label: Tensor, input_lengths: Tensor, label_lengths: Tensor
    ) -> Tensor:
        return F.rnnt_loss(
            input,
            label,
            input_lengths,
            label_lengths,
            self.blank,
            self.fastemit_lambda,
            self.reduction,
        )


class AdaptiveLogSoftmaxWithLoss(Layer):
    """A softmax that spends less on rare classes.

    Classes are sorted by frequency and cut at `cutoffs` into a head and clusters; each cluster's
    scores come from a projection `div_value` times narrower than the one before.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        weight_attr: ParamAttrLike | None = None,
        bias_attr: ParamAttrLike | None = None,
        div_value: float = 4.0,
        head_bias: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__()
        cuts = list(cutoffs)
        whole = all(int(c) == c for c in cuts)
        if (
            not cuts
            or not whole
            or cuts != sorted(set(cuts))
            or not 0 < cuts[0] <= cuts[-1] < n_classes
        ):
            raise InvalidArgument(
                "[AdaptiveLogSoftmaxWithLoss] cutoffs must be increasing integers from 1 to "
                f"n_classes - 1 = {n_classes - 1}. Received: {cutoffs}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cuts, n_classes]
        self.div_value = div_value
        self.is_head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head_weight = self.create_parameter([in_features, self.head_size], weight_attr)
        self.head_bias = None
        if head_bias:
            self.head_bias = self.create_parameter([self.head_size], bias_attr, is_bias=True)
        # A plain list, as in Paddle: the tails are not in the state_dict there either.
        self.tail_weights = []
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            width = int(in_features // (div_value ** (i + 1)))
            first = self.create_parameter([in_features, width], weight_attr)
            self.tail_weights.append(
                [first, self.create_parameter([width, high - low], weight_attr)]
            )

    def forward(self, input: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        return F.adaptive_log_softmax_with_loss(
            input, label, self.head_weight, self.tail_weights, self.cutoffs, self.head_bias
        )

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes, [batch, n_classes]."""
        head = F.log_softmax(F.linear(input, self.head_weight, self.head_bias), axis=1)
        parts = [head[:, : self.shortlist_size]]
        for i, (first, second) in enumerate(self.tail_weights):
            tail = F.log_softmax(F.linear(F.linear(input, first), second), axis=1)
            parts.append(tail + bireme.unsqueeze(head[:, self.shortlist_size + i], 1))
        return bireme.concat(parts, axis=1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class; a cluster is looked into where it wins as a whole."""
        head = bireme.argmax(F.linear(input, self.head_weight, self.head_bias), axis=1)
        full = bireme.argmax(self.log_prob(input), axis=1)
        return bireme.where(head < self.shortlist_size, head, full)
