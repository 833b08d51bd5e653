"""Workers of programs whose functions and classes no other process can import."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import os
import pickle
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest

import bireme as paddle
from bireme.io import DataLoader, Dataset, by_value
from bireme.io.worker import Source

CELLS = """
import os.path, threading
import numpy as np
import paddle
from paddle.io import DataLoader, Dataset

SCALE = 3

def scaled(x):
    return x * SCALE

class Base(Dataset):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def __len__(self):
        return self.n

class Numbers(Base):
    shift = 1

    def __init__(self, n):
        super().__init__(n)

    def __getitem__(self, i):
        return np.float32(scaled(i) + self.shift + len(os.path.sep))

class Pair:
    def __init__(self, samples):
        self.samples = np.stack(samples)

def pair(samples):
    return Pair(samples)

class Custom(Exception):
    def __init__(self, a, b):
        super().__init__(a)

class Bad(Numbers):
    def __getitem__(self, i):
        raise Custom(1, 2)

lock = threading.Lock()

seen = [b.numpy().tolist() for b in DataLoader(Numbers(4), batch_size=2, num_workers=2)]
assert seen == [[2, 5], [8, 11]], seen
SCALE = 5  # a later cell
seen = [b.tolist() for b in DataLoader(Numbers(2), num_workers=1, collate_fn=lambda s: s[0] + 0.5)]
assert seen == [2.5, 7.5], seen
made = list(DataLoader(Numbers(2), batch_size=2, num_workers=1, collate_fn=pair))
assert type(made[0]) is Pair and made[0].samples.tolist() == [2, 7]
try:
    list(DataLoader(Bad(2), num_workers=1))
except Custom as e:
    assert "__getitem__" in str(e)
else:
    raise AssertionError

def locked(samples):
    with lock:
        return samples

try:
    list(DataLoader(Numbers(2), num_workers=1, collate_fn=locked))
except TypeError as e:
    assert "collate_fn" in str(e) and "lock" in str(e), e
else:
    raise AssertionError
print("all", "cells ran")
"""
AS_BIREME = CELLS.replace("import paddle\n", "import bireme as paddle\n").replace(
    "from paddle.io", "from bireme.io"
)
NOTEBOOK = """
import sys, types
main = types.ModuleType("__main__")  # as IPython makes it: no file, no spec
sys.modules["__main__"] = main
exec(compile(CELLS, "<ipython-input-1>", "exec"), main.__dict__)
"""
EXECUTED = """
if __name__ == "__main__":
    exec(compile(CELLS, "<string>", "exec"), {"__name__": "__main__"})
"""
CONSOLE = """
import code
if __name__ == "__main__":
    console = code.InteractiveConsole()
    console.runcode(compile(CELLS, "<console>", "exec"))
