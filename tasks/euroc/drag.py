"""Velocity from the drag of the rotors: its coefficients from flights with known truth, and how wrong it is on others.

In the axes of the rotors ``f = -K v + C α + d``: drag, the sensor's lever arm, and an offset that differs from flight
to flight. ``K`` and ``C`` are fitted with an offset for each flight, by least squares of the force, not of velocity:
the noise sits in the force. What is read wrong on flights left out is white noise, a drift that lasts for a second or
so, and the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.data import catalogue
from fwnkf.shapes import Bool, Float
from fwnkf.systems.inertial_drag import DragStrapdown, DragStrapdownConfig, axes_of

STRETCH = 200
"""Blocks that are drawn together, 10 s: what is near in time is not independent."""


class Flight(NamedTuple):
    """One sequence: the sensor, the true velocity in its frame, and where that is known."""

    imu: Float[Tensor, "T 6"]
    velocity: Float[Tensor, "T 3"]
    known: Bool[Tensor, " T"]


class Drag(NamedTuple):
    """The rotation into the axes of the rotors, and what turns features into velocity across them."""

    axes: Float[Tensor, "3 3"]
    read: Float[Tensor, "2 6"]


class Colour(NamedTuple):
    """Noise of what is read for each axis: standard deviations of three parts, and seconds the drift takes to forget.

    The offset stays as it is throughout a flight; the system holds it in its state, not the noise states.
    """

    white: Float[Tensor, " m"]
    drift: Float[Tensor, " m"]
    seconds: Float[Tensor, " m"]
    offset: Float[Tensor, " m"]


def flights(names: Sequence[str], folder: str | None = None) -> dict[str, Flight]:
    """Sequences of EuRoC by name."""
    found = {}
    for one in catalogue.load("euroc", folder, sequences=tuple(names)):
        assert one.truth is not None
        assert one.truth_mask is not None
        truth = torch.where(one.truth_mask.unsqueeze(-1), one.truth, 0.0)
        turned = rotation.to_matrix(truth[:, 6:]).mT
        found[one.source] = Flight(one.observations, matvec(turned, truth[:, 3:6]), one.truth_mask)
    return found


def blocks(
    system: DragStrapdown, flight: Flight
) -> tuple[Float[Tensor, "K f"], Float[Tensor, "K 3"], Bool[Tensor, " K"]]:
    """Features, velocity in the axes of the rotors at the end of each block, and where it flies and that is known."""
    features = system.features(flight.imu[None])[0]
    size = system.config.block
    last = slice(size - 1, len(features) * size, size)
    flies = system.modes(flight.imu[None])[0][0]
    return features, matvec(system.axes, flight.velocity[last]), flight.known[last] & flies


def fit(data: Sequence[Flight], generator: torch.Generator | None = None) -> Drag:
    """Axes from the mean force in flight, drag and lever arm by least squares with an offset for each flight.

    A generator draws the stretches of each flight anew, with replacement: how much do the figures owe to chance?
    """
    system = DragStrapdown(DragStrapdownConfig()).double()
    means = []
    for flight in data:
        flies = system.modes(flight.imu[None])[0][0]
        means.append(system.blocks(flight.imu[None])[0][flies, 3:].mean(0))
    system.axes.copy_(axes_of(torch.stack(means).mean(0)))
    rows, forces, firsts = [], [], []
    for flight in data:
        features, velocity, good = blocks(system, flight)
        moving = torch.cat((velocity[:, 1:], features[:, 2:5]), -1)[good]
        force = features[good, :2]
        if generator is not None:
            pieces = torch.arange(len(force)).split(STRETCH)
            drawn = torch.randint(len(pieces), (len(pieces),), generator=generator).tolist()
            chosen = torch.cat([pieces[i] for i in drawn])
            moving, force = moving[chosen], force[chosen]
        rows.append(moving - moving.mean(0))
        forces.append(force - force.mean(0))
        firsts.append(torch.cat((moving, force), -1).mean(0))
    slopes = torch.linalg.lstsq(torch.cat(rows), torch.cat(forces)).solution.mT
    K, C = -slopes[:, :2], slopes[:, 2:]
    centre = torch.stack(firsts).mean(0)
    offset = centre[5:] - slopes @ centre[:5]
    # v = K⁻¹ (C α + d - f)
    read = torch.linalg.solve(K, torch.cat((-torch.eye(2).to(K), C, offset.unsqueeze(-1)), -1))
    return Drag(system.axes, read)


def equipped(system: DragStrapdown, drag: Drag) -> DragStrapdown:
    """The system with these coefficients, in place."""
    system.axes.copy_(drag.axes)
    system.drag.copy_(drag.read)
    return system


def residuals(drag: Drag, flight: Flight) -> tuple[Float[Tensor, "K 2"], Bool[Tensor, " K"]]:
    """Errors of the velocity that is read, block by block, and where it flies and the truth is known."""
    system = equipped(DragStrapdown(DragStrapdownConfig()).double(), drag)
    features, velocity, good = blocks(system, flight)
    return matvec(system.drag, features) - velocity[:, 1:], good


def colour(errors: Sequence[tuple[Tensor, Tensor]], seconds_per_block: float, lag: int = 20) -> Colour:
    """Offsets from the means of the flights; white and drifting parts from the variance and two correlations.

    ``ρ(k) = share · exp(-k dt / τ)`` at ``lag`` and twice that.
    """
    width = errors[0][0].shape[-1]
    power, near, far = (torch.zeros(width, dtype=torch.float64) for _ in range(3))
    offset = torch.zeros(width, dtype=torch.float64)
    for error, good in errors:
        mean = error[good].double().mean(0)
        offset += mean.square() / len(errors)
        left = torch.where(good.unsqueeze(-1), error.double() - mean, 0.0)
        for total, shift in ((power, 0), (near, lag), (far, 2 * lag)):
            pairs = (good[shift:] & good[: len(good) - shift]).sum()
            total += (left[shift:] * left[: len(left) - shift]).sum(0) / pairs / len(errors)
    forget = (far / near).clamp(0.05, 0.95)
    share = (near / power / forget).clamp(0.0, 0.98)
    seconds = -lag * seconds_per_block / forget.log()
    return Colour(((1 - share) * power).sqrt(), (share * power).sqrt(), seconds, offset.sqrt())
