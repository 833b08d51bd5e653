"""Kernels that come with the package: which library a CPU gets, and that a build makes them."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from bireme.kernels import native
from bireme.kernels.native import bundled

INCLUDE = bundled.include_folder()
AVX2 = frozenset(bundled._AVX2)
ALL = frozenset(bundled._AVX512) | {"avx512_bf16", "sse4_2"}


@pytest.fixture
def built(tmp_path):
    for variant in bundled.VARIANTS["x86_64"]:
        (tmp_path / f"{variant.name}.so").touch()
    assert INCLUDE is not None
    (tmp_path / "interface").write_text(bundled.interface(INCLUDE))
    return tmp_path


@pytest.mark.parametrize(
    ("features", "name"),
    [
        (ALL, "avx512bf16.so"),
        (ALL - {"avx512_bf16"}, "avx512.so"),
        (ALL - {"avx512vl"}, "avx2.so"),
        (AVX2, "avx2.so"),
        (AVX2 - {"fma"}, None),
    ],
)
def test_a_cpu_gets_the_best_that_it_runs(built, features, name):
    assert bundled.best(built, features, "x86_64") == (None if name is None else built / name)


def test_a_library_that_is_missing_is_no_choice(built):
    (built / "avx512bf16.so").unlink()
    assert bundled.best(built, ALL, "x86_64") == built / "avx512.so"
    assert bundled.best(built, ALL, "s390x") is None


def test_another_version_of_the_interface_is_not_loaded(built):
    (built / "interface").write_text("0.1")
    assert bundled.best(built, ALL, "x86_64") is None


def test_the_interface_has_a_version():
    assert INCLUDE is not None
    major, minor = bundled.interface(INCLUDE).split(".")
    assert major.isdigit()
    assert minor.isdigit()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_a_build_makes_every_variant(tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "one.cc").write_text('extern "C" int one() { return 1; }')
    made = bundled.build(sources, tmp_path / "built")
    assert [p.stem for p in made] == [v.name for v in bundled.variants()]
    features = frozenset().union(*(v.needs for v in bundled.variants()))
    assert bundled.best(tmp_path / "built", features) == made[0]


def test_without_a_compiler_nothing_is_bundled(tmp_path, monkeypatch):
    monkeypatch.setattr(bundled.shutil, "which", lambda name: None)
    assert bundled.build(tmp_path, tmp_path / "built") == []
    assert not (tmp_path / "built").exists()


def test_what_came_with_the_package_is_loaded_without_a_compiler(monkeypatch):
    library = native.load()
    if library is None:
        pytest.skip("there are no native kernels here")
    monkeypatch.setattr(native, "_library", None)
    monkeypatch.setattr(native, "_failed", False)
    monkeypatch.setattr(native, "_waiting", None)
    monkeypatch.setattr(native, "compiler", lambda: None)
    monkeypatch.setattr(native, "_bundled", lambda: pathlib.Path(library._name))
    assert native.arrived() is not None
