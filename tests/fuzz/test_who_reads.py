"""Who may open what others wrote: readers that run code, or believe lengths, are named here."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import bireme

PACKAGE = pathlib.Path(bireme.__file__).parent

# (file, name): why it is no stranger's bytes that are read there.
ALLOWED = {
    ("host/code_cache.py", "marshal.loads"): "code that this user's own process wrote",
    ("core/op_codegen.py", "exec"): "source that the op table makes",
    ("compat_main.py", "exec"): "the program that the user runs",
    ("compat_main.py", "runpy.run_path"): "the program that the user runs",
    ("compat_main.py", "runpy.run_module"): "the program that the user runs",
    ("distributed/launch/rank.py", "exec"): "the program that the user launches",
    ("distributed/spawn.py", "pickle.loads"): "from the process that started this one",
    ("io/failures.py", "pickle.loads"): "an exception of a worker of this loader's",
    ("io/by_value.py", "marshal.loads"): "functions of the process that started this one",
    ("distributed/rpc/agent.py", "pickle.loads"): "processes of the job, which know its secret",
    ("distributed/communication/objects.py", "pickle.loads"): "processes of the job",
    ("distributed/fleet/meta_parallel/pipeline.py", "pickle.loads"): "processes of the job",
    ("io/worker.py", "pickle.loads"): "between a loader and the workers that it started",
}
_NAMES = {"eval", "exec"}
_MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "torch",
    "yaml", "pandas", "runpy", "code", "jsonpickle",
}  # fmt: skip
_READS = {
    "load", "loads", "Unpickler", "open", "read_pickle", "unsafe_load", "full_load", "load_all",
    "run_path", "run_module", "_Unpickler",
}  # fmt: skip
_NUMPY = {"load", "loadtxt", "genfromtxt", "fromfile", "memmap"}  # guarded ones are in io/foreign
_OTHERS = {"loadmat", "literal_eval"}
_NUMPY_ALLOWED = {
    ("io/readers.py", "memmap"): "of a size that was checked against the file's",
    ("distributed/checkpoint/files.py", "memmap"): "of a size that was checked against the file's",
    ("convert/onnx/reader.py", "memmap"): "bytes, of the file's own size",
}


def _calls(path: pathlib.Path) -> Iterator[tuple[str, int]]:
    """What of the above a file uses, by its full name, however it was imported."""
    tree = ast.parse(path.read_text())
    modules: dict[str, str] = {}  # local name -> module
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                modules[a.asname or a.name.partition(".")[0]] = a.name
        elif isinstance(node, ast.ImportFrom):
            top = (node.module or "").partition(".")[0]
            for a in node.names:
                if top in _MODULES and a.name in _READS:
                    yield f"{top}.{a.name}", node.lineno
                if top == "numpy" and a.name in _NUMPY:
                    yield a.name, node.lineno
                if a.name in _OTHERS:
                    yield a.name, node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in _NAMES and isinstance(node.ctx, ast.Load):
            yield node.id, node.lineno
        if not isinstance(node, ast.Attribute):
            continue
        base = modules.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if base in _MODULES and node.attr in _READS:
            yield f"{base}.{node.attr}", node.lineno
        if base == "numpy" and node.attr in _NUMPY:
            yield node.attr, node.lineno
        if node.attr in _OTHERS:
            yield node.attr, node.lineno


def test_only_the_guarded_reader_reads_pickles() -> None:
    wrong, met = [], set()
    for path in sorted(PACKAGE.rglob("*.py")):
        shown = path.relative_to(PACKAGE).as_posix()
        for name, line in _calls(path):
            if (shown, name) in ALLOWED or (shown, name) in _NUMPY_ALLOWED:
                met.add((shown, name))
            else:
                wrong.append(f"{shown}:{line}: {name}")
    assert not wrong, "\n".join(wrong)
    unused = {*ALLOWED, *_NUMPY_ALLOWED} - met
    assert not unused, f"no longer there: {sorted(unused)}"


def test_the_search_finds_them(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "reader.py"
    for source, name in {
        "import pickle\nx = pickle.loads(b'')": "pickle.loads",
        "import pickle as p\nclass R(p.Unpickler): pass": "pickle.Unpickler",
        "from pickle import load": "pickle.load",
        "import numpy as np\nnp.load('f', allow_pickle=True)": "load",
        "import torch\ntorch.load('f')": "torch.load",
        "eval('1')": "eval",
        "import scipy.io\nscipy.io.loadmat('f')": "loadmat",
        "from scipy.io import loadmat": "loadmat",
        "import yaml\nyaml.load('')": "yaml.load",
    }.items():
        path.write_text(source)
        assert [found for found, _ in _calls(path)] == [name], source
