"""paddle.special: functions of `paddle` where programs for PyTorch look for them."""

from bireme import expm1, logsumexp, softmax

__all__ = ["expm1", "logsumexp", "softmax"]
