"""Paddle's own model files: `.pdmodel` and `__model__` (ProgramDesc), `inference.json` (PIR)."""

from bireme.convert.paddle.model import Files, PaddleModel, find_files, load_model, read_model
from bireme.convert.paddle.program import ModelFileError, Program, UnsupportedModel

__all__ = [
    "Files",
    "ModelFileError",
    "PaddleModel",
    "Program",
    "UnsupportedModel",
    "find_files",
    "load_model",
    "read_model",
]
