"""The paper's update with a shaped innovation, and its exact covariance.

With ``r = y - H x̂⁻``, shaper memory ``σ⁺ = A_c σ + B_c r`` and output ``r̃ = D r + C σ``, the joint error
``ξ = [e; σ]`` of the update ``x̂ = x̂⁻ + K r̃`` is linear, so its covariance ``Π`` can be propagated exactly. The Joseph
form of ``K`` alone is not exact, because the shaped innovation is correlated with past errors. Filtering the innovation
adds no information: it improves the estimate only where the noise model is wrong.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float
from .gaussian import DiagonalNoise, FullNoise, Noise, condition, dense, gain, keeps_digits, matvec, symmetrize

GainKind = Literal["kalman", "shaped"]


class Shaper(NamedTuple):
    """A shaper for ``m`` channels in state-space form; the ``s`` memory values are ordered channel by channel."""

    A: Float[Tensor, "s s"]
    B: Float[Tensor, "s m"]
    C: Float[Tensor, "m s"]
    D: Float[Tensor, "m"]


def shaper_blocks(matrix: Float[Tensor, "*C s s"], channels: int) -> Shaper:
    """One system for all channels from the matrix of :func:`fwnkf.core.iir.state_space`, shared or per channel."""
    per_channel = matrix.expand(channels, *matrix.shape[-2:])
    place = torch.eye(channels).to(matrix)
    order = matrix.shape[-1] - 1

    def spread(blocks: Tensor) -> Tensor:  # [m, r, c] -> block diagonal [m r, m c]
        return torch.einsum("ij,irc->irjc", place, blocks).flatten(0, 1).flatten(1, 2)

    if order == 0:
        raise ValueError("a shaper needs at least one section")
    return Shaper(
        spread(per_channel[:, 1:, 1:]),
        spread(per_channel[:, 1:, :1]),
        spread(per_channel[:, :1, 1:]),
        per_channel[:, 0, 0],
    )


class ShapedUpdate(NamedTuple):
    """The result of :func:`condition_shaped`."""

    correction: Float[Tensor, "B d"]
    joint_cov: Float[Tensor, "B j j"]
    shaped: Float[Tensor, "B m"]
    memory: Float[Tensor, "B s"]
    innovation_cov: Float[Tensor, "B m m"]
    ok: Bool[Tensor, "B"]
    precise: Bool[Tensor, "B"]


def _stack(rows: list[list[Tensor]]) -> Tensor:
    """A block matrix from rows of blocks; blocks without a batch axis are expanded."""
    batch = torch.broadcast_shapes(*(block.shape[:-2] for row in rows for block in row))
    return torch.cat([torch.cat([block.expand(*batch, *block.shape[-2:]) for block in row], -1) for row in rows], -2)


def condition_shaped(
    Pi: Float[Tensor, "B j j"],
    innovation: Float[Tensor, "B m"],
    memory: Float[Tensor, "B s"],
    H: Float[Tensor, "*H m d"],
    noise: Noise,
    shaper: Shaper,
    weight: Float[Tensor, "B m"],
    kind: GainKind = "kalman",
) -> ShapedUpdate:
    """Update with a shaped innovation and the exact joint covariance of error and shaper memory.

    ``kind`` is the gain: ``"kalman"`` is the paper's ``P Hᵀ S⁻¹`` (with the exact ``P``), ``"shaped"`` the one-step
    optimal gain on the shaped innovation. The optimal gain on innovation and memory together is not offered: it is that
    of the Kalman filter, whatever ``Φ`` is. The input of the shaper is zero in a masked channel, and so is its gain.
    """
    d = H.shape[-1]
    P = Pi[..., :d, :d]
    D = shaper.D.unsqueeze(-1)
    eye = torch.eye(d).to(P)
    shaped = shaper.D * innovation + matvec(shaper.C, memory)
    kalman_gain, S, ok = gain(P, H, noise, weight)
    if kind == "kalman":
        on_innovation = kalman_gain * shaper.D
        on_memory = kalman_gain @ shaper.C
    else:
        observed = _stack([[D * H, shaper.C]])
        scaled = (
            DiagonalNoise(shaper.D**2 * noise.variance)
            if isinstance(noise, DiagonalNoise)
            else FullNoise(D * noise.cov * shaper.D)
        )
        optimal, _, solved = gain(Pi, observed, scaled, weight)
        ok = ok & solved
        on_innovation = optimal[..., :d, :] * shaper.D
        on_memory = optimal[..., :d, :] @ shaper.C
    correction = matvec(on_innovation, innovation) + matvec(on_memory, memory)
    input_matrix = shaper.B * weight.unsqueeze(-2)
    M = _stack([[eye - on_innovation @ H, -on_memory], [input_matrix @ H, shaper.A]])
    N = torch.cat((-on_innovation, input_matrix.expand(*on_innovation.shape[:-2], *input_matrix.shape[-2:])), -2)
    joint_cov = symmetrize(M @ Pi @ M.mT + N @ dense(noise) @ N.mT)
    next_memory = matvec(shaper.A, memory) + matvec(shaper.B, innovation)
    precise = keeps_digits(P, joint_cov[..., :d, :d], M[..., :d, :d], H, noise, weight)
    plain = condition(P, innovation, H, noise, weight)  # the same gain without a shaper
    precise = precise if plain.precise is None else precise & plain.precise
    return ShapedUpdate(correction, joint_cov, shaped, next_memory, S, ok, precise)


def loop_matrix(
    F: Float[Tensor, "d d"], K: Float[Tensor, "d m"], H: Float[Tensor, "m d"], shaper: Shaper
) -> Float[Tensor, "j j"]:
    """The matrix that maps error and shaper memory to the next step; it diverges if its spectral radius exceeds 1.

    A stable shaper does not guarantee a stable loop, because a low-pass on the innovation delays the correction.
    """
    d = F.shape[-1]
    KD = K * shaper.D
    return torch.cat(
        (
            torch.cat(((torch.eye(d).to(F) - KD @ H) @ F, -K @ shaper.C), -1),
            torch.cat((shaper.B @ H @ F, shaper.A), -1),
        ),
        -2,
    )


def spectral_radius(matrix: Float[Tensor, "j j"]) -> Float[Tensor, ""]:
    """The largest magnitude of an eigenvalue."""
    return torch.linalg.eigvals(matrix).abs().max()
