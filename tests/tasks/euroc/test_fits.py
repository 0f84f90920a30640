"""The fits of EuRoC against simulated data with known parameters: calibration, drag, and all noise."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf import Gaussian
from fwnkf.core.preprocess import Inputs
from fwnkf.data.protocols import Records
from fwnkf.data.recording import Span
from fwnkf.data.sets.euroc import LAYOUT
from fwnkf.metrics.accuracy import residual
from fwnkf.preprocess import StrapdownIMU, StrapdownIMUConfig
from fwnkf.systems import CalibratedStrapdown, CalibratedStrapdownConfig
from fwnkf.systems.inertial_drag import axes_of
from tasks.euroc import calibration as imu_calibration
from tasks.euroc import drag as rotor_drag
from tasks.euroc import error_growth, fitting, scores, strapdown

from ...tolerances import assert_close

THRUST = (0.94, 0.0, -0.33)
DOUBLE = torch.float64


def records_of(y, truth, h, source="simulated") -> Records:
    count, length = y.shape[:2]
    dt = torch.full((count, length), h, dtype=DOUBLE)
    dt[:, 0] = 0.0
    spans = tuple(Span(source, "", i * length, (i + 1) * length) for i in range(count))
    start = Gaussian(truth[:, 0], torch.zeros(9, 9, dtype=DOUBLE))
    return Records(source, y, truth, torch.ones_like(y, dtype=torch.bool), dt, None, start, LAYOUT, spans)


def with_imu(system: CalibratedStrapdown) -> fwnkf.Filter:
    model = fwnkf.build("ekf", system=system)
    model.preprocess = StrapdownIMU(StrapdownIMUConfig(), system)
    return model


def simulated_windows(generator, calibration, count=12, length=120) -> Records:
    """Windows whose truth is the mechanisation itself under a known calibration, stepped by the system."""
    t = torch.arange(length, dtype=DOUBLE) * 0.005
    phase = 6.3 * torch.rand(count, 1, 6, generator=generator, dtype=DOUBLE)
    size = torch.tensor([0.6, 0.8, 0.5, 2.0, 2.0, 1.0], dtype=DOUBLE)
    frequency = 4.0 + 6.0 * torch.rand(count, 1, 6, generator=generator, dtype=DOUBLE)
    y = size * (frequency * t[None, :, None] + phase).sin() + torch.tensor([0, 0, 0, 0, 0, 9.81], dtype=DOUBLE)
    system = CalibratedStrapdown(CalibratedStrapdownConfig(biases=False)).double()
    with torch.no_grad():
        system.calibration[0] = calibration
        tilt = 0.5 * torch.randn(count, 9, generator=generator, dtype=DOUBLE)
        states = [LAYOUT.boxplus(LAYOUT.origin(y).expand(count, -1), tilt)]
        u = with_imu(system).preprocessed(Inputs(y, torch.ones_like(y), None, None)).u
        assert u is not None
        for k in range(1, length):
            states.append(system.transition(states[-1], u[:, k], None))
    return records_of(y, torch.stack(states, 1), 0.005)


def known_calibration(generator) -> torch.Tensor:
    calibration = 0.02 * torch.randn(28, generator=generator, dtype=DOUBLE)
    calibration[9] = 0.4
    return calibration


def test_the_fit_recovers_a_known_calibration(generator):
    true = known_calibration(generator)
    fitted = imu_calibration.fit(simulated_windows(generator, true), rounds=4, every=5)
    # the ridge of 1e-6 leaves a little where scale, bias and gravity are nearly collinear
    assert (fitted - true).abs().max() < 2e-4


def test_the_vectorised_integration_is_the_prediction_of_the_filter(generator):
    calibration = known_calibration(generator)
    records = simulated_windows(generator, calibration)
    system = CalibratedStrapdown(CalibratedStrapdownConfig()).double()
    with torch.no_grad():
        system.calibration[0] = calibration
    (belief,) = scores.run(with_imu(system), records)
    vectorised = imu_calibration.integrate(records, calibration[None])[0]
    assert_close(belief.mean, vectorised, "algebra")
    assert_close(vectorised, records.truth, "algebra")


def test_only_free_parts_change(generator):
    start = known_calibration(generator)
    fitted = imu_calibration.fit(simulated_windows(generator, known_calibration(generator)), ("gravity",), start)
    assert (fitted != start).nonzero().flatten().tolist() == [6, 7, 8]


def test_the_noise_of_windows_is_recovered(rng):
    """Sensors with white noise and a bias for each window, against the parameters they were drawn with."""
    count, length, h = 400, 200, 0.005
    density, bias = np.array([2e-3, 4e-2]), np.array([4e-3, 8e-2])
    noise = rng.standard_normal((count, length, 2, 3)) * (density / np.sqrt(h))[:, None]
    noise += rng.standard_normal((count, 1, 2, 3)) * bias[:, None]
    y = torch.from_numpy(noise.reshape(count, length, 6) + np.array([0, 0, 0, 0, 0, 9.81]))
    records = records_of(y, LAYOUT.origin(y).expand(count, length, -1), h)
    fitted = imu_calibration.fit_noise(records, torch.zeros(1, 28, dtype=DOUBLE), [0] * count)
    # 200 windows of three axes: a standard deviation is known to 3 %, its two parts less well
    assert fitted.gyro_density == pytest.approx(density[0], rel=0.2)
    assert fitted.accelerometer_density == pytest.approx(density[1], rel=0.2)
    assert fitted.biases[0] == pytest.approx(bias[0], rel=0.2)
    assert fitted.biases[3] == pytest.approx(bias[1], rel=0.2)


def test_a_constant_bias_is_recovered_despite_jumps_of_the_truth(generator):
    records = simulated_windows(generator, torch.zeros(28, dtype=DOUBLE))
    bias = torch.tensor([0.01, -0.02, 0.03, 0.1, -0.2, 0.3], dtype=DOUBLE)
    records.y.add_(bias)
    records.truth[0, 60:, 3] += 0.5  # one jump: a plain mean of the force would be wrong by 0.8 m/s² there
    assert_close(strapdown.constant_bias(records)[0, :3], bias[:3], "algebra")
    assert strapdown.constant_bias(records)[0, 3:].numpy() == pytest.approx(bias[3:].numpy(), abs=1e-3)


# ---- drag -----------------------------------------------------------------------------------------------------------


def simulated_flight(rng, offset, seconds=80) -> rotor_drag.Flight:
    """A flight whose force across the rotors is ``-K v + d``, constant within blocks but for the vibration."""
    count = seconds * 20
    axes = axes_of(torch.tensor(THRUST, dtype=DOUBLE)).numpy()
    frequency = rng.uniform(0.3, 1.0, (1, 3))
    velocity = np.sin(frequency * np.arange(count)[:, None] * 0.05 + rng.uniform(0, 6, (1, 3)))
    force = np.concatenate([np.full((count, 1), 9.8), -velocity[:, 1:] * [0.2, 0.17] + offset], -1)
    vibration = 0.05 * rng.standard_normal((count, 10, 3)) + 1.5 * np.array([1, -1] * 5)[:, None]
    rate = np.broadcast_to(0.1 * rng.standard_normal((count, 1, 3)), (count, 10, 3))
    imu = np.concatenate([rate, force[:, None] @ axes + vibration], -1).reshape(-1, 6)
    body = np.repeat(velocity @ axes, 10, 0)
    return rotor_drag.Flight(torch.from_numpy(imu), torch.from_numpy(body), torch.ones(len(imu), dtype=torch.bool))


def test_drag_is_recovered_whatever_the_offsets_of_the_flights(rng):
    data = [simulated_flight(rng, np.array(offset)) for offset in ((0.1, -0.1), (-0.1, 0.3), (0.0, 0.1))]
    drag = rotor_drag.fit(data)
    # offset and mean velocity tilt the mean force of these flights by a hundredth or so against the thrust
    assert drag.axes[0].numpy() == pytest.approx(np.array(THRUST) / np.linalg.norm(THRUST), abs=0.03)
    assert drag.matrix[:, :2].numpy() == pytest.approx(-np.diag([1 / 0.2, 1 / 0.17]), abs=0.25)
    error, usable = rotor_drag.residuals(drag, data[1])
    assert usable.all()
    # the offset of a flight remains, the variation of velocity is measured
    assert error.std(0).numpy() == pytest.approx(0.0, abs=0.15)
    shift = (rotor_drag.residuals(drag, data[0])[0] - error).mean(0).numpy()
    assert shift == pytest.approx([-0.2 / 0.2, 0.4 / 0.17], abs=0.15)


def test_a_seed_draws_other_stretches_reproducibly(rng):
    data = [simulated_flight(rng, np.zeros(2)) for _ in range(2)]

    def matrix(seed):
        return rotor_drag.fit(data, torch.Generator().manual_seed(seed)).matrix

    assert_close(matrix(1), matrix(1), "algebra")
    assert ((matrix(1) - matrix(2)).abs() > 1e-6).all()


def test_the_noise_of_drag_is_recovered(rng):
    white, correlated, seconds, offset, block = 0.5, 0.5, 2.0, 0.5, 0.05
    pole = np.exp(-block / seconds)
    flights = []
    for sign in (1, -1, 1, -1):
        state, path = correlated * rng.standard_normal(2), []
        for _ in range(8000):
            path.append(sign * offset + state + white * rng.standard_normal(2))
            state = pole * state + correlated * np.sqrt(1 - pole**2) * rng.standard_normal(2)
        error = torch.from_numpy(np.array(path))
        usable = torch.from_numpy(rng.random(8000) < 0.9)
        flights.append((torch.where(usable[:, None], error, 1e3), usable))
    noise = rotor_drag.fit_noise(flights, block)
    assert noise.white.numpy() == pytest.approx(white, rel=0.1)
    assert noise.correlated.numpy() == pytest.approx(correlated, rel=0.25)
    assert noise.seconds.numpy() == pytest.approx(seconds, rel=0.5)
    assert noise.offset.numpy() == pytest.approx(offset, rel=0.1)


# ---- noise of navigation --------------------------------------------------------------------------------------------


def test_all_noise_of_navigation_is_recovered_together(rng):
    """Windows at rest whose sensor has known noise and bias in a tilted frame, against the parameters drawn with."""
    count, length, h = 80, 251, 0.02
    sizes = {
        "gyro_density": 5e-4, "accelerometer_density": 0.02, "gyro_walk": 0.0, "accelerometer_walk": 0.0,
        "gyro_x": 1e-3, "gyro_y": 2e-3, "gyro_z": 1.5e-3, "accelerometer": 0.02, "tilt": 0.1,
    }  # fmt: skip
    density = np.repeat([sizes["gyro_density"], sizes["accelerometer_density"]], 3)
    constant = np.array([sizes["gyro_x"], sizes["gyro_y"], sizes["gyro_z"], *[sizes["accelerometer"]] * 3])
    y = density / np.sqrt(h) * rng.standard_normal((count, length, 6)) + [0, 0, 0, 0, 0, 9.81]
    y += constant * rng.standard_normal((count, 1, 6))
    y[..., 3:5] += sizes["tilt"] * rng.standard_normal((count, 1, 2))  # level: a tilted frame is a horizontal force
    truth = LAYOUT.origin(torch.zeros(1, dtype=DOUBLE)).expand(count, length, -1)
    records = records_of(torch.from_numpy(y), truth, h)
    zero = torch.zeros(28, dtype=DOUBLE)
    error = error_growth.errors(records, {"simulated": zero})
    path = imu_calibration.integrate(records, zero[None])[0]
    assert (error[:, -1] == residual(LAYOUT, path, truth)[:, 250]).all()
    few = records.take([0])  # at rest all windows have the same covariances
    parts = {name: cov.expand(count, -1, -1, -1) for name, cov in error_growth.sources(few, zero).items()}
    fitted = error_growth.fit(error, parts)
    for name in ("gyro_density", "accelerometer_density", "gyro_x", "gyro_y", "gyro_z", "accelerometer", "tilt"):
        assert fitted[name] == pytest.approx(sizes[name], rel=0.25), name  # 80 windows: known to 8 %
    # walks of size zero stay below what would add a quarter to the noise after five seconds
    assert fitted["gyro_walk"] < 3e-4
    assert fitted["accelerometer_walk"] < 6e-3


# ---- filters from a fit ---------------------------------------------------------------------------------------------


@pytest.fixture
def fit(rng) -> fitting.Fit:
    drag = rotor_drag.fit([simulated_flight(rng, np.zeros(2), 20)])
    noise = rotor_drag.DragNoise(
        *(torch.tensor(pair, dtype=DOUBLE) for pair in ([0.7, 1.0], [0.2, 0.4], [2, 1], [1, 2]))
    )
    return fitting.Fit(torch.arange(28, dtype=DOUBLE) / 1e3, drag, error_growth.INITIAL, noise, 1.5)


def test_a_fit_comes_back_from_json(fit):
    again = fitting.Fit.parse(json.loads(json.dumps(fit.plain())))
    ours, theirs = (fitting.noise_state_filter(one) for one in (fit, again))
    assert all((ours.state_dict()[name] == tensor).all() for name, tensor in theirs.state_dict().items())
    assert ours.system.config == theirs.system.config


def test_the_noise_states_have_the_fitted_variance_and_correlation(fit):
    model = fitting.noise_state_filter(fit)
    oscillators = model.prepare().noise
    C, A = oscillators.C[:2], oscillators.A
    variance = (C @ C.mT).diagonal()  # unit stationary covariance
    assert_close(variance, fit.noise.correlated.square(), "algebra")
    later = (C @ torch.linalg.matrix_power(A, 100) @ C.mT).diagonal() / variance
    assert later.detach().numpy() == pytest.approx(np.exp(-0.5 / fit.noise.seconds.numpy()), rel=1e-6)


def test_the_baselines_leave_out_what_they_say(rng, fit):
    imu = simulated_flight(rng, np.zeros(2), 5).imu[None]
    raw = Inputs(imu, torch.ones_like(imu), None, None)
    assert fitting.noise_state_filter(fit).preprocessed(raw).weight[..., :2].any()
    assert fitting.plain_ekf(fit, 4.0).preprocessed(raw).weight[..., :2].any()
    assert not fitting.without_drag(fit).preprocessed(raw).weight.any()
    total = 4 * (fit.noise.white.square() + fit.noise.correlated.square())
    assert_close(fitting.plain_ekf(fit, 4.0).system.measurement_covariance().diagonal()[:2], total, "algebra")
