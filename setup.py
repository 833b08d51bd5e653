"""Builds the native CPU kernels into the package; everything else is in pyproject.toml.

    pip install .        # or `make wheel`

Kernels are compiled for several instruction sets; a process picks one when it starts
(bireme/kernels/native/bundled.py). Without a C++ compiler, and where jaxlib's headers are missing,
the package has none: then they are built on the user's machine, if that has a compiler.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


def module(path):
    """A module of the package that knows how to build, without importing the package."""
    spec = importlib.util.spec_from_file_location(path.stem, ROOT / path)
    made = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = made
    spec.loader.exec_module(made)
    return made


class BuildKernels(build_py):
    """Python files, and the kernels beside them in a wheel."""

    def run(self):
        super().run()
        # An editable install uses this folder, and kernels that are built for this machine.
        if self.editable_mode or os.environ.get("BIREME_BUNDLE", "1") == "0":
            return
        native = Path("bireme") / "kernels" / "native"
        made = module(native / "bundled.py").build(
            ROOT / native, Path(self.build_lib) / native / "built"
        )
        self.announce(f"native kernels: {', '.join(p.name for p in made) or 'none'}", level=2)
        self.build_lite(Path(self.build_lib) / "bireme" / "lite")

    def build_lite(self, target):
        """Bireme Lite's runtime, and its sources for machines that the wheel has no library for."""
        for part in ("include", "src", "ops", "kernels", "web"):
            self.copy_tree(str(ROOT / "lite" / part), str(target / "source" / part))
        building = module(Path("bireme") / "lite" / "building.py")
        made = building.build(ROOT / "lite", target / "built" / building.NAME)
        self.announce(f"Bireme Lite: {made.name if made else 'none'}", level=2)


class PlatformWheel(bdist_wheel):
    """Any Python 3, one platform: the kernels know nothing of Python."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildKernels, "bdist_wheel": PlatformWheel})
