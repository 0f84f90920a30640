"""DIDO's tasks: smoothing against scipy, truth against motions whose rate and force are known."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from scipy.signal import savgol_filter

from fwnkf.core import rotation
from fwnkf.data import catalogue, dido
from fwnkf.data.recording import Recording
from fwnkf.errors import DataError
from tasks.dido import protocol as dido_tasks

from ..tolerances import assert_close


@pytest.mark.parametrize(("window", "degree"), [(41, 3), (61, 3), (7, 2), (5, 4)])
@pytest.mark.parametrize("derivative", [0, 1, 2])
def test_savgol_is_that_of_scipy_ends_included(rng, window, degree, derivative):
    values = rng.standard_normal((200, 3)).cumsum(0)
    ours = dido_tasks.savgol(values, window, degree, derivative, 0.1)
    theirs = savgol_filter(values, window, degree, deriv=derivative, delta=0.1, axis=0)
    assert_close(torch.from_numpy(ours), torch.from_numpy(theirs))


@pytest.mark.parametrize(("window", "degree", "length"), [(4, 2, 50), (5, 5, 50), (41, 3, 40)])
def test_savgol_refuses_what_has_no_fit(window, degree, length):
    with pytest.raises(DataError, match="savgol"):
        dido_tasks.savgol(np.zeros((length, 1)), window, degree)


def turning(rate: torch.Tensor, acceleration: torch.Tensor, seconds: float = 2.0) -> Recording:
    """A recording of a constant rate and a constant acceleration, at stamps that are not the grid's."""
    generator = torch.Generator().manual_seed(1)
    steps = 0.002 + 0.001 * torch.rand(int(seconds * 400), generator=generator, dtype=torch.float64)
    time = torch.cat((steps.new_zeros(1), steps.cumsum(0)))
    q = rotation.exp(time.unsqueeze(-1) * rate)
    p = 0.5 * time.square().unsqueeze(-1) * acceleration
    imu = torch.zeros(len(time), 6, dtype=torch.float64)
    return Recording("made", time, imu, dido.CHANNELS, imu == 0, torch.cat((p, q), -1), dido.LAYOUT)


def test_truth_is_the_rate_and_the_force_of_the_motion():
    rate = torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64)
    acceleration = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    found = dido_tasks.flight(turning(rate, acceleration))
    weight = torch.tensor([0.0, 0.0, dido_tasks.GRAVITY], dtype=torch.float64)
    force = rotation.to_matrix(found.orientation).mT @ (acceleration + weight)
    inside = slice(60, -60)
    # linear interpolation between stamps 3 ms apart leaves a h²/8 of 1e-6 m, times the weights of a second derivative
    assert float((found.clean[inside, :3] - rate).abs().max()) < 1e-3
    assert float((found.clean[inside, 3:] - force[inside]).abs().max()) < 0.02
    speed = torch.arange(len(found)).unsqueeze(-1) / dido_tasks.RATE * acceleration
    assert float((found.velocity - speed)[inside].abs().max()) < 1e-3


def test_a_bias_is_taken_off_every_flight_and_gravity_off_z():
    zero = torch.zeros(3, dtype=torch.float64)
    still = dido_tasks.flight(turning(zero, zero, seconds=3.0))
    task = dido_tasks.denoise_task("made", [still], samples=500)
    assert task.y.shape == (1, 500, 6)
    assert float(task.y.abs().max()) < 1e-9
    assert float(task.truth.abs().max()) < 1e-6


def test_missing_truth_is_refused():
    whole = turning(torch.zeros(3).double(), torch.zeros(3).double())
    known = torch.ones(len(whole), dtype=torch.bool)
    known[3] = False
    broken = Recording(
        "made", whole.time, whole.observations, whole.channels, whole.mask, whole.truth, whole.layout, known
    )
    with pytest.raises(DataError, match="pose at every sample"):
        dido_tasks.flight(broken)


def test_the_split_is_that_of_the_protocol():
    if not os.environ.get("FWNKF_DATA") or not dido.find(catalogue.folder_of("dido")):
        pytest.skip("FWNKF_DATA names no folder with DIDO")
    made = dido_tasks.denoise()  # refuses splits that share a sample
    assert [len(task) for task in made.split] == [3, 1, 12]
    assert made.split.test.y.shape == (12, 12_000, 6)
    # the signal and noise that were measured before, by other code: 0.33 and 0.27 m/s² along x
    assert float(made.split.test.truth[..., 3].std()) == pytest.approx(0.33, rel=0.1)
    assert float((made.split.test.y - made.split.test.truth)[..., 3].std()) == pytest.approx(0.271, rel=0.02)
