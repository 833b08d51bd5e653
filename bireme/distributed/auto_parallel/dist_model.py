"""DistModel: training, evaluation and prediction, each as one captured program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bireme import jit
from bireme.amp import GradScaler, auto_cast
from bireme.autograd.modes import no_grad
from bireme.capture import tree
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Tensor
from bireme.distributed.auto_parallel.layouts import everywhere, lay_out, layout_of
from bireme.distributed.auto_parallel.sharded_optimizer import (
    ShardingStage1,
    ShardingStage2,
    ShardingStage3,
    ShardOptimizer,
    shard_optimizer,
)
from bireme.distributed.auto_parallel.strategy import Strategy
from bireme.distributed.mesh import ProcessMesh, get_mesh

if TYPE_CHECKING:
    from bireme.io.dataloader import DataLoader
    from bireme.metric import Metric
    from bireme.nn.layer.layer import Layer
    from bireme.optimizer.optimizer import Optimizer


_MODES = ("train", "eval", "predict")


class DistModel:
    """A layer with its loss and optimizer. Call `train()`, `eval()` or `predict()`, then call the
    model with a batch: inputs first, the label last (no label to predict).

    >>> model = to_static(net, loader, loss, opt)  # doctest: +SKIP
    >>> loss = model(x, label)  # doctest: +SKIP
    """

    def __init__(
        self,
        layer: Layer,
        loader: DataLoader | None,
        loss: Callable[..., Any] | None = None,
        optimizer: Optimizer | ShardOptimizer | None = None,
        strategy: Strategy | None = None,
        metrics: Metric | Sequence[Metric] | None = None,
        input_spec: Sequence[Any] | None = None,
    ) -> None:
        if strategy is not None and not isinstance(strategy, Strategy):
            raise InvalidArgument(
                f"[DistModel] strategy is a Strategy. Received: {type(strategy).__name__}"
            )
        self.network = layer
        self._loss = loss
        self._strategy = strategy or Strategy()
        self._strategy.check()
        self._metrics: Any = [] if metrics is None else metrics
        if not isinstance(self._metrics, list | tuple):
            self._metrics = [self._metrics]
        self._input_spec = input_spec
        self._mesh = _mesh_of(layer)
        if self._mesh is not None:
            for tensor in (*layer.parameters(), *layer.buffers()):
                if layout_of(tensor) is None:
                    lay_out(tensor, *everywhere(self._mesh))
        self._optimizer = self._prepared(optimizer)
        self._scaler = self._make_scaler()
        if self._strategy.recompute.enable:
            _recompute_parts(layer)
        self._programs: dict[Any, Any] = {}
        self._merged = 0
        self._mode: str | None = None
        if optimizer is not None and loss is not None:
            self.train()
        elif loss is not None:
            self.eval()
        else:
            self.predict()

    def _prepared(self, optimizer: Optimizer | ShardOptimizer | None) -> Any:
        sharding = self._strategy.sharding
        if optimizer is None or self._mesh is None:
            return optimizer
        if type(optimizer) is not ShardOptimizer:
            stage = None
            if sharding.enable:
                stages = {1: ShardingStage1, 2: ShardingStage2, 3: ShardingStage3}
                if sharding.stage not in stages:
                    raise InvalidArgument(
                        f"[Strategy] sharding.stage is 1, 2 or 3. Received: {sharding.stage}"
                    )
                stage = stages[sharding.stage](self._sharding_dim(sharding.degree), self._mesh)
            optimizer = shard_optimizer(optimizer, stage)
        optimizer._make_ready()
        return optimizer

    def _sharding_dim(self, degree: int) -> str:
        mesh = self._mesh
        assert mesh is not None  # noqa: S101 (asked for only with a mesh)
        names = [n for n in ("sharding", "dp", *mesh.dim_names) if n in mesh.dim_names]
        fitting = [n for n in names if mesh.get_dim_size(n) == degree]
        if not fitting:
            sizes = dict(zip(mesh.dim_names, mesh.shape, strict=True))
            raise InvalidArgument(
                f"[Strategy] no dimension of the mesh has sharding.degree = {degree} devices. It "
                f"has: {sizes}"
            )
        return fitting[0]

    def _make_scaler(self) -> Any:
        amp = self._strategy.amp
        if not amp.enable or amp.dtype != "float16":
            return None
        return GradScaler(
            init_loss_scaling=amp.init_loss_scaling,
            incr_ratio=amp.incr_ratio,
            decr_ratio=amp.decr_ratio,
            incr_every_n_steps=amp.incr_every_n_steps,
            decr_every_n_nan_or_inf=amp.decr_every_n_nan_or_inf,
            use_dynamic_loss_scaling=amp.use_dynamic_loss_scaling,
        )

    def train(self) -> None:
        """From now on a call is a training step."""
        self._need("train", loss=True, optimizer=True)
        self.network.train()

    def eval(self) -> None:
        """From now on a call computes the loss."""
        self._need("eval", loss=True)
        self.network.eval()

    def predict(self) -> None:
        """From now on a call computes the layer's results."""
        self._need("predict")
        self.network.eval()

    def _need(self, mode: str, loss: bool = False, optimizer: bool = False) -> None:
        if loss and self._loss is None:
            raise InvalidArgument(f"[DistModel] {mode}() needs a loss: pass it to to_static")
        if optimizer and self._optimizer is None:
            raise InvalidArgument(f"[DistModel] {mode}() needs an optimizer: pass it to to_static")
        self._mode = mode

    # --- the three programs ---------------------------------------------------------------

    def _forward(self, batch: tuple[Any, ...]) -> tuple[Any, Any]:
        """(loss, results) of a batch whose last entry is the label."""
        if len(batch) < 2:
            raise InvalidArgument(
                f"[DistModel] a batch is inputs and a label. Received: {len(batch)} tensor(s)"
            )
        inputs, labels = _flat(batch[:-1]), _flat(batch[-1:])
        amp = self._strategy.amp
        with auto_cast(
            amp.enable, amp.custom_white_list, amp.custom_black_list, amp.level.upper(), amp.dtype
        ):
            results = self.network(*inputs)
            outs = results if isinstance(results, list | tuple) else [results]
            loss = self._loss(*outs, *labels)  # pyright: ignore[reportOptionalCall]
        return loss, results

    def _backward(self, *batch: Any) -> Any:
        loss, _ = self._forward(batch)
        merge = self._strategy.gradient_merge
        part = loss / merge.k_steps if merge.enable and merge.avg else loss
        (part if self._scaler is None else self._scaler.scale(part)).backward()
        return loss

    def _step(self, *batch: Any) -> Any:
        loss = self._backward(*batch)
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._optimizer.clear_grad()
        return loss

    def _evaluate(self, *batch: Any) -> Any:
        with no_grad():
            return self._forward(batch)

    def _infer(self, *inputs: Any) -> Any:
        with no_grad():
            return self.network(*_flat(inputs))

    def __call__(self, *args: Any) -> Any:
        batch = args
        if len(args) == 1 and isinstance(args[0], list | tuple):
            batch = tuple(args[0])
        if self._mode == "train":
            merge = self._strategy.gradient_merge
            self._merged += 1
            if merge.enable and self._merged % merge.k_steps:
                return self._run(self._backward, batch)
            return self._run(self._step, batch)
        if self._mode == "eval":
            loss, results = self._run(self._evaluate, batch)
            for metric in self._metrics:
                outs = results if isinstance(results, list | tuple) else [results]
                metric.update(*_flat([metric.compute(*outs, *_flat(batch[-1:]))]))
            return loss
        return self._run(self._infer, batch)

    def _run(self, function: Callable[..., Any], batch: tuple[Any, ...]) -> Any:
        """The captured program of a function, for batches of this structure."""
        name = function.__name__
        _, structure = tree.flatten(batch)
        key = (name, structure)
        if key not in self._programs:
            # A plain function, so that the capture sees tensors as arguments and nothing else.
            def program(*given: Any) -> Any:
                return function(*given)

            self._programs[key] = jit.to_static(program, full_graph=True)
        return self._programs[key](*batch)

    # --- state ----------------------------------------------------------------------------

    def state_dict(self, mode: str = "all", split_fusion: bool = True) -> dict[str, Tensor]:
        """The model's tensors ("param"), the optimizer's ("opt"), or both ("all"), in their
        layouts."""
        if mode not in ("all", "param", "opt"):
            raise InvalidArgument(f"[state_dict] mode is all, param or opt. Received: {mode!r}")
        state: dict[str, Tensor] = {}
        if mode != "opt":
            state.update(self.network.state_dict())
        if mode != "param" and self._optimizer is not None:
            found = self._optimizer.state_dict()
            state.update({k: v for k, v in found.items() if isinstance(v, Tensor)})
            state.update(found.get("master_weights", {}))
        return state

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from such a state; layouts stay as they are."""
        own = self.state_dict()
        for name, value in state_dict.items():
            if name not in own:
                raise InvalidArgument(f"[set_state_dict] there is no tensor {name!r}")
            layout = layout_of(own[name])
            own[name].set_value(value)
            if layout is not None:
                lay_out(own[name], *layout)


def _flat(items: Any) -> list[Any]:
    found: list[Any] = []
    for x in items:
        found += _flat(x) if isinstance(x, list | tuple) else [x]
    return found


def _mesh_of(layer: Layer) -> ProcessMesh | None:
    for p in layer.parameters():
        layout = layout_of(p)
        if layout is not None:
            return layout[0]
    return get_mesh()


def _recompute_parts(layer: Layer) -> None:
    from bireme.distributed.fleet.utils import recompute

    for part in layer.children():
        forward = part.forward
        part.forward = lambda *a, forward=forward, **k: recompute(
            forward, *a, use_reentrant=False, **k
        )


def to_static(
    layer: Layer,
    loader: DataLoader | None = None,
    loss: Callable[..., Any] | None = None,
    optimizer: Optimizer | ShardOptimizer | None = None,
    strategy: Strategy | None = None,
    input_spec: Sequence[Any] | None = None,
) -> DistModel:
    """A DistModel: the layer's training step as one program over the mesh of its parameters.

    >>> model = to_static(net, loader, loss, opt)  # doctest: +SKIP
    """
    return DistModel(layer, loader, loss, optimizer, strategy, None, input_spec)
