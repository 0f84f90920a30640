"""Covariances as ``P = U D Uᵀ`` with a unit upper triangular ``U``: prediction (Thornton) and conditioning (Bierman).

A dense float32 matrix cannot hold variances that differ by more than about 1e7 in directions that are not those of its
axes: the small ones are lost in the rounding of the large ones. The factors can, and the recursions below change each
variance by a product of positive numbers, so that none becomes negative and small ones keep their digits.

A factor is one matrix of the size of the covariance: ``D`` on its diagonal, ``U`` above it, zeros below. The functions
call no linear-algebra routine.

References: Bierman, Factorization Methods for Discrete Sequential Estimation (1977), chapters V and VI; Thornton 1976.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..shapes import Float
from .gaussian import FullNoise, Noise, Update, dense, masked, matvec, symmetrize


def factor(P: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """``U`` and ``D`` of a positive semidefinite ``P``; what is zero up to rounding counts as zero.

    >>> factor(torch.tensor([[5.0, 2.0], [2.0, 1.0]]))
    tensor([[1., 2.],
            [0., 1.]])
    """
    n = P.shape[-1]
    smallest = n * torch.finfo(P.dtype).eps * torch.diagonal(P, dim1=-2, dim2=-1)
    columns: list[Tensor] = []
    for j in reversed(range(n)):
        d = P[..., j, j, None]
        positive = d > smallest[..., j, None]
        above = torch.where(positive, P[..., :j, j] / torch.where(positive, d, 1.0), 0.0)
        d = torch.where(positive, d, 0.0)
        columns.append(_column(above, d, n))
        P = P[..., :j, :j] - (d * above).unsqueeze(-1) * above.unsqueeze(-2)
    return torch.stack(columns[::-1], -1)


def _column(above: Tensor, d: Tensor, n: int) -> Tensor:
    """A column of a factor: the numbers above the diagonal, that on it, and zeros."""
    column = torch.cat((above, d), -1)
    return torch.nn.functional.pad(column, (0, n - column.shape[-1]))


def split(factors: Float[Tensor, "*B n n"]) -> tuple[Float[Tensor, "*B n n"], Float[Tensor, "*B n"]]:
    """``U`` and the diagonal of ``D``."""
    eye = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    d = torch.diagonal(factors, dim1=-2, dim2=-1)
    return factors - torch.diag_embed(d) + eye, d  # exact: d - d is zero


def covariance(factors: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """``P = U D Uᵀ``, exactly symmetric."""
    U, d = split(factors)
    return symmetrize((U * d.unsqueeze(-2)) @ U.mT)


def propagate(
    factors: Float[Tensor, "*B n n"], F: Float[Tensor, "*F n n"], Q: Float[Tensor, "*Q n n"]
) -> Float[Tensor, "*B n n"]:
    """The factors of ``F P Fᵀ + Q`` by weighted Gram-Schmidt orthogonalisation of the rows of ``[F U, U_Q]``."""
    U, d = split(factors)
    U_q, d_q = split(factor(Q))
    W = torch.cat((F @ U, U_q.expand_as(U)), -1)
    weights = torch.cat((d, d_q.expand_as(d)), -1)
    n = U.shape[-1]
    columns: list[Tensor] = []
    for j in reversed(range(n)):
        row = W[..., j, :]
        weighted = row * weights
        d = (weighted * row).sum(-1, keepdim=True)
        positive = d > 0
        W = W[..., :j, :]
        above = torch.where(positive, matvec(W, weighted) / torch.where(positive, d, 1.0), 0.0) if j else d[..., :0]
        columns.append(_column(above, d, n))
        W = W - above.unsqueeze(-1) * row.unsqueeze(-2)
    return torch.stack(columns[::-1], -1)


def _decorrelated(rows: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
    """``U⁻¹ rows`` and ``D``: measurements with noise ``U D Uᵀ`` as others with independent noise."""
    solved: list[Tensor] = []
    for i in reversed(range(rows.shape[-2])):
        row = rows[..., i, :]
        for k, other in enumerate(solved):
            row = row - factors[..., i, rows.shape[-2] - 1 - k, None] * other
        solved.append(row)
    return torch.stack(solved[::-1], -2), torch.diagonal(factors, dim1=-2, dim2=-1)


def condition(
    factors: Float[Tensor, "*B n n"],
    innovation: Float[Tensor, "*B m"],
    H: Float[Tensor, "*H m n"],
    noise: Noise,
    weight: Float[Tensor, "*B m"] | None = None,
) -> Update:
    """Condition on ``innovation``, one channel after the other; ``Update.cov`` are factors.

    An update is not ``ok`` where the noise of a measured channel is not positive.
    """
    U, d = split(factors)
    HU = H @ U
    S = symmetrize((HU * d.unsqueeze(-2)) @ HU.mT + dense(noise))
    weight = torch.ones_like(innovation) if weight is None else weight
    H = H.expand(*weight.shape, H.shape[-1])
    if isinstance(noise, FullNoise):
        rows = torch.cat((H * weight.unsqueeze(-1), (innovation * weight).unsqueeze(-1)), -1)
        decorrelated, variance = _decorrelated(rows, factor(masked(noise.cov, weight)))
        H, innovation = decorrelated[..., :-1], decorrelated[..., -1]
    else:
        variance = noise.variance.expand_as(weight)
    factored = ((variance > 0) | (weight == 0)).all(-1)
    correction = torch.zeros_like(d)
    # a difference in U keeps what rounding of its terms leaves, times the standard deviations of D
    eps, precise, farthest = torch.finfo(d.dtype).eps, torch.ones_like(factored), correction
    for i in range(H.shape[-2]):
        use = (weight[..., i] > 0).unsqueeze(-1)
        h, r = H[..., i, :], torch.where(use, variance[..., i, None], 1.0)
        f = matvec(U.mT, h)
        v = d * f
        alpha = torch.cumsum(torch.cat((r, v * f), -1), -1)
        sums = torch.cumsum(U * v.unsqueeze(-2), -1)
        unnormalized = sums[..., -1]
        before = torch.nn.functional.pad(sums[..., :-1], (1, 0))
        residual = innovation[..., i, None] - (h * correction).sum(-1, keepdim=True)
        correction = torch.where(use, correction + unnormalized * (residual / alpha[..., -1:]), correction)
        farthest = torch.maximum(farthest, correction.detach().abs())
        previous, U = U, torch.where(use.unsqueeze(-1), U - before * (f / alpha[..., :-1]).unsqueeze(-2), U)
        d = torch.where(use, d * (alpha[..., :-1] / alpha[..., 1:]), d)
        precise = precise & (_variances(U, d) >= (8 * eps) ** 2 * _variances(previous, d)).all(-1)
    ok = factored & torch.isfinite(correction).all(-1)
    # one channel may move the mean far, and the next one bring it back with the rounding of the way
    precise = precise & ((8 * eps * farthest).square() <= _variances(U, d)).all(-1)
    eye = torch.eye(d.shape[-1], dtype=d.dtype, device=d.device)
    changed = U * (1 - eye) + torch.diag_embed(d)  # below the diagonal U stays exactly zero
    return Update(
        torch.where(ok.unsqueeze(-1), correction, 0.0),
        torch.where(ok[..., None, None], changed, factors),
        S,
        ok,
        precise,
    )


def _variances(U: Float[Tensor, "*B n n"], d: Float[Tensor, "*B n"]) -> Float[Tensor, "*B n"]:
    """The diagonal of ``U D Uᵀ``."""
    return matvec(U.square(), d)
