"""Distributions of vectors with correlations, and of correlations themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import bireme
from bireme.api.types import TensorLike
from bireme.core import dtype as dt
from bireme.core.errors import InvalidArgument, ShapeMismatch, TypeMismatch
from bireme.core.op import broadcast_shapes
from bireme.core.tensor import Tensor
from bireme.distribution.distribution import (
    Distribution,
    as_value,
    checked,
    finfo,
    parameters,
    same_kind,
    sample_sizes,
)
from bireme.distribution.gamma_family import Beta


class MultivariateNormal(Distribution):
    """Normal vectors, with the covariance given as such, as its inverse or as its factor."""

    covariance_matrix: Tensor | None = None
    precision_matrix: Tensor | None = None
    scale_tril: Tensor | None = None

    def __init__(
        self,
        loc: TensorLike,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
    ) -> None:
        if not isinstance(loc, Tensor):
            alone: Any = [loc]
            loc = bireme.to_tensor(alone, dtype=dt.default_float())
        loc = loc if loc.dim() else loc.reshape([1])
        self.dtype = loc.dtype
        names = ("covariance_matrix", "precision_matrix", "scale_tril")
        all_given = zip(names, (covariance_matrix, precision_matrix, scale_tril), strict=True)
        given = [(n, m) for n, m in all_given if m is not None]
        if len(given) != 1:
            raise InvalidArgument(
                f"[MultivariateNormal] give exactly one of {', '.join(names)}. Received: "
                f"{', '.join(n for n, _ in given) or 'none'}"
            )
        name, matrix = given[0]
        if matrix.dim() < 2:
            raise ShapeMismatch(
                f"[MultivariateNormal] {name} needs two dimensions or more. Received: shape "
                f"{matrix.shape}"
            )
        matrix = matrix.astype(self.dtype)
        batch = broadcast_shapes(tuple(matrix.shape[:-2]), tuple(loc.shape[:-1]))
        setattr(self, name, matrix.expand([*batch, *matrix.shape[-2:]]))
        self.loc = loc.expand([*batch, loc.shape[-1]])
        if name == "scale_tril":
            self._factor = matrix
        elif name == "covariance_matrix":
            self._factor = bireme.linalg.cholesky(matrix)
        else:
            self._factor = _factor_of_inverse(matrix)
        super().__init__(batch, self.loc.shape[-1:])

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._factor.square().sum(-1).expand([*self._batch_shape, *self._event_shape])

    def rsample(self, shape: Sequence[int] = ()) -> Tensor:
        noise = bireme.randn(self._extend_shape(shape), dtype=self.dtype)
        return self.loc + bireme.matmul(self._factor, noise.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return self._factor.diagonal(axis1=-2, axis2=-1).log().sum(-1)

    def _squared_distance(self, away: Tensor) -> Tensor:
        """|L^-1 x|^2 for each vector x of the last dimension."""
        # One small inverse serves any number of vectors.
        identity = bireme.eye(self._event_shape[0], dtype=self.dtype).expand(self._factor.shape)
        inverse = bireme.linalg.triangular_solve(self._factor, identity, upper=False)
        return bireme.matmul(inverse, away.unsqueeze(-1)).squeeze(-1).square().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        far = self._squared_distance(as_value(value, self.loc) - self.loc)
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + far) - self._half_log_det()

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        found = constant + self._half_log_det()
        return found.expand(self._batch_shape) if self._batch_shape else found

    def kl_divergence(self, other: Distribution) -> Tensor:
        """The divergence to another normal distribution of vectors."""
        other = same_kind(self, other)
        if self._event_shape != other._event_shape:
            raise ShapeMismatch(
                "[kl_divergence] both distributions must have the same event_shape. Received: "
                f"{list(self._event_shape)} and {list(other._event_shape)}"
            )
        mine, theirs = self._factor, other._factor
        ratio = bireme.linalg.triangular_solve(theirs, mine, upper=False)
        expected = ratio.square().sum([-2, -1]) + other._squared_distance(self.loc - other.loc)
        excess = other._half_log_det() - self._half_log_det()
        return excess + 0.5 * (expected - self._event_shape[0])


def _factor_of_inverse(precision: Tensor) -> Tensor:
    """The lower Cholesky factor of a matrix's inverse, without inverting the matrix."""
    flipped = bireme.linalg.cholesky(bireme.flip(precision, [-2, -1]))
    inverse = bireme.flip(flipped, [-2, -1]).mT
    identity = bireme.eye(precision.shape[-1], dtype=precision.dtype)
    identity = identity.expand(precision.shape)
    return bireme.linalg.triangular_solve(inverse, identity, upper=False)


