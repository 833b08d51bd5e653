"""Messages between processes, here between two mailboxes of one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from multiprocessing import connection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bireme as paddle
from bireme.distributed import wire
from bireme.distributed.hub import Hub
from bireme.distributed.job import DistributedError
from bireme.distributed.launch import meeting
from bireme.distributed.parallel import _buckets

KEY = b"the secret of this test"


@pytest.fixture
def posts() -> Iterator[list[wire.Post]]:
    endpoints = [f"127.0.0.1:{p}" for p in meeting.free_ports(2)]
    made = [wire.Post(rank, endpoints, KEY) for rank in range(2)]
    yield made
    for post in made:
        post.listener.close()


def test_messages_keep_their_order(posts) -> None:
    for i in range(50):
        posts[0].send(1, b"box", b"%d" % i)
    posts[0].send(1, b"other", b"x" * 3_000_000).result(30)
    assert [int(posts[1].receive(0, b"box", 30)) for _ in range(50)] == list(range(50))
    assert len(posts[1].receive(0, b"other", 30)) == 3_000_000
    posts[0].send(0, b"own", b"to myself")
    assert posts[0].receive(0, b"own", 1) == b"to myself"


def test_nothing_comes(posts) -> None:
    with pytest.raises(DistributedError, match=r"within 0\.1 s"):
        posts[1].receive(0, b"box", 0.1)


def test_a_stranger_is_not_read(posts) -> None:
    address = wire.endpoint(posts[0].endpoints[0])
    with pytest.raises(DistributedError, match="does not have this job's"):
        wire.connect(address, b"another secret, a wrong one")
    with socket.create_connection(address) as raw:  # says nothing, and blocks nobody
        posts[1].send(0, b"box", b"still served").result(30)
        raw.sendall(b"\x00" * 64)
        assert posts[0].receive(1, b"box", 30) == b"still served"
    assert all(source in (0, 1) for source, _ in posts[0].boxes)


def test_a_partner_that_left(posts) -> None:
    link = connection.Client(wire.endpoint(posts[0].endpoints[0]), "AF_INET", authkey=KEY)
    link.send_bytes((1).to_bytes(8, "little"))
    link.close()
    with pytest.raises(DistributedError, match="process 1 has ended"):
        posts[0].receive(1, b"box", 30)


@given(
    hnp.arrays(
        st.sampled_from(["float32", "float64", "int64", "int8", "bool", "complex64", "float16"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_arrays_arrive_as_they_are(array: np.ndarray) -> None:
    got = wire._unpacked(wire.packed(array))
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert got.tobytes() == array.tobytes()


def test_functions_of_the_library_can_be_sent() -> None:
    import pickle

    for function in (paddle.add, paddle.nn.functional.relu, len, wire.connect):
        assert pickle.loads(wire.pickled(function)) is function


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 200))
def test_buckets_hold_every_parameter_once(sizes: list[int], limit: int) -> None:
    parameters = [paddle.zeros([n]) for n in sizes]
    buckets = _buckets(parameters, limit, 4 * limit)
    assert [id(p) for b in buckets for p in b] == [id(p) for p in reversed(parameters)]
    for number, bucket in enumerate(buckets):
        total = sum(4 * p.shape[0] for p in bucket)
        assert len(bucket) == 1 or total <= (limit if number == 0 else 4 * limit)


def test_a_hub_needs_an_address() -> None:
    with pytest.raises(DistributedError, match="host:port"):
        Hub(0, 1, "nowhere", KEY)
