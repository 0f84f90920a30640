"""The loop over time as C: :func:`fwnkf.core.scan.scan` on the CPU, without gradients.

A step is traced once, for one record; the C calls it for every step of every record. The state stays in the memory of
the loop, inputs are read where they are, and results are written where they belong in tensors ``[B, T, …]``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ..core.scan import length_of
from ..core.tree import Template, flat_function
from ..errors import ConfigError
from .compilers import library_compiler, shared_library
from .graph import Field, Graph
from .loop_source import CTYPES, LoopSource, loop_source
from .recorder import record

Step = Callable[..., tuple[Any, Any]]
MOST_KNOWN = 64
"""Loops that this process remembers by their key."""


def scan_native(
    body: Step,
    state: Any,
    inputs: Sequence[Tensor | None],
    *,
    first: Step | None = None,
    constants: Any = (),
    key: Hashable = None,
) -> tuple[Any, Any]:
    """As :func:`fwnkf.core.scan.scan`: the last state, and the outputs stacked along axis 1.

    Outputs that are the same in every step are expanded, not stored. What no output and no state needs is not computed.

    Args:
        body: ``state, out = body(state, inputs_t)``. Tensors that it closes over are compiled in, as they are now.
        state: a tree of tensors ``[B, …]``.
        inputs: tensors ``[B, T, …]`` or None.
        first: replaces ``body`` in the first step.
        constants: a tree of tensors. Unless it is empty, ``body`` and ``first`` take it as a third argument: values
            that may differ from run to run without a new compilation.
        key: stands for everything that ``body`` and ``first`` close over. A later call with an equal key and with
            arguments of the same shapes does not trace again; None traces every time.

    Returns:
        The last state and the outputs.

    Raises:
        ConfigError: there is no compiler, or no C for the step.

    >>> import torch
    >>> scan_native(lambda s, x: (s + x[0], s * x[0]), torch.zeros(1), [torch.arange(4.0)[None]])
    (tensor([6.]), tensor([[0., 0., 2., 9.]]))
    """
    steps, inputs = length_of(inputs), tuple(inputs)
    records = {len(item) for item in (*Template(state).leaves(state), *inputs) if item is not None}
    if len(records) != 1:
        raise ConfigError(f"state and inputs must have the same number of records (axis 0); got {sorted(records)}")
    form = _form(state, 1), _form(inputs, 2), _form(constants, 0)
    wanted = {"first": first, "body": body if first is None or steps > 1 else None}
    loops: dict[str, TimeLoop] = {}
    for name, step in wanted.items():
        if step is not None:
            found = None if key is None else _known.get((key, name, form))
            loops[name] = TimeLoop(step, state, inputs, constants) if found is None else found
    _compile([loop for loop in loops.values() if loop.run is None])
    if key is not None:
        for name, loop in loops.items():
            while len(_known) >= MOST_KNOWN:
                del _known[next(iter(_known))]
            _known[key, name, form] = loop
    return _run([*loops.values()], state, inputs, constants, steps)


def _form(tree: Any, axes: int) -> Hashable:
    """The nesting of a tree, and the shapes and types of its tensors without their first axes."""
    if isinstance(tree, tuple):
        return type(tree), tuple(_form(item, axes) for item in tree)
    return None if tree is None else (tree.shape[axes:], tree.dtype)


class TimeLoop:
    """A kind of step with the loop around it, for states, inputs and constants like those given."""

    run: Any = None
    """The C, once it is compiled."""

    def __init__(self, step: Step, state: Any, inputs: tuple[Tensor | None, ...], constants: Any = ()) -> None:
        library_compiler()  # before the work of tracing
        self.state, self.inputs, self.constants = Template(state), Template(inputs), Template(constants)
        leaves = [leaf[:1] for leaf in self.state.leaves(state)]
        leaves += [leaf[:1, 0] for leaf in self.inputs.leaves(inputs)]
        leaves += [leaf.unsqueeze(0) for leaf in self.constants.leaves(constants)]
        # two that are one tensor would be one argument of the graph
        one = [leaf.detach().clone(memory_format=torch.contiguous_format) for leaf in leaves]
        with torch.no_grad():
            self.source = self._source(step, one)

    def _source(self, function: Step, one: list[Tensor]) -> LoopSource:
        """The C of a step of one record."""
        ends = [self.state.count, self.state.count + self.inputs.count]

        def step(*leaves: Tensor) -> tuple[Any, Any]:
            arguments = [self.state.tree(leaves[: ends[0]]), self.inputs.tree(leaves[ends[0] : ends[1]])]
            if self.constants.count:
                arguments.append(self.constants.tree([leaf[0] for leaf in leaves[ends[1] :]]))
            return function(*arguments)

        after, out = step(*one)
        if _form(after, 1) != _form(self.state.tree(one[: ends[0]]), 1):
            raise ConfigError("the step returns another form of state than it takes: there is no C for this loop")
        self.out, self.form = Template(out), _form(out, 1)
        results = [*self.state.leaves(after), *self.out.leaves(out)]
        for leaf in (*one, *results):
            if leaf.dtype not in CTYPES or leaf.device.type != "cpu":
                raise ConfigError(f"there is no C for {leaf.dtype} on {leaf.device}")
        if any(leaf.ndim == 0 or len(leaf) != 1 for leaf in results):
            raise ConfigError("the step returns a tensor without an axis of records: there is no C for this loop")
        reals = {leaf.dtype for leaf in (*one, *results) if leaf.is_floating_point()}
        if len(reals) > 1:
            raise ConfigError("the step has floats of two precisions: there is no C for this loop")
        kinds = "s" * ends[0] + "x" * self.inputs.count + "k" * self.constants.count
        fields = tuple(_field(f"{kind}{i}", leaf) for i, (kind, leaf) in enumerate(zip(kinds, one, strict=True)))
        outputs = tuple(_field(f"s{i}" if i < ends[0] else f"r{i}", leaf) for i, leaf in enumerate(results))
        graph = Graph(record(flat_function(step, Template(tuple(one)))[0], one), fields, outputs)
        return loop_source(graph, self.state.count, self.constants.count, reals.pop() if reals else torch.float32)

    def compile(self) -> None:
        """Raises ConfigError."""
        run: Any = shared_library(self.source.text).run
        run.argtypes, run.restype = [ctypes.c_int64] * 4 + [ctypes.POINTER(ctypes.c_void_p)] * 4, None
        self.run = run


def _field(name: str, leaf: Tensor) -> Field:
    return Field(name, tuple(leaf.shape[1:]), leaf.dtype)


def _compile(loops: list[TimeLoop]) -> None:
    if len(loops) == 1:
        loops[0].compile()
    elif loops:
        with ThreadPoolExecutor(len(loops)) as pool:
            list(pool.map(TimeLoop.compile, loops))


def _run(loops: list[TimeLoop], state: Any, inputs: tuple[Tensor | None, ...], constants: Any, steps: int) -> Any:
    """The last state and the outputs; of two loops the first one makes the first step."""
    kind = loops[-1]
    if any(loop.form != kind.form for loop in loops):
        raise ConfigError("the first step does not return what the others do: there is no C for this loop")
    last = [leaf.detach().clone(memory_format=torch.contiguous_format) for leaf in kind.state.leaves(state)]
    read = [leaf.detach().contiguous() for leaf in kind.inputs.leaves(inputs)]
    read += [leaf.detach().contiguous() for leaf in kind.constants.leaves(constants)]
    records = len(read[0])
    ranges = [(0, steps)] if len(loops) == 1 else [(0, 1), (1, steps)]
    outputs = []
    for results in zip(*(loop.source.results for loop in loops), strict=True):
        shape, values = (records, steps, *results[0].field.shape), [result.value for result in results]
        if values[0] is not None and all(item is not None and torch.equal(item, values[0]) for item in values):
            outputs.append(values[0].expand(shape))
            continue
        outputs.append(torch.empty(shape, dtype=results[0].field.dtype))
        for value, (begin, end) in zip(values, ranges, strict=True):
            if value is not None:
                outputs[-1][:, begin:end] = value
    for loop, (begin, end) in zip(loops, ranges, strict=True):
        stored = [out for out, result in zip(outputs, loop.source.results, strict=True) if result.stored]
        places = [[leaf.data_ptr() for leaf in leaves] for leaves in (last, read, stored)]
        places.insert(2, [data.ctypes.data for data in loop.source.known])
        loop.run(records, steps, begin, end, *((ctypes.c_void_p * len(item))(*item) for item in places))
    return kind.state.tree(last), kind.out.tree(outputs)


_known: dict[Hashable, TimeLoop] = {}
