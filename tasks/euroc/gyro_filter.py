"""The attitude filter of ``euroc-gyro``: gravity and rest as measurements, the network's correction where it pays."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fwnkf import Filter, build
from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.preprocess.corrected_imu import CorrectedIMU, CorrectedIMUConfig
from fwnkf.shapes import Float
from fwnkf.systems import GravityAttitude, GravityAttitudeConfig
from tasks.euroc.gyro_training import RATE, Constants, Flight, Practice, fit_constants, train_network

BLOCK = 8
"""Samples of a step: 25 Hz."""
DEGREE = math.radians(1.0)
NOISE: dict[str, Any] = {
    "deviation": 1.5,
    "angle_density": 0.02 * DEGREE,
    "bias_density": 1e-3 * DEGREE,
    "bias_std": (0.03 * DEGREE, 0.1 * DEGREE, 0.1 * DEGREE),
    "vertical_std": 0.3 * DEGREE,
    "rest_rate_std": 0.45 * DEGREE,
}
"""Of the system, from the training flights: spread of the biases over flights and within them, tilt of the frame of
motion capture, and the two deviations with the least error on the training flights (a grid of factors of 1.3 to 2)."""
START = 1e-4
"""rad; the given first orientation is exact but for rounding."""
SIZES = CorrectedIMUConfig(
    sample_rate=RATE, block=BLOCK, channels=16, dilations=(1, 4), dropout=0.2, rest_rate=0.04, rest_force=0.6
)
"""A memory of 1.2 s. Larger networks were worse on flights left out."""
PRACTICE = Practice(steps=160, noise=0.3, decay=1.0, window=250)
PART = 2400
"""Samples of the parts that flights are cut into for the ladder: 12 s."""
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, math.inf: 1.960}
"""The 97.5 % quantile of Student's distribution, by degrees of freedom."""
KIND = "bias"
"""The constants of the filter; the matrix is not worth it on the training flights."""
NONE, NETWORK = "constants", "network"
"""Steps of the ladder: without and with the network."""


class Track(NamedTuple):
    """What a filter says of one flight: orientation and the covariance of its angles after each step."""

    orientation: Float[Tensor, "K 4"]
    cov: Float[Tensor, "K 3 3"]


def new_filter(unit: CorrectedIMU | None, constants: Constants, *, rest: bool = True) -> Filter:
    """The filter with a trained preprocessing, or with constants alone; ``rest`` False leaves the rate at rest out."""
    noise = NOISE if rest else NOISE | {"rest_rate_std": 0.0}
    model = build("ekf", system=GravityAttitude(GravityAttitudeConfig(dt=BLOCK / RATE, **noise)).double())
    sizes = replace(SIZES, channels=0) if unit is None else unit.config
    model.preprocess = CorrectedIMU(sizes, model.system, bias=constants.bias, matrix=constants.matrix).double()
    if unit is not None:
        model.preprocess.load_state_dict(unit.state_dict())
    return model.eval()


