"""In which order a stage runs the forward and backward passes of its micro-batches."""

from __future__ import annotations

from typing import NamedTuple

from bireme.core.errors import InvalidArgument


class Pass(NamedTuple):
    """One pass of one micro-batch through one of the stage's parts."""

    forward: bool
    chunk: int
    batch: int


def one_forward_one_backward(stage: int, stages: int, batches: int) -> list[Pass]:
    """As many forward passes ahead as there are stages to come, then one of each in turns.

    >>> [("F" if p.forward else "B") + str(p.batch) for p in one_forward_one_backward(0, 2, 3)]
    ['F0', 'F1', 'B0', 'F2', 'B1', 'B2']
    """
    ahead = min(stages - stage - 1, batches)
    order = [Pass(True, 0, i) for i in range(ahead)]
    for i in range(batches - ahead):
        order += [Pass(True, 0, ahead + i), Pass(False, 0, i)]
    return order + [Pass(False, 0, i) for i in range(batches - ahead, batches)]


def interleaved(stage: int, stages: int, batches: int, chunks: int) -> list[Pass]:
    """The same with several parts per stage: `stages` micro-batches go through the first parts,
    then through the second ones …, so that stages wait for less."""
    if batches % stages:
        raise InvalidArgument(
            f"[PipelineParallel] with virtual stages, accumulate_steps is a multiple of the "
            f"{stages} stages. Received: {batches}"
        )
    total = batches * chunks
    turn = stages * chunks

    def nth(i: int, forward: bool) -> Pass:
        rounds, place = divmod(i, turn)
        chunk, batch = divmod(place, stages)
        return Pass(forward, chunk if forward else chunks - 1 - chunk, rounds * stages + batch)

    ahead = min((stages - stage - 1) * 2 + (chunks - 1) * stages, total)
    order = [nth(i, True) for i in range(ahead)]
    for i in range(total - ahead):
        order += [nth(ahead + i, True), nth(i, False)]
    return order + [nth(i, False) for i in range(total - ahead, total)]


def forward_only(batches: int, chunks: int) -> list[Pass]:
    return [Pass(True, chunk, i) for i in range(batches) for chunk in range(chunks)]


def order_of(stage: int, stages: int, batches: int, chunks: int) -> list[Pass]:
    if chunks == 1:
        return one_forward_one_backward(stage, stages, batches)
    return interleaved(stage, stages, batches, chunks)
