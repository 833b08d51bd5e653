"""Shapes, joining, splitting and moving, compared with Paddle call by call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bireme
from tests.ops.oracle import compare

# Every row is a program of its own; a user's loop would be told about that.
pytestmark = pytest.mark.filterwarnings("ignore::bireme.core.stats.RecompileWarning")

CALLS = [
    "P.repeat_interleave(x,2)",
    "P.repeat_interleave(x,I([1,2,0]),0)",
    "x.clone().fill_diagonal_(5.)",
    "x.clone().fill_diagonal_(5.,1)",
    "P.ones([7,3]).fill_diagonal_(5.,0,True)",
    "P.ones([7,3]).fill_diagonal_(5.,0,False)",
    "P.ones([3,7]).fill_diagonal_(5.,2,True)",
    "P.ones([3,3,3]).fill_diagonal_(5.,0)",
    "P.ones([7,3]).fill_diagonal_(5.,-1,True)",
    "P.ones([7,3]).fill_diagonal_(5.,1,True)",
    "P.unflatten(x,1,[2,-1])",
    "P.roll(x,[1,2],[0,1])",
    "P.roll(x,5)",
    "P.tensor_split(x,[1,3],axis=1)[1]",
    "P.flip(x,[0,1])",
    "P.crop(x,[2,2],[1,1])",
    "P.crop(x,[-1,2],[1,1])",
    "P.strided_slice(x,[0,1],[2,0],[-10,4],[-1,2])",
    "P.slice(x,[0],[-2],[10])",
    "P.block_diag([x,P.ones([2]),I(3.)])",
    "P.column_stack([P.ones([2]),P.ones([2,2])])",
    "P.hstack([I(1.),I(2.)])",
    "P.vstack([P.ones([2]),P.ones([2])])",
    "P.dstack([P.ones([2]),P.ones([2])])",
    "P.expand_as(P.ones([4]),x)",
    "P.moveaxis(P.ones([2,3,4]),[0,1],[1,2])",
    "P.reshape(x,[0,-1])",
    "P.reshape(x,[2,-1])",
    "P.reshape(x,I([4,3]))",
    "P.reshape(x,[I(4),3])",
    "P.reshape(x,[5,-1])",
    "P.reshape(x,[5,5])",
    "P.reshape(x,[-1,-1])",
    "P.reshape(x,[-2,6])",
    "P.reshape(x,[3,4,0])",
    "x.reshape(6,2)",
    "x.reshape(-1)",
    "x.view([2,6])",
    "x.view(2,6)",
    'x.detach().view("int32")',
    "x.view_as(P.ones([12]))",
    "P.flatten(x)",
    "P.flatten(P.ones([2,3,4]),1)",
    "P.flatten(I(1.))",
    "P.flatten(x,1,0)",
    "P.flatten(x,0,5)",
    "P.ravel(x)",
    "P.squeeze(P.unsqueeze(x,[0,2]),[0])",
    "P.squeeze(P.unsqueeze(x,0))",
    "P.squeeze(x,0)",
    "P.squeeze(x,7)",
    "P.unsqueeze(x,-1)",
    "P.unsqueeze(x,I([0,1]))",
    "P.unsqueeze(x,7)",
    "P.transpose(x,[1,0])",
    "P.transpose(P.ones([2,3,4]),[1,0])",
    "P.transpose(x,[0,0])",
    "P.transpose(x,[1,0,2])",
    "x.transpose(0,1)",
    "P.swapaxes(x,0,1)",
    "P.permute(x,[1,0])",
    "x.permute(1,0)",
    "x.T",
    "x.mT",
    "P.t(x)",
    "P.t(P.ones([2,3,4]))",
    "P.matrix_transpose(P.ones([2,3,4]))",
    "P.moveaxis(x,0,5)",
    "P.expand(x,[2,3,4])",
    "P.expand(x,[2,-1,-1])",
    "P.expand(x,[5,4])",
    "P.expand(x,[4])",
    "x.expand(2,3,4)",
    "P.broadcast_to(P.ones([4]),[3,4])",
    "P.broadcast_tensors([x,P.ones([1,4])])[1].detach()",
    "P.tile(x,[2,1])",
    "P.tile(x,2)",
    "P.tile(x,[2,1,1])",
    "x.repeat(2,1)",
    "P.concat([x,x],1)",
    "P.concat([x,x],axis=I(1))",
    'P.concat([x,x.astype("float64")])',
    "P.concat([x,x[:, :2]])",
    "P.concat([x,x],5)",
    "P.stack([x,x],-1)",
    "P.stack([x,x[:1]])",
    "P.split(x,2,1)[1]",
    "P.split(x,[1,-1],1)[1]",
    "P.split(x,3,1)",
    "P.split(x,[1,1],1)",
    "P.chunk(x,2,1)[0]",
    "x.split_with_sizes([1,3],1)[1]",
    "P.tensor_split(x,3,1)[0]",
    "P.hsplit(x,2)[1]",
    "P.vsplit(x,3)[2]",
    "P.dsplit(P.ones([1,2,4]),2)[1]",
    "P.unbind(x,1)[2].detach()",
    "P.unbind(x,5)",
    "P.atleast_1d(I(1.))",
    "P.atleast_3d(x)",
    "P.diagonal(x)",
    "P.diagonal(x,1)",
    "P.diagonal(P.ones([2,3,4]),0,0,2)",
    "P.unfold(x,1,2,2)",
    "P.unfold(x,0,2,3)",
    "P.flip(x,5)",
    "P.roll(x,1,5)",
    "P.rot90(x)",
    "P.rot90(x,2)",
    "P.rot90(x,3)",
    "P.narrow(x,1,1,2)",
    "P.slice_scatter(x,P.zeros([3,2]),[1],[0],[4],[2])",
    "P.select_scatter(x,P.zeros([4]),0,1)",
    "P.reshape(P.ones([2,0,3]),[0])",
    "P.reshape(P.ones([2,0,3]),[0,-1])",
    "P.flatten(P.ones([2,0,3]))",
    "P.reshape(P.ones([0,3]),[-1,3])",
    "P.as_strided(x,[2,2],[4,1])",
    "P.shard_index(I([[16],[1]]),20,2,0)",
    "P.repeat_interleave(x,I([1,2]),0)",
    "P.swapdims(x,0,1)",
    "P.expand_as(x,P.ones([2,3,4]))",
]


@pytest.mark.parametrize("call", CALLS)
def test_as_in_paddle(paddle: Any, tier: str, call: str) -> None:
    compare(paddle, call)


def test_lists_of_results_are_lists() -> None:
    x = bireme.ones([4, 2])
    for parts in (x.split(2), x.chunk(2), x.unbind(0), x.tensor_split(2), bireme.unstack(x)):
        assert type(parts) is list


def test_messages_say_what_to_do() -> None:
    x = bireme.ones([2, 3])
    with pytest.raises(ValueError, match=r"\[reshape\].*6 elements.*\[5, 5\]"):
        x.reshape([5, 5])
    with pytest.raises(ValueError, match=r"axis must be in \[-2, 1\].*Received: 4"):
        x.flip(4)
    with pytest.raises(TypeError, match="put the tensors into a list"):
        bireme.concat(x)


def test_overlapping_windows_add_up(tier: str) -> None:
    """Paddle's gradient of `unfold` loses all but one of the windows that meet."""
    x = bireme.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    bireme.unfold(x, 0, 2, 1).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 1.0]


def test_bitcast_between_sizes() -> None:
    x = bireme.to_tensor(np.arange(4, dtype="float32"))
    raw = x.view("int8")
    assert raw.shape == [16]
    np.testing.assert_array_equal(raw.view("float32").numpy(), x.numpy())
