"""The launcher: starts processes, keeps their logs, ends all of them when one fails."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bireme.core.errors import BiremeError
from bireme.distributed import wire
from bireme.distributed.job import PARTNER_LOST
from bireme.distributed.launch import meeting, rank

_POLL = 0.1
_GRACE = 10.0  # seconds between asking a process to end and ending it
_SEARCH = 30.0  # seconds to find the process whose failure made others fail
_SHOWN = 60  # lines of a failed process's log


def launch() -> None:
    """What `python -m bireme.distributed.launch` does, with the arguments of this process."""
    sys.exit(main())


def main(arguments: Sequence[str] | None = None, compat: bool = False) -> int:
    """Run the job; returns the exit status. `compat`: the script may `import paddle`."""
    options = parser().parse_args(arguments)
    try:
        return _Job(options, compat).run()
    except BiremeError as e:
        _say(str(e))
        return 2


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="bireme.distributed.launch", description="Start a program as several processes."
    )
    env = os.environ.get
    made.add_argument("--nproc_per_node", type=int, default=env("PADDLE_NPROC_PER_NODE"))
    made.add_argument("--nnodes", type=int, default=env("PADDLE_NNODES", "1"))
    made.add_argument("--master", default=env("PADDLE_MASTER"), help="host:port of the first node")
    made.add_argument("--rank", type=int, default=env("PADDLE_RANK", "-1"), help="of this node")
    made.add_argument("--host", default=env("POD_IP"), help="this node's address")
    made.add_argument("--devices", "--gpus", default=env("PADDLE_DEVICES"), help="such as 0,1,2,3")
    made.add_argument("--job_id", default=env("PADDLE_JOB_ID", "default"))
    made.add_argument("--log_dir", default=env("PADDLE_LOG_DIR", "log"))
    made.add_argument("--log_overwrite", action="store_true", help="instead of adding to logs")
    made.add_argument(
        "--max_restart",
        type=int,
        default=env("PADDLE_MAX_RESTART", "0"),
        help="how often the processes are started again after one failed",
    )
    made.add_argument("training_script", help="a Python file, or any other program")
    made.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return made


class _Job:
    """The processes of this machine."""

    def __init__(self, options: argparse.Namespace, compat: bool):
        self.options, self.compat = options, compat
        named = options.devices
        self.devices = [d for d in named.split(",") if d] if named is not None else meeting.gpus()
        self.count = options.nproc_per_node or len(self.devices) or 1
        if self.devices and self.count > 1 and len(self.devices) < self.count:
            if named is not None:
                raise meeting.InvalidArgument(
                    f"--nproc_per_node is {self.count}, but --devices names {named}"
                )
            self.devices = []  # more processes than GPUs: they use the CPU
        self.logs = Path(options.log_dir)
        self.secret = meeting.job_secret(create=options.nnodes == 1)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.files: list[Path] = []
        self.ports = meeting.Ports()
        self.shown = 0

    def run(self) -> int:
        ends = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._interrupted) for number in ends]
        status = 0
        try:
            for attempt in range(self.options.max_restart + 1):
                self._start(attempt)
                failed = self._watch()
                if failed is None:
                    return 0
                status = self._report(failed)
                self._end_all()
                self.ports.release()
                if attempt < self.options.max_restart:
                    _say(f"starting again, {attempt + 1} of {self.options.max_restart} times")
            return status
        finally:
            self._end_all()
            self.ports.release()
            for number, handler in zip(ends, before, strict=True):
                signal.signal(number, handler)

    def _interrupted(self, number: int, frame: Any) -> None:
        self._end_all()
        raise SystemExit(128 + number)

    def _environments(self) -> list[dict[str, str]]:
        options = self.options
        alone = options.nnodes == 1
        host = options.host or "127.0.0.1"
        master = None if options.master is None else wire.endpoint(options.master)
        if not alone:
            if master is None:
                raise meeting.InvalidArgument("--nnodes above 1 needs --master host:port")
            host = options.host or meeting.own_address(master)
        mine = meeting.node(host, self.count, self.ports)
        nodes, rank = [mine], 0
        if master is not None and not alone:
            nodes, rank = meeting.meet(
                master, options.nnodes, options.rank, mine, self.secret.encode()
            )
        return meeting.environments(nodes, rank, self.devices, self.secret)

    def _command(self) -> list[str]:
        script = self.options.training_script
        command = [script, *self.options.training_script_args]
        if not script.endswith(".py"):
            return command
        if not Path(script).is_file():
            raise meeting.InvalidArgument(f"there is no file {script!r}")
        through = ["-m", "bireme.cli", "run"] if self.compat else [rank.__file__]
        return [sys.executable, "-u", *through, *command]

    def _start(self, attempt: int) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self.processes, self.files = [], []
        command = self._command()
        mode = "wb" if self.options.log_overwrite and attempt == 0 else "ab"
        for i, told in enumerate(self._environments()):
            path = self.logs / f"workerlog.{i}"
            with path.open(mode) as log:
                if i == 0:
                    self.shown = log.tell()
                env = {**os.environ, "PADDLE_JOB_ID": self.options.job_id, **told}
                self.processes.append(_started(command, env, log))
            self.files.append(path)

    def _watch(self) -> int | None:
        """Wait for all; the number of the first that failed, or None."""
        since = None
        while True:
            self._show_first()
            states = [p.poll() for p in self.processes]
            failed = [i for i, s in enumerate(states) if s not in (None, 0)]
            # One process's failure makes its partners fail: look for the cause a little longer.
            causes = [i for i in failed if states[i] != PARTNER_LOST]
            if failed and since is None:
                since = time.monotonic()
            over = since is not None and time.monotonic() > since + _SEARCH
            if causes or over or None not in states:
                self._show_first()
                return next(iter([*causes, *failed]), None)
            time.sleep(_POLL)

    def _show_first(self) -> None:
        """What the first process has written since the last time."""
        with self.files[0].open("rb") as log:
            log.seek(self.shown)
            new = log.read()
        self.shown += len(new)
        sys.stdout.write(new.decode(errors="replace"))
        sys.stdout.flush()

    def _report(self, failed: int) -> int:
        status = self.processes[failed].returncode
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"
        path = self.files[failed]
        _say(f"process {failed} ended with {how}. The end of its log, {path}:")
        lines = path.read_text(errors="replace").splitlines()
        sys.stderr.write("\n".join([*lines[-_SHOWN:], ""]))
        return 128 - status if status < 0 else status

    def _end_all(self) -> None:
        """End every process that was started here, with what it started itself."""
        for p in self.processes:
            if p.poll() is None:
                _signal_group(p, signal.SIGTERM)
        until = time.monotonic() + _GRACE
        for p in self.processes:
            try:
                p.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(p, signal.SIGKILL)
                p.wait()


def _started(command: list[str], env: dict[str, str], log: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_ending_with_launcher(), *command],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


# Runs first in the process of a rank and becomes the rank's program. What `preexec_fn` does instead
# forks this process, which JAX's threads do not survive.
_END_WITH = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):  # it died already
    os.kill(os.getpid(), signal.SIGTERM)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def _ending_with_launcher() -> list[str]:
    """Where the system can: a process is asked to end when this one dies, however it does."""
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", "-c", _END_WITH, str(os.getpid())]


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _say(text: str) -> None:
    sys.stderr.write(f"launch: {text}\n")
    sys.stderr.flush()


__all__ = ["launch", "main"]
