"""How the filter of EuRoC ``strict`` is fitted to the training flights, and what is chosen on flights left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from fwnkf import FWNKF, Filter, Gaussian, Lines, build
from fwnkf.data.protocols import Records
from fwnkf.data.recording import Recording
from fwnkf.filters.parts.lines import LineStates
from fwnkf.preprocess import RotorDrag, RotorDragConfig
from fwnkf.shapes import Float
from fwnkf.systems import DragStrapdown, DragStrapdownConfig
from fwnkf.systems.inertial_calibrated import CALIBRATION
from tasks.euroc import calibration as imu_calibration
from tasks.euroc import drag as rotor_drag
from tasks.euroc import error_growth, scores, strapdown
from tasks.euroc.drag import Drag, DragNoise, Flight
from tasks.euroc.protocol import STRICT, by_source

TILT_FACTORS = (1.0, 1.5, 2.0)
"""On the fitted standard deviation of the tilt of a world frame; training has only two such frames."""
NOISE_FACTORS = (0.25, 1.0, 4.0)
"""On the variance of the velocity from drag, for the EKF without noise states."""
STANDING = 0.03
"""m/s, white noise of the zero velocity on the ground."""
POLE_RADIUS = 0.9999
CONSISTENT = {"nees": (0.9, 1.1), "coverage": (0.93, 0.97)}
NEVER = 1e9
"""m/s², a vibration that no vehicle reaches: it never counts as flying."""


@dataclass(frozen=True, eq=False)
class Fit:
    """All fitted numbers of the filter: calibration, drag, standard deviations of all noise.

    ``tilt_factor`` multiplies the standard deviation of the tilt.
    """

    calibration: Float[Tensor, " c"]
    drag: Drag
    sizes: Mapping[str, float]
    noise: DragNoise
    tilt_factor: float = 1.0

    def plain(self) -> dict[str, Any]:
        """As plain values, for ``results.json``."""
        return {
            "calibration": self.calibration.tolist(),
            "drag": {name: part.tolist() for name, part in self.drag._asdict().items()},
            "sizes": dict(self.sizes),
            "noise": {name: part.tolist() for name, part in self.noise._asdict().items()},
            "tilt_factor": self.tilt_factor,
        }

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Fit:
        """The inverse of :meth:`plain`."""

        def tensor(value: Any) -> Tensor:
            return torch.tensor(value, dtype=torch.float64)

        return cls(
            tensor(content["calibration"]),
            Drag(**{name: tensor(value) for name, value in content["drag"].items()}),
            dict(content["sizes"]),
            DragNoise(**{name: tensor(value) for name, value in content["noise"].items()}),
            content["tilt_factor"],
        )


# ---- filters --------------------------------------------------------------------------------------------------------


def noise_state_filter(fit: Fit, **options: Any) -> Filter:
    """The FW-NKF: correlated noise of the velocity from drag as noise states; no encoder and no network."""
    system = make_system(fit, fit.noise.white.square(), **options)
    model = FWNKF(system, noise=Lines(pole_radius=POLE_RADIUS))
    others = (0, system.observation_layout.size - len(fit.noise.white))  # their noise is white
    radius = torch.exp(-system.dt / nn.functional.pad(fit.noise.seconds, others, value=1.0)).unsqueeze(-1)
    amplitude = nn.functional.pad(fit.noise.correlated / fit.noise.white, others).unsqueeze(-1)
    states = model.noise_states
    assert isinstance(states, LineStates)
    states.set_oscillators(torch.zeros_like(radius), radius, amplitude)
    model.preprocess = RotorDrag(RotorDragConfig(), system)
    return model


def plain_ekf(fit: Fit, factor: float) -> Filter:
    """The same system as an EKF without noise states: white noise of the total variance, times a factor."""
    variance = factor * (fit.noise.white.square() + fit.noise.correlated.square())
    system = make_system(fit, variance)
    model = build("ekf", system=system)
    model.preprocess = RotorDrag(RotorDragConfig(), system)
    return model


def without_drag(fit: Fit) -> Filter:
    """The same system as an EKF that never measures velocity in flight, only zero velocity on the ground."""
    system = make_system(fit, fit.noise.white.square(), flying=NEVER)
    model = build("ekf", system=system)
    model.preprocess = RotorDrag(RotorDragConfig(), system)
    return model


def make_system(fit: Fit, variance: Float[Tensor, " 2"], **options: Any) -> DragStrapdown:
    """The system with all fitted numbers in it."""
    driving: dict[str, Any] = {name: fit.sizes[name] for name in error_growth.DRIVING}
    config = DragStrapdownConfig(variances=(*variance.tolist(), *[STANDING**2] * 3), **driving, **options)
    system = rotor_drag.set_drag(DragStrapdown(config).double(), fit.drag)
    gyro = [fit.sizes[f"gyro_{axis}"] for axis in "xyz"]
    with torch.no_grad():
        system.calibration[0] = fit.calibration
        system.bias_std.copy_(torch.tensor([*gyro, *[fit.sizes["accelerometer"]] * 3], dtype=torch.float64))
        system.tilt_std.fill_(fit.tilt_factor * fit.sizes["tilt"])
        system.offset_std.copy_(fit.noise.offset)
    return system


# ---- fits -----------------------------------------------------------------------------------------------------------


def sensor_calibration(train: Records) -> Float[Tensor, " c"]:
    """Biases and delay of the sensor, from windows of a second that start at the truth.

    The gyroscope's bias comes from attitude alone: errors of velocity would bias it by the tilt of the world frames.
    """
    start = train.y.new_zeros(CALIBRATION)
    start[:6] = strapdown.constant_bias(train).mean(0)
    exact = replace(train, start=Gaussian(train.truth[:, 0], train.start.cov))
    return imu_calibration.fit(exact, ("accelerometer_bias", "delay"), start, most=240)


@dataclass(frozen=True, eq=False)
class Training:
    """What all seeds share. ``left_out`` holds for each training flight the calibration and drag of the others."""

    flights: dict[str, Flight]
    calibration: Float[Tensor, " c"]
    sizes: dict[str, float]
    noise: DragNoise
    left_out: dict[str, tuple[Float[Tensor, " c"], Drag]]

    def fit(self, seed: int, tilt_factor: float) -> Fit:
        """The fit of one seed, which draws stretches of the flights for the regression of drag."""
        drag = rotor_drag.fit(list(self.flights.values()), torch.Generator().manual_seed(seed))
        return Fit(self.calibration, drag, self.sizes, self.noise, tilt_factor)


def training(sequences: Mapping[str, Recording], short: Records, long: Records) -> Training:
    """Calibrate on the training flights, and measure the noise on flights left out.

    ``short`` and ``long`` are training windows of one and of several seconds.
    """
    flights = rotor_drag.flights(sequences, STRICT["train"])
    rows = by_source(short)
    left_out = {}
    for name in flights:
        others = [other for other in flights if other != name]
        some = short.take([row for other in others for row in rows[other]])
        left_out[name] = sensor_calibration(some), rotor_drag.fit([flights[other] for other in others])
    calibration = sensor_calibration(short)
    half = long.take(torch.arange(0, len(long), 2))
    error = error_growth.errors(half, {name: numbers for name, (numbers, _) in left_out.items()})
    sizes = error_growth.fit(error, error_growth.sources(half, calibration))
    residuals = [rotor_drag.residuals(drag, flights[name]) for name, (_, drag) in left_out.items()]
    config = DragStrapdownConfig()
    noise = rotor_drag.fit_noise(residuals, config.block * config.dt)
    return Training(flights, calibration, sizes, noise, left_out)


# ---- choices --------------------------------------------------------------------------------------------------------


def on_left_out(base: Training, records: Records, make: Callable[[Fit], Filter]) -> Gaussian:
    """Beliefs on every training flight, by a filter with the calibration and drag of the other flights."""
    mean = torch.zeros_like(records.truth)
    cov = mean.new_zeros(*mean.shape[:2], 9, 9)
    for name, rows in by_source(records).items():
        calibration, drag = base.left_out[name]
        model = make(Fit(calibration, drag, base.sizes, base.noise))
        (belief,) = scores.run(model, records.take(rows))
        mean[rows], cov[rows] = belief
    return Gaussian(mean, cov)


def left_out_scores(base: Training, records: Records, make: Callable[[Fit], Filter]) -> dict[str, float]:
    belief = on_left_out(base, records, make)
    return {
        "likelihood": scores.likelihood(records, belief),
        **scores.errors(records, belief.mean),
        **scores.consistency_of((records, belief)),
    }


def left_out_error(rows: Sequence[Mapping[str, float]], name: str, value: float) -> float:
    """The position error on flights left out of the row that was chosen."""
    return next(row["rmse_p"] for row in rows if row[name] == value)


def choose_tilt(base: Training, records: Records, say: Callable[[str], None]) -> tuple[float, list[dict[str, float]]]:
    """The factor on the tilt with the least position error among those that are consistent on flights left out.

    If none is consistent, the one with the largest likelihood.
    """
    tried = []
    for factor in TILT_FACTORS:

        def make(fit: Fit, factor: float = factor) -> Filter:
            return noise_state_filter(replace(fit, tilt_factor=factor))

        tried.append({"tilt_factor": factor, **left_out_scores(base, records, make)})
        say(f"euroc-strict, flights left out: {tried[-1]}")
    fine = [row for row in tried if all(low <= row[name] <= high for name, (low, high) in CONSISTENT.items())]
    best = min(fine, key=lambda row: row["rmse_p"]) if fine else max(tried, key=lambda row: row["likelihood"])
    return best["tilt_factor"], tried


def choose_noise(
    base: Training, records: Records, tilt_factor: float, say: Callable[[str], None]
) -> tuple[float, list[dict[str, float]]]:
    """The factor on the noise of the EKF without noise states with the least position error on flights left out."""
    tried = []
    for factor in NOISE_FACTORS:

        def make(fit: Fit, factor: float = factor) -> Filter:
            return plain_ekf(replace(fit, tilt_factor=tilt_factor), factor)

        tried.append({"noise_factor": factor, **left_out_scores(base, records, make)})
        say(f"euroc-strict, EKF without noise states, flights left out: {tried[-1]}")
    return min(tried, key=lambda row: row["rmse_p"])["noise_factor"], tried
