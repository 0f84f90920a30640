"""The reference ladder: known figures on EuRoC, sane order on simulated data."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace

import pytest
import torch

from fwnkf import cli
from fwnkf.data import protocols
from fwnkf.evaluation.baselines import notched, references, strongest_tone
from fwnkf.evaluation.particle import particle_filter
from fwnkf.filters.base import build
from tasks.euroc import strapdown as inertial

SMALL = {"train": 32, "val": 4, "test": 60}


def rows_of(*arguments, **options) -> dict[str, dict]:
    return {row["method"]: row for row in references(*arguments, **options)}


@pytest.mark.skipif(not os.environ.get("FWNKF_DATA"), reason="FWNKF_DATA does not name the recordings")
def test_euroc_paper_figures(capsys):
    """Hold, constant velocity, strapdown without and with bias, as measured elsewhere: within 3 %."""
    assert cli.main(["bench", "references", "--data", "euroc", "--protocol", "paper", "--json"]) == 0
    rows = {row["method"]: row["mse"] for row in json.loads(capsys.readouterr().out)}
    for method, known in {
        "hold": 0.0498,
        "constant_velocity": 0.0307,
        "strapdown": 0.0083,
        "strapdown_bias": 0.00031,
    }.items():
        assert rows[method] == pytest.approx(known, rel=0.03), method


def test_the_ladder_climbs_in_coloured_noise():
    """Equations without sensor, equations that take the noise for white, equations that know the noise."""
    rows = rows_of("lorenz", "strict", scenario="drift", **SMALL)
    assert rows["noise_state_ekf"]["mse"] < rows["ekf"]["mse"] < rows["open_loop"]["mse"]
    assert rows["noise_state_ekf"]["coverage95"] > rows["ekf"]["coverage95"]
    assert all(row["failures"] == 0 for row in rows.values())
    assert {"method", "data", "protocol", "seed", "records", "scenario", "mse", "seconds"} <= set(rows["ekf"])


def test_in_white_noise_noise_states_change_nothing():
    rows = rows_of("pendulum", "strict", **SMALL)
    assert rows["noise_state_ekf"]["mse"] == pytest.approx(rows["ekf"]["mse"], rel=1e-6)


@pytest.mark.parametrize("system", ["lorenz", "pendulum"])
def test_the_particle_filter_is_about_as_good_as_the_ekf(system):
    """To 8 %, the sampling error of this many particles and records; nothing beats the posterior mean by much."""
    task = protocols.simulated(system, "strict", train=1, val=1, test=40).split.test
    error = task.layout.boxminus(particle_filter(task, 1000), task.truth).square().mean()
    with torch.no_grad():
        track = build("ekf", system=task.system).run(**task.inputs())
    ekf = task.layout.boxminus(track.mean, task.truth).square().mean()
    assert 0.8 * float(ekf) < float(error) < 1.08 * float(ekf)


def test_a_notch_takes_its_tone_and_leaves_what_is_slow():
    task = protocols.simulated("pendulum", "strict", train=1, val=1, test=3).split.test
    t = torch.arange(100).double()
    omega = torch.tensor([0.7, 1.0, 1.4]).double()
    tone = (omega[:, None] * t).sin().unsqueeze(-1).expand(-1, -1, 2)
    quiet = notched(replace(task, y=tone.clone(), mask=torch.ones_like(tone, dtype=torch.bool)), omega).y
    assert float(quiet[:, 60:].abs().max()) < 0.02
    slow = notched(replace(task, y=torch.ones_like(tone), mask=torch.ones_like(tone, dtype=torch.bool)), omega).y
    torch.testing.assert_close(slow, torch.ones_like(slow))
    found = strongest_tone(replace(task, y=tone + 1, mask=torch.ones_like(tone, dtype=torch.bool)))
    assert float((found - omega).abs().max()) < 2 * math.pi / 100


def test_the_interquartile_mean_is_deaf_to_outliers():
    samples = torch.cat((torch.linspace(-1, 1, 101), torch.full((10,), 1e6))).double().unsqueeze(-1)
    assert abs(float(inertial.interquartile_mean(samples))) < 0.15


def test_the_command_line_says_what_is_wrong(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FWNKF_DATA", str(tmp_path))
    assert cli.main(["bench", "references", "--data", "euroc", "--protocol", "paper"]) == 1
    assert "EuRoC" in capsys.readouterr().err
    assert cli.main(["data", "list", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {"broad", "dido", "euroc", "uipdb"}
    assert cli.main(["data", "info", "broad"]) == 0
    assert "CC BY 4.0" in capsys.readouterr().out
    assert cli.main(["data", "info", "kitti"]) == 1
    assert "euroc" in capsys.readouterr().err
    assert cli.main(["data", "verify", "broad"]) == 1
    with pytest.raises(SystemExit) as usage:
        cli.main(["bench", "references"])
    assert usage.value.code == 2
