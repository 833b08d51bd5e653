"""Compiling an extension's sources into a shared library, once per contents and flags.

A library is looked up by its sources, flags and compiler, and taken if every file that was
included when it was built is still the same. Processes take turns by a lock on the folder, and a
library appears under its name only when it is whole.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bireme.core.errors import BiremeError, InvalidArgument
from bireme.host import cache_folder, jax_door
from bireme.kernels.cuda import toolchain
from bireme.kernels.native import builder, compiler

INCLUDE = Path(__file__).parent.parent.parent / "include"
MAIN = INCLUDE / "bireme" / "extension_main.cc"
_CXX = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden")
_NVCC = ("-std=c++17", "-O2", "-Xcompiler", "-fPIC,-fvisibility=hidden")
_CUDA_SUFFIXES = (".cu",)
_TIMEOUT = 1200  # seconds for one source


class BuildError(BiremeError, RuntimeError):
    """The compiler refused an extension's sources."""


@dataclass(frozen=True)
class Plan:
    """What is compiled, and how."""

    name: str
    sources: tuple[str, ...]
    cxx_flags: tuple[str, ...] = ()
    cuda_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    library_paths: tuple[str, ...] = ()
    verbose: bool = field(default=False, compare=False)

    @property
    def uses_cuda(self) -> bool:
        return any(s.endswith(_CUDA_SUFFIXES) for s in self.sources)


def get_build_directory(verbose: bool = False) -> str:
    """The folder that built extensions are kept in: `PADDLE_EXTENSION_DIR`, or one in the cache.
    Where there is no cache, one that is removed at the end of the process."""
    folder = os.environ.get("PADDLE_EXTENSION_DIR")
    if folder is None:
        folder = cache_folder.inside("extensions") or cache_folder.for_this_process()
        _say(verbose, f"PADDLE_EXTENSION_DIR is not set; extensions are built in {folder}")
        return folder
    why = cache_folder.problem(os.path.abspath(folder))
    if why is not None:
        raise BuildError(
            f"[cpp_extension] PADDLE_EXTENSION_DIR={folder!r} cannot be used, because {why}, and "
            "what is built there is run. Name a folder that only you can write to"
        )
    os.makedirs(folder, 0o700, exist_ok=True)
    return folder


def build(plan: Plan, folder: Path) -> Path:
    """The library of `plan` in `folder`, built if it is not there yet."""
    for source in plan.sources:
        if not os.path.isfile(source):
            raise InvalidArgument(f"[cpp_extension] there is no source file {source!r}")
    name = f"{plan.name}_{_key(plan)}.json"
    found = _built(folder / name)
    if found is None:
        folder = _with_room(folder)
        with _locked(folder):
            found = _built(folder / name)
            if found is None:
                return _make(plan, folder, folder / name, _key(plan))
    _say(plan.verbose, f"{plan.name}: {found} is up to date")
    return found


