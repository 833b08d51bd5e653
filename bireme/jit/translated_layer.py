"""A model loaded from its saved graph, without the code that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bireme.capture import tree
from bireme.capture.capture import capture
from bireme.capture.graph_io import GraphFileError
from bireme.capture.recorder import is_capturing
from bireme.core.aval import Aval
from bireme.core.errors import InvalidArgument
from bireme.core.tensor import Parameter, Size, Tensor, constant
from bireme.core.trace import state
from bireme.jit.artifact import Artifact, SavedProgram
from bireme.jit.interpret import run_graph
from bireme.jit.static_function import CapturedCall
from bireme.nn.layer.layer import Layer
from bireme.static.input_spec import InputSpec

if TYPE_CHECKING:
    from bireme.static.program import Program


class _Part(Layer):
    """Holds the state of what was a sublayer, so that names stay what they were."""


def place(layer: Layer, name: str, tensor: Tensor) -> None:
    """Give `layer` a parameter or buffer that its state dict calls `name`."""
    *path, last = name.split(".")
    for part in path:
        inner = layer._sub_layers.get(part)
        if inner is None:
            inner = _Part()
            layer.add_sublayer(part, inner)
        layer = inner
    if isinstance(tensor, Parameter):
        layer.add_parameter(last, tensor)
    else:
        layer.register_buffer(last, tensor)


def from_artifact(artifact: Artifact) -> TranslatedLayer:
    """The layer that a saved model holds."""
    state: dict[str, Tensor] = {}
    for name, array in artifact.state.items():
        made: Tensor = constant(array)
        if name in artifact.trainable:
            made = Parameter(made._value, artifact.trainable[name], name)
        state[name] = made
    return TranslatedLayer(artifact.programs, state)


def _specs(names: list[str], types: list[Aval]) -> list[InputSpec]:
    pairs = zip(names, types, strict=False)
    return [InputSpec(Size(t.shape)._plain(), t.dtype, name) for name, t in pairs]


class TranslatedLayer(Layer):
    """A saved model. It infers, and where its training graph was saved, trains further."""

    def __init__(self, programs: dict[str, SavedProgram], persistable_vars: dict[str, Tensor]):
        """From the graphs by mode ("eval", "train") and the state by name; see `jit.load`."""
        super().__init__()
        self._programs = programs
        self._calls: dict[Any, CapturedCall] = {}
        self._state = persistable_vars
        for name, tensor in persistable_vars.items():
            place(self, name, tensor)
        for mode in programs:
            _, colon, method = mode.partition(":")
            if colon:
                self._add_method(method)
        self.eval()

    def _add_method(self, name: str) -> None:
        if not name.isidentifier() or hasattr(TranslatedLayer, name) or name in self._state:
            raise GraphFileError(f"{name!r:.60} cannot be the name of a saved method")
        self.__dict__[name] = lambda *inputs, **named: self._call(name, inputs, named)

    @property
    def input_names(self) -> list[str]:
        return self._programs["eval"].arguments

    def _input_spec(self, method_name: str = "forward") -> list[InputSpec]:
        """The types of the inputs."""
        program = self.saved_program(method_name)
        return _specs(program.arguments, program.types)

    def _output_spec(self, method_name: str = "forward") -> list[InputSpec]:
        """The types of the results."""
        program = self.saved_program(method_name)
        types, graph = program.graph.value_types(), program.graph
        found = [types[o] if o >= 0 else graph.inputs[-1 - o] for o in graph.outputs]
        return _specs([f"output_{i}" for i in range(program.n_results)], found)

    def train(self, mode: bool = True) -> Layer:
        if mode and "train" not in self._programs:
            raise InvalidArgument(
                "this model was saved without a training graph, because its training mode could "
                "not be captured; it can only be used in eval mode"
            )
        return super().train(mode)

    def program(self, method_name: str = "forward") -> Program:
        """A method, in the current mode, as a static program; print(program) shows it."""
        from bireme.static.model_files import program_of_layer

        saved = self.saved_program(method_name)
        specs = [
            InputSpec([d if type(d) is int else str(d) for d in t.shape], t.dtype, name)
            for name, t in zip(saved.arguments, saved.types, strict=True)
        ]
        return program_of_layer(self, specs, None, method_name)

    def saved_program(self, method_name: str = "forward") -> SavedProgram:
        """The graph of a method in the current mode, with its inputs."""
        mode = "train" if self.training else "eval"
        name = mode if method_name == "forward" else f"{mode}:{method_name}"
        if name not in self._programs:
            raise InvalidArgument(
                f"this model was saved without {method_name}() in {mode} mode. It has: "
                f"{', '.join(self._programs)}"
            )
        return self._programs[name]

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self._call("forward", inputs, named)

    def _call(self, method: str, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
        program = self.saved_program(method)
        tensors = self._arguments(program, inputs, named)
        if is_capturing():
            return self._run(program, tensors)
        tape = state.trace.tape
        needs = tuple([t._node is not None for t in tensors]) if tape else ()
        key = (method, self.training, tape, needs)
        call = self._calls.get(key)
        if call is None or not call.is_current():
            captured = capture(
                lambda arguments: self._run(program, arguments),
                program.types,
                label="a loaded model",
                needs=needs,
                names=program.arguments,
                known=self._state,
                tape=tape,
            )
            call = self._calls[key] = CapturedCall(captured)
        return call(tensors)

    def _run(self, program: SavedProgram, arguments: list[Tensor]) -> Any:
        outs = run_graph(program.graph, [*arguments, *[self._state[n] for n in program.state]])
        for name, output in program.writes:
            self._state[name]._put(outs[output]._value)
        return tree.unflatten(program.structure, outs[: program.n_results])

    def _arguments(
        self, program: SavedProgram, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> list[Tensor]:
        tensors, _ = tree.flatten(inputs)
        for name in program.arguments[len(tensors) :]:
            if name in named:
                tensors += tree.flatten(named.pop(name))[0]
        if len(tensors) != len(program.arguments) or named:
            raise InvalidArgument(
                f"this model takes {len(program.arguments)} tensors: "
                f"{', '.join(program.arguments)}. Received: {len(tensors)} tensors"
                + (f" and unknown names {sorted(named)}" if named else "")
            )
        return tensors
