"""Fits without truth: near the parameters the records were made with, and honest where that is impossible."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path

import pytest
import torch

import fwnkf
from fwnkf.errors import ConfigError, DataError
from fwnkf.systems.motion import ConstantVelocity, ConstantVelocityConfig

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("fit_benchmark", ROOT / "benchmarks" / "fit.py")
assert spec is not None
assert spec.loader is not None
benchmark = importlib.util.module_from_spec(spec)
sys.modules["fit_benchmark"] = benchmark
spec.loader.exec_module(benchmark)


def fitted(name: str, steps: int, count: int, seed: int, **options: object) -> fwnkf.identify.Fit:
    _, y = benchmark.simulate(benchmark.CASES[name], count, steps, seed)
    dt = torch.full(y.shape[:2], 1 / benchmark.RATE).double()
    dt[:, 0] = 0.0
    system = ConstantVelocity(ConstantVelocityConfig(dims=1, dt=1 / benchmark.RATE)).double()
    return fwnkf.fit(system, y, dt=dt, **options)


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
def test_a_tone_is_found_within_its_standard_errors():
    case = benchmark.CASES["tone"]
    report = fitted("tone", 500, 6, 0, held_out=[1, 4]).report
    truth = {
        "density": benchmark.DENSITY,
        "variance": benchmark.VARIANCE,
        "oscillators[0].hz": case.hertz,
        "oscillators[0].bandwidth_hz": case.bandwidth,
        "oscillators[0].std": case.std,
    }
    assert {parameter.name for parameter in report.parameters} == set(truth)
    for parameter in report.parameters:
        assert abs(parameter.value - truth[parameter.name]) < 4 * parameter.standard_error
    assert report.value("oscillators[0].hz") == pytest.approx(case.hertz, rel=0.01)
    assert report.fitted.log_likelihood > report.before.log_likelihood + 0.5
    assert report.held_out is not None
    assert report.held_out.records == 2
    assert 0.9 < report.held_out.nis < 1.1
    assert [order.oscillators for order in report.orders] == [0, 1, 2]
    assert min(report.orders, key=lambda order: order.bic).oscillators == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", list(benchmark.CASES))
def test_bounds_of_the_benchmark(name: str):
    assert benchmark.run(name, seed=0)["holds"]


def test_gain_of_a_sensor_and_size_of_its_signal_cannot_be_told_apart():
    """Only ``H² Q`` shows in the measurements of a state that nobody knows."""
    generator = torch.Generator().manual_seed(0)
    walk = torch.randn(5, 300, 1, generator=generator, dtype=torch.float64).cumsum(1)
    walk = walk - walk[:, :1]  # from zero, as the prior says, which would tell the gain if it had a size
    y = 2 * walk + torch.randn(5, 300, 1, generator=generator, dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    model = fwnkf.build("kf", F=one, H=one, Q=one, R=one, learn=("H",))
    prior = fwnkf.Gaussian(torch.zeros(1).double(), 0 * one)
    report = fwnkf.fit(model, y, prior=prior, learn=("Q", "R", "H"), held_out=0.0).report
    (direction,) = report.flat
    assert set(direction.parameters) == {"Q[0,0]", "H[0,0]"}
    # along the direction H² Q does not change: Q moves by -2 times the share of H
    weights = dict(zip(direction.parameters, direction.weights, strict=True))
    assert weights["Q[0,0]"] / weights["H[0,0]"] == pytest.approx(-2, rel=0.05)
    assert "cannot be distinguished" in direction.text
    assert direction.text in report.lines()
    assert report.value("H[0,0]") ** 2 * report.value("Q[0,0]") == pytest.approx(4.0, rel=0.2)
    errors = {parameter.name: parameter.standard_error for parameter in report.parameters}
    assert math.isinf(errors["Q[0,0]"])
    assert math.isfinite(errors["R[0,0]"])


def test_constants_without_influence_are_named():
    """Without a torque, the mass of a pendulum shows in its damping alone; without damping it does not show."""
    system = fwnkf.core.system.build_system("pendulum", {"damping": 0.0}).double()
    generator = torch.Generator().manual_seed(0)
    y = 0.1 * torch.randn(2, 40, 2, generator=generator, dtype=torch.float64) - torch.tensor([0.0, 1.0])
    report = fwnkf.fit(system, y, learn=("R", "mass"), oscillators=0, held_out=0.0).report
    assert [direction.text for direction in report.flat] == [
        "mass has no influence on the measurements: it keeps its start"
    ]


def test_a_filter_is_not_changed_and_keeps_its_dtype():
    one = torch.ones(1, 1)
    model = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    result = fwnkf.fit(model, torch.randn(2, 60, 1, generator=torch.Generator().manual_seed(0)))
    assert result.filter.dtype == torch.float32
    assert model.system.R().item() == 1.0
    assert result.filter.system.R().item() != 1.0


@pytest.mark.unchecked("the shape checker raises first")
def test_faults_are_named():
    one = torch.ones(1, 1)
    model = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    y = torch.zeros(2, 10, 1)
    with pytest.raises(ConfigError, match="a filter keeps the noise states it has"):
        fwnkf.fit(model, y, oscillators=2)
    with pytest.raises(ConfigError, match="a number from 0 on, or 'auto'"):
        fwnkf.fit(model.system, y, oscillators="few")
    with pytest.raises(ConfigError, match="held_out"):
        fwnkf.fit(model, y, held_out=1.5)
    with pytest.raises(DataError, match="no sample of y is present"):
        fwnkf.fit(model, torch.full_like(y, math.nan))
    with pytest.raises(DataError, match=r"wanted \[records, steps, channels\]"):
        fwnkf.fit(model, y[0])


def test_a_fit_can_be_stopped():
    one = torch.ones(1, 1).double()
    model = fwnkf.build("kf", F=one, H=one, Q=one, R=one)
    report = fwnkf.fit(model, torch.randn(2, 60, 1).double(), stop=lambda: True).report
    assert report.stopped
    assert report.iterations == 0


@pytest.mark.parametrize(
    ("records", "frequencies"),
    [
        (4, (17.0,)),
        pytest.param(1, (17.0,), marks=pytest.mark.slow),
        *(pytest.param(records, tones, marks=pytest.mark.slow) for records in (1, 4) for tones in ((), (11.0, 31.0))),
    ],
)
def test_as_many_oscillators_as_there_are_tones(frequencies: tuple[float, ...], records: int) -> None:
    """The spectrum of a pure tone has the shape of the window, to which a second oscillator would be fitted."""
    generator = torch.Generator().manual_seed(3)
    time = torch.arange(600 if records > 1 else 3000, dtype=torch.float64) / 100
    walk = torch.randn(records, len(time), 1, generator=generator, dtype=torch.float64).cumsum(1).cumsum(1)
    y = 5e-4 * walk + 0.1 * torch.randn(walk.shape, generator=generator, dtype=torch.float64)
    for hertz in frequencies:
        phase = 6 * torch.rand(records, 1, generator=generator, dtype=torch.float64)
        y = y + 0.5 * torch.sin(2 * math.pi * hertz * time + phase).unsqueeze(-1)
    system = ConstantVelocity(ConstantVelocityConfig(dims=1, dt=0.01)).double()
    orders = fwnkf.fit(system, y, held_out=0.0).report.orders
    assert [order.oscillators for order in orders if order.chosen] == [len(frequencies)]
