"""TorchScript: programs that PyTorch saved as text, in a small part of Python.

`archive` reads a file, `source` its text into functions and classes, and `interpreter` runs them:
statement by statement, over the rules of `aten` for tensors and `builtin` for all other values.
Nothing is handed to Python's own interpreter.
"""
