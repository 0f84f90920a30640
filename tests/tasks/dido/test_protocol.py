"""DIDO's protocol: truth against motions whose rate and force are known, take-offs, sampling at other instants."""

from __future__ import annotations

import pytest
import torch

from fwnkf.core import rotation
from fwnkf.data.recording import Recording
from fwnkf.data.sets import dido
from fwnkf.errors import DataError
from tasks.dido import protocol


def turning(rate: torch.Tensor, acceleration: torch.Tensor, seconds: float = 2.0) -> Recording:
    """A recording of a constant rate and a constant acceleration, at stamps that are not the grid's."""
    generator = torch.Generator().manual_seed(1)
    steps = 0.002 + 0.001 * torch.rand(int(seconds * 400), generator=generator, dtype=torch.float64)
    time = torch.cat((steps.new_zeros(1), steps.cumsum(0)))
    q = rotation.exp(time.unsqueeze(-1) * rate)
    p = 0.5 * time.square().unsqueeze(-1) * acceleration
    imu = torch.zeros(len(time), 6, dtype=torch.float64)
    return Recording("simulated", time, imu, dido.CHANNELS, imu == 0, torch.cat((p, q), -1), dido.LAYOUT)


def test_truth_is_the_rate_and_the_force_of_the_motion():
    rate = torch.tensor([0.3, -0.5, 0.8], dtype=torch.float64)
    acceleration = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    flight = protocol.flight(turning(rate, acceleration))
    weight = torch.tensor([0.0, 0.0, protocol.GRAVITY], dtype=torch.float64)
    force = rotation.to_matrix(flight.orientation).mT @ (acceleration + weight)
    inside = slice(60, -60)
    # linear interpolation between stamps 3 ms apart leaves a h²/8 of 1e-6 m, times the weights of a second derivative
    assert float((flight.clean[inside, :3] - rate).abs().max()) < 1e-3
    assert float((flight.clean[inside, 3:] - force[inside]).abs().max()) < 0.02
    speed = torch.arange(len(flight)).unsqueeze(-1) / protocol.RATE * acceleration
    assert float((flight.velocity - speed)[inside].abs().max()) < 1e-3


def test_a_bias_is_taken_off_every_flight_and_gravity_off_z():
    zero = torch.zeros(3, dtype=torch.float64)
    still = protocol.flight(turning(zero, zero, seconds=3.0))
    task = protocol.denoise_records("simulated", [still], samples=500)
    assert task.y.shape == (1, 500, 6)
    assert float(task.y.abs().max()) < 1e-9
    assert float(task.truth.abs().max()) < 1e-6


def test_missing_truth_is_refused():
    whole = turning(torch.zeros(3).double(), torch.zeros(3).double())
    known = torch.ones(len(whole), dtype=torch.bool)
    known[3] = False
    broken = Recording(
        "simulated", whole.time, whole.observations, whole.channels, whole.mask, whole.truth, whole.layout, known
    )
    with pytest.raises(DataError, match="pose at every sample"):
        protocol.flight(broken)


def test_samples_at_other_instants_are_those_of_the_motion():
    """A rate that grows linearly is interpolated exactly, so truth and IMU at moved instants are known."""
    zero = torch.zeros(3, dtype=torch.float64)
    recording = turning(zero, zero, seconds=3.0)
    ramp = recording.time.unsqueeze(-1) * torch.arange(1.0, 7.0, dtype=torch.float64)
    recording = Recording("simulated", recording.time, ramp, dido.CHANNELS, ramp == ramp, recording.truth, dido.LAYOUT)
    flight = protocol.flight(recording)
    records = protocol.jittered_records([flight], share=0.5, seed=3, samples=400)
    dt = records.dt[0]
    assert 0 <= float(dt.min()) < 0.2 / 400
    assert 1.8 / 400 < float(dt.max()) <= 2 / 400
    moved = records.y[0].diff(dim=0) / torch.arange(1.0, 7.0, dtype=torch.float64)
    torch.testing.assert_close(moved, dt[1:, None].expand(-1, 6), rtol=0, atol=1e-12)


def test_the_split_keeps_every_take_off_on_one_side(dido_recordings):
    recordings = {name: dido.read(folder) for name, folder in dido_recordings.items()}
    assert tuple(protocol.take_offs(recordings)) == protocol.TAKE_OFFS
    trained = {*protocol.TRAIN, *protocol.VALIDATION}
    for group in protocol.TAKE_OFFS:
        assert not ({*group} & trained and {*group} & {*protocol.TEST})
    assert protocol.CONTINUED == (7,)


def test_the_signals_are_those_measured_before(dido_recordings):
    assert protocol.denoise().split.test.y.shape == (11, 12_000, 6)  # refuses splits that share a sample
    others = protocol.denoise_records("others", protocol.flights(protocol.OTHERS))
    # by other code: 0.33 and 0.27 m/s² along x
    assert float(others.truth[..., 3].std()) == pytest.approx(0.33, rel=0.1)
    assert float((others.y - others.truth)[..., 3].std()) == pytest.approx(0.271, rel=0.02)
