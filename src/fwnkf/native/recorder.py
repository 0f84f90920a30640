"""A graph of ATen operators by recording those that run: what ``make_fx`` does, in a fraction of its time.

Only what depends on the arguments is recorded; everything else is a constant. The same operator on the same operands
is recorded once: Jacobians by differentiation repeat most of the function that they are of.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map

from ..errors import ConfigError

SMALL = 1024
"""Entries up to which constants are compared by their values."""


class _ValueReadError(RuntimeError):
    """As other tracers raise, so that :func:`fwnkf.core.values.truth` knows."""


class Recording(NamedTuple):
    """A graph, and the constants that its nodes ``get_attr`` read."""

    graph: Graph
    constants: dict[str, Tensor]


def record(function: Callable[..., Sequence[Tensor]], arguments: Sequence[Tensor]) -> Recording:
    """The graph of a function that returns tensors; raises ConfigError if it depends on values."""
    mode = _Recorder(arguments)
    try:
        with mode:
            results = torch.func.functionalize(function, remove="mutations")(*arguments)
    except _ValueReadError as error:
        raise ConfigError(str(error)) from error
    except (RuntimeError, TypeError) as error:  # it has run before, so these are of the recording
        raise ConfigError(f"the step cannot be recorded, so there is no C for it: {error}") from error
    mode.graph.output([mode.node(item) for item in results])
    mode.graph.eliminate_dead_code()
    return Recording(mode.graph, mode.constants)


class _Recorder(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch guards every call against its own compiler, the import of which takes seconds; see torch."""
        return False

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__()
        self.graph = Graph()
        self.constants: dict[str, Tensor] = {}
        self._nodes: dict[int, Node] = {}
        self._known: dict[Any, Node] = {}
        self._constant_nodes: dict[Any, Node] = {}
        self._kept: list[Any] = []  # a tensor's identity is its own as long as it lives
        for place, item in enumerate(arguments):
            self._keep(item, self.graph.placeholder(f"a{place}"))

    def _keep(self, item: Tensor, node: Node) -> None:
        self._nodes[id(item)] = node
        self._kept.append(item)

    def node(self, item: Tensor) -> Node:
        """The node of a tensor; a constant if it does not depend on the arguments."""
        found = self._nodes.get(id(item))
        if found is not None:
            return found
        if item._is_zerotensor():  # of a forward derivative; it has no memory
            item = torch.zeros(item.shape, dtype=item.dtype)
        key: Any = id(item)
        if item.numel() <= SMALL:
            key = (item.shape, item.dtype, item.detach().contiguous().numpy().tobytes())
        if key not in self._constant_nodes:
            name = f"c{len(self.constants)}"
            # a copy: what is written to later was another constant
            self.constants[name] = item.detach().clone(memory_format=torch.contiguous_format)
            self._constant_nodes[key] = self.graph.create_node("get_attr", name)
            self._kept.append(item)
        return self._constant_nodes[key]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not tree_any(lambda item: isinstance(item, Tensor) and id(item) in self._nodes, (args, kwargs)):
            return func(*args, **kwargs)
        with self:
            simpler = func.decompose(*args, **kwargs)
        if simpler is not NotImplemented:
            return simpler
        if torch.Tag.data_dependent_output in func.tags:
            raise _ValueReadError(f"the step reads the value of a tensor ({func}), so there is no C for it")
        results = func(*args, **kwargs)
        if isinstance(results, Tensor) and results.is_meta:  # forward derivatives find shapes of zeros so
            return results
        nodes, options = tree_map(lambda item: self.node(item) if isinstance(item, Tensor) else item, (args, kwargs))
        key = (func, _hashable(nodes), _hashable(options))
        if key not in self._known:
            self._known[key] = self.graph.call_function(func, nodes, options)
        node = self._known[key]
        if isinstance(results, Tensor):
            self._keep(results, node)
        else:
            for place, item in enumerate(results):
                if isinstance(item, Tensor):
                    self._keep(item, self._part(node, place))
        return results

    def _part(self, node: Node, place: int) -> Node:
        if (node, place) not in self._known:
            self._known[node, place] = self.graph.call_function(operator.getitem, (node, place))
        return self._known[node, place]


def _hashable(item: Any) -> Any:
    if isinstance(item, list | tuple):
        return tuple([_hashable(part) for part in item])
    if isinstance(item, dict):
        return tuple([(name, _hashable(part)) for name, part in item.items()])
    return type(item), item  # 1, 1.0 and True are equal
