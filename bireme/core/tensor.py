"""Tensor: a user's handle on a Value, and on its node in the autograd graph.

Operators and most methods are attached from the op modules (`bireme.ops`). This file has the
handle's own part: reading, gradients, naming, conversion.
"""

# pyright: reportArgumentType=false, reportReturnType=false
# Everywhere else Tensor is the class in the stub beside this file, to pyright another class.

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from bireme.core import autograd, place, recorder_hooks, replay, rollback, sharding
from bireme.core import dtype as dt
from bireme.core.aval import aval_of
from bireme.core.dims import is_dim_expression
from bireme.core.dtype import DType, bool_
from bireme.core.errors import (
    AutogradError,
    BiremeError,
    IndexOutOfRange,
    InvalidArgument,
    TypeMismatch,
    cut_internal_frames,
)
from bireme.core.op import TENSOR_TYPES
from bireme.core.trace import Overwritten, Value, materialize, state
from bireme.core.value import overwrite, value_of
from bireme.core.var_type import VarType
from bireme.host import config
from bireme.host.arrays import Array

_names = itertools.count()


class Size(list):
    """A tensor's shape: a list that prints as Paddle's, and equals tuples too.

    A size that is not known yet prints as -1 and equals it, as in Paddle; its entry is a symbol
    that can be computed with.
    """

    def _plain(self) -> list[int]:
        return [-1 if is_dim_expression(d) else d for d in self]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple):
            other = list(other)
        return list.__eq__(self, other) is True or self._plain() == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return f"paddle.Size({self._plain()})"

    __str__ = __repr__

    def __add__(self, other: Any) -> Size:
        return Size([*self, *other])

    def __radd__(self, other: Any) -> Size:
        return Size([*other, *self])

    def __mul__(self, times: Any) -> Size:
        return Size(list(self) * times)

    def numel(self) -> int:
        return int(np.prod(self)) if self else 1


# What a deep copy makes anew or begins without: its history, its gradient, its name.
_NOT_COPIED = frozenset(
    ("_value", "_node", "_view", "_views", "_alias_of", "_name", "_grad", "_grad_is_zero",
     "_retains_grad")
)  # fmt: skip


class NumberOfElements(int):
    """`x.size`: a number, and as in Paddle also `x.size()`, the shape, and `x.size(0)`."""

    shape: tuple[int, ...]

    def __call__(self, dim: int | None = None) -> Any:
        return Size(self.shape) if dim is None else Size(self.shape)[dim]


