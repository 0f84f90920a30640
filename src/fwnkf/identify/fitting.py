"""Fit a filter to recordings by the likelihood of its innovations: no true states needed."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ..core.system import System
from ..errors import ConfigError, DataError
from ..filters.base import Filter, PriorAt
from ..filters.factory import build
from ..filters.fwnkf import FrequencyWeightedNeuralKalmanFilter
from ..filters.parts.lines import Lines
from ..remaining import Remaining
from ..shapes import Bool, Float
from ..types import DataFrame, Dataset, Frame, Gaussian
from .fit_report import FitReport, Order, consistency, fitted_parameters
from .likelihood import Likelihood, Local, Measurements, maximise
from .parameters import Parameters
from .parts import Parts
from .selection import learned_parameters, with_learned
from .start import starting_belief
from .whittle import add_oscillator, measured_spectra, whittle

POLE_RADIUS = 0.9999
FIRST_ITERATIONS = 12
"""Of the filter without oscillators, whose innovations give the first spectrum."""
MOST_OSCILLATORS = 4
CHECKED = 0.2
"""Share of the records of a fit on which the number of oscillators is checked."""
LEAST_GAIN = 2.0
"""Log-likelihood that one more oscillator gains on them, at least: less is chance."""

Progress = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of :func:`fit`.

    >>> import fwnkf
    >>> one, y = torch.ones(1, 1).double(), torch.randn(3, 100, 1, dtype=torch.float64)
    >>> result = fit(fwnkf.KF(F=one, H=one, Q=one, R=one), y, iterations=2, held_out=0)
    >>> type(result) is Fit, result.held_out_records
    (True, None)
    """

    filter: Filter
    """The fitted filter."""
    report: FitReport
    """All figures of the fit."""
    fitted_records: Measurements
    """The records of the fit, with the beliefs that the filter starts from."""
    held_out_records: Measurements | None
    """The records that only test it; None without any."""


