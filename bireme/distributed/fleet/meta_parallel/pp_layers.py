"""PipelineLayer: a list of layers of which each process builds the ones of its stage."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from bireme.core.errors import InvalidArgument, TypeMismatch
from bireme.distributed.communication import group as groups
from bireme.distributed.communication.collectives import all_reduce, broadcast
from bireme.distributed.environment import get_rank, get_world_size
from bireme.distributed.fleet.topology import CommunicateTopology
from bireme.distributed.fleet.utils.recomputing import recompute
from bireme.nn.layer.container import LayerDict
from bireme.nn.layer.layer import Layer


class LayerDesc:
    """A layer that is built where it belongs: `LayerDesc(nn.Linear, 8, 4)`."""

    def __init__(self, layer_func: type[Layer], *inputs: Any, **kwargs: Any) -> None:
        if not isinstance(layer_func, type) or not issubclass(layer_func, Layer):
            raise TypeMismatch(f"[LayerDesc] takes a class of Layers. Received: {layer_func!r}")
        self.layer_func, self.inputs, self.kwargs = layer_func, inputs, kwargs

    def build_layer(self, **extra_kwargs: Any) -> Layer:
        return self.layer_func(*self.inputs, **{**self.kwargs, **extra_kwargs})

    def __repr__(self) -> str:
        words = [*map(repr, self.inputs), *[f"{k}={v!r}" for k, v in self.kwargs.items()]]
        return f"{self.layer_func.__name__}({', '.join(words)})"


class SharedLayerDesc(LayerDesc):
    """A layer that stands in several places of the list under one `key`. Stages that hold it keep
    `shared_weight_attr` (a name, or several) equal. `forward_func(layer, x)` runs it, if given."""

    def __init__(
        self,
        key: str,
        layer_func: type[Layer],
        forward_func: Callable[[Layer, Any], Any] | None = None,
        shared_weight_attr: str | list[str] = "weight",
        *inputs: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(layer_func, *inputs, **kwargs)
        self.layer_name = key
        self.forward_func = forward_func
        attrs = shared_weight_attr
        self.shared_weight_attr = [attrs] if isinstance(attrs, str) else list(attrs)


class SegmentLayers:
    """Where a list of layers is cut: "uniform" (by number), "layer:Name" (each part has as many
    layers of classes with such a name), or a list of first layers."""

    def __init__(
        self,
        layers_desc: Sequence[Any],
        num_parts: int,
        method: str | list[int] = "uniform",
        num_virtual_pipeline_stage: int | None = None,
    ) -> None:
        self._layers = list(layers_desc)
        self.method = method
        self.num_parts = num_parts * (num_virtual_pipeline_stage or 1)
        if len(self._layers) < self.num_parts:
            raise InvalidArgument(
                f"[PipelineLayer] {len(self._layers)} layers do not make {self.num_parts} parts"
            )

    def do_segment(self) -> list[int]:
        """The first layer of each part, and the number of layers at the end."""
        if isinstance(self.method, list):
            return self._given(list(self.method))
        if self.method == "uniform":
            return self.uniform(len(self._layers), self.num_parts)
        if self.method.startswith("layer:"):
            return self._by_name(self.method.split(":")[1])
        raise InvalidArgument(
            "[PipelineLayer] seg_method is 'uniform', 'layer:Name' or a list. Received: "
            f"{self.method!r}"
        )

    def _given(self, cuts: list[int]) -> list[int]:
        if len(cuts) == self.num_parts:
            cuts.append(len(self._layers))
        ok = all(isinstance(c, int) for c in cuts) and cuts == sorted(cuts) and cuts[0] == 0
        if len(cuts) != self.num_parts + 1 or not ok or cuts[-1] > len(self._layers):
            raise InvalidArgument(
                f"[PipelineLayer] {self.num_parts} parts of {len(self._layers)} layers begin at "
                f"0 and go on upwards. Received: seg_method={self.method}"
            )
        return cuts

    def _by_name(self, name: str) -> list[int]:
        wanted = re.compile(name, re.IGNORECASE)
        marked = [bool(wanted.search(_class_name(layer))) for layer in self._layers]
        if not any(marked) or sum(marked) % self.num_parts:
            raise InvalidArgument(
                f"[PipelineLayer] {sum(marked)} layers named {name!r} do not divide into "
                f"{self.num_parts} equal parts"
            )
        size, cuts, seen = sum(marked) // self.num_parts, [0], 0
        for place, mark in enumerate(marked):
            seen += mark
            if mark and seen % size == 0:
                cuts.append(place + 1)
        cuts[-1] = len(self._layers)
        return cuts

    def uniform(self, num_items: int, num_parts: int) -> list[int]:
        size, extra = divmod(num_items, num_parts)
        cuts = [0]
        for part in range(1, num_parts):  # the last parts take what is left over
            cuts.append(cuts[-1] + size + (part > num_parts - extra))
        return [*cuts, num_items]


def _class_name(layer: Any) -> str:
    if isinstance(layer, LayerDesc):
        return layer.layer_func.__name__
    return type(layer).__name__ if isinstance(layer, Layer) else getattr(layer, "__name__", "")


class PipelineLayer(Layer):
    """Layers, descriptions of layers and functions, each called with what the one before returned.

    A process builds those of its stage (of its stages, with `num_virtual_pipeline_stages`); they
    keep the names that they would have in one process. `loss_fn(output, label)` is called by the
    last stage; there may be several. Every `recompute_interval` layers are run again in the
    backward pass. XLA makes one program of a stage, `use_cudagraph` or not.

    >>> model = PipelineLayer([nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)], num_stages=1)
    """

    def __init__(
        self,
        layers: Sequence[Any],
        num_stages: int | None = None,
        topology: CommunicateTopology | None = None,
        loss_fn: Callable[..., Any] | None = None,
        seg_method: str | list[int] = "uniform",
        recompute_interval: int = 0,
        recompute_ctx: dict[str, Any] | None = None,
        num_virtual_pipeline_stages: int | None = None,
        use_cudagraph: bool = False,
        use_dualpipev: bool = False,
    ) -> None:
        super().__init__()
        if num_stages is None and topology is None:
            raise InvalidArgument("[PipelineLayer] give num_stages or topology")
        if use_dualpipev:
            raise InvalidArgument("[PipelineLayer] the schedule DualPipeV is not built")
        if recompute_ctx and (recompute_ctx.get("offload") or recompute_ctx.get("partition")):
            raise InvalidArgument(
                "[PipelineLayer] recompute_ctx: what is computed again is not kept, so it is "
                "neither moved to the host nor cut"
            )
        self._topo = topology or _default_topology(num_stages or 1)
        self._num_stages = self._topo.get_dim("pipe")
        if num_stages is not None and num_stages != self._num_stages:
            raise InvalidArgument(
                f"[PipelineLayer] num_stages={num_stages}, and the topology has {self._num_stages}"
            )
        self._num_virtual = num_virtual_pipeline_stages or 1
        if self._num_virtual > 1 and self._num_stages == 1:
            raise InvalidArgument("[PipelineLayer] virtual stages are parts of two stages or more")
        self._stage_id = self._topo.get_coord(get_rank()).pipe
        self._loss_fn = list(loss_fn) if isinstance(loss_fn, list | tuple) else [loss_fn]
        self._recompute_interval = recompute_interval
        self._layers_desc = list(layers)
        self.segment_parts = SegmentLayers(
            self._layers_desc, self._num_stages, seg_method, self._num_virtual
        ).do_segment()
        self.shared_layers = LayerDict()
        self._chunks = [self._build(*self._bounds(c)) for c in range(self._num_virtual)]
        self._shared: list[tuple[Any, groups.Group]] = []
        self._share_weights()

    # --- where layers are -----------------------------------------------------------------

    def _bounds(self, chunk: int) -> tuple[int, int]:
        part = chunk * self._num_stages + self._stage_id
        return self.segment_parts[part], self.segment_parts[part + 1]

    def get_stage_from_index(self, layer_idx: int) -> int:
        """The stage that layer number `layer_idx` belongs to."""
        for part, (begin, end) in enumerate(
            zip(self.segment_parts, self.segment_parts[1:], strict=False)
        ):
            if begin <= layer_idx < end:
                return part % self._num_stages
        raise InvalidArgument(
            f"[PipelineLayer] there are layers 0 to {self.segment_parts[-1] - 1}. Received: "
            f"{layer_idx}"
        )

    def get_num_virtual_stages(self) -> int:
        return self._num_virtual

    def get_model_chunks(self) -> list[list[Callable[[Any], Any]]] | None:
        """The parts of this process, where there are several."""
        return self._chunks if self._num_virtual > 1 else None

    # --- building -------------------------------------------------------------------------

    def _build(self, begin: int, end: int) -> list[Callable[[Any], Any]]:
        return [self._built(place, self._layers_desc[place]) for place in range(begin, end)]

    def _built(self, place: int, item: Any) -> Callable[[Any], Any]:
        if isinstance(item, SharedLayerDesc):
            if item.layer_name not in self.shared_layers:
                self.shared_layers[item.layer_name] = item.build_layer()
            shared: Any = self.shared_layers[item.layer_name]
            run = item.forward_func
            return shared if run is None else lambda x: run(shared, x)
        layer = item.build_layer() if isinstance(item, LayerDesc) else item
        if isinstance(layer, Layer):
            self.add_sublayer(str(place), layer)
        elif not callable(layer):
            raise TypeMismatch(
                f"[PipelineLayer] layers, LayerDescs and functions. Received: {layer!r:.80}"
            )
        return layer

    def _share_weights(self) -> None:
        """Give the stages that hold a shared layer the weights of the first of them."""
        holders: dict[str, tuple[set[int], list[str]]] = {}
        for place, item in enumerate(self._layers_desc):
            if isinstance(item, SharedLayerDesc):
                stages, _ = holders.setdefault(item.layer_name, (set(), item.shared_weight_attr))
                stages.add(self.get_stage_from_index(place))
        for key, (stages, attrs) in holders.items():
            if len(stages) == 1:
                continue
            # Every process takes part in making every group.
            for pipe in self._topo.get_comm_list("pipe"):
                ranks = [pipe[s] for s in sorted(stages)]
                group = groups.make_group(ranks)
                if get_rank() not in ranks:
                    continue
                for attr in attrs:
                    weight = getattr(self.shared_layers[key], attr)
                    broadcast(weight, ranks[0], group)
                    weight.is_firstly_shared = get_rank() == ranks[0]
                    self._shared.append((weight, group))

    def allreduce_shared_weight_gradients(self) -> None:
        """Add up the gradients of shared weights over the stages that hold them."""
        for weight, group in self._shared:
            if weight.grad is not None:
                all_reduce(weight.grad, group=group)

    # --- running --------------------------------------------------------------------------

    def forward(self, input: Any, chunk_id: int | None = None) -> Any:
        """What this process's part makes of `input`."""
        functions = self._chunks[chunk_id or 0]
        step = self._recompute_interval
        if step <= 0 or not self.training:
            return _through(functions, input)
        for begin in range(0, len(functions), step):
            input = _again(functions[begin : begin + step], input)
        return input


def _again(functions: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    """`_through` with nothing kept but its arguments, which `recompute` wants one by one."""
    given = x if isinstance(x, tuple | list) else (x,)
    return recompute(
        lambda *xs: _through(functions, xs if isinstance(x, tuple | list) else xs[0]),
        *given,
        use_reentrant=False,
    )


def _through(functions: Sequence[Callable[[Any], Any]], x: Any) -> Any:
    for function in functions:
        x = function(x)
    return x


def _default_topology(stages: int) -> CommunicateTopology:
    from bireme.distributed.fleet import fleet

    hcg = getattr(fleet, "_hcg", None)
    if hcg is not None and hcg.get_pipe_parallel_world_size() == stages:
        return hcg.topology()
    world = get_world_size()
    if world % stages:
        raise InvalidArgument(
            f"[PipelineLayer] {world} processes do not make {stages} stages; start a multiple of "
            f"{stages} (python -m bireme.distributed.launch --nproc_per_node {stages})"
        )
    return CommunicateTopology(
        ["data", "pipe", "sharding", "sep", "model"], [world // stages, stages, 1, 1, 1]
    )
