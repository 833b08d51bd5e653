"""`paddle.incubate.asp`: weights in which n of every m elements are zero.

>>> optimizer = asp.decorate(optimizer)   # keeps pruned weights at zero
>>> asp.prune_model(model)                # prunes them
"""

from bireme.incubate.asp.masks import calculate_density
from bireme.incubate.asp.pruning import (
    add_supported_layer,
    decorate,
    prune_model,
    reset_excluded_layers,
    set_excluded_layers,
)

__all__ = [
    "add_supported_layer",
    "calculate_density",
    "decorate",
    "prune_model",
    "reset_excluded_layers",
    "set_excluded_layers",
]
