"""What an editor learns from the package: signatures are annotated, and `Any` is the exception."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

import bireme

PACKAGE = pathlib.Path(bireme.__file__).parent

# Of the public functions of a namespace, the share in percent that may have a plain `Any` in its
# signature, rounded up from what was measured. Lower is better: the numbers here only fall. What
# is left outside `core` and `ops` are results that nobody can know: of a user's functions, of
# files, of forward passes.
MOST_PLAIN_ANY = {
    "api": 8,
    "autograd": 11,
    "backends": 17,
    "capture": 18,
    "core": 8,
    "host": 19,
    "hub.py": 50,
    "io": 11,
    "jit": 20,
    "kernels": 8,
    "metric": 11,
    "ops": 12,
    "utils": 16,
}
ELSEWHERE = 5

Definition = ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[Definition, bool]]:
    """(function, whether it is a method) of every function that has a public name."""
    for node in body:
        if isinstance(node, Definition):
            if not node.name.startswith("_") or node.name in ("__init__", "__call__"):
                yield node, False
        elif isinstance(node, ast.ClassDef):
            if not node.name.startswith("_"):
                for inner, _ in _definitions(node.body):
                    yield inner, True
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(node.body)


def _parameters(function: Definition) -> list[ast.arg]:
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def _is_op(function: Definition) -> bool:
    """Bodies of ops have the types that their rules say, not annotations."""
    return any(
        ast.unparse(d).partition("(")[0].rpartition(".")[2] in ("op", "public")
        for d in function.decorator_list
    )


def _has_plain_any(function: Definition) -> bool:
    given = [p.annotation for p in _parameters(function)] + [function.returns]
    return any(a is not None and ast.unparse(a) == "Any" for a in given)


def _unannotated(function: Definition, method: bool) -> list[str]:
    own = {"self", "cls"} if method else set()
    starred = [p for p in (function.args.vararg, function.args.kwarg) if p is not None]
    missing = [
        p.arg
        for p in (*_parameters(function), *starred)
        if p.annotation is None and p.arg not in own
    ]
    if function.returns is None and function.name != "__init__":
        missing.append("the result")
    return missing


PUBLIC = [
    (path.relative_to(PACKAGE), function, method)
    for path in sorted(PACKAGE.rglob("*.py"))
    for function, method in _definitions(ast.parse(path.read_text()).body)
]
NAMESPACES = sorted({path.parts[0] for path, _, _ in PUBLIC})


def test_public_functions_are_annotated() -> None:
    wrong = [
        f"{path}:{function.lineno} {function.name}: {', '.join(missing)}"
        for path, function, method in PUBLIC
        if not _is_op(function) and (missing := _unannotated(function, method))
    ]
    assert not wrong, "annotate these:\n" + "\n".join(wrong)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_few_public_functions_have_a_plain_any(namespace: str) -> None:
    mine = [(path, f) for path, f, _ in PUBLIC if path.parts[0] == namespace]
    plain = [f"{path}:{f.lineno} {f.name}" for path, f in mine if _has_plain_any(f)]
    most = MOST_PLAIN_ANY.get(namespace, ELSEWHERE)
    share = 100 * len(plain) / len(mine)
    assert share <= most, (
        f"{len(plain)} of {len(mine)} public functions of {namespace} have a plain Any; at most "
        f"{most} % may. Say what they take:\n" + "\n".join(plain)
    )


# Of the functions and methods in the generated stubs, which are what editors read: the share in
# percent with a plain `Any`. Private methods are not counted, operators are.
STUBS = {"__init__.pyi": 5, "core/tensor.pyi": 14, "nn/functional/__init__.pyi": 10}


@pytest.mark.parametrize("stub", STUBS)
def test_few_functions_of_the_stubs_have_a_plain_any(stub: str) -> None:
    functions = re.findall(r"^ *def (?!_[a-z])(\w+)(\(.*)", (PACKAGE / stub).read_text(), re.M)
    plain = [name for name, rest in functions if re.search(r"(:|->) Any\b(?!\[)", rest)]
    share = 100 * len(plain) / len(functions)
    assert share <= STUBS[stub], f"{share:.1f} % have a plain Any: {plain}"
