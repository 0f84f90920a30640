"""Lines that follow rotors: against a Kalman filter written out, and what given, missing and wrong speeds do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import fwnkf
from fwnkf import Level, Orders
from fwnkf.errors import ConfigError

from ..tolerances import assert_close, assert_same_bits

DT = 0.001
F = torch.tensor([[1.0, DT], [0.0, 1.0]], dtype=torch.float64)
Q = torch.tensor([[DT**3 / 3, DT**2 / 2], [DT**2 / 2, DT]], dtype=torch.float64) * 50.0
H = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
R = torch.tensor([[0.01]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def build(level=None, **options):
    system = fwnkf.LinearSystem.of(F=F, H=H, Q=Q, R=R, dt=DT)
    return fwnkf.FWNKF(system, noise=Orders(**{"std": 0.7, "bandwidth_hz": 3.0, **options}), level=level)


def hz_of(model, state):
    return model.noise_states.hz(state.noise)


def spread_of(model, state):
    """Standard deviation of the logarithm of each frequency."""
    return torch.diagonal(state.cov, dim1=-2, dim2=-1)[:, -model.noise_states.rotors :].sqrt()


def tone(hz: np.ndarray, seed: int = 0, std: float = 0.7, bandwidth: float = 3.0) -> torch.Tensor:
    """A line of a changing frequency, and white noise."""
    generator = np.random.default_rng(seed)
    radius = math.exp(-math.pi * DT * bandwidth)
    state, values = complex(*generator.standard_normal(2)), []
    for step in hz:
        drive = complex(*generator.standard_normal(2)) * math.sqrt(1 - radius**2)
        state = radius * np.exp(2j * np.pi * step * DT) * state + drive
        values.append(std * state.real)
    noise = 0.1 * generator.standard_normal(len(hz))
    return torch.tensor(np.array(values) + noise)[None, :, None]


def by_hand(y: np.ndarray, hz: np.ndarray, orders: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """A Kalman filter with the textbook update and the frequencies as constants of each step."""
    r, size = math.exp(-math.pi * DT * 3.0), 2 + 2 * len(orders)
    mean, cov, means, variances = np.zeros(size), np.eye(size), [], []
    row = np.array([1.0, 0.0] + [0.7, 0.0] * len(orders))
    for value, f in zip(y, hz, strict=True):
        A, noise = np.zeros((size, size)), np.zeros((size, size))
        A[:2, :2], noise[:2, :2] = F, Q
        for k, order in enumerate(orders):
            c, s = math.cos(2 * math.pi * order * f * DT), math.sin(2 * math.pi * order * f * DT)
            A[2 + 2 * k : 4 + 2 * k, 2 + 2 * k : 4 + 2 * k] = r * np.array([[c, -s], [s, c]])
            noise[2 + 2 * k : 4 + 2 * k, 2 + 2 * k : 4 + 2 * k] = (1 - r * r) * np.eye(2)
        mean, cov = A @ mean, A @ cov @ A.T + noise
        gain = cov @ row / (row @ cov @ row + 0.01)
        mean, cov = mean + gain * (value - row @ mean), cov - np.outer(gain, row @ cov)
        means.append(mean[:2])
        variances.append(cov[:2, :2])
    return np.array(means), np.array(variances)


def test_with_speeds_that_are_exact_it_is_the_kalman_filter_with_turning_oscillators():
    hz = np.linspace(60.0, 75.0, 150)
    y = tone(hz)
    model = build(orders=(1.0, 8.0), hz=(60.0,), hz_std=1.0, walk=10.0, speed_std=1e-7, speed_gate=1e9)
    trajectory = model.run(y, torch.tensor(hz)[None, :, None], prior_at="before_first_step")
    means, variances = by_hand(y[0, :, 0].numpy(), hz, (1.0, 8.0))  # the eighth order is folded: 480 to 600 Hz at 1 kHz
    torch.testing.assert_close(trajectory.mean[0], torch.tensor(means), rtol=0, atol=1e-4)
    torch.testing.assert_close(trajectory.cov[0], torch.tensor(variances), rtol=1e-3, atol=1e-6)


def test_the_slope_in_the_frequency_is_the_derivative_of_the_turn():
    model = build(rotors=2, orders=(1.0, 3.0), hz=(70.0, 90.0))
    generator = torch.Generator().manual_seed(0)
    state = model.init(1)
    oscillating = torch.randn(1, 8, generator=generator, dtype=torch.float64)
    state = state._replace(noise=torch.cat((oscillating, state.noise[:, 8:]), -1))
    prepared = model.prepare()

    def moved(noise):
        return model.predict_state(prepared, state._replace(noise=noise), None, None).state.noise[0]

    with torch.enable_grad():
        wanted = torch.autograd.functional.jacobian(moved, state.noise)[:, 0]
    ahead = model.predict_state(prepared, state, None, None)
    assert_close(ahead.F[0, 2:, 2:], wanted, "rounding")


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_without_a_speed_the_last_one_is_kept_and_its_uncertainty_grows_up_to_that_of_the_start():
    model = build(hz=(80.0,), hz_std=0.4, walk=0.5, speed_std=0.01)
    steps = 900
    u = torch.full((1, steps, 1), torch.nan).double()
    u[:, :300] = 90.0
    u[:, 500:600] = torch.tensor([0.0, -5.0]).double().repeat(50)[:, None]  # missing too
    y = torch.zeros(1, steps, 1).double()
    nothing = torch.zeros(1, steps, 1, dtype=torch.bool)
    state = model.run(y[:, :300], u[:, :300], nothing[:, :300]).state
    assert float(hz_of(model, state)) == pytest.approx(90.0, rel=1e-4)
    before = float(spread_of(model, state)) ** 2
    for seconds, stop in ((0.2, 500), (0.6, 900)):
        later = model.run(y[:, 300:stop], u[:, 300:stop], nothing[:, 300:stop], state=state).state
        assert_close(hz_of(model, later), hz_of(model, state), "rounding")
        # dV/dt = walk² (1 - V / hz_std²)
        variance = 0.16 - (0.16 - before) * math.exp(-(0.5**2) * seconds / 0.16)
        assert float(spread_of(model, later)) ** 2 == pytest.approx(variance, rel=1e-3)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_frequency_that_nobody_gives_is_found_and_followed():
    hz = 80 * np.exp(0.3 * np.sin(np.linspace(0, 3, 1500)))
    y = tone(hz, seed=3)
    model = build(hz=(77.0,), hz_std=0.2, walk=0.3)
    state = model.run(y[:, :1000]).state
    found = [(float(hz_of(model, state)), float(spread_of(model, state)), hz[999])]
    state = model.run(y[:, 1000:], state=state).state
    found.append((float(hz_of(model, state)), float(spread_of(model, state)), hz[-1]))
    for value, std, truth in found:
        assert abs(value - truth) < 4 * std * value
        assert std < 0.07  # from 0.2


@pytest.mark.parametrize("wrong", [40.0, 200.0])
def test_a_speed_far_from_the_predicted_one_changes_nothing(wrong: float):
    y = tone(np.full(60, 80.0))
    model = build(hz=(80.0,), hz_std=0.02)
    missing = torch.full((1, 60, 1), torch.nan).double()
    assert_same_bits(model.run(y, torch.full_like(missing, wrong)).mean, model.run(y, missing).mean)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_the_level_of_all_changes_what_is_stated_and_no_estimate():
    y = 3 * tone(np.full(1000, 80.0), seed=1)
    u = torch.full((1, 1000, 1), 80.0).double()
    plain = build(hz=(80.0,)).run(y, u)
    ours = build(hz=(80.0,), level=Level(0.05, of="all")).run(y, u)
    assert_same_bits(ours.mean, plain.mean)
    nis = [(run.innovation**2 / run.innovation_cov[..., 0])[:, 300:].mean() for run in (plain, ours)]
    assert float(nis[0]) > 5  # the noise is nine times that of the model
    assert float(nis[1]) == pytest.approx(1.0, abs=0.15)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("of", ["noise", "each"])
def test_the_level_of_the_noise_follows_it(of):
    """The ratio of two levels that differ by nine in variance; the system's own noise is known and not scaled."""
    y = tone(np.full(1000, 80.0), seed=2)
    u = torch.full((1, 1000, 1), 80.0).double()
    model = build(hz=(80.0,), level=Level(0.2, of=of))
    levels = model.run(torch.cat((y, 3 * y)), torch.cat((u, u))).state.levels.log.exp()
    assert levels.shape == (2, 1 if of == "noise" else 2)  # one for all, or the white noise and the line
    for calm, rough in levels.T.tolist():
        assert rough / calm == pytest.approx(9.0, rel=0.25)
        assert calm == pytest.approx(1.0, rel=0.3)


