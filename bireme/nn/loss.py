"""paddle.nn.loss: the losses' older address."""

from bireme.nn.layer.loss import *  # noqa: F403
from bireme.nn.layer.loss import __all__ as __all__
