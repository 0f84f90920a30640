"""The FW-NKF for inertial navigation: how it is put together, started, run and scored on a task."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from tasks.euroc.drag import Colour
from torch import Tensor, nn

from fwnkf.data.protocols import Records
from fwnkf.filters.base import Filter, build
from fwnkf.filters.shaping import NoiseStates
from fwnkf.metrics import consistency
from fwnkf.metrics.accuracy import residual
from fwnkf.shapes import Float
from fwnkf.systems.inertial_calibrated import CalibratedStrapdown, Sighting
from fwnkf.types import Gaussian

POLE_RADIUS = 0.9999


def assemble(system: CalibratedStrapdown, colour: Colour | None) -> Filter:
    """``fwnkf`` on a calibrated system, with the drift of what is read as noise states of its first channels.

    No encoder and a residual of one unit that stays at zero: what is learned sits in the system and the noise states.
    """
    shaping = "none" if colour is None else "noise"
    model = build(
        "fwnkf", system=system, shaping=shaping, hidden=0, residual_width=1, shared_shaper=False,
        pole_radius=POLE_RADIUS,
    )  # fmt: skip
    states = model.noise_states
    if isinstance(states, NoiseStates) and colour is not None:
        others = (0, system.observation_layout.size - len(colour.white))  # their noise is white
        radius = torch.exp(-system.dt / nn.functional.pad(colour.seconds, others, value=1.0)).unsqueeze(-1)
        amplitude = nn.functional.pad(colour.drift / colour.white, others).unsqueeze(-1)
        states.set_oscillators(torch.zeros_like(radius), radius, amplitude)
    return model


class Track(NamedTuple):
    """Beliefs about position, velocity and orientation at every sample; signs of quaternions follow the truth's."""

    mean: Float[Tensor, "N T 10"]
    cov: Float[Tensor, "N T 9 9"]


@torch.no_grad()
def run(
    model: Filter,
    task: Records,
    site: Float[Tensor, "N s"] | None = None,
    *,
    batch: int = 256,
    sight: Sighting | None = None,
) -> Track:
    """Filter the records of a task; ``sight`` stands in for what the system makes of them."""
    system = model.system
    assert isinstance(system, CalibratedStrapdown)
    like = model._like()
    means, covs = [], []
    for rows in torch.arange(len(task)).split(batch):
        piece = task.take(rows)
        if sight is None:
            seen = system.sight(piece.y.to(like), None if site is None else site[rows].to(like))
        else:
            seen = Sighting(*(part[rows] for part in sight))
        start = Gaussian(*(part.to(like) for part in piece.start))
        track = model.run(seen.y, seen.u, seen.mask, piece.dt.to(like), system.start(start)).raise_for_status()
        means.append(track.mean[..., :10])
        covs.append(track.cov[..., :9, :9])
    mean, cov = torch.cat(means).to(task.truth), torch.cat(covs).to(task.truth)
    sign = torch.where((mean[..., 6:] * task.truth[..., 6:]).sum(-1, keepdim=True) < 0, -1.0, 1.0)
    return Track(torch.cat((mean[..., :6], mean[..., 6:] * sign), -1), cov)


def lengths(task: Records, mean: Float[Tensor, "N T 10"]) -> dict[str, float]:
    """Root mean squared lengths of the errors of position, velocity and attitude: over all steps, and at the end."""
    error = residual(task.layout, mean, task.truth).unflatten(-1, (3, 3)).square().sum(-1)
    found = {}
    for i, name in enumerate(("p", "v", "q")):
        found[f"rmse_{name}"] = math.sqrt(float(error[..., i].mean()))
        found[f"end_{name}"] = math.sqrt(float(error[:, -1, i].mean()))
    return found


def honesty(task: Records, track: Track) -> dict[str, float]:
    """NEES for each number and the share of errors within their 95 % interval, over all steps but the first."""
    error = residual(task.layout, track.mean, task.truth)[:, 1:]
    cov = track.cov[:, 1:]
    return {
        "nees": float(consistency.nees(error, cov).mean()),
        "coverage": float(consistency.coverage(error, cov).overall),
    }


def likelihood(task: Records, track: Track, every: int = 20) -> float:
    """Mean log-likelihood of the true states for each number: accuracy and honesty in one figure."""
    error = residual(task.layout, track.mean, task.truth)[:, every::every]
    cov = track.cov[:, every::every]
    square = consistency.mahalanobis_squared(error, cov)
    return -0.5 * float((square + torch.logdet(2 * math.pi * cov)).mean()) / error.shape[-1]
