"""paddle.metric: how good a model is, accumulated over batches on the host."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme
from bireme.api.hints import explain_constructors as _explain_constructors
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor, constant


def _as_numpy(value: Any, what: str) -> np.ndarray:
    if isinstance(value, Tensor):
        return value.numpy()
    if not isinstance(value, np.ndarray | np.generic):
        raise InvalidArgument(
            f"[metric] {what} must be a Tensor or a NumPy array. Received: {type(value).__name__}"
        )
    return np.asarray(value)


class Metric(abc.ABC):
    """Base of metrics: `compute` runs with the model, `update` collects, `accumulate` sums up."""

    def __init__(self) -> None:
        self._name: Any = None

    @abc.abstractmethod
    def reset(self) -> None:
        """Forget what was collected."""

    @abc.abstractmethod
    def update(self, *args: Any) -> Any:
        """Take the results of one batch."""

    @abc.abstractmethod
    def accumulate(self) -> Any:
        """The metric over all batches so far."""

    @abc.abstractmethod
    def name(self) -> str | list[str]:
        """The metric's name or names."""

    def compute(self, *args: Any) -> Any:
        """What of a batch `update` needs; the arguments themselves by default."""
        return args


class Accuracy(Metric):
    """The share of rows whose label is among the k best classes."""

    def __init__(
        self, topk: Sequence[int] = (1,), name: str | None = None, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.topk = topk
        self.maxk = max(topk)
        label = name or "acc"
        self._name = [f"{label}_top{k}" for k in topk] if self.maxk != 1 else [label]
        self.reset()

    def compute(self, pred: Tensor, label: Tensor, *args: Any) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A matrix of ones and zeros: is the i-th best class of a row its label."""
        best = bireme.argsort(pred, axis=-1, descending=True)[..., : self.maxk]
        if label.ndim == 1 or (label.ndim == 2 and label.shape[-1] == 1):
            label = bireme.reshape(label, [-1, 1])
        elif label.shape[-1] != 1:
            label = bireme.argmax(label, axis=-1, keepdim=True)
        return (best == label.astype(best.dtype)).astype("float32")

    def update(self, correct: Tensor | np.ndarray, *args: Any) -> float | list[float]:  # pyright: ignore[reportIncompatibleMethodOverride]
        hits = _as_numpy(correct, "correct")
        rows = int(np.prod(hits.shape[:-1]))
        shares = []
        for i, k in enumerate(self.topk):
            found = float(hits[..., :k].sum())
            self.total[i] += found
            self.count[i] += rows
            shares.append(found / rows)
        return shares[0] if len(self.topk) == 1 else shares

    def reset(self) -> None:
        self.total = [0.0] * len(self.topk)
        self.count = [0] * len(self.topk)

    def accumulate(self) -> float | list[float]:
        shares = [t / c if c > 0 else 0.0 for t, c in zip(self.total, self.count, strict=True)]
        return shares[0] if len(self.topk) == 1 else shares

    def name(self) -> list[str]:
        return self._name


class Precision(Metric):
    """Of what was predicted positive, the share that is."""

    def __init__(self, name: str = "precision", *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._name = name
        self.reset()

    def update(self, preds: Tensor | np.ndarray, labels: Tensor | np.ndarray) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        chosen = np.floor(_as_numpy(preds, "preds") + 0.5).astype(np.int32).reshape(-1) == 1
        right = _as_numpy(labels, "labels").reshape(-1) == 1
        self.tp += int(np.sum(chosen & right))
        self.fp += int(np.sum(chosen & ~right))

    def reset(self) -> None:
        self.tp = 0
        self.fp = 0

    def accumulate(self) -> float:
        total = self.tp + self.fp
        return self.tp / total if total else 0.0

    def name(self) -> str:
        return self._name


class Recall(Metric):
    """Of what is positive, the share that was found."""

    def __init__(self, name: str = "recall", *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._name = name
        self.reset()

    def update(self, preds: Tensor | np.ndarray, labels: Tensor | np.ndarray) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        chosen = np.rint(_as_numpy(preds, "preds")).astype(np.int32).reshape(-1) == 1
        right = _as_numpy(labels, "labels").reshape(-1) == 1
        self.tp += int(np.sum(chosen & right))
        self.fn += int(np.sum(~chosen & right))

    def reset(self) -> None:
        self.tp = 0
        self.fn = 0

    def accumulate(self) -> float:
        total = self.tp + self.fn
        return self.tp / total if total else 0.0

    def name(self) -> str:
        return self._name


class Auc(Metric):
    """The area under the ROC curve, from counts in `num_thresholds` bins of probability."""

    def __init__(
        self,
        curve: str = "ROC",
        num_thresholds: int = 4095,
        name: str = "auc",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if curve != "ROC":
            raise InvalidArgument(f"[Auc] curve must be 'ROC'. Received: {curve!r}")
        self._num_thresholds = num_thresholds
        self._name = name
        self.reset()

    def update(self, preds: Tensor | np.ndarray, labels: Tensor | np.ndarray) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        right = _as_numpy(labels, "labels").reshape(-1).astype(bool)
        bins = (_as_numpy(preds, "preds")[:, 1] * self._num_thresholds).astype(np.int64)
        if bins.size and (bins.min() < 0 or bins.max() > self._num_thresholds):
            raise InvalidArgument("[Auc] preds must hold probabilities between 0 and 1")
        size = self._num_thresholds + 1
        self._stat_pos += np.bincount(bins[right], minlength=size)
        self._stat_neg += np.bincount(bins[~right], minlength=size)

    def accumulate(self) -> float:
        # From the highest threshold down: trapezoids between the running totals.
        positive = np.concatenate([[0.0], np.cumsum(self._stat_pos[::-1])])
        negative = np.concatenate([[0.0], np.cumsum(self._stat_neg[::-1])])
        if positive[-1] == 0 or negative[-1] == 0:
            return 0.0
        area = np.sum(np.diff(negative) * (positive[1:] + positive[:-1]) / 2.0)
        return float(area / positive[-1] / negative[-1])

    def reset(self) -> None:
        self._stat_pos = np.zeros(self._num_thresholds + 1)
        self._stat_neg = np.zeros(self._num_thresholds + 1)

    def name(self) -> str:
        return self._name


def accuracy(
    input: Tensor,
    label: Tensor,
    k: int = 1,
    correct: Tensor | None = None,
    total: Tensor | None = None,
    name: str | None = None,
) -> Tensor:
    """The share of rows whose label is among the k best classes, as a tensor.

    `correct` and `total`, if given, receive the counts.
    """
    _, best = bireme.topk(input, k=k)
    hits = (best == bireme.reshape(label, [-1, 1]).astype(best.dtype)).any(axis=-1)
    found = hits.astype("int32").sum()
    rows = input.shape[0]
    if correct is not None:
        correct._value = found.astype("int32")._value
    if total is not None:
        total._value = constant(np.asarray(rows, np.int32))._value
    return found.astype("float32") / float(rows)


__all__ = ["Accuracy", "Auc", "Metric", "Precision", "Recall", "accuracy"]

_explain_constructors(globals()[name] for name in __all__)