class LKJCholesky(Distribution):
    """Cholesky factors of random correlation matrices.

    `concentration` 1 makes all correlation matrices equally likely; larger values favour
    matrices close to the identity.
    """

    def __init__(
        self, dim: int = 2, concentration: TensorLike = 1.0, sample_method: str = "onion"
    ) -> None:
        if not isinstance(dim, int):
            raise TypeMismatch(f"[LKJCholesky] dim must be an integer. Received: {dim!r}")
        if dim < 2:
            raise InvalidArgument(f"[LKJCholesky] dim must be 2 or more. Received: {dim}")
        if sample_method not in ("onion", "cvine"):
            raise InvalidArgument(
                f"[LKJCholesky] sample_method must be 'onion' or 'cvine'. Received: "
                f"{sample_method!r}"
            )
        [given] = parameters("LKJCholesky", concentration, dtype="float32")
        self.concentration = checked("LKJCholesky", "concentration", given, positive=True)
        self.dtype = self.concentration.dtype
        self.dim = dim
        self.sample_method = sample_method
        marginal = (self.concentration + 0.5 * (dim - 2)).unsqueeze(-1)
        if sample_method == "onion":
            steps = np.array([0.0, *range(dim - 1)], self.dtype.numpy)
            below = bireme.to_tensor(steps + 0.5) + bireme.zeros_like(marginal)
            self._beta = Beta(below, marginal - 0.5 * bireme.to_tensor(steps))
        else:
            steps = np.tril_indices(dim - 1)[1].astype(self.dtype.numpy)
            both = marginal - 0.5 * bireme.to_tensor(steps)
            self._beta = Beta(both, both)
        super().__init__(self.concentration.shape, (dim, dim))

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        dims = sample_sizes(sample_shape)
        with bireme.no_grad():
            # The beta variable drops a last dimension of 1; here it is always wanted.
            drawn = self._beta.sample(dims).reshape([*dims, *self._beta.batch_shape])
            return self._onion(dims, drawn) if self.sample_method == "onion" else self._cvine(drawn)

    def _onion(self, dims: tuple[int, ...], drawn: Tensor) -> Tensor:
        """Row by row: a direction on the sphere, and how far along it."""
        noise = bireme.randn(self._extend_shape(dims), dtype=drawn.dtype).tril(-1)
        length = noise.square().sum(-1, keepdim=True).sqrt()
        direction = noise / bireme.where(length == 0, bireme.ones_like(length), length)
        rows = drawn.unsqueeze(-1).sqrt() * direction
        return rows + bireme.diag_embed(_rest_of_row(rows))

    def _cvine(self, drawn: Tensor) -> Tensor:
        """From partial correlations, one for each entry below the diagonal."""
        n = self.dim
        rows, columns = np.tril_indices(n, -1)
        place = np.zeros((n, n), np.int64)
        place[rows, columns] = np.arange(1, len(rows) + 1)
        partial = (2 * drawn - 1).clip(-1 + 1e-7, 1 - 1e-7)
        padded = bireme.concat([bireme.zeros_like(partial[..., :1]), partial], axis=-1)
        flat = bireme.index_select(padded, bireme.to_tensor(place.reshape(-1)), axis=-1)
        partial = flat.reshape([*drawn.shape[:-1], n, n])
        left = (1 - partial.square()).sqrt().cumprod(-1)
        left = bireme.concat([bireme.ones_like(left[..., :1]), left[..., :-1]], axis=-1)
        return (partial + bireme.eye(n, dtype=partial.dtype)) * left

    def log_prob(self, value: Tensor) -> Tensor:
        a = self.concentration
        diagonal = bireme.diagonal(value, axis1=-1, axis2=-2)[..., 1:]
        order = bireme.arange(2, self.dim + 1, dtype=a.dtype)
        order = 2 * (a - 1).unsqueeze(-1) + self.dim - order
        inside = (order * diagonal.log()).sum(-1)
        less = self.dim - 1
        alpha = a + 0.5 * less
        constant = 0.5 * less * math.log(math.pi) - alpha.lgamma() * less
        return inside - (constant + bireme.multigammaln(alpha - 0.5, less))


def _rest_of_row(rows: Tensor) -> Tensor:
    """What makes each row a vector of length 1."""
    return (1 - rows.square().sum(-1)).clip(min=float(finfo(rows).tiny)).sqrt()


__all__ = ["LKJCholesky", "MultivariateNormal"]
