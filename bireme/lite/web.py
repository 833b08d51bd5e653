"""`bireme export MODEL --web OUT`: a folder with a model, its runtime and a page for it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from bireme.core.errors import InvalidArgument
from bireme.lite.building import sources
from bireme.lite.errors import LiteUnavailable
from bireme.lite.exporting import export

if TYPE_CHECKING:
    from bireme.nn.layer.layer import Layer

MODULE = "bireme.wasm"
_FILES = ("bireme.mjs", "worker.mjs", "page.mjs", "page.css", "index.html")
_FLAGS = (
    *("-std=c++17", "-O2", "-msimd128", "-fno-exceptions", "-fno-rtti", "-fno-math-errno", "-w"),
    *("-fvisibility=hidden", "-sSTANDALONE_WASM", "--no-entry", "-sALLOW_MEMORY_GROWTH"),
)
_FUNCTIONS = (
    "open_memory", "close", "error", "input_count", "output_count", "input", "output", "resize",
    "run", "output_data", "memory",
)  # fmt: skip
_TIMEOUT = 900


def export_web(
    model: str | PathLike[str] | Layer | Callable[..., object],
    folder: str | PathLike[str],
    input_spec: Sequence[object] | None = None,
    weights: str = "float32",
) -> str:
    """Write a folder that any web server can serve, also offline; returns its name.

    Its page has an input for each of the model's, and computes in the browser: nothing is sent
    anywhere. `bireme.mjs` in it is the module for pages of your own. The other arguments are those
    of `export`.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise InvalidArgument(f"{os.fspath(folder)!r} is a file; give a folder")
    kit, module = _kit(), wasm_module()
    target.mkdir(parents=True, exist_ok=True)
    export(model, target / "model", input_spec, weights)
    for name in _FILES:
        shutil.copyfile(kit / name, target / name)
    shutil.copyfile(module, target / MODULE)
    name = Path(model).stem if isinstance(model, str | os.PathLike) else type(model).__name__
    about = {"name": name, "file": "model.blm"}
    (target / "model.json").write_text(json.dumps(about), encoding="utf-8")
    return os.fspath(folder)


def _kit() -> Path:
    folder = sources()
    if folder is None or not (folder / "web" / "bireme.mjs").is_file():
        raise LiteUnavailable("the files of Bireme Lite's page are not in this package")
    return folder / "web"


def wasm_module() -> Path:
    """The runtime as WebAssembly: that of the package, or built once with Emscripten."""
    from bireme.host import cache_folder

    ready = Path(__file__).parent / "built" / MODULE
    if ready.is_file():
        return ready
    folder, compiler, cache = sources(), shutil.which("em++"), cache_folder.inside("native")
    if folder is None or compiler is None or cache is None:
        raise LiteUnavailable(
            "the runtime as WebAssembly is not in this package, and building it needs Emscripten "
            "(em++, apt-get install emscripten) and a cache folder"
        )
    parts = [p for part in ("src", "ops") for p in sorted((folder / part).glob("*.cc"))]
    parts += [folder / "kernels" / name for name in ("baseline.cc", "find.cc")]
    exported = ",".join(["_malloc", "_free", *[f"_bl_{name}" for name in _FUNCTIONS]])
    command = [compiler, *_FLAGS, f"-sEXPORTED_FUNCTIONS={exported}", *map(str, parts)]
    digest = hashlib.sha256(repr(command).encode())
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".cc", ".h", ".inc", ".def"):
            digest.update(path.read_bytes())
    target = Path(cache) / f"bireme_lite_{digest.hexdigest()[:20]}.wasm"
    if not target.is_file():
        with tempfile.TemporaryDirectory(dir=cache) as work:
            made = f"{work}/{MODULE}"
            done = subprocess.run(
                [*command, "-o", made], capture_output=True, text=True, timeout=_TIMEOUT
            )
            if done.returncode:
                raise LiteUnavailable(f"{compiler} failed: {done.stderr.strip()[:600]}")
            os.replace(made, target)
    return target
