"""The correction of a filter's estimates by its innovations, from recordings with truth, by least squares.

The oscillators of :class:`fwnkf.Correction` are fixed, so the errors of the estimates are linear in its weights, and
the best weights for the squared error have a closed form. A ridge keeps them from fitting what is particular to a
recording; it, the number of oscillators and their decay are chosen on recordings left out in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..core.gaussian import safe_cholesky, solve_psd
from ..errors import DataError
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.correction import Correction, InnovationBank, driven, moved, scaled
from ..shapes import Bool, Float

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
LEAST = 0.005
"""Share of the squared error that a correction must take off to be worth having."""
BLOCK = 2_000
"""Steps whose oscillators are held in memory at once."""


class CorrectionChoice(NamedTuple):
    """The correction with the least error on recordings left out in turn.

    >>> CorrectionChoice(None, 1e-3, {}).part is None
    True
    """

    part: Correction | None
    """None if no correction of those tried makes the squared error smaller by more than :data:`LEAST`."""
    ridge: float
    """The penalty that goes with it."""
    errors: dict[tuple[int, float | None, float], float]
    """Of every candidate, by count, seconds and ridge: squared error over that of the filter, mean over coordinates."""


class _Moments(NamedTuple):
    """Second moments of oscillators and errors of one recording."""

    gram: Float[Tensor, "s s"]
    cross: Float[Tensor, "s d"]
    power: Float[Tensor, " d"]


def fit_correction(
    model: FrequencyWeightedNeuralKalmanFilter,
    y: Float[Tensor, "N T m"],
    truth: Float[Tensor, "N T d"],
    *,
    part: Correction | None = None,
    ridge: float = 1e-3,
    mask: Bool[Tensor, "N T m"] | None = None,
    dt: Float[Tensor, "N T"] | None = None,
    skip: int = 0,
) -> FrequencyWeightedNeuralKalmanFilter:
    """A filter with its estimates corrected by its innovations, which makes their squared error as small as it can be.

    Gains, innovations and stated covariances are those of the filter: measure what the errors became on recordings
    left out, and give it to ``filter.calibrate_covariance`` (:func:`fwnkf.identify.levels_of`).

    Args:
        model: the filter.
        y: measurements.
        truth: the first ``d`` coordinates of a Euclidean state; the others are not corrected.
        part: number and decay of the oscillators; by default those of :class:`fwnkf.Correction`.
        ridge: penalty of a squared weight, in units of the mean squared oscillator.
        mask: True where a channel was measured.
        dt: lengths of the steps in seconds.
        skip: steps at the start that do not count, in which a filter forgets its start.

    Returns:
        A copy of the filter with the correction.

    Raises:
        DataError: the state is not Euclidean, or shapes do not fit.

    >>> import fwnkf
    >>> one = torch.eye(1).double()
    >>> system = fwnkf.LinearSystem.of(F=one, H=one, Q=0.01 * one, R=one)  # the truth moves faster
    >>> x = torch.randn(1, 500, 1, generator=torch.Generator().manual_seed(0)).double().cumsum(1)
    >>> filter = fwnkf.FWNKF(system)
    >>> errors = [(each.run(x).mean - x).square().mean() for each in (filter, fit_correction(filter, x, x))]
    >>> bool(errors[1] < 0.2 * errors[0])
    True
    """
    part = Correction() if part is None else part
    _check(model, y, truth)
    corrected = model.with_parts(correction=part)
    bank = corrected.correction
    assert bank is not None
    root, moments = _measure(model, bank, y, truth, mask, dt, skip)
    bank.set(root, _solve(moments, ridge).mT)
    return corrected


def choose_correction(
    models: Sequence[FrequencyWeightedNeuralKalmanFilter],
    y: Float[Tensor, "N T m"],
    truth: Float[Tensor, "N T d"],
    *,
    candidates: Sequence[Correction] = (Correction(8), Correction(16), Correction(32)),
    ridges: Sequence[float] = RIDGES,
    mask: Bool[Tensor, "N T m"] | None = None,
    dt: Float[Tensor, "N T"] | None = None,
    skip: int = 0,
) -> CorrectionChoice:
    """Number and decay of the oscillators, and the ridge, for :func:`fit_correction`; or that there be no correction.

    Args:
        models: for each recording a filter that was fitted to the others.
        y, truth, mask, dt, skip: as in :func:`fit_correction`.
        candidates: what is tried.
        ridges: each with each of them.

    Returns:
        The choice.

    Raises:
        DataError: there are fewer than two recordings, or not as many filters.

    >>> import fwnkf
    >>> one = torch.eye(1).double()
    >>> filter = fwnkf.FWNKF(fwnkf.LinearSystem.of(F=one, H=one, Q=0.01 * one, R=one))  # the truth moves faster
    >>> x = torch.randn(2, 400, 1, generator=torch.Generator().manual_seed(0)).double().cumsum(1)
    >>> choose_correction([filter, filter], x, x, candidates=[Correction(2)]).part
    Correction(count=2, seconds=None, pole_radius=0.9999)
    """
    if len(y) < 2 or len(models) != len(y):
        raise DataError(
            f"{len(models)} filters for {len(y)} recordings: a correction is chosen on recordings left out, each with "
            "a filter fitted to the others; there must be at least two"
        )
    _check(models[0], y, truth)
    errors: dict[tuple[int, float | None, float], float] = {}
    for part in candidates:
        left, before = dict.fromkeys(ridges, torch.zeros(())), torch.zeros(())
        for out, model in enumerate(models):
            bank = model.with_parts(correction=part).correction
            assert bank is not None
            _, moments = _measure(model, bank, y, truth, mask, dt, skip)
            own = moments.pop(out)
            before = before + own.power
            for ridge in ridges:
                weights = _solve(moments, ridge)
                explained = 2 * (weights * own.cross).sum(0) - (weights * (own.gram @ weights)).sum(0)
                left[ridge] = left[ridge] + own.power - explained
        errors |= {(part.count, part.seconds, ridge): float((left[ridge] / before).mean()) for ridge in ridges}
    count, seconds, ridge = min(errors, key=errors.__getitem__)
    best = next(part for part in candidates if (part.count, part.seconds) == (count, seconds))
    return CorrectionChoice(best if errors[count, seconds, ridge] < 1 - LEAST else None, ridge, errors)


def _check(model: FrequencyWeightedNeuralKalmanFilter, y: Tensor, truth: Tensor) -> None:
    if not model.layout.flat:
        raise DataError(f"filter {model.name!r}: a correction is fitted to a Euclidean state, which this is not")
    if truth.shape[:-1] != y.shape[:-1] or truth.shape[-1] > model.layout.size:
        raise DataError(
            f"truth {tuple(truth.shape)} for measurements {tuple(y.shape)}: wanted as many recordings and steps, and "
            f"the first coordinates of a state of {model.layout.size}"
        )


@torch.no_grad()
def _measure(
    model: FrequencyWeightedNeuralKalmanFilter,
    bank: InnovationBank,
    y: Tensor,
    truth: Tensor,
    mask: Tensor | None,
    dt: Tensor | None,
    skip: int,
) -> tuple[Float[Tensor, "m m"], list[_Moments]]:
    """The factor of the innovation covariance, and the moments of each recording."""
    plain = model.with_parts(correction=None)
    track = plain.run(y, mask=mask, dt=dt, outputs=("mean", "innovation", "innovation_cov")).raise_for_status()
    weight = torch.ones_like(y) if mask is None else mask.to(y.dtype)
    # any factor serves, as the weights take it up; this one makes the oscillators white where the filter is right
    root, _ = safe_cholesky(track.innovation_cov[:, skip:].mean((0, 1)))
    prepared = bank.prepare()._replace(root=root)
    drive = scaled(prepared, track.innovation, track.innovation_cov, weight)
    error = truth - track.mean[..., : truth.shape[-1]]
    ratio = None if dt is None else dt / plain.system.dt
    size, d = bank.weights.shape[1], truth.shape[-1]
    gram, cross = y.new_zeros(len(y), size, size), y.new_zeros(len(y), size, d)
    state, held = bank.begin(len(y), y), []
    for t in range(y.shape[1]):
        state = driven(prepared, moved(prepared, state, None if ratio is None else ratio[:, t]), drive[:, t])
        held.append(state.flatten(1))
        if len(held) == BLOCK or t == y.shape[1] - 1:
            first = t + 1 - len(held)
            rows, wanted = (item[:, max(0, skip - first) :] for item in (torch.stack(held, 1), error[:, first : t + 1]))
            gram, cross, held = gram + rows.mT @ rows, cross + rows.mT @ wanted, []
    power = error[:, skip:].square().sum(1)
    return root, [_Moments(*parts) for parts in zip(gram, cross, power, strict=True)]


def _solve(moments: Sequence[_Moments], ridge: float) -> Float[Tensor, "s d"]:
    gram, cross = (torch.stack(parts).sum(0) for parts in list(zip(*moments, strict=True))[:2])
    penalty = ridge * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)
    weights, ok = solve_psd(gram + penalty, cross)
    if not bool(ok):
        raise DataError(f"ridge = {ridge}: the oscillators are collinear; raise the ridge")
    return weights
