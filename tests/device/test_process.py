"""The process that imports Bireme: what is left alone, and what `tune_process` does to it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

from bireme.host import heap

ROOT = pathlib.Path(__file__).parents[2]
needs_glibc = pytest.mark.skipif(heap.glibc() is None, reason="needs glibc")

# Everything of a process that a library might change, as plain values. What Bireme needs of the
# standard library and NumPy is imported first: it registers functions of its own.
STATE = """
import atexit, concurrent.futures.thread, ctypes, faulthandler, gc, json, locale, logging
import multiprocessing.util, os, pathlib, random, signal, sys, threading, warnings
import ml_dtypes, numpy as np

told = []  # by whom functions for forks were registered
register = os.register_at_fork
def registering(**functions):
    told.append(sys._getframe(1).f_globals["__name__"])
    register(**functions)
os.register_at_fork = registering

def files():
    folders = [os.environ["HOME"], os.environ["XDG_CACHE_HOME"], os.environ["TMPDIR"], os.getcwd()]
    return sorted(str(p) for f in folders for p in pathlib.Path(f).rglob("*"))

def state():
    return {
        "excepthook": id(sys.excepthook),
        "exit": id(sys.exit),
        "displayhook": id(sys.displayhook),
        "unraisablehook": id(sys.unraisablehook),
        "thread excepthook": id(threading.excepthook),
        "streams": [id(sys.stdin), id(sys.stdout), id(sys.stderr)],
        "trace and profile": [sys.gettrace() is None, sys.getprofile() is None],
        "import hooks": [list(map(id, sys.meta_path)), list(map(id, sys.path_hooks)), sys.path],
        "signals": {n: str(signal.getsignal(n)) for n in signal.valid_signals()},
        "wakeup": faulthandler.is_enabled(),
        "environment": dict(os.environ),
        "files": files(),
        "exit functions": atexit._ncallbacks(),
        "for forks": [n for n in told if n.startswith("bireme")],
        "threads": [t.name for t in threading.enumerate()],
        "start method": multiprocessing.get_start_method(allow_none=True),
        "collector": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.callbacks],
        "interpreter": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.flags.dev_mode],
        "warnings": [str(f) for f in warnings.filters],
        "logging": [logging.root.level, len(logging.root.handlers), logging.root.disabled],
        "locale": locale.setlocale(locale.LC_ALL),
        "numpy": [np.geterr(), np.geterrcall(), str(np.get_printoptions())],
        "random numbers": [random.getstate(), str(np.random.get_state())],
        "open files": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
    }

def differences(before, after):
    return {k: (before[k], after[k]) for k in before if before[k] != after[k]}
"""


def run(program: str, folder: pathlib.Path, **environment: str) -> subprocess.CompletedProcess:
    """A fresh process with folders of its own."""
    for name in ("home", "cache", "tmp", "work"):
        (folder / name).mkdir(exist_ok=True)
    own = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu",
        "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(folder / "home"),
        "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder / "tmp"),
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=own | environment,
        cwd=folder / "work",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    "use",
    [
        "import bireme",
        "import bireme; bireme.ones([2]) + 1",
        "import bireme; bireme.nn, bireme.io, bireme.optimizer, bireme.jit, bireme.distributed",
        "import bireme.distributed.checkpoint, bireme.inference, bireme.static, bireme.device",
    ],
)
def test_an_import_leaves_the_process_as_it_was(use, tmp_path):
    program = f"{STATE}\nbefore = state()\n{use}\nprint(json.dumps(differences(before, state())))"
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
    assert done.stderr == ""
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []  # and none at exit


def test_a_first_result_registers_exit_functions_and_nothing_else(tmp_path):
    """It writes the code of the generated functions when it ends."""
    program = (
        f"{STATE}\nimport bireme\nbefore = state()\n(bireme.ones([2]) + 1).numpy()\n"
        "print(json.dumps(differences(before, state())))"
    )
    done = run(program, tmp_path)
    assert json.loads(done.stdout).keys() == {"exit functions"}, done.stderr
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == [
        f"op-functions-{sys.implementation.cache_tag}.bin"
    ]


# Whether large blocks come from fresh pages, and how many heaps there are for several threads.
HEAP = """
import ctypes, sys, threading
libc = ctypes.CDLL(None)
class Figures(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]
libc.mallinfo2.restype = Figures
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]

