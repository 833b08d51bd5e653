"""Workers that fail, die or lose their parent: readable errors, and nothing left behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from multiprocessing import forkserver

import numpy as np
import pytest

from bireme.core.errors import ExecutionError, InvalidArgument, ShapeMismatch
from bireme.io import DataLoader, Dataset, IterableDataset
from bireme.io.failures import as_exception, failure
from tests.io.workers import left_workers


class Unusual(Exception):
    """Its constructor takes other things than a message, and says something of its own."""

    def __init__(self, need, have):
        super().__init__(f"need {need}")
        self.need, self.have = need, have

    def __str__(self):
        return f"{self.have} of {self.need}"


class OneNumber(ValueError):
    def __init__(self, number):
        super().__init__(number + 1)


class LookedUp(KeyError):
    pass


class Keeps(RuntimeError):
    def __init__(self, what):
        super().__init__(what)
        self.socket = lambda: what  # cannot be pickled


class Sealed(Exception):
    def __init_subclass__(cls):
        raise TypeError("nobody derives from this")


ERRORS = [
    KeyError("the key"), LookedUp("a", "b"), IndexError(7), Unusual(3, 2), OneNumber(4),
    Keeps("x"), Sealed("s"), OSError(errno.ENOENT, "nothing here", "a/file"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), MemoryError(),
    SyntaxError("wrong", ("file.py", 3, 1, "a b")), ExceptionGroup("many", [ValueError(1)]),
    ImportError("no module", name="cv2"), AttributeError("no x", name="x"), ShapeMismatch("shape"),
    subprocess.CalledProcessError(3, ["ls"]), ZeroDivisionError(), AssertionError({"a": 1}),
]  # fmt: skip
ENDS = [StopIteration(3), SystemExit(1), SystemExit("text"), KeyboardInterrupt(), GeneratorExit()]


class Raising(Dataset):
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 3

    def __getitem__(self, i):
        if i == 1:
            raise self.error[0](*self.error[1:])
        return np.float32(i)


def _raised(error):
    try:
        raise error
    except BaseException as e:
        return as_exception(pickle.loads(pickle.dumps(failure(e))), 3)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_every_kind_of_error_shows_the_workers_traceback(error):
    got = _raised(error)
    if isinstance(error, Sealed):
        assert isinstance(got, ExecutionError)
    else:
        assert isinstance(got, type(error))
        assert type(got).__qualname__ == type(error).__qualname__
    shown = "".join(traceback.format_exception(got))
    for text in (str(got), shown):
        lines = text.splitlines()
        assert any(line.endswith("[DataLoader] worker 3 raised:") for line in lines), text
        assert any("test_worker_failures.py" in line for line in lines)
        assert "\\n" not in text
    again = pickle.loads(pickle.dumps(got))  # as from a process that has a loader itself
    assert str(again) == str(got)
    assert isinstance(again, type(got).__mro__[1])


@pytest.mark.parametrize("error", ENDS, ids=lambda e: type(e).__name__)
def test_what_would_end_the_program_is_an_error(error):
    got = _raised(error)
    assert type(got) is ExecutionError
    assert type(error).__name__ in str(got)


def test_errors_keep_their_contents():
    got = _raised(OSError(errno.ENOENT, "nothing here", "a/file"))
    assert isinstance(got, FileNotFoundError)
    assert (got.errno, got.filename) == (errno.ENOENT, "a/file")
    got = _raised(Unusual(3, 2))
    assert (got.need, got.have) == (3, 2)
    got = _raised(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    assert (got.start, got.object) == (0, b"\xff")
    assert _raised(ImportError("no module", name="cv2")).name == "cv2"
    assert _raised(Keeps("x")).args == ("x",)


@pytest.mark.parametrize(
    "error", [(LookedUp, "bad"), (Unusual, 3, 2), (StopIteration,), (SystemExit, 1)]
)
def test_errors_of_workers(error):
    kind = error[0] if error[0] in (LookedUp, Unusual) else ExecutionError
    with pytest.raises(kind, match=r"worker \d raised:\n\nTraceback") as caught:
        list(DataLoader(Raising(error), num_workers=2))
    assert "__getitem__" in str(caught.value)
    assert not left_workers()


class Ended(IterableDataset):
    def __iter__(self):
        return iter(range(6))


def _no_more(samples):
    raise StopIteration


@pytest.mark.parametrize("workers", [0, 1])
def test_a_collate_fn_that_stops_is_not_the_end_of_the_data(workers):
    with pytest.raises(RuntimeError, match="StopIteration"):
        for _ in DataLoader(Ended(), batch_size=2, num_workers=workers, collate_fn=_no_more):
            pass


# ------------------------------------------------------------------------------ processes that die


class Slow(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return np.full(20_000, i, "float32")


def _read_all(**options):
    return [int(b[0, 0]) for b in DataLoader(Slow(), num_workers=2, **options)]


def test_a_killed_fork_server_is_started_again():
    assert _read_all() == list(range(40))
    for _ in range(3):
        os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
        assert _read_all() == list(range(40))


def test_a_fork_server_that_somebody_else_has_waited_for():
    """With SIGCHLD ignored, or after a fork, its end is not told to this process."""
    assert _read_all() == list(range(40))
    pid = forkserver._forkserver._forkserver_pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert _read_all() == list(range(40))


def test_a_fork_server_that_dies_with_workers_at_work():
    loader = DataLoader(Slow(), num_workers=2, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)
    assert len(list(batches)) == 39  # the workers live on
    assert len(list(loader)) == 40
    pids = [w.pid for w in loader._pool.workers]
    loader._pool.close()
    assert not _alive(pids)


def test_no_worker_can_be_started(monkeypatch):
    def broken(*_):
        raise EOFError("unexpected EOF")

    monkeypatch.setattr(forkserver, "connect_to_new_process", broken)
    with pytest.raises(ExecutionError, match=r"no worker process could be started.*EOFError"):
        _read_all()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_workers_that_die_at_any_moment(number):
    kill_workers(6, number)


def kill_workers(count, number=signal.SIGKILL):
    """Kill a worker after a random batch: an error that says how, or all batches."""
    for _ in range(count):
        loader = DataLoader(Slow(), num_workers=2, persistent_workers=True)
        batches = iter(loader)
        seen = [int(next(batches)[0, 0]) for _ in range(random.randrange(1, 40))]
        os.kill(loader._pool.workers[random.randrange(2)].pid, number)
        error = None
        try:
            seen.extend(int(b[0, 0]) for b in batches)
        except ExecutionError as e:
            error = str(e)
        if error is not None:
            assert f"died (signal {signal.Signals(number).name})" in error
            assert seen == list(range(len(seen)))
            assert not loader._pool.is_open
        else:
            assert seen == list(range(40))
        del loader, batches
        assert not left_workers()
        assert _read_all(batch_size=20) == [0, 20]


def test_a_stopped_worker_runs_into_the_timeout():
    loader = DataLoader(Slow(), num_workers=1, persistent_workers=True)
    batches = iter(loader)
    next(batches)
    pid = loader._pool.workers[0].pid
    os.kill(pid, signal.SIGSTOP)
    loader._pool.timeout = 1  # not before: starting a worker may take longer
    with pytest.raises(ExecutionError, match="timeout=1"):
        list(batches)
    assert not _alive([pid])
    assert not left_workers()


class Leaving(Slow):
    def __getitem__(self, i):
        os._exit(1)


def test_a_dataset_that_ends_its_process():
    with pytest.raises(ExecutionError, match=r"died \(exit code 1\); its code or a library"):
        list(DataLoader(Leaving(), num_workers=1))


class Hungry(Slow):
    def __getitem__(self, i):
        import resource

        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2**26, used + 2**26))
        return np.ones(2**28, "uint8") * 2


def test_a_worker_without_memory():
    with pytest.raises(MemoryError, match=r"worker 0 raised:\n\nTraceback"):
        list(DataLoader(Hungry(), num_workers=1))


def _use_loader(connection):
    try:
        list(DataLoader(Slow(), num_workers=1))
    except InvalidArgument as e:
        connection.send(str(e))
    connection.close()


def test_a_daemon_has_no_workers():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_use_loader, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    assert "num_workers=0" in ours.recv()
    process.join()


def test_a_changed_environment_reaches_the_workers(monkeypatch):
    for value in ("one", "two"):
        monkeypatch.setenv("BIREME_TEST_VALUE", value)
        got = DataLoader(
            range(1), num_workers=1, collate_fn=lambda _: os.environ["BIREME_TEST_VALUE"]
        )
        assert list(got) == [value]


PARENT = """
    import os, sys, time
    import numpy as np
    from bireme.io import DataLoader, Dataset

    class Blocked(Dataset):
        def __len__(self): return 100
        def __getitem__(self, i):
            if i == 5:
                print("blocked", os.getpid(), flush=True)
                time.sleep(1000)
            return np.zeros(20000, "float32")

    if __name__ == "__main__":
        for batch in DataLoader(Blocked(), num_workers=2):
            pass
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_its_parent(tmp_path, how):
    """Even one in the middle of a sample that takes for ever."""
    if signal.getsignal(how) is signal.SIG_IGN:
        pytest.skip("this suite was started in the background, where children ignore Ctrl-C")
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(PARENT))
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, path], stdout=pipe, stderr=pipe, text=True)
    with process:
        said = process.stdout.readline().split()
        process.send_signal(how)
        process.wait()
        assert said[0] == "blocked"
        assert not _alive([int(said[1])])


def _alive(pids, patience=120.0):
    """Those that still run after a while (zombies do not count)."""
    deadline = time.monotonic() + patience
    while True:
        left = []
        for pid in pids:
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    if stat.read().rpartition(")")[2].split()[0] != "Z":
                        left.append(pid)
            except OSError:
                continue
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
