"""Exchanges of tensor parallelism, as models written for Paddle spell them.

A tensor here is whole, however its devices hold it (see sequence_parallel_utils.py), so cutting
it, joining its parts and summing over devices leave its values as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F

if TYPE_CHECKING:
    from bireme.distributed.communication.group import Group


def _c_identity(
    tensor: Tensor, group: Group | None = None, skip_c_identity_dynamic: bool = False
) -> Tensor:
    """The tensor; its gradient is summed over the devices that read it, whichever they are."""
    return tensor


def _c_concat(tensor: Tensor, group: Group | None = None) -> Tensor:
    """The tensor, with all parts that the devices hold."""
    return tensor


_c_split = _c_concat


def _mp_allreduce(
    tensor: Tensor,
    op: object = None,
    group: Group | None = None,
    use_calc_stream: bool = True,
    use_model_parallel: bool = True,
    skip_c_identity_dynamic: bool = False,
) -> Tensor:
    """The tensor: a product over cut columns is summed where it is computed."""
    return tensor


def _c_lookup_table(
    table: Tensor,
    index: Tensor,
    start_index: int = 0,
    vocab_size: int = -1,
    name: str | None = None,
) -> Tensor:
    """Rows of a table, which is whole and begins at 0."""
    if start_index != 0:
        raise InvalidArgument(
            f"[_c_lookup_table] the table is whole, so it starts at 0. Received: {start_index}"
        )
    return F.embedding(index, table)


def _c_softmax_with_cross_entropy(
    logits: Tensor,
    label: Tensor,
    group: Group | None = None,
    return_softmax: bool = False,
    ignore_index: int = -100,
) -> Any:
    """Cross entropy of logits whose classes the devices share."""
    if label.ndim < logits.ndim:
        label = label.unsqueeze(-1)
    return F.softmax_with_cross_entropy(
        logits, label, ignore_index=ignore_index, return_softmax=return_softmax
    )


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, name: str | None = None
) -> Tensor:
    """`paddle.nn.functional.linear`."""
    return F.linear(x, weight, bias)
