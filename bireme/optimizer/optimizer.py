"""Optimizer: what all optimizers share.

A step records one op for all parameters of a group (see `update.py`), puts the results back into
the parameters, and marks the step's end. Nothing is read back, so the device is never waited for.
"""

from __future__ import annotations

import operator
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

from bireme.autograd.modes import no_grad
from bireme.core import recorder_hooks, rollback, trace
from bireme.core.dtype import DType
from bireme.core.errors import InvalidArgument, NotATensor, TypeMismatch
from bireme.core.op import Op
from bireme.core.tensor import Tensor
from bireme.core.trace import Value
from bireme.nn import naming
from bireme.nn.clip import ClipGradBase
from bireme.nn.grouped import Repeated, put_all
from bireme.optimizer.fused_states import FusedStates
from bireme.optimizer.lazy_rows import ask_for_marks, forget_marks, with_rows
from bireme.optimizer.lr import LambdaDecay
from bireme.optimizer.matching import StateOfAnother, match
from bireme.optimizer.schedule import LRScheduler
from bireme.optimizer.slots import Clocks, Slot, Slots
from bireme.optimizer.update import Settings
from bireme.regularizer import L2Decay, WeightDecayRegularizer

# Parameters, or groups of them with settings of their own.
ParametersLike = Iterable[Tensor] | Iterable[dict[str, Any]]


