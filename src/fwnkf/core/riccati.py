"""The steady state of a linear Kalman filter: the discrete algebraic Riccati equation, solved differentiably."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ConfigError
from ..shapes import Float
from .gaussian import FullNoise, gain, joseph, propagate, symmetrize

DOUBLINGS = 16
"""Each doubling squares the closed loop; sixteen stand for 65,536 steps of the recursion."""

CHECKED = 64
"""Steps between two checks whether a recursion still changes."""


class SteadyState(NamedTuple):
    """Where a Kalman filter with constant matrices ends: covariances before and after an update, gain, ``S``."""

    prior_cov: Float[Tensor, "*B n n"]
    cov: Float[Tensor, "*B n n"]
    gain: Float[Tensor, "*B n m"]
    innovation_cov: Float[Tensor, "*B m m"]


def riccati(
    F: Float[Tensor, "*B n n"],
    H: Float[Tensor, "*B m n"],
    Q: Float[Tensor, "*B n n"],
    R: Float[Tensor, "*B m m"],
    doublings: int = DOUBLINGS,
) -> Float[Tensor, "*B n n"]:
    """``P = F (P - P Hᵀ (H P Hᵀ + R)⁻¹ H P) Fᵀ + Q``, the covariance before an update in the steady state.

    By the structured doubling algorithm (Chu, Fan, Lin, Wang 2004): quadratic convergence, no eigenvalues, gradients
    by plain backpropagation. The system must be detectable, and its unstable part, if any, driven by noise.
    """
    n = F.shape[-1]
    A, P = F.mT, Q
    G = H.mT @ torch.linalg.solve(R, H)
    eye = torch.eye(n, dtype=F.dtype, device=F.device)
    for _ in range(doublings):
        by_A, by_G = torch.linalg.solve(eye + G @ P, torch.cat((A, G), -1)).split(n, -1)
        P, G, A = symmetrize(P + A.mT @ P @ by_A), symmetrize(G + A @ by_G @ A.mT), A @ by_A
    return P


def steady_state(
    F: Float[Tensor, "*B n n"],
    H: Float[Tensor, "*B m n"],
    Q: Float[Tensor, "*B n n"],
    R: Float[Tensor, "*B m m"],
    doublings: int = DOUBLINGS,
) -> SteadyState:
    """Gain and covariances to which the Kalman filter of ``x⁺ = F x + N(0, Q)``, ``y = H x + N(0, R)`` converges.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> round(float(steady_state(one, one, one, one).gain), 6)  # (√5 - 1) / 2
    0.618034
    """
    if F.shape[-1] != Q.shape[-1] or H.shape[-2] != R.shape[-1] or H.shape[-1] != F.shape[-1]:
        raise ConfigError(
            f"F {tuple(F.shape)}, H {tuple(H.shape)}, Q {tuple(Q.shape)}, R {tuple(R.shape)} do not fit together; "
            "wanted [n, n], [m, n], [n, n], [m, m]"
        )
    P = riccati(F, H, Q, R, doublings)
    seen = H @ P
    S = symmetrize(seen @ H.mT + R)
    gain = torch.linalg.solve(S, seen).mT
    keep = torch.eye(F.shape[-1], dtype=F.dtype, device=F.device) - gain @ H
    return SteadyState(P, symmetrize(keep @ P @ keep.mT + gain @ R @ gain.mT), gain, S)


def constant_gain(
    F: Float[Tensor, "n n"], H: Float[Tensor, "m n"], gain: Float[Tensor, "n m"], y: Float[Tensor, "N T m"]
) -> tuple[Float[Tensor, "N T n"], Float[Tensor, "N T m"]]:
    """Estimates and innovations of a filter with a constant gain that starts at zero: the steady state from the start.

    A hundredth of the time of the full recursion, which differs from it in the first steps alone.
    """
    closed = ((torch.eye(F.shape[-1], dtype=F.dtype, device=F.device) - gain @ H) @ F).mT
    ahead, step = (H @ F).mT, gain.mT
    x = y.new_zeros(len(y), F.shape[-1])
    states, innovations = [], []
    for sample in y.unbind(1):
        innovations.append(sample - x @ ahead)
        x = x @ closed + sample @ step
        states.append(x)
    return torch.stack(states, 1), torch.stack(innovations, 1)


class Transient(NamedTuple):
    """Gains and covariances of a Kalman filter with constant matrices, step by step from its start."""

    gain: Float[Tensor, "*B T n m"]
    innovation_cov: Float[Tensor, "*B T m m"]
    cov: Float[Tensor, "*B T n n"]


def transient(
    F: Float[Tensor, "*B n n"],
    H: Float[Tensor, "*B m n"],
    Q: Float[Tensor, "*B n n"],
    R: Float[Tensor, "*B m m"],
    cov: Float[Tensor, "*B n n"],
    steps: int,
    tolerance: float = 1e-12,
) -> Transient:
    """The recursion of the covariance ``cov`` before the first step, the same for all measurements.

    Where it no longer changes by more than ``tolerance`` in relative terms, the rest is the steady state.

    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> transient(one, one, one, one, one, 3).gain.flatten()  # 2/3, 5/8, 13/21: to (√5 - 1) / 2
    tensor([0.6667, 0.6250, 0.6190], dtype=torch.float64)
    """
    noise = FullNoise(R)
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for step in range(steps):
        prior = propagate(cov, F, Q)
        K, S, _ = gain(prior, H, noise)
        before, cov = cov, joseph(prior, K, H, noise)
        parts.append((K, S, cov))
        if step % CHECKED == CHECKED - 1 and bool(((cov - before).abs() <= tolerance * cov.abs().amax()).all()):
            break
    rest = steps - len(parts)
    stacked = (torch.stack(items, -3) for items in zip(*parts, strict=True))
    return Transient(
        *(torch.cat((item, item[..., -1:, :, :].expand(*item.shape[:-3], rest, -1, -1)), -3) for item in stacked)
    )


def linear_filter(
    F: Float[Tensor, "*B n n"],
    H: Float[Tensor, "*B m n"],
    gains: Float[Tensor, "*B T n m"],
    y: Float[Tensor, "N T m"],
    start: Float[Tensor, "*B N n"],
) -> tuple[Float[Tensor, "*B N T n"], Float[Tensor, "*B N T m"]]:
    """Estimates and innovations with given gains, from the estimate before the first step.

    With the gains of :func:`transient` this is the Kalman filter, at a fraction of the time of its full recursion.
    """
    x, forward, seen = start, F.mT, H.mT
    states, innovations = [], []
    for sample, K in zip(y.unbind(1), gains.mT.unbind(-3), strict=True):
        x = x @ forward
        innovation = sample - x @ seen
        x = x + innovation @ K
        states.append(x)
        innovations.append(innovation)
    return torch.stack(states, -2), torch.stack(innovations, -2)


def frequency_response(
    F: Float[Tensor, "n n"],
    H: Float[Tensor, "m n"],
    gain: Float[Tensor, "n m"],
    omega: Float[Tensor, " f"],
    blocks: Sequence[int] = (),
) -> tuple[Tensor, Tensor]:
    """Transfer functions of the steady state at ``omega`` (radians per step): to the estimate, to the innovation.

    ``blocks`` are the sizes of the blocks of a block-diagonal ``F``, in order; with them a large system of small parts
    is several times faster. No eigenvalue of ``F`` may lie on the unit circle at one of the frequencies.
    """
    m, delay = H.shape[-2], torch.exp(-1j * omega)
    # x = F x₋ + K e and e = y - H F x₋ give x = W e with W = (I - F/z)⁻¹ K, and e = (I - H K + H W)⁻¹ y
    parts, at = [], 0
    for size, group in groupby(blocks or (F.shape[-1],)):
        count = len(list(group))
        end = at + size * count
        inside = F[at:end, at:end].unflatten(0, (count, size)).unflatten(2, (count, size))
        diagonal = inside.diagonal(dim1=0, dim2=2).movedim(-1, 0)  # [count, size, size]
        eye = torch.eye(size, dtype=F.dtype, device=F.device)
        gains = gain[at:end].unflatten(0, (count, size)).to(delay.dtype).expand(len(omega), count, size, m)
        solved = torch.linalg.solve(eye - delay[:, None, None, None] * diagonal, gains)
        parts.append(solved.flatten(1, 2))
        at = end
    W = torch.cat(parts, 1)
    loop = torch.eye(m, dtype=F.dtype, device=F.device) - H @ gain + H.to(W.dtype) @ W
    innovation = torch.linalg.inv(loop)
    return W @ innovation, innovation
