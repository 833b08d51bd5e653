"""`python -m tests.parity.docstrings.running wheel|bireme SEED JOBS RESULTS`: runs programs.

Each runs in a fork of a process that has imported the framework, in an empty folder, so that
none sees what another left behind, and a crash is one example's.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import pickle
import random
import select
import signal
import sys
import tempfile
import types
import warnings
from typing import Any

import numpy as np

LIMIT = 60  # seconds for one example
LARGE = 1_000_000  # elements that are compared
DEPTH = 4


def snapshot(x: Any, paddle: Any, depth: int = 0) -> Any:
    """What of a value is compared: plain data that travels between processes."""
    if isinstance(x, np.generic):
        x = x.item()
    for plain in (str, bool, int, float, complex, bytes):  # and what is derived from them
        if isinstance(x, plain):
            return ("plain", plain(x))
    if x is None:
        return ("plain", x)
    if isinstance(x, paddle.Tensor):
        return _tensor(x)
    if isinstance(x, np.ndarray):
        return ("array", str(x.dtype), x.shape, x if x.size < LARGE and x.dtype != object else None)
    if isinstance(x, list | tuple) and depth < DEPTH:
        kind = "list" if isinstance(x, list) else "tuple"
        return (kind, [snapshot(i, paddle, depth + 1) for i in x[:200]])
    if isinstance(x, dict) and depth < DEPTH:
        items = [(str(k), snapshot(v, paddle, depth + 1)) for k, v in list(x.items())[:200]]
        return ("dict", items)
    if isinstance(x, types.FunctionType | types.ModuleType | type):
        return ("code",)
    return ("object",)


def _tensor(x: Any) -> Any:
    dtype = str(x.dtype).rsplit(".", 1)[-1]
    about = (dtype, tuple(x.shape), bool(x.stop_gradient))
    if x.is_sparse():
        x = x.to_dense()
    try:
        array = np.asarray(x.numpy())
    except Exception:  # a variable of a program, a tensor without contents
        return ("object",)
    if dtype == "bfloat16":
        array = np.asarray(x.astype("float32").numpy())
    return ("tensor", about, array if array.size < LARGE else None)


class Session:
    """One example: what its statements show, print and raise, in order."""

    def __init__(self, paddle: Any):
        self.paddle = paddle
        self.events: list[Any] = []

    def show(self, *values: Any, **how: Any) -> None:
        if how.get("file") not in (None, sys.stdout):
            print(*values, **how)
            return
        for value in values:
            self.events.append(("shown", snapshot(value, self.paddle), str(value)))

    def run(self, source: str, path: str) -> dict[str, Any]:
        main = types.ModuleType("__main__")
        main.__file__ = path
        vars(main)["print"] = self.show
        sys.modules["__main__"] = main
        names = vars(main)
        before = set(names)
        for node in ast.parse(source).body:
            try:
                self._statement(node, path, names)
            except BaseException as e:  # sys.exit, failing asserts: all is part of the record
                kinds = [c.__name__ for c in type(e).__mro__ if c.__module__ == "builtins"]
                self.events.append(("raised", kinds, f"{type(e).__name__}: {e}"[:500]))
        left = {
            name: snapshot(value, self.paddle)
            for name, value in names.items()
            if name not in before and not name.startswith("_")
        }
        return {"events": self.events, "left": left}

    def _statement(self, node: ast.stmt, path: str, names: dict[str, Any]) -> None:
        if isinstance(node, ast.Expr):
            value = eval(compile(ast.Expression(node.value), path, "eval"), names)
            if value is not None:
                self.show(value)
        else:
            exec(compile(ast.Module([node], []), path, "exec"), names)


def child(source: str, seed: int, paddle: Any, pipe: int) -> None:
    """The forked process: runs one example and sends its record."""
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    path = os.path.join(folder, "example.py")
    with open(path, "w") as f:
        f.write(source)
    random.seed(seed)
    np.random.seed(seed)
    plain_seed = paddle.seed
    plain_seed(seed)
    paddle.seed = lambda s: plain_seed(int(s) + seed)
    warnings.simplefilter("ignore")
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        record = Session(paddle).run(source, path)
    with os.fdopen(pipe, "wb") as out:
        pickle.dump(record, out)


def run_one(source: str, seed: int, paddle: Any) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.setsid()
        code = 1
        try:
            child(source, seed, paddle, writing)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    received = b""
    with os.fdopen(reading, "rb") as pipe:
        while select.select([pipe], [], [], LIMIT)[0]:
            if not (part := os.read(pipe.fileno(), 1 << 20)):
                break
            received += part
        else:
            os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what the example started and left behind
    if received and status == 0:
        return pickle.loads(received)
    return {"events": [("crashed", status, "")], "left": {}}


def framework(which: str) -> Any:
    """The module `paddle`, either way."""
    warnings.simplefilter("ignore")
    if which == "bireme":
        import bireme
        from bireme import compat

        compat.install()
        import jax  # noqa: F401  (once for all forks; it starts no threads before its first use)

        bireme.to_tensor(0)
    import paddle

    if which == "wheel":  # docs/differences.md: gradients need no gradient here
        plain = paddle.Tensor.grad
        paddle.Tensor.grad = property(lambda x: _without_history(plain.__get__(x)), plain.__set__)
    return paddle


def _without_history(x: Any) -> Any:
    if x is not None:
        x.stop_gradient = True
    return x


def main(which: str, seed: str, jobs: str, results: str) -> None:
    paddle = framework(which)
    with open(jobs, "rb") as f:
        sources: list[str] = pickle.load(f)
    with open(results, "wb") as out:
        for source in sources:
            pickle.dump(run_one(source, int(seed), paddle), out)
            out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