class Optimizer(FusedStates):
    """Base of all optimizers.

    A subclass names its accumulators (`_slots`), the values that all parameters share
    (`_clock`), and the op that updates the parameters (`_op`).
    """

    _slots: ClassVar[tuple[Slot, ...]] = ()
    _clock: ClassVar[tuple[Slot, ...]] = ()
    _op: ClassVar[Op]
    # Accumulators of half-precision parameters: in float32, or in the parameter's own dtype.
    _wide_slots: ClassVar[bool] = False
    # Whether weight decay is the rule's own affair rather than a term of the gradient.
    _decoupled_decay: ClassVar[bool] = False
    # The order of the state dict's entries.
    _clock_first: ClassVar[bool] = False
    # Whether rows of a table that no gradient reached stay as they are: by the user's wish, and
    # because the rule changes nothing where the gradient is zero.
    _lazy_mode: bool = False
    _by_rows: ClassVar[bool] = False

    def __init__(
        self,
        learning_rate: float | Tensor | LRScheduler,
        parameters: ParametersLike | None = None,
        weight_decay: float | WeightDecayRegularizer | None = None,
        grad_clip: ClipGradBase | None = None,
        name: str | None = None,
        *,
        multi_precision: bool = False,
        defaults: dict[str, Any] | None = None,
    ) -> None:
        self._learning_rate = _checked_rate(learning_rate)
        self._name = name
        self._grad_clip = _checked_clip(grad_clip)
        self.regularization = _as_regularizer(weight_decay, type(self).__name__)
        self._defaults = {**(defaults or {}), "grad_clip": grad_clip, "weight_decay": weight_decay}
        self._parameter_list = _checked_parameters(parameters)
        self._takes_all = parameters is None  # of the program that is being written
        self._groups = self._make_groups()
        self._state = Slots(self._slots, self._wide_slots, bool(multi_precision))
        self._clocks = Clocks(self._clock, self._state)
        self._skip: Tensor | None = None
        self._rate_var: str | None = None

    @property
    def _multi_precision(self) -> bool:
        return self._state.multi_precision

    @_multi_precision.setter
    def _multi_precision(self, wanted: bool) -> None:
        self._state.multi_precision = bool(wanted)

    # --- parameters and groups ------------------------------------------------------------

    @property
    def _param_groups(self) -> list[Any]:
        if self._has_groups():
            return [group.options for group in self._groups]
        return self._parameter_list

    def _has_groups(self) -> bool:
        return bool(self._parameter_list) and isinstance(self._parameter_list[0], dict)

    def _make_groups(self) -> list[Group]:
        if not self._has_groups():
            return [Group(self, {"params": self._parameter_list, **self._defaults})]
        groups: list[Group] = []
        for given in self._parameter_list:
            groups.append(self._new_group(given, groups))
        return groups

    def _new_group(self, given: dict[str, Any], others: list[Group]) -> Group:
        if not isinstance(given, dict) or "params" not in given:
            raise InvalidArgument(
                "a parameter group is a dict with the key 'params'. Received: "
                f"{sorted(given) if isinstance(given, dict) else type(given).__name__}"
            )
        if isinstance(given["params"], set):
            raise TypeMismatch("parameters need an order: pass a list, not a set")
        params = [given["params"]] if isinstance(given["params"], Tensor) else given["params"]
        options = {**self._defaults, **given, "params": list(params)}
        known = {id(p) for group in others for p in group.params}
        if any(id(p) in known for p in options["params"]):
            raise InvalidArgument("a parameter appears in more than one parameter group")
        for p in options["params"]:
            p.optimize_attr["learning_rate"] = options.get("learning_rate", 1.0)
        if not self._decoupled_decay:
            for p in options["params"]:
                p.regularizer = _as_regularizer(options["weight_decay"], type(self).__name__)
        return Group(self, options)

    def _add_param_group(self, param_group: dict[str, Any]) -> None:
        """Train more parameters from now on."""
        self._groups.append(self._new_group(param_group, self._groups))

    def _all_parameters(self) -> list[Any]:
        return [p for group in self._groups for p in group.params]

    # --- learning rate --------------------------------------------------------------------

    def get_lr(self) -> float:
        """The learning rate of the next step."""
        rate = self._learning_rate
        if isinstance(rate, LRScheduler):
            return float(rate())
        return float(rate)

    def _rate(self) -> Any:
        """The learning rate as an update takes it: a number, or what a program reads per run."""
        return recorder_hooks.each_run(trace.state.trace, self._rate_name(), self.get_lr)

    def _rate_name(self) -> str:
        if self._rate_var is None:
            self._rate_var = naming.generate("learning_rate")
        return self._rate_var

    def _global_learning_rate(self, program: Any = None) -> Tensor:
        """The learning rate as a tensor; in a program, the variable that each run reads it into."""
        from bireme.ops.creation import to_tensor

        rate = self._rate()
        return rate if isinstance(rate, Tensor) else to_tensor(rate, "float32")

    @property
    def _dtype(self) -> DType | None:
        """The dtype of the parameters."""
        return next((p.dtype for p in self._all_parameters()), None)

    def set_lr(self, value: float) -> None:
        """Use another constant learning rate from now on."""
        if not isinstance(value, int | float):
            raise TypeMismatch(f"[set_lr] takes a number. Received: {type(value).__name__}")
        if isinstance(self._learning_rate, LRScheduler):
            raise SchedulerInCharge(
                "[set_lr] this optimizer's learning rate comes from a scheduler; change the "
                "scheduler, or use set_lr_scheduler() to give it another one"
            )
        self._learning_rate = float(value)

    def set_lr_scheduler(self, scheduler: LRScheduler) -> None:
        """Take the learning rate from `scheduler` from now on."""
        if not isinstance(scheduler, LRScheduler):
            raise TypeMismatch(
                f"[set_lr_scheduler] takes an LRScheduler. Received: {type(scheduler).__name__}"
            )
        self._learning_rate = scheduler

    # --- the step -------------------------------------------------------------------------

    def step(self) -> None:
        """Update every parameter that has a gradient."""
        recording = trace.state.trace
        try:
            rate = self._rate()
            update = Update()
            for group in self._groups:
                params, grads = group.with_gradients()
                if params:
                    self._update_group(group, params, grads, rate, update)
            update.put()
        except Exception:
            if trace.state.trace is recording:
                rollback.abandon_step(recording)
            raise
        trace.seal()

    def _update_group(
        self, group: Group, params: list[Any], grads: list[Any], rate: Any, update: Update
    ) -> None:
        clip = group.options.get("grad_clip")
        if clip is not None:
            clipped = clip(list(zip(params, grads, strict=True)))
            params, grads = [p for p, _ in clipped], [g for _, g in clipped]
        hyper = self._hyper(group.options)
        for part in group.parts(params):
            own = grads if part.at is None else [grads[i] for i in part.at]
            each = part.each
            if self._lazy_mode or self._by_rows:
                members = params if part.at is None else [params[i] for i in part.at]
                own, each = with_rows(own, each, members, type(self).__name__, self._lazy_mode)
            inputs = (part.targets, own, part.states, part.shared, rate, self._skip)
            update.add(part.written, part.recorder(inputs, (each, hyper)))

    def _overflow_anywhere(self, found: Tensor) -> Tensor:
        """Whether a step is skipped: `found` says that gradients overflowed here. Of a model on
        several processes all answer the same."""
        return found

    def _hyper(self, options: dict[str, Any]) -> tuple[Any, ...]:
        """The rule's constants, from the group's options."""
        return ()

    def _initial(self, options: dict[str, Any]) -> dict[str, float]:
        """What accumulators and clocks start with, where it depends on the options."""
        return {}

    def _setting(self, param: Tensor, options: dict[str, Any]) -> Settings:
        """What is fixed for one parameter."""
        penalty = getattr(param, "regularizer", None)
        if penalty is None and not self._decoupled_decay:
            penalty = self.regularization
        low = param.dtype.name if self._state.has_master(param) else None
        scale = float(getattr(param, "optimize_attr", _NO_SCALE).get("learning_rate", 1.0))
        if penalty is None:
            return Settings(scale, low=low, extra=self._extra(param, options))
        return Settings(
            scale,
            decay=penalty.kind,
            coeff=penalty.coeff,
            low=low,
            extra=self._extra(param, options),
        )

    def _extra(self, param: Tensor, options: dict[str, Any]) -> Any:
        """Further inputs of the rule that belong to one parameter."""
        return None

    def clear_grad(self, set_to_zero: bool = True) -> None:
        """Clear all gradients and start the step that was recorded."""
        for group in self._groups:
            for p in group.params:
                if p._node is not None:  # p.clear_gradient(), of hundreds of parameters
                    p._grad_is_zero = set_to_zero and (p._grad is not None or p._grad_is_zero)
                    p._grad = None
        if self._lazy_mode:
            for group in self._groups:
                for p in group.params:
                    forget_marks(p)
        trace.flush_sealed()

    clear_gradients = clear_grad

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.clear_grad(set_to_zero=not set_to_none)

    def backward(
        self,
        loss: Tensor,
        startup_program: object = None,
        parameters: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
        callbacks: object = None,
    ) -> list[tuple[Any, Tensor]]:
        """The (parameter, gradient) pairs that `loss.backward()` has left.

        State of a program starts with the startup program of `program_guard`, whatever
        `startup_program` says. `callbacks`, called for each op of a backward pass, are refused.
        """
        if callbacks:
            raise InvalidArgument("[backward] a backward pass is not built op by op: no callbacks")
        chosen = self._chosen(parameters)
        excluded = {p if isinstance(p, str) else p.name for p in no_grad_set or ()}
        recorder_hooks.differentiate(trace.state.trace, loss, chosen, no_grad_set or ())
        return [
            (p, p.grad)
            for p in chosen
            if p._node is not None and p.grad is not None and p.name not in excluded
        ]

    def _chosen(self, parameters: Iterable[Tensor | str] | None) -> list[Any]:
        """The parameters to update; without any of its own, those of the program."""
        if self._takes_all:
            first = self._groups[0].params
            have = {id(p) for p in first}
            recorded = recorder_hooks.parameters(trace.state.trace) or ()
            first += [p for p in recorded if id(p) not in have]
        known = self._all_parameters()
        if parameters is None:
            return known
        by_name = {p.name: p for p in known}
        missing = [p for p in parameters if isinstance(p, str) and p not in by_name]
        if missing:
            raise InvalidArgument(
                f"[{type(self).__name__}] there is no parameter {missing[0]!r}; this optimizer "
                f"has {sorted(by_name)[:10]}"
            )
        return [by_name[p] if isinstance(p, str) else p for p in parameters]

    def apply_gradients(self, params_grads: list[tuple[Any, Tensor]]) -> list[Any]:
        """Update with the given gradients."""
        self._chosen(None)
        rate = self._rate()
        given = {id(p): g for p, g in params_grads}
        update = Update()
        for group in self._groups:
            params = [p for p in group.params if given.get(id(p)) is not None]
            if params:
                grads = [given[id(p)] for p in params]
                self._update_group(group, params, grads, rate, update)
        update.put()
        trace.seal()
        return []

    def append_regularization_ops(
        self,
        parameters_and_grads: list[tuple[Any, Any]],
        regularization: WeightDecayRegularizer | None = None,
    ) -> list[tuple[Any, Any]]:
        """Gradients with the penalties added: each parameter's own, else `regularization`."""
        result = []
        with no_grad():
            for p, g in parameters_and_grads:
                penalty = getattr(p, "regularizer", None) or regularization
                if g is not None and penalty is not None:
                    slope = p if penalty.kind == "l2" else p.sign()
                    g = g + slope * penalty.coeff
                result.append((p, g))
        return result

    def minimize(
        self,
        loss: Tensor,
        startup_program: object = None,
        parameters: Iterable[Tensor | str] | None = None,
        no_grad_set: Iterable[Tensor | str] | None = None,
    ) -> tuple[list[Any], list[tuple[Any, Tensor]]]:
        """Update from gradients that `loss.backward()` has computed before."""
        pairs = self.backward(loss, startup_program, parameters, no_grad_set)
        return self.apply_gradients(pairs), pairs

    # --- state ----------------------------------------------------------------------------

    def create_state(self) -> None:
        """Make the accumulators of all trained parameters now, before a first step, as a
        checkpoint fills tensors that exist."""
        for group in self._groups:
            params = [p for p in group.params if p._node is not None and self._keeps_state_of(p)]
            if params:
                group.parts(params)

    def _keeps_state_of(self, param: Tensor) -> bool:
        """Whether this process updates the parameter."""
        return True

    def state_dict(self) -> dict[str, Any]:
        """Accumulators by name, the master weights and the scheduler's state."""
        state: dict[str, Any] = OrderedDict(self._state.state_dict())
        state.update(self._clocks.state_dict())
        kinds = (*self._slots, *self._clock)
        if self._clock_first:
            kinds = (*self._clock, *self._slots)
        state = self._state.ordered(state, kinds)
        if self._state.masters:
            state["master_weights"] = dict(self._state.masters)
        if isinstance(self._learning_rate, LRScheduler):
            state["LR_Scheduler"] = self._learning_rate.state_dict()
        return _owned(state, self)

    def set_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned, here or in Paddle.

        Entries belong to the parameters of their names; where not all names are known, to the
        parameters in order, if number, shapes and types agree. What does not fit raises, and then
        nothing has changed.
        """
        where = f"{type(self).__name__}.set_state_dict"
        state = dict(state_dict)
        schedule = state.pop("LR_Scheduler", None)
        masters = state.pop("master_weights", None) or {}
        slots, params = self._state, self._all_parameters()
        matched = match(where, state, masters, params, slots, self._clock)
        scheduler = self._learning_rate
        if isinstance(scheduler, LRScheduler):
            if schedule:
                scheduler.set_state_dict(schedule)
            elif not isinstance(scheduler, LambdaDecay):
                raise StateOfAnother(
                    f"[{where}] the state has no 'LR_Scheduler', and this optimizer's learning "
                    "rate is scheduled: save the state of an optimizer with the scheduler, or set "
                    "state['LR_Scheduler'] = scheduler.state_dict()"
                )
        slots.load(*matched)
        self._clocks.forget()
        # Made now: `state_dict` would be empty until the first step, and what was given may change.
        if params and recorder_hooks.parameters(trace.state.trace) is None:
            kept = {name for name, _ in matched.entries}
            for group in self._groups:
                members = [p for p in group.params if p.name in kept]
                if members:
                    group.parts(members)
            slots.forget_loaded()

    set_dict = set_state_dict
    load_state_dict = set_state_dict

    def get_opti_var_name_list(self) -> list[str]:
        """The names of all accumulators."""
        return [k for k in self.state_dict() if k not in ("master_weights", "LR_Scheduler")]


_NO_SCALE: dict[str, float] = {}


# Whose state a dict is, by the dict's id. Not in the dict itself, which is pickled and copied.
_owners: dict[int, tuple[weakref.ref[dict[str, Any]], weakref.ref[Optimizer]]] = {}


def _owned(state: dict[str, Any], owner: Optimizer) -> dict[str, Any]:
    key = id(state)
    gone = weakref.ref(state, lambda _: _owners.pop(key, None))
    _owners[key] = gone, weakref.ref(owner)
    return state


def owner_of(state: dict[str, Any]) -> Optimizer | None:
    """The optimizer whose `state_dict()` returned this very dict."""
    dict_ref, owner_ref = _owners.get(id(state), (None, None))
    if dict_ref is None or owner_ref is None or dict_ref() is not state:
        return None
    return owner_ref()


class Update:
    """The results of one step, which all tensors get at once: a step that is interrupted, or
    raises on its way, has changed none."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.values: list[Value] = []

    def add(self, tensors: list[Tensor], values: list[Value]) -> None:
        if self.tensors:
            self.tensors = self.tensors + tensors
            self.values = self.values + values
        else:
            self.tensors, self.values = tensors, values

    def put(self) -> None:
        if self.tensors:
            put_all(self.tensors, self.values)
            self.tensors, self.values = [], []


