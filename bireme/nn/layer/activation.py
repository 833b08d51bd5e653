"""Activation layers: each holds its settings and calls its function."""

from __future__ import annotations

import bireme
from bireme.api.keywords import second_names
from bireme.core.dtype import get_default_dtype
from bireme.core.errors import ShapeMismatch
from bireme.core.tensor import Tensor
from bireme.nn import functional as F
from bireme.nn.attributes import ParamAttrLike
from bireme.nn.initializer import Constant
from bireme.nn.layer.shown import ShownLayer


class CELU(ShownLayer):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    _shown = ("_alpha",)

    def __init__(self, alpha: float = 1.0, name: str | None = None) -> None:
        super().__init__()
        self._alpha = alpha
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.celu(x, self._alpha)


class ELU(ShownLayer):
    """x above zero, alpha * (exp(x) - 1) below."""

    _shown = ("_alpha",)

    def __init__(self, alpha: float = 1.0, name: str | None = None) -> None:
        super().__init__()
        self._alpha = alpha
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self._alpha)


class GELU(ShownLayer):
    """x * Phi(x), or its tanh approximation."""

    _shown = ("_approximate",)

    def __init__(self, approximate: bool | str = False, name: str | None = None) -> None:
        super().__init__()
        self._approximate = approximate
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self._approximate)


class Hardshrink(ShownLayer):
    """x outside ±threshold, zero inside."""

    _shown = ("_threshold",)

    @second_names(lambd="threshold")
    def __init__(self, threshold: float = 0.5, name: str | None = None) -> None:
        super().__init__()
        self._threshold = threshold
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.hardshrink(x, self._threshold)


class Hardswish(ShownLayer):
    """x * relu6(x + 3) / 6."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(x)


class Hardsigmoid(ShownLayer):
    """A sigmoid of three straight pieces."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(x)


class Hardtanh(ShownLayer):
    """x cut to [min, max]."""

    _shown = (
        "_min",
        "_max",
    )

    def __init__(self, min: float = -1.0, max: float = 1.0, name: str | None = None) -> None:
        super().__init__()
        self._min = min
        self._max = max
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(x, self._min, self._max)


class LeakyReLU(ShownLayer):
    """x above zero, negative_slope * x below."""

    _shown = ("_negative_slope",)

    def __init__(self, negative_slope: float = 0.01, name: str | None = None) -> None:
        super().__init__()
        self._negative_slope = negative_slope
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self._negative_slope)


class LogSigmoid(ShownLayer):
    """log(sigmoid(x))."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.log_sigmoid(x)


class LogSoftmax(ShownLayer):
    """log(softmax(x)) along `axis`."""

    _shown = ("_axis",)

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__()
        self._axis = axis
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, self._axis)


class Maxout(ShownLayer):
    """The largest of each group of channels."""

    _shown = (
        "_groups",
        "_axis",
    )

    def __init__(self, groups: int, axis: int = 1, name: str | None = None) -> None:
        super().__init__()
        self._groups = groups
        self._axis = axis
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.maxout(x, self._groups, self._axis)


class Mish(ShownLayer):
    """x * tanh(softplus(x))."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x)


class ReLU(ShownLayer):
    """max(0, x)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x)


class ReLU6(ShownLayer):
    """min(max(0, x), 6)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.relu6(x)


class SELU(ShownLayer):
    """Self-normalising ELU."""

    _shown = (
        "_scale",
        "_alpha",
    )

    def __init__(
        self,
        scale: float = 1.0507009873554804934193349852946,
        alpha: float = 1.6732632423543772848170429916717,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._scale = scale
        self._alpha = alpha
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.selu(x, self._scale, self._alpha)


class Sigmoid(ShownLayer):
    """1 / (1 + exp(-x))."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return bireme.sigmoid(x)


class Softmax(ShownLayer):
    """exp(x) over its sum along `axis`."""

    _shown = ("_axis",)

    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__()
        self._axis = axis
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, self._axis)


class Softplus(ShownLayer):
    """log(1 + exp(beta * x)) / beta, linear above `threshold`."""

    _shown = (
        "_beta",
        "_threshold",
    )

    def __init__(self, beta: float = 1, threshold: float = 20, name: str | None = None) -> None:
        super().__init__()
        self._beta = beta
        self._threshold = threshold
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self._beta, self._threshold)


class Softshrink(ShownLayer):
    """x moved towards zero by `threshold`."""

    _shown = ("_threshold",)

    @second_names(lambd="threshold")
    def __init__(self, threshold: float = 0.5, name: str | None = None) -> None:
        super().__init__()
        self._threshold = threshold
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.softshrink(x, self._threshold)


class Softsign(ShownLayer):
    """x / (1 + |x|)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.softsign(x)


class Swish(ShownLayer):
    """x * sigmoid(x)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.swish(x)


class Tanh(ShownLayer):
    """The hyperbolic tangent."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return bireme.tanh(x)


class Tanhshrink(ShownLayer):
    """x - tanh(x)."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.tanhshrink(x)


class ThresholdedReLU(ShownLayer):
    """x above `threshold`, `value` elsewhere."""

    _shown = (
        "_threshold",
        "_value",
    )

    def __init__(self, threshold: float = 1.0, value: float = 0.0, name: str | None = None) -> None:
        super().__init__()
        self._threshold = threshold
        self._value = value
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.thresholded_relu(x, self._threshold, self._value)


class GLU(ShownLayer):
    """One half of the channels, gated by the sigmoid of the other."""

    _shown = ("_axis",)

    @second_names(dim="axis")
    def __init__(self, axis: int = -1, name: str | None = None) -> None:
        super().__init__()
        self._axis = axis
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self._axis)


class Silu(ShownLayer):
    """x * sigmoid(x)."""

    _shown = ("_inplace",)

    def __init__(self, inplace: bool = False, name: str | None = None) -> None:
        super().__init__()
        self._inplace = inplace
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x, self._inplace)


class Softmax2D(ShownLayer):
    """Softmax over the channels of each position of an image."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__()
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (3, 4):
            raise ShapeMismatch(
                f"[Softmax2D] needs [C, H, W] or [N, C, H, W]. Received: shape {x.shape}"
            )
        return F.softmax(x, -3)


class PReLU(ShownLayer):
    """x above zero, a learned slope times x below."""

    _shown = ("_num_parameters", "_data_format", "_init", "_dtype")

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        weight_attr: ParamAttrLike | None = None,
        data_format: str = "NCHW",
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._num_parameters = num_parameters
        self._init = init
        self._name = name
        self._data_format = data_format
        self.__dict__["_dtype"] = get_default_dtype()
        self._weight = self.create_parameter(
            [num_parameters], weight_attr, default_initializer=Constant(init)
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self._weight, self._data_format)


class RReLU(ShownLayer):
    """Leaky ReLU whose slope is drawn at random in training."""

    _shown = ("_lower", "_upper", "training", "_dtype")

    def __init__(
        self, lower: float = 1.0 / 8.0, upper: float = 1.0 / 3.0, name: str | None = None
    ) -> None:
        super().__init__()
        self._lower = lower
        self._upper = upper
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        return F.rrelu(x, self._lower, self._upper, training=self.training)


SiLU = Silu

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Maxout",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Silu",
    "Softmax",
    "Softmax2D",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Swish",
    "Tanh",
    "Tanhshrink",
    "ThresholdedReLU",
]