def test_no_level_scales_the_walk_of_a_frequency():
    """The variance of a frequency without telemetry grows by the same walk, however loud the lines are."""
    y = 5 * tone(np.full(100, 80.0))
    model = build(hz=(80.0,), hz_std=0.5, level=Level(0.2))
    state = model.run(y).state
    assert float(state.levels.log) > 1
    Q = model.predict_state(model.prepare(), state, None, None).Q
    left = 1 - float(spread_of(model, state)) ** 2 / 0.5**2
    assert float(Q[0, -1, -1]) == pytest.approx(0.1**2 * DT * left, rel=1e-9)


def test_before_a_fit_it_is_the_classical_filter(generator):
    y = 0.1 * torch.randn(1, 80, 1, generator=generator, dtype=torch.float64)
    u = torch.full((1, 80, 2), 80.0).double()
    model = build(rotors=2, orders=3, hz=80.0, std=None)
    ours, theirs = model.run(y, u), fwnkf.EKF(model.system).run(y)
    torch.testing.assert_close(ours.mean, theirs.mean, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.cov, theirs.cov, atol=1e-6, rtol=1e-6)


def test_options_that_do_not_fit_are_explained():
    with pytest.raises(ConfigError, match="hz has 3 values; give 1, or 2"):
        build(rotors=2, hz=(1.0, 2.0, 3.0))
    with pytest.raises(ConfigError, match="orders is empty"):
        build(orders=())
    with pytest.raises(ConfigError, match="give several steps"):
        build(level=Level(0.001, of="all"))
    with pytest.raises(ConfigError, match="cannot be smoothed with orders"):
        build().run(torch.zeros(1, 2, 1).double(), smoothing=True)
    with pytest.raises(ConfigError, match="must be positive"):
        build().noise_states.set(std=0.0)
    with pytest.raises(
        ConfigError, match=r"bandwidth_hz has shape \[3\]; wanted a number, 1 numbers, or shape \[1, 1\]"
    ):
        build().noise_states.set(bandwidth_hz=[1.0, 2.0, 3.0])
    with pytest.raises(ConfigError, match=r"option noise\[0\].walk = -1.0 is below 0"):
        build(walk=-1.0)
