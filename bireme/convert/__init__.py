"""Reading and writing other frameworks' models.

`load` finds what a file is from its content: a model of PyTorch (`.pt2`), ONNX, TFLite, Keras,
Caffe or Paddle.
"""

from bireme.convert.loading import load

__all__ = ["load"]