"""


def _run(*arguments: str, text: str | None = None, folder: Path | None = None) -> str:
    paths = [os.path.dirname(os.path.dirname(paddle.__file__)), str(folder or "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, *arguments],
        input=text,
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_a_program_from_the_standard_input():
    assert "all cells ran" in _run(text=AS_BIREME)


def test_a_program_on_the_command_line():
    assert "all cells ran" in _run("-c", AS_BIREME)


@pytest.mark.parametrize("how", [NOTEBOOK, EXECUTED, CONSOLE], ids=["ipython", "exec", "console"])
def test_cells(tmp_path, how):
    script = tmp_path / "kernel.py"
    script.write_text(f"CELLS = {AS_BIREME!r}\n{how}")
    assert "all cells ran" in _run(str(script))


def test_what_is_defined_after_a_script_ran(tmp_path):
    """`python -i script.py`: what is typed takes the place of what the file says."""
    script = tmp_path / "script.py"
    script.write_text("def double(samples):\n    return 'of the file'\nclass Other:\n    pass\n")
    typed = (
        "import numpy as np\n"
        "from bireme.io import DataLoader\n"
        "def double(samples): return np.array(samples) * 2\n"
        "\n"
        "for b in DataLoader(range(3), batch_size=3, num_workers=1, collate_fn=double): print(b)\n"
        "\n"
    )
    assert "[0, 2, 4]" in _run("-i", str(script), text=typed)


def test_what_a_main_guard_hides_from_workers(tmp_path):
    script = tmp_path / "script.py"
    body = "".join(f"    {line}\n" for line in AS_BIREME.splitlines())
    script.write_text(f"if __name__ == '__main__':\n{body}")
    assert "all cells ran" in _run(str(script))


@pytest.mark.parametrize("how", ["script", "module", "bireme run", "bireme run -m"])
def test_a_program_without_a_main_guard(tmp_path, how):
    """Its processes do not run it again, so it prints its lines once."""
    started = "print('started', flush=True)\n"
    (tmp_path / "program.py").write_text(started + (CELLS if "bireme" in how else AS_BIREME))
    command = {
        "script": [str(tmp_path / "program.py")],
        "module": ["-m", "program"],
        "bireme run": ["-m", "bireme", "run", str(tmp_path / "program.py")],
        "bireme run -m": ["-m", "bireme", "run", "-m", "program"],
    }
    said = _run(*command[how], folder=tmp_path)
    assert "all cells ran" in said
    assert said.count("started") == 1


def test_a_script_that_is_run_as_paddle(tmp_path):
    script = tmp_path / "script.py"
    body = "".join(f"    {line}\n" for line in CELLS.splitlines())
    script.write_text(
        f"def main():\n    global SCALE\n{body}\nif __name__ == '__main__':\n    main()"
    )
    assert "all cells ran" in _run("-m", "bireme.cli", "run", str(script))


# ------------------------------------------------------------------ kinds of things, in one process


def _again(obj):
    """An object as another process reads it: one that has not the originals."""
    data = by_value.pickled(obj)
    return pickle.loads(data)


def test_closures_defaults_and_recursion():
    hidden = [1, 2]

    def even(n, *, step=1):
        return True if n == 0 else odd(n - step)

    def odd(n):
        return False if n == 0 else even(n - 1)

    even.mark = hidden
    got = _again(even)
    assert got is not even
    assert got(10)
    assert not got(7)
    assert got.mark == hidden
    assert got.__kwdefaults__ == {"step": 1}
    assert got.__qualname__ == even.__qualname__


def test_kinds_of_classes():
    class Colour(enum.Enum):
        RED = 1
        BLUE = "b"

        def shown(self):
            return self.name.lower()

    @dataclasses.dataclass(frozen=True)
    class Point:
        x: int
        y: list = dataclasses.field(default_factory=list)

    class Slots:
        __slots__ = ("a", "b")

        def __init__(self):
            self.a = 1

    class Abstract(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Square(Abstract):
        side = 3

        def area(self):
            return self.side**2

        @property
        def double(self):
            return 2 * self.area()

        @classmethod
        def named(cls):
            return cls.__name__

        @staticmethod
        def plus(a):
            return a + 1

        @functools.cached_property
        def once(self):
            return [self.side]

        @functools.lru_cache(maxsize=3)  # noqa: B019
        def kept(self, n):
            return n + self.side

    Row = collections.namedtuple("Row", "a b")
    colour, point, slots, square, row = _again(
        (Colour.BLUE, Point(2), Slots(), Square(), Row(1, 2))
    )
    assert type(colour) is not Colour
    assert (colour.value, colour.shown(), type(colour).RED.name) == ("b", "blue", "RED")
    assert point == type(point)(2)
    assert [f.name for f in dataclasses.fields(point)] == ["x", "y"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 1
    assert slots.a == 1
    assert not hasattr(slots, "__dict__")
    assert (square.area(), square.double, square.named(), square.plus(1)) == (9, 18, "Square", 2)
    assert square.once is square.once
    assert square.kept(1) == 4
    assert (row.a, row) == (1, (1, 2))
    with pytest.raises(TypeError, match="abstract"):
        type(square).__mro__[1]()


def test_importable_things_go_by_name():
    for thing in (paddle.add, paddle.nn.functional.relu, len, Dataset, np, os.path, Source.fetch):
        assert _again(thing) is thing
    assert b"marshal" not in by_value.pickled(_again)


def test_what_was_sent_comes_back_as_itself():
    class Local:
        pass

    copy = _again(Local)
    assert copy is not Local
    assert _again(copy) is Local
    assert type(_again(copy())) is Local


def test_what_cannot_be_sent():
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        by_value.pickled(lambda: lock)
    with pytest.raises(pickle.PicklingError, match="made_up"):
        by_value.pickled(types.ModuleType("made_up"))


@pytest.mark.parametrize("what", ["lambda", "local class", "operator"])
def test_loaders_take_what_cannot_be_imported(what):
    class Local(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            return np.float32(i)

    options = {
        "lambda": {"dataset": range(4), "collate_fn": lambda b: np.float32(sum(b))},
        "local class": {"dataset": Local(), "collate_fn": None},
        "operator": {"dataset": Local(), "collate_fn": paddle.stack},
    }[what]
    if what == "operator":
        options["dataset"] = [paddle.ones([1]) * i for i in range(4)]
    got = [np.asarray(b).sum() for b in DataLoader(batch_size=2, num_workers=2, **options)]
    assert got == [1, 5]
