"""Operators written with elementary ones, for formats that have none of their own (ONNX has no Cholesky)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.integrate import MOST_DOUBLINGS, discretize_with
from ..shapes import Float, Int


def cholesky_ex(
    A: Float[Tensor, "*B n n"], *, upper: bool = False, check_errors: bool = False
) -> tuple[Float[Tensor, "*B n n"], Int[Tensor, "*B"]]:
    """The lower factor column by column, and 1 where a pivot is not positive (and the factor means nothing)."""
    n = A.shape[-1]
    rest, columns, smallest = A, [], None
    for j in range(n):
        pivot = rest[..., j, j]
        smallest = pivot if smallest is None else torch.minimum(smallest, pivot)
        column = rest[..., :, j] * torch.rsqrt(torch.where(pivot > 0, pivot, torch.ones_like(pivot))).unsqueeze(-1)
        below = (torch.arange(n) >= j).to(A.dtype)
        column = column * below
        columns.append(column)
        rest = rest - column.unsqueeze(-1) * column.unsqueeze(-2)
    assert smallest is not None
    return torch.stack(columns, -1), (~(smallest > 0)).to(torch.int32)


def solve_triangular(
    A: Float[Tensor, "*B n n"],
    B: Float[Tensor, "*B n k"],
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Float[Tensor, "*B n k"]:
    """Substitution, row by row."""
    n = A.shape[-1]
    rows: dict[int, Tensor] = {}
    for i in reversed(range(n)) if upper else range(n):
        row = B[..., i, :]
        for j, other in rows.items():
            row = row - A[..., i, j].unsqueeze(-1) * other
        rows[i] = row / A[..., i, i].unsqueeze(-1)
    return torch.stack([rows[i] for i in range(n)], -2)


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """``(L Lᵀ)⁻¹ B``."""
    return solve_triangular(L.mT, solve_triangular(L, B, upper=False), upper=True)


def matrix_exp(A: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """The transition over one second of a system with the drift ``A`` and no noise."""
    return discretize_with(A, A[..., :0], torch.zeros_like(A), torch.ones_like(A[..., 0, 0]), MOST_DOUBLINGS)[0]


def cummax(x: Tensor, dim: int) -> tuple[Tensor, Int[Tensor, "..."]]:
    """The largest of all items so far and the place of the last such item."""
    x = x.movedim(dim, -1)
    places = torch.arange(x.shape[-1])
    earlier = places <= places.unsqueeze(-1)
    # the first item is among those so far of every place
    seen = torch.where(earlier, x.unsqueeze(-2), x[..., :1].unsqueeze(-2))
    values = seen.amax(-1)
    last = torch.where(earlier & (seen == values.unsqueeze(-1)), places, 0).amax(-1)
    return values.movedim(-1, dim), last.movedim(-1, dim)


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """In double precision: that of single precision, and two steps of Newton's method for ``x sin(t) = y cos(t)``.

    ONNX Runtime has the arctangent in single precision only.
    """
    if y.dtype != torch.float64:
        return NotImplemented
    size = torch.maximum(y.abs(), x.abs())
    size = torch.where(size > 0, size, torch.ones_like(size))
    y, x = y / size, x / size  # so that both are in the range of single precision
    angle = torch.atan2(y.float(), x.float()).double()
    for _ in range(2):
        sine, cosine = angle.sin(), angle.cos()
        slope = x * cosine + y * sine
        angle = angle - (x * sine - y * cosine) / torch.where(slope > 0, slope, torch.ones_like(slope))
    return angle


WHOLE: dict[Any, Callable[..., Any]] = {
    torch.ops.fwnkf.discretize.default: partial(discretize_with, doublings=MOST_DOUBLINGS),
}
"""Operators of this package, for formats that know only those of torch."""
aten: Any = torch.ops.aten
TABLE: dict[Any, Callable[..., Any]] = {
    aten.linalg_cholesky_ex.default: cholesky_ex,
    aten.linalg_solve_triangular.default: solve_triangular,
    aten.cholesky_solve.default: cholesky_solve,
    aten.linalg_matrix_exp.default: matrix_exp,
    aten.cummax.default: cummax,
    aten.atan2.default: atan2,
    **WHOLE,
}
"""For ``decomposition_table`` of ``make_fx``."""
