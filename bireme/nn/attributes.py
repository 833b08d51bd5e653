"""ParamAttr: how a layer's parameter is named, initialised and trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.regularizer import WeightDecayRegularizer

if TYPE_CHECKING:
    from bireme.nn.initializer.base import Initializer


class ParamAttr:
    """Settings of one parameter, given to a layer as `weight_attr` or `bias_attr`."""

    def __init__(
        self,
        name: str | None = None,
        initializer: Initializer | None = None,
        learning_rate: float = 1.0,
        regularizer: WeightDecayRegularizer | None = None,
        trainable: bool = True,
        do_model_average: bool = True,
        need_clip: bool = True,
    ) -> None:
        if name == "":
            raise InvalidArgument("[ParamAttr] name must not be empty; pass None to have one made")
        if name is not None and not isinstance(name, str):
            raise TypeMismatch(f"[ParamAttr] name must be a str. Received: {type(name).__name__}")
        if regularizer is not None and not isinstance(regularizer, WeightDecayRegularizer):
            raise TypeMismatch(
                "[ParamAttr] regularizer must be paddle.regularizer.L1Decay or L2Decay. "
                f"Received: {type(regularizer).__name__}"
            )
        self.name = name
        self.initializer = initializer
        self.learning_rate = learning_rate
        self.regularizer = regularizer
        self.trainable = trainable
        self.do_model_average = do_model_average
        self.need_clip = need_clip

    @staticmethod
    def _to_attr(arg: Any) -> Any:
        """The ParamAttr that an argument of a layer stands for; False stays False, and a list
        gives a list."""
        if isinstance(arg, list | tuple):
            return [ParamAttr._to_attr(a) for a in arg]
        return False if arg is False else as_param_attr(arg)


ParamAttrLike: TypeAlias = "ParamAttr | Initializer | WeightDecayRegularizer | str | bool"


def as_param_attr(spec: ParamAttrLike | None) -> ParamAttr | None:
    """The ParamAttr that a layer's argument stands for; None for False ("no such parameter")."""
    from bireme.nn.initializer import Initializer

    if spec is None or spec is True:
        return ParamAttr()
    if spec is False:
        return None
    if isinstance(spec, ParamAttr):
        return spec
    if isinstance(spec, str):
        return ParamAttr(name=spec)
    if isinstance(spec, Initializer):
        return ParamAttr(initializer=spec)
    if isinstance(spec, WeightDecayRegularizer):
        return ParamAttr(regularizer=spec)
    raise TypeMismatch(
        "a parameter attribute must be a ParamAttr, an initializer, a regularizer, a name or a "
        f"bool. Received: {type(spec).__name__}"
    )


__all__ = ["ParamAttr"]
