"""The review of a log: noises and delays fitted on its first part, filter and smoother, and what they say of the rest.

Nothing that is reported of the rest was used to choose a noise or a delay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from ..diagnosis.consistency import LoggedInnovation, channel_consistency, gate, logged_innovations
from ..diagnosis.result import Consistency, plain_values
from ..errors import DataError
from ..logs.log import Log
from ..types import Gaussian
from . import compare, defaults, from_log
from .estimate import Estimate, Learned, Navigator, adapted
from .recording import NavigationRecording, Pose
from .solution import Solution
from .timeline import Array

LONGEST_FIT = 120.0
"""Seconds of a log that noises are fitted to, at most."""
SHORTEST = 20.0
"""Seconds that a fit and a rest to judge it by need."""
SHORTEST_RUN = 5.0
"""Seconds that a filter without a fit needs."""
LONGEST_RUN = 7200.0
"""Seconds of a log at once: covariances of all steps are kept for the smoother, some 200 MB an hour."""
WINDOW, WINDOWS = 10.0, 5
"""Seconds for which fixes are hidden, and the windows that a short rest is divided into instead; the first is seen."""
FEWEST = 4
"""Hidden windows from which on a gain has an interval."""
CONSISTENT = (2 / 3, 3 / 2)
"""NIS of a sensor that is called consistent."""

SENSORS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "gnss_position": (("north", "east", "down"), "m"),
    "gnss_velocity": (("north", "east", "down"), "m/s"),
    "barometer": (("height",), "m"),
    "magnetometer": (("x", "y", "z"), "µT"),
    "airspeed": (("speed",), "m/s"),
    "wheels": (("forward", "right", "down"), "m/s"),
}
"""Channels and unit of each sensor."""
UNITS: Mapping[str, str] = {
    "gyro_density": "rad/s/√Hz",
    "accelerometer_density": "m/s²/√Hz",
    "gyro_walk": "rad/s/√s",
    "accelerometer_walk": "m/s²/√s",
    "gnss_position_std": "m",
    "gnss_height_std": "m",
    "gnss_velocity_std": "m/s",
    "gnss_climb_std": "m/s",
    "gnss_drift_std": "m",
    "velocity_drift_std": "m/s",
    "barometer_std": "m",
    "barometer_walk": "m/√s",
    "magnetometer_std": "µT",
    "airspeed_std": "m/s",
    "slip_std": "m/s",
}
"""Units of the noises that a fit learns."""
STATES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "gyro_bias": ("gyro bias", "rad/s", ("x", "y", "z")),
    "accelerometer_bias": ("accelerometer bias", "m/s²", ("x", "y", "z")),
    "gyro_scale": ("gyro scale error", "", ("x", "y", "z")),
    "accelerometer_scale": ("accelerometer scale error", "", ("x", "y", "z")),
    "gnss_position_lever_arm": ("antenna", "m", ("forward", "right", "down")),
    "gnss_position_drift": ("GNSS position drift", "m", ("north", "east", "down")),
    "gnss_velocity_drift": ("GNSS velocity drift", "m/s", ("north", "east", "down")),
    "barometer_offset": ("barometer offset", "m", ("",)),
    "magnetometer_field": ("magnetic field", "µT", ("north", "east", "down")),
    "magnetometer_hard_iron": ("field of the vehicle", "µT", ("x", "y", "z")),
    "wind": ("wind", "m/s", ("north", "east")),
    "wheels_mounting": ("mounting of the IMU", "rad", ("pitch", "yaw")),
    "wheels_axle": ("axle ahead of the IMU", "m", ("",)),
}
"""States beside position, velocity and orientation: what they are called, their unit, and their axes."""


def _logged_as() -> dict[str, tuple[str, int]]:
    """The sensor and channel of each innovation by the names of EKF2 (three generations of topics) and EKF3."""
    known: dict[str, tuple[str, int]] = {"gps_vvel": ("gnss_velocity", 2), "gps_vpos": ("gnss_position", 2)}
    for axis in range(3):
        known |= dict.fromkeys((f"vel_pos[{axis}]", f"gnss_vel[{axis}]", "IV" + "NED"[axis]), ("gnss_velocity", axis))
        names = f"mag[{axis}]", f"mag_field[{axis}]", "IM" + "XYZ"[axis]
        known |= dict.fromkeys(names, ("magnetometer", axis))
    for axis in range(2):
        places = f"vel_pos[{3 + axis}]", f"gps_hpos[{axis}]", f"gnss_pos[{axis}]", "IP" + "NE"[axis]
        known |= dict.fromkeys(places, ("gnss_position", axis)) | {f"gps_hvel[{axis}]": ("gnss_velocity", axis)}
    # height is that of the barometer by default
    known |= dict.fromkeys(("vel_pos[5]", "baro_vpos", "baro_hgt", "IPD"), ("barometer", 0))
    return known | {"gnss_hgt": ("gnss_position", 2)} | dict.fromkeys(("airspeed", "IVT"), ("airspeed", 0))


LOGGED = _logged_as()
"""Sensor and channel of the innovations that autopilots log."""


class Noise(NamedTuple):
    """A noise of the filter."""

    name: str
    unit: str
    value: float
    usual: float
    """The autopilot's default."""


