"""paddle.utils, hub, version and sysconfig."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import http.server
import io
import os
import pathlib
import shutil
import tarfile
import threading
import zipfile

import numpy as np
import pytest

import bireme
from bireme.core.errors import BiremeError, FileFormatError
from bireme.utils import download

NEST = {"b": [1, (2, 3)], "a": {"x": 4}, "c": ()}


@pytest.mark.parametrize("nest", [NEST, [1, [2, [3]]], 5, ("x", {"k": "y"})], ids=str)
def test_nested_structures_as_paddle(paddle, nest):
    theirs, ours = paddle.utils, bireme.utils
    flat = theirs.flatten(nest)
    assert ours.flatten(nest) == flat
    again = [f"{v}!" for v in flat]
    assert ours.pack_sequence_as(nest, again) == theirs.pack_sequence_as(nest, again)
    assert ours.map_structure(str, nest) == theirs.map_structure(str, nest)
    assert ours.is_sequence(nest) == theirs.is_sequence(nest)
    assert ours.to_sequence(nest) == theirs.to_sequence(nest)
    ours.assert_same_structure(nest, nest)


def test_nested_structures_errors():
    Pair = collections.namedtuple("Pair", "x y")
    assert bireme.utils.pack_sequence_as(Pair(1, 2), [3, 4]) == Pair(3, 4)
    for bad, kind in (
        (lambda u: u.pack_sequence_as([1], [1, 2]), ValueError),
        (lambda u: u.pack_sequence_as([1], 3), TypeError),
        (lambda u: u.flatten({1: 2, "a": 3}), TypeError),
        (lambda u: u.assert_same_structure([1], [1, 2]), ValueError),
        (lambda u: u.assert_same_structure([1], 1), ValueError),
        (lambda u: u.assert_same_structure([1], (1,)), TypeError),
        (lambda u: u.assert_same_structure({"a": 1}, {"b": 1}), ValueError),
        (lambda u: u.convert_to_list([1], 2, "stride"), ValueError),
        (lambda u: u.convert_to_list("ab", 2, "stride"), TypeError),
    ):
        with pytest.raises(kind):
            bad(bireme.utils)
    assert bireme.utils.convert_to_list(3, 2, "stride") == [3, 3]


def test_deprecated():
    def old(x):
        """Doc."""
        return x + 1

    quiet = bireme.utils.deprecated("paddle.new", "2.0", "better")(old)
    assert quiet(1) == 2
    assert 'Please use "paddle.new" instead.' in quiet.__doc__
    loud = bireme.utils.deprecated(level=1)(lambda: 5)
    with pytest.warns(bireme.utils.VisibleDeprecationWarning, match="is deprecated"):
        assert loud() == 5
    assert bireme.utils.deprecated(since="99.0", level=1)(lambda: 5)() == 5
    with pytest.raises(RuntimeError, match="is gone"):
        bireme.utils.deprecated(level=2)(lambda: 5)()
    for bad in ({"level": 3}, {"update_to": "torch.x"}):
        with pytest.raises(ValueError, match="deprecated"):
            bireme.utils.deprecated(**bad)


def test_versions(capsys, paddle):
    bireme.utils.require_version("2.0")
    bireme.utils.require_version("3.3.1", "3.3.1")
    for bounds in (("3.4",), ("1.0", "3.3.0")):
        with pytest.raises(BiremeError, match="is needed"):
            bireme.utils.require_version(*bounds)
    for bad, kind in ((3, TypeError), ("3.x", ValueError)):
        with pytest.raises(kind):
            bireme.utils.require_version(bad)
    for name in ("full_version", "major", "minor", "patch", "rc"):
        assert getattr(bireme.version, name) == getattr(paddle.version, name)
    bireme.version.show()
    assert "full_version: 3.3.1" in capsys.readouterr().out
    assert bireme.version.hip is None
    assert bireme.version.xpu() == "False"


def test_sysconfig():
    assert os.path.isdir(os.path.join(bireme.sysconfig.get_include(), "xla", "ffi"))
    assert os.path.isdir(bireme.sysconfig.get_lib())


def test_try_import():
    assert bireme.utils.try_import("json").dumps(1) == "1"
    with pytest.raises(ImportError, match="pip install no_such_module"):
        bireme.utils.try_import("no_such_module.sub")
    with pytest.raises(ImportError, match="own words"):
        bireme.utils.try_import("no_such_module", "own words")


def test_run_check(capsys):
    bireme.utils.run_check()
    assert "Bireme works on cpu." in capsys.readouterr().out


def test_unique_names(paddle):
    for lib in (paddle, bireme):
        names = lib.utils.unique_name
        with names.guard():
            assert [names.generate("fc") for _ in range(2)] == ["fc_0", "fc_1"]
            before = names.switch()
            assert names.generate("fc") == "fc_0"
            names.switch(*before)
            assert names.generate("fc") == "fc_2"
        with names.guard("pre_"):
            assert names.generate("fc") == "pre_fc_0"


def test_dlpack():
    x = bireme.to_tensor([1.0, 2.0])
    assert bireme.utils.dlpack.from_dlpack(bireme.utils.dlpack.to_dlpack(x)).tolist() == [1, 2]


# --- files ----------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    """A web server for a folder; gives (folder, address)."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(folder), **kwargs)

        def log_message(self, *args):
            """Quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join()


def test_downloads(server, tmp_path, monkeypatch):
    folder, address = server
    monkeypatch.setattr(download, "WEIGHTS_HOME", str(tmp_path / "cache"))
    (folder / "w.pdparams").write_bytes(b"abc")
    md5 = hashlib.md5(b"abc").hexdigest()
    get = bireme.utils.download.get_weights_path_from_url
    path = get(f"{address}/w.pdparams", md5)
    assert pathlib.Path(path).read_bytes() == b"abc"
    (folder / "w.pdparams").write_bytes(b"xyz")
    assert pathlib.Path(get(f"{address}/w.pdparams")).read_bytes() == b"abc"  # kept
    with pytest.raises(RuntimeError, match="MD5"):
        get(f"{address}/w.pdparams", "0" * 32)
    with pytest.raises(RuntimeError, match=r"cannot be fetched.*put the file at"):
        get(f"{address}/missing")
    assert sorted(os.listdir(tmp_path / "cache")) == ["w.pdparams"]
    assert get(f"file://{folder}/w.pdparams") == str(folder / "w.pdparams")
    assert get(str(folder / "w.pdparams")) == str(folder / "w.pdparams")
    with pytest.raises(ValueError, match="http, https and file"):
        get("ftp://x/y")


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
@pytest.mark.parametrize("tops", [["one/a", "one/b"], ["a", "b"]])
def test_archives(tmp_path, kind, tops):
    path = tmp_path / f"pack.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name in tops:
                archive.writestr(name, name)
    else:
        with tarfile.open(path, "w:gz") as archive:
            for name in tops:
                info = tarfile.TarInfo(name)
                info.size = len(name)
                archive.addfile(info, io.BytesIO(name.encode()))
    found = download.get_path_from_url(str(path), str(tmp_path))
    assert sorted(os.listdir(found)) == ["a", "b"]


def test_archives_cannot_write_elsewhere(tmp_path):
    path = tmp_path / "in" / "bad.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("../evil"), io.BytesIO())
    with pytest.raises(FileFormatError, match="evil"):
        download.get_path_from_url(str(path), str(tmp_path))
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("ending", ["zip", "tar"])
def test_an_archive_does_not_take_the_place_of_files(tmp_path, ending):
    path = tmp_path / f"weights.{ending}"

    def put(*members):
        if ending == "zip":
            with zipfile.ZipFile(path, "w") as files:
                for name, text in members:
                    files.writestr(name, text)
        else:
            with tarfile.open(path, "w") as files:
                for name, text in members:
                    entry = tarfile.TarInfo(name)
                    entry.size = len(text)
                    files.addfile(entry, io.BytesIO(text.encode()))

    get = lambda: download.get_path_from_url(str(path), str(tmp_path))  # noqa: E731
    put(("model/a", "first"), ("model/b/c", "x"))
    for _ in range(2):  # unpacked, then found
        assert get() == str(tmp_path / "model")
    put(("model/a", "another one"))
    with pytest.raises(RuntimeError, match="something else has that name"):
        get()
    assert (tmp_path / "model" / "a").read_text() == "first"
    put(("model", "a file"))
    with pytest.raises(RuntimeError, match="something else has that name"):
        get()
    put(("one", "1"), ("two", "2"))
    assert get() == str(tmp_path / "weights")
    assert sorted(os.listdir(tmp_path)) == sorted(["model", path.name, "weights"])


HUBCONF = """
dependencies = ["numpy"]
from helper import width

