"""Distributions whose logarithm is linear in natural parameters."""

from __future__ import annotations

from typing import Any

import bireme
from bireme.core.tensor import Tensor
from bireme.distribution.distribution import Distribution


class ExponentialFamily(Distribution):
    """A distribution given by natural parameters and a log-normalizer.

    Its entropy, and the divergence between two of one class, follow from derivatives of the
    log-normalizer (the Bregman divergence), so a subclass need not write them.
    """

    @property
    def _natural_parameters(self) -> tuple[Tensor, ...]:
        raise self._lacks("_natural_parameters")

    def _log_normalizer(self, *parameters: Tensor) -> Tensor:
        raise self._lacks("_log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise self._lacks("_mean_carrier_measure")

    def entropy(self) -> Tensor:
        """-E[log p], from the derivatives of the log-normalizer."""
        natural, normalizer, slopes = self._bregman_parts()
        total = normalizer - self._mean_carrier_measure
        for p, g in zip(natural, slopes, strict=True):
            total = total - p * g
        return total

    def _bregman_parts(self) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """(natural parameters, log-normalizer there, its derivatives by them)."""
        natural = []
        for p in self._natural_parameters:
            leaf = p.detach()
            leaf.stop_gradient = False
            natural.append(leaf)
        with bireme.enable_grad():
            normalizer = self._log_normalizer(*natural)
            slopes = bireme.grad([normalizer.sum()], natural, create_graph=True)
        return natural, normalizer, [s for s in slopes if s is not None]


__all__ = ["ExponentialFamily"]
