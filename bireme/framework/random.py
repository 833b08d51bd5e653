"""paddle.framework.random: the generator's state."""

from bireme import get_rng_state, seed, set_rng_state

__all__ = ["get_rng_state", "seed", "set_rng_state"]
