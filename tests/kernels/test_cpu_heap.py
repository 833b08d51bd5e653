"""BIREME_HEAP: the process keeps working, with right numbers, and bad values are named."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, bireme as paddle
from bireme.core import config
from bireme.kernels import cpu_heap
config.compile_mode = "always"
x = paddle.ones([512, 1024])
for _ in range(3):
    x = x * 0.5 + 1
    total = float(x.sum())
print(cpu_heap.active, total)
"""


def run(setting):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"BIREME_HEAP": setting},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_the_heap_keeps_its_memory_in_huge_pages():
    assert run("huge:64").stdout.split() == ["huge:64", str(512 * 1024 * 1.875)]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize(
    ("setting", "active"), [("", "keep"), ("keep:64", "keep:64"), ("off", "None")]
)
def test_freed_memory_is_kept_unless_told_otherwise(setting, active):
    assert run(setting).stdout.split() == [active, str(512 * 1024 * 1.875)]


def test_an_unknown_setting_is_named_and_ignored():
    done = run("enormous")
    assert "BIREME_HEAP must be 'off', 'keep', 'huge'" in done.stderr
    assert "not 'enormous'" in done.stderr
    assert done.stdout.startswith("None")
