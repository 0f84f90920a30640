"""EuRoC in the accuracy table: the fits against data of known making, the shipped models against their figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fwnkf.data.euroc import LAYOUT
from fwnkf.data.protocols import Records
from fwnkf.data.recording import Span
from fwnkf.systems import CalibratedStrapdown, CalibratedStrapdownConfig
from fwnkf.types import Gaussian
from tasks.euroc import calibration as euroc_calibration
from tasks.euroc import card as euroc_card
from tasks.euroc import filter as euroc_filter
from tasks.euroc import paper as euroc
from tasks.euroc import strict as euroc_strict

from ..tolerances import assert_close

MODELS = Path(__file__).parents[2] / "models"
needs_data = pytest.mark.skipif("FWNKF_DATA" not in os.environ, reason="needs the recordings: set FWNKF_DATA")


def flown(generator: torch.Generator, calibration: torch.Tensor, count: int = 12, length: int = 120) -> Records:
    """Windows whose truth is the mechanisation itself under a known calibration, stepped by the system."""
    t = torch.arange(length, dtype=torch.float64) * 0.005
    phase = 6.3 * torch.rand(count, 1, 6, generator=generator, dtype=torch.float64)
    size = torch.tensor([0.6, 0.8, 0.5, 2.0, 2.0, 1.0], dtype=torch.float64)
    pace = 4.0 + 6.0 * torch.rand(count, 1, 6, generator=generator, dtype=torch.float64)
    y = size * (pace * t[None, :, None] + phase).sin() + torch.tensor([0, 0, 0, 0, 0, 9.81], dtype=torch.float64)
    system = CalibratedStrapdown(CalibratedStrapdownConfig(biases=False)).double()
    with torch.no_grad():
        system.calibration[0] = calibration
        tilt = 0.5 * torch.randn(count, 9, generator=generator, dtype=torch.float64)
        x = LAYOUT.boxplus(LAYOUT.origin(y).expand(count, -1), tilt)
        path, u = [x], system.sight(y).u
        for k in range(1, length):
            path.append(system.transition(path[-1], u[:, k], None))
    truth = torch.stack(path, 1)
    dt = torch.full((count, length), 0.005, dtype=torch.float64)
    dt[:, 0] = 0.0
    spans = tuple(Span("made up", "", i * length, (i + 1) * length) for i in range(count))
    start = Gaussian(truth[:, 0], torch.zeros(9, 9, dtype=torch.float64))
    return Records("made up", y, truth, torch.ones_like(y, dtype=torch.bool), dt, None, start, LAYOUT, spans)


def known_calibration(generator: torch.Generator) -> torch.Tensor:
    found = 0.02 * torch.randn(28, generator=generator, dtype=torch.float64)
    found[9] = 0.4
    return found


def test_the_fit_finds_the_calibration_that_was_put_in(generator):
    true = known_calibration(generator)
    found = euroc_calibration.fit(flown(generator, true), rounds=4, every=5)
    # the ridge of 1e-6 leaves a little where scale, bias and gravity are hard to tell apart
    assert (found - true).abs().max() < 2e-4


def test_the_fast_path_is_the_filters_path(generator):
    calibration = known_calibration(generator)
    task = flown(generator, calibration)
    system = CalibratedStrapdown(CalibratedStrapdownConfig()).double()
    with torch.no_grad():
        system.calibration[0] = calibration
    track = euroc_filter.run(euroc_filter.assemble(system, None), task)
    fast = euroc_calibration.integrate(task, calibration[None])[0]
    assert_close(track.mean, fast, "algebra")
    assert_close(fast, task.truth, "algebra")


def test_parts_that_are_not_free_stay_where_they_were(generator):
    start = known_calibration(generator)
    found = euroc_calibration.fit(flown(generator, known_calibration(generator)), ("gravity",), start)
    moved = (found != start).nonzero().flatten().tolist()
    assert moved == [6, 7, 8]


def test_the_spread_of_windows_made_with_noise_is_that_noise(rng):
    """Sensors with a white noise and a bias for each window, against the numbers they were drawn with."""
    count, length, h = 400, 200, 0.005
    density, bias = np.array([2e-3, 4e-2]), np.array([4e-3, 8e-2])
    noise = rng.standard_normal((count, length, 2, 3)) * (density / np.sqrt(h))[:, None]
    noise += rng.standard_normal((count, 1, 2, 3)) * bias[:, None]
    rest = np.array([0, 0, 0, 0, 0, 9.81])
    y = torch.from_numpy(noise.reshape(count, length, 6) + rest)
    level = LAYOUT.origin(y)
    dt = torch.full((count, length), h, dtype=torch.float64)
    dt[:, 0] = 0.0
    start = Gaussian(level.expand(count, -1), torch.zeros(9, 9, dtype=torch.float64))
    truth = level.expand(count, length, -1)
    spans = tuple(Span("rest", "", i * length, (i + 1) * length) for i in range(count))
    task = Records("rest", y, truth, torch.ones_like(y, dtype=torch.bool), dt, None, start, LAYOUT, spans)
    found = euroc_calibration.spread(task, torch.zeros(1, 28, dtype=torch.float64), [0] * count)
    # 200 windows of three axes: a standard deviation is known to 3 %, the split of two of them to less
    assert found.gyro_density == pytest.approx(density[0], rel=0.2)
    assert found.accelerometer_density == pytest.approx(density[1], rel=0.2)
    assert found.biases[0] == pytest.approx(bias[0], rel=0.2)
    assert found.biases[3] == pytest.approx(bias[1], rel=0.2)


def test_a_target_is_a_limit_or_an_interval():
    assert euroc_card.reached(0.5, 0.6) is True
    assert euroc_card.reached(0.5, 0.4) is False
    assert euroc_card.reached(1.0, (0.9, 1.1)) is True
    assert euroc_card.reached(1.2, [0.9, 1.1]) is False
    assert euroc_card.reached(1.2, None) is None


@pytest.mark.parametrize("task", [euroc.TASK, euroc_strict.TASK])
def test_a_card_says_what_its_figures_say(task):
    folder = MODELS / task
    figures = json.loads((folder / "figures.json").read_text())
    text = (folder / "README.md").read_text()
    module = euroc if task == euroc.TASK else euroc_strict
    title = text.splitlines()[0].removeprefix("# ")
    assert text == euroc_card.card(figures, title, module.TEXT, module.LIMITS)
    for name, mean in figures["mean"].items():
        assert mean == pytest.approx(np.mean([one[name] for one in figures["seeds"]]))
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1 << 20


@needs_data
def test_the_shipped_models_have_the_figures_they_claim():
    found = list(euroc.measure(MODELS, quick=True))
    assert {row["task"] for row in found} == {euroc.TASK, euroc_strict.TASK}
    for task in (euroc.TASK, euroc_strict.TASK):
        claimed = json.loads((MODELS / task / "figures.json").read_text())["quick"]
        measured = {row["metric"]: row["value"] for row in found if row["task"] == task}
        assert measured == pytest.approx(claimed, rel=0.01)
