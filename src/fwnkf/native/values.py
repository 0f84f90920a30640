"""Tensors during code generation: known scalars, regions of memory, and elementwise expressions not yet computed.

All of them carry a numpy array of the shape of the tensor, so that views (slices, transposes, broadcasts) are numpy
views: :class:`Scalars` an array of C names and numbers, :class:`Array` an array of positions in a buffer, whose numpy
strides are the strides of the view.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

Kind = Literal["real", "int", "bool"]
View: TypeAlias = Callable[[np.ndarray], np.ndarray]

KINDS: dict[torch.dtype, Kind] = {
    torch.float32: "real",
    torch.float64: "real",
    torch.int64: "int",
    torch.int32: "int",
    torch.bool: "bool",
}
ITEM_SIZE = np.dtype(np.int64).itemsize


def is_number(item: Any) -> bool:
    """Whether an entry of :class:`Scalars` is known at the time of export."""
    return not isinstance(item, str)


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory for ``size`` items; ``name`` is that of a C object, or empty for scratch memory of the step."""

    key: int
    size: int
    kind: Kind
    name: str = ""
    data: np.ndarray | None = None
    """The values of a constant."""
    scale: float | None = None
    """What an integer in memory is multiplied by, if weights are stored as integers."""

    def entry(self, index: Any) -> str:
        """The value at a position, as C."""
        text = f"@{self.key}[{index}]"
        return text if self.scale is None else f"({literal(self.scale, 'real')} * {text})"

    def whole(self, shape: tuple[int, ...]) -> Array:
        return Array(self, np.arange(self.size, dtype=np.int64).reshape(shape))


@dataclass(frozen=True, eq=False)
class Constant:
    """A tensor that is known at the time of export."""

    tensor: torch.Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def kind(self) -> Kind:
        return KINDS[self.tensor.dtype]


@dataclass(frozen=True, eq=False)
class Scalars:
    """Entries that are numbers, names of C variables, or single entries of buffers."""

    items: np.ndarray
    kind: Kind

    @property
    def shape(self) -> tuple[int, ...]:
        return self.items.shape

    @property
    def nonzero(self) -> np.ndarray:
        """True where an entry is not known to be zero."""
        flags = [isinstance(item, str) or item != 0 for item in self.items.flat]
        return np.array(flags, bool).reshape(self.shape)

    @property
    def single(self) -> Any:
        """The entry, if all entries are the same; else None."""
        items = self.items.flat
        first = items[0] if self.items.size else None
        return first if all(item is first or item == first for item in items) else None

    def view(self, function: View) -> Scalars:
        return Scalars(function(self.items), self.kind)


@dataclass(frozen=True, eq=False)
class Array:
    """A view of a buffer; ``index`` has the position of every entry and is itself a numpy view of ``0 … size - 1``."""

    buffer: Buffer
    index: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.index.shape

    @property
    def kind(self) -> Kind:
        return self.buffer.kind

    @property
    def offset(self) -> int:
        return int(self.index.flat[0]) if self.index.size else 0

    @property
    def strides(self) -> tuple[int, ...]:
        """Distances in the buffer; zero for axes of one entry."""
        return tuple(0 if n == 1 else s // ITEM_SIZE for n, s in zip(self.shape, self.index.strides, strict=True))

    @property
    def contiguous(self) -> bool:
        return self.strides == dense_strides(self.shape)

    def view(self, function: View) -> Array:
        return Array(self.buffer, function(self.index))

    def at(self, variables: list[str]) -> str:
        """The entry at symbolic indices, as C."""
        terms = [f"{s} * {v}" if s != 1 else v for s, v in zip(self.strides, variables, strict=True) if s]
        if self.offset or not terms:
            terms.append(str(self.offset))
        return self.buffer.entry(" + ".join(terms))


@dataclass(frozen=True, eq=False)
class Lazy:
    """An elementwise expression of arrays; ``template`` is C with the arguments as ``{0}``, ``{1}`` …"""

    template: str
    arguments: tuple[Scalars | Array | Lazy, ...]
    shape: tuple[int, ...]
    kind: Kind

    def view(self, function: View) -> Lazy:
        """The view of every argument, each expanded to the shape of the expression first."""
        arguments = tuple(item.view(lambda a: function(np.broadcast_to(a, self.shape))) for item in self.arguments)
        return Lazy(self.template, arguments, arguments[0].shape, self.kind)

    def leaves(self) -> list[Array]:
        found = []
        for item in self.arguments:
            if isinstance(item, Lazy):
                found += item.leaves()
            elif isinstance(item, Array):
                found.append(item)
        return found

    def at(self, variables: list[str]) -> str:
        parts = []
        for item in self.arguments:
            if isinstance(item, Scalars):
                parts.append(literal(item.single, item.kind))
            else:
                parts.append(item.at(variables[len(variables) - len(item.shape) :]))
        return f"({self.template.format(*parts)})"


Value = Constant | Scalars | Array | Lazy


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides; zero for axes of one entry."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(0 if size == 1 else step)
        step *= size
    return tuple(reversed(strides))


def literal(item: Any, kind: Kind) -> str:
    """A C expression for an entry. Real numbers are wrapped in ``R(…)``, which appends the suffix of the precision."""
    if isinstance(item, str):
        return item
    if kind != "real":
        return str(int(item))
    value = float(item)
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"R({value!r})"
    return text if value >= 0 else f"(-R({-value!r}))"


def shares(view: np.ndarray, base: np.ndarray) -> bool:
    """Whether a numpy result is a view, so that its strides are those of memory."""
    return view.size == 0 or np.shares_memory(view, base)
