"""Statements of a generated function, and the conversions between the forms of a tensor.

A tensor with few entries becomes one C variable per entry, with zeros and ones folded, so that the structure of a
Jacobian costs nothing at run time; a larger one becomes a loop. :data:`SCALAR_LIMIT` divides the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .values import Array, Buffer, Constant, Kind, Lazy, Scalars, Value, literal
from .weights import Grid

SCALAR_LIMIT = 32
"""Entries up to which an operation is written out, entry by entry."""
CONSTANT_LIMIT = 256
"""Nonzero entries up to which a constant is written into expressions; a larger one is an array."""
CTYPES: dict[Kind, str] = {"real": "real", "int": "int64_t", "bool": "int"}
REFERENCE = re.compile(r"@(\d+)\[")
VARIABLE = re.compile(r"\bt\d+\b")


@dataclass
class Statement:
    """A line that defines a variable, or a block that writes buffers; ``@12[`` is an entry of buffer 12."""

    text: str
    defines: str = ""
    writes: tuple[int, ...] = ()

    def reads(self) -> set[int]:
        return {int(key) for key in REFERENCE.findall(self.text)}


@dataclass
class Pool:
    """Constant arrays of a file, each stored once."""

    entries: dict[bytes, tuple[str, np.ndarray, Kind]] = field(default_factory=dict)
    grid: Grid | None = None
    """Of weights that are stored as integers."""

    def name(self, data: np.ndarray, kind: Kind) -> str:
        key = kind.encode() + data.dtype.str.encode() + data.tobytes()
        return self.entries.setdefault(key, (f"c{len(self.entries)}", data, kind))[0]


@dataclass
class Builder:
    """Collects the statements of one function; every variable and every buffer is written once."""

    dtype: torch.dtype
    pool: Pool
    statements: list[Statement] = field(default_factory=list)
    buffers: dict[int, Buffer] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    """Variables by their expression: the same expression is computed once."""
    constants: dict[int, Buffer] = field(default_factory=dict)
    """Buffers of constants, by the identity of the tensor."""
    arrays: dict[int, Array] = field(default_factory=dict)
    """Arrays made of scalars, by the identity of their items."""
    kept: list[Any] = field(default_factory=list)
    count: int = 0

    # ---- memory ---------------------------------------------------------------------------------------------

    def buffer(
        self,
        size: int,
        kind: Kind = "real",
        name: str = "",
        data: np.ndarray | None = None,
        scale: float | None = None,
    ) -> Buffer:
        made = Buffer(len(self.buffers), size, kind, name, data, scale)
        self.buffers[made.key] = made
        return made

    def block(self, text: str, *writes: Buffer) -> None:
        self.statements.append(Statement(text, writes=tuple(item.key for item in writes)))

    def define(self, expression: str, kind: Kind) -> str:
        """A variable with this value."""
        if expression in self.known:
            return self.known[expression]
        name = f"t{self.count}"
        self.count += 1
        self.known[expression] = name
        self.statements.append(Statement(f"const {CTYPES[kind]} {name} = {expression};", defines=name))
        return name

    # ---- conversions ----------------------------------------------------------------------------------------

    def scalars(self, value: Value) -> Scalars:
        """Every entry as a number or a name."""
        if isinstance(value, Scalars):
            return value
        if isinstance(value, Constant):
            items = np.empty(value.shape, object)
            items.flat[:] = value.tensor.flatten().tolist()
            return Scalars(items, value.kind)
        items = np.empty(value.shape, object)
        for place in np.ndindex(*value.shape):
            if isinstance(value, Array):
                items[place] = value.buffer.entry(value.index[place])
            else:
                entry = value.view(lambda a, place=place: a[(*place, ...)])  # type: ignore[misc]
                items[place] = self.define(entry.at([]), value.kind)
        return Scalars(items, value.kind)

    def array(self, value: Value) -> Array:
        """The tensor in memory."""
        if isinstance(value, Array):
            return value
        if isinstance(value, Constant):
            key = id(value.tensor)
            if key not in self.constants:
                data = value.tensor.detach().contiguous().numpy().reshape(-1)
                found = None if self.pool.grid is None else self.pool.grid.integers(data)
                data, scale = (data, None) if found is None else found
                self.constants[key] = self.buffer(data.size, value.kind, self.pool.name(data, value.kind), data, scale)
                self.kept.append(value.tensor)
            return self.constants[key].whole(value.shape)
        if isinstance(value, Lazy):
            return self.realize(value)
        key = id(value.items)
        if key not in self.arrays:
            if all(not isinstance(item, str) for item in value.items.flat):
                dtype = {"real": self.dtype, "int": torch.int64, "bool": torch.bool}[value.kind]
                self.arrays[key] = self.array(Constant(torch.tensor(value.items.tolist(), dtype=dtype)))
            else:
                made = self.buffer(value.items.size, value.kind)
                self.block(entries(made, value), made)
                self.arrays[key] = made.whole(value.shape)
            self.kept.append(value.items)
        return self.arrays[key]

    def form(self, value: Value) -> Scalars | Array | Lazy:
        """A constant as scalars if it has few nonzero entries, else as an array; others unchanged."""
        if not isinstance(value, Constant):
            return value
        dense = int(torch.count_nonzero(value.tensor)) if value.tensor.numel() else 0
        return self.scalars(value) if dense <= CONSTANT_LIMIT and value.tensor.numel() <= 8192 else self.array(value)

    def realize(self, value: Lazy | Array, into: Array | None = None) -> Array:
        """Compute an expression, or copy an array, in a loop."""
        if into is None:
            into = self.buffer(int(np.prod(value.shape)), value.kind).whole(value.shape)
        leaves = [into, *(value.leaves() if isinstance(value, Lazy) else [value])]
        sizes, function = merged_axes(value.shape, leaves)
        value, target = value.view(function), into.view(function)
        names = [f"i{axis}" for axis in range(len(sizes))]
        self.block(nest(names, sizes, f"{target.at(names)} = {value.at(names)};"), into.buffer)
        return into

    def fill(self, target: Array, value: Scalars | Array | Lazy) -> None:
        """Write a value, broadcast if need be, into an array."""
        if isinstance(value, Scalars):
            single = value.single
            value = self.array(value) if single is None else Scalars(np.array(single, object), value.kind)
        self.realize(Lazy("{0}", (value,), target.shape, target.kind), target)


def entries(target: Buffer, value: Scalars) -> str:
    """Stores of all entries; where most are zero, a loop for those is shorter."""
    items = [literal(item, value.kind) for item in value.items.flat]
    zero = literal(0, value.kind)
    lines = [f"@{target.key}[{i}] = {item};" for i, item in enumerate(items)]
    if items.count(zero) <= max(SCALAR_LIMIT, len(items) // 2):
        return "\n".join(lines)
    fill = f"for (int i = 0; i < {len(items)}; ++i) {{ @{target.key}[i] = {zero}; }}"
    return "\n".join([fill, *(line for line, item in zip(lines, items, strict=True) if item != zero)])


def nest(names: list[str], sizes: list[int], body: str) -> str:
    """Loops around a statement."""
    heads = [f"for (int {n} = 0; {n} < {s}; ++{n})" for n, s in zip(names, sizes, strict=True)]
    return " ".join([*heads, "{", body, "}"])


def merged_axes(shape: tuple[int, ...], leaves: list[Array]) -> tuple[list[int], Any]:
    """Sizes of as few loops as possible, and the view that reshapes every array accordingly."""
    full = [leaf.view(lambda a: np.broadcast_to(a, shape)) for leaf in leaves]
    strides = [leaf.strides for leaf in full]
    sizes: list[int] = []
    last: list[int] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        joins = bool(sizes) and all(s[last[-1]] == s[axis] * size for s in strides)
        if joins:
            sizes[-1] *= size
            last[-1] = axis
        else:
            sizes.append(size)
            last.append(axis)

    def function(a: np.ndarray) -> np.ndarray:
        a = np.broadcast_to(a, shape)
        steps = [a.strides[axis] for axis in last]
        return np.lib.stride_tricks.as_strided(a, sizes, steps)

    return sizes, function
