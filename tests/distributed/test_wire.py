"""Messages between processes, here between two mailboxes of one."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import bireme as paddle
from bireme.distributed import door, wire
from bireme.distributed.communication.averaging import _buckets
from bireme.distributed.hub import Hub
from bireme.distributed.job import DistributedError

KEY = b"the secret of this test"


@pytest.fixture
def posts(ports) -> Iterator[list[wire.Post]]:
    endpoints = [f"127.0.0.1:{p}" for p in ports(2)]
    made = [wire.Post(rank, endpoints, KEY) for rank in range(2)]
    yield made
    for post in made:
        post.door.close()


def test_messages_keep_their_order(posts) -> None:
    for i in range(50):
        posts[0].send(1, b"box", b"%d" % i)
    posts[0].send(1, b"other", b"x" * 3_000_000).result(600)
    assert [int(posts[1].receive(0, b"box", 600)) for _ in range(50)] == list(range(50))
    assert len(posts[1].receive(0, b"other", 600)) == 3_000_000
    posts[0].send(0, b"own", b"to myself")
    assert posts[0].receive(0, b"own", 1) == b"to myself"


def test_nothing_comes(posts) -> None:
    with pytest.raises(DistributedError, match=r"within 0\.1 s"):
        posts[1].receive(0, b"box", 0.1)


def test_a_stranger_is_not_read(posts) -> None:
    address = wire.endpoint(posts[0].endpoints[0])
    with pytest.raises(DistributedError, match="does not have this job's"):
        door.connect(address, b"another secret, a wrong one", b"post", 1)
    with socket.create_connection(address) as raw:  # says nothing, and blocks nobody
        posts[1].send(0, b"box", b"still served").result(600)
        raw.sendall(b"\x00" * 64)
        assert posts[0].receive(1, b"box", 600) == b"still served"
    assert all(source in (0, 1) for source, _ in posts[0].boxes)


def test_a_partner_that_left(posts) -> None:
    door.connect(wire.endpoint(posts[0].endpoints[0]), KEY, b"post", 1).close()
    with pytest.raises(DistributedError, match="process 1 has ended"):
        posts[0].receive(1, b"box", 600)


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

    for function in (paddle.add, paddle.nn.functional.relu, len, door.connect):
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
