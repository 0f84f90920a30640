"""The noise of inertial navigation on a new flight, by maximum likelihood of its errors on flights left out.

From a true initial state, with the calibration from the other flights, the error of position, velocity and attitude is
Gaussian to first order, and its covariance a sum over sources: ``P(t) = Σ σ² P_i(t)``. Each ``P_i`` comes from one run
of the filter with that source alone, so that all standard deviations ``σ`` can be fitted together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fwnkf import Gaussian, build
from fwnkf.core.gaussian import log_prob
from fwnkf.data.protocols import Records
from fwnkf.metrics.accuracy import residual
from fwnkf.preprocess import StrapdownIMU, StrapdownIMUConfig
from fwnkf.shapes import Float
from fwnkf.systems import DragStrapdown, DragStrapdownConfig
from tasks.euroc import calibration as imu_calibration
from tasks.euroc.protocol import by_source

CONSTANT = {
    "gyro_x": (9,), "gyro_y": (10,), "gyro_z": (11,), "accelerometer": (12, 13, 14), "tilt": (15, 16),
}  # fmt: skip
"""Sources that are constant during a window: their coordinates in the state."""
DRIVING = ("gyro_density", "accelerometer_density", "gyro_walk", "accelerometer_walk")
"""Sources that act at every step: options of the system."""
INITIAL = {
    "gyro_x": 1e-3, "gyro_y": 1e-3, "gyro_z": 1e-3, "accelerometer": 0.02, "tilt": 0.05, "gyro_density": 1e-3,
    "accelerometer_density": 0.01, "gyro_walk": 1e-4, "accelerometer_walk": 3e-3,
}  # fmt: skip
"""Where the fit starts."""
TIMES = (0.5, 1.0, 1.75, 2.5, 3.5, 5.0)
"""Seconds at which the errors are compared; earlier ones are dominated by noise of the truth."""


def _samples(records: Records) -> list[int]:
    last = records.y.shape[1] - 1
    return sorted({min(round(time / float(records.dt[0, 1:].mean())), last) for time in TIMES})


def sources(records: Records, calibration: Float[Tensor, " c"]) -> dict[str, Float[Tensor, "N M 9 9"]]:
    """Covariances at those times of each source with standard deviation one, from an exact initial state."""
    silent: dict[str, Any] = dict.fromkeys(DRIVING, 0.0)
    at = _samples(records)

    def predicted(options: Mapping[str, float], initial: Float[Tensor, "R 19 19"], windows: Records) -> Tensor:
        system = DragStrapdown(DragStrapdownConfig(**{**silent, **options})).to(records.y)
        model = build("ekf", system=system)
        model.preprocess = StrapdownIMU(StrapdownIMUConfig(), system)  # prediction alone: no velocity is measured
        with torch.no_grad():
            system.calibration.copy_(calibration)
            mean = torch.nn.functional.pad(windows.truth[:, 0], (0, system.layout.size - 10))
            prior = Gaussian(mean, initial.expand(len(windows), -1, -1))
            return model.run(windows.y, dt=windows.dt, prior=prior).cov[:, at][..., :9, :9]

    zero = torch.zeros(19, 19).to(records.y)
    covs = {name: predicted({name: 1.0}, zero[None], records) for name in DRIVING}
    places = list(CONSTANT.values())
    starts = torch.stack([zero.index_put((torch.tensor(p), torch.tensor(p)), zero.new_ones(())) for p in places])
    rows = torch.arange(len(records)).repeat(len(places))
    stacked = predicted({}, starts.repeat_interleave(len(records), 0), records.take(rows))
    return covs | dict(zip(CONSTANT, stacked.unflatten(0, (len(places), -1)), strict=True))


def errors(records: Records, calibrations: Mapping[str, Float[Tensor, " c"]]) -> Float[Tensor, "N M 9"]:
    """Errors at those times from a true initial state, each flight under a calibration of its own."""
    at = _samples(records)
    exact = replace(records, start=Gaussian(records.truth[:, 0], records.start.cov))
    error = records.truth.new_zeros(len(records), len(at), records.layout.tangent_size)
    for name, rows in by_source(records).items():
        part = exact.take(rows)
        path = imu_calibration.integrate(part, calibrations[name][None])[0]
        error[rows] = residual(records.layout, path, part.truth)[:, at]
    return error


def fit(
    error: Float[Tensor, "N M 9"], parts: Mapping[str, Float[Tensor, "N M 9 9"]], rounds: int = 300
) -> dict[str, float]:
    """The standard deviations of all sources that maximise the likelihood of the errors at all times."""
    raw = torch.tensor([INITIAL[name] for name in parts], dtype=error.dtype).log().requires_grad_()
    stacked = torch.stack(list(parts.values()))
    optimizer = torch.optim.Adam([raw], lr=0.05)
    for _ in range(rounds):
        cov = torch.einsum("i,inmjk->nmjk", (2 * raw).exp(), stacked)
        # millimetres and milliradians: in metres the smallest covariances would be lost to rounding
        loss = -log_prob(1e3 * error, 1e6 * cov)[0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return dict(zip(parts, raw.detach().exp().tolist(), strict=True))