def mapped():
    before = libc.mallinfo2().hblks
    libc.malloc(64 << 20)
    return libc.mallinfo2().hblks - before

def heaps():
    thread = threading.Thread(target=lambda: [bytearray(100) for _ in range(10)])
    thread.start()
    thread.join()
    file = libc.fopen(b"heaps.xml", b"w")
    libc.malloc_info(0, file)
    libc.fclose(file)
    return open("heaps.xml").read().count("<heap nr=")
"""
COMPUTE = """
from bireme.host import config
config.compile_mode = "always"
x = bireme.ones([512, 1024])
for _ in range(3):
    x = x * 0.5 + 1
    total = float(x.sum())
"""


@needs_glibc
@pytest.mark.skipif(not hasattr(heap.glibc(), "mallinfo2"), reason="needs glibc 2.33")
@pytest.mark.parametrize(
    ("use", "setting", "tuned"),
    [
        ("import bireme", "", False),
        (f"import bireme\n{COMPUTE}", "", False),
        (f"import bireme\n{COMPUTE}", "keep", False),  # says how, and nobody has asked
        ("import bireme; bireme.device.tune_process(heap=False)", "", False),
        ("import bireme; bireme.device.tune_process()", "off", False),
        ("import bireme; bireme.device.tune_process()", "", True),
        ("import bireme; bireme.device.tune_process()", "keep:64", True),
        ("import bireme; bireme.device.tune_process()", "huge:64", True),
        ("from bireme import compat_main, cli\nimport pathlib\n"
         "pathlib.Path('s.py').write_text('')\ncli.main(['run', 's.py'])", "", True),
    ],
)  # fmt: skip
def test_the_allocator_is_changed_where_that_is_asked_for(use, setting, tuned, tmp_path):
    done = run(f"{HEAP}\n{use}\nprint(mapped(), heaps())", tmp_path, BIREME_HEAP=setting)
    assert done.returncode == 0, done.stderr
    mapped, heaps = map(int, done.stdout.split())
    assert (mapped, heaps) == (0, 1) if tuned else (mapped == 1 and heaps > 1)


RESULTS = f"import bireme\nbireme.device.tune_process()\n{COMPUTE}\nprint(total)"


@needs_glibc
@pytest.mark.parametrize("setting", ["", "keep:64", "huge:64", "off"])
def test_results_are_the_same_with_every_heap(setting, tmp_path):
    assert run(RESULTS, tmp_path, BIREME_HEAP=setting).stdout.split() == [str(512 * 1024 * 1.875)]


def test_an_unknown_setting_is_named_and_ignored(tmp_path):
    done = run(RESULTS, tmp_path, BIREME_HEAP="enormous")
    assert "BIREME_HEAP must be 'off', 'keep', 'huge'" in done.stderr
    assert "not 'enormous'" in done.stderr
    assert done.stdout.split() == [str(512 * 1024 * 1.875)]


def test_tuning_twice_is_tuning_once(tmp_path):
    program = """
    import sys
    import bireme
    bireme.device.tune_process()
    hook = sys.excepthook
    bireme.device.tune_process()
    assert sys.excepthook is hook
    bireme.nn.functional.softmax(bireme.ones([2]), 5)
    """
    done = run(program, tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1


def test_a_hook_of_the_programs_own_still_sees_other_errors(tmp_path):
    program = """
    import sys
    sys.excepthook = lambda kind, error, trace: print("mine:", error)
    import bireme
    bireme.device.tune_process()
    raise KeyError("k")
    """
    assert run(program, tmp_path).stdout == "mine: 'k'\n"


def test_tracebacks_are_left_alone_if_not_asked_for(tmp_path):
    program = """
    import sys
    import bireme
    bireme.device.tune_process(tracebacks=False)
    assert sys.excepthook is sys.__excepthook__
    """
    assert run(program, tmp_path).returncode == 0
