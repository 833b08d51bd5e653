"""Write the book of inner addresses: where Paddle's own modules keep its public objects.

    python scripts/make_addresses.py          # write bireme/addresses.txt (needs the wheel)
    python scripts/make_addresses.py --check  # exit with 1 if it is not current

Programs take `Linear` from `paddle.nn.layer.common` as well as from `paddle.nn`. The wheel is
asked which attributes of its modules are, by identity, a public object, or an inner one that
Bireme has at another of its addresses; numbers, strings and containers are left out, since two
equal ones need not be the same thing.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import sys
import tempfile
import types
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
TABLE = HERE / "bireme" / "addresses.txt"
PUBLIC = HERE / "tests" / "parity" / "public_names.txt"

# Where files of Paddle's are here, if their names have no other address in Paddle.
MOVED = {"paddle.io.dataloader.collate": "bireme.io.collate"}

HEADER = """\
# Written by scripts/make_addresses.py from paddlepaddle {version}; do not edit.
# A line is an inner module of `paddle` and the public objects in it, after the address of their
# owner: `nn.layer.common nn: Linear` says that paddle.nn.layer.common.Linear is paddle.nn.Linear,
# `old=new` that the owner has it as `new`, `:` that the owner is paddle itself, and `->` that
# `name=module` is a module under a second name. `!` marks a public module. Inner objects are
# listed if Bireme has them at one of their addresses.
"""

# Public, but written for programs that know PyTorch, and not in the list of Paddle's public names.
_FOR_TORCH = ("cuda", "functional", "nn.attention", "special", "compat", "compat.nn",
              "compat.nn.functional")  # fmt: skip
# They import packages that the wheel does not ask for, so they are left out everywhere.
_NEED_MORE = (
    "paddle.api_tracer", "paddle.distributed.auto_tuner.recorder", "paddle.distributed.metric",
    "paddle.distributed.launch.utils.etcd_client", "paddle.incubate.autograd.generate_op_map",
)  # fmt: skip
# Variables of loops that ran when a module was imported: it is chance where they stopped.
_LEFT_OVER = ("_func",)
_PLAIN = (
    int, float, complex, str, bytes, tuple, list, dict, set, frozenset, type(None),
    types.ModuleType,
)  # fmt: skip


def public_names() -> Iterator[tuple[str, str]]:
    """(owner, name) of everything in the list of public names."""
    owner = ""
    for line in PUBLIC.read_text().splitlines():
        if line.startswith("["):
            owner = line[1:-1]
        elif not line.startswith("#"):
            yield from ((owner, name) for name in line.split())
    for module in _FOR_TORCH:
        owner = f"paddle.{module}"
        yield from ((owner, name) for name in importlib.import_module(owner).__all__)


def identity(thing: Any) -> Any:
    """The same for the same object; a bound method is another object at each look."""
    if isinstance(thing, types.MethodType):
        return id(thing.__self__), id(thing.__func__)
    return id(thing)


def find(address: str) -> Any:
    """The object of a dotted address; a function hides a module of its name."""
    found: Any = importlib.import_module("paddle")
    path = "paddle"
    for part in address.split(".")[1:]:
        path += f".{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(path)
    return found


def wheel_modules(package: types.ModuleType) -> dict[str, types.ModuleType]:
    """Every module of the wheel that can be imported on this machine."""
    found = {package.__name__: package}
    paths = [package.__name__]
    while paths:
        path = paths.pop()
        for info in pkgutil.iter_modules(found[path].__path__, f"{path}."):
            leaf = info.name.rpartition(".")[2]
            if leaf == "__main__" or leaf.startswith("_cinn") or info.name in _NEED_MORE:
                continue
            # Some cannot be imported after others, and may raise anything.
            with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                found[info.name] = importlib.import_module(info.name)
                if info.ispkg:
                    paths.append(info.name)
    for name, module in sorted(sys.modules.items()):  # C++ modules have no file to be found by
        if name.startswith("paddle.") and isinstance(module, types.ModuleType):
            found.setdefault(name, module)
    return found


class Book:
    """The public objects of the wheel and the modules in which they are found."""

    def __init__(self) -> None:
        self.paddle = importlib.import_module("paddle")
        self.listed = set(public_names())
        self.owners = {owner for owner, _ in self.listed}
        self.public: dict[Any, list[tuple[str, str]]] = defaultdict(list)
        self.kept: list[Any] = []  # an id is free again when its object is gone
        for owner, name in sorted(self.listed):
            with contextlib.suppress(ImportError, AttributeError):
                thing = find(f"{owner}.{name}")
                if not isinstance(thing, _PLAIN):
                    self.kept.append(thing)
                    self.public[identity(thing)].append((owner, name))
        self.modules = wheel_modules(self.paddle)
        self.first: dict[int, str] = {}  # where a module is found by its shortest path
        for name in sorted(self.modules, key=lambda n: (n.count("."), len(n), n)):
            self.first.setdefault(id(self.modules[name]), name)
        self.inner = self.inner_homes()

    def inner_homes(self) -> dict[Any, tuple[str, str]]:
        """Where Bireme has an inner object of Paddle's: (owner, name).

        That is the same module, or, for a class, the package of the module, where it has no
        other of that name."""
        found: dict[Any, tuple[str, str]] = {}
        for name in sorted(self.modules, key=lambda n: (n.count("."), len(n), n)):
            own = MOVED.get(name, "bireme" + name.removeprefix("paddle"))
            file = own if _is_file(own) else own.rpartition(".")[0]
            ours = vars(importlib.import_module(file)) if _is_file(file) else {}
            package = vars(self.modules.get(name.rpartition(".")[0], self.paddle))
            for attribute, value in vars(self.modules[name]).items():
                moved = isinstance(value, type) and package.get(attribute, value) is value
                if attribute in ours and (file == own or moved) and self.is_inner(value):
                    found.setdefault(identity(value), (file, attribute))
        return found

    def is_inner(self, value: Any) -> bool:
        """Whether a value is a class or a function of Paddle's that is not public."""
        home = getattr(value, "__module__", None) or ""
        return callable(value) and home.startswith("paddle") and identity(value) not in self.public

    def lines(self) -> Iterator[str]:
        """The lines of the table, one per module that holds something."""
        for name, module in sorted(self.modules.items()):
            groups = self.groups(name, module)
            if groups or (name in self.owners and name != "paddle"):
                mark = "!" if name in self.owners else ""
                rows = [f"{owner} {' '.join(sorted(names))}" for owner, names in groups.items()]
                yield " ".join([_below(name) + mark, *sorted(rows)])

    def groups(self, name: str, module: types.ModuleType) -> dict[str, list[str]]:
        """What a module holds, by the owner's address."""
        found: dict[str, list[str]] = defaultdict(list)
        for attribute, value in vars(module).items():
            if attribute.startswith("__") or attribute in _LEFT_OVER:
                continue
            if (name, attribute) in self.listed:
                continue
            if isinstance(value, types.ModuleType):
                link = self.first.get(id(value))
                ours = f"{name}.{attribute}"
                if hasattr(module, "__path__") and link not in (None, "paddle", ours):
                    found["->"].append(f"{attribute}={_below(link)}")
            elif not isinstance(value, _PLAIN) and (home := self.home(value, attribute)):
                owner, there = home
                if (_below(owner), there) != (_below(name), attribute):
                    found[f"{_below(owner)}:"].append(
                        attribute if attribute == there else f"{attribute}={there}"
                    )
        return found

    def home(self, value: Any, attribute: str) -> tuple[str, str] | None:
        """The owner of an object and its name there."""
        homes = self.public.get(identity(value))
        if homes is None:
            return self.inner.get(identity(value)) if self.is_inner(value) else None
        return min(homes, key=lambda home: self.rank(home, attribute))

    def rank(self, home: tuple[str, str], attribute: str) -> tuple[Any, ...]:
        """Prefers modules to classes, the same name, and the shortest address."""
        owner, name = home
        return owner not in self.modules, name != attribute, owner.count("."), len(owner), home


def _below(address: str) -> str:
    """An address without the leading `paddle`, or `bireme` for its own."""
    return address.removeprefix("paddle").removeprefix("bireme").removeprefix(".")


def _is_file(module: str) -> bool:
    path = HERE.joinpath(*module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def table() -> str:
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # the wheel's own
        with contextlib.chdir(folder):  # some of its modules open a log when they are imported
            book = Book()
        return HEADER.format(version=book.paddle.__version__) + "\n".join(book.lines()) + "\n"


def main() -> int:
    made = table()
    if "--check" in sys.argv[1:]:
        return int(TABLE.read_text() != made)
    TABLE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
