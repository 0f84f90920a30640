"""What EuRoC ``strict`` fits, against data of known making: drag, the colour of its error, noise of navigation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fwnkf.data.euroc import LAYOUT
from fwnkf.data.protocols import Records
from fwnkf.data.recording import Span
from fwnkf.metrics.accuracy import residual
from fwnkf.systems.inertial_drag import axes_of
from fwnkf.types import Gaussian
from tasks.euroc import calibration as euroc_calibration
from tasks.euroc import drag as euroc_drag
from tasks.euroc import error_growth as euroc_doubt

from ..tolerances import assert_close

THRUST = (0.94, 0.0, -0.33)


def flown(rng, offset, seconds=80):
    """A flight whose force across the rotors is ``-K v + d``, blocks of which are constant but for the shaking."""
    count = seconds * 20
    axes = axes_of(torch.tensor(THRUST, dtype=torch.float64)).numpy()
    pace = rng.uniform(0.3, 1.0, (1, 3))
    velocity = np.sin(pace * np.arange(count)[:, None] * 0.05 + rng.uniform(0, 6, (1, 3)))
    force = np.concatenate([np.full((count, 1), 9.8), -velocity[:, 1:] * [0.2, 0.17] + offset], -1)
    shaking = 0.05 * rng.standard_normal((count, 10, 3)) + 1.5 * np.array([1, -1] * 5)[:, None]
    rate = np.broadcast_to(0.1 * rng.standard_normal((count, 1, 3)), (count, 10, 3))
    imu = np.concatenate([rate, force[:, None] @ axes + shaking], -1).reshape(-1, 6)
    body = np.repeat(velocity @ axes, 10, 0)
    return euroc_drag.Flight(torch.from_numpy(imu), torch.from_numpy(body), torch.ones(len(imu), dtype=torch.bool))


def test_drag_is_found_whatever_the_offsets_of_the_flights(rng):
    data = [flown(rng, np.array(offset)) for offset in ((0.1, -0.1), (-0.1, 0.3), (0.0, 0.1))]
    drag = euroc_drag.fit(data)
    # the mean force of these flights leans by a hundredth or so: offset and mean velocity are no thrust
    assert drag.axes[0].numpy() == pytest.approx(np.array(THRUST) / np.linalg.norm(THRUST), abs=0.03)
    assert drag.read[:, :2].numpy() == pytest.approx(-np.diag([1 / 0.2, 1 / 0.17]), abs=0.25)
    error, good = euroc_drag.residuals(drag, data[1])
    assert good.all()
    # the offset of a flight stays, what it varies by is read
    assert error.std(0).numpy() == pytest.approx(0.0, abs=0.15)
    shift = (euroc_drag.residuals(drag, data[0])[0] - error).mean(0).numpy()
    assert shift == pytest.approx([-0.2 / 0.2, 0.4 / 0.17], abs=0.15)


def test_a_generator_draws_other_stretches_and_the_same_ones_again(rng):
    data = [flown(rng, np.zeros(2)) for _ in range(2)]

    def read(seed):
        return euroc_drag.fit(data, torch.Generator().manual_seed(seed)).read

    assert_close(read(1), read(1), "algebra")
    assert ((read(1) - read(2)).abs() > 1e-6).all()


def test_colour_finds_what_was_drawn(rng):
    white, drift, seconds, offset, block = 0.5, 0.5, 2.0, 0.5, 0.05
    pole = np.exp(-block / seconds)
    flights = []
    for sign in (1, -1, 1, -1):
        state, path = drift * rng.standard_normal(2), []
        for _ in range(8000):
            path.append(sign * offset + state + white * rng.standard_normal(2))
            state = pole * state + drift * np.sqrt(1 - pole**2) * rng.standard_normal(2)
        error = torch.from_numpy(np.array(path))
        gap = torch.from_numpy(rng.random(8000) < 0.9)
        flights.append((torch.where(gap[:, None], error, 1e3), gap))
    found = euroc_drag.colour(flights, block)
    assert found.white.numpy() == pytest.approx(white, rel=0.1)
    assert found.drift.numpy() == pytest.approx(drift, rel=0.25)
    assert found.seconds.numpy() == pytest.approx(seconds, rel=0.5)
    assert found.offset.numpy() == pytest.approx(offset, rel=0.1)


def test_the_sizes_of_all_noise_are_found_together(rng):
    """Windows at rest whose sensor has known noise and bias in a tilted frame, against the numbers drawn with."""
    count, length, h = 80, 251, 0.02
    sizes = {
        "gyro_density": 5e-4, "accelerometer_density": 0.02, "gyro_walk": 0.0, "accelerometer_walk": 0.0,
        "gyro_x": 1e-3, "gyro_y": 2e-3, "gyro_z": 1.5e-3, "accelerometer": 0.02, "tilt": 0.1,
    }  # fmt: skip
    density = np.repeat([sizes["gyro_density"], sizes["accelerometer_density"]], 3)
    constant = np.array([sizes["gyro_x"], sizes["gyro_y"], sizes["gyro_z"], *[sizes["accelerometer"]] * 3])
    y = density / np.sqrt(h) * rng.standard_normal((count, length, 6)) + [0, 0, 0, 0, 0, 9.81]
    y += constant * rng.standard_normal((count, 1, 6))
    y[..., 3:5] += sizes["tilt"] * rng.standard_normal((count, 1, 2))  # level: a tilt of the frame is a force across
    truth = LAYOUT.origin(torch.zeros(1, dtype=torch.float64)).expand(count, length, -1)
    dt = torch.full((count, length), h, dtype=torch.float64)
    dt[:, 0] = 0.0
    start = Gaussian(truth[:, 0], torch.zeros(9, 9, dtype=torch.float64))
    spans = tuple(Span("rest", "", i * length, (i + 1) * length) for i in range(count))
    task = Records(
        "rest", torch.from_numpy(y), truth, torch.ones(y.shape, dtype=torch.bool), dt, None, start, LAYOUT, spans
    )
    none = torch.zeros(28, dtype=torch.float64)
    error = euroc_doubt.errors(task, {"rest": none})
    path = euroc_calibration.integrate(task, none[None])[0]
    assert (error[:, -1] == residual(LAYOUT, path, truth)[:, 250]).all()
    few = task.take([0])  # at rest all windows have the same covariances
    parts = {name: one.expand(count, -1, -1, -1) for name, one in euroc_doubt.sources(few, none).items()}
    found = euroc_doubt.fit(error, parts)
    for name in ("gyro_density", "accelerometer_density", "gyro_x", "gyro_y", "gyro_z", "accelerometer", "tilt"):
        assert found[name] == pytest.approx(sizes[name], rel=0.25), name  # 80 windows: a size is known to 8 %
    # what was not put in stays below what would add a quarter to the noise after five seconds
    assert found["gyro_walk"] < 3e-4
    assert found["accelerometer_walk"] < 6e-3
