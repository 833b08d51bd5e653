"""Every public name of the real wheel is here with the same parameters, or a page says why not.

`docs/not-provided.md` is that page: "| `paddle.name` | reason |" for what is left out, and
"| signature of `paddle.name` | reason |" for what is called differently. `public_names.txt` lists
the names; signatures are read from the wheel.
"""

from __future__ import annotations

import fnmatch
import importlib
import inspect
import pathlib
import re
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

import bireme

PAGE = pathlib.Path(bireme.__file__).parents[1] / "docs" / "not-provided.md"
NAMES = pathlib.Path(__file__).with_name("public_names.txt")
ENTRY = re.compile(r"^\| (signature of )?((?:`[\w.*]+`,? ?)+) \| \S")

# Whose signatures are compared, as far as they exist.
MODULES = (
    "paddle", "amp", "amp.debugging", "autograd", "device", "device.cuda", "device.custom_device",
    "distributed", "distributed.fleet", "distributed.fleet.utils", "distributed.passes",
    "distributed.rpc", "distributed.sharding", "fft", "incubate",
    "incubate.autotune", "incubate.nn", "incubate.nn.functional", "inference",
    "io", "jit", "linalg", "metric", "nn", "nn.functional", "nn.initializer", "nn.utils",
    "optimizer", "optimizer.lr", "profiler", "regularizer", "signal", "static", "static.nn",
    "utils", "utils.dlpack", "utils.unique_name",
    "audio", "audio.functional", "audio.features", "callbacks", "distribution", "geometric", "hub",
    "onnx", "quantization", "sparse", "sparse.nn", "sparse.nn.functional", "text", "vision",
    "vision.datasets", "vision.models", "vision.ops", "vision.transforms", "nn.quant",
    "audio.backends", "audio.datasets", "distributed.communication.stream", "distributed.fsdp",
    "distribution.transform", "quantization.observers", "quantization.quanters",
    "utils.cpp_extension", "utils.download", "sysconfig", "incubate.asp", "incubate.autograd",
    "incubate.cc", "incubate.cc.fuse", "incubate.distributed.fleet", "incubate.optimizer",
    "incubate.optimizer.functional",
)  # fmt: skip
CLASSES = ("Tensor", "nn.Layer", "optimizer.Optimizer", "Model", "static.Executor")


def entries() -> tuple[set[str], set[str]]:
    """(names left out, names called differently) as the page lists them."""
    left_out: set[str] = set()
    different: set[str] = set()
    for line in PAGE.read_text().splitlines():
        if found := ENTRY.match(line):
            (different if found[1] else left_out).update(re.findall(r"`([\w.*]+)`", found[2]))
    return left_out, different


def find(root: Any, path: str) -> Any:
    """The object behind a dotted path below `root`; None where there is none."""
    found = root
    for part in path.split("."):
        if isinstance(found, ModuleType) and not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")
            except ImportError:
                return None
        found = getattr(found, part, None)
        if found is None:
            return None
    return found


def public_names() -> list[str]:
    """Every name of `public_names.txt`, dotted."""
    owner, found = "", []
    for line in NAMES.read_text().splitlines():
        if line.startswith("["):
            owner = line[1:-1]
        elif not line.startswith("#"):
            found += [f"{owner}.{name}" for name in line.split()]
    return found


def public(paddle: Any, module: str) -> list[str]:
    """Dotted names below `paddle` of a module's public functions and classes."""
    prefix = "" if module == "paddle" else f"{module}."
    real = paddle if module == "paddle" else find(paddle, module)
    return [prefix + name for name in real.__all__]


def methods(paddle: Any, path: str) -> list[str]:
    return [f"{path}.{n}" for n in dir(find(paddle, path)) if not n.startswith("_")]


def has(path: str) -> bool:
    owner, _, name = path.rpartition(".")
    holder = find(bireme, owner) if owner else bireme
    if isinstance(holder, type):  # not what every class has
        return any(name in vars(base) for base in holder.__mro__[:-1])
    return holder is not None and (hasattr(holder, name) or find(bireme, path) is not None)


def parameters(thing: Any) -> list[inspect.Parameter] | None:
    """A callable's parameters without the receiver; None where Python cannot know them."""
    if isinstance(thing, type):
        thing = thing.__init__
        if not inspect.isfunction(thing):
            return None
        skip = 1
    else:
        skip = 0
    try:
        return list(inspect.signature(thing).parameters.values())[skip:]
    except (TypeError, ValueError):
        return None


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def plain(default: Any) -> Any:
    """A default as both packages would write it."""
    if isinstance(default, list | tuple):
        return [plain(d) for d in default]
    if default is inspect.Parameter.empty or isinstance(default, bool | int | float | str):
        return default
    return str(default).rpartition(".")[2]


def differences(ours: Any, real: Any, method: bool) -> Iterator[str]:
    theirs, own = parameters(real), parameters(ours)
    if theirs is None or own is None:
        return
    if method:  # the receiver has another name here and there
        theirs, own = theirs[1:], own[1:]
    theirs = [p for p in theirs if p.kind not in VARIADIC and not p.name.startswith("_")]
    if not theirs:
        return
    names = [p.name for p in own if p.kind not in VARIADIC]
    rest = iter(names)
    if not all(p.name in rest for p in theirs):
        yield f"({', '.join(names)}) instead of ({', '.join(p.name for p in theirs)})"
        return
    mine = {p.name: p for p in own}
    for p in theirs:
        if p.default is p.empty:
            continue  # an argument that may be left out here is no difference to a caller
        if plain(mine[p.name].default) != plain(p.default):
            yield f"{p.name}={mine[p.name].default!r} instead of {p.default!r}"
        by_keyword = p.kind is p.POSITIONAL_OR_KEYWORD and mine[p.name].kind is p.KEYWORD_ONLY
        if by_keyword and not any(q.kind is p.VAR_POSITIONAL for q in own):
            yield f"{p.name} by keyword only"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel's own
        yield


def test_every_public_name_is_here_or_listed() -> None:
    names = public_names()
    missing = {n for n in names if not has(n.removeprefix("paddle."))}
    patterns, _ = entries()
    listed = {n for p in patterns for n in fnmatch.filter(names, p)}
    assert not missing - listed, f"{sorted(missing - listed)}: add them, or list them with a reason"
    assert not listed - missing, f"{sorted(listed - missing)} exist: take them off {PAGE.name}"
    stale = sorted(p for p in patterns if not fnmatch.filter(names, p))
    assert not stale, f"{stale} are no public names of Paddle's"


def test_every_signature_is_the_same_or_listed(paddle: Any) -> None:
    _, different = entries()
    listed = {n.removeprefix("paddle.") for n in different}
    found = {}
    names = [(n, False) for m in MODULES for n in public(paddle, m)]
    names += [(n, True) for c in CLASSES for n in methods(paddle, c)]
    for name, method in names:
        if not has(name):
            continue
        ours, real = find(bireme, name), find(paddle, name)
        if callable(ours) and callable(real) and (lines := list(differences(ours, real, method))):
            found[name] = "; ".join(lines)
    new = {n: d for n, d in found.items() if n not in listed}
    assert not new, "\n".join(f"{n}: {d}" for n, d in new.items())
    stale = sorted(listed - set(found))
    assert not stale, f"{stale} have Paddle's signature: take them off {PAGE.name}"
