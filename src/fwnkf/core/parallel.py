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
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from ..shapes import Bool, Float
from .affine import Chunks, chunks_of, constant_recursion, groups, prefixes, varying_recursion
from .forms import measured_precisely, precise_over_time
from .gaussian import (
    Noise,
    dense,
    factor_psd,
    joseph_of,
    masked,
    matvec,
    prediction_keeps_digits,
    propagate,
    remaining,
    solve_rows,
    solved_rows,
    symmetrize,
)
from .linear_run import LinearRun, LinearTrack
from .parallel_root import RootElement, measured_factors, predicted_factor, root_after, root_combine, step_element
from .tree import tree_leaves

SETTLED = 64
"""Units of the last digit by which a covariance may still change where it counts as steady."""

LONGEST = 4096
"""Steps that are computed at once at most, which bounds the memory beside that of the result."""

JOINED = 64
"""Roots of the last digit, in standard deviations, by which a chunk may end beside the start of the next."""

RECORDED = 2_500_000
"""Entries of all covariances up to which gradients keep every step, about a gigabyte; parts of longer runs are computed
again in the backward pass, which takes about a third more time."""

WIDE = 2000
"""Entries of the states of a batch above which a plain recursion is as fast as chunks side by side."""


def filter_scan(run: LinearRun, square_root: bool = False) -> LinearTrack:
    """The Kalman filter of a linear model over all steps of a batch of recordings.

    It agrees with the recursion up to rounding, which is checked (:func:`joined`); what does not is computed in shorter
    pieces, at worst one step after the other. Where ``ok`` is False in any step, the recursion would have skipped an
    update that cannot be skipped here: use the recursion for that recording.

    ``square_root`` carries factors of covariances, for what float32 cannot hold otherwise; there are no gradients then.
    """
    run = of_one_kind(run)
    if square_root:
        return _root_tree(run)
    if not run.y.is_meta and is_constant(run):
        track = _constant(run)
        if track is not None:
            return track
    return _completed(run, _chunked_in_parts(run) if run.y.device.type == "cpu" else _tree(run))


def of_one_kind(run: LinearRun) -> LinearRun:
    """The run, which says that all steps are of one length where they are."""
    return run._replace(kind=None) if len(run.F) == 1 else run


def is_constant(run: LinearRun) -> bool:
    """Whether all steps are of one length, with all channels measured."""
    return run.kind is None and bool((run.weight == 1).all())


@torch.no_grad()
def joined(cov: Tensor, by_step: Tensor, mean: Tensor | None = None, mean_by_step: Tensor | None = None) -> bool:
    """Whether beliefs found by elements of many steps are those to which single steps lead, in units of their spread.

    An unstable state that no noise drives grows within an element until rounding is all that is left of the others; the
    recursion, which forgets with every measurement, keeps them.
    """
    if cov.is_meta or not cov.numel():
        return True
    eps = torch.finfo(cov.dtype).eps
    std = torch.diagonal(by_step, dim1=-2, dim2=-1).clamp_min(0).sqrt()
    fine = ((cov - by_step).abs() <= JOINED * eps**0.5 * std.unsqueeze(-1) * std.unsqueeze(-2)).all()
    if mean is not None and mean_by_step is not None:
        size = JOINED * (eps**0.5 * std + eps * mean_by_step.abs())
        fine = fine & ((mean - mean_by_step).abs() <= size).all()
    return bool(fine)


# ---- elements: what some steps make of any belief before them -------------------------------------------------------


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


def after(element: Element, mean: Float[Tensor, "*A n"], cov: Float[Tensor, "*B n n"]) -> tuple[Tensor, Tensor]:
    """The belief after the steps of an element."""
    AW = element.A @ _inverse(cov, element.J)
    return matvec(AW, mean + matvec(cov, element.eta)) + element.b, _moved_cov(AW, cov, element)


def after_cov(element: Element, cov: Float[Tensor, "*B n n"]) -> Float[Tensor, "*C n n"]:
    """The covariance after the steps of an element."""
    return _moved_cov(element.A @ _inverse(cov, element.J), cov, element)


