"""Baselines on simulated records: their order, their limits, and the parts they are made of."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from fwnkf import cli
from fwnkf.data import protocols
from fwnkf.evaluation import baselines as of_evaluation
from fwnkf.evaluation.baselines import baselines, notched, oracle, strongest_tone
from fwnkf.evaluation.evaluate import evaluate
from fwnkf.evaluation.particle import particle_filter
from fwnkf.filters.factory import build

SMALL = {"train": 32, "val": 4, "test": 60}


@pytest.fixture
def quick_fit(monkeypatch):
    """One round of the grid over the noise of `ekf_fitted`, where its error does not matter."""
    monkeypatch.setattr(of_evaluation, "fitted_noise", partial(of_evaluation.fitted_noise, rounds=1))


@pytest.mark.unchecked("hundreds of steps, whose shapes other tests check")
@pytest.mark.usefixtures("quick_fit")
def test_who_knows_more_has_less_error_in_coloured_noise():
    """Equations without a sensor, equations with white noise assumed, equations and noise known."""
    protocol = protocols.simulated("lorenz", "strict", scenario="drift", **SMALL)
    rows = {row["method"]: row for row in baselines(protocol, scenario="drift")}
    assert rows["oracle"]["mse"] < rows["ekf"]["mse"] < rows["open_loop"]["mse"]
    assert rows["oracle"]["coverage95"] > rows["ekf"]["coverage95"]
    assert rows["oracle_second_order"]["mse"] == pytest.approx(rows["oracle"]["mse"], rel=0.02)
    assert all(row["failures"] == 0 for row in rows.values())
    assert {"method", "data", "protocol", "seed", "records", "scenario", "mse", "nis", "seconds"} <= set(rows["ekf"])


@pytest.mark.parametrize(
    ("scenario", "added"),
    [("white", set()), ("tone", {"notch_ekf", "tracked_notch_ekf", "oracle", "oracle_second_order"})],
)
@pytest.mark.usefixtures("quick_fit")
def test_baselines_are_those_that_make_sense_in_the_noise(scenario, added):
    protocol = protocols.simulated("pendulum", "strict", scenario=scenario, train=4, val=1, test=5)
    methods = {row["method"] for row in baselines(protocol, scenario=scenario)}
    assert methods == {"hold", "open_loop", "ekf", "ukf", "ekf_fitted"} | added


def test_the_oracle_of_white_noise_is_the_ekf():
    protocol = protocols.simulated("pendulum", "strict", **SMALL)
    system = protocol.split.test.system
    ours = evaluate(oracle(system, "white", protocol.split.test), protocol, "oracle")
    assert ours["mse"] == pytest.approx(evaluate(build("ekf", system=system), protocol, "ekf")["mse"], rel=1e-6)


@pytest.mark.parametrize("system", ["lorenz", "pendulum"])
def test_the_particle_filter_is_about_as_good_as_the_ekf(system):
    """To 8 %, the sampling error of this many particles and records; nothing beats the posterior mean by much."""
    records = protocols.simulated(system, "strict", train=1, val=1, test=40).split.test
    error = records.layout.boxminus(particle_filter(records, 1000), records.truth).square().mean()
    with torch.no_grad():
        track = build("ekf", system=records.system).run(**records.inputs())
    ekf = records.layout.boxminus(track.mean, records.truth).square().mean()
    assert 0.8 * float(ekf) < float(error) < 1.08 * float(ekf)


def test_a_notch_removes_its_tone_and_passes_what_is_slow():
    records = protocols.simulated("pendulum", "strict", train=1, val=1, test=3).split.test
    t = torch.arange(100).double()
    omega = torch.tensor([0.7, 1.0, 1.4]).double()
    tone = (omega[:, None] * t).sin().unsqueeze(-1).expand(-1, -1, 2)
    everything = torch.ones_like(tone, dtype=torch.bool)
    quiet = notched(replace(records, y=tone.clone(), mask=everything), omega).y
    assert float(quiet[:, 60:].abs().max()) < 0.02
    slow = notched(replace(records, y=torch.ones_like(tone), mask=everything), omega).y
    torch.testing.assert_close(slow, torch.ones_like(slow))
    strongest = strongest_tone(replace(records, y=tone + 1, mask=everything))
    assert float((strongest - omega).abs().max()) < 2 * math.pi / 100


def test_the_command_needs_its_data(capsys):
    with pytest.raises(SystemExit) as usage:
        cli.main(["bench", "references"])
    assert usage.value.code == 2
    with pytest.raises(SystemExit):
        cli.main(["bench", "references", "--data", "recordings"])
    assert "lorenz" in capsys.readouterr().err
