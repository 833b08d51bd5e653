"""What XLA is told when a whole program is compiled."""

from __future__ import annotations

import jax
import pytest

import bireme as paddle
from bireme.backends import xla_backend
from bireme.host import config, jax_door

EMITTERS = "xla_cpu_use_fusion_emitters"


def test_without_the_emitters_of_mlir_where_there_is_a_choice(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    expected = {EMITTERS: False} if jax.__version_info__ < (0, 11) else {}
    assert jax_door.frugal_options() == expected


def test_what_the_user_says_of_it_counts(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{EMITTERS}=true")
    assert jax_door.frugal_options() == {}


@pytest.fixture
def seen(monkeypatch):
    """Number of ops and options of each program that is compiled."""
    programs = []
    chosen = xla_backend.compiler_options

    def watch(platform, nodes):
        programs.append((len(nodes), chosen(platform, nodes)))
        return programs[-1][1]

    monkeypatch.setattr(config, "compile_mode", "always")
    monkeypatch.setattr(jax_door, "frugal_options", lambda: {"xla_cpu_enable_fast_math": False})
    monkeypatch.setattr(xla_backend, "compiler_options", watch)
    return programs


def _chain(x, ops):
    for _ in range(ops // 2):
        x = x * 0.5 + 1
    return x.numpy()


@pytest.mark.parametrize(
    ("ops", "rows", "frugal"), [(130, 3, True), (120, 3, False), (130, 40_000, False)]
)
def test_many_small_ops_are_compiled_frugally(seen, ops, rows, frugal):
    got = _chain(paddle.ones([rows, 5]), ops)
    assert abs(got - 2).max() < 1e-6
    ((count, options),) = [p for p in seen if p[0] >= 100]
    assert ops <= count <= ops + 1  # making a large x is an op, too
    assert bool(options) is frugal


def test_other_platforms_are_left_alone():
    nodes = [None] * 1000  # not even looked at
    assert xla_backend.compiler_options("gpu", nodes) == {}


def test_the_options_reach_the_compiler(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")
    monkeypatch.setattr(jax_door, "frugal_options", lambda: {"xla_no_such_option": True})
    with pytest.raises(Exception, match="xla_no_such_option"):
        _chain(paddle.ones([3, 7]), 140)