class State(NamedTuple):
    """A state at the end of the log."""

    name: str
    unit: str
    value: float
    std: float


@dataclass(frozen=True, eq=False)
class ChannelInnovations:
    """Innovations of one channel of a sensor on the rest of the log, divided by their standard deviations."""

    sensor: str
    channel: str
    consistency: Consistency
    """NIS, with the interval of a consistent filter."""
    time: Array
    values: Array
    logged: Consistency | None = None
    """The same of the autopilot, from the log."""
    logged_time: Array = field(default_factory=lambda: np.zeros(0))
    logged_values: Array = field(default_factory=lambda: np.zeros(0))


class SensorSummary(NamedTuple):
    """A sensor on the rest of the log."""

    name: str
    readings: int
    nis: float
    """Normalised innovation squared over the number of channels: 1 for a consistent filter."""
    usual_nis: float | None
    """With the autopilot's default noises."""
    outliers: int
    """Measurements of the whole log that were left out."""

    @property
    def consistent(self) -> bool:
        """Whether its innovations are about as large as the filter states."""
        return CONSISTENT[0] <= self.nis <= CONSISTENT[1]


class Window(NamedTuple):
    """A time for which fixes were hidden from the filter, and the root mean square of its errors at them (m)."""

    begin: float
    end: float
    fixes: int
    error: float
    usual: float | None
    """With the autopilot's default noises."""


@dataclass(frozen=True)
class HeldOut:
    """Fixes that were hidden from the filter."""

    windows: tuple[Window, ...]
    error: float
    """Root mean square over all hidden fixes (m)."""
    usual: float | None = None
    """With the autopilot's default noises (m)."""
    gain: float | None = None
    """By how much the mean squared error is smaller, as a share of that with the default noises."""
    gain_low: float | None = None
    """Lower end of its 95 % interval, over windows; None for fewer than four."""
    gain_high: float | None = None

    @property
    def ratio(self) -> float | None:
        """Error over that with the default noises."""
        return self.error / self.usual if self.usual else None


@dataclass(frozen=True, eq=False)
class Difference:
    """Between two trajectories, as a length: horizontal, vertical, of velocity, or of attitude."""

    name: str
    unit: str
    time: Array
    values: Array
    rms: float
    """On the rest of the log."""
    largest: float
    """Likewise."""
    when: float
    """Seconds."""


class TruthError(NamedTuple):
    """Errors against the truth on the rest of the log."""

    name: str
    unit: str
    filtered: float
    """Root mean square of the length of the error."""
    smoothed: float
    autopilot: float | None
    nees: float
    """Normalised estimation error squared of the filter over its dimensions: 1 where the covariance is right."""