def fit(
    model: Filter | System,
    y: Float[Tensor, "N T m"] | Frame | Sequence[Frame],
    u: Float[Tensor, "N T p"] | None = None,
    mask: Bool[Tensor, "N T m"] | None = None,
    dt: Float[Tensor, "N T"] | None = None,
    prior: Gaussian | None = None,
    *,
    truth: Float[Tensor, "N T n"] | Frame | Sequence[Frame] | None = None,
    learn: Sequence[str] = ("Q", "R", "oscillators"),
    oscillators: int | Literal["auto"] | None = None,
    held_out: float | Sequence[int] = 0.2,
    iterations: int = 40,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    parts: Parts | None = None,
    columns: Mapping[str, str] | None = None,
) -> Fit:
    """Learn noise covariances, constants of the system and coloured noise from measurements alone.

    Maximises the likelihood of the innovations. Coloured measurement noise becomes noise states of an ``fwnkf``, which
    start from the spectrum of the innovations.

    Args:
        model: the system, or a filter on it, with the values to start from. It is not changed.
        y, u, mask, dt, prior: as for ``filter.run``; NaN in ``y`` is missing. Without a prior the filter starts from
            its ``initial_belief``, or from what the first samples of all records say of the state. Instead of ``y``,
            ``u``, ``mask`` and ``dt`` a frame, or frames of any lengths, each one record: DataFrames of pandas or
            polars, Datasets of xarray.
        truth: true states of the records where they are known, NaN elsewhere. Where they are known, the likelihood of
            the error of the estimate is added. With frames: frames of the same rows, with columns under the names of
            the state's components.
        learn: ``Q``, ``R`` (their variances, correlations stay; or the constants of the system that set them),
            ``oscillators``, ``constants`` (all of the system), or constants by name.
        oscillators: noise states of each channel, for a system: a number, or ``"auto"`` (default), which adds them
            while the Bayesian information criterion falls and a fifth of the records, to which they were not fitted,
            is predicted better. A filter keeps the noise states it has.
        held_out: share of the records, or their indices, that only test the fit.
        iterations: of the final maximisation, at most.
        progress: called with a line of text now and then.
        stop: asked between iterations; the fit ends with what it has if it returns True.
        parts: evaluate the likelihood in parts of the records (:class:`fwnkf.identify.parts.Parts`), for more of them
            than fit into memory at once, or on several machines; the sums are the same to rounding.
        columns: of frames, as in :meth:`fwnkf.Filter.run`.

    Returns:
        The fitted filter and the report on it.

    Raises:
        ConfigError: there is nothing to learn under one of the names.
        DataError: the records do not fit the filter, or are too short.

    >>> import fwnkf
    >>> generator = torch.Generator().manual_seed(0)
    >>> walk = 0.1 * torch.randn(4, 500, 1, generator=generator, dtype=torch.float64).cumsum(1)
    >>> y = walk + 0.5 * torch.randn(4, 500, 1, generator=generator, dtype=torch.float64)
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> result = fit(fwnkf.build("kf", F=one, H=one, Q=one, R=one), y, held_out=0.25)
    >>> round(result.report.value("R[0,0]"), 1)
    0.2
    """
    began = time.process_time()
    report = progress or (lambda text: None)
    plain, dtype = _as_filter(model, oscillators, learn)
    data = _measurements(plain, *_tensors(plain, y, u, mask, dt, truth, columns), prior)
    kept, tested = split_held_out(len(data.y), held_out)
    train, test = data.take(kept), data.take(tested) if len(tested) else None

    say = _Counter(report)
    course = _Course(
        train, tuple(learn), iterations, report, say, stop, Likelihood if parts is None else parts.likelihood
    )
    first = learned_parameters(plain, course.learn)
    likelihood = course.evaluate(plain, first, train)
    report(f"the likelihood is evaluated by engine {likelihood.engine!r}")
    skip = min(data.y.shape[1] // 10, 100)
    before = consistency(likelihood, first.start, skip=skip)
    given = dict(zip(first.names, first.values(first.start).tolist(), strict=True))
    wanted = 0 if isinstance(model, Filter) else "auto" if oscillators is None else oscillators
    stage = course.maximise(likelihood, first.start, FIRST_ITERATIONS if wanted else iterations)
    orders: list[Order] = []
    if wanted:
        stage, orders = _choose_order(course, stage, wanted)
    chosen = stage.likelihood
    values, flat = fitted_parameters(chosen.parameters, stage.raw, stage.local.information, given)
    fitted = consistency(chosen, stage.raw, skip=skip)
    outside = None
    if test is not None:
        outside = consistency(course.evaluate(chosen.model, chosen.parameters, test), stage.raw, skip=skip)
    chosen.parameters.finish(stage.raw)
    summary = FitReport(
        parameters=values,
        flat=flat,
        before=before,
        fitted=fitted,
        held_out=outside,
        orders=tuple(orders),
        iterations=say.count,
        seconds=time.process_time() - began,
        stopped=stop is not None and stop(),
        engine=chosen.engine,
    )
    return Fit(chosen.model.to(dtype).eval(), summary, train, test)


class _Stage(NamedTuple):
    """A filter with parameters at which the likelihood was maximised."""

    likelihood: Likelihood
    raw: Tensor
    local: Local

    def bic(self, samples: float) -> float:
        return len(self.raw) * math.log(samples) - 2 * self.local.value


class _Course(NamedTuple):
    """What all stages of a fit share."""

    train: Measurements
    learn: tuple[str, ...]
    iterations: int
    report: Progress
    say: _Counter
    stop: Callable[[], bool] | None
    evaluate: Callable[[Filter, Parameters, Measurements], Likelihood]

    def maximise(self, likelihood: Likelihood, raw: Tensor, iterations: int | None = None) -> _Stage:
        count = self.iterations if iterations is None else iterations
        self.say.begin(count)
        reached = maximise(likelihood.local, raw, iterations=count, progress=self.say, stop=self.stop)
        return _Stage(likelihood, *reached)


def _choose_order(course: _Course, plain: _Stage, wanted: int | str) -> tuple[_Stage, list[Order]]:
    """Add oscillators one by one, each started from the spectrum, up to a number or while they are supported.

    Orders are compared by one likelihood: Whittle's for a linear system, where it is nearly exact and takes a second,
    the exact one otherwise. The spectrum of a pure tone has the shape of a window, which several oscillators fit better
    than one, so a further oscillator must also predict records better that it was not fitted to.
    """
    likelihood = plain.likelihood
    spectra = measured_spectra(likelihood, plain.raw)
    support = _Support(course) if wanted == "auto" else None
    samples, batch = float(course.train.present.sum()), likelihood.side_by_side
    if likelihood.time_invariant:
        local = whittle(likelihood.model, likelihood.parameters, spectra, batch)(plain.raw)
        likelihood.parameters.as_numbers(not batch)
        orders = [Order(0, local.value, plain._replace(local=local).bic(samples))]
    else:
        plain = course.maximise(likelihood, plain.raw)
        orders = [Order(0, plain.local.value, plain.bic(samples))]
    likelihood.parameters.finish(plain.raw)
    best, kept = [plain], 0
    before: Filter | None = None
    for count in range(1, (MOST_OSCILLATORS if wanted == "auto" else int(wanted)) + 1):
        if course.stop is not None and course.stop():
            break
        course.report(f"{count} oscillator(s) per channel: start from the spectrum")
        base = likelihood.model if before is None else before

        def make(base: Filter = base, count: int = count) -> FrequencyWeightedNeuralKalmanFilter:
            return _with_oscillators(base, count)

        starts = add_oscillator(make, before, course.learn, spectra, batch)
        stages = []
        for start in starts:
            inner = course.evaluate(start.model, start.parameters, course.train)
            local = Local(start.value, start.raw, start.raw)  # of Whittle's likelihood the value alone is used
            stages.append(
                _Stage(inner, start.raw, local) if likelihood.time_invariant else course.maximise(inner, start.raw)
            )
        stages.sort(key=lambda stage: stage.bic(samples))
        orders.append(Order(count, stages[0].local.value, stages[0].bic(samples)))
        if support is not None:
            if orders[-1].bic >= min(order.bic for order in orders[:-1]):
                break
            gain = support.gain(best[0], stages[0])
            orders[-1] = replace(orders[-1], gain=gain)
            if gain < LEAST_GAIN:
                break
        best, kept = stages, count
        best[0].likelihood.parameters.finish(best[0].raw)
        before = best[0].likelihood.model
    if likelihood.time_invariant:
        course.report("exact likelihood")
        best = sorted((course.maximise(s.likelihood, s.raw) for s in best), key=lambda stage: stage.bic(samples))
    orders[kept] = replace(orders[kept], chosen=True)
    return best[0], orders


class _Support:
    """Whether records that a filter was not fitted to support one more oscillator, by the exact likelihood."""

    def __init__(self, course: _Course) -> None:
        count = len(course.train.y)
        checked = math.ceil(CHECKED * count) if count > 1 else 0
        rows = torch.arange(count)
        self.course = course
        self.fitted = course.train.take(rows[: count - checked])
        self.checked = course.train.take(rows[count - checked :]) if checked else None
        self.best: float | None = None

    def gain(self, before: _Stage, after: _Stage) -> float:
        """Log-likelihood gained over the one kept, at first ``before``; of one record less the penalty of the BIC."""
        best = self._score(before) if self.best is None else self.best
        score = self._score(after)
        self.best = score if score - best >= LEAST_GAIN else best
        return score - best

    def _score(self, stage: _Stage) -> float:
        model, parameters = stage.likelihood.model, stage.likelihood.parameters
        reached = self.course.maximise(self.course.evaluate(model, parameters, self.fitted), stage.raw)
        if self.checked is None:
            score = -0.5 * reached.bic(float(self.fitted.present.sum()))
        else:
            score = self.course.evaluate(model, parameters, self.checked).value(reached.raw)
        parameters.finish(stage.raw)
        return score


class _Counter:
    """Counts iterations and reports them."""

    def __init__(self, report: Progress) -> None:
        self.report, self.count = report, 0
        self.remaining = Remaining(None)

    def begin(self, iterations: int) -> None:
        """A stage begins, of so many iterations at most."""
        self.remaining = Remaining(iterations)

    def __call__(self, number: int, value: float) -> None:
        self.count += 1
        left = self.remaining.added(number, ", at most ")  # it ends earlier where the likelihood stops rising
        self.report(f"iteration {number}: log-likelihood {value:.2f}{left}")


def _as_filter(
    model: Filter | System, oscillators: int | str | None, learn: Sequence[str]
) -> tuple[Filter, torch.dtype]:
    """A copy of the filter, or the extended Kalman filter of a system, in float64, and the dtype it came in."""
    if oscillators not in (None, "auto") and not (isinstance(oscillators, int) and oscillators >= 0):
        raise ConfigError(f"oscillators = {oscillators!r}: expected a number from 0 on, or 'auto'")
    if isinstance(model, Filter):
        if oscillators is not None:
            raise ConfigError(
                "oscillators can be chosen for a system; a filter keeps the noise states it has: give fit the system, "
                "or build an FWNKF with noise=Lines(their number)"
            )
        return copy.deepcopy(model).double(), model.dtype
    plain = build("ekf", system=with_learned(copy.deepcopy(model), learn))
    dtype = plain.dtype
    return plain.double(), dtype


def _with_oscillators(base: Filter, count: int) -> FrequencyWeightedNeuralKalmanFilter:
    """An ``fwnkf`` on a copy of the system of ``base``, with ``count`` oscillators in each channel."""
    assert base.system is not None
    lines = Lines(count, pole_radius=POLE_RADIUS)
    return FrequencyWeightedNeuralKalmanFilter(copy.deepcopy(base.system), noise=lines).double()


Records = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None]
"""Measurements, controls, mask, lengths of steps, and truth."""


