"""The navigation filter over a recording: its start, fit, run and smoother."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.trajectory import Trajectory
from ..errors import DataError
from ..filters.factory import build
from ..filters.smoothing import smooth
from ..identify.likelihood import DIFFERENCE, Local, Predictions, local_of, maximise
from ..identify.selection import learned_parameters
from ..metrics.consistency import nis
from ..systems import Navigation, NavigationConfig
from ..types import Gaussian
from . import start as starting
from .recording import NavigationRecording
from .timeline import Array, Steps, steps

NOISES = {
    "gnss_position": ("gnss_position_std", "gnss_height_std"),
    "gnss_velocity": ("gnss_velocity_std", "gnss_climb_std"),
    "barometer": ("barometer_std", "barometer_walk"),
    "magnetometer": ("magnetometer_std",),
    "airspeed": ("airspeed_std",),
    "wheels": ("slip_std",),
}
"""What a fit learns of each sensor."""
INERTIAL = ("gyro_density", "accelerometer_density", "gyro_walk", "accelerometer_walk")
SPREAD = 0.7
"""Standard deviation of the logarithm of a noise about its default: one recording says little about some of them."""
ALIGNED = 120.0
"""Seconds over which headings are compared: a vehicle may stand for a while, and say nothing of its heading."""
GATE = 5.0
"""Standard deviations beyond which a measurement of a sensor is left out, as an outlier."""
FEW = 0.05
"""Share of the measurements of a sensor that outliers are at most."""
OUTPUTS = ("innovation", "innovation_cov", "mean", "cov")
"""Of every run, so that one compilation serves all."""
WINDOW = 10.0
"""Seconds for which fixes are hidden in a fit."""
ROUNDS = 3
"""Of delays and noises in turn."""


@dataclass(frozen=True)
class Estimate:
    """A run of the navigation filter: what :meth:`Navigator.estimate` returns.

    >>> Estimate.__dataclass_fields__.keys() >= {"steps", "track", "config", "rejected"}
    True
    """

    steps: Steps
    """What it ran on."""
    track: Trajectory
    """Means and covariances, filtered or smoothed, and innovations."""
    config: NavigationConfig
    """Sensors and noises."""
    rejected: Mapping[str, int]
    """Outliers of each sensor."""

    @property
    def time(self) -> Array:
        """When the states are (s)."""
        return self.steps.time

    def part(self, name: str) -> Array:
        """A part of the state by its name, ``[T, size]``.

        Args:
            name: the name of the part.

        Returns:
            Its numbers in every step.
        """
        place = self._places()[name][0]
        return self.track.mean[0, :, place].numpy()

    def covariance(self, name: str) -> Array:
        """The covariance of a part of the state, ``[T, size, size]``; of an orientation in the body frame.

        Args:
            name: the name of the part.

        Returns:
            The covariances.
        """
        place = self._places()[name][1]
        return self.track.cov[0, :, place, place].numpy()

    def _places(self) -> dict[str, tuple[slice, slice]]:
        found, at, tangent = {}, 0, 0
        for part in Navigation(self.config).layout.parts:
            found[part.name] = slice(at, at + part.size), slice(tangent, tangent + part.tangent_size)
            at, tangent = at + part.size, tangent + part.tangent_size
        return found

    def squares(self, name: str) -> tuple[Array, Array]:
        """Times at which a sensor measured, and its normalised innovation squared there, divided by its channels.

        Args:
            name: the name of the sensor.

        Returns:
            Times and squares, one on average where the filter is consistent.
        """
        place = self.steps.channels[name]
        there = np.isfinite(self.steps.y[:, place]).all(1)
        if self.track.innovation is None or self.track.innovation_cov is None:
            raise DataError("the run kept no innovations")
        rows = torch.from_numpy(there)
        residual = self.track.innovation[0, rows][:, place]
        cov = self.track.innovation_cov[0, rows][:, place, place]
        return self.steps.time[there], nis(residual, cov).numpy()


@dataclass(frozen=True)
class Learned:
    """What a recording says of a filter, without truth: what :meth:`Navigator.learned` returns.

    >>> Learned.__dataclass_fields__.keys() >= {"raw", "delays", "moment", "prior"}
    True
    """

    raw: Tensor
    """Noises, as :class:`Navigator` takes them."""
    delays: Mapping[str, float]
    """Of sensors by name (s)."""
    delay_error: float
    """Standard error of the delay (s)."""
    moment: float
    """When the filter starts (s)."""
    prior: Gaussian
    """The belief there."""
    recording: NavigationRecording
    """With the delays that were found."""
    ahead: float
    """Mean log-density of the numbers of hidden fixes, by which filters with other sensors can be compared."""


class Navigator:
    """A navigation filter for a kind of recording: its system, compiled once, for any noise, delay and prior.

    Args:
        config: sensors and constants; noises are the values that a fit starts from.
        learn: names of the noises that differ from run to run; by default all that a fit learns.

    >>> Navigator(NavigationConfig(sensors=("gnss_position",))).learn[-2:]
    ('gnss_position_std', 'gnss_height_std')
    """

    def __init__(self, config: NavigationConfig, learn: Sequence[str] | None = None) -> None:
        names = [*INERTIAL, *(name for sensor in config.sensors for name in NOISES[sensor])]
        names += [name for name in ("gnss_drift_std", "velocity_drift_std") if getattr(config, name)]
        self.config, self.learn = config, tuple(names if learn is None else learn)
        self.model = build("ekf", system=Navigation(config)).double()
        self.parameters = learned_parameters(self.model, self.learn)
        self.parameters.as_numbers(False)
        self.default = self.parameters.start.clone()

    def raw(self, config: NavigationConfig) -> Tensor:
        """The raw parameters of a config with other values.

        Args:
            config: the config.

        Returns:
            One number for each name in :attr:`learn`.
        """
        values = torch.tensor([float(getattr(config, name)) for name in self.learn], dtype=torch.float64)
        return values.log()

    def configured(self, raw: Tensor) -> NavigationConfig:
        """The config with the values of raw parameters.

        Args:
            raw: one number for each name in :attr:`learn`.

        Returns:
            The config.
        """
        return replace(self.config, **dict(zip(self.learn, raw.exp().tolist(), strict=True)))

    def run(
        self,
        items: Steps,
        prior: Gaussian,
        raw: Tensor | None = None,
        *,
        smoothing: bool = False,
    ) -> Trajectory:
        """The filter over steps, for each of the beliefs in ``prior``.

        Args:
            items: the steps.
            prior: one or several beliefs.
            raw: noises, as :meth:`raw` gives them; by default those of the config.
            smoothing: keep what a smoother needs.

        Returns:
            The trajectory.
        """
        count = len(prior.mean)
        y, u, dt = (torch.from_numpy(np.ascontiguousarray(item)) for item in (items.y, items.u, items.dt))
        y, u, dt = y.expand(count, -1, -1), u.expand(count, -1, -1), dt.expand(count, -1)
        with torch.no_grad():
            return self.model.run_with(
                self.parameters.install,
                self.default if raw is None else raw,
                (self.model, self.parameters),
                y,
                u,
                y.isfinite(),
                dt,
                prior,
                outputs=OUTPUTS,
                smoothing=smoothing,
            )

    def started(
        self,
        recording: NavigationRecording,
        begin: float,
        end: float,
        raw: Tensor | None = None,
        uncertainty: starting.Uncertainty | None = None,
    ) -> tuple[float, Gaussian]:
        """When to start, and the belief there whose heading explains the first part best.

        Args:
            recording: the sensors.
            begin: the beginning (s).
            end: the end (s).
            raw: noises, as :meth:`raw` gives them; by default those of the config.
            uncertainty: standard deviations of the first belief; by default those of a small vehicle.

        Returns:
            The moment (s) and the belief.
        """
        moment = starting.calm_moment(recording, begin, end)
        system = self.model.system
        assert isinstance(system, Navigation)
        beliefs = starting.first_beliefs(system, recording, moment, uncertainty)
        items = self.steps(recording, moment, min(end, moment + ALIGNED))
        track = self.run(items, beliefs, raw)
        scores = track.log_likelihood.nan_to_num(-math.inf)
        best = int(scores.argmax())
        return moment, Gaussian(beliefs.mean[best : best + 1], beliefs.cov[best : best + 1])

    def steps(self, recording: NavigationRecording, begin: float, end: float) -> Steps:
        """The steps of the sensors of this filter.

        Args:
            recording: the sensors.
            begin: the beginning (s).
            end: the end (s).

        Returns:
            The steps.
        """
        chosen = {name: recording.sensors[name] for name in self.config.sensors}
        return steps(recording.imu, chosen, begin, end)

    def gated(self, items: Steps, prior: Gaussian, raw: Tensor | None = None) -> tuple[Steps, dict[str, int]]:
        """The steps without outliers: what is beyond the gate is left out, and the filter run again.

        Args:
            items: the steps.
            prior: the first belief.
            raw: noises, as :meth:`raw` gives them; by default those of the config.

        Returns:
            The steps, and the number of outliers of each sensor.
        """
        y, removed = items.y.copy(), dict.fromkeys(items.channels, 0)
        for _ in range(ROUNDS):
            track = self.run(replace(items, y=y), prior, raw)
            assert track.innovation is not None
            assert track.innovation_cov is not None
            found = 0
            for name, place in items.channels.items():
                residual = track.innovation[0, :, place].numpy()
                std = track.innovation_cov[0].diagonal(dim1=-2, dim2=-1)[:, place].sqrt().numpy()
                there = np.isfinite(y[:, place])
                far = (there & (np.abs(residual) > GATE * std)).any(1)
                if far.sum() + removed[name] > FEW * (there.any(1).sum() + removed[name]):
                    continue  # so many are no outliers: the filter is wrong, and would not come back without them
                removed[name] += int(far.sum())
                found += int(far.sum())
                y[far, place] = np.nan
            if not found:
                break
        return replace(items, y=y), removed

    def fit(
        self,
        items: Steps,
        prior: Gaussian,
        raw: Tensor | None = None,
        *,
        iterations: int = 25,
        window: float = WINDOW,
        progress: Callable[[int, float], None] | None = None,
    ) -> tuple[Tensor, float]:
        """The noises under which measurements, and fixes seconds ahead, are most likely, and the logarithm of that.

        Receivers smooth their fixes, so that the next one is predicted well by the last. Noises by the likelihood of
        the next measurement alone trust fixes to millimetres and make poor predictions over seconds. Therefore the
        fixes of every second window are hidden, then those of the other ones, and the density of hidden fixes under
        the prediction counts too. Each noise has a prior about its default whose logarithm has the standard deviation
        :data:`SPREAD`.

        Args:
            items: the steps.
            prior: the first belief.
            raw: noises to start from.
            iterations: at most.
            window: length of the windows (s).
            progress: called with the number of the iteration and the value.

        Returns:
            The noises, as :meth:`run` takes them, and the value reached.
        """
        hidden = _Hidden(self, items, prior, window)

        def local(at: Tensor) -> Local:
            here = hidden.local(at)
            away = (at - self.default) / SPREAD**2
            value = here.value - 0.5 * float((at - self.default) @ away)
            return Local(value, here.gradient - away, here.information + torch.eye(len(at)).to(at) / SPREAD**2)

        begin = self.default if raw is None else raw
        found, here = maximise(local, begin, iterations=iterations, tolerance=0.5, progress=progress)
        return found, here.value

    def likelihood(
        self, recording: NavigationRecording, begin: float, end: float, prior: Gaussian, raw: Tensor
    ) -> float:
        """The log-likelihood of a recording.

        Args:
            recording: the sensors.
            begin: the beginning (s).
            end: the end (s).
            prior: the first belief.
            raw: noises, as :meth:`raw` gives them; by default those of the config.

        Returns:
            The logarithm; minus infinity where the filter fails.
        """
        track = self.run(self.steps(recording, begin, end), prior, raw)
        value = float(track.log_likelihood[0])
        return value if math.isfinite(value) else -math.inf

    def delay(
        self,
        recording: NavigationRecording,
        names: tuple[str, ...],
        begin: float,
        end: float,
        prior: Gaussian,
        raw: Tensor,
        within: tuple[float, float] = (-0.3, 0.5),
    ) -> tuple[float, float]:
        """The common delay of some sensors under which a recording is most likely, and its standard error (s).

        The filter starts when they were measured with the delay that they have now; a grid, then a parabola through the
        best point and its neighbours.

        Args:
            recording: the sensors.
            names: the sensors.
            begin: the beginning (s).
            end: the end (s).
            prior: the first belief.
            raw: noises, as :meth:`raw` gives them; by default those of the config.
            within: the shortest and the longest delay (s).

        Returns:
            The delay and its standard error (s).
        """
        margin = max(map(abs, within))

        def value(delay: float) -> float:
            moved = recording.with_delays(dict.fromkeys(names, delay))
            # the same readings for every delay: those at the edges would come and go
            kept = {
                key: item.between(begin + margin - item.delay + delay, end - margin - item.delay + delay)
                if key in names
                else item
                for key, item in moved.sensors.items()
            }
            return self.likelihood(replace(moved, sensors=kept), begin, end, prior, raw)

        grid = np.arange(within[0], within[1] + 1e-9, 0.04)
        values = np.array([value(float(item)) for item in grid])
        centre, step = float(grid[int(values.argmax())]), 0.02
        while step > 0.002:
            grid = centre + step * np.arange(-1, 2)
            values = np.array([value(float(item)) for item in grid])
            centre, step = float(grid[int(values.argmax())]), step / 2
        left, middle, right = (value(centre + offset) for offset in (-0.01, 0.0, 0.01))
        curvature = (2 * middle - left - right) / 1e-4
        if not curvature > 0:
            return centre, math.inf
        return centre + 0.5 * (right - left) / (curvature * 0.01), 1 / math.sqrt(curvature)

    def learned(
        self,
        recording: NavigationRecording,
        begin: float,
        end: float,
        *,
        delayed: tuple[str, ...] = ("gnss_position", "gnss_velocity"),
        uncertainty: starting.Uncertainty | None = None,
        iterations: int = 25,
        say: Callable[[str], None] = lambda text: None,
    ) -> Learned:
        """Noises and delays from the part of a recording from ``begin`` to ``end``, without truth.

        Start, delay and noises in turn: a wrong delay looks like noise, and noises say how far a delay is known.
        Outliers are left out in the last turn, when noises are known by which to tell them.

        Args:
            recording: the sensors.
            begin: the beginning (s).
            end: the end (s).
            delayed: sensors that share a delay.
            uncertainty: standard deviations of the first belief; by default those of a small vehicle.
            iterations: of each fit, at most.
            say: called with a line of text now and then.

        Returns:
            Noises, delays and start.
        """
        names = tuple(name for name in delayed if name in self.config.sensors)
        raw, delay, error = self.default, 0.0, math.inf
        moment, prior = self.started(recording, begin, end, raw, uncertainty)
        for turn in range(2):
            if names:
                delay, error = self.delay(recording, names, moment, end, prior, raw)
                say(f"delay of GNSS {1e3 * delay:.0f} ms")
                recording = recording.with_delays(dict.fromkeys(names, delay))
            items = self.steps(recording, moment, end)
            if turn:
                items, _ = self.gated(items, prior, raw)
            raw, value = self.fit(items, prior, raw, iterations=iterations)
            say(f"noises: log-likelihood {value:.1f}")
            moment, prior = self.started(recording, begin, end, raw, uncertainty)
        ahead = _Hidden(self, items, prior, WINDOW).score(raw)
        return Learned(raw, dict.fromkeys(names, delay), error, moment, prior, recording, ahead)

    def estimate(
        self,
        recording: NavigationRecording,
        begin: float,
        end: float,
        prior: Gaussian,
        raw: Tensor | None = None,
        *,
        smoothing: bool = False,
        gate: bool = True,
    ) -> Estimate:
        """Filter a recording, or smooth it, without outliers.

        Args:
            recording: the sensors.
            begin: the beginning (s).
            end: the end (s).
            prior: the first belief.
            raw: noises, as :meth:`raw` gives them; by default those of the config.
            smoothing: use what was measured later too.
            gate: leave outliers out.

        Returns:
            The run.
        """
        items, removed = self.steps(recording, begin, end), dict[str, int]()
        if gate:
            items, removed = self.gated(items, prior, raw)
        track = self.run(items, prior, raw, smoothing=smoothing)
        if smoothing:
            found = smooth(self.model, track)
            track = track._replace(mean=found.mean, cov=found.cov, linear=None)
        config = self.config if raw is None else self.configured(raw)
        return Estimate(items, track, config, removed)


class _Hidden:
    """The likelihood of what was measured and of fixes that were hidden, as a function of the noises."""

    def __init__(self, navigator: Navigator, items: Steps, prior: Gaussian, window: float) -> None:
        self.navigator = navigator
        gnss = [items.channels[name] for name in ("gnss_position", "gnss_velocity") if name in items.channels]
        self.columns = [column for place in gnss for column in range(place.start, place.stop)]
        odd = np.floor((items.time - items.time[0]) / window).astype(int) % 2 == 1
        shown = np.stack([items.y, items.y])
        for number, hide in enumerate((odd, ~odd)):
            hide = hide & (items.time - items.time[0] >= window)  # a filter that has not started predicts nothing
            shown[number][np.ix_(hide, self.columns)] = np.nan
        self.items = replace(items, y=shown)
        self.prior = Gaussian(prior.mean.expand(2, -1), prior.cov.expand(2, -1, -1))
        known = np.isfinite(items.y)
        # steps in which something was seen in either, and those with a fix that was hidden
        self.seen = torch.from_numpy(np.isfinite(shown).any((0, 2)))
        missing = known[:, self.columns] & ~np.isfinite(shown[:, :, self.columns])
        self.hidden = torch.from_numpy(missing.any(-1))
        self.missing = torch.from_numpy(missing)
        self.fixes = torch.from_numpy(np.nan_to_num(items.y[:, self.columns]))
        # errors of fixes within a second are much the same
        fixed = items.time[known[:, self.columns].any(1)]
        self.share = min(1.0, float(np.median(np.diff(fixed)))) if len(fixed) > 1 else 1.0

    def local(self, raw: Tensor) -> Local:
        """Value, gradient and information."""
        around = torch.cat((raw.unsqueeze(0), raw + DIFFERENCE * torch.eye(len(raw)).to(raw)))
        near, ahead = (local_of([part]) for part in self._predictions(around))
        return Local(
            self.share * (0.5 * near.value + ahead.value),
            self.share * (0.5 * near.gradient + ahead.gradient),
            self.share * (0.5 * near.information + ahead.information),
        )

    def score(self, raw: Tensor) -> float:
        """The mean log-density of the numbers of hidden fixes."""
        ahead = self._predictions(raw.unsqueeze(0))[1]
        return local_of([ahead]).value / max(float(ahead.weight.sum()), 1.0)

    def _predictions(self, raws: Tensor) -> tuple[Predictions, Predictions]:
        """Of what was measured, and of what was hidden, for several parameter vectors."""
        system = self.navigator.model.system
        assert isinstance(system, Navigation)
        rows: list[tuple[Tensor, ...]] = []
        for at in raws:
            track = self.navigator.run(self.items, self.prior, at)
            assert track.innovation is not None
            assert track.innovation_cov is not None
            mean, cov = track.mean[self.hidden], track.cov[self.hidden]
            with torch.no_grad():
                expected, H = system.linearize_observation(mean)
                noise = system.measurement_covariance()[self.columns][:, self.columns]
            H = H.expand(len(mean), *H.shape[-2:])[:, self.columns]
            fixes = self.fixes.expand(2, *self.fixes.shape)[self.hidden]
            missing = self.missing[self.hidden]
            residual = (fixes - expected[:, self.columns]) * missing
            innovation, stated = track.innovation[:, self.seen], track.innovation_cov[:, self.seen]
            rows.append((innovation, stated, residual[None], (H @ cov @ H.mT + noise)[None]))
        weight = torch.from_numpy(np.isfinite(self.items.y)).double()[:, self.seen]
        far = self.missing[self.hidden].double()[None]
        innovation, stated, residual, cov = (torch.stack(column) for column in zip(*rows, strict=True))
        return Predictions(innovation, stated, weight), Predictions(residual, cov, far)


def chosen(
    recording: NavigationRecording,
    configs: Sequence[NavigationConfig],
    begin: float,
    end: float,
    **options: Any,
) -> tuple[Navigator, Learned]:
    """Of several filters, fitted, the one under which the fixes that were hidden from it are most likely.

    Args:
        recording: the sensors.
        configs: filters to try, of other sensors or other constants.
        begin: the beginning of the part that is fitted (s).
        end: its end (s).
        **options: of :meth:`Navigator.learned`.

    Returns:
        The filter and what was learned.
    """
    found: list[tuple[Navigator, Learned]] = []
    for config in configs:
        navigator = Navigator(config)
        found.append((navigator, navigator.learned(recording, begin, end, **options)))
    return max(found, key=lambda pair: pair[1].ahead)


def adapted(config: NavigationConfig, recording: NavigationRecording) -> NavigationConfig:
    """A config for the place and the sensors of a recording.

    Args:
        config: constants to start from.
        recording: the sensors.

    Returns:
        The config with the sensors that the recording has.

    >>> from fwnkf.navigation import Readings
    >>> imu = Readings(np.arange(0, 1, 0.01), np.zeros((100, 6)))
    >>> fixes = Readings(np.arange(2.0), np.array([[45.0, 7.0, 0.0]] * 2))
    >>> adapted(NavigationConfig(), NavigationRecording.from_fixes("bench", imu, fixes)).sensors
    ('gnss_position',)
    """
    known = [name for name in NOISES if name in recording.sensors and len(recording.sensors[name].time)]
    latitude, _, height = recording.origin
    return replace(
        config,
        latitude=latitude,
        height=height,
        sensors=tuple(known),
        rate=config.rate or "wheels" in known,
        field=recording.magnetic_field,
    )
