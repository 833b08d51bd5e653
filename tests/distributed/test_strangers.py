"""Connections without the job's secret: none of them may stop a job, or cost it much."""

from __future__ import annotations

import os
import queue
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from bireme.distributed import door, wire
from bireme.distributed.hub import Hub
from bireme.distributed.job import DistributedError, PartnerLost
from bireme.distributed.launch import meeting
from tests.distributed.strangers import HABITS, Strangers, ports_of

KEY = b"the secret of this test"
HERE = Path(__file__).parent


class _Guarded:
    """A door and those whom it welcomed."""

    def __init__(self) -> None:
        self.links: queue.SimpleQueue[door.Link] = queue.SimpleQueue()
        self.door = door.Door(("127.0.0.1", 0), KEY, b"test", self.links.put)
        self.address = self.door.address

    def meet(self) -> tuple[door.Link, door.Link]:
        mine = door.connect(self.address, KEY, b"test", 5)
        theirs = self.links.get(timeout=600)
        mine.send_bytes(b"good ", b"day")
        assert theirs.recv_bytes(8) == b"good day"
        assert theirs.rank == 5
        return mine, theirs


@pytest.fixture
def guarded() -> Iterator[_Guarded]:
    made = _Guarded()
    yield made
    made.door.close()


@pytest.mark.parametrize("habit", HABITS, ids=lambda h: h.__name__)
def test_strangers_of_every_kind(guarded, habit) -> None:
    strangers = Strangers(lambda: [guarded.address[1]], [habit])
    try:
        for _ in range(3):
            for link in guarded.meet():
                link.close()
    finally:
        strangers.stop()
    assert guarded.links.empty()


def test_silent_strangers_cost_neither_a_thread_nor_the_port(guarded) -> None:
    threads = threading.active_count()
    with ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(socket.create_connection(guarded.address))
        for link in guarded.meet():
            link.close()
        assert threading.active_count() <= threads
        assert len(guarded.door._guests) <= door._GUESTS


def test_silent_strangers_are_dropped_in_time(guarded, monkeypatch) -> None:
    monkeypatch.setattr(door, "_MANNERS", 0.05)
    with socket.create_connection(guarded.address) as silent:
        assert len(silent.recv(100)) == door._HELLO.size
        assert silent.recv(1) == b""  # closed by the door, which nobody else has woken


def test_those_of_the_busiest_address_go_first(guarded, monkeypatch) -> None:
    monkeypatch.setattr(door, "_GUESTS", 4)
    with ExitStack() as stack:
        early = socket.create_connection(guarded.address, source_address=("127.0.0.2", 0))
        stack.enter_context(early)
        early.recv(8)  # it has been seen
        for _ in range(40):
            held = stack.enter_context(socket.create_connection(guarded.address))
            held.recv(8)
        assert "127.0.0.2" in {g.host for g in guarded.door._guests.values()}
        assert len(guarded.door._guests) <= 4


FEW_FILES = """
import resource, sys
from bireme.distributed import door
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
key = b"the secret of this test"
welcome = lambda link: print("welcome", flush=True)
made = door.Door(("127.0.0.1", 0), key, b"test", welcome)
print(made.address[1], flush=True)
sys.stdin.read()
"""


def test_a_process_without_descriptors_goes_on_accepting() -> None:
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", FEW_FILES]
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection(address))
            door.connect(address, KEY, b"test", 1).close()
            assert process.stdout.readline() == "welcome\n"
        process.kill()


@pytest.mark.parametrize("error", [ConnectionAbortedError(103, "gone"), OSError(24, "too many")])
def test_errors_of_accepting_are_survived(guarded, error) -> None:
    class Broken:
        def __init__(self, real):
            self.real, self.left = real, 3

        def accept(self):
            self.left -= 1
            if self.left > 0:
                raise error
            return self.real.accept()

        def __getattr__(self, name):
            return getattr(self.real, name)

    guarded.door._listener = Broken(guarded.door._listener)
    for link in guarded.meet():
        link.close()
    assert guarded.door._listener.left <= 0