def _inverse(cov: Tensor, J: Tensor) -> Tensor:
    """``W = (I + P J)⁻¹``: what the measurements of an element leave of the belief ``P`` before it is ``W P``."""
    eye = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    return torch.linalg.inv_ex(eye + cov @ J).inverse


def _moved_cov(AW: Tensor, cov: Tensor, element: Element) -> Tensor:
    """``A W P Aᵀ + C``, as a sum of positive semidefinite terms: ``W P = W P Wᵀ + W P J P Wᵀ``."""
    AWP = AW @ cov
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
        _moved_cov(AW, first.C, then),
        matvec(WA.mT, then.eta - matvec(then.J, first.b)) + first.eta,
        J,
    )


def _first_elements(run: LinearRun) -> Element:
    """The elements of single steps, ``[B, T, …]``."""
    F, Q = _matrices(run)
    H, shift = run.H, _shift(run)
    shape = shift.shape
    r = (run.y - matvec(H, shift)) * run.weight
    seen = (H @ F).mT
    rows = torch.cat((Q @ H.mT, seen), -2)
    solved, _, _, _ = solved_rows(rows.expand(*shape[:2], -1, -1), Q, H, run.R, run.weight)
    K, information = solved.split(shape[-1], -2)
    IKH = remaining(K, H)
    return Element(
        IKH @ F, shift + matvec(K, r), joseph_of(Q, IKH, K, run.R), matvec(information, r), information @ seen.mT
    )


def _shift(run: LinearRun) -> Tensor:
    """``c`` of all steps; zero in a step that is not predicted."""
    if run.shift is None:
        return run.y.new_zeros(*run.y.shape[:2], run.F.shape[-1])
    return run.shift if run.predicts_first else torch.nn.functional.pad(run.shift[:, 1:], (0, 0, 1, 0))


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
    gain: Float[Tensor, "B T n m"]


def _tree(run: LinearRun) -> Beliefs:
    mean, cov, parts = run.mean, run.cov, []
    places = groups(run.y.shape[1], run.cov.numel(), run.y)
    while places:
        place = places.pop(0)
        piece = _piece(run, place)
        elements = Element(*(item.transpose(0, 1) for item in _first_elements(piece)))
        means, covs = (item.transpose(0, 1) for item in after(prefixes(combine, elements), mean, cov))
        # the last step of each prefix again as the recursion makes it: exactly symmetric, positive semidefinite
        before = (torch.cat((mean.unsqueeze(1), means[:, :-1]), 1), torch.cat((cov.unsqueeze(1), covs[:, :-1]), 1))
        found = _one_step(piece, *before)
        shorter = _shorter(place)
        if shorter and not joined(covs, found.cov, means, found.mean):
            places = shorter + places
            continue
        parts.append(found)
        mean, cov = found.mean[:, -1], found.cov[:, -1]
    return Beliefs(*(torch.cat(items, 1) for items in zip(*parts, strict=True)))


