"""A function of tensors as a graph of ATen operators, with named arguments and results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from .recorder import Recording


@dataclass(frozen=True)
class Field:
    """A named argument or result, with the shape of one item (without the batch axis)."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> int:
        return int(torch.Size(self.shape).numel())


@dataclass(frozen=True)
class Graph:
    """A traced function; the arguments and results of ``module`` are in the order of ``inputs`` and ``outputs``."""

    module: Any
    """A ``GraphModule`` or a :class:`Recording`."""
    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]

    def constant(self, name: str) -> Any:
        """What the nodes ``get_attr`` read."""
        return self.module.constants[name] if isinstance(self.module, Recording) else getattr(self.module, name)


def make_graph(
    function: Callable[..., Any], arguments: list[Tensor], table: dict[Any, Callable[..., Any]] | None = None
) -> GraphModule:
    traced = make_fx(torch.func.functionalize(function, remove="mutations"), decomposition_table=table or {})
    module = traced(*arguments)
    module.graph.eliminate_dead_code()
    return module
