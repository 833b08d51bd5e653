"""Several files that are one: saves that end at any step, readers beside savers, foreign marks."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import bireme as paddle
from bireme.io import atomic, mark, temporaries
from bireme.io.safetensors_file import FileFormatError
from bireme.io.serialization import load_together, save_together
from bireme.io.temporaries import Temporary
from tests.io.test_saving_files import SAVERS, value

PAIR = ("m.pdparams", "m.pdopt", "m.pdscaler")


def save_pair(folder: Path, n: float) -> None:
    """Even saves have a third file, odd ones do not."""
    third = value(n) if n % 2 == 0 else None
    contents = {"m.pdparams": value(n), "m.pdopt": value(n), "m.pdscaler": third}
    save_together({str(folder / name): v for name, v in contents.items()})


def load_pair(folder: Path) -> float:
    parts = load_together([str(folder / name) for name in PAIR])
    seen = {float(part["w"][0]) for part in parts if part is not None}
    assert len(seen) == 1, f"a mixture: {seen}"
    n = seen.pop()
    assert (parts[2] is not None) == (n % 2 == 0)
    return n


ALL = {**SAVERS, "together": (save_pair, load_pair)}


class Killed(BaseException):
    """The process would be dead."""


@contextmanager
def killed_at(step: int) -> Iterator[list[str]]:
    """From the given call on that changes a folder or the disk, none does anything."""
    log: list[str] = []
    patched = pytest.MonkeyPatch()

    def wrap(name: str) -> None:
        real: Callable[..., Any] = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            log.append(name)
            if len(log) > step:
                raise Killed
            return real(*args, **kwargs)

        patched.setattr(os, name, call)

    for name in ("open", "replace", "unlink", "fsync"):
        wrap(name)
    try:
        yield log
    except Killed:
        pass
    finally:
        patched.undo()


@pytest.mark.parametrize("name", ALL)
def test_a_save_that_ends_at_any_step(name: str, tmp_path: Path) -> None:
    save, load = ALL[name]
    seen = []
    for step in range(40):
        folder = tmp_path / str(step)
        folder.mkdir()
        save(folder, 1)
        with killed_at(step) as log:
            save(folder, 2)
        there = sorted(folder.rglob("*"))
        seen.append(load(folder))
        assert sorted(folder.rglob("*")) == there  # a reader may have no right to write
        if len(log) <= step:
            break
        save(folder, 3)
        assert load(folder) == 3
        assert not [n for _, _, names in os.walk(folder) for n in names if atomic.is_ours(n)]
    else:
        raise AssertionError("a save has more steps")
    assert seen == sorted(seen)
    assert {1, 2} == set(seen)


def committed(folder: Path) -> None:
    """A save that ended after its first file had got its name."""
    for step in range(40):
        for path in folder.iterdir():
            path.unlink()
        save_pair(folder, 1)
        with killed_at(step):
            save_pair(folder, 2)
        if (folder / mark.NAME).exists() and len(list(folder.glob(".bireme-*.tmp"))) == 2:
            return
    raise AssertionError


def test_single_files_are_read_and_saved_through_the_mark(tmp_path: Path) -> None:
    committed(tmp_path)
    assert all(float(paddle.load(str(tmp_path / n))["w"][0]) == 2 for n in PAIR)
    paddle.save(value(5), tmp_path / "m.pdopt")
    seen = [float(paddle.load(str(tmp_path / n))["w"][0]) for n in PAIR]
    assert seen == [2, 5, 2]
    assert sorted(os.listdir(tmp_path)) == sorted(PAIR)


def test_a_copy_of_the_folder_is_read_through_the_mark(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    committed(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)
    assert load_pair(tmp_path / "b") == 2


@pytest.mark.parametrize("restored", [1, 7])
def test_files_from_a_backup_count(tmp_path: Path, restored: int) -> None:
    """They were put there after the save, whatever its mark says."""
    (tmp_path / "backup").mkdir()
    (tmp_path / "work").mkdir()
    save_pair(tmp_path / "backup", restored)
    committed(tmp_path / "work")
    for path in (tmp_path / "backup").iterdir():
        shutil.copy(path, tmp_path / "work")
    assert load_pair(tmp_path / "work") == restored
    paddle.save(1, tmp_path / "work" / "m.pdopt")
    assert sorted(os.listdir(tmp_path / "work")) == sorted(["m.pdparams", "m.pdopt"])


def test_lost_temporary_files_are_noticed(tmp_path: Path) -> None:
    committed(tmp_path)
    for path in tmp_path.glob(".bireme-*.tmp"):
        path.unlink()
    with pytest.raises(FileFormatError, match="do not belong together"):
        load_pair(tmp_path)
    (tmp_path / mark.NAME).unlink()


def test_temporary_files_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    dead = Temporary(str(tmp_path), None)
    dead.file.write(b"x" * 1000)
    dead.close()
    with atomic.replacing(tmp_path / "slow") as file:
        file.write(b"half")
        paddle.save(value(1), tmp_path / "other")
        assert not os.path.exists(dead.path)
        assert len(os.listdir(tmp_path)) == 2
        file.write(b" and half")
    assert (tmp_path / "slow").read_bytes() == b"half and half"
    assert sorted(os.listdir(tmp_path)) == ["other", "slow"]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    kept = [".bireme-0123456789abcdef.tmp", ".bireme-x.tmp", "a.tmp"]
    (tmp_path / kept[0]).mkdir()
    (tmp_path / ".bireme-1123456789abcdef.tmp").symlink_to(tmp_path / "a.tmp")
    (tmp_path / kept[1]).write_bytes(b"")
    (tmp_path / kept[2]).write_bytes(b"")
    os.mkfifo(tmp_path / ".bireme-2123456789abcdef.tmp")
    paddle.save(1, tmp_path / "m")
    assert len(os.listdir(tmp_path)) == 6


def test_large_folders_are_searched_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(temporaries, "_PER_SAVE", 10)
    for i in range(100):
        (tmp_path / f"f{i}").touch()
    calls, real = [0], os.scandir

    def counted(path: Any) -> Any:
        calls[0] += 1
        return real(path)

    monkeypatch.setattr(os, "scandir", counted)
    for _ in range(50):
        paddle.save(1, tmp_path / "m")
    assert 1 <= calls[0] <= 6


def test_without_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that has no locks nobody can know who is dead."""
    dead = Temporary(str(tmp_path), None)
    dead.close()

    def refused(*args: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    save_pair(tmp_path, 2)
    assert load_pair(tmp_path) == 2
    assert os.path.exists(dead.path)


@pytest.mark.parametrize("name", ["together", "jit.save", "save_state_dict"])
def test_readers_beside_a_saver(name: str, tmp_path: Path) -> None:
    save, load = ALL[name]
    save(tmp_path, 1)
    errors: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            last = 0.0
            while not stop.is_set():
                n = load(tmp_path)
                assert n >= last
                last = n
        except BaseException as e:
            errors.append(e)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(2, 30):
        save(tmp_path, n if name != "jit.save" else n % 2 + 2 * (n // 2))
    stop.set()
    for reader in readers:
        reader.join()
    assert not errors


def test_savers_beside_each_other(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for n in range(first, first + 60, 3):
                save_pair(tmp_path, n)
        except BaseException as e:
            errors.append(e)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not errors
    load_pair(tmp_path)
    assert not [n for n in os.listdir(tmp_path) if atomic.is_ours(n)]


def test_a_mark_that_goes_while_it_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save that it spoke of has ended, and perhaps the next: what it says is of no account."""
    save_pair(tmp_path, 1)
    apply = mark.Mark.apply
    with monkeypatch.context() as patch:
        patch.setattr(mark.Mark, "apply", lambda self: None)
        save_pair(tmp_path, 2)

    def looked_into_late(self: mark.Mark) -> bool:
        apply(self)
        raise FileFormatError("do not belong together")

    monkeypatch.setattr(mark.Mark, "holds", looked_into_late)
    assert load_pair(tmp_path) == 2


def test_a_sweep_does_not_wait_for_the_folder(tmp_path: Path) -> None:
    """Who holds the folder may be making the file that the sweep has locked, and wait for that."""
    new = tmp_path / f".bireme-{'0' * 16}.tmp"
    new.touch()
    with temporaries.folder_lock(str(tmp_path)):
        sweeping = threading.Thread(
            target=temporaries.sweep, args=(str(tmp_path), str(tmp_path), lambda home, name: False)
        )
        sweeping.start()
        sweeping.join(30)
        assert not sweeping.is_alive()
        assert new.exists()
    temporaries.sweep(str(tmp_path), str(tmp_path), lambda home, name: False)
    assert not new.exists()


def test_a_part_stays_when_the_process_that_committed_it_dies(tmp_path: Path) -> None:
    """Another process takes its own part back only if the save did not happen."""
    seen = []
    for step in range(12):
        folder = tmp_path / str(step)
        save_together({str(folder / "a"): 1, str(folder / "b"): 1})
        mine, others = atomic.Save(), atomic.Save()
        for save, name in ((mine, "a"), (others, "b")):
            with save.file(folder / name) as file:
                paddle.save(2, part := io.BytesIO())
                file.write(part.getvalue())
        with killed_at(step):
            others.take(str(folder), mine.staged)
            others.commit()
        others.release()
        mine.discard()
        seen.append(load_together([str(folder / "a"), str(folder / "b")]))
    assert seen == sorted(seen)
    assert all(s in ([1, 1], [2, 2]) for s in seen)
    assert [1, 1] in seen
    assert [2, 2] in seen


def test_files_in_two_folders_are_no_save(tmp_path: Path) -> None:
    with pytest.raises(paddle.core.errors.InvalidArgument, match="one folder"):
        save_together({str(tmp_path / "a" / "x"): 1, str(tmp_path / "b" / "x"): 1})


def test_files_below_a_folder(tmp_path: Path) -> None:
    names = [str(tmp_path / "x"), str(tmp_path / "deep" / "er")]
    for step in range(40):
        save_together(dict.fromkeys(names, 1), folder=str(tmp_path))
        with killed_at(step) as log:
            save_together(dict.fromkeys(names, 2), folder=str(tmp_path))
        assert load_together(names, str(tmp_path)) in ([1, 1], [2, 2])
        if len(log) <= step:
            return


def entry(**changed: Any) -> dict[str, Any]:
    return {
        "name": "m", "temporary": ".bireme-0123456789abcdef.tmp", "before": None, "after": None,
    } | changed  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        json.dumps({"version": 2, "files": []}),
        json.dumps({"version": 1, "files": [entry(name="../m")]}),
        json.dumps({"version": 1, "files": [entry(name="/m")]}),
        json.dumps({"version": 1, "files": [entry(name=".")]}),
        json.dumps({"version": 1, "files": [entry(name="a\0")]}),
        json.dumps({"version": 1, "files": [entry(name=3)]}),
        json.dumps({"version": 1, "files": [entry(name="sub/m", temporary=None)]}),
        json.dumps({"version": 1, "files": [entry(temporary="../victim")]}),
        json.dumps({"version": 1, "files": [entry(temporary="victim")]}),
        json.dumps({"version": 1, "files": [{"name": "m"}]}),
        json.dumps({"version": 1, "files": [entry(more=1)]}),
    ],
)
def test_foreign_marks_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    (tmp_path / "m").write_bytes(b"old")
    (tmp_path / mark.NAME).write_text(content)
    with pytest.raises(FileFormatError, match="delete it"):
        paddle.load(str(tmp_path / "m"))
    with pytest.raises(FileFormatError, match="delete it"):
        paddle.save(1, tmp_path / "m")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert (tmp_path / "m").read_bytes() == b"old"
    assert len(os.listdir(tmp_path)) == 3
