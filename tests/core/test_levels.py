"""Levels that are followed: derivatives against differences of whole runs, and the belief that moves with them."""

from __future__ import annotations

import math

import pytest
import torch

import fwnkf
from fwnkf import Hypotheses, Level, Lines
from fwnkf.core import levels as core_levels
from fwnkf.core.levels import SPREAD
from fwnkf.errors import ConfigError
from fwnkf.systems import LearnedSystem

RATE = 100.0


def system(R: float = 0.01) -> fwnkf.LinearSystem:
    return fwnkf.LinearSystem.of(
        F=torch.tensor([[0.0, 1.0], [0.0, 0.0]]).double(),
        Q=torch.tensor([[0.0, 0.0], [0.0, 1.0]]).double(),
        H=torch.tensor([[1.0, 0.0]]).double(),
        R=torch.tensor([[R]]).double(),
        continuous=True,
        dt=1 / RATE,
    )


def with_tone(R: float = 0.01, std: float = 0.4, **options: object) -> fwnkf.FWNKF:
    return fwnkf.FWNKF(system(R), noise=Lines(hz=17.0, bandwidth_hz=0.2, std=std), **options)


def measurements(generator: torch.Generator, records: int, steps: int, factor: float = 1.0) -> torch.Tensor:
    """White noise and a tone as the filter assumes them, with ``factor`` times the variance, of a body at rest."""
    radius, turn = math.exp(-math.pi * 0.2 / RATE), 2 * math.pi * 17.0 / RATE
    drive = torch.randn(records, steps + 1, 2, generator=generator, dtype=torch.double)
    tone = [torch.complex(drive[:, 0, 0], drive[:, 0, 1])]
    for k in range(1, steps + 1):
        fresh = math.sqrt(1 - radius**2) * torch.complex(drive[:, k, 0], drive[:, k, 1])
        tone.append(radius * torch.exp(torch.tensor(1j * turn)) * tone[-1] + fresh)
    white = torch.randn(records, steps, generator=generator, dtype=torch.double)
    return math.sqrt(factor) * (0.4 * torch.stack(tone[1:], 1).real + 0.1 * white).unsqueeze(-1)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture
def still(monkeypatch):
    """Levels known so well that no measurement moves them, while their derivatives are still carried."""
    monkeypatch.setattr("fwnkf.core.levels.SPREAD", 1e-5)


def test_derivatives_are_those_of_whole_runs(generator, still):
    """Mean and covariance after 30 steps against central differences of filters with other noise."""
    y, h = measurements(generator, 2, 30), 3e-3
    levels = with_tone(level=Level(of="each")).run(y).state.levels
    for level, (white, tone) in enumerate(((h, 0.0), (0.0, h))):
        up, down = (with_tone(0.01 * math.exp(s * white), 0.4 * math.exp(0.5 * s * tone)).run(y) for s in (1, -1))
        mean, cov = (up.mean - down.mean)[:, -1] / (2 * h), (up.cov - down.cov)[:, -1] / (2 * h)
        torch.testing.assert_close(levels.mean[:, level, :2], mean, rtol=1e-3, atol=1e-7)
        torch.testing.assert_close(levels.cov[:, level, :2, :2], cov, rtol=1e-3, atol=1e-7)


def test_the_score_is_the_derivative_of_the_likelihood(generator, still):
    """A step of a level is the gradient of the step's likelihood divided by the information."""
    y = measurements(generator, 3, 20)
    model = with_tone(level=Level())
    state = model.run(y[:, :-1]).state
    following, _ = model.step(state, y[:, -1])
    h = 3e-3
    up, down = (with_tone(0.01 * math.exp(s * h), 0.4 * math.exp(s * h / 2)).run(y) for s in (1, -1))
    expected = (up.step_log_likelihood - down.step_log_likelihood)[:, -1] / (2 * h)
    moved = (following.levels.log - state.levels.log)[:, 0] * following.levels.information[:, 0, 0]
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_a_level_is_found_and_the_error_bars_follow_it(generator, factor):
    y = measurements(generator, 8, 200, factor)
    tracked, nominal = with_tone(level=Level()).run(y), with_tone().run(y)
    told = with_tone(0.01 * factor, 0.4 * math.sqrt(factor)).run(y)
    # 200 samples tell a level to √(2 / 200) = 0.1
    assert (tracked.state.levels.log - math.log(factor)).abs().max() < 0.35
    away = [(run.cov[:, 100:, 0, 0] / told.cov[:, 100:, 0, 0]).log().abs().mean() for run in (tracked, nominal)]
    assert away[0] < 0.25 * away[1]