class Tensor:
    """A multi-dimensional array that records what is done to it.

    Make one with `paddle.to_tensor`, `paddle.zeros` …; the contents are computed when someone
    looks (`numpy()`, `item()`, `print`, `bool`) or at the end of a training step.
    """

    # Class-level defaults keep construction at two assignments.
    _grad: Tensor | None = None
    _grad_is_zero: bool = False  # cleared to zeros that have not been read yet
    _asks_in_vain: bool = False  # bools with stop_gradient=False: no gradient reaches them
    _view: Any = None
    _views: Any = None
    _keeps: Any = None
    _alias_of: Any = None  # see `alias`
    _version: int = 0
    _name: str | None = None
    persistable: bool = False
    is_parameter: bool = False
    _retains_grad: bool = False
    __array_priority__ = 100

    def __init__(
        self,
        value: Any = None,
        node: Any = None,
        persistable: bool = False,
        zero_copy: bool = False,
        name: str | None = None,
        stop_gradient: bool = True,
        place: Any = None,
        dtype: Any = None,
    ):
        if value.__class__ is Value or value.__class__ is Overwritten:
            self._value: Value = value
            self._node: Any = node
            return
        # Paddle's constructor, whose second argument is the place: paddle.Tensor(data, place)
        made = _from_data(value, node if place is None else place, zero_copy, dtype)
        self._value, self._node = made._value, None
        if persistable:
            self.persistable = True
        if name:
            self._name = name
        if not stop_gradient:
            self.stop_gradient = False

    # --- what it is -----------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        return Size(self._value.aval.shape)

    @property
    def dtype(self) -> DType:
        return self._value.aval.dtype

    @property
    def ndim(self) -> int:
        return self._value.aval.ndim

    def dim(self) -> int:
        return self._value.aval.ndim

    ndimension = dim

    @property
    def size(self) -> NumberOfElements:
        """The number of elements; called, the shape."""
        aval = self._value.aval
        if is_dim_expression(aval.size):
            return aval.size
        size = NumberOfElements(aval.size)
        size.shape = aval.shape
        return size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def layout(self) -> str:
        """Dense tensors lie in order of their dimensions, which Paddle calls NCHW."""
        return "NCHW"

    @property
    def type(self) -> VarType | None:
        """What Paddle's programs call a tensor; None for sparse ones, as there."""
        return VarType.DENSE_TENSOR

    @property
    def block(self) -> Any:
        """The block of the static program that this is a variable of; None elsewhere."""
        return recorder_hooks.block(self._value.trace)

    @property
    def desc(self) -> Any:
        """What a static program knows of this variable; other tensors have no description."""
        if (block := self.block) is None:
            raise AttributeError("a tensor that is no variable of a program has no 'desc'")
        return block.describe(self)

    @property
    def offset(self) -> int:
        """Bytes from the start of the memory that a view shares to its first element."""
        from bireme.core import views

        return views.offset(self)

    def is_selected_rows(self) -> bool:
        """Whether this holds some rows of a tensor only; there are no such tensors here."""
        return False

    def element_size(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def place(self) -> place.Place:
        return place.place_of(self._value.buf)

    @property
    def name(self) -> str:
        if self._name is None:
            self.name = f"generated_tensor_{next(_names)}"
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = value
        maker = self._value.trace
        if maker is not None:
            maker.named(self)

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeMismatch("len() of a 0-d tensor; use .item() to read its value")
        size = self._value.aval.shape[0]
        if not isinstance(size, int):
            raise TypeMismatch(
                f"the length of a tensor of shape {self.shape} is not known while a program is "
                "written, so it has no len() and cannot be iterated over; compute with x.shape[0], "
                "or loop with paddle.static.nn.while_loop"
            )
        return size

    def __hash__(self) -> int:
        return id(self)

    # --- reading: these run what was recorded ---------------------------------------------

    def _array(self) -> Any:
        """The buffer behind this tensor, computed if need be; a NumPy or a JAX array."""
        value = self._value
        if value.buf is None:
            try:
                materialize(value)
            except BiremeError as e:
                cut_internal_frames(e)
                raise
        state.trace.read(self)
        return value.buf

    def numpy(self, *args: Any) -> np.ndarray:
        """The contents as a NumPy array of its own: changing it does not change the tensor."""
        return np.array(sharding.whole(self._array()))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def item(self, *index: int) -> Any:
        """The single element as a Python number."""
        if not index and self._has_many():
            raise InvalidArgument(
                f"[item] only a tensor with one element can become a number. Received: shape "
                f"{self.shape}; give the position, as in x.item(0), or use x.tolist()"
            )
        array = np.asarray(sharding.whole(self._array()))
        if index:
            try:
                return array.item(*index)
            except (IndexError, ValueError) as e:
                raise IndexOutOfRange(
                    f"[item] {e}. Received: x.item({', '.join(map(repr, index))}) of a tensor of "
                    f"shape {self.shape}"
                ) from None
        return array.item()

    def _has_many(self) -> bool:
        """Whether this is known not to have one element."""
        t = self._value.aval
        return t.is_static and t.size != 1

    def tolist(self) -> Any:
        return np.asarray(self._array()).tolist()

    def _scalar(self, what: str) -> Any:
        if self._has_many():
            raise InvalidArgument(
                f"only a tensor with one element can become a Python {what}. Received: shape "
                f"{self.shape}; reduce it first, for example with .any(), .all() or .sum()"
            )
        return np.asarray(self._array()).reshape(()).item()

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        value = self._scalar("index")
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeMismatch(
                f"only an integer tensor can be used as an index. Received: dtype {self.dtype.name}"
            )
        return value

    def __format__(self, spec: str) -> str:
        described = recorder_hooks.description(self._value.trace, self)
        if described is None and self.size == 1 and (spec or self.ndim == 0):
            return format(self.item(), spec)
        return format(described or str(self), spec)

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._array().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> Any:
        return self._array().__dlpack_device__()

    def __reduce__(self) -> Any:
        return (_rebuild, (type(self), self.numpy(), self.stop_gradient, self._name))

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self._node is not None and not self.is_leaf:
            raise AutogradError(
                "only leaf tensors can be deep-copied, not results of recorded operations; "
                "use x.detach().clone()"
            )
        import copy

        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(
            {k: copy.deepcopy(v, memo) for k, v in self.__dict__.items() if k not in _NOT_COPIED}
        )
        buf = self._array()
        made._value = value_of(self._value.aval, buf)
        made._node = None
        made.stop_gradient = self.stop_gradient
        return made

    def __repr__(self) -> str:
        from bireme.core.printing import format_tensor

        return recorder_hooks.description(self._value.trace, self) or format_tensor(self)

    __str__ = __repr__

    # --- gradients ------------------------------------------------------------------------

    @property
    def stop_gradient(self) -> bool:
        return self._node is None and not self._asks_in_vain

    @stop_gradient.setter
    def stop_gradient(self, stop: bool) -> None:
        recorder_hooks.stopped(self._value.trace, self, stop)
        if self.dtype is bool_:
            self._asks_in_vain = not stop
        elif stop:
            self._node = None
        elif self._node is None:
            self._node = autograd.LeafNode(self)

    @property
    def requires_grad(self) -> bool:
        return not self.stop_gradient

    @requires_grad.setter
    def requires_grad(self, needed: bool) -> None:
        self.stop_gradient = not needed

    @property
    def is_leaf(self) -> bool:
        return self._node is None or self._node.__class__ is autograd.LeafNode

    @property
    def grad(self) -> Tensor | None:
        if self._grad is None and self._grad_is_zero:
            self._grad = _zeros_like(self)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeMismatch(
                    f"grad must be a Tensor or None. Received: {type(value).__name__}"
                )
            if value._value.aval.shape != self._value.aval.shape:
                raise InvalidArgument(
                    f"grad must have the tensor's shape {self.shape}. Received: {value.shape}"
                )
        self._grad = value
        self._grad_is_zero = False

    def gradient(self) -> np.ndarray | None:
        return None if self.grad is None else self.grad.numpy()

    def backward(self, grad_tensor: Tensor | None = None, retain_graph: bool = False, *,
                 dump_backward_graph_path: str | None = None) -> None:  # fmt: skip
        """Compute the gradient of this tensor by every leaf that it depends on.

        `dump_backward_graph_path` is a folder for a drawing of the graph that is walked.
        """
        if dump_backward_graph_path is not None:
            from bireme.core.drawing import write_graph

            write_graph([self], dump_backward_graph_path)
        trace = state.trace
        try:
            if grad_tensor is None and not retain_graph:
                replay.backward(self)
            else:
                autograd.run_backward([self], [grad_tensor], retain_graph, False)
        except BaseException as e:
            if state.trace is trace:  # otherwise something was read, and what came before stands
                rollback.abandon_step(trace)
            if isinstance(e, BiremeError):
                cut_internal_frames(e)
            raise

    def clear_gradient(self, set_to_zero: bool = True) -> None:
        # Zeros are made when someone reads them; a training step never does.
        self._grad_is_zero = set_to_zero and (self._grad is not None or self._grad_is_zero)
        self._grad = None

    clear_grad = clear_gradient

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
        """Call `hook(grad)` when this tensor's gradient is ready; it may return another one."""
        if self._node is None:
            raise AutogradError(
                "cannot register a hook on a tensor that needs no gradient (stop_gradient=True)"
            )
        node, index = autograd._locate(self._node)
        state.trace.own_rule("a gradient hook")
        if node.hooks is None:
            node.hooks = {}
        hooks = node.hooks.setdefault(index, [])
        hooks.append(hook)
        return HookHandle(hooks, hook)

    def retain_grads(self) -> None:
        """Keep the gradient of this non-leaf tensor in `.grad` after backward."""
        if self.is_leaf or self._retains_grad:
            return
        self._retains_grad = True
        me = weakref.ref(self)

        def keep(grad: Tensor) -> None:
            tensor = me()
            if tensor is not None:
                have = tensor._grad
                tensor._grad = grad if have is None else autograd._sum(have, grad)

        self.register_hook(keep)

    def detach(self) -> Tensor:
        """The same contents, without history. Shares memory with this tensor."""
        from bireme.core import trace
        from bireme.core.views import as_view

        value = trace.state.trace.detached(self)
        return as_view(Tensor(value, None), self, _DETACH)

    def detach_(self) -> Tensor:
        self._node = None
        return self

    # --- contents -------------------------------------------------------------------------

    def set_value(self, value: object) -> None:
        """Replace the contents, keeping shape, dtype and place in the graph."""
        array = value._array() if isinstance(value, Tensor) else np.asarray(value)
        if tuple(array.shape) != self._value.aval.shape:
            raise InvalidArgument(
                f"[set_value] shapes must be equal. Received: a value of shape "
                f"{list(array.shape)} for a tensor of shape {self.shape}"
            )
        if dt.as_dtype(array.dtype) is not self.dtype:
            array = np.asarray(array).astype(self.dtype.numpy)
        elif not isinstance(value, Tensor):
            array = np.array(array)
        if recorder_hooks.set_contents(self._value.trace, self, array):
            return
        if config.sharded:  # what lies on several devices stays so
            array = sharding.like(self, array)
        made = value_of(self._value.aval, array)
        state.trace.made(made)
        self._put(made)

    def _put(self, value: Value) -> None:
        """Replace the contents outside autograd (optimizers, loading); views follow."""
        if self._view is None and not self._views:
            state.trace.wrote(self)
            old = self._value
            self._value = value
            overwrite(old)
            if value.trace is None:
                state.trace.assigned(self)
            return
        from bireme.core import views

        tape = state.trace.tape
        try:
            state.trace.tape = False
            views.assign(self, Tensor(value, None), "set_value")
        finally:
            state.trace.tape = tape

    def _former(self, trace: Any) -> Callable[[Any], Tensor]:
        """What makes this gradient again if the run of `trace` fails (rollback.py)."""
        kind = type(self)
        slot = trace.known_slot(self._value)
        former = self._value if slot is None else slot
        return lambda failure: kind(failure.value(former), None)

    def get_tensor(self) -> Tensor:
        return self

    def value(self) -> Tensor:
        return self

    def is_dense(self) -> bool:
        return True

    def is_sparse(self) -> bool:
        return False

    def is_dist(self) -> bool:
        return sharding.is_spread(self._value.buf) or self._layout_over_devices() is not None

    @property
    def process_mesh(self) -> Any:
        """The mesh that this tensor is laid out over, or None."""
        layout = self._layout_over_devices()
        return None if layout is None else layout[0]

    @property
    def placements(self) -> Any:
        """One placement per dimension of `process_mesh`, or None."""
        layout = self._layout_over_devices()
        return None if layout is None else layout[1]

    def dist_attr(self) -> Any:
        """The same layout by the names of the mesh's dimensions, or None."""
        return None if sharding.attribute_of is None else sharding.attribute_of(self)

    def _layout_over_devices(self) -> Any:
        return None if sharding.layout_of is None else sharding.layout_of(self)

    def _is_initialized(self) -> bool:
        return True


class Parameter(Tensor):
    """A tensor that a Layer owns and an optimizer updates."""

    persistable = True
    is_parameter = True
    optimize_attr: dict[str, float]
    regularizer: Any = None
    need_clip: bool = True
    is_distributed: bool = False

    def __init__(self, value: object, trainable: bool = True, name: str | None = None):
        super().__init__(value, None)
        self.optimize_attr = {"learning_rate": 1.0}
        self._name = name
        if trainable:
            self.stop_gradient = False

    @property
    def trainable(self) -> bool:
        return not self.stop_gradient

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        self.stop_gradient = not trainable

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()

    __str__ = __repr__


class HookHandle:
    """Returned by `register_hook`; `remove()` takes the hook off."""

    def __init__(self, hooks: list[Any], hook: Callable[..., Any]):
        self._hooks, self._hook = hooks, hook

    def remove(self) -> bool:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)
            return True
        return False