def net(size=2):
    '''A small net.'''
    import bireme
    return bireme.nn.Linear(width, size)

def _hidden():
    pass
"""


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    (folder / "helper.py").write_text("width = 3\n")
    return str(folder)


def test_hub_from_a_folder(repository, tmp_path):
    hub = bireme.hub
    assert hub.list(repository, source="local") == ["net"]
    assert hub.help(repository, "net", source="local") == "A small net."
    assert hub.load(repository, "net", source="local", size=4).weight.shape == [3, 4]
    for call in (
        lambda: hub.load(repository, "nothing", source="local"),
        lambda: hub.list(str(tmp_path), source="local"),
    ):
        with pytest.raises(RuntimeError, match="hub"):
            call()
    for call in (
        lambda: hub.list(repository, source="web"),
        lambda: hub.list("noslash"),
        lambda: hub.help(repository, 3, source="local"),
    ):
        with pytest.raises(ValueError, match="hub"):
            call()
    with open(os.path.join(repository, "hubconf.py"), "a") as file:
        file.write("\ndependencies = ['no_such_package']\n")
    with pytest.raises(RuntimeError, match="no_such_package"):
        hub.load(repository, "net", source="local")


def test_hub_from_a_repository(server, repository, monkeypatch, tmp_path):
    folder, address = server
    (folder / "me").mkdir()
    with zipfile.ZipFile(folder / "me" / "main.zip", "w") as archive:
        for name in ("hubconf.py", "helper.py"):
            archive.write(os.path.join(repository, name), f"models-main/{name}")
    monkeypatch.setattr(bireme.hub, "HUB_DIR", str(tmp_path / "hub"))
    links = {"github": address + "/{owner}/{branch}.zip"}
    monkeypatch.setattr(bireme.hub, "_ARCHIVES", links)
    assert bireme.hub.list("me/models") == ["net"]
    os.unlink(folder / "me" / "main.zip")
    assert bireme.hub.load("me/models:main", "net").weight.shape == [3, 2]  # from the cache
    with pytest.raises(RuntimeError, match="cannot be fetched"):
        bireme.hub.list("me/models", force_reload=True)


@pytest.fixture
def hub(server, monkeypatch, tmp_path):
    """`hub(owner, branch, members)`: what the host answers for a repository's archive."""
    folder, address = server
    monkeypatch.setattr(bireme.hub, "HUB_DIR", str(tmp_path / "hub"))
    links = {s: f"{address}/{s}-{{owner}}-{{name}}-{{branch}}.zip" for s in ("github", "gitee")}
    monkeypatch.setattr(bireme.hub, "_ARCHIVES", links)

    def put(path, members):
        archive = folder / path
        archive.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(members, bytes):
            archive.write_bytes(members)
            return
        with zipfile.ZipFile(archive, "w") as files:
            for name, text in members.items():
                files.writestr(name, text)

    return put


