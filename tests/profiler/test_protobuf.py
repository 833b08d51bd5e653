"""Recordings in Paddle's format: ours come back, and Paddle's are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bireme
from bireme import profiler
from bireme.core.errors import FileFormatError, InvalidArgument
from bireme.profiler.protobuf import _fields


def nodes(data: bytes) -> list[tuple[str, int, str]]:
    """(name, kind, name of the parent) of every node of the only tree."""
    (tree,) = [value for field, value in _fields(data) if field == 3]
    found = {}
    for field, node in _fields(tree):
        if field == 2:
            parts = dict(_fields(node))
            event = dict(_fields(parts[3]))
            found[parts[1]] = (event[1].decode(), event[2], parts[2])
    names = {number: name for number, (name, _, _) in found.items()}
    return [(name, kind, names.get(parent, "-")) for name, kind, parent in found.values()]


def record(module, folder: Path) -> Path:
    """Two spans, one in the other, in one step."""
    made = module.profiler.Profiler(
        targets=[module.profiler.ProfilerTarget.CPU],
        on_trace_ready=module.profiler.export_protobuf(str(folder), "me"),
    )
    made.start()
    with module.profiler.RecordEvent("outer"), module.profiler.RecordEvent("inner"):
        pass
    made.step()
    made.stop()
    (path,) = folder.iterdir()
    assert path.name.startswith("me_time_")
    assert path.name.endswith(".paddle_trace.pb")
    return path


def test_our_files_have_paddles_form(paddle, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours = record(bireme, tmp_path / "ours").read_bytes()
    theirs = record(paddle, tmp_path / "theirs").read_bytes()
    head = [dict(_fields(data)) for data in (ours, theirs)]
    assert head[0][1] == head[1][1]  # the version
    wanted = {"root node", "outer", "inner"}
    mine, real = ({n for n in nodes(d) if n[0] in wanted} for d in (ours, theirs))
    assert {n for n in mine if n[0] != "outer"} == {n for n in real if n[0] != "outer"}
    steps = [n for n in nodes(ours) if n[1] == 2]
    assert steps
    assert {n[1] for n in mine if n[0] == "outer"} == {n[1] for n in real if n[0] == "outer"}


def test_files_are_read(paddle, tmp_path: Path) -> None:
    for name, module in (("ours", bireme), ("theirs", paddle)):
        (tmp_path / name).mkdir()
        spans = profiler.load_profiler_result(str(record(module, tmp_path / name)))
        by_name = {s.name: s for s in spans}
        assert by_name["outer"].kind == "user"
        assert by_name["outer"].start <= by_name["inner"].start
        assert by_name["inner"].end <= by_name["outer"].end
        assert "root node" not in by_name


def test_export_keeps_lengths(tmp_path: Path) -> None:
    made = profiler.Profiler()
    made.start()
    with profiler.RecordEvent("work"):
        np.ones(1000).sum()
    made.step()
    made.stop()
    made.export(str(tmp_path / "a.pb"), "pb")
    made.export(str(tmp_path / "a.json"))
    (one,) = [s for s in profiler.load_profiler_result(str(tmp_path / "a.pb")) if s.name == "work"]
    (two,) = [
        s for s in profiler.load_profiler_result(str(tmp_path / "a.json")) if s.name == "work"
    ]
    assert abs(one.seconds - two.seconds) < 1e-6
    with pytest.raises(InvalidArgument, match="'json' or 'pb'"):
        made.export(str(tmp_path / "a.txt"), "txt")
    (tmp_path / "bad.pb").write_bytes(b"\x1a\xff\xff")
    with pytest.raises(FileFormatError, match="Paddle's format"):
        profiler.load_profiler_result(str(tmp_path / "bad.pb"))
