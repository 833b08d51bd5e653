"""A tensor given for an attribute is read while the op is recorded, which runs the trace."""

from __future__ import annotations

import numpy as np

import bireme


def test_the_op_goes_into_the_trace_that_follows():
    ids = bireme.ones([2, 13], "int64")
    table = bireme.arange(64 * 64).reshape([1, 1, 64, 64])

    def step():
        size = bireme.shape(ids)
        flat = ids.reshape((-1, size[-1]))
        more = flat + 1
        return more * 2, table[:, :, 0 : size[-1], : size[-1]]

    for _ in range(4):
        step()  # dropped unread, so the next step finds a trace that is not empty
    doubled, part = step()
    np.testing.assert_array_equal(doubled.numpy(), np.full((2, 13), 4))
    np.testing.assert_array_equal(part.numpy(), table.numpy()[:, :, :13, :13])
