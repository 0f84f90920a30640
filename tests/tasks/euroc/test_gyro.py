"""Attitude from the gyroscope: a simulated flight whose errors are known, and the shipped filter against its card."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace

import pytest
import torch

import fwnkf
from fwnkf.core import rotation
from fwnkf.core.gaussian import matvec
from fwnkf.preprocess import CorrectedIMU
from tasks.euroc import gyro, gyro_filter, gyro_training
from tasks.euroc.gyro_training import RATE, Flight

from ...tolerances import assert_close

MATRIX = torch.eye(6).double() + 0.01 * torch.tensor([[0.5, -0.2, 0.1, 0.01, 0.02, -0.03]] * 3 + [[0.0] * 6] * 3)
BIAS = torch.tensor([0.01, -0.02, 0.03, 0.1, -0.05, 0.07]).double()


def turning(steps: int = 6001, *, matrix: torch.Tensor = MATRIX, shake: float = 0.0) -> Flight:
    """A turn about all axes at a velocity that changes.

    With ``shake`` the force vibrates for five of ten seconds, and the gyroscope then has an error of this size on x.
    """
    t = torch.arange(steps).double() / RATE
    rate = torch.stack(((1.3 * t).sin(), (0.7 * t).cos(), 0.5 * (0.4 * t).sin()), -1)
    orientation = rotation.cumulative(
        torch.cat((rotation.exp(torch.tensor([[0.2, -0.3, 1.0]]).double()), rotation.exp(rate[1:] / RATE)))
    )
    velocity = torch.stack(((0.9 * t).sin(), (1.1 * t).sin(), 0.3 * (0.5 * t).sin()), -1)
    acceleration = torch.cat((torch.zeros(1, 3).double(), velocity.diff(dim=0) * RATE))
    force = matvec(rotation.to_matrix(orientation).mT, acceleration + torch.tensor([0.0, 0.0, 9.81]).double())
    clean = torch.cat((rate, force), -1)
    imu = torch.linalg.solve(matrix, clean.unsqueeze(-1)).squeeze(-1) + BIAS
    if shake:
        loud = ((t % 10) < 5).double()
        imu[:, 0] += shake * loud
        imu[:, 3] += loud * (60 * t).sin()
    return Flight("turning", imu, orientation, velocity)


def test_constants_of_a_simulated_sensor_are_found(monkeypatch) -> None:
    monkeypatch.setattr(gyro_training, "WINDOW", 40)
    flight = turning()
    constants = gyro_training.fit_constants([flight])
    assert float((constants.matrix - MATRIX).abs().max()) < 1e-4
    assert float((constants.bias - BIAS).abs().max()) < 1e-3
    estimate = gyro._open_loop(constants, flight)
    assert gyro_filter.orientation_error(estimate, flight) < 0.05


def test_errors_of_blocks_add_up_to_those_of_longer_ones() -> None:
    flight = turning(801, matrix=torch.eye(6).double())
    short, _ = gyro_training.block_errors(flight, flight.imu, 1)
    long, _ = gyro_training.block_errors(flight, flight.imu, 8)
    # to first order in the error, which is 0.04 rad/s times 0.04 s
    assert float((short.unflatten(0, (-1, 8)).sum(1) - long).abs().max()) < 0.02 * float(long.abs().max())


def test_the_network_learns_an_error_that_comes_with_vibration() -> None:
    flight = turning(shake=0.02)
    constants = gyro_training.fit_constants([flight], "bias")
    sizes = replace(gyro_filter.SIZES, channels=8, dilations=(1, 4))
    practice = replace(gyro_filter.PRACTICE, steps=60, batch=4, window=200, lengths=(4, 32), scales=(0.1, 0.25))
    unit = gyro_training.train_network([flight], constants, sizes, 0, practice)
    left = gyro_training.corrected_rates(unit, flight)
    before = gyro_filter.orientation_error(gyro._open_loop(constants, flight), flight)
    with torch.no_grad():
        # the flight's own bias is not the network's to learn: compare what varies within the flight
        error, after = gyro_training.block_errors(flight, constants(flight.imu), gyro_filter.BLOCK)
        wanted = matvec(after.mT, error)[:, 0] * RATE / gyro_filter.BLOCK
        learned = unit.corrections(flight.imu[None, 1:])[0, :, 0]
        correlation = torch.corrcoef(torch.stack((wanted, learned)))[0, 1]
    assert left.shape == (750, 8, 3)
    assert before > 0
    assert float(correlation) > 0.8


def test_seeds_and_flight_biases_matter() -> None:
    flight = turning(2001, shake=0.02)
    constants = gyro_training.fit_constants([flight], "bias")
    sizes = replace(gyro_filter.SIZES, channels=4, dilations=(1,))
    practice = replace(gyro_filter.PRACTICE, steps=3, batch=2, window=100, lengths=(4,), scales=(0.1,))

    def weights(seed: int, **changed: bool) -> torch.Tensor:
        unit = gyro_training.train_network([flight], constants, sizes, seed, replace(practice, **changed))
        return unit.network.out.weight

    assert torch.equal(weights(0), weights(0))
    assert not torch.equal(weights(0), weights(1))
    assert not torch.equal(weights(0), weights(0, flight_bias=False))


def test_the_filter_is_exact_on_exact_samples_and_its_scale_is_that_of_its_errors(generator) -> None:
    still = torch.zeros(801, 6).double()
    still[:, 5] = 9.81
    level = torch.tensor([1.0, 0.0, 0.0, 0.0]).double().expand(801, 4)
    flight = Flight("still", still, level, still[:, :3])
    constants = gyro_training.Constants(torch.eye(6).double(), torch.zeros(6).double())
    (track,) = gyro_filter.run(gyro_filter.new_filter(None, constants), [flight])
    assert gyro_filter.orientation_error(track.orientation, flight) < 1e-6
    steps = 4000
    factors = torch.tensor([0.5, 1.0, 3.0]).double()
    cov = torch.diag_embed(torch.tensor([1e-4, 2e-4, 3e-4]).double()).expand(steps, 3, 3)
    drawn = factors * torch.randn(steps, 3, generator=generator, dtype=torch.float64) * cov[0].diagonal().sqrt()
    truth = torch.cat((level[:1], rotation.exp(drawn).repeat_interleave(gyro_filter.BLOCK, 0)))
    estimate = gyro_filter.Track(level[:1].expand(steps, 4), cov)
    wrong = Flight("wrong", torch.zeros(len(truth), 6).double(), truth, torch.zeros(len(truth), 3).double())
    scale = gyro_filter.covariance_scale([estimate] * 6, [wrong] * 6)
    # 2.447 of Student's distribution with six degrees of freedom for 1.960 of the normal one
    assert scale.sqrt().tolist() == pytest.approx((2.447 / 1.960 * factors).tolist(), rel=0.05)
    expected = math.degrees(float(drawn.square().sum(-1).mean().sqrt()))
    assert gyro_filter.orientation_error(estimate.orientation, wrong) == pytest.approx(expected, rel=1e-6)


def test_parts_of_flights_meet_and_their_corrections_come_from_the_other_parts(monkeypatch) -> None:
    monkeypatch.setattr(gyro_filter, "PART", 400)
    flight = turning(1001)
    even, odd = gyro_filter.parts([flight], 0), gyro_filter.parts([flight], 1)
    assert [len(even), len(odd)] == [1, 1]
    assert torch.equal(even[0].orientation[-1], odd[0].orientation[0])
    assert len(even[0]) + len(odd[0]) == len(flight) + 1
    constants = gyro_training.Constants(MATRIX, BIAS)

    class Constant(gyro_filter.CrossFitted):
        def corrections(self, flight):
            return torch.tensor([0.01, -0.02, 0.03]).double().expand((len(flight) - 1) // gyro_filter.BLOCK, 3)

    blank, other = (CorrectedIMU(gyro_filter.SIZES).double() for _ in range(2))
    torch.nn.init.ones_(other.network.out.bias)
    crossed = gyro_filter.CrossFitted(blank, other).corrections(flight)
    assert crossed[:50].eq(1).all()  # the even parts have the corrections of the network of the odd ones
    assert not crossed[50:].any()
    other_flight = replace(turning(1501), imu=turning(1501).imu + 0.01)
    shown, _ = gyro_filter.held_out([flight, other_flight], constants, Constant(blank, blank))
    fitted = gyro_training.fit_constants([other_flight], gyro_filter.KIND)
    added = torch.tensor([0.01, -0.02, 0.03, 0.0, 0.0, 0.0]).double()
    moved = replace(fitted, bias=fitted.bias - torch.linalg.solve(fitted.matrix, added))
    (expected,) = gyro_filter.run(gyro_filter.new_filter(None, moved), [flight])
    assert_close(shown.orientation, expected.orientation)


def test_the_shipped_filter_alone_gives_the_figure_of_its_card(models) -> None:
    if "FWNKF_DATA" not in os.environ:
        pytest.skip("needs the recordings: set FWNKF_DATA")
    folder = models / "euroc-gyro"
    (flight,) = gyro.EurocGyro().load(quick=True).official
    model = fwnkf.load(folder)
    prior = model.system.belief_at(flight.orientation[:1], gyro_filter.START)
    with torch.no_grad():
        track = model.run(flight.imu[None, 1:], prior=prior, prior_at="before_first_step")
    angle = rotation.distance(track.mean[0, :, :4], flight.orientation[8::8])
    quick = json.loads((folder / "results.json").read_text(encoding="utf-8"))["quick"]
    assert math.degrees(float(angle.square().mean().sqrt())) == pytest.approx(quick["aoe_deg"], rel=1e-6)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000
