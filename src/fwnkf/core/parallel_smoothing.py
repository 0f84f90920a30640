"""The Rauch-Tung-Striebel smoother over all steps of recordings at once, beside :mod:`.parallel`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Float
from .affine import chunks_of, constant_recursion, groups, prefixes, varying_recursion
from .gaussian import ROUNDINGS, factor_psd, matvec, symmetrize
from .linear_run import LinearRun, LinearTrack
from .parallel import WIDE, Element, after_cov, by_loop, combine, doubled, is_constant, of_one_kind


class SmoothedTrack(NamedTuple):
    """The belief in every step given all measurements; see :class:`fwnkf.Smoothed`."""

    mean: Float[Tensor, "B T D"]
    cov: Float[Tensor, "B T D D"]
    cross_cov: Float[Tensor, "B S D D"]
    """The covariance of step ``t`` with step ``t + 1``, for ``S = T - 1`` steps."""


class _Links(NamedTuple):
    """``z_t = gain z_{t+1} + shift (x_{t+1} - x⁻_{t+1}) + N(0, spread)``, with the error ``A_t z_t`` in a step.

    ``A_t`` is a factor of its covariance. In these coordinates a step back makes no error larger.
    """

    gain: Float[Tensor, "b S n n"]
    shift: Float[Tensor, "b S n n"]
    spread: Float[Tensor, "b S n n"]


def smooth_scan(run: LinearRun, track: LinearTrack) -> SmoothedTrack:
    """The Rauch-Tung-Striebel smoother over all steps at once, from the track of :func:`filter_scan`.

    It runs in the coordinates of :mod:`.smoothing`, so covariances may be singular, and those of the result are sums of
    positive semidefinite terms. Where a predicted covariance is singular, its pseudo-inverse is used, which is exact:
    errors have no part outside its range.
    """
    run, steps, cov, prior_cov = of_one_kind(run), run.y.shape[1], track.cov, track.prior_cov
    if steps == 1:
        return SmoothedTrack(track.mean, cov, cov[:, :0])
    if _is_shared(cov):
        cov, prior_cov = cov[:1], prior_cov[:1]
    varying = steps - 1
    if not run.y.is_meta and is_constant(run):
        other = (cov != cov[:, -1:]).flatten(2).any(-1).any(0).nonzero()
        varying = min(varying, int(other[-1]) + 1 if len(other) else 0)
    moved = (track.mean - track.prior_mean)[:, 1:]
    eye = torch.eye(run.F.shape[-1], dtype=cov.dtype, device=cov.device)
    z, covs = torch.zeros_like(track.mean[:, -1:]), eye.expand_as(cov[:, -1:])
    gains: list[Tensor] = []
    if varying < steps - 1:  # the links are those of the steady state
        links = _links(run, cov[:, -2:], prior_cov[:, -1:], None)
        gains.append(links.gain.expand(-1, steps - 1 - varying, -1, -1))
        u = (moved[:, varying:] @ links.shift[:, 0].mT).flip(1)
        back = [constant_recursion(E, part, x) for E, part, x in by_loop(links.gain[:, 0], u, z[:, 0])]
        z = torch.cat((torch.cat(back).flip(1), z), 1)
        zero = torch.zeros_like(links.gain)
        element = Element(links.gain, zero[..., 0], links.spread, zero[..., 0], zero)
        settled = doubled(element, covs[:, 0], steps - varying).flip(1)
        covs = torch.cat((settled[:, :1].expand(-1, steps - varying - settled.shape[1], -1, -1), settled), 1)
    if varying:
        parts, terms = [], []
        for place in groups(varying, cov[:, 0].numel(), cov):
            after_it = slice(place.start + 1, place.stop + 1)
            index = None if run.kind is None else run.kind[:, after_it]
            around = cov[:, place.start : place.stop + 1]
            parts.append(_links(run, around, prior_cov[:, after_it], index))
            terms.append(matvec(parts[-1].shift, moved[:, place]))
        links = _Links(*(torch.cat(items, 1) for items in zip(*parts, strict=True)))
        found, found_cov = _smoothed_back(links, torch.cat(terms, 1), z[:, 0], covs[:, 0])
        z, covs = torch.cat((found, z), 1), torch.cat((found_cov, covs), 1)
        gains.insert(0, links.gain)
    return _in_the_state(track.mean, cov, z, covs, torch.cat(gains, 1))


def _is_shared(cov: Tensor) -> bool:
    """Whether one covariance stands for all recordings of a batch."""
    return len(cov) == 1 or cov.stride(0) == 0


def _links(run: LinearRun, cov: Tensor, prior_cov: Tensor, index: Tensor | None) -> _Links:
    """From the covariances of steps and of the one after them, and those predicted."""
    A, root_Q = _factor(cov), _factor(run.Q)
    F, B = (run.F[0], root_Q[0]) if index is None else (run.F[index], root_Q[index])
    inverse = _inverse_factor(prior_cov)
    forward = inverse @ (F @ A[:, :-1])
    shift = forward.mT @ inverse
    remains, driven = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device) - forward.mT @ forward, shift @ B
    return _Links(shift @ A[:, 1:], shift, symmetrize(remains @ remains.mT + driven @ driven.mT))


def _factor(P: Tensor) -> Tensor:
    return torch.linalg.cholesky_ex(P).L if P.is_meta else factor_psd(P)


def _inverse_factor(P: Tensor) -> Tensor:
    """``A⁻¹`` of a factor ``A Aᵀ = P``; without the directions of which rounding leaves no digits."""
    factor, info = torch.linalg.cholesky_ex(P)
    eye = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    least = ROUNDINGS * P.shape[-1] * torch.finfo(P.dtype).eps
    variance, pivots = (torch.diagonal(item, dim1=-2, dim2=-1) for item in (P, factor))
    regular = (info == 0) & (pivots.square() > least * variance).all(-1)
    factor = torch.where(regular[..., None, None], factor, eye)
    inverse = torch.linalg.solve_triangular(factor, eye.expand_as(P), upper=False)
    if P.is_meta or bool(regular.all()):
        return inverse
    variance = variance[~regular]
    scale = torch.where(variance > 0, variance.rsqrt(), 0.0)
    values, vectors = torch.linalg.eigh(P[~regular] * (scale.unsqueeze(-1) * scale.unsqueeze(-2)))
    whitening = torch.where(values > least, values.rsqrt(), 0.0).unsqueeze(-1) * vectors.mT * scale.unsqueeze(-2)
    return inverse.masked_scatter(~regular[..., None, None], whitening)


def _in_the_state(mean: Tensor, cov: Tensor, z: Tensor, covs: Tensor, gains: Tensor) -> SmoothedTrack:
    """The smoothed belief of the state from that of ``z``."""
    batch, steps = mean.shape[:2]
    found, crosses = [], []
    for place in groups(steps, cov[:, 0].numel(), cov):
        A = _factor(cov[:, place.start : place.stop + 1])
        here, T = A[:, : place.stop - place.start], covs[:, place]
        found.append((mean[:, place] + matvec(here, z[:, place]), symmetrize(here @ T @ here.mT)))
        gain = gains[:, place]
        crosses.append(A[:, : gain.shape[1]] @ gain @ covs[:, place.start + 1 : place.stop + 1] @ A[:, 1:].mT)
    means, all_covs = (torch.cat(items, 1) for items in zip(*found, strict=True))
    return SmoothedTrack(means, all_covs.expand(batch, -1, -1, -1), torch.cat(crosses, 1).expand(batch, -1, -1, -1))


def _smoothed_back(back: _Links, u: Tensor, end: Tensor, end_cov: Tensor) -> tuple[Tensor, Tensor]:
    """``x_t = E_t x_{t+1} + u_t`` and ``P_t = E_t P_{t+1} E_tᵀ + L_t``, from those after the last step."""
    same, batch = len(back.gain) < len(u), len(back.gain)
    shared = u.permute(1, 2, 0).unsqueeze(0) if same else u.unsqueeze(-1)
    begin = end.mT.unsqueeze(0) if same else end.unsqueeze(-1)
    E, L = back.gain.flip(1), back.spread.flip(1)
    x = varying_recursion(E, shared.flip(1), begin).flip(1)
    mean = x.squeeze(0).permute(2, 0, 1) if same else x.squeeze(-1)
    steps, n = E.shape[1], E.shape[-1]
    if E.device.type != "cpu":
        zero = torch.zeros_like(E)
        elements = Element(E, zero[..., 0], L, zero[..., 0], zero)
        found = prefixes(combine, Element(*(item.transpose(0, 1) for item in elements)))
        return mean, after_cov(found, end_cov).transpose(0, 1).flip(1)
    chunks = chunks_of(steps, wide=batch * n * n > WIDE, entries=batch * n * n)
    inside = [chunks.cut(item).flatten(0, 1).unbind(1) for item in (E, 0.5 * L)]
    P = end_cov
    if chunks.number > 1:
        A, C = inside[0][0], 2 * inside[1][0]
        for gain, half in list(zip(*inside, strict=True))[1:]:
            A, C = torch.bmm(gain, A), _spread(gain, C, half)
        before = [end_cov]
        for one, other in list(zip(*(item.unflatten(0, (batch, -1)).unbind(1) for item in (A, C)), strict=True))[:-1]:
            before.append(_spread(one, before[-1], 0.5 * other))
        P = torch.stack(before, 1).flatten(0, 1)
    found_cov = []
    for gain, half in zip(*inside, strict=True):
        P = _spread(gain, P, half)
        found_cov.append(P.unflatten(0, (batch, -1)))
    return mean, torch.stack(found_cov, 2).flatten(1, 2)[:, :steps].flip(1)


def _spread(E: Tensor, P: Tensor, half: Tensor) -> Tensor:
    """``E P Eᵀ + L``, exactly symmetric, from half of ``L``."""
    found = torch.baddbmm(half, torch.bmm(E, P), E.mT, alpha=0.5)
    return found + found.mT
