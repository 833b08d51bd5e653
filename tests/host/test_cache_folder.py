"""The cache holds code: it is used only where nobody else can put anything."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import warnings

import pytest

from bireme.host import cache_folder, config

ME = os.geteuid()
STRANGER = 54321


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name in ("_checked", "_full"):
        monkeypatch.setattr(cache_folder, name, {})
    for name in ("_told", "_swept"):
        monkeypatch.setattr(cache_folder, name, set())


def give_away(path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `path` (or a link) a stranger's."""
    if ME == 0:
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    else:
        real = os.lstat

        def lstat(name):
            info = real(name)
            if name != str(path):
                return info
            return os.stat_result((*info[:4], STRANGER, *info[5:]))

        monkeypatch.setattr(os, "lstat", lstat)


def python(code: str, cwd: pathlib.Path, *flags: str, **env: str) -> subprocess.CompletedProcess:
    root = str(pathlib.Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, *flags, "-c", f"import sys; sys.path.insert(0, {root!r})\n{code}"],
        cwd=cwd,
        env={"PATH": "", "JAX_PLATFORMS": "cpu", **env},
        capture_output=True,
        text=True,
        check=False,
    )


COMPUTES = """
from bireme.host import config, jax_door
import bireme as paddle
config.compile_mode = "always"
print(float((paddle.ones([2]) + 1).sum()), jax_door.jax().config.jax_compilation_cache_dir)
"""


@pytest.mark.parametrize(
    "env",
    [{"XDG_CACHE_HOME": "", "HOME": ""}, {"HOME": "."}, {"BIREME_CACHE_DIR": "cache"}],
    ids=["empty", "relative home", "relative"],
)
def test_the_current_folder_is_never_the_cache(tmp_path, env):
    done = python(COMPUTES, tmp_path, **env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4.0", "None"]
    assert os.listdir(tmp_path) == []
    assert done.stderr.count("there is no cache") == 1
    assert "is not an absolute path" in done.stderr


def test_an_empty_or_relative_xdg_folder_is_the_homes(tmp_path):
    for given in ("", "relative"):
        env = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": given}
        done = python("from bireme.host import config; print(config.cache_dir)", tmp_path, **env)
        assert done.stdout.strip() == str(tmp_path / "home" / ".cache" / "bireme")


def test_no_cache_is_what_nothing_means(tmp_path):
    done = python(COMPUTES, tmp_path, BIREME_CACHE_DIR="", HOME=str(tmp_path))
    assert (done.stdout.split(), done.stderr) == (["4.0", "None"], "")
    assert os.listdir(tmp_path) == []


def test_an_import_writes_nothing(tmp_path):
    folder = tmp_path / "cache"
    code = "import bireme; bireme.nn.Linear, bireme.optimizer.SGD, bireme.vision.ops"
    done = python(code, tmp_path, BIREME_CACHE_DIR=str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert not folder.exists()


def test_folders_are_made_for_the_user_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "cache_dir", str(tmp_path / "a" / "b"))
    assert cache_folder.inside("native", make=False) is None
    assert not (tmp_path / "a").exists()
    before = os.umask(0)
    try:
        made = cache_folder.inside("native")
    finally:
        os.umask(before)
    assert made == str(tmp_path / "a" / "b" / "native")
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "native"):
        assert path.stat().st_mode & 0o777 == 0o700


def test_what_others_can_write_to_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o755)
    assert cache_folder.problem(str(folder)) is None
    for mode in (0o777, 0o1777, 0o707):
        folder.chmod(mode)
        assert "others can write" in str(cache_folder.problem(str(folder)))
    folder.chmod(0o700)
    tmp_path.chmod(0o777)  # who can rename the folder can put another one in its place
    assert "others can write" in str(cache_folder.problem(str(folder / "native")))
    tmp_path.chmod(0o1777)  # as /tmp: there they cannot
    assert cache_folder.problem(str(folder / "native")) is None
    tmp_path.chmod(0o700)
    give_away(folder, monkeypatch)
    assert "belongs to another user" in str(cache_folder.problem(str(folder / "native")))


