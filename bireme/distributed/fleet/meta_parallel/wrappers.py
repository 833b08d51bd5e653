"""Models of fleet: a model, with its batches (`batches.py`) and mixed precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from bireme.amp import auto_cast
from bireme.core.errors import InvalidArgument
from bireme.distributed.fleet.meta_parallel.batches import Batches, batches_of
from bireme.nn.layer.layer import Layer

if TYPE_CHECKING:
    from bireme.distributed.fleet.strategy import DistributedStrategy
    from bireme.distributed.fleet.topology import HybridCommunicateGroup


class MetaParallelBase(Layer):
    """A model of a job. In one process that drives all devices batches are cut over "dp" and
    "sharding"; in one process of several each batch is this process's own."""

    _cuts: ClassVar[dict[str, int]] = {"dp": 0, "sharding": 0}

    def __init__(
        self,
        layers: Layer,
        hcg: HybridCommunicateGroup,
        strategy: DistributedStrategy | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise InvalidArgument(
                f"[{type(self).__name__}] does not know the option {sorted(kwargs)[0]!r}"
            )
        super().__init__(layers.full_name() + "_parallel")
        self._layers = layers
        self._hcg = hcg
        self._strategy = strategy
        self._batches = self._own_batches()

    def _own_batches(self) -> Batches:
        return batches_of(self._layers, self._hcg, self._strategy, self._cuts)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        inputs, kwargs = self._batches.take((inputs, kwargs))
        with self._batches.forward(), amp_of(self._strategy):
            return self._layers(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Passes whose gradients are only added up here; the next one outside averages them."""
        with self._batches.no_sync():
            yield

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The model's, without a prefix. Parameters that lie in parts on several processes are
        put together, which all of them ask for."""
        return self._batches.state_dict(self._layers, *args, **kwargs)

    def set_state_dict(
        self, state_dict: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[list[str], list[str]]:
        return self._batches.set_state_dict(self._layers, state_dict, *args, **kwargs)

    set_dict = load_dict = set_state_dict


@contextmanager
def amp_of(strategy: DistributedStrategy | None) -> Iterator[None]:
    """Mixed precision as `strategy.amp` and `strategy.amp_configs` ask for it."""
    if strategy is None or not strategy.amp:
        yield
        return
    amp = strategy.amp_configs
    with auto_cast(
        True,
        amp["custom_white_list"],
        amp["custom_black_list"],
        "O2" if amp["use_pure_fp16"] else "O1",
        "bfloat16" if amp["use_bf16"] else "float16",
    ):
        yield


class TensorParallel(MetaParallelBase):
    """A model with layers that are cut over "mp"."""


class ShardingParallel(MetaParallelBase):
    """A model whose optimizer's state is cut over "sharding"."""


class SegmentParallel(MetaParallelBase):
    """A model whose sequences, [batch, sequence, ...], are cut over "sep". In one process of
    several the program cuts them, as with Paddle."""

    _cuts: ClassVar[dict[str, int]] = {"dp": 0, "sharding": 0, "sep": 1}
