"""Operators as an installable package: a library and a Python module that loads it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import setuptools
from setuptools.command.build_ext import build_ext

from bireme.core.errors import InvalidArgument
from bireme.utils.cpp_extension.building import Plan, as_tuple, build

_MODULE = '''"""Operators of {name}, built by bireme.utils.cpp_extension."""

import os

from bireme.utils.cpp_extension import load_library

__file_of_library__ = os.path.join(os.path.dirname(os.path.abspath(__file__)), "{library}")
globals().update(load_library(__file_of_library__))
'''


def extension(sources: Sequence[str], *args: Any, **kwargs: Any) -> setuptools.Extension:
    """A `setuptools.Extension`; its name may be left to `setup`."""
    given = as_tuple(sources, "sources")
    if not given:
        raise InvalidArgument("[cpp_extension] sources is empty: name at least one file")
    name = kwargs.pop("name", None) or "_".join(dict.fromkeys(Path(s).stem for s in given))
    flags = kwargs.pop("extra_compile_args", None)
    made = setuptools.Extension(name, list(given), *args, **kwargs)
    made.extra_compile_args = flags or []  # Paddle's form may be a dict, which setuptools refuses
    return made


def setup(**attr: Any) -> None:
    """See `bireme.utils.cpp_extension.setup`."""
    name = attr.get("name")
    if not isinstance(name, str) or not name.isidentifier():
        raise InvalidArgument(
            "[cpp_extension] setup needs a name that can be imported, as in setup(name='custom', "
            f"ext_modules=CppExtension(sources=['relu.cc'])). Received: {name!r}"
        )
    extensions = attr.get("ext_modules", [])
    extensions = extensions if isinstance(extensions, list) else [extensions]
    if len(extensions) != 1:
        raise InvalidArgument(
            "[cpp_extension] setup takes one extension; put all sources into it. Received: "
            f"{len(extensions)} extensions"
        )
    extensions[0].name = name
    shared = {k: attr.pop(k) for k in ("include_dirs", "extra_compile_args") if k in attr}
    if "include_dirs" in shared:
        extensions[0].include_dirs = [*extensions[0].include_dirs, *shared["include_dirs"]]
    if "extra_compile_args" in shared:
        extensions[0].extra_compile_args = shared["extra_compile_args"]
    attr["ext_modules"] = extensions
    attr["cmdclass"] = {"build_ext": BuildExtension, **attr.get("cmdclass", {})}
    attr["zip_safe"] = False
    setuptools.setup(**attr)


class BuildExtension(build_ext):
    """setuptools' `build_ext` for operators: the library, and a module beside it."""

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """The same command with options of setuptools' `build_ext` set."""

        class WithOptions(cls):  # type: ignore[valid-type, misc]
            def finalize_options(self) -> None:
                for name, value in options.items():
                    setattr(self, name, value)
                super().finalize_options()

        return WithOptions

    def build_extension(self, ext: setuptools.Extension) -> None:
        flags: Any = ext.extra_compile_args
        by_tool = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
        linked = [f"-l{library}" for library in ext.libraries]
        plan = Plan(
            ext.name,
            tuple(os.path.abspath(s) for s in ext.sources),
            tuple(by_tool.get("cxx") or ()),
            tuple(by_tool.get("nvcc") or ()),
            (*(ext.extra_link_args or ()), *linked),
            tuple(ext.include_dirs),
            tuple(ext.library_dirs),
        )
        module, library = self._targets(ext)
        module.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            shutil.copyfile(build(plan, Path(folder)), library)
        module.write_text(_MODULE.format(name=ext.name, library=library.name))

    def _targets(self, ext: setuptools.Extension) -> tuple[Path, Path]:
        folder = Path(self.get_ext_fullpath(ext.name)).parent
        return folder / f"{ext.name}.py", folder / f"{ext.name}_ops.so"

    def get_outputs(self) -> list[str]:
        return [str(path) for ext in self.extensions for path in self._targets(ext)]

    def copy_extensions_to_source(self) -> None:
        """With `--inplace` the files are written where they belong in the first place."""
