"""Least squares over more rows than fit into memory, dense or sparse, with the covariance of the coefficients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float

SINGULAR = 1e-10
"""Directions of the inputs whose singular value is below this share of the largest are not determined by the rows."""
ROUNDS = 20
"""Of sequential thresholding; it ends as soon as no more terms fall."""


class Rows(NamedTuple):
    """Rows ``[A, B]`` of a regression ``A W ≈ B``, reduced by an orthogonal matrix to as many as there are columns.

    A sum of outer products would have the square of the condition number; this has that of ``A``.

    >>> generator = torch.Generator().manual_seed(0)
    >>> A, W = (torch.randn(*size, generator=generator, dtype=torch.float64) for size in ((50, 3), (3, 2)))
    >>> bool(torch.allclose(Rows.of(A, A @ W).solve().W, W))
    True
    """

    triangle: Float[Tensor, "k e"]
    inputs: int
    weight: float
    """How many rows they stand for."""

    @classmethod
    def of(cls, A: Float[Tensor, "N q"], B: Float[Tensor, "N d"], weight: float | None = None) -> Rows:
        """Reduce rows; ``weight`` says how many they stand for, if that is not their number."""
        return cls(_triangle(torch.cat((A, B), -1)), A.shape[-1], len(A) if weight is None else weight)

    def __add__(self, other: Rows) -> Rows:  # type: ignore[override]  # a sum, not a longer tuple
        joined = _triangle(torch.cat((self.triangle, other.triangle)))
        return Rows(joined, self.inputs, self.weight + other.weight)

    def scales(self) -> tuple[Float[Tensor, " q"], Float[Tensor, " d"]]:
        """Root mean squares of the columns of ``A`` and ``B``; one for a column of zeros."""
        root = self.triangle.square().sum(0).div(max(self.weight, 1.0)).sqrt()
        root = torch.where(root > 0, root, 1.0)
        return root[: self.inputs], root[self.inputs :]

    def solve(self, threshold: float = 0.0) -> Solution:
        """The coefficients of the least squared error, of least norm where the rows leave them open.

        Args:
            threshold: terms whose root mean square is below this share of that of the output are set to zero, and the
                others are fitted again, until none falls (sequentially thresholded least squares).
        """
        q = self.inputs
        scale, size = self.scales()
        A, B = self.triangle[:, :q] / scale, self.triangle[:, q:]
        support = torch.ones(q, B.shape[-1], dtype=torch.bool)
        weight = _least_norm(A, B)
        for _ in range(ROUNDS if threshold > 0 else 0):
            kept = support & (weight.abs() >= threshold * size)
            if bool((kept == support).all()):
                break
            support = kept
            columns = []
            for j, used in enumerate(support.mT):
                column = B.new_zeros(q)
                column[used] = _least_norm(A[:, used], B[:, j : j + 1])[:, 0]
                columns.append(column)
            weight = torch.stack(columns, -1)
        W = weight / scale.unsqueeze(-1)
        used = support.any(-1)
        root = A.new_zeros(q, q)
        _, s, Vh = torch.linalg.svd(A[:, used], full_matrices=False)
        good = s > SINGULAR * s.max().clamp_min(torch.finfo(s.dtype).tiny) if len(s) else s > 0
        root[used, : int(good.sum())] = (Vh[good].mT / s[good]) / scale[used].unsqueeze(-1)
        return Solution(W, support, self.residual_cov(W), root)

    def residual_cov(self, W: Float[Tensor, "q d"]) -> Float[Tensor, "d d"]:
        """Mean of the outer products of ``B - A W``."""
        error = self.triangle[:, self.inputs :] - self.triangle[:, : self.inputs] @ W
        return error.mT @ error / max(self.weight, 1.0)


class Solution(NamedTuple):
    """Coefficients of a regression and what it leaves."""

    W: Float[Tensor, "q d"]
    support: Bool[Tensor, "q d"]
    """Which coefficients are not fixed at zero."""
    residual_cov: Float[Tensor, "d d"]
    """Mean of the outer products of the residuals."""
    root: Float[Tensor, "q q"]
    """A factor ``L`` of the covariance ``L Lᵀ = (AᵀA)⁻¹`` of the coefficients, in units of the residuals."""


def _triangle(rows: Float[Tensor, "N k"]) -> Float[Tensor, "M k"]:
    return torch.linalg.qr(rows, mode="r").R if len(rows) > rows.shape[-1] else rows


def _least_norm(A: Float[Tensor, "N q"], B: Float[Tensor, "N d"]) -> Float[Tensor, "q d"]:
    if not A.shape[-1]:
        return B.new_zeros(0, B.shape[-1])
    return torch.linalg.lstsq(A, B, rcond=SINGULAR, driver="gelsd").solution
