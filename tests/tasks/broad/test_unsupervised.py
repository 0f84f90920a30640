"""The fit to trials without their orientation, on simulated trials."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tasks.broad import unsupervised
from tasks.broad.filters import run, tilt_filter
from tasks.broad.trials import BLOCK, side_by_side


def test_nis_does_not_count_what_comes_after_the_end_of_a_trial(simulated_trial):
    trials = [simulated_trial(seconds=seconds) for seconds in (9.0, 6.0)]
    model = tilt_filter({}, trials[0].rate)
    together = unsupervised.trial_nis(trials, run(model, side_by_side(trials)).trajectory)
    totals = counts = 0.0
    for trial in trials:
        track = run(model, side_by_side([trial])).trajectory
        count = float(track.weight[:, : len(trial) // BLOCK].sum())
        totals, counts = totals + count * unsupervised.trial_nis([trial], track), counts + count
    assert together == pytest.approx(totals / counts, rel=1e-9)


def test_the_fit_needs_no_truth_and_makes_innovations_likelier(simulated_trial):
    trial = simulated_trial(seconds=6.0)
    blind = replace(trial, truth=torch.full_like(trial.truth, torch.nan), truth_mask=torch.zeros_like(trial.truth_mask))
    lines: list[str] = []
    numbers = unsupervised.fit([blind], say=lines.append, iterations=3)
    values = [float(line.split()[-1]) for line in lines]
    assert set(numbers) == {*unsupervised.FITTED, "rest_velocity_std"}
    assert values == sorted(values)
    assert values[-1] > values[0]
