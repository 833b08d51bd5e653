"""paddle.nn.utils: clipping gradients, flattening parameters, reparametrising weights."""

from __future__ import annotations

from bireme.nn.utils.gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    parameters_to_vector,
    vector_to_parameters,
)
from bireme.nn.utils.spectral import spectral_norm
from bireme.nn.utils.weight import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "parameters_to_vector",
    "remove_weight_norm",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