class NewState:
    """Accumulators and clocks that a step makes for parameters without any. If it fails, they are
    made again by the next one (core/rollback.py)."""

    def __init__(self, optimizer: Optimizer, params: list[Any]):
        self.optimizer = optimizer
        self.fresh = [id(p) for p in params if id(p) not in optimizer._state._of]

    def take_back(self, failure: object) -> None:
        state, clocks = self.optimizer._state, self.optimizer._clocks
        for key in self.fresh:
            param = state.params.pop(key, None)
            state._of.pop(key, None)
            clocks._of.pop(key, None)
            if param is not None:
                state.masters.pop(param.name, None)
        clocks.version += 1


class Part(NamedTuple):
    """Parameters of a group that go by one clock, with all that one update of them touches."""

    recorder: Repeated
    each: tuple[Settings, ...]
    at: list[int] | None  # their places in the group; None: they are the whole group
    targets: list[Tensor]
    states: list[Tensor]
    shared: list[Tensor]
    written: list[Tensor]  # what gets the update's results, in order


class Group:
    """Parameters that are updated with the same options."""

    def __init__(self, optimizer: Optimizer, options: dict[str, Any]):
        self._optimizer = optimizer
        self.options = options
        self.params: list[Any] = options["params"]
        if optimizer._lazy_mode:
            ask_for_marks(self.params)
        self._seen: list[Any] = []
        self._parts: list[Part] = []

    def with_gradients(self) -> tuple[list[Any], list[Tensor]]:
        """The parameters that have a gradient, and the gradients."""
        params = [p for p in self.params if p._node is not None]
        grads: list[Any] = [
            p.grad if p._grad is None and p._grad_is_zero else p._grad for p in params
        ]
        if any([g is None for g in grads]):  # noqa: C419 (twice as fast as a generator)
            params = [p for p, g in zip(params, grads, strict=True) if g is not None]
            grads = [g for g in grads if g is not None]
        return params, grads

    def parts(self, params: list[Any]) -> list[Part]:
        """`params` by clock; worked out anew only when something that it rests on changed."""
        optimizer = self._optimizer
        seen = [optimizer._multi_precision, optimizer._clocks.version, *params]
        seen += [p._value.aval for p in params]
        seen += [p.__dict__.get("regularizer") for p in params]
        seen += [p.__dict__.get("optimize_attr", _NO_SCALE).get("learning_rate") for p in params]
        # Compared by identity: `==` between tensors would record an op.
        if len(seen) != len(self._seen) or any(map(operator.is_not, seen, self._seen)):
            self._parts = self._make_parts(params)
            self._seen = seen
            self._seen[1] = optimizer._clocks.version
        return self._parts

    def _make_parts(self, params: list[Any]) -> list[Part]:
        optimizer, state = self._optimizer, self._optimizer._state
        initial = optimizer._initial(self.options)
        place = {id(p): i for i, p in enumerate(params)}
        trace.state.trace.undo.append(NewState(optimizer, params))
        parts = []
        for clock, members in optimizer._clocks.partition(params, initial):
            targets = [state.target(p) for p in members]
            states = state.tensors(members, targets, initial)
            masters = [p for p, t in zip(members, targets, strict=True) if p is not t]
            parts.append(
                Part(
                    Repeated(optimizer._op),
                    tuple([optimizer._setting(p, self.options) for p in members]),
                    None if len(members) == len(params) else [place[id(p)] for p in members],
                    targets,
                    states,
                    clock.tensors,
                    [*targets, *states, *clock.tensors, *masters],
                )
            )
        return parts


