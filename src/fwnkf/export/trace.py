"""One step of a filter as a graph of ATen operators on a batch of one, with the state as an argument and a result."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.tree import named_leaves, tree_unflatten
from ..errors import ConfigError
from ..filters.base import Filter
from ..native.graph import Field, Graph, make_graph
from ..types import Gaussian, StepOutput
from .names import KEYWORDS, check_name

OUTPUTS = tuple(name for name in StepOutput._fields if name != "status")
"""What an exported step can return besides its status."""
DEFAULT_OUTPUTS = ("mean", "cov", "innovation", "innovation_cov")
INPUTS = ("y", "mask", "u", "dt")
METHODS = ("start", "update", "step")
PRECISIONS = {"float": torch.float32, "double": torch.float64}


@dataclass(frozen=True)
class StepProgram:
    """The graphs of a filter: ``start`` makes a state from a prior; ``update`` and ``step`` advance it.

    Arguments of ``start`` are mean and covariance. Those of the others are the leaves of the state, then ``y``,
    ``mask`` and, where the filter reads them, ``u`` and ``dt``; results are the leaves of the next state, the chosen
    outputs and the status.
    """

    model: Filter
    start: Graph
    update: Graph
    step: Graph
    state: tuple[Field, ...]
    prior: Gaussian
    """The default prior: the one of ``Filter.init`` without one."""

    @property
    def takes_control(self) -> bool:
        return any(field.name == "u" for field in self.step.inputs)

    @property
    def takes_dt(self) -> bool:
        return any(field.name == "dt" for field in self.step.inputs)


def program_of(
    model: Filter,
    name: str,
    precision: str,
    outputs: tuple[str, ...],
    steps: int,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    rejects: bool = True,
) -> StepProgram:
    """The traced filter, after a check of the options that all formats have in common; raises ConfigError."""
    check_name(name)
    if steps < 0:
        raise ConfigError(f"steps = {steps} must not be negative")
    if precision not in PRECISIONS:
        raise ConfigError(f"precision {precision!r}: wanted one of {', '.join(PRECISIONS)}")
    return trace(model, PRECISIONS[precision], outputs, decompositions, rejects)


def trace(
    model: Filter,
    dtype: torch.dtype | None = None,
    outputs: tuple[str, ...] = DEFAULT_OUTPUTS,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    rejects: bool = True,
) -> StepProgram:
    """Trace a filter in the given precision (its own by default). Nothing in a step may depend on values.

    ``decompositions`` replaces operators by functions of others. Without ``rejects`` the check for results that are not
    finite is left to the generated code.

    >>> import torch, fwnkf
    >>> filter = fwnkf.KF(F=torch.eye(2), H=torch.eye(1, 2), Q=torch.eye(2), R=torch.eye(1))
    >>> [field.name for field in trace(filter).step.inputs]
    ['mean', 'cov', 'y', 'mask']
    """
    unknown = [name for name in outputs if name not in OUTPUTS]
    if unknown:
        raise ConfigError(f"outputs: {', '.join(unknown)} unknown; there are: {', '.join(OUTPUTS)}")
    if not outputs or len(set(outputs)) < len(outputs):
        raise ConfigError(f"outputs: name at least one of {', '.join(OUTPUTS)}, and each once")
    model = copy.deepcopy(model).eval().requires_grad_(False)
    if dtype is not None:
        model = model.to(dtype)
    with torch.no_grad():
        return _trace(model, outputs, dict(decompositions or {}), rejects)


def _trace(model: Filter, outputs: tuple[str, ...], table: dict[Any, Callable[..., Any]], rejects: bool) -> StepProgram:
    like = torch.zeros((), dtype=model.dtype)
    prepared, template = model.prepare(), model.init(1)
    # copies: two leaves that are one tensor would be one argument of the graph
    leaves = {name: leaf.clone() for name, leaf in named_leaves(template)}
    state = tuple(_field(name, leaf) for name, leaf in zip(state_names(template), leaves.values(), strict=True))
    examples = example_inputs(model)

    def advance(method: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        def function(*arguments: Tensor) -> tuple[Tensor, ...]:
            values = dict(zip(names, arguments[len(state) :], strict=True))
            current = tree_unflatten(template, iter(arguments[: len(state)]))
            following, out = method(current, **values, prepared=prepared, reject=rejects)
            results = [leaf for _, leaf in named_leaves(following)]
            return (*results, *(getattr(out, name) for name in outputs), out.status)

        return function

    names = [name for name in examples if name != "dt" or model.takes_dt]
    given = [examples[name] for name in names]
    inputs = (*state, *(_field(name, value) for name, value in zip(names, given, strict=True)))

    def graph(method: Callable[..., Any]) -> Graph:
        function = advance(method)
        results = function(*leaves.values(), *given)[len(state) :]
        fields = (*state, *(_field(n, r) for n, r in zip((*outputs, "status"), results, strict=True)))
        return Graph(make_graph(function, [*leaves.values(), *given], table), inputs, fields)

    prior = Gaussian(model.layout.origin(like), torch.eye(model.layout.tangent_size, dtype=model.dtype))

    def start(mean: Tensor, cov: Tensor) -> tuple[Tensor, ...]:
        made = [leaf for _, leaf in named_leaves(model.init(1, Gaussian(mean, cov)))]
        # integers are counters and samples from a fixed seed: the same for every prior
        return tuple(a if a.is_floating_point() else b.clone() for a, b in zip(made, leaves.values(), strict=True))

    batched = [item.unsqueeze(0) for item in prior]
    fields = tuple(_field(name, item) for name, item in zip(prior._fields, batched, strict=True))
    begin = Graph(make_graph(start, batched, table), fields, state)
    return StepProgram(model, begin, graph(model.update), graph(model.step), state, prior)


def example_inputs(model: Filter) -> dict[str, Tensor]:
    """Inputs of one step of a batch of one; only their shapes matter."""
    like = torch.zeros((), dtype=model.dtype)
    part = model if model.preprocess is None else model.preprocess
    block = 1 if model.preprocess is None else model.preprocess.block
    lead = (1,) if block == 1 else (1, block)
    examples = {
        "y": like.new_full((*lead, part.observation_dim), 0.5),
        "mask": torch.ones(*lead, part.observation_dim, dtype=torch.bool),
    }
    if part.control_dim:
        examples["u"] = like.new_full((*lead, part.control_dim), 0.25)
    return {**examples, "dt": like.new_full(lead, 0.01)}


def _field(name: str, value: Tensor) -> Field:
    return Field(name, tuple(value.shape[1:]), value.dtype)


def state_names(state: Any) -> list[str]:
    """A name in C for each leaf of a state; inputs, keywords and names that are there already get a line at the end.

    >>> import torch
    >>> from typing import NamedTuple
    >>> class State(NamedTuple):
    ...     y: torch.Tensor
    ...     register: torch.Tensor
    ...     hidden: tuple[torch.Tensor, ...]
    >>> one = torch.ones(1)
    >>> state_names(State(one, one, (one, one)))
    ['y_', 'register_', 'hidden_0', 'hidden_1']
    """
    names: list[str] = []
    taken = {*INPUTS, "status", *KEYWORDS}
    for dotted, _ in named_leaves(state):
        name = dotted.replace(".", "_") or "state"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return names
