"""Matrix products and factorisations: written out where few terms are left, loops over rows elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..core.integrate import TERMS
from .builder import Builder
from .operators import handles
from .pointwise import pointwise
from .values import Array, Constant, Lazy, Scalars, Value, literal
from .views import scattered

PRODUCT_LIMIT = 128
"""Products up to which a matrix product is written out."""
SPARSE_LIMIT = 400
"""Entries of a sparse factor that may stand in the code."""
UNROLL = 4
"""Rows of the right factor that one pass adds to the result."""


@handles("mm.default")
def matmul(build: Builder, A: Value, B: Value, add: Value | None = None) -> Value:
    """``A B``, or ``add + A B``."""
    (n, k), m = A.shape, B.shape[-1]
    A, B = build.form(A), build.form(B)
    if min(n, k, m) == 0:
        result: Value = Constant(torch.zeros(n, m, dtype=build.dtype))
        return result if add is None else pointwise(build, "add", add, result)
    left = A.nonzero if isinstance(A, Scalars) else np.ones((n, k), bool)
    right = B.nonzero if isinstance(B, Scalars) else np.ones((k, m), bool)
    products = int((left.sum(0) * right.sum(1)).sum())
    if products <= PRODUCT_LIMIT:
        return _written_out(build, A, B, left, right, add)
    if isinstance(A, Scalars) and m >= 2 and _sparse(left):
        result = _sparse_left(build, A, left, build.array(B))
        return result if add is None else pointwise(build, "add", add, result)
    if isinstance(B, Scalars) and n >= 2 and _sparse(right):
        result = _sparse_right(build, build.array(A), B, right)
        return result if add is None else pointwise(build, "add", add, result)
    return _dense(build, build.array(A), build.array(B), add)


def _sparse(flags: np.ndarray) -> bool:
    count = int(flags.sum())
    return count <= SPARSE_LIMIT and count <= max(16, 0.4 * flags.size)


def _written_out(build: Builder, A: Any, B: Any, left: np.ndarray, right: np.ndarray, add: Value | None) -> Scalars:
    (n, k), m = A.shape, B.shape[1]
    a, b = build.scalars(A).items, build.scalars(B).items
    start = None if add is None else np.broadcast_to(build.scalars(build.form(add)).items, (n, m))
    items = np.empty((n, m), object)
    for i, j in np.ndindex(n, m):
        terms: list[Any] = [] if start is None else [start[i, j]]
        for t in range(k):
            if left[i, t] and right[t, j]:
                terms.append(_term(a[i, t], b[t, j]))
        items[i, j] = _total(build, terms)
    return Scalars(items, "real")


def _term(x: Any, y: Any) -> Any:
    if not isinstance(x, str) and not isinstance(y, str):
        return x * y
    for one, other in ((x, y), (y, x)):
        if not isinstance(one, str) and one in (1, -1):
            return other if one == 1 else f"-{other}"
    return f"{literal(x, 'real')} * {literal(y, 'real')}"


def _total(build: Builder, terms: list[Any]) -> Any:
    number = sum(term for term in terms if not isinstance(term, str))
    named = [term for term in terms if isinstance(term, str)]
    if not named:
        return float(number)
    if number:
        named.insert(0, literal(number, "real"))
    if len(named) == 1 and " " not in named[0] and not named[0].startswith("-"):
        return named[0]
    return build.define(" + ".join(f"({term})" if term.startswith("-") else term for term in named), "real")


def _sparse_left(build: Builder, A: Scalars, flags: np.ndarray, B: Array) -> Array:
    """Row by row: a loop over the columns of ``B`` with the products of the row's nonzero entries."""
    n, m = A.shape[0], B.shape[1]
    result = build.buffer(n * m).whole((n, m))
    rows = []
    for i in range(n):
        row = B.view(lambda b: b[:1])
        terms = [
            _product(A.items[i, t], row.view(lambda b, t=t: B.index[t : t + 1]).at(["", "j"]))  # type: ignore[misc]
            for t in np.flatnonzero(flags[i])
        ]
        target = result.view(lambda r, i=i: r[i : i + 1]).at(["", "j"])  # type: ignore[misc]
        rows.append(f"for (int j = 0; j < {m}; ++j) {{ {target} = {' + '.join(terms) or 'R(0.0)'}; }}")
    build.block("\n".join(rows), result.buffer)
    return result