class SchedulerInCharge(TypeMismatch):
    """A constant learning rate was set although a scheduler decides it."""


def _checked_rate(rate: Any) -> Any:
    in_program = recorder_hooks.parameters(trace.state.trace) is not None
    if isinstance(rate, LRScheduler) or (isinstance(rate, Tensor) and in_program):
        return rate
    if not isinstance(rate, float):  # Paddle refuses integers and tensors, too
        raise TypeMismatch(
            "learning_rate must be a float or an LRScheduler; write 1.0 for 1, and "
            f"float(tensor) for a tensor. Received: {type(rate).__name__} {rate!r}"
        )
    return float(rate)


def _checked_clip(clip: Any) -> Any:
    if clip is not None and not isinstance(clip, ClipGradBase):
        raise TypeMismatch(
            "grad_clip must be ClipGradByValue, ClipGradByNorm or ClipGradByGlobalNorm. "
            f"Received: {type(clip).__name__}"
        )
    return clip


def _checked_parameters(parameters: ParametersLike | None) -> list[Any]:
    if parameters is None:
        if recorder_hooks.parameters(trace.state.trace) is not None:
            return []
        raise MissingParameters("an optimizer needs parameters: pass parameters=model.parameters()")
    if isinstance(parameters, Tensor):
        raise TypeMismatch("parameters must be a list of tensors. Received: a single Tensor")
    if isinstance(parameters, dict):
        raise TypeMismatch("parameters must be a list; for parameter groups, a list of dicts")
    if not isinstance(parameters, Iterable):
        raise TypeMismatch(
            f"parameters must be a list of tensors. Received: {type(parameters).__name__}"
        )
    given = list(parameters)
    for p in given:
        if not isinstance(p, Tensor | dict):
            raise NotATensor(
                "parameters must be tensors, or dicts for groups of them. Received: "
                f"{type(p).__name__} {p!r}"
            )
    return given


class MissingParameters(TypeMismatch, AttributeError):
    """An optimizer that was given nothing to update."""


def _as_regularizer(decay: Any, where: str) -> WeightDecayRegularizer | None:
    if decay is None or isinstance(decay, WeightDecayRegularizer):
        return decay
    if isinstance(decay, int | float):
        return L2Decay(float(decay))
    raise TypeMismatch(
        f"[{where}] weight_decay must be a number, L1Decay or L2Decay. Received: "
        f"{type(decay).__name__}"
    )
