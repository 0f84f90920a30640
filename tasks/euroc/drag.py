"""Velocity from rotor drag: its coefficients from flights with known truth, and its error on flights left out.

In the axes of the rotors ``f = -K v + C α + d``: drag, the sensor's lever arm, and an offset that differs from flight
to flight. ``K`` and ``C`` are fitted with an offset for each flight by least squares of the force, where the noise is,
not of the velocity. The error of the velocity on flights left out has three parts: white noise, noise correlated over a
second or so, and the offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.data.recording import Recording
from fwnkf.shapes import Bool, Float
from fwnkf.systems import DragStrapdown, DragStrapdownConfig
from fwnkf.systems.inertial_drag import axes_of

STRETCH = 200
"""Blocks that are drawn together, 10 s: neighbouring ones are not independent."""


class Flight(NamedTuple):
    """One sequence: the sensor, the true velocity in its frame, and where that is known."""

    imu: Float[Tensor, "T 6"]
    velocity: Float[Tensor, "T 3"]
    known: Bool[Tensor, " T"]


class Drag(NamedTuple):
    """The rotation into the axes of the rotors, and the matrix from features to velocity across them."""

    axes: Float[Tensor, "3 3"]
    matrix: Float[Tensor, "2 6"]


class DragNoise(NamedTuple):
    """Noise of the velocity on each axis: standard deviations of its three parts, and a correlation time in seconds.

    The offset is constant during a flight; the system has it in its state, not the noise states.
    """

    white: Float[Tensor, " m"]
    correlated: Float[Tensor, " m"]
    seconds: Float[Tensor, " m"]
    offset: Float[Tensor, " m"]


def flights(sequences: Mapping[str, Recording], names: Sequence[str]) -> dict[str, Flight]:
    """Sequences as flights, by name."""
    by_name = {}
    for name in names:
        recording = sequences[name]
        assert recording.truth is not None
        assert recording.truth_mask is not None
        truth = torch.where(recording.truth_mask.unsqueeze(-1), recording.truth, 0.0)
        to_body = rotation.to_matrix(truth[:, 6:]).mT
        by_name[name] = Flight(recording.observations, matvec(to_body, truth[:, 3:6]), recording.truth_mask)
    return by_name


def blocks(
    system: DragStrapdown, flight: Flight
) -> tuple[Float[Tensor, "K f"], Float[Tensor, "K 3"], Bool[Tensor, " K"]]:
    """Features, true velocity in rotor axes at the end of each block, and blocks in flight with known truth."""
    features = system.features(flight.imu[None])[0]
    size = system.config.block
    last = slice(size - 1, len(features) * size, size)
    flying = system.modes(flight.imu[None]).flying[0]
    return features, matvec(system.axes, flight.velocity[last]), flight.known[last] & flying


def fit(data: Sequence[Flight], generator: torch.Generator | None = None) -> Drag:
    """Axes from the mean force in flight; drag and lever arm by least squares with an offset for each flight.

    With a generator, stretches of each flight are drawn with replacement (bootstrap): the spread of the results over
    seeds shows how much they depend on the training data.
    """
    system = DragStrapdown(DragStrapdownConfig()).double()
    means = []
    for flight in data:
        flying = system.modes(flight.imu[None]).flying[0]
        means.append(system.blocks(flight.imu[None])[0][flying, 3:].mean(0))
    system.axes.copy_(axes_of(torch.stack(means).mean(0)))
    rows, forces, centres = [], [], []
    for flight in data:
        features, velocity, usable = blocks(system, flight)
        motion = torch.cat((velocity[:, 1:], features[:, 2:5]), -1)[usable]
        force = features[usable, :2]
        if generator is not None:
            pieces = torch.arange(len(force)).split(STRETCH)
            drawn = torch.randint(len(pieces), (len(pieces),), generator=generator).tolist()
            chosen = torch.cat([pieces[i] for i in drawn])
            motion, force = motion[chosen], force[chosen]
        rows.append(motion - motion.mean(0))
        forces.append(force - force.mean(0))
        centres.append(torch.cat((motion, force), -1).mean(0))
    slopes = torch.linalg.lstsq(torch.cat(rows), torch.cat(forces)).solution.mT
    K, C = -slopes[:, :2], slopes[:, 2:]
    centre = torch.stack(centres).mean(0)
    offset = centre[5:] - slopes @ centre[:5]
    # v = K⁻¹ (C α + d - f)
    matrix = torch.linalg.solve(K, torch.cat((-torch.eye(2).to(K), C, offset.unsqueeze(-1)), -1))
    return Drag(system.axes, matrix)


def set_drag(system: DragStrapdown, drag: Drag) -> DragStrapdown:
    """The system with these coefficients, in place."""
    system.axes.copy_(drag.axes)
    system.drag.copy_(drag.matrix)
    return system


def residuals(drag: Drag, flight: Flight) -> tuple[Float[Tensor, "K 2"], Bool[Tensor, " K"]]:
    """Errors of the velocity from drag, block by block, and which blocks are in flight with known truth."""
    system = set_drag(DragStrapdown(DragStrapdownConfig()).double(), drag)
    features, velocity, usable = blocks(system, flight)
    return matvec(system.drag, features) - velocity[:, 1:], usable


def fit_noise(errors: Sequence[tuple[Tensor, Tensor]], seconds_per_block: float, lag: int = 20) -> DragNoise:
    """Offsets from the means of the flights; white and correlated parts from the variance and two correlations.

    ``ρ(k) = share · exp(-k dt / τ)`` at ``lag`` and twice that.
    """
    width = errors[0][0].shape[-1]
    power, near, far = (torch.zeros(width, dtype=torch.float64) for _ in range(3))
    offset = torch.zeros(width, dtype=torch.float64)
    for error, usable in errors:
        mean = error[usable].double().mean(0)
        offset += mean.square() / len(errors)
        centred = torch.where(usable.unsqueeze(-1), error.double() - mean, 0.0)
        for total, shift in ((power, 0), (near, lag), (far, 2 * lag)):
            pairs = (usable[shift:] & usable[: len(usable) - shift]).sum()
            total += (centred[shift:] * centred[: len(centred) - shift]).sum(0) / pairs / len(errors)
    decay = (far / near).clamp(0.05, 0.95)
    share = (near / power / decay).clamp(0.0, 0.98)
    seconds = -lag * seconds_per_block / decay.log()
    return DragNoise(((1 - share) * power).sqrt(), (share * power).sqrt(), seconds, offset.sqrt())
