"""ONNX models: graphs written as them, and layers made from them."""

from bireme.convert.onnx.exporter import UnsupportedOps, to_onnx
from bireme.convert.onnx.reader import OnnxError

__all__ = ["OnnxError", "UnsupportedOps", "to_onnx"]