def _tensors(
    model: Filter,
    y: Tensor | Frame | Sequence[Frame],
    u: Tensor | None,
    mask: Tensor | None,
    dt: Tensor | None,
    truth: Tensor | Frame | Sequence[Frame] | None,
    columns: Mapping[str, str] | None,
) -> Records:
    """The records as they are given, or those of frames."""
    if isinstance(y, Tensor):
        if columns is not None or not (truth is None or isinstance(truth, Tensor)):
            raise ConfigError("columns=… and a truth of frames are for frames, and y is a tensor")
        return y, u, mask, dt, truth
    if not (u is None and mask is None and dt is None) or isinstance(truth, Tensor):
        raise ConfigError("y are frames: controls, missing values and time are their columns, and the truth is frames")
    from ..filters.frames import TIME, read_samples, read_states

    frames = _listed(y)
    if not frames:
        raise DataError("there is no frame to fit to")
    samples = read_samples(model, frames, columns)
    states = None
    if truth is not None:
        states = read_states(model, frames, _listed(truth), (columns or {}).get(TIME, ""))
    return *samples, states


def _listed(frames: Frame | Sequence[Frame]) -> list[Frame]:
    return [frames] if isinstance(frames, (DataFrame, Dataset)) else list(frames)


def _measurements(
    model: Filter,
    y: Tensor,
    u: Tensor | None,
    mask: Tensor | None,
    dt: Tensor | None,
    truth: Tensor | None,
    prior: Gaussian | None,
) -> Measurements:
    """All inputs in float64, with a prior for each record."""
    if y.ndim != 3:
        raise DataError(f"y has shape {tuple(y.shape)}, wanted [records, steps, channels]")
    present = y.isfinite() if mask is None else y.isfinite() & mask
    if not bool(present.any()):
        raise DataError("no sample of y is present: every value is NaN or masked")
    y = torch.where(present, y, torch.nan).double()
    u, dt, truth = (None if item is None else item.double() for item in (u, dt, truth))
    # as in `run`: what a filter computes from the first samples belongs to the step before them
    prior_at: PriorAt = "before_first_step" if prior is None and model.initial_steps else "first_measurement"
    if prior is None:
        prior = starting_belief(model, y, u, present, dt)
    prior = Gaussian(prior.mean.double(), prior.cov.double())
    model.init(len(y), prior)  # raises an error that names what does not fit
    n, d = model.layout.size, model.layout.tangent_size
    if prior.mean.shape[-1] < n and model.system is not None:
        prior = model.system.complete_prior(prior)
    beliefs = Gaussian(prior.mean.expand(len(y), n).clone(), prior.cov.expand(len(y), d, d).clone())
    return Measurements(y, present, u, dt, beliefs, truth, prior_at)


def split_held_out(count: int, held_out: float | Sequence[int]) -> tuple[Tensor, Tensor]:
    """Indices of the records to fit, and of those to test: the last ones, if a share is given."""
    everything = torch.arange(count)
    if isinstance(held_out, int | float):
        if not 0 <= held_out < 1:
            raise ConfigError(f"held_out = {held_out}: expected a share of the records in [0, 1), or their indices")
        tested = min(count - 1, math.ceil(held_out * count)) if held_out else 0
        return everything[: count - tested], everything[count - tested :]
    chosen = torch.zeros(count, dtype=torch.bool)
    chosen[torch.as_tensor(list(held_out), dtype=torch.long)] = True
    if bool(chosen.all()):
        raise ConfigError("held_out names every record; leave at least one for the fit")
    return everything[~chosen], everything[chosen]