def _with_room(folder: Path) -> Path:
    """`folder`, or one for this process alone where nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        builder.find_room(folder)
    except OSError as e:
        other = Path(cache_folder.for_this_process()) / folder.name
        other.mkdir(exist_ok=True)
        warnings.warn(
            f"[cpp_extension] {str(folder)!r} takes no files ({e.strerror}): what is built is not "
            "kept for other processes",
            RuntimeWarning,
            stacklevel=4,
        )
        return other
    return folder


def _make(plan: Plan, folder: Path, manifest: Path, key: str) -> Path:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build_") as work:
        objects: list[str] = []
        used: set[str] = set()
        for i, source in enumerate(plan.sources):
            target = os.path.join(work, f"{i}_{Path(source).stem}.o")
            listed = target + ".d"
            named = ["-MD", "-MF", listed, "-c", source, "-o", target]
            _run([*_compile_command(plan, source), *named], source, plan)
            used.update(_dependencies(listed))
            objects.append(target)
        objects.append(_way_in(plan, work))
        made = os.path.join(work, "library.so")
        _run([*_link_command(plan), *objects, "-o", made, *_link_inputs(plan)], plan.name, plan)
        seen = {path: _digest(path) for path in sorted(used) if os.path.exists(path)}
        seen[str(MAIN)] = _digest(str(MAIN))
        whole = hashlib.sha256((key + json.dumps(seen)).encode()).hexdigest()[:16]
        # A name of its own: a library that is already loaded cannot be loaded anew by its path.
        library = folder / f"{plan.name}_{whole}.so"
        said = {"library": library.name, "digest": _digest(made), "files": seen}
        os.replace(made, library)
        written = os.path.join(work, "manifest.json")
        Path(written).write_text(json.dumps(said))
        os.replace(written, manifest)
    return library


def _way_in(plan: Plan, work: str) -> str:
    """The object file of what every library holds besides its sources, kept in the cache."""
    command = _compile_command(plan, str(MAIN))
    digest = hashlib.sha256(repr((command, jax_door.jax().__version__)).encode())
    for path in sorted(INCLUDE.rglob("*")):
        if path.is_file():
            digest.update(path.read_bytes())
    folder = cache_folder.inside("extensions")
    kept = folder and os.path.join(folder, f"main_{digest.hexdigest()[:16]}.bin")
    known = cache_folder.fetch(kept) if kept else None
    made = Path(work) / "main.o"
    if known is not None:
        made.write_bytes(known)
    else:
        _run([*command, "-c", str(MAIN), "-o", str(made)], str(MAIN), plan)
        if kept:
            cache_folder.store(kept, made.read_bytes())
    return str(made)


def _compile_command(plan: Plan, source: str) -> list[str]:
    includes = [f"-I{p}" for p in (INCLUDE, jax_door.jax().ffi.include_dir(), *plan.include_paths)]
    if source.endswith(_CUDA_SUFFIXES):
        cuda = _required_nvcc(source)
        return [cuda, *_NVCC, "-DPADDLE_WITH_CUDA", *includes, *plan.cuda_flags]
    command = [_required_compiler(), *_CXX, *includes]
    if plan.uses_cuda:
        command += ["-DPADDLE_WITH_CUDA", *toolchain.headers(_required_nvcc(plan.name))]
    # The way into the library is ours: a user's -Werror or -D does not belong there.
    return command if source == str(MAIN) else [*command, *plan.cxx_flags]


def _link_command(plan: Plan) -> list[str]:
    return [_required_compiler(), "-shared", "-Wl,-Bsymbolic"]


def _link_inputs(plan: Plan) -> list[str]:
    given = [f"-L{p}" for p in plan.library_paths] + list(plan.link_flags)
    return given + (toolchain.runtime(_required_nvcc(plan.name)) if plan.uses_cuda else [])


def _required_compiler() -> str:
    found = compiler()
    if found is None:
        raise BuildError(
            "[cpp_extension] no C++ compiler was found. Install g++ or clang++, or name one in CXX"
        )
    return found


def _required_nvcc(what: str) -> str:
    found = toolchain.nvcc()
    if found is None:
        raise BuildError(
            f"[cpp_extension] {what} needs CUDA's compiler nvcc, which was not found. Install the "
            "CUDA toolkit and name its folder in CUDA_HOME, or leave the .cu files out"
        )
    return found


def _run(command: list[str], what: str, plan: Plan) -> None:
    _say(plan.verbose, shlex.join(command))
    try:
        output = builder.run_compiler(command, _TIMEOUT)
    except builder.BuildFailed as e:
        raise BuildError(f"[cpp_extension] {what} could not be compiled:\n{e}") from None
    if output:
        _say(plan.verbose, output)


def _say(verbose: bool, text: str) -> None:
    if verbose:
        print(text)  # noqa: T201 (the user asked for it)


def _key(plan: Plan) -> str:
    digest = hashlib.sha256(repr(plan).encode())
    for part in (
        *_CXX,
        str(compiler()),
        str(toolchain.nvcc() if plan.uses_cuda else ""),
        jax_door.jax().__version__,
    ):
        digest.update(part.encode())
    return digest.hexdigest()[:16]


def _built(manifest: Path) -> Path | None:
    """The library that the manifest tells of, if nothing it was made of has changed."""
    try:
        said = json.loads(manifest.read_text())
        library = manifest.parent / said["library"]
        fresh = all(_digest(path) == digest for path, digest in said["files"].items())
        whole = _digest(str(library)) == said["digest"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return library if fresh and whole else None


def _dependencies(listed: str) -> Iterable[str]:
    """The files of a make rule as the compiler writes it, without the system's own."""
    text = Path(listed).read_text().replace("\\\n", " ")
    names = shlex.split(text.partition(":")[2])
    return (os.path.abspath(n) for n in names if not n.startswith(("/usr/include", "/usr/lib")))


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def as_tuple(given: Sequence[str] | str | None, what: str) -> tuple[str, ...]:
    """A list of texts, as Paddle's functions take it; a single text is a common mistake."""
    if given is None:
        return ()
    if isinstance(given, str) or not all(isinstance(g, str | os.PathLike) for g in given):
        raise InvalidArgument(
            f"[cpp_extension] {what} must be a list of strings. Received: {given!r}"
        )
    return tuple(os.fspath(g) for g in given)
