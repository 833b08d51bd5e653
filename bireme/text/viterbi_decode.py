"""The best sequence of tags under scores of tags and of transitions."""

from __future__ import annotations

from bireme.core.tensor import Tensor
from bireme.nn.layer.layer import Layer
from bireme.ops.viterbi import decode


def viterbi_decode(
    potentials: Tensor,
    transition_params: Tensor,
    lengths: Tensor,
    include_bos_eos_tag: bool = True,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """(the score of the best path, its tags) for each sequence of a batch.

    `potentials` are [batch, steps, tags], `transition_params` [from, to]. With
    `include_bos_eos_tag` the last tag stands for the begin and the one before it for the end.
    The tags are as long as the longest sequence, with zeros after the end of shorter ones.
    """
    scores, path = decode(potentials, transition_params, lengths, bool(include_bos_eos_tag))
    return scores, path[:, : int(lengths.max().item())]


class ViterbiDecoder(Layer):
    """`viterbi_decode` with fixed transitions."""

    def __init__(
        self, transitions: Tensor, include_bos_eos_tag: bool = True, name: str | None = None
    ) -> None:
        super().__init__()
        self.transitions = transitions
        self.include_bos_eos_tag = include_bos_eos_tag
        self.name = name

    def forward(self, potentials: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return viterbi_decode(potentials, self.transitions, lengths, self.include_bos_eos_tag)
