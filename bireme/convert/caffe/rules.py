"""The rules of Caffe's layers, by kind."""

from __future__ import annotations

from importlib import import_module

from bireme.convert.program import Rules

rule = Rules("Caffe", "bireme.convert.caffe")

for _family in ("layers", "detection"):
    import_module(f"bireme.convert.caffe.{_family}")