def _shorter(place: slice) -> list[slice]:
    """Steps in parts of which elements grow less; none for a single step."""
    length = -(-(place.stop - place.start) // 16)
    if place.stop - place.start == 1:
        return []
    return [slice(start, min(start + length, place.stop)) for start in range(place.start, place.stop, length)]


@torch.no_grad()
def _root_tree(run: LinearRun) -> LinearTrack:
    """As :func:`_tree`, with factors; the steps are those of :func:`_one_step` with factors too."""
    mean, U, parts = run.mean, factor_psd(run.cov), []
    roots = factor_psd(run.Q)
    places = groups(run.y.shape[1], run.cov.numel(), run.y)
    while places:
        place = places.pop(0)
        piece = _piece(run, place)
        F, root_Q = _matrices(piece._replace(Q=roots))
        weight, shift = piece.weight, _shift(piece)
        H, root_R = run.H * weight.unsqueeze(-1), factor_psd(masked(dense(run.R), weight))
        elements = step_element(F, root_Q, shift, H, root_R, (piece.y - matvec(run.H, shift)) * weight)
        prefix = prefixes(root_combine, RootElement(*(item.transpose(0, 1) for item in elements)))
        means, factors = (item.transpose(0, 1) for item in root_after(prefix, mean, U))
        before = torch.cat((U.unsqueeze(1), factors[:, :-1]), 1)
        prior = matvec(F, torch.cat((mean.unsqueeze(1), means[:, :-1]), 1)) + shift
        prior_factor = predicted_factor(before, F, root_Q)
        _, K, factor = measured_factors(prior_factor, H, root_R)
        innovation = (piece.y - prior @ run.H.mT) * weight
        prior_cov, cov = (symmetrize(item @ item.mT) for item in (prior_factor, factor))
        at = Beliefs(prior, prior_cov, prior + matvec(K, innovation), cov, K)
        shorter = _shorter(place)
        if shorter and not joined(factors @ factors.mT, cov, means, at.mean):
            places = shorter + places
            continue
        parts.append((*at[2:4], *at[:2], *_measured(piece, None, at)))
        mean, U = at.mean[:, -1], factor[:, -1]
    return LinearTrack(*(torch.cat(items, 1) for items in zip(*parts, strict=True)))


def _piece(run: LinearRun, place: slice) -> LinearRun:
    return run._replace(
        y=run.y[:, place],
        weight=run.weight[:, place],
        kind=None if run.kind is None else run.kind[:, place],
        shift=None if run.shift is None else run.shift[:, place],
        predicts_first=run.predicts_first or place.start > 0,
    )


def _one_step(run: LinearRun, mean: Float[Tensor, "B T n"], cov: Float[Tensor, "B T n n"]) -> Beliefs:
    """Every step from the belief after the step before it."""
    F, Q = _matrices(run)
    prior = matvec(F, mean) + _shift(run)
    prior_cov = propagate(cov, F, Q)
    K = solved_rows(prior_cov @ run.H.mT, prior_cov, run.H, run.R, run.weight)[0]
    innovation = (run.y - matvec(run.H, prior)) * run.weight
    cov = joseph_of(prior_cov, remaining(K, run.H), K, run.R)
    return Beliefs(prior, prior_cov, prior + matvec(K, innovation), cov, K)


# ---- chunks side by side --------------------------------------------------------------------------------------------


class _Inputs(NamedTuple):
    """What one step inside the chunks reads, for all of them; matrices without a batch axis are the same for all."""

    F_transposed: Tensor
    half_noise: Tensor
    shift: Tensor | None
    y: Tensor
    weight: Tensor
    both: Tensor
    """1 where two channels were measured together."""
    absent: Tensor
    """1 on the diagonal where a channel was not measured."""


def _chunked_in_parts(run: LinearRun) -> Beliefs:
    """The recursion over all steps; of what gradients need, that of :data:`RECORDED` entries is kept at a time."""
    length = max(1, RECORDED // run.cov.numel())
    given = (run.F, run.Q, run.H, run.R, run.y, run.mean, run.cov, run.shift)
    learned = any(item.requires_grad for item in tree_leaves(given))
    if run.y.shape[1] <= length or not (learned and torch.is_grad_enabled()):
        return _chunked(run)
    parts: list[Beliefs] = []
    for start in range(0, run.y.shape[1], length):
        piece = _piece(run, slice(start, start + length))
        if parts:
            piece = piece._replace(mean=parts[-1].mean[:, -1], cov=parts[-1].cov[:, -1])
        parts.append(recompute(_chunked, piece, use_reentrant=False))
    return Beliefs(*(torch.cat(items, 1) for items in zip(*parts, strict=True)))


def _chunked(run: LinearRun) -> Beliefs:
    batch, steps, _ = run.y.shape
    n = run.F.shape[-1]
    chunks = chunks_of(steps, wide=batch * n * n > WIDE, entries=batch * n * n)
    if chunks.number > 1:
        inputs = _Inside(run, chunks)
        element = Element(*(item.unflatten(0, (batch, -1)) for item in _chunk_elements(inputs, run.H, dense(run.R))))
        for connect in (_connected, _connected_one_by_one):
            mean, cov = connect(element, run.mean, run.cov)
            ends, found = _recursion(inputs, run, mean.flatten(0, 1), cov.flatten(0, 1))
            end, end_cov = (item.unflatten(0, (batch, -1))[:, :-1] for item in ends)
            if joined(cov[:, 1:], end_cov, mean[:, 1:], end):
                return found
    return _recursion(_Inside(run, Chunks(1, steps)), run, run.mean, run.cov)[1]


def _recursion(inputs: _Inside, run: LinearRun, mean: Tensor, cov: Tensor) -> tuple[tuple[Tensor, Tensor], Beliefs]:
    """The plain recursion inside all chunks: the beliefs after them, and those of every step."""
    H, R, (batch, steps, _) = run.H, dense(run.R), run.y.shape
    found: list[Beliefs] = []
    for item in inputs:
        prior, prior_cov = _predicted(mean, cov, item)
        mean, cov, K, _, _ = _updated(prior, prior_cov, item, H, R)
        found.append(Beliefs(prior, prior_cov, mean, cov, K))
    every = (
        torch.stack([item.unflatten(0, (batch, -1)) for item in items], 2).flatten(1, 2)[:, :steps]
        for items in zip(*found, strict=True)
    )
    return (mean, cov), Beliefs(*every)


class _Inside:
    """The inputs of each step inside the chunks, gathered when it is its turn."""

    def __init__(self, run: LinearRun, chunks: Chunks) -> None:
        self.run, self.chunks = run, chunks
        self.F_transposed, self.half_noise = run.F.mT.contiguous(), 0.5 * run.Q
        self.y, self.weight = self._by_step(run.y), self._by_step(run.weight)
        self.both = self.weight.unsqueeze(-1) * self.weight.unsqueeze(-2)
        self.absent = torch.diag_embed(1 - self.weight)
        self.kind = None if run.kind is None else self._by_step(run.kind)
        self.shift = None if run.shift is None else self._by_step(run.shift)

    def _by_step(self, item: Tensor) -> Tensor:
        return self.chunks.cut(item).flatten(0, 1).transpose(0, 1).contiguous()

    def __iter__(self) -> Iterator[_Inputs]:
        for step in range(self.chunks.length):
            F_transposed, half_noise = self.F_transposed[0], self.half_noise[0]
            if self.kind is not None:
                which = self.kind[step]
                F_transposed, half_noise = (
                    self.F_transposed.index_select(0, which),
                    self.half_noise.index_select(0, which),
                )
            shift = None if self.shift is None else self.shift[step]
            if step == 0 and not self.run.predicts_first:
                held = torch.arange(len(self.y[0]), device=self.y.device) % self.chunks.number == 0
                eye = torch.eye(F_transposed.shape[-1], dtype=F_transposed.dtype, device=F_transposed.device)
                F_transposed = torch.where(held[:, None, None], eye, F_transposed)
                half_noise = torch.where(held[:, None, None], 0.0, half_noise)
                shift = None if shift is None else torch.where(held.unsqueeze(-1), 0.0, shift)
            yield _Inputs(
                F_transposed, half_noise, shift, *(item[step] for item in (self.y, self.weight, self.both, self.absent))
            )


def _predicted(mean: Tensor, cov: Tensor, item: _Inputs) -> tuple[Tensor, Tensor]:
    Ft = item.F_transposed
    if Ft.ndim == 2:  # one product for all chunks
        mean = mean @ Ft
        half = torch.add(item.half_noise, (cov @ Ft).mT.contiguous() @ Ft, alpha=0.5)
    else:
        mean = torch.bmm(mean.unsqueeze(-2), Ft).squeeze(-2)
        half = torch.baddbmm(item.half_noise, torch.bmm(cov, Ft).mT, Ft, alpha=0.5)
    return mean if item.shift is None else mean + item.shift, half + half.mT


def _updated(
    prior: Tensor, P: Tensor, item: _Inputs, H: Tensor, R: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Mean and covariance, gain, innovation, and the inverse of ``S`` over the measured channels.

    The covariance is that of :func:`.gaussian.joseph`, of which only products with ``m`` columns are left:
    ``X = P - K H P`` and ``X - (X Hᵀ - K R) Kᵀ``.
    """
    PHt = P @ H.mT
    S = torch.addcmul(item.absent, PHt.mT.contiguous() @ H.mT + R, item.both)
    inverse = (S.reciprocal() if S.shape[-1] == 1 else torch.linalg.inv_ex(S).inverse) * item.both
    K = torch.bmm(PHt, inverse)
    X = torch.baddbmm(P, K, PHt.mT, alpha=-1)
    half = torch.baddbmm(X, X @ H.mT - K @ R, K.mT, beta=0.5, alpha=-0.5)
    innovation = (item.y - prior @ H.mT) * item.weight
    mean = torch.baddbmm(prior.unsqueeze(-1), K, innovation.unsqueeze(-1)).squeeze(-1)
    return mean, half + half.mT, K, innovation, inverse


def _chunk_elements(inputs: _Inside, H: Tensor, R: Tensor) -> Element:
    """The elements of whole chunks: the recursion from a state that is known, and what it tells about that state."""
    n = H.shape[-1]
    eye = torch.eye(n, dtype=H.dtype, device=H.device)
    shape = (inputs.y.shape[1], n, n)
    transposed, cov = eye.expand(shape), torch.zeros_like(eye).expand(shape)
    J, mean, eta = cov, cov[..., 0], cov[..., 0]
    for item in inputs:
        mean, cov = _predicted(mean, cov, item)
        mean, cov, K, innovation, inverse = _updated(mean, cov, item, H, R)
        transposed = transposed @ item.F_transposed
        seen = transposed @ H.mT
        weighted = torch.bmm(seen, inverse)
        J = torch.baddbmm(J, weighted, seen.mT)
        eta = torch.baddbmm(eta.unsqueeze(-1), weighted, innovation.unsqueeze(-1)).squeeze(-1)
        transposed = torch.baddbmm(transposed, seen, K.mT, alpha=-1)
    return Element(transposed.mT, mean, cov, eta, symmetrize(J))


def _connected(chunks: Element, mean: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
    """The beliefs before every chunk, from that before the first."""
    earlier = Element(*(part[:, :-1].transpose(0, 1) for part in chunks))
    means, covs = after(prefixes(combine, earlier), mean, cov)
    return torch.cat((mean.unsqueeze(1), means.transpose(0, 1)), 1), torch.cat(
        (cov.unsqueeze(1), covs.transpose(0, 1)), 1
    )


def _connected_one_by_one(chunks: Element, mean: Tensor, cov: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`_connected`, without elements of more than a chunk."""
    means, covs = [mean], [cov]
    for items in zip(*(part.unbind(1)[:-1] for part in chunks), strict=True):
        mean, cov = after(Element(*items), means[-1], covs[-1])
        means.append(mean)
        covs.append(cov)
    return torch.stack(means, 1), torch.stack(covs, 1)


# ---- what follows from the beliefs ----------------------------------------------------------------------------------


def _completed(run: LinearRun, every: Beliefs) -> LinearTrack:
    """Innovations, densities and flags of all steps from what is believed before and after them."""
    before = torch.cat((run.cov.unsqueeze(1), every.cov[:, :-1]), 1)
    parts = []
    for place in groups(run.y.shape[1], run.cov.numel(), run.y):
        at = Beliefs(*(item[:, place] for item in every))
        parts.append(_measured(_piece(run, place), before[:, place], at))
    innovation, S, density, ok, precise = (torch.cat(items, 1) for items in zip(*parts, strict=True))
    return LinearTrack(
        every.mean, every.cov, every.prior_mean, every.prior_cov, innovation, S, density, ok, precise & ok
    )


def _measured(run: LinearRun, before: Tensor | None, at: Beliefs) -> tuple[Tensor, ...]:
    """Innovation, ``S``, log density and flags; ``before`` is None where covariances were factors."""
    H = run.H
    innovation = (run.y - at.prior_mean @ H.mT) * run.weight
    S = symmetrize(H @ at.prior_cov @ H.mT + dense(run.R))
    solved, ok, pivots = solve_rows(innovation.unsqueeze(-2), S, run.weight)
    weighted = solved.squeeze(-2)
    constant = run.weight.sum(-1) * math.log(2 * math.pi)
    density = -0.5 * ((innovation * weighted).sum(-1) + pivots.log().sum(-1) + constant)
    if before is None:
        precise = _root_precise(run, at)
    else:
        precise = precise_over_time(
            at.prior_cov, at.cov, at.gain, S, pivots, innovation, weighted, H, run.R, run.y, run.weight
        )
        precise = precise & _predicted_precisely(run, before, at.prior_cov)
    return innovation, S, density, ok, precise & ok


@torch.no_grad()
def _root_precise(run: LinearRun, at: Beliefs) -> Bool[Tensor, "B T"]:
    """Whether factors kept their digits, as :func:`.ud.condition` says it of an update."""
    eps = torch.finfo(at.cov.dtype).eps
    prior, variance = (torch.diagonal(item, dim1=-2, dim2=-1) for item in (at.prior_cov, at.cov))
    least = (8 * eps) ** 2 * torch.maximum(prior, (at.mean - at.prior_mean).square())
    return measured_precisely((variance >= least).all(-1), run.y, run.R, run.weight)


@torch.no_grad()
def _predicted_precisely(run: LinearRun, before: Tensor, prior_cov: Tensor) -> Bool[Tensor, "B T"]:
    F = run.F[0] if run.kind is None else run.F[run.kind]
    fine = prediction_keeps_digits(before, F, prior_cov)
    if run.predicts_first:
        return fine
    return torch.cat((torch.ones_like(fine[:, :1]), fine[:, 1:]), 1)


# ---- constant matrices ----------------------------------------------------------------------------------------------


def _constant(run: LinearRun) -> LinearTrack | None:
    """The steps of the transient, with a gain of their own each, then those with the gain of the steady state.

    None where the covariances found by doubling are not those of the recursion.
    """
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
    if not joined(covs, cov[:, : covs.shape[1]]):
        return None

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
        pieces.append(torch.cat([constant_recursion(A, part, x) for A, part, x in by_loop(closed, u, begin)]))
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

    def judged(one: slice, many: slice) -> Tensor:
        matrices = (prior_cov, cov, K, S, pivots)
        P, after_it, gain, innovation_cov, pivot = (item[:, one] for item in matrices)
        vectors = (innovation[:, many], weighted[:, many])
        fine = precise_over_time(
            P, after_it, gain, innovation_cov, pivot, *vectors, H, noise, run.y[:, many], IKH=IKH[:, one]
        )
        return fine & predicted[:, one]

    precise = torch.cat((judged(slice(-1), slice(settled)), judged(slice(-1, None), slice(settled, None))), 1)
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


def by_loop(closed: Tensor, u: Tensor, start: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
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

    >>> from fwnkf.core.gaussian import FullNoise
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> settling(one, one, one, FullNoise(one), 2 * one.unsqueeze(0), 3).flatten()  # 2/3, 5/8, 13/21: to (√5 - 1) / 2
    tensor([0.6667, 0.6250, 0.6190], dtype=torch.float64)
    """
    K = solved_rows(prior_cov @ H.mT, prior_cov, H, noise)[0]
    first = joseph_of(prior_cov, remaining(K, H), K, noise)
    seen, zero = (H @ F).mT, torch.zeros_like(F[0])
    solved, _, _, _ = solved_rows(torch.cat((Q @ H.mT, seen)).unsqueeze(0), Q.unsqueeze(0), H, noise)
    K, information = solved[0].split(len(F))
    IKH = remaining(K, H)
    element = Element(IKH @ F, zero, joseph_of(Q, IKH, K, noise), zero, symmetrize(information @ seen.mT))
    return doubled(element, first, steps)


def doubled(element: Element, cov: Float[Tensor, "b n n"], steps: int) -> Float[Tensor, "b S n n"]:
    """The covariance, and those after 1, 2, … of the same step, until they no longer change or there are ``steps``.

    ``2ᵏ`` steps at once from the covariances of the ``2ᵏ`` steps before them, by the element of so many steps.
    """
    covs, length = cov.unsqueeze(1), 1
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