def test_an_introduction_is_good_only_once(guarded) -> None:
    """Neither replayed, nor for another purpose, nor reflected, nor with another rank."""
    with socket.create_connection(guarded.address) as sock:
        _, nonce = door._HELLO.unpack(sock.recv(40))
        proof = door._digest(KEY, b"guest", door._about(nonce, bytes(32), b"test", 1))
        said = door._INTRODUCTION.pack(bytes(32), b"test", 1, proof)
        sock.sendall(said)
        assert sock.recv(100)[:1] == door._WELCOME
    welcomed = guarded.links.get(timeout=600)
    assert welcomed.rank == 1
    welcomed.close()
    other = door._digest(KEY, b"guest", door._about(nonce, bytes(32), b"other", 1))
    with pytest.raises(DistributedError, match="does not have this job's"):
        door.connect(guarded.address, KEY, b"other", 1)
    for wrong in (
        said,
        door._INTRODUCTION.pack(bytes(32), b"test", 0, proof),
        door._INTRODUCTION.pack(bytes(32), b"test", 1, other),
    ):
        with socket.create_connection(guarded.address) as sock:
            sock.recv(40)
            sock.sendall(wrong)
            assert sock.recv(100)[:1] == door._REFUSED
    assert guarded.links.empty()


class _Impostor:
    """Listens where a process of the job should, and answers as it likes."""

    def __init__(self, *answers: bytes):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.answers, self.heard = answers, []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            with sock, suppress(OSError):
                for answer in self.answers:
                    sock.sendall(answer)
                    self.heard.append(sock.recv(200))


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ((b"",), "no process answers"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(40),), "another program"),
        ((door._HELLO.pack(door._MAGIC, bytes(32)), bytes(33)), "does not have this job's"),
        ((door._HELLO.pack(door._MAGIC, bytes(32)), b"\x01" * 33), "does not have this job's"),
        ((door._HELLO.pack(door._MAGIC, bytes(32)), b"\x01" * 5), "no process answers"),
    ],
)
def test_impostors_are_not_believed(answers, message) -> None:
    impostor = _Impostor(*answers)
    with impostor.listener, pytest.raises(DistributedError, match=message):
        door.connect(impostor.address, KEY, b"test", 1, patience=0.5)
    assert all(KEY not in heard for heard in impostor.heard)


def test_a_silent_impostor_does_not_keep_a_guest(monkeypatch) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(DistributedError, match="no process answers"),
    ):
        door.connect(silent.getsockname(), KEY, b"test", 1, patience=0.3)


# ------------------------------------------------------ messages of those who know the secret


@pytest.fixture
def post() -> Iterator[wire.Post]:
    made = wire.Post(0, ["127.0.0.1:0", "127.0.0.1:1"], KEY)
    yield made
    made.door.close()


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (struct.pack("<Q", 0), "empty message"),
        (struct.pack("<Q", 3) + b"\x09ab", "shorter than the name"),
        (struct.pack("<Q", 1 << 62), "bytes, where at most"),
        (struct.pack("<Q", 1 << 39) + b"\x01a", "closed the connection"),
        (struct.pack("<Q", 100) + b"\x01abc", "closed the connection"),
        (b"\x01\x02", "closed the connection"),
        (b"", "closed the connection"),
    ],
    ids=["empty", "short", "huge", "endless", "truncated", "half a length", "nothing"],
)
def test_a_partner_whose_messages_break_off(post, raw, why) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    link = door.connect(post.door.address, KEY, b"post", 1)
    link.send_bytes(b"\x03boxfirst")
    link._sock.sendall(raw)
    link._sock.shutdown(socket.SHUT_WR)
    assert post.receive(1, b"box", 600) == b"first"
    with pytest.raises(PartnerLost, match=f"process 1 has ended: .*{why}"):
        post.receive(1, b"box", 600)
    link.close()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 2**18  # KiB


