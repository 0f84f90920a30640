"""What is measured of the navigation filter, part by part; each row is stored as soon as it is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fwnkf.navigation import compare, defaults
from fwnkf.navigation.estimate import Estimate, Learned, Navigator, adapted, chosen
from fwnkf.navigation.mounting import mounting, rolling
from fwnkf.navigation.recording import NavigationRecording
from fwnkf.navigation.timeline import Array
from fwnkf.systems import NavigationConfig
from tasks.ins_gnss import quadrotor, recordings, replay, simulated
from tasks.ins_gnss.vibration import vibration_rows

Row = dict[str, Any]
REDRAWS, SMOOTHED = 60, 20
SETTLED = 60.0
"""Seconds after which errors count."""
CAR_FIT, OUTAGES, SPACING = 150.0, 7, 60.0
"""The car: seconds at the beginning that are fitted, then outages that start so many seconds apart."""
LONGEST_FIT = 120.0
"""Seconds at the end of the first half of a flight that are fitted at most."""
UNCALIBRATED = 15.0
"""Field of a vehicle whose magnetometer nobody calibrated (µT)."""


def rms(error: Array) -> list[float]:
    """By column."""
    return [float(value) for value in np.sqrt((error**2).mean(0))]


# ---- NaveGo ----------------------------------------------------------------------------------------------------------


def navego() -> Iterator[tuple[str, Any]]:
    """The synthetic drive: its own noise, and drawn anew."""
    drive = simulated.drive(*recordings.navego())
    navigator = Navigator(simulated.config(drive))

    def given() -> Row:
        recording = drive.recording
        begin, end = recording.span
        plain = Navigator(replace(simulated.config(drive), drift_seconds=0.0))
        moment, prior = plain.started(recording, begin, end)
        return _of_truth(recording, plain.estimate(recording, moment, end, prior, gate=False))

    yield "given", given
    for seed in range(REDRAWS):

        def redrawn(seed: int = seed) -> Row:
            recording, prior = simulated.redrawn(drive, seed)
            begin, end = float(recording.sensors["gnss_position"].time[0]) - 0.2, recording.span[1]
            found = navigator.estimate(recording, begin, end, prior, gate=False)
            row = _of_truth(recording, found)
            if seed < SMOOTHED:
                smoothed = navigator.estimate(recording, begin, end, prior, gate=False, smoothing=True)
                row |= {f"smoothed {name}": value for name, value in _of_truth(recording, smoothed).items()}
            return row

        yield f"redrawn, seed {seed}", redrawn


def _of_truth(recording: NavigationRecording, found: Estimate) -> Row:
    assert recording.truth is not None
    row: Row = {}
    for name, (time, error) in compare.against(found, recording.truth).items():
        late = time > time[0] + SETTLED
        row[name], row[f"NEES {name}"] = rms(error[late]), compare.consistency(found, name, time[late], error[late])
    if found.track.innovation is not None:
        squares = [found.squares(name)[1] for name in ("gnss_position", "gnss_velocity")]
        row["NIS"] = float(np.concatenate(squares).mean())
    return row


# ---- car -------------------------------------------------------------------------------------------------------------


def car() -> Iterator[tuple[str, Any]]:
    """Outages of GNSS, with and without the knowledge that a car does not slip."""
    recording = recordings.car()
    begin, _ = recording.span
    start = NavigationConfig(gnss_position_std=0.05, gnss_height_std=0.1)
    known: dict[str, tuple[Navigator, Learned]] = {}

    def inertial() -> tuple[Navigator, Learned]:
        if "inertial" not in known:
            navigator = Navigator(adapted(start, recording))
            known["inertial"] = navigator, navigator.learned(recording, begin, begin + CAR_FIT)
        return known["inertial"]

    def wheels() -> tuple[Navigator, Learned]:
        if "wheels" not in known:
            plain, learned = inertial()
            first = plain.estimate(learned.recording, learned.moment, begin + CAR_FIT, learned.prior, learned.raw)
            turn = tuple(float(angle) for angle in mounting(first))
            on_wheels = rolling(recording)
            config = replace(start, mounting=turn, axle_std=1.0, rate=True, scales=True)
            navigator = Navigator(adapted(config, on_wheels))
            known["wheels"] = navigator, navigator.learned(on_wheels, begin, begin + CAR_FIT)
        return known["wheels"]

    for name, made in (("inertial", inertial), ("with wheels", wheels)):

        def fit(made: Callable[[], tuple[Navigator, Learned]] = made) -> Row:
            return _fitted(*made())

        yield f"{name}: fit", fit
        for length in (10.0, 30.0):

            def hidden(made: Callable[[], tuple[Navigator, Learned]] = made, length: float = length) -> Row:
                navigator, learned = made()
                return _outages(navigator, learned, begin, length)

            yield f"{name}: outages of {length:.0f} s", hidden


def _fitted(navigator: Navigator, learned: Learned) -> Row:
    config = navigator.configured(learned.raw)
    return {
        "delay": learned.delays.get("gnss_position", math.nan),
        "delay error": learned.delay_error,
        "noises": {name: float(f"{getattr(config, name):.3g}") for name in navigator.learn},
    }


def _outages(navigator: Navigator, learned: Learned, begin: float, length: float) -> Row:
    ends, inside = [], []
    recording = learned.recording
    for number in range(OUTAGES):
        start = begin + CAR_FIT + SPACING * number
        window = [(start, start + length)]
        shown = recording.hidden(window, compare.GNSS)
        found = navigator.estimate(shown, learned.moment, start + length, learned.prior, learned.raw)
        errors = compare.hidden_errors(recording, found, window)
        ends.append(float(np.linalg.norm(errors.error[-1, :2])))
        time = start + errors.since
        cov = found.covariance("position")[np.clip(np.searchsorted(found.time, time), 0, len(found.time) - 1), :2, :2]
        flat = errors.error[:, :2]
        squares = (flat * np.linalg.solve(cov, flat[..., None])[..., 0]).sum(-1)
        inside += list(squares < -2 * math.log(0.05))  # chi-square with two degrees of freedom
    return {"ends": ends, "rms": rms(np.array(ends)[:, None])[0], "coverage": float(np.mean(inside))}


# ---- PX4 simulation with truth ---------------------------------------------------------------------------------------


def position_log() -> Iterator[tuple[str, Any]]:
    """A simulated PX4 flight: as logged beside EKF2, and with GNSS made realistic."""
    recording = recordings.of_log("navigation", "px4_sitl_truth", "yuneec_position.ulg")
    white, drift, seconds = 1.5, 2.0, 60.0
    stated: Row = {"gnss_position_std": white, "gnss_height_std": white, "gnss_drift_std": drift}

    def noises() -> tuple[Navigator, Learned]:
        other = recordings.of_log("navigation", "px4_sitl_truth", "yuneec_hover_parameterchange.ulg")
        navigator = Navigator(adapted(NavigationConfig(), other))
        return navigator, navigator.learned(other, *other.span)

    kept: list[tuple[Navigator, Learned]] = []

    def learned() -> tuple[Navigator, Learned]:
        if not kept:
            kept.append(noises())
        return kept[0]

    def as_logged() -> Row:
        navigator, found = learned()
        config = replace(adapted(navigator.configured(found.raw), recording))
        return _beside_autopilot(Navigator(config), recording, dict.fromkeys(compare.GNSS, _delay(recording)))

    yield "as logged", as_logged
    for seed in range(10):

        def noisy(seed: int = seed) -> Row:
            navigator, found = learned()
            rng = np.random.default_rng(seed)
            item = recording.sensors["gnss_position"]
            step = float(np.median(np.diff(item.time)))
            walk = np.zeros_like(item.values)
            walk[0] = drift * rng.standard_normal(3)
            decay = math.exp(-step / seconds)
            for row in range(1, len(walk)):
                walk[row] = decay * walk[row - 1] + drift * math.sqrt(1 - decay**2) * rng.standard_normal(3)
            values = item.values + walk + white * rng.standard_normal(walk.shape)
            noisy = replace(recording, sensors={**recording.sensors, "gnss_position": replace(item, values=values)})
            delays = dict.fromkeys(compare.GNSS, _delay(recording))
            ours = replace(adapted(navigator.configured(found.raw), recording), **stated, gnss_drift_seconds=seconds)
            theirs = adapted(NavigationConfig(**defaults.PX4), recording)
            result: Row = {}
            for name, config, used in (
                ("ours", ours, delays),
                ("EKF2's noises", theirs, dict.fromkeys(compare.GNSS, defaults.PX4_DELAY)),
            ):
                result |= {
                    f"{name}: {key}": value for key, value in _beside_autopilot(Navigator(config), noisy, used).items()
                }
            return result

        yield f"noise, seed {seed}", noisy


_DELAYS: dict[str, float] = {}


def _delay(recording: NavigationRecording) -> float:
    """That of GNSS, found on the first half of the flight."""
    if recording.name not in _DELAYS:
        navigator = Navigator(adapted(NavigationConfig(), recording))
        begin, end = recording.span
        learned = navigator.learned(recording, begin, 0.5 * (begin + end), iterations=6)
        _DELAYS[recording.name] = learned.delays["gnss_position"]
    return _DELAYS[recording.name]


def _beside_autopilot(navigator: Navigator, recording: NavigationRecording, delays: dict[str, float]) -> Row:
    recording = recording.with_delays(delays)
    begin, end = recording.span
    moment, prior = navigator.started(recording, begin, end)
    found = navigator.estimate(recording, moment, end, prior, gate=False)
    truth, late = recording.truth, moment + 10.0
    assert truth is not None
    row: Row = {"delay": delays["gnss_position"]}
    for name, (time, error) in compare.against(found, truth).items():
        kept = time > late
        if name == "position":
            row["NEES position"] = compare.consistency(found, name, time[kept], error[kept])
            # the origin of the simulated height is not that of GNSS
            error = error - error[kept].mean(0) * np.array([0.0, 0.0, 1.0])
        row[name] = rms(error[kept])
    autopilot = recording.autopilot
    if autopilot is not None:
        for name, error in _autopilot_errors(autopilot, truth, late).items():
            row[f"autopilot {name}"] = rms(error)
    return row


def _autopilot_errors(autopilot: Any, truth: Any, late: float) -> dict[str, Array]:
    kept = (autopilot.time > late) & (autopilot.time <= truth.time[-1])
    result = {}
    for name in ("position", "velocity"):
        mine, other = getattr(autopilot, name), getattr(truth, name)
        if mine is not None and other is not None:
            error = mine[kept] - compare.interpolated(truth.time, other, autopilot.time[kept])
            result[name] = error - error.mean(0) * np.array([0.0, 0.0, 1.0]) if name == "position" else error
    if autopilot.orientation is not None and truth.orientation is not None:
        result["orientation"] = compare.turns(truth, autopilot.time[kept], autopilot.orientation[kept])
    return result


# ---- real flights ----------------------------------------------------------------------------------------------------


def flights() -> Iterator[tuple[str, Any]]:
    """Fixes that were hidden on real flights, by fitted noises and by those that autopilots ship."""
    for name, load in {**recordings.RECORDINGS, **quadrotor.RECORDINGS}.items():
        yield name, lambda load=load: flight(load())


def flight(recording: NavigationRecording, config: NavigationConfig = defaults.FLIGHT) -> Row:
    """Fit on the first half; every second window of ten seconds hidden in the second half."""
    begin, end = recording.span
    half = 0.5 * (begin + end)
    base = adapted(config, recording)
    tried = [base]
    if "magnetometer" in base.sensors:  # calibrated, not calibrated, or of no use
        others = tuple(name for name in base.sensors if name != "magnetometer")
        tried += [replace(base, hard_iron_std=UNCALIBRATED), replace(base, sensors=others)]
    navigator, learned = chosen(recording, tried, max(begin, half - LONGEST_FIT), half, iterations=12)
    length = min(10.0, (end - half) / 3)
    windows = compare.alternate(half - length, end, length)
    plain = Navigator(adapted(NavigationConfig(**defaults.PX4), recording))
    default = recording.with_delays(dict.fromkeys(compare.GNSS, defaults.PX4_DELAY))
    row = _fitted(navigator, learned)
    row["sensors"] = list(navigator.config.sensors)
    raw = learned.raw
    whole = navigator.estimate(learned.recording, learned.moment, end, learned.prior, raw)
    row["outliers"] = dict(whole.rejected)
    row["NIS"] = {
        name: float(squares[time >= half].mean())
        for name in navigator.config.sensors
        for time, squares in (whole.squares(name),)
    }
    runs = {
        "ours": (navigator, learned.recording, raw),
        "default noises": (plain, default, None),
        "default noises, delay found": (plain, learned.recording, None),
    }
    for name, (model, used, values) in runs.items():
        moment, prior = model.started(used, max(begin, half - LONGEST_FIT), half, values)
        shown = used.hidden(windows, compare.GNSS)
        found = model.estimate(shown, moment, end, prior, values, gate=values is not None)
        errors = compare.hidden_errors(used, found, windows)
        row[name] = errors.rms()
        row[f"{name}: windows"] = [float(value) for value in errors.by_window()]
    if recording.autopilot is not None:
        for name, (time, error) in compare.against(whole, recording.autopilot).items():
            row[f"autopilot {name}"] = rms(error[time >= half])
    row["seconds"] = end - begin
    return row


PARTS: dict[str, Any] = {
    "navego": navego,
    "car": car,
    "replay": lambda: replay.rows(),
    "simulated flight": position_log,
    "flights": flights,
    "vibration": lambda: vibration_rows(flight),
}
"""Each gives the names of its rows with the functions that measure them."""