def test_separate_levels_tell_white_noise_from_the_tone(generator):
    """Of a tone without power the level falls, of white noise of twice the standard deviation it rises."""
    y = 0.2 * torch.randn(8, 200, 1, generator=generator).double()
    log = with_tone(level=Level(of="each")).run(y).state.levels.log
    assert ((log[:, 0] - math.log(4.0)).abs() < 0.35).all()
    assert (log[:, 1] < -math.log(3.0)).all()


@pytest.mark.parametrize("noise", [None, Lines()], ids=["white", "lines without power"])
def test_white_noise_alone_is_an_inverse_gamma_distribution(generator, noise):
    """With a known state and no tone, level and information have a closed form."""
    one = torch.ones(1, 1).double()
    model = fwnkf.FWNKF(LearnedSystem.of(H=one, Q=0 * one, R=one), noise=noise, level=Level(seconds=1e9))
    y = 3 * torch.randn(4, 30, 1, generator=generator).double()
    known = fwnkf.Gaussian(torch.zeros(1).double(), torch.zeros(1, 1).double())
    levels = model.run(y, prior=known).state.levels
    a = 1 / SPREAD**2
    expected = (a + 0.5 * y.square().sum(1)) / (a + 0.5 * 30)
    torch.testing.assert_close(levels.log.exp(), expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_last_hypothesis_stays_the_classical_filter_to_the_bit(generator, dtype):
    mixture = with_tone(level=Level(), hypotheses=Hypotheses(fallback=True)).to(dtype)
    y = measurements(generator, 3, 20, 9.0).to(dtype)
    state, classical = mixture.init(3), fwnkf.EKF(mixture.system)
    expected = classical.init(3)
    dt = torch.full((3,), 1 / RATE, dtype=dtype)
    for k in range(20):
        # with dt both multiply matrices of each record, in the same order
        state, _ = mixture.step(state, y[:, k], dt=dt)
        expected, out = classical.step(expected, y[:, k], dt=dt)
        assert torch.equal(state.members.mean[:, -1], out.mean)
        assert torch.equal(state.members.cov[:, -1, :2, :2], out.cov)
    assert (state.members.levels.log[:, :-1].abs() > 0.1).all()


@pytest.mark.parametrize("solve", ["auto", "sequential"])
def test_the_gain_is_computed_once(generator, monkeypatch, solve):
    """Levels take the gain of the update, and compute one of their own only where channels were used one by one."""
    calls = []
    solved = core_levels.gain
    monkeypatch.setattr(core_levels, "gain", lambda *given: calls.append(given) or solved(*given))
    model = with_tone(level=Level(), solve=solve)
    model.run(measurements(generator, 2, 5))
    assert len(calls) == (5 if solve == "sequential" else 0)


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(ConfigError, match="needs the Kalman gain"):
        fwnkf.FWNKF(system(), phi=fwnkf.Phi(), level=Level())
    with pytest.raises(ConfigError, match="a dense covariance"):
        with_tone(solve="square_root", level=Level())
    with pytest.raises(ConfigError, match="dwell and a tracked level both follow"):
        with_tone(level=Level(), hypotheses=Hypotheses(fallback=True, dwell=1.0))
    with pytest.raises(ConfigError, match=r"level.seconds = 0\.0 must be above 0"):
        fwnkf.FWNKF(system(), level=Level(seconds=0.0))
