"""What an editable install is to type checkers and editors: a path, not an import hook."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess
import sys
import tomllib
import zipfile

import pytest

PROJECT = pathlib.Path(__file__).parents[1] / "pyproject.toml"
BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"


def _can_build() -> bool:
    """Whether setuptools is there, with what older ones need to make wheels."""
    if importlib.util.find_spec("setuptools") is None:
        return False
    import setuptools

    version = tuple(map(int, setuptools.__version__.split(".")[:2]))
    return version >= (70, 1) or importlib.util.find_spec("wheel") is not None


def test_the_folder_of_packages_is_named():
    """Only then does setuptools write a plain path (and only if it is the project's folder)."""
    settings = tomllib.loads(PROJECT.read_text())["tool"]["setuptools"]
    assert settings["package-dir"] == {"": "."}


@pytest.mark.skipif(not _can_build(), reason="needs setuptools 70.1, or an older one and wheel")
def test_an_editable_install_is_a_path(tmp_path):
    text = PROJECT.read_text().replace('readme = "README.md"\n', "")
    (tmp_path / "pyproject.toml").write_text(text)
    for folder in ("bireme/core", "tests", "docs"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "bireme" / "__init__.py").touch()
    (tmp_path / "made").mkdir()
    subprocess.run(
        [sys.executable, "-c", BUILD, "made"], cwd=tmp_path, check=True, capture_output=True
    )
    (wheel,) = (tmp_path / "made").glob("*.whl")
    with zipfile.ZipFile(wheel) as files:
        paths = {n: files.read(n).decode() for n in files.namelist() if n.endswith(".pth")}
    assert [p.strip() for p in paths.values()] == [str(tmp_path)]