def test_a_group_counts_as_others_unless_it_is_the_users_own(tmp_path, monkeypatch):
    import grp
    import pwd

    info = os.stat_result((0o40770, 0, 0, 2, ME, 4711, 0, 0, 0, 0))
    person = pwd.struct_passwd(("ann", "x", ME, 4711, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: person)
    for name, members, private in (
        ("ann", [], True),
        ("ann", ["ann"], True),
        ("ann", ["ann", "bob"], False),
        ("staff", [], False),
    ):
        group = grp.struct_group((name, "x", 4711, members))
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        assert cache_folder.only_ours(info) is private

    def unknown(_):
        raise KeyError

    monkeypatch.setattr(grp, "getgrgid", unknown)
    assert not cache_folder.only_ours(info)


def test_links_count_like_folders(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "open").mkdir()
    link = tmp_path / "link"
    link.symlink_to("real")
    assert cache_folder.problem(str(link / "native")) is None
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "astray").symlink_to("open/../open/inner")
    assert "others can write" in str(cache_folder.problem(str(tmp_path / "astray")))
    (tmp_path / "circle").symlink_to("circle")
    assert "circle of links" in str(cache_folder.problem(str(tmp_path / "circle")))
    give_away(link, monkeypatch)
    assert "belongs to another user" in str(cache_folder.problem(str(link)))


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_one_warning_says_why_there_is_no_cache(tmp_path, monkeypatch, mode):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setattr(config, "cache_dir", str(folder))
    assert cache_folder.inside(tell=False) is None
    with pytest.warns(RuntimeWarning, match="others can write to .*Set BIREME_CACHE_DIR"):
        assert cache_folder.inside("xla") is None
    assert cache_folder.inside("xla") is None
    assert cache_folder.inside("native") is None
    assert os.listdir(folder) == []


def test_a_file_in_the_place_of_the_folder_is_no_cache(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("")
    monkeypatch.setattr(config, "cache_dir", str(tmp_path / "cache"))
    for parts in ((), ("xla",)):
        monkeypatch.setattr(cache_folder, "_told", set())
        with pytest.warns(RuntimeWarning, match="there is no cache"):
            assert cache_folder.inside(*parts) is None


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "longer", "foreign"])
def test_a_damaged_file_is_removed(tmp_path, damage):
    path = tmp_path / "entry"
    assert cache_folder.store(str(path), b"payload" * 99)
    assert cache_folder.fetch(str(path)) == b"payload" * 99
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    path.write_bytes({
        "cut": content[:-1], "empty": b"", "flipped": content[:99] + b"X" + content[100:],
        "longer": content + b"X", "foreign": b"something else",
    }[damage])  # fmt: skip
    assert cache_folder.fetch(str(path)) is None
    assert not path.exists()


def test_a_file_that_others_can_write_is_not_read(tmp_path):
    path = tmp_path / "entry"
    cache_folder.store(str(path), b"payload")
    path.chmod(0o666)
    assert cache_folder.fetch(str(path)) is None


def test_a_full_disk_is_asked_once(tmp_path, monkeypatch):
    asked = []

    def full(*args, **kwargs):
        asked.append(args)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    programs = cache_folder.Programs(str(tmp_path))
    with pytest.warns(RuntimeWarning, match="takes no more files .No space left"):
        programs.put("a", b"1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        programs.put("b", b"2")
    assert len(asked) == 1
    assert os.listdir(tmp_path) == []
    assert programs.get("a") is None


def test_a_folder_that_is_only_read_is_used_without_a_word(tmp_path, monkeypatch):
    programs = cache_folder.Programs(str(tmp_path))
    programs.put("a", b"1")

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache_folder, "_full", {})
    monkeypatch.setattr(os, "replace", refuse)
    programs.put("b", b"2")
    assert programs.get("a") == b"1"
    assert programs.get("b") is None


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path):
    for name, age in ((".old.part", 90000), (".young.part", 10), ("other", 90000)):
        (tmp_path / name).touch()
        now = (tmp_path / name).stat().st_mtime
        os.utime(tmp_path / name, (now - age, now - age))
    cache_folder.store(str(tmp_path / "entry"), b"1")
    assert sorted(os.listdir(tmp_path)) == [".young.part", "entry", "other"]


TWICE = """
import os, sys
from bireme.host import config, jax_door
jax = jax_door.jax()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
from jax._src import compilation_cache
seen = []
real = compilation_cache.get_executable_and_time
def get(*args):
    found = real(*args)
    seen.append(found[0] is not None)
    return found
compilation_cache.get_executable_and_time = get
print(float(jax.jit(lambda x: x * 3.0)(2.0)), any(seen))
"""


def test_a_damaged_program_is_compiled_again(tmp_path):
    env = {"BIREME_CACHE_DIR": str(tmp_path / "cache")}

    def run():
        done = python(TWICE, tmp_path, **env)
        assert done.stderr == ""
        return done.stdout.split()

    assert run() == ["6.0", "False"]
    entries = sorted((tmp_path / "cache" / "xla").iterdir())
    assert entries
    assert run() == ["6.0", "True"]
    for path in entries:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    assert run() == ["6.0", "False"]
    assert run() == ["6.0", "True"]
