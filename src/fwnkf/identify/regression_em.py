"""Motions by regression where states were never recorded: smoothed states first, then the likelihood of innovations.

Expectation maximisation alternates between smoothing and least squares on the smoothed states, whose covariance counts:
regressed on means alone, coefficients would be too small (errors in variables). Its steps are large at first and then
small, above all in ``Q``, so that after a few of them the likelihood is maximised directly.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..core.composed import ComposedSystem
from ..core.gaussian import eigenvector_factor, symmetrize
from ..core.least_squares import Rows
from ..core.motion import Motion
from ..core.sensor_definition import SensorDefinition
from ..errors import ConfigError, DataError
from ..filters.extended import ExtendedKalmanFilter
from ..filters.smoothing import Smoothed, smooth
from ..shapes import Bool, Float
from ..systems.motion import ConstantVelocityMotion, ConstantVelocityMotionConfig
from ..systems.regression import RegressedMotion, RegressedMotionConfig
from ..systems.sensors.position import Position, PositionConfig
from ..types import Gaussian
from .fitting import Fit, fit
from .regression import state_moments
from .start import starting_belief

ROUNDING = 1e-10
"""Share of the largest coefficient below which one of a known equation is rounding."""
LAG = 10
"""Steps over which the acceleration of a start is estimated; over one step, measurements are mostly noise."""


def fit_regression_em(
    start: Motion,
    sensors: Mapping[str, SensorDefinition],
    y: Float[Tensor, "N T m"],
    u: Float[Tensor, "N T p"] | None = None,
    mask: Bool[Tensor, "N T m"] | None = None,
    dt: Float[Tensor, "N T"] | None = None,
    prior: Gaussian | None = None,
    *,
    known: Sequence[str] = (),
    degree: int | Sequence[int] = 1,
    harmonics: int = 0,
    functions: Sequence[str] = (),
    control_products: bool = False,
    held_out: float | Sequence[int] = 0.2,
    smoothings: int = 3,
    iterations: int = 60,
    progress: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Fit:
    """Fit a motion to measurements alone, of which some coordinates of the state may not be a part.

    A coordinate that no sensor measures has no meaning of its own: ``start`` gives it one, as constant velocity does,
    ``x' = v``. The equations of the parts in ``known`` stay as they are there; without any, what is not measured may
    come out in other coordinates than it started in, which measurements cannot tell apart. ``R`` is that of the
    sensors; :func:`fwnkf.fit` can learn it afterwards.

    Args:
        start: a motion to start from, with process noise that is not too small.
        known: parts of the state whose equation in ``start`` is kept.
        sensors: the sensors by name, with their noise.
        y, u, mask, dt, prior: as for ``filter.run``; NaN in ``y`` is missing.
        degree: of the products; of several, the one under which records left out are likeliest.
        harmonics, functions, control_products: further terms, see :func:`fit_regression`.
        held_out: share of the records, or their indices, that only test the fit.
        smoothings: rounds of expectation maximisation.
        iterations: of the maximisation of the likelihood that follows, at most.
        progress: called with a line of text now and then.
        stop: asked between iterations; the fit ends with what it has if it returns True.

    Returns:
        The extended Kalman filter on motion and sensors, and the report on it; the motion is ``filter.system.motion``.

    Raises:
        DataError: smoothing with ``start`` failed.

    >>> import fwnkf
    >>> generator = torch.Generator().manual_seed(0)
    >>> x = [torch.randn(4, 1, generator=generator, dtype=torch.float64)]
    >>> for _ in range(199):
    ...     x.append(0.9 * x[-1] + 0.3 * torch.randn(4, 1, generator=generator, dtype=torch.float64))
    >>> y = torch.stack(x, 1) + 0.1 * torch.randn(4, 200, 1, generator=generator, dtype=torch.float64)
    >>> walk = fwnkf.systems.RegressedMotion(fwnkf.systems.RegressedMotionConfig(degree=1))
    >>> level = fwnkf.Sensor(lambda x: x, R=[0.01], channels=1)
    >>> result = fit_regression_em(walk, {"level": level}, y, iterations=10)
    >>> result.filter.system.motion.equations(digits=1)[0][-8:]
    '- 0.1 x0'
    """
    report = progress or (lambda text: None)
    degrees = [degree] if isinstance(degree, int) else list(degree)
    if not degrees:
        raise ConfigError("degree: give at least one")
    y = torch.where(y.isfinite() & (True if mask is None else mask), y, torch.nan).double()
    u, dt = (None if item is None else item.double() for item in (u, dt))
    step = start.dt if dt is None else float(dt[:, 1:].median())
    best: Fit | None = None
    for one in degrees:
        config = RegressedMotionConfig(
            state_dim=start.layout.size,
            control_dim=0 if u is None else u.shape[-1],
            layout=start.layout.describe(),
            dt=step,
            degree=one,
            harmonics=harmonics,
            functions=tuple(functions),
            control_products=control_products,
            # a correlation near one, as of a position that has no noise of its own, is where a likelihood gets stuck
            diagonal_process=True,
            known=tuple(known),
        )
        motion = _smoothed_start(config, start, sensors, y, u, dt, prior, smoothings, report)
        learned = _with(motion, replace(config, learn=("W", "Q")))
        found = fit(
            ExtendedKalmanFilter(_system(learned, sensors)),
            y,
            u,
            None,
            dt,
            prior,
            learn=("Q", "motion.free"),
            held_out=held_out,
            iterations=iterations,
            progress=progress,
            stop=stop,
        )
        fitted = found.filter.system
        assert isinstance(fitted, ComposedSystem)
        assert isinstance(fitted.motion, RegressedMotion)
        system = _system(_with(fitted.motion, config), sensors)
        found = replace(found, filter=ExtendedKalmanFilter(system).eval())
        report(f"degree {one}: log-likelihood {_score(found):.4f} per sample")
        if best is None or _score(found) > _score(best):
            best = found
    assert best is not None  # because there is a degree
    return best


def _score(found: Fit) -> float:
    """The log-likelihood of a sample on records left out, or on those of the fit where none are."""
    figures = found.report.fitted if found.report.held_out is None else found.report.held_out
    return figures.log_likelihood


def _system(motion: Motion, sensors: Mapping[str, SensorDefinition]) -> ComposedSystem:
    return ComposedSystem(copy.deepcopy(motion), {name: copy.deepcopy(one) for name, one in sensors.items()}).double()


@torch.no_grad()
def _with(motion: RegressedMotion, config: RegressedMotionConfig) -> RegressedMotion:
    """The same motion with or without parameters that are learned."""
    other = RegressedMotion(config).double()
    other.assign(motion.coefficients())
    for name in ("initial_mean", "initial_cov"):
        getattr(other, name).copy_(getattr(motion, name))
    other.terms.scale.copy_(motion.terms.scale)
    other.Q.assign(motion.Q())
    return other


@torch.no_grad()
def _smoothed_start(
    config: RegressedMotionConfig,
    start: Motion,
    sensors: Mapping[str, SensorDefinition],
    y: Tensor,
    u: Tensor | None,
    dt: Tensor | None,
    prior: Gaussian | None,
    smoothings: int,
    report: Callable[[str], None],
) -> RegressedMotion:
    """A motion by a few rounds of smoothing and regression."""
    motion = start
    for number in range(1, max(smoothings, 1) + 1):
        model = ExtendedKalmanFilter(_system(motion, sensors))
        belief = starting_belief(model, y, u, None, dt) if prior is None else prior
        track = model.run(y, u, y.isfinite(), dt, Gaussian(*(item.double() for item in belief)), smoothing=True)
        smoothed = smooth(model, track)
        if bool(track.status.any()) or not all(bool(item.isfinite().all()) for item in smoothed[:2]):
            raise DataError(
                f"smoothing number {number} of the measurements diverged; give a start motion with more process noise, "
                "a prior, or a lower degree"
            )
        motion = _regressed(config, copy.deepcopy(start).double(), smoothed, u, dt)
        report(f"smoothing {number}: standard deviations of a step {motion.Q().diagonal().sqrt().tolist()}")
    assert isinstance(motion, RegressedMotion)
    return motion


def _regressed(
    config: RegressedMotionConfig, start: Motion, smoothed: Smoothed, u: Tensor | None, dt: Tensor | None
) -> RegressedMotion:
    """Least squares with the second moments of smoothed states, by cubature points of each pair of neighbours."""
    motion, layout = RegressedMotion(config).double(), start.layout
    d = layout.tangent_size
    assert smoothed.cross_cov is not None  # an extended Kalman filter over the fixed interval
    cross = smoothed.cross_cov
    P, following = smoothed.cov[:, :-1], smoothed.cov[:, 1:]
    joint = torch.cat((torch.cat((P, cross), -1), torch.cat((cross.mT, following), -1)), -2).flatten(0, 1)
    columns = math.sqrt(2 * d) * eigenvector_factor(symmetrize(joint))
    x, after = smoothed.mean[:, :-1].flatten(0, 1), smoothed.mean[:, 1:].flatten(0, 1)
    control = None if u is None else u[:, 1:].flatten(0, 1)
    sizes = [layout.features(x), *([] if control is None else [control])]
    scale = torch.cat([item.square().mean(0).sqrt() for item in sizes])
    motion.terms.scale.copy_(torch.where(scale > 0, scale, 1.0))
    length = x.new_ones(len(x)) if dt is None else (dt[:, 1:] / motion.dt).flatten()
    known = length > 0
    weight = (torch.where(known, length, 0.0) / (4 * d)).sqrt().unsqueeze(-1)  # zero for a repeated stamp
    length = torch.where(known, length, 1.0).unsqueeze(-1)
    nominal = x.new_full((len(x),), motion.dt) if start.takes_dt else None
    rows: Rows | None = None
    for sign in (1.0, -1.0):
        for column in columns.unbind(-1):
            here, there = layout.boxplus(x, sign * column[:, :d]), layout.boxplus(after, sign * column[:, d:])
            step = layout.boxminus(there, here) / length
            stated = layout.boxminus(start.transition(here, control, nominal), here)
            outputs = torch.cat((step, stated), -1) * weight
            some = Rows.of(motion.terms(here, control) * weight, outputs, int(known.sum()) / (4 * d))
            rows = some if rows is None else rows + some
    assert rows is not None
    found, stated = rows.solve().W.split(d, -1)
    stated = torch.where(stated.abs() > ROUNDING * stated.abs().max(), stated, 0.0)
    kept = torch.ones(d, dtype=torch.bool).index_fill(0, torch.tensor(motion.unknown_rows()), False)
    W = torch.where(kept, stated, found)
    motion.assign(W.mT)
    motion.Q.assign(rows.residual_cov(torch.cat((W, stated), -1))[:d, :d].diagonal().diag())
    mean, cov = state_moments(x, layout)
    motion.initial_mean.copy_(mean)
    motion.initial_cov.copy_(cov)
    return motion


def constant_velocity_start(
    y: Float[Tensor, "N T m"], dt: float
) -> tuple[ConstantVelocityMotion, dict[str, SensorDefinition]]:
    """A start for :func:`fit_regression_em` where every channel measures a coordinate: position and velocity of each.

    The noise of the channels is estimated from third differences, in which a smooth motion leaves little, the density
    of the acceleration from second differences over ten steps.

    Args:
        y: measurements, NaN where missing.
        dt: usual length of a step in seconds.

    Returns:
        The motion, and the sensor ``position`` that reads it.

    Raises:
        DataError: the records are too short.

    >>> t = torch.arange(400.0, dtype=torch.float64) * 0.05
    >>> noise = 0.1 * torch.randn(1, 400, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> motion, sensors = constant_velocity_start(t.sin().reshape(1, -1, 1) + noise, 0.05)
    >>> round(sensors["position"].config.std[0], 1)
    0.1
    """
    if y.shape[1] <= 2 * LAG:
        raise DataError(f"the records have {y.shape[1]} steps; at least {2 * LAG + 1} are needed to find a motion")
    third = y.double().diff(n=3, dim=1)
    second = y[:, 2 * LAG :].double() - 2 * y[:, LAG:-LAG].double() + y[:, : -2 * LAG].double()
    if not bool(third.isfinite().any((0, 1)).all() & second.isfinite().any((0, 1)).all()):
        raise DataError("a channel has no four consecutive samples; check for missing values")
    variance = third.square().nanmean((0, 1)) / 20  # 1 + 9 + 9 + 1
    seconds = LAG * dt
    curved = (second.square().nanmean((0, 1)) - 6 * variance).clamp_min(0.1 * variance)
    density = float((curved / (2 / 3 * seconds**3)).max())
    m = y.shape[-1]
    motion = ConstantVelocityMotion(ConstantVelocityMotionConfig(dims=m, density=density, dt=dt))
    smallest = torch.finfo(variance.dtype).tiny
    std = tuple(variance.clamp_min(smallest).sqrt().tolist())
    return motion, {"position": Position(PositionConfig(std=std, dims=m))}
