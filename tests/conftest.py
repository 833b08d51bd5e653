"""Strict surroundings for every test, and the helpers that most of them want.

Warnings are errors (pyproject.toml). Compiled programs go to one temporary cache folder per
run, shared by all xdist workers, so that the user's own cache neither helps nor suffers. The
native library, which takes a minute to build, is kept for the next run; its name is a digest of
its sources, compiler and machine, and its bytes are checked when it is opened.
Random numbers are the same in every run; `BIREME_TEST_EXPLORE=1` lets hypothesis look further.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

# A suite that draws new examples every time fails on somebody else's change. Whoever wants to hunt
# asks for it.
hypothesis.settings.register_profile("repeatable", derandomize=True)
if "BIREME_TEST_EXPLORE" not in os.environ:
    hypothesis.settings.load_profile("repeatable")

# Set before anything imports jax or bireme. xdist starts its workers after this line ran in the
# parent, so they inherit the folder and only the parent removes it.
os.environ["JAX_PLATFORMS"] = "cpu"
_CACHE_OWNER = "BIREME_TEST_CACHE_OWNER"
_KEPT_LIBRARIES = Path(__file__).parent.parent / "build" / "test-libraries"


def _copy_libraries(source: Path, target: Path) -> None:
    """Copy the native libraries that `target` lacks. A copy gets its name when it is complete."""
    for library in source.glob("bireme_kernels_*.so"):
        if not (target / library.name).exists():
            target.mkdir(parents=True, exist_ok=True)
            part = target / f"{library.name}.{os.getpid()}"
            shutil.copy(library, part)
            part.replace(target / library.name)


if _CACHE_OWNER not in os.environ:
    os.environ[_CACHE_OWNER] = str(os.getpid())
    os.environ["BIREME_CACHE_DIR"] = tempfile.mkdtemp(prefix="bireme-tests-")
    _copy_libraries(_KEPT_LIBRARIES, Path(os.environ["BIREME_CACHE_DIR"], "native"))


# A shell starts what runs in the background with Ctrl-C ignored, and tests interrupt themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure() -> None:
    # A program or a native kernel that is still being built would miss the folder it goes to.
    if "bireme.host.background" in sys.modules:
        sys.modules["bireme.host.background"].finish(patience=None)
    if os.environ.get(_CACHE_OWNER) == str(os.getpid()):
        _copy_libraries(Path(os.environ["BIREME_CACHE_DIR"], "native"), _KEPT_LIBRARIES)
        shutil.rmtree(os.environ["BIREME_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """Fresh layers and random ops draw the same numbers in every run of a test, whatever ran
    before it: a weight that happens to be singular is found once, not on some Tuesday."""
    seed = zlib.crc32(request.node.nodeid.encode()) & 0x7FFFFFFF
    random.seed(seed)
    np.random.seed(seed)
    for name in ("bireme", "paddle"):
        if name in sys.modules:
            sys.modules[name].seed(seed)
    if "bireme.amp.auto_cast" in sys.modules:  # a GradScaler asks what a test before has used
        sys.modules["bireme.amp.auto_cast"]._LastUsed.dtype = None


@pytest.fixture(scope="session")
def paddle() -> Any:
    """The real PaddlePaddle wheel, the oracle of every parity test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own imports warn; ours must not
        return pytest.importorskip("paddle", reason="needs the 'parity' extra")


@pytest.fixture(params=["numpy", "xla"])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs the test once with the NumPy tier only and once with everything compiled."""
    from bireme.core import trace
    from bireme.host import config

    trace.flush()
    mode = "never" if request.param == "numpy" else "always"
    monkeypatch.setattr(config, "compile_mode", mode)
    yield request.param
    trace.flush()


@pytest.fixture
def both_tiers(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`both_tiers(f)` calls `f` in each tier, checks that the numbers agree, and returns them.

    `f` takes no arguments and returns a Tensor, or a list or tuple of them.
    """
    from bireme.core import stats, trace
    from bireme.host import config

    # Every test's programs are run from one line below, which is no fault of theirs.
    monkeypatch.setattr(stats, "RECOMPILE_WARNING_AFTER", 10**9)

    def run(f: Callable[[], Any], rtol: float = 1e-5, atol: float = 1e-6) -> Any:
        results = []
        for mode in ("never", "always"):
            trace.flush()
            with monkeypatch.context() as patch:
                patch.setattr(config, "compile_mode", mode)
                results.append(_to_numpy(f()))
        cold, compiled = results
        _assert_close(cold, compiled, rtol, atol)
        return cold

    return run


def _to_numpy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_to_numpy(v) for v in value]
    return value.numpy()


def _assert_close(cold: Any, compiled: Any, rtol: float, atol: float) -> None:
    if isinstance(cold, list):
        assert len(cold) == len(compiled)
        for a, b in zip(cold, compiled, strict=True):
            _assert_close(a, b, rtol, atol)
        return
    assert cold.dtype == compiled.dtype
    np.testing.assert_allclose(compiled, cold, rtol, atol)
