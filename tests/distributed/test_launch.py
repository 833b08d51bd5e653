"""The launcher, spawn and calls between processes."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bireme import distributed as dist
from bireme.core.errors import InvalidArgument
from bireme.distributed import door
from bireme.distributed.job import PARTNER_LOST, DistributedError
from bireme.distributed.launch import meeting, rank
from bireme.distributed.launch.main import main

TELL = """
import os, sys
names = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE",
         "PADDLE_GLOBAL_SIZE", "PADDLE_LOCAL_SIZE", "PADDLE_NNODES", "PADDLE_DISTRI_BACKEND")
print(*[os.environ[n] for n in names], *sys.argv[1:])
ends = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
assert os.environ["PADDLE_CURRENT_ENDPOINT"] == ends[int(os.environ["PADDLE_TRAINER_ID"])]
assert len(os.environ["BIREME_JOB_SECRET"]) >= 16
"""


def _script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


def _main(folder: Path, count: int, script: str, *more: str) -> int:
    return main(
        ["--nproc_per_node", str(count), "--devices", "", "--log_dir", str(folder / "log"), *more,
         script, "one", "--two"]
    )  # fmt: skip


def test_environment_and_logs(tmp_path: Path, capfd) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    assert _main(tmp_path, 3, _script(tmp_path, TELL)) == 0
    for number in range(3):
        log = (tmp_path / "log" / f"workerlog.{number}").read_text()
        assert log == f"{number} 3 {number} {number} 3 3 1 gloo one --two\n"
    assert capfd.readouterr().out.startswith("0 3 0")  # the first one's log is shown
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_rank_that_fails_ends_the_job(tmp_path: Path, capfd) -> None:
    text = (
        "import os, sys, time\n"
        "if os.environ['PADDLE_TRAINER_ID'] == '1':\n"
        "    raise ValueError('rank one is broken')\n"
        "time.sleep(10_000)\n"
    )
    assert _main(tmp_path, 2, _script(tmp_path, text)) == 1
    err = capfd.readouterr().err
    assert "process 1 ended with status 1" in err
    assert "ValueError: rank one is broken" in err


def test_a_killed_rank_is_reported(tmp_path: Path, capfd) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    assert _main(tmp_path, 1, _script(tmp_path, text)) == 128 + 9
    assert "signal SIGKILL" in capfd.readouterr().err


def test_restart(tmp_path: Path, capfd) -> None:
    flag = tmp_path / "failed_once"
    text = (
        "import pathlib, sys\n"
        f"flag = pathlib.Path({str(flag)!r})\n"
        "if not flag.exists():\n"
        "    flag.touch()\n"
        "    sys.exit(7)\n"
        "print('second time')\n"
    )
    script = _script(tmp_path, text)
    assert _main(tmp_path, 1, script, "--max_restart", "1") == 0
    assert "starting again, 1 of 1" in capfd.readouterr().err
    assert "second time" in (tmp_path / "log" / "workerlog.0").read_text()
    flag.unlink()
    assert _main(tmp_path, 1, script) == 7


def test_wrong_arguments(tmp_path: Path, capfd) -> None:
    assert main(["--log_dir", str(tmp_path), "nowhere.py"]) == 2
    assert "no file 'nowhere.py'" in capfd.readouterr().err
    assert main(["--nnodes", "2", "--log_dir", str(tmp_path), "nowhere.py"]) == 2
    assert "secret" in capfd.readouterr().err


def test_two_nodes_on_one_machine(tmp_path: Path, ports) -> None:
    (port,) = ports(1)
    script = _script(tmp_path, TELL)
    env = os.environ | {
        "BIREME_JOB_SECRET": "a secret for this test",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "bireme.distributed.launch", "--nnodes", "2", "--devices", "",
             "--master", f"127.0.0.1:{port}", "--rank", str(i), "--nproc_per_node", str(i + 1),
             "--log_dir", str(tmp_path / f"log{i}"), script],
            env=env,
        )
        for i in range(2)
    ]  # fmt: skip
    assert [n.wait(timeout=1800) for n in nodes] == [0, 0]
    assert (tmp_path / "log0" / "workerlog.0").read_text() == "0 3 0 0 3 1 2 gloo\n"
    assert (tmp_path / "log1" / "workerlog.1").read_text() == "2 3 1 1 3 2 2 gloo\n"


def test_the_cause_of_a_failure_is_shown(launched) -> None:
    done = launched("failing_worker.py", 2)
    assert done.returncode == 5, done.stderr[-3000:]
    assert "process 1 ended with status 5" in done.stderr
    assert "the second process gives up" in done.stderr


def test_a_process_that_fails_because_of_another_says_so(tmp_path: Path) -> None:
    """No launcher here, which would end it as soon as it sees the other one's failure."""
    kept = meeting.Ports()
    told = meeting.environments([meeting.node("127.0.0.1", 2, kept)], 0, [], "a secret " * 4)
    more = {"PYTHONPATH": str(Path(__file__).parents[2]), "BIREME_NATIVE": "0"}
    script = str(Path(__file__).with_name("failing_worker.py"))
    logs = [tmp_path / "0", tmp_path / "1"]
    processes = []
    for env, path in zip(told, logs, strict=True):
        with path.open("w") as log:
            processes.append(
                subprocess.Popen(
                    [sys.executable, rank.__file__, script],
                    env=os.environ | more | env,
                    stdout=log,
                    stderr=log,
                )
            )
    assert [p.wait() for p in processes] == [PARTNER_LOST, 5]
    kept.release()
    said = logs[0].read_text()
    assert "[all_reduce] the exchange between processes [0, 1] failed on process 0" in said


