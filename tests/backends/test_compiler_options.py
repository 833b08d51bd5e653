"""What XLA is told when a whole program is compiled."""

from __future__ import annotations

import jax
import pytest

import bireme as paddle
from bireme.core import config, jax_door

EMITTERS = "xla_cpu_use_fusion_emitters"


@pytest.fixture
def no_flags(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.mark.usefixtures("no_flags")
def test_cpu_programs_go_without_the_emitters_of_mlir_where_there_is_a_choice():
    expected = {EMITTERS: False} if jax.__version_info__ < (0, 11) else {}
    assert jax_door.compiler_options("cpu") == expected


@pytest.mark.usefixtures("no_flags")
def test_other_platforms_are_left_alone():
    assert jax_door.compiler_options("gpu") == {}


def test_what_the_user_says_of_it_counts(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{EMITTERS}=true")
    assert jax_door.compiler_options("cpu") == {}


def test_the_options_reach_the_compiler(monkeypatch):
    monkeypatch.setattr(config, "compile_mode", "always")
    monkeypatch.setattr(jax_door, "compiler_options", lambda platform: {f"xla_{platform}_no": True})
    x = paddle.ones([3, 5])
    with pytest.raises(Exception, match="xla_cpu_no"):
        (x * 0.25 + 7).numpy()
