"""The initializers under their names of Paddle 1, with the seeds that they take there."""

from __future__ import annotations

import numpy as np

from bireme.api.types import TensorLike
from bireme.core import random
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument
from bireme.nn import initializer
from bireme.nn.initializer.base import Initializer, Shape


class _Seeded(Initializer):
    """Draws by `drawing`; with a seed other than 0 always the same numbers."""

    def __init__(self, drawing: Initializer, seed: int):
        self.drawing, self.seed = drawing, int(seed)

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        if self.seed == 0:
            return self.drawing.make(shape, dtype)
        generator = random.default_generator
        before = generator.get_state()
        generator.set_state(random.Generator(self.seed).get_state())
        try:
            return self.drawing.make(shape, dtype)
        finally:
            generator.set_state(before)


class ConstantInitializer(initializer.Constant):
    """Every element is `value`. The device decides where it is made, with `force_cpu` or not."""

    def __init__(self, value: float = 0.0, force_cpu: bool = False) -> None:
        super().__init__(value)


class UniformInitializer(_Seeded):
    """Uniform in [low, high). With `diag_num`, as many elements of the diagonal of the matrix,
    `diag_step` rows apart, are `diag_val`."""

    def __init__(
        self,
        low: float = -1.0,
        high: float = 1.0,
        seed: int = 0,
        diag_num: int = 0,
        diag_step: int = 0,
        diag_val: float = 1.0,
    ) -> None:
        super().__init__(initializer.Uniform(low, high), seed)
        self.diag_num, self.diag_step, self.diag_val = diag_num, diag_step, diag_val

    def make(self, shape: Shape, dtype: DType) -> np.ndarray:
        drawn = super().make(shape, dtype)
        if self.diag_num:
            flat = drawn.reshape(-1)
            at = np.arange(self.diag_num) * (self.diag_step + 1)
            if at[-1] >= flat.size:
                raise InvalidArgument(
                    f"[UniformInitializer] {self.diag_num} elements, {self.diag_step} apart, do "
                    f"not fit into a parameter of shape {list(shape)}"
                )
            flat[at] = self.diag_val
        return drawn


class NormalInitializer(_Seeded):
    """Normal with mean `loc` and standard deviation `scale`."""

    def __init__(self, loc: float = 0.0, scale: float = 1.0, seed: int = 0) -> None:
        super().__init__(initializer.Normal(loc, scale), seed)


class TruncatedNormalInitializer(_Seeded):
    """Normal with mean `loc` and standard deviation `scale`, restricted to [a, b]."""

    def __init__(
        self, loc: float = 0.0, scale: float = 1.0, seed: int = 0, a: float = -2.0, b: float = 2.0
    ) -> None:
        super().__init__(initializer.TruncatedNormal(loc, scale, a, b), seed)


class XavierInitializer(_Seeded):
    """XavierUniform or XavierNormal."""

    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        fan_out: float | None = None,
        seed: int = 0,
        gain: float = 1.0,
    ) -> None:
        kind = initializer.XavierUniform if uniform else initializer.XavierNormal
        super().__init__(kind(fan_in, fan_out, gain), seed)


class MSRAInitializer(_Seeded):
    """KaimingUniform or KaimingNormal."""

    def __init__(
        self,
        uniform: bool = True,
        fan_in: float | None = None,
        seed: int = 0,
        negative_slope: float = 0.0,
        nonlinearity: str = "relu",
        mode: str = "fan_in",
    ) -> None:
        kind = initializer.KaimingUniform if uniform else initializer.KaimingNormal
        super().__init__(kind(fan_in, negative_slope, nonlinearity, mode), seed)


class NumpyArrayInitializer(initializer.Assign):
    """A copy of an array."""

    def __init__(self, value: TensorLike) -> None:
        super().__init__(value)
