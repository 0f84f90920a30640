"""Gaussian algebra: prediction, conditioning, densities. Matrices are factored here, in ``riccati`` and in the scans.

Conditioning solves a small linear system. There are three implementations, which agree up to rounding:

- ``"cholesky"``: batched Cholesky, for any size, full or diagonal noise;
- ``"unrolled"``: the elimination written out entry by entry, for few channels; it calls no linear-algebra routine and
  can therefore be exported;
- ``"sequential"``: one scalar update per channel, for diagonal noise; it can be exported too.

Masks are weights ``w`` in ``{0, 1}``, one per channel. A channel of weight zero has no effect: the result is the
Gaussian conditioned on the remaining channels. Values in masked channels are multiplied by zero, so they must be
finite; replace NaN before the call.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float

SolveForm = Literal["auto", "cholesky", "unrolled", "sequential", "square_root"]
"""``"square_root"`` carries the covariance as factors, see :mod:`.forms`; the others are the forms below."""
UNROLL_LIMIT = 4
"""Up to this many channels ``auto`` selects ``"unrolled"``."""
BROADCAST_LIMIT = 16
"""Up to this size a batched matrix-vector product is a broadcast multiply and sum."""


class DiagonalNoise(NamedTuple):
    """``R`` of independent channels.

    >>> DiagonalNoise(torch.ones(3)).variance
    tensor([1., 1., 1.])
    """

    variance: Float[Tensor, "*B m"]
    """The diagonal of ``R``."""


class FullNoise(NamedTuple):
    """A full, positive definite ``R``.

    >>> FullNoise(torch.eye(2)).cov.shape
    torch.Size([2, 2])
    """

    cov: Float[Tensor, "*B m m"]
    """``R``."""


Noise = DiagonalNoise | FullNoise


ROUNDINGS = 1000
"""Rounding errors of a variance, in units of its last digit, that a covariance may have lost at most."""


class Update(NamedTuple):
    """The result of :func:`condition`."""

    correction: Float[Tensor, "*B d"]
    """What is added to the mean, in the tangent space."""
    cov: Float[Tensor, "*B d d"]
    """The posterior covariance."""
    innovation_cov: Float[Tensor, "*B m m"]
    """``S``."""
    ok: Bool[Tensor, "*B"]
    """False where ``S`` was not positive definite."""
    precise: Bool[Tensor, "*B"] | None = None
    """False where rounding may have changed the result by more than a percent; None if not examined."""
    gain: Float[Tensor, "*B d m"] | None = None
    """``K``, zero where masked; None where channels were used one by one."""


def matvec(A: Float[Tensor, "*A m n"], x: Float[Tensor, "*B n"]) -> Float[Tensor, "*B m"]:
    """``A x`` for batched or constant ``A``."""
    if A.ndim == 2:
        return x @ A.mT
    if A.shape[-1] <= BROADCAST_LIMIT:  # many tiny products: several times faster than a batched call on a CPU
        return (A * x.unsqueeze(-2)).sum(-1)
    return (A @ x.unsqueeze(-1)).squeeze(-1)


def symmetrize(P: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """``(P + Pᵀ) / 2``, exactly symmetric."""
    half = 0.5 * P
    return half + half.mT


def block_diagonal(A: Float[Tensor, "*A n n"], B: Float[Tensor, "*B k k"]) -> Float[Tensor, "*C j j"]:
    """``[A 0; 0 B]``, batched or constant."""
    n, k = A.shape[-1], B.shape[-1]
    return torch.nn.functional.pad(A, (0, k, 0, k)) + torch.nn.functional.pad(B, (n, 0, n, 0))


def dense(noise: Noise) -> Float[Tensor, "*B m m"]:
    """``R`` as a matrix."""
    return noise.cov if isinstance(noise, FullNoise) else torch.diag_embed(noise.variance)


def safe_cholesky(A: Float[Tensor, "*B n n"]) -> tuple[Float[Tensor, "*B n n"], Bool[Tensor, "*B"]]:
    """Lower Cholesky factor and success flag per item; a failed item gives the identity and ``ok = False``, no NaN."""
    factor, info = torch.linalg.cholesky_ex(A)
    ok = info == 0
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return torch.where(ok[..., None, None], factor, eye), ok


def factor_psd(P: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """``A`` with ``A Aᵀ = P`` for a positive semidefinite ``P``; eigenvalues below zero by rounding count as zero.

    The Cholesky factor where there is one. A singular ``P`` is factored by its eigenvectors, after scaling to a unit
    diagonal, so that coordinates of small units keep their digits.
    """
    factor, info = torch.linalg.cholesky_ex(P)
    failed = info != 0
    if bool(failed.any()):
        singular = P[failed]
        scale = torch.diagonal(singular, dim1=-2, dim2=-1).clamp_min(0).sqrt()
        inverse = torch.where(scale > 0, 1 / scale, 0.0)
        unit = eigenvector_factor(singular * (inverse.unsqueeze(-1) * inverse.unsqueeze(-2)))
        factor = factor.masked_scatter(failed[..., None, None], scale.unsqueeze(-1) * unit)
    return factor


def eigenvector_factor(P: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """``A`` with ``A Aᵀ = P`` whose columns are eigenvectors; eigenvalues below zero by rounding count as zero."""
    values, vectors = torch.linalg.eigh(P)
    return vectors * values.clamp_min(0).sqrt().unsqueeze(-2)


def triangularize(
    A: Float[Tensor, "*B k n"],
) -> tuple[Float[Tensor, "*B k k"], Float[Tensor, "*B n n"]]:
    """``A = O [U; 0]`` with an orthogonal ``O`` and an upper triangular ``U``, for ``k ≥ n``."""
    O, U = torch.linalg.qr(A, mode="complete")
    return O, U[..., : A.shape[-1], :]


def solve_psd(A: Float[Tensor, "*B n n"], b: Float[Tensor, "*B n k"]) -> tuple[Tensor, Bool[Tensor, "*B"]]:
    """``A⁻¹ b`` for positive definite ``A``, and a success flag per item."""
    factor, ok = safe_cholesky(A)
    return torch.cholesky_solve(b, factor), ok


def pseudo_solve(A: Float[Tensor, "*B n n"], b: Float[Tensor, "*B n k"]) -> Float[Tensor, "*B n k"]:
    """The smallest ``x`` with ``A x = b``, for any ``A`` whose range contains ``b``; rows are scaled to one size."""
    scale = A.square().sum(-1, keepdim=True).sqrt()
    inverse = torch.where(scale > 0, 1 / scale, 0.0)
    return torch.linalg.pinv(A * inverse) @ (b * inverse)


def congruence(
    A: Float[Tensor, "*A n k"], P: Float[Tensor, "*B k k"], add: Float[Tensor, "*Q n n"]
) -> Float[Tensor, "*B n n"]:
    """``A P Aᵀ + add``, exactly symmetric: the form of every covariance update."""
    if A.ndim == P.ndim == 3:  # one fused call, which also applies the factor ½ of the symmetrisation
        half = torch.baddbmm(add, torch.bmm(A, P), A.mT, beta=0.5, alpha=0.5)
        return half + half.mT
    return symmetrize(A @ P @ A.mT + add)


def propagate(
    P: Float[Tensor, "*B n n"], F: Float[Tensor, "*F n n"], Q: Float[Tensor, "*Q n n"]
) -> Float[Tensor, "*B n n"]:
    """Predicted covariance ``F P Fᵀ + Q``.

    Args:
        P: covariance of the state.
        F, Q: transition and covariance of the process noise, batched or constant.

    Returns:
        The covariance, exactly symmetric.

    >>> propagate(torch.eye(1), 2 * torch.eye(1), torch.eye(1))
    tensor([[5.]])
    """
    return congruence(F, P, Q)


def joseph(
    P: Float[Tensor, "*B n n"], K: Float[Tensor, "*B n m"], H: Float[Tensor, "*H m n"], noise: Noise
) -> Float[Tensor, "*B n n"]:
    """Joseph form ``(I - K H) P (I - K H)ᵀ + K R Kᵀ``: the error covariance for *any* gain, positive semidefinite."""
    return joseph_of(P, remaining(K, H), K, noise)


def remaining(K: Float[Tensor, "*B n m"], H: Float[Tensor, "*H m n"]) -> Float[Tensor, "*B n n"]:
    """``I - K H``: what an update leaves of an error."""
    return torch.eye(K.shape[-2], dtype=K.dtype, device=K.device) - K @ H


def joseph_of(
    P: Float[Tensor, "*B n n"], IKH: Float[Tensor, "*B n n"], K: Float[Tensor, "*B n m"], noise: Noise
) -> Float[Tensor, "*B n n"]:
    """As :func:`joseph`, where :func:`remaining` is there already."""
    KR = K @ noise.cov if isinstance(noise, FullNoise) else K * noise.variance.unsqueeze(-2)
    return congruence(IKH, P, KR @ K.mT)


def gain(
    P: Float[Tensor, "*B n n"],
    H: Float[Tensor, "*H m n"],
    noise: Noise,
    weight: Float[Tensor, "*B m"] | None = None,
    form: SolveForm = "auto",
) -> tuple[Float[Tensor, "*B n m"], Float[Tensor, "*B m m"], Bool[Tensor, "*B"]]:
    """Kalman gain ``P Hᵀ S⁻¹`` with zero columns where masked, the full ``S``, and a success flag per item."""
    K, S, ok, _ = solved_rows(P @ H.mT, P, H, noise, weight, form)
    return K, S, ok


def solved_rows(
    rows: Float[Tensor, "*B k m"],
    P: Float[Tensor, "*B n n"],
    H: Float[Tensor, "*H m n"],
    noise: Noise,
    weight: Float[Tensor, "*B m"] | None = None,
    form: SolveForm = "auto",
) -> tuple[Float[Tensor, "*B k m"], Float[Tensor, "*B m m"], Bool[Tensor, "*B"], Float[Tensor, "*B m"]]:
    """As :func:`gain`, with ``rows S⁻¹`` for the gain, and the pivots of ``S``; the first rows are ``P Hᵀ``."""
    S = H @ rows[..., : P.shape[-1], :] + dense(noise)
    solved, ok, pivots = solve_rows(rows, S, weight, form)
    # callers get an exactly symmetric S; the solve above reads one triangle only, which spares it this gradient
    return torch.where(ok[..., None, None], solved, 0.0), symmetrize(S), ok, pivots


@torch.no_grad()
def update_resolved(
    before: Tensor,
    after: Tensor,
    K: Tensor,
    H: Tensor,
    S: Tensor,
    innovation: Tensor,
    weighted: Tensor,
    pivots: Tensor,
    weight: Tensor | None,
) -> Tensor:
    """Whether rounding moves mean and covariance by less than the posterior standard deviations.

    ``weighted`` is ``S⁻¹ r``.

    With ``p² = diag P`` and ``a² = (|H| p)² + diag S`` the entries of ``P Hᵀ`` have errors of ``ε p aᵀ`` and those of
    ``S`` of ``ε a aᵀ``, which move a correction ``K r`` by at most ``ε (p + |K| a) Σ aᵢ |S⁻¹ r|ᵢ``.
    A pivot is the variance of a channel given those before it, small where two channels measure nearly the same; what
    ``S⁻¹ r`` would be by it counts where rounding made it smaller.
    """
    std = torch.diagonal(before, dim1=-2, dim2=-1).clamp_min(0).sqrt()
    variance = torch.diagonal(S, dim1=-2, dim2=-1)
    reach = (matvec(H.abs(), std).square() + variance).sqrt()
    size = torch.maximum(weighted.abs(), (innovation.abs() * variance.rsqrt()).amax(-1, keepdim=True) * pivots.rsqrt())
    total = (reach * (size if weight is None else weight * size)).sum(-1, keepdim=True)
    # at least once: 1 - K H rounds as well, and leaves as much of the standard deviations of the prior
    error = 20 * torch.finfo(after.dtype).eps * (std + matvec(K.abs(), reach)) * total.clamp_min(0.5)
    return (torch.diagonal(after, dim1=-2, dim2=-1) >= error.square()).all(-1)


@torch.no_grad()
def keeps_digits(
    before: Float[Tensor, "*B n n"],
    after: Float[Tensor, "*B n n"],
    IKH: Float[Tensor, "*B n n"],
    H: Float[Tensor, "*H m n"],
    noise: Noise,
    weight: Float[Tensor, "*B m"] | None,
) -> Bool[Tensor, "*B"]:
    """Whether rounding leaves a dense posterior its first digits, from bounds on the errors that it makes.

    The posterior must hold what was measured: its rounding, seen through ``H``, is below ``R``. And the rounding of the
    prior, which the update multiplies by ``I - K H``, is below the posterior variances. The factors are from drawn
    problems; ``docs/results/hardening.md`` counts those of which this says too much.
    """
    eps = torch.finfo(after.dtype).eps
    variance = noise.variance if isinstance(noise, DiagonalNoise) else torch.diagonal(noise.cov, dim1=-2, dim2=-1)
    prior_std, std = (torch.diagonal(item, dim1=-2, dim2=-1).clamp_min(0).sqrt() for item in (before, after))
    held = variance > 100 * eps * matvec(H.abs(), std).square()
    held = (held if weight is None else held | (weight == 0)).all(-1)
    return held & (std.square() >= ROUNDINGS * eps * matvec(IKH.abs(), prior_std).square()).all(-1)


@torch.no_grad()
def prediction_keeps_digits(
    before: Float[Tensor, "*B n n"], F: Float[Tensor, "*F n n"], after: Float[Tensor, "*B n n"]
) -> Bool[Tensor, "*B"]:
    """Whether ``F P Fᵀ + Q`` is above the rounding of its terms, which correlated states may cancel."""
    std = torch.diagonal(before, dim1=-2, dim2=-1).clamp_min(0).sqrt()
    rounding = ROUNDINGS * torch.finfo(after.dtype).eps * matvec(F.abs(), std).square()
    return (torch.diagonal(after, dim1=-2, dim2=-1) >= rounding).all(-1)


def masked(S: Float[Tensor, "*A m m"], weight: Float[Tensor, "*B m"]) -> Float[Tensor, "*C m m"]:
    """``w S w + diag(1 - w)``, whose inverse is that of the unmasked channels."""
    return S * (weight.unsqueeze(-1) * weight.unsqueeze(-2)) + torch.diag_embed(1 - weight)


def normalized_square(
    residual: Float[Tensor, "*B m"], S: Float[Tensor, "*B m m"], weight: Float[Tensor, "*B m"] | None = None
) -> tuple[Float[Tensor, "*B"], Bool[Tensor, "*B"]]:
    """``rᵀ S⁻¹ r`` over the unmasked channels, and a success flag per item."""
    row = residual.unsqueeze(-2)
    solved, ok = right_solve(row, S, weight)
    return (solved * row).sum((-2, -1)), ok


def right_solve(
    C: Float[Tensor, "*B k m"], S: Float[Tensor, "*B m m"], weight: Float[Tensor, "*B m"] | None = None
) -> tuple[Float[Tensor, "*B k m"], Bool[Tensor, "*B"]]:
    """``C S⁻¹`` over the unmasked channels, with zero columns where masked, and a success flag per item."""
    solved, ok, _ = solve_rows(C, S, weight)
    return solved, ok


def solve_rows(
    C: Float[Tensor, "*B k m"],
    S: Float[Tensor, "*B m m"],
    weight: Float[Tensor, "*B m"] | None = None,
    form: SolveForm = "auto",
) -> tuple[Float[Tensor, "*B k m"], Bool[Tensor, "*B"], Float[Tensor, "*B m"]]:
    """As :func:`right_solve`, with the pivots of ``S``, 1 where masked: its determinant is their product."""
    wide = form == "cholesky" or (form == "auto" and S.shape[-1] > UNROLL_LIMIT)
    return (_cholesky_right_solve if wide else _unrolled_right_solve)(C, S, weight)


def _cholesky_right_solve(C: Tensor, S: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """``C S⁻¹`` over the unmasked channels; ``ok`` and the pivots are as in the unrolled form."""
    if weight is not None:
        C, S = C * weight.unsqueeze(-2), masked(S, weight)
    factor, ok = safe_cholesky(S)
    pivots = torch.diagonal(factor, dim1=-2, dim2=-1).square()
    return torch.cholesky_solve(C.mT, factor).mT, ok, pivots


def _unrolled_right_solve(C: Tensor, S: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """``C S⁻¹`` by ``S = L D Lᵀ`` written out entry by entry; ``ok`` is True where every pivot of a measured channel
    is positive.

    The inverse pivot of a masked channel is zero: the channel takes part in no elimination and its column of the result
    is zero.
    """
    m = S.shape[-1]
    entries = S.flatten(-2).split(1, -1)  # [*, 1] each, so that they broadcast against columns
    weights: tuple[Tensor | float, ...] = (1.0,) * m if weight is None else weight.split(1, -1)
    columns = list(C.unbind(-1))
    pivots: list[Tensor] = []
    inverse: list[Tensor] = []
    low: dict[tuple[int, int], Tensor] = {}
    scaled: dict[tuple[int, int], Tensor] = {}  # L D, stored because it is used twice
    for i in range(m):
        pivot = entries[i * m + i]
        for j in range(i):
            entry = entries[i * m + j]
            for k in range(j):
                entry = torch.addcmul(entry, scaled[i, k], low[j, k], value=-1)
            scaled[i, j] = entry
            low[i, j] = entry * inverse[j]
            pivot = torch.addcmul(pivot, entry, low[i, j], value=-1)
            columns[i] = torch.addcmul(columns[i], low[i, j], columns[j], value=-1)
        if weight is not None:  # what is left of a masked channel may be zero, or negative by rounding
            pivot = torch.where(weight[..., i, None] > 0, pivot, 1.0)
        pivots.append(pivot)
        inverse.append(weights[i] / pivot)
    for i in reversed(range(m)):
        columns[i] = columns[i] * inverse[i]
        for k in range(i + 1, m):
            columns[i] = torch.addcmul(columns[i], low[k, i], columns[k], value=-1)
    diagonal = torch.cat(pivots, -1)
    return torch.stack(columns, -1), (diagonal > 0).all(-1), diagonal


def _condition_sequentially(P: Tensor, drive: Tensor, H: Tensor, noise: DiagonalNoise, weight: Tensor | None) -> Update:
    """One scalar Joseph update per channel; equal to the joint update because the channels are independent."""
    S = symmetrize(H @ P @ H.mT + dense(noise))
    eye = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    start, remaining = P, eye
    correction = farthest = torch.zeros_like(P[..., 0])
    ok = precise = torch.ones_like(correction[..., 0], dtype=torch.bool)
    for i in range(H.shape[-2]):
        h = H[..., i, :]
        r = noise.variance[..., i, None]
        Ph = matvec(P, h) if h.ndim > 1 else P @ h
        s = (Ph * h).sum(-1, keepdim=True) + r
        positive = s > 0
        share = positive.to(P.dtype) if weight is None else positive * weight[..., i, None]
        inverse = share / torch.where(positive, s, torch.ones_like(s))
        k = Ph * inverse
        residual = drive[..., i, None] - (correction * h).sum(-1, keepdim=True)
        correction = correction + k * residual
        farthest = torch.maximum(farthest, correction.detach().abs())
        A = eye - k.unsqueeze(-1) * h.unsqueeze(-2)
        remaining = A.detach() @ remaining
        before, P = P, A @ P @ A.mT + (r * k).unsqueeze(-1) * k.unsqueeze(-2)
        used = None if weight is None else weight[..., i, None]
        ok = ok & (positive if used is None else positive | (used == 0)).squeeze(-1)
        row = h.unsqueeze(-2)
        precise = precise & keeps_digits(before, P, A, row, DiagonalNoise(r), used)
        precise = precise & update_resolved(
            before, P, k.unsqueeze(-1), row, s.unsqueeze(-1), residual, residual * inverse, s, used
        )
    # what one channel loses stays in the updates of the next ones, and an innovation makes as much of it as it is large
    far = (drive.abs() * torch.diagonal(S, dim1=-2, dim2=-1).rsqrt()).amax(-1, keepdim=True)
    std = torch.diagonal(start, dim1=-2, dim2=-1).clamp_min(0).sqrt() * (far / 100).clamp_min(1).sqrt()
    lost = ROUNDINGS * torch.finfo(P.dtype).eps * matvec(remaining.abs(), std).square()
    precise = precise & (lost.detach() <= torch.diagonal(P, dim1=-2, dim2=-1)).all(-1)
    # one channel may move the mean far, and the next one bring it back with the rounding of the way
    rounding = (8 * torch.finfo(P.dtype).eps * farthest).square()
    precise = precise & (rounding <= torch.diagonal(P, dim1=-2, dim2=-1)).all(-1)
    return Update(correction, symmetrize(P), S, ok, precise)


def condition(
    P: Float[Tensor, "*B n n"],
    innovation: Float[Tensor, "*B m"],
    H: Float[Tensor, "*H m n"],
    noise: Noise,
    weight: Float[Tensor, "*B m"] | None = None,
    form: SolveForm = "auto",
) -> Update:
    """Condition a prior with covariance ``P`` on ``innovation = y ⊟ h(x̂⁻)``.

    The correction is ``K innovation`` with the Kalman gain ``K``. With a *shaped* innovation this is the paper's update
    ``x̂ = x̂⁻ + K (Φ∗Δy)``, with the same gain and the Joseph covariance.

    Args:
        P: covariance of the prior.
        innovation: the innovation, zero where masked.
        H, noise: Jacobian of the observation, batched or constant, and ``R``.
        weight: 1 where a channel was measured, else 0; by default everywhere 1.
        form: implementation of the small linear solve.

    Returns:
        Correction and posterior covariance.

    >>> one = torch.ones(1, 1, 1)
    >>> condition(one, torch.ones(1, 1), one, DiagonalNoise(torch.ones(1, 1))).correction
    tensor([[0.5000]])
    """
    if form == "sequential":
        if isinstance(noise, FullNoise):
            raise TypeError("the sequential form needs DiagonalNoise; use 'unrolled' or 'cholesky' for a full R")
        return _condition_sequentially(P, innovation, H, noise, weight)
    PHt, r = P @ H.mT, innovation.detach().unsqueeze(-2)
    lead = torch.broadcast_shapes(PHt.shape[:-2], r.shape[:-2])
    rows = torch.cat([item.expand(*lead, *item.shape[-2:]) for item in (PHt, r)], -2)
    solved, S, ok, pivots = solved_rows(rows, P, H, noise, weight, form)
    K, weighted = solved[..., :-1, :], solved[..., -1, :]
    IKH = remaining(K, H)
    posterior = joseph_of(P, IKH, K, noise)
    precise = keeps_digits(P, posterior, IKH, H, noise, weight)
    precise = precise & update_resolved(P, posterior, K, H, S, innovation, weighted, pivots, weight)
    return Update(matvec(K, innovation), posterior, S, ok, precise, K)


def log_prob(
    residual: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"], weight: Float[Tensor, "*B m"] | None = None
) -> tuple[Float[Tensor, "*B"], Bool[Tensor, "*B"]]:
    """Log density of ``N(0, cov)`` at ``residual`` over the unmasked channels, and a success flag per item."""
    density = factored_density(residual, cov, weight)
    return density.log_prob, density.ok


class FactoredDensity(NamedTuple):
    """A log density with what it was computed from: the factor of the covariance and the whitened residual."""

    log_prob: Float[Tensor, "*B"]
    factor: Float[Tensor, "*B m m"]
    white: Float[Tensor, "*B m"]
    ok: Bool[Tensor, "*B"]


def factored_density(
    residual: Float[Tensor, "*B m"], cov: Float[Tensor, "*B m m"], weight: Float[Tensor, "*B m"] | None = None
) -> FactoredDensity:
    """As :func:`log_prob`, with the factor, for derivatives of the density."""
    count: Tensor | float = residual.shape[-1]
    if weight is not None:
        cov, residual, count = masked(cov, weight), residual * weight, weight.sum(-1)
    factor, ok = safe_cholesky(cov)
    white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
    log_det = 2 * torch.diagonal(factor, dim1=-2, dim2=-1).log().sum(-1)
    return FactoredDensity(-0.5 * (white.square().sum(-1) + log_det + count * math.log(2 * math.pi)), factor, white, ok)
