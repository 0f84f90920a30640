"""ATen operators that rearrange: views, joins, and entries at fixed places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .builder import SCALAR_LIMIT, Builder
from .operators import handles
from .pointwise import as_value, pointwise
from .values import Array, Constant, Lazy, Scalars, Value, shares


def _filled(build: Builder, like: Value, shape: Sequence[int], value: float, dtype: torch.dtype | None) -> Constant:
    dtype = {"real": build.dtype, "int": torch.int64, "bool": torch.bool}[like.kind] if dtype is None else dtype
    return Constant(torch.full(tuple(shape), value, dtype=dtype))


def _fills(value: float | None, name: str) -> None:
    """``zeros_like`` and its relatives; without a value it is an argument."""

    @handles(f"{name}_like.default")
    def like(build: Builder, x: Value, given: float = 0.0, dtype: torch.dtype | None = None, **_: Any) -> Constant:
        return _filled(build, x, x.shape, given if value is None else value, dtype)

    @handles(f"new_{name}.default", f"new_{name}_strided.default")
    def new(
        build: Builder, x: Value, shape: Sequence[int], given: Any = 0.0, dtype: torch.dtype | None = None, **_: Any
    ) -> Constant:
        return _filled(build, x, shape, given if value is None else value, dtype)


_fills(0.0, "zeros")
_fills(0.0, "empty")
_fills(1.0, "ones")
_fills(None, "full")


def viewed(build: Builder, x: Value, function: Callable[[np.ndarray], np.ndarray]) -> Value:
    """A view; of an array only if the result still has strides, else of its copy."""
    x = build.form(x)
    if isinstance(x, Lazy):
        if all(shares(function(np.broadcast_to(leaf.index, x.shape)), leaf.index) for leaf in _views(x)):
            return x.view(function)
        x = build.realize(x)
    if isinstance(x, Array):
        result = function(x.index)
        if not shares(result, x.index):
            x = build.realize(x)
            result = function(x.index)
        return Array(x.buffer, result)
    return x.view(function)


def _views(x: Lazy) -> list[Array]:
    """The arrays of an expression, each expanded to its shape as :meth:`Lazy.view` does."""
    found = []
    for item in x.arguments:
        full = item.view(lambda a: np.broadcast_to(a, x.shape))
        found += _views(full) if isinstance(full, Lazy) else [full] if isinstance(full, Array) else []
    return found


@handles("view.default", "_unsafe_view.default", "reshape.default")
def _view(build: Builder, x: Value, shape: Sequence[int]) -> Value:
    return viewed(build, x, lambda a: a.reshape(tuple(shape)))


@handles("expand.default")
def _expand(build: Builder, x: Value, shape: Sequence[int], implicit: bool = False) -> Value:
    lead = len(shape) - len(x.shape)
    sizes = [x.shape[i - lead] if size == -1 else size for i, size in enumerate(shape)]
    return viewed(build, x, lambda a: np.broadcast_to(a, tuple(sizes)))


@handles("permute.default")
def permute(build: Builder, x: Value, order: Sequence[int]) -> Value:
    return viewed(build, x, lambda a: a.transpose(tuple(order)))


@handles("transpose.int")
def _transpose(build: Builder, x: Value, first: int, second: int) -> Value:
    return viewed(build, x, lambda a: a.swapaxes(first, second))


@handles("t.default")
def _t(build: Builder, x: Value) -> Value:
    return viewed(build, x, lambda a: a.T)


@handles("unsqueeze.default")
def unsqueeze(build: Builder, x: Value, axis: int) -> Value:
    return viewed(build, x, lambda a: np.expand_dims(a, axis))


@handles("squeeze.dim", "squeeze.dims")
def _squeeze(build: Builder, x: Value, axes: Any) -> Value:
    chosen = [axis for axis in np.atleast_1d(axes) if x.shape[axis] == 1]
    return viewed(build, x, lambda a: np.squeeze(a, tuple(int(axis) for axis in chosen)))


@handles("select.int")
def _select(build: Builder, x: Value, axis: int, index: int) -> Value:
    return viewed(build, x, lambda a: np.moveaxis(a, axis, 0)[(index, ...)])


@handles("slice.Tensor")
def _slice(
    build: Builder, x: Value, axis: int = 0, begin: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    return viewed(build, x, lambda a: np.moveaxis(np.moveaxis(a, axis, 0)[begin:end:step], 0, axis))


@handles("split.Tensor", "split_with_sizes.default")
def _split(build: Builder, x: Value, sizes: Any, axis: int = 0) -> tuple[Value, ...]:
    if isinstance(sizes, int):
        whole = x.shape[axis]
        sizes = [min(sizes, whole - begin) for begin in range(0, whole, sizes)]
    ends = np.cumsum(sizes)
    return tuple(_slice(build, x, axis, int(end - size), int(end)) for size, end in zip(sizes, ends, strict=True))


@handles("unbind.int")
def unbind(build: Builder, x: Value, axis: int = 0) -> tuple[Value, ...]:
    return tuple(_select(build, x, axis, index) for index in range(x.shape[axis]))


@handles("diagonal.default")
def _diagonal(build: Builder, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    return viewed(build, x, lambda a: a.diagonal(offset, first, second))


# ---- joins -------------------------------------------------------------------------------------------------------


def scattered(
    build: Builder, shape: tuple[int, ...], pieces: list[tuple[Any, Value]], base: Value | None = None
) -> Value:
    """A tensor of pieces, each where a numpy index or view function selects; zero, or ``base``, elsewhere."""
    kind = pieces[0][1].kind if base is None else base.kind
    formed = [(place, build.form(value)) for place, value in pieces]
    if all(isinstance(value, Scalars) or np.prod(value.shape) <= SCALAR_LIMIT for _, value in formed) and (
        base is None or not isinstance(build.form(base), Lazy | Array) or np.prod(shape) <= SCALAR_LIMIT
    ):
        items = np.empty(shape, object)
        items[...] = 0.0 if kind == "real" else 0 if base is None else items
        if base is not None:
            items[...] = build.scalars(base).items
        for place, value in formed:
            _region(items, place)[...] = build.scalars(value).items
        return Scalars(items, kind)
    whole = build.buffer(int(np.prod(shape)), kind).whole(shape)
    covered = np.zeros(shape, bool)
    for place, _ in formed:
        _region(covered, place)[...] = True
    if not covered.all():
        start = as_value(0.0 if kind == "real" else 0) if base is None else build.form(base)
        build.fill(whole, build.form(start))
    for place, value in formed:
        build.fill(Array(whole.buffer, _region(whole.index, place)), value)
    return whole


def _region(a: np.ndarray, place: Any) -> np.ndarray:
    return place(a) if callable(place) else a[place]


@handles("cat.default")
def _cat(build: Builder, pieces: Sequence[Value], axis: int = 0) -> Value:
    pieces = [piece for piece in pieces if len(piece.shape) > 1 or np.prod(piece.shape) > 0]
    axis %= len(pieces[0].shape)
    shape = list(pieces[0].shape)
    shape[axis] = sum(piece.shape[axis] for piece in pieces)
    placed, begin = [], 0
    for piece in pieces:
        end = begin + piece.shape[axis]
        placed.append(((*[slice(None)] * axis, slice(begin, end)), piece))
        begin = end
    return scattered(build, tuple(shape), placed)


@handles("stack.default")
def stack(build: Builder, pieces: Sequence[Value], axis: int = 0) -> Value:
    return _cat(build, [unsqueeze(build, piece, axis) for piece in pieces], axis % (len(pieces[0].shape) + 1))


@handles("constant_pad_nd.default")
def _pad(build: Builder, x: Value, pads: Sequence[int], value: float = 0.0) -> Value:
    if value != 0:
        raise NotImplementedError("padding with a value other than zero")
    shape, place = list(x.shape), [slice(None)] * len(x.shape)
    for i in range(len(pads) // 2):
        axis, (before, after) = len(shape) - 1 - i, pads[2 * i : 2 * i + 2]
        if before < 0 or after < 0:
            x = _slice(build, x, axis, max(0, -before), x.shape[axis] + min(0, after))
            before, after = max(0, before), max(0, after)
        place[axis] = slice(before, before + x.shape[axis])
        shape[axis] = before + x.shape[axis] + after
    return scattered(build, tuple(shape), [(tuple(place), x)])


@handles("diag_embed.default")
def _diag_embed(build: Builder, x: Value, offset: int = 0, first: int = -2, second: int = -1) -> Value:
    if (first, second) != (-2, -1):
        raise NotImplementedError("diag_embed of other axes")
    n = x.shape[-1] + abs(offset)

    def diagonal(a: np.ndarray) -> np.ndarray:
        a = a[..., max(0, -offset) :, max(0, offset) :]
        return np.lib.stride_tricks.as_strided(a, x.shape, (*a.strides[:-2], a.strides[-2] + a.strides[-1]))

    return scattered(build, (*x.shape[:-1], n, n), [(diagonal, x)])


@handles("slice_backward.default")
def _slice_backward(
    build: Builder, x: Value, shape: Sequence[int], axis: int, begin: int, end: int, step: int
) -> Value:
    place = (*[slice(None)] * (axis % len(shape)), slice(begin, end, step))
    return scattered(build, tuple(shape), [(place, x)])


@handles("select_backward.default")
def _select_backward(build: Builder, x: Value, shape: Sequence[int], axis: int, index: int) -> Value:
    place = (*[slice(None)] * (axis % len(shape)), index)
    return scattered(build, tuple(shape), [(place, x)])


@handles("slice_scatter.default")
def _slice_scatter(
    build: Builder,
    base: Value,
    x: Value,
    axis: int = 0,
    begin: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    place = (*[slice(None)] * (axis % len(base.shape)), slice(begin, end, step))
    return scattered(build, base.shape, [(place, x)], base)


@handles("select_scatter.default")
def _select_scatter(build: Builder, base: Value, x: Value, axis: int, index: int) -> Value:
    return scattered(build, base.shape, [((*[slice(None)] * (axis % len(base.shape)), index), x)], base)


@handles("copy.default")
def _copy(build: Builder, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return _expand(build, _to_copy_kind(build, source, x.kind), x.shape)


def _to_copy_kind(build: Builder, x: Value, kind: str) -> Value:
    return x if x.kind == kind else pointwise(build, f"to_{kind}", x)


@handles("repeat.default")
def _repeat(build: Builder, x: Value, counts: Sequence[int]) -> Value:
    lead = len(counts) - len(x.shape)
    for _ in range(lead):
        x = unsqueeze(build, x, 0)
    for axis, count in enumerate(counts):
        if count > 1:
            x = (
                _expand(build, x, [count if i == axis else n for i, n in enumerate(x.shape)])
                if x.shape[axis] == 1
                else _cat(build, [x] * count, axis)
            )
    return x


# ---- selections --------------------------------------------------------------------------------------------------


def _taken(build: Builder, x: Value, function: Callable[[np.ndarray], np.ndarray]) -> Value:
    """Entries at fixed places in any order."""
    return Scalars(function(build.scalars(x).items), x.kind)


@handles("index.Tensor")
def _index(build: Builder, x: Value, indices: Sequence[Any]) -> Value:
    if any(not isinstance(index, Constant | None) for index in indices):
        raise NotImplementedError("indexing by positions that depend on data")
    places = tuple(slice(None) if index is None else index.tensor.numpy() for index in indices)
    return _taken(build, x, lambda a: a[places])


@handles("index_select.default")
def _index_select(build: Builder, x: Value, axis: int, index: Value) -> Value:
    return _index(build, x, [*[None] * (axis % len(x.shape)), index])


@handles("index_put.default")
def _index_put(build: Builder, x: Value, indices: Sequence[Any], source: Value, accumulate: bool = False) -> Value:
    if accumulate or any(not isinstance(index, Constant | None) for index in indices):
        raise NotImplementedError("index_put that adds, or at positions that depend on data")
    items = build.scalars(x).items.copy()
    items[tuple(slice(None) if index is None else index.tensor.numpy() for index in indices)] = build.scalars(
        source
    ).items
    return Scalars(items, x.kind)
