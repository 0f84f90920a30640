"""The loop over time as C: :func:`fwnkf.core.scan.scan` on the CPU, without gradients.

A step is traced once, for one record; the C calls it for every step of every record. The state stays in the memory of
the loop, inputs are read where they are, and results are written where they belong in tensors ``[B, T, …]``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.scan import length_of
from ..core.tree import Template, flat_function
from ..errors import ConfigError
from .compilers import library_compiler, shared_library
from .graph import Field, Graph
from .loop_source import CTYPES, loop_source
from .recorder import record

MOST_KNOWN = 64
"""Loops that this process remembers by their key."""


def scan_native(
    body: Callable[..., tuple[Any, Any]],
    state: Any,
    inputs: Sequence[Tensor | None],
    *,
    first: Callable[..., tuple[Any, Any]] | None = None,
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
    steps = length_of(inputs)
    inputs = tuple(inputs)
    place = (key, first is None, _form(state, 1), _form(inputs, 2), _form(constants, 0))
    loop = None if key is None else _known.get(place)
    if loop is None:
        loop = TimeLoop(body, first, state, inputs, constants)
        if key is not None:
            while len(_known) >= MOST_KNOWN:
                del _known[next(iter(_known))]
            _known[place] = loop
    return loop(state, inputs, constants, steps)


def _form(tree: Any, axes: int) -> Hashable:
    """The nesting of a tree, and the shapes and types of its tensors without their first axes."""
    if isinstance(tree, tuple):
        return type(tree), tuple(_form(item, axes) for item in tree)
    return None if tree is None else (tree.shape[axes:], tree.dtype)


class TimeLoop:
    """A loop over time for states, inputs and constants like those given."""

    def __init__(
        self,
        body: Callable[..., tuple[Any, Any]],
        first: Callable[..., tuple[Any, Any]] | None,
        state: Any,
        inputs: tuple[Tensor | None, ...],
        constants: Any = (),
    ) -> None:
        library_compiler()  # before the work of tracing
        self._state, self._inputs, self._constants = Template(state), Template(inputs), Template(constants)
        leaves = [leaf[:1] for leaf in self._state.leaves(state)]
        leaves += [leaf[:1, 0] for leaf in self._inputs.leaves(inputs)]
        leaves += [leaf.unsqueeze(0) for leaf in self._constants.leaves(constants)]
        # two that are one tensor would be one argument of the graph
        one = [leaf.detach().clone(memory_format=torch.contiguous_format) for leaf in leaves]
        with torch.no_grad():
            (graph, after, out), *others = [self._traced(f, one) for f in (body, first) if f is not None]
        if any((_form(a, 1), _form(b, 1)) != (_form(after, 1), _form(out, 1)) for _, a, b in others):
            raise ConfigError("the first step does not return what the others do: there is no C for this loop")
        self._out = Template(out)
        reals = {leaf.dtype for leaf in (*one, *self._out.leaves(out)) if leaf.is_floating_point()}
        if len(reals) > 1:
            raise ConfigError("the step has floats of two precisions: there is no C for this loop")
        real = reals.pop() if reals else torch.float32
        source = loop_source([graph, *(g for g, _, _ in others)], self._state.count, self._constants.count, real)
        self._results, self._known = source.results, source.known
        self._run: Any = shared_library(source.text).run
        self._run.argtypes = [ctypes.c_int64] * 2 + [ctypes.POINTER(ctypes.c_void_p)] * 4
        self._run.restype = None

    def _traced(self, function: Callable[..., tuple[Any, Any]], one: list[Tensor]) -> tuple[Graph, Any, Any]:
        """The graph of a step of one record, and the trees that it returns."""
        ends = [self._state.count, self._state.count + self._inputs.count]

        def step(*leaves: Tensor) -> tuple[Any, Any]:
            arguments = [self._state.tree(leaves[: ends[0]]), self._inputs.tree(leaves[ends[0] : ends[1]])]
            if self._constants.count:
                arguments.append(self._constants.tree([leaf[0] for leaf in leaves[ends[1] :]]))
            return function(*arguments)

        after, out = step(*one)
        flat, _ = flat_function(step, Template(tuple(one)))
        results = [*Template(after).leaves(after), *Template(out).leaves(out)]
        for leaf in (*one, *results):
            if leaf.dtype not in CTYPES or leaf.device.type != "cpu":
                raise ConfigError(f"there is no C for {leaf.dtype} on {leaf.device}")
        if any(leaf.ndim == 0 or len(leaf) != 1 for leaf in results):
            raise ConfigError("the step returns a tensor without an axis of records: there is no C for this loop")
        before = self._state.tree(one[: ends[0]])
        if _form(after, 1) != _form(before, 1):
            raise ConfigError("the step returns another form of state than it takes: there is no C for this loop")
        count = len(one)
        kinds = ["s"] * ends[0] + ["x"] * self._inputs.count + ["k"] * self._constants.count
        inputs = tuple(_field(f"{kinds[i]}{i}", one[i]) for i in range(count))
        outputs = tuple(_field(f"s{i}" if i < ends[0] else f"r{i}", leaf) for i, leaf in enumerate(results))
        return Graph(record(flat, one), inputs, outputs), after, out

    def __call__(self, state: Any, inputs: tuple[Tensor | None, ...], constants: Any, steps: int) -> tuple[Any, Any]:
        """The last state and the outputs."""
        last = [leaf.detach().clone(memory_format=torch.contiguous_format) for leaf in self._state.leaves(state)]
        given = [leaf.detach().contiguous() for leaf in self._inputs.leaves(inputs)]
        records = len(given[0])
        if any(len(leaf) != records for leaf in (*last, *given)):
            raise ConfigError("the state and the inputs have different numbers of records (axis 0)")
        fixed = [leaf.detach().contiguous() for leaf in self._constants.leaves(constants)]
        outputs, stored = [], []
        for result in self._results:
            shape = (records, steps, *result.field.shape)
            if result.value is None:
                outputs.append(torch.empty(shape, dtype=result.field.dtype))
                stored += [outputs[-1]] if result.stored else []
            else:
                outputs.append(result.value.expand(shape))
        places = [[leaf.data_ptr() for leaf in leaves] for leaves in (last, [*given, *fixed], stored)]
        places.insert(2, [data.ctypes.data for data in self._known])
        self._run(records, steps, *((ctypes.c_void_p * len(item))(*item) for item in places))
        return self._state.tree(last), self._out.tree(outputs)


def _field(name: str, leaf: Tensor) -> Field:
    return Field(name, tuple(leaf.shape[1:]), leaf.dtype)


_known: dict[Hashable, TimeLoop] = {}
