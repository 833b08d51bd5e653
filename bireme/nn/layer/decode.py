"""Generating sequences step by step: beam search and the loop around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import bireme
from bireme.api.types import TensorTree
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.layer.rnn_cells import RNNCellBase

# Stands for minus infinity in sums of log-probabilities, as in Paddle.
_NEVER = -1e9


def _map(function: Callable[..., Any], *trees: Any) -> Any:
    """The tree (tuples, lists, dicts, named tuples) of `function` of the leaves."""
    first = trees[0]
    if isinstance(first, dict):
        return {k: _map(function, *(t[k] for t in trees)) for k in first}
    if isinstance(first, list | tuple):
        made = [_map(function, *leaves) for leaves in zip(*trees, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*made)  # a named tuple
        return type(first)(made)
    return function(*trees)


def _first_leaf(tree: Any) -> Tensor:
    while not isinstance(tree, Tensor):
        tree = next(iter(tree.values())) if isinstance(tree, dict) else tree[0]
    return tree


class BeamOutput(NamedTuple):
    """What a step of beam search found, [batch, beam] each."""

    scores: Tensor
    predicted_ids: Tensor
    parent_ids: Tensor


class BeamState(NamedTuple):
    """What beam search carries from step to step."""

    cell_states: Any
    log_probs: Tensor
    finished: Tensor
    lengths: Tensor


class BeamSearchDecoder:
    """Keeps the `beam_size` likeliest beginnings of a sequence at every step.

    `cell(inputs, states)` gives outputs and new states, `embedding_fn` turns tokens into inputs and
    `output_fn` outputs into scores of all tokens. Used with `dynamic_decode`.
    """

    OutputWrapper = BeamOutput
    StateWrapper = BeamState

    def __init__(
        self,
        cell: RNNCellBase,
        start_token: int,
        end_token: int,
        beam_size: int,
        embedding_fn: Callable[..., Any] | None = None,
        output_fn: Callable[..., Any] | None = None,
    ) -> None:
        if beam_size < 1:
            raise InvalidArgument(
                f"[BeamSearchDecoder] beam_size must be positive. Received: {beam_size}"
            )
        self.cell = cell
        self.embedding_fn = embedding_fn
        self.output_fn = output_fn
        self.start_token = start_token
        self.end_token = end_token
        self.beam_size = beam_size

    @property
    def tracks_own_finished(self) -> bool:
        """Beams change places, so finished ones are counted here and not by the loop."""
        return True

    @staticmethod
    def tile_beam_merge_with_batch(x: Tensor, beam_size: int) -> Tensor:
        """[batch, ...] as [batch * beam, ...], every row repeated: for an encoder's output."""
        return bireme.repeat_interleave(x, beam_size, axis=0)

    def _split(self, x: Tensor) -> Tensor:
        return bireme.reshape(x, [-1, self.beam_size, *x.shape[1:]])

    def _merge(self, x: Tensor) -> Tensor:
        return bireme.reshape(x, [-1, *x.shape[2:]])

    def _expand(self, x: Tensor) -> Tensor:
        shape = [x.shape[0], self.beam_size, *x.shape[1:]]
        return bireme.expand(bireme.unsqueeze(x, [1]), shape)

    def _embedded(self, tokens: Tensor) -> Any:
        return tokens if self.embedding_fn is None else self.embedding_fn(tokens)

    def initialize(self, initial_cell_states: TensorTree) -> tuple[Any, BeamState, Tensor]:
        """(inputs, states, finished) of the first step."""
        batch = _first_leaf(initial_cell_states).shape[0]
        shape = [batch, self.beam_size]
        # Only the first beam counts at first, or all would be the same.
        start = np.full(shape, _NEVER, "float32")
        start[:, 0] = 0.0
        scores = bireme.to_tensor(start).astype(bireme.get_default_dtype())
        tokens = bireme.full(shape, self.start_token, "int64")
        finished = bireme.zeros(shape, "bool")
        cells = _map(self._expand, initial_cell_states)
        states = BeamState(cells, scores, finished, bireme.zeros(shape, "int64"))
        return self._embedded(tokens), states, finished

    def step(
        self, time: Tensor, inputs: TensorTree, states: BeamState, **kwargs: Any
    ) -> tuple[BeamOutput, BeamState, Any, Tensor]:
        """(outputs, states, next inputs, finished) after one more token."""
        cells = _map(self._merge, states.cell_states)
        outputs, cells = self.cell(_map(self._merge, inputs), cells, **kwargs)
        outputs, cells = _map(self._split, outputs), _map(self._split, cells)
        logits = outputs if self.output_fn is None else self.output_fn(outputs)
        found, after = self._search(logits, cells, states)
        return found, after, self._embedded(found.predicted_ids), after.finished

    def _search(
        self, logits: Tensor, cells: Any, states: BeamState
    ) -> tuple[BeamOutput, BeamState]:
        words = logits.shape[-1]
        likely = F.log_softmax(logits)
        # A finished beam goes on with the end token at no cost.
        ended = np.full([words], _NEVER, "float32")
        ended[self.end_token] = 0.0
        stay = bireme.to_tensor(ended).astype(likely.dtype)
        likely = bireme.where(bireme.unsqueeze(states.finished, [2]), stay, likely)
        total = likely + bireme.unsqueeze(states.log_probs, [2])
        scores, places = bireme.topk(
            bireme.reshape(total, [-1, self.beam_size * words]), self.beam_size
        )
        parents, tokens = places // words, places % words

        def chosen(x: Tensor) -> Tensor:
            index = bireme.reshape(parents, [*parents.shape, *[1] * (x.ndim - 2)])
            return bireme.take_along_axis(x, bireme.expand(index, x.shape), axis=1)

        finished, lengths = chosen(states.finished), chosen(states.lengths)
        lengths = lengths + bireme.logical_not(finished).astype(lengths.dtype)
        finished = bireme.logical_or(finished, tokens == self.end_token)
        after = BeamState(_map(chosen, cells), scores, finished, lengths)
        return BeamOutput(scores, tokens, parents), after

    def finalize(
        self, outputs: BeamOutput, final_states: BeamState, sequence_lengths: Tensor
    ) -> tuple[Tensor, BeamState]:
        """The beams' tokens [time, batch, beam], each traced back to its beginning."""
        return F.gather_tree(outputs.predicted_ids, outputs.parent_ids), final_states