@torch.no_grad()
def run(model: Filter, group: Sequence[Flight]) -> list[Track]:
    """A filter over the raw samples after the first, from the true orientation at the first; flights side by side."""
    system = model.system
    assert isinstance(system, GravityAttitude)
    length = max((len(flight) - 1) // BLOCK * BLOCK for flight in group)
    imu = torch.zeros(len(group), length, 6, dtype=torch.float64)
    present = torch.zeros_like(imu, dtype=torch.bool)
    for i, flight in enumerate(group):
        steps = (len(flight) - 1) // BLOCK * BLOCK
        imu[i, :steps], present[i, :steps] = flight.imu[1 : 1 + steps], True
    prior = system.belief_at(torch.stack([flight.orientation[0] for flight in group]), START)
    bare = copy.deepcopy(model)  # the same as model.run on the samples, but that the network runs on whole flights
    bare.preprocess = None
    assert isinstance(model.preprocess, CorrectedIMU)
    y, weight, u, _ = model.preprocess.whole(imu, present.to(imu))
    track = bare.run(y, u, weight > 0, prior=prior, prior_at="before_first_step").raise_for_status()
    counts = [(len(flight) - 1) // BLOCK for flight in group]
    return [Track(track.mean[i, :n, :4], track.cov[i, :n, :3, :3]) for i, n in enumerate(counts)]


def truth_of(flight: Flight, steps: int, every: int = BLOCK) -> Float[Tensor, "K 4"]:
    """The true orientation after each step."""
    return flight.orientation[every::every][:steps]


def orientation_error(estimate: Float[Tensor, "K 4"], flight: Flight) -> float:
    """Absolute orientation error: root mean square over the flight of the angle between estimate and truth, degrees."""
    every = (len(flight) - 1) // len(estimate)
    angle = rotation.distance(estimate, truth_of(flight, len(estimate), every))
    return math.degrees(float(angle.square().mean().sqrt()))


def body_error(track: Track, flight: Flight) -> Float[Tensor, "K 3"]:
    """The error as a rotation vector in the body frame, as the filter states its covariance."""
    truth = truth_of(flight, len(track.orientation))
    return rotation.log(rotation.multiply(rotation.conjugate(track.orientation), truth))


def world_error(track: Track, flight: Flight) -> Float[Tensor, "K 3"]:
    """The same in the world frame: the last component is the heading's."""
    return matvec(rotation.to_matrix(track.orientation), body_error(track, flight))


# ---- learning -------------------------------------------------------------------------------------------------------


def parts(flights: Sequence[Flight], group: int) -> list[Flight]:
    """Every second part of each flight, beginning with number ``group`` (0 or 1); the last takes what is left over."""
    cut = []
    for flight in flights:
        count = len(flight) // PART
        for number in range(group, count, 2):
            stop = len(flight) if number == count - 1 else (number + 1) * PART + 1
            at = slice(number * PART, stop)
            cut.append(Flight(flight.name, flight.imu[at], flight.orientation[at], flight.velocity[at]))
    return cut


class CrossFitted:
    """Corrections of each part of a flight by the network that was trained on the parts before and after it."""

    def __init__(self, even: CorrectedIMU, odd: CorrectedIMU) -> None:
        self.even, self.odd = even, odd

    def corrections(self, flight: Flight) -> Float[Tensor, "K 3"]:
        samples = flight.imu[None, 1:]
        even, odd = self.even.corrections(samples)[0], self.odd.corrections(samples)[0]
        number = (torch.arange(len(even)) * BLOCK // PART).clamp_max(len(flight) // PART - 1)
        return torch.where((number % 2 == 0).unsqueeze(-1), odd, even)


@torch.no_grad()
def held_out(train: Sequence[Flight], constants: Constants, network: CrossFitted | None) -> list[Track]:
    """The filter over each training flight with constants, and corrections, that were not fitted to it.

    ``constants`` are those of all flights, of the filter and of the network's input. The samples are changed so that
    calibrating them by these gives what the constants of the other flights give, with the correction added.
    """
    back, shown = torch.linalg.inv(constants.matrix), []
    for flight in train:
        others = fit_constants([one for one in train if one is not flight], KIND)
        wanted = others(flight.imu)
        if network is not None:
            added = network.corrections(flight).repeat_interleave(BLOCK, 0)
            wanted[1 : 1 + len(added), :3] += added
        imu = matvec(back, wanted) + constants.bias
        shown.append(Flight(flight.name, imu, flight.orientation, flight.velocity))
    return run(new_filter(None, constants), shown)


def ladder(train: Sequence[Flight], constants: Constants, seed: int) -> dict[str, list[Track]]:
    """What the filter does on held-out parts of the training flights, without and with the network."""
    even, odd = (train_network(parts(train, group), constants, SIZES, seed, PRACTICE) for group in (0, 1))
    return {
        NONE: held_out(train, constants, None),
        NETWORK: held_out(train, constants, CrossFitted(even, odd)),
    }


def mean_error(tracks: Sequence[Track], flights: Sequence[Flight]) -> float:
    """Mean over flights of the absolute orientation error."""
    each = [orientation_error(track.orientation, flight) for track, flight in zip(tracks, flights, strict=True)]
    return math.fsum(each) / len(each)


def covariance_scale(tracks: Sequence[Track], flights: Sequence[Flight]) -> Float[Tensor, " 3"]:
    """Factors on the variances of the angles: the mean ratio of squared errors to them, for the number of flights.

    The errors of a flight are nearly one draw, that of its bias, so the variance is known as from as many draws as
    there are flights: the 95 % interval is that of Student's distribution, which the factor makes a normal one.
    """
    ratios = []
    for track, flight in zip(tracks, flights, strict=True):
        ratios.append((body_error(track, flight).square() / track.cov.diagonal(dim1=-2, dim2=-1)).mean(0))
    return torch.stack(ratios).mean(0) * (STUDENT[len(flights)] / STUDENT[math.inf]) ** 2


def fitted(train: Sequence[Flight], constants: Constants, seed: int) -> tuple[Filter, dict[str, float]]:
    """The filter of one seed, and the held-out error of each step of the ladder."""
    tracks = ladder(train, constants, seed)
    tried = {name: mean_error(each, train) for name, each in tracks.items()}
    best = min(tried, key=lambda name: tried[name])
    unit = train_network(train, constants, SIZES, seed, PRACTICE) if best == NETWORK else None
    model = new_filter(unit, constants)
    scale = torch.ones(model.layout.tangent_size, dtype=torch.float64)
    scale[:3] = covariance_scale(tracks[best], train)
    model.calibrate_covariance(scale)
    return model, tried
