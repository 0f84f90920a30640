"""ATen operators other than linear algebra: views, joins, reductions, and those made of elementwise ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from .builder import CTYPES, SCALAR_LIMIT, Builder, merged_axes, nest
from .pointwise import as_value, entry, pointwise
from .values import KINDS, Array, Constant, Lazy, Scalars, Value, shares

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
"""Handlers by the name of the operator; arguments are the builder and the arguments of the operator."""
WORK_LIMIT = 256
"""Terms up to which a reduction with few results is written out."""


def handles(*names: str) -> Callable[[Handler], Handler]:
    def add(function: Handler) -> Handler:
        for name in names:
            HANDLERS[f"aten.{name}"] = function
        return function

    return add


# ---- elementwise -------------------------------------------------------------------------------------------------


def _direct(name: str) -> Handler:
    return lambda build, *arguments, **_: pointwise(build, name, *arguments)


for _name in ("neg", "abs", "sqrt", "exp", "log", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan"):
    handles(f"{_name}.default")(_direct(_name))
for _name in ("atan2", "tanh", "sigmoid", "round", "floor", "relu", "minimum", "maximum"):
    handles(f"{_name}.default")(_direct(_name))
for _name in ("mul", "lt", "le", "gt", "ge", "eq", "ne"):
    handles(f"{_name}.Tensor", f"{_name}.Scalar")(_direct(_name))
for _name, _operator in (("and", "and"), ("or", "or"), ("xor", "xor")):
    handles(f"bitwise_{_name}.Tensor", f"logical_{_name}.default")(_direct(_operator))
handles("div.Tensor", "div.Scalar")(_direct("div"))
handles("where.self", "where.ScalarOther", "where.ScalarSelf")(_direct("where"))
handles("bitwise_not.default", "logical_not.default")(_direct("not"))
handles("lerp.Tensor", "lerp.Scalar")(_direct("lerp"))
handles("isfinite.default")(_direct("isfinite"))


@handles("add.Tensor", "add.Scalar")
def _add(build: Builder, x: Any, y: Any, alpha: float = 1) -> Value:
    return pointwise(build, "add", x, y if alpha == 1 else pointwise(build, "mul", y, alpha))


@handles("sub.Tensor", "sub.Scalar")
def _sub(build: Builder, x: Any, y: Any, alpha: float = 1) -> Value:
    return pointwise(build, "sub", x, y if alpha == 1 else pointwise(build, "mul", y, alpha))


@handles("rsub.Scalar", "rsub.Tensor")
def _rsub(build: Builder, x: Any, y: Any, alpha: float = 1) -> Value:
    return _sub(build, y, x, alpha)


@handles("addcmul.default")
def _addcmul(build: Builder, x: Any, y: Any, z: Any, value: float = 1) -> Value:
    product = pointwise(build, "mul", y, z)
    if value == -1:
        return pointwise(build, "sub", x, product)
    return pointwise(build, "add", x, product if value == 1 else pointwise(build, "mul", product, value))


@handles("reciprocal.default")
def _reciprocal(build: Builder, x: Value) -> Value:
    return pointwise(build, "div", 1.0, x)


@handles("rsqrt.default")
def _rsqrt(build: Builder, x: Value) -> Value:
    return pointwise(build, "div", 1.0, pointwise(build, "sqrt", x))


@handles("square.default")
def _square(build: Builder, x: Value) -> Value:
    return _pow(build, x, 2)


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(build: Builder, x: Any, y: Any) -> Value:
    if isinstance(y, int | float) and y in (1, 2, 3, 4):
        x = _once(build, x)
        result = x
        for _ in range(int(y) - 1):
            result = pointwise(build, "mul", result, x)
        return result
    if isinstance(y, int | float) and y in (0.5, -0.5, -1):
        root = pointwise(build, "sqrt", x) if abs(y) == 0.5 else x
        return root if y > 0 else pointwise(build, "div", 1.0, root)
    return pointwise(build, "pow", x, y)


def _once(build: Builder, x: Any) -> Any:
    """A value that is used several times, computed once."""
    return build.realize(x) if isinstance(x, Lazy) else x


@handles("clamp.default", "clamp_min.default", "clamp_max.default", "clamp.Tensor", "clamp_min.Tensor")
def _clamp(build: Builder, x: Value, low: Any = None, high: Any = None) -> Value:
    x = x if low is None else pointwise(build, "maximum", x, low)
    return x if high is None else pointwise(build, "minimum", x, high)


@handles("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(build: Builder, x: Value, high: Any) -> Value:
    return pointwise(build, "minimum", x, high)


@handles("elu.default")
def _elu(build: Builder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    if (alpha, scale, input_scale) != (1, 1, 1):
        raise NotImplementedError("elu with scales")
    return pointwise(build, "elu", x)


@handles("remainder.Scalar", "remainder.Tensor")
def _remainder(build: Builder, x: Value, y: Any) -> Value:
    integers = x.kind != "real" and as_value(y).kind != "real"
    return pointwise(build, "int_remainder" if integers else "remainder", x, y)


@handles("tanh_backward.default")
def _tanh_backward(build: Builder, gradient: Value, result: Value) -> Value:
    result = _once(build, result)
    return pointwise(build, "mul", gradient, _rsub(build, pointwise(build, "mul", result, result), 1.0))


@handles("sigmoid_backward.default")
def _sigmoid_backward(build: Builder, gradient: Value, result: Value) -> Value:
    result = _once(build, result)
    slope = pointwise(build, "mul", result, _rsub(build, result, 1.0))
    return pointwise(build, "mul", gradient, slope)


@handles("logit.default")
def _logit(build: Builder, x: Value, eps: float | None = None) -> Value:
    if eps is not None:
        x = _clamp(build, x, eps, 1 - eps)
    x = _once(build, x)
    return pointwise(build, "log", pointwise(build, "div", x, _rsub(build, x, 1.0)))


@handles("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(build: Builder, x: Value, mask: Value, value: Any) -> Value:
    return pointwise(build, "where", mask, value, x)


@handles("_to_copy.default")
def _to_copy(build: Builder, x: Value, dtype: torch.dtype | None = None, **_: Any) -> Value:
    wanted = x.kind if dtype is None else KINDS[dtype]
    return x if wanted == x.kind else pointwise(build, f"to_{wanted}", x)


@handles("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def _same(build: Builder, x: Value, **_: Any) -> Value:
    return x


# ---- views -------------------------------------------------------------------------------------------------------


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
def _permute(build: Builder, x: Value, order: Sequence[int]) -> Value:
    return viewed(build, x, lambda a: a.transpose(tuple(order)))


@handles("transpose.int")
def _transpose(build: Builder, x: Value, first: int, second: int) -> Value:
    return viewed(build, x, lambda a: a.swapaxes(first, second))


@handles("t.default")
def _t(build: Builder, x: Value) -> Value:
    return viewed(build, x, lambda a: a.T)


@handles("unsqueeze.default")
def _unsqueeze(build: Builder, x: Value, axis: int) -> Value:
    return viewed(build, x, lambda a: np.expand_dims(a, axis))


@handles("squeeze.dim", "squeeze.dims")
def _squeeze(build: Builder, x: Value, axes: Any) -> Value:
    chosen = [axis for axis in np.atleast_1d(axes) if x.shape[axis] == 1]
    return viewed(build, x, lambda a: np.squeeze(a, tuple(int(axis) for axis in chosen)))


@handles("select.int")
def _select(build: Builder, x: Value, axis: int, index: int) -> Value:
    return viewed(build, x, lambda a: np.moveaxis(a, axis, 0)[(index, ...)])


@handles("slice.Tensor")
def _slice(build: Builder, x: Value, axis: int = 0, begin: int | None = None, end: int | None = None, step: int = 1) -> Value:
    return viewed(build, x, lambda a: np.moveaxis(np.moveaxis(a, axis, 0)[begin:end:step], 0, axis))


@handles("split.Tensor", "split_with_sizes.default")
def _split(build: Builder, x: Value, sizes: Any, axis: int = 0) -> tuple[Value, ...]:
    if isinstance(sizes, int):
        whole = x.shape[axis]
        sizes = [min(sizes, whole - begin) for begin in range(0, whole, sizes)]
    ends = np.cumsum(sizes)
    return tuple(_slice(build, x, axis, int(end - size), int(end)) for size, end in zip(sizes, ends, strict=True))


@handles("unbind.int")
def _unbind(build: Builder, x: Value, axis: int = 0) -> tuple[Value, ...]:
    return tuple(_select(build, x, axis, index) for index in range(x.shape[axis]))


@handles("diagonal.default")
def _diagonal(build: Builder, x: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    return viewed(build, x, lambda a: a.diagonal(offset, first, second))


# ---- joins -------------------------------------------------------------------------------------------------------


def scattered(build: Builder, shape: tuple[int, ...], pieces: list[tuple[Any, Value]], base: Value | None = None) -> Value:
    """A tensor of pieces, each at the places that a numpy index or view function selects; zero, or ``base``, elsewhere."""
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
        build.fill(whole, start)
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
def _stack(build: Builder, pieces: Sequence[Value], axis: int = 0) -> Value:
    return _cat(build, [_unsqueeze(build, piece, axis) for piece in pieces], axis % (len(pieces[0].shape) + 1))


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
def _slice_backward(build: Builder, x: Value, shape: Sequence[int], axis: int, begin: int, end: int, step: int) -> Value:
    place = (*[slice(None)] * (axis % len(shape)), slice(begin, end, step))
    return scattered(build, tuple(shape), [(place, x)])


@handles("select_backward.default")
def _select_backward(build: Builder, x: Value, shape: Sequence[int], axis: int, index: int) -> Value:
    place = (*[slice(None)] * (axis % len(shape)), index)
    return scattered(build, tuple(shape), [(place, x)])


@handles("slice_scatter.default")
def _slice_scatter(
    build: Builder, base: Value, x: Value, axis: int = 0, begin: int | None = None, end: int | None = None, step: int = 1
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
        x = _unsqueeze(build, x, 0)
    for axis, count in enumerate(counts):
        if count > 1:
            x = _expand(build, x, [count if i == axis else n for i, n in enumerate(x.shape)]) if x.shape[
                axis
            ] == 1 else _cat(build, [x] * count, axis)
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
    items[tuple(slice(None) if index is None else index.tensor.numpy() for index in indices)] = build.scalars(source).items
    return Scalars(items, x.kind)


@handles("gather.default")
def _gather(build: Builder, x: Value, axis: int, index: Value) -> Value:
    """Each result is chosen among the entries along the axis."""
    source, places = np.moveaxis(build.scalars(x).items, axis, -1), np.moveaxis(build.scalars(index).items, axis, -1)
    items = np.empty(places.shape, object)
    for place in np.ndindex(*places.shape):
        line, wanted = source[place[:-1]], places[place]
        chosen = line[-1]
        for i in reversed(range(len(line) - 1)):
            here = entry(build, "eq", [wanted, i], "int", "bool")
            chosen = entry(build, "where", [here, line[i], chosen], x.kind, x.kind)
        items[place] = chosen
    return Scalars(np.moveaxis(items, -1, axis), x.kind)


@handles("argmax.default")
def _argmax(build: Builder, x: Value, axis: int | None = None, keepdim: bool = False) -> Value:
    items = np.moveaxis(build.scalars(x).items, -1 if axis is None else axis, -1)
    result = np.empty(items.shape[:-1], object)
    for place in np.ndindex(*result.shape):
        best: Any = 0
        largest = items[place][0]
        for i, item in enumerate(items[place][1:], 1):
            above = entry(build, "gt", [item, largest], "real", "bool")
            best = entry(build, "where", [above, i, best], "int", "int")
            largest = entry(build, "where", [above, item, largest], "real", "real")
        result[place] = best
    return Scalars(np.expand_dims(result, axis) if keepdim and axis is not None else result, "int")


@handles("cumsum.default")
def _cumsum(build: Builder, x: Value, axis: int, **_: Any) -> Value:
    return _running(build, x, axis, "add")


@handles("cummax.default")
def _cummax(build: Builder, x: Value, axis: int) -> tuple[Value, None]:
    return _running(build, x, axis, "maximum"), None


def _running(build: Builder, x: Value, axis: int, name: str) -> Value:
    items = np.moveaxis(build.scalars(x).items.copy(), axis, 0)
    for i in range(1, len(items)):
        for place in np.ndindex(*items.shape[1:]):
            items[(i, *place)] = entry(build, name, [items[(i - 1, *place)], items[(i, *place)]], x.kind, x.kind)
    return Scalars(np.moveaxis(items, 0, axis), x.kind)


# ---- reductions --------------------------------------------------------------------------------------------------

STARTS = {"add": "R(0.0)", "maximum": "-INFINITY", "minimum": "INFINITY", "or": "0", "and": "1"}
UPDATES = {
    "add": "sum += {0};",
    "maximum": "sum = larger(sum, {0});",
    "minimum": "sum = smaller(sum, {0});",
    "or": "sum |= {0};",
    "and": "sum &= {0};",
}


def reduced(build: Builder, name: str, x: Value, axes: Any, keepdim: bool = False) -> Value:
    """An associative operator over axes."""
    rank = len(x.shape)
    chosen = sorted({axis % rank for axis in np.atleast_1d(axes).tolist()}) if axes not in (None, []) else [*range(rank)]
    kept = [axis for axis in range(rank) if axis not in chosen]
    if name in ("or", "and") and x.kind != "bool":
        x = pointwise(build, "to_bool", x)
    if name == "add" and x.kind == "bool":
        x = pointwise(build, "to_int", x)
    x = _permute(build, x, [*kept, *chosen])
    shape = x.shape[: len(kept)]
    x = build.form(x)
    size = int(np.prod(shape))
    if isinstance(x, Scalars) or (size <= SCALAR_LIMIT and np.prod(x.shape) <= WORK_LIMIT):
        items = build.scalars(x).items.reshape(*shape, -1)
        result: Value = Scalars(np.empty(shape, object), x.kind)
        for place in np.ndindex(*shape):
            terms = list(items[place])
            total = terms[0] if terms else 0
            for term in terms[1:]:
                total = entry(build, name, [total, term], x.kind, x.kind)
            result.items[place] = total
    else:
        made = build.buffer(size, x.kind).whole(shape)
        leaves = x.leaves() if isinstance(x, Lazy) else [x]
        names = [f"i{axis}" for axis in range(len(shape))]
        inner_shape = x.shape[len(kept) :]
        sizes, function = merged_axes(inner_shape, [leaf.view(lambda a: np.broadcast_to(a, x.shape)[(0,) * len(shape)]) for leaf in leaves])
        inner = [f"k{axis}" for axis in range(len(sizes))]

        def folded_axes(a: np.ndarray) -> np.ndarray:
            steps = function(a[(0,) * len(shape)]).strides
            return np.lib.stride_tricks.as_strided(a, (*shape, *sizes), (*a.strides[: len(shape)], *steps))

        x = x.view(lambda a: folded_axes(np.broadcast_to(a, (*shape, *inner_shape))))
        loop = nest(inner, sizes, UPDATES[name].format(x.at([*names, *inner])))
        ctype = CTYPES[x.kind]
        build.block(nest(names, list(shape), f"{ctype} sum = {STARTS[name]}; {loop} {made.at(names)} = sum;"), made.buffer)
        result = made
    for axis in chosen if keepdim else []:
        result = _unsqueeze(build, result, axis)
    return result


@handles("sum.dim_IntList", "sum.default")
def _sum(build: Builder, x: Value, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
    return reduced(build, "add", x, axes, keepdim)


@handles("mean.dim", "mean.default")
def _mean(build: Builder, x: Value, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
    total = reduced(build, "add", x, axes, keepdim)
    return pointwise(build, "div", total, float(np.prod(x.shape) / np.prod(total.shape)))


@handles("amax.default")
def _amax(build: Builder, x: Value, axes: Any = None, keepdim: bool = False) -> Value:
    return reduced(build, "maximum", x, axes, keepdim)


@handles("amin.default")
def _amin(build: Builder, x: Value, axes: Any = None, keepdim: bool = False) -> Value:
    return reduced(build, "minimum", x, axes, keepdim)


@handles("any.dim", "any.dims", "any.default")
def _any(build: Builder, x: Value, axes: Any = None, keepdim: bool = False) -> Value:
    return reduced(build, "or", x, axes, keepdim)


@handles("all.dim", "all.dims", "all.default")
def _all(build: Builder, x: Value, axes: Any = None, keepdim: bool = False) -> Value:
    return reduced(build, "and", x, axes, keepdim)


@handles("linalg_vector_norm.default")
def _norm(build: Builder, x: Value, order: float = 2, axes: Any = None, keepdim: bool = False, **_: Any) -> Value:
    if order != 2:
        raise NotImplementedError(f"vector norm of order {order}")
    x = _once(build, x)
    return pointwise(build, "sqrt", reduced(build, "add", pointwise(build, "mul", x, x), axes, keepdim))


def _shifted(build: Builder, x: Value, axis: int) -> tuple[Value, Value]:
    shifted = _once(build, pointwise(build, "sub", x, reduced(build, "maximum", x, axis, True)))
    return shifted, reduced(build, "add", pointwise(build, "exp", shifted), axis, True)


@handles("_log_softmax.default")
def _log_softmax(build: Builder, x: Value, axis: int, half: bool = False) -> Value:
    shifted, total = _shifted(build, _once(build, x), axis)
    return pointwise(build, "sub", shifted, pointwise(build, "log", total))


@handles("_softmax.default")
def _softmax(build: Builder, x: Value, axis: int, half: bool = False) -> Value:
    shifted, total = _shifted(build, _once(build, x), axis)
    return pointwise(build, "div", pointwise(build, "exp", shifted), total)


@handles("linalg_cross.default")
def _cross(build: Builder, x: Value, y: Value, dim: int = -1) -> Value:
    a, b = _unbind(build, x, dim), _unbind(build, y, dim)
    rows = []
    for i, j in ((1, 2), (2, 0), (0, 1)):
        rows.append(_sub(build, pointwise(build, "mul", a[i], b[j]), pointwise(build, "mul", a[j], b[i])))
    return _stack(build, rows, dim)
