"""The likelihood of a nonlinear filter by code that is compiled once for all parameter vectors."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.filters import engines
from fwnkf.identify import likelihood as likelihoods
from fwnkf.identify.likelihood import Likelihood, Measurements
from fwnkf.identify.selection import learned_parameters
from fwnkf.systems import Navigation, NavigationConfig
from fwnkf.types import Gaussian

pytestmark = pytest.mark.unchecked("a step with checks of shapes cannot be traced")
needs_compiler = pytest.mark.skipif(not engines.compiles(), reason="no C compiler on this machine")
LEARN = ("gyro_density", "accelerometer_density", "gnss_position_std", "gnss_velocity_std", "barometer_std")


def made(monkeypatch: pytest.MonkeyPatch, least: int) -> tuple[Likelihood, torch.Tensor]:
    monkeypatch.setattr(likelihoods, "TRACED_SAMPLES", least)
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    system = Navigation(NavigationConfig(sensors=("gnss_position", "gnss_velocity", "barometer")))
    model = fwnkf.build("ekf", system=system).double()
    y = 0.3 * normal(1, 60, 7)
    present = torch.rand(1, 60, 7, generator=generator) < 0.6
    u = 0.1 * normal(1, 60, 6)
    u[..., 5] -= system.motion.gravity
    dt = 0.02 + 0.05 * torch.rand(1, 60, generator=generator, dtype=torch.float64)
    first = system.layout.origin(y)
    prior = system.complete_prior(Gaussian(first[:-1][None], 0.1 * torch.eye(15, dtype=torch.float64)[None]))
    parameters = learned_parameters(model, LEARN)
    data = Measurements(torch.where(present, y, torch.nan), present, u, dt, prior)
    return Likelihood(model, parameters, data), parameters.start


@needs_compiler
def test_value_gradient_and_information_are_those_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, raw = made(monkeypatch, 1)
    loop, _ = made(monkeypatch, 10**9)
    assert (traced.engine, loop.engine) == ("native", "loop")
    for move in (0.0, 0.4, -0.7):
        found, expected = traced.local(raw + move), loop.local(raw + move)
        assert found.value == pytest.approx(expected.value, rel=1e-10)
        torch.testing.assert_close(found.gradient, expected.gradient, rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(found.information, expected.information, rtol=1e-4, atol=1e-3)


@needs_compiler
def test_the_filter_is_left_with_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the tracing in the config would fail in the next run by another engine."""
    traced, raw = made(monkeypatch, 1)
    traced.local(raw + 0.3)
    traced.parameters.finish(raw + 0.3)
    config = traced.model.system.config  # type: ignore[union-attr]
    assert config.gnss_position_std == pytest.approx(float((raw[2] + 0.3).exp()))
    assert isinstance(config.gnss_position_std, float)


@needs_compiler
def test_one_compilation_serves_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from fwnkf.native import time_loop

    traced, raw = made(monkeypatch, 1)
    traced.value(raw)
    built: list[object] = []
    monkeypatch.setattr(time_loop, "TimeLoop", lambda *inputs: built.append(inputs))
    for move in (0.1, 0.2, 0.3):
        traced.value(raw + move)
    assert not built
