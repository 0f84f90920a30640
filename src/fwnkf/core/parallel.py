"""The Kalman filter over all steps of recordings at once: batched tensor operations, differentiable, no compiler.

Three ways, chosen by :func:`filter_scan`:

- constant matrices and nothing missing: the covariance is the same for all measurements. Its transient is computed by
  doubling, and after it the means are products with the impulse response of the steady state;
- otherwise on a CPU, chunks of steps side by side. One pass over the steps inside the chunks finds what each chunk
  makes of any belief before it (an :class:`Element`), these connect the chunks, and a second pass is the plain
  recursion from the beliefs that are now known;
- otherwise the associative scan of Särkkä and García-Fernández (2021), a tree of combined elements, whose depth grows
  with the logarithm of the number of steps.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..shapes import Bool, Float
from .affine import Chunks, chunks_of, constant_recursion, prefixes, varying_recursion
from .forms import precise_over_time
from .gaussian import (
    FullNoise,
    Noise,
    dense,
    joseph_of,
    matvec,
    prediction_keeps_digits,
    propagate,
    remaining,
    solved_rows,
    symmetrize,
)
from .linear_run import LinearRun, LinearTrack

SETTLED = 64
"""Units of the last digit by which a covariance may still change where it counts as steady."""

LONGEST = 4096
"""Steps that are computed at once at most, which bounds the memory beside that of the result."""

WIDE = 2000
"""Entries of the states of a batch above which a plain recursion is as fast as chunks side by side."""


def filter_scan(run: LinearRun, square_root: bool = False) -> LinearTrack:
    """The Kalman filter of a linear model over all steps of a batch of recordings.

    It agrees with the recursion up to rounding. Where ``ok`` is False in any step, the recursion would have skipped an
    update that cannot be skipped here: use the recursion for that recording.
    """
    if run.y.is_meta or run.y.is_cuda:
        return _completed(run, *_tree(run))
    if _is_constant(run):
        return _constant(run)
    return _completed(run, *_chunked(run))


def _is_constant(run: LinearRun) -> bool:
    one = run.kind is None or len(run.F) == 1
    return one and bool((run.weight == 1).all())


# ---- elements: what some steps make of any belief before them ---------------------------------------------------------


class Element(NamedTuple):
    """Steps as a function of the belief ``N(x, P)`` before them.

    Given ``x`` the state after them is ``N(A x + b, C)``, and their measurements have the likelihood
    ``exp(ηᵀ x - xᵀ J x / 2)`` up to a factor.
    """

    A: Float[Tensor, "*B n n"]
    b: Float[Tensor, "*B n"]
    C: Float[Tensor, "*B n n"]
    eta: Float[Tensor, "*B n"]
    J: Float[Tensor, "*B n n"]


def after(element: Element, mean: Float[Tensor, "*B n"], cov: Float[Tensor, "*B n n"]) -> tuple[Tensor, Tensor]:
    """The belief after the steps of an element.

    ``(I + P J)⁻¹ P = W P Wᵀ + W P J P Wᵀ`` with ``W = (I + P J)⁻¹``: a sum of positive semidefinite terms.
    """
    W = _inverse(cov, element.J)
    AW = element.A @ W
    AWP = AW @ cov
    return matvec(AW, mean + matvec(cov, element.eta)) + element.b, _moved_cov(AW, AWP, cov, element)


def after_cov(element: Element, cov: Float[Tensor, "*B n n"]) -> Float[Tensor, "*B n n"]:
    """The covariance after the steps of an element."""
    AW = element.A @ _inverse(cov, element.J)
    return _moved_cov(AW, AW @ cov, cov, element)


def _inverse(cov: Tensor, J: Tensor) -> Tensor:
    product = cov @ J
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    return torch.linalg.inv_ex(product + eye).inverse


def _moved_cov(AW: Tensor, AWP: Tensor, cov: Tensor, element: Element) -> Tensor:
    return symmetrize(AWP @ AW.mT + AWP @ element.J @ AWP.mT + element.C)


def combine(first: Element, then: Element) -> Element:
    """The steps of two elements, one after the other."""
    W = _inverse(first.C, then.J)
    AW, WA = then.A @ W, W @ first.A
    JWA = then.J @ WA
    J = symmetrize(WA.mT @ JWA + JWA.mT @ first.C @ JWA + first.J)
    return Element(
        AW @ first.A,
        matvec(AW, first.b + matvec(first.C, then.eta)) + then.b,
        _moved_cov(AW, AW @ first.C, first.C, then),
        matvec(WA.mT, then.eta - matvec(then.J, first.b)) + first.eta,
        J,
    )


def _first_elements(run: LinearRun) -> Element:
    """The elements of single steps, ``[B, T, …]``."""
    F, Q = _matrices(run)
    H, shape = run.H, (*run.y.shape[:2], run.F.shape[-1])
    shift = run.y.new_zeros(shape) if run.shift is None else run.shift.expand(shape)
    if not run.predicts_first:
        shift = torch.cat((torch.zeros_like(shift[:, :1]), shift[:, 1:]), 1)
    r = (run.y - matvec(H, shift)) * run.weight
    seen = (H @ F).mT
    rows = torch.cat((Q @ H.mT, seen), -2)
    solved, _, _, _ = solved_rows(rows.expand(*shape[:2], -1, -1), Q, H, run.R, run.weight)
    K, information = solved.split(shape[-1], -2)
    IKH = remaining(K, H)
    return Element(
        IKH @ F, shift + matvec(K, r), joseph_of(Q, IKH, K, run.R), matvec(information, r), information @ seen.mT
    )


def _matrices(run: LinearRun) -> tuple[Tensor, Tensor]:
    """``F`` and ``Q`` of all steps; those of a step that is not predicted are the identity and zero."""
    if run.kind is None:
        F, Q = (item[:1].unsqueeze(0).expand(*run.y.shape[:2], -1, -1) for item in (run.F, run.Q))
    else:
        F, Q = run.F[run.kind], run.Q[run.kind]
    if run.predicts_first:
        return F, Q
    eye = torch.eye(F.shape[-1], dtype=F.dtype, device=F.device).expand_as(F[:, :1])
    return torch.cat((eye, F[:, 1:]), 1), torch.cat((torch.zeros_like(eye), Q[:, 1:]), 1)


# ---- the tree -------------------------------------------------------------------------------------------------------


class Beliefs(NamedTuple):
    """What is believed before and after every step."""

    prior_mean: Float[Tensor, "B T n"]
    prior_cov: Float[Tensor, "B T n n"]
    mean: Float[Tensor, "B T n"]
    cov: Float[Tensor, "B T n n"]


def _tree(run: LinearRun) -> Beliefs:
    mean, cov, parts = run.mean, run.cov, []
    for start in range(0, run.y.shape[1], LONGEST):
        piece = _piece(run, start, LONGEST)._replace(mean=mean, cov=cov)
        elements = Element(*(item.transpose(0, 1) for item in _first_elements(piece)))
        prefix = prefixes(combine, elements)
        means, covs = (item.transpose(0, 1) for item in after(Element(*prefix), mean, cov))
        # the last step of each prefix again as the recursion makes it: exactly symmetric, positive semidefinite
        before = (torch.cat((mean.unsqueeze(1), means[:, :-1]), 1), torch.cat((cov.unsqueeze(1), covs[:, :-1]), 1))
        parts.append(_one_step(piece, *before))
        mean, cov = parts[-1].mean[:, -1], parts[-1].cov[:, -1]
    return Beliefs(*(torch.cat(items, 1) for items in zip(*parts, strict=True)))


def _piece(run: LinearRun, start: int, length: int) -> LinearRun:
    place = slice(start, start + length)
    return run._replace(
        y=run.y[:, place],
        weight=run.weight[:, place],
        kind=None if run.kind is None else run.kind[:, place],
        shift=None if run.shift is None else run.shift[:, place],
        predicts_first=run.predicts_first or start > 0,
    )


def _one_step(run: LinearRun, mean: Float[Tensor, "B T n"], cov: Float[Tensor, "B T n n"]) -> Beliefs:
    """Every step from the belief after the step before it."""
    F, Q = _matrices(run)
    prior = matvec(F, mean)
    if run.shift is not None:
        moved = run.shift if run.predicts_first else torch.cat((torch.zeros_like(prior[:, :1]), run.shift[:, 1:]), 1)
        prior = prior + moved
    prior_cov = propagate(cov, F, Q)
    K = solved_rows(prior_cov @ run.H.mT, prior_cov, run.H, run.R, run.weight)[0]
    innovation = (run.y - matvec(run.H, prior)) * run.weight
    return Beliefs(prior, prior_cov, prior + matvec(K, innovation), joseph_of(prior_cov, remaining(K, run.H), K, run.R))


# ---- chunks side by side --------------------------------------------------------------------------------------------


class _Inputs(NamedTuple):
    """What one step inside the chunks reads, for all of them; matrices without a batch axis are the same for all."""

    F_transposed: Tensor
    Q: Tensor
    shift: Tensor | None
    y: Tensor
    weight: Tensor


def _chunked(run: LinearRun) -> Beliefs:
    batch, steps, m = run.y.shape
    n = run.F.shape[-1]
    chunks = chunks_of(steps, wide=batch * n * n > WIDE)
    inputs = _cut_inputs(run, chunks)
    H, R, eye = run.H, dense(run.R), torch.eye(n, dtype=run.F.dtype, device=run.F.device)
    mean, cov = run.mean.unsqueeze(1), run.cov.unsqueeze(1)
    if chunks.count > 1:
        element = _chunk_elements(inputs, H, R, eye)
        mean, cov = _connected(Element(*(item.unflatten(0, (batch, -1)) for item in element)), run.mean, run.cov)
    mean, cov = mean.flatten(0, 1), cov.flatten(0, 1)
    found: list[Beliefs] = []
    for item in inputs:
        prior, prior_cov = _predicted(mean, cov, item)
        _, _, innovation, K, cov = _updated(prior, prior_cov, item, H, R, eye)
        mean = torch.baddbmm(prior.unsqueeze(-1), K, innovation.unsqueeze(-1)).squeeze(-1)
        found.append(Beliefs(prior, prior_cov, mean, cov))
    return Beliefs(
        *(
            torch.stack([item.unflatten(0, (batch, -1)) for item in items], 2).flatten(1, 2)[:, :steps]
            for items in zip(*found, strict=True)
        )
    )


def _cut_inputs(run: LinearRun, chunks: Chunks) -> list[_Inputs]:
    """The inputs of each step inside the chunks."""
    F_transposed, Q = run.F.mT.contiguous(), run.Q
    y, weight = (chunks.cut(item).flatten(0, 1).unbind(1) for item in (run.y, run.weight))
    index = None if run.kind is None else chunks.cut(run.kind).flatten(0, 1).unbind(1)
    shift = None if run.shift is None else chunks.cut(run.shift).flatten(0, 1).unbind(1)
    inputs = []
    for step in range(chunks.length):
        if index is None:
            one, other = F_transposed[0], Q[0]
        else:
            one, other = F_transposed.index_select(0, index[step]), Q.index_select(0, index[step])
        c = None if shift is None else shift[step]
        if step == 0 and not run.predicts_first:
            held = torch.arange(len(y[0]), device=run.y.device) % chunks.count == 0
            one = torch.where(held[:, None, None], torch.eye(one.shape[-1], dtype=one.dtype, device=one.device), one)
            other = torch.where(held[:, None, None], 0.0, other)
            c = None if c is None else torch.where(held.unsqueeze(-1), 0.0, c)
        inputs.append(_Inputs(one, other, c, y[step], weight[step]))
    return inputs


def _predicted(mean: Tensor, cov: Tensor, item: _Inputs) -> tuple[Tensor, Tensor]:
    Ft = item.F_transposed
    if Ft.ndim == 2:  # one product for all chunks
        mean = mean @ Ft
    else:
        mean = torch.bmm(mean.unsqueeze(-2), Ft).squeeze(-2)
    half = (cov @ Ft).mT.contiguous() @ (0.5 * Ft)
    return mean if item.shift is None else mean + item.shift, half + half.mT + item.Q


def _updated(
    mean: Tensor, cov: Tensor, item: _Inputs, H: Tensor, R: Tensor, eye: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """``P Hᵀ``, the inverse of ``S`` over the measured channels, innovation, gain and posterior covariance."""
    PHt = cov @ H.mT
    both = item.weight.unsqueeze(-1) * item.weight.unsqueeze(-2)
    S = (PHt.mT.contiguous() @ H.mT + R) * both + torch.diag_embed(1 - item.weight)
    inverse = (S.reciprocal() if S.shape[-1] == 1 else torch.linalg.inv_ex(S).inverse) * both
    K = PHt @ inverse
    return PHt, inverse, (item.y - mean @ H.mT) * item.weight, K, joseph_of(cov, eye - K @ H, K, FullNoise(R))


def _chunk_elements(inputs: list[_Inputs], H: Tensor, R: Tensor, eye: Tensor) -> Element:
    """The elements of whole chunks: the recursion from a state that is known, and what it tells about that state."""
    chunks, n = len(inputs[0].y), len(eye)
    transposed, cov = eye.expand(chunks, n, n), torch.zeros_like(eye).expand(chunks, n, n)
    J, mean, eta = cov, cov[..., 0], cov[..., 0]
    for item in inputs:
        mean, cov = _predicted(mean, cov, item)
        _, inverse, innovation, K, cov = _updated(mean, cov, item, H, R, eye)
        mean = torch.baddbmm(mean.unsqueeze(-1), K, innovation.unsqueeze(-1)).squeeze(-1)
        transposed = transposed @ item.F_transposed
        seen = transposed @ H.mT
        weighted = seen @ inverse
        J = torch.baddbmm(J, weighted, seen.mT)
        eta = torch.baddbmm(eta.unsqueeze(-1), weighted, innovation.unsqueeze(-1)).squeeze(-1)
        transposed = torch.baddbmm(transposed, seen, K.mT, alpha=-1)
    return Element(transposed.mT, mean, cov, eta, symmetrize(J))


def _connected(chunks: Element, mean: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
    """The beliefs before every chunk, from that before the first."""
    means, covs = [mean], [cov]
    for items in zip(*(part.unbind(1)[:-1] for part in chunks), strict=True):
        mean, cov = after(Element(*items), means[-1], covs[-1])
        means.append(mean)
        covs.append(cov)
    return torch.stack(means, 1), torch.stack(covs, 1)


# ---- what follows from the beliefs ----------------------------------------------------------------------------------


def _completed(run: LinearRun, *beliefs: Tensor) -> LinearTrack:
    """Innovations, densities and flags of all steps from what is believed before and after them."""
    every = Beliefs(*beliefs)
    before = torch.cat((run.cov.unsqueeze(1), every.cov[:, :-1]), 1)
    length = max(1, LONGEST // len(run.y))
    parts = []
    for start in range(0, run.y.shape[1], length):
        place = slice(start, start + length)
        parts.append(
            _measured(_piece(run, start, length), before[:, place], Beliefs(*(item[:, place] for item in every)))
        )
    innovation, S, density, ok, precise = (torch.cat(items, 1) for items in zip(*parts, strict=True))
    return LinearTrack(
        every.mean, every.cov, every.prior_mean, every.prior_cov, innovation, S, density, ok, precise & ok
    )


def _measured(run: LinearRun, before: Tensor, at: Beliefs) -> tuple[Tensor, ...]:
    n, H = run.F.shape[-1], run.H
    innovation = (run.y - at.prior_mean @ H.mT) * run.weight
    rows = torch.cat((at.prior_cov @ H.mT, innovation.unsqueeze(-2)), -2)
    solved, S, ok, pivots = solved_rows(rows, at.prior_cov, H, run.R, run.weight)
    K, weighted = solved[..., :n, :], solved[..., n, :]
    density = _density(innovation, weighted, pivots, run.weight)
    precise = precise_over_time(at.prior_cov, at.cov, K, S, pivots, innovation, weighted, H, run.R, run.y, run.weight)
    return innovation, S, density, ok, precise & _predicted_precisely(run, before, at.prior_cov)


@torch.no_grad()
def _predicted_precisely(run: LinearRun, before: Tensor, prior_cov: Tensor) -> Bool[Tensor, "B T"]:
    F = run.F[0] if run.kind is None else run.F[run.kind]
    fine = prediction_keeps_digits(before, F, prior_cov)
    if run.predicts_first:
        return fine
    return torch.cat((torch.ones_like(fine[:, :1]), fine[:, 1:]), 1)


def _density(innovation: Tensor, weighted: Tensor, pivots: Tensor, weight: Tensor) -> Tensor:
    constant = weight.sum(-1) * math.log(2 * math.pi)
    return -0.5 * ((innovation * weighted).sum(-1) + pivots.log().sum(-1) + constant)


# ---- constant matrices ----------------------------------------------------------------------------------------------


def _constant(run: LinearRun) -> LinearTrack:
    """The steps of the transient, with a gain of their own each, then those with the gain of the steady state."""
    F, Q, H, noise, (_, steps, m) = run.F[0], run.Q[0], run.H, run.R, run.y.shape
    same = len(run.cov) == 1 or bool((run.cov == run.cov[:1]).all())
    start = run.cov[:1] if same else run.cov
    first = propagate(start, F, Q) if run.predicts_first else start
    covs = settling(F, H, Q, noise, first, steps)
    prior_cov = torch.cat((first.unsqueeze(1), propagate(covs, F, Q)), 1)[:, :steps]
    eye = torch.eye(m, dtype=F.dtype, device=F.device)
    rows = torch.cat((prior_cov @ H.mT, eye.expand(*prior_cov.shape[:2], m, m)), -2)
    solved, S, ok, pivots = solved_rows(rows, prior_cov, H, noise)
    K, inverse = solved.split((len(F), m), -2)
    IKH = remaining(K, H)
    cov = joseph_of(prior_cov, IKH, K, noise)

    settled = prior_cov.shape[1] - 1  # steps before the last gain, which is that of the rest
    shift = None if run.shift is None else torch.nn.functional.pad(run.shift[:, 1:], (0, 0, 0, 1))
    here = run.mean @ F.mT if run.predicts_first else run.mean
    if run.predicts_first and run.shift is not None:
        here = here + run.shift[:, 0]
    pieces = [here.unsqueeze(1)]
    if settled:
        u = matvec(F @ K[:, :-1], run.y[:, :settled])
        u = u if shift is None else u + shift[:, :settled]
        shared = u.permute(1, 2, 0).unsqueeze(0) if same else u.unsqueeze(-1)
        begin = here.mT.unsqueeze(0) if same else here.unsqueeze(-1)
        moved = varying_recursion(F @ IKH[:, :-1], shared, begin)
        pieces.append(moved.squeeze(0).permute(2, 0, 1) if same else moved.squeeze(-1))
    if steps - settled > 1:
        gain, rest = F @ K[:, -1], slice(settled, steps - 1)
        u = run.y[:, rest] @ gain.mT
        u = u if shift is None else u + shift[:, rest]
        closed = F @ IKH[:, -1]
        begin = pieces[-1][:, -1]
        pieces.append(torch.cat([constant_recursion(A, part, x) for A, part, x in _by_loop(closed, u, begin)]))
    prior_mean = torch.cat(pieces, 1)
    innovation = run.y - prior_mean @ H.mT

    def over_time(item: Tensor) -> Tensor:
        """Those of the transient, then the last one for the rest."""
        rest = item[:, -1:].expand(-1, steps - settled, *item.shape[2:])
        return torch.cat((item[:, :settled], rest), 1).expand(len(run.y), *(-1,) * (item.ndim - 1))

    def times(matrix: Tensor, x: Tensor) -> Tensor:
        return torch.cat((matvec(matrix[:, :-1], x[:, :settled]), x[:, settled:] @ matrix[:, -1].mT), 1)

    weighted = times(inverse, innovation)
    before = torch.cat((start.unsqueeze(1), cov[:, :-1]), 1)
    predicted = prediction_keeps_digits(before, F, prior_cov)
    if not run.predicts_first:
        predicted = torch.cat((torch.ones_like(predicted[:, :1]), predicted[:, 1:]), 1)
    precise = torch.cat(
        [
            precise_over_time(
                *(item[:, one] for item in (prior_cov, cov, K, S, pivots)),
                innovation[:, many],
                weighted[:, many],
                H,
                noise,
                run.y[:, many],
                IKH=IKH[:, one],
            )
            & predicted[:, one]
            for one, many in ((slice(0, -1), slice(0, settled)), (slice(-1, None), slice(settled, None)))
        ],
        1,
    )
    log_det = over_time(pivots.log().sum(-1))
    density = -0.5 * ((innovation * weighted).sum(-1) + log_det + m * math.log(2 * math.pi))
    every_ok = over_time(ok)
    return LinearTrack(
        prior_mean + times(K, innovation),
        over_time(cov),
        prior_mean,
        over_time(prior_cov),
        innovation,
        over_time(S),
        density,
        every_ok,
        precise & every_ok,
    )


def _by_loop(closed: Tensor, u: Tensor, start: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """A closed loop with the recordings that share it."""
    if len(closed) == 1:
        return [(closed[0], u, start)]
    return [(A, u[k : k + 1], start[k : k + 1]) for k, A in enumerate(closed)]


def settling(
    F: Float[Tensor, "n n"],
    H: Float[Tensor, "m n"],
    Q: Float[Tensor, "n n"],
    noise: Noise,
    prior_cov: Float[Tensor, "b n n"],
    steps: int,
) -> Float[Tensor, "b S n n"]:
    """Covariances after the updates of the first steps, until they no longer change or ``steps`` are reached.

    ``2ᵏ`` steps at once from the covariances of the ``2ᵏ`` steps before them, by the element of so many steps.
    """
    n = len(F)
    K = solved_rows(prior_cov @ H.mT, prior_cov, H, noise)[0]
    covs = joseph_of(prior_cov, remaining(K, H), K, noise).unsqueeze(1)
    seen, zero = (H @ F).mT, torch.zeros_like(F[0])
    solved, _, _, _ = solved_rows(torch.cat((Q @ H.mT, seen)).unsqueeze(0), Q.unsqueeze(0), H, noise)
    K, information = solved[0].split(n)
    IKH = remaining(K, H)
    element = Element(IKH @ F, zero, joseph_of(Q, IKH, K, noise), zero, symmetrize(information @ seen.mT))
    length = 1
    while covs.shape[1] < steps:
        old = covs[:, -length:]
        new = after_cov(element, old)
        one_before = new[:, -2:-1] if length > 1 else old
        settled = _unchanged(new[:, -1:], old[:, -1:]) and _unchanged(new[:, -1:], one_before)
        covs = torch.cat((covs, new), 1)
        if settled:
            break
        if length < LONGEST:
            element, length = combine(element, element), 2 * length
    return covs[:, :steps]


@torch.no_grad()
def _unchanged(new: Tensor, old: Tensor) -> bool:
    std = torch.diagonal(new, dim1=-2, dim2=-1).clamp_min(0).sqrt()
    size = std.unsqueeze(-1) * std.unsqueeze(-2)
    return bool(((new - old).abs() <= SETTLED * torch.finfo(new.dtype).eps * size).all())