def test_a_partner_that_is_reset(post) -> None:
    link = door.connect(post.door.address, KEY, b"post", 1)
    link.send_bytes(b"\x03boxfirst")
    assert post.receive(1, b"box", 600) == b"first"
    link._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link._sock.close()
    with pytest.raises(PartnerLost, match="process 1 has ended"):
        post.receive(1, b"box", 600)


@pytest.mark.parametrize("rank", [0, -1, 2, 1 << 40])
def test_ranks_that_the_job_does_not_have(post, rank) -> None:
    link = door.connect(post.door.address, KEY, b"post", rank)
    with pytest.raises((EOFError, OSError)):
        link.recv_bytes()
    link.close()
    assert not post.boxes
    assert not post.gone


# ------------------------------------------------------------------------------------ meetings


def _in_thread(function: Any, *arguments: Any) -> Any:
    got: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=lambda: got.put(function(*arguments)), daemon=True).start()
    return lambda: got.get(timeout=600)


def test_a_hub_among_strangers(ports) -> None:
    (port,) = ports(1)
    strangers = Strangers(lambda: [port])
    try:
        hubs = [_in_thread(Hub, r, 3, f"127.0.0.1:{port}", KEY) for r in range(3)]
        hubs = [h() for h in hubs]
        said = [_in_thread(h.exchange, b"%d" % h.rank) for h in hubs]
        assert [s() for s in said] == [[b"0", b"1", b"2"]] * 3
    finally:
        strangers.stop()
    for hub in hubs:
        hub.close()


def test_machines_meet_among_strangers(ports) -> None:
    (port,) = ports(1)
    address = ("127.0.0.1", port)
    strangers = Strangers(lambda: [port])
    try:
        first = _in_thread(meeting.meet, address, 3, 0, {"endpoints": ["a"]}, KEY)
        door.connect(address, KEY, b"meeting", 1).close()  # died before it said anything
        mad = door.connect(address, KEY, b"meeting", 1)
        mad.send_bytes(b"{no JSON")
        others = [
            _in_thread(meeting.meet, address, 3, r, {"endpoints": [str(r)]}, KEY) for r in (2, 1)
        ]
        nodes, place = first()
        assert place == 0
        assert [n["endpoints"] for n in nodes] == [["a"], ["1"], ["2"]]
        assert [o()[1] for o in others] == [2, 1]
        mad.close()
    finally:
        strangers.stop()


def test_a_hub_whose_processes_do_not_come(monkeypatch) -> None:
    monkeypatch.setenv("FLAGS_stop_check_timeout", "0")
    with pytest.raises(DistributedError, match="process 1, 2 of 3 did not come within 0 s"):
        Hub(0, 3, "127.0.0.1:0", KEY)


# ---------------------------------------------------------------------------------- a whole job


def attacked_job(folder: Path, connections: int) -> Strangers:
    """Run a job of two processes until it has had so many strangers at its ports."""
    over = folder / "over"
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "BIREME_NATIVE": "0"}
    command = [
        sys.executable, "-m", "bireme.distributed.launch", "--nproc_per_node", "2", "--devices",
        "", "--log_dir", str(folder / "log"), str(HERE / "attacked_worker.py"), str(over),
    ]  # fmt: skip
    with subprocess.Popen(command, env=env, cwd=folder) as job:
        strangers = Strangers(lambda: ports_of(job.pid), pause=0.01)
        try:
            while job.poll() is None:
                if strangers.count >= connections:
                    over.touch()
                time.sleep(0.05)
        finally:
            strangers.stop()
            job.terminate()  # the launcher ends its processes
    assert job.returncode == 0
    for rank in range(2):
        assert "all rounds agree" in (folder / "log" / f"workerlog.{rank}").read_text()
    assert not (folder / "hacked").exists()
    return strangers


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="ports are found in /proc")
@pytest.mark.parametrize("connections", [300, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_job_among_strangers_completes(tmp_path: Path, connections: int) -> None:
    strangers = attacked_job(tmp_path, connections)
    assert len(strangers.met) >= 5  # those of XLA too: Gloo's and the coordinator's
