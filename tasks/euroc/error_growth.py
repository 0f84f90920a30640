"""How wrong inertial navigation gets on a new flight: its noise by the likelihood of errors on flights left out.

From a true start, with the sensor's calibration on the other flights, the error of position, velocity and attitude is
Gaussian to first order, and its covariance a sum over sources: ``P(t) = Σ σ² P_i(t)``. Each ``P_i`` comes from one run
of the filter with that source alone, so that the sizes ``σ`` of all can be fitted together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fwnkf.core.gaussian import log_prob
from fwnkf.data.protocols import Records
from fwnkf.filters.base import build
from fwnkf.metrics.accuracy import residual
from fwnkf.shapes import Float
from fwnkf.systems.inertial_drag import DragStrapdown, DragStrapdownConfig
from fwnkf.types import Gaussian
from tasks.euroc import calibration as euroc_calibration

CONSTANT = {
    "gyro_x": (9,), "gyro_y": (10,), "gyro_z": (11,), "accelerometer": (12, 13, 14), "tilt": (15, 16),
}  # fmt: skip
"""What stays as it is during a window: its places in the state."""
MOVING = ("gyro_density", "accelerometer_density", "gyro_walk", "accelerometer_walk")
"""What moves: options of the system."""
FIRST = {
    "gyro_x": 1e-3, "gyro_y": 1e-3, "gyro_z": 1e-3, "accelerometer": 0.02, "tilt": 0.05, "gyro_density": 1e-3,
    "accelerometer_density": 0.01, "gyro_walk": 1e-4, "accelerometer_walk": 3e-3,
}  # fmt: skip
"""Where the fit starts."""
MOMENTS = (0.5, 1.0, 1.75, 2.5, 3.5, 5.0)
"""Seconds at which the errors are compared; before, they are mostly noise of the truth."""


def _samples(task: Records) -> list[int]:
    last = task.y.shape[1] - 1
    return sorted({min(round(moment / float(task.dt[0, 1:].mean())), last) for moment in MOMENTS})


def sources(task: Records, calibration: Float[Tensor, " c"]) -> dict[str, Float[Tensor, "N M 9 9"]]:
    """Covariances at the moments that each source of size one makes, from an exact start."""
    quiet: dict[str, Any] = dict.fromkeys(MOVING, 0.0)
    at = _samples(task)

    def blind(options: Mapping[str, float], spread: Float[Tensor, "R 19 19"], records: Records) -> Tensor:
        system = DragStrapdown(DragStrapdownConfig(**{**quiet, **options})).to(task.y)
        with torch.no_grad():
            system.calibration.copy_(calibration)
            sight = system.sight(records.y)
            start = system.start(Gaussian(records.truth[:, 0], task.start.cov))
            unseen = torch.zeros_like(sight.mask)
            track = build("ekf", system=system).run(
                sight.y, sight.u, unseen, records.dt, Gaussian(start.mean, spread.expand(len(records), -1, -1))
            )
        return track.cov[:, at][..., :9, :9]

    none = torch.zeros(19, 19).to(task.y)
    found = {name: blind({name: 1.0}, none[None], task) for name in MOVING}
    places = list(CONSTANT.values())
    starts = torch.stack([none.index_put((torch.tensor(p), torch.tensor(p)), none.new_ones(())) for p in places])
    rows = torch.arange(len(task)).repeat(len(places))
    covs = blind({}, starts.repeat_interleave(len(task), 0), task.take(rows)).unflatten(0, (len(places), -1))
    return found | dict(zip(CONSTANT, covs, strict=True))


def errors(task: Records, calibrations: Mapping[str, Float[Tensor, " c"]]) -> Float[Tensor, "N M 9"]:
    """Errors at the moments from a true start, each flight under a calibration of its own."""
    at = _samples(task)
    begun = replace(task, start=Gaussian(task.truth[:, 0], task.start.cov))
    found = task.truth.new_zeros(len(task), len(at), task.layout.tangent_size)
    for name, rows in euroc_calibration.sources(task).items():
        one = begun.take(rows)
        path = euroc_calibration.integrate(one, calibrations[name][None])[0]
        found[rows] = residual(task.layout, path, one.truth)[:, at]
    return found


def fit(
    error: Float[Tensor, "N M 9"], parts: Mapping[str, Float[Tensor, "N M 9 9"]], rounds: int = 300
) -> dict[str, float]:
    """The sizes of all sources that make the errors most likely, at all moments alike."""
    raw = torch.tensor([FIRST[name] for name in parts], dtype=error.dtype).log().requires_grad_()
    stacked = torch.stack(list(parts.values()))
    optimizer = torch.optim.Adam([raw], lr=0.05)
    for _ in range(rounds):
        cov = torch.einsum("i,inmjk->nmjk", (2 * raw).exp(), stacked)
        # in millimetres and milliradians nothing is lost to rounding
        loss = -log_prob(1e3 * error, 1e6 * cov)[0].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return dict(zip(parts, raw.detach().exp().tolist(), strict=True))
