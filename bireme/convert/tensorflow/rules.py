"""The rules of TensorFlow's ops.

@rule("LeakyRelu")
def leaky_relu(n, x):
    return F.leaky_relu(x, n.attr("alpha", 0.2))

Where TFLite has the same op, its rule is the one.
"""

from __future__ import annotations

from importlib import import_module

from bireme.convert.program import Rules

rule = Rules("TensorFlow", "bireme.convert.tensorflow")

for _family in (
    "elementwise",
    "products",
    "windows",
    "shapes",
    "picking",
    "boxes",
    "lists",
    "control",
):
    import_module(f"bireme.convert.tensorflow.{_family}")
