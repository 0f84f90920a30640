"""ATen operators that reduce axes, or choose along them by values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .builder import CTYPES, SCALAR_LIMIT, Builder, merged_axes, nest
from .operators import handles, once
from .pointwise import entry, pointwise
from .values import Lazy, Scalars, Value
from .views import permute, stack, unbind, unsqueeze

WORK_LIMIT = 256
"""Terms up to which a reduction with few results is written out."""


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


LANES = 8
"""Sums that run side by side in a long reduction: additions that wait for each other take four cycles each."""


def _loop(name: str, ctype: str, sizes: list[int], inner: list[str], entry_at: Callable[[list[str]], str]) -> str:
    """C that leaves the reduction of all entries in ``sum``."""
    start, update = STARTS[name], UPDATES[name]
    if len(sizes) != 1 or sizes[0] < 4 * LANES:
        return f"{ctype} sum = {start}; {nest(inner, sizes, update.format(entry_at(inner)))}"
    full = sizes[0] - sizes[0] % LANES
    lanes = update.replace("sum", "sums[l]")
    return " ".join(
        (
            f"{ctype} sums[{LANES}]; for (int l = 0; l < {LANES}; ++l) {{ sums[l] = {start}; }}",
            f"for (int k = 0; k < {full}; k += {LANES}) for (int l = 0; l < {LANES}; ++l) "
            f"{{ {lanes.format(entry_at(['(k + l)']))} }}",
            f"{ctype} sum = sums[0]; for (int l = 1; l < {LANES}; ++l) {{ {update.format('sums[l]')} }}",
            f"for (int k = {full}; k < {sizes[0]}; ++k) {{ {update.format(entry_at(['k']))} }}",
        )
    )


def reduced(build: Builder, name: str, x: Value, axes: Any, keepdim: bool = False) -> Value:
    """An associative operator over axes."""
    rank = len(x.shape)
    chosen = (
        sorted({axis % rank for axis in np.atleast_1d(axes).tolist()}) if axes not in (None, []) else [*range(rank)]
    )
    kept = [axis for axis in range(rank) if axis not in chosen]
    if name in ("or", "and") and x.kind != "bool":
        x = pointwise(build, "to_bool", x)
    if name == "add" and x.kind == "bool":
        x = pointwise(build, "to_int", x)
    x = permute(build, x, [*kept, *chosen])
    shape = x.shape[: len(kept)]
    x = build.form(x)
    size = int(np.prod(shape))
    if isinstance(x, Scalars) or (size <= SCALAR_LIMIT and np.prod(x.shape) <= WORK_LIMIT):
        items = build.scalars(x).items.reshape(*shape, -1)
        totals = np.empty(shape, object)
        result: Value = Scalars(totals, x.kind)
        for place in np.ndindex(*shape):
            terms = list(items[place])
            total = terms[0] if terms else 0
            for term in terms[1:]:
                total = entry(build, name, [total, term], x.kind, x.kind)
            totals[place] = total
    else:
        made = build.buffer(size, x.kind).whole(shape)
        leaves = x.leaves() if isinstance(x, Lazy) else [x]
        names = [f"i{axis}" for axis in range(len(shape))]
        inner_shape = x.shape[len(kept) :]
        sizes, function = merged_axes(
            inner_shape, [leaf.view(lambda a: np.broadcast_to(a, x.shape)[(0,) * len(shape)]) for leaf in leaves]
        )
        inner = [f"k{axis}" for axis in range(len(sizes))]

        def folded_axes(a: np.ndarray) -> np.ndarray:
            steps = function(a[(0,) * len(shape)]).strides
            return np.lib.stride_tricks.as_strided(a, (*shape, *sizes), (*a.strides[: len(shape)], *steps))

        folded_x = x.view(lambda a: folded_axes(np.broadcast_to(a, (*shape, *inner_shape))))
        total = _loop(name, CTYPES[x.kind], sizes, inner, lambda places: folded_x.at([*names, *places]))
        build.block(nest(names, list(shape), f"{total} {made.at(names)} = sum;"), made.buffer)
        result = made
    for axis in chosen if keepdim else []:
        result = unsqueeze(build, result, axis)
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
    x = once(build, x)
    return pointwise(build, "sqrt", reduced(build, "add", pointwise(build, "mul", x, x), axes, keepdim))


def _shifted(build: Builder, x: Value, axis: int) -> tuple[Value, Value]:
    shifted = once(build, pointwise(build, "sub", x, reduced(build, "maximum", x, axis, True)))
    return shifted, reduced(build, "add", pointwise(build, "exp", shifted), axis, True)


@handles("_log_softmax.default")
def _log_softmax(build: Builder, x: Value, axis: int, half: bool = False) -> Value:
    shifted, total = _shifted(build, once(build, x), axis)
    return pointwise(build, "sub", shifted, pointwise(build, "log", total))


@handles("_softmax.default")
def _softmax(build: Builder, x: Value, axis: int, half: bool = False) -> Value:
    shifted, total = _shifted(build, once(build, x), axis)
    return pointwise(build, "div", pointwise(build, "exp", shifted), total)


@handles("linalg_cross.default")
def _cross(build: Builder, x: Value, y: Value, dim: int = -1) -> Value:
    a, b = unbind(build, x, dim), unbind(build, y, dim)
    rows = []
    for i, j in ((1, 2), (2, 0), (0, 1)):
        rows.append(pointwise(build, "sub", pointwise(build, "mul", a[i], b[j]), pointwise(build, "mul", a[j], b[i])))
    return stack(build, rows, dim)
