"""Graphs as ONNX models."""

from bireme.convert.onnx.exporter import UnsupportedOps, to_onnx

__all__ = ["UnsupportedOps", "to_onnx"]
