"""paddle.framework.io: saving and loading."""

from bireme.core.tensor import Parameter as EagerParamBase
from bireme.io.serialization import load, save

__all__ = ["EagerParamBase", "load", "save"]
