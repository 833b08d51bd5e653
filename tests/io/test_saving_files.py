"""What a save does to the files that are there: modes, links, devices. Disks that are full."""

from __future__ import annotations

import errno
import os
import resource
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bireme as paddle
from bireme.core.errors import BiremeError, InvalidArgument
from bireme.io import atomic
from bireme.io.temporaries import Temporary


def value(n: float) -> dict[str, Any]:
    return {"w": paddle.to_tensor(np.full([4096], n, "float32"))}


def found(path: Any) -> float:
    return float(paddle.load(str(path))["w"][0])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


NAMES = ["m.safetensors", "m.pdparams"]


@pytest.mark.parametrize("name", NAMES)
def test_mode_and_owner_stay(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    paddle.save(value(1), path)
    path.chmod(0o600)
    if os.getuid() == 0:
        os.chown(path, 1234, 4321)
    before = path.stat()
    paddle.save(value(2), path)
    assert found(path) == 2
    assert mode(path) == 0o600
    assert (path.stat().st_uid, path.stat().st_gid) == (before.st_uid, before.st_gid)


def test_a_new_file_gets_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        paddle.save(value(1), tmp_path / "m")
    finally:
        os.umask(before)
    assert mode(tmp_path / "m") == 0o640


def test_a_group_that_cannot_be_kept_gets_no_rights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    paddle.save(value(1), path)
    path.chmod(0o664)
    real = os.stat

    def another(name: Any, *args: Any, **kwargs: Any) -> Any:
        seen = real(name, *args, **kwargs)
        return os.stat_result([*seen[:5], seen.st_gid + 1, *seen[6:]])

    def refused(*args: Any) -> None:
        raise PermissionError(errno.EPERM, "not yours")

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", another)
        patched.setattr(os, "fchown", refused)
        made = Temporary(str(tmp_path), os.stat(path))
    assert mode(Path(made.path)) == 0o644
    made.discard()


def test_a_read_only_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.pdparams"
    paddle.save(value(1), path)
    path.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda name, how: bool(os.stat(name).st_mode & 0o222))
    with pytest.raises(PermissionError, match="read-only") as caught:
        paddle.save(value(2), path)
    assert isinstance(caught.value, BiremeError)
    assert found(path) == 1
    assert os.listdir(tmp_path) == ["m.pdparams"]


def test_a_device_is_written_to(tmp_path: Path) -> None:
    null = "/dev/null"  # which only root could replace
    if os.geteuid() == 0:
        null = str(tmp_path / "null")
        try:
            os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except PermissionError:
            pytest.skip("no devices can be made here")
    before = os.stat(null)
    paddle.save(value(1), null)
    after = os.lstat(null)
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)


@pytest.mark.parametrize("save", ["save", "wave", "together"])
def test_a_pipe_is_written_to(tmp_path: Path, save: str) -> None:
    path = tmp_path / "pipe.pdparams"
    os.mkfifo(path)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    if save == "wave":
        paddle.audio.save(str(path), paddle.zeros([1, 50]), 8000)
    elif save == "save":
        paddle.save(value(1), path)
    else:
        with atomic.Save() as both:
            for name in (path, tmp_path / "other"):
                with both.file(name) as file:
                    file.write(b"contents")
        assert (tmp_path / "other").read_bytes() == b"contents"
    reader.join()
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert len(got[0]) >= 8