def _conf(name):
    return {"top/hubconf.py": f"def {name}():\n    return {name!r}\n"}


def _below(folder):
    return {
        os.path.relpath(os.path.join(where, n), folder)
        for where, _, names in os.walk(folder)
        for n in names
    }


def _link(name):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = 0o120777 << 16
    return entry


@pytest.mark.parametrize(
    "members",
    [
        {"good_one_main/hubconf.py": "evil = print\n"},
        {"top/hubconf.py": "x = 1\n", "good_one_main/hubconf.py": "evil = print\n"},
        {"top/../../good_one_main/hubconf.py": "evil = print\n"},
        {"../good_one_main/hubconf.py": "evil = print\n"},
        {"/good_one_main/hubconf.py": "evil = print\n"},
        {"top\\..\\..\\good_one_main\\hubconf.py": "evil = print\n"},
        {"hubconf.py": "evil = print\n"},
        {_link("top/link"): "../../good_one_main", "top/link/hubconf.py": "evil = print\n"},
        {_link("top"): "good_one_main", "top/hubconf.py": "evil = print\n"},
        {"Good_one_main/hubconf.py": "evil = print\n", "GOOD_ONE_MAIN/x": ""},
        {"top/": "", "top//hubconf.py": "evil = print\n"},
        {},
        b"no archive",
    ],
    ids=["its name", "beside", "inside out", "dots", "absolute", "backslashes", "no folder",
         "link", "top is a link", "cases", "empty part", "empty", "rubbish"],
)  # fmt: skip
def test_an_archive_stays_in_its_own_folder(hub, tmp_path, members):
    hub("github-good-one-main.zip", _conf("fine"))
    assert bireme.hub.list("good/one") == ["fine"]
    before = _below(tmp_path / "hub")
    hub("github-bad-two-main.zip", members)
    with contextlib.suppress(bireme.hub.HubError):
        assert "evil" in bireme.hub.list("bad/two")
    assert bireme.hub.list("good/one") == ["fine"]
    new = _below(tmp_path / "hub") - before
    assert all(n.startswith("bad_two_main" + os.sep) for n in new), new
    assert not [n for n in os.listdir(tmp_path / "hub") if n.startswith(".fetch")]