@dataclass(frozen=True, eq=False)
class NavigationReview:
    """Everything that the page and the command show."""

    name: str
    """Name of the log."""
    format: str
    imu: str
    """Name of the signal."""
    autopilot: str
    """Whose defaults are compared with: ``PX4`` or ``ArduPilot``."""
    begin: float
    """When the filter starts (s)."""
    rest: float
    """Where the part that noises were fitted to ends, and the rest begins (s)."""
    end: float
    fitted: bool
    """Whether noises and delay are fitted; else they are the autopilot's defaults."""
    noises: tuple[Noise, ...]
    delay: float
    """Of GNSS (s)."""
    delay_error: float | None
    """Its standard error (s)."""
    usual_delay: float
    """The autopilot's default (s)."""
    sensors: tuple[SensorSummary, ...]
    innovations: tuple[ChannelInnovations, ...]
    held_out: HeldOut | None
    """None where the rest is too short."""
    states: tuple[State, ...]
    """Biases, wind and the like at the end."""
    filtered: Solution
    smoothed: Solution
    fixes: Pose
    """Of GNSS, at the times at which they were measured."""
    estimate: Pose | None = None
    """The autopilot's own, from the log."""
    truth: Pose | None = None
    differences: tuple[Difference, ...] = ()
    """Between the filter and the autopilot's estimate."""
    errors: tuple[TruthError, ...] = ()
    """Against the truth, where the log has one."""
    notes: tuple[str, ...] = ()
    command: str = ""

    @property
    def consistent(self) -> bool:
        """Whether the innovations of all sensors are about as large as the filter states."""
        return all(row.consistent for row in self.sensors)

    @property
    def summary(self) -> str:
        """The review in a line."""
        words = []
        if self.held_out is not None:
            words.append(f"hidden fixes predicted within {self.held_out.error:.3g} m RMS")
            if self.held_out.usual is not None:
                words[-1] += f" ({self.held_out.usual:.3g} m with the default noises of {self.autopilot})"
        if self.fitted and self.delay_error is not None:
            words.append(f"GNSS is {1e3 * self.delay:.0f} ± {1e3 * self.delay_error:.0f} ms late")
        off = [row for row in self.sensors if not row.consistent]
        names = ", ".join(f"{row.name} {row.nis:.2g}" for row in off)
        words.append(f"innovations not as large as stated (NIS): {names}" if off else "all sensors consistent")
        if self.differences:
            first = self.differences[0]
            words.append(
                f"at most {first.largest:.3g} m {first.name} from the autopilot's track, at {first.when:.0f} s"
            )
        return "; ".join(words) + "."

    def as_dict(self, *, arrays: bool = False) -> dict[str, Any]:
        """Everything as values of strict JSON; without ``arrays``, their shapes instead of curves."""
        whole = {item.name: getattr(self, item.name) for item in fields(self)}
        whole |= {name: getattr(self, name).columns() for name in ("filtered", "smoothed")}
        values: dict[str, Any] = plain_values(whole, arrays=arrays)
        return {"summary": self.summary, **values}


def review(
    log: Log,
    *,
    imu: str | None = None,
    fit: bool = True,
    begin: float | None = None,
    end: float | None = None,
    say: Callable[[str], None] = lambda text: None,
    command: str = "",
) -> NavigationReview:
    """Navigate through a log, and compare.

    Args:
        log: an open log.
        imu: the source of the IMU, of several; by default the first.
        fit: whether to fit noises and the delay of GNSS on the first half, at most :data:`LONGEST_FIT` seconds of it;
            else they are the autopilot's defaults.
        begin: seconds of the log before which nothing is used.
        end: seconds after which nothing is used.
        say: called with lines of progress.
        command: the command line, for the page.

    Returns:
        The review.

    Raises:
        DataError: the log lacks an IMU or GNSS, or is too short.
    """
    recording = from_log.recording(log, imu=imu)
    firmware = str(log.facts.get("firmware", ""))
    chosen = imu or next(source.name for source in log.sources() if source.role == "imu")
    found = review_recording(
        recording,
        autopilot="ArduPilot" if firmware.startswith("Ardu") else "PX4",
        fit=fit,
        begin=begin,
        end=end,
        logged=_logged(log),
        say=say,
    )
    return replace(found, format=log.format, imu=chosen, notes=(*found.notes, *log.notes), command=command)