def test_a_link_to_a_device_stays(tmp_path: Path) -> None:
    (tmp_path / "m.pdopt").symlink_to("/dev/null")
    with atomic.Save() as save:
        for name in ("m.pdparams", "m.pdopt"):
            with save.file(tmp_path / name) as file:
                file.write(b"contents")
    assert (tmp_path / "m.pdparams").read_bytes() == b"contents"
    assert os.readlink(tmp_path / "m.pdopt") == "/dev/null"
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_files_behind_links_are_replaced_together(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    for name in ("a", "b"):
        (tmp_path / "far" / name).write_bytes(b"old")
        (tmp_path / name).symlink_to(Path("far") / name)
    with atomic.Save() as save:
        for name in ("a", "b"):
            with save.file(tmp_path / name) as file:
                file.write(b"new")
    assert [(tmp_path / "far" / n).read_bytes() for n in ("a", "b")] == [b"new", b"new"]
    assert all((tmp_path / n).is_symlink() for n in ("a", "b"))
    assert sorted(os.listdir(tmp_path / "far")) == ["a", "b"]


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(atomic.WriteError):
        paddle.save(value(1), tmp_path / "a")
    assert os.readlink(tmp_path / "a") == "b"


@pytest.mark.parametrize("length", [240, 255])
def test_the_longest_names(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("n" * (length - 9) + ".pdparams")
    paddle.save(value(1), path)
    paddle.save(value(2), path)
    assert found(path) == 2
    if length < 255:
        stem = str(tmp_path / ("n" * (length - 12)))
        layer = paddle.nn.Linear(2, 2)
        paddle.jit.save(layer, stem, [paddle.static.InputSpec([None, 2])])
        assert paddle.jit.load(stem)(paddle.ones([1, 2])).shape == [1, 2]


@pytest.mark.parametrize("path", ["", "folder/", "a\0b"])
def test_names_that_are_none(path: str) -> None:
    with pytest.raises(InvalidArgument), atomic.replacing(path):
        raise AssertionError


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    with pytest.raises(OSError, match="folder"), atomic.replacing(tmp_path / "m"):
        raise AssertionError
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(atomic.WriteError):
        paddle.save(value(1), tmp_path / "file" / "m")


# --- full disks -----------------------------------------------------------------------------


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may become larger than 8 KiB, which looks like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class Pair(paddle.nn.Layer):
    def __init__(self, n: float):
        super().__init__()
        self.w = paddle.create_parameter([4096], "float32")
        self.w.set_value(np.full([4096], n, "float32"))

    def forward(self, x: Any) -> Any:
        return x + self.w


def save_model(folder: Path, n: float) -> None:
    model = paddle.Model(Pair(n))
    model.save(str(folder / "m"))


def load_model(folder: Path) -> float:
    model = paddle.Model(Pair(0))
    model.load(str(folder / "m"))
    return float(model.network.w[0])


def save_graph(folder: Path, n: float) -> None:
    paddle.jit.save(Pair(n), str(folder / "m"), [paddle.static.InputSpec([4096])])


def load_graph(folder: Path) -> float:
    return float(paddle.jit.load(str(folder / "m"))(paddle.zeros([4096]))[0])


def save_parts(folder: Path, n: float) -> None:
    paddle.distributed.save_state_dict(value(n), str(folder / "c"), unique_id=0)


def load_parts(folder: Path) -> float:
    return float(paddle.distributed.load_merged_state_dict(str(folder / "c"))["w"][0])


def save_wave(folder: Path, n: float) -> None:
    paddle.audio.save(str(folder / "m.wav"), paddle.full([1, 9000], n / 4), 8000)


def load_wave(folder: Path) -> float:
    return float(paddle.audio.load(str(folder / "m.wav"))[0][0, 0]) * 4


SAVERS = {
    "save": (lambda f, n: paddle.save(value(n), f / "m"), lambda f: found(f / "m")),
    "Model.save": (save_model, load_model),
    "jit.save": (save_graph, load_graph),
    "save_state_dict": (save_parts, load_parts),
    "audio.save": (save_wave, load_wave),
}


@pytest.mark.parametrize("name", SAVERS)
def test_a_full_disk_keeps_the_old_files(name: str, tmp_path: Path, small_files: None) -> None:
    save, load = SAVERS[name]
    soft = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft[1], soft[1]))
    save(tmp_path, 1)
    before = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, soft)
    with pytest.raises(atomic.WriteError, match="unchanged") as caught:
        save(tmp_path, 2)
    assert caught.value.errno == errno.EFBIG
    assert load(tmp_path) == 1
    assert sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("name", SAVERS)
def test_a_disk_that_fails_at_any_step(
    name: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each time that something is brought to the disk: the old, or the new."""
    save, load = SAVERS[name]
    save(tmp_path, 1)
    before = {p.name for p in tmp_path.rglob("*")}
    calls, real = [0], os.fsync

    def failing(number: int) -> None:
        calls[0] += 1
        if calls[0] == at + 1 and stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(number)

    monkeypatch.setattr(os, "fsync", failing)
    failed = False
    try:
        save(tmp_path, 2)
    except atomic.WriteError as e:
        failed = e.errno == errno.ENOSPC
    assert load(tmp_path) == (1 if failed else 2)
    assert {p.name for p in tmp_path.rglob("*")} == before
