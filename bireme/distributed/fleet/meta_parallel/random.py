"""Named random states: dropout inside a cut layer may draw from one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import bireme
from bireme.core.errors import InvalidArgument
from bireme.core.random import get_rng_state, set_rng_state

MODEL_PARALLEL_RNG = "model_parallel_rng"


class RNGStatesTracker:
    """Random states by name, each of which goes on where it was left."""

    def __init__(self) -> None:
        self.states_: dict[str, Any] = {}
        self.seeds_: set[int] = set()

    def reset(self) -> None:
        """Forget all of them."""
        self.states_, self.seeds_ = {}, set()

    def add(self, name: str, seed: int) -> None:
        """A new state that starts from `seed`."""
        if seed in self.seeds_ or name in self.states_:
            what = f"seed {seed}" if seed in self.seeds_ else f"state {name!r}"
            raise InvalidArgument(f"[RNGStatesTracker] there is a {what} already")
        before = get_rng_state()
        bireme.seed(seed)
        self.states_[name] = get_rng_state()
        self.seeds_.add(seed)
        set_rng_state(before)

    def get_states_tracker(self) -> dict[str, Any]:
        return dict(self.states_)

    def set_states_tracker(self, states: dict[str, Any]) -> None:
        self.states_ = dict(states)

    @contextmanager
    def rng_state(self, name: str = MODEL_PARALLEL_RNG) -> Iterator[None]:
        """Draw from the state of this name inside the block."""
        if name not in self.states_:
            raise InvalidArgument(f"[RNGStatesTracker] there is no state {name!r}; add() it first")
        before = get_rng_state()
        set_rng_state(self.states_[name])
        try:
            yield
        finally:
            self.states_[name] = get_rng_state()
            set_rng_state(before)


_tracker = RNGStatesTracker()


def get_rng_state_tracker() -> RNGStatesTracker:
    return _tracker


def model_parallel_random_seed(seed: int | None = None) -> None:
    """Seed the generator, and the state that cut layers draw from. Over processes that state
    differs between the parts of a model, and is the same in its copies."""
    part = _part_of_model()
    if seed is None:
        seed = int(bireme.randint(0, 2**20, [1]).item())
    _tracker.reset()
    bireme.seed(seed)
    _tracker.add(MODEL_PARALLEL_RNG, seed + 1 + part)


def _part_of_model() -> int:
    """This process's number among those that hold a model together."""
    from bireme.distributed.fleet import fleet

    hcg = getattr(fleet, "_hcg", None)
    if hcg is None:
        return 0
    pipes = hcg.get_pipe_parallel_world_size()
    return hcg.get_model_parallel_rank() * pipes + hcg.get_stage_id()
