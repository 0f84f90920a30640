"""Several filters that differ only in the values of their parameters, run together.

A small network leaves most of a processor idle between its kernels. Filters with the same config and data of the same
shape can share every kernel: parameters are stacked along a new first axis, and ``torch.vmap`` runs over it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from ..core.trajectory import Trajectory
from ..core.tree import Template
from ..errors import ConfigError
from ..types import Gaussian
from .base import Filter

Result = TypeVar("Result")


class FilterStack:
    """Filters of one config with stacked parameters and buffers.

    >>> import fwnkf
    >>> eye = torch.eye(2)
    >>> system = fwnkf.LinearSystem.of(F=eye, H=eye, Q=eye, R=eye)
    >>> stack = FilterStack([fwnkf.build("kalmannet", system=system) for seed in range(3)])
    >>> stack.map(lambda model, y: model.run(y).mean, torch.zeros(3, 1, 5, 2)).shape
    torch.Size([3, 1, 5, 2])
    """

    def __init__(self, models: Sequence[Filter]) -> None:
        first = models[0]
        for number, model in enumerate(models):
            if type(model) is not type(first) or model.config != first.config:
                raise ConfigError(f"filter {number} of a stack has another config than the first; run it by itself")
        self.model = copy.deepcopy(first)
        """The filter that calls are made on; its own values are not used."""
        self._call = _Call(self.model)
        parameters, self._buffers = stack_module_state([_Call(model) for model in models])
        fixed = {name for name, parameter in self._call.named_parameters() if not parameter.requires_grad}
        self._parameters = {
            name: value.detach().requires_grad_(name not in fixed) for name, value in parameters.items()
        }
        self.size = len(models)

    def named_parameters(self) -> dict[str, Tensor]:
        """The stacked parameters, by the names they have in one filter."""
        return {name.removeprefix(PREFIX): value for name, value in self._parameters.items()}

    def map(self, function: Callable[..., Result], *inputs: Tensor) -> Result:
        """``function(model, *inputs)`` for every member; inputs and results have a first axis over members.

        ``function`` returns tensors, or tuples or dicts of them. Random numbers differ between members.
        """

        def single(parameters: dict[str, Tensor], buffers: dict[str, Tensor], *own: Tensor) -> Any:
            return functional_call(self._call, (parameters, buffers), (function, *own))

        mapped = torch.vmap(single, randomness="different")
        result: Result = mapped(self._parameters, self._buffers, *inputs)
        return result

    @torch.no_grad()
    def place(self, member: int, model: Filter) -> None:
        """Put another filter of the same config in the place of a member, with copies of its values."""
        call = _Call(model)
        for name, parameter in call.named_parameters():
            self._parameters[name][member] = parameter
        for name, buffer in call.named_buffers():
            self._buffers[name][member] = buffer

    def values(self, member: int) -> dict[str, Tensor]:
        """A copy of the parameters of one member."""
        return {name: value[member].detach().clone() for name, value in self.named_parameters().items()}


Step = Callable[[list[Tensor], list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]
"""State, inputs of a step and what is prepared, each as tensors with an axis over members, to state and outputs."""


class CompiledSteps:
    """The loop over time of a stack with gradients, its step compiled once for all members.

    Under ``torch.vmap`` every operation of a step goes through the dispatcher several times. Here the step of all
    members is traced to one graph without them, which ``torch.compile`` turns into few kernels: about three times
    faster, after a minute of compilation for each size of a batch. The parameters are inputs of the graph, so that it
    serves while they are trained.

    Needs a C++ compiler. A step that draws random numbers must take them from its state.

    Args:
        stack: the filters.
        backend: of ``torch.compile``.
    """

    def __init__(self, stack: FilterStack, backend: str = "inductor") -> None:
        self.stack, self.backend = stack, backend
        self._steps: dict[Any, tuple[Step, list[Template]]] = {}

    def run(
        self,
        y: Tensor,
        u: Tensor | None = None,
        mask: Tensor | None = None,
        dt: Tensor | None = None,
        prior: Gaussian | None = None,
        generator: torch.Generator | None = None,
    ) -> Trajectory:
        """As :meth:`fwnkf.Filter.run` for every member: all tensors have a first axis over members.

        The state after the last step is left out.
        """
        given = Template((y, u, mask, dt, prior))
        found: dict[str, Any] = {}

        def begin(model: Filter, *own: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
            y, u, mask, dt, prior = given.tree(own)
            state, inputs, flagged, predicts_first = model._begin(
                y, u, mask, dt, prior, "first_measurement", None, generator
            )
            prepared = model.prepare()
            trees = (state, tuple(inputs), prepared)
            found.update(first=predicts_first, templates=[Template(tree) for tree in trees])
            state, inputs, prepared = (t.leaves(tree) for t, tree in zip(found["templates"], trees, strict=True))
            return state, inputs, prepared, flagged

        state, inputs, prepared, flagged = self.stack.map(begin, *given.leaves((y, u, mask, dt, prior)))
        steps = list(zip(*(item.unbind(2) for item in inputs), strict=True))
        held = self._function("_advance_held", moves=False, templates=found["templates"])
        outputs: list[list[Tensor]] = []
        for number, own in enumerate(steps):
            first = number == 0 and not found["first"]
            step, kept = held if first else self._compiled(state, list(own), prepared, found["templates"])
            state, out = step(state, list(own), prepared)
            outputs.append(out)
        weight, out = kept[0].tree([torch.stack(leaf, 2) for leaf in zip(*outputs, strict=True)])
        track = Trajectory(**out._asdict(), state=None, weight=weight)
        return track._replace(status=track.status | flagged)

    def _compiled(
        self, state: list[Tensor], inputs: list[Tensor], prepared: list[Tensor], templates: list[Template]
    ) -> tuple[Step, list[Template]]:
        """The compiled step for tensors of these sizes, and the nesting of its outputs."""
        key = tuple(tuple(leaf.shape) for leaf in (*state, *inputs, *prepared))
        if key not in self._steps:
            plain, kept = self._function("advance", moves=True, templates=templates)
            counts = [len(state), len(inputs), len(prepared), len(self.stack._parameters), len(self.stack._buffers)]

            def flat(*tensors: Tensor) -> list[Tensor]:
                parts = iter(tensors)
                split = [[next(parts) for _ in range(count)] for count in counts]
                values = [
                    dict(zip(names, own, strict=True))
                    for names, own in zip((self.stack._parameters, self.stack._buffers), split[3:], strict=True)
                ]
                after, out = plain(*split[:3], *values)
                return [*after, *out]

            graph = _without_stored_masks(make_fx(flat)(*state, *inputs, *prepared, *self._values()))
            warnings.filterwarnings("ignore", message=".*_prims_common.check.*")
            options = INDUCTOR if self.backend == "inductor" else None
            compiled = torch.compile(graph, dynamic=False, backend=self.backend, options=options)

            def step(state: list[Tensor], inputs: list[Tensor], prepared: list[Tensor]) -> Any:
                values = compiled(*state, *inputs, *prepared, *self._values())
                return list(values[: len(state)]), list(values[len(state) :])

            self._steps[key] = step, kept
        return self._steps[key]

    def _values(self) -> list[Tensor]:
        """Parameters and buffers, which are inputs of the graph: it serves every stack of these sizes."""
        return [*self.stack._parameters.values(), *self.stack._buffers.values()]

    def _function(self, name: str, *, moves: bool, templates: list[Template]) -> tuple[Any, list[Template]]:
        """One step of all members by ``torch.vmap``, and a list that holds the nesting of its outputs once it ran."""
        stack, (carry, given, known) = self.stack, templates
        kept: list[Template] = []

        def one(
            parameters: Any, buffers: Any, state: list[Tensor], inputs: list[Tensor], prepared: list[Tensor]
        ) -> Any:
            def call(model: Filter) -> tuple[list[Tensor], list[Tensor]]:
                step = getattr(model, name)
                after, (used, out, _, _) = model._scanned(
                    step, moves, known.tree(prepared), carry.tree(state), given.tree(inputs), False, None, False
                )
                kept[:] = [Template((used, out))]
                return carry.leaves(after), kept[0].leaves((used, out))

            return functional_call(stack._call, (parameters, buffers), (call,))

        mapped: Callable[..., Any] = torch.vmap(one)

        def step(state: Any, inputs: Any, prepared: Any, parameters: Any = None, buffers: Any = None) -> Any:
            values = (stack._parameters, stack._buffers) if parameters is None else (parameters, buffers)
            return mapped(values[0], values[1], state, inputs, prepared)

        return step, kept


def _without_stored_masks(graph: GraphModule) -> GraphModule:
    """A traced step with ``relu(x)`` as ``(x + |x|) / 2``.

    For the backward pass of ``relu`` the compiled code stores where it was positive. Its vectorised conversion to
    booleans (torch 2.13, CPU) takes ten times as long as all the rest of such a kernel, a third of a step of KalmanNet.
    """
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.relu.default:
            with graph.graph.inserting_before(node):
                (x,) = node.args
                size = graph.graph.call_function(torch.ops.aten.abs.default, (x,))
                total = graph.graph.call_function(torch.ops.aten.add.Tensor, (x, size))
                half = graph.graph.call_function(torch.ops.aten.mul.Tensor, (total, 0.5))
            node.replace_all_uses_with(half)
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


PREFIX = "model."
INDUCTOR: dict[str, Any] = {"cpp_wrapper": True, "cpp_wrapper_build_separate": True, "size_asserts": False}
"""Kernels are called from C++: from Python a step takes an eighth longer. The calls are compiled apart from the
kernels, with fewer optimisations: for a step of KalmanNet the C++ compiler then takes 13 s instead of 23. The key has
checked all sizes."""


class _Call(nn.Module):
    """Makes any function of a filter the ``forward`` of a module, which is what ``functional_call`` replaces."""

    def __init__(self, model: Filter) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[..., Any], *inputs: Tensor) -> Any:
        return function(self.model, *inputs)
