"""paddle.nn.layer.layers: Layer and what comes with it, under Paddle's address."""

from bireme.capture.recorder import is_capturing as in_declarative_mode
from bireme.core.tensor import Parameter
from bireme.nn.layer.layer import Layer
from bireme.nn.layer.registry import HookRemover as HookRemoveHelper

__all__ = ["HookRemoveHelper", "Layer", "Parameter", "in_declarative_mode"]