def dynamic_decode(
    decoder: BeamSearchDecoder,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Call `decoder.step` until every sequence has ended: (outputs, states[, lengths]).

    Outputs are [batch, time, ...], or time first with `output_time_major`. At most
    `max_step_num` + 1 steps are taken, as in Paddle. `impute_finished` keeps the states of
    sequences that have ended. `is_test` saves memory in Paddle's static graphs; here nothing is
    kept unless a gradient needs it.
    """
    inputs, states, finished = decoder.initialize(inits)
    lengths = bireme.zeros_like(finished).astype("int64")
    steps: list[Any] = []
    while not bool(bireme.all(finished)):
        time = bireme.full([1], len(steps), "int64")
        found, after, next_inputs, ended = decoder.step(time, inputs, states, **kwargs)
        if decoder.tracks_own_finished:
            lengths = getattr(after, "lengths", lengths)
        else:
            # As in Paddle, the step that ends a sequence is neither counted nor kept.
            ended = over = bireme.logical_or(ended, finished)
            lengths = lengths + bireme.logical_not(over).astype("int64")
            if impute_finished:
                after = _map(lambda old, new, over=over: _keep(over, old, new), states, after)
        steps.append(found)
        inputs, states, finished = next_inputs, after, ended
        if max_step_num is not None and len(steps) > max_step_num:
            break
    if not steps:
        raise InvalidArgument("[dynamic_decode] every sequence had ended before the first step")
    outputs = _map(lambda *each: bireme.stack(list(each), axis=0), *steps)
    if hasattr(decoder, "finalize"):
        outputs, states = decoder.finalize(outputs, states, lengths)
    if not output_time_major:
        outputs = _map(lambda x: bireme.transpose(x, [1, 0, *range(2, x.ndim)]), outputs)
    return (outputs, states, lengths) if return_length else (outputs, states)


def _keep(over: Tensor, old: Tensor, new: Tensor) -> Tensor:
    return bireme.where(bireme.reshape(over, [-1, *[1] * (new.ndim - 1)]), old, new)