TENSOR_TYPES.update((Tensor, Parameter))
autograd.bind(Tensor, TENSOR_TYPES)


def alias(tensor: Tensor) -> Tensor:
    """Another handle on the same contents, without history. A capture that meets it takes it for
    `tensor`, which is there in later calls, too."""
    made = Tensor(tensor._value, None)
    made._alias_of = tensor._alias_of or weakref.ref(tensor)
    return made


def constant(array: Array) -> Tensor:
    """A tensor around a buffer that no other code will change."""
    value = value_of(aval_of(array), array)
    state.trace.made(value)
    return Tensor(value, None)


def on_device(array: np.ndarray, place: place.Place) -> Tensor:
    """A tensor on a device with the contents of a host array that nobody else will change."""
    value = value_of(aval_of(array), place.put(array))
    if array.dtype.kind in "iu":
        value.host = array
    state.trace.made(value)
    return Tensor(value, None)


def _from_data(data: Any, place: Any, zero_copy: bool, dtype: Any) -> Tensor:
    from bireme.ops.creation import to_tensor

    if zero_copy and isinstance(data, np.ndarray) and place is None and dtype is None:
        return constant(data)  # the array's own memory, which must not be changed any more
    return to_tensor([] if data is None else data, dtype=dtype, place=place)


def _zeros_like(x: Tensor) -> Tensor:
    from bireme.ops.creation import zeros_like

    return zeros_like(x)


def _rebuild(kind: type, array: np.ndarray, stop_gradient: bool, name: str | None) -> Tensor:
    made = constant(array)
    if issubclass(kind, Parameter):
        made = kind(made._value, not stop_gradient, name)
    elif not stop_gradient:
        made.stop_gradient = False
    return made


def _detach_write(base: Tensor, view: Tensor) -> Tensor:
    return Tensor(view._value, base._node)


def _detach_make(base: Tensor) -> Tensor:
    return Tensor(base._value, None)


from bireme.core.views import Step  # noqa: E402 (views needs Tensor's module for types only)

_DETACH = Step(_detach_make, _detach_write)

__all__ = ["HookHandle", "Parameter", "Size", "Tensor", "alias", "constant"]
