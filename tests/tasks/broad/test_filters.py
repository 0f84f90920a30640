"""Candidates in one batch are the filters run one by one, preprocessing and all."""

from __future__ import annotations

import torch

from tasks.broad.filters import heading_filter, headings_of, run, tilt_filter, tilts_of
from tasks.broad.search import Practice
from tests.tolerances import assert_close

TILTS = [{"oscillation_std": 0.2, "speed_exponent": 1.0}, {"gyro_density": 1e-3, "delay": 0.01}]
HEADINGS = [
    {"field": (1.0, 14.0, -40.0), "rate_error_seconds": 3.0},
    {"hard_iron_std": 0.2, "disturbance_seconds": 1.0, "delay": 0.01},
]


def test_candidates_in_a_batch_are_single_filters(simulated_trial):
    practice = Practice.of([simulated_trial(), simulated_trial(seconds=5.0)])
    together = tilts_of(TILTS, practice.samples, practice.blocks, practice.rate)
    for numbers, estimate in zip(TILTS, together, strict=True):
        alone = run(tilt_filter(numbers, practice.rate), practice.samples)
        assert_close(estimate.paths, alone.paths, "batch")
        assert_close(estimate.trajectory.cov, alone.trajectory.cov, "batch")
    tilt = tilt_filter(TILTS[1], practice.rate)
    headings = headings_of(HEADINGS, practice.samples, together[1].paths, practice.turning, practice.rate)
    for numbers, estimate in zip(HEADINGS, headings, strict=True):
        alone = run(heading_filter(numbers, tilt), practice.samples)
        assert_close(estimate.paths, alone.paths, "batch")
        assert_close(estimate.trajectory.cov, alone.trajectory.cov, "batch")


def test_the_estimate_depends_on_no_later_sample(simulated_trial):
    samples = Practice.of([simulated_trial()]).samples
    tilt = tilt_filter({"delay": 0.002}, simulated_trial().rate)
    model = heading_filter({"delay": 0.01}, tilt)
    whole, part = run(model, samples).paths, run(model, samples[:, :1400]).paths
    changed = run(model, torch.cat((samples[:, :1400], -samples[:, 1400:]), 1)).paths
    # of the last block that is not whole, the gyroscope's bias is subtracted in another order
    assert float((whole[:, :1400] - part).abs().max()) < 1e-6
    assert bool((whole[:, :1392] == changed[:, :1392]).all())
