"""LayerHelper: makes parameters for a function that has some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bireme.api.types import DTypeLike
from bireme.core.errors import BiremeError
from bireme.nn.attributes import ParamAttr, ParamAttrLike
from bireme.nn.parameters import create_parameter
from bireme.static import Program, default_main_program, default_startup_program
from bireme.utils import unique_name

if TYPE_CHECKING:
    from bireme.core.dtype import DType
    from bireme.core.tensor import Parameter
    from bireme.nn.initializer.base import Initializer


class NoOpsByName(BiremeError, AttributeError):
    """A helper was asked to append an op by its name."""


class LayerHelper:
    """A function's arguments, and the parameters that it makes from them.

    There is no `append_op`: a program records the functions that are called.
    """

    def __init__(self, layer_type: str, **kwargs: Any) -> None:
        self.layer_type = layer_type
        self.kwargs = kwargs
        self.name = kwargs.get("name") or unique_name.generate(layer_type)

    @property
    def main_program(self) -> Program:
        return default_main_program()

    @property
    def startup_program(self) -> Program:
        return default_startup_program()

    @property
    def param_attr(self) -> ParamAttrLike | None:
        return self.kwargs.get("param_attr")

    @property
    def bias_attr(self) -> ParamAttrLike | None:
        return self.kwargs.get("bias_attr")

    def input_dtype(self, input_param_name: str = "input") -> DType:
        """The element type of an argument, or of the first of several."""
        given = self.kwargs[input_param_name]
        return (given[0] if isinstance(given, list | tuple) else given).dtype

    def create_parameter(
        self,
        attr: ParamAttrLike | None,
        shape: Iterable[int],
        dtype: DTypeLike = "float32",
        is_bias: bool = False,
        default_initializer: Initializer | None = None,
    ) -> Parameter | None:
        """A parameter of the current program, None where `attr` is False."""
        if attr is False:
            return None
        attr = ParamAttr() if attr is None else attr
        return create_parameter(
            shape, dtype, attr=attr, is_bias=is_bias, default_initializer=default_initializer
        )

    def __getattr__(self, name: str) -> Any:
        raise NoOpsByName(
            f"LayerHelper.{name} is not in Bireme: ops are not appended by name. Call the public "
            f"function that [{self.__dict__.get('layer_type')}] stands for; a program records it"
        )


__all__ = ["LayerHelper"]