def review_recording(
    recording: NavigationRecording,
    *,
    autopilot: str = "PX4",
    fit: bool = True,
    begin: float | None = None,
    end: float | None = None,
    logged: Mapping[tuple[str, int], LoggedInnovation] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> NavigationReview:
    """As :func:`review`, for sensors that were read already.

    Args:
        recording: the sensors.
        autopilot: whose default noises to compare with, one of :data:`fwnkf.navigation.defaults.USUAL`.
        fit: as in :func:`review`.
        begin: likewise.
        end: likewise.
        logged: the autopilot's innovations by sensor and channel.
        say: called with lines of progress.

    Returns:
        The review.

    Raises:
        DataError: the recording is too short.
    """
    first, last = _span(recording, begin, end, fit)
    navigator = Navigator(adapted(defaults.FLIGHT, recording))
    config = navigator.config
    noises, usual_delay = defaults.USUAL[autopilot]
    middle = first + min(0.5 * (last - first), LONGEST_FIT) if fit else first
    usual = _Candidate.usual(navigator, recording, first, middle if fit else last, noises, usual_delay)
    own, error = usual, None
    if fit:
        say(f"fitting noises and the delay of GNSS from {first:.0f} to {middle:.0f} s")
        learned = navigator.learned(recording, first, middle, say=say)
        own, error = _Candidate.learned(navigator, learned), learned.delay_error
    say(f"filtering and smoothing {last - own.moment:.0f} s")
    filtered, smoothed = own.run(last), own.run(last, smoothing=True)
    rest = max(middle, own.moment)
    beside = usual.run(last) if fit else None
    say(f"hiding fixes from {rest:.0f} s on")
    held_out = _held_out(own, usual if fit else None, rest, last)
    solution, best = Solution.of(filtered, recording.origin), Solution.of(smoothed, recording.origin)
    fixes = own.recording.sensors["gnss_position"].between(own.moment, last)
    delay = own.recording.sensors["gnss_position"].delay
    return NavigationReview(
        name=recording.name,
        format="",
        imu="imu",
        autopilot=autopilot,
        begin=own.moment,
        rest=rest,
        end=last,
        fitted=fit,
        noises=tuple(
            Noise(name, UNITS[name], value, noises.get(name, float(getattr(config, name))))
            for name, value in zip(navigator.learn, own.raw.exp().tolist(), strict=True)
        ),
        delay=delay,
        delay_error=error,
        usual_delay=usual_delay,
        sensors=tuple(_sensors(filtered, beside, rest)),
        innovations=tuple(_innovations(filtered, rest, last, logged or {})),
        held_out=held_out,
        states=tuple(_states(solution)),
        filtered=solution,
        smoothed=best,
        fixes=Pose(fixes.measured, fixes.values),
        estimate=recording.autopilot,
        truth=recording.truth,
        differences=() if recording.autopilot is None else tuple(_differences(filtered, recording.autopilot, rest)),
        errors=tuple(_errors(filtered, smoothed, recording, rest)),
        notes=recording.notes,
    )


# ---- the parts ----------------------------------------------------------------------------------------------------


def _span(recording: NavigationRecording, begin: float | None, end: float | None, fit: bool) -> tuple[float, float]:
    """The part of a recording that is used."""
    first, last = recording.span
    fixes = recording.sensors["gnss_position"].time
    last = min(last, float(fixes[-1]) + WINDOW)
    first, last = max(first, first if begin is None else begin), min(last, last if end is None else end)
    needed = SHORTEST if fit else SHORTEST_RUN
    if last - first < needed:
        there = f"{max(last - first, 0.0):.1f} s from {first:.1f} to {max(last, first):.1f} s"
        hint = "; run without it: --no-fit" if fit and last - first >= SHORTEST_RUN else ""
        raise DataError(
            f"{recording.name}: the IMU and GNSS are both there for {there}; "
            f"{'a fit' if fit else 'a filter'} needs {needed:.0f} s{hint}"
        )
    if last - first > LONGEST_RUN:
        raise DataError(
            f"{recording.name}: {last - first:,.0f} s from {first:,.1f} to {last:,.1f} s are too long at once; name "
            f"a part of at most {LONGEST_RUN:,.0f} s with --from and --to"
        )
    return first, last


@dataclass(frozen=True)
class _Candidate:
    """A filter with noises, delay and start, ready to run."""

    navigator: Navigator
    raw: Tensor
    recording: NavigationRecording
    moment: float
    prior: Gaussian

    @classmethod
    def learned(cls, navigator: Navigator, found: Learned) -> _Candidate:
        return cls(navigator, found.raw, found.recording, found.moment, found.prior)

    @classmethod
    def usual(
        cls,
        navigator: Navigator,
        recording: NavigationRecording,
        begin: float,
        end: float,
        noises: Mapping[str, float],
        delay: float,
    ) -> _Candidate:
        """With the defaults of an autopilot."""
        known: dict[str, Any] = {name: value for name, value in noises.items() if name in navigator.learn}
        raw = navigator.raw(replace(navigator.config, **known))
        names = [name for name in compare.GNSS if name in recording.sensors]
        moved = recording.with_delays(dict.fromkeys(names, delay))
        return cls(navigator, raw, moved, *navigator.started(moved, begin, end, raw))

    def run(self, end: float, *, smoothing: bool = False, hidden: list[tuple[float, float]] | None = None) -> Estimate:
        recording = self.recording if hidden is None else self.recording.hidden(hidden, compare.GNSS)
        return self.navigator.estimate(recording, self.moment, end, self.prior, self.raw, smoothing=smoothing)

    def errors(self, begin: float, end: float, length: float) -> compare.Hidden:
        """At the fixes of all windows but the first: those of even ones hidden in one run, of odd ones in another."""
        parts = []
        for shift in (0.0, length):
            windows = compare.alternate(begin + shift, end, length)
            if windows:
                parts.append(compare.hidden_errors(self.recording, self.run(end, hidden=windows), windows))
        if not parts:
            return compare.Hidden(np.zeros((0, 3)), np.zeros(0), np.zeros(0, int))
        # windows in the order of time
        number = [2 * part.window + place for place, part in enumerate(parts)]
        return compare.Hidden(
            np.concatenate([part.error for part in parts]),
            np.concatenate([part.since for part in parts]),
            np.concatenate(number),
        )


def _held_out(own: _Candidate, usual: _Candidate | None, begin: float, end: float) -> HeldOut | None:
    length = min(WINDOW, (end - begin) / WINDOWS)
    mine = own.errors(begin, end, length)
    if not len(mine.error):
        return None
    numbers = np.unique(mine.window)
    squares = mine.by_window()
    other = None if usual is None else usual.errors(begin, end, length)
    # with another delay, a fix at the edge may be in another window
    if other is not None and not np.array_equal(np.unique(other.window), numbers):
        other = None
    theirs = None if other is None else other.by_window()
    windows = tuple(
        Window(
            begin + length * (1 + int(number)),
            begin + length * (2 + int(number)),
            int((mine.window == number).sum()),
            math.sqrt(squares[place]),
            None if theirs is None else math.sqrt(theirs[place]),
        )
        for place, number in enumerate(numbers)
    )
    if other is None or theirs is None:
        return HeldOut(windows, mine.rms())
    scale = float(theirs.mean())
    gains = (theirs - squares) / scale
    gain = float(gains.mean())
    if len(gains) < FEWEST:
        return HeldOut(windows, mine.rms(), other.rms(), gain)
    wide = _student(len(gains) - 1) * float(gains.std(ddof=1)) / math.sqrt(len(gains))
    return HeldOut(windows, mine.rms(), other.rms(), gain, gain - wide, gain + wide)


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's distribution with at least three degrees of freedom, within 1 %.

    >>> [round(_student(n), 2) for n in (3, 10, 100)]  # 3.18, 2.23, 1.98 in tables
    [3.16, 2.23, 1.98]
    """
    z, n = 1.959964, freedom
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / n ** (order + 1) for order, term in enumerate(terms))


def _sensors(own: Estimate, usual: Estimate | None, rest: float) -> Iterator[SensorSummary]:
    for name in own.steps.channels:
        time, squares = own.squares(name)
        late = time >= rest
        beside = None
        if usual is not None:
            times, theirs = usual.squares(name)
            beside = float(theirs[times >= rest].mean()) if (times >= rest).any() else None
        mean = float(squares[late].mean()) if late.any() else math.nan
        yield SensorSummary(name, int(late.sum()), mean, beside, own.rejected.get(name, 0))


def _innovations(
    found: Estimate, rest: float, end: float, logged: Mapping[tuple[str, int], LoggedInnovation]
) -> Iterator[ChannelInnovations]:
    track = found.track
    assert track.innovation is not None
    assert track.innovation_cov is not None
    std = track.innovation_cov[0].diagonal(dim1=-2, dim2=-1).sqrt().numpy()
    values = track.innovation[0].numpy() / std
    late = found.time >= rest
    for sensor, place in found.steps.channels.items():
        for number, channel in enumerate(SENSORS[sensor][0]):
            column = place.start + number
            there = late & np.isfinite(found.steps.y[:, column])
            if not there.any():
                continue
            time, own = found.time[there], values[there, column]
            row = ChannelInnovations(sensor, channel, _consistency(f"{sensor} {channel}", time, own), time, own)
            other = logged.get((sensor, number))
            if other is not None:
                inside = (other.time >= rest) & (other.time <= end)
                time, theirs = other.time[inside], _normalised(other)[inside]
                if inside.sum() > 1:
                    row = replace(
                        row, logged=_consistency(other.name, time, theirs), logged_time=time, logged_values=theirs
                    )
            yield row


def _consistency(name: str, time: Array, values: Array) -> Consistency:
    return channel_consistency(name, "NIS", time, values)


def _normalised(item: LoggedInnovation) -> Array:
    """Innovations in standard deviations; where the log has test ratios alone, by them and the usual gate."""
    if item.variance is not None:
        return item.values / np.sqrt(item.variance)
    if item.ratio is not None:
        return np.sign(item.values) * np.sqrt(np.maximum(item.ratio, 0.0)) * gate(item.name)
    return np.full(len(item.values), np.nan)


def _logged(log: Log) -> dict[tuple[str, int], LoggedInnovation]:
    """The autopilot's innovations by sensor and channel; of several estimators, those of the first."""
    found: dict[tuple[str, int], LoggedInnovation] = {}
    for source in log.sources():
        if source.role == "innovation":
            stream = log.signal(source.name)
            for item in logged_innovations(stream, np.ones(len(stream), bool)):
                if item.name in LOGGED and (item.variance is not None or item.ratio is not None):
                    found.setdefault(LOGGED[item.name], item)
    return found


def _states(solution: Solution) -> Iterator[State]:
    for name, *_ in solution.parts:
        if name in STATES:
            title, unit, axes = STATES[name]
            values, std = solution.part(name)
            for axis, value, error in zip(axes, values[-1].tolist(), std[-1].tolist(), strict=True):
                yield State(f"{title} {axis}".strip(), unit, value, error)


def _differences(found: Estimate, pose: Pose, rest: float) -> Iterator[Difference]:
    for name, unit, time, values in _lengths(compare.against(found, pose)):
        late = time >= rest
        if late.any():
            worst = int(np.argmax(np.where(late, values, -1.0)))
            rms = float(np.sqrt((values[late] ** 2).mean()))
            yield Difference(name, unit, time, values, rms, float(values[worst]), float(time[worst]))


def _lengths(errors: Mapping[str, tuple[Array, Array]]) -> Iterator[tuple[str, str, Array, Array]]:
    """Errors of the parts of a pose as lengths."""
    for part, (time, values) in errors.items():
        if part == "position":
            yield "horizontally", "m", time, np.linalg.norm(values[:, :2], axis=1)
            yield "vertically", "m", time, np.abs(values[:, 2])
        elif part == "velocity":
            yield "in velocity", "m/s", time, np.linalg.norm(values, axis=1)
        else:
            yield "in attitude", "°", time, np.rad2deg(np.linalg.norm(values, axis=1))


def _errors(own: Estimate, smoothed: Estimate, recording: NavigationRecording, rest: float) -> Iterator[TruthError]:
    truth, pilot = recording.truth, recording.autopilot
    if truth is None:
        return
    filtered, best = compare.against(own, truth), compare.against(smoothed, truth)
    for part, (time, error) in filtered.items():
        late = time >= rest
        if not late.any():
            continue
        scale, unit = (180 / math.pi, "°") if part == "orientation" else (1.0, "m" if part == "position" else "m/s")
        other = None
        theirs, true = getattr(pilot, part, None), getattr(truth, part)
        if pilot is not None and theirs is not None and part != "orientation":
            inside = (pilot.time >= max(rest, truth.time[0])) & (pilot.time <= min(own.time[-1], truth.time[-1]))
            if inside.any():
                other = _rms(theirs[inside] - compare.interpolated(truth.time, true, pilot.time[inside]))
        mine, smooth = (_rms(item[part][1][late]) * scale for item in (filtered, best))
        yield TruthError(part, unit, mine, smooth, other, compare.consistency(own, part, time[late], error[late]))


def _rms(errors: Array) -> float:
    return float(np.sqrt((errors**2).sum(1).mean()))