def test_the_cause_is_looked_for_after_its_consequence(tmp_path: Path, capfd) -> None:
    """The first process, lost without its partner, is seen to end before the second one does."""
    text = (
        "import os, pathlib, sys, time\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "if os.environ['PADDLE_TRAINER_ID'] == '0':\n"
        "    (folder / 'part').write_text(str(os.getpid()))\n"
        "    (folder / 'part').replace(folder / 'pid')\n"
        f"    sys.exit({PARTNER_LOST})\n"
        "while not (folder / 'pid').exists():\n"
        "    time.sleep(0.01)\n"
        "while os.path.exists('/proc/' + (folder / 'pid').read_text()):\n"  # until it is waited for
        "    time.sleep(0.01)\n"
        "sys.exit(5)\n"
    )
    assert _main(tmp_path, 2, _script(tmp_path, text)) == 5
    assert "process 1 ended with status 5" in capfd.readouterr().err


def test_ports_are_kept_for_the_job(ports) -> None:
    (port,) = ports(1)
    address = ("127.0.0.1", port)
    if sys.platform == "linux":  # nobody else is given it, not even who asks for it
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
    listening = door.Door(address, b"key", b"test", lambda link: link.close())
    door.connect(address, b"key", b"test", 0).close()
    listening.close()


LASTING = """
import os, pathlib, sys, time
path = pathlib.Path(sys.argv[1], os.environ["PADDLE_TRAINER_ID"] + ".part")
path.write_text(str(os.getpid()))
path.replace(path.with_suffix(".pid"))
time.sleep(10_000)
"""
SPAWNING = """
import os, pathlib, sys, time
from bireme import distributed as dist

def last(folder):
    path = pathlib.Path(folder, os.environ["PADDLE_TRAINER_ID"] + ".part")
    path.write_text(str(os.getpid()))
    path.replace(path.with_suffix(".pid"))
    time.sleep(10_000)

if __name__ == "__main__":
    dist.spawn(last, args=(sys.argv[1],), nprocs=2, backend="gloo")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a parent's death")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("what", ["launch", "spawn"])
def test_a_job_ends_with_the_process_that_started_it(tmp_path: Path, what, how) -> None:
    if signal.getsignal(how) is signal.SIG_IGN:
        pytest.skip("this suite was started in the background, where children ignore Ctrl-C")
    script = _script(tmp_path, LASTING if what == "launch" else SPAWNING)
    launch = ["-m", "bireme.distributed.launch", "--nproc_per_node", "2", "--devices", "",
              "--log_dir", str(tmp_path / "log")]  # fmt: skip
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, *(launch if what == "launch" else []), script, str(tmp_path)]
    with subprocess.Popen(
        command, env=env, stderr=subprocess.DEVNULL,
    ) as starter:  # fmt: skip
        told = [tmp_path / f"{rank}.pid" for rank in range(2)]
        while not all(t.exists() for t in told):
            assert starter.poll() is None
            time.sleep(0.05)
        starter.send_signal(how)
    for path in told:
        while _runs(int(path.read_text())):
            time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.slow
def test_the_page_runs(launched, tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "processes.md"
    (block,) = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    done = launched(_script(tmp_path, block), 2)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "loss of all processes" in done.stdout


def test_calls_between_processes(launched, tmp_path: Path) -> None:
    done = launched("rpc_worker.py", 2)
    assert done.returncode == 0, done.stderr[-3000:]
    for number in range(2):
        assert "calls agree" in (tmp_path / "log" / f"workerlog.{number}").read_text()


def test_calls_need_a_secret(monkeypatch) -> None:
    monkeypatch.delenv("BIREME_JOB_SECRET", raising=False)
    with pytest.raises(DistributedError, match="secret"):
        dist.rpc.init_rpc("worker0", 0, 1, "127.0.0.1:1")
    with pytest.raises(DistributedError, match="init_rpc"):
        dist.rpc.rpc_sync("worker0", max, (1, 2))


def _write_rank(folder: str) -> None:
    env = dist.ParallelEnv()
    Path(folder, f"{env.rank} of {env.world_size}").touch()


def _fail(_: str) -> None:
    if dist.get_rank() == 1:
        raise ValueError("spawned and broken")
    time.sleep(10_000)


def test_spawn(tmp_path: Path) -> None:
    context = dist.spawn(_write_rank, args=(str(tmp_path),), nprocs=2, backend="gloo")
    assert len(context.processes) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0 of 2", "1 of 2"]
    assert "PADDLE_TRAINER_ID" not in os.environ


def test_spawn_raises_what_a_process_raised() -> None:
    with pytest.raises(DistributedError, match="process 1 failed") as caught:
        dist.spawn(_fail, args=("",), nprocs=2, backend="gloo")
    assert "spawned and broken" in str(caught.value)
    with pytest.raises(InvalidArgument, match="not supported"):
        dist.spawn(_fail, nprocs=2, colour="red")
    with pytest.raises(InvalidArgument, match="fork"):
        dist.spawn(_fail, nprocs=2, start_method="fork")


def _meet(rank: int, address: str, folder: str) -> None:
    dist.gloo_init_parallel_env(rank, 2, address)
    Path(folder, str(rank)).touch()
    dist.gloo_barrier()
    assert sorted(p.name for p in Path(folder).iterdir()) == ["0", "1"]
    dist.gloo_release()


def test_gloo_barrier(tmp_path: Path, ports) -> None:
    (port,) = ports(1)
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=_meet, args=(1, f"127.0.0.1:{port}", str(tmp_path)))
    other.start()
    _meet(0, f"127.0.0.1:{port}", str(tmp_path))
    other.join()
    assert other.exitcode == 0
    with pytest.raises(DistributedError, match="first"):
        dist.gloo_barrier()
    with pytest.raises(InvalidArgument, match="two processes"):
        dist.gloo_init_parallel_env(0, 1, "127.0.0.1:1")


def test_a_barrier_over_a_network_needs_a_secret(monkeypatch) -> None:
    monkeypatch.delenv("BIREME_JOB_SECRET", raising=False)
    with pytest.raises(DistributedError, match="share a secret"):
        dist.gloo_init_parallel_env(0, 2, "192.0.2.1:4321")
