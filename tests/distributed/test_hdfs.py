"""HDFSClient against a stand-in for Hadoop's program that works on local files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bireme.distributed.fleet.utils import HDFSClient
from bireme.distributed.fleet.utils.fs import FSFileExistsError, FSFileNotExistsError
from bireme.distributed.fleet.utils.hdfs import FSShellCmdAborted, FSTimeOut

HADOOP = r"""#!/bin/bash
shift                                            # fs
while [[ "$1" == -D* ]]; do shift; done          # settings
command="$1"; shift
case "$command" in
  -test) test "$@" ;;
  -mkdir) mkdir "$@" ;;
  -touchz) touch "$@" ;;
  -rm) rm "$@" ;;
  -mv) mv "$@" ;;
  -cat) cat "$@" ;;
  -put|-get) cp -r "$@" ;;
  -ls) for path in "$@"; do
         echo "Found items"
         find "$path" -mindepth 1 -maxdepth 1 | sort | while read -r f; do
           kind=-; test -d "$f" && kind=d
           echo "${kind}rwxr-xr-x - me us $(stat -c %s "$f") 2024-01-01 00:00 $f"
         done; done ;;
  -abort) exit 134 ;;
  *) echo "no $command" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def client(tmp_path: Path) -> HDFSClient:
    (tmp_path / "home" / "bin").mkdir(parents=True)
    program = tmp_path / "home" / "bin" / "hadoop"
    program.write_text(HADOOP)
    program.chmod(0o755)
    return HDFSClient(str(tmp_path / "home"), {"fs.default.name": "x"}, 200, 20)


def test_files_and_folders(client, tmp_path):
    root = str(tmp_path / "data")
    assert client.ls_dir(root) == ([], [])
    client.mkdirs(f"{root}/a/b")
    client.touch(f"{root}/empty")
    client.touch(f"{root}/empty")
    with pytest.raises(FSFileExistsError):
        client.touch(f"{root}/empty", exist_ok=False)
    assert client.ls_dir(root) == (["a"], ["empty"])
    assert client.list_dirs(root) == ["a"]
    assert client.is_dir(f"{root}/a")
    assert not client.is_file(f"{root}/a")
    assert client.is_file(f"{root}/empty")
    assert client.need_upload_download()
    client.delete(f"{root}/a")
    client.delete(f"{root}/nothing")
    assert client.ls_dir(root) == ([], ["empty"])


def test_copies(client, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "one").write_text("1\n2")
    (here / "two words").write_text("3")
    client.mkdirs(str(there))
    client.upload(str(here), str(there))
    assert client.ls_dir(str(there)) == ([], ["one", "two words"])
    assert client.cat(str(there / "one")) == "1\n2"
    assert client.cat(str(there)) == ""
    assert client.list_files_info([str(there)])[0] == {"path": str(there / "one"), "size": 3}
    back = tmp_path / "back"
    back.mkdir()
    client.download(str(there), str(back))
    assert (back / "one").read_text() == "1\n2"
    (here / "one").write_text("new")
    client.upload_dir(str(here), str(there), overwrite=True)
    assert client.cat(str(there / "here" / "one")) == "new"
    with pytest.raises(FSFileNotExistsError):
        client.upload(str(tmp_path / "nothing"), str(there))
    with pytest.raises(FSFileNotExistsError):
        client.download(str(tmp_path / "nothing"), str(back))


def test_moves(client, tmp_path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    with pytest.raises(FSFileExistsError):
        client.mv(str(tmp_path / "a"), str(tmp_path / "b"))
    client.mv(str(tmp_path / "a"), str(tmp_path / "b"), overwrite=True)
    assert (tmp_path / "b").read_text() == "a"
    with pytest.raises(FSFileNotExistsError):
        client.mv(str(tmp_path / "a"), str(tmp_path / "c"))


def test_commands_that_fail(client):
    with pytest.raises(FSTimeOut, match=r"no -dance"):
        client._run("-dance")
    with pytest.raises(FSShellCmdAborted):
        client._run("-abort")