def _sparse_right(build: Builder, A: Array, B: Scalars, flags: np.ndarray) -> Array:
    """The transposed product of the transposed factors, whose inner loops are over neighbours."""
    rows = A.view(lambda a: a.T)
    if rows.strides[1] > 1:
        rows = build.realize(rows)
    return _sparse_left(build, B.view(lambda b: b.T), flags.T, rows).view(lambda r: r.T)


def _product(known: Any, other: str) -> str:
    return other if not isinstance(known, str) and known == 1 else f"{literal(known, 'real')} * {other}"


def _dense(build: Builder, A: Array, B: Array, add: Value | None) -> Array:
    """Rows of ``B`` are added to a row of the result, several in one pass: the inner loop is over neighbours."""
    (n, k), m = A.shape, B.shape[1]
    result = build.buffer(n * m).whole((n, m))
    start: Any = None
    if add is not None:
        start = build.form(add)
        if isinstance(start, Scalars):
            single = start.single
            start = build.array(start) if single is None else Scalars(np.array(single, object), "real")
        start = Lazy("{0}", (start,), np.broadcast_shapes(start.shape, (n, m)), "real")
    if m == 1 or (n == 1 and B.strides[1] > 1 and B.strides[0] <= 1):
        begin = "R(0.0)" if start is None else start.at(["i", "j"])
        body = f"sum += {A.at(['i', 't'])} * {B.at(['t', 'j'])};"
        loop = f"real sum = {begin}; for (int t = 0; t < {k}; ++t) {{ {body} }} {result.at(['i', 'j'])} = sum;"
        build.block(f"for (int i = 0; i < {n}; ++i) for (int j = 0; j < {m}; ++j) {{ {loop} }}", result.buffer)
        return result
    if B.strides[1] > 1:
        B = build.realize(B)  # contiguous rows, which can be read several at a time
    begin = "R(0.0)" if start is None else start.at(["i", "j"])
    lines = [f"for (int j = 0; j < {m}; ++j) {{ {result.at(['i', 'j'])} = {begin}; }}"]
    full = k - k % UNROLL
    if full:
        lines.append(f"for (int t = 0; t < {full}; t += {UNROLL}) {{ {_pass(A, B, result, m, UNROLL, 't')} }}")
    if k - full:
        lines.append(f"{{ {_pass(A, B, result, m, k - full, str(full))} }}")
    body = "\n".join(lines)
    build.block(f"for (int i = 0; i < {n}; ++i) {{\n{body}\n}}", result.buffer)
    return result


def _pass(A: Array, B: Array, result: Array, m: int, count: int, t: str) -> str:
    heads = [f"const real a{u} = {A.at(['i', f'({t} + {u})'])};" for u in range(count)]
    terms = " + ".join(f"a{u} * {B.at([f'({t} + {u})', 'j'])}" for u in range(count))
    return " ".join([*heads, f"for (int j = 0; j < {m}; ++j) {{ {result.at(['i', 'j'])} += {terms}; }}"])


@handles("bmm.default")
def bmm(build: Builder, A: Value, B: Value) -> Value:
    A, B = build.form(A), build.form(B)
    A, B = (build.realize(x) if isinstance(x, Lazy) else x for x in (A, B))
    parts = [matmul(build, A.view(lambda a, i=i: a[i]), B.view(lambda b, i=i: b[i])) for i in range(A.shape[0])]  # type: ignore[misc]
    if len(parts) == 1:
        part = build.form(parts[0])
        return part.view(lambda a: a[None])
    return scattered(build, (len(parts), *parts[0].shape), list(enumerate(parts)))


@handles("addmm.default")
def _addmm(build: Builder, x: Value, A: Value, B: Value, beta: float = 1, alpha: float = 1) -> Value:
    if beta == alpha == 1:
        return matmul(build, A, B, x)
    return _scaled_sum(build, x, matmul(build, A, B), beta, alpha)


@handles("baddbmm.default")
def _baddbmm(build: Builder, x: Value, A: Value, B: Value, beta: float = 1, alpha: float = 1) -> Value:
    return _scaled_sum(build, x, bmm(build, A, B), beta, alpha)


def _scaled_sum(build: Builder, x: Value, product: Value, beta: float, alpha: float) -> Value:
    if beta == alpha:
        total = pointwise(build, "add", x, product)
        return total if beta == 1 else pointwise(build, "mul", total, beta)
    return pointwise(build, "add", pointwise(build, "mul", x, beta), pointwise(build, "mul", product, alpha))


@handles("mv.default")
def _mv(build: Builder, A: Value, x: Value) -> Value:
    column = build.form(x).view(lambda a: a[:, None])
    return build.form(matmul(build, A, column)).view(lambda a: a[:, 0])