def test_repositories_do_not_share_a_folder(hub):
    """Joined by underscores, each two of these have one name."""
    names = [
        ("me/a_b:c", "github"), ("me/a:b_c", "github"), ("me/a:b/c", "github"),
        ("me/a_b:c", "gitee"), ("me_a/b:c", "gitee"), ("me/a_b:C", "github"),
    ]  # fmt: skip
    for number, (repo, source) in enumerate(names):
        path, _, branch = repo.partition(":")
        hub(f"{source}-{path.replace('/', '-')}-{branch}.zip", _conf(f"net{number}"))
    for _ in range(2):  # fetched, then from the cache
        found = [bireme.hub.list(repo, source) for repo, source in names]
        assert found == [[f"net{number}"] for number in range(len(names))]
    for wrong in ("../x", "a/..", "a/b c", "a/b/c", "/b", "a/", "a\\b/c"):
        with pytest.raises(ValueError, match="owner/name"):
            bireme.hub.list(wrong)


def test_a_failed_reload_keeps_the_folder(hub):
    hub("github-me-one-main.zip", _conf("old"))
    assert bireme.hub.list("me/one") == ["old"]
    hub("github-me-one-main.zip", b"cut off")
    with pytest.raises(RuntimeError, match="cannot be unpacked"):
        bireme.hub.list("me/one", force_reload=True)
    assert bireme.hub.list("me/one") == ["old"]
    hub("github-me-one-main.zip", _conf("new"))
    assert bireme.hub.list("me/one") == ["old"]
    assert bireme.hub.list("me/one", force_reload=True) == ["new"]


def test_repositories_have_modules_of_their_own(hub):
    for name in ("one", "two"):
        conf = {"top/hubconf.py": "from helper_of_hub import which\n"}
        helper = {"top/helper_of_hub.py": f"def which():\n    return {name!r}\n"}
        hub(f"github-me-{name}-main.zip", conf | helper)
    for name in ("one", "two", "one"):
        assert bireme.hub.load(f"me/{name}", "which") == name


def test_hub_runs_nothing_that_others_may_have_put_there(repository, monkeypatch, tmp_path):
    """Not even what was fetched before; without a home the folder would be in the current one."""
    planted = tmp_path / "~" / "hub"
    shutil.copytree(repository, planted / "me_models_main")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bireme.hub, "HUB_DIR", "~/hub")
    with pytest.raises(RuntimeError, match="not an absolute path, and their code is run"):
        bireme.hub.list("me/models")
    monkeypatch.setattr(bireme.hub, "HUB_DIR", str(planted))
    assert bireme.hub.list("me/models") == ["net"]
    planted.chmod(0o777)
    with pytest.raises(RuntimeError, match="others can write to"):
        bireme.hub.list("me/models")


def test_state_dicts_by_address(server, tmp_path):
    folder, address = server
    state = {"w": bireme.ones([2])}
    bireme.save(state, str(folder / "m.pdparams"))
    digest = hashlib.sha256((folder / "m.pdparams").read_bytes()).hexdigest()[:8]
    os.rename(folder / "m.pdparams", folder / f"m-{digest}.pdparams")
    get = bireme.hub.load_state_dict_from_url
    found = get(f"{address}/m-{digest}.pdparams", str(tmp_path / "c"), check_hash=True)
    np.testing.assert_array_equal(found["w"].numpy(), [1, 1])
    found = get(f"{address}/m-{digest}.pdparams", str(tmp_path / "c"), file_name="n.pdparams",
                map_location="cpu")  # fmt: skip
    assert found["w"].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="SHA-256"):
        get(f"{address}/m-{digest}.pdparams", str(tmp_path / "c"), True, "n-12345678.pdparams")
