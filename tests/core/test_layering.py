"""The rules of the house: who may import whom, what `import bireme` costs, how files look."""

from __future__ import annotations

import ast
import inspect
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

import bireme
from bireme.api import public

PACKAGE = pathlib.Path(bireme.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 700

# What the lower floors may import. Backends run what core records, so those two know each other.
MAY_IMPORT = {
    "host": set[str](),
    "core": {"host", "backends"},
    "backends": {"host", "core", "kernels"},
    "api": {"host", "core"},
    "capture": {"host", "core", "backends"},
    "kernels": {"host", "core", "capture", "ops"},
    "ops": {"host", "core", "api", "capture"},
    "autograd": {"core", "ops"},
    "passes": {"core", "backends", "capture", "ops"},
    "regularizer": {"api", "core", "ops"},
    "nn": {"host", "core", "api", "capture", "ops", "autograd", "passes", "regularizer"},
    "static": {
        "amp",
        "api",
        "autograd",
        "capture",
        "convert",
        "core",
        "device",
        "host",
        "io",
        "jit",
        "nn",
        "ops",
        "optimizer",
        "passes",
        "regularizer",
        "vision",
    },
    "io": {"host", "core", "api", "ops"},
    "device": {"host", "backends", "core", "api", "ops"},
    "optimizer": {"host", "core", "api", "ops", "autograd", "nn", "regularizer"},
}
# Tensor(data) and a zero gradient are made by ops, asked for when they are needed.
KNOWN_EXCEPTIONS = {("core/tensor.py", "ops")}
SLOW = {"jax", "jaxlib", "matplotlib", "scipy"}


def _imports(path: pathlib.Path) -> Iterator[tuple[str, bool]]:
    """(module, whether importing the file imports it) of each import statement."""
    tree = ast.parse(path.read_text())
    at_once = {id(n) for n in _executed(tree)}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            module = node.module or ""
            names = [f"{module}.{a.name}" for a in node.names]
        for name in names:
            yield name, id(node) in at_once


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes outside functions and `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _executed(node)


def _floor(path: pathlib.Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_dependencies_point_downwards() -> None:
    wrong = []
    for path in FILES:
        allowed = MAY_IMPORT.get(_floor(path))
        if allowed is None:
            continue
        shown = path.relative_to(PACKAGE).as_posix()
        for name, _ in _imports(path):
            top, _, rest = name.partition(".")
            other = rest.partition(".")[0] or "ops"  # `import bireme` is for its functions
            if top != "bireme" or other in (*allowed, _floor(path)):
                continue
            if (shown, other) not in KNOWN_EXCEPTIONS:
                wrong.append(f"{shown} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_file_imports_something_slow_at_once() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in FILES
        for name, at_once in _imports(path)
        if at_once and name.split(".")[0] in SLOW
    ]
    assert not wrong, "\n".join(wrong)


def test_jax_is_imported_in_one_file() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in FILES
        for name, _ in _imports(path)
        if name.split(".")[0] == "jax" and path.name != "jax_door.py"
    ]
    assert not wrong, "use jax_door.jax():\n" + "\n".join(wrong)


def test_importing_bireme_imports_nothing_slow() -> None:
    program = (
        "import sys, bireme\n"
        "bireme.nn, bireme.optimizer, bireme.io, bireme.jit, bireme.amp, bireme.vision\n"
        f"print(sorted(set(sys.modules) & {SLOW!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stdout + done.stderr


def test_files_are_small() -> None:
    long = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in FILES
        if (lines := path.read_text().count("\n")) > MAX_LINES
    }
    assert not long, f"split these: {long}"


# Names that Paddle gives: paddle.static.Program and Scope, paddle.inference.Tensor.
PADDLES_NAMES = {
    "Program": {"core/program.py", "static/program.py"},
    "Scope": {"static/scope.py"},
    "Tensor": {"core/tensor.py", "inference/handle.py"},
}
ONE_MEANING = ("host", "core", "api", "capture", "jit", "static", "inference")


def _classes(paths: Iterable[pathlib.Path]) -> dict[str, list[str]]:
    """The files, below the package, that define each class."""
    found: dict[str, list[str]] = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    return found


def test_a_class_name_has_one_meaning() -> None:
    """In the engine and in the packages that capture, save and serve its graphs."""
    classes = _classes(p for p in FILES if _floor(p) in ONE_MEANING)
    assert len(classes) > 100
    twice = {name: files for name, files in classes.items() if len(files) > 1}
    assert {n: f for n, f in twice.items() if set(f) != PADDLES_NAMES.get(n)} == {}
    assert all(name in classes for name in PADDLES_NAMES)


def test_the_core_can_be_read_in_an_evening() -> None:
    lines = {p.name: p.read_text().count("\n") for p in FILES if _floor(p) == "core"}
    assert sum(lines.values()) <= 7000, sorted(lines.items(), key=lambda item: -item[1])


def test_every_public_function_says_what_it_does() -> None:
    silent = [
        f"{space}.{name}"
        for space, records in public.RECORDS.items()
        for name, record in records.items()
        if not inspect.getdoc(record.function)
    ]
    assert not silent, f"no docstring: {silent}"


def test_every_listed_name_exists() -> None:
    missing = [name for name in bireme.__all__ if not hasattr(bireme, name)]
    assert not missing
    assert len(set(bireme.__all__)) == len(bireme.__all__)
    assert set(bireme.__all__) <= set(dir(bireme))


def test_star_import() -> None:
    scope: dict[str, Any] = {}
    exec("from bireme import *\nfrom bireme.nn.functional import *", scope)
    assert scope["nn"] is bireme.nn
    assert scope["concat"] is bireme.concat
    assert scope["softmax"] is bireme.nn.functional.softmax
    assert "Any" not in scope


def test_missing_names_are_missing() -> None:
    assert not hasattr(bireme, "no_such_namespace")
    with pytest.raises(
        AttributeError, match=r"bireme\.concatt is not in Bireme; nearest: bireme\.concat"
    ):
        bireme.concatt  # type: ignore[attr-defined]


FRAME_READERS = {"_getframe", "_current_frames", "currentframe", "get_referrers", "get_referents"}


def test_the_callers_frames_are_read_behind_one_door() -> None:
    """What a call means does not depend on who else holds an object or whose frames are below."""
    found = [
        f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno} {node.attr}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and (node.attr in FRAME_READERS or ast.unparse(node) in ("inspect.stack", "inspect.trace"))
    ]
    assert {place.split(":")[0] for place in found} <= {"core/errors.py"}, found


# Uses of `fmt: skip` in the package: tables whose columns carry meaning. The number only falls.
MOST_UNFORMATTED = 243


def test_the_formatter_lays_out_all_but_tables() -> None:
    skips = {p: n for p in FILES if (n := p.read_text().count("# fmt: skip"))}
    most = sorted(skips.items(), key=lambda item: -item[1])[:9]
    assert sum(skips.values()) <= MOST_UNFORMATTED, [
        f"{path.relative_to(PACKAGE).as_posix()}: {n}" for path, n in most
    ]
