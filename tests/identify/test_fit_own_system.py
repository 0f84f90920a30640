"""Fits of systems made of plain functions: constants, and covariances given as numbers or as functions."""

from __future__ import annotations

import pytest
import torch

import fwnkf
from fwnkf.data.simulate import simulate


def swing(p, v, dt, stiffness=9.0, damping=0.8):
    return p + dt * v, v - dt * (stiffness * p + damping * v)


def position(p, v):
    return p


def drive(dt, power=0.5):
    return torch.stack((1e-4 * dt, power * dt))


def oscillator(**values: float) -> fwnkf.System:
    return fwnkf.System.of(
        swing, position, name="fitted_oscillator", dt=0.05, state=["p", "v"], Q=drive, R=0.01,
        measurement=["p"], positive=["stiffness", "power"], constants=values,
        initial_mean=(0.0, 0.0), initial_std=(0.5, 0.5),
    )  # fmt: skip


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_constants_of_functions_are_found_within_their_standard_errors(tmp_path):
    truth = {"stiffness": 9.0, "damping": 0.8, "power": 0.5, "R[0,0]": 0.01}
    data = simulate(oscillator().double(), trajectories=8, steps=300, seed=3)
    start = oscillator(stiffness=4.0, damping=0.3, power=0.1).double()
    result = fwnkf.fit(start, data.y, dt=data.dt, learn=("Q", "R", "constants"), oscillators=0, held_out=0.25)
    assert {parameter.name for parameter in result.report.parameters} == set(truth)
    for parameter in result.report.parameters:
        assert abs(parameter.value - truth[parameter.name]) < 4 * parameter.standard_error < truth[parameter.name]
    assert result.report.held_out is not None
    assert 0.85 < result.report.held_out.nis < 1.15
    # the values are saved with the filter
    again = fwnkf.load(fwnkf.save(result.filter, tmp_path / "filter"))
    assert again.system.constants()["stiffness"].item() == pytest.approx(result.report.value("stiffness"), rel=1e-6)


def test_variances_given_as_numbers_are_learned():
    def walk(x):
        return x

    def seen(x):
        return x

    generator = torch.Generator().manual_seed(0)
    x = 0.3 * torch.randn(6, 300, 1, generator=generator, dtype=torch.float64).cumsum(1)
    y = x + 0.5 * torch.randn(6, 300, 1, generator=generator, dtype=torch.float64)
    system = fwnkf.System.of(walk, seen, name="fitted_walk", state=["x"], measurement=1, Q=1.0, R=1.0).double()
    report = fwnkf.fit(system, y, oscillators=0, held_out=0.0).report
    for parameter in report.parameters:
        assert abs(parameter.value - {"Q[0,0]": 0.09, "R[0,0]": 0.25}[parameter.name]) < 4 * parameter.standard_error