@handles("addmv.default")
def _addmv(build: Builder, x: Value, A: Value, y: Value, beta: float = 1, alpha: float = 1) -> Value:
    return _scaled_sum(build, x, _mv(build, A, y), beta, alpha)


# ---- factorisations: calls of C functions that stand in front of the step ----------------------------------------


def _matrices(build: Builder, x: Value) -> tuple[Array, list[str]]:
    """A contiguous array, and the C address of each matrix in it."""
    array = build.array(build.form(x))
    if not array.contiguous or array.buffer.scale is not None:
        array = build.realize(array)
    size = int(np.prod(array.shape[-2:]))
    count = int(np.prod(array.shape[:-2]))
    return array, [f"&@{array.buffer.key}[{array.offset + i * size}]" for i in range(count)]


@handles("linalg_cholesky_ex.default")
def _cholesky(build: Builder, A: Value, upper: bool = False, check_errors: bool = False) -> tuple[Value, Value]:
    if upper:
        raise NotImplementedError("the upper Cholesky factor")
    n = A.shape[-1]
    array, places = _matrices(build, A)
    factor = build.buffer(int(np.prod(array.shape))).whole(array.shape)
    failed = build.buffer(len(places), "int").whole(array.shape[:-2])
    calls = [
        f"@{failed.buffer.key}[{i}] = cholesky(&@{factor.buffer.key}[{i * n * n}], {place}, {n});"
        for i, place in enumerate(places)
    ]
    build.block("\n".join(calls), factor.buffer, failed.buffer)
    return factor, failed


@handles("linalg_solve_triangular.default")
def _solve_triangular(
    build: Builder, A: Value, B: Value, upper: bool, left: bool = True, unitriangular: bool = False
) -> Value:
    if not left or unitriangular:
        raise NotImplementedError("triangular systems from the right, or with a unit diagonal")
    _, places = _matrices(build, A)
    right, columns = _matrices(build, B)
    n, k = right.shape[-2:]
    result = build.buffer(int(np.prod(right.shape))).whole(right.shape)
    form = "upper" if upper else "lower"
    calls = [
        f"solve_{form}(&@{result.buffer.key}[{i * n * k}], {places[i]}, {column}, {n}, {k});"
        for i, column in enumerate(columns)
    ]
    build.block("\n".join(calls), result.buffer)
    return result


@handles("cholesky_solve.default")
def _cholesky_solve(build: Builder, B: Value, L: Value, upper: bool = False) -> Value:
    half = _solve_triangular(build, L, B, upper=False)
    return _solve_triangular(build, build.form(_array(build, L)).view(lambda a: a.swapaxes(-1, -2)), half, upper=True)


def _array(build: Builder, x: Value) -> Array:
    return build.array(build.form(x))


@handles("linalg_matrix_exp.default")
def _matrix_exp(build: Builder, A: Value) -> Value:
    n = A.shape[-1]
    array, places = _matrices(build, A)
    result = build.buffer(int(np.prod(array.shape))).whole(array.shape)
    work = build.buffer(3 * n * n)
    calls = [
        f"matrix_exponential(&@{result.buffer.key}[{i * n * n}], {place}, {n}, &@{work.key}[0]);"
        for i, place in enumerate(places)
    ]
    build.block("\n".join(calls), result.buffer, work)
    return result


@handles("discretize.default", library="fwnkf")
def _discretize(build: Builder, drift: Value, B: Value, density: Value, dt: Value) -> tuple[Value, Value, Value]:
    n, p = B.shape
    places = [_matrices(build, item)[1][0] if item.shape[-1] else "0" for item in (drift, B, density)]
    lead = tuple(dt.shape)
    steps = [literal(item, "real") for item in build.scalars(build.form(dt)).items.reshape(-1)]
    sizes = (n * n, n * p, n * n)
    results = [build.buffer(len(steps) * size).whole((*lead, n, size // n)) for size in sizes]
    work = build.buffer(3 * (2 * n + p) ** 2)
    terms = TERMS[build.dtype]
    calls = []
    for i, step in enumerate(steps):
        targets = [f"&@{r.buffer.key}[{i * size}]" if size else "0" for r, size in zip(results, sizes, strict=True)]
        calls.append(f"discretize({', '.join((*targets, *places, step))}, {n}, {p}, {terms}, &@{work.key}[0]);")
    build.block("\n".join(calls), *(item.buffer for item in results), work)
    return results[0], results[1], results[2]
